//! Tasks for certain workers: `enqueue --only`, `--label`, `worker --name`, `--label`.

use queue_core::TaskState;
use serde_json::json;

use crate::support::Bench;

#[tokio::test]
async fn a_task_for_a_worker_that_is_not_there_is_refused_unless_it_is_forced() {
    let bench = Bench::new().await;
    let enqueue = |more: &[&'static str]| [&["enqueue", "t", "--queue", "mail", "--json"], more].concat();
    for (target, only) in [(["--only", "web-1"], "servers named web-1"), (["--label", "gpu"], "servers labelled gpu")] {
        let refused = bench.run(&enqueue(&target)).await.failed(3);
        assert!(refused.contains(only) && refused.contains("--force enqueues it nevertheless"), "{refused}");
    }
    let refused = bench.run(&enqueue(&["--only", "web:1"])).await.failed(2);
    assert!(refused.contains("server name \"web:1\" is none"), "{refused}");
    let refused = bench.run(&enqueue(&["--only", "web-1", "--priority", "9"])).await.failed(2);
    assert!(refused.contains("cannot be used with"), "{refused}");
    assert_eq!(bench.ask::<u64>(&["DBSIZE"]).await, 0, "nothing was written");

    let forced =
        bench.run(&enqueue(&["--only", "web-1", "--task-id", "a", "--force", "--retention", "1h"])).await.json();
    assert_eq!(forced["queue"], json!("mail}@web-1"));
    let both = br#"{"type":"t","queue":"mail","labels":["gpu","eu"],"task_id":"b","retention":"1h"}"#;
    bench.run_with(&["enqueue", "--batch", "-"], both).await.ok();
    let why = bench.run(&["explain", "b"]).await.ok();
    assert!(why.contains("only servers labelled eu and gpu may run it"), "{why}");

    let name = ["--queue", "mail", "--name", "web-1", "--label", "gpu", "--label", "eu", "--exec", "t=true"];
    let _worker = bench.worker(&name).await;
    for (queue, id) in [("mail}@web-1", "a"), ("mail}#eu+gpu", "b")] {
        bench.run(&["task", "wait", id, "-q", queue]).await.ok();
        assert_eq!(bench.inspector.task(queue, id).await.unwrap().state, TaskState::Completed);
    }
    // Now it is there.
    bench.run(&enqueue(&["--only", "web-1"])).await.ok();
    bench.run(&enqueue(&["--label", "eu"])).await.ok();
    bench.run(&enqueue(&["--label", "big"])).await.failed(3);
    bench.run(&["enqueue", "t", "--only", "web-1"]).await.failed(3);

    bench.run(&["enqueue", "t", "--queue", "mail-old"]).await.ok();
    for level in ["3", "9"] {
        bench.run(&enqueue(&["--priority", level])).await.ok();
    }
    bench.run(&enqueue(&[])).await.ok();
    let listed = bench.run(&["queue", "ls"]).await.ok();
    let names: Vec<&str> =
        listed.lines().skip(1).map(|line| line.split("  ").find(|part| !part.is_empty()).unwrap()).collect();
    assert_eq!(names, ["mail", "p9", "p3", "#eu", "#eu+gpu", "@web-1", "mail-old"], "{listed}");
}

#[tokio::test]
async fn a_task_that_waits_is_moved_to_another_priority_or_other_workers_and_back() {
    let bench = Bench::new().await;
    bench.run(&["enqueue", "t", "--queue", "mail", "--task-id", "a"]).await.ok();
    let moved = async |more: &[&str]| bench.run(&[&["task", "move", "a"], more].concat()).await;
    let told = moved(&["--priority", "9", "--json"]).await.json();
    assert_eq!(told, json!({"id": "a", "from": "mail", "queue": "mail}p9"}));
    moved(&["-q", "mail}p9", "--only", "web-1"]).await.ok();
    moved(&["--label", "gpu", "--label", "eu"]).await.ok();
    assert_eq!(moved(&["--shared"]).await.ok(), "task \"a\" is in queue \"mail\" now\n");
    let audit = bench.run(&["audit"]).await.ok();
    assert_eq!(audit.matches("task.move").count(), 4, "{audit}");

    let refused = moved(&["--shared"]).await.failed(4);
    assert!(refused.contains("is in queue \"mail\" already"), "{refused}");
    let refused = moved(&[]).await.failed(2);
    assert!(refused.contains("--shared"), "{refused}");
    moved(&["--priority", "9", "--shared"]).await.failed(2);
    moved(&["--only", "web:1"]).await.failed(1);
    bench.run(&["enqueue", "t", "--queue", "mail", "--priority", "9", "--task-id", "a"]).await.ok();
    let refused = moved(&["--priority", "3"]).await.failed(4);
    assert!(refused.contains("is in several queues: mail, mail}p9"), "{refused}");
    let refused = moved(&["-q", "mail", "--priority", "9"]).await.failed(4);
    assert!(refused.contains("has a task \"a\" of its own"), "{refused}");
    bench.run(&["task", "move", "b", "--shared"]).await.failed(3);
}
