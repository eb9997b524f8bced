//! asynqmon's `metrics`: series of queues from a Prometheus.

use std::collections::BTreeMap;
use std::pin::Pin;

use axum::http::StatusCode;
use bytes::Bytes;
use futures_util::future::try_join_all;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use queue_core::{Clock as _, SystemClock};
use serde_json::value::RawValue;

use crate::problem::Problem;
use crate::request::{Answer, Request, json};

/// Asks a Prometheus for what stands behind its address; the body of the answer.
pub(crate) type Prometheus =
    dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send>> + Send + Sync;

/// What is answered, and what is asked for it. All of it is what asynq's exporter tells, and ours.
const SERIES: [(&str, &str); 9] = [
    ("queue_size", "asynq_queue_size{QUEUES}"),
    ("queue_latency_seconds", "asynq_queue_latency_seconds{QUEUES}"),
    ("queue_memory_usage_approx_bytes", "asynq_queue_memory_usage_approx_bytes{QUEUES}"),
    ("tasks_processed_per_second", "rate(asynq_tasks_processed_total{QUEUES}[5m])"),
    ("tasks_failed_per_second", "rate(asynq_tasks_failed_total{QUEUES}[5m])"),
    ("error_rate", "rate(asynq_tasks_failed_total{QUEUES}[5m]) / rate(asynq_tasks_processed_total{QUEUES}[5m])"),
    ("pending_tasks_by_queue", r#"asynq_tasks_enqueued_total{state="pending",QUEUES}"#),
    ("retry_tasks_by_queue", r#"asynq_tasks_enqueued_total{state="retry",QUEUES}"#),
    ("archived_tasks_by_queue", r#"asynq_tasks_enqueued_total{state="archived",QUEUES}"#),
];

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// The longest time that is asked for, in days.
const LONGEST: i64 = 10 * 366;

pub(super) async fn metrics(request: Request) -> Answer {
    let prometheus = request.web.prometheus.clone();
    let Some(prometheus) = prometheus else {
        return Err(Problem::not_found("no-route", "this dashboard knows of no Prometheus (--prometheus)"));
    };
    let duration = seconds(&request, "duration", 1..=LONGEST * DAY)?.unwrap_or(HOUR);
    let end = seconds(&request, "endtime", 0..=i64::MAX)?.unwrap_or_else(|| SystemClock.now_secs());
    let (start, step, queues) = (end - duration, step(duration), matcher(&request).await?);
    // Not the places of searches: a Prometheus that hangs is not to hold these up.
    let closed = |_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "closed", "the dashboard ends");
    let _asking = request.web.metrics.acquire().await.map_err(closed)?;
    let asked = SERIES.map(|(name, query)| {
        let query = query.replace("QUEUES", &queues);
        let query = utf8_percent_encode(&query, NON_ALPHANUMERIC);
        let asked = prometheus(format!("/api/v1/query_range?query={query}&start={start}&end={end}&step={step}"));
        async move {
            let body = asked.await.map_err(refused)?;
            // Whatever it says, also that it refuses the query, as asynqmon does.
            let told: Box<RawValue> = serde_json::from_slice(&body).map_err(|_| refused("it answers no JSON"))?;
            Ok::<_, Problem>((name, told))
        }
    });
    let told: BTreeMap<&str, Box<RawValue>> = try_join_all(asked).await?.into_iter().collect();
    json(&told)
}

fn refused(why: impl std::fmt::Display) -> Problem {
    Problem::new(StatusCode::BAD_GATEWAY, "prometheus-refused", format!("Prometheus cannot be asked: {why}"))
}

fn seconds(request: &Request, name: &str, range: std::ops::RangeInclusive<i64>) -> Result<Option<i64>, Problem> {
    let Some(text) = request.param(name) else { return Ok(None) };
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.map(Some).ok_or_else(|| Problem::invalid(name, format!("{name} is no number of seconds")))
}

/// Seconds between two values, as in asynqmon: 3,000 to some thousands of them.
fn step(duration: i64) -> i64 {
    const STEPS: [(i64, i64); 4] = [(6 * HOUR, 10), (DAY, 60), (8 * DAY, 180), (30 * DAY, 600)];
    let known = STEPS.into_iter().find(|(longest, _)| duration <= *longest);
    known.map_or(duration / 3_000, |(_, step)| step)
}

/// The label by which the queues are chosen that are asked for and seen; nothing for all.
async fn matcher(request: &Request) -> Result<String, Problem> {
    let wanted: Vec<String> =
        request.param("queues").map(|queues| queues.split(',').map(str::to_owned).collect()).unwrap_or_default();
    let queues = match (request.who.sees_all(), wanted.is_empty()) {
        (true, true) => return Ok(String::new()),
        (true, false) => wanted,
        (false, true) => request.queues_seen().await?,
        (false, false) => wanted.into_iter().filter(|queue| request.who.sees(queue)).collect(),
    };
    let names: Vec<String> = queues.iter().map(|queue| literal(queue)).collect();
    Ok(format!(r#"queue=~"{}""#, names.join("|")))
}

/// A name as an expression that fits it alone, within quotes: else a name chose queues that are not seen.
fn literal(name: &str) -> String {
    let mut text = String::new();
    for character in name.chars() {
        match character {
            '\\' => text.push_str(r"\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$' => {
                text.extend(["\\\\", character.encode_utf8(&mut [0; 4])]);
            }
            _ => text.push(character),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_itself_alone() {
        for (name, text) in [
            ("mail:fast", "mail:fast"),
            ("a.b", r"a\\.b"),
            (".*", r"\\.\\*"),
            (r#"x"} or y{z=""#, r#"x\"\\} or y\\{z=\""#),
            (r"a\", r"a\\\\"),
            ("a\nb", r"a\nb"),
        ] {
            assert_eq!(literal(name), text);
        }
    }

    #[test]
    fn the_longer_the_time_the_farther_apart_the_values() {
        let steps = [1, 6 * HOUR, 6 * HOUR + 1, DAY, 8 * DAY, 30 * DAY, 30 * DAY + 1, 300 * DAY].map(step);
        assert_eq!(steps, [10, 10, 60, 60, 180, 600, 864, 8_640]);
    }
}
