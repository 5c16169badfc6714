//! An operator's requests and their params: the methods of the admin socket, and the requests that
//! only the console makes.
#![expect(clippy::wildcard_enum_match_arm, reason = "most requests have no subject and no number")]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use self::RequestEffect::{Act, Elsewhere, Look};
use super::pins::{PinDecision, PinKind};
use super::rekey::RekeyParams;
use crate::login::authorize::LoginCallback;
use crate::policy::{Digest, OperatorAction};
use crate::wire::json::raw::RawJson;

pub(crate) use crate::store::approvals::OperatorAnswer;

/// The effect of a request, as far as the audit log is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEffect {
    /// The request changes nothing.
    Look,
    /// The request is an action, which is recorded.
    Act(OperatorAction),
    /// The request is recorded by the code that carries it out: a call as a decision, a reload
    /// together with reloads by signal, a wrong code at most once a minute.
    Elsewhere,
}

/// A request on the admin socket whose params cannot be read.
#[derive(Debug)]
pub(crate) struct MalformedRequest {
    pub(crate) effect: RequestEffect,
    pub(crate) why: String,
}

/// Defines [`Request`] from one table: first the methods of the admin socket, then the requests of
/// the console.
macro_rules! requests {
    (
        socket { $($(#[$doc:meta])* $name:ident($params:ty) = $method:literal, $effect:expr;)+ }
        console { $($(#[$own_doc:meta])* $own:ident($own_params:ty), $own_effect:expr;)+ }
    ) => {
        /// An operator's request.
        #[derive(Clone, Debug)]
        pub(crate) enum Request {
            $($(#[$doc])* $name($params),)+
            $($(#[$own_doc])* $own($own_params),)+
        }

        impl Request {
            /// Methods of the admin socket, with their effects.
            #[cfg(test)]
            pub(crate) const METHODS: &[(&str, RequestEffect)] = &[$(($method, $effect)),+];

            /// Reads a request of the admin socket; `None` if there is no such method.
            pub(crate) fn parse(method: &str, params: &RawJson) -> Option<Result<Self, MalformedRequest>> {
                if method == "call" {
                    // Not parsed here: the arguments of a call can be large, and their bytes are
                    // counted in the byte budget.
                    return Some(Ok(Self::Call(params.clone())));
                }
                Some(match method {
                    $($method => params
                        .parse()
                        .map(Self::$name)
                        .map_err(|error| MalformedRequest { effect: $effect, why: format!("params: {error}") }),)+
                    _ => return None,
                })
            }

            /// Returns the method and the JSON params of this request for the admin socket.
            ///
            /// # Errors
            /// The request is the console's alone and has no method on the socket.
            pub(crate) fn written(&self) -> Result<(&'static str, String), serde_json::Error> {
                Ok(match self {
                    $(Self::$name(params) => ($method, serde_json::to_string(params)?),)+
                    $(Self::$own(_) => return Err(serde::ser::Error::custom("no method of the socket")),)+
                })
            }

            /// Returns the effect of this request.
            pub(crate) fn effect(&self) -> RequestEffect {
                match self {
                    Self::Answer(AnswerParams { answer: OperatorAnswer::Deny, .. })
                    | Self::AnswerMany(AnswerManyParams { answer: OperatorAnswer::Deny, .. }) => Act(OperatorAction::Deny),
                    Self::Switch(SwitchParams { on: false, .. }) => Act(OperatorAction::Disable),
                    $(Self::$name(_) => $effect,)+
                    $(Self::$own(_) => $own_effect,)+
                }
            }
        }
    };
}

requests! {
    socket {
        /// Answers an open approval.
        Answer(AnswerParams) = "approvals.answer", Act(OperatorAction::Approve);
        Approvals(NoParams) = "approvals.list", Look;
        /// Sends a test notice of an approval.
        TryNotice(NoParams) = "approvals.notify", Act(OperatorAction::Notify);
        Approval(IdParams) = "approvals.show", Look;
        /// Ends a block or takes a denial back.
        Unblock(IdParams) = "approvals.unblock", Act(OperatorAction::Unblock);
        /// Calls a tool.
        Call(RawJson) = "call", Elsewhere;
        /// Makes a link that signs in to the console.
        LinkConsole(NoParams) = "console.link", Act(OperatorAction::ConsoleLink);
        Grants(NoParams) = "grants.list", Look;
        /// Ends the review of a restored store.
        Review(NoParams) = "grants.reviewed", Act(OperatorAction::Review);
        Revoke(RevokeParams) = "grants.revoke", Act(OperatorAction::Revoke);
        BeginLogin(LoginParams) = "login.begin", Act(OperatorAction::LoginBegin);
        /// Finishes a login with the address at which its browser ended.
        PasteLogin(PasteParams) = "login.paste", Act(OperatorAction::LoginEnd);
        /// Waits for the end of a login.
        AwaitLogin(IdParams) = "login.wait", Look;
        LogOut(NameParams) = "logout", Act(OperatorAction::Logout);
        Logs(LogsParams) = "logs", Look;
        /// Asks whether the method that follows needs a code; if so, the daemon shows one on the
        /// terminal.
        Challenge(ChallengeParams) = "operator.challenge", Look;
        /// Sends the code that the terminal shows.
        Prove(ProveParams) = "operator.prove", Elsewhere;
        ApprovePins(PinsParams) = "pins.approve", Act(OperatorAction::PinsApprove);
        /// Shows one pin with its texts.
        Pin(PinName) = "pins.diff", Look;
        Pins(NoParams) = "pins.list", Look;
        RejectPins(PinsParams) = "pins.reject", Act(OperatorAction::PinsReject);
        /// Shows several pins with their texts.
        PinTexts(PinItems) = "pins.show", Look;
        Reload(ReloadParams) = "reload", Elsewhere;
        Restart(NameParams) = "restart", Act(OperatorAction::Restart);
        /// Seals the values of the store anew with the present key.
        Rekey(RekeyParams) = "secrets.rekey", Act(OperatorAction::Rekey);
        Status(NoParams) = "status", Look;
        /// Keeps the digest of a client's token.
        AddToken(AddTokenParams) = "tokens.add", Act(OperatorAction::TokenAdd);
        Tokens(NoParams) = "tokens.list", Look;
        RevokeToken(NameParams) = "tokens.revoke", Act(OperatorAction::TokenRevoke);
        Tools(ToolsParams) = "tools", Look;
        Tool(NameParams) = "tools.show", Look;
        /// Compares the daemon's environment with that of a command.
        Variables(VariablesParams) = "variables", Look;
    }
    console {
        /// Answers several approvals as they were shown.
        AnswerMany(AnswerManyParams), Act(OperatorAction::Approve);
        /// Switches an upstream off until the daemon ends, or on again.
        Switch(SwitchParams), Act(OperatorAction::Enable);
        /// Binds a login to the browser that opens its link.
        OpenLogin(IdParams), Act(OperatorAction::LoginOpen);
        /// Finishes the login that a call-back belongs to.
        EndLogin(EndLoginParams), Act(OperatorAction::LoginEnd);
    }
}

impl Request {
    /// Returns true if a person must prove to be at the terminal for this request, when the
    /// configuration asks for proofs.
    pub(crate) const fn is_guarded(&self) -> bool {
        matches!(
            self,
            Self::Answer(_) | Self::Unblock(_) | Self::ApprovePins(_) | Self::RejectPins(_) | Self::LinkConsole(_)
        )
    }

    /// Returns the subject of an action, for its audit record.
    pub(crate) fn about(&self) -> Option<String> {
        match self {
            Self::Answer(AnswerParams { id, .. }) | Self::Unblock(IdParams { id }) => Some(id.clone()),
            Self::Revoke(RevokeParams { all: true, .. }) => Some("all".to_owned()),
            Self::Revoke(RevokeParams { id, .. }) => id.clone(),
            Self::ApprovePins(pins) | Self::RejectPins(pins) => pins.name.clone().filter(|_| pins.items.is_none()),
            Self::BeginLogin(LoginParams { name, .. })
            | Self::LogOut(NameParams { name })
            | Self::Restart(NameParams { name })
            | Self::AddToken(AddTokenParams { name, .. })
            | Self::RevokeToken(NameParams { name })
            | Self::Switch(SwitchParams { name, .. }) => Some(name.clone()),
            _ => None,
        }
    }

    /// Returns the number of subjects of an action that names several.
    pub(crate) fn count(&self) -> Option<usize> {
        match self {
            Self::AnswerMany(AnswerManyParams { members, .. }) => Some(members.len()),
            Self::ApprovePins(pins) | Self::RejectPins(pins) => pins.items.as_ref().map(Vec::len),
            _ => None,
        }
    }
}

/// The params of a method that has none.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct NoParams {}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct IdParams {
    pub(crate) id: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NameParams {
    pub(crate) name: String,
}

/// A new token of a client. The token itself stays with the command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AddTokenParams {
    pub(crate) name: String,
    pub(crate) digest: Digest,
    #[serde(default)]
    pub(crate) scopes: Vec<String>,
    /// Seconds until the token expires; `None` for a token that lasts until it is revoked.
    #[serde(default)]
    pub(crate) lifetime: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AnswerParams {
    pub(crate) id: String,
    pub(crate) answer: OperatorAnswer,
    /// Digest of the approval as it was shown to the person.
    #[serde(default)]
    pub(crate) digest: Option<Digest>,
}

/// An approval, named together with the digest of what was shown of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApprovalDigest {
    pub(crate) id: String,
    pub(crate) digest: Digest,
}

#[derive(Clone, Debug)]
pub(crate) struct AnswerManyParams {
    pub(crate) members: Vec<ApprovalDigest>,
    pub(crate) answer: OperatorAnswer,
    /// True if the approvals must all be of one caller and one item.
    pub(crate) is_group: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RevokeParams {
    pub(crate) id: Option<String>,
    pub(crate) all: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LoginParams {
    pub(crate) name: String,
    /// True if the browser is on another machine: the address at which it ends is pasted into the
    /// command.
    #[serde(default)]
    pub(crate) paste: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PasteParams {
    pub(crate) id: String,
    pub(crate) address: String,
}

#[derive(Clone, Debug)]
pub(crate) struct EndLoginParams {
    pub(crate) callback: LoginCallback,
    /// Values of the login cookies that came with the call-back.
    pub(crate) cookies: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LogsParams {
    pub(crate) name: String,
    /// Id of the log that `after` counts in.
    pub(crate) log: Option<u64>,
    /// Number of the last line that the client has.
    pub(crate) after: Option<u64>,
    /// True if the answer waits for a new line.
    pub(crate) wait: bool,
    /// Most lines in the answer.
    pub(crate) most: Option<usize>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ChallengeParams {
    /// The guarded method that follows.
    #[serde(rename = "for")]
    pub(crate) method: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProveParams {
    pub(crate) code: String,
}

/// A decision about one pin by its name, or about all of `items`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PinsParams {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) items: Option<Vec<PinDecision>>,
    pub(crate) name: Option<String>,
    pub(crate) kind: Option<PinKind>,
    /// Digest of the text that was shown to the person.
    pub(crate) digest: Option<Digest>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PinName {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) kind: Option<PinKind>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PinItem {
    pub(crate) name: String,
    pub(crate) kind: PinKind,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PinItems {
    pub(crate) items: Vec<PinItem>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct ReloadParams {
    /// `enable` or `disable`, after the command has edited the file.
    #[serde(rename = "for")]
    pub(crate) action: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) dry_run: bool,
    /// Another configuration file to try, for `dry_run`.
    pub(crate) config: Option<std::path::PathBuf>,
}

/// Environment variables of a command, with the digests of their values.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct VariablesParams {
    pub(crate) digests: BTreeMap<String, Digest>,
}

#[derive(Clone, Debug)]
pub(crate) struct SwitchParams {
    pub(crate) name: String,
    pub(crate) on: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ToolsParams {
    /// Kind of client whose view is listed: `none`, `forms` or `all`.
    #[serde(rename = "as")]
    pub(crate) kind: Option<String>,
    /// True to list withheld tools too.
    pub(crate) all: bool,
    /// True to add the size of each tool in bytes.
    pub(crate) sizes: bool,
}
