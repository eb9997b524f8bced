//! Operations that somebody asks for, steers, and whose bins somebody empties.

use queue_core::Clock as _;
use queue_core::keys::{self, OPERATIONS};
use queue_core::limits::OPERATION_KEPT_SECS;

use super::{Kept, Operation, OperationSpec, OperationState, Work};
use crate::audit::Target;
use crate::error::Error;
use crate::role::Permission;
use crate::verb::{Action, BinVerb, OperationVerb};
use crate::{Admin, Inspector};

/// Whoever makes an operation looks at so many of the oldest.
const FORGOTTEN_AT_ONCE: usize = 20;

impl Admin {
    /// Puts an operation among those that are to be carried out, by whoever [runs](Inspector::run_operation) it. With a `key`, the
    /// same call again finds the operation that is there already.
    ///
    /// # Errors
    /// As [`Inspector::dry_run`]; [`Error::OperationLive`] where tasks are to be restored that are still being deleted;
    /// [`Error::KeyReused`]; [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn start_operation(&self, mut spec: OperationSpec, key: Option<&str>) -> Result<Operation, Error> {
        let inspector = self.inspector();
        spec.check()?;
        let mut restored = None;
        for queue in &spec.queues {
            inspector.require_queue(queue).await?;
        }
        if spec.action == Work::Restore {
            let of = inspector.operation(spec.operation.as_deref().unwrap_or_default()).await?;
            if spec.ids.is_empty() || spec.queues.is_empty() {
                spec.queues = of.spec.queues.clone();
            }
            let is_one = matches!(&spec.queues[..], [queue] if of.spec.queues.contains(queue));
            if !spec.ids.is_empty() && !is_one {
                return Err(Error::OperationInvalid("ids are those of one queue of the operation; name it".to_owned()));
            }
            restored = Some(of);
        }
        let actor = self.actor();
        let id = match key {
            Some(key) => format!("{:x}", md5::compute(format!("{}\n{key}", actor.name))),
            None => uuid::Uuid::new_v4().simple().to_string(),
        };
        let id = &id[..16];
        let list =
            async |created_ms: i64| inspector.redis.command::<()>("ZADD", (OPERATIONS, "NX", created_ms, id)).await;
        if key.is_some() {
            match inspector.operation(id).await {
                Ok(known) if known.spec == spec => {
                    // Whoever wrote it may have ended before it was listed.
                    list(known.created_at.map_or(inspector.clock.now_ms(), |at| at.timestamp_millis())).await?;
                    return Ok(known);
                }
                Ok(_) => return Err(Error::KeyReused),
                Err(Error::OperationNotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(of) = restored {
            if !of.state.is_over() {
                return Err(Error::OperationLive(of.id));
            }
            if inspector.bin_sizes(&of).await?.is_empty() {
                return Err(Error::BinNotFound(of.id));
            }
        }
        inspector.look_at_the_clock().await?;
        let ids: Vec<&str> = spec.ids.iter().map(String::as_str).collect();
        let queues = spec.queues.join(", ");
        let target = Target { queue: Some(&queues), ids: &ids, entry: Some(id), filter: spec.filter.clone() };
        let audit = self.about_to(spec.action.action(), &target).await?;
        let kept = Kept { spec, actor: actor.name.clone(), via: actor.via.to_owned(), audit };
        let what = serde_json::to_string(&kept).map_err(|error| Error::OperationInvalid(error.to_string()))?;
        let now_ms = inspector.clock.now_ms();
        let hash = keys::operation(id);
        let mut write = redis::pipe();
        // Each only if it is not there: the same key may be used twice at once, and the first one counts.
        write.atomic();
        for (field, value) in [("what", what), ("state", "queued".to_owned()), ("created_ms", now_ms.to_string())] {
            write.cmd("HSETNX").arg(&hash).arg(field).arg(value);
        }
        write.cmd("EXPIRE").arg(&hash).arg(OPERATION_KEPT_SECS).ignore();
        let (is_first, ..): (bool, bool, bool) = inspector.redis.pooled().await?.pipeline("HSETNX", &write).await?;
        list(now_ms).await?;
        inspector.unlist_forgotten().await?;
        let operation = inspector.operation(id).await?;
        if !is_first && operation.spec != kept.spec {
            return Err(Error::KeyReused);
        }
        Ok(operation)
    }

    /// Pauses an operation, lets it go on, or ends it. Whoever carries it out hears of it with the next step.
    ///
    /// # Errors
    /// [`Error::OperationNotFound`], [`Error::OperationOver`]; [`Error::Forbidden`], also where the role does not allow what the
    /// operation does; [`Error::Unaudited`].
    pub async fn steer_operation(&self, id: &str, verb: OperationVerb) -> Result<Operation, Error> {
        let inspector = self.inspector();
        let operation = inspector.operation(id).await?;
        let needed = operation.spec.action.action().info().permission;
        if !self.actor().role.allows(needed) {
            return Err(Error::Forbidden { permission: needed });
        }
        let target = Target { entry: Some(id), ..Target::default() };
        let work = async {
            if operation.state.is_over() {
                return Err(Error::OperationOver { id: id.to_owned(), state: operation.state.as_str() });
            }
            inspector.look_at_the_clock().await?;
            let wish = match verb {
                OperationVerb::Pause => "pause",
                OperationVerb::Resume => "run",
                OperationVerb::Cancel => "cancel",
            };
            let hash = keys::operation(id);
            let mut write = redis::pipe();
            // With its time: by now it may be forgotten.
            write.atomic().cmd("HSET").arg(&hash).arg("wish").arg(wish).ignore();
            write.cmd("EXPIRE").arg(&hash).arg(OPERATION_KEPT_SECS).ignore();
            inspector.redis.pooled().await?.pipeline::<()>("HSET", &write).await?;
            if verb == OperationVerb::Resume && operation.state == OperationState::Paused {
                inspector.put_down(&operation, "", OperationState::Queued, None).await?;
            }
            inspector.operation(id).await
        };
        self.audited(Action::Operation(verb), target, work, |_| None).await
    }

    /// Deletes for good what an operation has put into the bin; returns how many tasks.
    ///
    /// # Errors
    /// [`Error::OperationNotFound`], [`Error::OperationLive`]; [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn empty_bin(&self, id: &str) -> Result<u64, Error> {
        let target = Target { entry: Some(id), ..Target::default() };
        let work = async {
            let operation = self.inspector().operation(id).await?;
            if !operation.state.is_over() {
                return Err(Error::OperationLive(operation.id));
            }
            self.inspector().empty_bin(&operation).await
        };
        self.audited(Action::Bin(BinVerb::Empty), target, work, |tasks| Some(*tasks)).await
    }

    /// Whether the actor may do what an operation does.
    pub fn may(&self, permission: Permission) -> bool {
        self.actor().role.allows(permission)
    }
}

impl Inspector {
    /// Takes the oldest operations off the list that are forgotten: where nobody lists them all, it would only grow.
    async fn unlist_forgotten(&self) -> Result<(), Error> {
        let ids: Vec<String> = self.redis.command("ZRANGE", (OPERATIONS, 0, FORGOTTEN_AT_ONCE - 1)).await?;
        let mut look = redis::pipe();
        for id in &ids {
            look.cmd("EXISTS").arg(keys::operation(id));
        }
        let mut connection = self.redis.pooled().await?;
        let exist: Vec<bool> = if ids.is_empty() { Vec::new() } else { connection.pipeline("EXISTS", &look).await? };
        let gone: Vec<&String> = ids.iter().zip(exist).filter(|(_, exists)| !exists).map(|(id, _)| id).collect();
        if gone.is_empty() {
            return Ok(());
        }
        Ok(connection.command::<()>("ZREM", (OPERATIONS, gone)).await?)
    }
}
