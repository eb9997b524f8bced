//! Programs that tell how far they are, and where to go on.

use queue_core::TaskState;

use crate::support::{Bench, eventually};

#[tokio::test]
async fn a_program_goes_on_from_its_checkpoint() {
    let bench = Bench::new().await;
    let program = r#"t=sh -c 'echo "[${TASK_CURSOR-none}]"; echo nonsense >&"$TASK_NOTES_FD"
        if [ -z "$TASK_CURSOR" ]; then
            echo "{\"progress\": 40.7, \"note\": \"row 5\", \"status\": \"of its own\", \"checkpoint\": {\"row\": 5}}" >&"$TASK_NOTES_FD"
            exit 1
        fi'"#;
    let worker = bench.worker(&["--exec", program, "--notes", "--retry-delay", "0s"]).await;
    bench.enqueue("t", "id").await;
    let task = bench.wait_for("id", &[TaskState::Completed]).await;
    assert_eq!(task.retried, 1);
    assert_eq!(task.result.as_deref(), Some(&br#"[{"row":5}]"#[..]));
    let progress = task.progress.unwrap();
    assert_eq!((progress.percent, &*progress.note), (40, "row 5"));
    worker.wait_for_line("TASK_NOTES_FD was not heeded").await;
}

#[tokio::test]
async fn a_program_writes_a_log_that_can_be_followed() {
    let bench = Bench::new().await;
    let program = r#"t=sh -c 'echo "{\"log\": \"connected\"}" >&"$TASK_NOTES_FD"; echo "{\"log\": \"as app\"}" >&"$TASK_NOTES_FD"
        echo "{\"log\": \"done\", \"progress\": 100}" >&"$TASK_NOTES_FD"'"#;
    bench.enqueue("t", "id").await;
    let nothing = bench.run(&["task", "show", "-q", "default", "-i", "id", "--log"]).await.ok();
    assert!(nothing.ends_with("Log: nothing was written down\n"), "{nothing}");
    let worker = bench.worker(&["--exec", program, "--notes"]).await;
    bench.wait_for("id", &[TaskState::Completed]).await;
    let shown = bench.run(&["task", "show", "-q", "default", "-i", "id", "--log"]).await.ok();
    let lines: Vec<&str> = shown.lines().skip_while(|line| *line != "Log, the last 3 of 3 lines:").skip(1).collect();
    let told: Vec<_> = lines.iter().map(|line| line.split_once("Z #1 ").unwrap().1).collect();
    assert_eq!(told, ["connected", "as app", "done"]);
    let json = bench.run(&["task", "show", "-q", "default", "-i", "id", "--log", "--json"]).await.json();
    assert_eq!((&json["log"][1]["text"], &json["log"][1]["attempt"]), (&"as app".into(), &1.into()));
    assert_eq!(json["log_left_out"], 0);
    let followed = bench.run(&["task", "show", "-q", "default", "-i", "id", "--follow", "--log"]).await.ok();
    assert!(followed.contains("Z #1 as app\n") && followed.contains("completed    100 %"), "{followed}");
    drop(worker);
}

#[tokio::test]
async fn without_notes_a_program_has_no_such_descriptor() {
    let bench = Bench::new().await;
    let _worker = bench.worker(&["--exec", "t=sh -c 'echo ${TASK_NOTES_FD-none} ${TASK_CURSOR-none}'"]).await;
    bench.enqueue("t", "id").await;
    let task = bench.wait_for("id", &[TaskState::Completed]).await;
    assert_eq!(task.result.as_deref(), Some(&b"none none"[..]));
}

#[tokio::test]
async fn a_program_that_asks_is_told_whether_its_checkpoint_is_stored() {
    let bench = Bench::new().await;
    let program = r#"t=sh -c 'echo "{\"checkpoint\": 1}" >&"$TASK_NOTES_FD"
        echo "{\"checkpoint\": 2, \"answer\": true}" >&"$TASK_NOTES_FD"
        read -r stored <&"$TASK_ANSWERS_FD"
        large=$(printf "%020000d" 0)
        echo "{\"checkpoint\": \"$large\", \"answer\": true}" >&"$TASK_NOTES_FD"
        read -r refused <&"$TASK_ANSWERS_FD"
        echo "$stored"; echo "$refused"'"#;
    let _worker = bench.worker(&["--exec", program, "--notes"]).await;
    bench.enqueue("t", "id").await;
    let told = bench.wait_for("id", &[TaskState::Completed]).await.result.unwrap();
    let told = String::from_utf8(told.to_vec()).unwrap();
    let (stored, refused) = told.split_once('\n').unwrap();
    assert_eq!(stored, r#"{"stored":true}"#);
    assert!(refused.starts_with(r#"{"stored":false,"error":"the checkpoint has 20002 bytes as JSON"#), "{refused}");
}

/// Says that the program has begun, and waits until it is told to go on.
const HELD: &str = "touch begun; while [ ! -e go ]; do sleep 0.1; done";

#[tokio::test]
async fn checkpoints_right_before_the_end_are_stored_although_redis_takes_its_time() {
    let bench = Bench::new().await;
    let end = r#"for n in 1 2; do echo "{\"checkpoint\": $n}" >&"$TASK_NOTES_FD"; done; exit 1"#;
    let program = format!("t=sh -c '{HELD}; {end}'");
    let _worker = bench.worker(&["--exec", &program, "--notes"]).await;
    bench.enqueue("t", "id").await;
    eventually("it has begun", || bench.path("begun").exists()).await;
    bench.ask::<String>(&["CLIENT", "PAUSE", "2500", "ALL"]).await;
    std::fs::write(bench.path("go"), "").unwrap();
    bench.wait_for("id", &[TaskState::Retry]).await;
    assert_eq!(bench.ask::<String>(&["HGET", "asynq:{default}:t:id", "x_cursor"]).await, "2");
}

#[tokio::test]
async fn a_worker_that_could_not_write_what_became_of_a_task_does_not_end_as_if_all_were_well() {
    let bench = Bench::new().await;
    let program = format!("t=sh -c '{HELD}'");
    let worker = bench.worker(&["--exec", &program, "--lease", "5s"]).await;
    bench.enqueue("t", "id").await;
    eventually("it has begun", || bench.path("begun").exists()).await;
    bench.ask::<String>(&["CLIENT", "PAUSE", "600000", "ALL"]).await;
    std::fs::write(bench.path("go"), "").unwrap();
    let (code, _) = worker.stop().await;
    assert_eq!(code, Some(1));
}
