//! What stands in the terminal.

use std::time::Duration;

use queue_core::RawTask;

use crate::fleet::Fleet;
use crate::terminal::{self, Terminal};

#[tokio::test(flavor = "multi_thread")]
async fn every_view_fits_80_by_24() {
    if !terminal::is_there() {
        return;
    }
    let mut fleet = Fleet::new().await;
    fleet.all_states().await;
    fleet.schedule();
    // So that the queue need not wait for the first tick, up to a minute.
    fleet.enqueue("first", RawTask::new("report:make").queue("low")).await;
    let terminal = Terminal::start(fleet.url(), (80, 24), "", &[]);
    terminal.wait_for("low ");
    terminal.press(&["j"]);
    terminal.wait_for_screen(
        "
 Queues  Servers  Cron *redis.sock  *:*:*Z
 2 queues
 QUEUE         STATE   SIZE LATENCY   MEMORY PROCESSED FAILED ERRORS THROUGHPUT
 low           RUN *
>mail          PAUSED     7*B         3      2  66.7% *▁












── mail ────────────────────────────────────────────────────────────────────────
 ██████████████████████████████████████████████████████████████████████████████
 active 1 pending 1 groups 1 sched 1 retry 1 archived 1 done 1
 throughput       0/s *▁▁
 failures         0/s *▁▁
 latency *
 ? help  Enter open  / filter  s stop/start  d delete",
    );
    terminal.press(&["Enter", "l", "l", "l", "l"]);
    terminal.wait_for_screen(
        "
 Queues  Servers  Cron *
 2 queues › mail
 PAUSED  size 7  latency *  memory *  today 3 done, 2 failed
 throughput       0/s *▁▁
 active 1  pending 1  groups 1  sched 1  retry 1  archived 1  done 1
 retry 1-1 of 1
 ID       TYPE   RETRIED NEXT TRY    LAST ERROR
>retry    r      1/5     in 41d*   exit code 1















 ? help  Enter open  ←→ state  n/p page  / filter  r run  a archive  d delete",
    );
    terminal.press(&["l"]);
    terminal.wait_for(">archived x      0/5     ");
    terminal.press(&["l"]);
    terminal.wait_for(">completed c      0/5     ");
    terminal.press(&["l"]);
    terminal.wait_for(">active   a      0/5     held        {\"user\":7,\"name\":");
    terminal.press(&["Left", "Left", "Left", "Left", "Left"]);
    terminal.wait_for(">team:1            1");
    terminal.press(&["Enter"]);
    terminal.wait_for(" aggregating 1-1 of 1 of group team:1");
    terminal.wait_for(">aggregating g      0/25    x");
    terminal.press(&["q", "h"]);
    terminal.wait_for(">pending  p      0/5     ");
    terminal.press(&["Enter"]);
    terminal.wait_for_screen(
        "
 Queues  Servers  Cron *
 2 queues › mail › pending
 ID          pending
 Type        p
 Queue       mail
 State       pending
 Retried     0 of 5
 Timeout     30m
 Retention   1h

 Payload, JSON, 48 bytes
 {
   \"user\": 7,
   \"name\": \"J\\u00fcrgen\",
   \"tags\": [
     \"a\",
     \"b\"
   ]
 }




 ? help  ↑↓ scroll  r run  a archive  d delete  c cancel  i interrupt  q back",
    );
    terminal.press(&["2"]);
    terminal.wait_for(" 1/8 ");
    let hosts = terminal.wait_for("mail:3 low:1");
    assert_eq!((hosts[1].as_str(), hosts[4].as_str()), (" 1 server", ""));
    terminal.press(&["Enter"]);
    terminal.wait_for(">active   a      mail");
    terminal.press(&["3"]);
    terminal.wait_for(">@every 1m ");
    terminal.press(&["Enter"]);
    terminal.wait_for(" entry   @every 1m  report:make");
    terminal.wait_for(" payload {\"a\":1}");
    terminal.press(&["?"]);
    terminal.wait_for("each of these asks first");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_view_fills_a_wide_terminal() {
    if !terminal::is_there() {
        return;
    }
    let mut fleet = Fleet::new().await;
    fleet.all_states().await;
    let terminal = Terminal::start(fleet.url(), (132, 40), "--read-only", &[]);
    let screen = terminal.wait_for(">mail");
    assert!(screen[2].contains("TASKS BY STATE"), "{screen:#?}");
    assert_eq!(screen.len(), 40);
    assert!(screen[0].contains("read-only"), "{screen:#?}");
    terminal.press(&["Enter", "Right", "Right", "Right"]);
    terminal.wait_for(" scheduled 1-1 of 1");
    terminal.wait_for_screen(
        "
 Queues  Servers  Cron *
 1 queue › mail
 PAUSED  size 7  latency *
 throughput *
 active 1  pending 1  groups 1  sched 1  retry 1  archived 1  done 1
 scheduled 1-1 of 1
 ID        TYPE   RETRIED PROCESS IN  PAYLOAD
>scheduled s      0/25    in 41d*   plain text































 ? help  Enter open  ←→ state  n/p page  / filter",
    );
    terminal.press(&["d"]);
    terminal.wait_for("read-only: started with --read-only");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_follows_the_size_of_the_terminal_down_to_nothing() {
    if !terminal::is_there() {
        return;
    }
    let fleet = Fleet::new().await;
    for id in 0..60 {
        fleet.enqueue(&format!("task-{id:02}"), RawTask::new("t").queue("mail")).await;
    }
    let terminal = Terminal::start(fleet.url(), (80, 24), "", &[]);
    terminal.wait_for(">mail");
    terminal.press(&["Enter"]);
    terminal.wait_for(" pending 1-16 of 60");
    terminal.resize((100, 50));
    terminal.wait_for(" pending 1-42 of 60");
    terminal.resize((40, 12));
    terminal.wait_for(" pending 1-4 of 60");
    terminal.resize((10, 3));
    terminal.wait_for("too small");
    terminal.resize((1, 1));
    terminal.resize((80, 24));
    terminal.wait_for(" pending 1-16 of 60");
    terminal.press(&["n", "n", "n"]);
    terminal.wait_for(" pending 49-60 of 60");
    terminal.wait_for(">task-48");
    terminal.press(&["p"]);
    terminal.wait_for(" pending 33-48 of 60");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selected_task_stays_selected_when_others_go_and_come() {
    if !terminal::is_there() {
        return;
    }
    let fleet = Fleet::new().await;
    for id in ["a", "b", "c"] {
        fleet.enqueue(id, RawTask::new("t").queue("mail")).await;
    }
    let terminal = Terminal::start(fleet.url(), (80, 24), "", &[]);
    terminal.wait_for(">mail");
    terminal.press(&["Enter"]);
    terminal.wait_for(">a ");
    terminal.press(&["j"]);
    terminal.wait_for(">b ");
    fleet.inspector.delete_task("mail", "a").await.unwrap();
    fleet.enqueue("d", RawTask::new("t").queue("mail")).await;
    let screen = terminal.wait("the fourth task", |screen| screen.get(9).is_some_and(|line| line.starts_with(" d ")));
    assert_eq!((screen[7].get(..2), screen[8].get(..2)), (Some(">b"), Some(" c")));
}

#[tokio::test(flavor = "multi_thread")]
async fn task_texts_cannot_drive_the_terminal_or_break_columns() {
    if !terminal::is_there() {
        return;
    }
    let fleet = Fleet::new().await;
    let evil = "\u{1b}[2J\u{1b}]0;taken over\u{7}\u{9b}31m";
    fleet.enqueue_as_go(&format!("t{evil}"), "1", RawTask::new("t").queue("mail").payload(evil)).await;
    fleet.enqueue("2", RawTask::new("日本語の仕事").queue("mail").payload("👨\u{200d}👩\u{200d}👧 |")).await;
    fleet.enqueue("3", RawTask::new("t").queue("mail").payload(vec![b'x'; 3_000_000])).await;
    let terminal = Terminal::start(fleet.url(), (80, 24), "", &[]);
    terminal.wait_for(">mail");
    terminal.press(&["Enter"]);
    let screen = terminal.wait_for("日本語の仕事");
    assert_eq!(screen[7], ">1        t\u{fffd}[2J\u{fffd}]0;taken ov… 0/25    <binary, 24 bytes>");
    assert!(screen[8].contains("0/25    👨👩👧 |"), "{screen:#?}");
    assert_ne!(terminal.variable("pane_title"), "taken over");
    terminal.press(&["Enter"]);
    terminal.wait_for("Payload, text, 24 bytes");
    terminal.press(&["q", "G", "Enter"]);
    terminal.wait_for("Payload, text, 3000000 bytes");
    terminal.press(&["End"]);
    terminal.wait_for("… cut here: `queuectl task inspect` shows all of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_color_is_obeyed() {
    if !terminal::is_there() {
        return;
    }
    let fleet = Fleet::new().await;
    fleet.enqueue("a", RawTask::new("t").queue("mail")).await;
    // Foregrounds 0 to 7, in both ways to write them; 39 is the terminal's own.
    let coloured = |screen: &str| screen.contains("38;5;") || (0..8).any(|n| screen.contains(&format!("[3{n}m")));
    let terminal = Terminal::start(fleet.url(), (80, 24), "", &[]);
    terminal.wait_for(">mail");
    assert!(coloured(&terminal.colours()), "{:?}", terminal.colours());
    let terminal = Terminal::start(fleet.url(), (80, 24), "", &[("NO_COLOR", "1")]);
    terminal.wait_for(">mail");
    assert!(!coloured(&terminal.colours()), "{:?}", terminal.colours());
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_queues_scroll_and_are_filtered_by_typing() {
    if !terminal::is_there() {
        return;
    }
    let fleet = Fleet::new().await;
    for n in 0..300 {
        fleet.enqueue("t", RawTask::new("t").queue(format!("queue-{n:03}"))).await;
    }
    let terminal = Terminal::start(fleet.url(), (80, 24), "", &[]);
    terminal.wait_for("300 queues");
    terminal.press(&["G"]);
    terminal.wait_for(">queue-299");
    terminal.press(&["/", "0", "7", "Enter"]);
    terminal.wait_for("13 of 300 queues  filter: 07");
    terminal.press(&["g", "j"]);
    terminal.wait_for(">queue-070");
    terminal.press(&["Escape"]);
    terminal.wait_for("300 queues");
    terminal.wait_for(">queue-070");
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_filtered_by_typing_over_all_pages() {
    if !terminal::is_there() {
        return;
    }
    let fleet = Fleet::new().await;
    for n in 0..120 {
        let task = RawTask::new("t").queue("mail").payload(format!("{{\"user\":{n}}}"));
        fleet.enqueue(&format!("task-{n:03}"), task.process_in(Duration::from_secs(9_000 + n))).await;
    }
    let terminal = Terminal::start(fleet.url(), (80, 24), "", &[]);
    terminal.wait_for(">mail");
    terminal.press(&["Enter"]);
    terminal.wait_for("scheduled 1-16 of 120");
    terminal.press(&["/"]);
    terminal.press(&["-l", "USER\":119"]);
    terminal.wait_for(">task-119");
    terminal.wait_for(" 1 matching on this page, of 120 tasks");
    terminal.press(&["Escape"]);
    terminal.wait_for("scheduled 1-16 of 120");
}
