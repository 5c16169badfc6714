//! Mutual TLS between replicas, by raw public keys (RFC 7250): each replica makes a key at its
//! start and proves that it has it. Whose key it is stands in the sealed rows of the directory, so
//! there are no certificates, and nothing to renew.
//!
//! A connection to a replica ends in the handshake unless that replica has the key of its row. The
//! key of a replica that connects is looked up after the handshake, before the first request is
//! read: its row may be younger than the last reading.

use std::fmt;
use std::sync::Arc;

use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
};

use crate::wire::digest::Digest;

/// The key of this replica for connections from and to others.
#[derive(Clone)]
pub struct PeerTls {
    key: Arc<CertifiedKey>,
    digest: Digest,
}

impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerTls({})", self.digest.hex())
    }
}

impl PeerTls {
    /// Makes a key.
    ///
    /// # Errors
    /// The library cannot make one, which does not happen; a sentence for the operator.
    pub fn generate() -> Result<Self, String> {
        let failed = || "the key for other replicas cannot be made".to_owned();
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| failed())?;
        let key = rustls::crypto::ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_ref()));
        let key = key.map_err(|_| failed())?;
        let public = key.public_key().ok_or_else(failed)?;
        let digest = Digest::of(public.as_ref());
        let key = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public.as_ref().to_vec())], key));
        Ok(Self { key, digest })
    }

    /// Returns the digest of the public key.
    pub const fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns the settings of the listener for replicas. Any key is taken; who connects must be
    /// looked up by [`key_digest`].
    ///
    /// # Errors
    /// The library lacks TLS 1.3, which is a mistake in how it was built.
    pub fn server(&self) -> Result<ServerConfig, String> {
        let provider = provider();
        let verifier = PeerKeyVerifier { wanted: None, algorithms: provider.signature_verification_algorithms };
        let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
        let mut config = builder
            .map_err(|error| format!("TLS: {error}"))?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&self.key))));
        // Every connection is a full handshake.
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// Returns the settings of connections to the replica whose key has this digest.
    ///
    /// # Errors
    /// As [`Self::server`].
    pub fn client(&self, wanted: Digest) -> Result<ClientConfig, String> {
        let provider = provider();
        let verifier = PeerKeyVerifier { wanted: Some(wanted), algorithms: provider.signature_verification_algorithms };
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
        let mut config = builder
            .map_err(|error| format!("TLS: {error}"))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&self.key))));
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

/// Returns the digest of the key that a peer proved in a handshake.
pub fn key_digest(certificates: Option<&[CertificateDer<'_>]>) -> Option<Digest> {
    match certificates? {
        [key] => Some(Digest::of(key)),
        _ => None,
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The judge of a key in a handshake, on either side.
#[derive(Debug)]
struct PeerKeyVerifier {
    /// Digest of the only key that is accepted; `None` for any key.
    wanted: Option<Digest>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PeerKeyVerifier {
    fn judge(&self, key: &CertificateDer<'_>) -> Result<(), Error> {
        match self.wanted {
            Some(wanted) if Digest::of(key) != wanted => {
                Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
            }
            _ => Ok(()),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }
}

impl ServerCertVerifier for PeerKeyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.judge(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("replicas speak TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for PeerKeyVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.judge(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("replicas speak TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
