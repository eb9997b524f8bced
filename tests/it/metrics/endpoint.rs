use queue_metrics::{Endpoint, QueueMetrics, Registry, WorkerMetrics};
use queue_redis::{Redis, RedisOptions};
use queue_worker::CancellationToken;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Fixture, Lines, PATIENCE, Proxy, RedisProcess, eventually, get, job};

#[tokio::test]
async fn an_endpoint_shows_what_it_was_given_and_ends_when_told() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("a")]).await;
    let own = Registry::new();
    let counter = queue_metrics::prometheus::IntCounter::new("shop_orders_total", "Orders").unwrap();
    own.register(Box::new(counter.clone())).unwrap();
    counter.inc();
    let endpoint = Endpoint::new(fixture.redis())
        .worker(WorkerMetrics::new())
        .queues(QueueMetrics::new(fixture.inspector()))
        .registry(own);
    let listening = endpoint.bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listening.local_addr().unwrap(), CancellationToken::new());
    let served = tokio::spawn(listening.serve(stop.clone().cancelled_owned()));
    let (head, body) = get(address, "/metrics").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    for line in ["asynq_queue_size{queue=\"q\"} 1", "asynq_worker_slots 0", "shop_orders_total 1"] {
        assert!(body.lines().any(|other| other == line), "{line} in:\n{body}");
    }
    assert_eq!(get(address, "/healthz").await.1, "ok\n");
    assert!(get(address, "/").await.0.starts_with("HTTP/1.1 404"));
    // A client that never asks anything does not hold up the end.
    let _idle = TcpStream::connect(address).await.unwrap();
    stop.cancel();
    served.await.unwrap().unwrap();
}

/// They were held for ever, and took the files that a worker needs.
#[tokio::test]
async fn half_sent_requests_are_hung_up_on_and_others_wait_for_their_places() {
    let fixture = Fixture::start().await;
    let listening = Endpoint::new(fixture.redis()).bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listening.local_addr().unwrap(), CancellationToken::new());
    let served = tokio::spawn(listening.serve(stop.clone().cancelled_owned()));
    let mut half_sent = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-half: ").await.unwrap();
        half_sent.push(stream);
    }
    assert_eq!(get(address, "/healthz").await.1, "ok\n", "whoever comes later has an answer all the same");
    let waits = |error: std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    let hung_up = |stream: &TcpStream| !stream.try_read(&mut [0; 1]).is_err_and(waits);
    assert!(half_sent.iter().any(hung_up), "there was no place for it before one of the others had gone");
    for mut stream in half_sent {
        let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
        assert!(end.is_ok(), "a half-sent request is still waited for");
    }
    stop.cancel();
    served.await.unwrap().unwrap();
}

/// Nothing said why there were no metrics.
#[tokio::test]
async fn scrapes_that_take_too_long_are_logged_once() {
    let fixture = Fixture::start().await;
    let (proxy, (lines, _guard)) = (Proxy::start(fixture.socket()).await, Lines::collect());
    let options = RedisOptions { response_timeout: PATIENCE, ..RedisOptions::default() };
    let redis = Redis::lazy(&proxy.url(), options).unwrap();
    let queues = QueueMetrics::new(queue_admin::Inspector::new(redis.clone()));
    let listening = Endpoint::new(redis).queues(queues).bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listening.local_addr().unwrap(), CancellationToken::new());
    let served = tokio::spawn(listening.serve(stop.clone().cancelled_owned()));
    assert!(get(address, "/metrics").await.1.contains("asynq_redis_up 1"));
    proxy.lose_answers();
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    let (first, second) = tokio::join!(get(address, "/metrics"), get(address, "/metrics"));
    for (head, body) in [first, second] {
        assert!(head.starts_with("HTTP/1.1 503"), "{head} {body}");
    }
    let told = lines.all().iter().filter(|line| line.contains("given up after 9s")).count();
    assert_eq!(told, 1, "{:?}", lines.all());
    stop.cancel();
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_taken_port_is_named_with_what_to_do() {
    let fixture = Fixture::start().await;
    let first = Endpoint::new(fixture.redis()).bind("127.0.0.1:0").await.unwrap();
    let address = first.local_addr().unwrap().to_string();
    let error = Endpoint::new(fixture.redis()).bind(&address).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot listen for HTTP on {address}: ")), "{error}");
    assert!(error.contains("choose another port"), "{error}");
    let error = Endpoint::new(fixture.redis()).bind("9876").await.unwrap_err().to_string();
    assert!(error.contains("write it like 127.0.0.1:9876"), "{error}");
}

#[tokio::test]
async fn health_is_red_while_redis_is_away_and_metrics_go_on() {
    let mut server = RedisProcess::start(&[]).await;
    let redis = Redis::lazy(&server.url(), RedisOptions::default()).unwrap();
    let inspector = queue_admin::Inspector::new(redis.clone());
    let endpoint = Endpoint::new(redis).queues(QueueMetrics::new(inspector)).worker(WorkerMetrics::new());
    let listening = endpoint.bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listening.local_addr().unwrap(), CancellationToken::new());
    let served = tokio::spawn(listening.serve(stop.clone().cancelled_owned()));
    let healthy = async || get(address, "/healthz").await.0.starts_with("HTTP/1.1 200");
    assert!(healthy().await);
    server.kill();
    eventually("it is red", async || get(address, "/healthz").await.0.starts_with("HTTP/1.1 503")).await;
    eventually("the metrics say so", async || {
        let (head, body) = get(address, "/metrics").await;
        head.starts_with("HTTP/1.1 200") && body.contains("asynq_redis_up 0\n") && body.contains("asynq_worker_slots 0")
    })
    .await;
    server.start_again().await;
    eventually("it is green again", healthy).await;
    stop.cancel();
    served.await.unwrap().unwrap();
}
