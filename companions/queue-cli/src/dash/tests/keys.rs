//! What keys do.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use queue_core::TaskState;

use super::given::{
    alone, answer, batch, dashboard, entry, group, keys, mail, ours, picture, queue, retries, task, tasks,
};
use crate::dash::action::{Action, BatchVerb, CronVerb, QueueVerb, Verb};
use crate::dash::hear::hear;
use crate::dash::model::{Answer, Model, Overlay};
use crate::dash::screen::{CronRow, Found, Screen, Wanted};
use crate::dash::update::{Effect, paste, press, resize};

fn selected(model: &Model) -> String {
    let line = picture(model).into_iter().find(|line| line.starts_with('>'));
    line.unwrap_or_default().trim_start_matches('>').split(' ').next().unwrap_or_default().to_owned()
}

fn on_task(verb: Verb, id: &str) -> Effect {
    Effect::Act(Action::Task { verb, queue: "mail".to_owned(), id: id.to_owned() })
}

#[test]
fn nothing_is_changed_before_a_yes() {
    let mut model = retries(&["a", "b"]);
    for no in ["n", "q", "⎋", "⏎⎋", "dn", "xn"] {
        keys(&mut model, "d");
        assert!(matches!(model.overlay, Some(Overlay::Confirm(_))));
        assert_eq!(keys(&mut model, no), None, "{no}");
        assert_eq!((&model.overlay, selected(&model).as_str()), (&None, "a"), "{no}");
    }
    for (key, verb) in [("r", Verb::Run), ("a", Verb::Archive), ("d", Verb::Delete)] {
        assert_eq!(keys(&mut model, &format!("{key}y")), Some(on_task(verb, "a")));
    }
}

#[test]
fn the_question_is_about_the_task_that_was_selected_when_it_was_asked() {
    let mut model = retries(&["a", "b"]);
    keys(&mut model, "d");
    answer(&mut model, tasks(&["b", "c"], TaskState::Retry));
    assert_eq!(keys(&mut model, "y"), Some(on_task(Verb::Delete, "a")));
}

#[test]
fn a_queue_is_stopped_and_started() {
    let mut model = dashboard();
    let act = |verb| Some(Effect::Act(Action::Queue(verb, "mail".to_owned())));
    assert_eq!(keys(&mut model, "sy"), None);
    answer(&mut model, Found::Queues(vec![mail()]));
    assert_eq!(keys(&mut model, "sy"), act(QueueVerb::Pause));
    assert_eq!(keys(&mut model, "dy"), act(QueueVerb::Remove));
    let mut paused = mail();
    paused.info.paused = true;
    answer(&mut model, Found::Queues(vec![paused]));
    assert_eq!(keys(&mut model, "sy"), act(QueueVerb::Resume));
    assert_eq!(keys(&mut model, "⏎sy"), act(QueueVerb::Resume));
}

#[test]
fn all_tasks_of_a_tab_or_of_a_group_are_changed_by_capital_letters() {
    let all = |verb, state, group: Option<&str>, count| {
        let group = group.map(str::to_owned);
        Some(Effect::Act(Action::All { verb, queue: "mail".to_owned(), state, group, count }))
    };
    let mut model = retries(&["a"]);
    assert_eq!(keys(&mut model, "Rn"), None);
    assert_eq!(keys(&mut model, "Ry"), all(Verb::Run, TaskState::Retry, None, 30));
    assert_eq!(keys(&mut model, "Cy"), None);
    keys(&mut model, "/a⏎D");
    assert!(model.overlay.is_none() && picture(&model)[23].contains("a filter hides some"));
    keys(&mut model, "⎋hh");
    let groups = || Found::Groups(mail(), vec![group("g", 7)]);
    answer(&mut model, groups());
    assert_eq!(keys(&mut model, "Dy"), all(Verb::Delete, TaskState::Aggregating, Some("g"), 7));
    keys(&mut model, "⏎");
    assert_eq!(keys(&mut model, "Ay"), all(Verb::Archive, TaskState::Aggregating, Some("g"), 7));
    keys(&mut model, "D");
    let lines = picture(&model).join("\n");
    assert!(
        lines.contains("Delete ALL aggregating tasks of mail in the group g?") && lines.contains(" 7 tasks "),
        "{lines}"
    );
}

#[test]
fn entries_of_ours_are_stopped_started_and_run_and_those_of_go_left_alone() {
    let act = |verb| Some(Effect::Act(Action::Cron(verb, "nightly".to_owned())));
    let mut model = dashboard();
    keys(&mut model, "3");
    answer(&mut model, Found::Cron(vec![ours(entry())]));
    assert_eq!(keys(&mut model, "sy"), act(CronVerb::Pause));
    assert_eq!(keys(&mut model, "ry"), act(CronVerb::Run));
    answer(&mut model, Found::Cron(vec![CronRow { paused: true, ..ours(entry()) }]));
    assert!(picture(&model)[3].contains("PAUSED"));
    assert_eq!(keys(&mut model, "sy"), act(CronVerb::Resume));
    answer(&mut model, Found::Cron(vec![CronRow { ours: false, ..ours(entry()) }]));
    assert_eq!(keys(&mut model, "sy"), None);
    keys(&mut model, "r");
    assert!(picture(&model)[23].contains("of a Go scheduler"));
}

#[test]
fn a_batch_is_cancelled_and_what_is_dead_of_it_run_again() {
    let act = |verb| Some(Effect::Act(Action::Batch(verb, "release".parse().unwrap())));
    let mut model = dashboard();
    keys(&mut model, "4");
    assert!(matches!(model.wanted(), Wanted::Batches { skip: 0, .. }));
    answer(&mut model, Found::Batches(vec![batch("release"), batch("no name of ours")]));
    assert_eq!(keys(&mut model, "cy"), act(BatchVerb::Cancel));
    assert_eq!((keys(&mut model, "dy"), keys(&mut model, "ay")), (None, None));
    keys(&mut model, "r");
    assert!(picture(&model).join("\n").contains("Retry the dead members of this batch?"));
    assert_eq!(keys(&mut model, "y"), act(BatchVerb::Retry));
    keys(&mut model, "⏎");
    assert_eq!(model.wanted(), Wanted::Batch { id: "release".parse().unwrap() });
    assert_eq!(keys(&mut model, "cy"), act(BatchVerb::Cancel));
    keys(&mut model, "q");
    assert_eq!((keys(&mut model, "jcy"), keys(&mut model, "⏎")), (None, None), "an id that cannot be is of no batch");
    assert!(matches!(model.screen(), Screen::Batches { .. }));
}

#[test]
fn dash_refuses_what_a_state_does_not_allow() {
    let mut model = retries(&["a"]);
    assert_eq!(keys(&mut model, "cy"), None);
    assert!(picture(&model)[23].contains("? help"), "y is no key of its own");
    keys(&mut model, "c");
    assert!(picture(&model)[23].contains("only a task that is active can be cancelled"));
    answer(&mut model, Found::Tasks { row: mail(), tasks: vec![task("a", TaskState::Active)], searched: None });
    keys(&mut model, "d");
    assert!(model.overlay.is_none() && picture(&model)[23].contains("can only be cancelled"));
    assert_eq!(keys(&mut model, "cy"), Some(on_task(Verb::Cancel, "a")));
    assert_eq!(keys(&mut model, "iy"), Some(on_task(Verb::Interrupt, "a")));
}

#[test]
fn read_only_refuses_every_change() {
    for key in ["r", "a", "d", "s", "R", "A", "D"] {
        let mut model = retries(&["a"]);
        model.read_only = true;
        assert_eq!(keys(&mut model, &format!("{key}y")), None);
        keys(&mut model, key);
        assert!(model.overlay.is_none() && picture(&model)[23].contains("read-only"), "{key}");
        assert!(picture(&model)[0].contains("read-only"));
    }
}

#[test]
fn the_selection_stays_on_its_task_while_tasks_move() {
    let mut model = retries(&["a", "b", "c"]);
    keys(&mut model, "j");
    answer(&mut model, tasks(&["x", "y", "a", "b"], TaskState::Retry));
    assert_eq!(selected(&model), "b");
}

#[test]
fn pages_are_turned_as_far_as_there_are_tasks() {
    let mut model = retries(&["a"]);
    let skipped = |model: &Model| match model.wanted() {
        Wanted::Tasks { skip, size, .. } => (skip, size),
        other => panic!("{other:?}"),
    };
    assert_eq!(skipped(&model), (0, 16));
    keys(&mut model, "p");
    assert_eq!(skipped(&model), (0, 16));
    keys(&mut model, "n");
    assert_eq!((skipped(&model), picture(&model)[7].as_str()), ((16, 16), " reading …"));
    answer(&mut model, tasks(&["p"], TaskState::Retry));
    assert_eq!(picture(&model)[5], " retry 17-17 of 30");
    keys(&mut model, "n");
    assert_eq!(skipped(&model), (16, 16), "there are 30");
    // What was on this page is gone meanwhile, and most of what was before it.
    let mut row = mail();
    row.info.retry = 3;
    answer(&mut model, Found::Tasks { row, tasks: vec![], searched: None });
    assert_eq!(skipped(&model), (0, 16));
}

#[test]
fn an_answer_to_an_earlier_question_is_not_shown() {
    let mut model = retries(&["a"]);
    let old = model.wanted();
    keys(&mut model, "l");
    let found = Box::new(Ok(tasks(&["old"], TaskState::Retry)));
    let at = model.now;
    hear(&mut model, Answer::Read { wanted: old, found, at });
    assert!(!picture(&model).join("").contains("old"));
}

#[test]
fn a_filter_is_typed_kept_and_taken_back() {
    let mut model = dashboard();
    answer(&mut model, Found::Queues(vec![mail(), queue("media"), queue("low")]));
    keys(&mut model, "/Mq");
    assert!(picture(&model)[23].starts_with(" /Mq"), "a q is a letter here");
    keys(&mut model, "⌫⏎");
    assert_eq!(picture(&model)[1], " 2 of 3 queues  filter: M");
    keys(&mut model, "j");
    assert_eq!(selected(&model), "media");
    keys(&mut model, "⎋");
    assert_eq!((picture(&model)[1].as_str(), selected(&model).as_str()), (" 3 queues", "media"));
    assert!(!model.over);
    keys(&mut model, "/low⎋");
    assert_eq!(picture(&model)[1], " 3 queues");
}

#[test]
fn a_filter_of_tasks_is_for_redis_and_begins_at_the_first_page() {
    let mut model = retries(&["a"]);
    keys(&mut model, "n/USER");
    let Wanted::Tasks { filter, skip, .. } = model.wanted() else { panic!() };
    assert_eq!((filter.as_str(), skip), ("user", 0));
    let found =
        Found::Tasks { row: mail(), tasks: vec![task("hit", TaskState::Retry)], searched: Some((1_000, false)) };
    answer(&mut model, found);
    keys(&mut model, "⏎");
    assert_eq!(picture(&model)[5], " 1 matching, of the first 1000 tasks");
    keys(&mut model, "l");
    assert!(matches!(model.wanted(), Wanted::Tasks { filter, .. } if filter.is_empty()));
}

#[test]
fn pasted_text_is_never_a_command() {
    let mut model = retries(&["a"]);
    paste(&mut model, "dy");
    assert_eq!((&model.overlay, model.screen().filter()), (&None, ""));
    keys(&mut model, "/");
    paste(&mut model, "dy\n\u{1b}");
    assert_eq!(model.screen().filter(), "dy");
}

#[test]
fn esc_and_q_go_back_and_quit_from_the_queues() {
    let mut model = retries(&["a"]);
    keys(&mut model, "⏎");
    assert!(matches!(model.screen(), Screen::Task(_)));
    keys(&mut model, "⎋");
    assert!(matches!(model.screen(), Screen::Queue(_)));
    keys(&mut model, "q");
    assert!(matches!(model.screen(), Screen::Queues(_)) && !model.over);
    keys(&mut model, "2q");
    assert!(matches!(model.screen(), Screen::Queues(_)) && !model.over);
    keys(&mut model, "q");
    assert!(model.over);
}

#[test]
fn control_c_quits_from_everywhere_and_control_l_draws_anew() {
    let control = |key| KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL);
    for before in ["", "?", "/abc", "d", "⏎"] {
        let mut model = retries(&["a"]);
        keys(&mut model, before);
        assert_eq!(press(&mut model, control('l')), Some(Effect::Redraw));
        assert_eq!((press(&mut model, control('d')), model.over), (None, false));
        press(&mut model, control('c'));
        assert!(model.over, "{before}");
    }
}

#[test]
fn a_long_list_scrolls_and_follows_a_resize() {
    let mut model = dashboard();
    let names: Vec<String> = (0..100).map(|n| format!("q{n:03}")).collect();
    answer(&mut model, Found::Queues(names.iter().map(|name| queue(name)).collect()));
    keys(&mut model, "G");
    assert_eq!((selected(&model).as_str(), picture(&model)[16].as_str().get(1..5)), ("q099", Some("q099")));
    resize(&mut model, (80, 12));
    assert_eq!(selected(&model), "q099");
    keys(&mut model, "g");
    resize(&mut model, (200, 50));
    assert_eq!(selected(&model), "q000");
}

#[test]
fn a_long_task_scrolls_to_its_end_and_no_further() {
    let mut model = retries(&["a"]);
    keys(&mut model, "⏎");
    let mut long = task("a", TaskState::Retry);
    long.payload = format!("[{}0]", "0,".repeat(100)).into();
    answer(&mut model, alone(long));
    keys(&mut model, "Gjjj");
    assert_eq!(picture(&model)[22], " ]");
    keys(&mut model, "n");
    assert_eq!(picture(&model)[22], " ]");
    keys(&mut model, "g");
    assert!(picture(&model)[2].starts_with(" ID"));
}
