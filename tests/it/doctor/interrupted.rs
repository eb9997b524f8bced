//! Examinations that outlast their connections, or a Redis.

use std::collections::BTreeSet;

use queue_admin::Inspector;
use queue_redis::{Fault, Redis};

use crate::support::{Fixture, RedisProcess};

/// A server makes 20 steps of 500 keys in 5 minutes, and no connection lives for ever: with a few hundred thousand keys it never came to
/// an end. `queuectl doctor` ended at the first one that was closed.
#[tokio::test]
async fn an_examination_goes_on_over_other_connections_to_the_same_redis() {
    const LOCKS: usize = 5_000;
    let fixture = Fixture::start().await;
    let fill = "for n = 1, ARGV[1] do redis.call('SET', 'asynq:{q}:unique:' .. n, 'ghost') end";
    fixture.cmd::<()>(&["EVAL", fill, "0", &LOCKS.to_string()]).await;
    let mut examination = fixture.inspector().doctor().examine();
    let (mut found, mut steps) = (Vec::new(), 0);
    while let Some(findings) = examination.next().await.unwrap() {
        found.extend(findings.into_iter().filter(|found| found.fault == Fault::DeadLock).map(|found| found.subject));
        steps += 1;
        assert!(steps < 100, "it begins again and again");
        // Between two pages of all names, and of those that are looked at again.
        if (8..14).contains(&steps) || !found.is_empty() {
            fixture.run("CLIENT KILL TYPE normal").await;
        }
    }
    assert_eq!((found.len(), found.iter().collect::<BTreeSet<_>>().len()), (LOCKS, LOCKS));
}

/// Where it goes on says nothing to another process, to which its names are new.
#[tokio::test]
async fn an_examination_that_begins_anew_finds_each_group_once() {
    const GROUPS: usize = 1_500;
    let mut redis = RedisProcess::start(&[]).await;
    let client = Redis::connect(&redis.url()).await.unwrap();
    let fill = "for n = 1, ARGV[1] do redis.call('ZADD', 'asynq:{q}:g:' .. n, 1, 'ghost') end";
    let mut eval = redis::cmd("EVAL");
    eval.arg(fill).arg(0).arg(GROUPS);
    client.query::<()>("EVAL", &eval).await.unwrap();
    let mut examination = Inspector::new(client).doctor().examine();
    let (mut found, mut steps) = (Vec::new(), 0);
    while let Some(findings) = examination.next().await.unwrap() {
        let unlisted = findings.into_iter().filter(|found| found.fault == Fault::UnlistedGroup);
        found.extend(unlisted.map(|found| found.subject));
        steps += 1;
        // Settings, types, servers, schedulers, queues, and two pages of names.
        if steps == 7 {
            redis.kill();
            redis.start_again().await;
        }
    }
    assert_eq!((found.len(), found.iter().collect::<BTreeSet<_>>().len()), (GROUPS, GROUPS));
}
