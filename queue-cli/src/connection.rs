//! Connection flags as asynq's own CLI has them, beside `--redis` and `REDIS_URL`.

use clap::Args;
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
}

impl ConnectionArgs {
    /// Whether any of them was given.
    pub(crate) fn any(&self) -> bool {
        self.uri.is_some() || self.adjusts()
    }

    /// The URL that `--uri` stands for.
    pub(crate) fn uri(&self) -> Option<String> {
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
        if self.insecure {
            url.set_fragment(Some("insecure"));
        }
        Ok(url.into())
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
        Ok(url.into())
    }
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
        assert_eq!(ConnectionArgs::default().adjust("anything".to_owned()).unwrap(), "anything");
    }

    #[test]
    fn an_address_is_host_and_port() {
        let uri = |text: &str| ConnectionArgs { uri: Some(text.to_owned()), ..Default::default() }.uri().unwrap();
        assert_eq!(uri("localhost:6380"), "redis://localhost:6380");
        assert_eq!(uri("rediss://h"), "rediss://h");
    }

    #[test]
    fn what_does_not_fit_is_refused_without_showing_the_url() {
        let tls = ConnectionArgs { tls: true, ..Default::default() };
        assert!(tls.adjust("redis+unix:///r.sock".to_owned()).is_err());
        let insecure = ConnectionArgs { insecure: true, ..Default::default() };
        assert!(insecure.adjust("redis://h".to_owned()).is_err());
        let Err(CliError::Usage(text)) = tls.adjust("redis://:secret@[x".to_owned()) else { panic!() };
        assert!(!text.contains("secret"));
    }
}
