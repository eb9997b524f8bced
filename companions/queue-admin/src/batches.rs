//! Batches and workflows, as operators look at them.

use futures_util::future::join_all;
use queue_core::TaskState;
use queue_core::flow::{FlowId, MemberId, MemberOutcome, is_member};
use queue_redis::flow::Flows;
use queue_redis::{BatchState, BatchStatus};
use serde::Serialize;

use super::Inspector;
use crate::error::Error;
use crate::explain::Explanation;
use crate::verb::Verb;

/// Batches that one look reads.
const LOOK: usize = 100;
/// Batches that a search by state looks at before it answers.
const SEARCHED: usize = 1_000;
/// Tasks that are explained one by one for a batch.
const EXPLAINED: usize = 10;

/// A batch, and which batches are its children.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct BatchView {
    /// How it stands.
    #[serde(flatten)]
    pub status: BatchStatus,
    /// The ids of its children.
    pub children: Vec<String>,
}

/// What a batch waits for, and why the first of its members of each queue and state does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchExplanation {
    /// What it waits for.
    pub batch: queue_redis::flow::Explanation,
    /// Why the first task of each queue and state does not run; of ten of them.
    pub tasks: Vec<Explanation>,
}

/// A batch in a tree of batches.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Branch {
    /// Its id.
    pub id: String,
    /// How many batches stand above it in this tree.
    pub depth: usize,
    /// How it stands.
    pub state: &'static str,
    /// How many members it has.
    pub total: u64,
    /// How many of them succeeded.
    pub succeeded: u64,
    /// What it is for, in the words of its maker.
    pub description: Option<String>,
    /// All that is known of it.
    #[serde(skip)]
    pub status: BatchStatus,
}

impl Inspector {
    /// What can be told of batches.
    pub fn flows(&self) -> Flows {
        Flows::new(self.broker(), self.clock.clone())
    }

    /// Tells batches at once what was done to these of their members. Where that fails, they find it half a minute later, when they stand
    /// still. One that Go had completed, and that nobody had collected yet, has succeeded.
    pub(crate) async fn tell_batches<'a>(
        &self,
        verb: Verb,
        from: Option<TaskState>,
        ids: impl IntoIterator<Item = &'a [u8]>,
    ) {
        let outcome = match verb {
            Verb::Run => MemberOutcome::Again,
            Verb::Archive => MemberOutcome::Dead,
            Verb::Delete if from == Some(TaskState::Completed) => MemberOutcome::Ok,
            Verb::Delete => MemberOutcome::Removed,
            Verb::Cancel | Verb::Interrupt => return,
        };
        let members = ids.into_iter().filter(|id| is_member(id));
        let members = members.filter_map(|id| MemberId::of(std::str::from_utf8(id).ok()?));
        let told: Vec<_> = members.map(|id| (id, outcome)).collect();
        if !told.is_empty()
            && let Err(error) = self.flows().record(told).await
        {
            tracing::debug!(%error, "batches were not told what was done to their members");
        }
    }

    /// Batches that are children of none, newest first, the first `skip` left out: `most` of them, or as many in this state and with this tag. A search
    /// looks at a thousand at the most. The number says how many to skip to go on, if there are more. Batches that are made meanwhile move
    /// the others on, so that some come twice.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn batches(
        &self,
        state: Option<BatchState>,
        tag: Option<&str>,
        skip: usize,
        most: usize,
    ) -> Result<(Vec<BatchStatus>, Option<usize>), Error> {
        let searched = if state.is_some() || tag.is_some() { SEARCHED } else { most };
        let is_wanted = |status: &BatchStatus| {
            state.is_none_or(|state| status.state == state) && tag.is_none_or(|tag| status.tags.contains(tag))
        };
        self.search_batches(is_wanted, skip, most, searched).await
    }

    /// The same of broadcasts, which is always a search.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn broadcasts(&self, skip: usize, most: usize) -> Result<(Vec<BatchStatus>, Option<usize>), Error> {
        self.search_batches(|status| status.quorum.is_some(), skip, most, SEARCHED).await
    }

    async fn search_batches(
        &self,
        is_wanted: impl Fn(&BatchStatus) -> bool,
        skip: usize,
        most: usize,
        searched: usize,
    ) -> Result<(Vec<BatchStatus>, Option<usize>), Error> {
        let flows = self.flows();
        let end = skip.saturating_add(searched);
        let (mut found, mut at) = (Vec::new(), skip);
        loop {
            let (start, size) = (at, LOOK.min(end - at));
            // One more than is looked at tells whether there are more.
            let roots = flows.roots(start, size + 1).await?;
            let looks = join_all(roots.iter().take(size).map(async |root| (root, flows.status(root).await)));
            for (root, looked) in looks.await {
                at += 1;
                let status = match looked {
                    Err(error) if error.is_outage() => return Err(error.into()),
                    // One that somebody has spoilt costs no other.
                    Err(error) => {
                        tracing::warn!(batch = %root, %error, "a batch cannot be read, and is left out");
                        None
                    }
                    Ok(status) => status,
                };
                found.extend(status.filter(&is_wanted));
                if found.len() == most {
                    break;
                }
            }
            if at - start == roots.len() {
                return Ok((found, None));
            }
            if at == end || found.len() == most {
                return Ok((found, Some(at)));
            }
        }
    }

    /// How a batch stands, and its children.
    ///
    /// # Errors
    /// [`Error::BatchNotFound`], or when Redis cannot be asked or refuses.
    pub async fn batch(&self, id: &FlowId) -> Result<BatchView, Error> {
        let status = self.batch_status(id).await?;
        let children = self.flows().children(id).await?.iter().map(ToString::to_string).collect();
        Ok(BatchView { status, children })
    }

    /// How a batch stands.
    ///
    /// # Errors
    /// [`Error::BatchNotFound`], or when Redis cannot be asked or refuses.
    pub async fn batch_status(&self, id: &FlowId) -> Result<BatchStatus, Error> {
        self.flows().status(id).await?.ok_or_else(|| Error::BatchNotFound(id.to_string()))
    }

    /// What a batch waits for, and why its members do not run; of a thousand live members, and the first of each queue and state.
    ///
    /// # Errors
    /// [`Error::BatchNotFound`], or when Redis cannot be asked or refuses.
    pub async fn explain_batch(&self, id: &FlowId) -> Result<BatchExplanation, Error> {
        let batch = self.flows().explain(id).await?.ok_or_else(|| Error::BatchNotFound(id.to_string()))?;
        let waits = [TaskState::Pending, TaskState::Scheduled, TaskState::Retry].map(TaskState::as_str);
        let stand = batch.members.iter().chain(&batch.callbacks);
        let mut tasks = Vec::new();
        for standing in stand.filter(|standing| waits.contains(&&*standing.state)).take(EXPLAINED) {
            tasks.push(self.explain(&standing.queue, &standing.first).await?);
        }
        Ok(BatchExplanation { batch, tasks })
    }

    /// A batch and those below it, `most` of them, each before its children; and whether there are more.
    ///
    /// # Errors
    /// [`Error::BatchNotFound`], or when Redis cannot be asked or refuses.
    pub async fn batch_tree(&self, id: &FlowId, most: usize) -> Result<(Vec<Branch>, bool), Error> {
        let flows = self.flows();
        let root = self.batch_status(id).await?;
        let (mut stack, mut branches) = (vec![(id.clone(), 0, Some(root))], Vec::new());
        while branches.len() < most
            && let Some((id, depth, status)) = stack.pop()
        {
            let status = match status {
                None => flows.status(&id).await?,
                known => known,
            };
            // One that was forgotten just now.
            let Some(status) = status else { continue };
            stack.extend(flows.children(&id).await?.into_iter().rev().map(|child| (child, depth + 1, None)));
            branches.push(Branch {
                id: status.id.clone(),
                depth,
                state: status.state.as_str(),
                total: status.total,
                succeeded: status.succeeded,
                description: status.description.clone(),
                status,
            });
        }
        Ok((branches, !stack.is_empty()))
    }
}
