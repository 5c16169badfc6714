//! The certificates for connections to one upstream: authorities that headend accepts besides the
//! system's, and its own client certificate.

use std::error::Error;
use std::io;
use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls_platform_verifier::Verifier;

use crate::config::UpstreamCertificates;
use crate::config::source::secret::Secret;

/// The settings `ca` and `client-certificate`, read and checked.
#[derive(Default)]
pub struct Certificates {
    authorities: Vec<CertificateDer<'static>>,
    certificate: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    /// For addresses that a peer named. Set up when first needed, because the system's certificates
    /// take megabytes.
    public: OnceLock<Option<Arc<ClientConfig>>>,
    /// For origins of the configuration.
    own: OnceLock<Option<Arc<ClientConfig>>>,
}

impl Certificates {
    /// Parses PEM texts: authorities, and a certificate chain with its key in one text.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn of(texts: &UpstreamCertificates) -> Result<Self, String> {
        let pem = |secret: &Secret| secret.expose().as_bytes().to_vec();
        let (authorities, certificate) = (texts.ca.as_ref().map(pem), texts.client_certificate.as_ref().map(pem));
        Self::of_pem(authorities.as_deref(), certificate.as_deref())
    }

    fn of_pem(authorities: Option<&[u8]>, certificate: Option<&[u8]>) -> Result<Self, String> {
        let authorities = authorities.map(chain).transpose().map_err(|why| format!("`ca` {why}"))?;
        let certificate = certificate.map(|pem| {
            let chain = chain(pem)?;
            let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| "has no private key in PEM")?;
            Ok((chain, key))
        });
        let certificate = certificate.transpose().map_err(|why: &str| format!("`client-certificate` {why}"))?;
        let trust = Self { authorities: authorities.unwrap_or_default(), certificate, ..Self::default() };
        if trust.certificate.is_some() || !trust.authorities.is_empty() {
            trust.make(true).map_err(|error| format!("`ca` or `client-certificate` cannot be used: {error}"))?;
        }
        Ok(trust)
    }

    /// Returns the TLS settings of a connection; `None` if the system's certificates cannot be
    /// used. `is_own` is for origins of the configuration: other addresses, which a peer named,
    /// never get our certificate, and private authorities are not accepted for them.
    pub fn config(&self, is_own: bool) -> Option<Arc<ClientConfig>> {
        let made = if is_own { &self.own } else { &self.public };
        made.get_or_init(|| self.make(is_own).ok().map(Arc::new)).clone()
    }

    /// Creates TLS settings, with private authorities and our certificate only for `is_own`.
    fn make(&self, is_own: bool) -> Result<ClientConfig, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let authorities = if is_own { self.authorities.clone() } else { Vec::new() };
        let verifier = Verifier::new_with_extra_roots(authorities, Arc::clone(&provider))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match self.certificate.as_ref().filter(|_| is_own) {
            Some((chain, key)) => builder.with_client_auth_cert(chain.clone(), key.clone_key())?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (authorities, certificate) = (self.authorities.len(), self.certificate.is_some());
        f.debug_struct("Trust").field("authorities", &authorities).field("certificate", &certificate).finish()
    }
}

/// Creates TLS settings that check certificates with the system's own store.
///
/// # Errors
/// The store cannot be used.
pub(crate) fn tls_config() -> Result<ClientConfig, rustls::Error> {
    use rustls_platform_verifier::BuilderVerifierExt as _;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_platform_verifier()?.with_no_client_auth())
}

fn chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, &'static str> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|_| "is not PEM")?;
    if found.is_empty() { Err("has no certificate in PEM") } else { Ok(found) }
}
/// Returns whether a connection failed because the server's certificate is refused: it is for
/// another name, expired, or of an unknown issuer.
pub(crate) fn refuses_certificate(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if matches!(error.downcast_ref(), Some(rustls::Error::InvalidCertificate(_))) {
            return true;
        }
        // An I/O error does not include the error that it wraps in its sources.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = wrapped.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source());
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_certificate_is_found_however_deep_it_is_wrapped() {
        let refused = || rustls::Error::InvalidCertificate(rustls::CertificateError::NotValidForName);
        let wrapped = |error: rustls::Error| io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error));
        assert!(refuses_certificate(&refused()) && refuses_certificate(&wrapped(refused())));
        assert!(!refuses_certificate(&wrapped(rustls::Error::DecryptError)));
        assert!(!refuses_certificate(&io::Error::from(io::ErrorKind::ConnectionRefused)));
    }
}
