//! `queuectl task update`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use queue_admin::payload::harmless;
use serde::Serialize;

use crate::enqueue;
use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;

/// Which task, and its new payload.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct UpdateArgs {
    /// Queue name
    #[arg(short, long, value_name = "Q")]
    queue: String,
    /// Task id
    #[arg(short, long, value_name = "ID")]
    id: String,
    /// Payload, as it is
    #[arg(long, value_name = "S", allow_hyphen_values = true, required_unless_present = "payload_file")]
    payload: Option<OsString>,
    /// Read the payload from a file (`-`: standard input)
    #[arg(long, value_name = "F", conflicts_with = "payload")]
    payload_file: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Updated<'a> {
    queue: &'a str,
    id: &'a str,
    payload_bytes: usize,
}

pub(crate) async fn run(args: UpdateArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let payload = enqueue::payload(false, args.payload, args.payload_file).await?.unwrap_or_default();
    let payload_bytes = payload.len();
    session.admin("cli").update_payload(&args.queue, &args.id, payload, None).await?;
    out.told(
        &Updated { queue: &args.queue, id: &args.id, payload_bytes },
        &format!("task {:?} has another payload now, of {payload_bytes} bytes", harmless(&args.id)),
    )
}
