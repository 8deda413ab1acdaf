//! The loopback server with TLS, and a certificate authority for it.
#![allow(dead_code)]

use std::net::TcpStream;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::server::{Reply, Request, Server, Stream};

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, for SSL_CERT_FILE.
    pub pem: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = parameters.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(parameters, key), pem }
    }

    /// Starts a server with a certificate for this name, which may have expired.
    pub fn serve(
        &self,
        name: &str,
        expired: bool,
        routes: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Server {
        let mut parameters = CertificateParams::new(vec![name.to_string()]).unwrap();
        if expired {
            parameters.not_before = rcgen::date_time_ymd(2000, 1, 1);
            parameters.not_after = rcgen::date_time_ymd(2001, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let config = Arc::new(config);
        let wrap = move |stream: TcpStream| -> Option<Box<dyn Stream>> {
            let connection = ServerConnection::new(Arc::clone(&config)).ok()?;
            Some(Box::new(StreamOwned::new(connection, stream)))
        };
        Server::start_wrapped("https", wrap, routes)
    }
}
