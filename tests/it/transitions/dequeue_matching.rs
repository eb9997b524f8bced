use std::sync::Arc;

use queue_core::RawTask;
use queue_redis::{Dequeued, Matching, Taken};

use crate::support::{Fixture, NOW, NOW_NS, QUEUE, is_wrong_type, job};

fn of(kind: &str, id: &str) -> RawTask {
    RawTask { kind: kind.to_owned(), ..job(id) }
}

fn matching(kinds: &[&str], prefixes: &[&str]) -> Matching {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Matching { kinds: owned(kinds), prefixes: owned(prefixes), skip: 0, window: 100 }
}

/// The ids of a take, and how many were looked at.
async fn dequeue(fixture: &Fixture, count: usize, matching: &Matching) -> (Vec<String>, usize) {
    let token: Arc<str> = "run".into();
    let reply = fixture.broker.dequeue_matching(&QUEUE.into(), count, &token, NOW + 30, matching).await.unwrap();
    let (Dequeued::Tasks(tasks), seen) = reply else { panic!("the queue is paused") };
    let ids = tasks.into_iter().map(|taken| match taken {
        Taken::Task(delivery) => delivery.message.id,
        other => panic!("took {other:?}"),
    });
    (ids.collect(), seen)
}

#[tokio::test]
async fn dequeue_matching_takes_its_types_and_leaves_the_rest_in_order() {
    let fixture = Fixture::start().await;
    let kinds =
        [("mail:send", "a"), ("other", "b"), ("image:crop", "c"), ("mail:sends", "d"), ("imag", "e"), ("image:", "f")];
    fixture.put(kinds.map(|(kind, id)| of(kind, id))).await;
    let before = fixture.keyspace().await;
    let taken = dequeue(&fixture, 100, &matching(&["mail:send"], &["image:"])).await;
    assert_eq!(taken, (vec!["a".to_owned(), "c".to_owned(), "f".to_owned()], 6));
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
    assert_eq!(dequeue(&fixture, 2, &wanted).await, (vec![], 0));
}

#[tokio::test]
async fn dequeue_matching_looks_at_a_window_of_the_list() {
    let fixture = Fixture::start().await;
    fixture.put(["a", "b", "c", "d", "e"].map(|id| of(if id == "d" { "wanted" } else { "other" }, id))).await;
    let mut wanted = Matching { window: 2, ..matching(&["wanted"], &[]) };
    let before = fixture.keyspace().await;
    assert_eq!(dequeue(&fixture, 1, &wanted).await, (vec![], 2));
    fixture.keyspace().await.assert_unchanged_since(&before);
    wanted.skip = 4;
    assert_eq!(dequeue(&fixture, 1, &wanted).await, (vec![], 1), "e alone is left to look at");
    wanted.skip = 5;
    assert_eq!(dequeue(&fixture, 1, &wanted).await, (vec![], 0));
    wanted.skip = 2;
    assert_eq!(dequeue(&fixture, 1, &wanted).await, (vec!["d".to_owned()], 2));
}

#[tokio::test]
async fn types_of_any_length_are_told_apart() {
    let fixture = Fixture::start().await;
    let long = "t".repeat(20_000);
    for (kind, id) in [(&long[1..], "shorter"), (&long, "long"), ("я", "я")] {
        // Our clients refuse such types; Go's do not.
        let mut task = fixture.compose(of("t", id));
        task.message.r#type = kind.to_owned();
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
    let wanted = matching(&["job"], &[]);
    let reply = fixture.broker.dequeue_matching(&QUEUE.into(), 1, &"run".into(), NOW + 30, &wanted).await.unwrap();
    assert!(matches!(reply, (Dequeued::Paused, 0)));
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn dequeue_matching_leaves_what_has_no_readable_type() {
    let fixture = Fixture::start().await;
    fixture.run("LPUSH asynq:{q}:pending ghost torn stray").await;
    fixture.run("HSET asynq:{q}:t:torn msg \n\u{7f}other").await;
    fixture.run("SET asynq:{q}:t:stray 1").await;
    let before = fixture.keyspace().await;
    assert_eq!(dequeue(&fixture, 9, &matching(&["job"], &["j"])).await, (vec![], 3));
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn dequeue_matching_fails_where_a_key_has_another_type_and_changes_nothing() {
    let fixture = Fixture::start().await;
    fixture.put([job("a")]).await;
    let before = fixture.keyspace().await;
    let wanted = matching(&["job"], &[]);
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
    let wanted = matching(&["mail:send"], &["image:"]);
    let reply = timed.dequeue_matching(&QUEUE.into(), 9, &"run".into(), NOW + 30, &wanted).await.unwrap();
    let (Dequeued::Tasks(tasks), 3) = reply else { panic!("{reply:?}") };
    let since = tasks.into_iter().map(|taken| match taken {
        Taken::Task(delivery) => (delivery.message.id, delivery.pending_since_ns),
        other => panic!("took {other:?}"),
    });
    assert_eq!(since.collect::<Vec<_>>(), ["a", "c"].map(|id| (id.to_owned(), Some(NOW_NS))));
}
