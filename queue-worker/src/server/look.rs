//! Looks which queues have tasks, and has Redis tell of the next change.

use futures_util::future::join_all;
use queue_redis::broker::{Holding, IdRange, Waiting};
use queue_redis::{Error, Watch};

use super::lanes;
use super::options::Unhandled;
use super::shared::Shared;

/// So many queues are looked into at once; of more, those that have tasks are searched first.
const FEW: usize = 8;

/// The queues that are to be looked at, and where only certain types are taken, the parts of their lists.
pub(super) type Doubtful = Vec<(usize, Vec<IdRange>)>;

/// What a look has found: queues, and what waits in them where that was asked for, else whether something does.
pub(super) struct Found {
    pub(super) asked: Vec<usize>,
    /// Whether Redis tells of the next change of these queues.
    pub(super) is_armed: bool,
    pub(super) result: Result<Vec<(usize, Option<Waiting>)>, Error>,
    /// When tasks of a queue that has limits may start, in Unix milliseconds.
    pub(super) lanes: Vec<(usize, Option<i64>)>,
}

/// Looks which queues have tasks. On the listening connection, which is then told of the next change.
pub(super) async fn look(shared: &Shared, doubtful: Doubtful) -> Found {
    let asked: Vec<usize> = doubtful.iter().map(|(queue, _)| *queue).collect();
    if asked.is_empty() {
        return Found { asked, is_armed: true, result: Ok(Vec::new()), lanes: Vec::new() };
    }
    lanes::learn(shared).await;
    if let Some(watch) = shared.wakeups.watch()
        && let Ok(lanes) = lanes::look(shared, Some(watch.clone()), &asked).await
        && let Ok(found) = look_through(shared, Some(watch), &doubtful).await
    {
        return Found { asked, is_armed: true, result: Ok(found), lanes };
    }
    // The listening connection is being replaced, or there is none.
    let lanes = lanes::look(shared, None, &asked).await.unwrap_or_default();
    let result = look_through(shared, None, &doubtful).await;
    Found { asked, is_armed: false, result, lanes }
}

async fn look_through(
    shared: &Shared,
    watch: Option<Watch>,
    doubtful: &Doubtful,
) -> Result<Vec<(usize, Option<Waiting>)>, Error> {
    let names: Vec<&str> = doubtful.iter().map(|(queue, _)| &**shared.queues.name(*queue)).collect();
    let leaves = shared.options.unhandled == Unhandled::Leave;
    let filled = match watch.clone() {
        _ if leaves && names.len() <= FEW => vec![true; names.len()],
        Some(mut watch) => watch.have_work(&names).await?,
        None => shared.broker.which_hold(&names, Holding::Pending).await?,
    };
    let filled = doubtful.iter().zip(filled).filter(|(_, filled)| *filled).map(|(doubtful, _)| doubtful);
    if !leaves {
        return Ok(filled.map(|(queue, _)| (*queue, None)).collect());
    }
    let waiting = filled.map(|(queue, ranges)| {
        let (name, watch) = (shared.queues.name(*queue), watch.clone());
        async move {
            let waiting = match watch {
                Some(mut watch) => watch.waiting(name, ranges).await?,
                None => shared.broker.waiting(name, ranges).await?,
            };
            Ok((*queue, Some(waiting)))
        }
    });
    join_all(waiting).await.into_iter().collect()
}
