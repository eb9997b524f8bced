//! `queuectl batch`.

use serde_json::json;

use crate::support::Bench;

/// A file of so many tasks.
fn members(count: usize) -> String {
    "{\"type\":\"t\"}\n".repeat(count)
}

#[tokio::test]
async fn a_file_becomes_a_batch_whose_end_can_be_waited_for() {
    let bench = Bench::new().await;
    std::fs::write(bench.path("rows.jsonl"), members(3)).unwrap();
    let create = ["batch", "create", "--from", "rows.jsonl", "--success", "report={\"month\":\"a=b\"}"];
    let more = ["--complete", "told", "--description", "import of November", "--id", "import"];
    assert_eq!(bench.run(&[&create[..], &more[..]].concat()).await.ok(), "import\n");
    let status = bench.run(&["batch", "show", "import", "--json"]).await.json();
    assert_eq!((&status["state"], &status["total"], &status["sent"]), (&json!("running"), &json!(3), &json!(3)));
    assert_eq!(
        status["callbacks"][0],
        json!({"event": "complete", "type": "told", "queue": "default", "state": "waiting"})
    );
    let _worker = bench.worker(&["--exec", "t=true", "--exec", "told=true", "--exec", "report=tee report"]).await;
    let told = bench.run(&["batch", "wait", "import", "--timeout", "30s"]).await.ok();
    assert_eq!(told, "succeeded: 3 of 3 members succeeded\n");
    assert_eq!(std::fs::read_to_string(bench.path("report")).unwrap(), "{\"month\":\"a=b\"}");
    let status = bench.run(&["batch", "wait", "import", "--json"]).await.json();
    assert_eq!((&status["state"], &status["succeeded"]), (&json!("succeeded"), &json!(3)));
    let shown = bench.run(&["batch", "show", "import"]).await.ok();
    assert!(
        shown.contains("Description  import of November\n") && shown.contains("Members      3, 3 succeeded\n"),
        "{shown}"
    );
    assert!(shown.contains("success      report in queue default: succeeded, since "), "{shown}");
}

#[tokio::test]
async fn each_end_of_a_batch_has_its_exit_code() {
    let bench = Bench::new().await;
    for command in ["show", "wait"] {
        let stderr = bench.run(&["batch", command, "nobody"]).await.failed(3);
        assert!(stderr.contains("there is no batch nobody"), "{stderr}");
        bench.run(&["batch", command, "a/b"]).await.failed(2);
    }
    bench.run_with(&["batch", "create", "--from", "-", "--id", "bad"], members(1).as_bytes()).await.ok();
    let stderr = bench.run(&["batch", "wait", "bad", "--timeout", "100ms"]).await.failed(124);
    assert!(stderr.contains("is not over in time; running: 0 of 1 members succeeded, 1 sent"), "{stderr}");
    let done = bench.run(&["batch", "wait", "bad", "--timeout", "100ms", "--json"]).await;
    assert!(done.stdout.contains("\"state\":\"running\""), "{done:?}");
    let _worker = bench.worker(&["--exec", "t=sh -c 'exit 65'"]).await;
    let stderr = bench.run(&["batch", "wait", "bad", "--timeout", "30s"]).await.failed(5);
    assert!(stderr.contains("is over without success; dead: 0 of 1 members succeeded, 1 dead"), "{stderr}");
    let dead = bench.run(&["batch", "show", "bad", "--members", "dead", "--json"]).await.json();
    let id = dead[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(bench.task(&id).await.task_type, "t");
    let none = bench.run(&["batch", "show", "bad", "--members", "sent"]).await.ok();
    assert_eq!(none, "no members of batch \"bad\" are sent\n");
}

#[tokio::test]
async fn a_line_that_is_no_task_is_named_and_nothing_is_added() {
    let bench = Bench::new().await;
    let create = ["batch", "create", "--from", "-", "--id", "import"];
    let stderr = bench.run_with(&create, b"{\"type\":\"t\"}\nnonsense\n").await.failed(1);
    assert!(stderr.contains("line 2: it is not JSON") && stderr.contains("nothing was added"), "{stderr}");
    assert_eq!(bench.ask::<Vec<String>>(&["KEYS", "*"]).await, Vec::<String>::new());
    let broken = members(1_500) + "\n{\"type\":\"t\",\"task_id\":\"mine\"}\n" + &members(10);
    let stderr = bench.run_with(&create, broken.as_bytes()).await.failed(1);
    assert!(stderr.contains("line 1502: the task cannot belong to a batch: it has an id of its own"), "{stderr}");
    // A plain file is read from its beginning twice; what is too long for a task is found as well.
    let large = members(1_200) + &json!({"type": "t", "payload": "x".repeat(17 << 20)}).to_string();
    std::fs::write(bench.path("large.jsonl"), &large).unwrap();
    let stderr = bench.run(&["batch", "create", "--from", "large.jsonl"]).await.failed(1);
    assert!(stderr.contains("line 1201: ") && stderr.contains("nothing was added"), "{stderr}");
    assert_eq!(bench.ask::<Vec<String>>(&["KEYS", "*"]).await, Vec::<String>::new());
    // What can be read once goes through another file, whatever it is called.
    let stderr = bench.run_with(&["batch", "create", "--from", "/dev/stdin"], broken.as_bytes()).await.failed(1);
    assert!(stderr.contains("line 1502: "), "{stderr}");
    let id = bench.run_with(&["batch", "create", "--from", "/dev/stdin"], members(3).as_bytes()).await.ok();
    let shown = bench.run(&["batch", "show", id.trim(), "--json"]).await.json();
    assert_eq!(shown["total"], json!(3));
    bench.run(&["batch", "cancel", id.trim(), "--yes"]).await.ok();
    // Corrected, and then once more.
    let corrected = broken.replace(",\"task_id\":\"mine\"", "");
    for existed in [false, true] {
        let created = bench.run_with(&[&create[..], &["--json"]].concat(), corrected.as_bytes()).await.json();
        assert_eq!(created, json!({"id": "import", "members": 1_511, "duplicates": 0, "existed": existed}));
        assert_eq!(bench.inspector.queue("default").await.unwrap().pending, 1_511);
    }
    let longer = corrected + &members(1_000);
    let stderr = bench.run_with(&create, longer.as_bytes()).await.failed(4);
    assert!(stderr.contains("batch import is closed"), "{stderr}");
    assert_eq!(bench.inspector.queue("default").await.unwrap().pending, 1_511);
}

#[tokio::test]
async fn a_file_that_cannot_be_read_makes_no_batch() {
    let bench = Bench::new().await;
    for file in ["nowhere", "."] {
        let stderr = bench.run(&["batch", "create", "--from", file]).await.failed(1);
        assert!(stderr.contains(&format!("cannot read {file}")), "{stderr}");
    }
    assert_eq!(bench.run(&["batch", "ls"]).await.ok(), "no batches\n");
    // An empty one is a batch that succeeds at once.
    let id = bench.run_with(&["batch", "create", "--from", "-"], b"").await.ok();
    assert_eq!(bench.run(&["batch", "wait", id.trim()]).await.ok(), "succeeded: 0 of 0 members succeeded\n");
}

#[tokio::test]
async fn batches_are_listed_newest_first_and_by_the_page() {
    let bench = Bench::new().await;
    for id in ["a", "b", "c"] {
        bench.run_with(&["batch", "create", "--from", "-", "--id", id], members(2).as_bytes()).await.ok();
    }
    let ids = |page: serde_json::Value| -> Vec<String> {
        page.as_array().unwrap().iter().map(|batch| batch["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(bench.run(&["batch", "ls", "--json"]).await.json()), ["c", "b", "a"]);
    assert_eq!(ids(bench.run(&["batch", "ls", "--json", "--size", "2", "--page", "2"]).await.json()), ["a"]);
    let table = bench.run(&["batch", "list"]).await.ok();
    assert!(table.starts_with("BATCH") && table.lines().count() == 4, "{table}");
}

#[tokio::test]
async fn a_batch_is_cancelled_once_and_only_by_who_means_it() {
    let bench = Bench::new().await;
    bench.run_with(&["batch", "create", "--from", "-", "--id", "b"], members(3).as_bytes()).await.ok();
    let stderr = bench.run(&["batch", "cancel", "b"]).await.failed(2);
    assert!(stderr.contains("this would cancel batch \"b\" and its children, with 3 members"), "{stderr}");
    bench.run(&["batch", "cancel", "nobody", "--yes"]).await.failed(3);
    assert_eq!(bench.inspector.queue("default").await.unwrap().pending, 3);
    assert_eq!(bench.run(&["batch", "cancel", "b", "--yes"]).await.ok(), "batch \"b\" is cancelled\n");
    assert_eq!(bench.inspector.queue("default").await.unwrap().pending, 0);
    let stderr = bench.run(&["batch", "wait", "b", "--timeout", "30s"]).await.failed(5);
    assert!(stderr.contains("cancelled: 0 of 3 members succeeded, 3 cancelled"), "{stderr}");
    let audit = bench.run(&["audit"]).await.ok();
    assert!(audit.contains("batch.cancel"), "{audit}");
    // An empty batch has succeeded.
    bench.run_with(&["batch", "create", "--from", "-", "--id", "e"], b"").await.ok();
    let stderr = bench.run(&["batch", "cancel", "e", "--yes"]).await.failed(4);
    assert!(
        stderr.contains("batch \"e\" is over, or only its callbacks are left, so there is nothing to cancel"),
        "{stderr}"
    );
}

#[tokio::test]
async fn the_dead_members_of_a_batch_are_run_again() {
    let bench = Bench::new().await;
    bench.run_with(&["batch", "create", "--from", "-", "--id", "b"], members(2).as_bytes()).await.ok();
    let command = "t=sh -c 'test -e healed || exit 65'";
    let _worker = bench.worker(&["--exec", command]).await;
    bench.run(&["batch", "wait", "b", "--timeout", "30s"]).await.failed(5);
    bench.run(&["batch", "retry", "b"]).await.failed(2);
    bench.run(&["batch", "retry", "nobody", "--dead"]).await.failed(3);
    std::fs::write(bench.path("healed"), "").unwrap();
    assert_eq!(bench.run(&["batch", "retry", "b", "--dead", "--json"]).await.json(), json!({"id": "b", "members": 2}));
    let told = bench.run(&["batch", "wait", "b", "--timeout", "30s"]).await.ok();
    assert_eq!(told, "succeeded: 2 of 2 members succeeded\n");
    assert_eq!(bench.run(&["batch", "retry", "b", "--dead"]).await.ok(), "0 members of batch \"b\" are run again\n");
}

#[tokio::test]
async fn the_dead_members_of_a_batch_are_counted_as_succeeded() {
    let bench = Bench::new().await;
    bench.run_with(&["batch", "create", "--from", "-", "--id", "b"], members(3).as_bytes()).await.ok();
    let _worker = bench.worker(&["--exec", "t=sh -c 'exit 65'"]).await;
    bench.run(&["batch", "wait", "b", "--timeout", "30s"]).await.failed(5);
    let dead = bench.run(&["batch", "show", "b", "--members", "dead", "--json"]).await.json();
    let one = dead[0]["id"].as_str().unwrap();
    let stderr = bench.run(&["batch", "resolve", "b", "--all"]).await.failed(2);
    assert!(stderr.contains("count all members of batch \"b\" that died or were removed as succeeded"), "{stderr}");
    bench.run(&["batch", "resolve", "b", "--yes"]).await.failed(2);
    bench.run(&["batch", "resolve", "b", "--all", "--member", one, "--yes"]).await.failed(2);
    bench.run(&["batch", "resolve", "nobody", "--all", "--yes"]).await.failed(3);
    let told = bench.run(&["batch", "resolve", "b", "--member", one, "--yes"]).await.ok();
    assert_eq!(told, "1 member of batch \"b\" counts as succeeded\n");
    let told = bench.run(&["batch", "resolve", "b", "--all", "--yes", "--json"]).await.json();
    assert_eq!(told, json!({"id": "b", "members": 2}));
    let told = bench.run(&["batch", "wait", "b", "--timeout", "30s"]).await.ok();
    assert_eq!(told, "succeeded: 3 of 3 members succeeded\n");
    assert!(bench.run(&["audit"]).await.ok().contains("batch.resolve"));
}

#[tokio::test]
async fn members_are_added_to_a_batch_until_it_is_committed() {
    let bench = Bench::new().await;
    let create = ["batch", "create", "--from", "-", "--id", "b", "--open", "--success", "told"];
    bench.run_with(&create, members(2).as_bytes()).await.ok();
    let add = ["batch", "add", "b", "--from", "-", "--name", "second", "--json"];
    for _ in 0..2 {
        let added = bench.run_with(&add, members(3).as_bytes()).await.json();
        assert_eq!(added, json!({"id": "b", "members": 3, "duplicates": 0}));
    }
    let broken = members(1_100) + "{\"type\":\"\"}\n";
    let stderr = bench.run_with(&["batch", "add", "b", "--from", "-"], broken.as_bytes()).await.failed(1);
    assert!(stderr.contains("line 1101: ") && stderr.contains("nothing was added"), "{stderr}");
    assert_eq!(bench.inspector.queue("default").await.unwrap().pending, 5);
    let explained = bench.run(&["batch", "explain", "b"]).await.ok();
    assert!(explained.starts_with("batch \"b\" is open: 0 of 5 members succeeded, 5 sent\n"), "{explained}");
    assert!(explained.contains("- it is not committed: "), "{explained}");
    assert_eq!(bench.run(&["batch", "commit", "b"]).await.ok(), "batch \"b\" is committed\n");
    bench.run(&["batch", "commit", "b"]).await.ok();
    bench.run_with(&["batch", "add", "b", "--from", "-"], members(1).as_bytes()).await.failed(4);
    bench.run_with(&["batch", "add", "nobody", "--from", "-"], members(1).as_bytes()).await.failed(3);
    bench.run(&["batch", "commit", "nobody"]).await.failed(3);
}

#[tokio::test]
async fn tags_metadata_deadline_and_linger_are_shown_and_batches_are_found_by_tag_and_state() {
    let bench = Bench::new().await;
    let create =
        ["batch", "create", "--from", "-", "--id", "b", "--tag", "nightly", "--tag", "eu", "--meta", "by=ann=x"];
    let more = ["--deadline", "2090-01-01T00:00:00Z", "--linger", "2h", "--open"];
    bench.run_with(&[&create[..], &more].concat(), members(1).as_bytes()).await.ok();
    bench.run_with(&["batch", "create", "--from", "-", "--id", "other"], members(1).as_bytes()).await.ok();
    let shown = bench.run(&["batch", "show", "b", "--json"]).await.json();
    assert_eq!((&shown["tags"], &shown["metadata"]), (&json!(["eu", "nightly"]), &json!({"by": "ann=x"})));
    assert_eq!(shown["deadline"], "2090-01-01T00:00:00Z");
    assert_eq!(bench.ask::<String>(&["HGET", "asynq:x:{b}:0:flow", "linger"]).await, "7200");
    let told = bench.run(&["batch", "show", "b"]).await.ok();
    assert!(told.contains("eu, nightly") && told.contains("by=ann=x"), "{told}");
    for (filter, found) in [
        (&["--tag", "eu"][..], &["b"][..]),
        (&["--tag", "e"], &[]),
        (&["--state", "running"], &["other"]),
        (&["--state", "open", "--tag", "nightly"], &["b"]),
        (&["--state", "running", "--tag", "nightly"], &[]),
    ] {
        let listed = bench.run(&[&["batch", "ls", "--json"], filter].concat()).await.json();
        let ids: Vec<&str> = listed.as_array().unwrap().iter().map(|batch| batch["id"].as_str().unwrap()).collect();
        assert_eq!(ids, found, "{filter:?}");
    }
    assert_eq!(bench.run(&["batch", "ls", "--tag", "nobody's"]).await.ok(), "no such batches\n");

    // What is too much, or wrong, is named, and nothing is stored.
    let large = format!("notes={}", "x".repeat(16 * 1024));
    for (wrong, code, told) in [
        (["--meta", &large], 1, "tags and metadata take more than 16 KiB"),
        (["--meta", "no-text"], 2, "NAME=TEXT"),
        (["--success", ""], 1, "the task of on_success was refused"),
    ] {
        let create = [&["batch", "create", "--from", "-", "--id", "wrong"], &wrong[..]].concat();
        let stderr = bench.run_with(&create, members(1).as_bytes()).await.failed(code);
        assert!(stderr.contains(told), "{stderr}");
    }
    bench.run(&["batch", "show", "wrong"]).await.failed(3);
    for (file, told) in [
        (r#"{"tags": ["a"]}"#, "it has no node"),
        (r#"{"node": [{"name": "", "type": "a"}]}"#, "a node has an empty name"),
    ] {
        let stderr = bench.run_with(&["workflow", "create", "--from", "-"], file.as_bytes()).await.failed(1);
        assert!(stderr.contains(told), "{stderr}");
    }
    let file = r#"{"id": "of-tasks", "tasks": [{"type": "t"}, {"type": "t"}], "on_success": {"type": "done"}, "deadline": "2100-01-01T00:00:00Z"}"#;
    let made = bench.run_with(&["workflow", "create", "--from", "-", "--json"], file.as_bytes()).await.json();
    assert_eq!(made, json!({"id": "of-tasks", "nodes": 2, "existed": false}));
    let shown = bench.run(&["batch", "show", "of-tasks", "--json"]).await.json();
    assert_eq!(
        (&shown["total"], &shown["state"], &shown["deadline"]),
        (&json!(2), &json!("running"), &json!("2100-01-01T00:00:00Z"))
    );
    let file = r#"{"id": "w", "tags": ["flow"], "metadata": {"a": "b"}, "node": [{"name": "n", "type": "t"}]}"#;
    bench.run_with(&["workflow", "create", "--from", "-"], file.as_bytes()).await.ok();
    let listed = bench.run(&["batch", "ls", "--tag", "flow", "--json"]).await.json();
    assert_eq!((&listed[0]["id"], &listed[0]["metadata"]), (&json!("w"), &json!({"a": "b"})));
}

#[tokio::test]
async fn what_a_batch_waits_for_is_named() {
    let bench = Bench::new().await;
    bench
        .run_with(&["batch", "create", "--from", "-", "--id", "b", "--success", "told"], members(3).as_bytes())
        .await
        .ok();
    bench.run(&["queue", "pause", "default"]).await.ok();
    let explained = bench.run(&["batch", "explain", "b"]).await.ok();
    let first = bench.run(&["batch", "show", "b", "--members", "sent", "--json"]).await.json()[0]["id"].clone();
    let place =
        format!("3 of its members: pending in queue default, which is paused (first: {})", first.as_str().unwrap());
    assert!(explained.contains(&place), "{explained}");
    assert!(explained.contains("- callback success waits for every member"), "{explained}");
    // The leader may be late by the time that this is told.
    let looks =
        ["looks after it next ", "was to look after it "].map(|look| format!("- the leader of the servers {look}"));
    assert!(looks.iter().any(|look| explained.contains(look)), "{explained}");
    // Behind the back of the batch, as Go's tools do it.
    let id = first.as_str().unwrap();
    bench.ask::<i64>(&["LREM", "asynq:{default}:pending", "1", id]).await;
    bench.ask::<i64>(&["DEL", &format!("asynq:{{default}}:t:{id}")]).await;
    let explained = bench.run(&["batch", "explain", "b", "--json"]).await.json();
    let states: Vec<&str> =
        explained["members"].as_array().unwrap().iter().map(|it| it["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["missing", "pending"]);
    assert_eq!(explained["members"][1]["tasks"], json!(2));
    bench.run(&["batch", "explain", "nobody"]).await.failed(3);
    let tree = bench.run(&["batch", "show", "b", "--tree"]).await.ok();
    assert_eq!(tree, "b  running: 0 of 3 members succeeded, 3 sent\n");
    bench.run(&["batch", "show", "nobody", "--tree"]).await.failed(3);
}

/// A workflow in TOML: a task, a batch behind it, and one for the case that the batch fails.
const RELEASE: &str = r#"
    id = "release"
    description = "release 42"
    on_success = { type = "told" }

    [[node]]
    name = "build"
    type = "build"
    payload = { revision = 42 }

    [[node]]
    name = "test"
    tasks = [{ type = "test", payload = "unit" }, { type = "test", payload = "browser" }]
    after = ["build"]

    [[node]]
    name = "blame"
    type = "blame"
    after_failure = ["test"]
    may_fail = true
"#;

#[tokio::test]
async fn a_file_becomes_a_workflow_that_is_shown_as_table_tree_and_graph() {
    let bench = Bench::new().await;
    std::fs::write(bench.path("release.toml"), RELEASE).unwrap();
    let create = ["workflow", "create", "--from", "release.toml"];
    let made = bench.run(&create).await;
    assert!(!made.stderr.contains("was there already"), "{made:?}");
    assert_eq!(made.ok(), "release\n");
    let again = bench.run(&[&create[..], &["--json"]].concat()).await;
    assert!(again.stderr.contains("the workflow release was there already"), "{again:?}");
    assert_eq!(again.json(), json!({"id": "release", "nodes": 3, "existed": true}));
    let head = "workflow \"release\" is running: 0 of 3 members succeeded, 2 waiting, 1 sent\n";
    let tree = bench.run(&["workflow", "show", "release", "--tree"]).await.ok();
    let lines = "build  sent  build in queue default\n  test  waiting for build  batch release:1\n    \
                 blame  waiting for test (failed)  blame in queue default, may fail\n";
    assert_eq!(tree, format!("{head}{lines}"));
    let dot = bench.run(&["workflow", "show", "release", "--dot"]).await.ok();
    assert!(dot.contains("  \"test\" -> \"blame\" [label=\"failed\"];\n"), "{dot}");
    assert!(bench.run(&["workflow", "show", "release"]).await.ok().contains("NODE"));
    let explained = bench.run(&["batch", "explain", "release"]).await.ok();
    assert!(explained.contains("- node blame waits for test (failed)\n"), "{explained}");
    let _worker = bench.worker(&["--exec", "build=true", "--exec", "test=true", "--exec", "told=true"]).await;
    let told = bench.run(&["batch", "wait", "release", "--timeout", "30s"]).await.ok();
    assert_eq!(told, "succeeded: 2 of 3 members succeeded, 1 skipped\n");
    let shown = bench.run(&["workflow", "show", "release", "--json"]).await.json();
    assert_eq!((&shown["state"], &shown["skipped"], &shown["waiting"]), (&json!("succeeded"), &json!(1), &json!(0)));
    let test = shown["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "test").unwrap();
    assert_eq!(
        *test,
        json!({
            "name": "test", "state": "succeeded", "type": null, "queue": null, "id": "release:1", "is_batch": true, "may_fail": false,
            "signal": null,
            "after": [{"node": "build", "when": "succeeded", "state": "succeeded"}],
        })
    );
}

#[tokio::test]
async fn a_file_that_describes_no_workflow_is_refused_and_nothing_is_stored() {
    let bench = Bench::new().await;
    let cases = [
        ("nonsense", "describes no workflow: "),
        (r#"{"nodes": [{"name": "a", "type": "t", "after": ["b"]}]}"#, "node \"a\" waits for \"b\", which is no node"),
        (r#"{"nodes": [{"name": "a", "type": "t", "retries": 3}]}"#, "node \"a\": "),
        (
            r#"{"nodes": [{"name": "a", "type": "t", "tasks": []}]}"#,
            "node \"a\" is a task, with a `type`, or has `tasks`",
        ),
        (r#"{"nodes": [{"name": "a", "type": "t", "task_id": "x"}]}"#, "task a cannot belong to a batch"),
        (r#"{"nodes": [], "unknown": 1}"#, "unknown field `unknown`"),
    ];
    for (text, told) in cases {
        let stderr = bench.run_with(&["workflow", "create", "--from", "-"], text.as_bytes()).await.failed(1);
        assert!(stderr.contains(told), "{stderr}");
    }
    std::fs::write(bench.path("nan.toml"), "[[node]]\nname = 'a'\ntype = 't'\npayload = { x = nan }").unwrap();
    let stderr = bench.run(&["workflow", "create", "--from", "nan.toml"]).await.failed(1);
    assert!(stderr.contains("nan and inf cannot be written as JSON"), "{stderr}");
    bench.run(&["workflow", "create", "--from", "nowhere.toml"]).await.failed(1);
    bench.run(&["workflow", "show", "nobody"]).await.failed(3);
    assert_eq!(bench.ask::<Vec<String>>(&["KEYS", "*"]).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_signal_is_given_or_declined_from_the_shell() {
    let bench = Bench::new().await;
    let file = r#"
        id = "release"

        [[node]]
        name = "approve"
        signal = true
        within = "24h"
        otherwise = "skip"

        [[node]]
        name = "ship"
        type = "ship"
        payload = { not_before = 2030-01-31 }
        after = ["approve"]

        [[node]]
        name = "pause"
        timer = "1h"
    "#;
    std::fs::write(bench.path("release.toml"), file).unwrap();
    bench.run(&["workflow", "create", "--from", "release.toml"]).await.ok();
    let explained = bench.run(&["batch", "explain", "release"]).await.ok();
    assert!(explained.contains("node approve waits for its signal (skip after 24h0m0s, in 2"), "{explained}");
    let stderr = bench.run(&["workflow", "signal", "release", "approve", "--payload", "yes"]).await.failed(2);
    assert!(stderr.contains("this is no JSON"), "{stderr}");
    let stderr = bench.run(&["workflow", "signal", "release", "ship"]).await.failed(4);
    assert!(stderr.contains("no node \"ship\" that waits for a signal"), "{stderr}");
    bench.run(&["workflow", "signal", "nobody", "ship"]).await.failed(3);
    let declined = bench.run(&["workflow", "signal", "release", "approve", "--decline", "--json"]).await.json();
    assert_eq!(declined, json!({"id": "release", "node": "approve", "signal": "declined"}));
    let given = bench.run(&["workflow", "signal", "release", "approve", "--payload", "{\"by\":\"ada\"}"]).await.ok();
    assert_eq!(given, "signal \"approve\" of workflow release is given\n");
    let stderr = bench.run(&["workflow", "signal", "release", "approve"]).await.failed(4);
    assert!(stderr.contains("has ended before; this signal changes nothing"), "{stderr}");
    let shown = bench.run(&["workflow", "show", "release", "--tree"]).await.ok();
    assert!(shown.contains("approve  succeeded  signal (skip after 24h0m0s): {\"by\":\"ada\"}\n"), "{shown}");
    assert!(shown.contains("  ship  sent  ship in queue default\n"), "{shown}");
    let ship = bench.run(&["task", "ls", "-q", "default", "-s", "pending", "--json"]).await.ok();
    assert!(ship.contains("2030-01-31") && !ship.contains("$__toml"), "{ship}");
    let audit = bench.run(&["audit", "--json"]).await.ok();
    assert!(audit.contains("batch.signal"), "{audit}");
}

#[tokio::test]
async fn a_file_whose_signals_make_no_sense_is_refused() {
    let bench = Bench::new().await;
    for (node, text) in [
        ("signal = true\ntype = \"t\"", "it has none of them, or two"),
        ("after = []", "it has none of them, or two"),
        ("signal = true\ntimer = \"1h\"", "is a signal, and has tasks or a timer"),
        ("tasks = []\ntimer = \"1h\"", "has tasks, and is a timer"),
        ("type = \"t\"\nwithin = \"1h\"", "which a signal has"),
        ("signal = true\notherwise = \"skip\"", "which a signal has"),
        ("signal = true\nwithin = \"1h\"\notherwise = \"run\"", "none of succeed, skip and fail"),
        ("typ = \"t\"", "it has none of them, or two: `typ`"),
        ("signal = true\nwithn = \"1h\"", "or unknown ones: `withn`"),
        ("tasks = [{type = \"t\"}]\nqueue = \"q\"", "has fields of one, or unknown ones: `queue`"),
        ("timer = \"1h\"\nwihtin = \"1h\"", "unknown ones: `wihtin`"),
        ("timer = \"soon\"", "invalid duration \"soon\""),
    ] {
        std::fs::write(bench.path("bad.toml"), format!("[[node]]\nname = \"a\"\n{node}\n")).unwrap();
        let stderr = bench.run(&["workflow", "create", "--from", "bad.toml"]).await.failed(1);
        assert!(stderr.contains(text), "{stderr}");
    }
}

#[tokio::test]
async fn a_node_is_run_again_with_what_is_behind_it() {
    let bench = Bench::new().await;
    let file = r#"{"id": "w", "node": [{"name": "a", "type": "t"}, {"name": "b", "type": "t", "after": ["a"]}]}"#;
    bench.run_with(&["workflow", "create", "--from", "-"], file.as_bytes()).await.ok();
    let stderr = bench.run(&["workflow", "rerun", "w", "a"]).await.failed(4);
    assert!(stderr.contains("node \"a\" cannot be run again before these have ended: a"), "{stderr}");
    let _worker = bench.worker(&["--exec", "t=true"]).await;
    bench.run(&["batch", "wait", "w", "--timeout", "30s"]).await.ok();
    bench.run(&["workflow", "rerun", "nobody", "a"]).await.failed(3);
    bench.run(&["workflow", "rerun", "w", "nobody"]).await.failed(4);
    let told = bench.run(&["workflow", "rerun", "w", "a"]).await.ok();
    assert_eq!(told, "2 nodes of workflow w run again, from \"a\" on\n");
    bench.run(&["batch", "wait", "w", "--timeout", "30s"]).await.ok();
    let told = bench.run(&["workflow", "rerun", "w", "b", "--json"]).await.json();
    assert_eq!(told, json!({"id": "w", "node": "b", "generation": 3, "nodes": 1}));
    assert!(bench.run(&["audit"]).await.ok().contains("batch.rerun"));
}

/// A place in a file is found by the eye.
#[tokio::test]
async fn what_is_wrong_in_a_file_is_shown_where_it_stands() {
    let bench = Bench::new().await;
    std::fs::write(bench.path("bad.toml"), "[[node]]\nname = \"a\"\nafter = [5\ntype = \"t\"\n").unwrap();
    let error = bench.run(&["workflow", "create", "--from", "bad.toml"]).await.failed(1);
    let expected = "queuectl: error: bad.toml describes no workflow: TOML parse error at line 4, column 1\n  |\n\
                    4 | type = \"t\"\n  | ^\n";
    assert!(error.starts_with(expected), "{error}");
    std::fs::write(bench.path("bad.toml"), "[[node]]\nname = \"a\"\nafter = 5\ntype = \"t\"\n").unwrap();
    let error = bench.run(&["workflow", "create", "--from", "bad.toml"]).await.failed(1);
    let expected = "bad.toml describes no workflow: node 1: `after` is the number 5; it must be a list\n";
    assert!(error.ends_with(expected), "{error}");
    // What a file holds does not steer the terminal.
    std::fs::write(bench.path("bad.toml"), "a = 1 \u{1b}[2J\n").unwrap();
    let error = bench.run(&["workflow", "create", "--from", "bad.toml"]).await.failed(1);
    assert!(error.contains("\n1 | a = 1 ") && !error.contains('\u{1b}'), "{error:?}");
    std::fs::write(bench.path("cron.toml"), "[[cron]]\nspec = '@daily\ntype = 't'\n").unwrap();
    let error = bench.run(&["scheduler", "--check", "--config", "cron.toml"]).await.failed(1);
    assert!(error.starts_with("queuectl: error: cron.toml:2: TOML parse error at line 2, column "), "{error}");
    assert!(error.contains("\n2 | spec = '@daily\n  |      "), "{error}");
    std::fs::write(bench.path("hide.toml"), "headers = 5\n").unwrap();
    let error = bench.run(&["web", "--redact", "hide.toml"]).await.failed(1);
    assert!(error.contains("\n1 | headers = 5\n  |           ^\n"), "{error}");
}
