//! `queuectl batch explain`.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use clap::Args;
use queue_admin::payload::one_line;
use queue_admin::{BatchExplanation, Explanation, view};
use queue_core::flow::FlowId;
use queue_redis::flow::Standing;
use queue_redis::{BatchState, CallbackState};

use super::summary;
use crate::error::CliError;
use crate::manage::now;
use crate::manage::workflow::{edges, signal_of};
use crate::output::Output;
use crate::session::Session;
use crate::when;

/// Which batch to explain.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Batch id
    #[arg(value_name = "ID")]
    id: FlowId,
}

pub(crate) async fn run(args: ExplainArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let explained = session.inspector().explain_batch(&args.id).await?;
    if out.json {
        return out.value(&view::BatchExplanation::from(explained));
    }
    out.text(&describe(&explained))
}

fn describe(explained: &BatchExplanation) -> String {
    let queue_redis::flow::Explanation { status, members, unseen, callbacks, children, nodes, todo, next_look, .. } =
        &explained.batch;
    let mut text = format!("batch {:?} is {}\n", status.id, summary(status));
    let mut line = |what: String| {
        let _ = writeln!(text, "- {what}");
    };
    if status.is_over() {
        line("it is over; nothing will happen by itself".to_owned());
    } else if status.state == BatchState::Waiting {
        line("it is a node of a workflow, and its turn has not come".to_owned());
    } else if status.committed.is_none() {
        line(
            "it is not committed: it can neither complete nor succeed, and is abandoned after half an hour".to_owned(),
        );
    }
    for standing in members {
        line(format!("{} of its members: {}", standing.tasks, place(standing)));
        reasons_of(standing, &explained.tasks).for_each(&mut line);
    }
    if *unseen > 0 {
        line(format!("{unseen} members more were not looked at"));
    }
    for (child, state) in children {
        line(format!("child {child} is {state}"));
    }
    for node in nodes {
        let open = edges(node, queue_redis::flow::Edge::is_open);
        let what = match &node.signal {
            Some(signal) if open.is_empty() => format!("its {}", signal_of(signal)),
            _ if open.is_empty() => "its turn".to_owned(),
            _ => open,
        };
        line(format!("node {} waits for {what}", node.name));
    }
    for callback in &status.callbacks {
        match callback.state {
            CallbackState::Waiting => {
                let what = match callback.event {
                    "complete" => "every member to be attempted",
                    "success" => "every member, and the callback of complete, to succeed",
                    "death" => "a member to die",
                    _ => "everything else to end",
                };
                line(format!("callback {} waits for {what}", callback.event));
            }
            CallbackState::Due => line(format!("callback {} is about to be enqueued", callback.event)),
            CallbackState::Dead => {
                line(format!("callback {} has died; `queuectl task run` runs it again", callback.event));
            }
            _ => {}
        }
    }
    for standing in callbacks {
        line(format!("a callback: {}", place(standing)));
        reasons_of(standing, &explained.tasks).for_each(&mut line);
    }
    if status.dead > 0 {
        line(format!("`queuectl batch retry {} --dead` runs what is in the archive again", status.id));
    }
    if !todo.is_empty() {
        line(format!("somebody has to carry out: {}", todo.join(", ")));
    }
    if let Some(next) = next_look {
        line(format!("the leader of the servers {}", look(*next, now())));
    }
    text
}

/// When a batch is looked after; what is late may have nobody to do it.
fn look(next: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let verb = if next < now { "was to look after it" } else { "looks after it next" };
    format!("{verb} {}", when::distance(next, now))
}

/// Why the first of them does not run.
fn reasons_of<'a>(standing: &Standing, tasks: &'a [Explanation]) -> impl Iterator<Item = String> + use<'a> {
    let first = tasks.iter().find(|task| task.queue == standing.queue && task.id == standing.first);
    let reasons = first.into_iter().flat_map(|task| &task.reasons);
    reasons.map(|reason| format!("  the first of them: {}", one_line(&reason.to_string())))
}

fn place(standing: &Standing) -> String {
    let Standing { queue, state, first, paused, .. } = standing;
    let pause = if *paused { ", which is paused" } else { "" };
    let state = match state.as_str() {
        "missing" => "not there: deleted, or its end is not recorded yet; ",
        state => &format!("{state} "),
    };
    format!("{state}in queue {queue}{pause} (first: {first})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_is_late_is_not_called_the_next() {
        let now = DateTime::UNIX_EPOCH;
        assert_eq!(look(now + chrono::TimeDelta::seconds(5), now), "looks after it next in 5s");
        assert_eq!(look(now - chrono::TimeDelta::seconds(2), now), "was to look after it 2s ago");
    }
}
