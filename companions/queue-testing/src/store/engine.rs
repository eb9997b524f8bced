//! Does what commands ask for, one after another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use queue_core::Clock;

use super::commands;
use super::data::Data;
use super::reply::{Answer, Refusal, Reply};
use super::script::Scripts;

/// The data, and the scripts that work on them.
#[derive(Debug)]
pub(crate) struct Engine {
    // A mutex of its own, because scripts reach the data through Lua. Whoever has the engine is alone, so
    // that nobody ever waits for it.
    data: Arc<Mutex<Data>>,
    scripts: Result<Scripts, Refusal>,
}

impl Engine {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let data = Arc::new(Mutex::new(Data::new(clock)));
        let scripts = Scripts::new(data.clone()).map_err(|error| Refusal(format!("ERR Lua does not start: {error}")));
        Self { data, scripts }
    }

    pub(crate) fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one command.
    pub(crate) fn execute(&mut self, words: &[Vec<u8>]) -> Answer {
        let Some((name, args)) = words.split_first() else { return Err(Refusal::syntax()) };
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        match (name.as_str(), args) {
            ("EVAL", [source, rest @ ..]) => {
                let scripts = self.scripts.as_mut().map_err(|refusal| refusal.clone())?;
                let sha = scripts.load(source)?;
                scripts.run(sha.as_bytes(), rest)
            }
            ("EVALSHA", [sha, rest @ ..]) => self.scripts.as_ref().map_err(|refusal| refusal.clone())?.run(sha, rest),
            ("SCRIPT", [word, rest @ ..]) => {
                let scripts = self.scripts.as_mut().map_err(|refusal| refusal.clone())?;
                script(scripts, &String::from_utf8_lossy(word).to_ascii_uppercase(), rest)
            }
            _ => match commands::find(name.as_bytes()) {
                Some(command) => command.run(&mut self.data(), args),
                None => Err(Refusal(format!("ERR unknown command '{name}': the in-process store does not have it"))),
            },
        }
    }
}

fn script(scripts: &mut Scripts, word: &str, args: &[Vec<u8>]) -> Answer {
    match (word, args) {
        ("LOAD", [source]) => scripts.load(source).map(Reply::text),
        ("EXISTS", shas) => {
            Ok(Reply::Array(shas.iter().map(|sha| Reply::Integer(i64::from(scripts.knows(sha)))).collect()))
        }
        ("FLUSH", _) => {
            scripts.forget_all();
            Ok(Reply::OK)
        }
        _ => Err(Refusal(format!("ERR the in-process store does not know SCRIPT {word}"))),
    }
}
