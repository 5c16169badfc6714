//! A parsed line of the audit log, for searches. Its texts borrow from the line.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{LineParts, facts};
use crate::policy::action::ToolFacts;

/// The members of a record that searches and reports use. Other members are left out.
#[derive(Debug, serde::Deserialize)]
pub struct AuditLine<'l> {
    pub seq: u64,
    #[serde(borrow)]
    pub ts: Cow<'l, str>,
    #[serde(borrow)]
    pub event: Cow<'l, str>,
    pub call: Option<Cow<'l, str>>,
    pub caller: Option<Cow<'l, str>>,
    pub client: Option<Cow<'l, str>>,
    pub profile: Option<Cow<'l, str>>,
    pub upstream: Option<Cow<'l, str>>,
    pub kind: Option<Cow<'l, str>>,
    pub item: Option<Cow<'l, str>>,
    hints: Option<Cow<'l, str>>,
    claims: Option<Cow<'l, str>>,
    #[serde(default)]
    heard: bool,
    args: Option<Cow<'l, str>>,
    #[serde(borrow)]
    arguments: Option<&'l RawValue>,
    #[serde(rename = "arguments-bytes")]
    arguments_bytes: Option<u64>,
    pub result: Option<Cow<'l, str>>,
    pub rule: Option<Cow<'l, str>>,
    pub grant: Option<Cow<'l, str>>,
    #[serde(rename = "prompt")]
    pub approval: Option<Cow<'l, str>>,
    pub evidence: Option<Cow<'l, str>>,
    pub by: Option<Cow<'l, str>>,
    pub count: Option<u64>,
    pub why: Option<Cow<'l, str>>,
    /// Duration of the call, in microseconds.
    pub us: Option<u64>,
}

/// The arguments of a call, as far as its record has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedArguments<'l> {
    /// The call had no arguments.
    None,
    /// All arguments, as canonical JSON.
    Whole(&'l str),
    /// Only a digest, or the beginning of the arguments.
    Not,
}

impl<'l> AuditLine<'l> {
    /// Parses a line without its newline. Returns `None` if it is no record or its own hash is
    /// wrong. Does not check that it follows the record before it; `headend audit verify` does
    /// that.
    pub fn read(line: &'l [u8]) -> Option<Self> {
        let parts = LineParts::of(line)?;
        if parts.computed() != parts.hash {
            return None;
        }
        serde_json::from_slice(line).ok()
    }

    /// Returns the arguments of the call.
    pub fn arguments(&self) -> LoggedArguments<'l> {
        match (&self.args, self.arguments) {
            (None, None) => LoggedArguments::None,
            (_, Some(raw)) if self.arguments_bytes.is_none() => LoggedArguments::Whole(raw.get()),
            _ => LoggedArguments::Not,
        }
    }

    /// Returns the arguments as the log has them, cut or whole, for people.
    pub fn shown_arguments(&self) -> Option<&'l str> {
        self.arguments.map(RawValue::get)
    }

    /// Returns the facts about the tool at that time; `None` in a record of an earlier release and
    /// for other items.
    pub fn facts(&self) -> Option<ToolFacts> {
        facts::read(self.hints.as_deref()?, self.claims.as_deref().unwrap_or_default(), self.heard)
    }
}
