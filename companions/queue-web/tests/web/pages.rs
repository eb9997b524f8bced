//! What the pages of batches and of a task do in a real browser.

use std::sync::Arc;
use std::time::Duration;

use fantoccini::Locator;
use queue_core::RawTask;
use queue_worker::{Failure, Job, Router, Server};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::browser::{Window, is_there};
use crate::support::{Place, QUEUE, Served, wait_for};
use crate::texts::TEXTS;

/// The states of the nodes, by the table beside the drawing.
const STATES: &str = "return [...document.querySelectorAll('main table')].find((table) => table.caption.innerText.startsWith('Nodes')) \
     ?.tBodies[0].innerText ?? ''";

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_given_and_what_is_dead_is_run_again_and_the_drawing_follows_by_itself() {
    if !is_there() {
        return;
    }
    let place = Place::start().await;
    place.release().await;
    let served = Served::start(&place.open().0).await;
    let window = Window::open((1_200, 900), false).await;
    window.go(&format!("{}batches", served.address)).await;
    window.has("release 42").await;
    window.click("main tbody a").await;
    window.has("roll-back").await;
    let drawn = |what: &str| format!("return document.querySelectorAll('svg.graph {what}').length");
    assert_eq!(window.script(&drawn("rect.node")).await, 5);
    assert_eq!(window.script(&drawn("> path")).await, 5);
    assert_eq!(window.script(&drawn("> path.failed")).await, 1);
    window.click("[data-action='batch.cancel']").await;
    window.has("it has 1 children").await;
    window.click("dialog button[value=no]").await;
    let said = window.browser.find(Locator::Css("main input[aria-label^='What is said']")).await.unwrap();
    said.send_keys(r#"{"by": "ada"}"#).await.unwrap();
    window.click("[data-action='batch.signal']").await;
    window.has("Give the signal of this node?").await;
    window.click("dialog button[value=yes]").await;
    window.has("the signal is given").await;
    window.has(r#"{"by":"ada"}"#).await;
    // The batch in it: a node of the drawing leads to its page, without another load of the document.
    window.script("window.same = true").await;
    window.click("svg.graph a[href*='batch?']").await;
    window.has("Parent").await;
    window.click("[data-action='batch.retry']").await;
    window.has("1 of its own members are dead").await;
    window.click("dialog button[value=yes]").await;
    window.has("1 members are run again").await;
    assert_eq!(window.script("return window.same").await, true);
    // What changes is seen by itself: the member dies once more, and is deleted.
    let server = place.work().await;
    window.has("2 succeeded, 1 dead").await;
    server.shutdown().await;
    window.click("[data-action='batch.resolve']").await;
    window.has("1 of its own members are dead or removed").await;
    window.click("dialog button[value=yes]").await;
    window.has("1 members count as succeeded").await;
    assert_eq!(window.faults(&served.address).await, [""; 0]);
    window.close().await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_words_of_a_workflow_that_mean_harm_are_only_text() {
    if !is_there() {
        return;
    }
    let place = Place::start().await;
    let script = TEXTS[0];
    let mut flow = place.client.workflow().id("harm").description(script);
    for (n, text) in TEXTS.iter().enumerate() {
        flow = flow.task(format!("n{n}"), RawTask::new(*text).queue(QUEUE).payload((*text).to_owned()));
        if n > 0 {
            flow = flow.after([format!("n{}", n - 1)]);
        }
    }
    let flow = flow
        .task("__proto__", RawTask::new("t").queue(QUEUE))
        .signal("said")
        .after(["__proto__"])
        .start()
        .await
        .unwrap();
    flow.signal("said", &json!({ script: TEXTS[1] })).await.unwrap();
    // Our builders refuse such names, and whoever writes to Redis does not ask them.
    for (n, name) in ["javascript:alert(1)", "{{7*7}}${7*7}", "<img/src=x/onerror=alert(1)>"].into_iter().enumerate() {
        place.command::<i64>(&format!("HDEL asynq:x:{{harm}}:0:names n{n}")).await;
        place.command::<i64>(&format!("HSET asynq:x:{{harm}}:0:names {name} {}", n + 1)).await;
    }
    let served = Served::start(&place.open().0).await;
    let window = Window::open((1_200, 900), true).await;
    for page in ["batches", "batch?id=harm"] {
        window.go(&format!("{}{page}", served.address)).await;
        window.has(script).await;
        assert_eq!(window.faults(&served.address).await, [""; 0], "{page}");
        assert_eq!(window.script("return document.title").await, "Queues");
        assert_eq!(window.script("return document.querySelectorAll('main img, main script').length").await, 0);
    }
    window.has("per%cent").await;
    let shown = window.script(STATES).await;
    for text in ["javascript:alert(1)", "[U+202E]turned", "__proto__", "{{7*7}}${7*7}", "<img/src=x/onerror=alert(1)>"]
    {
        assert!(shown.as_str().unwrap().contains(text), "{text}: {shown}");
    }
    window.close().await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_late_does_not_take_the_place_of_what_was_asked_for_later() {
    if !is_there() {
        return;
    }
    let place = Place::start().await;
    let served = Served::start(&place.open().0).await;
    let window = Window::open((800, 600), false).await;
    window.go(&served.address).await;
    let shown = window.script(
        "return (async () => { const { into } = await import(document.querySelector('script').src.replace('app.js', 'ui.js')); \
         const place = document.createElement('p'), text = (answer) => answer; \
         let late; \
         const first = into(place, () => new Promise((answer) => { late = answer; }), text); \
         await into(place, async () => 'second', text); \
         late('first'); \
         await first; \
         return place.textContent; })()",
    );
    assert_eq!(shown.await, "second");
    window.close().await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_many_members_is_leafed_through_and_one_with_many_nodes_is_drawn() {
    if !is_there() {
        return;
    }
    let place = Place::start().await;
    let flow = place.client.workflow().id("wide").batch("all", (0..120).map(|_| crate::support::member("fine")));
    // Each row of ten waits for the row before.
    let flow = (0..100).fold(flow, |flow, n| {
        let flow = flow.task(format!("n{n}"), crate::support::member("fine"));
        if n < 10 { flow } else { flow.after((0..10).map(|m| format!("n{}", n / 10 * 10 - 10 + m))) }
    });
    flow.start().await.unwrap();
    let served = Served::start(&place.open().0).await;
    let window = Window::open((1_200, 900), false).await;
    window.go(&format!("{}batch?id=wide", served.address)).await;
    window.has("n99").await;
    let overlaps = window.script(
        "const boxes = [...document.querySelectorAll('svg.graph rect.node')].map((box) => box.x.baseVal.value + ' ' + box.y.baseVal.value); \
         return [boxes.length, new Set(boxes).size, document.querySelectorAll('svg.graph > path').length]",
    );
    assert_eq!(overlaps.await, json!([101, 101, 900]));
    let layers =
        "return new Set([...document.querySelectorAll('svg.graph rect.node')].map((box) => box.x.baseVal.value)).size";
    assert_eq!(window.script(layers).await, 10, "each row stands behind the row that it waits for");
    let wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
    assert!(window.script(wide).await.as_i64().unwrap() <= 0, "the drawing moves in itself");
    window.click("svg.graph a[href*='batch?']").await;
    window.has("Parent").await;
    let ids = async || {
        window.script("return [...document.querySelectorAll('main table')].at(-1)?.tBodies[0].rows.length ?? 0").await
    };
    wait_for("the first page", async || (ids().await == 50).then_some(())).await;
    assert_eq!(
        window.script("return document.querySelectorAll('svg.graph').length").await,
        0,
        "nothing waits for anything"
    );
    for left in [50, 20] {
        // Two pages have as many rows: a click that comes too soon would ask for the same one again.
        let first = async || {
            window
                .script("return [...document.querySelectorAll('main table')].at(-1)?.tBodies[0].rows[0]?.textContent")
                .await
        };
        let before = first().await;
        window.click("main [data-next]").await;
        wait_for("the next page", async || (ids().await == left && first().await != before).then_some(())).await;
    }
    assert_eq!(window.faults(&served.address).await, [""; 0]);
    window.close().await;
    served.end().await;
}

/// Fails once; then goes a step whenever a door is open.
async fn walk(doors: &Semaphore, job: &Job) -> Result<(), Failure> {
    if job.retried() == 0 {
        job.log(format!("first host: {}", TEXTS[0]));
        return Err(Failure::retry_in(Duration::ZERO, format!("no answer {}", TEXTS[1])).traced("0: ask <b>\n1: main"));
    }
    for percent in [40, 80] {
        job.progress(percent, "pages");
        job.log(format!("read {percent} pages"));
        doors.acquire().await.unwrap().forget();
    }
    Ok(())
}

/// Neither moves the counters of the queue, by which the page knows that its task has gone on.
#[tokio::test(flavor = "multi_thread")]
async fn progress_and_log_of_a_running_task_come_by_themselves_and_what_failed_before_is_told() {
    if !is_there() {
        return;
    }
    let place = Place::start().await;
    let steps = Arc::new(Semaphore::new(0));
    let doors = steps.clone();
    let work = move |job: Job| {
        let doors = doors.clone();
        async move { walk(&doors, &job).await }
    };
    let router = Router::new(()).route("email:", work);
    let server = Server::new(place.redis.clone(), router).queues([(QUEUE, 1)]).start().await.unwrap();
    place.put([crate::support::task("a").retention(Duration::from_secs(60))]).await;
    let served = Served::start(&place.open().0).await;
    let window = Window::open((1_200, 900), false).await;
    wait_for("it runs again", async || {
        let task = place.inspector.task(QUEUE, "a").await.unwrap();
        (task.progress.is_some_and(|progress| progress.percent == 40)).then_some(())
    })
    .await;
    window.go(&format!("{}task?queue={QUEUE}&id=a", served.address)).await;
    window.has("the last 1 of 1").await;
    window.has("no answer").await;
    window.has("Backtrace of the last").await;
    let backtrace = "return [...document.querySelectorAll('details')].find((it) => it.textContent.startsWith('Backtrace')).lastChild.textContent";
    assert_eq!(window.script(backtrace).await, "0: ask <b>\n1: main\n");
    window.has("#2 read 40 pages").await;
    assert_eq!(window.script("return document.querySelector('progress').value").await, 40);
    window.script("window.seen = document.querySelector('dl.facts')").await;
    steps.add_permits(1);
    window.has("#2 read 80 pages").await;
    assert_eq!(window.script("return document.querySelector('progress').value").await, 80);
    let same = "return window.seen === document.querySelector('dl.facts')";
    assert_eq!(window.script(same).await, true, "the rest of the page is left alone");
    steps.add_permits(1);
    window.has("succeeded").await;
    window.has("#2 read 80 pages").await;
    assert_eq!(window.faults(&served.address).await, [""; 0]);
    assert_eq!(window.script("return document.querySelectorAll('main img, main script').length").await, 0);
    window.close().await;
    served.end().await;
    server.shutdown().await;
}
