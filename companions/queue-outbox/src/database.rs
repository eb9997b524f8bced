//! The database of an outbox: how it is reached, and what stands in it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_redis::TlsOptions;
use rustls::ClientConfig;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

use crate::SCHEMA;

/// How long a connection may take, to each address of a host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a connection may be silent before it is tried.
const SILENCE: Duration = Duration::from_secs(15);

/// Why the database did not do what it was asked.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// The address cannot be read.
    #[error("{0} is not an address of PostgreSQL; write it like postgres://user:password@host:5432/database")]
    Address(String),
    /// The certificates cannot be read.
    #[error("cannot read the certificates for TLS: {0}")]
    Certificates(String),
    /// It cannot be reached, or lets nobody in.
    #[error("cannot reach PostgreSQL at {target}: {}{}", why(source), advice(source))]
    Unreachable {
        /// Hosts and database.
        target: String,
        /// What the client says.
        source: Arc<tokio_postgres::Error>,
    },
    /// There is no outbox.
    #[error(
        "there is no table queue_outbox in {target}; make it with `queuectl outbox init`, or the statements of queue_outbox::SCHEMA"
    )]
    NoTable {
        /// Hosts and database.
        target: String,
    },
    /// The outbox is another one than it should be.
    #[error("the table queue_outbox in {target} is not as `queuectl outbox init --print` has it: {}", why(source))]
    OtherTable {
        /// Hosts and database.
        target: String,
        /// What is missing.
        source: Arc<tokio_postgres::Error>,
    },
    /// A relay may not do what it has to.
    #[error("the user of PostgreSQL at {target} may not relay: GRANT SELECT, UPDATE, DELETE ON queue_outbox to it")]
    NoRights {
        /// Hosts and database.
        target: String,
    },
    /// It does not answer.
    #[error("PostgreSQL at {target} has not answered for {}s; it hangs, or somebody has locked the table", PATIENCE.as_secs())]
    Silent {
        /// Hosts and database.
        target: String,
    },
    /// It refuses, or the connection broke.
    #[error("PostgreSQL at {target}: {}", why(source))]
    Refused {
        /// Hosts and database.
        target: String,
        /// What it says.
        source: Arc<tokio_postgres::Error>,
    },
}

queue_core::debug_as_text!(DatabaseError);

/// The whole chain in one line.
fn why(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn advice(error: &tokio_postgres::Error) -> &'static str {
    let text = why(error);
    if text.contains("certificate") {
        "; name the file of its certificate authority (--database-ca, TlsOptions::ca), end the address with #insecure to believe any certificate, \
         or say sslmode=disable"
    } else if text.contains("password missing") || error.code() == Some(&SqlState::INVALID_PASSWORD) {
        "; the password stands in the address: postgres://user:password@host/database"
    } else {
        ""
    }
}

/// The bytes of a text in UTF-8. What is in a database without an encoding (SQL_ASCII) may be no text.
pub(crate) fn bytes_of(text: &str) -> String {
    format!(
        "convert_to(COALESCE({text}, ''), CASE getdatabaseencoding() WHEN 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END)"
    )
}

/// What can be said about an address without repeating it: it may hold a password.
fn misread(error: &tokio_postgres::Error) -> String {
    let why = why(error);
    let more = if why.contains("sslmode") {
        "; sslmode is disable, prefer or require, and certificates are checked with both of the latter"
    } else if why.contains("port") {
        "; a `/`, `@` or `:` in a password is written %2F, %40 or %3A"
    } else {
        ""
    };
    format!("this ({why}{more})")
}

/// A database with an outbox; nothing is asked before it is used. Clones are the same.
#[derive(Debug, Clone)]
pub struct Database {
    config: Config,
    encrypts: Option<ClientConfig>,
    target: String,
}

/// A client whose connection ends with it, also while an answer is missing.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Client,
    _task: AbortOnDropHandle<()>,
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

/// What waits in an outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// Rows that will be relayed.
    pub waiting: u64,
    /// When the oldest of them was written.
    pub oldest: Option<DateTime<Utc>>,
    /// Rows that were refused.
    pub refused: u64,
}

/// A row that can never be enqueued.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// Its number.
    pub seq: i64,
    /// The type of its task; blank for a batch.
    pub task_type: String,
    /// Why.
    pub refusal: String,
    /// When it was written.
    pub created_at: DateTime<Utc>,
    /// When it was refused.
    pub refused_at: DateTime<Utc>,
}

impl Database {
    /// A database by its address: a URL, or words such as `host=/run/postgresql dbname=shop`. Without `sslmode`, connections to other machines are
    /// encrypted where the server can, and then its certificate has to be in order; `#insecure` at the end of a URL believes any.
    ///
    /// # Errors
    /// When it is no address, or the certificates of the system cannot be read.
    pub fn new(address: &str) -> Result<Self, DatabaseError> {
        Self::with_tls(address, &TlsOptions::default())
    }

    /// The same with certificates of its own.
    ///
    /// # Errors
    /// When it is no address, or the certificates cannot be read.
    pub fn with_tls(address: &str, tls: &TlsOptions) -> Result<Self, DatabaseError> {
        let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| address.starts_with(scheme));
        let stripped = address.strip_suffix("#insecure").filter(|_| is_url);
        let (address, is_insecure) = (stripped.unwrap_or(address), stripped.is_some());
        let parsed = address.parse::<Config>().map_err(|error| DatabaseError::Address(misread(&error)));
        let mut config = parsed?;
        let is_local = |host: &Host| match host {
            Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback()),
            Host::Unix(_) => true,
        };
        if !address.contains("sslmode") && config.get_hosts().iter().all(is_local) {
            config.ssl_mode(SslMode::Disable);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        // Without them, one of a machine that is gone is waited for for hours.
        config
            .keepalives_idle(SILENCE)
            .keepalives_interval(SILENCE / 3)
            .keepalives_retries(3)
            .tcp_user_timeout(2 * SILENCE);
        if config.get_application_name().is_none() {
            config.application_name("queue-outbox");
        }
        let encrypts = match config.get_ssl_mode() {
            SslMode::Disable => None,
            _ => Some(tls.client_config(is_insecure).map_err(|error| DatabaseError::Certificates(error.to_string()))?),
        };
        // One port stands for all hosts; without any it is the usual one.
        let ports = config.get_ports();
        let port = |at: usize| ports.get(at).or(ports.first()).map_or(String::new(), |port| format!(":{port}"));
        let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| match host {
            Host::Tcp(name) => format!("{name}{}", port(at)),
            Host::Unix(path) => format!("{}{}", path.display(), port(at)),
        });
        let target = format!("{}/{}", hosts.collect::<Vec<_>>().join(","), config.get_dbname().unwrap_or_default());
        Ok(Self { config, encrypts, target })
    }

    /// Hosts and name, without secrets.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Makes the table, where it is not there.
    ///
    /// # Errors
    /// When PostgreSQL cannot be reached or refuses, or there is another table of this name.
    pub async fn init(&self) -> Result<(), DatabaseError> {
        let client = self.connect().await?;
        self.told(client.batch_execute(SCHEMA)).await?;
        self.is_whole(&client).await
    }

    /// Whether it can be reached, and has an outbox that this user may relay.
    ///
    /// # Errors
    /// When not.
    pub async fn check(&self) -> Result<(), DatabaseError> {
        let client = self.connect().await?;
        self.is_whole(&client).await?;
        let rights = "SELECT bool_and(has_table_privilege('queue_outbox', needed)) \
                      FROM unnest(ARRAY['SELECT', 'UPDATE', 'DELETE']) AS needed";
        let has = self.told(client.query_typed_one(rights, &[])).await?;
        match has.get::<_, Option<bool>>(0) {
            Some(true) => Ok(()),
            _ => Err(DatabaseError::NoRights { target: self.target.clone() }),
        }
    }

    async fn is_whole(&self, client: &Client) -> Result<(), DatabaseError> {
        let columns = "SELECT seq::bigint, id::uuid, task::json, queue::text, created_at::timestamptz, refusal::text, \
                       refused_at::timestamptz FROM queue_outbox LIMIT 0";
        self.told(client.batch_execute(columns)).await
    }

    /// How much waits.
    ///
    /// # Errors
    /// When PostgreSQL cannot be reached or refuses, or there is no outbox.
    pub async fn waiting(&self) -> Result<Waiting, DatabaseError> {
        let count = "SELECT count(*) FILTER (WHERE refusal IS NULL), \
                     floor(extract(epoch FROM min(created_at) FILTER (WHERE refusal IS NULL AND isfinite(created_at))) * 1000)::bigint, \
                     count(*) FILTER (WHERE refusal IS NOT NULL) FROM queue_outbox";
        let client = self.connect().await?;
        let row = self.told(client.query_typed_one(count, &[])).await?;
        let number = |at: usize| u64::try_from(row.get::<_, i64>(at)).unwrap_or(0);
        let oldest = row.get::<_, Option<i64>>(1).and_then(DateTime::from_timestamp_millis);
        Ok(Waiting { waiting: number(0), oldest, refused: number(2) })
    }

    /// The rows that were refused, the last ones first, so many at the most.
    ///
    /// # Errors
    /// When PostgreSQL cannot be reached or refuses, or there is no outbox.
    pub async fn refused(&self, limit: u32) -> Result<Vec<Refused>, DatabaseError> {
        let select = format!(
            "SELECT seq::bigint, {}, refusal::text, \
             CASE WHEN isfinite(created_at) THEN floor(extract(epoch FROM created_at) * 1000)::bigint END, \
             floor(extract(epoch FROM refused_at) * 1000)::bigint \
             FROM queue_outbox WHERE refusal IS NOT NULL ORDER BY seq DESC LIMIT $1",
            bytes_of("task->>'type'"),
        );
        let client = self.connect().await?;
        let limit = i64::from(limit);
        let rows = self.told(client.query_typed(&select, &[(&limit, Type::INT8)])).await?;
        let instant = |millis: Option<i64>| millis.and_then(DateTime::from_timestamp_millis).unwrap_or_default();
        let refused = rows.iter().map(|row| Refused {
            seq: row.get(0),
            task_type: String::from_utf8_lossy(row.get(1)).into_owned(),
            refusal: row.get(2),
            created_at: instant(row.get(3)),
            refused_at: instant(row.get(4)),
        });
        Ok(refused.collect())
    }

    /// Has refused rows tried again: those of these numbers, or all. Returns how many.
    ///
    /// # Errors
    /// When PostgreSQL cannot be reached or refuses, or there is no outbox.
    pub async fn retry(&self, rows: Option<&[i64]>) -> Result<u64, DatabaseError> {
        self.change("UPDATE queue_outbox SET refusal = NULL, refused_at = NULL", rows).await
    }

    /// Deletes refused rows: those of these numbers, or all. Returns how many.
    ///
    /// # Errors
    /// When PostgreSQL cannot be reached or refuses, or there is no outbox.
    pub async fn delete(&self, rows: Option<&[i64]>) -> Result<u64, DatabaseError> {
        self.change("DELETE FROM queue_outbox", rows).await
    }

    async fn change(&self, change: &str, rows: Option<&[i64]>) -> Result<u64, DatabaseError> {
        let client = self.connect().await?;
        let refused = format!("{change} WHERE refusal IS NOT NULL AND ($1 IS NULL OR seq = ANY ($1))");
        self.told(client.execute_typed(&refused, &[(&rows, Type::INT8_ARRAY)])).await
    }

    pub(crate) async fn connect(&self) -> Result<Connection, DatabaseError> {
        let unreachable = |source| DatabaseError::Unreachable { target: self.target.clone(), source: Arc::new(source) };
        // Whoever uses the client hears why the connection ends.
        let ended = |error| debug!(%error, "a connection to PostgreSQL has ended");
        let connected = async {
            let (client, task) = match &self.encrypts {
                None => {
                    let (client, connection) = self.config.connect(NoTls).await.map_err(unreachable)?;
                    (client, tokio::spawn(async move { connection.await.unwrap_or_else(ended) }))
                }
                Some(config) => {
                    let tls = MakeRustlsConnect::new(config.clone());
                    let (client, connection) = self.config.connect(tls).await.map_err(unreachable)?;
                    (client, tokio::spawn(async move { connection.await.unwrap_or_else(ended) }))
                }
            };
            Ok(Connection { client, _task: AbortOnDropHandle::new(task) })
        };
        // The time of a connection leaves out what is said on it first.
        timeout(PATIENCE, connected).await.unwrap_or_else(|_| Err(self.silent()))
    }

    fn silent(&self) -> DatabaseError {
        DatabaseError::Silent { target: self.target.clone() }
    }

    /// Waits for an answer.
    pub(crate) async fn told<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, DatabaseError> {
        let Ok(answer) = timeout(PATIENCE, answer).await else { return Err(self.silent()) };
        let target = || self.target.clone();
        answer.map_err(|error| match error.code() {
            Some(code) if *code == SqlState::UNDEFINED_TABLE => DatabaseError::NoTable { target: target() },
            Some(code) if [SqlState::UNDEFINED_COLUMN, SqlState::CANNOT_COERCE].contains(code) => {
                DatabaseError::OtherTable { target: target(), source: Arc::new(error) }
            }
            _ => DatabaseError::Refused { target: target(), source: Arc::new(error) },
        })
    }
}
