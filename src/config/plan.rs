//! Plans a reload: the difference of two configurations, as steps.

use std::fmt;

use crate::catalog::name::UpstreamName;
use crate::policy::LOCAL;

use super::model::{ClientAuth, Config, Confinement, UpstreamSettings, UpstreamTarget};
use crate::source::seen::digest_of;

mod opens;

use self::opens::describe_openings;

/// The steps from one configuration to another. Names are in the order of the new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadPlan {
    /// Upstreams that only the new configuration has.
    pub start: Vec<UpstreamName>,
    /// Upstreams that only the old configuration has.
    pub stop: Vec<UpstreamName>,
    /// Upstreams that get a new process or session: the new one is started, then the old one
    /// drained. Their launch identity, login, surroundings, proxy or the bound of their lists
    /// changed, or further callers come to a process that may have asked its one caller so far.
    pub replace: Vec<UpstreamName>,
    /// Upstreams that keep running.
    pub keep: Vec<UpstreamName>,
    /// Upstreams of `keep` with other settings (filters, limits, timeouts, header values).
    pub changed: Vec<UpstreamName>,
    pub policy_changed: bool,
    /// True if naming, profiles, or the filters or order of upstreams changed.
    pub views_changed: bool,
    /// Changed key paths that take effect at once.
    pub live: Vec<String>,
    /// Callers whose credential is no longer valid; their sessions, streams and calls end.
    pub end: Vec<String>,
    /// Upstreams whose instructions reach no client any more, since there are other callers now.
    pub silenced: Vec<UpstreamName>,
    /// Descriptions of everything that becomes allowed and was not before, one phrase each.
    pub opens: Vec<String>,
    /// Changed key paths that are read only at start.
    pub needs_restart: Vec<String>,
}

/// Compares the configuration in force with the next one.
pub fn diff(old: &Config, new: &Config) -> ReloadPlan {
    let (live, needs_restart) = changed_keys(old, new);
    let mut plan = ReloadPlan {
        policy_changed: old.policy != new.policy,
        views_changed: view_settings(old) != view_settings(new),
        live,
        end: ended_callers(old, new),
        opens: describe_openings(old, new),
        needs_restart,
        ..ReloadPlan::default()
    };
    let joined = !old.has_many_callers() && new.has_many_callers();
    for upstream in &new.upstreams {
        let before = old.upstreams.iter().find(|before| before.name == upstream.name);
        let list = match before {
            None => &mut plan.start,
            Some(before)
                if before.launch_identity() != upstream.launch_identity() || (joined && before.is_shared_process()) =>
            {
                &mut plan.replace
            }
            // A server's lists are read with the bound and as a client of Apps or not, a process
            // keeps its environment, a connection its proxy, and another account may see another
            // server.
            Some(before)
                if before.auth != upstream.auth
                    || before.certificates != upstream.certificates
                    || before.proxy != upstream.proxy
                    || before.max_inventory != upstream.max_inventory
                    || before.apps != upstream.apps
                    || before.placement != upstream.placement
                    || before.surroundings != upstream.surroundings =>
            {
                &mut plan.replace
            }
            Some(before) => {
                if before != upstream {
                    plan.changed.push(upstream.name.clone());
                }
                &mut plan.keep
            }
        };
        let is_unset = upstream.instructions.is_none() && !new.passes_instructions_of(upstream);
        if joined && is_unset && before.is_some_and(|before| old.passes_instructions_of(before)) {
            plan.silenced.push(upstream.name.clone());
        }
        list.push(upstream.name.clone());
    }
    let gone = |upstream: &&UpstreamSettings| !new.upstreams.iter().any(|after| after.name == upstream.name);
    plan.stop = old.upstreams.iter().filter(gone).map(|upstream| upstream.name.clone()).collect();
    plan
}

/// Returns the settings that decide which names clients see, apart from the upstreams' own lists.
fn view_settings(config: &Config) -> impl PartialEq + '_ {
    let shown = |upstream: &UpstreamSettings| {
        let UpstreamSettings { name, prefix, tools, prompts, resources, .. } = upstream.clone();
        (name, prefix, tools, prompts, resources)
    };
    (config.naming, &config.profiles, config.upstreams.iter().map(shown).collect::<Vec<_>>())
}

/// A key, or a table with all of its keys, and the effect of a reload on it.
#[derive(Debug)]
pub struct SettingRow {
    pub key: &'static str,
    /// True if a change takes effect at once; otherwise only a restart puts it in force.
    pub is_live: bool,
    differs: fn(&Config, &Config) -> bool,
}

macro_rules! settings {
    ($($key:literal is $word:ident in $($member:ident).+;)*) => {
        /// All keys except those of `[server.limits]`, which take effect at once, and those of
        /// upstreams, profiles, names and the policy, which the plan compares in other ways.
        pub const SETTINGS: &[SettingRow] = &[$(SettingRow {
            key: $key,
            is_live: settings!($word),
            differs: |old, new| old.$($member).+ != new.$($member).+,
        },)*];
    };
    (live) => { true };
    (fixed) => { false };
}

settings! {
    "server.listen" is fixed in server.listen;
    "server.endpoint" is fixed in server.endpoint;
    "server.legacy-sse" is fixed in server.legacy_sse;
    "server.allowed-hosts" is live in server.allowed_hosts;
    "server.allowed-origins" is live in server.allowed_origins;
    "server.auth" is live in server.auth;
    "server.drain-timeout" is live in server.drain_timeout;
    "server.trusted-proxies" is live in server.trusted_proxies;
    "server.tls" is live in server.tls;
    "metrics.listen" is fixed in metrics.listen;
    "metrics.token" is live in metrics.token;
    "console.listen" is fixed in console.listen;
    "console.allowed-hosts" is fixed in console.allowed_hosts;
    "admin.socket" is fixed in admin.socket;
    "admin.group" is fixed in admin.group;
    "admin.users" is live in admin.users;
    "policy.consent" is live in consent;
    "audit.path" is fixed in audit.path;
    "audit.capture-arguments" is live in audit.capture_arguments;
    "audit.strict" is live in audit.strict;
    "audit.on-failure" is live in audit.on_failure;
    "audit.max-segment" is live in audit.max_segment;
    "audit.retain" is live in audit.retain;
    "secrets.key" is fixed in secrets.key;
    "secrets.previous-key" is fixed in secrets.previous_key;
    "cluster" is fixed in cluster;
    "log.filter" is live in log.filter;
    "log.format" is fixed in log.format;
}

/// Returns the changed key paths that take effect at once, and those that are read only at start.
/// Leaves out the keys of upstreams, profiles, rules and the limits of the policy.
fn changed_keys(old: &Config, new: &Config) -> (Vec<String>, Vec<String>) {
    let changed = SETTINGS.iter().filter(|setting| (setting.differs)(old, new));
    let (live, fixed): (Vec<_>, Vec<_>) = changed.partition(|setting| setting.is_live);
    let [mut live, mut fixed] = [live, fixed].map(|some| some.iter().map(|one| one.key.to_owned()).collect::<Vec<_>>());
    let is_auth = |key: &String| key == "server.auth";
    if old.server.jwt != new.server.jwt && !live.iter().any(is_auth) {
        live.push("server.auth".to_owned());
    }
    // A listener begins or ceases to speak TLS when it is opened.
    if old.server.tls.is_empty() != new.server.tls.is_empty() {
        live.retain(|key| key != "server.tls");
        fixed.push("server.tls".to_owned());
    }
    let (before, after) = (old.server.limits.shown(), new.server.limits.shown());
    let limits = before.iter().filter(|(key, value)| after.get(*key) != Some(value));
    live.extend(limits.map(|(key, _)| format!("server.limits.{key}")));
    (live, fixed)
}

/// Returns the callers whose credential is no longer valid.
fn ended_callers(old: &Config, new: &Config) -> Vec<String> {
    let mut gone: Vec<String> = match (&old.server.auth, &new.server.auth) {
        (ClientAuth::Token { tokens: old }, ClientAuth::Token { tokens: new }) => {
            old.iter().filter(|token| !new.contains(token)).map(|(caller, _)| caller.clone()).collect()
        }
        (ClientAuth::Token { tokens }, ClientAuth::None) => {
            tokens.iter().map(|(caller, _)| caller.as_str()).chain([LOCAL]).map(str::to_owned).collect()
        }
        (ClientAuth::None, ClientAuth::Token { .. }) => vec![LOCAL.to_owned()],
        (ClientAuth::None, ClientAuth::None) => Vec::new(),
    };
    let issuers = |config: &'_ Config| config.server.jwt.clone().map_or_else(Vec::new, |jwt| jwt.issuers);
    let kept = issuers(new);
    let removed = issuers(old).into_iter().filter(|issuer| !kept.contains(issuer));
    gone.extend(removed.map(|issuer| format!("the callers of {}", issuer.terms.name)));
    if new.admin.group.is_none() {
        let users = old.admin.users.iter().filter(|user| !new.admin.users.contains(user));
        gone.extend(users.map(|user| format!("the user {user}")));
    }
    gone
}

impl Config {
    /// Switches these upstreams off: they count as disabled until the process ends, or the
    /// configuration disables them itself.
    pub fn without(mut self, off: &[UpstreamName]) -> Self {
        let (off, upstreams): (Vec<_>, Vec<_>) = self.upstreams.into_iter().partition(|spec| off.contains(&spec.name));
        self.upstreams = upstreams;
        self.off = off.iter().map(|spec| spec.name.clone()).collect();
        self.disabled.extend(off);
        self
    }
}

impl UpstreamSettings {
    /// Returns the key under which the upstream's lists are stored. Behind a URL it depends on the
    /// upstream's name: a server lists what the account may use, and two upstreams with one URL
    /// each have an account.
    pub fn inventory_key(&self) -> String {
        let launch = self.launch_identity();
        match &self.target {
            UpstreamTarget::Stdio { .. } => launch,
            UpstreamTarget::Http { .. } => digest_of([self.name.as_str().as_bytes(), launch.as_bytes()]),
        }
    }

    /// Returns a hash over everything that headend launches or connects to: command, environment,
    /// directory, confinement; or URL, transport and header names; the era, and the facts about
    /// clients that the server learns. Another identity means another process or session.
    ///
    /// The name is no part of it, nor are header values, which go with each request. Texts count as
    /// they are written, with variables in place.
    pub fn launch_identity(&self) -> String {
        let mut parts: Vec<String> = vec![format!("{:?} {:?} {:?}", self.era, self.instance, self.roots)];
        match &self.target {
            UpstreamTarget::Stdio { command, env, cwd } => {
                parts.push(format!("stdio {} {}", command.len(), env.len()));
                parts.extend(command.iter().map(|word| word.written().to_owned()));
                let mut env: Vec<_> = env.iter().collect();
                env.sort_by_key(|(name, _)| name);
                parts.extend(
                    env.into_iter()
                        .flat_map(|(name, value)| [name.clone(), digest_of([value.before_expansion().as_bytes()])]),
                );
                parts.extend(cwd.iter().map(|cwd| cwd.written().to_owned()));
                // The store finds launches by their identity, so the default must not change it.
                if self.confinement != Confinement::default() {
                    parts.push(format!("{:?}", self.confinement));
                }
            }
            UpstreamTarget::Http { transport, headers, .. } => {
                parts.push(format!("http {}", transport.into_str()));
                parts.extend(self.target.shown_url());
                let mut names: Vec<String> = headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
                names.sort_unstable();
                parts.extend(names);
            }
        }
        digest_of(parts.iter().map(String::as_bytes))
    }
}

impl ReloadPlan {
    /// Returns why the plan cannot be carried out; `None` if it can.
    pub fn refusal(&self) -> Option<String> {
        let keys = self.needs_restart.join(", ");
        (!keys.is_empty()).then(|| {
            format!("these keys cannot change while the gateway runs: {keys}; nothing was changed, restart it to put them in force")
        })
    }
}

impl fmt::Display for ReloadPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut steps = Vec::new();
        for (step, names) in
            [("start", &self.start), ("stop", &self.stop), ("replace", &self.replace), ("change", &self.changed)]
        {
            if !names.is_empty() {
                let names: Vec<&str> = names.iter().map(UpstreamName::as_str).collect();
                steps.push(format!("{step} {}", names.join(", ")));
            }
        }
        if self.policy_changed {
            steps.push("new policy".to_owned());
        }
        if self.views_changed {
            steps.push("new names or views".to_owned());
        }
        if !self.live.is_empty() {
            steps.push(format!("new settings of {}", self.live.join(", ")));
        }
        if !self.end.is_empty() {
            steps.push(format!("end the sessions of {}", self.end.join(", ")));
        }
        if !self.silenced.is_empty() {
            let names: Vec<&str> = self.silenced.iter().map(UpstreamName::as_str).collect();
            steps.push(format!(
                "no instructions of {} any more, since there are other callers (`instructions = \"pass\"` passes them)",
                names.join(", ")
            ));
        }
        if !self.opens.is_empty() {
            steps.push(format!("opens more: {}", self.opens.join(", ")));
        }
        if !self.needs_restart.is_empty() {
            steps.push(format!("only after a restart: {}", self.needs_restart.join(", ")));
        }
        if steps.is_empty() { f.write_str("nothing changed") } else { f.write_str(&steps.join("; ")) }
    }
}

#[cfg(test)]
mod tests;
