//! Reads the `[upstreams.<name>]` tables.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use url::Url;

use crate::catalog::name::{MAX_LENGTH, UpstreamName, prefix_warnings};
use crate::mcp::asking::elicitation::{ElicitationSettings, HostPattern};
use crate::mcp::asking::input::Roots;
use crate::mcp::definition::annotations::Hints;
use crate::policy::{ChangePolicy, OperatorHints, UpstreamTrust};

use super::model::{
    Confinement, EraChoice, HttpTransport, InstanceScope, Placement, StartMode, UpstreamDefaults, UpstreamSettings,
    UpstreamTarget,
};
use crate::machine::surroundings;
use crate::rule_tables::filter::filter;
use crate::rule_tables::hints::hints;
use crate::source::expand::VariableText;
use crate::source::file::{ConfigNode, ConfigTable};
use crate::source::secret;
use crate::source::secret::{MissingSecrets, Secret};
use crate::source::words::find_repeated;
use crate::values::address::is_loopback;
use crate::values::auth;
use crate::values::auth::{UpstreamAuth, UpstreamCertificates};
use crate::values::command::command;
use crate::values::instructions;
use crate::values::proxy::ProxySettings;
use crate::values::remote::{headers, url};

/// The default of `call-timeout`: the silence after which headend cancels a call; progress restarts
/// the wait.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The default of `call-max`: the longest call with all its progress.
const CALL_MAX: Duration = Duration::from_secs(600);
/// The default of `start-timeout`: `npx` and `uvx` download on the first start.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The default of `start-wait`: less than hosts wait for a call, which is mostly a minute.
const START_WAIT: Duration = Duration::from_secs(25);
/// The default of `max-in-flight` for a program: one process answers one client at a time, more or
/// less.
const STDIO_IN_FLIGHT: usize = 16;
const HTTP_IN_FLIGHT: usize = 64;
/// The default of `idle-stop`: long enough that a pause in a conversation seldom costs a start.
const IDLE_STOP: Duration = Duration::from_secs(600);
/// The default of `max-inventory`: many times what a model can use; a list of a whole API has a few
/// thousand tools.
const INVENTORY: usize = 10_000;
const QUEUE: usize = 128;
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
/// The default of `attribution-timeout`: most calls end sooner, and new ones wait no longer than in
/// the queue.
const ATTRIBUTION_TIMEOUT: Duration = Duration::from_secs(5);

const TIMES: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(86_400);
const QUEUE_TIMES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);
const ATTRIBUTION_TIMES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);
const IN_FLIGHT: RangeInclusive<usize> = 1..=4096;
const INVENTORIES: RangeInclusive<usize> = 1..=100_000;
const QUEUES: RangeInclusive<usize> = 0..=65_536;

/// The number of characters that a prefix has to leave for the name itself.
const ROOM_FOR_NAME: usize = 12;

/// All upstreams in the order of the file, and whether each is enabled.
pub(super) fn all(table: Option<ConfigTable<'_>>, defaults: &UpstreamDefaults) -> Vec<(UpstreamSettings, bool)> {
    let Some(table) = table else { return Vec::new() };
    let source = table.source;
    let mut upstreams: Vec<(UpstreamSettings, bool)> = Vec::new();
    for (key, node) in table.named() {
        let name = UpstreamName::parse(&key);
        if let Err(error) = &name {
            node.problem(format!(
                "the name of an upstream {error}; write for example `[upstreams.{}]`",
                suggestion(&key)
            ));
        }
        let Some(table) = node.table() else { continue };
        // The rest of a table with a bad name is checked too.
        let Ok(stand_in) = UpstreamName::parse("x") else { continue };
        let good = name.is_ok();
        let upstream = one(name.unwrap_or(stand_in), table, defaults);
        upstreams.extend(upstream.filter(|_| good));
    }
    let prefixes = upstreams.iter().map(|(upstream, _)| (upstream.prefix.as_str(), upstream));
    for (second, first) in find_repeated(prefixes.filter(|(prefix, _)| !prefix.is_empty())) {
        let path = format!("upstreams.{}.prefix", second.name);
        source.problem_at(&path, format!("`{}` has the same prefix \"{}\"", first.name, first.prefix));
    }
    let prefixes: Vec<_> = upstreams.iter().map(|(u, _)| (u.name.clone(), u.prefix.clone())).collect();
    for warning in prefix_warnings(&prefixes) {
        if warning.prefix != warning.other_prefix || warning.prefix.is_empty() {
            source.warning_at(&format!("upstreams.{}.prefix", warning.upstream), warning.to_string());
        }
    }
    upstreams
}

/// Returns a valid name close to the written one.
fn suggestion(key: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = key.chars().map(fit).collect();
    let name: String = name.trim_matches('-').chars().take(31).collect();
    if name.is_empty() { "files".to_owned() } else { name }
}

fn one(
    name: UpstreamName,
    mut table: ConfigTable<'_>,
    defaults: &UpstreamDefaults,
) -> Option<(UpstreamSettings, bool)> {
    table.refuse(
        "args",
        "the arguments stand in `command`, behind the program: command = [\"npx\", \"-y\", \"package\"]",
    );
    table.refuse("type", "follows from `command` or `url`; for HTTP, write `transport`");
    let enabled = table.boolean("enabled").unwrap_or(true);
    let expand = table.boolean("expand");
    let mut lacks = MissingSecrets::new(enabled, expand);
    let target = target(&mut table, &mut lacks);
    let http = matches!(target, Some(UpstreamTarget::Http { .. }));
    let auth = login(&mut table, target.as_ref(), &mut lacks);
    let certificates = UpstreamCertificates::read(&mut table, http, auth.as_ref(), &mut lacks);
    let proxy = proxy(&mut table, target.as_ref(), &mut lacks);
    let call_timeout = table.duration("call-timeout", &TIMES).unwrap_or(CALL_TIMEOUT);
    let call_max = call_max(&mut table, call_timeout);
    let in_flight = if http { HTTP_IN_FLIGHT } else { STDIO_IN_FLIGHT };
    let placeholder = UpstreamTarget::Stdio { command: Vec::new(), env: Vec::new(), cwd: None };
    let found = target.is_some();
    let trust = table.choice("trust").unwrap_or_default();
    let instance = table.choice("instance").unwrap_or(InstanceScope::Auto);
    let placement = placement(&mut table, http, instance);
    let upstream = UpstreamSettings {
        era: era(&mut table, target.as_ref()),
        instance,
        placement,
        start: table.choice("start").unwrap_or(StartMode::Eager),
        call_timeout,
        call_max,
        start_timeout: table.duration("start-timeout", &TIMES).unwrap_or(START_TIMEOUT),
        start_wait: table.duration("start-wait", &QUEUE_TIMES).unwrap_or(START_WAIT),
        idle_stop: table.duration("idle-stop", &TIMES).unwrap_or(IDLE_STOP),
        max_inventory: table.count("max-inventory", &INVENTORIES).unwrap_or(INVENTORY),
        max_in_flight: table.count("max-in-flight", &IN_FLIGHT).unwrap_or(in_flight),
        queue: table.count("queue", &QUEUES).unwrap_or(QUEUE),
        queue_timeout: table.duration("queue-timeout", &QUEUE_TIMES).unwrap_or(QUEUE_TIMEOUT),
        attribution_timeout: table.duration("attribution-timeout", &ATTRIBUTION_TIMES).unwrap_or(ATTRIBUTION_TIMEOUT),
        roots: table.take("roots").map(|node| roots(&node)).unwrap_or_default(),
        completions: table.choice("completions").unwrap_or_default(),
        elicit: ElicitationSettings {
            hosts: table.take("elicit-hosts").and_then(|node| hosts(&node)),
            secrets: table.boolean("elicit-secrets").unwrap_or_default(),
        },
        trust,
        confinement: confinement(&mut table, http),
        surroundings: surroundings::read(&mut table, http, trust, defaults),
        on_change: on_change(&mut table),
        pin_html: table.boolean("pin-html").unwrap_or(true),
        instructions: instructions::read(&mut table),
        apps: table.choice("apps").unwrap_or_default(),
        annotations: table.table("annotations").map(annotations).unwrap_or_default(),
        prefix: table.take("prefix").and_then(|node| prefix(&node)).unwrap_or_else(|| format!("{name}__")),
        tools: filter(&mut table, "tools", true),
        prompts: filter(&mut table, "prompts", true),
        resources: filter(&mut table, "resources", false),
        target: target.unwrap_or(placeholder),
        auth,
        certificates,
        proxy,
        expand,
        expanded: lacks.expanded,
        lacks: lacks.found,
        name,
    };
    table.finish();
    found.then_some((upstream, enabled))
}

/// Reads the login of the gateway, if the server is behind a URL.
fn login(
    table: &mut ConfigTable<'_>,
    target: Option<&UpstreamTarget>,
    lacks: &mut MissingSecrets,
) -> Option<UpstreamAuth> {
    match target {
        Some(target @ UpstreamTarget::Http { url, .. }) => {
            let table = table.table("auth")?;
            Some(auth::read(table, url, target.has_credential(), lacks))
        }
        Some(UpstreamTarget::Stdio { .. }) => {
            table.refuse("auth", "belongs to `url`; a local program gets its credentials in `env`");
            None
        }
        None => {
            drop(table.take("auth"));
            None
        }
    }
}

/// Reads the proxy for the connections to a server behind a URL.
fn proxy(table: &mut ConfigTable<'_>, target: Option<&UpstreamTarget>, lacks: &mut MissingSecrets) -> ProxySettings {
    match target {
        Some(UpstreamTarget::Http { url, .. }) => return ProxySettings::read(table, url, lacks),
        Some(UpstreamTarget::Stdio { .. }) => {
            table.refuse(
                "proxy",
                "belongs to `url`; for a local program write env = { HTTPS_PROXY = \"http://proxy.example.com:3128\" }",
            );
        }
        None => drop(table.take("proxy")),
    }
    ProxySettings::Direct
}

fn era(table: &mut ConfigTable<'_>, target: Option<&UpstreamTarget>) -> EraChoice {
    let Some(node) = table.take("era") else { return EraChoice::Auto };
    let era = node.choice().unwrap_or(EraChoice::Auto);
    if era == EraChoice::Modern && matches!(target, Some(UpstreamTarget::Http { transport: HttpTransport::Sse, .. })) {
        node.problem("transport \"sse\" is of the legacy era; write era = \"auto\" or another transport");
    }
    era
}

/// Reads which replicas run the program: one program alone can serve no caller by itself.
fn placement(table: &mut ConfigTable<'_>, http: bool, instance: InstanceScope) -> Placement {
    let Some(node) = table.take("placement") else { return Placement::Each };
    let placement = node.choice().unwrap_or_default();
    if placement == Placement::One && http {
        node.problem("belongs to `command`; a server behind a `url` runs where it runs");
    } else if placement == Placement::One && matches!(instance, InstanceScope::PerCaller | InstanceScope::PerSession) {
        node.problem("\"one\" is a single process for all callers; write instance = \"auto\" or \"shared\"");
    }
    placement
}

/// Reads the hard limit of a call, at least its `call-timeout`.
fn call_max(table: &mut ConfigTable<'_>, call_timeout: Duration) -> Duration {
    let Some(node) = table.take("call-max") else { return CALL_MAX.max(call_timeout) };
    let Some(limit) = node.duration(&TIMES) else { return CALL_MAX };
    if limit < call_timeout {
        node.problem("must not be shorter than call-timeout");
    }
    limit
}

/// Reads the roots that the server may learn: `"client"` or a list of `file://` URIs.
fn roots(node: &ConfigNode<'_>) -> Roots {
    if node.as_str() == Some("client") {
        return Roots::Client;
    }
    let wanted = "\"client\" (the roots of whoever calls) or a list of `file://` URIs";
    let Some(items) = node.items(wanted) else { return Roots::Hidden };
    let uris = items.iter().filter_map(|item| {
        let uri = item.string()?;
        if !uri.starts_with("file:///") {
            item.problem("roots are `file://` URIs with an absolute path, such as file:///srv/work");
        }
        Some(uri)
    });
    Roots::Fixed(uris.collect())
}

/// Reads the hosts whose pages a URL elicitation of the server may open.
fn hosts(node: &ConfigNode<'_>) -> Option<Vec<HostPattern>> {
    let items = node.items("a list of hosts such as \"login.example.com\" and \"*.example.org\"")?;
    let hosts = items.iter().filter_map(|item| {
        let host = HostPattern::parse(&item.string()?);
        if host.is_none() {
            item.problem("write a host such as \"login.example.com\" or \"*.example.org\"; no number but 127.0.0.1 and [::1] is a host");
        }
        host
    });
    Some(hosts.collect())
}

/// Reads `on-change`, with a warning if changes are accepted.
fn on_change(table: &mut ConfigTable<'_>) -> ChangePolicy {
    let Some(node) = table.take("on-change") else { return ChangePolicy::Quarantine };
    let chosen = node.choice();
    if chosen == Some(ChangePolicy::Accept) {
        node.warning("the server may change what its tools say and do without your approval");
    }
    chosen.unwrap_or(ChangePolicy::Quarantine)
}

/// Reads the operator's annotations, by patterns over original tool names.
fn annotations(table: ConfigTable<'_>) -> Vec<(String, Hints)> {
    let mut all = Vec::new();
    for (pattern, node) in table.named() {
        let Some(mut table) = node.table() else { continue };
        let hints = hints(&mut table);
        table.finish();
        if hints.is_empty() {
            node.problem("has no hints; write for example { read-only = true }");
        }
        if (hints.read_only, hints.destructive) == (Some(true), Some(true)) {
            node.problem("what only reads is not destructive; write one of the two");
        }
        if let Err(message) = OperatorHints::build(UpstreamTrust::Standard, &[(pattern.clone(), hints)]) {
            node.problem(message);
        }
        all.push((pattern, hints));
    }
    all
}

fn prefix(node: &ConfigNode<'_>) -> Option<String> {
    let prefix = node.string()?;
    if !prefix.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) {
        node.problem("must be letters, digits, `_` and `-`: other characters are refused by language-model APIs");
    } else if prefix.len() + ROOM_FOR_NAME > MAX_LENGTH && !prefix.is_empty() {
        let most = MAX_LENGTH.saturating_sub(ROOM_FOR_NAME);
        node.problem(format!("must not be longer than {most} characters, so that names fit {MAX_LENGTH} characters"));
    }
    Some(prefix)
}

/// Reads the program or the URL; missing secrets are added to `lacks`.
fn target(table: &mut ConfigTable<'_>, lacks: &mut MissingSecrets) -> Option<UpstreamTarget> {
    match (table.take("command"), table.take("url")) {
        (Some(command), None) => stdio(table, &command, lacks),
        (None, Some(url)) => remote(table, &url, lacks),
        (command, url) => {
            let message = if command.is_some() && url.is_some() {
                "has both `command` and `url`; an upstream is a local program or a remote server"
            } else {
                "needs `command` (a local program) or `url` (a remote server)"
            };
            table.problem(message);
            // Without one target it is unclear which of these keys belong here, so none is reported
            // as unknown.
            for key in ["env", "env-from", "path", "cwd", "transport", "headers", "no-new-privileges", "umask"] {
                drop(table.take(key));
            }
            None
        }
    }
}

/// Reads a local program.
fn stdio(table: &mut ConfigTable<'_>, node: &ConfigNode<'_>, lacks: &mut MissingSecrets) -> Option<UpstreamTarget> {
    for key in ["transport", "headers"] {
        table.refuse(key, "belongs to `url`; a local program speaks over its stdin and stdout");
    }
    let command = command(node, lacks);
    let env = table.take("env").and_then(|node| node.table());
    let env = env.map(|table| environment(table, lacks)).unwrap_or_default();
    let cwd = table.take("cwd").and_then(|node| directory(&node, lacks));
    Some(UpstreamTarget::Stdio { command: command?, env, cwd })
}

/// Reads the working directory: an absolute path after `~` and variables are replaced.
fn directory(node: &ConfigNode<'_>, lacks: &mut MissingSecrets) -> Option<VariableText> {
    let is_at_home = node.as_str().is_some_and(|text| text.starts_with('~'));
    let written = if is_at_home { node.home_path()?.display().to_string() } else { node.string()? };
    let before = lacks.found.len();
    let directory = lacks.expand(node, written);
    if Path::new(directory.expose()).is_absolute() || before < lacks.found.len() {
        return Some(directory);
    }
    if directory.is_expanded() {
        lacks.add(node, "cwd: with its variables put in it is not an absolute path; correct them".to_owned());
        return Some(directory);
    }
    node.home_path().map(|path| VariableText::plain(path.display().to_string()))
}

/// Reads the confinement of a local program. A remote server has none, and its table was refused
/// these keys before.
fn confinement(table: &mut ConfigTable<'_>, http: bool) -> Confinement {
    let default = Confinement::default();
    if http {
        return default;
    }
    let no_new_privileges = table.boolean("no-new-privileges").unwrap_or(default.no_new_privileges);
    let umask = table.take("umask").and_then(|node| {
        let text = node.string()?;
        let umask = u32::from_str_radix(&text, 8).ok().filter(|umask| *umask <= 0o777);
        if umask.is_none() || !text.starts_with(|c: char| c.is_ascii_digit()) {
            node.problem("must be octal digits from \"000\" to \"777\", such as \"022\"");
        }
        umask
    });
    Confinement { no_new_privileges, umask }
}

/// Reads the variables of a program.
fn environment(table: ConfigTable<'_>, lacks: &mut MissingSecrets) -> Vec<(String, Secret)> {
    let mut variables = Vec::new();
    for (name, node) in table.named() {
        if name.is_empty() || name.contains(['=', '\0']) {
            node.problem("the name of a variable must not be empty nor contain `=` or NUL");
        }
        let Some(found) = secret::read_or_lack(&node, lacks).map(|found| found.expanded(&node, lacks)) else {
            continue;
        };
        if found.secret.expose().contains('\0') {
            node.problem("must not contain a NUL character");
        }
        if found.literal && (secret::is_secret_name(&name) || secret::is_token(found.secret.expose())) {
            secret::warn_of_literal(&node);
        }
        variables.push((name, found.secret));
    }
    variables
}

/// Reads a remote server. A URL whose variables are missing gets a stand-in.
fn remote(table: &mut ConfigTable<'_>, node: &ConfigNode<'_>, lacks: &mut MissingSecrets) -> Option<UpstreamTarget> {
    for key in ["env", "env-from", "path", "cwd", "no-new-privileges", "umask"] {
        table.refuse(key, "belongs to `command`; a remote server has its own");
    }
    let chosen = table.choice("transport").unwrap_or(HttpTransport::Auto);
    let given = table.take("headers").and_then(|node| node.table());
    let headers = given.map(|table| headers(table, lacks)).unwrap_or_default();
    let template = lacks.expand(node, node.string()?);
    let has_variables = lacks.expands != Some(false) && template.written().contains("${");
    if !has_variables {
        return Some(UpstreamTarget::Http {
            url: url(node, template.written())?,
            written: None,
            transport: chosen,
            headers,
        });
    }
    let usable = |url: &Url| {
        let is_clean = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
        is_clean && (url.scheme() == "https" || (url.scheme() == "http" && is_loopback(url)))
    };
    let url = Url::parse(template.expose()).ok().filter(usable);
    if url.is_none() && template.is_expanded() {
        let message = "url: with its variables put in it is no URL that can be used; it must begin with https:// (http:// on this machine) \
                       and have no user, password and `#`";
        lacks.add(node, message.to_owned());
    }
    // An upstream that lacks something is never connected to.
    let url = url.or_else(|| Url::parse("https://unset.invalid/").ok())?;
    Some(UpstreamTarget::Http { url, written: Some(template.written().to_owned()), transport: chosen, headers })
}
