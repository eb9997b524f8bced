//! What a key does to the model.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use queue_admin::ServerInfo;
use queue_core::TaskState;
use queue_core::flow::FlowId;

use super::action::{Action, Asked as _, Verb};
use super::ask::{act, act_on_all, pause};
use super::list::{List, Moves as _, Row};
use super::model::{Model, Overlay};
use super::screen::{BatchScreen, Opens, QueueScreen, Screen, TABS, TaskScreen};
use super::view;

/// What the loop has to do besides showing the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    /// Change something in Redis.
    Act(Action),
    /// Send the whole screen anew.
    Redraw,
}

/// Characters that a filter may have.
const MAX_FILTER: usize = 200;

/// Handles a key.
pub(super) fn press(model: &mut Model, key: KeyEvent) -> Option<Effect> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    model.notice = None;
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if control => {
            model.over = true;
            return None;
        }
        KeyCode::Char('l') if control => return Some(Effect::Redraw),
        KeyCode::Char(_) if control || key.modifiers.contains(KeyModifiers::ALT) => return None,
        _ => {}
    }
    match model.overlay.clone() {
        Some(Overlay::Help) => model.overlay = None,
        Some(Overlay::Confirm(action)) => return confirm(model, key.code, action),
        None if model.typing => typed(model, key.code),
        None => command(model, key.code),
    }
    None
}

/// Takes pasted text, which is never a command.
pub(super) fn paste(model: &mut Model, text: &str) {
    if model.typing {
        let mut filter = model.screen().filter().to_owned();
        filter.push_str(text);
        set_filter(model, filter);
    }
}

/// Takes note of the terminal's new size.
pub(super) fn resize(model: &mut Model, size: (u16, u16)) {
    model.size = size;
    settle(model);
}

fn settle(model: &mut Model) {
    let height = model.height();
    if let Some(list) = model.screen_mut().list() {
        list.settle(height);
    }
    scroll(model, 0);
}

/// Only `y` says yes: a key pressed once too often must not delete anything.
fn confirm(model: &mut Model, key: KeyCode, action: Action) -> Option<Effect> {
    match key {
        KeyCode::Char('y' | 'Y') => {
            model.overlay = None;
            model.say("…");
            Some(Effect::Act(action))
        }
        KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => {
            model.overlay = None;
            None
        }
        _ => None,
    }
}

fn typed(model: &mut Model, key: KeyCode) {
    let mut filter = model.screen().filter().to_owned();
    match key {
        KeyCode::Enter | KeyCode::Down | KeyCode::Up => model.typing = false,
        KeyCode::Esc => {
            model.typing = false;
            set_filter(model, String::new());
        }
        KeyCode::Backspace => {
            filter.pop();
            set_filter(model, filter);
        }
        KeyCode::Char(c) => {
            filter.push(c);
            set_filter(model, filter);
        }
        _ => {}
    }
}

fn set_filter(model: &mut Model, text: String) {
    let height = model.height();
    let text = text.chars().filter(|c| !c.is_control()).take(MAX_FILTER).collect();
    if let Some(list) = model.screen_mut().list() {
        list.set_filter(text, height);
    }
    // The tasks that match are looked for by Redis' side, from the first one on.
    if let Screen::Queue(queue) = model.screen_mut()
        && !queue.shows_groups()
    {
        queue.skip = 0;
    }
}

fn command(model: &mut Model, key: KeyCode) {
    let page = isize::try_from(model.height().max(1)).unwrap_or(1);
    match key {
        KeyCode::Char('?') => model.overlay = Some(Overlay::Help),
        KeyCode::Char('/') if !matches!(model.screen(), Screen::Task(_)) => model.typing = true,
        KeyCode::Esc if !model.screen().filter().is_empty() => set_filter(model, String::new()),
        KeyCode::Esc | KeyCode::Char('q') | KeyCode::Backspace => back(model),
        KeyCode::Up | KeyCode::Char('k') => step(model, -1),
        KeyCode::Down | KeyCode::Char('j') => step(model, 1),
        KeyCode::Home | KeyCode::Char('g') => step(model, isize::MIN + 1),
        KeyCode::End | KeyCode::Char('G') => step(model, isize::MAX),
        KeyCode::PageDown | KeyCode::Char('n') => turn_page(model, page),
        KeyCode::PageUp | KeyCode::Char('p') => turn_page(model, -page),
        KeyCode::Left | KeyCode::Char('h') | KeyCode::BackTab => turn_tab(model, -1),
        KeyCode::Right | KeyCode::Char('l') | KeyCode::Tab => turn_tab(model, 1),
        KeyCode::Char(digit @ '1'..='4') => top(model, digit as usize - '1' as usize),
        KeyCode::Enter => open(model),
        KeyCode::Char('s') => pause(model),
        KeyCode::Char(key) => match (Verb::of_key(key), Verb::of_key(key.to_ascii_lowercase())) {
            (Some(verb), _) => act(model, verb),
            (None, Some(verb)) => act_on_all(model, verb),
            (None, None) => {}
        },
        _ => {}
    }
}

fn back(model: &mut Model) {
    if let Screen::Queue(queue) = model.screen_mut()
        && queue.group.take().is_some()
    {
        queue.rewind();
        return settle(model);
    }
    if model.screens.len() > 1 {
        model.screens.pop();
        settle(model);
    } else if matches!(model.screen(), Screen::Queues(_)) {
        model.over = true;
    } else {
        top(model, 0);
    }
}

/// Shows the queues, the servers, cron or the batches.
fn top(model: &mut Model, tab: usize) {
    model.screens = vec![match tab {
        0 => Screen::Queues(List::default()),
        1 => Screen::Servers(List::default()),
        2 => Screen::Cron(List::default()),
        _ => Screen::Batches { skip: 0, list: List::default() },
    }];
}

fn step(model: &mut Model, by: isize) {
    let height = model.height();
    match model.screen_mut().list() {
        Some(list) => list.step(by, height),
        None => scroll(model, by),
    }
}

fn scroll(model: &mut Model, by: isize) {
    let (lines, height) = (view::task_lines(model), model.height());
    if let Screen::Task(task) = model.screen_mut() {
        task.scroll = task.scroll.saturating_add_signed(by).min(lines.saturating_sub(height.max(1)));
    }
}

fn turn_page(model: &mut Model, by: isize) {
    let height = model.height();
    match model.screen_mut() {
        Screen::Queue(queue) if !queue.shows_groups() => {
            let skip = queue.skip.saturating_add_signed(by);
            // While a filter is on, only a full page has another one behind it.
            let more = match (queue.tasks.filter().is_empty(), queue.total()) {
                (true, Some(total)) => (skip as u64) < total,
                _ => queue.tasks.all().len() >= height,
            };
            if skip != queue.skip && (by < 0 || more) {
                queue.skip = skip;
                queue.tasks.restart();
            }
        }
        Screen::Events { skip, list, .. } => page_on(skip, list, by, height),
        Screen::Batches { skip, list } => page_on(skip, list, by, height),
        _ => step(model, by),
    }
}

/// Turns to another page of a list of which nobody knows the length.
fn page_on<T: Row>(skip: &mut usize, list: &mut List<T>, by: isize, height: usize) {
    let next = skip.saturating_add_signed(by);
    if next != *skip && (by < 0 || list.all().len() >= height) {
        *skip = next;
        list.restart();
    }
}

fn turn_tab(model: &mut Model, by: isize) {
    let (height, turn) = (model.height(), |at: usize, count: isize| (at as isize + by).rem_euclid(count) as usize);
    match model.screen_mut() {
        Screen::Queue(queue) => {
            let at = TABS.iter().position(|state| *state == queue.state).unwrap_or(0);
            queue.turn_to(TABS[turn(at, 7)], height);
        }
        Screen::Queues(_) => top(model, turn(0, 4)),
        Screen::Servers(_) => top(model, turn(1, 4)),
        Screen::Cron(_) => top(model, turn(2, 4)),
        Screen::Batches { .. } => top(model, turn(3, 4)),
        _ => {}
    }
}

fn open(model: &mut Model) {
    let task = |queue: &str, id: &str| Screen::Task(Box::new(TaskScreen::new(queue.to_owned(), id.to_owned())));
    let batch = |id: FlowId| Screen::Batch(BatchScreen { id, row: None, parts: List::default(), gone: None });
    let next = match model.screen_mut() {
        Screen::Queues(list) => list.selected().map(|row| {
            let mut screen = QueueScreen::new(row.info.name.clone(), first_tab(row));
            screen.row = Some(row.clone());
            Screen::Queue(screen)
        }),
        Screen::Servers(list) => list.selected().map(workers),
        Screen::Workers { list, .. } => list.selected().map(|worker| task(&worker.queue, &worker.task_id)),
        Screen::Cron(list) => {
            list.selected().map(|row| Screen::Events { entry: row.entry.clone(), skip: 0, list: List::default() })
        }
        Screen::Events { entry, list, .. } => list.selected().map(|event| task(&entry.queue(), &event.task_id)),
        Screen::Queue(queue) if queue.shows_groups() => {
            queue.group = queue.groups.selected().map(|group| group.name.clone());
            queue.rewind();
            None
        }
        Screen::Queue(queue) => queue.tasks.selected().map(|found| task(&queue.name, &found.id)),
        Screen::Batches { list, .. } => list.selected().and_then(|row| row.id.parse().ok()).map(batch),
        Screen::Batch(screen) => match screen.parts.selected().map(|part| &part.opens) {
            Some(Opens::Batch(id)) => id.parse().ok().map(batch),
            Some(Opens::Task { queue, id }) => Some(task(queue, id)),
            Some(Opens::Nothing) | None => None,
        },
        Screen::Task(_) => None,
    };
    if let Some(next) = next {
        model.screens.push(next);
        settle(model);
    }
}

/// The first tab with something on it.
fn first_tab(row: &super::screen::QueueRow) -> TaskState {
    TABS.into_iter().find(|state| row.info.count(*state) > 0).unwrap_or(TaskState::Active)
}

fn workers(server: &ServerInfo) -> Screen {
    Screen::Workers { server: server.clone(), list: List::default() }
}
