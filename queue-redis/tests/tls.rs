//! `rediss://` against a real server, which also demands a client certificate.

#![cfg(all(feature = "tls", feature = "embedded"))]

use std::net::TcpListener;

use queue_core::RawTask;
use queue_redis::embedded::RedisServer;
use queue_redis::{Client, Redis, RedisOptions, TlsOptions};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    // A name of its own: issuer and subject of the same name look like a self-signed certificate.
    params.distinguished_name.push(rcgen::DnType::CommonName, "test authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Certificate and key in PEM.
fn signed_by(authority: &CertifiedIssuer<'static, KeyPair>, name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, authority).unwrap();
    (certificate.pem(), key.serialize_pem())
}

#[tokio::test]
async fn tls_with_client_certificates_works_and_strangers_are_refused() {
    let authority = authority();
    let (certificate, key) = signed_by(&authority, "localhost");
    let files = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (ca, certificate, key) = (path("ca", &authority.pem()), path("cert", &certificate), path("key", &key));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let settings = ["--bind", "127.0.0.1", "--tls-port", &port, "--tls-ca-cert-file", &ca];
    let settings = [&settings[..], &["--tls-cert-file", &certificate, "--tls-key-file", &key]].concat();
    let _server = RedisServer::start_with(None, &settings).await.unwrap();

    let url = format!("rediss://localhost:{port}");
    let (client_certificate, client_key) = signed_by(&authority, "worker");
    let trusted = TlsOptions {
        ca: Some(authority.pem().into_bytes()),
        client: Some((client_certificate.into_bytes(), client_key.into_bytes())),
    };
    let connect = |tls| Redis::lazy(&url, RedisOptions { tls, ..RedisOptions::default() }).unwrap();
    let client = Client::new(connect(trusted.clone()));
    client.enqueue(RawTask::new("t")).await.unwrap();

    for stranger in [TlsOptions::default(), TlsOptions { client: None, ..trusted }] {
        let error = connect(stranger).ping().await.unwrap_err();
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn certificates_without_tls_are_refused() {
    let options = RedisOptions { tls: TlsOptions { ca: Some(Vec::new()), client: None }, ..RedisOptions::default() };
    let error = Redis::lazy("redis://localhost", options).unwrap_err();
    assert!(error.to_string().contains("not rediss://"), "{error}");
}
