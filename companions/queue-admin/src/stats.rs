use chrono::{Days, NaiveDate};
use queue_core::Clock as _;
use queue_core::keys::QueueKeys;

use super::Inspector;
use crate::error::Error;
use crate::lenient::Number;

/// Days asked for in one call.
const DAYS_PER_CALL: usize = 100;

/// What was done in a queue on one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DailyStats {
    /// The day, from midnight to midnight UTC.
    pub date: NaiveDate,
    /// Tasks finished, failures included.
    pub processed: u64,
    /// Failures.
    pub failed: u64,
}

impl Inspector {
    /// What was done in a queue on each of the last days, today first. Redis keeps 90 days; a day of which
    /// it knows nothing has zeros.
    ///
    /// # Errors
    /// When there is no such queue, or Redis cannot be asked or refuses.
    pub async fn history(&self, queue: &str, days: usize) -> Result<Vec<DailyStats>, Error> {
        self.require_queue(queue).await?;
        let histories = self.histories(&[queue.to_owned()], days).await?;
        Ok(histories.into_iter().next().unwrap_or_default())
    }

    /// The same of several queues, in one round trip. Of one that is not there, nothing was done.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn histories(&self, queues: &[String], days: usize) -> Result<Vec<Vec<DailyStats>>, Error> {
        self.look_at_the_clock().await?;
        let today = self.clock.now().date_naive();
        let dates: Vec<NaiveDate> = (0..days).map_while(|ago| today.checked_sub_days(Days::new(ago as u64))).collect();
        if queues.is_empty() || dates.is_empty() {
            return Ok(vec![Vec::new(); queues.len()]);
        }
        let mut fetch = redis::pipe();
        for queue in queues {
            let keys = QueueKeys::new(queue);
            for dates in dates.chunks(DAYS_PER_CALL) {
                fetch.cmd("MGET");
                for date in dates {
                    let noon = date.and_hms_opt(12, 0, 0).unwrap_or_default().and_utc().timestamp();
                    fetch.arg(keys.processed_on(noon)).arg(keys.failed_on(noon));
                }
            }
        }
        let counts: Vec<Vec<Number>> = self.redis.pooled().await?.pipeline("MGET", &fetch).await?;
        let calls = dates.len().div_ceil(DAYS_PER_CALL);
        let day = |(date, counts): (&NaiveDate, &[Number])| DailyStats {
            date: *date,
            processed: counts[0].count(),
            failed: counts[1].count(),
        };
        let history = |calls: &[Vec<Number>]| {
            let counts = calls.iter().flat_map(|counts| counts.chunks_exact(2));
            dates.iter().zip(counts).map(day).collect()
        };
        Ok(counts.chunks(calls).map(history).collect())
    }
}
