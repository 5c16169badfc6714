//! The `[cluster]` table: several replicas with one store on `PostgreSQL`.

use std::ops::RangeInclusive;
use std::time::Duration;

use url::Url;

use super::address;
use crate::model::cluster::ClusterSettings;
use crate::source::file::{ConfigNode, ConfigTable};
use crate::source::secret;
use crate::values::address::is_loopback;
use crate::values::auth::is_bare;
use crate::values::store_url::StoreUrl;

/// The default of `[cluster] store-wait`.
const STORE_WAIT: Duration = Duration::from_secs(30);
/// The longest name of a replica, in bytes.
const MAX_NAME: usize = 64;
/// The range of `[cluster] store-wait`.
const STORE_WAITS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);

/// Reads the table. A table with problems is `None`.
pub(crate) fn read(mut table: ConfigTable<'_>) -> Option<ClusterSettings> {
    let (store, name) = (table.take("store"), table.take("name"));
    for (node, key) in [(&store, "store"), (&name, "name")] {
        if node.is_none() {
            table.problem(format!("needs `{key}`"));
        }
    }
    let store_wait = table.duration("store-wait", &STORE_WAITS).unwrap_or(STORE_WAIT);
    let (listen, url) = (table.take("peer-listen"), table.take("peer-url"));
    if listen.is_some() != url.is_some() {
        table.problem("needs both `peer-listen` and `peer-url`, or none of them");
    }
    table.finish();
    let peer_listen = listen.as_ref().and_then(address);
    let peer_url = url.and_then(|node| peer_url(&node));
    if let (Some(address), Some(url), Some(node)) = (peer_listen, &peer_url, &listen)
        && url.scheme() == "http"
        && !address.ip().is_loopback()
    {
        node.problem(
            "plain HTTP between replicas is possible on loopback addresses only; write an https:// `peer-url`",
        );
    }
    let (store, name) = (store.and_then(|node| read_store(&node)), name.and_then(|node| replica_name(&node)));
    Some(ClusterSettings { store: store?, name: name?, store_wait, peer_listen, peer_url })
}

fn read_store(node: &ConfigNode<'_>) -> Option<StoreUrl> {
    let found = secret::read(node)?;
    if found.literal && StoreUrl::has_password(found.secret.expose()) {
        secret::warn_of_literal(node);
    }
    StoreUrl::parse(found.secret.expose()).map_err(|message| node.problem(message)).ok()
}

/// Reads a value that differs between replicas: like a secret, it may be in a variable or a file,
/// so that all replicas have the same configuration.
fn own_value(node: &ConfigNode<'_>) -> Option<String> {
    Some(secret::read(node)?.secret.expose().to_owned())
}

fn replica_name(node: &ConfigNode<'_>) -> Option<String> {
    let name = own_value(node)?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !(1..=MAX_NAME).contains(&name.len()) || !name.chars().all(is_part) {
        node.problem(format!("must be up to {MAX_NAME} letters, digits, `-`, `_` or `.`"));
        return None;
    }
    Some(name)
}

/// Reads the URL of a replica: scheme, host and port alone.
fn peer_url(node: &ConfigNode<'_>) -> Option<Url> {
    let url = Url::parse(&own_value(node)?).ok();
    let is_usable = |url: &Url| {
        let is_plain = url.scheme() == "http" && is_loopback(url);
        (url.scheme() == "https" || is_plain) && is_bare(url) && url.path() == "/" && url.query().is_none()
    };
    let usable = url.filter(is_usable);
    if usable.is_none() {
        node.problem(
            "must be an https:// URL of a host and a port, such as \"https://10.0.0.7:8630\"; http:// on loopback only",
        );
    }
    usable
}
