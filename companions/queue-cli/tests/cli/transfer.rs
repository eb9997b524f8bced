//! `queuectl export` and `import`.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use queue_core::{RawTask, TaskState, UniqueUntil};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, UnixStream};
use tokio::process::Child;
use tokio::time::{Instant, sleep};

use crate::keyspace::keyspace;
use crate::support::{Bench, Done, PATIENCE, finish, queuectl};

const HOUR: Duration = Duration::from_secs(3_600);

/// A paused queue with a task in each state but active, and all that a task can have.
async fn full() -> Bench {
    let bench = Bench::new().await;
    let worker = bench
        .worker(&[
            "--unhandled=leave",
            "--exec",
            "c=printf '\\377\\001'",
            "--exec",
            "r=false",
            "--exec",
            "x=sh -c 'exit 65'",
        ])
        .await;
    for (task_type, id, state) in [
        ("c", "completed", TaskState::Completed),
        ("r", "retry", TaskState::Retry),
        ("x", "archived", TaskState::Archived),
    ] {
        bench.enqueue(task_type, id).await;
        bench.wait_for(id, &[state]).await;
    }
    worker.stop().await;
    for id in ["first", "second", "third"] {
        bench.enqueue_task(RawTask::new("p").payload(vec![0, 0xff]).header("k", "ü\n"), id).await;
    }
    bench.enqueue_task(RawTask::new("u").payload("once").unique(10 * HOUR), "unique").await;
    bench.enqueue_task(RawTask::new("s").process_in(HOUR).group("later"), "scheduled").await;
    bench.enqueue_task(RawTask::new("u").payload("late").process_in(HOUR).unique(HOUR), "late").await;
    for id in ["a", "b"] {
        bench.enqueue_task(RawTask::new("g").group("team:1"), id).await;
    }
    // Somebody else's field goes along, a token of a run does not.
    let _: () = bench.ask(&["HSET", "asynq:{default}:t:first", "x:own", "mine", "owner", "left over"]).await;
    bench.inspector.pause("default").await.unwrap();
    bench
}

async fn export(bench: &Bench, arguments: &[&str]) -> String {
    bench.run(&[&["export"], arguments].concat()).await.ok()
}

async fn import(bench: &Bench, file: &str, arguments: &[&str]) -> Done {
    std::fs::write(bench.path("export"), file).unwrap();
    bench.run(&[&["import", "export"], arguments].concat()).await
}

/// What is in a Redis, without notes about imports.
async fn content(bench: &Bench) -> BTreeMap<String, String> {
    let mut content = keyspace(bench.redis.url()).await;
    content.retain(|key, _| !key.contains(":x:import:"));
    content
}

#[tokio::test]
async fn a_queue_arrives_as_it_left() {
    let (here, there) = (full().await, Bench::new().await);
    let before = content(&here).await;
    let file = export(&here, &["--queue", "default"]).await;
    assert_eq!(content(&here).await, before, "an export changes nothing");
    assert_eq!(file.lines().count(), 3 + 11);
    let answer = import(&there, &file, &["--json"]).await.json();
    assert_eq!((&answer["complete"], &answer["queues"][0]["stored"]), (&json!(true), &json!(11)));
    assert_eq!((&answer["queues"][0]["verified"], &answer["queues"][0]["paused"]), (&json!(true), &json!(true)));
    let mut expected = before;
    let first = expected.get_mut("asynq:{default}:t:first").unwrap();
    *first = first.replace("\"owner=left over\", ", "");
    assert_eq!(content(&there).await, expected);
    assert!(expected["asynq:{default}:pending"].contains(r#"["unique", "third", "second", "first"]"#));
    // And once more from there to a third.
    there.run(&["export", "--all"]).await.ok();
    let third = Bench::new().await;
    import(&third, &export(&there, &["--all"]).await, &[]).await.ok();
    assert_eq!(content(&third).await, expected);
}

#[tokio::test]
async fn a_second_import_changes_nothing_and_says_so() {
    let (here, there) = (full().await, Bench::new().await);
    let file = export(&here, &["-q", "default"]).await;
    import(&there, &file, &[]).await.ok();
    let _: u64 = there.ask(&["DEL", "asynq:{default}:t:first"]).await;
    let _: u64 = there.ask(&["LREM", "asynq:{default}:pending", "0", "first"]).await;
    let after = content(&there).await;
    let answer = import(&there, &file, &["--json"]).await.json();
    assert_eq!((&answer["queues"][0]["stored"], &answer["queues"][0]["skipped"]), (&json!(0), &json!(11)));
    // What was imported and is gone, is done: it does not come back, but to somebody who insists.
    assert_eq!(content(&there).await, after);
    let answer = import(&there, &file, &["--json", "--again"]).await.json();
    assert_eq!((&answer["queues"][0]["stored"], &answer["queues"][0]["present"]), (&json!(1), &json!(10)));
    assert_eq!(there.task("first").await.state, TaskState::Pending);
    let counter: u64 = there.ask(&["GET", "asynq:{default}:processed"]).await;
    assert_eq!(counter, 3, "counters are added once");
}

#[tokio::test]
async fn what_an_import_has_left_out_a_later_one_does_not_call_imported() {
    let (here, there) = (full().await, Bench::new().await);
    let file = export(&here, &["-q", "default"]).await;
    there.client.enqueue(RawTask::new("another").task_id("first")).await.unwrap();
    for (arguments, skipped) in
        [(&["--json"][..], 0), (&["--json"], 10), (&["--json", "--again"], 0), (&["--json"], 10)]
    {
        let answer = import(&there, &file, arguments).await;
        assert_eq!(answer.code, Some(4), "{answer:?}");
        let told: Value = serde_json::from_str(&answer.stdout).unwrap();
        let tally = &told["queues"][0];
        assert_eq!((&tally["conflicts"], &tally["skipped"]), (&json!(1), &json!(skipped)), "{tally}");
    }
    let _: u64 = there.ask(&["DEL", "asynq:{default}:t:first"]).await;
    let _: u64 = there.ask(&["LREM", "asynq:{default}:pending", "0", "first"]).await;
    let answer = import(&there, &file, &["--json", "--again"]).await.json();
    assert_eq!((&answer["queues"][0]["stored"], &answer["queues"][0]["present"]), (&json!(1), &json!(10)));
    import(&there, &file, &[]).await.ok();
    // A line that cannot be read stays one.
    let damaged = file.replacen("\"msg\":\"", "\"msg\":\"AAAA", 1);
    import(&there, &damaged, &[]).await.failed(1);
}

#[tokio::test]
async fn an_import_that_was_killed_goes_on_where_it_was() {
    let (here, there) = (Bench::new().await, Bench::new().await);
    let tasks = (0..1_000).map(|number| RawTask::new("t").task_id(format!("{number:04}")));
    for answer in here.client.enqueue_many(tasks.collect::<Vec<_>>()).await {
        answer.unwrap();
    }
    here.inspector.pause("default").await.unwrap();
    let file = export(&here, &["-q", "default"]).await;
    let mut child = there.command().args(["import", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let half: String = file.lines().take(550).map(|line| format!("{line}\n")).collect();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(half.as_bytes()).await.unwrap();
    let pending = async || there.ask::<u64>(&["LLEN", "asynq:{default}:pending"]).await;
    let end = Instant::now() + PATIENCE;
    while pending().await == 0 {
        assert!(Instant::now() < end, "nothing is stored");
        sleep(Duration::from_millis(5)).await;
    }
    child.kill().await.unwrap();
    let stored = pending().await;
    assert!(stored < 1_000 && stored.is_multiple_of(50), "{stored}");
    // The first is worked and gone before the import goes on.
    let _: String = there.ask(&["RPOP", "asynq:{default}:pending"]).await;
    let _: u64 = there.ask(&["DEL", "asynq:{default}:t:0000"]).await;
    let answer = import(&there, &file, &["--json"]).await.json();
    assert_eq!(
        (&answer["queues"][0]["skipped"], &answer["queues"][0]["stored"]),
        (&json!(stored), &json!(1_000 - stored))
    );
    assert_eq!(answer["queues"][0]["verified"], true);
    let ids: Vec<String> = there.ask(&["LRANGE", "asynq:{default}:pending", "0", "-1"]).await;
    let expected: Vec<String> = (1..1_000).rev().map(|number| format!("{number:04}")).collect();
    assert_eq!(ids, expected);
}

/// An import that waits for more after this beginning of a file.
async fn import_begun(there: &Bench, beginning: &str) -> Child {
    let mut command = there.command();
    command.args(["import", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(beginning.as_bytes()).await.unwrap();
    child
}

/// The exit code, and what was said, once the rest of the file has come.
async fn import_ended(mut child: Child, rest: &str) -> (Option<i32>, String) {
    // One that has given up does not read.
    let _ = child.stdin.take().unwrap().write_all(rest.as_bytes()).await;
    let done = child.wait_with_output().await.unwrap();
    (done.status.code(), String::from_utf8(done.stderr).unwrap())
}

/// Waits until so many tasks of a queue are pending.
async fn wait_until_pending(bench: &Bench, queue: &str, count: u64) {
    let end = Instant::now() + PATIENCE;
    while bench.ask::<u64>(&["LLEN", &format!("asynq:{{{queue}}}:pending")]).await != count {
        assert!(Instant::now() < end, "not {count} tasks are pending");
        sleep(Duration::from_millis(5)).await;
    }
}

/// A paused queue with so many tasks.
async fn fill(bench: &Bench, queue: &str, count: u32) {
    let tasks = (0..count).map(|number| RawTask::new("t").queue(queue).task_id(format!("{number:04}")));
    for answer in bench.client.enqueue_many(tasks.collect::<Vec<_>>()).await {
        answer.unwrap();
    }
    bench.inspector.pause(queue).await.unwrap();
}

/// Lines of a file, each with its end.
fn lines(file: &str, from: usize, count: usize) -> String {
    file.lines().skip(from).take(count).map(|line| format!("{line}\n")).collect()
}

fn note(file: &str, queue: &str) -> String {
    let header: Value = serde_json::from_str(file.lines().next().unwrap()).unwrap();
    format!("asynq:{{{queue}}}:x:import:{}", header["id"].as_str().unwrap())
}

#[tokio::test]
async fn an_import_stops_when_redis_goes_back_and_goes_on_from_there() {
    let (here, there) = (Bench::new().await, Bench::new().await);
    fill(&here, "default", 1_000).await;
    let file = export(&here, &["-q", "default"]).await;
    let child = import_begun(&there, &lines(&file, 0, 302)).await;
    wait_until_pending(&there, "default", 300).await;
    // What a failover or a snapshot makes of it: the last hundred tasks are lost, and the note stands before them.
    let lost: Vec<String> = there.ask(&["LPOP", "asynq:{default}:pending", "100"]).await;
    for id in lost {
        let _: u64 = there.ask(&["DEL", &format!("asynq:{{default}}:t:{id}")]).await;
    }
    let _: u64 = there.ask(&["HSET", &note(&file, "default"), "line", "202", "stored", "200"]).await;
    let (code, stderr) = import_ended(child, &lines(&file, 302, 701)).await;
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("Redis went back to line 202 in queue \"default\""), "{stderr}");
    wait_until_pending(&there, "default", 200).await;
    let answer = import(&there, &file, &["--json"]).await.json();
    let tally = &answer["queues"][0];
    assert_eq!((&tally["skipped"], &tally["stored"]), (&json!(200), &json!(800)));
    assert_eq!(tally["verified"], true);
    let ids: Vec<String> = there.ask(&["LRANGE", "asynq:{default}:pending", "0", "-1"]).await;
    assert_eq!(ids, (0..1_000).rev().map(|number| format!("{number:04}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_import_is_no_success_when_redis_went_back_after_the_last_task_of_a_queue() {
    let (here, there) = (Bench::new().await, Bench::new().await);
    fill(&here, "first", 60).await;
    fill(&here, "second", 60).await;
    let file = export(&here, &["-q", "first", "-q", "second"]).await;
    let child = import_begun(&there, &lines(&file, 0, 120)).await;
    wait_until_pending(&there, "second", 50).await;
    let before = content(&there).await;
    for key in before.keys().filter(|key| key.contains("{first}")) {
        let _: u64 = there.ask(&["DEL", key]).await;
    }
    let _: u64 = there.ask(&["DEL", &note(&file, "first")]).await;
    let (code, stderr) = import_ended(child, &lines(&file, 120, 10)).await;
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("Redis went back to line 0 in queue \"first\""), "{stderr}");
    let answer = import(&there, &file, &["--json"]).await.json();
    assert_eq!(answer["queues"][0]["stored"], 60);
    assert_eq!(answer["queues"][1]["skipped"], 60);
}

/// A TCP address that leads to this Redis, and loses one answer: the first that a request with this in it gets and
/// that is no error. The connection ends then.
async fn losing_an_answer(bench: &Bench, request: &'static [u8]) -> String {
    let socket = bench.redis.socket().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("redis://{}", listener.local_addr().unwrap());
    let is_lost = Arc::new(AtomicBool::new(false));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut redis = UnixStream::connect(&socket).await.unwrap();
            let is_lost = is_lost.clone();
            tokio::spawn(async move {
                let (mut asked, mut question, mut answer) = (Vec::new(), vec![0; 1 << 16], vec![0; 1 << 16]);
                loop {
                    tokio::select! {
                        Ok(read) = client.read(&mut question) => {
                            if read == 0 || redis.write_all(&question[..read]).await.is_err() {
                                return;
                            }
                            asked.extend_from_slice(&question[..read]);
                        }
                        Ok(read) = redis.read(&mut answer) => {
                            let is_about = asked.windows(request.len()).any(|part| part == request);
                            asked.clear();
                            let loses = is_about && answer[0] != b'-' && !is_lost.swap(true, Ordering::Relaxed);
                            if read == 0 || loses || client.write_all(&answer[..read]).await.is_err() {
                                return;
                            }
                        }
                        else => return,
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn tasks_that_were_refused_in_an_answer_that_was_lost_are_told() {
    let (here, there) = (Bench::new().await, Bench::new().await);
    fill(&here, "default", 30).await;
    let file = export(&here, &["-q", "default"]).await;
    for id in ["0003", "0004", "0005"] {
        there.enqueue("another", id).await;
    }
    std::fs::write(there.path("export"), &file).unwrap();
    let mut command = queuectl();
    let address = losing_an_answer(&there, b"0029").await;
    command.args(["--redis", &address, "import", "export", "--json"]).current_dir(there.directory.path());
    let done = finish(command, b"").await;
    let answer: Value = serde_json::from_str(&done.stdout).unwrap();
    let tally = &answer["queues"][0];
    assert_eq!((&tally["stored"], &tally["conflicts"]), (&json!(27), &json!(3)), "{done:?}");
    assert_eq!((&answer["complete"], &tally["verified"]), (&json!(true), &Value::Null));
    let stderr = done.failed(4);
    assert!(stderr.contains("lines 3 to 32: 3 tasks of queue \"default\" were left out"), "{stderr}");
    let again = import(&there, &file, &["--again"]).await.failed(4);
    assert!(again.contains("line 6: task \"0003\" of queue \"default\" was left out"), "{again}");
}

#[tokio::test]
async fn two_imports_of_one_file_at_once_store_each_task_once() {
    let (here, there) = (Bench::new().await, Bench::new().await);
    let tasks = (0..2_000).map(|number| RawTask::new("t").task_id(number.to_string()));
    for answer in here.client.enqueue_many(tasks.collect::<Vec<_>>()).await {
        answer.unwrap();
    }
    here.inspector.pause("default").await.unwrap();
    std::fs::write(there.path("export"), export(&here, &["--all"]).await).unwrap();
    let run = || {
        let mut command = there.command();
        command.args(["import", "export", "--json"]);
        finish(command, b"")
    };
    let (one, other) = tokio::join!(run(), run());
    let stored =
        |done: &Done| serde_json::from_str::<Value>(&done.stdout).unwrap()["queues"][0]["stored"].as_u64().unwrap();
    assert_eq!(stored(&one) + stored(&other), 2_000);
    assert_eq!(there.ask::<u64>(&["LLEN", "asynq:{default}:pending"]).await, 2_000);
}

#[tokio::test]
async fn tasks_of_others_are_left_alone_and_told() {
    let (here, there) = (full().await, Bench::new().await);
    let file = export(&here, &["-q", "default"]).await;
    there.enqueue("other", "first").await;
    there.enqueue_task(RawTask::new("u").payload("once").unique(HOUR), "holder").await;
    let before = content(&there).await;
    let done = import(&there, &file, &["--json"]).await;
    let answer: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&answer["queues"][0]["stored"], &answer["queues"][0]["conflicts"]), (&json!(9), &json!(2)));
    let stderr = done.failed(4);
    assert!(
        stderr.contains("task \"first\" of queue \"default\" was left out: its id belongs to another task"),
        "{stderr}"
    );
    assert!(stderr.contains("task \"unique\" of queue \"default\" was left out: another task holds"), "{stderr}");
    let after = content(&there).await;
    for key in ["asynq:{default}:t:first", "asynq:{default}:t:holder"] {
        assert_eq!(after[key], before[key]);
    }
    assert!(!after.contains_key("asynq:{default}:t:unique"));
}

/// The next task that died would have pushed it out, or another one.
#[tokio::test]
async fn what_a_full_archive_has_no_room_for_is_left_out_and_told() {
    let (here, there) = (full().await, Bench::new().await);
    let file = export(&here, &["-q", "default"]).await;
    there.fill_archive(9_999).await;
    let done = import(&there, &file, &["--json"]).await;
    let answer: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&answer["queues"][0]["stored"], &answer["queues"][0]["conflicts"]), (&json!(10), &json!(1)));
    let stderr = done.failed(4);
    assert!(
        stderr.contains("task \"archived\" of queue \"default\" was left out: it is archived, and the archive is full")
    );
    assert_eq!(there.ask::<i64>(&["EXISTS", "asynq:{default}:t:archived"]).await, 0);
    there.ask::<i64>(&["ZREM", "asynq:{default}:archived", "old1"]).await;
    import(&there, &file, &["--again"]).await.ok();
    assert_eq!(there.ask::<i64>(&["EXISTS", "asynq:{default}:t:archived"]).await, 1);
}

#[tokio::test]
async fn a_file_that_is_cut_off_or_damaged_is_no_success() {
    let (here, there) = (full().await, Bench::new().await);
    let file = export(&here, &["-q", "default"]).await;
    let cut: String = file.lines().take(8).map(|line| format!("{line}\n")).collect();
    let stderr = import(&there, &cut, &[]).await.failed(1);
    assert!(stderr.contains("cut off"), "{stderr}");
    assert_eq!(there.inspector.queue("default").await.unwrap().size(), 6);
    import(&there, &file, &[]).await.ok();
    assert_eq!(content(&there).await.len(), content(&here).await.len());

    let other = Bench::new().await;
    let damaged =
        file.replace("\"id\":\"late\"", "\"id\":\"early\"").replace("\"state\":\"retry\"", "\"state\":\"retired\"");
    let stderr = import(&other, &damaged, &[]).await.failed(1);
    assert!(stderr.contains("its message has another id") && stderr.contains("unknown variant `retired`"), "{stderr}");
    assert_eq!(other.inspector.queue("default").await.unwrap().size(), 9);
    import(&other, &file, &["--again"]).await.ok();
    assert_eq!(content(&other).await, {
        let mut expected = content(&there).await;
        expected.remove("nothing");
        expected
    });
    for (file, reason) in [
        ("", "the file is empty"),
        ("{\"type\":\"t\"}\n", "does not begin as an export"),
        (
            "{\"line\":\"export\",\"version\":2,\"id\":\"x\",\"exported_at\":\"2026-01-01T00:00:00Z\",\"live\":false}\n",
            "version 2",
        ),
        (
            "{\"line\":\"export\",\"version\":1,\"id\":\"x\",\"exported_at\":\"2026-01-01T00:00:00Z\",\"live\":false}\nx\n",
            "damaged",
        ),
    ] {
        let stderr = import(&other, file, &[]).await.failed(1);
        assert!(stderr.contains(reason), "{stderr}");
    }
    let stderr = other.run(&["import", "nowhere"]).await.failed(1);
    assert!(stderr.contains("cannot read nowhere"), "{stderr}");
}

#[tokio::test]
async fn a_queue_in_use_is_exported_only_on_request() {
    let bench = Bench::new().await;
    bench.enqueue("a", "running").await;
    bench.enqueue("b", "waiting").await;
    let stderr = bench.run(&["export", "-q", "default"]).await.failed(4);
    assert!(stderr.contains("is not paused"), "{stderr}");
    let worker = bench.worker(&["--exec", "a=sh -c 'sleep 600'", "--unhandled=leave"]).await;
    bench.wait_for("running", &[TaskState::Active]).await;
    let done = bench.run(&["export", "-q", "default", "--drain", "300ms"]).await;
    assert_eq!(done.stdout, "");
    assert!(done.failed(4).contains("still run after the time given"));
    let stderr = bench.run(&["export", "--all"]).await.failed(4);
    assert!(stderr.contains("being worked on"), "{stderr}");
    let file = export(&bench, &["-q", "default", "--live"]).await;
    let there = Bench::new().await;
    let done = import(&there, &file, &[]).await;
    assert!(done.stderr.contains("tasks may have run since"), "{done:?}");
    done.ok();
    for id in ["running", "waiting"] {
        assert_eq!(there.task(id).await.state, TaskState::Pending);
    }
    let next: Vec<String> = there.ask(&["LRANGE", "asynq:{default}:pending", "0", "-1"]).await;
    assert_eq!(next, ["waiting", "running"], "what had begun comes first");
    assert!(there.ask::<Vec<String>>(&["KEYS", "*lease"]).await.is_empty());
    drop(worker);
    for (arguments, code) in [
        (&["export"][..], 2),
        (&["export", "--all", "-q", "default"], 2),
        (&["export", "--all", "--live", "--drain", "1s"], 2),
        (&["export", "-q", "no"], 3),
        (&["import"], 2),
    ] {
        bench.run(arguments).await.failed(code);
    }
}

#[tokio::test]
async fn draining_waits_for_what_runs() {
    let bench = Bench::new().await;
    bench.enqueue("a", "id").await;
    let _worker = bench.worker(&["--exec", "a=sh -c 'while [ ! -e go ]; do sleep 0.05; done'"]).await;
    bench.wait_for("id", &[TaskState::Active]).await;
    let mut command = bench.command();
    command.args(["export", "--all", "--drain", "1m"]);
    let export = tokio::spawn(finish(command, b""));
    let end = Instant::now() + PATIENCE;
    while !bench.inspector.queue("default").await.unwrap().paused {
        assert!(Instant::now() < end, "it is not paused");
        sleep(Duration::from_millis(10)).await;
    }
    assert!(!export.is_finished());
    std::fs::write(bench.path("go"), "").unwrap();
    let file = export.await.unwrap().ok();
    assert!(file.contains("\"state\":\"completed\""), "{file}");
}

#[tokio::test]
async fn windows_of_living_tasks_arrive() {
    let (here, there) = (Bench::new().await, Bench::new().await);
    let window = || RawTask::new("w").payload("once").unique(10 * HOUR).unique_until(UniqueUntil::Window);
    here.enqueue_task(window(), "open").await;
    here.enqueue_task(RawTask::new("w").payload("plain").unique(10 * HOUR), "plain").await;
    here.inspector.pause("default").await.unwrap();
    let file = export(&here, &["-q", "default"]).await;
    import(&there, &file, &[]).await.ok();
    let there_now = content(&there).await;
    assert_eq!(there_now, content(&here).await);
    let locks: Vec<&String> = there_now.iter().filter(|(key, _)| key.contains(":unique:")).map(|pair| pair.1).collect();
    assert_eq!(locks.len(), 2);
    assert!(
        locks.iter().any(|lock| lock.starts_with("string for 36000 s") && lock.contains("window\\\\topen")),
        "{locks:?}"
    );
    // It was stored in this window already, and is done: it is not stored once more.
    there.inspector.delete_task("default", "open").await.unwrap();
    let stderr = import(&there, &file, &["--again"]).await.failed(4);
    assert!(stderr.contains("task \"open\" of queue \"default\" was left out: its window is open"), "{stderr}");
    there.client.enqueue(window()).await.unwrap_err();
}

#[tokio::test]
async fn a_queue_that_is_named_twice_is_exported_once() {
    let (here, there) = (full().await, Bench::new().await);
    let file = export(&here, &["-q", "default", "-q", "default"]).await;
    assert_eq!(file.lines().count(), 3 + 11);
    import(&there, &file, &[]).await.ok();
}

#[tokio::test]
async fn lines_that_would_break_the_queue_are_refused() {
    let (here, there) = (full().await, Bench::new().await);
    let file = export(&here, &["-q", "default"]).await;
    let change = |id: &str, change: &dyn Fn(&mut Value)| {
        file.lines()
            .map(|line| {
                let mut value: Value = serde_json::from_str(line).unwrap();
                if value["id"] == id {
                    change(&mut value);
                }
                format!("{value}\n")
            })
            .collect::<String>()
    };
    for (id, changed, reason) in [
        (
            "late",
            change("late", &|line| line["score"] = json!(9_000_000_000_000_000_000_u64)),
            "its score is no second of a year up to 9999",
        ),
        (
            "a",
            change("a", &|line| _ = line["fields"].as_object_mut().unwrap().remove("group")),
            "its field group does not name its group",
        ),
        ("a", change("a", &|line| line["fields"]["group"] = json!("other")), "its field group does not name its group"),
    ] {
        let number = changed.lines().position(|line| line.contains(&format!("\"id\":\"{id}\""))).unwrap() + 1;
        let stderr = import(&there, &changed, &["--again"]).await.failed(1);
        assert!(stderr.contains(&format!("line {number}: {reason}")), "{stderr}");
        assert!(stderr.contains("--again, which also stores once more what has run since"), "{stderr}");
    }
}

#[tokio::test]
async fn export_tells_what_it_cannot_carry() {
    let bench = full().await;
    let _: u64 = bench.ask(&["LPUSH", "asynq:{default}:pending", "ghost"]).await;
    let _: u64 = bench.ask(&["HSET", "asynq:{default}:t:odd", "msg", "nonsense", "state", "pending"]).await;
    let _: u64 = bench.ask(&["LPUSH", "asynq:{default}:pending", "odd"]).await;
    let done = bench.run(&["export", "-q", "default"]).await;
    assert_eq!(done.stdout.lines().count(), 3 + 11);
    let stderr = done.failed(4);
    assert!(stderr.contains("\"ghost\" of queue \"default\" stays: there is nothing but its id"), "{stderr}");
    assert!(stderr.contains("\"odd\""), "{stderr}");
}

#[tokio::test]
async fn export_tells_of_tasks_that_are_elsewhere_or_belong_to_batches() {
    let bench = Bench::new().await;
    bench.run(&["enqueue", "t", "--priority", "9"]).await.ok();
    std::fs::write(bench.path("members"), "{\"type\":\"t\"}\n").unwrap();
    bench.run(&["batch", "create", "--from", "members"]).await.ok();
    let done = bench.run(&["export", "--live", "-q", "default"]).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    let stderr = &done.stderr;
    assert!(
        stderr.contains("1 tasks of \"default\" are in the queue \"default}p9\", which was not exported"),
        "{stderr}"
    );
    assert!(stderr.contains("1 tasks of queue \"default\" are members of batches"), "{stderr}");
    let all = bench.run(&["export", "--live", "--all"]).await;
    assert!(!all.stderr.contains("which was not exported"), "{all:?}");
}

/// An export whose reader is slow: it has read what comes before the pending tasks, and waits.
struct SlowExport {
    child: Child,
    stdout: BufReader<tokio::process::ChildStdout>,
    file: String,
}

impl SlowExport {
    async fn begin(bench: &Bench) -> Self {
        // More than a pipe takes.
        let pending = |number| RawTask::new("p").payload(vec![b'x'; 10_000]).task_id(format!("{number:04}"));
        for answer in bench.client.enqueue_many((0..500).map(pending).collect::<Vec<_>>()).await {
            answer.unwrap();
        }
        bench.inspector.pause("default").await.unwrap();
        let mut command = bench.command();
        command.args(["export", "-q", "default"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut file, mut stdout) = (String::new(), BufReader::new(child.stdout.take().unwrap()));
        while file.lines().count() < 10 {
            stdout.read_line(&mut file).await.unwrap();
        }
        Self { child, stdout, file }
    }

    /// The whole file, the exit code and what was said.
    async fn end(mut self) -> (String, Option<i32>, String) {
        self.stdout.read_to_string(&mut self.file).await.unwrap();
        let done = self.child.wait_with_output().await.unwrap();
        (self.file, done.status.code(), String::from_utf8(done.stderr).unwrap())
    }
}

#[tokio::test]
async fn an_export_refuses_a_queue_whose_tasks_run_meanwhile_and_are_kept() {
    let bench = full().await;
    let export = SlowExport::begin(&bench).await;
    assert!(export.file.contains("\"id\":\"scheduled\"") && export.file.contains("\"id\":\"retry\""));
    // What a server makes of them that ran while the queue was not paused.
    for (id, set) in [("scheduled", "scheduled"), ("retry", "retry")] {
        let _: u64 = bench.ask(&["ZREM", &format!("asynq:{{default}}:{set}"), id]).await;
        let _: u64 = bench.ask(&["ZADD", "asynq:{default}:completed", "4000000000", id]).await;
        let _: u64 = bench.ask(&["HSET", &format!("asynq:{{default}}:t:{id}"), "state", "completed"]).await;
    }
    let (file, code, stderr) = export.end().await;
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stderr.contains("2 tasks of queue \"default\" went or succeeded during the export"), "{stderr}");
    assert!(!file.contains("\"line\":\"end\""));
}

/// Go's servers aggregate groups of a paused queue. Here is what they do in one moment: the members go, and the
/// task that they have become is pending, where the export has not read yet.
#[tokio::test]
async fn an_export_refuses_a_queue_whose_group_is_aggregated_meanwhile() {
    let bench = Bench::new().await;
    for id in ["a", "b"] {
        bench.enqueue_task(RawTask::new("g").group("team"), id).await;
    }
    let export = SlowExport::begin(&bench).await;
    assert_eq!(export.file.matches("\"state\":\"aggregating\"").count(), 2, "{}", export.file);
    bench.enqueue("digest", "digest").await;
    for key in ["g:team", "groups", "t:a", "t:b"] {
        let _: u64 = bench.ask(&["DEL", &format!("asynq:{{default}}:{key}")]).await;
    }
    let (file, code, stderr) = export.end().await;
    assert!(file.contains("\"id\":\"digest\""), "the file has all three");
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stderr.contains("2 tasks of queue \"default\" went or succeeded during the export"), "{stderr}");
    let there = Bench::new().await;
    let stderr = import(&there, &file, &[]).await.failed(1);
    assert!(stderr.contains("cut off"), "{stderr}");
}
