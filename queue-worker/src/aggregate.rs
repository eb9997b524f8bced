//! Functions as aggregators.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use queue_core::outcome::Failure;
use queue_core::{FromMessage, FromMessageError, IntoTask, RawTask, TaskMessage};
use tokio_util::sync::CancellationToken;

use crate::extract::{FromRef, State};

/// One aggregation: what an aggregator's extractors are made from.
#[derive(Debug, Clone)]
pub struct Aggregation {
    pub(crate) queue: Arc<str>,
    pub(crate) group: String,
    pub(crate) token: CancellationToken,
}

impl Aggregation {
    /// Queue name.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Group name.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Triggers when the aggregator should stop: the server shuts down, the tasks were given to somebody
    /// else, or it has taken too long. One that does not return within the server's grace time is dropped.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.token
    }
}

/// The name of the group whose tasks are aggregated: the first argument of every aggregator.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group(pub String);

/// An argument of an aggregator after the group and its tasks. Ready made: [`State`], [`Aggregation`] and
/// [`CancellationToken`].
pub trait FromAggregation<S>: Sized {
    /// Why it cannot be had; decides what happens to the tasks.
    type Rejection: Into<Failure>;

    /// Makes the argument.
    ///
    /// # Errors
    /// When it cannot be had; the aggregator is then not called.
    fn from_aggregation(aggregation: &Aggregation, state: &S) -> Result<Self, Self::Rejection>;
}

impl<S, T: FromRef<S>> FromAggregation<S> for State<T> {
    type Rejection = Infallible;

    fn from_aggregation(_: &Aggregation, state: &S) -> Result<Self, Infallible> {
        Ok(State(T::from_ref(state)))
    }
}

impl<S> FromAggregation<S> for Aggregation {
    type Rejection = Infallible;

    fn from_aggregation(aggregation: &Aggregation, _: &S) -> Result<Self, Infallible> {
        Ok(aggregation.clone())
    }
}

impl<S> FromAggregation<S> for CancellationToken {
    type Rejection = Infallible;

    fn from_aggregation(aggregation: &Aggregation, _: &S) -> Result<Self, Infallible> {
        Ok(aggregation.token.clone())
    }
}

/// What an aggregator may return: a [`RawTask`], or a `Result` of anything that can be enqueued, with any
/// error.
///
/// The task is enqueued in the queue of the group, with its own options otherwise, in the same step in which
/// the tasks of the group are deleted. An error puts them back into the group, to be tried again, however
/// often, unless a [`Failure`] says otherwise:
///
/// | answer | what happens to the tasks of the group |
/// | --- | --- |
/// | a task | deleted, with the locks they own |
/// | an error, with `?` | aggregated again, by this server after the check interval, then twice as long each time, up to 2 minutes |
/// | `Failure::retry_in`, `Failure::snooze` | the same, by this server after this delay |
/// | `Failure::archive` | archived, all of them |
/// | `Failure::revoke` | deleted; no task takes their place |
pub trait IntoAggregate {
    /// The task, or the failure.
    ///
    /// # Errors
    /// What went wrong.
    fn into_aggregate(self) -> Result<RawTask, Failure>;
}

impl IntoAggregate for RawTask {
    fn into_aggregate(self) -> Result<RawTask, Failure> {
        Ok(self)
    }
}

impl<T: IntoTask, E: Into<Failure>> IntoAggregate for Result<T, E> {
    fn into_aggregate(self) -> Result<RawTask, Failure> {
        Ok(self.map_err(Into::into)?.into_task()?)
    }
}

/// An async function that makes one task of many; implemented for functions of a [`Group`], a `Vec` of
/// [`RawTask`]s or of a task type, and up to four [`FromAggregation`] arguments.
#[diagnostic::on_unimplemented(
    message = "this function is not an aggregator for a router with the state `{S}`",
    label = "not an aggregator",
    note = "an aggregator is an `async fn` of a `Group`, a `Vec` of `RawTask` or of a task type, and up to four of `State`, `Aggregation` and \
            `CancellationToken`; it returns a `RawTask`, or a `Result` of anything that can be enqueued; its future is `Send`"
)]
pub trait Aggregator<P, M, S>: Clone + Send + Sync + 'static {
    /// Makes one task of the tasks of a group.
    fn call(
        self,
        aggregation: Aggregation,
        tasks: Vec<P>,
        state: S,
    ) -> impl Future<Output = Result<RawTask, Failure>> + Send;
}

macro_rules! aggregators {
    ($($extractor:ident),*) => {
        #[allow(non_snake_case, clippy::allow_attributes, reason = "type names serve as variables; without extractors there are none")]
        impl<F, Fut, P, S, R, $($extractor),*> Aggregator<P, (P, $($extractor,)*), S> for F
        where
            F: Fn(Group, Vec<P>, $($extractor),*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future<Output = R> + Send,
            R: IntoAggregate,
            P: FromMessage,
            S: Send + 'static,
            $($extractor: FromAggregation<S> + Send,)*
        {
            async fn call(self, aggregation: Aggregation, tasks: Vec<P>, state: S) -> Result<RawTask, Failure> {
                let _ = &state;
                $(let $extractor =
                    $extractor::from_aggregation(&aggregation, &state).map_err(Into::<Failure>::into)?;)*
                self(Group(aggregation.group), tasks, $($extractor),*).await.into_aggregate()
            }
        }
    };
}

aggregators!();
aggregators!(A);
aggregators!(A, B);
aggregators!(A, B, C);
aggregators!(A, B, C, D);

type Work = Pin<Box<dyn Future<Output = Result<RawTask, Failure>> + Send>>;

/// The tasks that could be read, waiting for their aggregator, and those that could not, by position.
pub(crate) struct Prepared {
    pub(crate) work: Work,
    pub(crate) refused: Vec<(usize, FromMessageError)>,
}

type Prepare = dyn Fn(Aggregation, &[&TaskMessage]) -> Prepared + Send + Sync;

/// An aggregator with its state, whatever it takes.
#[derive(Clone)]
pub(crate) struct Aggregate(Arc<Prepare>);

impl std::fmt::Debug for Aggregate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Aggregate")
    }
}

impl Aggregate {
    pub(crate) fn new<P, M, A, S>(aggregator: A, state: S) -> Self
    where
        P: FromMessage,
        A: Aggregator<P, M, S>,
        S: Clone + Send + Sync + 'static,
    {
        Self(Arc::new(move |aggregation, messages| {
            let (mut tasks, mut refused) = (Vec::with_capacity(messages.len()), Vec::new());
            for (position, message) in messages.iter().enumerate() {
                match P::from_message(message) {
                    Ok(task) => tasks.push(task),
                    Err(error) => refused.push((position, error)),
                }
            }
            let (aggregator, state) = (aggregator.clone(), state.clone());
            Prepared { work: Box::pin(async move { aggregator.call(aggregation, tasks, state).await }), refused }
        }))
    }

    /// Decodes the tasks. The aggregator runs when the future is polled.
    pub(crate) fn prepare(&self, aggregation: Aggregation, messages: &[&TaskMessage]) -> Prepared {
        self.0(aggregation, messages)
    }
}
