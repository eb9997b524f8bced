//! Limits: `queuectl limit set`, `ls`, `lanes`, `key`, `rm`, `off`.

use prost::Message as _;
use queue_core::wire::{ServerInfo, Timestamp};
use serde_json::json;

use crate::support::Bench;

#[tokio::test]
async fn limits_are_set_shown_changed_for_a_key_and_removed() {
    let bench = Bench::new().await;
    assert_eq!(bench.run(&["limit", "ls"]).await.ok(), "no limits; `queuectl limit set` makes one\n");
    let set = ["limit", "set", "tenant", "--key", "header:tenant", "--concurrency", "2", "--rate", "100/1m", "--json"];
    let set = bench.run(&set).await.json();
    assert_eq!(
        (&set["name"], &set["key"], &set["concurrency"]),
        (&json!("tenant"), &json!("header:tenant"), &json!(2))
    );
    assert_eq!((&set["rate"], &set["per"], &set["unaware_servers"]), (&json!(100), &json!(60_000), &json!([])));
    bench.run(&["limit", "key", "tenant", "acme", "--concurrency", "5"]).await.ok();
    bench.run(&["limit", "key", "tenant", "acme", "--pause"]).await.ok();
    let listed = bench.run(&["limit", "ls", "-q", "default", "--json"]).await.json();
    assert_eq!(listed[0]["keys"]["acme"], json!({ "concurrency": 5, "paused": true }));
    let table = bench.run(&["limit", "ls", "-q", "default"]).await.ok();
    assert!(table.contains("header:tenant") && table.contains("100/1m") && table.contains("acme (paused)"), "{table}");
    let lanes = bench.run(&["limit", "lanes", "tenant", "--json"]).await.json();
    let lane = json!([{ "key": "acme", "running": 0, "waiting": 0, "next_look": null, "concurrency": 5, "paused": true, "weight": null, "rests_until": null, "slowed": null }]);
    assert_eq!(lanes, lane);
    let table = bench.run(&["limit", "lanes", "tenant"]).await.ok();
    assert!(table.lines().nth(1).is_some_and(|line| line.contains("acme") && line.ends_with("paused")), "{table}");
    bench.run(&["limit", "key", "tenant", "acme", "--reset"]).await.ok();
    assert_eq!(bench.run(&["limit", "lanes", "tenant"]).await.ok(), "nothing runs or waits under limit \"tenant\"\n");
    assert!(!bench.run(&["limit", "lanes", "none"]).await.failed(3).is_empty());
    assert_eq!(bench.run(&["limit", "ls", "-q", "default", "--json"]).await.json()[0]["keys"], json!({}));
    bench.run(&["limit", "rm", "tenant"]).await.ok();
    let set = ["limit", "set", "account", "--key", "payload:/account", "--order", "strict", "--json"];
    let set = bench.run(&set).await.json();
    assert_eq!((&set["order"], &set["concurrency"]), (&json!("strict"), &json!(1)));
    assert!(bench.run(&["limit", "ls", "-q", "default"]).await.ok().contains("in order"));
    let error = bench.run(&["limit", "key", "account", "ann", "--concurrency", "2"]).await.failed(1);
    assert!(error.contains("in strict order"), "{error}");
    let error = bench.run(&["limit", "set", "other", "--key", "type", "--order", "strict"]).await.failed(1);
    assert!(error.contains("one such limit"), "{error}");
    bench.run(&["limit", "rm", "account"]).await.ok();
    assert_eq!(bench.run(&["limit", "ls", "-q", "default", "--json"]).await.json(), json!([]));
    let off = bench.run(&["limit", "off", "--json"]).await.json();
    assert_eq!(off, json!({ "queue": "default", "made_pending": 0 }));
}

#[tokio::test]
async fn keys_of_a_fair_limit_have_weights() {
    let bench = Bench::new().await;
    let set = bench.run(&["limit", "set", "tenant", "--key", "header:tenant", "--fair", "--json"]).await.json();
    assert_eq!((&set["fair"], &set["concurrency"]), (&json!(true), &json!(null)));
    let said = bench.run(&["limit", "key", "tenant", "acme", "--weight", "10"]).await.ok();
    assert!(said.contains("weight: 10"), "{said}");
    bench.run(&["limit", "key", "tenant", "acme", "--concurrency", "3"]).await.ok();
    let listed = bench.run(&["limit", "ls", "-q", "default", "--json"]).await.json();
    assert_eq!(listed[0]["keys"]["acme"], json!({ "concurrency": 3, "weight": 10 }));
    assert_eq!(bench.run(&["limit", "lanes", "tenant", "--json"]).await.json()[0]["weight"], json!(10));
    bench.run(&["limit", "key", "tenant", "", "--weight", "2"]).await.ok();
    let table = bench.run(&["limit", "ls", "-q", "default"]).await.ok();
    assert!(table.contains("fair") && table.contains("(weight 2), acme (3)"), "{table}");
    assert!(bench.run(&["limit", "key", "tenant", "acme", "--weight", "0"]).await.failed(2).contains("0 is not in"));
    bench.run(&["limit", "set", "other", "--key", "type", "--concurrency", "1"]).await.ok();
    let error = bench.run(&["limit", "key", "other", "job", "--weight", "2"]).await.failed(1);
    assert!(error.contains("only a fair limit"), "{error}");
    let error = bench.run(&["limit", "set", "more", "--key", "type", "--fair"]).await.failed(1);
    assert!(error.contains("another limit of the queue is"), "{error}");
}

#[tokio::test]
async fn a_breaker_is_set_and_shown() {
    let bench = Bench::new().await;
    let set = ["limit", "set", "shop", "--key", "header:shop", "--breaker", "50%/20/1m", "--rest", "1s..10m", "--json"];
    let set = bench.run(&set).await.json();
    let breaker = json!({ "percent": 50, "of": 20, "within": 60_000, "rest": 1_000, "most": 600_000 });
    assert_eq!((&set["breaker"], &set["opened"]), (&breaker, &json!(0)));
    assert!(bench.run(&["limit", "ls", "-q", "default"]).await.ok().contains("50%/20/1m"));
    bench.run(&["limit", "key", "shop", "acme", "--concurrency", "9"]).await.ok();
    bench.ask::<String>(&["SET", "asynq:{default}:x:health:shop:acme", "20 20 1 4102444800000 1000"]).await;
    let lanes = bench.run(&["limit", "lanes", "shop", "--json"]).await.json();
    assert_eq!(lanes[0]["rests_until"], json!("2100-01-01T00:00:00Z"));
    assert!(bench.run(&["limit", "lanes", "shop"]).await.ok().contains("none until 2100-01-01"));
    bench.ask::<String>(&["SET", "asynq:{default}:x:health:shop:acme", "20 20 1 1 1000"]).await;
    assert!(bench.run(&["limit", "lanes", "shop"]).await.ok().contains("one at a time"));
}

#[tokio::test]
async fn what_limits_nothing_or_lets_nothing_start_is_refused() {
    let bench = Bench::new().await;
    for (more, said) in [
        (&["--key", "type"][..], "limits nothing"),
        (&["--key", "type", "--concurrency", "0"], "lets nothing start"),
        (&["--key", "type", "--rate", "0/1s"], "lets nothing start"),
        (&["--key", "tenant", "--concurrency", "1"], "is no key"),
        (&["--key", "type", "--order", "strict", "--concurrency", "2"], "its concurrency is 1"),
        (&["--key", "type", "--order", "fifo"], "is no order"),
        (&["--key", "queue", "--fair"], "have one key"),
        (&["--key", "type", "--fair", "--type", "mail:*"], "all types"),
        (&["--key", "type", "--fair", "--order", "strict"], "in strict order"),
        (&["--key", "type", "--breaker", "50/20/1m"], "in percent"),
        (&["--key", "type", "--breaker", "50%/20"], "such as 50%/20/1m"),
        (&["--key", "type", "--breaker", "0%/20/1m"], "1 to 100 percent"),
        (&["--key", "type", "--breaker", "50%/20/1m", "--rest", "2m..1m"], "not longer than its longest"),
        (&["--key", "type", "--concurrency", "1", "--rest", "1m"], "--breaker"),
        (&["--key", "type", "--rate", "1/1s", "--adapt", "16"], "such as 1/16"),
        (&["--key", "type", "--rate", "1/1s", "--adapt", "1/1"], "to a half at the least"),
        (&["--key", "type", "--concurrency", "1", "--adapt", "1/16"], "--rate"),
        (&["--key", "type", "--rate", "1000000000/1ns"], "a millisecond to a year"),
        (&["--key", "type", "--rate", "1000000000/1s"], "one start in a microsecond"),
        (&["--key", "type", "--rate", "1/10000d"], "a millisecond to a year"),
        (&["--key", "type", "--concurrency", "1", "--type", "a*b"], "a star at its end"),
        (&["--key", "type", "--concurrency", "1", "--fallback", "0s"], "a second to a year"),
        (&["--key", "payload:/a~2", "--concurrency", "1"], "no path of a field"),
        (&["--key", "type", "--concurrency", "1", "--queue", ""], "the queue name is blank"),
        (&["--key", "type", "--concurrency", "1", "--queue", "a}:b"], "of another queue"),
    ] {
        let line = [&["limit", "set", "x"], more].concat();
        let error = bench.run(&line).await.failed(2);
        assert!(error.contains(said), "{line:?}: {error}");
    }
    let error = bench.run(&["limit", "rm", "none"]).await;
    assert!(!error.failed(3).is_empty());
    assert!(bench.run(&["limit", "off", "--queue", "nosuch"]).await.failed(3).contains("\"nosuch\" not found"));
    // One for a priority of a queue is none of these.
    bench.run(&["limit", "set", "x", "--key", "type", "--concurrency", "1", "--queue", "mail}p9"]).await.ok();
}

#[tokio::test]
async fn who_sets_a_limit_learns_which_servers_do_not_know_of_it() {
    let bench = Bench::new().await;
    let set = ["limit", "set", "x", "--key", "type", "--concurrency", "1"];
    assert_eq!(bench.run(&set).await.ok(), "limit \"x\" of queue \"default\" is set\n");
    let go = ServerInfo {
        host: "go".to_owned(),
        pid: 7,
        server_id: "u".to_owned(),
        queues: [("default".to_owned(), 1)].into(),
        status: "active".to_owned(),
        start_time: Some(Timestamp { seconds: 5, nanos: 0 }),
        ..ServerInfo::default()
    };
    bench.ask::<i64>(&["ZADD", "asynq:servers", "4000000000", "asynq:servers:{go:7:u}"]).await;
    bench.set("asynq:servers:{go:7:u}", &go.encode_to_vec()).await;
    let told = bench.run(&set).await.ok();
    assert!(told.contains("is set; servers of the queue that do not know of it: go:7:u"), "{told}");
}

impl Bench {
    async fn set(&self, key: &str, bytes: &[u8]) {
        let client = redis::Client::open(self.redis.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        redis::cmd("SET").arg(key).arg(bytes).exec_async(&mut connection).await.unwrap();
    }
}

/// Other commands refuse a queue that is not there. A limit may be set ahead of its queue.
#[tokio::test]
async fn a_queue_that_is_not_there_is_named_by_who_lists_and_by_who_sets() {
    let bench = Bench::new().await;
    bench.enqueue("t", "id").await;
    let error = bench.run(&["limit", "ls", "--queue", "defualt"]).await.failed(3);
    assert!(error.contains("\"defualt\" not found"), "{error}");
    let set = async |queue: &str| {
        let done = bench.run(&["limit", "set", "x", "--key", "type", "--concurrency", "1", "--queue", queue]).await;
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stderr
    };
    let told = set("defualt").await;
    assert!(told.contains("warning: there was no queue \"defualt\""), "{told}");
    assert!(told.contains("`queuectl queue rm` removes it"), "{told}");
    assert_eq!(set("defualt").await, "", "now there is");
    assert_eq!(set("default").await, "");
    assert_eq!(set("default}p9").await, "", "it belongs to one that is there");
    bench.run(&["queue", "rm", "defualt"]).await.ok();
}

/// Somebody has written something else in the place of the limits.
#[tokio::test]
async fn limits_that_cannot_be_read_are_named_by_all_who_are_asked() {
    let bench = Bench::new().await;
    bench.enqueue("t", "waits").await;
    let batch = r#"{"type":"t","queue":"default"}"#;
    bench.run_with(&["batch", "create", "--id", "b", "--from", "-"], batch.as_bytes()).await.ok();
    const KEY: &str = "asynq:{default}:x:rules";
    for (write, why, remedy) in [
        (["SET", KEY, "nothing"].as_slice(), "expected ident", "queuectl limit off"),
        (&["SET", KEY, "{\"rules\":[{\"name\":\"x\"}]}"], "missing field", "queuectl limit off"),
        (&["SADD", KEY, "x"], "another type", "queuectl doctor --fix --dump FILE"),
    ] {
        bench.ask::<redis::Value>(&["DEL", KEY]).await;
        bench.ask::<redis::Value>(write).await;
        let set = ["limit", "set", "x", "--key", "type", "--concurrency", "1"];
        let key = ["limit", "key", "x", "k", "--pause"];
        for command in [&set[..], &key, &["limit", "ls", "-q", "default"], &["limit", "lanes", "x"]] {
            let error = bench.run(command).await.failed(1);
            for part in ["the limits of queue \"default\" cannot be read", "nothing is taken from it", why, remedy] {
                assert!(error.contains(part), "{command:?}: {part:?} in {error}");
            }
        }
        let listed = bench.run(&["limit", "ls"]).await;
        assert!(listed.stderr.contains("warning: the limits of queue \"default\" cannot be read"), "{listed:?}");
        let explained = bench.run(&["explain", "waits"]).await.ok();
        assert!(
            explained.contains("the limits of its queue cannot be read") && explained.contains(remedy),
            "{explained}"
        );
        let explained = bench.run(&["batch", "explain", "b"]).await.ok();
        assert!(explained.contains("the first of them: the limits of its queue cannot be read"), "{explained}");
        if remedy == "queuectl limit off" {
            bench.run(&["limit", "off"]).await.ok();
        } else {
            let error = bench.run(&["limit", "off"]).await.failed(1);
            assert!(error.contains("another type") && error.contains(remedy), "{error}");
            bench.run(&["doctor", "--fix", "--dump", "dump"]).await;
        }
        assert_eq!(bench.ask::<u64>(&["EXISTS", KEY]).await, 0, "{remedy}");
    }
    bench.set(KEY, &[0xff, 0]).await;
    bench.run(&["limit", "ls", "-q", "default"]).await.failed(1);
    bench.run(&["limit", "off"]).await.ok();
    assert_eq!(bench.ask::<u64>(&["EXISTS", KEY]).await, 0, "what is no text");
}

/// A member that waits in a lane says in which.
#[tokio::test]
async fn a_batch_says_why_its_members_wait() {
    let bench = Bench::new().await;
    bench.run(&["limit", "set", "x", "--key", "type", "--concurrency", "1"]).await.ok();
    let batch = "{\"type\":\"t\"}\n{\"type\":\"t\"}\n";
    bench.run_with(&["batch", "create", "--id", "b", "--from", "-"], batch.as_bytes()).await.ok();
    let _worker = bench.worker(&["--exec", "t=sleep 600"]).await;
    let explained = async || bench.run(&["batch", "explain", "b"]).await.ok();
    let mut told = explained().await;
    for _ in 0..500 {
        if told.contains("waits in lane \"x:t\"") {
            break;
        }
        told = explained().await;
    }
    assert!(told.contains("1 of its members: scheduled in queue default"), "{told}");
    assert!(told.contains("the first of them: it waits in lane \"x:t\""), "{told}");
    let json = bench.run(&["batch", "explain", "b", "--json"]).await.json();
    assert_eq!(json["tasks"][0]["reasons"][0]["reason"], json!("lane"));
}
