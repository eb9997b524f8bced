use queue_redis::broker::ListedSet;

use crate::support::{DEADLINE, Fixture, QUEUE, READY, RULES, is_wrong_type, job};

async fn reclaim(fixture: &Fixture, cutoff: i64) -> u64 {
    fixture.broker.reclaim(QUEUE, "g", "s1", Some(cutoff)).await.unwrap()
}

#[tokio::test]
async fn reclaim_puts_the_tasks_back_and_lists_the_group_again() {
    let fixture = Fixture::start().await;
    fixture.put(["a", "b"].map(|id| job(id).group("g"))).await;
    let before = fixture.keyspace().await;
    fixture.stage("g", "s1", RULES, READY).await.unwrap();
    let staged = fixture.keyspace().await;
    assert_eq!(reclaim(&fixture, DEADLINE - 1).await, 0);
    fixture.keyspace().await.assert_unchanged_since(&staged);
    assert_eq!(reclaim(&fixture, DEADLINE).await, 2);
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert_eq!(reclaim(&fixture, DEADLINE).await, 0);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn reclaim_puts_a_large_set_back_beside_what_has_joined_meanwhile() {
    let fixture = Fixture::start().await;
    fixture.put_many(0..250).await;
    let before = fixture.keyspace().await;
    fixture.stage("g", "s1", RULES, READY).await.unwrap();
    fixture.put([job("late").group("g")]).await;
    assert_eq!(reclaim(&fixture, DEADLINE).await, 250);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:g:g late: score 4000000000
         + {q}:t:late group: g
         + {q}:t:late msg: type=job id=late queue=q retry=25 timeout=1800 group_key=g
         + {q}:t:late state: aggregating",
    );
}

#[tokio::test]
async fn reclaim_drops_ids_without_a_task_and_sets_that_are_not_there() {
    let fixture = Fixture::start().await;
    fixture.put(["a", "b"].map(|id| job(id).group("g"))).await;
    fixture.run("DEL asynq:{q}:t:a asynq:{q}:t:b").await;
    fixture.stage("g", "s1", RULES, READY).await.unwrap();
    fixture.run("ZADD asynq:{q}:aggregation_sets 1 asynq:{q}:g:gone:s2").await;
    assert_eq!(reclaim(&fixture, DEADLINE).await, 0);
    assert_eq!(fixture.broker.reclaim(QUEUE, "gone", "s2", Some(1)).await.unwrap(), 0);
    assert_eq!(fixture.keyspace().await.to_string(), "");
}

#[tokio::test]
async fn sets_are_listed_with_their_groups_whatever_the_names() {
    let fixture = Fixture::start().await;
    fixture.put([job("a").group("user:7:x"), job("b").group("g")]).await;
    fixture.stage("user:7:x", "s1", RULES, READY).await.unwrap();
    fixture.stage("g", "s2", RULES, READY + 1).await.unwrap();
    fixture.run("ZADD asynq:{q}:aggregation_sets 1 strange").await;
    let set = |group: &str, id: &str, deadline| ListedSet { group: group.into(), id: id.into(), deadline };
    let listed = fixture.broker.aggregation_sets(QUEUE).await.unwrap();
    assert_eq!(listed, [set("user:7:x", "s1", DEADLINE), set("g", "s2", DEADLINE + 1)]);
}

#[tokio::test]
async fn reclaim_fails_where_the_group_has_another_type_and_changes_nothing() {
    let fixture = Fixture::start().await;
    fixture.staged([job("a").group("g")]).await;
    let before = fixture.keyspace().await;
    let act = async || fixture.broker.reclaim(QUEUE, "g", "s1", None).await;
    assert!(is_wrong_type(&fixture.with_stray("asynq:{q}:g:g", act).await.unwrap_err()));
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn list_groups_again_lists_groups_that_have_tasks_and_takes_the_others_off_the_list() {
    let fixture = Fixture::start().await;
    fixture.put(["a", "b"].map(|group| job(group).group(group))).await;
    let before = fixture.keyspace().await;
    fixture.run("SREM asynq:{q}:groups a").await;
    fixture.run("SET asynq:{q}:g:strange 1").await;
    fixture.run("SADD asynq:{q}:groups empty").await;
    let names = ["a", "b", "empty", "strange"].map(str::to_owned);
    assert_eq!(fixture.broker.list_groups_again(QUEUE, &names).await.unwrap(), [1, 1]);
    fixture.run("DEL asynq:{q}:g:strange").await;
    fixture.keyspace().await.assert_unchanged_since(&before);
}
