//! The command `headend tokens`: adds, lists and revokes tokens of clients.

use std::io::Read as _;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::exit::{NO, SOFTWARE, USAGE};
use crate::cli::reach::operator::OperatorClient;
use crate::cli::reach::source;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, complain, print, print_json};
use crate::cli::words::screen::{Column, Screen};
use crate::config::{MIN_TOKEN_LENGTH, parse_duration};
use crate::daemon::local_time::local_minute;
use crate::daemon::tokens::has_token;
use crate::operator::alone::StateDir;
use crate::operator::request::{AddTokenParams, NameParams, NoParams, Request};
use crate::operator::tokens::{RevokedTokenView, TokenView, TokensView};
use crate::policy::Digest;
use crate::wire::foreign;

/// Longest token that is read, in bytes: a header has room for it.
const MAX_TOKEN_BYTES: u64 = 4096;

#[derive(Clone, Debug, Default, Args)]
pub(super) struct TokensArgs {
    #[command(subcommand)]
    what: Option<TokensAction>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum TokensAction {
    /// Add a token for a client and print it once; only its digest is kept.
    ///
    /// The client is the caller NAME in rules, limits and the audit log. The token is accepted at
    /// once, without a restart.
    Add(TokenAdditionArgs),
    /// List tokens: name, scopes, and when each was added, expires and was last used, to the hour.
    /// The default.
    List,
    /// Revoke a token: it is refused at once, and sessions, streams and calls that it opened end.
    Revoke {
        /// The name of the token.
        name: String,
    },
}

#[derive(Clone, Debug, Args)]
struct TokenAdditionArgs {
    /// The name of the token and of its caller: letters, digits, `-`, `_` and `.`.
    name: String,
    /// How long the token is accepted, such as 90d or 12h; without it, until it is revoked.
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// The scopes of the token, with spaces or commas between; without it, the token has none.
    #[arg(long, value_name = "SCOPE", num_args = 1..)]
    scopes: Vec<String>,
    /// Take the token from standard input instead of making one: 16 visible ASCII characters or
    /// more.
    #[arg(long)]
    from_stdin: bool,
}

/// A token that was added, with the token if headend made it.
#[derive(Serialize)]
struct AddedToken<'t> {
    #[serde(flatten)]
    added: &'t TokenView,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'t str>,
}

pub(super) fn run(common: &CommonOptions, args: TokensArgs) -> Result<u8, CommandFailure> {
    match args.what.unwrap_or(TokensAction::List) {
        TokensAction::Add(addition) => add(common, addition, args.json),
        TokensAction::List => list(common, args.json),
        TokensAction::Revoke { name } => {
            let revoked: RevokedTokenView =
                OperatorClient::find(common)?.ask(&Request::RevokeToken(NameParams { name }))?;
            if args.json {
                print_json(&revoked)
            } else {
                print(&format!("revoked {}\n", foreign::line(&revoked.revoked)))
            }
        }
    }
}

fn add(common: &CommonOptions, args: TokenAdditionArgs, json: bool) -> Result<u8, CommandFailure> {
    let lifetime = args.expires.as_deref().map(lifetime).transpose()?;
    let token = if args.from_stdin { read_token()? } else { StateDir::fresh_token() };
    let mut client = OperatorClient::find(common)?;
    let config = source::load_quietly(common);
    if client.is_without_daemon() && config.as_ref().is_some_and(|config| has_token(config, &args.name)) {
        let text = format!("the configuration has a token `{}`; choose another name", args.name);
        return Err(CommandFailure::new(NO, text));
    }
    let scopes = args.scopes.iter().flat_map(|scopes| scopes.split([' ', ','])).filter(|scope| !scope.is_empty());
    let scopes = scopes.map(str::to_owned).collect();
    let params = AddTokenParams { name: args.name, digest: Digest::of(token.as_bytes()), scopes, lifetime };
    let added: TokenView = client.ask(&Request::AddToken(params))?;
    let made = (!args.from_stdin).then_some(&*token);
    if json {
        return print_json(&AddedToken { added: &added, token: made });
    }
    let printed = print(&made.map_or_else(|| format!("added {}\n", added.name), |token| format!("{token}\n")))?;
    let known = config.iter().flat_map(|config| &config.policy.scopes).map(|scope| &*scope.scope).collect::<Vec<_>>();
    if let Some(doubt) = doubt_scopes(&added.scopes, &known) {
        complain(&doubt);
    }
    Ok(printed)
}

/// Returns a sentence about scopes that help a token to nothing. `known` are those of the
/// configuration.
fn doubt_scopes(given: &[String], known: &[&str]) -> Option<String> {
    let list = known.join("`, `");
    if known.is_empty() {
        return None;
    }
    if given.is_empty() {
        return Some(format!(
            "the token has no scopes, and calls that need `{list}` are refused; revoke it and add it with `--scopes`"
        ));
    }
    let unknown: Vec<&str> = given.iter().map(String::as_str).filter(|scope| !known.contains(scope)).collect();
    let unknown = unknown.join("`, `");
    (!unknown.is_empty()).then(|| format!("nothing needs the scope `{unknown}`; [server.auth.scopes] has `{list}`"))
}

/// Reads the lifetime of a token, in seconds.
fn lifetime(text: &str) -> Result<u64, CommandFailure> {
    let lifetime = parse_duration(text).as_ref().map(Duration::as_secs).filter(|seconds| *seconds > 0);
    lifetime.ok_or_else(|| CommandFailure::new(USAGE, format!("--expires {text:?}: write a time such as 90d or 12h")))
}

/// Reads a token from standard input, without the spaces and the line end around it.
fn read_token() -> Result<String, CommandFailure> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(MAX_TOKEN_BYTES + 2).read_to_string(&mut text);
    read.map_err(|error| CommandFailure::new(SOFTWARE, format!("read the token from standard input: {error}")))?;
    let token = text.trim();
    let is_token = token.bytes().all(|byte| byte.is_ascii_graphic());
    let has_length = MIN_TOKEN_LENGTH <= token.len() && token.len() as u64 <= MAX_TOKEN_BYTES;
    if is_token && has_length {
        return Ok(token.to_owned());
    }
    let text = format!(
        "a token must be {MIN_TOKEN_LENGTH} to {MAX_TOKEN_BYTES} visible ASCII characters without spaces; a shorter one can be \
         guessed"
    );
    Err(CommandFailure::new(USAGE, text))
}

fn list(common: &CommonOptions, json: bool) -> Result<u8, CommandFailure> {
    let listed: TokensView = OperatorClient::find(common)?.ask(&Request::Tokens(NoParams {}))?;
    if json {
        return print_json(&listed);
    }
    if listed.tokens.is_empty() {
        return print("there are no stored tokens\n");
    }
    let columns = [("NAME", 0), ("CREATED", 3), ("EXPIRES", 0), ("LAST USED", 1), ("SCOPES", 2)];
    let columns = columns.map(|(head, rank)| Column { head, rank });
    let line = |token: &TokenView| {
        let time = |time: Option<u64>, none: &str| time.map_or_else(|| none.to_owned(), local_minute);
        let scopes = if token.scopes.is_empty() { "none".to_owned() } else { token.scopes.join(" ") };
        let (created, expires) = (local_minute(token.created), time(token.expires, "never"));
        let cells = [token.name.clone(), created, expires, time(token.last_used, "never"), scopes];
        cells.map(|cell| foreign::line(&cell).into_owned()).to_vec()
    };
    let lines: Vec<Vec<String>> = listed.tokens.iter().map(line).collect();
    print(&Screen::of_stdout().plain(&columns, &lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_opens_nothing_is_doubted() {
        let given = |scopes: &[&str]| scopes.iter().map(|scope| (*scope).to_owned()).collect::<Vec<_>>();
        let known = ["read", "write"];
        assert_eq!(doubt_scopes(&given(&["read"]), &known), None);
        assert_eq!(doubt_scopes(&[], &[]), None, "without scopes in the configuration every token has what it needs");
        assert!(doubt_scopes(&[], &known).unwrap().contains("has no scopes"));
        let doubt = doubt_scopes(&given(&["read", "raed"]), &known).unwrap();
        assert_eq!(doubt, "nothing needs the scope `raed`; [server.auth.scopes] has `read`, `write`");
    }
}
