//! A dashboard at a fixed moment, and what it may be told.

use std::time::Duration;

use chrono::{DateTime, Utc};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use queue_admin::{EnqueueEvent, GroupInfo, QueueInfo, SchedulerEntry, ServerInfo, WorkerInfo};
use queue_core::task_log::TaskLog;
use queue_core::{TaskInfo, TaskMessage, TaskState};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

use crate::dash::hear::hear;
use crate::dash::model::{Answer, Model};
use crate::dash::screen::{BatchRow, CronRow, Found, Opens, PartRow, QueueRow, TaskInFull};
use crate::dash::update::{Effect, press};
use crate::dash::view;

/// Midday of a day long gone.
pub(super) fn noon() -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_049_600, 0).unwrap()
}

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn dashboard() -> Model {
    Model::new("redis.example:6379", (80, 24), noon())
}

pub(super) fn queue(name: &str) -> QueueRow {
    let mut info = QueueInfo::default();
    info.name = name.to_owned();
    info.timestamp = noon();
    QueueRow { info, memory: None, spoilt: None, limits: String::new() }
}

pub(super) fn mail() -> QueueRow {
    let mut row = queue("mail");
    (row.info.pending, row.info.active, row.info.retry, row.info.archived) = (1_234, 2, 30, 4);
    (row.info.processed, row.info.failed) = (45_678, 913);
    row.info.latency = seconds(75);
    row.memory = Some(1_600_000);
    row
}

pub(super) fn task(id: &str, state: TaskState) -> TaskInfo {
    let message = TaskMessage {
        r#type: "email:welcome".to_owned(),
        payload: br#"{"user":7}"#.as_slice().into(),
        id: id.to_owned(),
        queue: "mail".to_owned(),
        retry: 25,
        ..TaskMessage::default()
    };
    TaskInfo::new(message, state)
}

/// A task of which nothing is remembered.
pub(super) fn alone(task: TaskInfo) -> Found {
    Found::Task(Box::new(TaskInFull { task, failed: 0, attempts: Vec::new(), log: TaskLog::default() }))
}

pub(super) fn server() -> ServerInfo {
    let mut server = ServerInfo::default();
    (server.id, server.host, server.pid) = ("s-1".to_owned(), "worker-1.example".to_owned(), 4711);
    (server.concurrency, server.status) = (50, "active".to_owned());
    server.queues = [("mail".to_owned(), 3), ("default".to_owned(), 1)].into();
    server.started = Some(noon() - seconds(3_700));
    let mut worker = WorkerInfo::default();
    (worker.task_id, worker.task_type, worker.queue) =
        ("t-1".to_owned(), "email:welcome".to_owned(), "mail".to_owned());
    worker.payload = br#"{"user":7}"#.as_slice().into();
    (worker.started, worker.deadline) = (Some(noon() - seconds(5)), Some(noon() + seconds(1_795)));
    server.workers = vec![worker];
    server
}

pub(super) fn entry() -> SchedulerEntry {
    let mut entry = SchedulerEntry::default();
    (entry.id, entry.spec, entry.task_type) = ("nightly".to_owned(), "0 3 * * *".to_owned(), "report:make".to_owned());
    entry.options = vec!["Queue(\"low\")".to_owned()];
    (entry.next, entry.prev) = (Some(noon() + seconds(54_000)), Some(noon() - seconds(32_400)));
    entry
}

/// A row of an entry of ours.
pub(super) fn ours(entry: SchedulerEntry) -> CronRow {
    CronRow { entry, ours: true, paused: false }
}

pub(super) fn event(id: &str) -> EnqueueEvent {
    let mut event = EnqueueEvent::default();
    (event.task_id, event.enqueued_at) = (id.to_owned(), Some(noon() - seconds(60)));
    event
}

/// A workflow of which one node is dead.
pub(super) fn batch(id: &str) -> BatchRow {
    BatchRow {
        id: id.to_owned(),
        state: "doomed",
        total: 3,
        live: 1,
        succeeded: 1,
        bad: 1,
        created: Some(noon() - seconds(90)),
        description: format!("release of {id}"),
        callbacks: vec![("success", "waiting"), ("death", "succeeded")],
    }
}

/// A node of it that is a batch.
pub(super) fn part(name: &str) -> PartRow {
    let (work, after) = (format!("batch {name}"), "build".to_owned());
    PartRow { name: name.to_owned(), state: "sent", work, after, opens: Opens::Batch("release:1".to_owned()) }
}

pub(super) fn group(name: &str, size: u64) -> GroupInfo {
    let mut group = GroupInfo::default();
    (group.name, group.size) = (name.to_owned(), size);
    group
}

/// Answers whatever the screen asks for at the moment.
pub(super) fn answer(model: &mut Model, found: Found) {
    let (wanted, at) = (model.wanted(), model.now);
    hear(model, Answer::Read { wanted, found: Box::new(Ok(found)), at });
}

pub(super) fn tasks(ids: &[&str], state: TaskState) -> Found {
    Found::Tasks { row: mail(), tasks: ids.iter().map(|id| task(id, state)).collect(), searched: None }
}

/// A dashboard that shows the retried tasks of the queue mail.
pub(super) fn retries(ids: &[&str]) -> Model {
    let mut model = dashboard();
    answer(&mut model, Found::Queues(vec![mail()]));
    keys(&mut model, "⏎llll");
    answer(&mut model, tasks(ids, TaskState::Retry));
    model
}

/// Presses keys, `⏎` and `⎋` among them; returns what the last one asks for.
pub(super) fn keys(model: &mut Model, keys: &str) -> Option<Effect> {
    let mut effect = None;
    for key in keys.chars() {
        let code = match key {
            '⏎' => KeyCode::Enter,
            '⎋' => KeyCode::Esc,
            '⌫' => KeyCode::Backspace,
            key => KeyCode::Char(key),
        };
        effect = press(model, KeyEvent::new(code, KeyModifiers::NONE));
    }
    effect
}

pub(super) fn buffer(model: &Model) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(model.size.0, model.size.1)).unwrap();
    terminal.draw(|frame| view::draw(frame, model)).unwrap();
    terminal.backend().buffer().clone()
}

/// The lines of the screen, without blanks at their ends.
pub(super) fn picture(model: &Model) -> Vec<String> {
    let buffer = buffer(model);
    let line = |y| {
        let (mut line, mut x) = (String::new(), 0);
        while x < buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            x += u16::try_from(crate::dash::text::width(symbol).max(1)).unwrap();
        }
        line.trim_end().to_owned()
    };
    (0..buffer.area.height).map(line).collect()
}

/// Compares the screen with what it should be; lines below the last one given are not compared.
#[track_caller]
pub(super) fn shows(model: &Model, expected: &str) {
    let expected: Vec<&str> = expected.trim_matches('\n').lines().collect();
    let picture = picture(model);
    assert!(
        picture[..expected.len()] == expected,
        "expected:\n{}\n\nshown:\n{}",
        expected.join("\n"),
        picture.join("\n")
    );
}
