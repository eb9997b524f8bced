//! The overview of a hundred queues, asked for and streamed.

use std::time::Duration;

use futures_util::future::try_join_all;
use queue_core::TaskState;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::cost::cost;
use super::site::{Seen, Site};
use super::{Place, Row, Web, fill, quantile};
use crate::Failure;
use crate::report::spread;
use crate::rounds::median;
use crate::server::Server;

const QUEUES: u64 = 100;
const STATES: [TaskState; 4] = [TaskState::Pending, TaskState::Scheduled, TaskState::Retry, TaskState::Completed];
/// Longer than an overview is young enough to be answered again.
const OLD: Duration = Duration::from_millis(2_100);
const WARM_TIMES: usize = 500;
const COLD_TIMES: usize = 12;
/// How long CPU and commands are watched, each time.
const WATCHED: Duration = Duration::from_secs(16);
const ROUNDS: usize = 3;
/// How often asynqmon's pages ask.
const POLL: Duration = Duration::from_secs(8);
const ALL_OF_ASYNQMON: [&str; 2] = ["/api/queues", "/api/queue_stats"];
const EVENTS: &str = "/api/v1/events";
/// Streams that one dashboard has at the most.
const MANY: usize = 1_000;

async fn furnish(place: &mut Place<'_>) -> Result<(), Failure> {
    for number in 0..QUEUES {
        let state = STATES[number as usize % STATES.len()];
        fill::fill(&mut place.server, &format!("queue-{number:02}"), state, place.args.tasks / QUEUES).await?;
    }
    Ok(())
}

pub(super) async fn measure(args: &Web) -> Result<Vec<Row>, Failure> {
    eprintln!("overview");
    let mut place = Place::start(args).await?;
    furnish(&mut place).await?;
    let (mut ours, mut asynqmon) = (place.ours().await?, place.asynqmon().await?);
    let our_cost = cost(&mut place.server, &mut ours, "/api/v1/overview", OLD).await?;
    let mut their_costs = Vec::new();
    for path in ALL_OF_ASYNQMON {
        their_costs.push(format!("`{path}` {}", cost(&mut place.server, &mut asynqmon, path, Duration::ZERO).await?));
    }
    let (mut cold, mut theirs, mut warm) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..COLD_TIMES {
        theirs.push(millis(&mut asynqmon, ALL_OF_ASYNQMON[0]).await?);
        sleep(OLD).await;
        cold.push(millis(&mut ours, "/api/v1/overview").await?);
    }
    // Somebody watches, so that there always is a young one.
    let watching = ours.stream(EVENTS).await?;
    sleep(OLD).await;
    for _ in 0..WARM_TIMES {
        warm.push(millis(&mut ours, "/api/v1/overview").await?);
    }
    drop(watching);
    let mut rows = vec![
        Row {
            what: format!("overview of {QUEUES} queues, read anew"),
            ours: format!(
                "p50 {:.1}, longest {:.1} ms; {our_cost}",
                quantile(&mut cold, 0.5),
                quantile(&mut cold, 1.0)
            ),
            asynqmon: format!(
                "`{}` p50 {:.1}, longest {:.1} ms; {}",
                ALL_OF_ASYNQMON[0],
                quantile(&mut theirs, 0.5),
                quantile(&mut theirs, 1.0),
                their_costs.join("; ")
            ),
            wanted: "50 ms; 16 commands a queue, 4 round trips",
        },
        Row {
            what: "the same while somebody watches, from what was read last".into(),
            ours: format!("p50 {:.2}, p99 {:.2} ms", quantile(&mut warm, 0.5), quantile(&mut warm, 0.99)),
            asynqmon: String::new(),
            wanted: "p99 5 ms",
        },
    ];
    let (mut nobody, mut one, mut polled) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        nobody.push(watch(&mut place.server, wait()).await?);
        let stream = ours.stream(EVENTS).await?;
        one.push(watch(&mut place.server, wait()).await?);
        drop(stream);
        // The reader ends by itself.
        sleep(OLD * 2).await;
        polled.push(watch(&mut place.server, poll(&mut asynqmon)).await?);
    }
    let say = |seen: &[Used]| {
        let of = |of: fn(&Used) -> f64| seen.iter().map(of).collect::<Vec<_>>();
        format!("{} % of a core, {:.0} commands/s", spread(&of(|used| used.cpu)), median(&of(|used| used.commands)))
    };
    rows.push(Row {
        what: format!("Redis while an overview is open ({})", say(&nobody) + " without"),
        ours: format!("{} (every 2 s)", say(&one)),
        asynqmon: format!("{} (every 8 s)", say(&polled)),
        wanted: "0.5 % of a core",
    });
    rows.push(streams(&mut place.server, &mut ours).await?);
    place.server.stop().await;
    Ok(rows)
}

async fn millis(site: &mut Site, path: &str) -> Result<f64, Failure> {
    Ok(site.timed(path).await?.0.as_secs_f64() * 1e3)
}

/// What Redis has used meanwhile.
struct Used {
    /// Percent of a core.
    cpu: f64,
    /// Each second, those within scripts included.
    commands: f64,
}

async fn watch(server: &mut Server, meanwhile: impl Future<Output = Result<(), Failure>>) -> Result<Used, Failure> {
    let (cpu, commands) = (server.cpu().await?, server.info("stats", "total_commands_processed").await?);
    let began = Instant::now();
    meanwhile.await?;
    let seconds = began.elapsed().as_secs_f64();
    // One of them asks.
    let commands = server.info("stats", "total_commands_processed").await? - commands - 1.0;
    Ok(Used { cpu: (server.cpu().await? - cpu) / seconds * 100.0, commands: commands / seconds })
}

async fn wait() -> Result<(), Failure> {
    sleep(WATCHED).await;
    Ok(())
}

async fn poll(asynqmon: &mut Site) -> Result<(), Failure> {
    for _ in 0..WATCHED.as_secs() / POLL.as_secs() {
        for path in ALL_OF_ASYNQMON {
            asynqmon.timed(path).await?;
        }
        sleep(POLL).await;
    }
    Ok(())
}

/// One stream, and very many: what Redis is asked between two events, the memory of the dashboard, and how long after the
/// first one the others have an event.
async fn streams(server: &mut Server, site: &mut Site) -> Result<Row, Failure> {
    let (mut few, mut many, mut late, mut kib) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        sleep(OLD * 2).await;
        let before = site.resident_kib()?;
        let (events, mut seen) = mpsc::unbounded_channel();
        let mut open = vec![site.stream_to(EVENTS, events.clone()).await?];
        few.extend(between_events(server, &mut seen, 1).await?.0);
        while open.len() < MANY {
            // As many at a time as fit into the queue of the listening socket.
            let more = (0..100.min(MANY - open.len())).map(|_| site.stream_to(EVENTS, events.clone()));
            open.extend(try_join_all(more).await?);
        }
        let (commands, delays) = between_events(server, &mut seen, MANY).await?;
        many.extend(commands);
        late.extend(delays);
        kib.push((site.resident_kib()? - before) / MANY as f64);
    }
    Ok(Row {
        what: format!("{MANY} streams beside 1"),
        ours: format!(
            "{:.0} commands for an event with 1, {:.0} with {MANY}; {} KiB of memory each; the last one has an event p50 {:.0}, p99 {:.0} ms after the first one",
            median(&few),
            median(&many),
            spread(&kib),
            quantile(&mut late, 0.5),
            quantile(&mut late, 0.99),
        ),
        asynqmon: String::new(),
        wanted: "commands within 1 %, 64 KiB each, p99 250 ms",
    })
}

/// Commands from one event to the next, and after how many milliseconds each stream has an event that the first one has.
async fn between_events(
    server: &mut Server,
    seen: &mut mpsc::UnboundedReceiver<Seen>,
    streams: usize,
) -> Result<(Vec<f64>, Vec<f64>), Failure> {
    const EVENTS_EACH: usize = 6;
    let (mut commands, mut delays, mut last) = (Vec::new(), Vec::new(), None);
    // What the streams that were opened late have got at once is no event for all.
    sleep(OLD).await;
    while seen.try_recv().is_ok() {}
    for _ in 0..EVENTS_EACH {
        let first = seen.recv().await.ok_or("no more events")?;
        let mut got = 1;
        // Behind the last one, or when it can be no more, is still long before the next event.
        while got < streams {
            let Ok(event) = tokio::time::timeout(OLD / 2, seen.recv()).await else { break };
            let event = event.ok_or("no more events")?;
            delays.push((event.at - first.at).as_secs_f64() * 1e3);
            got += 1;
        }
        if got < streams {
            return Err(format!("{got} of {streams} streams have event {}", first.id).into());
        }
        let now = server.info("stats", "total_commands_processed").await?;
        // What asks is one of them.
        commands.extend(last.map(|last| now - last - 1.0));
        last = Some(now);
    }
    Ok((commands, delays))
}
