//! What a handler can ask for after its payload.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use queue_core::outcome::Failure;
use queue_redis::{Batch, BatchError, Client, Interceptor, Outgoing, Parents};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::job::{CheckpointError, Job};

/// An argument of a handler, made from the job and the router's state.
///
/// Ready made: [`State`], [`Job`], [`Headers`], [`Extension`], [`Cursor`], [`Batch`], [`Parents`], [`CancellationToken`], and
/// `Option<E>` or
/// `Result<E, E::Rejection>` of any other.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an extractor",
    label = "cannot be made from the job",
    note = "the task comes first, and after it extractors: `State`, `Job`, `Headers`, `Extension`, `Batch`, `Parents`, `Cursor`, `CancellationToken`, or a type of yours that \
            implements `FromJob`"
)]
pub trait FromJob<S>: Sized {
    /// Why it cannot be had; decides what happens to the task.
    type Rejection: Into<Failure>;

    /// Makes the argument.
    ///
    /// # Errors
    /// When it cannot be had; the handler is then not called.
    fn from_job(job: &Job, state: &S) -> impl Future<Output = Result<Self, Self::Rejection>> + Send;
}

/// A part of the router's state. The whole state is a part of itself.
///
/// ```
/// use queue_worker::FromRef;
///
/// #[derive(Clone)] struct Database;
/// #[derive(Clone)] struct App { database: Database }
/// impl FromRef<App> for Database {
///     fn from_ref(app: &App) -> Self { app.database.clone() }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the router's state `{S}` has no `{Self}`",
    label = "not a part of the router's state",
    note = "give it to `Router::new`, or implement `FromRef<{S}>` for it if the state contains it"
)]
pub trait FromRef<S> {
    /// The part.
    fn from_ref(state: &S) -> Self;
}

impl<S: Clone> FromRef<S> for S {
    fn from_ref(state: &S) -> Self {
        state.clone()
    }
}

/// The router's state, or a part of it. A state that the router does not have does not compile.
#[derive(Debug, Clone, Copy)]
pub struct State<T>(pub T);

impl<S: Sync, T: FromRef<S> + Send> FromJob<S> for State<T> {
    type Rejection = Infallible;

    async fn from_job(_: &Job, state: &S) -> Result<Self, Infallible> {
        Ok(State(T::from_ref(state)))
    }
}

impl<S: Sync> FromJob<S> for Job {
    type Rejection = Infallible;

    async fn from_job(job: &Job, _: &S) -> Result<Self, Infallible> {
        Ok(job.clone())
    }
}

/// The headers of the task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headers(pub BTreeMap<String, String>);

impl<S: Sync> FromJob<S> for Headers {
    type Rejection = Infallible;

    async fn from_job(job: &Job, _: &S) -> Result<Self, Infallible> {
        Ok(Headers(job.headers().clone()))
    }
}

/// A value that a layer has added with [`Job::with_extension`], for example who the task is for.
///
/// ```
/// use queue_worker::{Extension, Failure, Job, Next, Router, Task, from_fn};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize, Task)] #[task(type = "invoice")] struct Invoice;
/// #[derive(Clone)]
/// struct Tenant(String);
///
/// async fn invoice(_: Invoice, Extension(Tenant(tenant)): Extension<Tenant>) {
///     println!("an invoice for {tenant}");
/// }
///
/// let router = Router::new(()).task(invoice).layer(from_fn(async |job: Job, next: Next| {
///     let tenant = job.headers().get("tenant").cloned().ok_or_else(|| Failure::archive("no tenant"))?;
///     next.run(job.with_extension(Tenant(tenant))).await
/// }));
/// ```
///
/// Without such a layer the task fails, and says so; `Option<Extension<T>>` does without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extension<T>(pub T);

/// No layer has added the value that a handler asks for.
#[derive(Debug, thiserror::Error)]
#[error("no layer has added the extension {0} that the handler asks for (Job::with_extension)")]
pub struct MissingExtension(&'static str);

impl<S: Sync, T: Clone + Send + Sync + 'static> FromJob<S> for Extension<T> {
    type Rejection = MissingExtension;

    async fn from_job(job: &Job, _: &S) -> Result<Self, MissingExtension> {
        let value = job.extension::<T>().cloned();
        value.map(Extension).ok_or_else(|| MissingExtension(std::any::type_name::<T>()))
    }
}

/// Where an earlier attempt has left off by [`Job::checkpoint`]; `None` at the first one.
///
/// ```
/// use queue_worker::{Cursor, Failure, Job, Router, Task};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize, Task)] #[task(type = "import")] struct Import { rows: u64 }
///
/// async fn import(task: Import, Cursor(done): Cursor<u64>, job: Job) -> Result<(), Failure> {
///     for row in done.unwrap_or(0)..task.rows {
///         // import the row, then say that the next one is to come
///         job.checkpoint(&(row + 1)).await?;
///         job.progress((row * 100 / task.rows) as u8, format!("row {row}"));
///     }
///     Ok(())
/// }
/// # let _ = Router::new(()).task(import);
/// ```
///
/// A cursor that cannot be read as `T` fails the attempt; `Result<Cursor<T>, CheckpointError>` leaves it to the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor<T>(pub Option<T>);

impl<S: Sync, T: DeserializeOwned> FromJob<S> for Cursor<T> {
    type Rejection = CheckpointError;

    async fn from_job(job: &Job, _: &S) -> Result<Self, CheckpointError> {
        Ok(Cursor(job.cursor().await?))
    }
}

/// The batch of the task, a member or a callback: what is added to it while the handler runs is added once, however often
/// the task is tried.
///
/// It enqueues by a client of its own, with the `Arc<dyn Interceptor>` that a layer has added as an
/// [extension](Job::with_extension), as that of `queue-crypt` does. With a client of yours, use [`Batch::of_task`].
impl<S: Sync> FromJob<S> for Batch {
    type Rejection = BatchError;

    async fn from_job(job: &Job, _: &S) -> Result<Self, BatchError> {
        let client = Client::new(job.redis().clone());
        let client = match job.extension::<Arc<dyn Interceptor>>().cloned() {
            Some(interceptor) => client.intercept(move |task: &mut Outgoing<'_>| interceptor.intercept(task)),
            None => client,
        };
        Batch::of_task(client, job.id())
    }
}

/// What the nodes have left that this task has waited for in its workflow.
impl<S: Sync> FromJob<S> for Parents {
    type Rejection = Failure;

    async fn from_job(job: &Job, _: &S) -> Result<Self, Failure> {
        Parents::of_task(job.redis(), job.headers()).await.map_err(|error| match error.is_outage() {
            // The handler has not begun: this spends no retry.
            true => Failure::Snooze(None, error.into()),
            false => error.into(),
        })
    }
}

impl<S: Sync> FromJob<S> for CancellationToken {
    type Rejection = Infallible;

    async fn from_job(job: &Job, _: &S) -> Result<Self, Infallible> {
        Ok(job.cancellation().clone())
    }
}

impl<S: Sync, E: FromJob<S>> FromJob<S> for Option<E> {
    type Rejection = Infallible;

    async fn from_job(job: &Job, state: &S) -> Result<Self, Infallible> {
        Ok(E::from_job(job, state).await.ok())
    }
}

impl<S: Sync, E: FromJob<S>> FromJob<S> for Result<E, E::Rejection> {
    type Rejection = Infallible;

    async fn from_job(job: &Job, state: &S) -> Result<Self, Infallible> {
        Ok(E::from_job(job, state).await)
    }
}
