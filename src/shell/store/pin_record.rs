//! Records of pinned definitions and launches, and the steps that change them.

use std::path::PathBuf;
use std::sync::Arc;

use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::catalog::name::{UpstreamName, canonical_name, canonical_uri};
use crate::mcp::definition::item::Definition;
use crate::mcp::method::ItemList;
use crate::policy::{
    ChangePolicy, ConfirmedLaunches, Digest, Hints, Pin, PinDecisionError, PinState, PinStatus, ToolListing,
    UpstreamTrust,
};
use crate::wire::json::raw::{RawJson, RawObject};

mod forms;
mod launch_text;
mod sealed_text;

pub use self::forms::{ListedDefinition, PinTextForms};
pub use self::launch_text::is_private;
pub(in crate::store) use self::launch_text::{configured_part, describe_launch};
pub(in crate::store) use self::sealed_text::{launch_place, open_text, seal_text};

/// The kind of thing that a pin is about.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    EnumString,
    IntoStaticStr,
    VariantArray,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum PinKind {
    Tool,
    Prompt,
    Resource,
    Template,
    /// The content of a view, and what it asks of its host.
    App,
    /// The text about its use that an upstream gives to clients in the handshake.
    Instructions,
    /// The way in which an upstream is started or reached.
    Launch,
}

impl PinKind {
    pub const fn of(list: ItemList) -> Self {
        match list {
            ItemList::Tools => Self::Tool,
            ItemList::Prompts => Self::Prompt,
            ItemList::Resources => Self::Resource,
            ItemList::Templates => Self::Template,
        }
    }
}

/// The identity of a pin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PinKey {
    pub upstream: UpstreamName,
    pub kind: PinKind,
    /// The upstream's own name or URI of the item; empty for instructions and a launch.
    pub name: String,
}

impl PinKey {
    pub fn launch(upstream: &UpstreamName) -> Self {
        Self { upstream: upstream.clone(), kind: PinKind::Launch, name: String::new() }
    }

    pub fn instructions(upstream: &UpstreamName) -> Self {
        Self { upstream: upstream.clone(), kind: PinKind::Instructions, name: String::new() }
    }

    pub fn app(upstream: &UpstreamName, uri: &str) -> Self {
        Self { upstream: upstream.clone(), kind: PinKind::App, name: uri.to_owned() }
    }

    /// Returns the name that people see: the canonical name, or the upstream's name for
    /// instructions and a launch.
    pub fn canonical(&self) -> String {
        match self.kind {
            PinKind::Tool | PinKind::Prompt => canonical_name(&self.upstream, &self.name),
            PinKind::Resource | PinKind::Template | PinKind::App => canonical_uri(&self.upstream, &self.name),
            PinKind::Instructions | PinKind::Launch => self.upstream.to_string(),
        }
    }
}

/// A pin with the texts of its digests, and the reason for its state.
#[derive(Clone, Debug)]
pub struct PinRecord {
    pub pin: Pin,
    pub approved: Option<Arc<str>>,
    pub waiting: Option<Arc<str>>,
    /// The person or circumstance behind the state.
    pub by: Arc<str>,
    /// Time of the last change, in seconds since 1970.
    pub at: u64,
    /// Confirmations of a tool, or of a launch's inventory; unused for other kinds.
    pub confirmed: ConfirmedLaunches,
    /// The approved and waiting digests whose texts were in doubt when they were listed.
    pub doubted: Vec<Digest>,
    pub forms: PinTextForms,
}

/// A text and its digest.
#[derive(Clone, Debug)]
pub struct PinText {
    pub digest: Digest,
    pub text: Arc<str>,
}

/// An event that changes a pin.
#[derive(Clone, Debug)]
pub enum PinStep {
    /// The upstream lists the item.
    Seen {
        text: PinText,
        listed: ListedDefinition,
        trust: UpstreamTrust,
        on_change: ChangePolicy,
        doubt: Option<String>,
        /// The complete reading of the tools; `None` if the list may not be complete.
        reading: Option<ToolListing>,
        /// True if every client sees the item.
        is_for_all: bool,
    },
    /// The upstream has listed all of its tools. A step of its launch, taken after the steps of the
    /// tools.
    Listed(ToolListing),
    /// The upstream is to be started. `words` is the part of the text that the configuration says;
    /// `folders` are those of `launch_text::is_equivalent`.
    Started {
        text: PinText,
        words: String,
        trust: UpstreamTrust,
        folders: Vec<PathBuf>,
    },
    Approve {
        shown: Digest,
        by: Arc<str>,
    },
    Reject {
        shown: Digest,
        by: Arc<str>,
    },
}

impl PinStep {
    /// Returns the person who decides; `None` for a step of an upstream.
    pub(in crate::store) const fn by(&self) -> Option<&Arc<str>> {
        match self {
            Self::Approve { by, .. } | Self::Reject { by, .. } => Some(by),
            Self::Seen { .. } | Self::Listed(_) | Self::Started { .. } => None,
        }
    }
}

impl PinRecord {
    /// Returns true if there is a text for each digest. A sealed text without its key is missing.
    fn has_texts(&self) -> bool {
        self.pin.approved().is_some() == self.approved.is_some()
            && self.pin.waiting().is_some() == self.waiting.is_some()
    }

    /// Returns true if the records differ in anything but author and time, so that the later one
    /// has to be stored.
    pub fn differs(&self, after: &Self) -> bool {
        self.pin != after.pin
            || self.approved.is_some() != after.approved.is_some()
            || self.waiting.is_some() != after.waiting.is_some()
            || self.confirmed != after.confirmed
            || self.doubted != after.doubted
    }

    /// Returns the digest under which this pin knows a listed item: the approved or the waiting one
    /// if the texts differ only by order without meaning, or by repairs that an earlier version did
    /// not make; else the item's own.
    ///
    /// A rejected text stays rejected in any order, unless the item is exactly the approved text.
    pub fn known_as(&self, listed: ListedDefinition) -> Digest {
        let (approved, waiting) = (self.pin.approved(), self.pin.waiting());
        if waiting.is_none() && approved == Some(listed.digest) {
            return listed.digest;
        }
        let pinned_text = self.forms.approved(self.approved.as_ref());
        let waiting_text = self.forms.waiting(self.waiting.as_ref());
        let is_pinned = || approved.is_some_and(|digest| pinned_text.is_of(digest, listed));
        let is_waiting = || waiting.is_some_and(|digest| waiting_text.is_of(digest, listed));
        let is_rejected = self.pin.state() == PinState::Rejected && !pinned_text.is_exactly(listed);
        let known = if is_rejected && is_waiting() {
            waiting
        } else if is_pinned() {
            approved
        } else if is_waiting() {
            waiting
        } else {
            None
        };
        known.unwrap_or(listed.digest)
    }

    /// Returns the item in its approved form; `None` if it is listed in that form already.
    pub(in crate::store) fn shown(&self, item: &Definition, digest: Digest) -> Option<Definition> {
        let is_same =
            digest == item.digest && self.forms.approved(self.approved.as_ref()).is_exactly(ListedDefinition::of(item));
        let text = self.approved.as_deref().filter(|_| !is_same)?;
        Some(item.pinned_as(digest, text))
    }

    /// Returns the digest that clients may see, or for a launch the one that may be started; `None`
    /// unless the pin is plainly pinned.
    pub(in crate::store) fn visible(&self) -> Option<Digest> {
        self.pin.approved().filter(|_| self.pin.state() == PinState::Pinned)
    }

    /// For a launch: returns true if a tool of this reading belongs to the launch's first
    /// inventory.
    pub(in crate::store) fn takes(&self, reading: ToolListing, is_for_all: bool) -> bool {
        self.visible() == Some(reading.launch) && self.confirmed.takes(reading, is_for_all)
    }

    /// For a launch: returns its confirmations after its server has listed all of its tools. Only
    /// the launch that `visible` returns gains confirmations; for another launch they stay as they
    /// are.
    pub(in crate::store) fn after(&self, reading: ToolListing) -> ConfirmedLaunches {
        if self.visible() == Some(reading.launch) { self.confirmed.after(reading) } else { self.confirmed }
    }

    /// For a tool: returns true if the launch is approved and the tool is not confirmed for it.
    pub(in crate::store) fn awaits_confirmation(&self, launch: Option<&Self>) -> bool {
        launch.and_then(Self::visible).is_some_and(|launch| !self.confirmed.is_for(launch))
    }

    /// For a tool with this definition: returns whether it is new and whether its text is in doubt.
    /// Without an approved launch it is new.
    pub(in crate::store) fn standing(&self, launch: Option<&Self>, digest: Digest) -> PinStatus {
        if self.visible() != Some(digest) {
            return PinStatus::default();
        }
        let launch = launch.and_then(Self::visible);
        let is_new = launch.is_none_or(|launch| !self.confirmed.is_for(launch));
        PinStatus { is_new, is_doubtful: self.doubted.contains(&digest) }
    }

    /// Returns a reason if the hints of this text promise more than those of the approved text;
    /// such a text waits even if `on-change` accepts changes. An approved text that cannot be read
    /// counts as one without hints.
    fn loosened_by(&self, text: &PinText) -> Option<String> {
        let hints = |text: &str| {
            let definition = RawObject::parse(&RawJson::trusted(text.to_owned()));
            definition.as_ref().map(Hints::in_any_case).unwrap_or_default()
        };
        let pinned = self.approved.as_deref().map(hints).unwrap_or_default();
        let is_other = self.pin.approved() != Some(text.digest);
        (is_other && hints(&text.text).loosen(&pinned)).then(|| "its hints promise more than before".to_owned())
    }

    /// Computes the record after a step. `launch` is the launch record of the upstream, if the step
    /// is about a tool.
    ///
    /// # Errors
    /// [`PinDecisionError`], if an operator's decision does not apply; the record stays as it is.
    pub fn step(
        before: Option<&Self>,
        launch: Option<&Self>,
        step: &PinStep,
        now: u64,
    ) -> Result<Self, PinDecisionError> {
        let mut confirmed = before.map(|before| before.confirmed).unwrap_or_default();
        let mut doubted = before.map(|before| before.doubted.clone()).unwrap_or_default();
        let (pin, by) = match step {
            PinStep::Seen { text, listed, trust, on_change, doubt, reading, is_for_all } => {
                let digest = before.map_or(listed.digest, |before| before.known_as(*listed));
                if doubt.is_some() && !doubted.contains(&digest) {
                    doubted.push(digest);
                }
                let is_first = |reading: &ToolListing| launch.is_some_and(|launch| launch.takes(*reading, *is_for_all));
                if let Some(reading) = reading.filter(is_first) {
                    confirmed = confirmed.and_for(reading.launch);
                }
                let loosened = || before.and_then(|before| before.loosened_by(text));
                seen(before, digest, (*trust, *on_change), &doubt.clone().or_else(loosened))
            }
            PinStep::Listed(reading) => {
                let before = before.ok_or(PinDecisionError::NothingWaits)?;
                confirmed = before.after(*reading);
                (before.pin, Arc::clone(&before.by))
            }
            PinStep::Started { text, words, trust, folders } => started(before, text, words, *trust, folders),
            PinStep::Approve { shown, by } => {
                let before = before.ok_or(PinDecisionError::NothingWaits)?;
                let is_new = before.awaits_confirmation(launch);
                let pin = match before.pin.approve(*shown) {
                    Err(PinDecisionError::NothingWaits) if is_new && before.pin.approved() == Some(*shown) => {
                        before.pin
                    }
                    Err(PinDecisionError::NothingWaits) if is_new => return Err(PinDecisionError::ChangedSince),
                    approved => approved?,
                };
                confirmed = launch.and_then(Self::visible).map_or(confirmed, |launch| confirmed.and_for(launch));
                (pin, Arc::clone(by))
            }
            PinStep::Reject { shown, by } => {
                (before.ok_or(PinDecisionError::NothingWaits)?.pin.reject(*shown)?, Arc::clone(by))
            }
        };
        doubted.retain(|digest| pin.approved() == Some(*digest) || pin.waiting() == Some(*digest));
        if let Some(before) = before.filter(|before| before.pin == pin && before.has_texts()) {
            let is_decided = matches!(step, PinStep::Approve { .. });
            let (by, at) = if is_decided { (by, now) } else { (Arc::clone(&before.by), before.at) };
            return Ok(Self { confirmed, doubted, by, at, ..before.clone() });
        }
        let fresh = match step {
            PinStep::Seen { text, .. } | PinStep::Started { text, .. } => Some((text.digest, &text.text)),
            PinStep::Listed(_) | PinStep::Approve { .. } | PinStep::Reject { .. } => None,
        };
        let old = before.map(|b| [b.pin.approved().zip(b.approved.as_ref()), b.pin.waiting().zip(b.waiting.as_ref())]);
        let text = |digest: Digest| {
            let texts = old.iter().flatten().flatten().copied().chain(fresh);
            texts.into_iter().find(|(known, _)| *known == digest).map(|(_, text)| Arc::clone(text))
        };
        let (approved, waiting) = (pin.approved().and_then(text), pin.waiting().and_then(text));
        Ok(match before.filter(|before| before.pin == pin) {
            // The pin is the same, and texts that could not be unsealed before are there now.
            Some(before) => {
                Self { approved, waiting, confirmed, doubted, forms: PinTextForms::default(), ..before.clone() }
            }
            None => Self { pin, approved, waiting, by, at: now, confirmed, doubted, forms: PinTextForms::default() },
        })
    }
}

impl PinRecord {
    /// Returns the approved digest if a launch is the approved one, or is equivalent: it has the
    /// same words and leads to another version of its program.
    pub(in crate::store) fn approved_as(&self, launch: &PinText, folders: &[PathBuf]) -> Option<Digest> {
        let approved = self.pin.approved()?;
        let is_same = |text: &Arc<str>| launch_text::is_equivalent(text, &launch.text, folders);
        (approved == launch.digest || self.approved.as_ref().is_some_and(is_same)).then_some(approved)
    }
}

fn seen(
    before: Option<&PinRecord>,
    digest: Digest,
    (trust, on_change): (UpstreamTrust, ChangePolicy),
    doubt: &Option<String>,
) -> (Pin, Arc<str>) {
    let doubtful = doubt.is_some();
    let pin = match before {
        None => Pin::first(digest, trust, doubtful),
        Some(before) => before.pin.see(digest, on_change, doubtful),
    };
    let why = match (pin.state(), before.map(|before| before.pin.state())) {
        (PinState::Pinned, None) => "first sight",
        (PinState::Pinned, Some(_)) if before.is_some_and(|before| before.pin.approved() == Some(digest)) => {
            "it is back"
        }
        (PinState::Pinned, Some(_)) => "on-change",
        _ => doubt.as_deref().unwrap_or(match pin.state() {
            PinState::Quarantined if trust == UpstreamTrust::Untrusted => "the upstream is untrusted",
            PinState::Pinned | PinState::Quarantined | PinState::Changed | PinState::Rejected => {
                "the upstream changed it"
            }
        }),
    };
    (pin, Arc::from(why))
}

fn started(
    before: Option<&PinRecord>,
    text: &PinText,
    words: &str,
    trust: UpstreamTrust,
    folders: &[PathBuf],
) -> (Pin, Arc<str>) {
    let digest = text.digest;
    let Some(before) = before else { return (Pin::at(digest), Arc::from("first sight")) };
    if let Some(approved) = before.approved_as(text, folders) {
        return (Pin::at(approved), Arc::from("it is back"));
    }
    let has_words = |text: Option<&Arc<str>>| text.is_some_and(|text| configured_part(text) == words);
    let same = before.pin.waiting() == Some(digest) || has_words(before.waiting.as_ref());
    if before.pin.state() == PinState::Rejected && same {
        return (before.pin.see(digest, ChangePolicy::Quarantine, false), Arc::clone(&before.by));
    }
    let same_words = has_words(before.approved.as_ref());
    if same_words {
        return (
            before.pin.see(digest, ChangePolicy::Quarantine, false),
            Arc::from("the same words lead to another program"),
        );
    }
    (before.pin.named(digest, trust), Arc::from("the configuration changed"))
}
