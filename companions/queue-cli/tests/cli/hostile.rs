//! What somebody has written into Redis never drives the terminal of who looks at it.

use prost::Message as _;
use queue_core::wire::{SchedulerEntry, ServerInfo, Timestamp, WorkerInfo};
use queue_core::{TaskMessage, TaskState};

use crate::support::Bench;

/// Clears the screen, sets the title, rings the bell; in seven bits and in eight.
const EVIL: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{7f}\r\n\u{8}x";

/// Stores a task in a state as Go does, with such text wherever there is text.
async fn store(bench: &Bench, queue: &str, state: TaskState) {
    let id = format!("{state}{EVIL}");
    let message = TaskMessage {
        r#type: format!("type{EVIL}"),
        payload: EVIL.to_owned().into(),
        id: id.clone(),
        queue: queue.to_owned(),
        retry: 3,
        timeout: 60,
        error_msg: format!("error{EVIL}"),
        last_failed_at: 1_700_000_000,
        completed_at: 1_700_000_000,
        group_key: format!("group{EVIL}"),
        headers: [(format!("name{EVIL}"), format!("value{EVIL}"))].into(),
        ..TaskMessage::default()
    };
    // The commands of redis take text here; a message is UTF-8 all through if its numbers are small.
    let key = format!("asynq:{{{queue}}}:t:{id}");
    let mut connection =
        redis::Client::open(bench.redis.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let mut pipe = redis::pipe();
    pipe.cmd("SADD").arg("asynq:queues").arg(queue).ignore();
    pipe.cmd("HSET").arg(&key).arg("msg").arg(&message.to_bytes()[..]).arg("state").arg(state.as_str());
    pipe.arg("result").arg(EVIL).arg("group").arg(&message.group_key).ignore();
    let place = format!("asynq:{{{queue}}}:{state}");
    match state {
        TaskState::Pending | TaskState::Active => pipe.cmd("LPUSH").arg(place).arg(&id).ignore(),
        TaskState::Aggregating => pipe
            .cmd("SADD")
            .arg(format!("asynq:{{{queue}}}:groups"))
            .arg(&message.group_key)
            .ignore()
            .cmd("ZADD")
            .arg(format!("asynq:{{{queue}}}:g:{}", message.group_key))
            .arg(4_000_000_000_i64)
            .arg(&id)
            .ignore(),
        _ => pipe.cmd("ZADD").arg(place).arg(4_000_000_000_i64).arg(&id).ignore(),
    };
    pipe.query_async::<()>(&mut connection).await.unwrap();
}

async fn store_servers(bench: &Bench, queue: &str) {
    let now = Some(Timestamp { seconds: 1_700_000_000, nanos: 0 });
    let server = ServerInfo {
        host: format!("host{EVIL}"),
        server_id: format!("id{EVIL}"),
        queues: [(queue.to_owned(), 1)].into(),
        status: format!("active{EVIL}"),
        start_time: now,
        active_worker_count: 1,
        ..ServerInfo::default()
    };
    let worker = WorkerInfo {
        host: server.host.clone(),
        server_id: server.server_id.clone(),
        task_id: format!("active{EVIL}"),
        task_type: format!("type{EVIL}"),
        task_payload: EVIL.to_owned().into(),
        queue: queue.to_owned(),
        start_time: now,
        deadline: now,
        ..WorkerInfo::default()
    };
    let entry = SchedulerEntry {
        id: format!("entry{EVIL}"),
        spec: format!("@every 1s{EVIL}"),
        task_type: format!("type{EVIL}"),
        task_payload: EVIL.to_owned().into(),
        enqueue_options: vec![format!("Queue(\"low{EVIL}\")")],
        next_enqueue_time: now,
        prev_enqueue_time: now,
    };
    let (server, worker, entry) = (server.encode_to_vec(), worker.encode_to_vec(), entry.encode_to_vec());
    let mut connection =
        redis::Client::open(bench.redis.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let (far, key) = (4_000_000_000_i64, "{evil:1:id}");
    let mut pipe = redis::pipe();
    pipe.cmd("ZADD").arg("asynq:servers").arg(far).arg(format!("asynq:servers:{key}")).ignore();
    pipe.cmd("ZADD").arg("asynq:workers").arg(far).arg(format!("asynq:workers:{key}")).ignore();
    pipe.cmd("ZADD").arg("asynq:schedulers").arg(far).arg(format!("asynq:schedulers:{key}")).ignore();
    pipe.cmd("SET").arg(format!("asynq:servers:{key}")).arg(server).ignore();
    pipe.cmd("HSET").arg(format!("asynq:workers:{key}")).arg(format!("active{EVIL}")).arg(worker).ignore();
    pipe.cmd("LPUSH").arg(format!("asynq:schedulers:{key}")).arg(entry).ignore();
    pipe.query_async::<()>(&mut connection).await.unwrap();
}

/// Control characters other than the ends of lines and tabs.
fn controls(text: &str) -> String {
    text.chars().filter(|c| c.is_control() && !matches!(c, '\n' | '\t')).collect()
}

#[tokio::test]
async fn control_characters_from_redis_never_reach_the_terminal() {
    let bench = Bench::new().await;
    let queue = format!("queue{EVIL}");
    for name in ["default", &queue] {
        for state in TaskState::ALL {
            store(&bench, name, state).await;
        }
    }
    store_servers(&bench, &queue).await;
    let task = |state: TaskState| format!("{state}{EVIL}");
    let (pending, archived, completed) =
        (task(TaskState::Pending), task(TaskState::Archived), task(TaskState::Completed));
    let group = format!("group{EVIL}");
    let entry = format!("entry{EVIL}");
    let q = queue.as_str();
    let mut commands: Vec<Vec<&str>> = vec![
        vec!["queue", "ls"],
        vec!["queue", "inspect", q],
        vec!["queue", "inspect", "no\u{1b}such"],
        vec!["queue", "history", q],
        vec!["queue", "pause", q],
        vec!["queue", "unpause", q],
        vec!["queue", "rm", q],
        vec!["group", "ls", "--queue", q],
        vec!["server", "ls"],
        vec!["cron", "ls"],
        vec!["cron", "history", &entry],
        vec!["cron", "pause", &entry],
        vec!["stats"],
        vec!["doctor"],
        vec!["doctor", "--queue", q],
        vec!["explain", &pending],
        vec!["explain", "--queue", q, &archived],
        vec!["explain", "no\u{1b}such"],
        vec!["task", "inspect", "--queue", q, "--id", &pending],
        vec!["task", "inspect", "--queue", q, "--id", &completed],
        vec!["task", "inspect", "--queue", q, "--id", "no\u{1b}such"],
        vec!["task", "run", "--queue", q, "--id", &pending],
        vec!["task", "run", "--queue", q, "--id", &archived],
        vec!["task", "cancel", &pending],
        vec!["task", "wait", "--queue", q, &completed, "--timeout", "1s"],
        vec!["task", "delete", "--queue", q, "--id", &completed],
        vec!["task", "archive", "--queue", q, "--id", &completed],
        vec!["task", "ls", "--queue", q, "--state", "aggregating", "--group", &group],
        vec!["enqueue", "type\u{1b}", "--queue", "default"],
        vec!["export", "--queue", q],
    ];
    for state in TaskState::ALL {
        commands.push(vec!["task", "ls", "--queue", q, "--state", state.as_str()]);
        commands.push(vec!["task", "ls", "--queue", q, "--state", state.as_str(), "--type", "type*"]);
    }
    let mut shown = 0;
    for command in commands {
        for json in [false, true] {
            // The result itself goes to whoever reads the pipe; on a terminal it is made harmless.
            if !json && command.starts_with(&["task", "wait"]) {
                continue;
            }
            let mut arguments = command.clone();
            if json {
                arguments.push("--json");
            }
            let done = bench.run(&arguments).await;
            assert!(!done.stderr.contains("unexpected argument"), "{arguments:?}: {}", done.stderr);
            for (name, text) in [("output", &done.stdout), ("error", &done.stderr)] {
                assert_eq!(controls(text), "", "standard {name} of {arguments:?}: {text:?}");
            }
            shown += usize::from(done.stdout.contains("type") || done.stdout.contains("queue"));
        }
    }
    assert!(shown > 30, "only {shown} commands have shown anything");
}

#[tokio::test]
async fn the_log_of_a_worker_obeys_nobody_either() {
    let bench = Bench::new().await;
    for state in [TaskState::Pending, TaskState::Scheduled] {
        store(&bench, "default", state).await;
    }
    let worker = bench.worker(&["--exec", "never=true", "--unhandled", "archive"]).await;
    worker.wait_for_line("handler not found").await;
    let lines = worker.all_lines().join("\n");
    assert_eq!(controls(&lines), "", "{lines:?}");
}
