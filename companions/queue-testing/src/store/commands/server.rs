//! Commands about the store itself.

use super::{Args, is};
use crate::store::data::Data;
use crate::store::pattern;
use crate::store::reply::{Answer, Refusal, Reply};

/// The version whose behaviour the store has.
const VERSION: &str = "7.0.15";

pub(super) fn dbsize(data: &mut Data, _: Args<'_>) -> Answer {
    Ok(Reply::count(data.keys().len()))
}

pub(super) fn flush(data: &mut Data, _: Args<'_>) -> Answer {
    data.clear();
    Ok(Reply::OK)
}

pub(super) fn publish(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::count(data.clients.publish(&args[0], &args[1])))
}

pub(super) fn time(data: &mut Data, _: Args<'_>) -> Answer {
    let now = data.next_us();
    let (secs, micros) = (now.div_euclid(1_000_000), now.rem_euclid(1_000_000));
    Ok(Reply::bulks([secs, micros].map(|part| part.to_string().into_bytes())))
}

pub(super) fn info(data: &mut Data, _: Args<'_>) -> Answer {
    let (keys, clients) = (data.keys().len(), data.clients.len());
    let text = [
        "# Server".to_owned(),
        format!("redis_version:{VERSION}"),
        "redis_mode:standalone".to_owned(),
        "uptime_in_seconds:0".to_owned(),
        "uptime_in_days:0".to_owned(),
        "# Clients".to_owned(),
        format!("connected_clients:{clients}"),
        "# Memory".to_owned(),
        "used_memory:0".to_owned(),
        "used_memory_human:0B".to_owned(),
        "used_memory_peak_human:0B".to_owned(),
        "maxmemory:0".to_owned(),
        "maxmemory_policy:noeviction".to_owned(),
        "# Replication".to_owned(),
        "role:master".to_owned(),
        "# Cluster".to_owned(),
        "cluster_enabled:0".to_owned(),
        "# Keyspace".to_owned(),
        format!("db0:keys={keys},expires=0,avg_ttl=0"),
    ];
    Ok(Reply::text(text.map(|line| line + "\r\n").concat()))
}

pub(super) fn config(_: &mut Data, args: Args<'_>) -> Answer {
    if !is(&args[0], "GET") {
        return Err(Refusal("ERR the in-process store has nothing to configure".to_owned()));
    }
    let settings = [("maxmemory", "0"), ("maxmemory-policy", "noeviction"), ("appendonly", "no"), ("save", "")];
    let wanted = |name: &str| args[1..].iter().any(|text| pattern::matches(text, name.as_bytes()));
    let found = settings.iter().filter(|(name, _)| wanted(name));
    Ok(Reply::Map(found.map(|(name, value)| (Reply::text(*name), Reply::text(*value))).collect()))
}

/// `MEMORY USAGE`: about what the data themselves take. What Redis needs around them is not known here.
pub(super) fn memory(data: &mut Data, args: Args<'_>) -> Answer {
    let [word, key, ..] = args else { return Err(Refusal::syntax()) };
    if !is(word, "USAGE") {
        return Err(Refusal("ERR the in-process store knows MEMORY USAGE only".to_owned()));
    }
    Ok(data.get(key).map_or(Reply::Nil, |value| Reply::count(key.len() + value.size())))
}

pub(super) fn cluster(_: &mut Data, _: Args<'_>) -> Answer {
    Err(Refusal("ERR This instance has cluster support disabled".to_owned()))
}
