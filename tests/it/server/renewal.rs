//! Leases are renewed in one flight, however many queues there are.

use std::time::Duration;

use queue_redis::Redis;
use queue_worker::{Job, Router, Server};

use crate::support::{Events, Fixture, Proxy, eventually, job, with};

const QUEUES: usize = 150;

/// With 150 queues 250 ms away, one round trip after another took longer than a lease lasts, and another server took
/// most tasks of a healthy one. Here no renewal is answered before all are on their way.
#[tokio::test]
async fn no_renewal_waits_for_the_answer_to_another() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::start(fixture.socket()).await;
    let started = Events::default();
    let hang = with(&started, async |started: Events, job: Job| {
        started.tell(job.queue());
        job.cancellation().cancelled().await;
    });
    let names: Vec<String> = (0..QUEUES).map(|n| format!("q{n}")).collect();
    fixture.enqueue(names.iter().map(|queue| job("a").queue(queue))).await;
    let redis = Redis::connect(&proxy.url()).await.unwrap();
    let server = Server::new(redis, Router::new(()).route("job", hang)).queues(names.iter().map(|name| (name, 1)));
    let server = server.concurrency(QUEUES).shutdown_timeout(Duration::ZERO).start().await.unwrap();
    started.wait(QUEUES).await;

    let sha = sha_of("extend_lease");
    // It never is if the script is put together otherwise.
    eventually("the script is known", async || fixture.cmd::<Vec<bool>>(&["SCRIPT", "EXISTS", &sha]).await == [true])
        .await;
    proxy.hold_answers_to(&sha, QUEUES);
    let leases = async || {
        let mut leases: Vec<i64> = Vec::new();
        for name in &names {
            leases.push(fixture.cmd(&["ZSCORE", &format!("asynq:{{{name}}}:lease"), "a"]).await);
        }
        leases
    };
    let before = leases().await;
    // Twice: the second time the server has heard the answers to the first.
    for later in [1, 6] {
        eventually("all leases are renewed", async || {
            leases().await.iter().zip(&before).all(|(now, before)| *now >= before + later)
        })
        .await;
    }
    assert_eq!(started.count(), QUEUES);
    server.shutdown().await;
}

/// The name by which Redis knows a script.
fn sha_of(script: &str) -> String {
    let text = text_of(&format!("lua/{script}.lua"), &mut Vec::new());
    let code = text.split_inclusive('\n').map(str::trim_start).filter(|line| !line.starts_with("--"));
    let code: String = code.collect();
    redis::Script::new(&code).get_hash().to_owned()
}

/// A text with the snippets that it says it needs.
fn text_of(path: &str, known: &mut Vec<String>) -> String {
    let own = std::fs::read_to_string(format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let mut text = String::new();
    for line in own.split_inclusive('\n') {
        for name in line.strip_prefix("-- needs:").unwrap_or_default().split_whitespace() {
            if !known.iter().any(|known| known == name) {
                known.push(name.to_owned());
                text += &text_of(&format!("lua/lib/{name}.lua"), known);
            }
        }
        text += line;
    }
    text
}
