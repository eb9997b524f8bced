//! `queuectl scheduler` and `queuectl cron`.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Bench, PATIENCE};

const GOOD: &str = "[[cron]]\nname = 'often'\nspec = '@every 1s'\ntype = 'ping'\npayload = { a = 1 }\n";

impl Bench {
    fn write(&self, text: &str) -> String {
        let path = self.path("cron.toml");
        // As editors do: the file is replaced in one step.
        let new = self.path("cron.toml.new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &path).unwrap();
        path.to_str().unwrap().to_owned()
    }

    async fn cron(&self) -> Vec<Value> {
        match self.run(&["cron", "ls", "--json"]).await.json() {
            Value::Array(entries) => entries,
            other => panic!("{other}"),
        }
    }

    async fn pending(&self) -> Vec<queue_core::TaskInfo> {
        let all = queue_admin::Page { skip: 0, size: 10_000 };
        self.inspector.tasks("default", queue_core::TaskState::Pending, all).await.unwrap_or_default()
    }

    async fn pending_of(&self, entry: &str) -> usize {
        self.pending().await.iter().filter(|task| task.id.starts_with(&format!("{entry}:"))).count()
    }

    async fn until_pending(&self, entry: &str, count: usize) {
        let end = std::time::Instant::now() + PATIENCE;
        while self.pending_of(entry).await < count {
            assert!(std::time::Instant::now() < end, "{count} tasks of {entry} did not come");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn two_schedulers_with_one_file_enqueue_each_tick_once() {
    let bench = Bench::new().await;
    let file = bench.write(GOOD);
    let (a, b) = (bench.scheduler(&["--config", &file]).await, bench.scheduler(&["--config", &file]).await);
    bench.until_pending("often", 2).await;
    a.kill().await;
    bench.until_pending("often", 4).await;
    assert_eq!(b.stop().await.0, Some(0));
    let tasks = bench.pending().await;
    let ticks: Vec<i64> = tasks.iter().map(|task| task.id.strip_prefix("often:").unwrap().parse().unwrap()).collect();
    assert!(ticks.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ticks:?}");
    assert_eq!((&*tasks[0].payload, tasks[0].task_type.as_str()), (&br#"{"a":1}"#[..], "ping"));
}

#[tokio::test]
async fn a_changed_file_is_read_again_and_a_bad_entry_leaves_the_others_alone() {
    let bench = Bench::new().await;
    let file = bench.write(GOOD);
    let scheduler = bench.scheduler(&["--config", &file]).await;
    let new = "[[cron]]\nname = 'new'\nspec = '@every 1s'\ntype = 'ping'\n";
    bench.write(&format!("{new}\n[[cron]]\nname = 'often'\nspec = '@every 1 s'\ntype = 'ping'\n"));
    let line = scheduler.wait_for_line("cron.toml:8").await;
    for part in ["often", "a unit is unknown", "the other entries run"] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    bench.until_pending("new", 1).await;
    let before = bench.pending_of("often").await;
    bench.until_pending("often", before + 2).await;
    // No TOML at all changes nothing.
    bench.write("[[cron]\n");
    scheduler.wait_for_line("the entries stay as they are").await;
    let before = bench.pending_of("new").await;
    bench.until_pending("new", before + 2).await;
    // HUP reads it even if it looks as before.
    scheduler.signal(Signal::HUP);
    scheduler.wait_for_line("on HUP").await;
    bench.write(new);
    scheduler.wait_for_line("removed=1").await;
    assert_eq!(scheduler.stop().await.0, Some(0));
}

/// What was read of such a file so far was taken for all of it, and the other entries ran no more.
#[tokio::test]
async fn a_file_that_is_being_written_or_is_empty_takes_no_entry_away() {
    let bench = Bench::new().await;
    let other = "[[cron]]\nname = 'other'\nspec = '@yearly'\ntype = 'ping'\n";
    let file = bench.write(&[GOOD, other].concat());
    let scheduler = bench.scheduler(&["--config", &file]).await;
    let is_removed = || scheduler.all_lines().iter().any(|line| line.contains("removed=1"));
    // Written in place, over some seconds.
    let mut text = GOOD.to_owned();
    for line in ["# still writing\n"; 8] {
        text.push_str(line);
        std::fs::write(&file, &text).unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    }
    std::fs::write(&file, text + other).unwrap();
    std::fs::write(&file, "").unwrap();
    let line = scheduler.wait_for_line("the entries stay as they are").await;
    assert!(line.contains("cron.toml: it has no [[cron]]; write cron = []"), "{line}");
    let before = bench.pending_of("often").await;
    bench.until_pending("often", before + 2).await;
    assert!(!is_removed(), "{:#?}", scheduler.all_lines());
    std::fs::write(&file, "cron = []\n").unwrap();
    scheduler.wait_for_line("removed=2").await;
    assert_eq!(scheduler.stop().await.0, Some(0));
}

#[tokio::test]
async fn a_file_that_is_none_does_not_start() {
    let bench = Bench::new().await;
    let missing = bench.path("missing.toml");
    let said = bench.run(&["scheduler", "--config", missing.to_str().unwrap()]).await.failed(1);
    assert!(said.contains("missing.toml: No such file"), "{said}");
    let file = bench.write("[[cron]]\nspec =\n");
    let said = bench.run(&["scheduler", "--config", &file]).await.failed(1);
    assert!(said.contains("cron.toml:2: "), "{said}");
    let file = bench.write("timezone = 'UTC'\n");
    for more in [&["--check"][..], &[]] {
        let said = bench.run(&[&["scheduler", "--config", &file], more].concat()).await.failed(1);
        assert!(said.contains("cron.toml: it has no [[cron]]; write cron = []"), "{said}");
    }
}

#[tokio::test]
async fn check_shows_the_next_ticks_and_starts_nothing() {
    let bench = Bench::new().await;
    let file = bench.write(
        "timezone = 'Asia/Tokyo'\n[[cron]]\nname = 'daily'\nspec = '0 9 * * *'\ntype = 't'\nqueue = 'q'\n\
         [[cron]]\nname = 'never'\nspec = '0 0 30 2 *'\ntype = 't'\n",
    );
    let arguments = ["scheduler", "--config", &file, "--check", "--redis", "redis://127.0.0.1:1"];
    let check = |more: &[&str]| {
        let mut command = crate::support::queuectl();
        command.args(arguments).args(more);
        crate::support::finish(command, b"")
    };
    let report = check(&["--json", "--ticks", "3"]).await.json();
    let daily = &report["entries"][0];
    assert_eq!(
        (&daily["name"], &daily["timezone"], &daily["queue"]),
        (&json!("daily"), &json!("Asia/Tokyo"), &json!("q"))
    );
    let ticks: Vec<&str> = daily["ticks"].as_array().unwrap().iter().map(|tick| tick.as_str().unwrap()).collect();
    assert!(ticks.len() == 3 && ticks.iter().all(|tick| tick.ends_with("T00:00:00Z")), "{ticks:?}");
    let text = check(&[]).await.ok();
    assert!(text.contains("daily  0 9 * * *  Asia/Tokyo  t in \"q\"") && text.contains("never\n"), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains("00:00:00Z (in ")).count(), 5, "{text}");
    bench.write(
        "[[cron]]\nname = 'a'\nspec = '0 25 * * *'\ntype = 't'\n[[cron]]\nname = 'b'\nspec = '@daily'\ntype = 't'\n\
                 [[cron]]\nname = 'b'\nspec = '@daily'\ntype = 't'\n",
    );
    let done = check(&[]).await;
    assert!(done.stdout.starts_with("b  @daily"), "{done:?}");
    let said = done.failed(1);
    for part in ["cron.toml:3: ", "25 is not in 0-23", "cron.toml:9: ", "another entry of this name", "2 of 3 entries"]
    {
        assert!(said.contains(part), "{part} is not in {said}");
    }
}

#[tokio::test]
async fn entries_that_run_no_more_say_so() {
    let bench = Bench::new().await;
    let entry = |name, rest| format!("[[cron]]\nname = '{name}'\nspec = '@yearly'\ntype = 'ping'\n{rest}\n");
    let file = bench.write(&[entry("goes-on", "max_runs = 2"), entry("once", "max_runs = 1")].concat());
    let scheduler = bench.scheduler(&["--config", &file]).await;
    for name in ["goes-on", "once"] {
        bench.run(&["cron", "run", name]).await.ok();
    }
    let past = entry("over", "ends = 2020-01-01T00:00:00Z");
    bench.write(&[entry("goes-on", "max_runs = 2"), entry("once", "max_runs = 1"), past].concat());
    scheduler.signal(Signal::HUP);
    let end = std::time::Instant::now() + PATIENCE;
    while bench.cron().await.len() < 3 {
        assert!(std::time::Instant::now() < end, "the third entry does not come");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let shown = bench
        .cron()
        .await
        .into_iter()
        .map(|entry| (entry["id"].as_str().unwrap().to_owned(), entry["state"].clone(), entry["next"].is_string()));
    let expected = [("goes-on", "active", true), ("once", "exhausted", false), ("over", "ended", false)];
    assert_eq!(shown.collect::<Vec<_>>(), expected.map(|(id, state, next)| (id.to_owned(), json!(state), next)));
    assert_eq!(scheduler.stop().await.0, Some(0));
}

#[tokio::test]
async fn entries_are_shown_paused_resumed_and_run() {
    let bench = Bench::new().await;
    assert!(bench.run(&["cron", "ls"]).await.ok().contains("no periodic entries"));
    let file = bench.write(
        "[[cron]]\nname = 'yearly'\nspec = '@yearly'\ntimezone = 'Europe/Berlin'\ntype = 'ping'\npayload = 'hi'\n\
         overlap = 'skip'\nmissed = 'all:3'\njitter = '10s'\nmax_runs = 5\n",
    );
    let scheduler = bench.scheduler(&["--config", &file]).await;
    let entry = bench.cron().await.remove(0);
    assert_eq!(entry["id"], "yearly");
    for (key, value) in [
        ("state", json!("active")),
        ("scheduler", json!("rust")),
        ("timezone", json!("Europe/Berlin")),
        ("missed", json!("all:3")),
        ("overlap", json!("skip")),
        ("jitter_secs", json!(10)),
        ("max_runs", json!(5)),
        ("payload", json!("hi")),
        ("last", Value::Null),
    ] {
        assert_eq!(entry[key], value, "{key}");
    }
    assert!(entry["next"].is_string());
    let table = bench.run(&["cron", "ls"]).await.ok();
    assert!(table.contains("yearly  CRON_TZ=Europe/Berlin @yearly  ping") && table.contains("active"), "{table}");
    assert!(bench.run(&["cron", "history", "yearly"]).await.ok().contains("no history"));

    let id = bench.run(&["cron", "run", "yearly"]).await.ok();
    assert_eq!(bench.task(id.trim()).await.payload, "hi");
    let said = bench.run(&["cron", "run", "yearly"]).await.failed(4);
    assert!(said.contains("is unfinished") && said.contains("--force"), "{said}");
    let second = bench.run(&["cron", "run", "yearly", "--force", "--json"]).await.json();
    assert_ne!(second["task_id"].as_str(), Some(id.trim()));
    let history = bench.run(&["cron", "history", "yearly"]).await.ok();
    assert!(history.contains("enqueued, by hand") && history.contains("unfinished, by hand"), "{history}");
    let page = bench.run(&["cron", "history", "yearly", "--size", "1", "--page", "3", "--json"]).await.json();
    assert_eq!(page[0]["task_id"].as_str(), Some(id.trim()));

    assert_eq!(bench.run(&["cron", "pause", "yearly"]).await.ok(), "entry \"yearly\" is paused\n");
    assert_eq!(bench.run(&["cron", "pause", "yearly"]).await.ok(), "entry \"yearly\" is paused already\n");
    assert_eq!(bench.cron().await[0]["state"], "paused");
    let resumed = bench.run(&["cron", "resume", "yearly", "--json"]).await.json();
    assert_eq!(resumed, json!({"entry": "yearly", "paused": false, "changed": true}));
    for command in [&["cron", "pause", "none"][..], &["cron", "run", "none"], &["cron", "history", "none"]] {
        let said = bench.run(command).await.failed(3);
        assert!(said.contains("\"none\" not found"), "{said}");
    }
    let said = bench.run(&["cron", "remove", "yearly"]).await.failed(4);
    assert!(said.contains("a scheduler carries"), "{said}");
    assert_eq!(scheduler.stop().await.0, Some(0));
    assert_eq!(bench.run(&["cron", "history", "yearly", "--json"]).await.json().as_array().unwrap().len(), 3);
    // As it is some time later.
    let redis = redis::Client::open(bench.redis.url()).unwrap();
    let mut connection = redis.get_multiplexed_async_connection().await.unwrap();
    let long_ago = redis::cmd("ZADD").arg("asynq:x:cron").arg(5).arg("yearly default").to_owned();
    long_ago.query_async::<()>(&mut connection).await.unwrap();
    assert_eq!(bench.cron().await[0]["state"], "stopped");
    assert_eq!(bench.run(&["cron", "rm", "yearly"]).await.ok(), "entry \"yearly\" is forgotten\n");
    assert_eq!(bench.cron().await, [] as [Value; 0]);
}
