//! `queuectl web`: the dashboard and the REST API.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use queue_admin::Role;
use queue_web::{Address, Redact, Tokens, Web, new_token};
use tracing::info;

use crate::command::{Alone, Command, Running};
use crate::error::CliError;
use crate::global::Global;
use crate::interrupt;
use crate::logging::LogFormat;
use crate::output::Output;
use crate::session::Session;

/// Where to serve the dashboard, and to whom.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = WEB_HELP)]
#[group(skip)]
pub(crate) struct WebArgs {
    #[command(subcommand)]
    command: Option<WebCommand>,

    /// Address to listen on: HOST:PORT, where port 0 is any free one, or unix:PATH
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9878")]
    addr: Address,

    /// Ask for one of the tokens in this file
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,

    /// Answer requests to this host too while nobody logs in; may be given many times
    #[arg(long = "host", value_name = "HOST[:PORT]")]
    hosts: Vec<String>,

    /// Hide what this TOML file names
    #[arg(long, value_name = "FILE")]
    redact: Option<PathBuf>,

    /// Refuse every change, whoever wants it
    #[arg(long)]
    read_only: bool,

    /// Let everybody who reaches the address do everything
    #[arg(long)]
    insecure_no_auth: bool,
}

const WEB_HELP: &str = "\
The address is printed on standard output once it can be opened. Without --tokens
there is no login, and only this machine is listened to and answered.
`queuectl web token NAME --role operator` makes a token and its line for the file.";

/// What else there is.
#[derive(Debug, Subcommand)]
enum WebCommand {
    /// Make a token: it goes to standard output, its line for the file of --tokens to standard error
    Token {
        /// Whose token it is
        #[arg(value_name = "NAME")]
        name: String,
        /// What this one may do
        #[arg(long, value_name = "ROLE")]
        role: RoleName,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleName {
    /// Look
    Viewer,
    /// Also run, archive and cancel tasks, pause queues and periodic entries
    Operator,
    /// Everything
    Admin,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::Viewer => Self::Viewer,
            RoleName::Operator => Self::Operator,
            RoleName::Admin => Self::Admin,
        }
    }
}

impl Command for WebArgs {
    fn check(&self, _: &Global) -> Result<(), CliError> {
        if self.addr.is_local() || self.tokens.is_some() || self.insecure_no_auth || self.command.is_some() {
            return Ok(());
        }
        let told = "others than this machine reach this address, so name a file by --tokens (`queuectl web token` makes tokens), \
                    or say --insecure-no-auth";
        Err(CliError::Usage(told.to_owned()))
    }

    fn log(&self, json: bool) -> (&'static str, LogFormat) {
        ("info", LogFormat::of(json))
    }

    fn alone(&self, _: Alone, out: &Output) -> Option<Result<(), CliError>> {
        let Some(WebCommand::Token { name, role }) = &self.command else { return None };
        Some(token(name, (*role).into(), out))
    }

    fn handles_signals(&self) -> bool {
        true
    }

    fn run<'a>(self: Box<Self>, session: &'a Session, out: &'a Output) -> Running<'a> {
        Box::pin(run(*self, session, out))
    }
}

fn token(name: &str, role: Role, out: &Output) -> Result<(), CliError> {
    if name.is_empty() || name.contains(':') || name.starts_with('#') || name.chars().any(char::is_control) {
        return Err(CliError::Usage("a name is not empty, and has no colon".to_owned()));
    }
    let (token, line) = new_token(name, role);
    if out.json {
        return out.value(&serde_json::json!({ "token": token, "line": line }));
    }
    out.line(&token)?;
    // As it is: `2>> FILE` makes it part of a file.
    let _ = std::io::stderr().lock().write_all(format!("# the line for the file of --tokens:\n{line}\n").as_bytes());
    Ok(())
}

fn read(flag: &str, file: &Path) -> Result<String, CliError> {
    std::fs::read_to_string(file)
        .map_err(|error| CliError::failed(format!("{flag}: cannot read {}: {error}", file.display())))
}

async fn run(args: WebArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let mut web = Web::builder(session.redis().clone()).read_only(args.read_only);
    if let Some(file) = &args.tokens {
        let tokens = Tokens::parse(&read("--tokens", file)?);
        web = web.tokens(tokens.map_err(|error| CliError::failed(format!("--tokens: {}: {error}", file.display())))?);
    }
    if let Some(file) = &args.redact {
        let redact = Redact::from_toml(&read("--redact", file)?);
        web = web.redact(redact.map_err(|error| CliError::failed(format!("--redact: {}: {error}", file.display())))?);
    }
    web = args.hosts.iter().fold(web, |web, host| web.host(host));
    if args.insecure_no_auth && args.tokens.is_none() {
        web = web.any_host();
    }
    let listening = web.build().bind(&args.addr).await;
    let listening = listening.map_err(|error| CliError::failed(format!("--addr: cannot listen there: {error}")))?;
    let address = listening.address();
    if out.json {
        out.value(&serde_json::json!({ "address": address }))?;
    } else {
        out.line(&address)?;
    }
    info!(address, read_only = args.read_only, login = args.tokens.is_some(), "the dashboard is served");
    listening
        .serve(async {
            interrupt::signal().await;
            info!("the dashboard ends");
        })
        .await;
    Ok(())
}
