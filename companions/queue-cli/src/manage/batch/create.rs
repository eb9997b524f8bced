//! `queuectl batch create` and `batch add`.

use std::fs::File;
use std::io::Seek as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use clap::Args;
use futures_util::{Stream, StreamExt as _};
use queue_core::RawTask;
use queue_core::flow::FlowId;
use queue_redis::{Added, Batch, BatchBuilder, BatchError, Client};
use serde::Serialize;

use super::warn_if_existed;
use crate::enqueue::batch::{CHUNK_LINES, Reading, cannot_read, open_twice};
use crate::error::{CliError, complain};
use crate::given::Given as _;
use crate::lines::Numbered;
use crate::output::Output;
use crate::session::Session;
use crate::when;

/// A batch, and where its members come from.
#[derive(Debug, Args)]
#[command(after_help = CREATE_HELP)]
pub(crate) struct CreateArgs {
    /// File of the members (`-`: standard input), one JSON object on each line
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Task that is enqueued when every member has succeeded
    #[arg(long, value_name = "TYPE[=PAYLOAD]")]
    success: Option<String>,
    /// Task that is enqueued when every member has been attempted
    #[arg(long, value_name = "TYPE[=PAYLOAD]")]
    complete: Option<String>,
    /// Task that is enqueued when the first member dies
    #[arg(long, value_name = "TYPE[=PAYLOAD]")]
    death: Option<String>,
    /// Task that is enqueued when nothing is left to be done, however it ended
    #[arg(long, value_name = "TYPE[=PAYLOAD]")]
    settled: Option<String>,
    /// Queue of these tasks [default: default]
    #[arg(long, value_name = "Q")]
    callback_queue: Option<String>,
    /// What the batch is for
    #[arg(long, value_name = "T")]
    description: Option<String>,
    /// Word by which `batch ls --tag` finds it; may be given more than once
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Something else to remember, shown by `batch show`; may be given more than once
    #[arg(long = "meta", value_name = "NAME=TEXT", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// Cancel it if it is not over by then [default: never]
    #[arg(long, value_name = "T", value_parser = when::instant)]
    deadline: Option<SystemTime>,
    /// Keep it so long when it is over [default: 1h if all went well, else 90d]
    #[arg(long, value_name = "D", value_parser = when::duration)]
    linger: Option<Duration>,
    /// Id of the batch [default: 16 random letters and digits]
    #[arg(long, value_name = "ID", value_parser = id)]
    id: Option<String>,
    /// Do not commit it: more members come by `batch add`, then `batch commit`
    #[arg(long)]
    open: bool,
}

/// A batch, and where more members come from.
#[derive(Debug, Args)]
#[command(after_help = ADD_HELP)]
pub(crate) struct AddArgs {
    /// Batch id
    #[arg(value_name = "ID")]
    id: FlowId,
    /// File of the members (`-`: standard input), one JSON object on each line
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Name of this addition: given again with the same file, it adds what is missing and nothing twice
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

const ADD_HELP: &str = "\
The lines are those of `queuectl batch create`, and checked before the first is added. The batch must not be committed yet:
`queuectl batch create --open` makes one that is not, `queuectl batch commit` says that
all members are there. A batch to which nobody adds for half an hour is abandoned.";

const CREATE_HELP: &str = "\
The lines are those of `queuectl enqueue --batch`, without `task_id` and `group`.
The file is read twice: where a line is no task, the command names it and ends (1),
and nothing is added. Standard input goes through a temporary file for that. Then the
members run as soon as they are enqueued, a thousand lines at a time. When the command
was killed, give it again with --id: what is in the batch is not added again. A batch
that is not committed is abandoned after half an hour, until somebody does that.";

fn id(text: &str) -> Result<String, String> {
    FlowId::root_named(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, text) = text.split_once('=').ok_or("expected NAME=TEXT")?;
    if name.is_empty() { Err("the name is empty".to_owned()) } else { Ok((name.to_owned(), text.to_owned())) }
}

/// What `--json` tells about a batch that was made.
#[derive(Debug, Serialize)]
struct Created {
    id: String,
    members: u64,
    duplicates: u64,
    /// Of one that was to be made, whether it was there before.
    #[serde(skip_serializing_if = "Option::is_none")]
    existed: Option<bool>,
}

pub(crate) async fn run(args: CreateArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let mut chunks = Chunks::open(&args.from, &session.client()).await?;
    let is_open = args.open;
    let batch = builder(args, session).open().await?;
    let mut added = Added::default();
    let filled = async {
        fill(&batch, Some("lines"), &mut chunks, &mut added).await?;
        if is_open { Ok(()) } else { Ok(batch.commit().await?) }
    };
    filled.await.map_err(|error| unfinished(error, &batch, &added))?;
    warn_if_existed("batch", &batch);
    tell(&batch, added, Some(batch.existed()), out)
}

pub(crate) async fn add(args: AddArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let mut chunks = Chunks::open(&args.from, &session.client()).await?;
    let batch = session.client().batch_of(&args.id.to_string()).await?;
    let mut added = Added::default();
    fill(&batch, args.name.as_deref(), &mut chunks, &mut added).await?;
    tell(&batch, added, None, out)
}

/// Prints the id of a batch to which something was added.
fn tell(batch: &Batch, added: Added, existed: Option<bool>, out: &Output) -> Result<(), CliError> {
    let id = batch.id().to_string();
    if out.json {
        return out.value(&Created { id, members: added.members, duplicates: added.duplicates, existed });
    }
    if added.duplicates > 0 {
        complain(&format!(
            "warning: {} lines were left out, because other tasks hold their uniqueness locks",
            added.duplicates
        ));
    }
    out.line(&id)
}

fn builder(args: CreateArgs, session: &Session) -> BatchBuilder {
    let queue = args.callback_queue;
    let task = |text: String| {
        let (task_type, payload) = match text.split_once('=') {
            Some((task_type, payload)) => (task_type, Some(payload.to_owned())),
            None => (&*text, None),
        };
        RawTask::new(task_type).given(payload, RawTask::payload).given(queue.clone(), RawTask::queue)
    };
    let mut builder = session.client().batch();
    builder = args.tags.into_iter().fold(builder, BatchBuilder::tag);
    builder = args.metadata.into_iter().fold(builder, |builder, (name, text)| builder.metadata(name, text));
    builder
        .given(args.id, BatchBuilder::id)
        .given(args.description, BatchBuilder::description)
        .given(args.deadline, BatchBuilder::deadline)
        .given(args.linger, BatchBuilder::linger)
        .given(args.success.map(task), BatchBuilder::on_success)
        .given(args.complete.map(task), BatchBuilder::on_complete)
        .given(args.death.map(task), BatchBuilder::on_death)
        .given(args.settled.map(task), BatchBuilder::on_settled)
}

/// Adds the tasks.
async fn fill(batch: &Batch, key: Option<&str>, chunks: &mut Chunks, added: &mut Added) -> Result<(), CliError> {
    for number in 0_u64.. {
        let chunk = chunks.next().await?;
        if chunk.is_empty() {
            break;
        }
        let (lines, tasks): (Vec<u64>, Vec<RawTask>) = chunk.into_iter().unzip();
        // Chunks end at the same lines whenever the file is read, so that the key of each always names the same tasks.
        let batch = batch.clone();
        let batch = key.map_or(batch.clone(), |key| batch.keyed(format!("{key}-{number}")));
        let more = batch.add_all(tasks).await;
        let more = more.map_err(|error| at_line(error, &lines))?;
        added.members += more.members;
        added.duplicates += more.duplicates;
    }
    Ok(())
}

/// Names the line of a task that cannot be a member.
fn at_line(error: BatchError, lines: &[u64]) -> CliError {
    let line = |position: usize| lines.get(position).copied().unwrap_or_default();
    match error {
        BatchError::Unsuitable { position, reason } if position.parse::<usize>().is_ok() => {
            let position = position.parse().unwrap_or_default();
            CliError::failed(format!("line {}: the task cannot belong to a batch: {reason}", line(position)))
        }
        BatchError::Refused { position, source } => {
            CliError::failed(format!("line {}: {source}", line(position as usize)))
        }
        error => error.into(),
    }
}

/// Says what has become of a batch that was made and is not whole.
fn unfinished(error: CliError, batch: &Batch, added: &Added) -> CliError {
    let (id, members) = (batch.id(), added.members);
    let rest = format!(
        "; batch {id} has {members} members from this file and is not committed: the same command with --id {id} \
         goes on, `queuectl batch cancel {id}` ends it"
    );
    match error {
        CliError::Failed(text) => CliError::Failed(text + &rest),
        CliError::Transient(text) => CliError::Transient(text + &rest),
        error => error,
    }
}

/// The tasks of a file, a number of lines at a time, however slowly they come.
struct Chunks {
    tasks: Pin<Box<dyn Stream<Item = Vec<Numbered<RawTask>>>>>,
    reading: Option<Reading>,
}

impl Chunks {
    /// The tasks of a file, every line of which can be a member: one that is wrong leaves nothing behind.
    async fn open(file: &Path, client: &Client) -> Result<Self, CliError> {
        let (name, mut file) = open_twice(file).await?;
        let again = |error| cannot_read(&name, error);
        let mut chunks = Self::of(name.clone(), file.try_clone().map_err(again)?);
        chunks.check(client).await.map_err(|error| match error {
            CliError::Failed(text) => CliError::Failed(text + "; nothing was added"),
            error => error,
        })?;
        file.rewind().map_err(again)?;
        Ok(Self::of(name, file))
    }

    fn of(name: String, file: File) -> Self {
        let (tasks, reading) = Reading::of(name, Box::new(file));
        Self { tasks: Box::pin(tasks.chunks(CHUNK_LINES)), reading: Some(reading) }
    }

    /// Goes through all of them.
    async fn check(&mut self, client: &Client) -> Result<(), CliError> {
        loop {
            let (lines, tasks): (Vec<u64>, Vec<RawTask>) = self.next().await?.into_iter().unzip();
            if tasks.is_empty() {
                return Ok(());
            }
            client.check_members(tasks).map_err(|error| at_line(error, &lines))?;
        }
    }

    /// The next tasks with the numbers of their lines; none at the end of the file.
    async fn next(&mut self) -> Result<Vec<(u64, RawTask)>, CliError> {
        let Some(lines) = self.tasks.next().await else {
            if let Some(reading) = self.reading.take() {
                reading.end().await?;
            }
            return Ok(Vec::new());
        };
        let (mut tasks, mut refused) = (Vec::with_capacity(lines.len()), 0);
        for (number, parsed) in lines {
            match parsed {
                Ok(task) => tasks.push((number, task)),
                Err(reason) => {
                    refused += 1;
                    complain(&format!("line {number}: {reason}"));
                }
            }
        }
        match refused {
            0 => Ok(tasks),
            1 => Err(CliError::failed("1 line is no task, as said above")),
            _ => Err(CliError::failed(format!("{refused} lines are no tasks, as said above"))),
        }
    }
}
