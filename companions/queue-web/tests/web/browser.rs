//! The pages in a real browser, by way of `chromedriver`: Debian's `chromium-headless-shell`, which takes a quarter of the time that
//! `chromium` takes, or that one where the shell is missing.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fantoccini::wd::Capabilities;
use fantoccini::{Client as Browser, ClientBuilder, Locator};
use queue_admin::{Role, Verb};
use queue_core::RawTask;
use queue_redis::Client;
use queue_web::{Identity, Web};
use serde_json::{Value, json};

use crate::support::{Mortal, Place, QUEUE, Served, task, wait_for};
use crate::texts::TEXTS;

/// A browser and its driver. Both end with it.
pub(crate) struct Window {
    pub(crate) browser: Browser,
    _driver: Ended,
    _program: Ended,
    _profile: tempfile::TempDir,
}

/// A process and its children, which end with this, also where a test fails. Debian's browsers are started by scripts.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", self.0.id())]).status();
        let _ = self.0.wait();
    }
}

fn quiet(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command
}

fn found(program: &str) -> bool {
    quiet(program).arg("--version").status().is_ok()
}

fn program() -> Option<&'static str> {
    ["chromium-headless-shell", "chromium"].into_iter().find(|program| found(program))
}

/// Whether there is a browser. Without one, the tests here are skipped loudly, and fail where `REQUIRE_TOOLS` is set.
pub(crate) fn is_there() -> bool {
    let is_there = program().is_some() && found("chromedriver");
    if !is_there {
        assert!(std::env::var_os("REQUIRE_TOOLS").is_none(), "chromium and chromium-driver are missing");
        eprintln!(
            "!!! chromium or chromium-driver is missing: the pages are NOT TESTED in a browser; scripts/setup installs them"
        );
    }
    is_there
}

/// What a page is asked to remember from its first moment on.
const PROBE: &str = "
    window.faults = [];
    addEventListener('error', (event) => faults.push('error: ' + event.message));
    addEventListener('unhandledrejection', (event) => faults.push('rejection: ' + event.reason));
    document.addEventListener('securitypolicyviolation', (event) => faults.push('policy: ' + event.violatedDirective + ' ' + event.blockedURI));
    for (const name of ['error', 'warn']) {
        const before = console[name];
        console[name] = (...words) => { faults.push(name + ': ' + words.join(' ')); before(...words); };
    }";

impl Window {
    pub(crate) async fn open(size: (u32, u32), dark: bool) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut command = quiet(program().unwrap());
        command
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--disable-background-networking", "--remote-debugging-port=0"])
            .arg(format!("--window-size={},{}", size.0, size.1))
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(dark.then_some("--force-dark-mode"))
            .arg("about:blank");
        let program = Ended(command.spawn().unwrap());
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let driver = Ended(quiet("chromedriver").arg(format!("--port={port}")).spawn().unwrap());
        let debugged = wait_for("the browser says its port", async || {
            let said = std::fs::read_to_string(profile.path().join("DevToolsActivePort")).ok()?;
            said.lines().next().map(str::to_owned)
        })
        .await;
        let options = json!({ "debuggerAddress": format!("127.0.0.1:{debugged}") });
        let wanted = Capabilities::from_iter([("goog:chromeOptions".to_owned(), options)]);
        let address = format!("http://127.0.0.1:{port}");
        let browser = wait_for("the driver answers", async || {
            ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new())
                .capabilities(wanted.clone())
                .connect(&address)
                .await
                .ok()
        })
        .await;
        let window = Self { browser, _driver: driver, _program: program, _profile: profile };
        window.devtools("Page.addScriptToEvaluateOnNewDocument", json!({ "source": PROBE })).await;
        window
    }

    /// A command of the browser's own.
    pub(crate) async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let call = Devtools(json!({ "cmd": command, "params": parameters }));
        self.browser.issue_cmd(call).await.unwrap()
    }

    pub(crate) async fn go(&self, address: &str) {
        self.browser.goto(address).await.unwrap();
    }

    pub(crate) async fn script(&self, text: &str) -> Value {
        self.browser.execute(text, Vec::new()).await.unwrap()
    }

    pub(crate) async fn text(&self) -> String {
        self.script("return document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    pub(crate) async fn has(&self, text: &str) {
        let limit = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            let shown = self.text().await;
            if shown.contains(text) {
                return;
            }
            assert!(
                tokio::time::Instant::now() < limit,
                "no {text:?} on the page:\n{shown}\n{:?}",
                self.script("return window.faults").await
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn click(&self, selector: &str) {
        // What is found may be drawn anew before it is clicked.
        wait_for(selector, async || self.browser.find(Locator::Css(selector)).await.ok()?.click().await.ok()).await;
    }

    pub(crate) async fn keys(&self, keys: &str) {
        self.browser.find(Locator::Css("body")).await.unwrap().send_keys(keys).await.unwrap();
    }

    /// What went wrong on the page, and which other hosts it asked.
    pub(crate) async fn faults(&self, address: &str) -> Vec<String> {
        let noted = self.script("return window.faults").await;
        let mut faults: Vec<String> =
            noted.as_array().unwrap().iter().map(|fault| fault.as_str().unwrap_or_default().to_owned()).collect();
        let asked = self.script("return performance.getEntriesByType('resource').map((entry) => entry.name)").await;
        let foreign =
            asked.as_array().unwrap().iter().filter_map(Value::as_str).filter(|asked| !asked.starts_with(address));
        faults.extend(foreign.map(|asked| format!("foreign request: {asked}")));
        faults
    }

    pub(crate) async fn close(self) {
        let _ = self.browser.clone().close().await;
    }
}

#[derive(Debug)]
struct Devtools(Value);

impl fantoccini::wd::WebDriverCompatibleCommand for Devtools {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (axum::http::Method, Option<String>) {
        (axum::http::Method::POST, Some(self.0.to_string()))
    }
}

pub(crate) const PAGES: [(&str, &str); 28] = [
    ("", "queues, as of"),
    ("queue?queue=mail", "Queue mail"),
    ("tasks", "Tasks of queue"),
    ("tasks?queue=mail&state=archived", "archived"),
    ("task?queue=mail&id=scheduled", "is due"),
    ("task?id=pending", "Tasks of this id"),
    ("failures", "it was to die"),
    ("failures?fp=v1-3e49784f165b", "Those that failed last"),
    ("redis", "What to look at"),
    ("groups?queue=mail", "1 groups"),
    ("batches", "release 42"),
    ("batches?state=open", "No batch is open"),
    ("batch?id=release", "roll-back"),
    ("batch", "its address names none"),
    ("queue", "its address names none"),
    ("groups?queue=", "its address names none"),
    ("task", "its address names none"),
    ("bin", "its address names none"),
    ("limits", "2 in 1m"),
    ("limits?queue=mail&limit=tenant", "as for all"),
    ("events", "0 events heard"),
    ("events?queue=mail&kind=failed", "0 events heard"),
    ("servers", "No server is running"),
    ("cron", "No periodic entries"),
    ("doctor", "Nothing was examined"),
    ("audit", "Newest first"),
    ("enqueue", "The payload is"),
    ("settings", "all queues"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_shown_without_a_fault_on_a_desktop_and_on_a_phone() {
    if !is_there() {
        return;
    }
    let place = Place::start().await;
    place.release().await;
    place.furnish().await;
    place.admin().pause("low", true).await.unwrap();
    place.limit().await;
    let served = Served::start(&place.open().0).await;
    for (size, dark) in [((1_300, 900), false), ((320, 700), true)] {
        let window = Window::open(size, dark).await;
        // The window of a headless browser is not as narrow as a phone by itself.
        let screen = json!({ "width": size.0, "height": size.1, "deviceScaleFactor": 1, "mobile": size.0 < 500 });
        window.devtools("Emulation.setDeviceMetricsOverride", screen).await;
        for (page, text) in PAGES {
            window.go(&format!("{}{page}", served.address)).await;
            window.has(text).await;
            assert_eq!(window.faults(&served.address).await, [""; 0], "{page}");
            let wide = window
                .script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
                .await;
            assert!(wide.as_i64().unwrap() <= 0, "{page} is {wide} px too wide at {} px", size.0);
            let unnamed = window.script(
                "return [...document.querySelectorAll('button,a[href],input,select,textarea')].filter((e) => e.checkVisibility() && !e.closest('details:not([open])') && !(e.innerText || e.getAttribute('aria-label') || e.labels?.length || e.value)).map((e) => e.outerHTML)",
            );
            assert_eq!(unnamed.await, json!([]), "{page}: without a name");
        }
        window.close().await;
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_loads_its_own_files_and_those_of_another_one_when_that_is_shown() {
    if !is_there() {
        return;
    }
    let place = Place::start().await;
    place.furnish().await;
    let served = Served::start(&place.open().0).await;
    let window = Window::open((1_300, 900), false).await;
    let loaded = async || {
        let names = window.script("return performance.getEntriesByType('resource').map((entry) => entry.name)").await;
        let names = names.as_array().unwrap().iter().filter_map(Value::as_str).map(str::to_owned);
        names.collect::<Vec<_>>()
    };
    window.go(&served.address).await;
    window.has("queues, as of").await;
    let first = loaded().await;
    // With the document and its stream.
    assert!(first.len() + 2 <= 17, "{} requests: {first:?}", first.len() + 2);
    window.click("#top a[href='./tasks']").await;
    window.has("Tasks of queue").await;
    let more = loaded().await;
    let of_page = |name: &&String| name.ends_with("/pages/tasks.js");
    assert_eq!((first.iter().find(of_page), more.iter().filter(of_page).count()), (None, 1));
    // Nothing of it is loaded again.
    window.click("#top a[href='./']").await;
    window.has("queues, as of").await;
    let names = loaded().await;
    let scripts: Vec<&String> = names.iter().filter(|name| name.ends_with(".js")).collect();
    let once: std::collections::BTreeSet<_> = scripts.iter().collect();
    assert_eq!((once.len(), window.faults(&served.address).await), (scripts.len(), vec![]));
    window.close().await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_mean_harm_are_only_text() {
    if !is_there() {
        return;
    }
    let place = Place::start().await;
    for text in TEXTS {
        place
            .put([RawTask::new(text).queue(text).task_id(text).payload(format!("{text}\0\u{7}")).header(text, text)])
            .await;
        place.inspector.change_task(Verb::Archive, text, text, "ann").await.unwrap();
    }
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    place
        .put([
            task("deep").payload(deep),
            task("long").payload("x".repeat(1 << 20)),
            task("bytes").payload(vec![0xff, 0x00, 0xfe]),
        ])
        .await;
    let served = Served::start(&place.open().0).await;
    let window = Window::open((1_200, 900), false).await;
    window.go(&served.address).await;
    window.has("<script>document.title='owned'</script>").await;
    assert_eq!(window.faults(&served.address).await, [""; 0]);
    for text in TEXTS {
        let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for page in [
            format!("queue?queue={encoded}"),
            format!("tasks?queue={encoded}&state=archived"),
            format!("task?queue={encoded}&id={encoded}"),
        ] {
            window.go(&format!("{}{page}", served.address)).await;
            let wanted = if page.starts_with("tasks") {
                "1 of 1"
            } else if page.starts_with("task") {
                "archived"
            } else {
                "Ever"
            };
            window.has(wanted).await;
            assert_eq!(window.faults(&served.address).await, [""; 0], "{page}");
        }
        assert_eq!(window.script("return document.title").await, "Queues", "{text}");
        assert_eq!(
            window.script("return document.querySelectorAll('main img, main script').length").await,
            0,
            "{text}"
        );
    }
    for id in ["deep", "long", "bytes"] {
        window.go(&format!("{}task?queue={QUEUE}&id={id}", served.address)).await;
        window.has("Download").await;
        assert_eq!(window.faults(&served.address).await, [""; 0], "{id}");
    }
    window.close().await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_found_and_run_and_the_queue_paused_by_the_keyboard_alone() {
    if !is_there() {
        return;
    }
    let place = Place::start().await;
    place.furnish().await;
    let served = Served::start(&place.open().0).await;
    let window = Window::open((1_200, 900), false).await;
    window.go(&format!("{}tasks?queue={QUEUE}&state=archived", served.address)).await;
    window.has("1 of 1").await;
    window.keys("j").await;
    window.browser.active_element().await.unwrap().send_keys("\u{e007}").await.unwrap();
    window.has("Task archived").await;
    window.has("Run").await;
    window.keys("r").await;
    // The dialog begins at "No": Enter alone does nothing.
    window.has("Run this task?").await;
    window.click("dialog button[value=yes]").await;
    wait_for("the task is pending", async || {
        (place.state("archived").await == Some(queue_core::TaskState::Pending)).then_some(())
    })
    .await;
    window.keys("1").await;
    window.has("queues, as of").await;
    window.click("[data-action='queue.pause']").await;
    window.click("dialog button[value=yes]").await;
    window.has("queue mail is paused").await;
    window.go(&format!("{}audit", served.address)).await;
    window.has("queue.pause").await;
    assert_eq!(window.faults(&served.address).await, [""; 0]);
    window.close().await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_a_bulk_change_and_a_new_task_work_below_a_path() {
    if !is_there() {
        return;
    }
    let place = Place::start().await;
    place.put((0..30).map(|n| task(&format!("t{n}")))).await;
    let router = axum::Router::new().nest_service("/x/y", place.open().0.router());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/x/y/", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let window = Window::open((1_200, 900), false).await;
    // Without the slash at its end.
    window.go(address.trim_end_matches('/')).await;
    window.has("queues, as of").await;
    window.go(&format!("{address}tasks?queue={QUEUE}&state=pending&q=t2")).await;
    window.has("Found 11, looked at all 30").await;
    window.click("[data-many=archive]").await;
    window.has("Archive 11 tasks?").await;
    window.click("dialog button[value=yes]").await;
    wait_for("they are archived", async || (place.inspector.queue(QUEUE).await.unwrap().archived == 11).then_some(()))
        .await;
    window.go(&format!("{address}enqueue?queue={QUEUE}")).await;
    window.has("The payload is").await;
    for (name, value) in [("type", "email:new"), ("task_id", "made")] {
        window
            .browser
            .find(Locator::Css(&format!("input[name={name}]")))
            .await
            .unwrap()
            .send_keys(value)
            .await
            .unwrap();
    }
    window.click("form button").await;
    window.has("Task made").await;
    assert_eq!(place.inspector.task(QUEUE, "made").await.unwrap().task_type, "email:new");
    // Another one like it: what is encrypted for one task means nothing in another.
    place
        .put([
            task("plain")
                .payload("for all")
                .header("tenant", "acme")
                .header("authorization", "me")
                .retention(Duration::from_secs(3_600)),
            task("sealed").payload("for one").header("x-encrypted", "1 task"),
        ])
        .await;
    for (like, told, payload) in [("plain", "text, not JSON", "for all"), ("sealed", "its payload is encrypted", "")] {
        window.go(&format!("{address}enqueue?queue={QUEUE}&from={like}")).await;
        window.has(told).await;
        assert_eq!(window.script("return document.querySelector('textarea').value").await, json!(payload));
        let line = window.script("return document.querySelector('pre').textContent").await.to_string();
        let has = |words: &str| line.contains(&words.replace('"', "\\\""));
        assert!(!has("x-encrypted") && has(r#""timeout":"1800s""#), "{line}");
        assert_eq!(has(r#""retention":"3600s""#) && has(r#""headers":{"tenant":"acme"}"#), like == "plain", "{line}");
        window.go(&format!("{address}task?queue={QUEUE}&id={like}")).await;
        window.has("Enqueue another one like it").await;
        let may_change = window.script("return document.body.textContent.includes('Change the payload')").await;
        assert_eq!(may_change, json!(like == "plain"));
    }
    assert_eq!(window.faults(&address).await, [""; 0]);
    window.close().await;
    serving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_by_mistake_is_brought_back_with_one_click() {
    if !is_there() {
        return;
    }
    let place = Place::start().await;
    place.put((0..30).map(|n| task(&format!("t{n}")))).await;
    let served = Served::start(&place.open().0).await;
    let window = Window::open((1_200, 900), false).await;
    let pending = async |count: u64| {
        wait_for("so many are pending", async || {
            (place.inspector.queue(QUEUE).await.unwrap().pending == count).then_some(())
        })
        .await;
    };
    window.go(&format!("{}tasks?queue={QUEUE}&state=pending&q=t2", served.address)).await;
    window.has("Found 11, looked at all 30").await;
    window.click("[data-many=delete]").await;
    window.has("Delete 11 tasks?").await;
    window.has("They go into the bin").await;
    window.click("dialog button[value=yes]").await;
    pending(19).await;
    window.has("11 tasks deleted").await;
    window.click("[data-said=Undo]").await;
    pending(30).await;
    window.has("11 tasks restored").await;
    // Once more, and back by way of the page.
    window.click("[data-many=delete]").await;
    window.has("Delete 11 tasks?").await;
    window.click("dialog button[value=yes]").await;
    pending(19).await;
    window.go(&format!("{}operations", served.address)).await;
    window.has("11 changed, 0 skipped; looked at 30 of 30").await;
    // One of them alone, found on the page of the bin; then the others.
    window.click("main a[href*='bin?']").await;
    window.has("11 of 11").await;
    // The page before says as much.
    window.click("input[name=q]").await;
    window.browser.find(Locator::Css("input[name=q]")).await.unwrap().send_keys("t27").await.unwrap();
    window.click("form[role=search] button").await;
    window.has("Found 1, looked at all 11").await;
    window.click("main tbody [data-action='bin.restore']").await;
    window.has("Restore this task?").await;
    window.click("dialog button[value=yes]").await;
    pending(20).await;
    window.has("Found 0, looked at all 10").await;
    assert_eq!(place.state("t27").await, Some(queue_core::TaskState::Pending));
    window.go(&format!("{}operations", served.address)).await;
    window.has("10 tasks").await;
    window.click("[data-action='bin.restore']").await;
    window.has("Undo 10 tasks?").await;
    window.click("dialog button[value=yes]").await;
    pending(30).await;
    window.has("10 tasks restored").await;
    assert_eq!(window.faults(&served.address).await, [""; 0]);
    window.close().await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_is_kept_in_the_browser_and_its_tasks_run_again_at_a_rate() {
    if !is_there() {
        return;
    }
    let place = Place::start().await;
    place.put((0..30).map(|n| task(&format!("t{n}")))).await;
    place.inspector.archive_all(QUEUE, &queue_admin::Filter::new(), |_| {}).await.unwrap();
    let served = Served::start(&place.open().0).await;
    let window = Window::open((1_200, 900), false).await;
    window.go(&format!("{}tasks?queue={QUEUE}&state=archived&q=t2", served.address)).await;
    window.has("Found 11, looked at all 30").await;
    window.click("[data-keep]").await;
    window.has("×").await;
    window.go(&format!("{}tasks?queue={QUEUE}&state=archived", served.address)).await;
    window.has("30 of 30").await;
    window.click("main .tabs a[href*='q=t2']").await;
    window.has("Found 11").await;
    window.click("main .tabs a[href*='state=archived']").await;
    window.has("All that fit").await;
    window.click("[data-many=run]").await;
    window.has("Run 11 tasks?").await;
    let rate = window.browser.find(Locator::Css("dialog input[name=rate]")).await.unwrap();
    rate.send_keys("1/h").await.unwrap();
    window.click("dialog button[value=yes]").await;
    window.has("It has begun, 1/1h at the most").await;
    window.go(&format!("{}operations", served.address)).await;
    window.has("1 changed, 0 skipped").await;
    window.has("1/1h at the most").await;
    assert_eq!(place.inspector.queue(QUEUE).await.unwrap().pending, 1);
    window.click("[data-action='operation.cancel']").await;
    window.click("dialog button[value=yes]").await;
    wait_for("it is cancelled", async || {
        let operations = place.inspector.operations(1).await.unwrap();
        (operations[0].state.as_str() == "cancelled" && operations[0].changed == 1).then_some(())
    })
    .await;
    window.go(&format!("{}tasks?queue={QUEUE}", served.address)).await;
    window.click("[aria-label='Forget the filter t2']").await;
    wait_for("it is forgotten", async || (!window.text().await.contains('×')).then_some(())).await;
    assert_eq!(window.faults(&served.address).await, [""; 0]);
    window.close().await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_says_that_redis_is_away_and_goes_on_by_itself() {
    if !is_there() {
        return;
    }
    let mut server = Mortal::start().await;
    let redis = server.redis();
    Client::new(redis.clone()).enqueue(task("a")).await.unwrap();
    let served = Served::start(&Web::builder(redis.clone()).build()).await;
    let window = Window::open((1_200, 900), false).await;
    window.go(&served.address).await;
    window.has("1 queues, as of").await;
    server.kill();
    window.has("Redis cannot be read").await;
    server.rise().await;
    Client::new(redis).enqueue(task("b").queue("second")).await.unwrap();
    window.has("second").await;
    wait_for("the notice goes", async || (!window.text().await.contains("Redis cannot be read")).then_some(())).await;
    window.close().await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_is_offered_nothing_that_would_be_refused() {
    if !is_there() {
        return;
    }
    let place = Place::start().await;
    place.release().await;
    place.furnish().await;
    place.limit().await;
    let served = Served::start(&place.of(Identity::new("eve", Role::Viewer)).0).await;
    let window = Window::open((1_200, 900), false).await;
    for (page, text) in [
        ("", "queues, as of"),
        ("queue?queue=mail", "Ever"),
        ("tasks?queue=mail&state=archived", "2 of 2"),
        ("task?queue=mail&id=archived", "Download"),
        ("batch?id=release", "roll-back"),
        ("limits?queue=mail&limit=tenant", "as for all"),
        ("events", "0 events heard"),
    ] {
        window.go(&format!("{}{page}", served.address)).await;
        window.has(text).await;
        assert_eq!(
            window.script("return document.querySelectorAll('[data-action],[data-many]').length").await,
            0,
            "{page}"
        );
        assert!(!window.text().await.contains("Audit"));
        assert_eq!(window.faults(&served.address).await, [""; 0], "{page}");
    }
    window.close().await;
    served.end().await;
}
