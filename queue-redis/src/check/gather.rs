//! What a Redis tells about itself, and about the rights of the user.

use std::collections::HashMap;
use std::sync::Arc;

use queue_core::doctor::{Fact, Identity, RedisFacts, read_info};
use redis::{FromRedisValue as _, Value};

use super::{Role, rights};
use crate::error::Error;
use crate::link::server::{Lent, Server};
use crate::link::source::Use;

const PROBE: &str = include_str!("probe.lua");
/// Has Redis 7 and newer refuse all writes.
const NO_WRITES: &str = "#!lua flags=no-writes\n";

pub(super) async fn gather(server: &Arc<Server>, cluster_expected: bool, role: Role) -> Result<RedisFacts, Error> {
    // Not the shared connection, which loads all scripts when it is made, and so fails on some servers that are
    // to be named here.
    let mut connection = Lent::of(server, Use::Any).await?;
    let identity = known(connection.query::<Value>("HELLO", &redis::cmd("HELLO")).await)?;
    let identity = identity.map(|reply| read_identity(&reply));
    let info = known(connection.query::<String>("INFO", &redis::cmd("INFO")).await)?.map(|text| read_info(&text));
    let mut facts = RedisFacts { cluster_expected, identity, info, missing: Fact::Known(Vec::new()) };
    if can_run_scripts(&facts) {
        let guarded = facts.identity.known().is_some_and(has_flags);
        facts.missing = missing(&mut connection, role, guarded).await?;
        if let Fact::Known(missing) = &mut facts.missing
            && rights::wants_transactions(role)
        {
            missing.extend(missing_transactions(&mut connection).await?);
        }
    }
    Ok(facts)
}

/// A refusal is a fact; that there is no answer is an error.
fn known<T>(reply: Result<T, Error>) -> Result<Fact<T>, Error> {
    match reply {
        Ok(value) => Ok(Fact::Known(value)),
        Err(Error::Refused { operation, message, .. }) => {
            Ok(Fact::Unknown(format!("{operation} was refused: {message}")))
        }
        Err(error) => Err(error),
    }
}

fn read_identity(reply: &Value) -> Identity {
    let fields: HashMap<String, Value> = HashMap::from_redis_value_ref(reply).unwrap_or_default();
    let field =
        |name: &str| fields.get(name).and_then(|value| String::from_redis_value_ref(value).ok()).unwrap_or_default();
    Identity { server: field("server"), version: field("version"), mode: field("mode"), role: field("role") }
}

/// A Sentinel knows no scripts, and a server that reads its data runs none.
fn can_run_scripts(facts: &RedisFacts) -> bool {
    let sentinel = facts.identity.known().is_some_and(|identity| identity.mode == "sentinel");
    !sentinel && !facts.is_loading()
}

/// Whether scripts have flags, since Redis 7.
fn has_flags(identity: &Identity) -> bool {
    let major = identity.version.split('.').next().and_then(|major| major.parse::<u64>().ok());
    major.is_some_and(|major| major >= 7)
}

/// What the user may not do.
async fn missing(connection: &mut Lent, role: Role, guarded: bool) -> Result<Fact<Vec<&'static str>>, Error> {
    let script = if guarded { format!("{NO_WRITES}{PROBE}") } else { PROBE.to_owned() };
    let load: Result<String, Error> =
        connection.query("SCRIPT LOAD", redis::cmd("SCRIPT").arg("LOAD").arg(script)).await;
    let hash = match load {
        Ok(hash) => hash,
        Err(error) => return refused(error, "script|load"),
    };
    let mut call = redis::cmd("EVALSHA");
    call.arg(hash).arg(1).arg(rights::KEY).arg(rights::arguments(role, guarded));
    match connection.query::<Vec<String>>("the look at the rights", &call).await {
        Ok(names) => Ok(Fact::Known(names.iter().filter_map(|name| rights::known(name)).collect())),
        Err(error) => refused(error, "evalsha"),
    }
}

/// Tried by a transaction of nothing.
async fn missing_transactions(connection: &mut Lent) -> Result<Option<&'static str>, Error> {
    for (command, missing) in [("MULTI", "multi"), ("EXEC", "exec")] {
        match connection.query::<Value>(command, &redis::cmd(command)).await {
            Ok(_) => {}
            // A transaction that cannot be ended ends with the connection.
            Err(Error::Refused { code, .. }) if code == "NOPERM" => return Ok(Some(missing)),
            Err(error) => return known::<()>(Err(error)).map(|_| None),
        }
    }
    Ok(None)
}

/// A command that the look itself needs is one that the role needs too.
fn refused(error: Error, command: &'static str) -> Result<Fact<Vec<&'static str>>, Error> {
    match error {
        Error::Refused { code, message, .. } if code == "NOPERM" && message.contains("key") => {
            Ok(Fact::Known(vec!["access to the keys asynq:*"]))
        }
        Error::Refused { code, .. } if code == "NOPERM" => Ok(Fact::Known(vec![command])),
        // Another node of the cluster has the slot of the key, and tells.
        Error::Refused { code, .. } if code == "MOVED" => Ok(Fact::Known(Vec::new())),
        error => known(Err(error)),
    }
}
