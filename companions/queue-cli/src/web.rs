//! `queuectl web`: the dashboard and the REST API.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, Subcommand, ValueEnum};
use queue_admin::Role;
use queue_web::{Address, Redact, Tokens, Users, Web, new_token, new_user};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use tracing::info;
use url::Url;

use crate::command::{Alone, Command, Running};
use crate::error::CliError;
use crate::global::Global;
use crate::interrupt;
use crate::logging::LogFormat;
use crate::output::Output;
use crate::session::Session;
use crate::worker::causes;

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

    /// Have the people in this file log in on a page
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,

    /// Answer requests to this host too while nobody logs in; may be given many times
    #[arg(long = "host", value_name = "HOST[:PORT]")]
    hosts: Vec<String>,

    /// Hide what this TOML file names
    #[arg(long, value_name = "FILE")]
    redact: Option<PathBuf>,

    /// Answer asynqmon's route for metrics from the Prometheus at this URL
    #[arg(long, value_name = "URL", value_parser = prometheus_url)]
    prometheus: Option<Url>,

    /// How many proxies are in front, each of which appends to X-Forwarded-For by whom it was asked
    #[arg(long, value_name = "N", default_value_t = 0)]
    proxies: usize,

    /// Refuse every change, whoever wants it
    #[arg(long)]
    read_only: bool,

    /// Let everybody who reaches the address do everything
    #[arg(long, conflicts_with_all = ["tokens", "users"])]
    insecure_no_auth: bool,
}

const WEB_HELP: &str = "\
The address is printed on standard output once it can be opened. Without --tokens
and --users there is no login, and only this machine is listened to and answered.
`queuectl web token NAME --role operator` makes a token and its line for the file,
`queuectl web hash-password NAME --role operator` a line for that of --users.";

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
    /// Make a line for the file of --users: it goes to standard output. The password is asked for, or is the first line of standard input
    HashPassword {
        /// Whose password it is
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
        if self.addr.is_local() || self.has_login() || self.insecure_no_auth || self.command.is_some() {
            return Ok(());
        }
        let told = "others than this machine reach this address, so name a file by --tokens (`queuectl web token` makes tokens) or by \
                    --users (`queuectl web hash-password` makes lines), or say --insecure-no-auth";
        Err(CliError::Usage(told.to_owned()))
    }

    fn log(&self, json: bool) -> (&'static str, LogFormat) {
        ("info", LogFormat::of(json))
    }

    fn alone(&self, _: Alone, out: &Output) -> Option<Result<(), CliError>> {
        match self.command.as_ref()? {
            WebCommand::Token { name, role } => Some(token(name, (*role).into(), out)),
            WebCommand::HashPassword { name, role } => Some(hash_password(name, (*role).into(), out)),
        }
    }

    fn handles_signals(&self) -> bool {
        true
    }

    fn run<'a>(self: Box<Self>, session: &'a Session, out: &'a Output) -> Running<'a> {
        Box::pin(run(*self, session, out))
    }
}

impl WebArgs {
    fn has_login(&self) -> bool {
        self.tokens.is_some() || self.users.is_some()
    }
}

fn check_name(name: &str) -> Result<(), CliError> {
    let is_bad = name.is_empty()
        || name.contains(':')
        || name.starts_with('#')
        || name.trim() != name
        || name.chars().any(char::is_control);
    if is_bad { Err(CliError::Usage("a name is not empty, and has no colon".to_owned())) } else { Ok(()) }
}

/// Fewest characters of a password: whoever has the file, or asks the login for long, can guess it.
const SHORTEST: usize = 8;
/// Most bytes of one: the login takes no more.
const LONGEST: usize = 1_024;

fn hash_password(name: &str, role: Role, out: &Output) -> Result<(), CliError> {
    check_name(name)?;
    let password = password()?;
    if password.chars().count() < SHORTEST || password.len() > LONGEST {
        return Err(CliError::Usage(format!(
            "a password has at least {SHORTEST} characters and at most {LONGEST} bytes"
        )));
    }
    let line = new_user(name, role, &password).map_err(|error| CliError::failed(error.to_string()))?;
    out.told(&serde_json::json!({ "line": line }), &line)
}

/// From a terminal, it is asked for twice and not shown.
fn password() -> Result<String, CliError> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return first_line();
    }
    let fail =
        |error: rustix::io::Errno| CliError::failed(format!("the terminal cannot be told to show nothing: {error}"));
    let before = tcgetattr(&stdin).map_err(fail)?;
    let mut quiet = before.clone();
    quiet.local_modes -= LocalModes::ECHO;
    quiet.local_modes |= LocalModes::ECHONL;
    tcsetattr(&stdin, OptionalActions::Flush, &quiet).map_err(fail)?;
    let asked = ask("Password: ").and_then(|first| Ok((first, ask("Once more: ")?)));
    tcsetattr(&stdin, OptionalActions::Flush, &before).map_err(fail)?;
    let (first, second) = asked?;
    if first == second { Ok(first) } else { Err(CliError::Usage("these are two passwords".to_owned())) }
}

fn ask(prompt: &str) -> Result<String, CliError> {
    let _ = std::io::stderr().lock().write_all(prompt.as_bytes());
    first_line()
}

fn first_line() -> Result<String, CliError> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(|error| CliError::failed(format!("standard input cannot be read: {error}")))?;
    Ok(line.strip_suffix('\n').map_or(&*line, |line| line.strip_suffix('\r').unwrap_or(line)).to_owned())
}

fn token(name: &str, role: Role, out: &Output) -> Result<(), CliError> {
    check_name(name)?;
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

/// How long a connection to Prometheus may take, and an answer of it.
const CONNECT: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(25);

fn prometheus_url(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).ok();
    let url = url.filter(|url| ["http", "https"].contains(&url.scheme()) && url.query().is_none());
    url.filter(|url| url.fragment().is_none()).ok_or("this is no URL with http or https and without a query")
}

/// Asks the Prometheus at this address.
fn asking(url: &Url) -> Result<impl Fn(String) -> Asking + Send + Sync + 'static, CliError> {
    // Somebody else (the Redis connection) may have chosen it already, which serves us as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().connect_timeout(CONNECT).timeout(PATIENCE);
    let client = client.build().map_err(|error| CliError::failed(format!("cannot speak HTTP: {error}")))?;
    let base = url.as_str().trim_end_matches('/').to_owned();
    Ok(move |asked: String| {
        let request = client.get(format!("{base}{asked}"));
        let asking: Asking = Box::pin(async move {
            let body = async { request.send().await?.bytes().await }.await;
            // Without the URL, which may hold a password.
            body.map_err(|error| causes(&error.without_url()))
        });
        asking
    })
}

type Asking = Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send>>;

async fn run(args: WebArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let mut web = Web::builder(session.redis().clone()).read_only(args.read_only).proxies(args.proxies);
    if let Some(file) = &args.tokens {
        let tokens = Tokens::parse(&read("--tokens", file)?);
        web = web.tokens(tokens.map_err(|error| CliError::failed(format!("--tokens: {}: {error}", file.display())))?);
    }
    if let Some(file) = &args.users {
        let users = Users::parse(&read("--users", file)?);
        web = web.users(users.map_err(|error| CliError::failed(format!("--users: {}: {error}", file.display())))?);
    }
    if let Some(file) = &args.redact {
        let redact = Redact::from_toml(&read("--redact", file)?);
        web = web.redact(redact.map_err(|error| CliError::Misread(format!("--redact: {}: {error}", file.display())))?);
    }
    if let Some(url) = &args.prometheus {
        web = web.prometheus(asking(url)?);
    }
    web = args.hosts.iter().fold(web, |web, host| web.host(host));
    if args.insecure_no_auth {
        web = web.any_host();
    }
    let listening = web.build().bind(&args.addr).await;
    let listening = listening.map_err(|error| CliError::failed(format!("--addr: cannot listen there: {error}")))?;
    let address = listening.address();
    out.told(&serde_json::json!({ "address": address }), &address)?;
    info!(address, read_only = args.read_only, login = args.has_login(), "the dashboard is served");
    listening
        .serve(async {
            interrupt::signal().await;
            info!("the dashboard ends");
        })
        .await;
    Ok(())
}
