//! How soon a callback starts when the last member of its batch has ended, and what batches cost that wait.
//!
//! `callbacks MODE redis=URL` prints one line of JSON. The modes:
//!
//! * `ours rounds=N`: batches of one, one after another, on an idle server; from the end of the member's handler to the start of the success
//!   callback.
//! * `go rounds=N`: the same with members that a program of Go works (`examples/go_members`, which has to run); from the moment at which Redis
//!   has counted its report.
//! * `waiting batches=N`: batches that wait for a task. Writes into each what stands there after hours, and counts all commands of Redis for a
//!   minute, those in scripts too.
//! * `killed rounds=N`: batches of one, each with a server of its own that is killed at a moment between the end of the handler and two
//!   milliseconds later; from the death to the end of the callback, which another server runs, where the report had come.
//! * `removed rounds=N`: batches of a thousand of which one is due in an hour. Deletes that as Go's Inspector does when the others have ended;
//!   from then to the moment at which the batch knows of it.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bench_program::{Failure, Said};
use futures_util::{StreamExt as _, stream};
use queue_core::RawTask;
use queue_redis::Client;
use queue_worker::{Router, Server};
use tokio::sync::mpsc::unbounded_channel;

const MINUTE: Duration = Duration::from_secs(60);

fn task(task_type: &str) -> RawTask {
    RawTask::new(task_type).queue("bench")
}

/// Commands that Redis was given.
async fn commands(client: &Client) -> Result<u64, Failure> {
    let said: String = client.redis().query("INFO", redis::cmd("INFO").arg("stats")).await?;
    let count = said.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    Ok(count.and_then(|count| count.trim().parse().ok()).unwrap_or(0))
}

/// Waits until Redis has counted a report more in the queue of the program of Go.
async fn counted(client: &Client, before: u64) -> Result<Instant, Failure> {
    loop {
        if reports(client).await? > before {
            return Ok(Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn reports(client: &Client) -> Result<u64, Failure> {
    let key = "asynq:{pictures}:processed";
    Ok(client.redis().query::<Option<u64>>("GET", redis::cmd("GET").arg(key)).await?.unwrap_or(0))
}

/// Makes batches that wait for a task, and writes into them what stands there after hours: one look an hour, each at its own second.
async fn wait(client: &Client, batches: u64) -> Result<(), Failure> {
    let batch = |_| client.batch().on_success(task("callback")).add_all([task("member").process_in(1_440 * MINUTE)]);
    let mut made = stream::iter((0..batches).map(batch)).buffer_unordered(32);
    while let Some(made) = made.next().await {
        made?;
    }
    let redis = client.redis();
    let roots: Vec<String> = redis.query("ZRANGE", redis::cmd("ZRANGE").arg("asynq:x:flows").arg(0).arg(-1)).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let age = |(n, root): (u64, String)| async move {
        let next = now + n * 3_600 / batches;
        let (looked, mut look) = (next - 3_600, redis::cmd("HSET"));
        look.arg(format!("asynq:x:{{{root}}}:0:flow"))
            .arg("touched")
            .arg(looked)
            .arg("looked")
            .arg(looked)
            .arg("pause")
            .arg(3_600);
        redis.query::<()>("HSET", &mut look).await?;
        let mut duty = redis::cmd("ZADD");
        redis.query::<()>("ZADD", duty.arg("asynq:x:duties").arg(next * 1_000).arg(format!("flow {root}"))).await
    };
    let mut aged = stream::iter((0..).zip(roots).map(age)).buffer_unordered(32);
    while let Some(aged) = aged.next().await {
        aged?;
    }
    Ok(())
}

/// Serves a queue of one task, and kills its process when that has been worked, and a time has passed.
async fn victim(said: &Said) -> Result<(), Failure> {
    let after = Duration::from_micros(said.number("after_us", 0));
    let router = Router::new(()).route("member", move |_| async move {
        std::thread::spawn(move || {
            std::thread::sleep(after);
            let _ = nix::sys::signal::raise(nix::sys::signal::SIGKILL);
        });
    });
    let client = Client::connect(said.redis()).await?;
    let queue = format!("victim-{}", said.number("queue", 0));
    let _server = Server::new(client.redis().clone(), router).queues([(queue, 1)]).start().await?;
    std::future::pending().await
}

/// The time from the death of a server to the callback of the batch whose last report it had sent; nothing where the report had not come.
async fn killed(client: Client, redis: String, round: u64) -> Result<Option<Duration>, Failure> {
    let queue = format!("victim-{round}");
    let after = format!("after_us={}", round * 37 % 2_000);
    let mut killed = Command::new(std::env::current_exe()?)
        .args(["victim".to_owned(), format!("redis={redis}"), format!("queue={round}"), after])
        .stdout(Stdio::null())
        .spawn()?;
    let batch =
        client.batch().on_success(task("callback")).add_all([RawTask::new("member").queue(queue.as_str())]).await?;
    tokio::task::spawn_blocking(move || killed.wait()).await??;
    let died = Instant::now();
    let key = format!("asynq:{{{queue}}}:processed");
    if client.redis().query::<Option<u64>>("GET", redis::cmd("GET").arg(key)).await?.is_none() {
        return Ok(None);
    }
    while !batch.status().await?.is_over() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(Some(died.elapsed()))
}

/// The time from the deletion of the only member that had not ended to when the batch knows of it.
async fn removed(client: Client, round: u64) -> Result<Option<Duration>, Failure> {
    let queue = format!("far-{round}");
    let far = RawTask::new("member").queue(queue.as_str()).process_in(60 * MINUTE);
    let batch = client.batch().add_all((1..1_000).map(|_| task("member")).chain([far])).await?;
    while batch.status().await?.succeeded < 999 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let scheduled = format!("asynq:{{{queue}}}:scheduled");
    let ids: Vec<String> = client.redis().query("ZRANGE", redis::cmd("ZRANGE").arg(&scheduled).arg(0).arg(-1)).await?;
    let task = format!("asynq:{{{queue}}}:t:{}", ids[0]);
    client.redis().query::<()>("ZREM", redis::cmd("ZREM").arg(&scheduled).arg(&ids[0])).await?;
    client.redis().query::<()>("DEL", redis::cmd("DEL").arg(task)).await?;
    let began = Instant::now();
    while batch.status().await?.removed == 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(Some(began.elapsed()))
}

/// Prints the times of rounds that ran at once, `gap` between their beginnings.
async fn at_once<F>(mode: &str, rounds: u64, gap: Duration, round: impl Fn(u64) -> F) -> Result<(), Failure>
where
    F: Future<Output = Result<Option<Duration>, Failure>> + Send + 'static,
{
    let mut running = Vec::new();
    for number in 0..rounds {
        running.push(tokio::spawn(round(number)));
        tokio::time::sleep(gap).await;
    }
    let mut took = Vec::new();
    for round in running {
        took.extend(round.await??);
    }
    took.sort();
    let seconds = |at: usize| took.get(at).map_or(0.0, Duration::as_secs_f64);
    let (half, longest) = (seconds(took.len() / 2), seconds(took.len().saturating_sub(1)));
    println!(
        r#"{{"mode": "{mode}", "rounds": {rounds}, "counted": {}, "p50_seconds": {half:.1}, "longest_seconds": {longest:.1}}}"#,
        took.len()
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    queue_redis::log_to_stderr(false);
    let said = Said::read();
    let mode = said.mode.as_deref().ok_or("say ours, go, waiting, killed or removed")?;
    if mode == "victim" {
        return victim(&said).await;
    }
    let client = Client::connect(said.redis()).await?;
    let (end, mut ended) = unbounded_channel();
    let (start, mut started) = unbounded_channel();
    let router = Router::new(())
        .route("member", move |_| {
            let _ = end.send(Instant::now());
            std::future::ready(())
        })
        .route("callback", move |_| {
            let _ = start.send(Instant::now());
            std::future::ready(())
        });
    let server = Server::new(client.redis().clone(), router).queues([("bench", 1)]).start().await?;
    if mode == "killed" {
        let redis = said.redis().to_owned();
        at_once(mode, said.number("rounds", 60), Duration::from_millis(200), |round| {
            killed(client.clone(), redis.clone(), round)
        })
        .await?;
    } else if mode == "removed" {
        at_once(mode, said.number("rounds", 20), Duration::from_secs(3), |round| removed(client.clone(), round))
            .await?;
    } else if mode == "waiting" {
        let batches = said.number("batches", 100_000);
        wait(&client, batches).await?;
        tokio::time::sleep(MINUTE).await;
        let before = commands(&client).await?;
        tokio::time::sleep(MINUTE).await;
        let rate = (commands(&client).await? - before) as f64 / MINUTE.as_secs_f64();
        println!(r#"{{"mode": "waiting", "batches": {batches}, "commands_a_second": {rate:.1}}}"#);
    } else {
        let mut took = Vec::new();
        for _ in 0..said.number("rounds", 300) {
            let before = reports(&client).await?;
            let member = match mode {
                "go" => RawTask::new("picture:fetch").queue("pictures").payload("x"),
                _ => task("member"),
            };
            client.batch().on_success(task("callback")).add_all([member]).await?;
            let at = match mode {
                "go" => counted(&client, before).await?,
                _ => ended.recv().await.ok_or("no member ended")?,
            };
            took.push(started.recv().await.ok_or("no callback started")?.saturating_duration_since(at));
            // The server is idle again.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        took.sort();
        let part = |part: usize| took[took.len() * part / 100].as_secs_f64() * 1_000.0;
        let (half, most, last) = (part(50), part(99), took.last().copied().unwrap_or_default());
        println!(
            r#"{{"mode": "{mode}", "rounds": {}, "p50_ms": {half:.2}, "p99_ms": {most:.2}, "longest_ms": {:.2}}}"#,
            took.len(),
            last.as_secs_f64() * 1_000.0
        );
    }
    server.shutdown().await;
    Ok(())
}
