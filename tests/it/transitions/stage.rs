use queue_core::RawTask;
use queue_redis::broker::{GroupRules, MAX_SET, StagedSet};

use crate::support::{Fixture, NOW, QUEUE, READY, RULES, is_wrong_type, job};

fn set(count: usize) -> StagedSet {
    StagedSet { queue: QUEUE.into(), group: "g".into(), id: "s1".into(), count }
}

#[tokio::test]
async fn stage_takes_a_whole_group_and_unlists_it() {
    let fixture = Fixture::start().await;
    fixture.put([job("a").group("g"), job("b").group("g"), job("c").group("other")]).await;
    let before = fixture.keyspace().await;
    assert_eq!(fixture.stage("g", "s1", RULES, READY).await, Some(set(2)));
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:aggregation_sets asynq:{q}:g:g:s1: score 4000000180
         - {q}:g:g a: score 4000000000
         - {q}:g:g b: score 4000000000
         + {q}:g:g:s1 a: score 4000000000
         + {q}:g:g:s1 b: score 4000000000
         - {q}:groups g: member",
    );
}

#[tokio::test]
async fn stage_leaves_a_group_that_is_not_ready_or_empty() {
    let fixture = Fixture::start().await;
    fixture.put([job("a").group("g")]).await;
    fixture.run("SADD asynq:{q}:groups empty").await;
    let before = fixture.keyspace().await;
    assert_eq!(fixture.stage("g", "s1", RULES, READY - 1).await, None);
    assert_eq!(fixture.stage("g", "s1", GroupRules { max_size: 2, max_delay_secs: 90, ..RULES }, NOW).await, None);
    assert_eq!(fixture.stage("empty", "s1", RULES, READY).await, None);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn stage_begins_nothing_while_the_queue_is_paused() {
    let fixture = Fixture::start().await;
    fixture.put([job("a").group("g"), job("b").group("g")]).await;
    fixture.run("SET asynq:{q}:paused 4000000000").await;
    let before = fixture.keyspace().await;
    assert_eq!(fixture.stage("g", "s1", RULES, READY).await, None);
    assert_eq!(fixture.stage("g", "s1", GroupRules { max_size: 2, ..RULES }, NOW).await, None);
    fixture.keyspace().await.assert_unchanged_since(&before);
    fixture.run("DEL asynq:{q}:paused").await;
    assert_eq!(fixture.stage("g", "s1", RULES, READY).await, Some(set(2)));
    // The call whose answer was lost may come after the pause.
    fixture.run("SET asynq:{q}:paused 4000000000").await;
    assert_eq!(fixture.stage("g", "s1", RULES, READY).await, Some(set(2)));
}

#[tokio::test]
async fn stage_takes_the_oldest_of_a_group_that_is_more_than_full() {
    let fixture = Fixture::start().await;
    fixture.put_many(0..5).await;
    fixture.run("ZADD asynq:{q}:g:g 3999999999 00004").await;
    let before = fixture.keyspace().await;
    let rules = GroupRules { max_size: 3, ..RULES };
    assert_eq!(fixture.stage("g", "s1", rules, NOW).await, Some(set(3)));
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:aggregation_sets asynq:{q}:g:g:s1: score 4000000120
         - {q}:g:g 00000: score 4000000000
         - {q}:g:g 00001: score 4000000000
         - {q}:g:g 00004: score 3999999999
         + {q}:g:g:s1 00000: score 4000000000
         + {q}:g:g:s1 00001: score 4000000000
         + {q}:g:g:s1 00004: score 3999999999",
    );
    assert_eq!(fixture.stage("g", "s2", rules, NOW).await, None, "two are not enough");
    assert_eq!(fixture.stage("g", "s2", GroupRules { max_size: 2, ..RULES }, NOW).await.unwrap().count, 2);
    assert_eq!(fixture.keyspace().await.get("{q}:groups g"), None);
}

#[tokio::test]
async fn stage_fills_large_sets_from_larger_groups() {
    let fixture = Fixture::start().await;
    let fill = "for n = 1, 5000 do redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2] .. n) end return 1";
    for part in ["a", "b", "c"] {
        let _: i64 = fixture.cmd(&["EVAL", fill, "1", "asynq:{q}:g:g", &NOW.to_string(), part]).await;
    }
    let rules = GroupRules { max_size: 2_500, ..RULES };
    assert_eq!(fixture.stage("g", "s1", rules, NOW).await, Some(set(2_500)));
    assert_eq!(fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:g:g:s1"]).await, 2_500);
    assert_eq!(fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:g:g"]).await, 12_500);
    // Without a limit, the largest set there is.
    assert_eq!(fixture.stage("g", "s2", RULES, READY).await.unwrap().count, MAX_SET);
    assert_eq!(fixture.stage("g", "s3", RULES, READY).await.unwrap().count, 2_500);
    assert_eq!(fixture.stage("g", "s4", RULES, READY).await, None);
}

/// After a lost answer the caller does not know what was moved.
#[tokio::test]
async fn stage_made_again_says_what_the_set_has() {
    let fixture = Fixture::start().await;
    fixture.put([job("a").group("g")]).await;
    assert_eq!(fixture.stage("g", "s1", RULES, READY).await, Some(set(1)));
    let before = fixture.keyspace().await;
    assert_eq!(fixture.stage("g", "s1", RULES, READY).await, Some(set(1)));
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn read_set_gives_the_tasks_by_age_and_drops_ids_without_a_task() {
    let fixture = Fixture::start().await;
    fixture.put_many(0..250).await;
    fixture.run("ZADD asynq:{q}:g:g 3999999999 00240").await;
    fixture.run("DEL asynq:{q}:t:00007 asynq:{q}:t:00199").await;
    fixture.run("HDEL asynq:{q}:t:00008 msg").await;
    let mut set = fixture.stage("g", "s1", RULES, READY).await.unwrap();
    let tasks = fixture.broker.read_set(&mut set).await.unwrap().unwrap();
    let ids: Vec<usize> = tasks.iter().map(|task| task.id.parse().unwrap()).collect();
    let rest = (0..250).filter(|id| ![7, 8, 199, 240].contains(id));
    assert_eq!(ids, [240].into_iter().chain(rest).collect::<Vec<_>>());
    assert_eq!((set.count, fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:g:g:s1"]).await), (247, 247));
    assert_eq!(fixture.keyspace().await.paths_with("00008"), Vec::<String>::new());
}

/// So many bytes are read in several calls.
#[tokio::test]
async fn read_set_reads_large_tasks() {
    let fixture = Fixture::start().await;
    let large = |n: usize| job(&n.to_string()).group("g").payload(vec![b'x'; 3_000_000]);
    fixture.put((0..5).map(large)).await;
    let mut set = fixture.stage("g", "s1", RULES, READY).await.unwrap();
    let tasks = fixture.broker.read_set(&mut set).await.unwrap().unwrap();
    let sizes: Vec<usize> = tasks.iter().map(|task| task.message.as_ref().unwrap().payload.len()).collect();
    assert_eq!(sizes, [3_000_000; 5]);
}

#[tokio::test]
async fn read_set_tells_tasks_that_cannot_be_read() {
    let fixture = Fixture::start().await;
    fixture.put(["a", "b"].map(|id| job(id).group("g"))).await;
    fixture.run("HSET asynq:{q}:t:a msg \u{1}").await;
    let mut set = fixture.stage("g", "s1", RULES, READY).await.unwrap();
    let tasks = fixture.broker.read_set(&mut set).await.unwrap().unwrap();
    let read: Vec<_> = tasks.iter().map(|task| (&*task.id, task.message.is_some())).collect();
    assert_eq!(read, [("a", false), ("b", true)]);
}

#[tokio::test]
async fn read_set_refuses_a_set_of_which_a_part_was_reclaimed_meanwhile() {
    let fixture = Fixture::start().await;
    fixture.put_many(0..10).await;
    let mut set = fixture.stage("g", "s1", RULES, READY).await.unwrap();
    fixture.run("ZREM asynq:{q}:g:g:s1 00004").await;
    assert_eq!(fixture.broker.read_set(&mut set).await.unwrap(), None);
}

#[tokio::test]
async fn stage_fails_where_a_set_has_another_type_and_changes_nothing() {
    let fixture = Fixture::start().await;
    fixture.put([job("a").group("g"), RawTask::new("job").queue(QUEUE).task_id("b").group("g")]).await;
    let before = fixture.keyspace().await;
    let key = "asynq:{q}:aggregation_sets";
    let stage = async || fixture.broker.stage(&QUEUE.into(), "g", "s1", RULES, READY, READY + 120).await;
    assert!(is_wrong_type(&fixture.with_stray(key, stage).await.unwrap_err()));
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert_eq!(fixture.with_stray("asynq:{q}:g:g", stage).await.unwrap(), None);
    fixture.keyspace().await.assert_unchanged_since(&before);
}
