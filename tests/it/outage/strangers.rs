//! A Redis that lets nobody in.

use super::trial::Trial;
use crate::support::Fixture;

/// Redis asks for a password only at the beginning of a connection.
const CUT_ALL: [&str; 2] = ["CLIENT KILL TYPE normal SKIPME yes", "CLIENT KILL TYPE pubsub SKIPME yes"];

/// Says `begin` to Redis and cuts all connections but ours, then says `end`.
async fn closed(fixture: &Fixture, url: &str, words: &str, begin: &str, end: &str) {
    let mut trial = Trial::start(url).await;
    trial.expect();
    fixture.run(begin).await;
    for cut in CUT_ALL {
        fixture.run(cut).await;
    }
    trial.during(words).await;
    fixture.run(end).await;
    trial.after().await;
}

#[tokio::test]
async fn servers_and_clients_outlast_a_redis_without_free_connections() {
    let fixture = Fixture::start().await;
    closed(&fixture, fixture.url(), "maxclients", "CONFIG SET maxclients 1", "CONFIG SET maxclients 1000").await;
}

#[tokio::test]
async fn servers_and_clients_outlast_a_password_that_redis_asks_for() {
    let fixture = Fixture::start().await;
    let begin = "CONFIG SET requirepass new";
    closed(&fixture, fixture.url(), "put the password into the URL", begin, r"ACL SETUSER default nopass").await;
}

#[tokio::test]
async fn servers_and_clients_outlast_another_password() {
    let fixture = Fixture::start().await;
    fixture.run("CONFIG SET requirepass old").await;
    let url = format!("redis-socket://:old@{}", fixture.socket().display());
    closed(&fixture, &url, "put the password into the URL", "CONFIG SET requirepass new", "CONFIG SET requirepass old")
        .await;
}
