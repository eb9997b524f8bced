//! Which change a key asks for; the user is asked before it is made.

use queue_core::TaskState;

use queue_core::flow::FlowId;

use super::action::{Action, Asked as _, BatchVerb, CronVerb, QueueVerb, Verb};
use super::list::Moves as _;
use super::model::{Model, Overlay};
use super::screen::Screen;

fn ask(model: &mut Model, action: Action) {
    if model.read_only {
        return model.complain("read-only: started with --read-only");
    }
    model.overlay = Some(Overlay::Confirm(action));
}

/// Asks about pausing what is selected, or resuming it.
pub(super) fn pause(model: &mut Model) {
    let row = match model.screen() {
        Screen::Cron(list) => match list.selected() {
            Some(row) if row.paused => return change_entry(model, CronVerb::Resume),
            _ => return change_entry(model, CronVerb::Pause),
        },
        Screen::Queues(list) => list.selected(),
        Screen::Queue(queue) => queue.row.as_ref(),
        _ => return,
    };
    if let Some(row) = row {
        let verb = if row.info.paused { QueueVerb::Resume } else { QueueVerb::Pause };
        ask(model, Action::Queue(verb, row.info.name.clone()));
    }
}

fn change_entry(model: &mut Model, verb: CronVerb) {
    let Screen::Cron(list) = model.screen() else { return };
    match list.selected() {
        Some(row) if row.ours => ask(model, Action::Cron(verb, row.entry.id.clone())),
        Some(_) => model.complain("this entry is of a Go scheduler; only its program can change it"),
        None => {}
    }
}

/// A batch is cancelled, or what is dead of it run again.
fn change_batch(model: &mut Model, verb: Verb, id: FlowId) {
    match verb {
        Verb::Cancel => ask(model, Action::Batch(BatchVerb::Cancel, id)),
        Verb::Run => ask(model, Action::Batch(BatchVerb::Retry, id)),
        _ => {}
    }
}

/// Asks about all tasks of the tab, or of the group that is selected or shown.
pub(super) fn act_on_all(model: &mut Model, verb: Verb) {
    let Screen::Queue(queue) = model.screen() else { return };
    if !queue.tasks.filter().is_empty() {
        return model.complain("all means all of this tab, and a filter hides some: end it first, with Esc");
    }
    let (group, count) = match (&queue.group, queue.groups.selected()) {
        (None, Some(group)) if queue.shows_groups() => (Some(group.name.clone()), group.size),
        (group, _) => (group.clone(), queue.total().unwrap_or(0)),
    };
    if count == 0 {
        return model.complain("there is no task here");
    }
    match verb.allowed(queue.state) {
        Ok(()) => {
            let (queue, state) = (queue.name.clone(), queue.state);
            ask(model, Action::All { verb, queue, state, group, count });
        }
        Err(reason) => model.complain(reason),
    }
}

/// Asks about the task that is selected or shown, or what else the key means here.
pub(super) fn act(model: &mut Model, verb: Verb) {
    let (queue, id, state) = match model.screen() {
        Screen::Cron(_) if verb == Verb::Run => return change_entry(model, CronVerb::Run),
        Screen::Batches { list, .. } => match list.selected().map(|row| row.id.parse()) {
            Some(Ok(id)) => return change_batch(model, verb, id),
            _ => return,
        },
        Screen::Batch(screen) if screen.gone.is_none() => {
            let id = screen.id.clone();
            return change_batch(model, verb, id);
        }
        Screen::Queues(list) => match (verb, list.selected()) {
            (Verb::Delete, Some(row)) => return ask(model, Action::Queue(QueueVerb::Remove, row.info.name.clone())),
            _ => return,
        },
        Screen::Queue(queue) if !queue.shows_groups() => match queue.tasks.selected() {
            Some(task) => (queue.name.clone(), task.id.clone(), task.state),
            None => return,
        },
        Screen::Task(screen) => match screen.found.as_ref().map(|found| &found.task) {
            Some(task) if screen.gone.is_none() => (screen.queue.clone(), screen.id.clone(), task.state),
            _ => return model.complain("it is not there"),
        },
        Screen::Workers { list, .. } => match list.selected() {
            Some(worker) => (worker.queue.clone(), worker.task_id.clone(), TaskState::Active),
            None => return,
        },
        _ => return,
    };
    match verb.allowed(state) {
        Ok(()) => ask(model, Action::Task { verb, queue, id }),
        Err(reason) => model.complain(reason),
    }
}
