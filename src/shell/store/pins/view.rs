//! Pins for people.

use crate::policy::{Digest, PinState};
use crate::store::pin_record::{PinKey, PinKind, Record};
use crate::wire::raw::{RawJson, RawObject};

/// One pin, for the command line and the console. Texts are an upstream's and must be escaped.
#[derive(Clone, Debug)]
pub struct PinView {
    pub upstream: String,
    pub kind: PinKind,
    /// The canonical name, or the upstream's for a launch.
    pub name: String,
    pub state: PinState,
    /// The canonical text that was approved, and its digest.
    pub approved: Option<String>,
    pub approved_digest: Option<Digest>,
    /// The canonical text that waits or was rejected, and its digest.
    pub waiting: Option<String>,
    pub waiting_digest: Option<Digest>,
    /// A pinned tool that appeared after the first inventory of its upstream's launch, and that no operator has confirmed.
    pub is_new: bool,
    /// Reason for the state.
    pub by: String,
    /// Since when, in seconds since 1970.
    pub since: u64,
}

impl PinView {
    /// `launch`: that of a tool's upstream.
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
    /// The digest for a decision about the shown text.
    pub fn shown(&self) -> Option<Digest> {
        self.waiting_digest.or(self.approved_digest)
    }

    /// JSON for the admin socket; with texts on request.
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
