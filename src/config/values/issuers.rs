//! The keys of `[server.auth]` about JWTs: `mode`, `public-url` and `[[server.auth.issuers]]`.

use url::Url;

use crate::identity::algorithm::SignatureAlgorithm;
use crate::identity::terms::{IssuerTerms, short_type};
use crate::policy::RESERVED;

use super::address::is_loopback;
use super::auth::is_bare;
use super::proxy::ProxySettings;
use crate::source::file::{ConfigNode, ConfigTable};

/// The longest name of an issuer, in bytes.
const MAX_NAME: usize = 64;
/// Claims whose value can pass from one person to another.
const REASSIGNED: [&str; 3] = ["email", "preferred_username", "upn"];
/// An example for messages.
const EXAMPLE: &str =
    "write `[[server.auth.issuers]]` with `name = \"corp\"` and `issuer = \"https://login.example.com\"`";

/// The settings for callers that present a JWT.
#[derive(Clone, Debug, PartialEq)]
pub struct JwtSettings {
    /// True if tokens are accepted too.
    pub with_tokens: bool,
    /// The address by which clients reach the gateway, without a slash at the end.
    pub public_url: String,
    pub issuers: Vec<IssuerSettings>,
}

/// An issuer of JWTs.
#[derive(Clone, Debug, PartialEq)]
pub struct IssuerSettings {
    pub terms: IssuerTerms,
    /// The address of its key set; `None` for the one that its metadata names.
    pub jwks: Option<Url>,
    /// The proxy on the way to it.
    pub proxy: ProxySettings,
}

/// A way in which clients prove who they are. The last one belongs to later releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthMode {
    Token,
    None,
    Jwt,
    Later,
}

/// Reads one mode or a list of them; tokens alone without the key.
pub(crate) fn modes(node: Option<&ConfigNode<'_>>) -> Vec<AuthMode> {
    let Some(node) = node else { return vec![AuthMode::Token] };
    let words =
        [("token", AuthMode::Token), ("none", AuthMode::None), ("jwt", AuthMode::Jwt), ("mtls", AuthMode::Later)];
    let nodes = if node.is_array() { node.items("a list of modes").unwrap_or_default() } else { Vec::new() };
    let modes: Vec<AuthMode> = match nodes.as_slice() {
        [] if node.is_array() => {
            node.problem("must name at least one mode, such as [\"token\", \"jwt\"]");
            Vec::new()
        }
        [] => node.choice_of(&words).into_iter().collect(),
        nodes => nodes.iter().filter_map(|node| node.choice_of(&words)).collect(),
    };
    if modes.contains(&AuthMode::Later) {
        node.problem("mode \"mtls\" is not available in this release; write \"token\", \"jwt\" or both");
    }
    if modes.contains(&AuthMode::None) && modes.len() > 1 {
        node.problem("\"none\" lets every client in, so it stands alone; leave it or the others out");
    }
    if modes.is_empty() { vec![AuthMode::Token] } else { modes }
}

/// Reads the keys about JWTs; `None` unless one of the modes is `jwt`.
pub(crate) fn read(table: &mut ConfigTable<'_>, modes: &[AuthMode]) -> Option<JwtSettings> {
    let proxy = ProxySettings::from_environment(table.source.env);
    let public = table.take("public-url");
    let is_stated = public.is_some();
    let public_url = public.and_then(|node| public_url(&node));
    let tables = table.tables("issuers");
    if !modes.contains(&AuthMode::Jwt) {
        if is_stated || !tables.is_empty() {
            table.problem("`public-url` and `issuers` belong to mode \"jwt\"; write mode = [\"token\", \"jwt\"]");
        }
        tables.into_iter().for_each(|one| drop(issuer(one, &proxy)));
        return None;
    }
    if tables.is_empty() {
        table.problem(format!("mode \"jwt\" needs an issuer; {EXAMPLE}"));
    }
    if !is_stated {
        table.problem(
            "mode \"jwt\" needs the address by which clients reach headend, which their tokens are for; \
             write `public-url = \"https://mcp.example.com\"`",
        );
    }
    let mut issuers: Vec<IssuerSettings> = Vec::new();
    for one in tables {
        let (source, path) = (one.source, one.path.clone());
        let Some(read) = issuer(one, &proxy) else { continue };
        let other =
            issuers.iter().find(|other| other.terms.name == read.terms.name || other.terms.issuer == read.terms.issuer);
        if let Some(other) = other {
            let name = &other.terms.name;
            source.problem_at(&path, format!("has the name or the `issuer` of `{name}` too; remove one of them"));
        }
        issuers.push(read);
    }
    let with_tokens = modes.contains(&AuthMode::Token);
    Some(JwtSettings { with_tokens, public_url: public_url.unwrap_or_default(), issuers })
}

fn public_url(node: &ConfigNode<'_>) -> Option<String> {
    let url = Url::parse(&node.string()?).ok().filter(|url| is_issuer_address(url) && url.host().is_some());
    if url.is_none() {
        node.problem("must be an https:// URL without user, query and `#`, such as \"https://mcp.example.com\"; http:// on this machine only");
    }
    url.map(|url| url.as_str().trim_end_matches('/').to_owned())
}

/// Reports whether a URL is an https one, or an http one of this machine, with nothing but host
/// and path.
fn is_issuer_address(url: &Url) -> bool {
    (url.scheme() == "https" || url.scheme() == "http" && is_loopback(url)) && is_bare(url) && url.query().is_none()
}

fn issuer(mut table: ConfigTable<'_>, proxy: &ProxySettings) -> Option<IssuerSettings> {
    let name = match table.take("name") {
        Some(node) => name(&node),
        None => {
            table.problem("needs a `name`, the first half of the names of its callers, such as \"corp\"");
            None
        }
    };
    let address = match table.take("issuer") {
        Some(node) => issuer_address(&node),
        None => {
            table.problem("needs `issuer`, the address in its tokens' `iss`, such as \"https://login.example.com\"");
            None
        }
    };
    let mut terms = IssuerTerms::new(name.clone().unwrap_or_default(), address.clone().unwrap_or_default());
    terms.audiences = texts(&mut table, "audiences").unwrap_or_default();
    if let Some(node) = table.take("algorithms") {
        terms.algorithms = algorithms(&node);
    }
    if let Some(types) = texts(&mut table, "types") {
        terms.types = types.iter().map(|text| short_type(text).to_owned()).collect();
    }
    if let Some(node) = table.take("subject-claim") {
        terms.subject_claim = claim(&node).unwrap_or(terms.subject_claim);
        if REASSIGNED.contains(&terms.subject_claim.as_str()) {
            node.warning(
                "this claim can pass to another person, who then has the grants of the first; `sub`, or `oid` of Entra ID, cannot",
            );
        }
    }
    terms.scopes_claim = table.take("scopes-claim").and_then(|node| claim(&node)).unwrap_or(terms.scopes_claim);
    terms.groups_claim = table.take("groups-claim").and_then(|node| claim(&node)).unwrap_or(terms.groups_claim);
    let jwks = table.take("jwks").and_then(|node| key_address(&node));
    table.finish();
    (name.is_some() && address.is_some()).then(|| IssuerSettings { terms, jwks, proxy: proxy.clone() })
}

fn name(node: &ConfigNode<'_>) -> Option<String> {
    let name = node.string()?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_part) {
        node.problem(format!("an issuer's name must be up to {MAX_NAME} letters, digits, `-`, `_` or `.`"));
    } else if RESERVED.contains(&name.as_str()) {
        node.problem(format!("`{name}` is a word for other callers; choose another name, such as \"corp\""));
    }
    Some(name)
}

fn issuer_address(node: &ConfigNode<'_>) -> Option<String> {
    let text = node.string()?;
    if !Url::parse(&text).is_ok_and(|url| is_issuer_address(&url)) {
        node.problem(
            "must be an https:// URL without user, query and `#`, exactly as its tokens' `iss`; http:// on this machine only",
        );
    }
    Some(text)
}

fn key_address(node: &ConfigNode<'_>) -> Option<Url> {
    let url = Url::parse(&node.string()?).ok();
    let is_usable =
        |url: &&Url| (url.scheme() == "https" || url.scheme() == "http" && is_loopback(url)) && is_bare(url);
    if url.as_ref().filter(is_usable).is_none() {
        node.problem("must be the https:// URL of the issuer's key set; http:// on this machine only");
    }
    url
}

fn algorithms(node: &ConfigNode<'_>) -> Vec<SignatureAlgorithm> {
    let items = node.items("a list of algorithms such as [\"RS256\"]").unwrap_or_default();
    if items.is_empty() {
        node.problem("must name at least one algorithm, such as \"RS256\"");
    }
    let one = |item: &ConfigNode<'_>| {
        if item.as_str().is_some_and(|word| word == "none" || word.starts_with("HS")) {
            item.problem(
                "proves nothing here, since everybody has the issuer's public keys; write \"RS256\" or \"ES256\"",
            );
            return None;
        }
        item.choice()
    };
    items.iter().filter_map(one).collect()
}

fn claim(node: &ConfigNode<'_>) -> Option<String> {
    let text = node.string()?;
    if text.is_empty() {
        node.problem("must be the name of a claim");
    }
    Some(text)
}

/// Reads a list of texts that are not empty; `None` without the key.
pub(crate) fn texts(table: &mut ConfigTable<'_>, key: &'static str) -> Option<Vec<String>> {
    let node = table.take(key)?;
    let items = node.items("an array of strings").unwrap_or_default();
    if items.is_empty() {
        node.problem("must not be empty; leave the key out instead");
    }
    let text = |item: &ConfigNode<'_>| {
        let text = item.string()?;
        if text.is_empty() {
            item.problem("must not be empty");
        }
        Some(text)
    };
    Some(items.iter().filter_map(text).collect())
}
