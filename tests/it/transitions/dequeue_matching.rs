use std::sync::Arc;

use bytes::Bytes;
use queue_core::RawTask;
use queue_redis::broker::Matched::{self, Gone, Left, Taken};
use queue_redis::broker::{Dequeued, Matching};

use crate::support::{Fixture, NOW, NOW_NS, QUEUE, is_wrong_type, job};

fn of(task_type: &str, id: &str) -> RawTask {
    RawTask { task_type: task_type.to_owned(), ..job(id) }
}

fn matching(types: &[&str], prefixes: &[&str]) -> Matching {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Matching { types: owned(types), prefixes: owned(prefixes), ..Matching::default() }
}

/// The ids of all tasks that wait, oldest first.
async fn all(fixture: &Fixture) -> Vec<Bytes> {
    let mut ids = fixture.broker.waiting(QUEUE, &[(0, -1)]).await.unwrap().ids.remove(0);
    ids.reverse();
    ids
}

/// The ids of a take, and what became of those that were looked at: of all, where none are named.
async fn dequeue(fixture: &Fixture, count: usize, matching: &Matching) -> (Vec<String>, Vec<Matched>) {
    let token: Arc<str> = "run".into();
    let mut matching = matching.clone();
    if matching.ids.is_empty() {
        matching.ids = all(fixture).await;
    }
    let reply = fixture.broker.dequeue_matching(&QUEUE.into(), count, &token, NOW + 30, &matching).await.unwrap();
    let (Dequeued::Tasks(tasks), matched) = reply else { panic!("the queue is paused") };
    let ids = tasks.into_iter().map(|taken| match taken {
        queue_redis::broker::Taken::Task(delivery) => delivery.message.id,
        other => panic!("took {other:?}"),
    });
    (ids.collect(), matched)
}

#[tokio::test]
async fn dequeue_matching_takes_its_types_and_leaves_the_rest_in_order() {
    let fixture = Fixture::start().await;
    let types =
        [("mail:send", "a"), ("other", "b"), ("image:crop", "c"), ("mail:sends", "d"), ("imag", "e"), ("image:", "f")];
    fixture.put(types.map(|(task_type, id)| of(task_type, id))).await;
    let before = fixture.keyspace().await;
    let taken = dequeue(&fixture, 100, &matching(&["mail:send"], &["image:"])).await;
    let matched = [Taken, Left, Taken, Left, Left, Taken];
    assert_eq!(taken, (vec!["a".to_owned(), "c".to_owned(), "f".to_owned()], matched.to_vec()));
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:active: [f c a]
         + {q}:lease a: score 4000000030
         + {q}:lease c: score 4000000030
         + {q}:lease f: score 4000000030
         - {q}:pending: [f e d c b a]
         + {q}:pending: [e d b]
         + {q}:t:a owner: run
         - {q}:t:a pending_since: 4000000000000000000
         - {q}:t:a state: pending
         + {q}:t:a state: active
         + {q}:t:c owner: run
         - {q}:t:c pending_since: 4000000000000000000
         - {q}:t:c state: pending
         + {q}:t:c state: active
         + {q}:t:f owner: run
         - {q}:t:f pending_since: 4000000000000000000
         - {q}:t:f state: pending
         + {q}:t:f state: active",
    );
}

#[tokio::test]
async fn dequeue_matching_takes_no_more_than_asked() {
    let fixture = Fixture::start().await;
    fixture.put(["a", "b", "c"].map(job)).await;
    let wanted = matching(&["job"], &[]);
    assert_eq!(dequeue(&fixture, 2, &wanted).await.0, ["a", "b"]);
    assert_eq!(dequeue(&fixture, 2, &wanted).await.0, ["c"]);
    assert_eq!(dequeue(&fixture, 2, &wanted).await, (vec![], vec![]));
}

#[tokio::test]
async fn dequeue_matching_looks_at_the_tasks_it_is_told_of_until_it_has_enough() {
    let fixture = Fixture::start().await;
    fixture.put(["a", "b", "c", "d", "e"].map(|id| of(if id == "d" { "wanted" } else { "other" }, id))).await;
    let named = |ids: &[&str]| Matching {
        ids: ids.iter().map(|id| Bytes::copy_from_slice(id.as_bytes())).collect(),
        ..matching(&["wanted"], &[])
    };
    let before = fixture.keyspace().await;
    assert_eq!(dequeue(&fixture, 1, &named(&["a", "b"])).await, (vec![], vec![Left, Left]));
    fixture.keyspace().await.assert_unchanged_since(&before);
    let young = Matching { are_young: true, ..named(&["c", "d", "e"]) };
    assert_eq!(dequeue(&fixture, 1, &young).await, (vec!["d".to_owned()], vec![Left, Taken]), "e is left for the next");
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:active: [d]
         + {q}:lease d: score 4000000030
         - {q}:pending: [e d c b a]
         + {q}:pending: [e c b a]
         + {q}:t:d owner: run
         - {q}:t:d pending_since: 4000000000000000000
         - {q}:t:d state: pending
         + {q}:t:d state: active",
    );
}

/// Between the look at the list and the take somebody else may have been there.
#[tokio::test]
async fn dequeue_matching_takes_nothing_that_is_not_in_the_list_any_more() {
    let fixture = Fixture::start().await;
    fixture.put(["a", "b", "c"].map(job)).await;
    let wanted = Matching { ids: all(&fixture).await, ..matching(&["job"], &[]) };
    assert_eq!(dequeue(&fixture, 2, &wanted).await.0, ["a", "b"]);
    fixture.run("DEL asynq:{q}:t:a").await;
    let before = fixture.keyspace().await;
    for are_young in [false, true] {
        let late = Matching { ids: wanted.ids[..2].to_vec(), are_young, ..wanted.clone() };
        assert_eq!(dequeue(&fixture, 9, &late).await, (vec![], vec![Gone, Gone]));
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
    assert_eq!(dequeue(&fixture, 9, &wanted).await, (vec!["c".to_owned()], vec![Gone, Gone, Taken]));
}

#[tokio::test]
async fn types_of_any_length_are_told_apart() {
    let fixture = Fixture::start().await;
    let long = "t".repeat(20_000);
    for (task_type, id) in [(&long[1..], "shorter"), (&long, "long"), ("я", "я")] {
        // Our clients refuse such types; Go's do not.
        let mut task = fixture.compose(of("t", id));
        task.message.r#type = task_type.to_owned();
        fixture.broker.enqueue(QUEUE, &[task], NOW_NS).await.unwrap();
    }
    assert_eq!(dequeue(&fixture, 9, &matching(&[&long], &[])).await.0, ["long"]);
    assert_eq!(dequeue(&fixture, 9, &matching(&["я"], &[&long])).await.0, ["я"]);
    assert_eq!(dequeue(&fixture, 9, &matching(&[], &["t"])).await.0, ["shorter"]);
}

#[tokio::test]
async fn dequeue_matching_skips_a_paused_queue() {
    let fixture = Fixture::start().await;
    fixture.put([job("a")]).await;
    fixture.run("SET asynq:{q}:paused 1").await;
    let before = fixture.keyspace().await;
    let wanted = Matching { ids: all(&fixture).await, ..matching(&["job"], &[]) };
    let reply = fixture.broker.dequeue_matching(&QUEUE.into(), 1, &"run".into(), NOW + 30, &wanted).await.unwrap();
    assert!(matches!(reply, (Dequeued::Paused, _)));
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn dequeue_matching_leaves_what_has_no_readable_type() {
    let fixture = Fixture::start().await;
    fixture.run("LPUSH asynq:{q}:pending ghost torn stray").await;
    fixture.run("HSET asynq:{q}:t:torn msg \n\u{7f}other").await;
    fixture.run("SET asynq:{q}:t:stray 1").await;
    let before = fixture.keyspace().await;
    assert_eq!(dequeue(&fixture, 9, &matching(&["job"], &["j"])).await, (vec![], vec![Left, Left, Left]));
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn dequeue_matching_fails_where_a_key_has_another_type_and_changes_nothing() {
    let fixture = Fixture::start().await;
    fixture.put([job("a")]).await;
    let before = fixture.keyspace().await;
    let wanted = Matching { ids: all(&fixture).await, ..matching(&["job"], &[]) };
    for key in ["pending", "active", "lease"] {
        let dequeue =
            async || fixture.broker.dequeue_matching(&QUEUE.into(), 1, &"run".into(), NOW + 30, &wanted).await;
        let error = fixture.with_stray(&format!("asynq:{{q}}:{key}"), dequeue).await.unwrap_err();
        assert!(is_wrong_type(&error), "{key}: {error}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn dequeue_matching_says_since_when_tasks_were_pending_if_asked() {
    let fixture = Fixture::start().await;
    fixture.put([of("mail:send", "a"), of("other", "b"), of("image:crop", "c")]).await;
    let timed = fixture.broker.clone().timed(true);
    let wanted = Matching { ids: all(&fixture).await, ..matching(&["mail:send"], &["image:"]) };
    let reply = timed.dequeue_matching(&QUEUE.into(), 9, &"run".into(), NOW + 30, &wanted).await.unwrap();
    let (Dequeued::Tasks(tasks), _) = reply else { panic!("{reply:?}") };
    let since = tasks.into_iter().map(|taken| match taken {
        queue_redis::broker::Taken::Task(delivery) => (delivery.message.id, delivery.pending_since_ns),
        other => panic!("took {other:?}"),
    });
    assert_eq!(since.collect::<Vec<_>>(), ["a", "c"].map(|id| (id.to_owned(), Some(NOW_NS))));
}
