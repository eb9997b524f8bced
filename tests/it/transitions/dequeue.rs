use std::sync::Arc;

use queue_redis::broker::{Broker, Dequeued, MAX_BATCH, PoisonReason, Taken};

use crate::support::{Fixture, NOW, NOW_NS, QUEUE, is_wrong_type, job};

/// The ids of a take; a ghost is marked.
fn ids(dequeued: Dequeued) -> Vec<String> {
    let Dequeued::Tasks(tasks) = dequeued else { panic!("the queue is paused") };
    tasks
        .into_iter()
        .map(|taken| match taken {
            Taken::Task(delivery) => delivery.message.id,
            Taken::Ghost(id) => format!("ghost {id}"),
            Taken::Poisoned(run, ..) => format!("poisoned {}", run.id),
        })
        .collect()
}

#[tokio::test]
async fn dequeue_makes_the_oldest_task_active_under_a_lease() {
    let fixture = Fixture::start().await;
    fixture.put([job("a"), job("b")]).await;
    let before = fixture.keyspace().await;
    assert_eq!(ids(fixture.dequeue(1).await), ["a"]);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:active: [a]
         + {q}:lease a: score 4000000030
         - {q}:pending: [b a]
         + {q}:pending: [b]
         + {q}:t:a owner: run-1
         - {q}:t:a pending_since: 4000000000000000000
         - {q}:t:a state: pending
         + {q}:t:a state: active",
    );
}

#[tokio::test]
async fn dequeue_takes_several_tasks_oldest_first() {
    let fixture = Fixture::start().await;
    fixture.put(["a", "b", "c"].map(job)).await;
    let before = fixture.keyspace().await;
    assert_eq!(ids(fixture.dequeue(2).await), ["a", "b"]);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:active: [b a]
         + {q}:lease a: score 4000000030
         + {q}:lease b: score 4000000030
         - {q}:pending: [c b a]
         + {q}:pending: [c]
         + {q}:t:a owner: run-1
         - {q}:t:a pending_since: 4000000000000000000
         - {q}:t:a state: pending
         + {q}:t:a state: active
         + {q}:t:b owner: run-1
         - {q}:t:b pending_since: 4000000000000000000
         - {q}:t:b state: pending
         + {q}:t:b state: active",
    );
    assert_eq!(ids(fixture.dequeue(9).await), ["c"]);
    assert_eq!(fixture.keyspace().await.get("{q}:active"), Some("[c b a]"));
}

#[tokio::test]
async fn dequeue_takes_no_more_than_a_batch() {
    let fixture = Fixture::start().await;
    fixture.put((0..MAX_BATCH + 1).map(|n| job(&n.to_string()))).await;
    assert_eq!(ids(fixture.dequeue(10 * MAX_BATCH).await).len(), MAX_BATCH);
    assert_eq!(ids(fixture.dequeue(10 * MAX_BATCH).await), [MAX_BATCH.to_string()]);
}

#[tokio::test]
async fn dequeue_of_nothing_changes_nothing() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    for count in [1, 2] {
        assert!(ids(fixture.dequeue(count).await).is_empty());
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn dequeue_skips_a_paused_queue() {
    let fixture = Fixture::start().await;
    fixture.put([job("a")]).await;
    fixture.run("SET asynq:{q}:paused 1").await;
    let before = fixture.keyspace().await;
    for count in [1, 2] {
        assert!(matches!(fixture.dequeue(count).await, Dequeued::Paused));
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

/// asynq turns such an id into an active task that nobody ever ends (W12).
#[tokio::test]
async fn dequeue_drops_ids_without_tasks_and_what_they_still_hold() {
    for count in [1, 3] {
        let fixture = Fixture::start().await;
        fixture.put([job("a")]).await;
        let clean = fixture.keyspace().await;
        fixture.run("RPUSH asynq:{q}:pending stub ghost").await;
        fixture.run("HSET asynq:{q}:t:stub state active unique_key asynq:{q}:unique:job:1").await;
        fixture.run("SET asynq:{q}:unique:job:1 stub").await;
        let mut taken = ids(fixture.dequeue(count).await);
        if count == 1 {
            taken.extend(ids(fixture.dequeue(1).await));
            fixture.keyspace().await.assert_unchanged_since(&clean);
            taken.extend(ids(fixture.dequeue(1).await));
        }
        assert_eq!(taken, ["ghost ghost", "ghost stub", "a"]);
        let after = fixture.keyspace().await;
        assert_eq!(after.paths_with("stub"), Vec::<String>::new());
        assert_eq!(after.paths_with("ghost"), Vec::<String>::new());
        assert_eq!(after.get("{q}:active"), Some("[a]"));
        assert_eq!(after.get("{q}:pending"), None);
    }
}

#[tokio::test]
async fn dropping_a_stub_leaves_the_lock_of_another_task() {
    let fixture = Fixture::start().await;
    fixture.run("LPUSH asynq:{q}:pending stub").await;
    fixture.run("HSET asynq:{q}:t:stub unique_key asynq:{q}:unique:job:1").await;
    fixture.run("SET asynq:{q}:unique:job:1 other").await;
    let before = fixture.keyspace().await;
    assert_eq!(ids(fixture.dequeue(1).await), ["ghost stub"]);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:pending: [stub]
         - {q}:t:stub unique_key: asynq:{q}:unique:job:1",
    );
}

#[tokio::test]
async fn a_task_of_another_type_is_dropped_from_the_list_and_left_alone() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    for count in [1, 2] {
        fixture.run("LPUSH asynq:{q}:pending a").await;
        let taken = fixture.with_stray("asynq:{q}:t:a", async || ids(fixture.dequeue(count).await)).await;
        assert_eq!(taken, ["ghost a"]);
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_active_and_reported() {
    let fixture = Fixture::start().await;
    fixture.put([job("torn"), job("fine")]).await;
    fixture.run("HSET asynq:{q}:t:torn msg \u{1}").await;
    let Dequeued::Tasks(taken) = fixture.dequeue(2).await else { panic!("the queue is paused") };
    assert!(matches!(&taken[0], Taken::Poisoned(run, _, PoisonReason::Unreadable(_)) if run.id == "torn"), "{taken:?}");
    assert!(matches!(&taken[1], Taken::Task(delivery) if delivery.run.id == "fine"), "{taken:?}");
    assert_eq!(fixture.keyspace().await.get("{q}:active"), Some("[fine torn]"));
}

#[tokio::test]
async fn a_message_of_another_task_is_reported_as_misplaced() {
    let fixture = Fixture::start().await;
    for (stored, other) in [("a", job("b")), ("c", job("c").queue("elsewhere"))] {
        fixture.put([job(stored)]).await;
        let message = fixture.compose(other).message.to_bytes();
        let key = format!("asynq:{{q}}:t:{stored}");
        let words: [&[u8]; 4] = [b"HSET", key.as_bytes(), b"msg", &message];
        let _: i64 = fixture.cmd(&words).await;
        let Dequeued::Tasks(taken) = fixture.dequeue(1).await else { panic!("the queue is paused") };
        let [Taken::Poisoned(run, _, PoisonReason::Misplaced { .. })] = &taken[..] else { panic!("{taken:?}") };
        assert_eq!(run.id, stored);
    }
}

#[tokio::test]
async fn dequeue_fails_where_a_key_has_another_type_and_changes_nothing() {
    let fixture = Fixture::start().await;
    fixture.put([job("a"), job("b")]).await;
    let before = fixture.keyspace().await;
    let token: Arc<str> = "run".into();
    for key in ["pending", "active", "lease"] {
        for count in [1, 2] {
            let dequeue = async || fixture.broker.dequeue(&QUEUE.into(), count, &token, NOW + 30).await;
            let error = fixture.with_stray(&format!("asynq:{{q}}:{key}"), dequeue).await.unwrap_err();
            assert!(is_wrong_type(&error), "{key}: {error}");
            fixture.keyspace().await.assert_unchanged_since(&before);
        }
    }
}

#[tokio::test]
async fn dequeue_drops_ids_whose_message_is_empty_alone_and_in_a_batch() {
    for count in [1, 10] {
        let fixture = Fixture::start().await;
        let clean = fixture.keyspace().await;
        fixture.run("LPUSH asynq:{q}:pending hollow").await;
        // The last word is empty.
        fixture.run("HSET asynq:{q}:t:hollow state pending msg ").await;
        assert_eq!(ids(fixture.dequeue(count).await), ["ghost hollow"]);
        fixture.keyspace().await.assert_unchanged_since(&clean);
    }
}

#[tokio::test]
async fn dequeue_says_since_when_tasks_were_pending_if_asked() {
    let fixture = Fixture::start().await;
    let since = async |broker: &Broker, count| {
        let Dequeued::Tasks(tasks) = broker.dequeue(&QUEUE.into(), count, &"run".into(), NOW + 30).await.unwrap()
        else {
            panic!("the queue is paused")
        };
        let since = tasks.into_iter().map(|taken| match taken {
            Taken::Task(delivery) => (delivery.message.id, delivery.pending_since_ns),
            Taken::Ghost(id) => (id, None),
            other => panic!("took {other:?}"),
        });
        since.collect::<Vec<_>>()
    };
    fixture.put(["a", "b", "c", "d", "e"].map(job)).await;
    fixture.run("DEL asynq:{q}:t:c").await;
    fixture.run("HDEL asynq:{q}:t:d pending_since").await;
    fixture.run("HSET asynq:{q}:t:e pending_since soon").await;
    let timed = fixture.broker.clone().timed(true);
    assert_eq!(since(&timed, 1).await, [("a".to_owned(), Some(NOW_NS))]);
    let rest = [("b", Some(NOW_NS)), ("c", None), ("d", None), ("e", None)].map(|(id, since)| (id.to_owned(), since));
    assert_eq!(since(&timed, 9).await, rest);
    fixture.put([job("f")]).await;
    assert_eq!(since(&fixture.broker, 1).await, [("f".to_owned(), None)], "nobody asked");
}
