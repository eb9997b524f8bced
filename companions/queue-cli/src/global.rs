//! The flags of every command, and which Redis they mean.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use queue_core::duration;
use queue_redis::RedisOptions;

use crate::connection::ConnectionArgs;
use crate::error::CliError;

/// Flags of every command; they may stand before or after it.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Redis to use: redis://user:password@host:port/db, rediss://…, or redis+unix:///path/to.sock
    ///
    /// A cluster: redis+cluster://host:port,host:port. A master that Sentinel names:
    /// redis-sentinel://:password@host:port,host:port/db?master=name&password=…
    ///
    /// Without it, the environment variable REDIS_URL counts, and without that redis://127.0.0.1:6379. A
    /// password is better kept in REDIS_URL: everybody on the machine can see command lines.
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    redis: Option<String>,

    /// Start a private redis-server and stop it at the end; with DIR, it keeps its data there
    ///
    /// It listens on a Unix socket only. With DIR it writes an append-only file there, and the tasks are there
    /// again the next time. DIR follows `=`, or a space when it begins with `/`, `./` or `../`.
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        help_heading = "Global options"
    )]
    embedded: Option<OsString>,

    /// How long Redis may be silent while an answer is waited for [default: 5s]
    #[arg(long, global = true, value_name = "D", value_parser = duration::parse, hide_short_help = true, help_heading = "Global options")]
    response_timeout: Option<Duration>,

    /// Write JSON instead of tables; a worker, JSON instead of plain log lines
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// Which Redis a command works on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    /// One that runs already.
    Url(String),
    /// A private one, which keeps its data in this directory if there is one.
    Embedded(Option<&'a Path>),
}

impl Global {
    /// How to connect, and how long to wait.
    pub(crate) fn options(&self) -> Result<RedisOptions, CliError> {
        let options = self.connection.options()?;
        Ok(RedisOptions { response_timeout: self.response_timeout.unwrap_or(options.response_timeout), ..options })
    }

    /// Clap cannot do this: it sees a value from the environment as one given by hand, and it does not see
    /// two global flags that stand on different sides of the subcommand.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        if self.redis.is_some() && self.embedded.is_some() {
            return Err(CliError::Usage("--embedded and --redis exclude each other; give one of them".to_owned()));
        }
        if self.redis.is_some() && self.connection.uri().is_some() {
            return Err(CliError::Usage("--redis and asynq's own flags of the connection (--uri, --cluster and the like) exclude each other; give one".to_owned()));
        }
        if self.embedded.is_some() && self.connection.any() {
            return Err(CliError::Usage("connection flags and --embedded exclude each other".to_owned()));
        }
        Ok(())
    }

    /// Somebody's Redis stays without being asked to; a flag that does nothing is refused.
    pub(crate) fn check_keep(&self, keep: bool) -> Result<(), CliError> {
        if keep && (self.redis.is_some() || self.connection.any()) {
            return Err(CliError::Usage(
                "--keep is for the embedded Redis; the one given by --redis stays anyway".to_owned(),
            ));
        }
        Ok(())
    }

    /// A store inside this process excludes a Redis.
    pub(crate) fn check_memory(&self, memory: bool) -> Result<(), CliError> {
        if memory && (self.redis.is_some() || self.embedded.is_some() || self.connection.any()) {
            return Err(CliError::Usage("--memory is for a demo without Redis; give no Redis beside it".to_owned()));
        }
        Ok(())
    }

    /// The Redis to use; `environment` is the value of REDIS_URL.
    pub(crate) fn source(&self, environment: Option<String>, embedded_by_default: bool) -> Source<'_> {
        if let Some(directory) = &self.embedded {
            return Source::Embedded(Some(Path::new(directory)).filter(|directory| *directory != Path::new("")));
        }
        if let Some(url) = self.redis.clone().or_else(|| self.connection.uri()) {
            return Source::Url(url);
        }
        if embedded_by_default {
            return Source::Embedded(None);
        }
        let environment = environment.filter(|url| !url.trim().is_empty());
        Source::Url(environment.unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned()))
    }
}
