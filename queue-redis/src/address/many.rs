//! URLs that name several servers: a cluster, or Sentinels and the master they watch.

use redis::{ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo};

use super::{Address, NodeAddress, decode};
use crate::error::Error;

/// How the servers are spoken to of which only the addresses are told.
#[derive(Clone)]
struct Servers {
    encrypted: bool,
    insecure: bool,
    settings: RedisConnectionInfo,
}

impl Servers {
    fn at(&self, address: &NodeAddress) -> Result<ConnectionInfo, Error> {
        let scheme = if self.encrypted { "rediss" } else { "redis" };
        let fragment = if self.insecure { "#insecure" } else { "" };
        let url = format!("{scheme}://{address}/{fragment}");
        let info = url
            .into_connection_info()
            .map_err(|error| invalid(format!("a host is not written as host:port: {}", error.category())))?;
        Ok(info.set_redis_settings(self.settings.clone()))
    }
}

/// The nodes of a cluster.
#[derive(Clone)]
pub(crate) struct Nodes {
    named: Vec<NodeAddress>,
    servers: Servers,
}

impl Nodes {
    pub(super) fn are_encrypted(&self) -> bool {
        self.servers.encrypted
    }

    /// Those that the URL names; they know the others.
    pub(crate) fn named(&self) -> &[NodeAddress] {
        &self.named
    }

    /// How to connect to one of them.
    pub(crate) fn at(&self, address: &NodeAddress) -> Result<ConnectionInfo, Error> {
        self.servers.at(address)
    }
}

impl std::fmt::Display for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cluster {}", listed(&self.named))
    }
}

/// The Sentinels, and the name of the master they watch.
#[derive(Clone)]
pub(crate) struct Watched {
    pub(crate) master: String,
    named: Vec<NodeAddress>,
    pub(crate) sentinels: Vec<ConnectionInfo>,
    servers: Servers,
}

impl Watched {
    pub(super) fn is_encrypted(&self) -> bool {
        self.servers.encrypted
    }

    /// How to connect to the master, when it is there.
    pub(crate) fn master_at(&self, address: &NodeAddress) -> Result<ConnectionInfo, Error> {
        self.servers.at(address)
    }
}

impl std::fmt::Display for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "master {} of {}", self.master, listed(&self.named))?;
        let db = self.servers.settings.db();
        if db == 0 { Ok(()) } else { write!(f, "/{db}") }
    }
}

fn listed(addresses: &[NodeAddress]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn invalid(reason: String) -> Error {
    Error::InvalidUrl { reason }
}

/// Reads a URL with this scheme if it is one of these.
pub(super) fn parse(scheme: &str, rest: &str) -> Option<Result<Address, Error>> {
    let (encrypted, kind) = match scheme.strip_prefix("rediss").or_else(|| scheme.strip_prefix("valkeys")) {
        Some(kind) => (true, kind),
        None => (false, scheme.strip_prefix("redis").or_else(|| scheme.strip_prefix("valkey"))?),
    };
    let parts = Parts::of(rest);
    match kind {
        "+cluster" | "-cluster" => Some(parts.and_then(|parts| cluster(parts, encrypted))),
        "+sentinel" | "-sentinel" => Some(parts.and_then(|parts| sentinel(parts, encrypted))),
        _ => None,
    }
}

/// The parts that such URLs have, decoded.
struct Parts {
    user: Option<String>,
    password: Option<String>,
    /// Host and port, as they stand there.
    hosts: Vec<String>,
    path: String,
    parameters: Vec<(String, String)>,
    insecure: bool,
}

impl Parts {
    fn of(rest: &str) -> Result<Self, Error> {
        let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
        if !["", "insecure"].contains(&fragment) {
            return Err(invalid("after a # only \"insecure\" is known; write %23 for a # itself".to_owned()));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A password may hold an @ or a / where it is not encoded; no host does.
        let (credentials, rest) = rest.rsplit_once('@').map_or((None, rest), |(before, rest)| (Some(before), rest));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let credentials = credentials.map(|text| text.split_once(':').unwrap_or((text, "")));
        let decoded = |text: &str| decode(text).map_err(invalid);
        let given = |text: &str| if text.is_empty() { Ok(None) } else { decoded(text).map(Some) };
        let (user, password) = credentials.unwrap_or_default();
        let parameters = query.split('&').filter(|parameter| !parameter.is_empty()).map(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            Ok((decoded(name)?, decoded(value)?))
        });
        let hosts: Vec<String> = authority.split(',').map(str::to_owned).collect();
        if hosts.iter().any(String::is_empty) {
            return Err(invalid("a host is missing, as in host:port,host:port".to_owned()));
        }
        Ok(Self {
            user: given(user)?,
            password: given(password)?,
            hosts,
            path: path.to_owned(),
            parameters: parameters.collect::<Result<_, Error>>()?,
            insecure: fragment == "insecure",
        })
    }

    fn addresses(&self, default_port: u16) -> Result<Vec<NodeAddress>, Error> {
        self.hosts.iter().map(|host| address(host, default_port)).collect()
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let found = self.parameters.iter().position(|(given, _)| given == name)?;
        Some(self.parameters.remove(found).1).filter(|value| !value.is_empty())
    }

    fn require_no_more(&self) -> Result<(), Error> {
        match self.parameters.first() {
            None => Ok(()),
            // Not which: an & in a password makes a part of it look like a name.
            Some(_) => {
                Err(invalid("it has a parameter that is not known; write %26 for an & in a password".to_owned()))
            }
        }
    }
}

fn address(text: &str, default_port: u16) -> Result<NodeAddress, Error> {
    // Not what it is instead: without its @, or with a ? in it, a password stands there.
    let wrong = || invalid("a host is not written as host:port".to_owned());
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or_else(wrong)?) })
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(default_port), |port| port.parse().map_err(|_| wrong()))?;
    if host.is_empty() || (!text.starts_with('[') && host.contains(':')) {
        return Err(wrong());
    }
    Ok(NodeAddress { host: host.into(), port })
}

fn with_login(settings: RedisConnectionInfo, user: Option<String>, password: Option<String>) -> RedisConnectionInfo {
    let settings = user.into_iter().fold(settings, |settings, user| settings.set_username(user));
    password.into_iter().fold(settings, |settings, password| settings.set_password(password))
}

/// `redis+cluster://[user:password@]host[:port],…`
fn cluster(mut parts: Parts, encrypted: bool) -> Result<Address, Error> {
    if !["", "0"].contains(&parts.path.as_str()) {
        return Err(invalid("a cluster has only the database 0".to_owned()));
    }
    parts.require_no_more()?;
    let settings = with_login(RedisConnectionInfo::default(), parts.user.take(), parts.password.take());
    let servers = Servers { encrypted, insecure: parts.insecure, settings };
    let nodes = Nodes { named: parts.addresses(6379)?, servers };
    // What is wrong is told now, and not at the first call.
    nodes.named.iter().try_for_each(|address| nodes.at(address).map(drop))?;
    Ok(Address::Cluster(nodes))
}

/// `redis-sentinel://[user:password@]host[:port],…[/db]?master=name`, as Go's `ParseRedisURI` reads it: the
/// password is that of the Sentinels. Go has no place for the login to the master; ours are the parameters `username`
/// and `password`.
fn sentinel(mut parts: Parts, encrypted: bool) -> Result<Address, Error> {
    let Some(master) = parts.take("master") else {
        return Err(invalid("the name of the master is missing, as in ?master=mymaster".to_owned()));
    };
    let db = match parts.path.as_str() {
        "" => 0,
        path => path.parse().map_err(|_| invalid("the path should be the number of a database".to_owned()))?,
    };
    let (username, password) = (parts.take("username"), parts.take("password"));
    parts.require_no_more()?;
    let settings = with_login(RedisConnectionInfo::default().set_db(db), username, password);
    let servers = Servers { encrypted, insecure: parts.insecure, settings };
    let settings = with_login(RedisConnectionInfo::default(), parts.user.take(), parts.password.take());
    let sentinels = Servers { settings, ..servers };
    let named = parts.addresses(26379)?;
    let sentinels = named.iter().map(|address| sentinels.at(address)).collect::<Result<_, _>>()?;
    Ok(Address::Sentinel(Watched { master, named, sentinels, servers }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::TlsOptions;

    fn read(url: &str) -> Result<Address, String> {
        crate::address::parse(url, &TlsOptions::default()).map_err(|error| error.to_string())
    }

    fn login(info: &ConnectionInfo) -> (String, Option<&str>, Option<&str>, i64) {
        let settings = info.redis_settings();
        (info.addr().to_string(), settings.username(), settings.password(), settings.db())
    }

    #[test]
    fn urls_of_clusters_are_read() {
        for (url, expected, user, password) in [
            ("redis+cluster://a:7000,b:7001", "cluster a:7000,b:7001", None, None),
            ("redis-cluster://a,[::1]:7", "cluster a:6379,[::1]:7", None, None),
            ("valkey+cluster://:p%40w@a/0", "cluster a:6379", None, Some("p@w")),
            ("redis+cluster://user:p@w/x@a", "cluster a:6379", Some("user"), Some("p@w/x")),
        ] {
            let Ok(Address::Cluster(nodes)) = read(url) else { panic!("{url}") };
            assert_eq!(nodes.to_string(), expected, "{url}");
            // Also the nodes that the URL does not name.
            let other = nodes.at(&NodeAddress { host: "other".into(), port: 9 }).unwrap();
            assert_eq!(login(&other), ("other:9".to_owned(), user, password, 0), "{url}");
        }
    }

    /// The answers are those of Go's `ParseRedisURI`, but for the user, which Go ignores, and what it has no place for.
    #[test]
    fn urls_of_sentinels_are_read_as_go_reads_them() {
        let url = "redis-sentinel://:secret@h1:26379,h2:5/3?master=m";
        let Ok(Address::Sentinel(watched)) = read(url) else { panic!("{url}") };
        assert_eq!(watched.to_string(), "master m of h1:26379,h2:5/3");
        assert_eq!(login(&watched.sentinels[1]), ("h2:5".to_owned(), None, Some("secret"), 0));
        let master = watched.master_at(&NodeAddress { host: "m".into(), port: 7 }).unwrap();
        assert_eq!(login(&master), ("m:7".to_owned(), None, None, 3));

        let url = "redis+sentinel://su:sp@h1?master=m&username=u&password=a%26b+c";
        let Ok(Address::Sentinel(watched)) = read(url) else { panic!("{url}") };
        assert_eq!(login(&watched.sentinels[0]), ("h1:26379".to_owned(), Some("su"), Some("sp"), 0));
        let master = watched.master_at(&NodeAddress { host: "m".into(), port: 7 }).unwrap();
        assert_eq!(login(&master), ("m:7".to_owned(), Some("u"), Some("a&b+c"), 0));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn encrypted_forms_encrypt_every_connection() {
        let is_tls = |info: &ConnectionInfo| match info.addr() {
            redis::ConnectionAddr::TcpTls { insecure, .. } => Some(*insecure),
            _ => None,
        };
        let node = NodeAddress { host: "other".into(), port: 9 };
        for (fragment, insecure) in [("", false), ("#insecure", true)] {
            let Ok(Address::Cluster(nodes)) = read(&format!("rediss+cluster://a{fragment}")) else { panic!() };
            assert_eq!(is_tls(&nodes.at(&node).unwrap()), Some(insecure));
            let Ok(Address::Sentinel(watched)) = read(&format!("rediss-sentinel://a?master=m{fragment}")) else {
                panic!()
            };
            assert_eq!(is_tls(&watched.sentinels[0]), Some(insecure));
            assert_eq!(is_tls(&watched.master_at(&node).unwrap()), Some(insecure));
        }
    }

    #[test]
    fn url_errors_tell_the_reason_and_no_secrets() {
        for (url, told) in [
            ("redis+cluster://:secret@", "a host is missing"),
            ("redis+cluster://:secret@a,,b", "a host is missing"),
            ("redis+cluster://:secret@a/1", "only the database 0"),
            ("redis+cluster://:secret@a:b", "not written as host:port"),
            ("redis+cluster://:secret", "not written as host:port"),
            ("redis+cluster://:secret?more@a", "not known"),
            ("redis+cluster://:secret@a?pasword=secret", "not known"),
            ("redis-sentinel://a?master=m&password=x&secret", "not known"),
            ("redis+cluster://:secret%zz@a", "%25"),
            ("redis-sentinel://:secret@a", "the name of the master is missing"),
            ("redis-sentinel://:secret@a/x?master=m", "number of a database"),
            ("redis-sentinel://:secret@a?master=m#secret", "after a #"),
            ("redis+clusters://:secret@a", "is not known"),
        ] {
            let Err(error) = read(url) else { panic!("{url}") };
            assert!(error.contains(told) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
