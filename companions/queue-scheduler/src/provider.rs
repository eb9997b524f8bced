//! Entries that come from elsewhere and change at run time.

use std::future::Future;
use std::pin::Pin;

use crate::entry::Entry;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Says which entries there are to be, as asynq's `PeriodicTaskConfigProvider`: from a database, for example.
/// It is asked again and again. A function that returns a future is one:
///
/// ```
/// use queue_core::RawTask;
/// use queue_scheduler::{BoxError, ConfigProvider, Entry};
///
/// fn provider() -> impl ConfigProvider {
///     || async { Ok::<_, BoxError>(vec![Entry::new("@hourly", RawTask::new("clean-up")).name("clean-up")]) }
/// }
/// # let _ = provider();
/// ```
pub trait ConfigProvider: Send + Sync + 'static {
    /// All entries there are to be. Those that cannot be used are reported one by one and leave the others
    /// alone; of two with the same name, or with neither a name nor a difference, the first counts.
    ///
    /// # Errors
    /// When it cannot be said; then the entries stay as they are.
    fn entries(&self) -> impl Future<Output = Result<Vec<Entry>, BoxError>> + Send;
}

impl<F, Fut> ConfigProvider for F
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Vec<Entry>, BoxError>> + Send,
{
    fn entries(&self) -> impl Future<Output = Result<Vec<Entry>, BoxError>> + Send {
        self()
    }
}

/// A provider of any type.
pub(crate) trait DynProvider: Send + Sync {
    fn entries(&self) -> Pin<Box<dyn Future<Output = Result<Vec<Entry>, BoxError>> + Send + '_>>;
}

impl<P: ConfigProvider> DynProvider for P {
    fn entries(&self) -> Pin<Box<dyn Future<Output = Result<Vec<Entry>, BoxError>> + Send + '_>> {
        Box::pin(ConfigProvider::entries(self))
    }
}
