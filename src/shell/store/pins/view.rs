//! Pins as people see them.

use serde::{Deserialize, Serialize};

use crate::mcp::definition::app_text::lay_out_app;
use crate::policy::{Digest, PinState};
use crate::store::pin_record::{PinKey, PinKind, PinRecord};
use crate::wire::json::layout::indented;

/// One pin. Texts are an upstream's and must be escaped.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PinView {
    /// Canonical name, or the upstream's name for instructions and a launch.
    pub name: String,
    pub kind: PinKind,
    pub upstream: String,
    pub state: PinState,
    /// Reason for the state.
    #[serde(rename = "why")]
    pub by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Digest of that text.
    pub approved_digest: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Digest of that text.
    pub waiting_digest: Option<Digest>,
    /// The canonical text that was approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved: Option<String>,
    /// The canonical text that waits or was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// A pinned tool that appeared after the first inventory of its upstream's launch, and that no
    /// operator has confirmed.
    #[serde(rename = "new", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_new: bool,
    /// Since when, in seconds since 1970.
    #[serde(default)]
    pub since: u64,
}

impl PinView {
    /// Builds the view of a record. `launch` is the launch record of a tool's upstream; a pinned
    /// tool that is not confirmed for it is shown as new.
    pub(super) fn new(key: &PinKey, record: &PinRecord, launch: Option<&PinRecord>) -> Self {
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

    /// Returns the digest that a decision about the shown text names.
    pub fn shown(&self) -> Option<Digest> {
        self.waiting_digest.or(self.approved_digest)
    }

    /// Lays out one of its texts for people, over several lines.
    pub fn lay_out(&self, text: &str) -> String {
        if self.kind == PinKind::App { lay_out_app(text) } else { indented(text) }
    }

    /// Whether it waits for the operator.
    pub const fn waits(&self) -> bool {
        matches!(self.state, PinState::Changed | PinState::Quarantined)
    }

    #[must_use]
    pub fn without_texts(self) -> Self {
        Self { approved: None, waiting: None, ..self }
    }
}
