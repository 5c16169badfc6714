//! TLS between a proxy and its upstream, by a certificate of this run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// The files of one authority and of the server that it vouches for, in a folder.
#[derive(Clone, Debug)]
pub(crate) struct CertificateFiles(PathBuf);

impl CertificateFiles {
    pub(crate) fn at(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Returns the certificate of the authority.
    pub(crate) fn authority(&self) -> PathBuf {
        self.0.join("authority.pem")
    }

    fn server(&self) -> PathBuf {
        self.0.join("server.pem")
    }

    fn key(&self) -> PathBuf {
        self.0.join("server.key")
    }

    /// Makes and writes the certificates, for servers on loopback.
    ///
    /// # Errors
    /// When the certificates cannot be made or written.
    pub(crate) fn write(&self) -> anyhow::Result<()> {
        let mut params = CertificateParams::new([]).context("describe an authority")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().context("make the key of an authority")?;
        let authority = CertifiedIssuer::self_signed(params, key).context("make an authority")?;
        let key = KeyPair::generate().context("make the key of a server")?;
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).context("describe a server")?;
        let server = params.signed_by(&key, &authority).context("make the certificate of a server")?;
        for (path, text) in
            [(self.authority(), authority.pem()), (self.server(), server.pem()), (self.key(), key.serialize_pem())]
        {
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }

    /// Returns the server's side of TLS.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub(crate) fn acceptor(&self) -> anyhow::Result<TlsAcceptor> {
        let chain = certificates(&self.server())?;
        let key = PrivateKeyDer::from_pem_file(self.key()).context("read the key of the server")?;
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
        Ok(TlsAcceptor::from(Arc::new(config.context("set up TLS")?)))
    }

    /// Returns the client's side of TLS.
    ///
    /// # Errors
    /// When the authority's certificate cannot be read.
    pub(crate) fn connector(&self, connector: HttpConnector) -> anyhow::Result<HttpsConnector<HttpConnector>> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.authority())? {
            roots.add(certificate).context("trust the authority")?;
        }
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().wrap_connector(connector))
    }
}

fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    read.with_context(|| format!("read {}", file.display()))
}
