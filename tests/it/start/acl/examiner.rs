//! The doctor, and why a task is not running, by an inspector who has the rights of `docs/deployment.md` for them and no others.

use std::collections::BTreeSet;

use queue_admin::{Inspector, Reason};
use queue_core::RawTask;
use queue_redis::{Client, Redis};

use super::reconciler::damage;
use super::{DOCUMENT, documented, refused, with_user};
use crate::support::{Fixture, QUEUE};

/// The line with what the doctor needs besides.
fn more() -> &'static str {
    let mut lines = DOCUMENT.lines().filter(|line| line.starts_with("ACL SETUSER inspector +"));
    lines.find(|line| line.contains("+srandmember")).expect("the document has the line")
}

/// What is to be found: in queues, of batches, of schedulers that were killed, and a lock that nobody holds.
async fn stage(fixture: &Fixture) {
    damage(fixture).await;
    let client = Client::new(fixture.redis());
    let batch = client.batch().add_all([RawTask::new("t").queue(QUEUE)]).await.unwrap();
    let key = |part: &str| format!("asynq:x:{{{}}}:0:{part}", batch.id());
    let workflow = client.chain().then(RawTask::new("t").queue(QUEUE)).then(RawTask::new("t").queue(QUEUE));
    workflow.start().await.unwrap();
    for command in [
        format!("HSET {} touched 1 looked 1", key("flow")),
        "ZADD asynq:schedulers 1 asynq:schedulers:{gone}".to_owned(),
        "LPUSH asynq:schedulers:{gone} entry".to_owned(),
        "SET asynq:{q}:unique:t:left gone EX 500".to_owned(),
        "HSET asynq:{q}:t:damaged msg text state pending".to_owned(),
        "SADD asynq:{q}:x:aggregated asynq:{q}:x:aggregated:set".to_owned(),
    ] {
        fixture.run(&command).await;
    }
}

/// Examines all, mends what can be mended, and takes it back.
async fn play(redis: &Redis) -> Result<(), queue_redis::Error> {
    let doctor = Inspector::new(redis.clone()).doctor();
    let (mut examination, mut copies) = (doctor.examine(), Vec::new());
    while let Some(findings) = examination.next().await? {
        for finding in findings {
            let copied = doctor.copies(&finding).await?;
            doctor.mend(&finding, &copied).await?;
            copies.extend(copied);
        }
    }
    assert!(!copies.is_empty());
    for copy in copies {
        doctor.undo(&copy).await?;
    }
    Ok(())
}

async fn refusals(fixture: &Fixture) -> BTreeSet<String> {
    let mut refused = refused(fixture, "inspector").await;
    refused.remove("info");
    refused
}

/// It ended at the first scheduler that had been killed, and at the first batch.
#[tokio::test]
async fn an_inspector_with_the_documented_rights_of_the_doctor_examines_and_mends_all() {
    let (fixture, redis) = with_user(&documented("inspector")).await;
    fixture.run(more()).await;
    stage(&fixture).await;
    let played = play(&redis).await;
    let refused = refusals(&fixture).await;
    assert!(played.is_ok() && refused.is_empty(), "{played:?}, the documented user may not {refused:?}");
    // That for aggregations is needed by whoever explains, too.
    let rights = more().split(' ').filter_map(|word| word.strip_prefix('+'));
    for right in rights.filter(|right| *right != "srandmember") {
        let (fixture, redis) = with_user(&documented("inspector")).await;
        fixture.run(more()).await;
        fixture.run(&format!("ACL SETUSER inspector -{right}")).await;
        stage(&fixture).await;
        let _ = play(&redis).await;
        assert!(refusals(&fixture).await.contains(right), "{right} is not needed");
    }
}

/// It was said to end at once.
#[tokio::test]
async fn an_inspector_with_the_documented_rights_is_told_when_a_lock_ends() {
    let (fixture, redis) = with_user(&documented("inspector")).await;
    fixture.run(more()).await;
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    fixture.run("SET asynq:{q}:unique:t:left gone EX 500").await;
    let explanation = Inspector::new(redis).explain(QUEUE, "gone").await.unwrap();
    let locks = explanation.reasons.iter().filter_map(|reason| match reason {
        Reason::LockLeft { ends_in, .. } => Some(*ends_in),
        _ => None,
    });
    assert!(matches!(locks.collect::<Vec<_>>()[..], [Some(490..=500)]), "{explanation:?}");
    assert!(refusals(&fixture).await.is_empty());
}
