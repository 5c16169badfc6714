//! Open approvals, grants and blocks as every face presents them. Their JSON is that of the admin
//! socket, of `--json`, and of the store's rows for other processes.

use serde::{Deserialize, Serialize};

use super::below::{FolderScope, ReservedFolders};
use super::shown::KeptArguments;
use super::view::ArgumentView;
use super::{AgentWait, CallBlock, GrantRow, OpenApproval, SteadySeconds};
use crate::policy::{ApprovalEvidence, Caller, Digest, StatedHints};
use crate::wire::foreign::oddities::TextOddities;
use crate::wire::json::raw::RawJson;

/// An open approval. Dates are seconds since 1970; `age`, `left` and `wait-left` are seconds.
/// A row of a list has no value in the fields from `effect` on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ApprovalView {
    pub id: String,
    pub caller: Caller,
    pub upstream: String,
    /// `tool`, `prompt` or `resource`.
    pub kind: String,
    /// The canonical name.
    pub item: String,
    /// The name by which the client called it.
    pub exposed: String,
    pub rule: String,
    /// The least evidence: `L1`, `L2`, `L3`.
    pub min_evidence: String,
    /// [`OpenApproval::message`].
    pub message: String,
    /// Digest of the message, which an answer names.
    pub digest: String,
    /// True if the server or the operator calls the item destructive.
    pub destructive: bool,
    /// Whether it can be allowed for a session.
    pub session: bool,
    pub opened_at: SteadySeconds,
    pub until: SteadySeconds,
    pub age: SteadySeconds,
    pub left: SteadySeconds,
    /// Whether the agent still waits; only the process that asked knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_left: Option<SteadySeconds>,
    /// The possible effect by the words of those who state it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// One sentence: the result of a yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The name that the client gives itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The item's own description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnings: Option<Vec<String>>,
    /// Bytes of the arguments as they were received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments_bytes: Option<usize>,
    /// The first eight digits of the digests that the answer is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments_digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition_digest: Option<String>,
    /// The exact arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<RawJson>,
    /// The beginning of arguments that are too long to be kept, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments_beginning: Option<String>,
    /// Grants below a folder or for a site that are offered, the narrowest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<Vec<OfferView>>,
    /// The hints on a tool. Known to the process that asked alone.
    #[serde(skip)]
    pub said: StatedHints,
    /// Oddities of arguments and name. Known to the process that asked alone.
    #[serde(skip)]
    pub oddities: TextOddities,
}

/// A grant below a folder or for a site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferView {
    /// The folder, or the URL of the site.
    pub base: String,
    /// Sentences about the calls that it covers.
    pub covers: String,
}

impl From<&FolderScope> for OfferView {
    fn from(below: &FolderScope) -> Self {
        Self { base: below.base().to_owned(), covers: below.told() }
    }
}

impl ApprovalView {
    /// Returns everything about an approval, at no time: see [`Self::at`].
    pub fn new(approval: &OpenApproval, places: &ReservedFolders) -> Self {
        let (asked, shown, message) = (&approval.asked, &approval.shown, approval.message());
        let (arguments, arguments_beginning) = match &shown.arguments {
            KeptArguments::Whole(json) => (Some(RawJson::shared(json)), None),
            KeptArguments::Beginning(text) => (None, Some(text.to_string())),
        };
        Self {
            id: approval.id.to_string(),
            caller: asked.caller.clone(),
            upstream: asked.upstream.to_string(),
            kind: asked.kind.into_str().to_owned(),
            item: asked.item.to_string(),
            exposed: shown.exposed.clone(),
            rule: asked.rule.to_string(),
            min_evidence: asked.need.into_str().to_owned(),
            digest: Digest::of(message.as_bytes()).hex(),
            message,
            destructive: asked.destructive,
            session: asked.session.is_some(),
            opened_at: approval.opened_at,
            until: approval.until,
            effect: Some(approval.effect()),
            outcome: Some(approval.outcome()),
            client: shown.client.as_ref().map(ToString::to_string),
            description: shown.description.clone(),
            warnings: Some(approval.warnings()),
            arguments_bytes: Some(shown.arguments_bytes),
            arguments_digest: Some(asked.arguments.short()),
            definition_digest: Some(asked.definition.short()),
            arguments,
            arguments_beginning,
            below: Some(FolderScope::offers(asked, shown, places).iter().map(OfferView::from).collect()),
            said: shown.said,
            oddities: shown.oddities.clone(),
            ..Self::default()
        }
    }

    /// Sets the age and the time that is left.
    #[must_use]
    pub fn at(self, now: SteadySeconds) -> Self {
        let (age, left) = (now.saturating_sub(self.opened_at), self.until.saturating_sub(now));
        Self { age, left, ..self }
    }

    /// Sets whether the agent still waits, and for how long where that is known.
    #[must_use]
    pub fn with_wait(self, wait: AgentWait) -> Self {
        let wait_left = if let AgentWait::Waits { left } = wait { left } else { None };
        Self { waits: Some(wait != AgentWait::Stopped), wait_left, ..self }
    }

    /// Returns the approval as a row of a list.
    #[must_use]
    pub fn row(self) -> Self {
        Self {
            effect: None,
            outcome: None,
            client: None,
            description: None,
            warnings: None,
            arguments_bytes: None,
            arguments_digest: None,
            definition_digest: None,
            arguments: None,
            arguments_beginning: None,
            below: None,
            ..self
        }
    }

    /// Whether both are of one group: one caller, one item.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.caller == other.caller && self.kind == other.kind && self.item == other.item
    }

    /// Returns the grants below a folder or for a site that are offered.
    pub fn offers(&self) -> &[OfferView] {
        self.below.as_deref().unwrap_or_default()
    }

    /// Returns the arguments as they are shown, in about so many bytes; `None` where they were not
    /// kept.
    pub fn arguments_view(&self, bound: usize) -> Option<ArgumentView> {
        self.arguments.as_ref().map(|json| ArgumentView::of(&json.text(), bound))
    }

    /// Whether that evidence suffices for a yes.
    pub fn is_met_by(&self, evidence: ApprovalEvidence) -> bool {
        self.min_evidence.parse::<ApprovalEvidence>().is_ok_and(|need| need <= evidence)
    }
}

/// A live grant. Dates are seconds since 1970; `last-used` is 0 for never.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct GrantView {
    pub id: String,
    pub caller: String,
    pub upstream: String,
    pub kind: String,
    pub item: String,
    pub rule: String,
    /// `once`, `session`, `until` or `until-changed`.
    pub lifetime: String,
    /// `exact`, `any` or `below`.
    pub arguments: String,
    pub evidence: String,
    pub by: String,
    pub definition: String,
    pub launch: String,
    /// The folder or site that it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<String>,
    /// The places in the arguments that have to lie below it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub judges: Vec<String>,
    /// Sentences about the calls that it covers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covers: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<SteadySeconds>,
    pub granted_at: SteadySeconds,
    pub last_used: SteadySeconds,
    pub uses: u64,
    #[serde(skip)]
    pub destructive: bool,
}

impl From<&GrantRow> for GrantView {
    fn from(row: &GrantRow) -> Self {
        let (asked, below) = (&row.asked, row.arguments.below());
        Self {
            id: row.id.to_string(),
            caller: asked.caller.to_string(),
            upstream: asked.upstream.to_string(),
            kind: asked.kind.into_str().to_owned(),
            item: asked.item.to_string(),
            rule: asked.rule.to_string(),
            lifetime: row.lifetime.into_str().to_owned(),
            arguments: row.arguments.into_str().to_owned(),
            evidence: row.evidence.into_str().to_owned(),
            by: row.by.to_string(),
            definition: asked.definition.short(),
            launch: asked.launch.short(),
            below: below.map(|below| below.base().to_owned()),
            judges: below.map(|below| below.judged().iter().map(ToString::to_string).collect()).unwrap_or_default(),
            covers: below.map(|below| below.told()),
            until: row.lifetime.until(),
            granted_at: row.granted_at,
            last_used: row.last_used,
            uses: row.uses,
            destructive: asked.destructive,
        }
    }
}

/// A refusal of calls for a while; one of a denial says who denied what. Dates are seconds since
/// 1970, `left` is in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct BlockView {
    pub id: String,
    pub caller: String,
    pub item: String,
    /// The name that the client gives itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The person who denied it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied_at: Option<SteadySeconds>,
    pub until: SteadySeconds,
    pub left: SteadySeconds,
}

impl BlockView {
    pub fn new(block: &CallBlock, now: SteadySeconds) -> Self {
        let denial = block.denial.as_ref();
        Self {
            id: block.id.to_string(),
            caller: block.caller.to_string(),
            item: block.item.to_string(),
            client: block.client.as_ref().map(ToString::to_string),
            by: denial.map(|denial| denial.by.to_string()),
            kind: denial.map(|denial| denial.asked.kind.into_str().to_owned()),
            rule: denial.map(|denial| denial.asked.rule.to_string()),
            evidence: denial.map(|denial| denial.evidence.into_str().to_owned()),
            denied_at: denial.map(|denial| denial.at),
            until: block.until,
            left: block.until.saturating_sub(now),
        }
    }

    /// Whether a person denied the call.
    pub const fn is_denial(&self) -> bool {
        self.denied_at.is_some()
    }

    /// The name that the client gives itself, where it gives one.
    pub fn client_name(&self) -> Option<&str> {
        self.client.as_deref().filter(|client| !client.is_empty())
    }
}
