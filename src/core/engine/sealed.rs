//! Sealed texts: encrypted by this gateway, and bound to the data that they are for.
//!
//! The cipher is `AES-256-GCM-SIV` (RFC 8452), which stays secure if a nonce repeats by chance.

use aes_gcm_siv::aead::{Aead as _, Payload};
use aes_gcm_siv::{Aes256GcmSiv, KeyInit as _, Nonce};
use data_encoding::BASE64URL_NOPAD;

use crate::wire::secrets::SealSecrets;

pub mod ended;

pub mod used;

pub mod state;

pub mod task_id;

pub mod session_id;

pub mod run_id;

pub mod peer;

pub mod replay_window;

/// Length of the nonce that a sealed text begins with, in bytes.
pub(super) const NONCE_BYTES: usize = 12;

/// The keys that open sealed texts. The first one also seals.
pub(super) struct TextKeys(Vec<Aes256GcmSiv>);

impl TextKeys {
    pub(super) fn new(secrets: &SealSecrets) -> Self {
        Self(secrets.all().map(|secret| Aes256GcmSiv::new(secret.into())).collect())
    }

    /// Seals `bytes`, bound to `bound`, as a base64url text; `None` if the text exceeds `max`
    /// bytes. `nonce` must never be used twice.
    pub(super) fn seal(&self, nonce: [u8; NONCE_BYTES], bound: &[u8], bytes: &[u8], max: usize) -> Option<String> {
        let payload = Payload { msg: bytes, aad: bound };
        let sealed = self.0.first()?.encrypt(Nonce::from_slice(&nonce), payload).ok()?;
        let text = BASE64URL_NOPAD.encode(&[&nonce[..], &sealed].concat());
        (text.len() <= max).then_some(text)
    }

    /// Opens a text that was sealed with the same `bound`. Returns its nonce and the value that
    /// `read` makes of the plain bytes; `None` for any other text, or if `read` returns `None`.
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
