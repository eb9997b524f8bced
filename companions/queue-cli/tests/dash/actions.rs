//! What is done from the keyboard, and what it does in Redis.

use std::time::Duration;

use queue_core::{RawTask, TaskState};

use crate::fleet::Fleet;
use crate::terminal::{self, Terminal};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_run_archived_and_deleted_and_only_after_a_yes() {
    if !terminal::is_there() {
        return;
    }
    let fleet = Fleet::new().await;
    for (after, id) in [(1, "one"), (2, "two"), (3, "three"), (4, "four")] {
        fleet.enqueue(id, RawTask::new("t").queue("mail").process_in(HOUR * after)).await;
    }
    let terminal = Terminal::start(fleet.url(), (80, 24), "", &[]);
    terminal.wait_for(">mail");
    terminal.press(&["Enter"]);
    terminal.wait_for(">one");
    terminal.press(&["d"]);
    terminal.wait_for("Delete this task of mail?");
    terminal.press(&["n"]);
    terminal.wait_without("Are you sure?");
    terminal.press(&["r"]);
    terminal.wait_for("Run this task of mail?");
    terminal.press(&["y"]);
    terminal.wait_for("task one is pending");
    terminal.wait_for(">two");
    fleet.until("one", TaskState::Pending).await;
    terminal.press(&["a"]);
    terminal.wait_for("Archive this task of mail?");
    terminal.press(&["y"]);
    terminal.wait_for("task two is archived");
    terminal.wait_for(">three");
    fleet.until("two", TaskState::Archived).await;
    terminal.press(&["Enter"]);
    terminal.wait_for("› three");
    terminal.wait_for("State       scheduled");
    terminal.press(&["d"]);
    terminal.wait_for("It cannot be brought back.");
    terminal.press(&["y"]);
    terminal.wait_for("task three is deleted");
    terminal.wait_for("it is gone");
    fleet.until_gone("three").await;
    terminal.press(&["q"]);
    terminal.wait_for(">four");
    fleet.until("four", TaskState::Scheduled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_went_elsewhere_meanwhile_is_said_to_have_done_so() {
    if !terminal::is_there() {
        return;
    }
    let fleet = Fleet::new().await;
    fleet.enqueue("one", RawTask::new("t").queue("mail").process_in(HOUR)).await;
    let terminal = Terminal::start(fleet.url(), (80, 24), "", &[]);
    terminal.wait_for(">mail");
    terminal.press(&["Enter"]);
    terminal.wait_for(">one");
    terminal.press(&["r"]);
    terminal.wait_for("Run this task of mail?");
    fleet.inspector.delete_task("mail", "one").await.unwrap();
    terminal.press(&["y"]);
    terminal.wait_for("task \"one\" not found in queue \"mail\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_stopped_and_started_from_the_keyboard() {
    if !terminal::is_there() {
        return;
    }
    let fleet = Fleet::new().await;
    fleet.enqueue("one", RawTask::new("t").queue("mail")).await;
    let terminal = Terminal::start(fleet.url(), (80, 24), "", &[]);
    terminal.wait_for(">mail          RUN");
    terminal.press(&["s"]);
    terminal.wait_for("Pause this queue?");
    terminal.press(&["y"]);
    terminal.wait_for(">mail          PAUSED");
    fleet.until_paused("mail", true).await;
    terminal.press(&["Enter", "s"]);
    terminal.wait_for("Resume this queue?");
    terminal.press(&["y"]);
    terminal.wait_for("queue mail is running");
    terminal.wait_for(" RUN  size 1");
    fleet.until_paused("mail", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_task_is_cancelled_from_the_workers_of_its_server() {
    if !terminal::is_there() {
        return;
    }
    let mut fleet = Fleet::new().await;
    fleet.work();
    fleet.enqueue("long", RawTask::new("a").queue("mail")).await;
    fleet.until("long", TaskState::Active).await;
    let terminal = Terminal::start(fleet.url(), (80, 24), "", &[]);
    terminal.wait_for(">mail");
    terminal.press(&["2"]);
    terminal.wait_for(" 1/8 ");
    terminal.press(&["Enter"]);
    terminal.wait_for(">long");
    terminal.press(&["d"]);
    terminal.wait_for("can only be cancelled");
    terminal.press(&["i"]);
    terminal.wait_for("Interrupt this task of mail?");
    terminal.press(&["n", "c"]);
    terminal.wait_for("Cancel this task of mail?");
    terminal.press(&["y"]);
    terminal.wait_for("task long is told to end; it is not retried");
    let task = fleet.until("long", TaskState::Archived).await;
    assert!(task.last_error.unwrap().starts_with("canceled by "));
    terminal.wait_for("this server works on nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_tasks_of_a_tab_are_deleted_and_then_the_queue() {
    if !terminal::is_there() {
        return;
    }
    let fleet = Fleet::new().await;
    for n in 0..250 {
        fleet.enqueue(&n.to_string(), RawTask::new("t").queue("mail").process_in(HOUR)).await;
    }
    fleet.enqueue("stays", RawTask::new("t").queue("mail")).await;
    let terminal = Terminal::start(fleet.url(), (80, 24), "", &[]);
    terminal.wait_for(">mail");
    terminal.press(&["d", "y"]);
    terminal.wait_for("queue \"mail\" holds 251 tasks");
    terminal.press(&["Enter", "Right", "Right"]);
    terminal.wait_for("scheduled 1-16 of 250");
    terminal.press(&["D"]);
    terminal.wait_for("Delete ALL scheduled tasks of mail?");
    terminal.wait_for(" 250 tasks ");
    terminal.press(&["y"]);
    terminal.wait_for("250 tasks deleted");
    terminal.wait_for("no scheduled tasks");
    let queue = fleet.inspector.queue("mail").await.unwrap();
    assert_eq!((queue.scheduled, queue.pending), (0, 1));
    terminal.press(&["h", "h"]);
    terminal.wait_for(">stays");
    terminal.press(&["d", "y"]);
    terminal.wait_for("task stays is deleted");
    terminal.press(&["q"]);
    terminal.wait_for(">mail          RUN        0");
    terminal.press(&["d", "y"]);
    terminal.wait_for("no queues yet");
    assert!(fleet.inspector.queues().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_periodic_entry_is_stopped_and_run_from_the_keyboard() {
    if !terminal::is_there() {
        return;
    }
    let mut fleet = Fleet::new().await;
    fleet.schedule();
    let terminal = Terminal::start(fleet.url(), (80, 24), "", &[]);
    terminal.wait_for("no queues yet");
    terminal.press(&["3"]);
    terminal.wait_for(">@every 1m");
    terminal.press(&["s"]);
    terminal.wait_for("Pause this periodic entry?");
    terminal.press(&["y"]);
    terminal.wait_for("PAUSED");
    assert!(fleet.inspector.cron_entry("report").await.unwrap().paused.is_some());
    // A minute may have begun before.
    let pending = async || fleet.inspector.queue("low").await.map_or(0, |queue| queue.pending);
    let before = pending().await;
    terminal.press(&["r"]);
    terminal.wait_for("Its task is enqueued now");
    terminal.press(&["y"]);
    terminal.wait_for("the task of report is enqueued");
    assert_eq!(pending().await, before + 1);
    terminal.press(&["s", "y"]);
    terminal.wait_without("PAUSED");
    assert!(fleet.inspector.cron_entry("report").await.unwrap().paused.is_none());
}
