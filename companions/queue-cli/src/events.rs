//! `queuectl events`.

use clap::Args;
use futures_util::StreamExt as _;
use queue_admin::payload::{one_line, shorten};
use queue_core::registry::{EVENTS, honours};
use queue_redis::events::{Cursor, Event, Events, Heard, Kind};
use serde::Serialize;
use std::time::Duration;

use crate::error::{CliError, complain};
use crate::output::Output;
use crate::session::Session;
use crate::when;

/// What to listen to.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct EventsArgs {
    /// Only what happens in this queue; may be given more than once
    #[arg(long, short, value_name = "QUEUE")]
    queue: Vec<String>,
    /// Only tasks of this type; may be given more than once
    #[arg(long = "type", short, value_name = "TYPE")]
    task_type: Vec<String>,
    /// Only events of this kind, as `failed` or `archived`; may be given more than once
    #[arg(long, value_name = "KIND")]
    kind: Vec<Kind>,
    /// Go on behind an event that was shown before, by the `cursor` of its JSON
    #[arg(long, value_name = "CURSOR")]
    since: Option<Cursor>,
}

crate::command::simple!(EventsArgs);

/// An event as a line of JSON.
#[derive(Serialize)]
struct Line {
    #[serde(flatten)]
    event: Event,
    cursor: String,
}

async fn run(args: EventsArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let EventsArgs { queue, task_type, kind, since } = args;
    let mut events = Events::of(session.redis()).kinds(kind);
    events = queue.into_iter().fold(events, Events::queue);
    events = task_type.into_iter().fold(events, Events::task_type);
    if let Some(cursor) = since {
        events = events.since(cursor);
    }
    let mut events = events.stream().await?;
    tell_unaware(session).await?;
    // One line each, in a terminal too.
    let out = Output { terminal: None, ..*out };
    while let Some(heard) = events.next().await {
        match heard {
            Ok(Heard { event, cursor, .. }) if out.json => out.value(&Line { event, cursor: cursor.to_string() })?,
            Ok(heard) => out.line(&line(&heard.event))?,
            Err(error) if error.is_transient() => complain(&format!("warning: {error}")),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Names the servers of which nothing will be heard.
async fn tell_unaware(session: &Session) -> Result<(), CliError> {
    let servers = session.inspector().servers().await?;
    let unaware = servers.iter().filter(|server| !honours(server.entry.as_ref(), EVENTS));
    let names: Vec<String> = unaware.map(|server| format!("{}:{}", server.host, server.pid)).collect();
    if !names.is_empty() {
        let names = shorten(&names.join(", "), 400);
        complain(&format!("note: of Go's servers, and older ones of ours, nothing is heard: {names}"));
    }
    Ok(())
}

/// For people.
fn line(event: &Event) -> String {
    let at = event.at.date().map_or_else(|| "-".to_owned(), |at| at.format("%H:%M:%S%.3fZ").to_string());
    let task = match (&event.queue, &event.id) {
        (Some(queue), Some(id)) => Some(format!("{queue}/{id}")),
        (queue, id) => queue.clone().or_else(|| id.clone()),
    };
    let mut more = Vec::new();
    more.extend(event.attempt.map(|attempt| format!("attempt {attempt}")));
    more.extend(event.took_ms.map(|ms| format!("took {}", when::rough(Duration::from_millis(ms)))));
    more.extend(event.percent.map(|percent| format!("{percent} %")));
    more.extend(event.count.map(|count| format!("{count}")));
    more.extend(event.retry_at.map(|at| {
        at.date().map_or_else(|| "again later".to_owned(), |at| format!("again {}", at.format("%H:%M:%SZ")))
    }));
    more.extend(event.due_at.and_then(|at| at.date()).map(|at| format!("due {}", at.format("%Y-%m-%dT%H:%M:%SZ"))));
    more.extend(event.by.as_ref().map(|by| format!("by {by}")));
    let more = Some(more.join(", ")).filter(|more| !more.is_empty());
    // A server says who it is where nothing else does.
    let server = event.server.as_deref().filter(|_| task.is_none());
    let words = [task.as_deref(), event.task_type.as_deref(), event.action.as_deref(), server, more.as_deref()];
    let mut line = format!("{at} {:<10}", event.kind.as_str());
    for word in words.into_iter().flatten() {
        line.push(' ');
        line.push_str(word);
    }
    if let Some(why) = event.error.as_deref().or(event.note.as_deref()).filter(|why| !why.is_empty()) {
        line.push_str(": ");
        line.push_str(why);
    }
    one_line(line.trim_end())
}

#[cfg(test)]
mod tests {
    use queue_core::clock::{UnixMilli, UnixSecond};

    use super::*;

    #[test]
    fn a_line_says_what_happened_to_which_task_and_never_breaks() {
        let mut event =
            Event::of_task(Kind::Failed, UnixMilli(1_700_000_000_123), "mail", "7", "email:send").because("a\nb");
        (event.attempt, event.took_ms, event.retry_at) = (Some(2), Some(12), Some(UnixSecond(1_700_000_060)));
        let told = line(&event);
        assert!(
            told.starts_with("22:13:20.123Z failed     mail/7 email:send attempt 2, took 12ms, again 22:14:20Z: a"),
            "{told}"
        );
        assert!(!told.contains('\n'));
        let mut event = Event::new(Kind::Operator, UnixMilli(0));
        (event.queue, event.action, event.by) = (Some("mail".into()), Some("queue.pause".into()), Some("ann".into()));
        assert_eq!(line(&event), "00:00:00.000Z operator   mail queue.pause by ann");
        let mut event = Event::new(Kind::ServerStarted, UnixMilli(0));
        (event.server, event.count) = (Some("host:1:id".into()), Some(8));
        assert_eq!(line(&event), "00:00:00.000Z server_started host:1:id 8");
    }
}
