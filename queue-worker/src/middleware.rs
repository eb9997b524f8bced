//! Functions as layers.

use tower::{Layer, ServiceExt as _, service_fn};

use crate::handler::Answer;
use crate::job::Job;
use crate::routes::Route;

/// A layer made of an async function, for [`Router::layer`](crate::Router::layer). It gets the job and the [rest of
/// the way](Next) to the handler, and returns what came of it.
///
/// ```
/// use queue_worker::{Answer, Job, Next, Panicked, Router, from_fn};
///
/// async fn watch(job: Job, next: Next) -> Answer {
///     let task_type = job.task_type().to_owned();
///     let answer = next.run(job).await;
///     if let Err(failure) = &answer {
///         let what = if failure.error().is::<Panicked>() { "panicked" } else { "failed" };
///         println!("{task_type} {what}: {failure}");
///     }
///     answer
/// }
///
/// let router = Router::new(()).route("image:", async |_: Job| {}).layer(from_fn(watch));
/// ```
///
/// State is what the function captures. To leave the handler out, return without calling [`Next::run`].
pub fn from_fn<F, Fut>(function: F) -> impl Layer<Route, Service = Route> + Clone
where
    F: Fn(Job, Next) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    FromFn(function)
}

/// What is inside of a layer: further layers, and the handler.
#[derive(Debug)]
pub struct Next(Route);

impl Next {
    /// Calls it. A panic of the handler is a failure with the error [`Panicked`](crate::Panicked).
    ///
    /// # Errors
    /// With the failure of the handler, or of a layer in between.
    pub async fn run(self, job: Job) -> Answer {
        self.0.oneshot(job).await
    }
}

#[derive(Clone)]
struct FromFn<F>(F);

impl<F, Fut> Layer<Route> for FromFn<F>
where
    F: Fn(Job, Next) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    type Service = Route;

    fn layer(&self, inside: Route) -> Route {
        let FromFn(function) = self.clone();
        Route::new(service_fn(move |job| function(job, Next(inside.clone()))))
    }
}
