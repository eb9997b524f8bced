//! Lists read page by page, and the audit.

use std::collections::BTreeSet;

use queue_admin::{
    Actor, Admin, Cursor, Direction, Error, Filter, Inspector, Listing, Outcome, Permission, Role, Verb,
};
use queue_core::TaskState;

use super::{at, start};
use crate::support::{Fixture, NOW, QUEUE, job};

const NO_LIMIT: usize = usize::MAX;

async fn page(
    inspector: &Inspector,
    filter: &Filter,
    direction: Direction,
    cursor: Option<&Cursor>,
    limit: usize,
) -> Listing {
    // As a user sends it.
    let cursor = cursor.map(|cursor| cursor.to_string().parse().unwrap());
    inspector.list(QUEUE, filter, direction, cursor.as_ref(), limit, NO_LIMIT).await.unwrap()
}

fn ids(listing: &Listing) -> Vec<String> {
    listing.tasks.iter().map(|task| task.id.clone()).collect()
}

/// All pages of five, with something done after each.
async fn walk(
    fixture: &Fixture,
    inspector: &Inspector,
    state: TaskState,
    direction: Direction,
    change: impl AsyncFn(&Fixture, usize),
) -> (Vec<String>, bool) {
    let (filter, mut all, mut cursor, mut moved) = (Filter::new().state(state), Vec::new(), None, false);
    for n in 0.. {
        let listing = page(inspector, &filter, direction, cursor.as_ref(), 5).await;
        moved |= listing.moved;
        all.extend(ids(&listing));
        cursor = listing.next;
        if cursor.is_none() {
            return (all, moved);
        }
        change(fixture, n).await;
    }
    unreachable!("the list ends")
}

async fn forty(fixture: &Fixture, state: TaskState) -> Vec<String> {
    for n in 0..40 {
        fixture.put_in(state, job(&format!("t{n:02}"))).await;
        // Times of their own, so that the order is known.
        if let TaskState::Scheduled | TaskState::Retry | TaskState::Archived | TaskState::Completed = state {
            fixture.run(&format!("ZADD asynq:{{{QUEUE}}}:{state} {} t{n:02}", NOW + n)).await;
        }
    }
    (0..40).map(|n| format!("t{n:02}")).collect()
}

#[tokio::test]
async fn pages_follow_each_other_without_gap_or_repetition_in_both_directions() {
    for state in [
        TaskState::Pending,
        TaskState::Scheduled,
        TaskState::Retry,
        TaskState::Archived,
        TaskState::Completed,
        TaskState::Aggregating,
    ] {
        let (fixture, inspector) = start().await;
        let mut expected = forty(&fixture, state).await;
        for direction in [Direction::Oldest, Direction::Newest] {
            let (all, moved) = walk(&fixture, &inspector, state, direction, async |_, _| {}).await;
            let unordered = |ids: &[String]| ids.iter().cloned().collect::<BTreeSet<_>>();
            if state == TaskState::Aggregating {
                assert_eq!((all.len(), unordered(&all)), (40, unordered(&expected)));
            } else {
                assert_eq!(all, expected, "{state} {direction:?}");
            }
            assert!(!moved);
            expected.reverse();
        }
    }
}

#[tokio::test]
async fn tasks_that_stay_are_neither_missed_nor_repeated_while_others_come_and_go() {
    for state in [TaskState::Pending, TaskState::Scheduled] {
        for direction in [Direction::Oldest, Direction::Newest] {
            let (fixture, inspector) = start().await;
            let all = forty(&fixture, state).await;
            // After each page, one that was given goes, and one comes at either end.
            let change = async |fixture: &Fixture, n: usize| {
                let gone = if direction == Direction::Oldest { n } else { 39 - n };
                let key = format!("asynq:{{{QUEUE}}}:{state}");
                if state == TaskState::Pending {
                    fixture.run(&format!("LREM {key} 0 t{gone:02}")).await;
                    fixture.put([job(&format!("new{n}"))]).await;
                } else {
                    fixture.run(&format!("ZREM {key} t{gone:02}")).await;
                    fixture.run(&format!("ZADD {key} {} low{n} {} high{n}", NOW - 50, NOW + 500)).await;
                }
            };
            let (seen, moved) = walk(&fixture, &inspector, state, direction, change).await;
            let old: Vec<&String> = seen.iter().filter(|id| id.starts_with('t')).collect();
            let mut expected: Vec<&String> = all.iter().collect();
            if direction == Direction::Newest {
                expected.reverse();
            }
            assert_eq!(old, expected, "{state} {direction:?}");
            assert!(!moved);
        }
    }
}

#[tokio::test]
async fn a_list_whose_last_ids_are_gone_says_that_it_has_moved() {
    let (fixture, inspector) = start().await;
    forty(&fixture, TaskState::Pending).await;
    let filter = Filter::new().state(TaskState::Pending);
    let first = page(&inspector, &filter, Direction::Oldest, None, 5).await;
    fixture.dequeue(10).await;
    assert!(page(&inspector, &filter, Direction::Oldest, first.next.as_ref(), 5).await.moved);
}

#[tokio::test]
async fn a_search_tells_how_much_it_looked_at_and_goes_on_there() {
    let (fixture, inspector) = start().await;
    fixture.put((0..450).map(|n| job(&format!("t{n}")).payload(format!(r#"{{"odd":{}}}"#, n % 150 == 149)))).await;
    let filter: Filter = "state:pending payload.odd:true".parse().unwrap();
    let first = inspector.list(QUEUE, &filter, Direction::Oldest, None, 50, 100).await.unwrap();
    assert_eq!(
        (ids(&first).len(), first.searched.looked_at, first.searched.of, first.searched.complete),
        (0, 100, 450, false)
    );
    let second = inspector.list(QUEUE, &filter, Direction::Oldest, first.next.as_ref(), 1, NO_LIMIT).await.unwrap();
    assert_eq!((ids(&second), second.searched.complete), (vec!["t149".to_owned()], false));
    let rest = inspector.list(QUEUE, &filter, Direction::Oldest, second.next.as_ref(), 50, NO_LIMIT).await.unwrap();
    assert_eq!(
        (ids(&rest), rest.searched.looked_at, rest.searched.complete),
        (vec!["t299".into(), "t449".into()], 450, true)
    );
    assert!(rest.next.is_none());
    // A cursor belongs to its list.
    let other = inspector.list(QUEUE, &Filter::new(), Direction::Oldest, first.next.as_ref(), 5, 5).await;
    assert!(matches!(other, Err(Error::BadCursor(_))));
}

#[tokio::test]
async fn a_message_that_cannot_be_read_costs_no_page() {
    let (fixture, inspector) = start().await;
    fixture.put([job("good"), job("bad"), job("better")]).await;
    fixture.run(&format!("HSET asynq:{{{QUEUE}}}:t:bad msg nonsense")).await;
    let listing = page(&inspector, &Filter::new(), Direction::Oldest, None, 50).await;
    assert_eq!((ids(&listing), listing.unread), (vec!["good".to_owned(), "better".to_owned()], vec!["bad".to_owned()]));
}

fn admin(inspector: &Inspector, role: Role) -> Admin {
    Admin::new(
        inspector.clone(),
        Actor { name: "ada".to_owned(), role, via: "web", address: Some("10.0.0.1".to_owned()) },
    )
}

#[tokio::test]
async fn what_is_done_is_written_down_with_its_outcome() {
    let (fixture, inspector) = start().await;
    fixture.put([job("a"), job("b")]).await;
    let ada = admin(&inspector, Role::Admin);
    ada.pause(QUEUE, true).await.unwrap();
    ada.change_task(Verb::Archive, QUEUE, "a").await.unwrap();
    assert!(matches!(ada.change_task(Verb::Run, QUEUE, "nobody").await, Err(Error::TaskNotFound { .. })));
    ada.change_all(Verb::Delete, QUEUE, &"state:pending type:j*".parse().unwrap(), |_| {}).await.unwrap();
    let all = inspector.audit(None, 10).await.unwrap();
    assert!(all.next.is_none());
    let told: Vec<_> = all.entries.iter().map(|entry| (entry.action.as_str(), entry.outcome, entry.changed)).collect();
    let expected = [
        ("tasks.delete", Outcome::Done, Some(1)),
        ("task.run", Outcome::Failed, None),
        ("task.archive", Outcome::Done, Some(1)),
        ("queue.pause", Outcome::Done, Some(1)),
    ];
    assert_eq!(told, expected);
    assert_eq!(all.entries[0].filter.as_deref(), Some("state:pending type:j*"));
    assert!(all.entries[1].error.as_deref().unwrap().contains("not found"));
    let archived = &all.entries[2];
    assert_eq!((archived.actor.as_str(), archived.role.as_str(), archived.via.as_str()), ("ada", "admin", "web"));
    assert_eq!((archived.queue.as_deref(), &archived.ids[..]), (Some(QUEUE), &["a".to_owned()][..]));
    // Page by page it is the same.
    let (mut cursor, mut paged) = (None, Vec::new());
    loop {
        let page = inspector.audit(cursor.as_deref(), 1).await.unwrap();
        paged.extend(page.entries);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(paged, all.entries);
    assert!(inspector.audit(Some("x"), 1).await.is_err());
}

#[tokio::test]
async fn what_the_role_does_not_allow_or_nobody_can_write_down_is_not_done() {
    let (fixture, inspector) = start().await;
    fixture.put([job("a")]).await;
    let before = fixture.keyspace().await;
    for (role, verb, permission) in
        [(Role::Viewer, Verb::Run, Permission::Run), (Role::Operator, Verb::Delete, Permission::Delete)]
    {
        let refused = admin(&inspector, role).change_task(verb, QUEUE, "a").await.unwrap_err();
        assert!(matches!(refused, Error::Forbidden { permission: needed } if needed == permission), "{refused}");
    }
    fixture.keyspace().await.assert_unchanged_since(&before);
    fixture.run("SET asynq:x:audit text").await;
    let before = fixture.keyspace().await;
    let refused = admin(&inspector, Role::Admin).change_task(Verb::Archive, QUEUE, "a").await.unwrap_err();
    assert!(matches!(refused, Error::Unaudited(_)), "{refused}");
    fixture.keyspace().await.assert_unchanged_since(&before);
}

/// Else a Redis that is full could not be emptied.
#[tokio::test]
async fn a_full_redis_can_be_emptied_though_the_audit_cannot_be_written() {
    let (fixture, inspector) = start().await;
    fixture.put([job("a"), job("b")]).await;
    fixture.run("CONFIG SET maxmemory 1").await;
    let ada = admin(&inspector, Role::Admin);
    assert!(matches!(ada.change_task(Verb::Archive, QUEUE, "a").await, Err(Error::Unaudited(_))));
    ada.change_task(Verb::Delete, QUEUE, "a").await.unwrap();
    fixture.run("CONFIG SET maxmemory 0").await;
    assert_eq!(ids(&page(&inspector, &Filter::new(), Direction::Oldest, None, 5).await), ["b"]);
}

#[tokio::test]
async fn a_payload_is_replaced_only_in_the_version_that_was_seen() {
    let (fixture, _) = start().await;
    let inspector = at(&fixture, NOW);
    fixture.put([job("a")]).await;
    let seen = inspector.task_version(QUEUE, "a").await.unwrap();
    let ada = admin(&inspector, Role::Admin);
    ada.update_payload(QUEUE, "a", "one", Some(&seen)).await.unwrap();
    let late = ada.update_payload(QUEUE, "a", "two", Some(&seen)).await.unwrap_err();
    assert!(matches!(late, Error::VersionChanged { .. }), "{late}");
    assert_eq!(inspector.task(QUEUE, "a").await.unwrap().payload, "one");
    assert_ne!(inspector.task_version(QUEUE, "a").await.unwrap(), seen);
}
