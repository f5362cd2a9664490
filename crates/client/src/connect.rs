//! Connections: TCP and TLS, pooled between requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::error::ClientError;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;
pub(crate) type Http = Client<HttpsConnector<HttpConnector>, Body>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The service closes a connection on which no request begins for ten seconds. Closing earlier here avoids most
/// races between a request and that close.
const IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The certificates that the client trusts.
#[derive(Debug)]
pub(crate) enum Trust {
    /// None: the client does not use TLS.
    Nobody,
    /// Certificates that the operating system trusts.
    Platform,
    /// Only certificates that these roots signed, PEM.
    Roots(Vec<u8>),
}

pub(crate) fn http(trust: Trust) -> Result<Http, ClientError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // The client writes whole requests: Nagle's algorithm would only delay them.
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls(trust)?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(connector))
}

fn tls(trust: Trust) -> Result<ClientConfig, ClientError> {
    let unusable = |error: rustls::Error| ClientError::Setting(format!("TLS cannot be used: {error}"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let roots = match trust {
        Trust::Nobody => RootCertStore::empty(),
        Trust::Roots(pem) => roots(&pem)?,
        Trust::Platform => {
            let verifier = rustls_platform_verifier::Verifier::new(provider).map_err(unusable)?;
            return Ok(builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_no_client_auth());
        }
    };
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn roots(pem: &[u8]) -> Result<RootCertStore, ClientError> {
    let unusable = |why: &dyn std::fmt::Display| {
        ClientError::Setting(format!("the root certificate cannot be used: {why}"))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() {
        return Err(unusable(&"there is no certificate in it; it must be PEM"));
    }
    Ok(roots)
}
