//! Where Redis is: URLs as Redis clients write them, and as asynq does.

mod many;
mod node;

use percent_encoding::percent_decode_str;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};
use url::Url;

use crate::error::Error;
use crate::options::TlsOptions;

pub(crate) use many::{Nodes, Watched};
pub(crate) use node::NodeAddress;

/// Where the tasks are.
pub(crate) enum Address {
    Server(Box<ConnectionInfo>),
    Sentinel(Watched),
    Cluster(Nodes),
}

impl std::fmt::Display for Address {
    /// Without credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Server(info) => f.write_str(&describe(info)),
            Self::Sentinel(watched) => watched.fmt(f),
            Self::Cluster(nodes) => nodes.fmt(f),
        }
    }
}

/// Reads a URL: `redis://`, `rediss://`, `redis+unix://`, `unix://`, asynq's `redis-socket://`, and those that name
/// several servers.
pub(crate) fn parse(url: &str, tls: &TlsOptions) -> Result<Address, Error> {
    let address = read(url)?;
    let is_encrypted = match &address {
        Address::Server(info) => matches!(info.addr(), ConnectionAddr::TcpTls { .. }),
        Address::Sentinel(watched) => watched.is_encrypted(),
        Address::Cluster(nodes) => nodes.are_encrypted(),
    };
    if is_encrypted {
        check_tls(&address, tls)?;
    } else if tls.ca.is_some() || tls.client.is_some() {
        let reason = "TLS certificates are given, but the URL is not rediss://".to_owned();
        return Err(Error::InvalidUrl { reason });
    }
    Ok(address)
}

fn read(url: &str) -> Result<Address, Error> {
    let split = url.split_once("://");
    if let Some(several) = split.and_then(|(scheme, rest)| many::parse(scheme, rest)) {
        return several;
    }
    let info = match split {
        Some(("redis-socket", rest)) => socket(rest),
        Some(("redis" | "rediss" | "valkey" | "valkeys", rest)) if hides_host(rest) => {
            Err("the host stands behind a #, / or ?; in a password these are written %23, %2F and %3F".to_owned())
        }
        _ => url
            .into_connection_info()
            .map_err(|error| describe_error(url, &error))
            .and_then(|info| all_is_known(url).map(|()| info)),
    };
    let info = info.map_err(|reason| Error::InvalidUrl { reason })?;
    Ok(Address::Server(Box::new(info)))
}

/// asynq's form for a Unix socket, `redis-socket://[:password@]path[?db=n]`, read as Go's `ParseRedisURI`
/// reads it: a name before the password, a host and other parameters are ignored, and `%40` is an `@`.
fn socket(rest: &str) -> Result<ConnectionInfo, String> {
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = place.find('/').map_or((place, ""), |slash| place.split_at(slash));
    if path.is_empty() {
        return Err("the path of the socket is missing, as in redis-socket:///path/to.sock".to_owned());
    }
    let credentials = authority.rsplit_once('@').map_or("", |(credentials, _)| credentials);
    let mut settings = redis::RedisConnectionInfo::default();
    if let Some((_, password)) = credentials.split_once(':') {
        settings = settings.set_password(decode(password)?);
    }
    let mut parameters = url::form_urlencoded::parse(query.as_bytes());
    if let Some((_, db)) = parameters.find(|(name, value)| name == "db" && !value.is_empty()) {
        settings = settings.set_db(db.parse().map_err(|_| "the parameter db should be a number".to_owned())?);
    }
    let address = ConnectionAddr::Unix(decode(path)?.into());
    let info = address.into_connection_info().map_err(|error| error.to_string())?;
    Ok(info.set_redis_settings(settings))
}

fn decode(text: &str) -> Result<String, String> {
    let is_escape = |rest: &str| rest.get(..2).is_some_and(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if !text.split('%').skip(1).all(is_escape) {
        return Err("a % in it is not followed by two hexadecimal digits; write %25 for a % itself".to_owned());
    }
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(std::borrow::Cow::into_owned).map_err(|_| "it holds bytes that are not UTF-8".to_owned())
}

/// Whether a login ends too early: all up to the last @ is one, and no host, path or fragment has an @ in it.
fn hides_host(rest: &str) -> bool {
    let authority = rest.split(['#', '/', '?']).next().unwrap_or_default();
    !authority.contains('@') && rest.contains('@')
}

/// A parameter that is passed over leads to another database, or to another user.
fn all_is_known(url: &str) -> Result<(), String> {
    let Ok(url) = Url::parse(url) else { return Ok(()) };
    let is_socket = url.scheme().ends_with("unix");
    let known: &[&str] = if is_socket { &["db", "user", "pass", "protocol"] } else { &["protocol"] };
    match url.query_pairs().any(|(name, _)| !known.contains(&&*name)) {
        false => Ok(()),
        // Not which: an & in a password makes a part of it look like a name.
        true if is_socket => {
            Err("it has a parameter that is not known; those of a socket are db, user, pass and protocol".to_owned())
        }
        true => {
            Err("it has a parameter that is not known; the database is a path, and user and password stand before the \
             host, as in redis://user:password@host:6379/3"
                .to_owned())
        }
    }
}

/// What is wrong with a URL, without repeating it: it may hold a password.
fn describe_error(url: &str, error: &redis::RedisError) -> String {
    const KNOWN: [&str; 7] = ["redis", "rediss", "valkey", "valkeys", "redis+unix", "valkey+unix", "unix"];
    match Url::parse(url) {
        Err(parse) => format!("{parse}"),
        Ok(parsed) if !KNOWN.contains(&parsed.scheme()) => format!("the scheme {:?} is not known", parsed.scheme()),
        Ok(parsed) if parsed.path().trim_start_matches('/').parse::<i64>().is_err() && parsed.path().len() > 1 => {
            "the path should be the number of a database, as in redis://host/3".to_owned()
        }
        Ok(_) => error.detail().map_or_else(|| error.category().to_owned(), str::to_owned),
    }
}

/// The address, without credentials.
fn describe(info: &ConnectionInfo) -> String {
    let db = info.redis_settings().db();
    if db == 0 { info.addr().to_string() } else { format!("{}/{db}", info.addr()) }
}

/// What is wrong with the certificates is told before anything is asked.
#[cfg(feature = "tls")]
fn check_tls(address: &Address, tls: &TlsOptions) -> Result<(), Error> {
    crate::tls::check(tls).map_err(|error| {
        // As OpenSSL writes it, in either form.
        let is_locked = |key: &[u8]| key.windows(9).any(|word| word == b"ENCRYPTED");
        let hint = match &tls.client {
            Some((_, key)) if is_locked(key) => {
                "the key (TlsOptions::client) is encrypted, and a passphrase cannot be given: write it without one (openssl pkey -in \
                 key -out plain)"
            }
            _ => "a certificate or key that was given (TlsOptions) is damaged",
        };
        Error::Tls { target: address.to_string(), source: std::sync::Arc::new(error), hint }
    })
}

#[cfg(not(feature = "tls"))]
fn check_tls(_: &Address, _: &TlsOptions) -> Result<(), Error> {
    Err(Error::InvalidUrl { reason: "rediss:// needs the feature \"tls\"".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<(String, i64, Option<String>, Option<String>), String> {
        let address = parse(url, &TlsOptions::default()).map_err(|error| error.to_string())?;
        let Address::Server(info) = address else { panic!("{url} names several servers") };
        let settings = info.redis_settings();
        let text = |text: Option<&str>| text.map(str::to_owned);
        Ok((info.addr().to_string(), settings.db(), text(settings.username()), text(settings.password())))
    }

    /// The answers are those of Go's `ParseRedisURI`.
    #[test]
    fn urls_of_sockets_are_read_as_go_reads_them() {
        let socket = |url: &str| read(url).unwrap();
        let at = |path: &str, db, password: Option<&str>| (path.to_owned(), db, None, password.map(str::to_owned));
        for (url, expected) in [
            ("redis-socket:///tmp/r.sock", at("/tmp/r.sock", 0, None)),
            ("redis-socket:///tmp/r.sock?db=2", at("/tmp/r.sock", 2, None)),
            ("redis-socket:///tmp/r.sock?x=1&db=2#part", at("/tmp/r.sock", 2, None)),
            ("redis-socket:///tmp/r.sock?db=", at("/tmp/r.sock", 0, None)),
            ("redis-socket://:pw@/tmp/r.sock", at("/tmp/r.sock", 0, Some("pw"))),
            ("redis-socket://user:pw@/tmp/r.sock", at("/tmp/r.sock", 0, Some("pw"))),
            ("redis-socket://pw@/tmp/r.sock", at("/tmp/r.sock", 0, None)),
            ("redis-socket://:p%40w%2F@/tmp/r.sock", at("/tmp/r.sock", 0, Some("p@w/"))),
            ("redis-socket://:p@w@/tmp/r.sock", at("/tmp/r.sock", 0, Some("p@w"))),
            ("redis-socket://:a:b@/tmp/r.sock", at("/tmp/r.sock", 0, Some("a:b"))),
            ("redis-socket:///tmp/a@b/r%20s.sock", at("/tmp/a@b/r s.sock", 0, None)),
            ("redis-socket://host/tmp/r.sock", at("/tmp/r.sock", 0, None)),
        ] {
            assert_eq!(socket(url), expected, "{url}");
        }
        for url in [
            "redis-socket://",
            "redis-socket://tmp.sock",
            "redis-socket://:pw@",
            "redis-socket:///r?db=x",
            "redis-socket:///r%zz",
        ] {
            assert!(read(url).is_err(), "{url}");
        }
    }

    #[test]
    fn whoever_writes_a_url_wrongly_is_told_what_is_wrong() {
        for (url, told) in [
            ("redis://:p#ss@h", "%23"),
            ("redis://user:12#ss@h", "%23"),
            ("rediss://:p/ss@h:7", "%2F"),
            ("redis://:p?ss@h", "%3F"),
            ("redis://h/abc", "the path should be the number of a database"),
            ("redis://:pass@h/1/2", "the path should be the number of a database"),
        ] {
            let refused = read(url).unwrap_err();
            assert!(refused.contains(told) && !refused.contains("ss@"), "{url}: {refused}");
        }
        assert_eq!(read("redis://:p%23%2F%3Fss@h/1").unwrap().3.as_deref(), Some("p#/?ss"));
        assert!(read("redis+unix:///a@b/r.sock").is_ok());
    }

    #[cfg(feature = "tls")]
    #[test]
    fn an_encrypted_key_is_not_called_damaged() {
        for key in ["-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n", "no key"] {
            let tls = TlsOptions { client: Some((Vec::new(), key.into())), ..TlsOptions::default() };
            let told = parse("rediss://h", &tls).err().unwrap().to_string();
            assert_eq!(told.contains("is encrypted"), key != "no key", "{told}");
        }
    }

    #[test]
    fn other_urls_are_read_as_go_reads_them_except_for_the_user() {
        for (url, expected) in [
            ("redis://h", ("h:6379", 0, None, None)),
            ("redis://h:7/3", ("h:7", 3, None, None)),
            ("redis://:p%40w@h:7", ("h:7", 0, None, Some("p@w"))),
            // Go ignores the user.
            ("redis://user:pw@h", ("h:6379", 0, Some("user"), Some("pw"))),
        ] {
            let (address, db, user, password) = read(url).unwrap();
            assert_eq!((address.as_str(), db, user.as_deref(), password.as_deref()), expected, "{url}");
        }
        for url in ["redis://h/x", "http://h", "h:6379", ""] {
            assert!(read(url).is_err(), "{url}");
        }
        // Go passes over these: the tasks are where nobody looks.
        for url in ["redis://h?db=3", "redis://h/?password=pw", "redis+unix:///r.sock?dbb=1"] {
            let refused = read(url).unwrap_err();
            assert!(refused.contains("a parameter that is not known") && !refused.contains("pw"), "{refused}");
        }
        assert_eq!(read("redis+unix:///r.sock?db=1&user=u&pass=p&protocol=resp3").unwrap().1, 1);
        assert_eq!(read("redis://h/2?protocol=resp3").unwrap().1, 2);
    }
}
