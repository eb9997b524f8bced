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
        let keys = QueueKeys::new(queue);
        let today = self.clock.now().date_naive();
        let dates: Vec<NaiveDate> = (0..days).map_while(|ago| today.checked_sub_days(Days::new(ago as u64))).collect();
        let mut history = Vec::with_capacity(dates.len());
        for dates in dates.chunks(DAYS_PER_CALL) {
            let mut fetch = redis::cmd("MGET");
            for date in dates {
                let noon = date.and_hms_opt(12, 0, 0).unwrap_or_default().and_utc().timestamp();
                fetch.arg(keys.processed_on(noon)).arg(keys.failed_on(noon));
            }
            let counts: Vec<Number> = self.redis.query("MGET", &fetch).await?;
            history.extend(dates.iter().zip(counts.chunks_exact(2)).map(|(&date, counts)| DailyStats {
                date,
                processed: counts[0].count(),
                failed: counts[1].count(),
            }));
        }
        Ok(history)
    }
}
