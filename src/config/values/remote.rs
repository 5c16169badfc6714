//! Reads URLs and headers of servers that are reached over HTTP.

use http::{HeaderName, HeaderValue};
use url::Url;

use super::address::is_loopback;
use crate::source::file::{ConfigNode, ConfigTable};
use crate::source::secret;
use crate::source::secret::{MissingSecrets, Secret};

/// Headers that headend sets on every request.
const RESERVED: &[&str] = &[
    "host",
    "content-length",
    "content-type",
    "accept",
    "connection",
    "transfer-encoding",
    "upgrade",
    "te",
    "trailer",
];

/// Reads an `https` URL, or an `http` one of this machine. The problem of a bad URL shows no more
/// of it than the scheme.
pub(crate) fn url(node: &ConfigNode<'_>, text: &str) -> Option<Url> {
    let url = match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => url,
        Ok(url) => {
            node.problem(format!("must begin with https:// or http://, not {}:", url.scheme()));
            return None;
        }
        Err(error) => {
            node.problem(format!("is not a URL ({error}); write for example \"https://docs.example.com/mcp\""));
            return None;
        }
    };
    if url.scheme() == "http" && !is_loopback(&url) {
        node.problem(
            "plain http is possible to this machine only, since tokens and results would be readable; write https://",
        );
    }
    if !url.username().is_empty() || url.password().is_some() {
        node.problem("must not contain a user or password; write headers = { Authorization = { env = \"NAME\" } }");
    }
    if url.fragment().is_some() {
        node.problem("must not contain `#`");
    }
    if url.query_pairs().any(|(name, _)| secret::is_secret_name(&name)) {
        node.warning(
            "the query seems to contain a secret, which ends up in logs on the way; use `headers` where the server can",
        );
    }
    Some(url)
}

/// Reads headers by name; missing secrets are added to `lacks`.
pub(crate) fn headers(table: ConfigTable<'_>, lacks: &mut MissingSecrets) -> Vec<(String, Secret)> {
    let mut headers: Vec<(String, Secret)> = Vec::new();
    for (name, node) in table.named() {
        let lower = name.to_ascii_lowercase();
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            node.problem("is not a valid name of an HTTP header");
        } else if RESERVED.contains(&lower.as_str()) || lower.starts_with("mcp-") {
            node.problem("is set by headend; remove it");
        }
        if headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(&name)) {
            node.problem("stands here twice; case means nothing in header names");
        }
        let Some(found) = secret::read_or_lack(&node, lacks).map(|found| found.expanded(&node, lacks)) else {
            continue;
        };
        if HeaderValue::from_str(found.secret.expose()).is_err() {
            let message = "its value contains characters that no HTTP header may have";
            if found.secret.has_variables() {
                lacks.add(&node, format!("headers.{name}: {message}"));
            } else {
                node.problem(message);
            }
        }
        if found.literal {
            secret::warn_of_literal(&node);
        }
        headers.push((name, found.secret));
    }
    headers
}
