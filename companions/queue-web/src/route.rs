//! The table of all routes of the REST API.

use std::pin::Pin;
use std::sync::LazyLock;

use axum::http::Method;
use queue_admin::{Action, BatchVerb, BinVerb, CronVerb, LimitVerb, Permission, QueueVerb, Verb};

use crate::api::{
    audit, batches, cron, doctor, enqueue, failures, limits, operations, queues, redis, servers, tasks, whole,
};
use crate::request::{Answer, Request, name};

pub(crate) type Working = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// What somebody needs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Need {
    /// To look.
    See(Permission),
    /// To do this.
    Do(Action),
    /// What the body asks for; looked at when it is done.
    Told,
}

/// A route: one line of the table.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// Below `/api/v1`, or `/api` for asynqmon's. A name may have an end that tells what is to be done: `{queue}:pause`.
    pub(crate) path: &'static str,
    pub(crate) need: Need,
    pub(crate) about: &'static str,
    /// Parameters of the query.
    pub(crate) query: &'static [&'static str],
    /// The schema of the answer in the OpenAPI document.
    pub(crate) answer: &'static str,
    pub(crate) work: fn(Request) -> Working,
}

impl Route {
    pub(crate) fn permission(&self) -> Permission {
        match self.need {
            Need::See(permission) => permission,
            Need::Do(action) => action.info().permission,
            Need::Told => Permission::View,
        }
    }

    /// Whether it may change anything.
    pub(crate) fn changes(&self) -> bool {
        !matches!(self.need, Need::See(_))
    }
}

macro_rules! routes {
    ($($method:ident $path:literal $need:expr, [$($query:literal)*] $answer:literal $($work:ident)::+, $about:literal;)*) => {
        [$(Route {
            method: Method::$method, path: $path, need: $need, about: $about, query: &[$($query),*], answer: $answer,
            work: |request| Box::pin($($work)::+(request)),
        },)*]
    };
}

const VIEW: Need = Need::See(Permission::View);

fn routes() -> Vec<Route> {
    use Action::{Batch, Bin, Cron, Enqueue, Limit, Queue, Task, Update};
    routes! {
        GET "/" VIEW, [] "Info" whole::info, "What this is, and where the rest is";
        GET "/openapi.json" VIEW, [] "Any" whole::openapi, "This description";
        GET "/me" VIEW, [] "Me" whole::me, "Who you are, and what you may do";
        GET "/overview" VIEW, [] "Overview" whole::overview, "All queues and servers at a glance, at most 2 s old";
        GET "/events" VIEW, [] "Stream" whole::events, "The overview as server-sent events: all of it whenever it was read, and what goes wrong";
        GET "/feed" VIEW, ["queue" "type" "kind" "after"] "Feed" whole::feed, "What happens to tasks and servers, as it happens, as server-sent events; after is the id of an event, as Last-Event-ID is";
        GET "/queues" VIEW, [] "Queues" queues::list, "All queues";
        GET "/queues/{queue}" VIEW, ["memory"] "Queue" queues::one, "A queue; with memory, also about how many bytes it takes";
        DELETE "/queues/{queue}" Need::Do(Queue(QueueVerb::Remove)), ["force"] "Removed" queues::remove, "Remove a queue; with force, also one that has tasks";
        PUT "/queues/{queue}/pause" Need::Do(Queue(QueueVerb::Pause)), [] "Paused" queues::pause, "Pause a queue";
        DELETE "/queues/{queue}/pause" Need::Do(Queue(QueueVerb::Resume)), [] "Paused" queues::resume, "Resume a queue";
        GET "/queues/{queue}/days" VIEW, ["days"] "Days" queues::days, "What was processed and failed on each of the last days (UTC), today first";
        GET "/queues/{queue}/groups" VIEW, [] "Groups" queues::groups, "The groups of a queue";
        GET "/limits" VIEW, [] "Limits" limits::all, "The limits of all queues, how many tasks run and wait under each, and which servers know nothing of them";
        GET "/queues/{queue}/limits" VIEW, [] "Limits" limits::list, "The limits of a queue";
        DELETE "/queues/{queue}/limits" Need::Do(Limit(LimitVerb::Remove)), [] "LimitsOff" limits::off, "Remove all limits of a queue, and make pending what waits under them";
        PUT "/queues/{queue}/limits/{limit}" Need::Do(Limit(LimitVerb::Set)), [] "Limit" limits::set, "Set a limit of a queue, in the place of one of the same name";
        DELETE "/queues/{queue}/limits/{limit}" Need::Do(Limit(LimitVerb::Remove)), [] "LimitRemoved" limits::remove, "Remove a limit of a queue";
        GET "/queues/{queue}/limits/{limit}/lanes" VIEW, ["cursor" "limit"] "Lanes" limits::lanes, "The keys of a limit under which tasks run or wait, or for which something is different";
        PUT "/queues/{queue}/limits/{limit}/keys/{key}" Need::Do(Limit(LimitVerb::Key)), [] "KeyChanged" limits::change, "Change what holds for one key of a limit";
        DELETE "/queues/{queue}/limits/{limit}/keys/{key}" Need::Do(Limit(LimitVerb::Key)), [] "KeyChanged" limits::reset, "Let hold for one key what holds for all";
        POST "/queues/{queue}/bulk" Need::Told, [] "Bulk" tasks::bulk, "Run, archive, delete, cancel or interrupt all tasks that fit; a dry run only counts them";
        GET "/operations" VIEW, ["limit"] "Operations" operations::list, "Operations of the last seven days, newest first";
        POST "/operations" Need::Told, [] "Operation" operations::start, "Run, archive, delete, cancel or interrupt many tasks, or restore what an operation has deleted, also if this process ends; a dry run only counts them";
        GET "/operations/{operation}" VIEW, [] "Operation" operations::one, "An operation, and how far it is";
        PATCH "/operations/{operation}" Need::Told, [] "Operation" operations::change, "Pause an operation, let it go on, or end it";
        GET "/bin" VIEW, [] "Bins" operations::bins, "What operations have deleted and can be restored";
        GET "/bin/{operation}" VIEW, ["q" "state" "limit" "cursor"] "Bin" operations::bin, "What an operation has deleted and can be restored, and the tasks that fit a filter, page by page";
        DELETE "/bin/{operation}" Need::Do(Bin(BinVerb::Empty)), [] "Emptied" operations::empty, "Delete for good what an operation has put into the bin";
        GET "/tasks" VIEW, ["queue" "state" "q" "order" "limit" "cursor"] "Tasks" tasks::list, "Tasks of a queue that fit a filter, page by page";
        GET "/tasks/{id}" VIEW, [] "TaskList" tasks::everywhere, "The tasks of this id, in all queues";
        POST "/queues/{queue}/tasks" Need::Do(Enqueue), [] "Enqueued" enqueue::enqueue, "Enqueue a task (JSON), or up to 1,000 (a JSON object on each line, application/x-ndjson)";
        GET "/queues/{queue}/tasks/{id}" VIEW, ["wait"] "Task" tasks::one, "A task; with wait, as soon as it has ended, or the time is over";
        DELETE "/queues/{queue}/tasks/{id}" Need::Do(Task(Verb::Delete)), [] "Changed" tasks::delete, "Delete a task";
        POST "/queues/{queue}/tasks/{id}/run" Need::Do(Task(Verb::Run)), [] "Changed" tasks::run, "Make a task pending";
        POST "/queues/{queue}/tasks/{id}/archive" Need::Do(Task(Verb::Archive)), [] "Changed" tasks::archive, "Archive a task";
        POST "/queues/{queue}/tasks/{id}/cancel" Need::Do(Task(Verb::Cancel)), [] "Cancelled" tasks::cancel, "End a task for good, in whatever state it is";
        POST "/queues/{queue}/tasks/{id}/interrupt" Need::Do(Task(Verb::Interrupt)), [] "Changed" tasks::interrupt, "Ask the servers to stop this attempt of a task";
        GET "/queues/{queue}/tasks/{id}/explain" VIEW, [] "Explanation" tasks::explain, "Why a task is not running";
        GET "/queues/{queue}/tasks/{id}/attempts" VIEW, [] "Attempts" tasks::attempts, "The last five attempts at servers of ours that failed, oldest first, and how many there were";
        GET "/queues/{queue}/tasks/{id}/log" VIEW, [] "TaskLog" tasks::log, "The last lines that a task has written down, oldest first, and how many there were before them";
        GET "/queues/{queue}/tasks/{id}/payload" VIEW, [] "Bytes" tasks::payload, "The payload as it is";
        PUT "/queues/{queue}/tasks/{id}/payload" Need::Do(Update), [] "Changed" tasks::update, "Give a task another payload: the body; If-Match takes the ETag of the task";
        GET "/queues/{queue}/tasks/{id}/result" VIEW, [] "Bytes" tasks::result, "The result as it is";
        GET "/servers" VIEW, [] "Servers" servers::list, "The servers that are alive, and what they work on";
        GET "/servers/{id}" VIEW, [] "Server" servers::one, "A server";
        GET "/cron" VIEW, [] "Cron" cron::list, "The periodic entries of all schedulers";
        GET "/cron/{entry}" VIEW, [] "CronEntry" cron::one, "A periodic entry";
        GET "/cron/{entry}/history" VIEW, ["skip" "limit"] "CronHistory" cron::history, "What became of its ticks, newest first";
        PUT "/cron/{entry}/pause" Need::Do(Cron(CronVerb::Pause)), [] "EntryPaused" cron::pause, "Pause an entry";
        DELETE "/cron/{entry}/pause" Need::Do(Cron(CronVerb::Resume)), [] "EntryPaused" cron::resume, "Resume an entry";
        POST "/cron/{entry}/run" Need::Do(Cron(CronVerb::Run)), ["force"] "EntryRun" cron::run, "Enqueue its task now; with force, also while the last run is unfinished";
        DELETE "/cron/{entry}" Need::Do(Cron(CronVerb::Remove)), [] "EntryRemoved" cron::remove, "Forget an entry that no scheduler carries";
        GET "/batches" VIEW, ["state" "tag" "cursor" "limit"] "Batches" batches::list, "Batches and workflows that are children of none, newest first; with a state or a tag, those of a thousand";
        POST "/batches" Need::Do(Batch(BatchVerb::Create)), [] "BatchCreated" batches::create, "Make a batch or a workflow with its tasks, once by its id";
        GET "/batches/{batch}" VIEW, [] "Batch" batches::one, "A batch: its members by state, callbacks, children";
        GET "/batches/{batch}/members" VIEW, ["state" "cursor" "limit"] "Members" batches::members, "Members of a batch that are tasks, in their order, each with its task if that is there";
        GET "/batches/{batch}/tree" VIEW, [] "BatchTree" batches::tree, "A batch and the batches below it, each before its children; 200 at the most";
        GET "/batches/{batch}/nodes" VIEW, [] "Nodes" batches::nodes, "The nodes of a workflow, and what each waits for; none of a batch that is none";
        GET "/batches/{batch}/explain" VIEW, [] "BatchExplanation" batches::explain, "What a batch waits for";
        POST "/batches/{batch}/cancel" Need::Do(Batch(BatchVerb::Cancel)), [] "BatchCancelled" batches::cancel, "Cancel a batch and its children; a dry run only counts its live members";
        POST "/batches/{batch}/retry" Need::Do(Batch(BatchVerb::Retry)), [] "BatchRetried" batches::retry, "Run the members of a batch again that are in the archive; a dry run only counts the dead";
        POST "/batches/{batch}/resolve" Need::Do(Batch(BatchVerb::Resolve)), [] "BatchResolved" batches::resolve, "Count members of a batch that died or were removed as succeeded: those with these task ids, or all; a dry run only counts them";
        POST "/batches/{batch}/signals/{node}" Need::Do(Batch(BatchVerb::Signal)), [] "Signalled" batches::signal, "Give the signal that a node of a workflow waits for, or decline it";
        POST "/batches/{batch}/nodes/{node}/rerun" Need::Do(Batch(BatchVerb::Rerun)), [] "Rerun" batches::rerun, "Run a node of a workflow again, and all that is behind it";
        GET "/failures" VIEW, ["queue" "limit" "again"] "Failures" failures::list, "What fails, grouped by its cause, most tasks first, at most a minute old; with again, it is looked through anew";
        GET "/failures/{fingerprint}" VIEW, [] "Failure" failures::one, "Failures of one cause";
        GET "/redis" VIEW, [] "RedisHealth" redis::look, "How Redis itself is, and what to do about it; for those who see all queues";
        GET "/doctor" VIEW, [] "Checkup" doctor::last, "What the last examination has found, and how far one is that goes on";
        POST "/doctor" VIEW, [] "Checkup" doctor::begin, "Examine all queues; nothing is changed";
        GET "/audit" Need::See(Permission::Audit), ["cursor" "limit"] "Audit" audit::list, "Who did what, newest first";
    }
    .into()
}

static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(routes);

/// All routes.
pub(crate) fn table() -> &'static [Route] {
    &ROUTES
}

/// The route of a path, and the names in it; `Err` has the methods that there are instead.
pub(crate) fn find<'a>(
    routes: &'a [Route],
    method: &Method,
    path: &str,
) -> Result<(&'a Route, Vec<String>), Vec<Method>> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let mut others = Vec::new();
    for route in routes {
        let pattern: Vec<&str> = route.path.trim_matches('/').split('/').collect();
        if pattern.len() != segments.len() {
            continue;
        }
        let parts = || pattern.iter().zip(&segments).map(|(part, segment)| named(part, segment));
        if !parts().all(|part| part.is_some()) {
            continue;
        }
        let names: Option<Vec<String>> = parts().flatten().flatten().map(name).collect();
        let Some(names) = names else { continue };
        if route.method == *method || (*method == Method::HEAD && route.method == Method::GET) {
            return Ok((route, names));
        }
        others.push(route.method.clone());
    }
    Err(others)
}

/// The name in a segment, or none where the pattern has none; `None` where the segment does not fit.
fn named<'a>(pattern: &str, segment: &'a str) -> Option<Option<&'a str>> {
    match pattern.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        Some((_, end)) => segment.strip_suffix(end).map(Some),
        None => (pattern == segment).then_some(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_has_the_route_that_the_table_of_actions_names() {
        use Action::Bin;
        let routes = routes();
        for info in Action::all() {
            let Some((method, path)) = info.route else { continue };
            let route = routes.iter().find(|route| route.method == method && route.path == path);
            let route = route.unwrap_or_else(|| panic!("{}: no route {method} {path}", info.name));
            if !matches!(info.action, Action::Tasks(_) | Action::Operation(_) | Bin(BinVerb::Restore)) {
                assert!(matches!(route.need, Need::Do(action) if action == info.action), "{}", info.name);
            }
        }
        for route in &routes {
            assert_eq!(route.method != Method::GET && route.path != "/doctor", route.changes(), "{}", route.path);
        }
    }

    #[test]
    fn a_path_leads_to_its_route_with_its_names() {
        let routes = routes();
        let (route, names) = find(&routes, &Method::POST, "/queues/a%2Fb/tasks/~Li4/run").ok().unwrap();
        assert_eq!((route.path, names), ("/queues/{queue}/tasks/{id}/run", vec!["a/b".to_owned(), "..".to_owned()]));
        assert_eq!(find(&routes, &Method::GET, "/").ok().unwrap().0.path, "/");
        assert_eq!(find(&routes, &Method::PATCH, "/queues/q/pause").err().unwrap(), [Method::PUT, Method::DELETE]);
        assert!(find(&routes, &Method::GET, "/nothing").err().unwrap().is_empty());
    }
}
