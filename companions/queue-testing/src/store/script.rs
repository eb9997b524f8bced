//! Lua scripts, run as Redis runs them: the same language (5.1), the same library, the same conversions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value};
use queue_core::keys::slot_of;
use sha1_smol::Sha1;

use super::commands;
use super::data::Data;
use super::number;
use super::reply::{Answer, Refusal, Reply};

/// What scripts find: `redis`, and no globals of their own making. Returns what runs one of them.
const PRELUDE: &str = include_str!("prelude.lua");

#[derive(Debug)]
pub(crate) struct Scripts {
    lua: Lua,
    /// Runs a script with its keys and arguments; answers whether it ended well, and its reply or error.
    run: Function,
    compiled: HashMap<String, Function>,
    /// The slot of Redis Cluster in which the keys of the script at work have to be.
    slot: Arc<Mutex<Option<u16>>>,
}

impl Scripts {
    pub(crate) fn new(data: Arc<Mutex<Data>>) -> mlua::Result<Self> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::default())?;
        let slot = Arc::new(Mutex::new(None));
        let kept = slot.clone();
        let send = lua.create_function(move |lua, words: MultiValue| {
            let mut data = data.lock().unwrap_or_else(PoisonError::into_inner);
            let slot = *kept.lock().unwrap_or_else(PoisonError::into_inner);
            to_lua(lua, &call(&mut data, slot, words).into())
        })?;
        let sha1hex = lua.create_function(|_, text: mlua::LuaString| Ok(hex(&text.as_bytes())))?;
        let decode_json = lua.create_function(|lua, text: mlua::LuaString| {
            json_to_lua(lua, &serde_json::from_slice(&text.as_bytes()).map_err(mlua::Error::external)?)
        })?;
        let run = lua.load(PRELUDE).set_name("=prelude").call((send, sha1hex, decode_json))?;
        Ok(Self { lua, run, compiled: HashMap::new(), slot })
    }

    /// Compiles a script; returns the name it is called by.
    pub(crate) fn load(&mut self, source: &[u8]) -> Result<String, Refusal> {
        let sha = hex(source);
        if !self.compiled.contains_key(&sha) {
            let compiled = self.lua.load(source).set_name("=user_script").into_function();
            let function =
                compiled.map_err(|error| Refusal(format!("ERR Error compiling script (new function): {error}")))?;
            self.compiled.insert(sha.clone(), function);
        }
        Ok(sha)
    }

    pub(crate) fn knows(&self, sha: &[u8]) -> bool {
        std::str::from_utf8(sha).is_ok_and(|sha| self.compiled.contains_key(&sha.to_ascii_lowercase()))
    }

    pub(crate) fn forget_all(&mut self) {
        self.compiled.clear();
    }

    /// Runs a script that is loaded. `words` are the number of keys, the keys and the arguments.
    pub(crate) fn run(&self, sha: &[u8], words: &[Vec<u8>]) -> Answer {
        let sha = String::from_utf8_lossy(sha).to_ascii_lowercase();
        let script = self.compiled.get(&sha);
        let script = script.ok_or_else(|| Refusal("NOSCRIPT No matching script. Please use EVAL.".to_owned()))?;
        let count = number::count(words.first().map_or(&b""[..], Vec::as_slice))?;
        let (keys, arguments) = words[1..]
            .split_at_checked(count)
            .ok_or_else(|| Refusal("ERR Number of keys can't be greater than number of args".to_owned()))?;
        let slot = slot_of_all(keys)?;
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = slot;
        let broken = |error: mlua::Error| Refusal(format!("ERR {error} script: {sha}"));
        let list = |words: &[Vec<u8>]| -> mlua::Result<Table> {
            self.lua.create_sequence_from(
                words.iter().map(|word| self.lua.create_string(word)).collect::<Result<Vec<_>, _>>()?,
            )
        };
        let (keys, arguments) = (list(keys).map_err(broken)?, list(arguments).map_err(broken)?);
        let (ended_well, value): (bool, Value) = self.run.call((script, keys, arguments)).map_err(broken)?;
        let reply = from_lua(&value).map_err(broken)?;
        match (ended_well, reply) {
            (true, Reply::Error(text)) => Err(Refusal(text)),
            (true, reply) => Ok(reply),
            (false, Reply::Error(text)) => Err(Refusal(format!("{text} script: {sha}, on @user_script."))),
            (false, Reply::Bulk(text)) => {
                Err(Refusal(format!("ERR {} script: {sha}, on @user_script.", String::from_utf8_lossy(&text))))
            }
            (false, _) => Err(Refusal(format!("ERR unknown error script: {sha}"))),
        }
    }
}

/// The slot of the keys of a call. All have to be in one, also where there is no cluster, so that what a test meets
/// runs on a cluster too. Queues whose names make no hash tag are none for a cluster, and are let pass.
fn slot_of_all(keys: &[Vec<u8>]) -> Result<Option<u16>, Refusal> {
    let Some(first) = keys.first().filter(|key| !key.starts_with(b"asynq:{}")) else { return Ok(None) };
    let slot = slot_of(first);
    if keys.iter().any(|key| slot_of(key) != slot) {
        return Err(Refusal("CROSSSLOT Keys in request don't hash to the same slot".to_owned()));
    }
    Ok(Some(slot))
}

/// A JSON value as `cjson.decode` gives it.
fn json_to_lua(lua: &Lua, value: &serde_json::Value) -> mlua::Result<Value> {
    use serde_json::Value as Json;
    Ok(match value {
        Json::Null => Value::LightUserData(mlua::LightUserData(std::ptr::null_mut())),
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => Value::String(lua.create_string(text)?),
        Json::Array(items) => {
            let items = items.iter().map(|item| json_to_lua(lua, item)).collect::<mlua::Result<Vec<_>>>()?;
            Value::Table(lua.create_sequence_from(items)?)
        }
        Json::Object(fields) => {
            let table = lua.create_table()?;
            for (name, value) in fields {
                table.raw_set(name.as_str(), json_to_lua(lua, value)?)?;
            }
            Value::Table(table)
        }
    })
}

fn hex(text: &[u8]) -> String {
    Sha1::from(text).digest().to_string()
}

/// A command that a script calls.
fn call(data: &mut Data, slot: Option<u16>, words: MultiValue) -> Answer {
    let mut args = Vec::with_capacity(words.len());
    for word in &words {
        args.push(match word {
            Value::String(text) => text.as_bytes().to_vec(),
            Value::Integer(number) => number::from_lua(*number as f64).into_bytes(),
            Value::Number(number) => number::from_lua(*number).into_bytes(),
            _ => return Err(Refusal("ERR Lua redis lib command arguments must be strings or integers".to_owned())),
        });
    }
    let Some((name, args)) = args.split_first() else {
        return Err(Refusal("ERR Please specify at least one argument for this redis.call() call".to_owned()));
    };
    let unknown = || {
        let name = String::from_utf8_lossy(name);
        Refusal(format!("ERR the in-process store does not know the command {name:?}, which a script has called"))
    };
    let command = commands::find(name).ok_or_else(unknown)?;
    if slot.is_some_and(|slot| command.keys(args).iter().any(|key| slot_of(key) != slot)) {
        let text = "ERR Script attempted to access keys that do not hash to the same slot";
        return Err(Refusal(text.to_owned()));
    }
    command.run(data, args)
}

/// A reply as a script sees it, by the rules of RESP2.
fn to_lua(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    let list = |items: &mut dyn Iterator<Item = &Reply>| -> mlua::Result<Value> {
        let table = lua.create_table()?;
        for (position, item) in items.enumerate() {
            table.raw_set(position + 1, to_lua(lua, item)?)?;
        }
        Ok(Value::Table(table))
    };
    let with = |field: &str, text: &str| -> mlua::Result<Value> {
        let table = lua.create_table()?;
        table.raw_set(field, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Status(word) => with("ok", word),
        Reply::Error(text) => with("err", text),
        Reply::Integer(number) => Ok(Value::Number(*number as f64)),
        Reply::Bulk(bytes) => lua.create_string(bytes).map(Value::String),
        Reply::Nil => Ok(Value::Boolean(false)),
        Reply::Double(number) => lua.create_string(number::show(*number)).map(Value::String),
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => list(&mut items.iter()),
        Reply::Map(pairs) | Reply::Pairs(pairs) => list(&mut pairs.iter().flat_map(|(first, second)| [first, second])),
    }
}

/// What a script returns, as a reply. Numbers lose their fractions, and a list ends at its first nil.
fn from_lua(value: &Value) -> mlua::Result<Reply> {
    Ok(match value {
        Value::String(text) => Reply::text(text.as_bytes().to_vec()),
        Value::Integer(number) => Reply::Integer(*number),
        Value::Number(number) => Reply::Integer(*number as i64),
        Value::Boolean(true) => Reply::Integer(1),
        Value::Table(table) => {
            if let Ok(text) = table.raw_get::<mlua::LuaString>("err") {
                return Ok(Reply::Error(text.to_string_lossy().trim_start_matches('-').to_owned()));
            }
            if let Ok(text) = table.raw_get::<mlua::LuaString>("ok") {
                let is_ok = *text.as_bytes() == *b"OK";
                return Ok(if is_ok { Reply::OK } else { Reply::text(text.as_bytes().to_vec()) });
            }
            let items = table.sequence_values::<Value>();
            Reply::Array(items.map(|item| from_lua(&item?)).collect::<mlua::Result<_>>()?)
        }
        _ => Reply::Nil,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eval(source: &str, words: &[&str]) -> Answer {
        let data = Data::new(Arc::new(queue_core::SystemClock));
        let mut scripts = Scripts::new(Arc::new(Mutex::new(data))).unwrap();
        let sha = scripts.load(source.as_bytes())?;
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        scripts.run(sha.as_bytes(), &words)
    }

    #[test]
    fn replies_are_converted_as_redis_does_it() {
        assert_eq!(eval("return 3.9", &["0"]), Ok(Reply::Integer(3)));
        assert_eq!(
            eval("return {1, 'a', nil, 2}", &["0"]),
            Ok(Reply::Array(vec![Reply::Integer(1), Reply::text("a")]))
        );
        assert_eq!(eval("return {ok = 'OK'}", &["0"]), Ok(Reply::OK));
        assert_eq!(eval("return redis.call('GET', KEYS[1])", &["1", "k"]), Ok(Reply::Nil));
        assert_eq!(eval("return redis.call('SET', KEYS[1], ARGV[1]).ok", &["1", "k", "v"]), Ok(Reply::text("OK")));
        let scores = "redis.call('ZADD', 'z', 1.5, 'a', 2, 'b') return redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')";
        assert_eq!(eval(scores, &["0"]), Ok(Reply::bulks(["a", "1.5", "b", "2"].map(|text| text.as_bytes().to_vec()))));
    }

    #[test]
    fn an_error_ends_the_script_unless_it_is_caught() {
        let wrong = "redis.call('SET', 'k', 1) ";
        let error = eval(&format!("{wrong} redis.call('LPUSH', 'k', 1) return 1"), &["0"]).unwrap_err().0;
        assert!(error.starts_with("WRONGTYPE Operation"), "{error}");
        let caught = eval(&format!("{wrong} return type(redis.pcall('LPUSH', 'k', 1).err)"), &["0"]);
        assert_eq!(caught, Ok(Reply::text("string")));
        let returned = eval(&format!("{wrong} return redis.pcall('LPUSH', 'k', 1)"), &["0"]).unwrap_err().0;
        assert!(returned.starts_with("WRONGTYPE"), "{returned}");
        let error = eval("return redis.call('NOSUCH')", &["0"]).unwrap_err().0;
        assert!(error.contains("\"NOSUCH\""), "{error}");
        let error = eval("return nil + 1", &["0"]).unwrap_err().0;
        assert!(error.starts_with("ERR user_script:1: attempt to perform arithmetic"), "{error}");
    }

    #[test]
    fn keys_of_two_slots_are_refused_as_by_a_cluster() {
        let get = "return redis.call('GET', ARGV[1])";
        assert_eq!(eval(get, &["1", "{a}:x", "{a}:y"]), Ok(Reply::Nil));
        let error = eval(get, &["1", "{a}:x", "{b}:x"]).unwrap_err().0;
        assert!(error.contains("do not hash to the same slot"), "{error}");
        let error = eval(get, &["2", "{a}:x", "{b}:x", "{a}:x"]).unwrap_err().0;
        assert!(error.starts_with("CROSSSLOT"), "{error}");
        let error = eval("return redis.call('EXISTS', KEYS[1], '{b}:x')", &["1", "{a}:x"]).unwrap_err().0;
        assert!(error.contains("do not hash to the same slot"), "{error}");
    }

    #[test]
    fn globals_are_refused() {
        assert!(eval("x = 1", &["0"]).unwrap_err().0.contains("global variable 'x'"));
        assert!(eval("return x", &["0"]).unwrap_err().0.contains("nonexistent global variable 'x'"));
        assert!(eval("return io", &["0"]).is_err());
    }
}
