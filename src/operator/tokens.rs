//! Adds, lists and revokes stored tokens of clients, in a running gateway and in a store without a
//! daemon.

use serde::{Deserialize, Serialize};

use super::OperatorRefusal;
use super::request::{AddTokenParams, NameParams};
use crate::base::clock;
use crate::config::is_caller_name;
use crate::policy::Caller;
use crate::store::db::{ClientToken, Db, DbError, TokenAddition};

/// Most stored tokens.
const MAX_TOKENS: usize = 1000;
/// Most scopes of a token, and the longest scope in bytes.
const MAX_SCOPES: usize = 64;
const MAX_SCOPE_BYTES: usize = 128;

/// A stored token; the token itself is not kept. Times are seconds since 1970.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TokenView {
    pub(crate) name: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) created: u64,
    pub(crate) expires: Option<u64>,
    /// Start of the hour of the last use.
    pub(crate) last_used: Option<u64>,
}

/// A list of stored tokens.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TokensView {
    pub(crate) tokens: Vec<TokenView>,
}

/// A token that was revoked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RevokedTokenView {
    pub(crate) revoked: String,
}

impl From<ClientToken> for TokenView {
    fn from(token: ClientToken) -> Self {
        let ClientToken { name, digest: _, scopes, created, expires, last_used } = token;
        Self { name, scopes, created, expires, last_used }
    }
}

/// Keeps a new token. `is_configured` says whether the configuration has a token of that name.
pub(crate) async fn add(db: &Db, params: &AddTokenParams, is_configured: bool) -> Result<TokenView, OperatorRefusal> {
    let AddTokenParams { name, digest, scopes, lifetime } = params;
    check(name, scopes)?;
    if is_configured {
        let text = format!("the configuration has a token `{name}`; choose another name");
        return Err(OperatorRefusal::Refused(text));
    }
    let latest = db.latest_time().run().await.map_err(OperatorRefusal::unusable)?;
    let created = clock::since_1970().max(latest).as_secs();
    let expires = lifetime.map(|lifetime| created.saturating_add(lifetime));
    let mut scopes = scopes.clone();
    scopes.sort_unstable();
    scopes.dedup();
    let token = ClientToken { name: name.clone(), digest: *digest, scopes, created, expires, last_used: None };
    let why = match db.add_client_token(token.clone(), MAX_TOKENS).run().await.map_err(OperatorRefusal::unusable)? {
        TokenAddition::Added => return Ok(token.into()),
        TokenAddition::NameExists => {
            format!("there is a token `{name}`; revoke it with `headend tokens revoke {name}`, or choose another name")
        }
        TokenAddition::TokenExists => "this token is there under another name; take another one".to_owned(),
        TokenAddition::Full => format!("there are {MAX_TOKENS} tokens; revoke one with `headend tokens revoke NAME`"),
    };
    Err(OperatorRefusal::Refused(why))
}

/// Checks the name and the scopes of a new token.
fn check(name: &str, scopes: &[String]) -> Result<(), OperatorRefusal> {
    if !is_caller_name(name) || Caller::token(name).is_none() {
        let text = "a name must be up to 64 letters, digits, `-`, `_` or `.`, and not `local`, `uid` or `token`";
        return Err(OperatorRefusal::Refused(text.to_owned()));
    }
    let is_token = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',');
    let is_scope = |scope: &String| (1..=MAX_SCOPE_BYTES).contains(&scope.len()) && scope.bytes().all(is_token);
    if scopes.len() > MAX_SCOPES || !scopes.iter().all(is_scope) {
        let text = format!(
            "a token has up to {MAX_SCOPES} scopes, each of up to {MAX_SCOPE_BYTES} visible ASCII characters without `\"` \
             and `\\`"
        );
        return Err(OperatorRefusal::Refused(text));
    }
    Ok(())
}

/// Returns all stored tokens, those that have expired among them, by name.
pub(crate) async fn list(db: &Db) -> Result<TokensView, OperatorRefusal> {
    let tokens: Vec<ClientToken> = db.client_tokens().run().await.map_err(OperatorRefusal::unusable)?;
    Ok(TokensView { tokens: tokens.into_iter().map(TokenView::from).collect() })
}

/// Removes a token; refused if there is none of that name.
pub(crate) async fn revoke(db: &Db, NameParams { name }: &NameParams) -> Result<RevokedTokenView, OperatorRefusal> {
    let was_there: Result<bool, DbError> = db.revoke_client_token(name.clone()).run().await;
    if was_there.map_err(OperatorRefusal::unusable)? {
        return Ok(RevokedTokenView { revoked: name.clone() });
    }
    Err(no_such_token(name))
}

/// Returns the refusal for a name without a stored token.
pub(super) fn no_such_token(name: &str) -> OperatorRefusal {
    OperatorRefusal::Refused(format!("there is no stored token `{name}`; `headend tokens` lists them"))
}
