//! Connection flags as asynq's own CLI has them, beside `--redis` and `REDIS_URL`.

use std::path::PathBuf;

use clap::Args;
use queue_redis::{RedisOptions, TlsOptions};
use url::Url;

use crate::error::CliError;

/// asynq's flags. They replace parts of the URL that is used otherwise.
#[derive(Debug, Default, Args)]
#[group(skip)]
#[command(next_help_heading = "Connection flags as in asynq")]
pub(crate) struct ConnectionArgs {
    /// Redis to use, as host:port
    #[arg(short = 'u', long = "uri", global = true, value_name = "HOST:PORT", hide_short_help = true)]
    uri: Option<String>,
    /// Number of the database
    #[arg(short = 'n', long = "db", global = true, value_name = "N", hide_short_help = true)]
    db: Option<u32>,
    /// User
    #[arg(short = 'U', long, global = true, value_name = "NAME", hide_short_help = true)]
    username: Option<String>,
    /// Password; better kept in REDIS_URL, because everybody on the machine can see command lines
    #[arg(short = 'p', long, global = true, value_name = "PASSWORD", hide_short_help = true)]
    password: Option<String>,
    /// Connect with TLS
    #[arg(long, global = true, hide_short_help = true)]
    tls: bool,
    /// Do not check the certificate of the server
    #[arg(long, global = true, hide_short_help = true)]
    insecure: bool,
    /// Connect to a Redis Cluster
    #[arg(long, global = true, hide_short_help = true, conflicts_with = "uri")]
    cluster: bool,
    /// Nodes of the cluster; others are found through them
    #[arg(
        long = "cluster_addrs",
        alias = "cluster-addrs",
        global = true,
        value_name = "HOST:PORT,…",
        hide_short_help = true,
        requires = "cluster",
        default_value_if("cluster", "true", CLUSTER_ADDRS)
    )]
    cluster_addrs: Option<String>,
    #[command(flatten)]
    files: TlsFiles,
}

/// Not among asynq's: files for `rediss://`. Their ids are not the names of the fields, since a command may have an argument of such a
/// name.
#[derive(Debug, Default, Args)]
#[group(skip)]
#[command(next_help_heading = "TLS")]
struct TlsFiles {
    /// Root certificates to check the server against (PEM), instead of the system's
    #[arg(id = "tls-ca", long = "tls-ca", global = true, value_name = "FILE", hide_short_help = true)]
    ca: Option<PathBuf>,
    /// Certificate to show to the server (PEM), with --tls-key
    #[arg(id = "tls-cert", long = "tls-cert", global = true, value_name = "FILE", hide_short_help = true)]
    cert: Option<PathBuf>,
    /// Private key of the certificate (PEM), with --tls-cert
    #[arg(id = "tls-key", long = "tls-key", global = true, value_name = "FILE", hide_short_help = true)]
    key: Option<PathBuf>,
}

impl TlsFiles {
    fn any(&self) -> bool {
        self.ca.is_some() || self.cert.is_some() || self.key.is_some()
    }

    fn read(&self) -> Result<TlsOptions, CliError> {
        let read = |flag: &str, path: &PathBuf| {
            std::fs::read(path).map_err(|error| CliError::failed(format!("{flag} {}: {error}", path.display())))
        };
        let ca = self.ca.as_ref().map(|path| read("--tls-ca", path)).transpose()?;
        let client = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some((read("--tls-cert", cert)?, read("--tls-key", key)?)),
            (None, None) => None,
            _ => return Err(CliError::Usage("--tls-cert and --tls-key belong together; give both".to_owned())),
        };
        Ok(TlsOptions { ca, client })
    }
}

/// As in asynq's CLI.
const CLUSTER_ADDRS: &str = "127.0.0.1:7000,127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003,127.0.0.1:7004,127.0.0.1:7005";

impl ConnectionArgs {
    /// Whether any of them was given.
    pub(crate) fn any(&self) -> bool {
        self.uri.is_some() || self.cluster || self.adjusts() || self.files.any()
    }

    /// How to connect: with the certificates that the flags name.
    pub(crate) fn options(&self) -> Result<RedisOptions, CliError> {
        Ok(RedisOptions { tls: self.files.read()?, ..RedisOptions::default() })
    }

    /// The URL that `--uri` or `--cluster` stands for.
    pub(crate) fn uri(&self) -> Option<String> {
        if self.cluster {
            return Some(format!("redis+cluster://{}", self.cluster_addrs.as_deref().unwrap_or(CLUSTER_ADDRS)));
        }
        self.uri.as_ref().map(|uri| if uri.contains("://") { uri.clone() } else { format!("redis://{uri}") })
    }

    fn adjusts(&self) -> bool {
        self.db.is_some() || self.username.is_some() || self.password.is_some() || self.tls || self.insecure
    }

    /// The URL with the parts that were given. The errors do not repeat it: it may hold a password.
    pub(crate) fn adjust(&self, url: String) -> Result<String, CliError> {
        if !self.adjusts() {
            return Ok(url);
        }
        let usage = |text: &str| CliError::Usage(text.to_owned());
        // A list of hosts is none for the parser, and an unknown scheme is not to be changed.
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        if scheme.ends_with("cluster") {
            return self.adjust_cluster(&url);
        }
        if scheme.ends_with("sentinel") {
            return Err(usage(
                "put user, password, database and TLS into the URL of the Sentinels; there are two logins",
            ));
        }
        let mut url = Url::parse(&url).map_err(|error| CliError::Usage(format!("invalid Redis URL: {error}")))?;
        if url.scheme().contains("unix") || url.scheme() == "redis-socket" {
            return self.adjust_socket(url);
        }
        if self.insecure && !self.tls && url.scheme() != "rediss" {
            return Err(usage("--insecure is about certificates, and needs --tls or a rediss:// URL"));
        }
        if self.tls {
            url.set_scheme("rediss").map_err(|()| usage("--tls needs a redis:// URL"))?;
        }
        if let Some(db) = self.db {
            url.set_path(&format!("/{db}"));
        }
        let refused = || usage("the Redis URL has no host that a user or password could belong to");
        if let Some(username) = &self.username {
            url.set_username(username).map_err(|()| refused())?;
        }
        if let Some(password) = &self.password {
            url.set_password(Some(password)).map_err(|()| refused())?;
        }
        if self.username.is_some() && url.password().is_none() {
            return Err(no_password());
        }
        if self.insecure {
            url.set_fragment(Some("insecure"));
        }
        Ok(url.into())
    }

    fn adjust_cluster(&self, url: &str) -> Result<String, CliError> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        if self.db.is_some_and(|db| db > 0) {
            return Err(CliError::Usage("a cluster has only the database 0".to_owned()));
        }
        let kind = scheme.trim_start_matches("rediss").trim_start_matches("redis");
        let encrypted = self.tls || scheme.starts_with("rediss");
        if self.insecure && !encrypted {
            return Err(CliError::Usage("--insecure is about certificates, and needs --tls".to_owned()));
        }
        let scheme = if encrypted { "rediss" } else { "redis" };
        let (rest, fragment) = rest.split_once('#').map_or((rest, None), |(rest, fragment)| (rest, Some(fragment)));
        let fragment = fragment.or(self.insecure.then_some("insecure"));
        let (credentials, hosts) = rest.rsplit_once('@').map_or(("", rest), |(before, hosts)| (before, hosts));
        // The login alone is what the parser knows how to write.
        let login =
            ConnectionArgs { username: self.username.clone(), password: self.password.clone(), ..Default::default() };
        let login = login.adjust(format!("redis://{credentials}{}h", if credentials.is_empty() { "" } else { "@" }))?;
        let login = login.trim_start_matches("redis://").trim_end_matches('h');
        let fragment = fragment.map_or(String::new(), |fragment| format!("#{fragment}"));
        Ok(format!("{scheme}{kind}://{login}{hosts}{fragment}"))
    }

    fn adjust_socket(&self, mut url: Url) -> Result<String, CliError> {
        if self.tls || self.insecure {
            return Err(CliError::Usage("--tls and --insecure are not for Unix sockets".to_owned()));
        }
        let given = [
            ("db", self.db.map(|db| db.to_string())),
            ("user", self.username.clone()),
            ("pass", self.password.clone()),
        ];
        let given: Vec<(&str, String)> = given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let kept: Vec<(String, String)> = url
            .query_pairs()
            .filter(|(name, _)| given.iter().all(|(other, _)| other != name))
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        url.query_pairs_mut().clear().extend_pairs(kept).extend_pairs(given);
        if self.username.is_some() && !url.query_pairs().any(|(name, _)| name == "pass") {
            return Err(no_password());
        }
        Ok(url.into())
    }
}

/// Redis would be asked as its default user.
fn no_password() -> CliError {
    CliError::Usage(
        "a user needs a password: in the Redis URL, or by -p; any will do for one that has none (nopass)".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_url_are_replaced() {
        let args = || ConnectionArgs { db: Some(3), password: Some("p@ss/word".to_owned()), ..Default::default() };
        let url = args().adjust("redis://user:old@h:1/0".to_owned()).unwrap();
        assert_eq!(url, "redis://user:p%40ss%2Fword@h:1/3");
        let tls = ConnectionArgs { tls: true, insecure: true, ..args() };
        assert_eq!(tls.adjust("redis://h".to_owned()).unwrap(), "rediss://:p%40ss%2Fword@h/3#insecure");
        let socket = args().adjust("redis+unix:///r.sock?db=1&user=u".to_owned()).unwrap();
        assert_eq!(socket, "redis+unix:///r.sock?user=u&db=3&pass=p%40ss%2Fword");
        let user = ConnectionArgs { username: Some("u".to_owned()), ..Default::default() };
        assert_eq!(user.adjust("redis://:old@h".to_owned()).unwrap(), "redis://u:old@h");
        for without in ["redis://h", "redis://other@h", "redis+unix:///r.sock", "redis+cluster://a:1,b:2"] {
            assert!(user.adjust(without.to_owned()).is_err(), "{without}");
        }
        assert_eq!(ConnectionArgs::default().adjust("anything".to_owned()).unwrap(), "anything");
    }

    #[test]
    fn an_address_is_host_and_port() {
        let uri = |text: &str| ConnectionArgs { uri: Some(text.to_owned()), ..Default::default() }.uri().unwrap();
        assert_eq!(uri("localhost:6380"), "redis://localhost:6380");
        assert_eq!(uri("rediss://h"), "rediss://h");
    }

    #[test]
    fn flags_of_a_cluster_are_read_as_in_asynq() {
        let addresses =
            |text: &str| ConnectionArgs { cluster: true, cluster_addrs: Some(text.to_owned()), ..Default::default() };
        let url = addresses("a:1,b:2").uri().unwrap();
        assert_eq!(url, "redis+cluster://a:1,b:2");
        let login =
            ConnectionArgs { password: Some("p@ss".to_owned()), username: Some("u".to_owned()), ..Default::default() };
        assert_eq!(login.adjust(url.clone()).unwrap(), "redis+cluster://u:p%40ss@a:1,b:2");
        let tls = ConnectionArgs { tls: true, insecure: true, ..Default::default() };
        assert_eq!(
            tls.adjust("redis-cluster://:old@a:1,b:2".to_owned()).unwrap(),
            "rediss-cluster://:old@a:1,b:2#insecure"
        );
        let db = ConnectionArgs { db: Some(1), ..Default::default() };
        assert!(db.adjust(url).is_err());
        assert!(login.adjust("redis-sentinel://a?master=m".to_owned()).is_err());
    }

    #[test]
    fn a_certificate_needs_its_key_and_a_file_that_cannot_be_read_is_named() {
        let files = |ca: Option<&str>, cert: Option<&str>, key: Option<&str>| {
            let path = |text: Option<&str>| text.map(PathBuf::from);
            ConnectionArgs { files: TlsFiles { ca: path(ca), cert: path(cert), key: path(key) }, ..Default::default() }
        };
        let told = |args: ConnectionArgs| match args.options().unwrap_err() {
            CliError::Usage(text) | CliError::Failed(text) => text,
            other => panic!("{other:?}"),
        };
        assert!(told(files(None, Some("c"), None)).contains("--tls-key"));
        assert!(told(files(None, None, Some("k"))).contains("--tls-cert"));
        assert!(told(files(Some("/nowhere/ca.pem"), None, None)).starts_with("--tls-ca /nowhere/ca.pem: "));
        assert!(files(Some("ca"), None, None).any() && !ConnectionArgs::default().any());
    }

    #[test]
    fn conflicting_addresses_are_refused_without_showing_the_url() {
        let tls = ConnectionArgs { tls: true, ..Default::default() };
        assert!(tls.adjust("redis+unix:///r.sock".to_owned()).is_err());
        let insecure = ConnectionArgs { insecure: true, ..Default::default() };
        assert!(insecure.adjust("redis://h".to_owned()).is_err());
        let Err(CliError::Usage(text)) = tls.adjust("redis://:secret@[x".to_owned()) else { panic!() };
        assert!(!text.contains("secret"));
    }
}
