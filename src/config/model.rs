//! The configuration as other layers see it: resolved, with defaults filled in.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use url::Url;

use crate::catalog::name::UpstreamName;
use crate::mcp::asking::elicitation::ElicitationSettings;
use crate::mcp::asking::input::Roots;
use crate::mcp::definition::annotations::Hints;
use crate::mcp::extension::APPS;
use crate::policy::{ChangePolicy, PolicySpec, UpstreamTrust};

use super::audit::AuditSettings;
use super::consent::ApprovalSettings;
use super::keys::{keys, read_value, shown_value};
use super::limits::Limits;
use crate::source::expand::VariableText;
use crate::source::secret::{Secret, is_secret_name};
use crate::values::address::is_loopback;
use crate::values::auth::{UpstreamAuth, UpstreamCertificates};
use crate::values::certificates::CertificateFiles;
use crate::values::instructions::InstructionSetting;
use crate::values::issuers::JwtSettings;
use crate::values::network::PeerNetwork;
use crate::values::proxy::ProxySettings;
use crate::wire::json::raw::RawJson;

pub(crate) mod cluster;
pub(crate) mod instructions;
mod logging;
mod profile;

use self::cluster::ClusterSettings;
pub use self::logging::{LogFormatSetting, LoggingSettings};
use self::profile::pairs;
pub use self::profile::{FilterSettings, Profile, ShownHints};

/// The range of `[stdio] reconnect-timeout`.
const RECONNECT_TIMES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(86_400);

/// The whole configuration, resolved: defaults filled in, secrets read, every value checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The configuration file; `None` for a text from elsewhere.
    pub path: Option<PathBuf>,
    /// The files of `conf.d` that were merged with it, in their order.
    pub also: Vec<PathBuf>,
    pub server: ServerSettings,
    pub metrics: MetricsSettings,
    pub console: ConsoleSettings,
    pub admin: AdminSettings,
    pub stdio: StdioSettings,
    pub naming: NamingSettings,
    pub defaults: UpstreamDefaults,
    /// The enabled upstreams in the order of the file, which is the order of all lists.
    pub upstreams: Vec<UpstreamSettings>,
    /// The upstreams with `enabled = false`: checked like the others, but neither started nor
    /// listed. Their stored data is kept.
    pub disabled: Vec<UpstreamSettings>,
    /// The upstreams in `disabled` that the operator switched off while this process runs; none in
    /// a configuration that was read.
    pub off: Vec<UpstreamName>,
    /// True if the store has had tokens of clients while this process runs; false in a
    /// configuration that was read.
    pub has_stored_callers: bool,
    pub policy: PolicySpec,
    /// True if there is a `[policy]` table. Without one every call needs an approval, with a
    /// warning.
    pub policy_stated: bool,
    pub consent: ApprovalSettings,
    pub profiles: Vec<Profile>,
    pub audit: AuditSettings,
    pub secrets: SecretSettings,
    /// The cluster that this replica belongs to; `None` for a gateway of its own.
    pub cluster: Option<ClusterSettings>,
    pub log: LoggingSettings,
}

/// The `[secrets]` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SecretSettings {
    /// The key that seals values in the store; `None` for the key file of the state directory.
    pub key: Option<Secret>,
    /// The key of before, which only opens values; `None` if there is none.
    pub previous_key: Option<Secret>,
}

/// The `[metrics]` table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsSettings {
    /// The address of `/metrics`, `/healthz` and `/readyz`; `None` switches them off.
    pub listen: Option<SocketAddr>,
    /// The bearer token that `/metrics` needs; always set off loopback.
    pub token: Option<Secret>,
}

/// The `[console]` table.
#[derive(Clone, Debug)]
pub struct ConsoleSettings {
    /// The address of the pages; `None` switches them off.
    pub listen: Option<SocketAddr>,
    /// True if the operator wrote the address, so that headend tries no other.
    pub chosen: bool,
    /// `Host` values of a proxy in front of it, which are origins of its pages too.
    pub allowed_hosts: Vec<String>,
}

// Without `chosen`: the default address is an equal console, whether it is written or not.
impl PartialEq for ConsoleSettings {
    fn eq(&self, other: &Self) -> bool {
        self.listen == other.listen && self.allowed_hosts == other.allowed_hosts
    }
}

/// The `[server]` table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ServerSettings {
    /// The listen addresses. Off loopback they need TLS or trusted proxies.
    pub listen: Vec<SocketAddr>,
    /// The path of the MCP endpoint; `<endpoint>/<profile>` serves a profile.
    pub endpoint: String,
    /// True if headend also serves the HTTP+SSE transport of 2024-11-05.
    pub legacy_sse: bool,
    /// `Host` values beyond the listen addresses and loopback names.
    pub allowed_hosts: Vec<String>,
    /// Accepted `Origin` values; a request without one is always accepted.
    pub allowed_origins: Vec<String>,
    #[serde(skip)]
    pub auth: ClientAuth,
    /// The issuers whose JWTs are accepted; `None` unless a mode is `jwt`.
    #[serde(skip)]
    pub jwt: Option<JwtSettings>,
    #[serde(skip)]
    pub limits: Limits,
    /// The time that calls in flight have to end at shutdown.
    pub drain_timeout: Duration,
    /// Peers that may connect off loopback without TLS, and whose headers name the client's
    /// address.
    pub trusted_proxies: Vec<PeerNetwork>,
    /// The certificates of the listeners; with one, every address of `listen` speaks TLS.
    #[serde(skip)]
    pub tls: Vec<CertificateFiles>,
}

/// The authentication of clients over HTTP.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "mode", rename_all = "kebab-case")]
pub enum ClientAuth {
    /// The generated token of the caller `local`, and these tokens: (caller, token).
    Token {
        #[serde(serialize_with = "pairs")]
        tokens: Vec<(String, Secret)>,
    },
    /// No authentication: every client on the loopback address is the caller `local`.
    None,
}

impl Config {
    /// Reports whether there can be a caller other than the local user.
    pub fn has_many_callers(&self) -> bool {
        let tokens = matches!(&self.server.auth, ClientAuth::Token { tokens } if !tokens.is_empty());
        tokens
            || self.has_stored_callers
            || self.server.jwt.is_some()
            || self.admin.group.is_some()
            || !self.admin.users.is_empty()
    }

    /// Returns the address by which clients on other machines reach the endpoint, if the
    /// configuration names it.
    pub fn public_endpoint(&self) -> Option<String> {
        self.server.jwt.as_ref().map(|jwt| format!("{}{}", jwt.public_url, self.server.endpoint))
    }
}

/// The `[admin]` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AdminSettings {
    /// The path of the socket; `None` for a socket in the runtime directory.
    pub socket: Option<PathBuf>,
    /// The group that may connect; makes the socket 0660.
    pub group: Option<String>,
    /// User names or uids that may connect, in addition to our own and root.
    pub users: Vec<String>,
}

keys! {
    /// The `[stdio]` table.
    #[derive(Copy)]
    struct StdioSettings {
        /// The time for which `headend stdio` looks for a daemon that went away. An update of the
        /// machine restarts the daemon within the default.
        reconnect_timeout: Duration as duration = "reconnect-timeout", Duration::from_secs(300), RECONNECT_TIMES;
    }
}

keys! {
    /// The `[naming]` table.
    #[derive(Copy)]
    struct NamingSettings {
        uris: UriExposure as choice = "uris", UriExposure::Keep;
    }
}

/// The form in which resource URIs are exposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub enum UriExposure {
    /// Unchanged.
    Keep,
    /// Always `<upstream>+<original>`.
    Prefix,
}

/// An `[upstreams.<name>]` table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct UpstreamSettings {
    #[serde(skip)]
    pub name: UpstreamName,
    #[serde(skip)]
    pub target: UpstreamTarget,
    /// The login of the gateway at a server behind a URL.
    #[serde(skip)]
    pub auth: Option<UpstreamAuth>,
    #[serde(skip)]
    pub certificates: UpstreamCertificates,
    /// The proxy on the way to a server behind a URL and to its authorization servers. No part of
    /// the launch.
    #[serde(skip)]
    pub proxy: ProxySettings,
    /// Descriptions of missing secrets and variables, each with its remedy; without them the
    /// upstream is not started.
    #[serde(skip)]
    pub lacks: Vec<String>,
    /// True if `${VAR}` is replaced, false if not; `None` replaces it everywhere except in
    /// `command`.
    pub expand: Option<bool>,
    /// Names and values of the variables that were replaced; these values are shown nowhere.
    #[serde(skip)]
    pub expanded: Vec<(String, Secret)>,
    pub era: EraChoice,
    pub instance: InstanceScope,
    pub placement: Placement,
    pub start: StartMode,
    /// The time for which a call may stay silent; each progress notice restarts it.
    pub call_timeout: Duration,
    /// The longest time that a call may take, with all its progress.
    pub call_max: Duration,
    /// The time from launch to the end of the handshake; a start that took longer has twice the
    /// time when it is repeated.
    pub start_timeout: Duration,
    /// The time for which a call waits for a start.
    pub start_wait: Duration,
    /// The time for which a lazy upstream keeps running without use.
    pub idle_stop: Duration,
    /// The limit of items in each of its lists that are offered.
    pub max_inventory: usize,
    /// The limit of calls in flight.
    pub max_in_flight: usize,
    /// The limit of calls that wait for a slot.
    pub queue: usize,
    pub queue_timeout: Duration,
    /// The time for which a question of a shared process may wait until its client is known.
    pub attribution_timeout: Duration,
    /// The roots that the server may learn.
    #[serde(skip)]
    pub roots: Roots,
    /// The completions that are passed on.
    pub completions: CompletionScope,
    /// The elicitations that the server may make.
    #[serde(skip)]
    pub elicit: ElicitationSettings,
    /// The trust of headend in the hints of its tools.
    pub trust: UpstreamTrust,
    /// Privileges and umask of its processes.
    #[serde(skip)]
    pub confinement: Confinement,
    /// The part of our environment that its processes get.
    #[serde(skip)]
    pub surroundings: ProgramSurroundings,
    /// The consequence of a changed definition.
    pub on_change: ChangePolicy,
    /// True if the pins of its apps cover their HTML.
    pub pin_html: bool,
    /// The instructions of the server for clients; `None` without the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<InstructionSetting>,
    pub apps: AppsChoice,
    /// The operator's annotations: patterns over original names, and the hints that hold for them.
    #[serde(serialize_with = "pairs")]
    pub annotations: Vec<(String, Hints)>,
    /// The prefix of each exposed name, separator included.
    pub prefix: String,
    pub tools: FilterSettings,
    pub prompts: FilterSettings,
    pub resources: FilterSettings,
}

impl UpstreamSettings {
    /// Reports whether several clients may share one process of it.
    pub fn is_shared_process(&self) -> bool {
        matches!(self.target, UpstreamTarget::Stdio { .. })
            && matches!(self.instance, InstanceScope::Auto | InstanceScope::Shared)
    }

    /// Returns the settings under which headend declares Apps to the server in its own name; `None`
    /// if the server may have none.
    pub fn own_apps(&self) -> Option<RawJson> {
        (self.apps == AppsChoice::On).then(|| APPS.own_settings())
    }
}

/// Whether an upstream may have apps: views that hosts render, and tools for these views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, Serialize)]
#[strum(const_into_str, serialize_all = "kebab-case")]
#[serde(into = "&'static str")]
pub enum AppsChoice {
    #[default]
    On,
    /// The server does not learn of clients with Apps. Its tools lose their views, and those for
    /// apps alone do not exist.
    Off,
}

/// The arguments whose completions an upstream is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, Serialize)]
#[strum(const_into_str, serialize_all = "kebab-case")]
#[serde(into = "&'static str")]
pub enum CompletionScope {
    /// Arguments of items whose calls need no approval or have a lasting grant.
    #[default]
    Consented,
    /// Arguments of all items that are not denied.
    Pass,
}

/// The program or the URL of an upstream.
#[derive(Clone, Debug, PartialEq)]
pub enum UpstreamTarget {
    Stdio {
        /// Program and arguments, at least one word; no shell is involved.
        command: Vec<VariableText>,
        env: Vec<(String, Secret)>,
        /// The working directory, an absolute path.
        cwd: Option<VariableText>,
    },
    Http {
        /// An `https` URL, or `http` to a loopback host.
        url: Url,
        /// The text of `url` in the file, if it has variables.
        written: Option<String>,
        transport: HttpTransport,
        headers: Vec<(String, Secret)>,
    },
}

impl UpstreamTarget {
    /// Reports whether the path of the program, which its first word leads to, contains values of
    /// variables.
    pub fn hides_program(&self, word: &VariableText) -> bool {
        let Self::Stdio { cwd, .. } = self else { return false };
        let is_below = word.written().contains('/') && !word.written().starts_with('/');
        word.is_expanded() || (is_below && cwd.as_ref().is_some_and(VariableText::is_expanded))
    }

    /// Returns the URL as it is part of a launch and is shown: without the values of variables.
    pub fn shown_url(&self) -> Option<String> {
        let Self::Http { url, written, .. } = self else { return None };
        // Normalised by the parser, as launches had it before there were variables.
        let parsed = |text: &String| Url::parse(text).map_or_else(|_| text.clone(), |url| url.to_string());
        Some(written.as_ref().map_or_else(|| url.to_string(), parsed))
    }

    /// Reports whether one of the headers is a credential, by its name.
    pub fn has_credential(&self) -> bool {
        let Self::Http { headers, .. } = self else { return false };
        headers.iter().any(|(name, _)| is_secret_name(name))
    }

    /// Reports whether the server is on this machine.
    pub fn is_here(&self) -> bool {
        match self {
            Self::Stdio { .. } => true,
            Self::Http { url, .. } => is_loopback(url),
        }
    }
}

/// The confinement of an upstream's processes and of all that they start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// True if the processes gain no privileges from programs, for example with a set-user-ID bit.
    pub no_new_privileges: bool,
    /// The mode bits that new files lack; `None` for our own umask.
    pub umask: Option<u32>,
}

impl Default for Confinement {
    fn default() -> Self {
        Self { no_new_privileges: true, umask: None }
    }
}

/// The `[defaults]` table: settings for upstreams that lack their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct UpstreamDefaults {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<String>,
    /// Directories before the `PATH`, absolute paths. An empty list leaves out those of version
    /// managers too.
    pub path: Option<Vec<PathBuf>>,
}

/// The part of our environment that an upstream's processes get. No part of the launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ProgramSurroundings {
    /// Variables by name, in addition to those that all processes of its trust get.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<String>,
    /// Directories before its `PATH`, absolute paths.
    pub path: Vec<PathBuf>,
    /// True if directories of version managers are put between `path` and the `PATH`.
    #[serde(skip)]
    pub managers: bool,
}

impl Default for ProgramSurroundings {
    fn default() -> Self {
        Self { env_from: Vec::new(), path: Vec::new(), managers: true }
    }
}

/// The HTTP transport of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, Serialize)]
#[strum(const_into_str, serialize_all = "kebab-case")]
#[serde(into = "&'static str")]
pub enum HttpTransport {
    Auto,
    StreamableHttp,
    Sse,
}

/// The protocol era in which headend speaks to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, Serialize)]
#[strum(const_into_str, serialize_all = "kebab-case")]
#[serde(into = "&'static str")]
pub enum EraChoice {
    /// The result of probing the server.
    Auto,
    Legacy,
    Modern,
}

/// The scope of one process or session of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, Serialize)]
#[strum(const_into_str, serialize_all = "kebab-case")]
#[serde(into = "&'static str")]
pub enum InstanceScope {
    Auto,
    Shared,
    PerCaller,
    PerSession,
}

/// The replicas of a cluster that run the program of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, Serialize)]
#[strum(const_into_str, serialize_all = "kebab-case")]
#[serde(into = "&'static str")]
pub enum Placement {
    /// Each replica.
    #[default]
    Each,
    /// One replica at a time, whose program all replicas use. Without a cluster, the only process.
    One,
}

/// The time at which an upstream is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, Serialize)]
#[strum(const_into_str, serialize_all = "kebab-case")]
#[serde(into = "&'static str")]
pub enum StartMode {
    Eager,
    /// When it is needed: by a call or subscription, or because its lists are unknown. It stops
    /// when it is idle.
    Lazy,
}
