//! Texts that only this gateway can have made and can read, bound to what they are for: encrypted
//! and authenticated by `AES-256-GCM-SIV` (RFC 8452), which forgives a nonce that comes twice.

use aes_gcm_siv::aead::{Aead as _, Payload};
use aes_gcm_siv::{Aes256GcmSiv, KeyInit as _, Nonce};
use data_encoding::BASE64URL_NOPAD;

use crate::wire::secrets::Secrets;

/// Bytes of the number that a text begins with.
pub(super) const NONCE_BYTES: usize = 12;

/// Keys that open texts; the first one seals.
pub(super) struct TextKeys(Vec<Aes256GcmSiv>);

impl TextKeys {
    pub(super) fn new(secrets: &Secrets) -> Self {
        Self(secrets.all().map(|secret| Aes256GcmSiv::new(secret.into())).collect())
    }

    /// Seals bytes for what `bound` says, as a text of at most `max` bytes. `nonce` must never be
    /// used twice.
    pub(super) fn seal(&self, nonce: [u8; NONCE_BYTES], bound: &[u8], bytes: &[u8], max: usize) -> Option<String> {
        let payload = Payload { msg: bytes, aad: bound };
        let sealed = self.0.first()?.encrypt(Nonce::from_slice(&nonce), payload).ok()?;
        let text = BASE64URL_NOPAD.encode(&[&nonce[..], &sealed].concat());
        (text.len() <= max).then_some(text)
    }

    /// The nonce of a text that was sealed for what `bound` says, and what `read` finds in its
    /// bytes.
    pub(super) fn open<T>(
        &self,
        text: &str,
        bound: &[u8],
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Option<([u8; NONCE_BYTES], T)> {
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_BYTES>()?;
        let payload = || Payload { msg: sealed, aad: bound };
        let opened = |key: &Aes256GcmSiv| read(&key.decrypt(Nonce::from_slice(nonce), payload()).ok()?);
        Some((*nonce, self.0.iter().find_map(opened)?))
    }
}
