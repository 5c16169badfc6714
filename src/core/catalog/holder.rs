//! The client that a sealed value was made for. The value opens for no other: cursors ([`super::page`]) and states of calls.

use crate::mcp::version::Revision;

/// One client, as far as a value that it carries is bound to it.
#[derive(Clone, Copy, Debug)]
pub struct Holder<'a> {
    pub caller: &'a str,
    /// How the caller showed who it is: callers of two kinds may have one name.
    pub kind: &'a str,
    /// Empty for none.
    pub profile: &'a str,
    pub revision: Revision,
    /// The kinds of input that the client offers, as far as they matter to the value.
    pub capabilities: u8,
}

impl Holder<'_> {
    /// All of it, in a form that no two holders share.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.capabilities];
        for part in [self.caller, self.kind, self.profile, self.revision.as_str()] {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        bytes
    }
}
