//! The certificates of the listeners, as the configuration names and reads them.

use std::path::PathBuf;

use crate::source::secret::Secret;

/// A `[[server.tls]]` table: the files of a certificate and their texts.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CertificateFiles {
    /// A PEM file with the certificate first, then its intermediate ones.
    pub certificate: PathBuf,
    /// A PEM file with the private key.
    pub key: PathBuf,
    /// The texts of both files, or the sentence that says why one of them cannot be read.
    #[serde(skip)]
    pub texts: Result<CertificateTexts, String>,
}

/// The PEM texts of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateTexts {
    pub certificate: String,
    pub key: Secret,
}
