//! Reads the addresses of the listeners and the settings that protect them: certificates, trusted
//! proxies, the token of the metrics.

use std::net::SocketAddr;
use std::path::PathBuf;

use url::Url;

use super::model::{ClientAuth, ConsoleSettings, MetricsSettings, ServerSettings};
use crate::source::file::{ConfigNode, ConfigTable};
use crate::source::secret;
use crate::source::secret::Secret;
use crate::values::certificates::{CertificateFiles, CertificateTexts};
use crate::values::network::PeerNetwork;

pub(super) mod cluster;

/// The default of `[metrics] listen`.
const METRICS: &str = "127.0.0.1:9627";
/// The length below which a token can be guessed, in characters.
pub const MIN_TOKEN_LENGTH: usize = 16;
/// The default of `[console] listen`.
const CONSOLE: &str = "127.0.0.1:8628";
/// The most certificates: each handshake looks through them by name.
const MAX_CERTIFICATES: usize = 64;

/// Reads `[[server.tls]]` and the files that it names. A file that cannot be read is no problem
/// here: a running gateway keeps the certificate that it has.
pub(super) fn certificates(server: &mut ConfigTable<'_>) -> Vec<CertificateFiles> {
    let mut all: Vec<CertificateFiles> = Vec::new();
    for mut table in server.tables("tls") {
        let (source, path) = (table.source, table.path.clone());
        let problem = |message: String| source.problem_at(&path, message);
        let (certificate, key) = (table.path("certificate"), table.path("key"));
        table.finish();
        let (Some(certificate), Some(key)) = (certificate, key) else {
            problem("needs `certificate` and `key`, the absolute paths of two PEM files".to_owned());
            continue;
        };
        let read = |path: &PathBuf| {
            let text = (source.read)(path);
            text.map_err(|error| format!("read {}: {error}", path.display()))
        };
        // Both are read, so that both are watched.
        let (chain, secret) = (read(&certificate), read(&key));
        let texts =
            chain.and_then(|certificate| secret.map(|key| CertificateTexts { certificate, key: Secret::new(key) }));
        if all.iter().any(|other| other.certificate == certificate) {
            problem(format!("{} stands here twice", certificate.display()));
        } else if all.len() == MAX_CERTIFICATES {
            problem(format!("there may be {MAX_CERTIFICATES} certificates"));
        }
        all.push(CertificateFiles { certificate, key, texts });
    }
    all
}

/// Reads `[server] trusted-proxies`.
pub(super) fn trusted_proxies(server: &mut ConfigTable<'_>) -> Vec<PeerNetwork> {
    let items = server.take("trusted-proxies").and_then(|node| node.items("an array such as [\"10.0.0.7\"]"));
    let mut networks = Vec::new();
    for item in items.into_iter().flatten() {
        let Some(text) = item.string() else { continue };
        match PeerNetwork::parse(&text) {
            Some(network) if network.is_everything() => {
                item.problem("would trust every address; write the address of the proxy");
            }
            Some(network) => networks.push(network),
            None => item.problem("must be an address or a network, such as \"10.0.0.7\" or \"10.0.0.0/24\""),
        }
    }
    networks
}

/// Reads the addresses of the MCP listeners. Certificates, proxies and authentication are read
/// before.
pub(super) fn listen(node: &ConfigNode<'_>, server: &ServerSettings) -> Vec<SocketAddr> {
    let items = node.items("an array such as [\"127.0.0.1:8627\"]").unwrap_or_default();
    if items.is_empty() && node.as_str().is_none() {
        node.problem("must name at least one address");
    }
    let mut addresses = Vec::new();
    for item in items {
        let Some(address) = address(&item) else { continue };
        if !address.ip().is_loopback() {
            if server.auth == ClientAuth::None {
                item.problem("mode \"none\" is possible on loopback addresses only; write 127.0.0.1 or [::1]");
            } else if server.tls.is_empty() && server.trusted_proxies.is_empty() {
                item.problem(
                    "plain HTTP is possible on loopback addresses only; write [[server.tls]] with `certificate` and \
                     `key`, or `trusted-proxies` with the address of a TLS proxy in front",
                );
            }
        }
        if address.port() != 0 && addresses.contains(&address) {
            item.problem("stands here twice");
        }
        addresses.push(address);
    }
    addresses
}

/// Reads an IP address and a port.
pub(super) fn address(node: &ConfigNode<'_>) -> Option<SocketAddr> {
    let text = node.string()?;
    let address = text.parse().ok();
    if address.is_none() {
        node.problem("must be an IP address and a port, such as \"127.0.0.1:8627\" or \"[::1]:8627\"");
    }
    address
}

/// Reads `[metrics]`.
pub(super) fn metrics(table: Option<ConfigTable<'_>>, server: &ServerSettings) -> MetricsSettings {
    let default = METRICS.parse().ok();
    let Some(mut table) = table else { return MetricsSettings { listen: default, token: None } };
    let (node, token) = (table.take("listen"), table.take("token").and_then(|node| metrics_token(&node)));
    table.finish();
    let Some(node) = node else { return MetricsSettings { listen: default, token } };
    if node.as_str() == Some("") {
        return MetricsSettings { listen: None, token };
    }
    let address = address(&node);
    if let Some(address) = address {
        if !address.ip().is_loopback() && (token.is_none() || server.tls.is_empty()) {
            node.problem(
                "off loopback, metrics need `token` in [metrics] and a certificate in [[server.tls]]; write both, or 127.0.0.1 or [::1]",
            );
        }
        if address.port() != 0 && server.listen.contains(&address) {
            node.problem("is an address of [server] listen too; choose another port");
        }
    }
    MetricsSettings { listen: address, token }
}

/// Reads the token of the metrics.
fn metrics_token(node: &ConfigNode<'_>) -> Option<Secret> {
    let found = secret::read(node)?;
    let token = found.secret.expose();
    if token.len() < MIN_TOKEN_LENGTH || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        node.problem(format!(
            "a token must be at least {MIN_TOKEN_LENGTH} visible ASCII characters; make one with `openssl rand -hex 32`"
        ));
    }
    if found.literal {
        secret::warn_of_literal(node);
    }
    Some(found.secret)
}

/// Reads `[console]`.
pub(super) fn console(
    table: Option<ConfigTable<'_>>,
    served: &[SocketAddr],
    metrics: Option<SocketAddr>,
) -> ConsoleSettings {
    let default = ConsoleSettings { listen: CONSOLE.parse().ok(), chosen: false, allowed_hosts: Vec::new() };
    let Some(mut table) = table else { return default };
    let node = table.take("listen");
    let allowed_hosts = checked(&mut table, "allowed-hosts", host);
    table.finish();
    let Some(node) = node else { return ConsoleSettings { allowed_hosts, ..default } };
    if node.as_str() == Some("") {
        return ConsoleSettings { listen: None, chosen: true, allowed_hosts };
    }
    let Some(address) = address(&node) else { return ConsoleSettings { allowed_hosts, ..default } };
    if !address.ip().is_loopback() {
        node.problem("the console is served on loopback addresses only; write 127.0.0.1 or [::1]");
    }
    if address.port() != 0 && (served.contains(&address) || metrics == Some(address)) {
        node.problem("is an address of another listener too; choose another port");
    }
    ConsoleSettings { listen: Some(address), chosen: true, allowed_hosts }
}

/// Reads the strings of an array that pass a check; a problem for each of the others.
pub(super) fn checked(
    table: &mut ConfigTable<'_>,
    key: &'static str,
    check: fn(&str) -> Result<(), &'static str>,
) -> Vec<String> {
    let items = table.take(key).and_then(|node| node.items("an array of strings"));
    let mut good = Vec::new();
    for item in items.into_iter().flatten() {
        let Some(text) = item.string() else { continue };
        match check(&text) {
            Ok(()) => good.push(text),
            Err(message) => item.problem(message),
        }
    }
    good
}

/// Checks a `Host` value: a host, or a host and a port.
pub(super) fn host(text: &str) -> Result<(), &'static str> {
    if text.contains('*') {
        return Err("must be one host; a pattern would let DNS rebinding in");
    }
    let form = "must be a host or host:port, such as \"mcp.example.com\"";
    let url = Url::parse(&format!("http://{text}/")).map_err(|_| form)?;
    // A Host with an empty port is refused, so such an entry would never match.
    let plain = !text.ends_with(':')
        && url.path() == "/"
        && url.query().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    if text.is_empty() || text.contains(['/', '?', '#', '@']) || !plain { Err(form) } else { Ok(()) }
}
