//! Carries out the operator's requests about stored tokens of clients.

use crate::daemon::gateway::RunningGateway;
use crate::operator::request::Request;
use crate::operator::views::OperatorView;
use crate::operator::{OperatorRefusal, tokens};

/// Adds, lists or revokes stored tokens, and has a change in force before it returns.
#[expect(clippy::wildcard_enum_match_arm, reason = "all other requests are carried out elsewhere")]
pub(super) async fn operate(gateway: &RunningGateway, request: &Request) -> Result<OperatorView, OperatorRefusal> {
    let kept_nowhere = || OperatorRefusal::refused("this gateway keeps no state, so it has no stored tokens");
    let live = gateway.client_tokens.as_ref().ok_or_else(kept_nowhere)?;
    let view = match request {
        Request::AddToken(params) => {
            OperatorView::TokenAdded(tokens::add(live.db(), params, live.is_configured(&params.name)).await?)
        }
        Request::RevokeToken(params) => OperatorView::TokenRevoked(tokens::revoke(live.db(), params).await?),
        _ => return tokens::list(live.db()).await.map(OperatorView::Tokens),
    };
    live.refresh().await?;
    Ok(view)
}
