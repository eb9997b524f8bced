//! The routes of asynqmon 0.7.2, for the scripts and pages that are written for it: its paths, fields and texts, behind our own checks.

mod change;
mod look;
pub(crate) mod metrics;
mod shape;

use std::sync::LazyLock;

use axum::http::Method;
use queue_admin::{Action, Permission, QueueVerb, Verb};
use queue_core::TaskState;

use crate::problem::Problem;
use crate::request::Request;
use crate::route::{Need, Route};

use self::change::{all, batch, one, pause, remove};
use self::look::{entries, events, groups, queue, queues, redis_info, servers, stats, task, tasks};
use self::metrics::metrics;

macro_rules! routes {
    ($($method:ident $path:literal $need:expr, $work:ident($($more:expr),*);)*) => {
        vec![$(Route {
            method: Method::$method, path: $path, need: $need, about: "", query: &[], answer: "",
            work: |request| Box::pin($work(request, $($more),*)),
        },)*]
    };
}

/// Below `/api`. They are no part of the API that we describe.
static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    use Action::{Queue, Task, Tasks};
    use Need::Do;
    use Verb::{Archive, Delete, Interrupt, Run};
    const VIEW: Need = Need::See(Permission::View);
    routes! {
        GET "/queues" VIEW, queues();
        GET "/queues/{queue}" VIEW, queue();
        DELETE "/queues/{queue}" Do(Queue(QueueVerb::Remove)), remove();
        POST "/queues/{queue}:pause" Do(Queue(QueueVerb::Pause)), pause(true);
        POST "/queues/{queue}:resume" Do(Queue(QueueVerb::Resume)), pause(false);
        GET "/queue_stats" VIEW, stats();
        GET "/servers" VIEW, servers();
        GET "/redis_info" VIEW, redis_info();
        GET "/metrics" VIEW, metrics();
        GET "/scheduler_entries" VIEW, entries();
        GET "/scheduler_entries/{entry}/enqueue_events" VIEW, events();
        GET "/queues/{queue}/tasks/{id}" VIEW, task();
        GET "/queues/{queue}/groups" VIEW, groups();
        GET "/queues/{queue}/{list}" VIEW, tasks();
        GET "/queues/{queue}/groups/{group}/{list}" VIEW, tasks();
        POST "/queues/{queue}/{list}/{id}:run" Do(Task(Run)), one(Run);
        POST "/queues/{queue}/{list}:batch_run" Do(Task(Run)), batch(Run);
        POST "/queues/{queue}/{list}:run_all" Do(Tasks(Run)), all(Run);
        POST "/queues/{queue}/{list}/{id}:archive" Do(Task(Archive)), one(Archive);
        POST "/queues/{queue}/{list}:batch_archive" Do(Task(Archive)), batch(Archive);
        POST "/queues/{queue}/{list}:archive_all" Do(Tasks(Archive)), all(Archive);
        POST "/queues/{queue}/{list}/{id}:cancel" Do(Task(Interrupt)), one(Interrupt);
        POST "/queues/{queue}/{list}:batch_cancel" Do(Task(Interrupt)), batch(Interrupt);
        POST "/queues/{queue}/{list}:cancel_all" Do(Tasks(Interrupt)), all(Interrupt);
        DELETE "/queues/{queue}/{list}/{id}" Do(Task(Delete)), one(Delete);
        POST "/queues/{queue}/{list}:batch_delete" Do(Task(Delete)), batch(Delete);
        DELETE "/queues/{queue}/{list}:delete_all" Do(Tasks(Delete)), all(Delete);
        POST "/queues/{queue}/groups/{group}/{list}/{id}:run" Do(Task(Run)), one(Run);
        POST "/queues/{queue}/groups/{group}/{list}:batch_run" Do(Task(Run)), batch(Run);
        POST "/queues/{queue}/groups/{group}/{list}:run_all" Do(Tasks(Run)), all(Run);
        POST "/queues/{queue}/groups/{group}/{list}/{id}:archive" Do(Task(Archive)), one(Archive);
        POST "/queues/{queue}/groups/{group}/{list}:batch_archive" Do(Task(Archive)), batch(Archive);
        POST "/queues/{queue}/groups/{group}/{list}:archive_all" Do(Tasks(Archive)), all(Archive);
        DELETE "/queues/{queue}/groups/{group}/{list}/{id}" Do(Task(Delete)), one(Delete);
        POST "/queues/{queue}/groups/{group}/{list}:batch_delete" Do(Task(Delete)), batch(Delete);
        DELETE "/queues/{queue}/groups/{group}/{list}:delete_all" Do(Tasks(Delete)), all(Delete);
    }
});

pub(crate) fn table() -> &'static [Route] {
    &ROUTES
}

/// A list of tasks that a path names.
struct List<'a> {
    queue: &'a str,
    state: TaskState,
    group: Option<&'a str>,
}

/// The list that these names of the path lead to. asynqmon has one for each state, for those that aggregate one in each group; and
/// it does with each what is usual in its state.
fn list<'a>(request: &'a Request, names: &'a [String], verb: Option<Verb>) -> Result<List<'a>, Problem> {
    let queue = request.queue()?;
    let (name, group) = names[1..].split_last().map_or(("", None), |(name, before)| (&name[..], before.last()));
    let state = name.strip_suffix("_tasks").and_then(|state| state.parse().ok()).filter(|state| {
        verb.is_none_or(|verb| verb.usual_states().contains(state))
            && (*state == TaskState::Aggregating) == group.is_some()
    });
    let state = state.ok_or_else(|| Problem::not_found("no-route", "there is nothing at this address"))?;
    Ok(List { queue, state, group: group.map(String::as_str) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::find;

    #[test]
    fn what_stands_behind_a_name_tells_what_is_to_be_done() {
        for (method, path, pattern, names) in [
            ("POST", "/queues/a:b:pause", "/queues/{queue}:pause", &["a:b"][..]),
            ("GET", "/queues/a:pause", "/queues/{queue}", &["a:pause"]),
            ("GET", "/queues/a/groups", "/queues/{queue}/groups", &["a"]),
            ("GET", "/queues/a/retry_tasks", "/queues/{queue}/{list}", &["a", "retry_tasks"]),
            ("POST", "/queues/a/retry_tasks/x:y:run", "/queues/{queue}/{list}/{id}:run", &["a", "retry_tasks", "x:y"]),
            ("POST", "/queues/a/retry_tasks:batch_run", "/queues/{queue}/{list}:batch_run", &["a", "retry_tasks"]),
            ("DELETE", "/queues/a/retry_tasks:delete_all", "/queues/{queue}/{list}:delete_all", &["a", "retry_tasks"]),
            (
                "DELETE",
                "/queues/a/retry_tasks/x:delete_all",
                "/queues/{queue}/{list}/{id}",
                &["a", "retry_tasks", "x:delete_all"],
            ),
        ] {
            let (route, found) = find(table(), &method.parse().unwrap(), path).ok().unwrap();
            assert_eq!(
                (route.path, found.iter().map(String::as_str).collect::<Vec<_>>()),
                (pattern, names.to_vec()),
                "{path}"
            );
        }
        assert!(find(table(), &Method::POST, "/queues/:pause").is_err());
    }

    #[test]
    fn only_what_changes_nothing_is_got() {
        assert!(table().iter().all(|route| (route.method == Method::GET) != route.changes()));
    }
}
