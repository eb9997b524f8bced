//! What is to come: looks at a queue, and when it will be empty, as an autoscaler would ask.
//!
//! `cargo run -p queue-examples --example forecast`

use std::time::Duration;

use queue::admin::{Drain, Inspector, Look, forecast};
use queue::{Job, RawTask, Router, Server};
use queue_examples::{Error, client};

/// In which time what waits should have started.
const WITHIN: Duration = Duration::from_secs(2);

async fn resize(_: Job) {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    for stored in client.enqueue_many((0..500).map(|_| RawTask::new("image:resize").queue("images"))).await {
        stored?;
    }
    let router = Router::new(()).route("image:", resize);
    let server = Server::new(client.redis().clone(), router).queues([("images", 1)]).concurrency(4);
    let server = server.start().await?;

    let inspector = Inspector::new(client.redis().clone());
    let mut looks: Vec<Look> = Vec::new();
    loop {
        looks.extend(inspector.looks().await?.remove("images"));
        if let Some(told) = forecast(&looks, WITHIN)
            && let Drain::In(time) = told.drain
        {
            println!(
                "{} tasks wait; {:.0} a second come, {:.0} end",
                told.now.waiting, told.arrival_rate, told.service_rate
            );
            println!("with {} slots all have started in {:.1} s", told.now.slots, time.as_secs_f64());
            println!("for {} s it takes {:?} slots", WITHIN.as_secs(), told.wanted_slots);
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    server.abort().await;
    Ok(())
}
