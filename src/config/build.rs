//! Reads the root of the configuration and its tables about the gateway itself.

use std::ops::RangeInclusive;
use std::time::Duration;

use url::Url;

use crate::policy::LOCAL;

use super::audit::AuditSettings;
use super::consent::ApprovalSettings;
use super::keys::read_whole;
use super::limits::Limits;
use super::listeners::{self, MIN_TOKEN_LENGTH};
use super::model::cluster::ClusterSettings;
use super::model::{
    AdminSettings, ClientAuth, Config, LoggingSettings, NamingSettings, SecretSettings, ServerSettings, StdioSettings,
};
use super::{profile, upstream};
use crate::machine::surroundings;
use crate::rule_tables::rules;
use crate::source::file::{ConfigNode, ConfigTable};
use crate::source::secret;
use crate::source::secret::Secret;
use crate::values::issuers;
use crate::values::issuers::{AuthMode, JwtSettings};

/// The default of `[server] listen`.
const LISTEN: &str = "127.0.0.1:8627";
/// The default of `[server] endpoint`: the path in hosts' documentation.
const ENDPOINT: &str = "/mcp";
/// The default of `[server] drain-timeout`: together with the stop of the children below systemd's
/// 45 s.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(25);

const DRAIN_RANGE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);

/// The length of the shortest key for the store: 32 hexadecimal characters have 128 bits.
const MIN_KEY_LENGTH: usize = 32;
/// The longest name of a caller, in bytes: every audit line contains it.
const MAX_CALLER_LENGTH: usize = 64;

/// Builds the configuration. An invalid part gets its default, since its problem refuses the whole
/// file anyway.
pub(super) fn config(mut root: ConfigTable<'_>) -> Config {
    // Accepted for editors, and otherwise unused.
    drop(root.string("$schema"));
    let (server, scopes) = server(root.table("server"));
    let metrics = listeners::metrics(root.table("metrics"), &server);
    let console = listeners::console(root.table("console"), &server.listen, metrics.listen);
    let admin = read_whole(root.table("admin"), admin);
    let stdio = read_whole(root.table("stdio"), StdioSettings::read_keys);
    let naming = read_whole(root.table("naming"), NamingSettings::read_keys);
    let defaults = surroundings::defaults(root.table("defaults"));
    let all = upstream::all(root.table("upstreams"), &defaults);
    let names: Vec<_> = all.iter().map(|(upstream, _)| upstream.name.clone()).collect();
    let (upstreams, disabled): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, enabled)| *enabled);
    let [upstreams, disabled] =
        [upstreams, disabled].map(|some| some.into_iter().map(|(one, _)| one).collect::<Vec<_>>());
    let policy = root.take("policy");
    let policy_stated = policy.is_some();
    if !policy_stated {
        let message = "there is no [policy] table, so every call needs an approval; write `[policy]` with `default = \"ask\"`, or `\"allow\"` to allow what no rule denies";
        root.source.warning_at("policy", message);
    }
    let mut policy = policy.and_then(|node| node.table());
    let consent = ApprovalSettings::read(policy.as_mut().and_then(|table| table.table("consent")));
    let profiles = profile::all(root.table("profiles"), &names, server.jwt.as_ref());
    for (index, hold) in consent.holds.iter().enumerate() {
        let (path, source) = (format!("policy.consent.holds[{index}].profiles"), root.source);
        let names = || profiles.iter().map(|profile| profile.name.as_str());
        let mut at = |path: String, message: String| source.problem_at(&path, message);
        rules::check_names(&path, &hold.profiles, &names, "profile", &mut at);
    }
    let policy = rules::policy(root.source, policy, scopes, &names, &profiles);
    let audit = AuditSettings::read(root.table("audit"));
    let secrets = read_whole(root.table("secrets"), secrets);
    let cluster = read_cluster(&mut root, &secrets);
    let log = read_whole(root.table("log"), log);
    if upstreams.is_empty() {
        let way_out = if disabled.is_empty() {
            "there are none, so nothing is served; write a table such as `[upstreams.files]`"
        } else {
            "all have `enabled = false`, so nothing is served"
        };
        root.source.warning_at("upstreams", way_out);
    }
    root.finish();
    Config {
        path: None,
        also: Vec::new(),
        server,
        metrics,
        console,
        admin,
        stdio,
        naming,
        defaults,
        upstreams,
        disabled,
        off: Vec::new(),
        has_stored_callers: false,
        policy,
        policy_stated,
        consent,
        profiles,
        audit,
        secrets,
        cluster,
        log,
    }
}

/// Reads the table. Returns `[server.auth.scopes]` beside it, which is part of the policy.
fn server<'s>(table: Option<ConfigTable<'s>>) -> (ServerSettings, Option<ConfigTable<'s>>) {
    let mut server = ServerSettings {
        listen: LISTEN.parse().into_iter().collect(),
        endpoint: ENDPOINT.to_owned(),
        legacy_sse: false,
        allowed_hosts: Vec::new(),
        allowed_origins: Vec::new(),
        auth: ClientAuth::Token { tokens: Vec::new() },
        jwt: None,
        limits: Limits::default(),
        drain_timeout: DRAIN_TIMEOUT,
        trusted_proxies: Vec::new(),
        tls: Vec::new(),
    };
    let Some(mut table) = table else { return (server, None) };
    let mut scopes = None;
    if let Some(mut auth) = table.table("auth") {
        scopes = auth.table("scopes");
        (server.auth, server.jwt) = authentication(&mut auth);
        auth.finish();
    }
    server.tls = listeners::certificates(&mut table);
    server.trusted_proxies = listeners::trusted_proxies(&mut table);
    if let Some(node) = table.take("listen") {
        server.listen = listeners::listen(&node, &server);
    }
    if let Some(node) = table.take("endpoint") {
        server.endpoint = endpoint(&node).unwrap_or(server.endpoint);
    }
    if let Some(node) = table.take("legacy-sse") {
        server.legacy_sse = node.boolean().unwrap_or(false);
        let first = server.endpoint.split('/').nth(1).unwrap_or_default();
        if server.legacy_sse && ["sse", "messages"].contains(&first) {
            node.problem("serves /sse and /messages, so the endpoint must have another path, such as \"/mcp\"");
        }
    }
    server.allowed_hosts = listeners::checked(&mut table, "allowed-hosts", listeners::host);
    server.allowed_origins = listeners::checked(&mut table, "allowed-origins", origin);
    if let Some(mut limits) = table.table("limits") {
        server.limits = Limits::read(&mut limits);
        limits.finish();
    }
    server.drain_timeout = table.duration("drain-timeout", &DRAIN_RANGE).unwrap_or(server.drain_timeout);
    table.finish();
    (server, scopes)
}

fn authentication(table: &mut ConfigTable<'_>) -> (ClientAuth, Option<JwtSettings>) {
    let modes = issuers::modes(table.take("mode").as_ref());
    let jwt = issuers::read(table, &modes);
    let tokens = table.take("tokens");
    if !modes.contains(&AuthMode::None) {
        if let Some(node) = tokens.as_ref().filter(|_| !modes.contains(&AuthMode::Token)) {
            node.problem("tokens are not looked at in mode \"jwt\"; write mode = [\"token\", \"jwt\"] or remove them");
        }
        let tokens = tokens.and_then(|node| node.table()).map(tokens_of).unwrap_or_default();
        return (ClientAuth::Token { tokens }, jwt);
    }
    if let Some(node) = tokens {
        node.problem("tokens are not looked at in mode \"none\"; write mode = \"token\" or remove them");
    }
    (ClientAuth::None, jwt)
}

/// Reports whether this is the name of a token's caller, unless it is reserved.
pub fn is_caller_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=MAX_CALLER_LENGTH).contains(&name.len()) && name.chars().all(is_part)
}

fn tokens_of(table: ConfigTable<'_>) -> Vec<(String, Secret)> {
    let mut tokens: Vec<(String, Secret)> = Vec::new();
    for (caller, node) in table.named() {
        if !is_caller_name(&caller) {
            node.problem(format!("a caller's name must be up to {MAX_CALLER_LENGTH} letters, digits, `-`, `_` or `.`"));
        }
        if caller == LOCAL {
            node.problem("`local` is the caller of the generated token; choose another name");
        }
        let Some(found) = secret::read(&node) else { continue };
        let token = found.secret.expose();
        if !token.bytes().all(|b| b.is_ascii_graphic()) || token.is_empty() {
            node.problem("a token must be visible ASCII characters without spaces, and not empty");
        } else if token.len() < MIN_TOKEN_LENGTH {
            node.problem(format!(
                "a token of fewer than {MIN_TOKEN_LENGTH} characters can be guessed; make one with `openssl rand -hex 32`"
            ));
        }
        if let Some((other, _)) = tokens.iter().find(|(_, other)| *other == found.secret) {
            node.problem(format!("`{other}` has the same token, so the two callers cannot be told apart"));
        }
        if found.literal {
            secret::warn_of_literal(&node);
        }
        tokens.push((caller, found.secret));
    }
    tokens
}

fn endpoint(node: &ConfigNode<'_>) -> Option<String> {
    let path = node.string()?;
    let segment = |part: &str| {
        let clean = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~');
        !part.is_empty() && part != "." && part != ".." && part.chars().all(clean)
    };
    let good = path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(segment));
    if !good || path.starts_with("/.well-known") {
        node.problem(
            "must be a path such as \"/mcp\": letters, digits, `-`, `_`, `.` and `~` between slashes, none at the end",
        );
        return None;
    }
    Some(path)
}

/// Checks an `Origin` value: scheme, host and port, as browsers write it.
fn origin(text: &str) -> Result<(), &'static str> {
    if text.contains('*') || text == "null" {
        return Err("must be one origin; `*` and \"null\" would let any page in");
    }
    let form = "must be an origin without a path, such as \"https://app.example.com\"";
    let url = Url::parse(text).map_err(|_| form)?;
    if url.host().is_some() && url.origin().ascii_serialization() == text { Ok(()) } else { Err(form) }
}

fn admin(table: &mut ConfigTable<'_>) -> AdminSettings {
    let admin = AdminSettings {
        socket: table.path("socket"),
        group: table.string("group"),
        users: table.strings("users").unwrap_or_default(),
    };
    if !admin.users.is_empty() && admin.group.is_none() {
        table.warning(
            "no other user can open the socket, whose mode is 0600 without a group; write `group = \"headend\"` with a \
             group that the users are in",
        );
    }
    admin
}

fn secrets(table: &mut ConfigTable<'_>) -> SecretSettings {
    let key = table.take("key").and_then(|node| seal_key(&node));
    let previous = table.take("previous-key");
    let previous_key = previous.as_ref().and_then(seal_key);
    if let Some(node) = previous.filter(|_| previous_key.is_some() && previous_key == key) {
        node.problem("is the same key as `key`; write the key that `key` had before, or remove this line");
    }
    SecretSettings { key, previous_key }
}

/// Reads a key of sealed values.
fn seal_key(node: &ConfigNode<'_>) -> Option<Secret> {
    let found = secret::read(node)?;
    if found.secret.expose().len() < MIN_KEY_LENGTH {
        node.problem(format!(
            "a key of fewer than {MIN_KEY_LENGTH} characters can be guessed; make one with `openssl rand -hex 32`"
        ));
    }
    if found.literal {
        secret::warn_of_literal(node);
    }
    Some(found.secret)
}

/// Reads `[cluster]`, whose replicas must have one key.
fn read_cluster(root: &mut ConfigTable<'_>, secrets: &SecretSettings) -> Option<ClusterSettings> {
    let table = root.table("cluster")?;
    if secrets.key.is_none() {
        table.problem("needs `key` in [secrets], the same on all replicas; make one with `openssl rand -hex 32`");
    }
    listeners::cluster::read(table)
}

fn log(table: &mut ConfigTable<'_>) -> LoggingSettings {
    let mut log = LoggingSettings::read_keys(table);
    if let Some(node) = table.take("filter") {
        log.filter = node.string().unwrap_or_default();
        if !log.filter.split(',').all(is_directive) {
            node.problem(
                "must be a level (error, warn, info, debug, trace, off) or `target=level` pairs with commas between",
            );
        }
    }
    log
}

/// Reports whether a text is a log level, or a target and a level.
fn is_directive(text: &str) -> bool {
    let (target, level) = text.split_once('=').unwrap_or(("headend", text));
    let named = !target.is_empty() && target.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'));
    named && ["error", "warn", "info", "debug", "trace", "off"].contains(&level)
}
