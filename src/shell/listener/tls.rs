//! TLS of the listeners: certificates that are chosen by the name that a client asks for, and that
//! a reload replaces.
//!
//! TLS 1.2 and 1.3 without early data: a replayed call would be made twice. A client that names no
//! server gets the first certificate; one that names a server without a certificate gets an alert.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::validity::not_after;
use crate::config::CertificateFiles;

/// The protocol name of HTTP/2 in a handshake.
pub const H2: &[u8] = b"h2";
/// The protocol name of HTTP/1.1.
pub const HTTP1: &[u8] = b"http/1.1";

/// A certificate with its key, ready for handshakes.
#[derive(Clone, Debug)]
pub struct ServedCertificate {
    /// The file of the certificate, which identifies it over reloads.
    pub path: PathBuf,
    /// The time at which it expires, in seconds since 1970.
    pub expiry: u64,
    key: Arc<CertifiedKey>,
}

impl ServedCertificate {
    /// Parses the texts of a certificate and its key, and checks that they belong together.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn of(files: &CertificateFiles) -> Result<Self, String> {
        let texts = files.texts.as_ref().map_err(Clone::clone)?;
        let (path, key_path) = (files.certificate.display(), files.key.display());
        let chain: Vec<_> = CertificateDer::pem_slice_iter(texts.certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|_| format!("{path} is not PEM"))?;
        let first = chain.first().ok_or_else(|| format!("{path} has no certificate in PEM"))?;
        let expiry = not_after(first).ok_or_else(|| format!("{path}: the first certificate cannot be read"))?;
        // The error of the parser is left out, since it may quote the key.
        let key = PrivateKeyDer::from_pem_slice(texts.key.expose().as_bytes())
            .map_err(|_| format!("{key_path} has no private key in PEM"))?;
        ParsedCertificate::try_from(first).map_err(|error| format!("{path}: {error}"))?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| {
            if matches!(error, rustls::Error::InconsistentKeys(_)) {
                format!("{key_path} is not the key of {path}")
            } else {
                format!("{path} with {key_path}: {error}")
            }
        })?;
        Ok(Self { path: files.certificate.clone(), expiry, key: Arc::new(key) })
    }

    /// Returns whether the certificate is for this name.
    fn is_for(&self, name: &ServerName<'_>) -> bool {
        let first = self.key.cert.first().and_then(|first| ParsedCertificate::try_from(first).ok());
        first.is_some_and(|first| verify_server_name(&first, name).is_ok())
    }
}

/// Parses every certificate of a configuration. One that cannot be used keeps its predecessor in
/// `current`, and has a sentence in the second list.
///
/// # Errors
/// A certificate that cannot be used has no predecessor; a sentence for the operator.
pub fn renew(
    files: &[CertificateFiles],
    current: &[ServedCertificate],
) -> Result<(Vec<ServedCertificate>, Vec<String>), String> {
    let (mut renewed, mut faults) = (Vec::new(), Vec::new());
    for one in files {
        match (ServedCertificate::of(one), current.iter().find(|old| old.path == one.certificate)) {
            (Ok(fresh), _) => renewed.push(fresh),
            (Err(fault), Some(old)) => {
                renewed.push(old.clone());
                faults.push(fault);
            }
            (Err(fault), None) => return Err(format!("[[server.tls]]: {fault}")),
        }
    }
    Ok((renewed, faults))
}

/// The certificates in force, shared by all listeners; a reload replaces them.
#[derive(Debug)]
pub struct ServedCertificates(ArcSwap<Vec<ServedCertificate>>);

impl ServedCertificates {
    pub fn new(certificates: Vec<ServedCertificate>) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(certificates)))
    }

    /// Puts these certificates in force for the handshakes that follow.
    pub fn replace(&self, certificates: Vec<ServedCertificate>) {
        self.0.store(Arc::new(certificates));
    }

    pub fn current(&self) -> Arc<Vec<ServedCertificate>> {
        self.0.load_full()
    }
}

impl ResolvesServerCert for ServedCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(ServerName::try_from).transpose().ok()?;
        let certificates = self.0.load();
        let mut fitting = certificates.iter().filter(|one| name.as_ref().is_none_or(|name| one.is_for(name)));
        let can_sign = |one: &&ServedCertificate| one.key.key.choose_scheme(hello.signature_schemes()).is_some();
        fitting.find(can_sign).map(|one| Arc::clone(&one.key))
    }
}

/// The server's side of TLS for one listener.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<ServerConfig>);

impl ServerTls {
    /// Creates the settings of a listener that speaks these protocols, the preferred one first.
    ///
    /// # Errors
    /// The library lacks a protocol version, which is a mistake in how it was built.
    pub fn new(certificates: Arc<ServedCertificates>, protocols: &[&[u8]]) -> Result<Self, String> {
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let mut config =
            builder.map_err(|error| format!("TLS: {error}"))?.with_no_client_auth().with_cert_resolver(certificates);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Self(Arc::new(config)))
    }

    /// Creates the settings of the listener for other replicas.
    pub fn of_peers(config: ServerConfig) -> Self {
        Self(Arc::new(config))
    }

    /// Completes the handshake of a connection. Its time limits are those of the stream.
    ///
    /// # Errors
    /// The client goes away, is too slow, or wants what this listener does not speak.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        TlsAcceptor::from(Arc::clone(&self.0)).accept(stream).await
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
