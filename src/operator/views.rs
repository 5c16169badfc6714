//! The answers to an operator's requests. Their JSON is part of the admin socket's protocol and of
//! the output of `--json`.
#![expect(clippy::wildcard_enum_match_arm, reason = "most views are of no action")]

use serde::{Deserialize, Serialize};

use super::logins::{BegunLoginView, FinishedLoginView, LogoutView, OpenedLogin};
use super::logs::LogView;
use super::pins::{DecidedPinsView, PinDecisionResult, PinView, PinsView};
use super::rekey::RekeyView;
use super::status::StatusView;
use super::tokens::{RevokedTokenView, TokenView, TokensView};
use super::tool::ToolDetail;
use super::tools::ToolsView;
use super::upstreams::RestartedUpstream;
use crate::policy::consent::{ApprovalView, BlockView, GrantView};
use crate::wire::json::raw::RawJson;

pub(crate) use crate::store::approvals::AnswerOutcome;

/// The answer to an operator's request.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum OperatorView {
    Approvals(ApprovalsView),
    Approval(Box<ApprovalView>),
    Answered(AnswerOutcome),
    /// Results of a joint answer, in the order of the approvals. Used by the console alone, never
    /// sent.
    #[serde(skip)]
    AnsweredMany(Vec<Result<AnswerOutcome, String>>),
    Unblocked(EndedBlockView),
    Grants(GrantsView),
    Revoked(RevokedGrants),
    Reviewed(EndedReviewView),
    NoticeSent(SentNoticeView),
    ConsoleLink(ConsoleLink),
    Pins(PinsView),
    Pin(Box<PinView>),
    PinsDecided(DecidedPinsView),
    Restarted(Box<RestartedUpstream>),
    Rekeyed(RekeyView),
    LoginBegun(Box<BegunLoginView>),
    #[serde(skip)]
    LoginOpened(Box<OpenedLogin>),
    LoggedIn(FinishedLoginView),
    LoggedOut(LogoutView),
    Logs(LogView),
    Status(Box<StatusView>),
    TokenAdded(TokenView),
    Tokens(TokensView),
    TokenRevoked(RevokedTokenView),
    Tools(ToolsView),
    Tool(Box<ToolDetail>),
    Challenged(ChallengeView),
    Reloaded(ReloadView),
    Variables(VariablesView),
    /// Result of a call, exactly as the server sent it.
    Raw(RawJson),
    Empty {},
}

impl OperatorView {
    /// Encodes the answer as JSON.
    pub(crate) fn json(&self) -> Result<RawJson, serde_json::Error> {
        match self {
            // Not copied: a result can be large, and its bytes are counted in the byte budget.
            Self::Raw(json) => Ok(json.clone()),
            other => serde_json::to_vec(other).map(RawJson::trusted),
        }
    }

    /// Returns the subject of an action, if only the outcome tells it.
    pub(crate) fn about(&self) -> Option<&str> {
        match self {
            // Records name the upstream, since the id of a login opens its page.
            Self::LoginOpened(opened) => Some(&opened.begun.upstream),
            Self::LoggedIn(done) => Some(&done.upstream),
            _ => None,
        }
    }

    /// Returns the outcome of an action in a few words without secrets, as `Err` if only a part of
    /// it was carried out.
    pub(crate) fn outcome(&self) -> Result<String, String> {
        Ok(match self {
            Self::Answered(answered) => format!("outcome: {}", answered.word),
            Self::AnsweredMany(answered) => {
                let done = answered.iter().filter(|one| one.is_ok()).count();
                let text = format!("answered: {done} of {}", answered.len());
                return if done == answered.len() { Ok(text) } else { Err(text) };
            }
            Self::Unblocked(unblocked) => format!("outcome: {}", unblocked.outcome),
            Self::Revoked(RevokedGrants { revoked }) => format!("revoked: {revoked}"),
            Self::Reviewed(EndedReviewView { outcome }) => format!("outcome: {outcome}"),
            Self::NoticeSent(SentNoticeView { to }) => format!("to: {to}"),
            Self::Pin(pin) => format!("state: {}", pin.state.into_str()),
            Self::PinsDecided(decided) => format!("decided: {}", decided.decided),
            Self::Restarted(restarted) => format!("state: {}", restarted.state),
            Self::Rekeyed(rekeyed) if rekeyed.lost_count > 0 => {
                return Err(format!("sealed: {}, without a key: {}", rekeyed.sealed, rekeyed.lost_count));
            }
            Self::Rekeyed(rekeyed) => format!("sealed: {}", rekeyed.sealed),
            Self::LoginBegun(begun) => format!("issuer: {}", begun.issuer),
            Self::LoginOpened(opened) => format!("issuer: {}", opened.begun.issuer),
            Self::LoggedIn(done) => format!("issuer: {}", done.issuer),
            Self::TokenAdded(TokenView { scopes, .. }) if scopes.is_empty() => "no scopes".to_owned(),
            Self::TokenAdded(TokenView { scopes, .. }) => format!("scopes: {}", scopes.join(" ")),
            Self::TokenRevoked(_) => "revoked".to_owned(),
            Self::LoggedOut(LogoutView { was_there, .. }) => format!("was-there: {was_there}"),
            _ => String::new(),
        })
    }
}

impl From<PinDecisionResult> for OperatorView {
    fn from(decided: PinDecisionResult) -> Self {
        match decided {
            PinDecisionResult::One(pin) => Self::Pin(pin),
            PinDecisionResult::Many(decided) => Self::PinsDecided(decided),
        }
    }
}

/// Open approvals, and blocks that refuse calls for a while.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ApprovalsView {
    pub(crate) approvals: Vec<ApprovalView>,
    pub(crate) blocks: Vec<BlockView>,
}

/// Live grants, and denials in force.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct GrantsView {
    pub(crate) grants: Vec<GrantView>,
    pub(crate) denials: Vec<BlockView>,
}

/// A block that was ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EndedBlockView {
    pub(crate) outcome: String,
    pub(crate) caller: String,
    pub(crate) item: String,
}

/// Number of grants that were revoked.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct RevokedGrants {
    pub(crate) revoked: usize,
}

/// Result of ending the review of a restored store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EndedReviewView {
    pub(crate) outcome: String,
}

/// The notifier that a test notice was sent to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SentNoticeView {
    pub(crate) to: String,
}

/// A one-time link that signs in to the console, and its lifetime in seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ConsoleLink {
    pub(crate) link: String,
    pub(crate) seconds: u64,
    /// The host under which a proxy offers the console.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proxied: Option<String>,
}

/// Whether the following method needs the code that the terminal shows.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ChallengeView {
    pub(crate) needed: bool,
}

/// The environment variables that are unset in the daemon, or have other values there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct VariablesView {
    pub(crate) differing: Vec<String>,
}

/// The changes that a reload made or would make, as text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReloadView {
    pub(crate) plan: String,
}
