//! The failures that clients get for transport errors of their calls.

use std::time::Duration;

use http::StatusCode;

use crate::base::budget::NoRoom;
use crate::catalog::name::UpstreamName;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::upstream::state::http_error::HttpError;
use crate::upstream::state::standing::{CredentialStanding, needs_login};

/// Converts a transport error to the failure of its call. The HTTP status of the upstream never
/// becomes that of the gateway.
pub(crate) fn failure(upstream: &UpstreamName, error: &HttpError, wait: Option<Duration>) -> CallFailure {
    let failure = match error {
        HttpError::Connect(_) => {
            let text = "The server behind this item cannot be reached.";
            CallFailure::new(FailureReason::UpstreamDown, ExecutionDoubt::No, text).retry_after(Duration::from_secs(1))
        }
        HttpError::NoDescriptor(_) => {
            let text = "The gateway has no file descriptor left for a connection to the server behind this item.";
            CallFailure::new(FailureReason::Busy, ExecutionDoubt::No, text).retry_after(Duration::from_secs(1))
        }
        HttpError::Broken(_) => {
            let text = "The connection to the server broke during the call.";
            CallFailure::new(FailureReason::UpstreamCrashed, ExecutionDoubt::Unknown, text)
        }
        HttpError::Status(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => {
            let wait = wait.unwrap_or(Duration::from_secs(1)).min(Duration::from_secs(300));
            CallFailure::new(FailureReason::Busy, ExecutionDoubt::No, "The server behind this item is overloaded.")
                .retry_after(wait)
        }
        HttpError::Unadmitted(CredentialStanding::NeedsLogin | CredentialStanding::LoginExpired, _) => {
            needs_login(upstream)
        }
        HttpError::NoToken(_) => {
            let text = "The gateway cannot renew its login at the server behind this item at the moment.";
            CallFailure::new(FailureReason::UpstreamDown, ExecutionDoubt::No, text).retry_after(Duration::from_secs(5))
        }
        HttpError::MoreScopes(why) => {
            let text = format!("The call was not made: {why} of the upstream's login. Only the operator can do that.");
            CallFailure::new(FailureReason::UpstreamDown, ExecutionDoubt::No, text)
        }
        HttpError::Unadmitted(..) => {
            let text = "The server behind this item refused the gateway's credentials; the operator has to renew them.";
            CallFailure::new(FailureReason::UpstreamDown, ExecutionDoubt::No, text)
        }
        HttpError::Status(status) if status.is_client_error() => {
            let text = format!("The server behind this item refused the request with HTTP status {}.", status.as_u16());
            CallFailure::new(FailureReason::UpstreamProtocol, ExecutionDoubt::No, text)
        }
        HttpError::Elsewhere(_) => {
            let text =
                "The server behind this item redirects to another address; the operator has to correct its `url`.";
            CallFailure::new(FailureReason::UpstreamDown, ExecutionDoubt::No, text)
        }
        // Neither an answer nor a refusal.
        HttpError::Status(status) if status.is_success() || status.is_redirection() => CallFailure::malformed(),
        HttpError::Status(status) => {
            let text = format!("The server behind this item failed with HTTP status {}.", status.as_u16());
            CallFailure::new(FailureReason::UpstreamCrashed, ExecutionDoubt::Unknown, text)
        }
        HttpError::Protocol(_) => CallFailure::malformed(),
        HttpError::NoRoom(executed) => NoRoom.failure(*executed),
    };
    tracing::debug!(error = %error, "call to an HTTP upstream failed");
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream() -> UpstreamName {
        UpstreamName::parse("crm").unwrap()
    }

    #[test]
    fn only_what_proves_that_the_call_was_not_looked_at_says_that_it_was_not_executed() {
        let status = |code: u16| HttpError::Status(StatusCode::from_u16(code).unwrap());
        let text = String::new;
        for (error, reason, executed) in [
            (HttpError::Connect(text()), FailureReason::UpstreamDown, ExecutionDoubt::No),
            (HttpError::NoDescriptor(text()), FailureReason::Busy, ExecutionDoubt::No),
            (HttpError::Elsewhere(text()), FailureReason::UpstreamDown, ExecutionDoubt::No),
            (
                HttpError::Unadmitted(CredentialStanding::Refused, StatusCode::FORBIDDEN),
                FailureReason::UpstreamDown,
                ExecutionDoubt::No,
            ),
            (HttpError::NoToken(text()), FailureReason::UpstreamDown, ExecutionDoubt::No),
            (
                HttpError::Unadmitted(CredentialStanding::NeedsLogin, StatusCode::UNAUTHORIZED),
                FailureReason::NeedsLogin,
                ExecutionDoubt::No,
            ),
            (
                HttpError::Unadmitted(CredentialStanding::LoginExpired, StatusCode::UNAUTHORIZED),
                FailureReason::NeedsLogin,
                ExecutionDoubt::No,
            ),
            (status(429), FailureReason::Busy, ExecutionDoubt::No),
            (status(503), FailureReason::Busy, ExecutionDoubt::No),
            (status(404), FailureReason::UpstreamProtocol, ExecutionDoubt::No),
            (HttpError::NoRoom(ExecutionDoubt::No), FailureReason::Busy, ExecutionDoubt::No),
            (HttpError::NoRoom(ExecutionDoubt::Unknown), FailureReason::Busy, ExecutionDoubt::Unknown),
            (HttpError::Broken(text()), FailureReason::UpstreamCrashed, ExecutionDoubt::Unknown),
            (status(500), FailureReason::UpstreamCrashed, ExecutionDoubt::Unknown),
            (status(504), FailureReason::UpstreamCrashed, ExecutionDoubt::Unknown),
            (status(202), FailureReason::UpstreamProtocol, ExecutionDoubt::Unknown),
            (status(307), FailureReason::UpstreamProtocol, ExecutionDoubt::Unknown),
            (HttpError::Protocol(text()), FailureReason::UpstreamProtocol, ExecutionDoubt::Unknown),
        ] {
            let failure = failure(&upstream(), &error, None);
            assert_eq!((failure.reason, failure.executed), (reason, executed), "{error:?}");
        }
    }

    #[test]
    fn an_overloaded_server_is_left_alone_for_as_long_as_it_says_and_five_minutes_at_most() {
        let busy = HttpError::Status(StatusCode::TOO_MANY_REQUESTS);
        for (asked, wait) in [(None, 1), (Some(7), 7), (Some(86_400), 300)] {
            let failure = failure(&upstream(), &busy, asked.map(Duration::from_secs));
            assert_eq!(failure.retry_after, Some(Duration::from_secs(wait)), "{asked:?}");
        }
    }
}
