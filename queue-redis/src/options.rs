//! How to connect.

use std::fmt;
use std::time::Duration;

use redis::AsyncConnectionConfig;

use crate::error::Error;

/// How to connect.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// Time to make a connection. Between 1 ms and 24 h. Defaults to 5 s, as in Go's client.
    pub connect_timeout: Duration,
    /// How long Redis may be silent while an answer is waited for: the time counts from when the last byte came, or went where it had to wait. A take
    /// of tasks is given up after so long in all; those that are too large for it are then taken one by one, with more time. Between 1 ms and 24 h.
    /// Defaults to 5 s.
    pub response_timeout: Duration,
    /// Most pooled connections that may be open at once, beside two for the leases and heartbeats of servers. A call that needs one for itself waits
    /// for it as long as the response timeout says ([`Error::PoolInUse`]). At least 1. Defaults to 8.
    pub pool_size: usize,
    /// Certificates and keys for `rediss://`. Defaults to none: the server is checked against the roots of
    /// the system, and the client shows nothing.
    pub tls: TlsOptions,
}

/// What a `rediss://` connection trusts and shows; all in PEM.
#[derive(Clone, Default)]
pub struct TlsOptions {
    /// Root certificates to check the server against, instead of the system's.
    pub ca: Option<Vec<u8>>,
    /// The client's certificate and its private key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ca, client) = (self.ca.is_some(), self.client.is_some());
        f.debug_struct("TlsOptions").field("ca", &ca).field("client", &client).finish()
    }
}

impl TlsOptions {
    /// The TLS library takes a file without a certificate for one that trusts nobody, and says so at the first connection only.
    pub(crate) fn check(&self) -> Result<(), Error> {
        const CERTIFICATE: (&str, &str) =
            ("CERTIFICATE-----", "it must hold a certificate in PEM (-----BEGIN CERTIFICATE-----)");
        const KEY: (&str, &str) =
            ("PRIVATE KEY-----", "it must hold a private key in PEM (-----BEGIN PRIVATE KEY-----)");
        let (certificate, key) = self.client.as_ref().map(|(certificate, key)| (certificate, key)).unzip();
        let given = [
            ("tls.ca", self.ca.as_ref(), CERTIFICATE),
            ("tls.client (certificate)", certificate, CERTIFICATE),
            ("tls.client (key)", key, KEY),
        ];
        for (option, pem, (label, rule)) in given {
            if let Some(pem) = pem.filter(|pem| !String::from_utf8_lossy(pem).contains(label)) {
                return Err(Error::Option { option, value: format!("{} bytes of something else", pem.len()), rule });
            }
        }
        Ok(())
    }
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(5),
            pool_size: 8,
            tls: TlsOptions::default(),
        }
    }
}

impl RedisOptions {
    pub(crate) fn check(&self) -> Result<(), Error> {
        for (option, time) in [("connect_timeout", self.connect_timeout), ("response_timeout", self.response_timeout)] {
            if !(Duration::from_millis(1)..=Duration::from_secs(24 * 60 * 60)).contains(&time) {
                let value = format!("{time:?}");
                return Err(Error::Option { option, value, rule: "it must be between 1ms and 24h" });
            }
        }
        if self.pool_size == 0 {
            let (option, value) = ("pool_size", "0".to_owned());
            return Err(Error::Option { option, value, rule: "it must be at least 1" });
        }
        self.tls.check()
    }

    pub(crate) fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            // Ours counts otherwise.
            .set_response_timeout(None)
            // More calls than this would wait for room in the channel to the connection's driver.
            .set_pipeline_buffer_size(1024)
    }
}
