//! What changes many tasks at once, and asks before.

use std::time::Duration;

use queue_core::{RawTask, TaskState};
use serde_json::json;

use crate::support::Bench;
use crate::terminal::Terminal;

const HOUR: Duration = Duration::from_secs(3_600);

/// Scheduled tasks `0` to `count - 1`, of types `even` and `odd`.
async fn scheduled(count: usize) -> Bench {
    let bench = Bench::new().await;
    let task = |number: usize| {
        let task = RawTask::new(if number.is_multiple_of(2) { "even" } else { "odd" }).task_id(number.to_string());
        let payload = format!("{{\"user\":{{\"id\":{}}}}}", number / 2);
        task.payload(payload).header("tenant", (number % 3).to_string()).process_in(HOUR)
    };
    for answer in bench.client.enqueue_many((0..count).map(task).collect::<Vec<_>>()).await {
        answer.unwrap();
    }
    bench
}

async fn words(bench: &Bench, line: &str) -> crate::support::Done {
    bench.run(&line.split(' ').collect::<Vec<_>>()).await
}

async fn count(bench: &Bench, state: TaskState) -> u64 {
    bench.inspector.queue("default").await.unwrap().count(state)
}

#[tokio::test]
async fn all_tasks_of_a_state_are_run_archived_and_deleted() {
    let bench = scheduled(1_204).await;
    let answer = words(&bench, "task archive -q default -s scheduled -y").await.ok();
    assert_eq!(answer, "1,204 tasks are archived\n");
    let answer = words(&bench, "task run -q default --state archived --type odd --yes --json").await.json();
    let expected =
        json!({"action": "run", "queue": "default", "matched": 602, "changed": 602, "skipped": 0, "trimmed": 0});
    assert_eq!(answer, expected);
    assert_eq!((count(&bench, TaskState::Pending).await, count(&bench, TaskState::Archived).await), (602, 602));
    let answer = words(&bench, "task delete -q default -s archived -s pending -y").await.ok();
    assert_eq!(answer, "1,204 tasks are deleted\n");
    let answer = words(&bench, "task delete -q default -s archived -s pending").await.ok();
    assert_eq!(answer, "no task to delete: 0 archived and pending tasks of queue \"default\"\n");
    let left: Vec<String> = bench.ask(&["KEYS", "*:t:*"]).await;
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn asynqs_spelling_for_all_tasks_works() {
    let bench = scheduled(3).await;
    for id in ["a", "b"] {
        bench.enqueue_task(RawTask::new("t").group("g"), id).await;
    }
    assert_eq!(words(&bench, "task runall -q default -s aggregating -g g -y").await.ok(), "2 tasks are pending now\n");
    assert_eq!(words(&bench, "task archiveall -q default -s pending -y").await.ok(), "2 tasks are archived\n");
    assert_eq!(words(&bench, "task deleteall -q default -s scheduled -y").await.ok(), "3 tasks are deleted\n");
    words(&bench, "task runall -q default -s aggregating -y").await.failed(2);
    words(&bench, "task runall -q default -y").await.failed(2);
}

#[tokio::test]
async fn what_goes_into_the_bin_is_shown_and_restored_or_deleted_for_good() {
    let bench = scheduled(60).await;
    let answer = words(&bench, "task delete -q default -s scheduled --type odd --bin -y").await.ok();
    let (told, rest) = answer.split_once("; queuectl bin restore ").unwrap();
    let id = rest.split(' ').next().unwrap();
    assert_eq!(told, "30 tasks deleted");
    assert_eq!(count(&bench, TaskState::Scheduled).await, 30);
    let bins = words(&bench, "bin ls --json").await.json();
    assert_eq!((&bins[0]["operation"]["id"], &bins[0]["tasks"]["default"]), (&json!(id), &json!(30)));
    assert!(words(&bench, "bin ls").await.ok().contains("default: state:scheduled type:odd"));
    let shown = words(&bench, &format!("bin show {id} --size 2")).await.ok();
    assert!(
        shown.contains("scheduled") && shown.ends_with(&format!("2 of 30 tasks in the bin of {id:?}\n")),
        "{shown}"
    );
    let shown = words(&bench, &format!("bin show {id} --filter payload.user.id:5 --json")).await.json();
    assert_eq!((shown.as_array().unwrap().len(), &shown[0]["id"]), (1, &json!("11")));
    assert_eq!(words(&bench, &format!("bin restore {id} --task 11")).await.ok(), "1 task restored\n");
    let answer = words(&bench, &format!("bin restore {id} --task 13 --task none")).await;
    assert_eq!(answer.stdout, "1 task restored\n");
    assert!(answer.failed(3).contains("of these tasks, 1 are not in the bin"));
    words(&bench, &format!("bin restore {id} --queue default")).await.failed(2);
    words(&bench, &format!("bin restore {id} --queue elsewhere --task 13")).await.failed(3);
    assert_eq!(words(&bench, &format!("bin restore {id}")).await.ok(), "28 tasks restored\n");
    assert_eq!(count(&bench, TaskState::Scheduled).await, 60);
    let refused = words(&bench, &format!("bin restore {id}")).await.failed(3);
    assert!(refused.contains("nothing in the bin"), "{refused}");
    // One by one; then for good.
    let answer = words(&bench, "task delete -q default -i 1 -i 2 -i none --bin --json").await.json();
    assert_eq!((&answer["changed"], &answer["skipped"], &answer["state"]), (&json!(2), &json!(1), &json!("done")));
    let id = answer["id"].as_str().unwrap();
    assert!(words(&bench, &format!("bin empty {id}")).await.failed(2).contains("delete 2 tasks for good"));
    assert_eq!(words(&bench, &format!("bin empty {id} -y")).await.ok(), "2 tasks are deleted for good\n");
    assert_eq!(words(&bench, "bin ls").await.ok(), "the bin is empty\n");
    let listed = words(&bench, "operation ls --json").await.json();
    let actions: Vec<&str> = listed.as_array().unwrap().iter().map(|it| it["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["delete", "restore", "restore", "restore", "delete"]);
    assert!(words(&bench, &format!("operation show {id}")).await.ok().contains("default: 3 tasks by their ids"));
    assert!(words(&bench, &format!("operation pause {id}")).await.failed(4).contains("is over: done"));
    words(&bench, "operation show none").await.failed(3);
}

#[tokio::test]
async fn tasks_are_run_at_a_rate_as_an_operation_that_another_process_can_go_on_with() {
    let bench = scheduled(30).await;
    let line = "task run -q default -s scheduled --type odd --rate 1000/s --at-most 9";
    assert!(words(&bench, line).await.failed(2).contains("this would run 15 scheduled tasks"));
    let would = words(&bench, &format!("{line} --dry-run")).await.ok();
    assert_eq!(would, "would run 15 scheduled tasks of queue \"default\" that fit\n");
    let done = words(&bench, &format!("{line} -y")).await;
    assert_eq!(done.stdout, "9 tasks made pending; the operation is stopped\n");
    assert!(done.failed(4).contains("limit-reached"));
    assert_eq!(count(&bench, TaskState::Pending).await, 9);
    // A process that is killed while it waits.
    let mut command = bench.command();
    command.args(["task", "run", "-q", "default", "-s", "scheduled", "--rate", "1/1h", "-y"]);
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let id = loop {
        let listed = words(&bench, "operation ls --json").await.json();
        if let Some(found) = listed.as_array().unwrap().iter().find(|it| it["rate"] == "1/1h" && it["changed"] == 1) {
            break found["id"].as_str().unwrap().to_owned();
        }
    };
    child.kill().await.unwrap();
    let shown = words(&bench, &format!("operation show {id}")).await.ok();
    assert!(shown.contains("1/1h") && shown.contains("running"), "{shown}");
    words(&bench, &format!("operation cancel {id}")).await.ok();
    assert_eq!(count(&bench, TaskState::Pending).await, 10);
    // Who goes on waits until the one before is known to be gone.
    let mut command = bench.command();
    command.args(["task", "run", "-q", "default", "-s", "scheduled", "--type", "odd", "--rate", "2/1s", "-y"]);
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let id = loop {
        let listed = words(&bench, "operation ls --json").await.json();
        if let Some(found) = listed.as_array().unwrap().iter().find(|it| it["rate"] == "2/1s" && it["changed"] == 1) {
            break found["id"].as_str().unwrap().to_owned();
        }
    };
    child.kill().await.unwrap();
    assert_eq!(bench.ask::<i64>(&["PEXPIRE", &format!("asynq:x:op:{{{id}}}:lease"), "1000"]).await, 1);
    let done = words(&bench, &format!("operation resume {id}")).await.ok();
    assert!(done.ends_with(" tasks made pending\n"), "{done}");
    assert_eq!(count(&bench, TaskState::Pending).await, 16);
    for (more, told) in [("--rate 5", "such as 100/1m"), ("--at-most 5", "--rate")] {
        let refused = words(&bench, &format!("task run -q default -s scheduled -y {more}")).await.failed(2);
        assert!(refused.contains(told), "{refused}");
    }
}

#[tokio::test]
async fn tasks_are_chosen_by_what_they_are() {
    let bench = scheduled(12).await;
    let found = async |filter: &str| {
        let line = format!("task ls -q default -s scheduled --json {filter}");
        let tasks = words(&bench, &line).await.json();
        tasks.as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found("--type odd --header tenant=0").await, ["3", "9"]);
    assert_eq!(found("--where user.id=5").await, ["10", "11"]);
    assert_eq!(found("--header tenant --type e* --size 2 --page 2").await, ["2", "4"]);
    assert!(found("--older-than 1s").await.is_empty());
    let dry = words(&bench, "task delete -q default -s scheduled --where user.id=5 --dry-run").await.ok();
    assert_eq!(dry, "would delete 2 scheduled tasks of queue \"default\" that fit\n");
    words(&bench, "task delete -q default -s scheduled --where user.id=5 -y").await.ok();
    assert_eq!(count(&bench, TaskState::Scheduled).await, 10);
    assert_eq!(
        words(&bench, "task ls -q default -s scheduled --where user.id=5").await.ok(),
        "no scheduled tasks that fit in queue \"default\"\n"
    );
}

#[tokio::test]
async fn tasks_are_chosen_by_their_error_and_running_ones_canceled() {
    let bench = Bench::new().await;
    let _worker = bench
        .worker(&[
            "--exec",
            "slow=sh -c 'sleep 600'",
            "--exec",
            "bad=sh -c 'echo no route to host >&2; exit 65'",
            "--exec",
            "ugly=sh -c 'exit 65'",
        ])
        .await;
    for (task_type, id) in [("slow", "s1"), ("slow", "s2"), ("bad", "b"), ("ugly", "u")] {
        bench.enqueue(task_type, id).await;
    }
    for (id, state) in
        [("s1", TaskState::Active), ("s2", TaskState::Active), ("b", TaskState::Archived), ("u", TaskState::Archived)]
    {
        bench.wait_for(id, &[state]).await;
    }
    let answer = words(&bench, "task delete -q default -s archived --error route -y").await.ok();
    assert_eq!(answer, "1 task is deleted\n");
    assert_eq!(bench.task("u").await.state, TaskState::Archived);
    let asked = words(&bench, "task cancel -q default").await.failed(2);
    assert!(asked.contains("this would cancel 2 active tasks"), "{asked}");
    let asked = words(&bench, "task cancel -q default --attempt").await.failed(2);
    assert!(asked.contains("this would interrupt 2 active tasks"), "{asked}");
    assert_eq!(words(&bench, "task cancel -q default --type slow -y").await.ok(), "2 tasks are told to end\n");
    for id in ["s1", "s2"] {
        let task = bench.wait_for(id, &[TaskState::Archived, TaskState::Retry]).await;
        assert_eq!(task.state, TaskState::Archived);
        assert!(task.last_error.unwrap().starts_with("canceled by "));
    }
    bench.enqueue("slow", "s3").await;
    bench.wait_for("s3", &[TaskState::Active]).await;
    let interrupted = words(&bench, "task cancel -q default --attempt --type slow -y").await.ok();
    assert_eq!(interrupted, "1 task is asked to stop\n");
    bench.wait_for("s3", &[TaskState::Retry]).await;
}

#[tokio::test]
async fn without_a_terminal_nothing_is_done_unasked() {
    let bench = scheduled(1_204).await;
    for (arguments, act) in [
        ("task delete -q default -s scheduled", "delete 1,204 scheduled tasks of queue \"default\""),
        ("task archiveall -q default -s scheduled", "archive 1,204 scheduled tasks of queue \"default\""),
        ("queue remove default --force", "remove queue \"default\" with 1,204 tasks"),
    ] {
        let done = words(&bench, arguments).await;
        assert_eq!(done.stdout, "");
        let stderr = done.failed(2);
        assert!(stderr.contains(&format!("this would {act}; there is no terminal to ask on")), "{stderr}");
    }
    assert_eq!(count(&bench, TaskState::Scheduled).await, 1_204);
}

#[tokio::test]
async fn bulk_changes_ask_in_a_terminal() {
    let bench = scheduled(3).await;
    let ask = async |answer: &str| {
        let mut command = bench.command();
        command.args(["task", "delete", "-q", "default", "-s", "scheduled"]);
        let mut terminal = Terminal::run(command);
        terminal.wait_for("delete 3 scheduled tasks of queue \"default\"? [y/N] ").await;
        terminal.type_in(answer);
        terminal.end().await
    };
    for no in ["n\n", "\n", "yep\n"] {
        let (code, screen) = ask(no).await;
        assert_eq!(code, Some(1));
        assert!(screen.contains("nothing was changed"), "{screen:?}");
    }
    assert_eq!(count(&bench, TaskState::Scheduled).await, 3);
    let (code, screen) = ask("y\n").await;
    assert_eq!(code, Some(0), "{screen:?}");
    assert!(screen.contains("3 tasks are deleted"), "{screen:?}");
    assert_eq!(count(&bench, TaskState::Scheduled).await, 0);
}

#[tokio::test]
async fn queues_are_removed_with_what_asynq_asks_for() {
    let bench = scheduled(2).await;
    let stderr = words(&bench, "queue remove default").await.failed(4);
    assert!(stderr.contains("holds 2 tasks"), "{stderr}");
    let answer = words(&bench, "queue rm default --force -y").await.ok();
    assert_eq!(answer, "queue \"default\" is removed, and 2 tasks with it\n");
    assert_eq!(bench.ask::<Vec<String>>(&["KEYS", "*"]).await, ["asynq:x:audit"]);
    let audit: String = bench
        .ask::<Vec<(String, Vec<String>)>>(&["XRANGE", "asynq:x:audit", "-", "+"])
        .await
        .iter()
        .map(|entry| entry.1.join(" ") + "\n")
        .collect();
    assert!(audit.contains("action queue.remove") && audit.contains("outcome done changed 2"), "{audit}");
    let shown = words(&bench, "audit").await.ok();
    assert!(shown.contains("queue.remove") && shown.contains("done, 2 changed") && shown.contains("(cli)"), "{shown}");
    assert_eq!(words(&bench, "audit --json --size 1").await.json()[0]["action"], "queue.remove");
    words(&bench, "queue remove default").await.failed(3);
    // Not with the client from before, which has listed the queue a moment ago and would not do so again yet.
    words(&bench, "enqueue a --task-id active").await.ok();
    let _worker = bench.worker(&["--exec", "a=sh -c 'sleep 600'"]).await;
    bench.wait_for("active", &[TaskState::Active]).await;
    let stderr = words(&bench, "queue remove default --force --yes").await.failed(4);
    assert!(stderr.contains("being worked on"), "{stderr}");
}

#[tokio::test]
async fn a_choice_that_cannot_be_made_is_wrong_usage() {
    let bench = scheduled(1).await;
    for (arguments, reason) in [
        ("task run -q default -s pending -y", "cannot run pending tasks"),
        ("task archive -q default -s archived -y", "cannot archive archived tasks"),
        ("task deleteall -q default -s active -y", "cannot delete active tasks"),
        ("task run -q default -y", "--id"),
        ("task run -q default -i 0 -s scheduled", "are for many"),
        ("task run -q default -i 0 --type even", "are for many"),
        ("task run -q default -i 0 --dry-run", "are for many"),
        ("task run -q default --type even -y", "choose them by --state"),
        ("task run -q default -s scheduled --where user", "PATH=VALUE"),
        ("task run -q default -s scheduled --header =v", "NAME=VALUE"),
        ("task run -q default -s scheduled --older-than 5", "invalid duration"),
        ("task cancel 0 -q default --type even", "without ids"),
        ("task cancel 0 --type even", "go with --queue"),
        ("task cancel", "ID"),
    ] {
        let stderr = words(&bench, arguments).await.failed(2);
        assert!(stderr.contains(reason), "{arguments}: {stderr}");
    }
    words(&bench, "task run -q nowhere -s scheduled -y").await.failed(3);
    assert_eq!(count(&bench, TaskState::Scheduled).await, 1);
}

#[tokio::test]
async fn what_comes_of_an_operation_is_in_the_exit_code() {
    let bench = scheduled(3).await;
    let answer = words(&bench, "task delete -q default -i 1 -i 2 --bin --json").await.json();
    let id = answer["id"].as_str().unwrap();
    bench.enqueue("another", "1").await;
    let stays = words(&bench, &format!("bin restore {id} --json")).await;
    assert_eq!(stays.code, Some(4), "{stays:?}");
    let told: serde_json::Value = serde_json::from_str(&stays.stdout).unwrap();
    assert_eq!((&told["changed"], &told["skipped"]), (&json!(1), &json!(1)));
    words(&bench, &format!("bin restore {id} --task nobody")).await.failed(3);
    words(&bench, "task run -q default -i nobody --rate 5/1s --yes").await.failed(3);
    words(&bench, "task run -q default -i 2 -i nobody --rate 5/1s --yes").await.ok();
    words(&bench, "task archive -q default -i 0").await.ok();
    let _: u64 = bench.ask(&["DEL", "asynq:{default}:pending"]).await;
    let _: String = bench.ask(&["SET", "asynq:{default}:pending", "no list"]).await;
    for format in ["", " --json"] {
        let line = format!("task run -q default --state archived --rate 5/1s --yes{format}");
        let refused = words(&bench, &line).await.failed(1);
        assert!(refused.contains("wrong kind of value"), "{refused}");
    }
    let unread = words(&bench, "failures --json").await.failed(1);
    assert!(unread.contains("queue \"default\""), "{unread}");
}

#[tokio::test]
async fn what_is_wrong_with_one_id_keeps_no_other_from_its_turn() {
    let bench = scheduled(3).await;
    let done = words(&bench, "task delete -q default -i 0 -i nope -i none -i 2").await;
    assert_eq!(done.stdout, "task \"0\" is deleted\ntask \"2\" is deleted\n");
    let told = done.failed(3);
    assert!(told.contains("\"nope\"") && told.contains("\"none\""), "{told}");
    assert_eq!(count(&bench, TaskState::Scheduled).await, 1);
}

/// The next task that died deleted what had come back too much, and nobody was told.
#[tokio::test]
async fn what_a_full_archive_has_no_room_for_stays_in_the_bin_and_is_told() {
    let bench = scheduled(6).await;
    words(&bench, "task archive -q default -s scheduled -y").await.ok();
    let answer = words(&bench, "task delete -q default -s archived --bin -y --json").await.json();
    let id = answer["id"].as_str().unwrap();
    bench.fill_archive(9_997).await;
    let done = words(&bench, &format!("bin restore {id}")).await;
    assert_eq!(done.stdout, "2 tasks restored; 4 stay in the bin; the operation is stopped\n");
    let told = done.failed(4);
    assert!(told.contains("the archive of queue \"default\" keeps 9999 tasks, and has so many"), "{told}");
    assert_eq!(words(&bench, "bin ls --json").await.json()[0]["tasks"]["default"], json!(4));
}
