//! Writes the resolved configuration as TOML, secrets redacted: the output of `headend check`.

use std::fmt::{Display, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize as _, Serialize};
use toml::{Table, Value};
use url::Url;

use crate::mcp::asking::input::Roots;
use crate::mcp::definition::annotations::Hints;
use crate::policy::records::chain::RetentionBounds;
use crate::policy::{PolicySpec, RuleSpec, ScopeSpec};
use crate::wire::foreign;

use super::audit::AuditSettings;
use super::consent::ApprovalSettings;
use super::model::{Config, Profile, ServerSettings, UpstreamSettings, UpstreamTarget};
use super::notify::{NotifyReceiver, NotifySettings};
use crate::source::secret::{REDACTED, Secret, is_secret_name, redact_command};
use crate::source::units;
use crate::values::auth::UpstreamAuth;

/// Renders every key with the value in force, in the order of the shipped example.
pub fn render(config: &Config) -> String {
    let mut out = String::new();
    section(&mut out, "server", &table(&config.server));
    authentication(&mut out, &config.server);
    config.policy.scopes.iter().for_each(|one| scope(&mut out, one));
    section(&mut out, "server.limits", &config.server.limits.shown());
    config.server.tls.iter().for_each(|one| section(&mut out, "[server.tls]", &table(one)));
    let mut metrics = listen(config.metrics.listen);
    if config.metrics.token.is_some() {
        set(&mut metrics, "token", REDACTED);
    }
    section(&mut out, "metrics", &metrics);
    let mut console = listen(config.console.listen);
    set(&mut console, "allowed-hosts", config.console.allowed_hosts.clone());
    section(&mut out, "console", &console);
    section(&mut out, "admin", &table(&config.admin));
    section(&mut out, "stdio", &config.stdio.shown());
    section(&mut out, "naming", &config.naming.shown());
    section(&mut out, "defaults", &table(&config.defaults));
    config.upstreams.iter().for_each(|one| upstream(&mut out, one, true));
    config.disabled.iter().for_each(|one| upstream(&mut out, one, false));
    if !config.policy_stated {
        out.push_str("\n# The file has no [policy].\n");
    }
    policy(&mut out, &config.policy);
    consent(&mut out, &config.consent);
    config.profiles.iter().for_each(|one| profile(&mut out, one));
    section(&mut out, "audit", &audit(&config.audit));
    section(&mut out, "secrets", &table(&config.secrets));
    section(&mut out, "cluster", &table(&config.cluster));
    let mut log = config.log.shown();
    set(&mut log, "filter", config.log.filter.as_str());
    section(&mut out, "log", &log);
    out
}

/// Returns the parts of a configuration that all replicas of a cluster should have alike: the
/// policy and the upstreams, secrets redacted.
pub fn shared_parts(config: &Config) -> [String; 2] {
    let (mut rules, mut upstreams) = (String::new(), String::new());
    config.policy.scopes.iter().for_each(|one| scope(&mut rules, one));
    policy(&mut rules, &config.policy);
    consent(&mut rules, &config.consent);
    config.profiles.iter().for_each(|one| profile(&mut rules, one));
    section(&mut upstreams, "naming", &config.naming.shown());
    section(&mut upstreams, "defaults", &table(&config.defaults));
    config.upstreams.iter().for_each(|one| upstream(&mut upstreams, one, true));
    [rules, upstreams]
}

fn authentication(out: &mut String, server: &ServerSettings) {
    let mut shown = table(&server.auth);
    let Some(jwt) = &server.jwt else { return section(out, "server.auth", &shown) };
    let modes: &[&str] = if jwt.with_tokens { &["token", "jwt"] } else { &["jwt"] };
    set(&mut shown, "mode", texts(modes));
    if !jwt.with_tokens {
        shown.remove("tokens");
    }
    set(&mut shown, "public-url", jwt.public_url.as_str());
    section(out, "server.auth", &shown);
    for issuer in &jwt.issuers {
        let mut shown = without_empty_lists(table(&issuer.terms));
        issuer.jwks.iter().for_each(|jwks| set(&mut shown, "jwks", jwks.to_string()));
        section(out, "[server.auth.issuers]", &shown);
    }
}

/// Renders one rule so that it can be added to a configuration.
pub fn rule_text(spec: &RuleSpec) -> String {
    let mut out = String::new();
    section(&mut out, "[policy.rules]", &without_empty_lists(table(spec)));
    out
}

/// Returns the keys of a value that serialises as a table; empty for any other value.
fn table(value: &impl Serialize) -> Table {
    Table::try_from(value).unwrap_or_default()
}

/// Sets a key that is not written as its type serialises.
fn set(table: &mut Table, key: &str, value: impl Into<Value>) {
    table.insert(key.to_owned(), value.into());
}

/// Appends a table under its header, unless it is empty. Tables in it are written inline.
fn section(out: &mut String, header: &str, table: &Table) {
    if table.is_empty() {
        return;
    }
    let gap = if out.is_empty() { "" } else { "\n" };
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{gap}[{header}]");
    for (name, value) in table {
        let _ = writeln!(out, "{} = {}", key(name), text(value));
    }
}

/// Writes a value as TOML on one line.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(", ")),
        // A whole number is written without a fraction.
        Value::Float(number) => number.to_string(),
        Value::Integer(_) | Value::Boolean(_) | Value::Datetime(_) => value.to_string(),
        // Durations serialise as such a table; no table of a configuration does.
        Value::Table(table) => match Duration::deserialize(table.clone()) {
            Ok(duration) => quoted(&units::duration(duration)),
            Err(_) => inline(&table.iter().map(|(name, value)| (name.clone(), text(value))).collect::<Vec<_>>()),
        },
    }
}

/// Writes a TOML string on one line, with hidden characters as escapes.
pub fn quoted(text: &str) -> String {
    let escapes = |c: char| c.is_control() || foreign::is_hidden(c);
    if !text.contains(escapes) {
        return Value::String(text.to_owned()).to_string();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            // Writing to a string cannot fail.
            c if escapes(c) => drop(write!(out, "\\U{:08X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Writes a TOML key, quoted if necessary.
pub fn key(text: &str) -> String {
    let bare = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if bare { text.to_owned() } else { quoted(text) }
}

/// Writes a TOML array of strings.
pub fn array(values: &[String]) -> String {
    let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
    format!("[{}]", values.join(", "))
}

/// Writes a TOML inline table of pairs whose values are TOML already.
pub fn inline(pairs: &[(String, String)]) -> String {
    if pairs.is_empty() {
        return "{}".to_owned();
    }
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{} = {value}", key(name))).collect();
    format!("{{ {} }}", pairs.join(", "))
}

/// Returns the texts of values.
fn texts<T: Display>(values: &[T]) -> Vec<String> {
    values.iter().map(T::to_string).collect()
}

/// Returns names with stars in place of their secrets.
fn redact_values(secrets: &[(String, Secret)]) -> Table {
    secrets.iter().map(|(name, _)| (name.clone(), REDACTED.into())).collect()
}

/// Removes empty lists and tables, whose absence means everything. The key of a limit may be empty.
fn without_empty_lists(mut table: Table) -> Table {
    table.retain(|name, value| {
        let is_empty = value.as_array().is_some_and(Vec::is_empty) || value.as_table().is_some_and(Table::is_empty);
        !is_empty || name == "key"
    });
    table
}

fn listen(address: Option<SocketAddr>) -> Table {
    Table::from_iter([("listen".to_owned(), address.map(|address| address.to_string()).unwrap_or_default().into())])
}

/// Renders the table of an upstream with those keys that the file states.
pub fn stated(upstream: &UpstreamSettings, stated: &Table) -> String {
    let mut shown = upstream_table(upstream);
    shown.retain(|name, _| stated.contains_key(name));
    let (mut out, header) = (String::new(), format!("upstreams.{}", upstream.name));
    section(&mut out, &header, &shown);
    upstream.auth.iter().for_each(|auth| section(&mut out, &format!("{header}.auth"), &login(auth)));
    out
}

/// Appends the tables of an upstream.
fn upstream(out: &mut String, upstream: &UpstreamSettings, enabled: bool) {
    let mut shown = Table::new();
    set(&mut shown, "enabled", enabled);
    shown.extend(upstream_table(upstream));
    let header = format!("upstreams.{}", upstream.name);
    section(out, &header, &shown);
    for lack in upstream.lacks.iter().filter(|_| enabled) {
        let _ = writeln!(out, "# Not started: {}", foreign::line(lack));
    }
    upstream.auth.iter().for_each(|auth| section(out, &format!("{header}.auth"), &login(auth)));
}

/// Returns the keys of an upstream's table, except `enabled` and `auth`.
fn upstream_table(upstream: &UpstreamSettings) -> Table {
    let mut shown = Table::new();
    match &upstream.target {
        UpstreamTarget::Stdio { command, env, cwd } => {
            let words: Vec<String> = command.iter().map(|word| word.written().to_owned()).collect();
            set(&mut shown, "command", redact_command(&words));
            set(&mut shown, "env", redact_values(env));
            let mut surroundings = table(&upstream.surroundings);
            if upstream.surroundings.path.is_empty() && upstream.surroundings.managers {
                surroundings.remove("path");
            }
            shown.extend(surroundings);
            cwd.iter().for_each(|cwd| set(&mut shown, "cwd", cwd.written()));
            set(&mut shown, "no-new-privileges", upstream.confinement.no_new_privileges);
            upstream.confinement.umask.iter().for_each(|umask| set(&mut shown, "umask", format!("{umask:03o}")));
        }
        UpstreamTarget::Http { url, written, transport, headers } => {
            set(&mut shown, "url", written.as_deref().map_or_else(|| shown_url(url), shown_template));
            set(&mut shown, "transport", transport.into_str());
            set(&mut shown, "headers", redact_values(headers));
            upstream.proxy.shown().into_iter().for_each(|proxy| set(&mut shown, "proxy", proxy));
        }
    }
    shown.extend(table(upstream));
    match &upstream.roots {
        Roots::Hidden => {}
        Roots::Client => set(&mut shown, "roots", "client"),
        Roots::Fixed(uris) => set(&mut shown, "roots", uris.clone()),
    }
    upstream.elicit.hosts.iter().for_each(|hosts| set(&mut shown, "elicit-hosts", texts(hosts)));
    set(&mut shown, "elicit-secrets", upstream.elicit.secrets);
    // Certificates that the table `auth` states are shown in that table.
    if upstream.auth.as_ref().is_none_or(|auth| auth.ca.is_none() && auth.client_certificate.is_none()) {
        shown.extend(table(&upstream.certificates));
    }
    shown
}

/// Returns the table of an upstream's login.
fn login(auth: &UpstreamAuth) -> Table {
    let mut shown = without_empty_lists(table(auth));
    set(&mut shown, "resource", auth.resource.as_str());
    shown
}

/// Returns a URL without apparent secrets in its query.
fn shown_url(url: &Url) -> String {
    if !url.query_pairs().any(|(name, _)| is_secret_name(&name)) {
        return url.to_string();
    }
    let mut shown = url.clone();
    let pairs = url.query_pairs();
    let redact = |name: &str, value: &str| if is_secret_name(name) { REDACTED.to_owned() } else { value.to_owned() };
    shown.query_pairs_mut().clear().extend_pairs(pairs.map(|(name, value)| (name.to_string(), redact(&name, &value))));
    shown.to_string()
}

/// Returns a URL with its variables, which may stand for secrets; other secrets in its query are
/// redacted.
fn shown_template(text: &str) -> String {
    let Some((start, query)) = text.split_once('?') else { return text.to_owned() };
    let pair = |pair: &str| match pair.split_once('=') {
        Some((name, value)) if is_secret_name(name) && !value.contains("${") => format!("{name}={REDACTED}"),
        Some(_) | None => pair.to_owned(),
    };
    format!("{start}?{}", query.split('&').map(pair).collect::<Vec<_>>().join("&"))
}

fn policy(out: &mut String, policy: &PolicySpec) {
    section(out, "policy", &Table::from_iter([("default".to_owned(), policy.default.into_str().into())]));
    policy.rules.iter().for_each(|rule| section(out, "[policy.rules]", &without_empty_lists(table(rule))));
    for limit in &policy.limits {
        let mut shown = without_empty_lists(table(limit));
        if limit.rate.is_none() {
            shown.remove("burst");
        }
        section(out, "[policy.limits]", &shown);
    }
}

fn scope(out: &mut String, scope: &ScopeSpec) {
    let mut shown = without_empty_lists(table(&scope.items));
    shown.retain(|name, _| !matches!(name, "id" | "effect"));
    section(out, &ScopeSpec::path(&scope.scope), &shown);
}

fn consent(out: &mut String, consent: &ApprovalSettings) {
    let mut shown = consent.shown();
    if let Some(NotifySettings { to, arguments }) = &consent.notify {
        match to {
            NotifyReceiver::Program(command) => set(&mut shown, "notify", redact_command(command)),
            NotifyReceiver::Url(hook) => {
                set(&mut shown, "notify", hook.shown());
                set(&mut shown, "notify-headers", redact_values(&hook.headers));
            }
        }
        set(&mut shown, "notify-arguments", *arguments);
    }
    section(out, "policy.consent", &shown);
    let holds = consent.holds.iter().map(|hold| without_empty_lists(table(hold)));
    holds.for_each(|hold| section(out, "[policy.consent.holds]", &hold));
}

fn profile(out: &mut String, profile: &Profile) {
    let mut shown = Table::new();
    set(&mut shown, "upstreams", texts(&profile.upstreams));
    shown.extend(table(profile));
    section(out, &format!("profiles.{}", profile.name), &shown);
}

fn audit(audit: &AuditSettings) -> Table {
    let mut shown = audit.shown();
    set(&mut shown, "path", audit.path.display().to_string());
    set(&mut shown, "capture-arguments", if audit.capture_arguments { "full" } else { "none" });
    let RetentionBounds { age, size } = audit.retain;
    let mut retain = Table::new();
    age.iter().for_each(|age| set(&mut retain, "age", units::duration(*age)));
    size.iter().for_each(|bytes| {
        set(&mut retain, "size", units::size(usize::try_from(*bytes).unwrap_or(usize::MAX)));
    });
    if !audit.retain.is_everything() {
        set(&mut shown, "retain", retain);
    }
    shown
}

/// Writes hints as an inline table.
pub fn hints(hints: &Hints) -> String {
    text(&Value::Table(table(hints)))
}
