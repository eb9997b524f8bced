//! Certificates, made anew for each test.

use queue_redis::TlsOptions;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// Who signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // A name of its own: issuer and subject of the same name look like a self-signed certificate.
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a host name or an IP address, or, where nobody checks it, for any name.
    pub(crate) fn sign(&self, name: &str) -> Signed {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        Signed { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

/// Certificate and key in PEM.
#[derive(Clone)]
pub(crate) struct Signed {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// How a server speaks TLS.
#[derive(Clone)]
pub(crate) struct ServerTls {
    /// What it shows to clients and to other servers.
    pub(crate) shown: Signed,
    /// The authorities whose certificates it accepts; without one of theirs nobody is let in.
    pub(crate) trusted: String,
    /// What a client needs so that both sides are satisfied.
    pub(crate) client: TlsOptions,
}
