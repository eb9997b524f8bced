//! Any keys, any data, any size: there is always a picture, and nothing in it drives the terminal.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use proptest::collection::vec;
use proptest::prelude::*;
use queue_core::TaskState;
use queue_core::attempt::{Attempt, AttemptEnd};
use queue_core::clock::UnixMilli;
use queue_core::task_log::TaskLog;

use super::given::{
    answer, batch, buffer, dashboard, entry, event, group, mail, noon, part, queue, seconds, server, task,
};
use crate::dash::hear::hear;
use crate::dash::model::{Answer, Model};
use crate::dash::screen::{CronRow, Found, TaskInFull, Wanted};
use crate::dash::update::{paste, press, resize};

/// Something that happens.
#[derive(Debug, Clone)]
enum Happens {
    Key(KeyCode),
    Paste(String),
    Resize(u16, u16),
    /// An answer made of these texts and numbers.
    Answer(Vec<String>, u64),
    Outage(String),
    Later(u32),
}

/// Text as it may be found in a queue that others write to.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z:]{0,12}",
        any::<String>(),
        "[日本語👩‍👧\u{301}\u{200d}\u{202e}\u{fe0f}\u{1b}\\[2J]{0,30}",
        Just("x".repeat(3_000)),
        Just(r#"{"a":[1,{"b":"c"}]}"#.to_owned()),
    ]
}

fn happens() -> impl Strategy<Value = Happens> {
    let keys: Vec<KeyCode> = "hjklnpgGq?/123sradcRADCyx"
        .chars()
        .map(KeyCode::Char)
        .chain([KeyCode::Enter, KeyCode::Enter, KeyCode::Enter, KeyCode::Esc, KeyCode::Backspace, KeyCode::Tab])
        .collect();
    prop_oneof![
        6 => prop::sample::select(keys).prop_map(Happens::Key),
        1 => text().prop_map(Happens::Paste),
        2 => (0..220_u16, 0..70_u16).prop_map(|(columns, lines)| Happens::Resize(columns, lines)),
        6 => (vec(text(), 0..20), any::<u64>()).prop_map(|(texts, number)| Happens::Answer(texts, number)),
        1 => text().prop_map(Happens::Outage),
        1 => any::<u32>().prop_map(Happens::Later),
    ]
}

/// An answer that fits the question.
fn found(wanted: &Wanted, texts: &[String], number: u64) -> Found {
    let state = TaskState::ALL[(number % 7) as usize];
    let date = chrono::DateTime::from_timestamp((number % (1 << 40)) as i64 - (1 << 38), 0);
    let row = |name: &String| {
        let mut row = if number.is_multiple_of(2) { mail() } else { queue("") };
        (row.info.name, row.info.pending, row.info.failed) = (name.clone(), number / 8, number);
        (row.info.processed_total, row.info.timestamp) = (number, date.unwrap_or(noon()));
        (row.info.latency, row.info.paused, row.memory) = (seconds(number / 3), number.is_multiple_of(3), Some(number));
        row
    };
    let made = |text: &String| {
        let mut made = task(text, state);
        (made.task_type, made.last_error) = (text.clone(), Some(text.clone()));
        (made.payload, made.result) = (text.clone().into_bytes().into(), Some(text.clone().into_bytes().into()));
        (made.retried, made.next_process_at, made.last_failed_at) = (number as i32, date, date);
        (made.group, made.headers) = (Some(text.clone()), [(text.clone(), text.clone())].into());
        made
    };
    let first = texts.first().cloned().unwrap_or_default();
    if number.is_multiple_of(17) {
        return Found::Gone(first);
    }
    match wanted {
        Wanted::Queues => Found::Queues(texts.iter().map(row).collect()),
        Wanted::Groups { .. } => Found::Groups(row(&first), texts.iter().map(|text| group(text, number)).collect()),
        Wanted::Tasks { .. } => {
            let searched = number.is_multiple_of(5).then_some((number as usize / 2, number.is_multiple_of(10)));
            Found::Tasks { row: row(&first), tasks: texts.iter().map(made).collect(), searched }
        }
        Wanted::Task { .. } => {
            let mut log = TaskLog::default();
            texts.iter().for_each(|text| log.push(UnixMilli(number as i64), 1, text));
            let attempts = texts.iter().map(|text| Attempt {
                ended: UnixMilli(number as i64),
                took: Some(seconds(number)),
                end: AttemptEnd::Lost,
                server: text.clone(),
                error: text.clone(),
                backtrace: Some(text.clone()),
            });
            let attempts = attempts.collect();
            Found::Task(Box::new(TaskInFull { task: made(&texts.concat()), failed: number, attempts, log }))
        }
        Wanted::Servers => Found::Servers(
            texts
                .iter()
                .map(|text| {
                    let mut server = server();
                    (server.host, server.status, server.started) = (text.clone(), text.clone(), date);
                    server.workers[0].task_id.clone_from(text);
                    server.workers[0].deadline = date;
                    server
                })
                .collect(),
        ),
        Wanted::Cron => Found::Cron(
            texts
                .iter()
                .map(|text| {
                    let mut entry = entry();
                    (entry.id, entry.spec, entry.next) = (text.clone(), text.clone(), date);
                    entry.options = vec![text.clone()];
                    CronRow { entry, ours: number.is_multiple_of(2), paused: number.is_multiple_of(4) }
                })
                .collect(),
        ),
        Wanted::Events { .. } => Found::Events(texts.iter().map(|text| event(text)).collect()),
        Wanted::Batches { .. } => Found::Batches(texts.iter().map(|text| batch(text)).collect()),
        Wanted::Batch { .. } => Found::Batch(batch(&first), texts.iter().map(|text| part(text)).collect()),
    }
}

fn happen(model: &mut Model, happens: Happens) {
    match happens {
        Happens::Key(code) => drop(press(model, KeyEvent::new(code, KeyModifiers::NONE))),
        Happens::Paste(text) => paste(model, &text),
        Happens::Resize(columns, lines) => resize(model, (columns, lines)),
        Happens::Answer(texts, number) => {
            let found = found(&model.wanted(), &texts, number);
            answer(model, found);
        }
        Happens::Outage(text) => {
            let (wanted, at) = (model.wanted(), model.now);
            let found = Box::new(Err(queue_admin::Error::QueueNotFound(text)));
            hear(model, Answer::Read { wanted, found, at });
        }
        Happens::Later(secs) => model.now += seconds(secs.into()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn there_is_always_a_picture_and_nothing_in_it_drives_the_terminal(events in vec(happens(), 1..40)) {
        let mut model = dashboard();
        for event in events {
            happen(&mut model, event);
            let buffer = buffer(&model);
            for cell in &buffer.content {
                prop_assert!(!cell.symbol().chars().any(char::is_control), "{:?}", cell.symbol());
                prop_assert!(!cell.symbol().contains(['\u{200d}', '\u{202e}', '\u{fe0f}']), "{:?}", cell.symbol());
            }
        }
    }
}
