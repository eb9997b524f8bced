//! Limits: `queuectl limit set`, `ls`, `key`, `rm`, `off`.

use serde_json::json;

use crate::support::Bench;

#[tokio::test]
async fn limits_are_set_shown_changed_for_a_key_and_removed() {
    let bench = Bench::new().await;
    assert_eq!(bench.run(&["limit", "ls", "-q", "default"]).await.ok(), "no limits; `queuectl limit set` makes one\n");
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
    bench.run(&["limit", "key", "tenant", "acme", "--reset"]).await.ok();
    assert_eq!(bench.run(&["limit", "ls", "-q", "default", "--json"]).await.json()[0]["keys"], json!({}));
    bench.run(&["limit", "rm", "tenant"]).await.ok();
    assert_eq!(bench.run(&["limit", "ls", "-q", "default", "--json"]).await.json(), json!([]));
    let off = bench.run(&["limit", "off", "--json"]).await.json();
    assert_eq!(off, json!({ "queue": "default", "made_pending": 0 }));
}

#[tokio::test]
async fn what_limits_nothing_or_lets_nothing_start_is_refused() {
    let bench = Bench::new().await;
    for (more, said) in [
        (&["--key", "type"][..], "limits nothing"),
        (&["--key", "type", "--concurrency", "0"], "lets nothing start"),
        (&["--key", "type", "--rate", "0/1s"], "lets nothing start"),
        (&["--key", "tenant", "--concurrency", "1"], "is no key"),
    ] {
        let line = [&["limit", "set", "x"], more].concat();
        let error = bench.run(&line).await.failed(2);
        assert!(error.contains(said), "{line:?}: {error}");
    }
    let error = bench.run(&["limit", "rm", "none"]).await;
    assert!(!error.failed(3).is_empty());
}
