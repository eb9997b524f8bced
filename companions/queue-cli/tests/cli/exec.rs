//! `queuectl worker --exec`: what programs get, and what their ends mean.

use std::time::Duration;

use queue_core::{RawTask, TaskState};

use crate::support::Bench;

#[tokio::test]
async fn a_program_gets_its_task_and_its_output_is_the_result() {
    let bench = Bench::new().await;
    let script = r#"a=sh -c 'cat; for n in ID TYPE QUEUE RETRIED MAX_RETRY HEADERS; do eval "printf %s\\\\n \"\$TASK_$n\""; done; echo "$1"' name 'one word'"#;
    let _worker = bench.worker(&["--exec", script]).await;
    let task = RawTask::new("a").payload("pay\0load\n").max_retry(7).header("k", "v ü");
    bench.enqueue_task(task, "id").await;
    let done = bench.wait_for("id", &[TaskState::Completed, TaskState::Retry, TaskState::Archived]).await;
    let expected = "pay\0load\nid\na\ndefault\n0\n7\n{\"k\":\"v \\u00fc\"}\none word\n";
    assert_eq!(String::from_utf8_lossy(&done.result.unwrap_or_default()), expected, "{:?}", done.last_error);
}

#[tokio::test]
async fn the_deadline_is_rfc_3339_and_the_earlier_of_timeout_and_deadline() {
    let bench = Bench::new().await;
    let _worker = bench.worker(&["--exec", "*=printenv TASK_DEADLINE"]).await;
    let at = std::time::UNIX_EPOCH + Duration::from_secs(4_102_444_800);
    bench.enqueue_task(RawTask::new("a").deadline(at), "id").await;
    let done = bench.wait_for("id", &[TaskState::Completed]).await;
    assert_eq!(done.result.unwrap(), &b"2100-01-01T00:00:00.000Z"[..]);
}

#[tokio::test]
async fn exit_codes_decide_what_happens() {
    let bench = Bench::new().await;
    let script = r#"exit:*=sh -c 'echo first >&2; echo "  why" >&2; echo >&2; exit ${TASK_TYPE#exit:}'"#;
    let worker =
        bench.worker(&["--exec", script, "--exec", "silent=false", "--exec", "killed=sh -c 'kill -9 $$'"]).await;
    for task_type in ["exit:0", "exit:65", "exit:75", "exit:1", "silent", "killed"] {
        bench.enqueue(task_type, task_type).await;
    }
    for (id, state, retried, error) in [
        ("exit:0", TaskState::Completed, 0, None),
        ("exit:65", TaskState::Archived, 0, Some("why")),
        ("exit:75", TaskState::Retry, 0, Some("why")),
        ("exit:1", TaskState::Retry, 1, Some("why")),
        ("silent", TaskState::Retry, 1, Some("exit code 1")),
        ("killed", TaskState::Retry, 1, Some("killed by SIGKILL, perhaps because the machine ran out of memory")),
    ] {
        let task = bench.wait_for(id, &[TaskState::Completed, TaskState::Archived, TaskState::Retry]).await;
        assert_eq!((task.state, task.retried, task.last_error.as_deref()), (state, retried, error), "{id}");
    }
    // Standard error is forwarded, with the task it comes from.
    worker.wait_for_line("[exit:75]   why").await;
}

#[tokio::test]
async fn one_line_break_at_the_end_of_a_text_is_cut_and_bytes_are_left_alone() {
    let bench = Bench::new().await;
    let _worker = bench.worker(&["--exec", "*=cat"]).await;
    for (id, printed, result) in [
        ("line", &b"hi\n"[..], &b"hi"[..]),
        ("dos", b"hi\r\n", b"hi"),
        ("lines", b"a\nb\n\n", b"a\nb\n"),
        ("none", b"hi", b"hi"),
        ("alone", b"\n", b""),
        ("binary", b"\xff\n", b"\xff\n"),
        ("protobuf", b"\x08\n", b"\x08\n"),
    ] {
        bench.enqueue_task(RawTask::new("a").payload(printed), id).await;
        let task = bench.wait_for(id, &[TaskState::Completed, TaskState::Retry, TaskState::Archived]).await;
        assert_eq!(task.result.as_deref().unwrap_or_default(), result, "{id}: {:?}", task.last_error);
    }
}

#[tokio::test]
async fn a_program_that_leaves_its_input_alone_is_fine() {
    let bench = Bench::new().await;
    let _worker = bench.worker(&["--exec", "*=true"]).await;
    bench.enqueue_task(RawTask::new("a").payload(vec![b'x'; 8 * 1024 * 1024]), "id").await;
    assert_eq!(bench.wait_for("id", &[TaskState::Completed, TaskState::Retry]).await.state, TaskState::Completed);
}

#[tokio::test]
async fn a_program_may_write_much_before_it_reads() {
    let bench = Bench::new().await;
    let script = "*=sh -c 'head -c 3000000 /dev/zero | tr \"\\\\0\" x; head -c 500000 /dev/zero >&2; cat'";
    let _worker = bench.worker(&["--exec", script]).await;
    bench.enqueue_task(RawTask::new("a").payload(vec![b'y'; 1_000_000]), "id").await;
    let done = bench.wait_for("id", &[TaskState::Completed, TaskState::Retry]).await;
    assert_eq!(done.result.map(|result| result.len()), Some(4_000_000), "{:?}", done.last_error);
}

#[tokio::test]
async fn a_result_that_is_too_long_is_archived_with_the_reason() {
    let bench = Bench::new().await;
    let _worker = bench.worker(&["--exec", "*=head -c 17000000 /dev/zero"]).await;
    bench.enqueue("a", "id").await;
    let task = bench.wait_for("id", &[TaskState::Completed, TaskState::Retry, TaskState::Archived]).await;
    assert_eq!(task.state, TaskState::Archived);
    assert!(task.last_error.unwrap().contains("more than 16 MiB of result"));
}

#[tokio::test]
async fn a_type_that_no_environment_can_hold_is_archived() {
    let bench = Bench::new().await;
    let _worker = bench.worker(&["--exec", "*=true"]).await;
    bench.enqueue_as_go("a\0b", RawTask::new("t"), "nul").await;
    let task = bench.wait_for("nul", &[TaskState::Completed, TaskState::Retry, TaskState::Archived]).await;
    assert_eq!(task.state, TaskState::Archived, "{task:?}");
}

#[tokio::test]
async fn a_program_that_disappears_costs_no_retry() {
    let bench = Bench::new().await;
    let program = bench.path("program");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let _worker = bench.worker(&["--exec", "*=./program"]).await;
    bench.enqueue("a", "before").await;
    bench.wait_for("before", &[TaskState::Completed]).await;
    std::fs::remove_file(&program).unwrap();
    bench.enqueue("a", "after").await;
    let task = bench.wait_for("after", &[TaskState::Completed, TaskState::Retry, TaskState::Archived]).await;
    assert_eq!((task.state, task.retried), (TaskState::Retry, 0));
    assert!(task.last_error.unwrap().starts_with("cannot run \"./program\""));
}
