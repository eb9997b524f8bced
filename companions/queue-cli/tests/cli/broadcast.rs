//! `queuectl broadcast`.

use std::time::Duration;

use serde_json::json;

use crate::support::{Bench, Worker};

async fn named(bench: &Bench, name: &str, command: &str) -> Worker {
    bench.worker(&["--name", name, "--queue", "mail", "--exec", command]).await
}

/// Waits until all of these are listed with their names.
async fn listed(bench: &Bench, servers: usize) {
    for _ in 0..1_000 {
        let listed = bench.run(&["server", "ls", "--json"]).await.json();
        let names = listed.as_array().unwrap().iter().filter(|server| server["takes_orders"] == json!(true));
        if names.count() == servers {
            return;
        }
    }
    panic!("there are not {servers} servers");
}

#[tokio::test]
async fn each_server_tells_its_result_and_the_quorum_its_exit_code() {
    let bench = Bench::new().await;
    let command = "t=sh -c 'if test -e broken; then echo no >&2; exit 65; fi; cat'";
    let _workers = [
        named(&bench, "web-1", command).await,
        named(&bench, "web-2", command).await,
        bench.worker(&["--queue", "mail", "--exec", command]).await,
    ];
    listed(&bench, 3).await;
    let run = ["broadcast", "run", "t", "--to", "live", "--queue", "mail"];
    let sent = bench.run(&[&run[..], &["--payload", "hello", "--id", "x", "--json"]].concat()).await;
    assert!(sent.stderr.contains("warning: left out: ") && sent.stderr.contains("(it has no name)"), "{sent:?}");
    let sent = sent.json();
    assert_eq!((&sent["id"], &sent["servers"]), (&json!("x"), &json!(["web-1", "web-2"])));
    assert_eq!(sent["left_out"][0]["why"], json!("nameless"));
    bench.run(&["batch", "wait", "x", "--timeout", "60s"]).await.ok();
    let shown = bench.run(&["broadcast", "show", "x", "--json"]).await.json();
    assert_eq!(
        (&shown["verdict"], &shown["quorum"], &shown["state"]),
        (&json!("reached"), &json!(2), &json!("succeeded"))
    );
    let worker = &shown["workers"][1];
    assert_eq!((&worker["server"], &worker["state"]), (&json!("web-2"), &json!("succeeded")));
    assert_eq!((&worker["result"], &worker["queue"]), (&json!("hello"), &json!("mail}@web-2")));
    let shown = bench.run(&["broadcast", "show", "x"]).await.ok();
    assert!(
        shown.starts_with("broadcast \"x\" of t is reached: 2 of 2 servers have succeeded, 2 have to\nSERVER"),
        "{shown}"
    );
    assert!(bench.run(&["batch", "show", "x"]).await.ok().contains("Quorum       2, reached\n"));
    bench.run_with(&["batch", "create", "--id", "other", "--from", "-"], br#"{"type":"t"}"#).await.ok();
    let listed = bench.run(&["broadcast", "ls", "--json"]).await.json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "a batch is none: {listed}");
    assert_eq!((&listed[0]["id"], &listed[0]["type"], &listed[0]["quorum"]), (&json!("x"), &json!("t"), &json!(2)));
    let table = bench.run(&["broadcast", "ls"]).await.ok();
    assert!(table.lines().nth(1).is_some_and(|line| line.starts_with("x ") && line.contains("reached")), "{table}");

    let waited = bench.run(&[&run[..], &["--quorum", "all", "--wait"]].concat()).await.ok();
    assert!(waited.contains("is reached: 2 of 2") && waited.contains("web-1   succeeded"), "{waited}");
    std::fs::write(bench.path("broken"), "").unwrap();
    let missed = bench.run(&[&run[..], &["--quorum", "1", "--wait", "--json"]].concat()).await;
    assert!(
        missed.stdout.contains("\"verdict\":\"missed\"") && missed.stdout.contains("\"state\":\"dead\""),
        "{missed:?}"
    );
    assert!(missed.failed(5).contains("cannot succeed; missed: 0 of 2 servers have succeeded, 1 has to"));
}

#[tokio::test]
async fn what_cannot_be_sent_has_an_exit_code_and_a_timeout_too() {
    let bench = Bench::new().await;
    let run = |more: &[&'static str]| [&["broadcast", "run", "t", "--queue", "mail"], more].concat();
    bench.run(&run(&["--to", "live"])).await.failed(4);
    bench.run(&run(&[])).await.failed(2);
    for to in ["all", "count:x", "label:", "server:"] {
        bench.run(&run(&["--to", to])).await.failed(2);
    }
    let _worker = named(&bench, "web-1", "t=sleep 60").await;
    listed(&bench, 1).await;
    let error = bench.run(&run(&["--to", "server:web-1,web-9"])).await.failed(3);
    assert!(error.contains("no live server is called web-9"), "{error}");
    let error = bench.run(&run(&["--to", "count:2"])).await.failed(4);
    assert!(error.contains("1 live servers of queue \"mail\" can take part, and 2 are wanted"), "{error}");
    bench.run(&run(&["--to", "live", "--quorum", "2"])).await.failed(4);
    bench.run(&run(&["--to", "live", "--quorum", "some"])).await.failed(2);
    assert_eq!(bench.run(&["batch", "ls"]).await.ok(), "no batches\n");
    let error = bench.run(&run(&["--to", "live", "--id", "x", "--wait", "--wait-timeout", "100ms"])).await.failed(124);
    assert!(error.contains("is not decided in time; open: 0 of 1 servers have succeeded"), "{error}");
    bench.run(&["broadcast", "show", "nobody"]).await.failed(3);
    bench.run_with(&["batch", "create", "--from", "-", "--id", "b"], b"{\"type\":\"t\"}\n").await.ok();
    let error = bench.run(&["broadcast", "show", "b"]).await.failed(3);
    assert!(error.contains("batch b is no broadcast"), "{error}");
}

#[tokio::test]
async fn a_worker_that_was_killed_goes_on_when_it_is_back() {
    let bench = Bench::new().await;
    let killed = named(&bench, "web-1", "t=sh -c 'echo $$ >> began; sleep 60'").await;
    listed(&bench, 1).await;
    bench.run(&["broadcast", "run", "t", "--to", "count:1", "--queue", "mail", "--id", "x"]).await.ok();
    let pids = crate::support::pids(&bench.path("began"), 1).await;
    killed.kill().await;
    // Its lease is over, and so is its entry.
    let leased: Vec<String> = bench.ask(&["ZRANGE", "asynq:{mail}@web-1}:lease", "0", "-1"]).await;
    bench.ask::<i64>(&["ZADD", "asynq:{mail}@web-1}:lease", "XX", "1", &leased[0]]).await;
    let entries: Vec<String> = bench.ask(&["KEYS", "asynq:servers:*"]).await;
    bench.ask::<i64>(&["DEL", &entries[0]]).await;
    let shown = bench.run(&["broadcast", "show", "x", "--json"]).await.json();
    assert_eq!((&shown["workers"][0]["state"], &shown["verdict"]), (&json!("gone"), &json!("open")));
    let _worker = named(&bench, "web-1", "t=echo done").await;
    bench.run(&["batch", "wait", "x", "--timeout", "110s"]).await.ok();
    let shown = bench.run(&["broadcast", "show", "x", "--json"]).await.json();
    assert_eq!((&shown["workers"][0]["result"], &shown["verdict"]), (&json!("done"), &json!("reached")));
    assert_eq!(pids.len(), 1);
}

#[tokio::test]
async fn a_worker_that_starts_later_takes_part_and_another_does_the_part_of_one_that_was_killed() {
    let bench = Bench::new().await;
    let _first = named(&bench, "web-1", "t=echo done").await;
    listed(&bench, 1).await;
    let run = |more: &[&'static str]| [&["broadcast", "run", "t", "--queue", "mail"], more].concat();
    for (to, more) in [("count:1", "--late-joiners"), ("live", "--replace-after")] {
        let refused = bench.run(&run(&["--to", to, more, "1m"])).await.failed(2);
        assert!(refused.contains("only if it is for") && refused.contains("Usage:"), "{refused}");
    }
    for (more, said) in [
        (&["--to", "count:1", "--replace-after", "1s"][..], "10 s at the earliest"),
        (&["--to", "live", "--id", "a b"], "the characters"),
        (&["--to", "live", "--max-retry", "4294967295"], "max_retry is 4294967295; the largest is"),
    ] {
        let refused = bench.run(&run(more)).await.failed(2);
        assert!(refused.contains(said), "{more:?}: {refused}");
    }
    bench.run(&run(&["--to", "live", "--late-joiners", "5m", "--id", "x"])).await.ok();
    let _later = named(&bench, "web-2", "t=echo done").await;
    let state = async |id: &str, server: &str| {
        let shown = bench.run(&["broadcast", "show", id, "--json"]).await.json();
        let worker =
            shown["workers"].as_array().unwrap().iter().find(|worker| worker["server"] == json!(server)).cloned();
        (worker.map(|worker| worker["state"].clone()), shown["verdict"].clone())
    };
    let until = async |id: &str, server: &str, wanted: &str| {
        for _ in 0..2_000 {
            if state(id, server).await.0 == Some(json!(wanted)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        panic!("{server} is not {wanted} in {id}");
    };
    until("x", "web-2", "succeeded").await;
    assert_eq!(state("x", "web-2").await.1, json!("open"));
    let shown = bench.run(&["broadcast", "show", "x"]).await.ok();
    assert!(shown.contains("is open: 2 of 2 servers have succeeded, 2 have to; servers that start until "), "{shown}");
    bench.run(&["workflow", "signal", "x", "late-joiners"]).await.ok();
    bench.run(&["batch", "wait", "x", "--timeout", "60s"]).await.ok();

    let killed = bench.worker(&["--name", "web-3", "--queue", "mail", "--exec", "u=sleep 60"]).await;
    listed(&bench, 3).await;
    let sent = ["broadcast", "run", "u", "--queue", "mail", "--to", "count:1", "--replace-after", "10s", "--id", "y"];
    bench.run(&sent).await.ok();
    until("y", "web-3", "running").await;
    killed.kill().await;
    let _other = bench.worker(&["--name", "web-4", "--queue", "mail", "--exec", "u=echo done"]).await;
    // It counts as alive for 10 s, and then as gone for 10 s, before the other one does its part.
    until("y", "web-3", "replaced").await;
    bench.run(&["batch", "wait", "y", "--timeout", "60s"]).await.ok();
    let shown = bench.run(&["broadcast", "show", "y"]).await.ok();
    assert!(shown.starts_with("broadcast \"y\" of u is reached: 1 of 1 servers has succeeded, 1 has to\n"), "{shown}");
}
