//! Failures of calls: the gateway's own answer to a call that its upstream did not answer, in words
//! for a person and for a program.

use std::time::Duration;

use crate::mcp::version::Revision;
use crate::mcp::voice::REFUSAL;
use crate::wire::json::raw::RawJson;
use crate::wire::message;

/// The reason why a call got no answer from its upstream, and whether the upstream may have
/// executed it.
///
/// A failure of `tools/call` on which a model could act is a result with `isError` and
/// `_meta["headend/refusal"] = {reason, executed: "no"|"unknown", retryable, retry-after-ms,
/// call-id}`. A protocol violation of the upstream, and every failure of another method, is a
/// JSON-RPC error with the same object in `data`: -32603, or our own 1001 (denied), 1002 (limited)
/// and 1003 (awaiting approval).
///
/// Some reasons add members to the object. `awaiting_approval` adds `approval = {id, command,
/// url}`: the open approval, the operator's command, and the page if there is a console.
/// `needs_login` adds `login = {upstream, command}`. If too many approvals are open or were not
/// answered, `counted` has the numbers. `insufficient_scope` adds `scopes`, all that the call
/// needs; it is an error of every method, with HTTP status 403. The text is for a model and has
/// none of these: an agent with a shell can run a command that it is shown.
///
/// `unrecorded` means that the audit log takes no records, or that the use of a once-grant could
/// not be stored. `store_unavailable` means the same of a cluster's store that does not answer, and
/// that a stored grant cannot be confirmed. `gone` means that a list of this client has shown the
/// tool, and that it is no longer offered. `daemon_away` means that `headend stdio` stands in for a
/// daemon that does not answer. `replica_lost` means that the replica of a cluster which held the
/// call is gone. An upstream's HTTP status never becomes ours: HTTP 429 and 503 speak of the
/// transport alone. These words are reserved for the gateway, see [`crate::mcp::voice`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFailure {
    pub reason: FailureReason,
    pub executed: ExecutionDoubt,
    /// Sentence for the person: what happened.
    pub detail: Box<str>,
    /// Time to wait before the call is tried again.
    pub retry_after: Option<Duration>,
    /// The open approval that the call waits for.
    pub approval: Option<Box<AwaitedApproval>>,
    /// Name of the upstream at which the operator must log in first.
    pub login: Option<Box<str>>,
    /// Numbers for which the call was refused, by name.
    pub counted: Option<Box<[(&'static str, u64)]>>,
    /// All scopes that the call needs, with spaces between, if the credential lacks one.
    pub scopes: Option<Box<str>>,
}

/// The open approval that a call waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedApproval {
    pub id: String,
    /// Address of its page in the console, if there is one.
    pub url: Option<String>,
}

/// The closed set of reasons why the gateway itself answers a call. See [`CallFailure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum FailureReason {
    UpstreamDown,
    UpstreamCrashed,
    UpstreamTimeout,
    UpstreamProtocol,
    ResultTooLarge,
    Busy,
    Denied,
    /// The caller's credential lacks a scope.
    InsufficientScope,
    Limited,
    /// A person must approve the call first.
    AwaitingApproval,
    /// The operator must log in at the upstream first.
    NeedsLogin,
    /// The audit log cannot be written, or the use of a grant cannot be stored.
    Unrecorded,
    /// The store of the cluster does not answer.
    StoreUnavailable,
    ShuttingDown,
    /// The daemon does not answer, and this process only stands in for it.
    DaemonAway,
    /// The replica that held the call is gone.
    ReplicaLost,
}

/// Whether the upstream executed the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum ExecutionDoubt {
    /// The upstream certainly did not.
    No,
    /// The upstream may have.
    Unknown,
}

impl CallFailure {
    /// Returns the failure of a call whose upstream is not running.
    pub fn down() -> Self {
        Self::new(FailureReason::UpstreamDown, ExecutionDoubt::No, "The server behind this item is not running.")
    }

    /// Returns the failure of a call whose server ended before the answer.
    pub fn crashed() -> Self {
        let text = "The server ended while the call was in progress.";
        Self::new(FailureReason::UpstreamCrashed, ExecutionDoubt::Unknown, text)
    }

    /// Returns the failure of a call that was parked or in flight at a replica of the cluster which
    /// is gone. It is never started again.
    pub fn replica_lost() -> Self {
        let text = "The replica of the gateway that held this call is gone.";
        Self::new(FailureReason::ReplicaLost, ExecutionDoubt::Unknown, text)
    }

    /// Returns the failure for an answer over a bound of its size, its depth or its number of
    /// values.
    pub fn too_large() -> Self {
        Self::new(
            FailureReason::ResultTooLarge,
            ExecutionDoubt::Unknown,
            "The server sent an answer over the size limit.",
        )
    }

    /// Returns the failure for an answer that breaks the protocol.
    pub fn malformed() -> Self {
        Self::new(
            FailureReason::UpstreamProtocol,
            ExecutionDoubt::Unknown,
            "The server sent an answer that breaks the protocol.",
        )
    }

    pub fn new(reason: FailureReason, executed: ExecutionDoubt, detail: impl Into<Box<str>>) -> Self {
        let (retry_after, approval, login, counted, scopes) = (None, None, None, None, None);
        Self { reason, executed, detail: detail.into(), retry_after, approval, login, counted, scopes }
    }

    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    pub fn approval(mut self, id: String, url: Option<String>) -> Self {
        self.approval = Some(Box::new(AwaitedApproval { id, url }));
        self
    }

    pub fn counted(mut self, numbers: impl Into<Box<[(&'static str, u64)]>>) -> Self {
        self.counted = Some(numbers.into());
        self
    }

    /// Returns the refusal of a call whose caller lacks a scope; `scopes` are all that it needs,
    /// with spaces between.
    pub fn insufficient_scope(scopes: Box<str>) -> Self {
        let text = "The credential lacks a scope that this call needs.";
        let failure = Self::new(FailureReason::InsufficientScope, ExecutionDoubt::No, text);
        Self { scopes: Some(scopes), ..failure }
    }

    /// Encodes the failure for a program: `headend/refusal` in `_meta`, or the `data` of an error.
    fn facts(&self, call: u64) -> String {
        let is_final = matches!(self.reason, FailureReason::Denied | FailureReason::InsufficientScope);
        let retryable = self.executed == ExecutionDoubt::No && !is_final;
        let wait = self.retry_after.map(|d| format!(r#","retry-after-ms":{}"#, d.as_millis())).unwrap_or_default();
        let approval = self.approval.as_ref().map(|approval| {
            let url = approval.url.as_ref().map(|url| format!(r#","url":{}"#, RawJson::string(url).text()));
            let id = RawJson::string(&approval.id);
            let command = RawJson::string(&format!("headend approve {}", approval.id));
            format!(r#","approval":{{"id":{},"command":{}{}}}"#, id.text(), command.text(), url.unwrap_or_default())
        });
        let login = self.login.as_ref().map(|upstream| {
            let command = RawJson::string(&format!("headend login {upstream}"));
            format!(r#","login":{{"upstream":{},"command":{}}}"#, RawJson::string(upstream).text(), command.text())
        });
        let counted = self.counted.as_ref().map(|numbers| {
            let numbers: Vec<String> = numbers.iter().map(|(name, number)| format!(r#""{name}":{number}"#)).collect();
            format!(r#","counted":{{{}}}"#, numbers.join(","))
        });
        let scopes = self.scopes.as_ref().map(|scopes| {
            let scopes: Vec<_> = scopes.split(' ').map(|one| RawJson::string(one).text().to_string()).collect();
            format!(r#","scopes":[{}]"#, scopes.join(","))
        });
        format!(
            r#"{{"reason":"{}","executed":"{}","retryable":{retryable}{wait}{}{}{}{},"call-id":"{call:x}"}}"#,
            self.reason.into_str(),
            self.executed.into_str(),
            approval.unwrap_or_default(),
            login.unwrap_or_default(),
            counted.unwrap_or_default(),
            scopes.unwrap_or_default()
        )
    }

    /// Returns the failure as the result of a tool call, which a model can read and act on.
    pub fn tool_result(&self, call: u64, revision: Revision) -> RawJson {
        let head = revision.features().result_head;
        let text = RawJson::string(&self.sentence());
        RawJson::trusted(format!(
            r#"{{{head}"content":[{{"type":"text","text":{}}}],"isError":true,"_meta":{{"{REFUSAL}":{}}}}}"#,
            text.text(),
            self.facts(call)
        ))
    }

    /// Returns the failure as the error of any other method.
    pub fn error_object(&self, call: u64) -> RawJson {
        use crate::wire::code;
        let code = match self.reason {
            FailureReason::Denied | FailureReason::InsufficientScope => code::DENIED,
            FailureReason::Limited => code::LIMITED,
            FailureReason::AwaitingApproval => code::AWAITING_APPROVAL,
            FailureReason::UpstreamDown
            | FailureReason::UpstreamCrashed
            | FailureReason::UpstreamTimeout
            | FailureReason::UpstreamProtocol
            | FailureReason::ResultTooLarge
            | FailureReason::Busy
            | FailureReason::NeedsLogin
            | FailureReason::Unrecorded
            | FailureReason::StoreUnavailable
            | FailureReason::ShuttingDown
            | FailureReason::DaemonAway
            | FailureReason::ReplicaLost => code::INTERNAL,
        };
        let data = RawJson::trusted(self.facts(call));
        message::error_object(code, &self.sentence(), Some(&data))
    }

    /// Returns the failure as text for a person or a model.
    fn sentence(&self) -> String {
        let mut text = self.detail.to_string();
        // A model that must stop is not told to try again.
        if let Some(wait) = self.retry_after.filter(|_| self.reason != FailureReason::AwaitingApproval) {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            text.push_str(&format!(" Try again in {} s.", seconds.max(1)));
        }
        if self.executed == ExecutionDoubt::Unknown {
            text.push_str(" The call may have been executed; check before you repeat it.");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::voice;
    use crate::wire::json::raw::RawObject;

    #[test]
    fn a_refusal_tells_person_and_program_the_same() {
        let failure = CallFailure::new(FailureReason::Limited, ExecutionDoubt::No, "Limit `x` is used up.")
            .retry_after(Duration::from_millis(1500));
        assert_eq!(
            failure.tool_result(10, Revision::V2026_07_28).text(),
            r#"{"resultType":"complete","content":[{"type":"text","text":"Limit `x` is used up. Try again in 2 s."}],"isError":true,"_meta":{"headend/refusal":{"reason":"limited","executed":"no","retryable":true,"retry-after-ms":1500,"call-id":"a"}}}"#
        );
    }

    #[test]
    fn a_refusal_for_scopes_names_them_all() {
        let failure = CallFailure::insufficient_scope("mcp:read a\"b".into());
        let error = RawObject::parse(&failure.error_object(10)).unwrap();
        assert_eq!(error.get("code").unwrap().text(), "1001");
        assert_eq!(
            error.get("data").unwrap().text(),
            r#"{"reason":"insufficient_scope","executed":"no","retryable":false,"scopes":["mcp:read","a\"b"],"call-id":"a"}"#
        );
    }

    #[test]
    fn ids_commands_and_addresses_are_for_programs_alone() {
        let failure = CallFailure::new(FailureReason::AwaitingApproval, ExecutionDoubt::No, "Stop.")
            .approval("abc".to_owned(), Some("http://[::1]/approvals/abc".to_owned()))
            .counted([("open", 20), ("max-open", 20)])
            .retry_after(Duration::from_secs(60));
        let facts = r#"{"reason":"awaiting_approval","executed":"no","retryable":true,"retry-after-ms":60000,"approval":{"id":"abc","command":"headend approve abc","url":"http://[::1]/approvals/abc"},"counted":{"open":20,"max-open":20},"call-id":"a"}"#;
        let result = RawObject::parse(&failure.tool_result(10, Revision::V2025_11_25)).unwrap();
        assert_eq!(result.get("content").unwrap().text(), r#"[{"type":"text","text":"Stop."}]"#);
        assert_eq!(result.object("_meta").unwrap().get("headend/refusal").unwrap().text(), facts);
        let error = RawObject::parse(&failure.error_object(10)).unwrap();
        assert_eq!(error.string("message").as_deref(), Some("Stop."));
        assert_eq!(error.get("data").unwrap().text(), facts);
    }

    #[test]
    fn whatever_the_gateway_refuses_with_is_taken_from_servers() {
        for reason in [
            FailureReason::Denied,
            FailureReason::InsufficientScope,
            FailureReason::Limited,
            FailureReason::AwaitingApproval,
            FailureReason::Busy,
            FailureReason::UpstreamDown,
        ] {
            let failure = CallFailure::new(reason, ExecutionDoubt::No, "no").approval("a".to_owned(), None);
            let error = failure.error_object(1);
            let mut taken = voice::RemovedWords::default();
            assert!(
                voice::replace_own_error(&error, "git", &mut taken).is_some() && taken.errors == 1,
                "{}",
                error.text()
            );
            let data = RawObject::parse(&error).unwrap().get("data").cloned();
            let data = message::error_object(-1, "no", data.as_ref());
            assert!(
                voice::replace_own_error(&data, "git", &mut taken).is_some(),
                "{}: by its data alone",
                error.text()
            );
        }
    }
}
