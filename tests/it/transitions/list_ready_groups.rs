use queue_redis::broker::{GroupRules, ReadyGroups};

use crate::support::{Fixture, NOW, QUEUE, READY, RULES, job};

async fn ready(fixture: &Fixture, rules: GroupRules, now: i64) -> ReadyGroups {
    let mut found = fixture.broker.list_ready_groups(QUEUE, rules, now).await.unwrap();
    found.ready.sort();
    found
}

fn found(ready: &[&str], next: Option<i64>) -> ReadyGroups {
    ReadyGroups { ready: ready.iter().map(|name| (*name).to_owned()).collect(), next, ..ReadyGroups::default() }
}

/// The scores of groups differ by when the task joined.
async fn joined(fixture: &Fixture, group: &str, id: &str, at: i64) {
    fixture.put([job(id).group(group)]).await;
    fixture.run(&format!("ZADD asynq:{{q}}:g:{group} {at} {id}")).await;
}

#[tokio::test]
async fn a_group_is_ready_after_its_grace_period_its_longest_delay_or_when_it_is_full() {
    let fixture = Fixture::start().await;
    joined(&fixture, "g", "a", NOW).await;
    joined(&fixture, "g", "b", NOW + 50).await;
    let before = fixture.keyspace().await;
    assert_eq!(ready(&fixture, RULES, NOW + 109).await, found(&[], Some(NOW + 110)));
    assert_eq!(ready(&fixture, RULES, NOW + 110).await, found(&["g"], None));
    let delayed = GroupRules { max_delay_secs: 90, ..RULES };
    assert_eq!(ready(&fixture, delayed, NOW + 89).await, found(&[], Some(NOW + 90)));
    assert_eq!(ready(&fixture, delayed, NOW + 90).await, found(&["g"], None));
    let small = GroupRules { max_size: 2, ..RULES };
    assert_eq!(ready(&fixture, small, NOW).await, found(&["g"], None));
    assert_eq!(ready(&fixture, GroupRules { max_size: 3, ..RULES }, NOW).await, found(&[], Some(NOW + 110)));
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn many_groups_are_all_found_and_empty_or_strange_ones_are_not() {
    let fixture = Fixture::start().await;
    let names: Vec<String> = (0..300).map(|n| format!("group:{n:03}")).collect();
    fixture.put(names.iter().map(|name| job(name).group(name.as_str()))).await;
    fixture.run("SADD asynq:{q}:groups empty strange").await;
    fixture.run("SET asynq:{q}:g:strange 1").await;
    joined(&fixture, "later", "later", NOW + 7).await;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(ready(&fixture, RULES, READY).await, found(&names, Some(READY + 7)));
    assert_eq!(ready(&fixture, RULES, NOW).await, found(&[], Some(READY)));
}

#[tokio::test]
async fn no_group_is_ready_while_the_queue_is_paused() {
    let fixture = Fixture::start().await;
    joined(&fixture, "g", "a", NOW).await;
    fixture.run("SET asynq:{q}:paused 4000000000").await;
    assert_eq!(ready(&fixture, RULES, READY).await, found(&[], None));
    assert_eq!(ready(&fixture, GroupRules { max_size: 1, ..RULES }, NOW).await, found(&[], None));
    fixture.run("DEL asynq:{q}:paused").await;
    assert_eq!(ready(&fixture, RULES, READY).await, found(&["g"], None));
}

#[tokio::test]
async fn list_ready_groups_says_which_will_be_ready_soon() {
    let fixture = Fixture::start().await;
    fixture.run(&format!("ZADD asynq:{{q}}:g:early {} a", NOW - 100)).await;
    fixture.run(&format!("ZADD asynq:{{q}}:g:soon {NOW} b")).await;
    fixture.run(&format!("ZADD asynq:{{q}}:g:late {} c", NOW + 50)).await;
    fixture.run("SADD asynq:{q}:groups early soon late").await;
    let rules = GroupRules { grace_secs: 60, max_delay_secs: 0, max_size: 0 };
    let found = fixture.broker.list_groups_until(QUEUE, rules, NOW, NOW + 60).await.unwrap();
    assert_eq!((found.ready, found.soon), (vec!["early".to_owned()], vec![("soon".to_owned(), NOW + 60)]));
    assert_eq!(found.next, Some(NOW + 60));
}
