//! The configuration as other layers see it: resolved, with defaults filled in.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Serialize, Serializer};
use url::Url;

use crate::catalog::name::UpstreamName;
use crate::mcp::annotations::Hints;
use crate::mcp::elicitation::Elicit;
use crate::mcp::input::Roots;
use crate::policy::{OnChange, PolicySpec, Trust};

use super::address::is_loopback;
use super::audit::Audit;
use super::auth::UpstreamAuth;
use super::consent::Consent;
use super::expand::Template;
use super::keys::{keys, read_value, shown_value};
use super::limits::Limits;
use super::proxy::ProxySettings;
use super::secret::{Secret, is_secret_name};

/// Times of `[stdio] reconnect-timeout`.
const RECONNECT_TIMES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(86_400);

/// Everything the gateway does, resolved: defaults filled in, secrets read, every value checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The configuration file; `None` for a text from elsewhere.
    pub path: Option<PathBuf>,
    /// The files of `conf.d` that were merged with it, in their order.
    pub also: Vec<PathBuf>,
    pub server: Server,
    /// Address of `/metrics`, `/healthz` and `/readyz`; `None` switches them off.
    pub metrics: Option<SocketAddr>,
    pub console: Console,
    pub admin: Admin,
    pub stdio: Stdio,
    pub naming: Naming,
    pub defaults: Defaults,
    /// In the order of the file, which is the order of all lists.
    pub upstreams: Vec<Upstream>,
    /// Those with `enabled = false`: checked like the others and neither started nor listed. What is known of them is kept.
    pub disabled: Vec<Upstream>,
    /// Those of `disabled` that the operator switched off while this process runs; none in a configuration that was read.
    pub off: Vec<UpstreamName>,
    pub policy: PolicySpec,
    /// Whether there is a `[policy]` table. Without one every call needs an approval, with a warning.
    pub policy_stated: bool,
    pub consent: Consent,
    pub profiles: Vec<Profile>,
    pub audit: Audit,
    pub secrets: Secrets,
    pub log: Log,
}

/// The `[secrets]` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Secrets {
    /// Key that seals values in the store; `None`: the key file of the state directory.
    pub key: Option<Secret>,
}

/// The `[console]` table.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    /// Address of the pages; `None` switches them off.
    pub listen: Option<SocketAddr>,
    /// The operator wrote the address, so headend tries no other.
    pub chosen: bool,
}

// The default address is the same console, whether it is written or not.
impl PartialEq for Console {
    fn eq(&self, other: &Self) -> bool {
        self.listen == other.listen
    }
}

/// The `[server]` table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Server {
    /// Loopback addresses only: this release has no TLS of its own.
    pub listen: Vec<SocketAddr>,
    /// Path of the MCP endpoint; `<endpoint>/<profile>` serves a profile.
    pub endpoint: String,
    /// Whether headend also serves the HTTP+SSE transport of 2024-11-05.
    pub legacy_sse: bool,
    /// `Host` values beyond the listen addresses and loopback names.
    pub allowed_hosts: Vec<String>,
    /// Accepted `Origin` values; a request without one is always accepted.
    pub allowed_origins: Vec<String>,
    #[serde(skip)]
    pub auth: Auth,
    #[serde(skip)]
    pub limits: Limits,
    /// How long calls in flight may take to end at shutdown.
    pub drain_timeout: Duration,
}

/// Authentication of clients over HTTP.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "mode", rename_all = "kebab-case")]
pub enum Auth {
    /// The generated token of the caller `local`, and these: (caller, token).
    Token {
        #[serde(serialize_with = "pairs")]
        tokens: Vec<(String, Secret)>,
    },
    /// Every client on the loopback address is the caller `local`.
    None,
}

impl Config {
    /// Whether there can be a caller other than the local user.
    pub fn has_many_callers(&self) -> bool {
        let tokens = matches!(&self.server.auth, Auth::Token { tokens } if !tokens.is_empty());
        tokens || self.admin.group.is_some() || !self.admin.users.is_empty()
    }
}

/// The `[admin]` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Admin {
    /// `None`: a socket in the runtime directory.
    pub socket: Option<PathBuf>,
    /// Group that may connect; makes the socket 0660.
    pub group: Option<String>,
    /// User names or uids that may connect, in addition to our own and root.
    pub users: Vec<String>,
}

keys! {
    /// The `[stdio]` table.
    #[derive(Copy)]
    struct Stdio {
        /// How long `headend stdio` looks for a daemon that went away. An update of the machine
        /// restarts the daemon within the default.
        reconnect_timeout: Duration as duration = "reconnect-timeout", Duration::from_secs(300), RECONNECT_TIMES;
    }
}

keys! {
    /// The `[naming]` table.
    #[derive(Copy)]
    struct Naming {
        uris: Uris as choice = "uris", Uris::Keep;
    }
}

/// How resource URIs are exposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub enum Uris {
    /// Unchanged.
    Keep,
    /// Always `<upstream>+<original>`.
    Prefix,
}

/// One `[upstreams.<name>]` table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Upstream {
    #[serde(skip)]
    pub name: UpstreamName,
    #[serde(skip)]
    pub target: Target,
    /// Of a server behind a URL: how the gateway logs in.
    #[serde(skip)]
    pub auth: Option<UpstreamAuth>,
    /// The proxy on the way to a server behind a URL and to its authorization servers. No part of
    /// the launch.
    #[serde(skip)]
    pub proxy: ProxySettings,
    /// Secrets and variables that are not there, each with what to do; it is not started without them.
    #[serde(skip)]
    pub lacks: Vec<String>,
    /// Whether `${VAR}` is put in; `None`: everywhere but in `command`.
    pub expand: Option<bool>,
    /// Names and values of the variables that were put in, which are shown nowhere.
    #[serde(skip)]
    pub expanded: Vec<(String, Secret)>,
    pub era: EraChoice,
    pub instance: Instance,
    pub start: Start,
    /// How long a call may stay silent; each progress notice restarts it.
    pub call_timeout: Duration,
    /// How long a call may take with all its progress.
    pub call_max: Duration,
    /// From launch to the end of the handshake; a start that took longer has twice the time when it is repeated.
    pub start_timeout: Duration,
    /// How long a call waits for a start.
    pub start_wait: Duration,
    /// How long a lazy upstream runs on without a use.
    pub idle_stop: Duration,
    /// Items of each of its lists that are offered.
    pub max_inventory: usize,
    /// Calls at once.
    pub max_in_flight: usize,
    /// Calls that may wait for a slot.
    pub queue: usize,
    pub queue_timeout: Duration,
    /// How long a question of a shared process may wait until it is clear whose it is.
    pub attribution_timeout: Duration,
    /// Which roots the server learns.
    #[serde(skip)]
    pub roots: Roots,
    /// Which completions are passed on.
    pub completions: Completions,
    /// Which elicitations the server may make.
    #[serde(skip)]
    pub elicit: Elicit,
    /// How far headend trusts the hints of its tools.
    pub trust: Trust,
    /// Privileges and umask of its processes.
    #[serde(skip)]
    pub confinement: Confinement,
    /// The part of our environment that its processes get.
    #[serde(skip)]
    pub surroundings: Surroundings,
    /// What happens when a definition changes.
    pub on_change: OnChange,
    /// The operator's annotations: patterns over original names, and the hints that hold for them.
    #[serde(serialize_with = "pairs")]
    pub annotations: Vec<(String, Hints)>,
    /// Prefix of each exposed name, separator included.
    pub prefix: String,
    pub tools: Filter,
    pub prompts: Filter,
    pub resources: Filter,
}

impl Upstream {
    /// Whether several clients may share one process of it.
    pub fn is_shared_process(&self) -> bool {
        matches!(self.target, Target::Stdio { .. }) && matches!(self.instance, Instance::Auto | Instance::Shared)
    }
}

/// Which completions of arguments an upstream is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, Serialize)]
#[strum(const_into_str, serialize_all = "kebab-case")]
#[serde(into = "&'static str")]
pub enum Completions {
    /// Those of items whose calls need no approval or have a lasting grant.
    #[default]
    Consented,
    /// Those of all items that are not denied.
    Pass,
}

/// How an upstream is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    Stdio {
        /// Program and arguments, at least one word; no shell is involved.
        command: Vec<Template>,
        env: Vec<(String, Secret)>,
        /// Absolute.
        cwd: Option<Template>,
    },
    Http {
        /// `https`, or `http` to a loopback host.
        url: Url,
        /// The text of `url` where it has variables.
        written: Option<String>,
        transport: Transport,
        headers: Vec<(String, Secret)>,
    },
}

impl Target {
    /// Whether the path of the program, which its first word leads to, holds what was put in for variables.
    pub fn hides_program(&self, word: &Template) -> bool {
        let Self::Stdio { cwd, .. } = self else { return false };
        let is_below = word.written().contains('/') && !word.written().starts_with('/');
        word.is_expanded() || (is_below && cwd.as_ref().is_some_and(Template::is_expanded))
    }

    /// The URL as it is part of a launch and is shown: without what was put in for variables.
    pub fn shown_url(&self) -> Option<String> {
        let Self::Http { url, written, .. } = self else { return None };
        // Written as a parser writes it, which was all that a launch had before there were variables.
        let parsed = |text: &String| Url::parse(text).map_or_else(|_| text.clone(), |url| url.to_string());
        Some(written.as_ref().map_or_else(|| url.to_string(), parsed))
    }

    /// Whether one of the headers is a credential, by its name.
    pub fn has_credential(&self) -> bool {
        let Self::Http { headers, .. } = self else { return false };
        headers.iter().any(|(name, _)| is_secret_name(name))
    }

    /// Whether the server is on this machine.
    pub fn is_here(&self) -> bool {
        match self {
            Self::Stdio { .. } => true,
            Self::Http { url, .. } => is_loopback(url),
        }
    }
}

/// Confinement of an upstream's processes and of all that they start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// The processes gain no privileges from programs, for example with a set-user-ID bit.
    pub no_new_privileges: bool,
    /// Mode bits that their new files lack; `None`: our own umask.
    pub umask: Option<u32>,
}

impl Default for Confinement {
    fn default() -> Self {
        Self { no_new_privileges: true, umask: None }
    }
}

/// The `[defaults]` table: what holds for upstreams beside their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Defaults {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<String>,
    /// Absolute. An empty list: none of version managers either.
    pub path: Option<Vec<PathBuf>>,
}

/// The part of our environment that an upstream's processes get. No part of the launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Surroundings {
    /// Variables by name, in addition to those that all processes of its trust get.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<String>,
    /// Directories before its `PATH`. Absolute.
    pub path: Vec<PathBuf>,
    /// Whether directories of version managers stand between them and the `PATH`.
    #[serde(skip)]
    pub managers: bool,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self { env_from: Vec::new(), path: Vec::new(), managers: true }
    }
}

/// HTTP transport of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, Serialize)]
#[strum(const_into_str, serialize_all = "kebab-case")]
#[serde(into = "&'static str")]
pub enum Transport {
    Auto,
    StreamableHttp,
    Sse,
}

/// Which protocol era to speak to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, Serialize)]
#[strum(const_into_str, serialize_all = "kebab-case")]
#[serde(into = "&'static str")]
pub enum EraChoice {
    /// Probe the server.
    Auto,
    Legacy,
    Modern,
}

/// Who shares one process or session of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, Serialize)]
#[strum(const_into_str, serialize_all = "kebab-case")]
#[serde(into = "&'static str")]
pub enum Instance {
    Auto,
    Shared,
    PerCaller,
    PerSession,
}

/// When an upstream is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, Serialize)]
#[strum(const_into_str, serialize_all = "kebab-case")]
#[serde(into = "&'static str")]
pub enum Start {
    Eager,
    /// When it is needed: by a call or subscription, or because its lists are not known yet. Stops when it is idle.
    Lazy,
}

/// Which items are offered, and under which local name. Globs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Filter {
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    /// (original, local name), tools and prompts of upstreams only.
    #[serde(serialize_with = "pairs", skip_serializing_if = "Vec::is_empty")]
    pub rename: Vec<(String, String)>,
}

impl Default for Filter {
    fn default() -> Self {
        Self { allow: vec!["*".to_owned()], deny: Vec::new(), rename: Vec::new() }
    }
}

/// One `[profiles.<name>]` table: a named view of the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Profile {
    #[serde(skip)]
    pub name: String,
    /// Every upstream where the file names none.
    #[serde(skip)]
    pub upstreams: Vec<UpstreamName>,
    /// Over canonical names.
    pub tools: Filter,
    pub prompts: Filter,
    pub resources: Filter,
    /// Names and URIs of its one upstream, unchanged.
    pub transparent: bool,
    pub hints: ShownHints,
}

/// The hints that the clients of a view see on tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, Serialize)]
#[strum(const_into_str, serialize_all = "kebab-case")]
#[serde(into = "&'static str")]
pub enum ShownHints {
    /// The server's own below the operator's. Of an untrusted server, those that policy goes by.
    #[default]
    Server,
    /// Those that policy goes by.
    Tightened,
}

keys! {
    /// The `[log]` table. Command line and environment take precedence.
    struct Log {
        format: LogFormat as choice = "format", LogFormat::Auto;
    }
    besides {
        /// A level, or `target=level` pairs. The default has the changes that an operator sees, and
        /// nothing of each call.
        filter: String = "info".to_owned();
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub enum LogFormat {
    /// To the journal under systemd, else text.
    Auto,
    Text,
    Json,
}

/// Writes names with values, in the order of the file, as a table.
fn pairs<V: Serialize, S: Serializer>(pairs: &[(String, V)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}
