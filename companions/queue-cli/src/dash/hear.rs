//! What an answer from Redis does to the model.

use queue_admin::ServerInfo;

use super::list::Moves as _;
use super::model::{Answer, Model};
use super::readable;
use super::screen::{Found, QueueRow, Screen, TaskScreen};

/// Takes note of an answer.
pub(super) fn hear(model: &mut Model, answer: Answer) {
    match answer {
        Answer::Done(Ok(text)) => model.say(text),
        Answer::Done(Err(error)) => model.complain(error.to_string()),
        Answer::Read { wanted, found, at } => {
            let found = match *found {
                Ok(found) => found,
                Err(error) => {
                    model.trouble = Some(error.to_string());
                    return;
                }
            };
            model.trouble = None;
            match &found {
                Found::Queues(rows) => model.samples.record(rows.iter().map(|row| &row.info)),
                Found::Groups(row, _) | Found::Tasks { row, .. } => model.samples.record_one(&row.info),
                _ => {}
            }
            // The user may have gone elsewhere since.
            if wanted == model.wanted() {
                (model.read_at, model.now) = (Some(at), model.now.max(at));
                show(model, found);
            }
        }
    }
}

fn show(model: &mut Model, found: Found) {
    let height = model.height();
    match (model.screen_mut(), found) {
        (Screen::Queues(list), Found::Queues(rows)) => list.replace(rows, height),
        (Screen::Servers(list), Found::Servers(servers)) => list.replace(servers, height),
        (Screen::Workers { server, list }, Found::Servers(servers)) => {
            match servers.into_iter().find(|found| found.id == server.id) {
                Some(found) => *server = found,
                None => gone(server),
            }
            list.replace(server.workers.clone(), height);
        }
        (Screen::Cron(list), Found::Cron(entries)) => list.replace(entries, height),
        (Screen::Events { list, .. }, Found::Events(events)) => list.replace(events, height),
        (Screen::Batches { list, .. }, Found::Batches(batches)) => list.replace(batches, height),
        (Screen::Batch(screen), Found::Batch(row, parts)) => {
            (screen.row, screen.gone) = (Some(row), None);
            screen.parts.replace(parts, height);
        }
        (Screen::Batch(screen), Found::Gone(why)) => screen.gone = Some(why),
        (Screen::Queue(queue), Found::Groups(row, groups)) => {
            (queue.row, queue.gone) = (Some(row), None);
            queue.groups.replace(groups, height);
        }
        (Screen::Queue(queue), Found::Tasks { row, tasks, searched }) => {
            (queue.row, queue.gone, queue.searched) = (Some(row), None, searched);
            // The pages behind which this one was may have emptied.
            if tasks.is_empty() && queue.skip > 0 {
                queue.skip = last_page(queue.row.as_ref(), queue.total(), queue.skip, height);
                queue.tasks.restart();
            } else {
                queue.tasks.replace(tasks, height);
            }
        }
        (Screen::Queue(queue), Found::Gone(why)) => {
            queue.gone = Some(why);
            queue.row = None;
            queue.tasks.replace(Vec::new(), height);
            queue.groups.replace(Vec::new(), height);
        }
        (Screen::Task(screen), Found::Task(found)) => {
            let (old, new) = (screen.found.as_ref().map(|found| &found.task), &found.task);
            if old.is_none_or(|old| old.payload != new.payload || old.result != new.result) {
                screen.body = readable::body(new);
            }
            (screen.found, screen.gone) = (Some(*found), None);
        }
        (Screen::Task(screen), Found::Gone(why)) => screen.gone = Some(was_there(screen, why)),
        // Answers fit the questions, and this one was to another.
        _ => {}
    }
}

/// The beginning of the last page that can have something on it.
fn last_page(row: Option<&QueueRow>, total: Option<u64>, skip: usize, height: usize) -> usize {
    let before = skip.saturating_sub(height.max(1));
    let total = row.and(total).and_then(|total| usize::try_from(total).ok());
    total.map_or(before, |total| before.min(total.saturating_sub(1) / height.max(1) * height.max(1)))
}

fn gone(server: &mut ServerInfo) {
    "gone".clone_into(&mut server.status);
    server.workers.clear();
}

fn was_there(screen: &TaskScreen, why: String) -> String {
    match &screen.found {
        Some(_) => "it is gone: deleted, or done without a retention; this is how it was last".to_owned(),
        None => why,
    }
}
