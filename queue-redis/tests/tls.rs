//! `rediss://` against a real server, which demands client certificates.

#![cfg(all(feature = "tls", feature = "embedded"))]

use std::net::TcpListener;

use queue_core::RawTask;
use queue_redis::embedded::RedisServer;
use queue_redis::{Client, Error, Redis, RedisOptions, TlsOptions};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use tempfile::TempDir;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    // A name of its own: issuer and subject of the same name look like a self-signed certificate.
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Certificate and key in PEM.
struct Signed {
    certificate: String,
    key: String,
}

fn signed_by(authority: &Authority, name: &str, expired: bool) -> Signed {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    if expired {
        (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    }
    let certificate = params.signed_by(&key, authority).unwrap();
    Signed { certificate: certificate.pem(), key: key.serialize_pem() }
}

impl Signed {
    fn shown(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        Some((self.certificate.clone().into_bytes(), self.key.clone().into_bytes()))
    }
}

/// A Redis with TLS, which wants certificates of the same authority.
struct Secured {
    _server: RedisServer,
    _files: TempDir,
    port: String,
}

impl Secured {
    async fn start(authority: &Authority, shown: &Signed) -> Self {
        let files = tempfile::tempdir().unwrap();
        let path = |name: &str, text: &str| {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (ca, certificate) = (path("ca", &authority.pem()), path("cert", &shown.certificate));
        let key = path("key", &shown.key);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let settings = ["--bind", "127.0.0.1", "--tls-port", &port, "--tls-ca-cert-file", &ca];
        let settings = [&settings[..], &["--tls-cert-file", &certificate, "--tls-key-file", &key]].concat();
        // Without sessions it resumes none.
        let settings = [&settings[..], &["--tls-auth-clients", "yes", "--tls-session-caching", "no"]].concat();
        let server = RedisServer::start_with(None, &settings).await.unwrap();
        Self { _server: server, _files: files, port }
    }

    fn redis(&self, host: &str, tls: TlsOptions) -> Redis {
        let url = format!("rediss://{host}:{}", self.port);
        Redis::lazy(&url, RedisOptions { tls, ..RedisOptions::default() }).unwrap()
    }
}

/// What the client is told when it connects.
async fn refusal(redis: &Redis) -> String {
    let error = redis.ping().await.unwrap_err();
    assert!(matches!(error, Error::Tls { .. }), "{error:?}");
    assert!(!error.is_transient() && !error.is_ambiguous());
    error.to_string()
}

#[tokio::test]
async fn tls_with_client_certificates_works_on_all_connections() {
    let authority = authority("test authority");
    let redis = Secured::start(&authority, &signed_by(&authority, "localhost", false)).await;
    let shown = signed_by(&authority, "worker", false).shown();
    let handle = redis.redis("localhost", TlsOptions { ca: Some(authority.pem().into_bytes()), client: shown });
    Client::new(handle.clone()).enqueue(RawTask::new("t")).await.unwrap();
    for pooled in [handle.pooled().await, handle.pooled().await, handle.pooled().await] {
        drop(pooled.unwrap());
    }
    let listener = queue_redis::Listener::connect(&handle).await.unwrap();
    assert!(listener.watch().is_some(), "the listening connection is one too");
}

#[tokio::test]
async fn a_client_that_the_server_does_not_trust_is_told_what_to_give() {
    let (ours, others) = (authority("test authority"), authority("another authority"));
    let redis = Secured::start(&ours, &signed_by(&ours, "localhost", false)).await;
    let ca = Some(ours.pem().into_bytes());
    for (client, expected) in [
        (None, "the server wants a certificate"),
        (signed_by(&others, "worker", false).shown(), "the server does not accept the certificate"),
        (signed_by(&ours, "worker", true).shown(), "the server does not accept the certificate"),
    ] {
        let text = refusal(&redis.redis("localhost", TlsOptions { ca: ca.clone(), client })).await;
        assert!(text.contains(expected) && text.contains("TlsOptions::client"), "{text}");
    }
}

#[tokio::test]
async fn a_server_that_the_client_does_not_trust_is_named_with_the_reason() {
    let (ours, others) = (authority("test authority"), authority("another authority"));
    let good = Secured::start(&ours, &signed_by(&ours, "localhost", false)).await;
    let client = signed_by(&ours, "worker", false).shown();
    let with = |ca: Option<&Authority>| TlsOptions { ca: ca.map(|ca| ca.pem().into_bytes()), client: client.clone() };
    for (redis, expected) in [
        (good.redis("localhost", with(Some(&others))), "TlsOptions::ca"),
        (good.redis("localhost", with(None)), "TlsOptions::ca"),
        (good.redis("127.0.0.1", with(Some(&ours))), "not for this host"),
    ] {
        let text = refusal(&redis).await;
        assert!(text.contains(expected), "{text}");
    }
    let expired = Secured::start(&ours, &signed_by(&ours, "localhost", true)).await;
    let text = refusal(&expired.redis("localhost", with(Some(&ours)))).await;
    assert!(text.contains("has expired"), "{text}");
}

#[tokio::test]
async fn tls_where_there_is_none_and_none_where_there_is_are_told() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let _plain = RedisServer::start_with(None, &["--bind", "127.0.0.1", "--port", &port]).await.unwrap();
    let authority = authority("test authority");
    let secured = Secured::start(&authority, &signed_by(&authority, "localhost", false)).await;
    for url in [format!("rediss://localhost:{port}"), format!("redis://localhost:{}", secured.port)] {
        // Redis takes the beginning of TLS for a line that still goes on.
        let connect_timeout = std::time::Duration::from_millis(500);
        let options = RedisOptions { connect_timeout, ..RedisOptions::default() };
        let text = Redis::lazy(&url, options).unwrap().ping().await.unwrap_err().to_string();
        assert!(text.contains("rediss:// where it wants TLS"), "{text}");
    }
}

#[test]
fn certificates_without_tls_are_refused() {
    let tls = TlsOptions { ca: Some(authority("test authority").pem().into_bytes()), client: None };
    let error = Redis::lazy("redis://localhost", RedisOptions { tls, ..RedisOptions::default() }).unwrap_err();
    assert!(error.to_string().contains("not rediss://"), "{error}");
}

#[test]
fn certificates_that_are_none_are_refused_before_anything_is_asked() {
    let authority = authority("test authority");
    let Signed { certificate, key } = signed_by(&authority, "worker", false);
    let told = |ca: Option<&str>, client: Option<(&str, &str)>| {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let client = client.map(|(certificate, key)| (bytes(certificate), bytes(key)));
        let tls = TlsOptions { ca: ca.map(bytes), client };
        Redis::lazy("rediss://localhost", RedisOptions { tls, ..RedisOptions::default() }).unwrap_err().to_string()
    };
    let damaged = certificate.replace("MII", "M!!");
    for (text, expected) in [
        (told(Some("something"), None), "tls.ca is 9 bytes of something else; it must hold a certificate"),
        (told(Some(&key), None), "tls.ca is"),
        (told(None, Some((&key, &key))), "tls.client (certificate) is"),
        (
            told(None, Some((&certificate, ""))),
            "tls.client (key) is 0 bytes of something else; it must hold a private key",
        ),
        (told(Some(&damaged), None), "is damaged"),
        (told(None, Some((&damaged, &key))), "is damaged"),
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn a_key_of_another_certificate_is_named() {
    let ours = authority("test authority");
    let redis = Secured::start(&ours, &signed_by(&ours, "localhost", false)).await;
    let (worker, other) = (signed_by(&ours, "worker", false), signed_by(&ours, "other", false));
    let client = Some((worker.certificate.into_bytes(), other.key.into_bytes()));
    let text = refusal(&redis.redis("localhost", TlsOptions { ca: Some(ours.pem().into_bytes()), client })).await;
    assert!(
        text.contains("the key does not belong to the certificate: give the right one (TlsOptions::client)"),
        "{text}"
    );
}
