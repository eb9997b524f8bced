//! `queuectl tend`: does what one server of ours does for a whole fleet, for fleets that have none.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use queue_core::SystemClock;
use queue_redis::broker::Broker;
use queue_redis::flow::Recorder;
use queue_redis::leader::Leader;
use queue_redis::service::{Outage, Services};
use queue_redis::{RedisClock, duties};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::command::{Command, Running};
use crate::error::CliError;
use crate::interrupt;
use crate::logging::LogFormat;
use crate::output::Output;
use crate::session::Session;

/// How often to look for duties. It is the price of a tender: a command a second.
const LOOK: Duration = Duration::from_secs(1);
/// How often the clock is compared with Redis'.
const COMPARE: Duration = Duration::from_secs(5);

/// Nothing to choose.
#[derive(Debug, Args)]
#[command(after_help = "\
For fleets of Go's workers alone: batches settle, callbacks are stored, and what
is to be canceled for good is. Where a server of this project runs, it does that
by itself, and a tender beside it only waits. Any number of them may run.")]
#[group(skip)]
pub(crate) struct TendArgs {}

impl Command for TendArgs {
    fn log(&self, json: bool) -> (&'static str, LogFormat) {
        ("info", LogFormat::of(json))
    }

    fn handles_signals(&self) -> bool {
        true
    }

    fn run<'a>(self: Box<Self>, session: &'a Session, _: &'a Output) -> Running<'a> {
        Box::pin(run(session))
    }
}

async fn run(session: &Session) -> Result<(), CliError> {
    let redis = session.redis();
    let (broker, clock) = (Broker::new(redis.clone()), Arc::new(RedisClock::new(Arc::new(SystemClock))));
    clock.compare(redis).await?;
    let id = format!("tend:{}", uuid::Uuid::new_v4());
    let (services, stop) = (Services::new(Outage::new(|_| {})), CancellationToken::new());
    let duties = duties::standard(&broker, clock.clone());
    services.start(&stop, Leader::new(broker.clone(), clock.clone(), &*id, duties.into()).poll(LOOK));
    services.start(&stop, Recorder::new(broker, clock.clone()));
    info!(tender = id, redis = redis.target(), "looking after what belongs to no queue alone");
    let compared = async {
        loop {
            tokio::time::sleep(COMPARE).await;
            // While Redis is away, the services say so.
            let _ = clock.compare(redis).await;
        }
    };
    tokio::select! {
        _ = interrupt::signal() => {}
        () = compared => {}
    }
    stop.cancel();
    services.ended().await;
    info!("the tender ends");
    Ok(())
}
