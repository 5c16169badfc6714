//! Open approvals that a daemon passes to the one that takes over.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ApprovalCall, ApprovalDesk, CARRIED, DeskEntry, MAX_APPROVALS};
use crate::mcp::client_name::ClientName;
use crate::mcp::definition::annotations::{Hints, StatedHints};
use crate::policy::caller::Caller;
use crate::policy::consent::{
    ApprovalId, ApprovalSubject, CallDetails, KeptArguments, OpenApproval, SteadySeconds, parse_askable_kind,
};
use crate::wire::digest::Digest;
use crate::wire::foreign::oddities::TextOddities;

/// An open approval for which no call waits, in a form for another process. The session of its
/// client is left out: its number counts in one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedApproval {
    id: String,
    caller: String,
    upstream: String,
    kind: String,
    item: String,
    definition: String,
    launch: String,
    arguments: String,
    rule: String,
    need: String,
    destructive: bool,
    exposed: String,
    /// Arguments kept whole as JSON; `None` if only `beginning` is kept.
    whole: Option<String>,
    beginning: String,
    arguments_bytes: usize,
    oddities: TextOddities,
    server: Hints,
    operator: Hints,
    description: Option<String>,
    /// The name and the version that the client gives itself.
    client: Option<(String, Option<String>)>,
    bare: Option<String>,
    opened_at: SteadySeconds,
    until: SteadySeconds,
    /// Time since 1970 at which the client was asked in the answer of its call.
    asked_at: Option<Duration>,
}

impl PassedApproval {
    fn new(approval: OpenApproval, asked_at: Option<Duration>) -> Self {
        let OpenApproval { id, asked, shown, opened_at, until } = approval;
        let (whole, beginning) = match shown.arguments {
            KeptArguments::Whole(json) => (Some(json.to_string()), String::new()),
            KeptArguments::Beginning(text) => (None, text.to_string()),
        };
        let owned = |text: &Arc<str>| text.to_string();
        Self {
            id: id.to_string(),
            caller: asked.caller.key().to_owned(),
            upstream: owned(&asked.upstream),
            kind: asked.kind.into_str().to_owned(),
            item: owned(&asked.item),
            definition: asked.definition.hex(),
            launch: asked.launch.hex(),
            arguments: asked.arguments.hex(),
            rule: owned(&asked.rule),
            need: asked.need.into_str().to_owned(),
            destructive: asked.destructive,
            exposed: shown.exposed,
            whole,
            beginning,
            arguments_bytes: shown.arguments_bytes,
            oddities: shown.oddities,
            server: shown.said.server,
            operator: shown.said.operator,
            description: shown.description,
            client: shown.client.map(|client| (owned(&client.name), client.version.as_ref().map(owned))),
            bare: shown.bare,
            opened_at,
            until,
            asked_at,
        }
    }

    /// Returns the id of the approval; `None` if it is not valid.
    pub fn id(&self) -> Option<ApprovalId> {
        ApprovalId::parse(&self.id)
    }

    /// Reads the approval; `None` if it has a word that this program does not know.
    fn read(self) -> Option<(OpenApproval, Option<Duration>)> {
        let digest = |hex: &str| Digest::from_hex(hex);
        let asked = ApprovalSubject {
            caller: Caller::from_key(&self.caller)?,
            session: None,
            upstream: self.upstream.into(),
            kind: parse_askable_kind(&self.kind)?,
            item: self.item.into(),
            definition: digest(&self.definition)?,
            launch: digest(&self.launch)?,
            arguments: digest(&self.arguments)?,
            rule: self.rule.into(),
            need: self.need.parse().ok()?,
            destructive: self.destructive,
        };
        let client =
            self.client.map(|(name, version)| ClientName { name: name.into(), version: version.map(Arc::from) });
        let shown = CallDetails {
            exposed: self.exposed,
            arguments: match self.whole {
                Some(json) => KeptArguments::Whole(json.into()),
                None => KeptArguments::Beginning(self.beginning.into()),
            },
            arguments_bytes: self.arguments_bytes,
            oddities: self.oddities,
            said: StatedHints { server: self.server, operator: self.operator },
            description: self.description,
            client,
            bare: self.bare,
        };
        let (id, opened_at, until) = (ApprovalId::parse(&self.id)?, self.opened_at, self.until);
        Some((OpenApproval { id, asked, shown, opened_at, until }, self.asked_at))
    }
}

impl ApprovalDesk {
    /// Returns the approvals for which no call waits.
    pub fn unheld(&self) -> Vec<ApprovalId> {
        let unheld = self.approvals.values().filter(|entry| entry.tie != ApprovalCall::Held);
        unheld.map(|entry| entry.approval.id).collect()
    }

    /// Removes an approval for which no call waits, to be adopted by another process.
    pub fn pass_on(&mut self, id: &ApprovalId) -> Option<PassedApproval> {
        let asked_at = self.asked_at(id);
        let entry = self.approvals.get(id).filter(|entry| entry.tie != ApprovalCall::Held)?;
        let number = entry.approval.id;
        self.approvals.remove(&number).map(|entry| PassedApproval::new(entry.approval, asked_at))
    }

    /// Adds an approval that another process has passed on. Returns it; `None` if it cannot be
    /// read, is known already, or finds no room.
    pub fn adopt(&mut self, passed: PassedApproval) -> Option<&OpenApproval> {
        let (approval, asked_at) = passed.read()?;
        let id = approval.id;
        if self.approvals.len() >= MAX_APPROVALS || self.approvals.contains_key(&id) {
            return None;
        }
        let carried = |asked_at: Duration| ApprovalCall::Carried { until: asked_at.as_secs() + CARRIED, asked_at };
        self.opened += 1;
        let tie = asked_at.map_or(ApprovalCall::Free, carried);
        self.approvals.insert(id, DeskEntry { approval, tie, waits_until: None, number: self.opened });
        self.get(&id)
    }
}
