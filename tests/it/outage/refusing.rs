//! A Redis that answers, and refuses to change anything.

use super::trial::Trial;
use crate::support::{Fixture, eventually};

/// Says `begin` to Redis, then `end`.
async fn refusing(words: &str, begin: &str, end: &str) {
    let fixture = Fixture::start().await;
    let mut trial = Trial::start(fixture.url()).await;
    trial.expect();
    fixture.run(begin).await;
    trial.during(words).await;
    fixture.run(end).await;
    trial.after().await;
}

#[tokio::test]
async fn servers_and_clients_outlast_a_time_as_replica() {
    // A master that is not there: the data stay.
    refusing("this is a replica", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE").await;
}

#[tokio::test]
async fn a_replica_that_does_not_answer_without_its_master() {
    let fixture = Fixture::start().await;
    fixture.run("CONFIG SET replica-serve-stale-data no").await;
    let mut trial = Trial::start(fixture.url()).await;
    trial.expect();
    fixture.run("REPLICAOF 127.0.0.1 1").await;
    trial.during("this is a replica").await;
    fixture.run("REPLICAOF NO ONE").await;
    trial.after().await;
}

#[tokio::test]
async fn servers_and_clients_outlast_missing_replicas() {
    refusing("too few replicas", "CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0").await;
}

#[tokio::test]
async fn servers_and_clients_outlast_a_snapshot_that_fails() {
    let fixture = Fixture::start().await;
    let mut trial = Trial::start(fixture.url()).await;
    // A directory stands where the snapshot is to be; not even root can rename a file to that.
    let in_the_way = fixture.socket().with_file_name("dump.rdb");
    std::fs::create_dir_all(in_the_way.join("full")).unwrap();
    fixture.cmd::<()>(&["CONFIG", "SET", "save", "3600 1"]).await;
    let saved = async |how: &'static str| {
        eventually(format!("the last snapshot is {how}"), async || {
            let info: String = fixture.cmd(&["INFO", "persistence"]).await;
            info.contains("rdb_bgsave_in_progress:0") && info.contains(&format!("rdb_last_bgsave_status:{how}"))
        })
        .await;
    };
    trial.expect();
    fixture.run("BGSAVE").await;
    saved("err").await;
    trial.during("cannot write to its disk").await;
    std::fs::remove_dir_all(in_the_way).unwrap();
    fixture.run("BGSAVE").await;
    saved("ok").await;
    trial.after().await;
}
