//! TLS for `rediss://`, by rustls.

use std::io;
use std::sync::{Arc, OnceLock};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::options::TlsOptions;

/// How the connections to a server are encrypted.
#[derive(Debug)]
pub(crate) struct Tls {
    options: TlsOptions,
    /// Made when it is first used: the roots of the system are many.
    config: OnceLock<Arc<ClientConfig>>,
}

impl Tls {
    pub(crate) fn new(options: TlsOptions) -> Self {
        Self { options, config: OnceLock::new() }
    }

    /// Encrypts a stream to this host; with `insecure`, whoever answers is believed.
    pub(crate) async fn over<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        host: &str,
        insecure: bool,
    ) -> io::Result<TlsStream<S>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let config = match self.config.get() {
            Some(config) => config.clone(),
            None => {
                let config = Arc::new(client_config(&self.options, insecure)?);
                self.config.get_or_init(|| config).clone()
            }
        };
        TlsConnector::from(config).connect(name, stream).await
    }
}

impl TlsOptions {
    /// What rustls goes by, for connections to other servers by the same certificates; `insecure` believes whoever answers.
    ///
    /// # Errors
    /// When they, or those of the system, cannot be read.
    pub fn client_config(&self, insecure: bool) -> io::Result<ClientConfig> {
        self.check().map_err(io::Error::other)?;
        client_config(self, insecure)
    }
}

/// Whether the certificates and the key can be read.
pub(crate) fn check(options: &TlsOptions) -> io::Result<()> {
    options.ca.as_deref().map(roots).transpose()?;
    options.client.as_ref().map(identity).transpose()?;
    Ok(())
}

fn roots(pem: &[u8]) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    Ok(roots)
}

/// Those of the system. Without any, the errors that were met say why.
fn roots_of_the_system() -> io::Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    match found.errors.into_iter().next() {
        Some(error) if added == 0 => Err(io::Error::other(error)),
        _ => Ok(roots),
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity((certificates, key): &(Vec<u8>, Vec<u8>)) -> io::Result<Identity> {
    let certificates = CertificateDer::pem_slice_iter(certificates).collect::<Result<_, _>>();
    let key = PrivateKeyDer::from_pem_slice(key).map_err(io::Error::other)?;
    Ok((certificates.map_err(io::Error::other)?, key))
}

fn client_config(options: &TlsOptions, insecure: bool) -> io::Result<ClientConfig> {
    // The program may have chosen one for all that it encrypts.
    let chosen = CryptoProvider::get_default().cloned();
    let provider = chosen.unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()));
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let builder = if insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
    } else {
        builder.with_root_certificates(options.ca.as_deref().map_or_else(roots_of_the_system, roots)?)
    };
    let mut config = match &options.client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let (certificates, key) = identity(client)?;
            builder.with_client_auth_cert(certificates, key).map_err(io::Error::other)?
        }
    };
    // A Redis that keeps no sessions (`tls-session-caching no`) and wants certificates breaks off when one is resumed.
    config.resumption = Resumption::disabled();
    config.enable_sni = !insecure;
    Ok(config)
}

/// Believes every certificate (`#insecure`), but not that somebody else's is the server's own.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
