//! What an outbox costs, and how fast it is relayed.
//!
//! `bench-outbox MODE redis=URL tasks=N`, with DATABASE_URL: transactions per second of 20 callers that insert one row of their own each, without a
//! row for a task beside it and with it, in turn (`write`); rows per second of one relay (`relay`); milliseconds from the commit to the start of
//! the handler, a hundred commits a second (`latency`). It prints one line of JSON.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bench_program::{Failure, Said};
use queue_core::RawTask;
use queue_outbox::{CancellationToken, Database, Outbox, Relay};
use queue_redis::Client;
use queue_worker::{Job, Router, Server};
use tokio_postgres::NoTls;

const CALLERS: u64 = 20;

fn task(n: u64) -> RawTask {
    RawTask::new("bench:noop").payload(format!("{n:<200}")).queue("bench")
}

async fn connect() -> Result<tokio_postgres::Client, Failure> {
    let (client, connection) = tokio_postgres::connect(&std::env::var("DATABASE_URL")?, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Transactions per second, with rows for tasks or without.
async fn write(outbox: &Outbox, transactions: u64, with: bool) -> Result<f64, Failure> {
    let mut callers = tokio::task::JoinSet::new();
    let began = Instant::now();
    for caller in 0..CALLERS {
        let outbox = outbox.clone();
        callers.spawn(async move {
            let mut client = connect().await?;
            for n in 0..transactions / CALLERS {
                let transaction = client.transaction().await?;
                transaction.execute("INSERT INTO orders (text) VALUES ($1)", &[&format!("{caller} {n}")]).await?;
                if with {
                    outbox.row(task(n))?.insert(&transaction).await?;
                }
                transaction.commit().await?;
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    Ok(transactions as f64 / began.elapsed().as_secs_f64())
}

/// Rows per second.
async fn relay(outbox: &Outbox, relay: &Relay, rows: u64) -> Result<f64, Failure> {
    let client = connect().await?;
    let texts: Vec<String> = (0..rows).map(|n| Ok(outbox.row(task(n))?.text().to_owned())).collect::<Result<_, Failure>>()?;
    for texts in texts.chunks(10_000) {
        client.execute("INSERT INTO queue_outbox (task) SELECT unnest($1::text[])::json", &[&texts]).await?;
    }
    let began = Instant::now();
    let passed = relay.run_once().await?;
    assert_eq!(passed.relayed as u64, rows);
    Ok(rows as f64 / began.elapsed().as_secs_f64())
}

/// Milliseconds from commit to start: the middle, and all but one of a hundred.
async fn latency(outbox: &Outbox, relay: Relay, client: &Client, tasks: u64) -> Result<(f64, f64), Failure> {
    let committed: Arc<Mutex<HashMap<u64, Instant>>> = Arc::default();
    let waits: Arc<Mutex<Vec<f64>>> = Arc::default();
    let router = Router::new(()).route("bench:noop", {
        let (committed, waits) = (committed.clone(), waits.clone());
        move |job: Job| {
            let (n, now) = (String::from_utf8_lossy(job.payload()).trim().parse().unwrap_or(0), Instant::now());
            if let Some(at) = committed.lock().unwrap().get(&n) {
                waits.lock().unwrap().push(now.duration_since(*at).as_secs_f64() * 1_000.0);
            }
            std::future::ready(())
        }
    });
    let server = Server::new(client.redis().clone(), router).queues([("bench", 1)]).start().await?;
    let quiet = CancellationToken::new();
    let told = quiet.clone();
    let relaying = tokio::spawn(async move { relay.run(&told).await });
    let database = connect().await?;
    for n in 0..tasks {
        let row = outbox.row(task(n))?;
        // The commit has not returned yet: a wait counts from before it.
        committed.lock().unwrap().insert(n, Instant::now());
        row.insert(&database).await?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    while waits.lock().unwrap().len() < tasks as usize {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    quiet.cancel();
    relaying.await??;
    server.shutdown().await;
    let mut waits = waits.lock().unwrap().clone();
    waits.sort_by(f64::total_cmp);
    Ok((waits[waits.len() / 2], waits[waits.len() * 99 / 100]))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    queue_redis::log_to_stderr(false);
    let said = Said::read();
    let (mode, tasks) = (said.mode.as_deref().ok_or("say write, relay or latency")?, said.number("tasks", 20_000));
    let client = Client::connect(said.redis()).await?;
    let database = Database::new(&std::env::var("DATABASE_URL")?)?;
    database.init().await?;
    let outbox = Outbox::new(client.clone());
    let relay_of = || Relay::new(database.clone(), client.clone());
    match mode {
        "write" => {
            let tables = "CREATE TABLE IF NOT EXISTS orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text); TRUNCATE orders, queue_outbox";
            connect().await?.batch_execute(tables).await?;
            for round in 0..said.number("rounds", 5) {
                let (mut rates, order) = ([0.0; 2], [round % 2 == 1, round % 2 == 0]);
                for with in order {
                    rates[usize::from(with)] = write(&outbox, tasks, with).await?;
                }
                println!(r#"{{"without":{:.0},"with":{:.0},"ratio":{:.3}}}"#, rates[0], rates[1], rates[1] / rates[0]);
            }
        }
        "relay" => {
            for _ in 0..said.number("rounds", 5) {
                println!(r#"{{"rows_per_second":{:.0}}}"#, relay(&outbox, &relay_of(), tasks).await?);
            }
        }
        "latency" => {
            let (middle, most) = latency(&outbox, relay_of(), &client, tasks).await?;
            println!(r#"{{"p50_ms":{middle:.1},"p99_ms":{most:.1}}}"#);
        }
        other => return Err(format!("no mode {other:?}").into()),
    }
    Ok(())
}
