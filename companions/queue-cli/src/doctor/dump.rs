//! The file that keeps what repairs delete; `docs/doctor.md` describes it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use queue_admin::payload::harmless;
use queue_core::{Clock as _, SystemClock};
use queue_redis::{Copied, Doctor, Finding};
use serde::{Deserialize, Serialize};

use crate::error::{CliError, complain};
use crate::lines::next_line;
use crate::output::Output;

/// Bytes: text if they are.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Blob {
    Text(String),
    Binary { base64: String },
}

impl Blob {
    fn new(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Binary { base64: STANDARD.encode(bytes) },
        }
    }

    fn bytes(self) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) => Ok(text.into_bytes()),
            Self::Binary { base64 } => decode(&base64),
        }
    }
}

fn decode(base64: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(base64).map_err(|error| format!("its base64 is damaged: {error}"))
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "lowercase")]
enum Line {
    /// A whole key.
    Key {
        at: DateTime<Utc>,
        fault: String,
        key: Blob,
        expires_at_ms: Option<i64>,
        /// What `DUMP` gave, in base64.
        dump: String,
    },
    /// An id in a list or sorted set.
    Entry { at: DateTime<Utc>, fault: String, key: Blob, id: Blob, score: Option<String> },
}

impl Line {
    fn new(finding: &Finding, copy: &Copied) -> Option<Self> {
        let (at, fault) = (SystemClock.now(), finding.fault.as_str().to_owned());
        match copy {
            Copied::Key { key, dump, expires_at_ms } => Some(Self::Key {
                at,
                fault,
                key: Blob::new(key),
                expires_at_ms: *expires_at_ms,
                dump: STANDARD.encode(dump),
            }),
            Copied::Entry { key, id, score } => {
                Some(Self::Entry { at, fault, key: Blob::new(key), id: Blob::new(id), score: score.clone() })
            }
            _ => None,
        }
    }

    fn copied(self) -> Result<Copied, String> {
        Ok(match self {
            Self::Key { key, expires_at_ms, dump, .. } => Copied::key(key.bytes()?, decode(&dump)?, expires_at_ms),
            Self::Entry { key, id, score, .. } => Copied::entry(key.bytes()?, id.bytes()?, score),
        })
    }
}

/// A dump file that is being written.
#[derive(Debug)]
pub(super) struct Dump {
    path: PathBuf,
    file: File,
}

impl Dump {
    /// Opens or makes the file; nobody else may read it.
    pub(super) fn open(path: &Path) -> Result<Self, CliError> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
        let mut dump = Self {
            path: path.to_owned(),
            file: file.map_err(|error| CliError::failed(format!("cannot write {}: {error}", path.display())))?,
        };
        dump.end_last_line().map_err(|error| dump.complaint(&error))?;
        // The name is to be on disk too.
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(|error| dump.complaint(&error))?;
        Ok(dump)
    }

    /// A line that was cut off, as by a full disk, is not to spoil the next one.
    fn end_last_line(&mut self) -> io::Result<()> {
        let mut last = [b'\n'];
        if self.file.metadata()?.len() > 0 {
            self.file.seek(SeekFrom::End(-1))?;
            self.file.read_exact(&mut last)?;
        }
        if last == *b"\n" { Ok(()) } else { self.file.write_all(b"\n") }
    }

    /// Writes copies; when this returns, they are on disk.
    pub(super) fn write<'a>(
        &mut self,
        found: impl Iterator<Item = (&'a Finding, &'a Vec<Copied>)>,
    ) -> Result<(), CliError> {
        let mut text = String::new();
        for (finding, copies) in found {
            for copy in copies {
                let line = Line::new(finding, copy).and_then(|line| serde_json::to_string(&line).ok());
                let line = line.ok_or_else(|| CliError::failed("this version cannot write such a copy"))?;
                text.push_str(&line);
                text.push('\n');
            }
        }
        if text.is_empty() {
            return Ok(());
        }
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| self.complaint(&error))
    }

    fn complaint(&self, error: &io::Error) -> CliError {
        CliError::failed(format!("cannot write {}: {error}; nothing was deleted", self.path.display()))
    }
}

#[derive(Debug, Default, Serialize)]
struct Tally {
    restored: u64,
    taken: u64,
    damaged: u64,
}

/// Puts back what a dump file holds.
pub(super) async fn restore(path: &Path, doctor: &Doctor, out: &Output) -> Result<(), CliError> {
    let cannot = |error: &dyn std::fmt::Display| CliError::failed(format!("cannot read {}: {error}", path.display()));
    let mut file = BufReader::new(File::open(path).map_err(|error| cannot(&error))?);
    let (mut tally, mut number, mut line) = (Tally::default(), 0_u64, Vec::new());
    loop {
        line.clear();
        // Of a line that is too long the rest is missing, and so it is damaged.
        next_line(&mut file, &mut line).map_err(|error| cannot(&error))?;
        if line.is_empty() {
            break;
        }
        number += 1;
        let copied = serde_json::from_slice::<Line>(&line).map_err(|error| error.to_string()).and_then(Line::copied);
        let copied = match copied {
            Ok(copied) => copied,
            Err(error) => {
                complain(&format!("line {number} is damaged and left out: {}", harmless(&error)));
                tally.damaged += 1;
                continue;
            }
        };
        match doctor.undo(&copied).await {
            Ok(true) => tally.restored += 1,
            Ok(false) => tally.taken += 1,
            Err(error) if error.is_transient() => return Err(error.into()),
            Err(error) => {
                complain(&format!("line {number} cannot be put back: {error}"));
                tally.damaged += 1;
            }
        }
    }
    if out.json {
        out.value(&tally)?;
    } else {
        let Tally { restored, taken, .. } = tally;
        out.line(&format!("{restored} put back, {taken} left out because their places are taken"))?;
    }
    match tally.damaged {
        0 => Ok(()),
        damaged => Err(CliError::failed_check(format!("{damaged} lines could not be put back, as told above"))),
    }
}
