//! What can go wrong between this process and Redis.

use std::time::Duration;

use redis::{ErrorKind, RedisError};

/// Shared, because one failed call can be the fate of many tasks.
type Cause = std::sync::Arc<dyn std::error::Error + Send + Sync>;

/// An error of the connection to Redis, or of Redis itself. Passwords never appear in it.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option has a value that makes no sense.
    #[error("the option {option} is {value}; {rule}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What it has to be.
        rule: &'static str,
    },
    /// The URL is not one of a Redis.
    #[error(
        "invalid Redis URL: {reason}; write it like redis://user:password@host:6379/0, rediss://host, or redis+unix:///path/to.sock?db=0"
    )]
    InvalidUrl {
        /// What is wrong with it.
        reason: String,
    },
    /// No connection could be made.
    #[error(
        "cannot reach Redis at {target}: {source}; is it running, and is the address right (rediss:// where it wants TLS)?"
    )]
    Unreachable {
        /// The address, without credentials.
        target: String,
        /// The cause.
        source: Cause,
    },
    /// All connections that calls can have for themselves were in use all that time. Redis itself may be well.
    #[error(
        "all {connections} connections of the pool to Redis at {target} have been in use for {waited:?}; raise RedisOptions::pool_size, \
         or make fewer long calls at once"
    )]
    PoolInUse {
        /// The address, without credentials.
        target: String,
        /// How many they are.
        connections: usize,
        /// How long was waited for one.
        waited: Duration,
    },
    /// A connection was made, and no TLS on it: one side does not trust the other.
    #[error("no TLS with Redis at {target}: {source}; {hint}")]
    Tls {
        /// The address, without credentials.
        target: String,
        /// The cause.
        source: Cause,
        /// What can be done about it.
        hint: &'static str,
    },
    /// Redis did not answer in time. Whether the command ran is not known.
    #[error("Redis at {target} did not answer within {timeout:?}; it may have done what was asked")]
    Timeout {
        /// The address, without credentials.
        target: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// The connection broke before the answer came. Whether the command ran is not known.
    #[error("lost the connection to Redis at {target}: {source}; it may have done what was asked")]
    Disconnected {
        /// The address, without credentials.
        target: String,
        /// The cause.
        source: Cause,
    },
    /// Redis answered with an error; no task was changed.
    #[error("Redis refused {operation}: {message}{hint}")]
    Refused {
        /// The script or command.
        operation: &'static str,
        /// Redis' own code word, for example `WRONGTYPE`.
        code: String,
        /// Redis' own text.
        message: String,
        /// What can be done about it; empty or beginning with `"; "`.
        hint: &'static str,
    },
    /// This Redis cannot hold queues, or this user may not use them.
    #[error("Redis at {target} cannot be used: {}", list(problems))]
    Unusable {
        /// The address, without credentials.
        target: String,
        /// Why; at least one.
        problems: Vec<queue_core::doctor::Finding>,
    },
    /// An answer that no version of the script gives.
    #[error("unexpected reply to {operation}: {reply}; is another version of the scripts loaded?")]
    UnexpectedReply {
        /// The script or command.
        operation: &'static str,
        /// The reply, shortened.
        reply: String,
    },
}

queue_core::debug_as_text!(Error);

impl Error {
    /// Whether the command may have run although its answer did not arrive.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Disconnected { .. })
    }

    /// Whether trying again later can help without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Disconnected { .. } | Self::Unreachable { .. } | Self::PoolInUse { .. } => {
                true
            }
            Self::Unusable { problems, .. } => {
                problems.iter().all(|problem| problem.fault == queue_core::doctor::Fault::Loading)
            }
            Self::Refused { code, .. } => {
                matches!(
                    code.as_str(),
                    "OOM"
                        | "READONLY"
                        | "LOADING"
                        | "BUSY"
                        | "MISCONF"
                        | "CLUSTERDOWN"
                        | "TRYAGAIN"
                        | "MASTERDOWN"
                        | "NOREPLICAS"
                        | "MAXCLIENTS"
                )
            }
            _ => false,
        }
    }

    /// Whether Redis as a whole is of no use for now: the error is [transient](Self::is_transient), or the password
    /// is refused, which for a program that was let in before means that somebody is changing passwords.
    pub fn is_outage(&self) -> bool {
        let is_stranger = matches!(self, Self::Refused { code, .. } if ["NOAUTH", "WRONGPASS"].contains(&&**code));
        is_stranger || self.is_transient()
    }

    /// Whether a node says that the slot of the key is on its way to another node.
    pub(crate) fn is_moving(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if ["ASK", "TRYAGAIN"].contains(&&**code))
    }

    /// Whether this Redis is not, or no longer, the one to talk to: a master that was demoted, or one that
    /// is about to take over another's data. It stays reachable; only a new connection finds its successor.
    pub(crate) fn is_wrong_server(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if ["READONLY", "LOADING", "MASTERDOWN"].contains(&&**code))
    }

    /// Whether a key has another type than it should.
    #[doc(hidden)]
    pub fn is_wrong_type(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "WRONGTYPE")
    }

    /// Whether Redis has no memory left for what was asked.
    #[doc(hidden)]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "OOM")
    }

    /// The same, with what is known of the keys it is about.
    #[doc(hidden)]
    pub fn with_keys(mut self, keys: &[String]) -> Self {
        if let Self::Refused { message, hint, .. } = &mut self
            && !keys.is_empty()
        {
            *message = format!("{}: {}", message.trim_end().trim_end_matches('.'), keys.join(", "));
            *hint = "; something else has written there: look at it, then rename or delete it";
        }
        self
    }

    /// The error about a reply that cannot be.
    #[doc(hidden)]
    pub fn unexpected(operation: &'static str, reply: &impl std::fmt::Debug) -> Self {
        let mut reply = format!("{reply:?}");
        reply.truncate(reply.floor_char_boundary(200));
        Self::UnexpectedReply { operation, reply }
    }

    /// Why a connection could not be made. A server that asks who is there, or that does not speak RESP3, is
    /// reachable.
    pub(crate) fn from_connecting(error: &RedisError, target: &str) -> Self {
        let message = error.to_string();
        let code = match (error.kind(), server_code(error, &message)) {
            (ErrorKind::RESP3NotSupported, _) => Some("NOPROTO".to_owned()),
            (ErrorKind::AuthenticationFailed, code) if code == "ERR" => Some("NOAUTH".to_owned()),
            (ErrorKind::AuthenticationFailed | ErrorKind::Server(_) | ErrorKind::Extension, code) => Some(code),
            (_, code) => Some(code).filter(|code| ["NOAUTH", "WRONGPASS", "NOPERM"].contains(&&**code)),
        };
        if let Some(code) = code {
            // The library keeps the words of Redis, which would tell one from the other.
            let hint = match error.kind() {
                ErrorKind::AuthenticationFailed if code == "NOAUTH" => {
                    "; the password that was given is wrong, or this Redis wants none: put the password into the URL, as in \
                     redis://:password@host, or leave it out"
                }
                _ => hint_on(&code, error.detail().unwrap_or_default()),
            };
            return Self::Refused { operation: "the connection", code, message, hint };
        }
        let target = target.to_owned();
        if let Some(hint) = tls_hint(&message) {
            return Self::Tls { target, source: std::sync::Arc::new(error.clone()), hint };
        }
        if error.kind() == ErrorKind::Parse {
            let source = format!("what answers there is no Redis, but maybe an HTTP or SSH server ({message})");
            return Self::Unreachable { target, source: std::sync::Arc::new(std::io::Error::other(source)) };
        }
        if error.is_connection_dropped() && !error.is_connection_refusal() {
            // Redis says why, and that is lost with what we had sent by then.
            let source = format!("{message} (a Redis that has maxclients connections closes more of them like this)");
            return Self::Unreachable { target, source: std::sync::Arc::new(std::io::Error::other(source)) };
        }
        Self::Unreachable { target, source: std::sync::Arc::new(error.clone()) }
    }

    pub(crate) fn from_redis(error: RedisError, operation: &'static str, target: &str, timeout: Duration) -> Self {
        if error.is_timeout() {
            return Self::Timeout { target: target.to_owned(), timeout };
        }
        match error.kind() {
            ErrorKind::Io | ErrorKind::Parse | ErrorKind::Client => {
                Self::Disconnected { target: target.to_owned(), source: std::sync::Arc::new(error) }
            }
            _ => {
                let message = error.detail().map_or_else(|| first_failure(error.to_string()), str::to_owned);
                let code = match server_code(&error, &message) {
                    code if code == "ERR" => quoted_code(&message).unwrap_or(code),
                    code => code,
                };
                let hint = hint_on(&code, &message);
                let message = if hint.is_empty() { message } else { message.trim_end_matches(['.', ' ']).to_owned() };
                Self::Refused { operation, code, message, hint }
            }
        }
    }
}

/// Errors raised inside a script come back as `ERR`, `UNKNOWN` or the like with the real code word in
/// the text, depending on the version of Redis.
fn server_code(error: &RedisError, message: &str) -> String {
    const IN_TEXT: [&str; 8] =
        ["WRONGTYPE", "OOM", "READONLY", "NOPERM", "MISCONF", "NOAUTH", "WRONGPASS", "NOREPLICAS"];
    let code = error.code().unwrap_or("ERR");
    if let Some(found) = IN_TEXT.iter().find(|word| code == **word || message.contains(**word)) {
        return (*found).to_owned();
    }
    if message.contains("maxmemory") {
        return "OOM".to_owned();
    }
    if message.contains("max number of clients") {
        return "MAXCLIENTS".to_owned();
    }
    // In a script, up to Redis 7.0 and in Valkey 8; Redis 7.2 puts NOPERM before it.
    const DENIED: [&str; 3] =
        ["can't run this command", "can't access at least one of the keys", "ACL failure in script"];
    if DENIED.iter().any(|words| message.contains(words)) {
        return "NOPERM".to_owned();
    }
    if message.contains("read only replica") {
        return "READONLY".to_owned();
    }
    code.to_owned()
}

/// The code word of a pipeline's error, which stands in its text: `"BUSY": Redis is busy`.
fn quoted_code(message: &str) -> Option<String> {
    let (code, _) = message.strip_prefix('"')?.split_once("\": ")?;
    let is_word = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase());
    is_word.then(|| code.to_owned())
}

/// Of a pipeline's errors, which are mostly the same, the first.
fn first_failure(text: String) -> String {
    let first = text.strip_prefix("Pipeline failure").and_then(|rest| rest.split_once("error: "));
    let first = first.map(|(_, rest)| rest.split_once("), (").map_or(rest, |(first, _)| first));
    first.map(|first| first.trim_end_matches(['(', ')', ']']).to_owned()).unwrap_or(text)
}

/// What can be done about an error of the TLS library, which only has words for us; none for other errors.
fn tls_hint(message: &str) -> Option<&'static str> {
    const OTHERS: &str = "its certificate is not for this host: use the name that it was made for";
    const EXPIRED: &str = "its certificate has expired, or the clock of this machine is wrong";
    const EARLY: &str = "its certificate is not valid yet, or the clock of this machine is wrong";
    const HINTS: [(&str, &str); 13] = [
        ("KeyMismatch", "the key does not belong to the certificate: give the right one (TlsOptions::client)"),
        // Alerts are what the server thinks of us.
        ("CertificateRequired", "the server wants a certificate: give one (TlsOptions::client)"),
        (
            "fatal alert",
            "the server does not accept the certificate that it was shown: give another (TlsOptions::client)",
        ),
        ("NotValidForName", OTHERS),
        ("not valid for", OTHERS),
        ("Expired", EXPIRED),
        ("expired:", EXPIRED),
        ("NotValidYet", EARLY),
        ("not valid yet", EARLY),
        (
            "CaUsedAsEndEntity",
            "its certificate is that of an authority, which no server may show: let the authority sign one for the server, or make \
             it anew as no authority (openssl req -x509 -addext basicConstraints=critical,CA:FALSE)",
        ),
        (
            "UnsupportedCertVersion",
            "its certificate is of X.509 version 1: make it anew with extensions, which makes it one of version 3 (openssl x509 -req \
             -extfile, or openssl req -x509 -addext, with subjectAltName=DNS:host)",
        ),
        (
            "invalid peer certificate",
            "its certificate is not signed by a root that is trusted here: give the right one (TlsOptions::ca)",
        ),
        ("corrupt message", "the server speaks no TLS here: write redis:// instead of rediss://"),
    ];
    HINTS.iter().find(|(word, _)| message.contains(word)).map(|(_, hint)| *hint)
}

fn list(problems: &[queue_core::doctor::Finding]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; also: ")
}

/// What can be done about an error with this code and text.
fn hint_on(code: &str, message: &str) -> &'static str {
    Some(hint(code)).filter(|hint| !hint.is_empty()).unwrap_or_else(|| other_server(message))
}

/// What can be done about a server that is not what the URL says. Redis has no code for that.
fn other_server(message: &str) -> &'static str {
    if message.contains("cluster support disabled") {
        return "; this Redis is one server and no node of a cluster: write redis:// for redis+cluster://";
    }
    // Redis 6.2 quotes it otherwise than newer ones.
    let unknown = message.strip_prefix("unknown command ").unwrap_or_default().trim_start_matches(['\'', '`']);
    // Another server can have these renamed.
    if unknown.starts_with("SCRIPT") || unknown.starts_with("SELECT") {
        return "; a Sentinel does not know it: if this is one, write redis-sentinel://host:port,host:port/0?master=NAME instead";
    }
    if message.contains("DB index is out of range") {
        return "; this Redis has no database of this number: those of its configuration are 0 to 15, unless `databases` says otherwise";
    }
    if unknown.starts_with("SENTINEL") {
        return "; this is a Redis and no Sentinel: write redis:// for redis-sentinel://, or the address of a Sentinel (port 26379, mostly)";
    }
    ""
}

pub(crate) fn hint(code: &str) -> &'static str {
    match code {
        "WRONGTYPE" => "; a key of the queue holds another type: something else writes under asynq:*",
        "OOM" => "; Redis is out of memory: raise maxmemory, let workers finish tasks, or delete some",
        "READONLY" => "; this is a replica: connect to the master",
        "MASTERDOWN" => "; this is a replica that has lost its master, and wants to have one",
        "NOPERM" => "; the ACL user lacks a right that the queue needs",
        "NOAUTH" | "WRONGPASS" => {
            "; put the password into the URL, as in redis://:password@host, or redis+unix:///path?pass=password"
        }
        "MISCONF" => "; Redis cannot write to its disk and refuses changes",
        "LOADING" => "; Redis is still loading its data",
        "BUSY" => "; a long script blocks Redis",
        "NOREPLICAS" => "; Redis has too few replicas in reach, and refuses changes (min-replicas-to-write)",
        "MAXCLIENTS" => "; Redis has as many connections as it allows: raise maxclients, or close some",
        "MOVED" | "ASK" => "; this Redis is a node of a cluster: write redis+cluster:// for redis://",
        "CROSSSLOT" => "; in a cluster the name of a queue must not begin with a closing brace",
        "TRYAGAIN" => "; the slot of the queue is moving to another node of the cluster: try again later",
        "CLUSTERDOWN" => "; the cluster misses some of its slots",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_errors_tell_what_to_do() {
        for (message, told) in [
            ("invalid peer certificate: certificate not valid yet: verification time 1", "not valid yet, or the clock"),
            ("invalid peer certificate: NotValidYet", "not valid yet, or the clock"),
            ("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))", "CA:FALSE"),
            ("invalid peer certificate: Other(OtherError(UnsupportedCertVersion))", "version 3"),
            ("invalid peer certificate: UnknownIssuer", "not signed by a root"),
        ] {
            assert!(tls_hint(message).unwrap().contains(told), "{message}");
        }
    }
    #[test]
    fn what_is_no_server_of_the_kind_named_is_told_from_its_words() {
        for (message, told) in [
            // redis+cluster:// leads here, too.
            ("unknown command 'SCRIPT', with args beginning with: 'LOAD' ", "?master=NAME instead"),
            ("DB index is out of range", "has no database of this number"),
            ("something else", ""),
        ] {
            assert!(hint_on("ERR", message).contains(told) && hint_on("ERR", message).is_empty() == told.is_empty());
        }
    }

    /// Redis' own words are not kept: only that a password was refused.
    #[test]
    fn a_password_that_is_refused_is_not_asked_for_again() {
        let refused = RedisError::from((ErrorKind::AuthenticationFailed, "Password authentication failed"));
        let told = Error::from_connecting(&refused, "here");
        assert!(told.is_outage() && told.to_string().contains("or this Redis wants none"), "{told}");
    }

    /// The library's parser says at which byte.
    #[tokio::test]
    async fn a_server_that_is_no_redis_is_called_so() {
        use tokio::io::AsyncWriteExt as _;
        for banner in ["SSH-2.0-OpenSSH_9.2p1 Debian\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n<!DOCTYPE HTML>"] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("redis://{}", listener.local_addr().unwrap());
            let answers = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(banner.as_bytes()).await.unwrap();
                std::future::pending::<()>().await;
            };
            let options = crate::RedisOptions::default();
            let redis = crate::Redis::lazy(&url, options).unwrap();
            let error = tokio::select! { error = redis.ping() => error.unwrap_err(), () = answers => unreachable!() };
            assert!(error.to_string().contains("what answers there is no Redis"), "{error}");
        }
    }
}
