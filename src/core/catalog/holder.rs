//! The client that a sealed value was made for, such as a cursor ([`super::page`]) or the state of
//! a call. No other client can open the value.

use crate::mcp::version::Revision;

/// The identity of a client to which a sealed value is bound.
#[derive(Clone, Copy, Debug)]
pub struct SealHolder<'a> {
    pub caller: &'a str,
    /// The way in which the caller proved its identity. Callers of two kinds may have one name.
    pub kind: &'a str,
    /// The profile that the client uses; empty for none.
    pub profile: &'a str,
    pub revision: Revision,
    /// Bits for the kinds of input that the client offers, as far as they matter to the value.
    pub capabilities: u8,
}

impl SealHolder<'_> {
    /// Encodes all fields with their lengths, so that no two holders have the same bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.capabilities];
        for part in [self.caller, self.kind, self.profile, self.revision.as_str()] {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        bytes
    }
}
