//! What each screen looks like.

use queue_core::attempt::Attempt;
use queue_core::clock::UnixMilli;
use queue_core::clock::UnixSecond;
use queue_core::outcome::Step;
use queue_core::task_log::TaskLog;
use queue_core::{TaskMessage, TaskState};
use ratatui::style::{Color, Modifier};

use super::given::{
    alone, answer, batch, buffer, dashboard, entry, event, group, keys, mail, noon, ours, part, picture, queue,
    retries, seconds, server, shows, task, tasks,
};
use crate::dash::hear::hear;
use crate::dash::model::Answer;
use crate::dash::screen::{Found, TaskInFull};

#[test]
fn the_view_of_queues_shows_figures_and_the_course_of_the_selected_one() {
    let mut model = dashboard();
    let mut low = queue("low");
    low.info.paused = true;
    answer(&mut model, Found::Queues(vec![low.clone(), mail()]));
    let mut later = mail();
    later.info.timestamp += seconds(2);
    (later.info.processed_total, later.info.failed_total) = (25, 1);
    answer(&mut model, Found::Queues(vec![low, later]));
    keys(&mut model, "j");
    shows(
        &model,
        "
 Queues  Servers  Cron  Batches                   redis.example:6379  12:00:00Z
 2 queues
 QUEUE         STATE   SIZE LATENCY   MEMORY PROCESSED FAILED ERRORS THROUGHPUT
 low           PAUSED     0      0s        -         0      0      -
>mail          RUN     1.3k   1m15s  1.5 MiB       46k    913   2.0%           █",
    );
    let picture = picture(&model);
    assert_eq!(
        picture[17..],
        [
            format!("── mail {}", "─".repeat(72)),
            format!(" {}", "█".repeat(78)),
            " active 2 pending 1.2k groups 0 sched 0 retry 30 archived 4 done 0".to_owned(),
            format!(" throughput    12.5/s {}█", " ".repeat(55)),
            format!(" failures      0.50/s {}█", " ".repeat(55)),
            format!(" latency        1m15s {}██", " ".repeat(54)),
            " ? help  Enter open  / filter  s stop/start  d delete".to_owned(),
        ]
    );
}

#[test]
fn a_wide_terminal_has_a_bar_of_states_for_each_queue() {
    let mut model = dashboard();
    model.size = (130, 20);
    model.colour = false;
    let mut half = queue("half");
    (half.info.pending, half.info.archived) = (5, 5);
    answer(&mut model, Found::Queues(vec![half, queue("none")]));
    let picture = picture(&model);
    assert!(picture[2].contains("TASKS BY STATE"), "{picture:#?}");
    let bar: String = picture[3].chars().filter(|c| "▓x".contains(*c)).collect();
    assert_eq!(
        bar,
        format!("{0}{1}", "▓".repeat(bar.chars().count() / 2), "x".repeat(bar.chars().count().div_ceil(2)))
    );
    assert!(bar.chars().count() > 20 && !picture[4].contains(['▓', 'x']), "{picture:#?}");
}

#[test]
fn a_spoilt_queue_shows_why_and_no_numbers() {
    let mut model = dashboard();
    let mut bad = queue("bad");
    bad.spoilt = Some("\"asynq:{bad}:pending\" is a string".to_owned());
    answer(&mut model, Found::Queues(vec![bad, mail()]));
    let picture = picture(&model);
    assert_eq!(picture[3].split_whitespace().collect::<Vec<_>>(), [">bad", "SPOILT"], "{picture:#?}");
    assert!(picture[4].starts_with(" mail") && picture[4].contains("RUN"), "{picture:#?}");
    assert!(picture.iter().any(|line| line.contains("\"asynq:{bad}:pending\" is a string")), "{picture:#?}");
}

#[test]
fn the_view_of_a_queue_shows_its_states_and_tasks() {
    let mut model = retries(&["a", "b"]);
    let mut failed = task("0af6b9d2-3b1c-4f5e-8a6d-112233445566", TaskState::Retry);
    (failed.retried, failed.last_error) = (3, Some("smtp said\nno: 日本語".to_owned()));
    failed.next_process_at = Some(noon() + seconds(150));
    answer(&mut model, Found::Tasks { row: mail(), tasks: vec![failed, task("b", TaskState::Retry)], searched: None });
    shows(
        &model,
        "
 Queues  Servers  Cron  Batches                   redis.example:6379  12:00:00Z
 1 queue › mail
 RUN  size 1.3k  latency 1m15s  memory 1.5 MiB  today 46k done, 913 failed
 throughput         -
 active 2  pending 1.2k  groups 0  sched 0  retry 30  archived 4  done 0
 retry 1-2 of 30
 ID                 TYPE          RETRIED NEXT TRY    LAST ERROR
>0af6b9d2-3b1c-4f5… email:welcome 3/25    in 2m30s    smtp said no: 日本語
 b                  email:welcome 0/25    -           -",
    );
}

#[test]
fn the_view_of_a_queue_with_limits_has_a_line_for_them_and_scrolls_by_one_row_less() {
    let mut model = retries(&["a"]);
    let height = model.height();
    let mut row = mail();
    row.limits = "tenant: 2 run, 17 wait; all: 5 run, 0 wait".to_owned();
    answer(&mut model, Found::Tasks { row, tasks: vec![task("a", TaskState::Retry)], searched: None });
    let picture = picture(&model);
    assert_eq!(picture[4], " limits tenant: 2 run, 17 wait; all: 5 run, 0 wait");
    assert!(picture[5].starts_with(" active 2") && picture[8].starts_with(">a "), "{picture:#?}");
    assert_eq!(model.height(), height - 1);
}

#[test]
fn groups_come_before_the_tasks_in_them() {
    let mut model = retries(&[]);
    keys(&mut model, "hh");
    assert_eq!(model.wanted(), crate::dash::screen::Wanted::Groups { queue: "mail".to_owned() });
    answer(&mut model, Found::Groups(mail(), vec![group("team:1", 12), group("team:2", 1)]));
    let picture = picture(&model);
    assert_eq!(picture[6..9], [" GROUP          SIZE", ">team:1           12", " team:2            1"]);
    keys(&mut model, "⏎");
    answer(&mut model, tasks(&["a"], TaskState::Aggregating));
    let picture = super::given::picture(&model);
    assert_eq!(picture[5], " aggregating 1-1 of 12 of group team:1");
    assert!(picture[7].starts_with(">a "), "{picture:#?}");
}

#[test]
fn the_view_of_a_task_shows_all_that_is_known_of_it() {
    let mut model = retries(&["x"]);
    keys(&mut model, "⏎");
    let mut found = task("x", TaskState::Retry);
    (found.retried, found.last_error) = (1, Some("first line\nsecond \u{1b}[2J line".to_owned()));
    found.next_process_at = Some(noon() + seconds(5));
    found.headers = [("tenant".to_owned(), "acme".to_owned())].into();
    answer(&mut model, alone(found));
    shows(
        &model,
        "
 Queues  Servers  Cron  Batches                   redis.example:6379  12:00:00Z
 1 queue › mail › x
 ID          x
 Type        email:welcome
 Queue       mail
 State       retry
 Retried     1 of 25
 Next try    2023-11-15 12:00:05Z (in 5s)
 Last error  first line
             second \u{fffd}[2J line
 Headers     tenant: acme

 Payload, JSON, 10 bytes
 {
   \"user\": 7
 }",
    );
    answer(&mut model, Found::Gone("task not found".to_owned()));
    assert!(picture(&model)[2].starts_with("it is gone"), "{:#?}", picture(&model));
}

#[test]
fn the_view_of_a_task_shows_its_last_attempts_and_its_log() {
    let mut model = retries(&["x"]);
    model.size.1 = 30;
    keys(&mut model, "⏎");
    let message = TaskMessage { error_msg: "no\nroute".to_owned(), ..TaskMessage::default() };
    let (ended, step) = (noon().timestamp_nanos_opt().unwrap(), Step::Retry { message, at: 0, is_failure: true });
    let failed = Attempt::of(&step, ended - 2_500_000_000, ended, "web-1:7:5f0c:9").unwrap();
    let lost = Attempt::lost(UnixSecond(noon().timestamp() - 60), "");
    let mut log = TaskLog::default();
    log.push(UnixMilli(noon().timestamp_millis() - 500), 2, "connected\nread 3 \u{1b}[2J rows");
    let task = task("x", TaskState::Retry);
    let found = TaskInFull { task, failed: 9, attempts: vec![lost, failed], log };
    answer(&mut model, Found::Task(Box::new(found)));
    assert_eq!(
        picture(&model)[8..20],
        [
            " Attempts that failed, the last 2 of 9",
            " lost 2023-11-15 11:59:00Z (1m ago) on unknown: asynq: task lease expired",
            " failed 2023-11-15 12:00:00Z (now) after 2.500s on web-1:7:5f0c: no route",
            "",
            " Log, the last 2 of 2 lines",
            " 2023-11-15T11:59:59.500Z #2 connected",
            " 2023-11-15T11:59:59.500Z #2 read 3 \u{fffd}[2J rows",
            "",
            " Payload, JSON, 10 bytes",
            " {",
            "   \"user\": 7",
            " }",
        ]
    );
}

#[test]
fn the_view_of_servers_shows_what_they_work_on() {
    let mut model = dashboard();
    keys(&mut model, "2");
    answer(&mut model, Found::Servers(vec![server()]));
    shows(
        &model,
        "
 Queues  Servers  Cron  Batches                   redis.example:6379  12:00:00Z
 1 server
 HOST                  PID STATE        BUSY STARTED      QUEUES
>worker-1.example     4711 active       1/50 1h1m ago     mail:3 default:1",
    );
    keys(&mut model, "⏎");
    answer(&mut model, Found::Servers(vec![server()]));
    shows(
        &model,
        "
 Queues  Servers  Cron  Batches                   redis.example:6379  12:00:00Z
 1 server › worker-1.example
 active pid 4711  busy 1/50  queues mail:3 default:1

 TASK     TYPE          QUEUE        RUNNING DEADLINE PAYLOAD
>t-1      email:welcome mail              5s   29m55s {\"user\":7}",
    );
    answer(&mut model, Found::Servers(vec![]));
    assert_eq!(picture(&model)[2], " gone pid 4711  busy 0/50  queues mail:3 default:1");
}

#[test]
fn the_view_of_cron_shows_entries_and_their_history() {
    let mut model = dashboard();
    keys(&mut model, "3");
    answer(&mut model, Found::Cron(vec![ours(entry())]));
    shows(
        &model,
        "
 Queues  Servers  Cron  Batches                   redis.example:6379  12:00:00Z
 1 periodic entry
 SPEC      TYPE        NEXT       PREVIOUS   ENTRY    OPTIONS
>0 3 * * * report:make in 15h     9h ago     nightly  Queue(\"low\")",
    );
    keys(&mut model, "⏎");
    answer(&mut model, Found::Events(vec![event("e-1"), event("e-2")]));
    let picture = picture(&model);
    assert_eq!(picture[4], " enqueued, newest first, 1-2");
    assert!(picture[6].starts_with(">e-1") && picture[6].ends_with("2023-11-15 11:59:00Z (1m ago)"), "{picture:#?}");
    keys(&mut model, "⏎");
    let crate::dash::screen::Wanted::Task { queue, id } = model.wanted() else { panic!("no task is shown") };
    assert_eq!((queue.as_str(), id.as_str()), ("low", "e-1"));
}

#[test]
fn the_view_of_batches_shows_what_they_consist_of() {
    let mut model = dashboard();
    keys(&mut model, "4");
    answer(&mut model, Found::Batches(vec![batch("release")]));
    shows(
        &model,
        "
 Queues  Servers  Cron  Batches                   redis.example:6379  12:00:00Z
 batches, newest first
 BATCH            STATE     MEMBERS    LIVE    DONE   BAD CREATED    DESCRIPTION
>release          doomed          3       1       1     1 1m30s ago  release of…",
    );
    keys(&mut model, "⏎");
    answer(&mut model, Found::Batch(batch("release"), vec![part("test")]));
    shows(
        &model,
        "
 Queues  Servers  Cron  Batches                   redis.example:6379  12:00:00Z
 batches, newest first › release
 doomed 1 of 3 succeeded, 1 live, 1 bad  release of release
 callbacks success waiting, death succeeded
 PART         STATE     WORK                                     AFTER
>test         sent      batch test                               build",
    );
    keys(&mut model, "⏎");
    let id = "release:1".parse().unwrap();
    assert_eq!(model.wanted(), crate::dash::screen::Wanted::Batch { id });
    answer(&mut model, Found::Gone("there is no batch release:1".to_owned()));
    assert_eq!(picture(&model)[2], " there is no batch release:1");
}

#[test]
fn an_outage_is_told_with_the_age_of_what_is_shown_and_goes_by_itself() {
    let mut model = retries(&["a"]);
    let wanted = model.wanted();
    let error = queue_admin::Error::QueueNotFound("for want of another".to_owned());
    hear(&mut model, Answer::Read { wanted, found: Box::new(Err(error)), at: noon() });
    model.now = noon() + seconds(12);
    let lines = picture(&model);
    assert!(lines[2].starts_with(" REDIS IS AWAY (shown: 12s ago): queue"), "{lines:#?}");
    assert!(lines[8].starts_with(">a"), "{lines:#?}");
    answer(&mut model, tasks(&["a"], TaskState::Retry));
    assert!(picture(&model)[7].starts_with(">a"));
}

#[test]
fn help_and_questions_stand_in_front() {
    let mut model = retries(&["a"]);
    keys(&mut model, "?");
    let lines = picture(&model).join("\n");
    assert!(lines.contains("╭ Keys ") && lines.contains("each of these asks first"), "{lines}");
    keys(&mut model, "?d");
    let lines = picture(&model).join("\n");
    for text in ["Are you sure?", "Delete this task of mail?", "It cannot be brought back.", "y yes    n no"] {
        assert!(lines.contains(text), "{lines}");
    }
}

#[test]
fn a_question_keeps_every_letter_and_breaks_no_word() {
    for width in [40, 62, 63, 80, 200] {
        let mut model = retries(&["a"]);
        model.size = (width, 24);
        keys(&mut model, "a");
        let lines = picture(&model);
        let inside = |line: &String| Some(line.split_once('│')?.1.split_once('│')?.0.trim().to_owned());
        let question: Vec<String> = lines.iter().filter_map(inside).collect();
        let expected = "It does not run until somebody runs it; archived tasks are kept 90 days.";
        assert!(question.join(" ").contains(expected), "{width}: {lines:#?}");
    }
}

#[test]
fn colours_are_of_the_sixteen_and_can_be_refused() {
    let sixteen =
        [Color::Reset, Color::Red, Color::Green, Color::Yellow, Color::Blue, Color::Magenta, Color::Cyan, Color::Gray];
    for colour in [true, false] {
        let mut model = retries(&["a", "b"]);
        model.colour = colour;
        let allowed = if colour { &sixteen[..] } else { &sixteen[..1] };
        for _ in 0..3 {
            let buffer = buffer(&model);
            assert!(buffer.content.iter().all(|cell| allowed.contains(&cell.fg) && cell.bg == Color::Reset));
            assert!(buffer.content.iter().any(|cell| cell.modifier.contains(Modifier::REVERSED)));
            assert_eq!(buffer.content.iter().any(|cell| cell.fg != Color::Reset), colour);
            keys(&mut model, "d");
        }
    }
}

#[test]
fn wide_characters_shift_no_column() {
    let mut model = dashboard();
    answer(
        &mut model,
        Found::Queues(vec![
            queue("日本語のキュー"),
            queue("👨\u{200d}👩\u{200d}👧 family"),
            queue("e\u{301}\u{1b}[2J"),
        ]),
    );
    let buffer = buffer(&model);
    for y in 3..6 {
        let state: String = (16..19).map(|x| buffer[(x, y)].symbol()).collect();
        assert_eq!(state, "RUN", "{:#?}", picture(&model));
    }
}
