//! The leader, while its connections break.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use queue_core::{Clock as _, SystemClock};
use queue_redis::broker::Broker;
use queue_redis::leader::{Duty, Leader};
use queue_redis::service::Service as _;
use queue_redis::{Error, Redis};

use crate::support::{Events, Fixture, Proxy};

/// Its look asks Redis until that is away and there again.
struct Asking {
    broker: Broker,
    events: Events,
}

impl Duty for Asking {
    fn name(&self) -> &'static str {
        "asking"
    }

    fn look<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<Duration>, Error>> {
        Box::pin(async {
            self.events.tell("begun");
            while self.broker.first_duty().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            while self.broker.first_duty().await.is_err() {}
            self.events.tell("connected");
            Ok(None)
        })
    }
}

/// Whoever connects anew holds up all others of the process until that is done. The leader, too, asks Redis for more meanwhile: were the
/// look driven by it alone, both would wait for ever.
#[tokio::test]
async fn a_look_that_connects_anew_goes_on_while_the_leader_waits_for_redis() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let proxy = Proxy::start(fixture.socket()).await;
    let broker = Broker::new(Redis::connect(&proxy.url()).await.unwrap());
    let duties: Arc<[Arc<dyn Duty>]> = Arc::new([Arc::new(Asking { broker: broker.clone(), events: events.clone() })]);
    let mut leader = Leader::new(broker.clone(), Arc::new(SystemClock), "one", duties);
    broker.ask_for_duty("asking", "", SystemClock.now_ns() / 1_000_000).await.unwrap();
    let break_off = async {
        events.wait(1).await;
        // To load the scripts takes about a second then.
        proxy.make_thin(4_000);
        fixture.run("CLIENT KILL TYPE normal SKIPME yes").await;
        events.wait(2).await;
    };
    let leading = async { while leader.run_once().await.is_err() {} };
    let both = tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(leading, break_off) });
    both.await.expect("the look and the leader wait for each other");
    assert_eq!(events.all(), ["begun", "connected"]);
}
