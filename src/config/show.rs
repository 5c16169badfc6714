//! The resolved configuration as TOML, secrets redacted; what `headend check` prints.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use toml::Value;
use url::Url;

use crate::mcp::annotations::Hints;
use crate::mcp::input::Roots;
use crate::policy::chain::Retain;
use crate::policy::{ArgumentSpec, LimitSpec, MatcherSpec, PolicySpec, RuleSpec, Scalar};
use crate::wire::foreign;

use super::auth::UpstreamAuth;
use super::consent::{Consent, Hold};
use super::model::{
    Admin, Auth, Config, Confinement, Defaults, Filter, Profile, Server, Surroundings, Target, Upstream,
};
use super::notify::{Notified, Notify};
use super::secret::{REDACTED, Secret, is_secret_name, redacted};
use super::units;

/// Renders every key with the value in force, in the order of the shipped example.
pub fn render(config: &Config) -> String {
    let mut out = Out::default();
    server(&mut out, &config.server);
    out.table("metrics");
    out.string("listen", &config.metrics.map(|address| address.to_string()).unwrap_or_default());
    out.table("console");
    out.string("listen", &config.console.listen.map(|address| address.to_string()).unwrap_or_default());
    admin(&mut out, &config.admin);
    out.table("stdio");
    out.string("reconnect-timeout", &units::duration(config.stdio.reconnect_timeout));
    out.table("naming");
    out.string("uris", config.naming.uris.into_str());
    out.raw("max-length", &config.naming.max_length.to_string());
    defaults(&mut out, &config.defaults);
    for one in &config.upstreams {
        upstream(&mut out, one, true);
    }
    for one in &config.disabled {
        upstream(&mut out, one, false);
    }
    policy(&mut out, &config.policy, config.policy_stated);
    consent(&mut out, &config.consent);
    for one in &config.profiles {
        profile(&mut out, one);
    }
    out.table("audit");
    out.path("path", &config.audit.path);
    out.string("capture-arguments", if config.audit.capture_arguments { "full" } else { "none" });
    out.raw("strict", &config.audit.strict.to_string());
    out.string("on-failure", config.audit.on_failure.into_str());
    out.string("max-segment", &units::size(config.audit.max_segment));
    retain(&mut out, config.audit.retain);
    out.table("secrets");
    if config.secrets.key.is_some() {
        out.string("key", REDACTED);
    }
    out.table("log");
    out.string("filter", &config.log.filter);
    out.string("format", config.log.format.into_str());
    out.0
}

fn retain(out: &mut Out, retain: Retain) {
    let age = retain.age.map(|age| ("age".to_owned(), quoted(&units::duration_text(age))));
    let size = retain
        .size
        .map(|bytes| ("size".to_owned(), quoted(&units::size(usize::try_from(bytes).unwrap_or(usize::MAX)))));
    if !retain.is_everything() {
        out.raw("retain", &inline(&age.into_iter().chain(size).collect::<Vec<_>>()));
    }
}

/// Text that grows line by line.
#[derive(Default)]
struct Out(String);

impl Out {
    fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    fn table(&mut self, header: &str) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        self.line(&format!("{gap}[{header}]"));
    }

    fn raw(&mut self, key: &str, value: &str) {
        self.line(&format!("{key} = {value}"));
    }

    fn string(&mut self, key: &str, value: &str) {
        self.raw(key, &quoted(value));
    }

    fn path(&mut self, key: &str, value: &Path) {
        self.string(key, &value.display().to_string());
    }

    fn strings(&mut self, key: &str, values: &[String]) {
        self.raw(key, &array(values));
    }

    fn paths(&mut self, key: &str, paths: &[PathBuf]) {
        self.strings(key, &paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>());
    }

    /// A list whose absence means everything.
    fn patterns(&mut self, key: &str, values: &[String]) {
        if !values.is_empty() {
            self.strings(key, values);
        }
    }
}

/// A TOML string on one line, in which hidden characters are escapes.
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

/// A TOML key, quoted where it has to be.
pub fn key(text: &str) -> String {
    let bare = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if bare { text.to_owned() } else { quoted(text) }
}

/// A TOML array of strings.
pub fn array(values: &[String]) -> String {
    let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
    format!("[{}]", values.join(", "))
}

/// A TOML inline table of pairs that are TOML already.
pub fn inline(pairs: &[(String, String)]) -> String {
    if pairs.is_empty() {
        return "{}".to_owned();
    }
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{} = {value}", key(name))).collect();
    format!("{{ {} }}", pairs.join(", "))
}

fn secrets(secrets: &[(String, Secret)]) -> String {
    let pairs: Vec<_> = secrets.iter().map(|(name, _)| (name.clone(), quoted(REDACTED))).collect();
    inline(&pairs)
}

fn server(out: &mut Out, server: &Server) {
    out.table("server");
    let listen: Vec<String> = server.listen.iter().map(ToString::to_string).collect();
    out.strings("listen", &listen);
    out.string("endpoint", &server.endpoint);
    out.raw("legacy-sse", &server.legacy_sse.to_string());
    out.strings("allowed-hosts", &server.allowed_hosts);
    out.strings("allowed-origins", &server.allowed_origins);
    out.string("drain-timeout", &units::duration(server.drain_timeout));
    out.table("server.auth");
    match &server.auth {
        Auth::Token { tokens } => {
            out.string("mode", "token");
            out.raw("tokens", &secrets(tokens));
        }
        Auth::None => out.string("mode", "none"),
    }
    out.table("server.limits");
    out.0.push_str(&server.limits.show());
}

fn admin(out: &mut Out, admin: &Admin) {
    out.table("admin");
    if let Some(socket) = &admin.socket {
        out.path("socket", socket);
    }
    if let Some(group) = &admin.group {
        out.string("group", group);
    }
    out.strings("users", &admin.users);
}

fn defaults(out: &mut Out, defaults: &Defaults) {
    let Defaults { env_from, path } = defaults;
    if env_from.is_empty() && path.is_none() {
        return;
    }
    out.table("defaults");
    out.patterns("env-from", env_from);
    if let Some(path) = path {
        out.paths("path", path);
    }
}

fn upstream(out: &mut Out, upstream: &Upstream, enabled: bool) {
    out.table(&format!("upstreams.{}", upstream.name));
    out.raw("enabled", &enabled.to_string());
    for lack in upstream.lacks.iter().filter(|_| enabled) {
        out.line(&format!("# Not started: {}", foreign::line(lack)));
    }
    if let Some(expand) = upstream.expand {
        out.raw("expand", &expand.to_string());
    }
    match &upstream.target {
        Target::Stdio { command, env, cwd } => {
            let words: Vec<String> = command.iter().map(|word| word.written().to_owned()).collect();
            out.strings("command", &redacted(&words));
            out.raw("env", &secrets(env));
            let Surroundings { env_from, path, managers } = &upstream.surroundings;
            out.patterns("env-from", env_from);
            if !path.is_empty() || !managers {
                out.paths("path", path);
            }
            if let Some(cwd) = cwd {
                out.string("cwd", cwd.written());
            }
            let Confinement { no_new_privileges, umask } = upstream.confinement;
            out.raw("no-new-privileges", &no_new_privileges.to_string());
            if let Some(umask) = umask {
                out.string("umask", &format!("{umask:03o}"));
            }
        }
        Target::Http { url, written, transport, headers } => {
            out.string("url", &written.as_deref().map_or_else(|| shown_url(url), shown_template));
            out.string("transport", transport.into_str());
            out.raw("headers", &secrets(headers));
            upstream.proxy.shown().iter().for_each(|proxy| out.string("proxy", proxy));
        }
    }
    out.string("era", upstream.era.into_str());
    out.string("instance", upstream.instance.into_str());
    out.string("start", upstream.start.into_str());
    out.string("call-timeout", &units::duration(upstream.call_timeout));
    out.string("call-max", &units::duration(upstream.call_max));
    out.string("start-timeout", &units::duration(upstream.start_timeout));
    out.string("start-wait", &units::duration(upstream.start_wait));
    out.string("idle-stop", &units::duration(upstream.idle_stop));
    out.raw("max-inventory", &upstream.max_inventory.to_string());
    out.raw("max-in-flight", &upstream.max_in_flight.to_string());
    out.raw("queue", &upstream.queue.to_string());
    out.string("queue-timeout", &units::duration(upstream.queue_timeout));
    out.string("attribution-timeout", &units::duration(upstream.attribution_timeout));
    match &upstream.roots {
        Roots::Hidden => {}
        Roots::Client => out.string("roots", "client"),
        Roots::Fixed(uris) => out.strings("roots", uris),
    }
    out.string("completions", upstream.completions.into_str());
    if let Some(hosts) = &upstream.elicit.hosts {
        out.strings("elicit-hosts", &hosts.iter().map(ToString::to_string).collect::<Vec<_>>());
    }
    out.raw("elicit-secrets", if upstream.elicit.secrets { "true" } else { "false" });
    out.string("trust", upstream.trust.into_str());
    out.string("on-change", upstream.on_change.into_str());
    let stated = upstream.annotations.iter().map(|(pattern, stated)| (pattern.clone(), hints(stated)));
    out.raw("annotations", &inline(&stated.collect::<Vec<_>>()));
    out.string("prefix", &upstream.prefix);
    for (name, items) in
        [("tools", &upstream.tools), ("prompts", &upstream.prompts), ("resources", &upstream.resources)]
    {
        out.raw(name, &filter(items));
    }
    if let Some(auth) = &upstream.auth {
        login(out, upstream.name.as_str(), auth);
    }
}

/// How the gateway logs in.
fn login(out: &mut Out, name: &str, auth: &UpstreamAuth) {
    let UpstreamAuth { kind, issuers, client_id, client_secret, private_key, scopes, resource, .. } = auth;
    out.table(&format!("upstreams.{name}.auth"));
    out.string("type", kind.into_str());
    out.patterns("issuers", issuers);
    for (name, text) in [
        ("client-id", client_id.clone()),
        ("assertion-file", auth.assertion_file.as_ref().map(|path| path.display().to_string())),
        ("client-metadata-url", auth.client_metadata_url.as_ref().map(Url::to_string)),
        ("redirect-url", auth.redirect_url.as_ref().map(Url::to_string)),
    ] {
        text.into_iter().for_each(|text| out.string(name, &text));
    }
    for (name, secret) in [
        ("client-secret", client_secret),
        ("private-key", private_key),
        ("ca", &auth.ca),
        ("client-certificate", &auth.client_certificate),
    ] {
        secret.iter().for_each(|_| out.string(name, REDACTED));
    }
    out.patterns("scopes", scopes);
    out.string("resource", resource.as_str());
}

/// The URL without apparent secrets in its query.
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

/// A URL with variables, which stand for secrets; another secret in its query is not shown.
fn shown_template(text: &str) -> String {
    let Some((start, query)) = text.split_once('?') else { return text.to_owned() };
    let pair = |pair: &str| match pair.split_once('=') {
        Some((name, value)) if is_secret_name(name) && !value.contains("${") => format!("{name}={REDACTED}"),
        Some(_) | None => pair.to_owned(),
    };
    format!("{start}?{}", query.split('&').map(pair).collect::<Vec<_>>().join("&"))
}

fn filter(filter: &Filter) -> String {
    let mut pairs = vec![("allow".to_owned(), array(&filter.allow)), ("deny".to_owned(), array(&filter.deny))];
    if !filter.rename.is_empty() {
        let names: Vec<_> = filter.rename.iter().map(|(from, to)| (from.clone(), quoted(to))).collect();
        pairs.push(("rename".to_owned(), inline(&names)));
    }
    inline(&pairs)
}

fn consent(out: &mut Out, consent: &Consent) {
    let Consent { timeout, prompt_life, max_open, per_minute, unused_expiry, operator, hold, max_held, holds, notify } =
        consent;
    out.table("policy.consent");
    out.string("timeout", &units::duration(*timeout));
    out.string("prompt-life", &units::duration(*prompt_life));
    out.raw("max-open", &max_open.to_string());
    out.raw("per-minute", &per_minute.to_string());
    out.string("unused-expiry", &units::duration_text(*unused_expiry));
    out.string("operator", operator.into_str());
    out.string("hold", &units::duration(*hold));
    out.raw("max-held", &max_held.to_string());
    if let Some(Notify { to, arguments }) = notify {
        match to {
            Notified::Program(command) => out.strings("notify", &redacted(command)),
            Notified::Url(hook) => {
                out.string("notify", &hook.shown());
                out.raw("notify-headers", &secrets(&hook.headers));
            }
        }
        out.raw("notify-arguments", &arguments.to_string());
    }
    for Hold { callers, profiles, clients, hold } in holds {
        out.table("[policy.consent.holds]");
        for (name, list) in [("callers", callers), ("profiles", profiles), ("clients", clients)] {
            out.patterns(name, list);
        }
        out.string("hold", &units::duration(*hold));
    }
}

fn policy(out: &mut Out, policy: &PolicySpec, stated: bool) {
    if !stated {
        out.line("\n# The file has no [policy].");
    }
    out.table("policy");
    out.string("default", policy.default.into_str());
    for one in &policy.rules {
        rule(out, one);
    }
    for LimitSpec { id, tools, upstreams, callers, key, rate, burst, concurrent, per_day } in &policy.limits {
        out.table("[policy.limits]");
        out.string("id", id);
        for (name, list) in [("tools", tools), ("upstreams", upstreams), ("callers", callers)] {
            out.patterns(name, list);
        }
        let parts = key.iter().map(|part| part.into_str().to_owned());
        out.strings("key", &parts.collect::<Vec<_>>());
        if let Some(rate) = rate {
            out.string("rate", &rate.to_string());
            out.raw("burst", &burst.to_string());
        }
        for (name, number) in [("concurrent", concurrent), ("per-day", per_day)] {
            if let Some(number) = number {
                out.raw(name, &number.to_string());
            }
        }
    }
}

/// One rule as it can be added to a configuration.
pub fn rule_text(spec: &RuleSpec) -> String {
    let mut out = Out::default();
    rule(&mut out, spec);
    out.0
}

fn rule(out: &mut Out, rule: &RuleSpec) {
    let RuleSpec { id, effect, upstreams, tools, prompts, resources, callers, profiles, .. } = rule;
    let RuleSpec { kinds, annotations, claims, arguments, unless, min_evidence, .. } = rule;
    out.table("[policy.rules]");
    out.string("id", id);
    out.string("effect", effect.into_str());
    let lists = [upstreams, tools, prompts, resources, callers, profiles];
    for (name, list) in ["upstreams", "tools", "prompts", "resources", "callers", "profiles"].into_iter().zip(lists) {
        out.patterns(name, list);
    }
    out.patterns("kinds", &kinds.iter().map(|kind| kind.into_str().to_owned()).collect::<Vec<_>>());
    for (name, stated) in [("annotations", annotations), ("claims", claims)] {
        if !stated.is_empty() {
            out.raw(name, &hints(stated));
        }
    }
    for (name, list) in [("arguments", arguments), ("unless", unless)] {
        if !list.is_empty() {
            let entries: Vec<String> = list.iter().map(condition).collect();
            out.raw(name, &format!("[{}]", entries.join(", ")));
        }
    }
    if let Some(evidence) = min_evidence {
        out.string("min-evidence", evidence.into_str());
    }
}

pub(super) fn hints(hints: &Hints) -> String {
    let all = ["read-only", "destructive", "idempotent", "open-world"].into_iter().zip(hints.values());
    let stated = all.filter_map(|(name, value)| Some((name.to_owned(), value?.to_string())));
    inline(&stated.collect::<Vec<_>>())
}

fn condition(spec: &ArgumentSpec) -> String {
    let value = match &spec.matcher {
        MatcherSpec::Eq(value) | MatcherSpec::Ne(value) => scalar(value),
        MatcherSpec::In(values) => format!("[{}]", values.iter().map(scalar).collect::<Vec<_>>().join(", ")),
        MatcherSpec::Prefix(text)
        | MatcherSpec::Suffix(text)
        | MatcherSpec::Glob(text)
        | MatcherSpec::Regex(text)
        | MatcherSpec::PathUnder(text) => quoted(text),
        MatcherSpec::UrlHostIn(texts) | MatcherSpec::EmailDomainIn(texts) | MatcherSpec::CidrIn(texts) => array(texts),
        MatcherSpec::Range { min, max } => {
            let ends = [("min", min), ("max", max)].into_iter();
            inline(
                &ends
                    .filter_map(|(name, end)| Some((name.to_owned(), number(end.as_ref().copied()?))))
                    .collect::<Vec<_>>(),
            )
        }
        MatcherSpec::MaxLen(most) | MatcherSpec::MaxItems(most) => most.to_string(),
        MatcherSpec::Type(kind) => quoted(kind.into_str()),
        MatcherSpec::Absent | MatcherSpec::Present => "true".to_owned(),
    };
    inline(&[("pointer".to_owned(), quoted(&spec.pointer)), (spec.matcher.into_str().to_owned(), value)])
}

fn scalar(value: &Scalar) -> String {
    match value {
        Scalar::Text(text) => quoted(text),
        Scalar::Number(value) => number(*value),
        Scalar::Boolean(value) => value.to_string(),
    }
}

/// Whole numbers without a fraction, as they are usually written.
fn number(value: f64) -> String {
    value.to_string()
}

fn profile(out: &mut Out, profile: &Profile) {
    out.table(&format!("profiles.{}", profile.name));
    let upstreams: Vec<String> = profile.upstreams.iter().map(ToString::to_string).collect();
    out.strings("upstreams", &upstreams);
    for (name, items) in [("tools", &profile.tools), ("prompts", &profile.prompts), ("resources", &profile.resources)] {
        out.raw(name, &filter(items));
    }
    out.raw("transparent", &profile.transparent.to_string());
    out.string("hints", profile.hints.into_str());
}
