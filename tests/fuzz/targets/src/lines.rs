//! What `queuectl` reads: lines of tasks, instants, filters. The program is no library, so that its files are
//! taken from where they are.

use chrono::{DateTime, Utc};
use clap::{Args as _, Command, FromArgMatches as _};
use queue_admin::line;
use queue_core::options::compose;
use queue_core::{TaskOptions, TaskState};

use crate::when;
use crate::words::Words;

#[path = "../../../../companions/queue-cli/src/manage/task/select.rs"]
mod select;

/// Reads the bytes as a line, and as words of a command line.
///
/// # Panics
/// When a line is taken that makes no task.
pub fn run(data: &[u8]) {
    if let Ok(task) = line::parse(data) {
        let _ = compose(task, TaskOptions::new(), 1_700_000_000_000_000_000);
    }
    let mut words = Words::new(data);
    let now = DateTime::from_timestamp(words.number() % 8_000_000_000_000, 0).unwrap_or_default();
    if let Ok(instant) = when::instant(&words.text()) {
        let date = DateTime::<Utc>::from(instant);
        let _ = (when::date(date, now), when::ago(Some(date), now), when::next(Some(date), now));
    }
    if let Ok(duration) = when::duration(&words.text()) {
        let _ = when::rough(duration);
    }
    if words.flag() {
        filter(&mut words);
    }
}

/// Options as they stand on a command line.
fn filter(words: &mut Words<'_>) {
    const NAMES: [&str; 7] = ["--filter", "--group", "--type", "--older-than", "--error", "--header", "--where"];
    let command = select::FilterArgs::augment_args(Command::new("tasks").no_binary_name(true));
    let options = (0..words.byte() % 8).flat_map(|_| {
        let name = NAMES[usize::from(words.byte()) % NAMES.len()];
        [name.to_owned(), words.text()]
    });
    let options: Vec<String> = options.collect();
    let Ok(matches) = command.try_get_matches_from(options) else { return };
    let Ok(filter) = select::FilterArgs::from_arg_matches(&matches) else { return };
    let _ = (filter.is_empty(), filter.only_group());
    let _ = select::FilterArgs::group(filter.only_group().map(str::to_owned));
    let _ = filter.filter(&TaskState::ALL);
}
