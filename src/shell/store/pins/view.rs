//! Pins as people see them.

use crate::policy::{Digest, PinState};
use crate::store::pin_record::{PinKey, PinKind, Record};
use crate::wire::raw::{RawJson, RawObject};

/// A pin for the command line and the console. Its texts come from the upstream and must be
/// escaped.
#[derive(Clone, Debug)]
pub struct PinView {
    pub upstream: String,
    pub kind: PinKind,
    /// Canonical name, or the upstream's name for a launch.
    pub name: String,
    pub state: PinState,
    /// Canonical text that was approved.
    pub approved: Option<String>,
    /// Digest of that text.
    pub approved_digest: Option<Digest>,
    /// Canonical text that waits or was rejected.
    pub waiting: Option<String>,
    /// Digest of that text.
    pub waiting_digest: Option<Digest>,
    /// True for a pinned tool that appeared after the first inventory of its upstream's launch and
    /// that no operator has confirmed.
    pub is_new: bool,
    /// The person or circumstance behind the state.
    pub by: String,
    /// Time of the last change, in seconds since 1970.
    pub since: u64,
}

impl PinView {
    /// Builds the view of a record. `launch` is the launch record of a tool's upstream; a pinned
    /// tool that is not confirmed for it is shown as new.
    pub(super) fn new(key: &PinKey, record: &Record, launch: Option<&Record>) -> Self {
        let is_pinned_tool = key.kind == PinKind::Tool && record.pin.state() == PinState::Pinned;
        Self {
            is_new: is_pinned_tool && record.awaits_confirmation(launch),
            upstream: key.upstream.to_string(),
            kind: key.kind,
            name: key.canonical(),
            state: record.pin.state(),
            approved: record.approved.as_deref().map(str::to_owned),
            approved_digest: record.pin.approved(),
            waiting: record.waiting.as_deref().map(str::to_owned),
            waiting_digest: record.pin.waiting(),
            by: record.by.to_string(),
            since: record.at,
        }
    }

    #[cfg(test)]
    /// Returns the digest for a decision about the shown text.
    pub fn shown(&self) -> Option<Digest> {
        self.waiting_digest.or(self.approved_digest)
    }

    /// Encodes the pin as JSON for the admin socket; `texts` adds the texts.
    pub fn to_json(&self, texts: bool) -> RawJson {
        let mut out = RawObject::of_strings(&[
            ("name", &self.name),
            ("kind", self.kind.into_str()),
            ("upstream", &self.upstream),
            ("state", self.state.into_str()),
            ("why", &self.by),
        ]);
        for (name, digest) in [("approved-digest", self.approved_digest), ("waiting-digest", self.waiting_digest)] {
            if let Some(digest) = digest {
                out.set(name, RawJson::string(&digest.hex()));
            }
        }
        for (name, text) in [("approved", &self.approved), ("waiting", &self.waiting)] {
            if let Some(text) = text.as_ref().filter(|_| texts) {
                out.set(name, RawJson::string(text));
            }
        }
        if self.is_new {
            out.set("new", RawJson::boolean(true));
        }
        out.set("since", RawJson::number(self.since));
        out.encode()
    }
}
