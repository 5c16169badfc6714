//! The `[policy.consent]` table: how headend asks for approvals.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::policy::consent::hold::MAX_HELD;
use crate::policy::{Caller, Policy};

use super::keys::{keys, read_value, read_whole, shown_value};
use super::notify::NotifySettings;
use crate::source::file::{ConfigTable, patterns};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The limits of `timeout`: a person may sit in front of a client that holds a stream open, but not
/// for ever.
const TIMEOUT: RangeInclusive<Duration> = SECOND..=HOUR;
const APPROVAL_LIFE: RangeInclusive<Duration> = SECOND..=DAY;
const UNUSED: RangeInclusive<Duration> = HOUR..=Duration::from_secs(3660 * 24 * 3600);
const COUNT: RangeInclusive<usize> = 1..=100;
const HOLD: RangeInclusive<Duration> = Duration::ZERO..=HOUR;
const HELD: RangeInclusive<usize> = 1..=MAX_HELD;

/// The operator's commands that may answer approvals and decide pins; later variants are stricter.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    strum::IntoStaticStr,
    strum::VariantArray,
    serde::Serialize,
)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub enum OperatorAccess {
    /// All commands of headend's own user and of root.
    #[default]
    Any,
    /// Commands on a terminal, by a code that the terminal shows and that is typed there.
    Terminal,
    /// No commands: answers come from the console's page only.
    None,
}

impl OperatorAccess {
    /// Returns the number that the store keeps for commands without a daemon.
    pub const fn number(self) -> u64 {
        match self {
            Self::Any => 0,
            Self::Terminal => 1,
            Self::None => 2,
        }
    }

    /// Reads a stored number; an unknown one, of a later program, is the strictest.
    pub const fn of_number(number: u64) -> Self {
        match number {
            0 => Self::Any,
            1 => Self::Terminal,
            _ => Self::None,
        }
    }
}

keys! {
    /// The settings of approvals.
    struct ApprovalSettings {
        /// The time for which a call waits for an answer of its own client.
        timeout: Duration as duration = "timeout", Duration::from_secs(120), TIMEOUT;
        /// The time for which the console and the command line can answer an approval.
        approval_life: Duration as duration = "approval-life", Duration::from_secs(900), APPROVAL_LIFE;
        /// The limit of open approvals of one caller.
        max_open: usize as count = "max-open", 20, COUNT;
        /// The limit of approvals of one client that may end without an answer in a minute.
        per_minute: usize as count = "per-minute", 3, COUNT;
        /// The time after which an unused grant expires.
        unused_expiry: Duration as duration = "unused-expiry", 90 * DAY, UNUSED;
        operator: OperatorAccess as choice = "operator", OperatorAccess::Any;
        /// The time for which a call is held open while it waits for a person elsewhere; zero
        /// refuses it at once. The default is below the time-out of most clients, which is 60 s and
        /// which progress does not extend.
        hold: Duration as duration = "hold", Duration::from_secs(40), HOLD;
        /// The limit of held calls of one caller.
        max_held: usize as count = "max-held", 20, HELD;
    }
    besides {
        /// Other hold times for the calls of some clients.
        holds: Vec<HoldOverride> = Vec::new();
        /// The receiver of notices of open approvals.
        notify: Option<NotifySettings> = None;
    }
}

/// The hold time for the calls of some clients. An empty list matches all of them.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct HoldOverride {
    pub callers: Vec<String>,
    pub profiles: Vec<String>,
    /// Patterns over the names that clients state about themselves.
    pub clients: Vec<String>,
    pub hold: Duration,
}

impl ApprovalSettings {
    pub(crate) fn read(table: Option<ConfigTable<'_>>) -> Self {
        read_whole(table, |table| {
            let former = table.take_renamed("prompt-life", "approval-life");
            let mut this = Self::read_keys(table);
            this.approval_life = former.and_then(|node| node.duration(&APPROVAL_LIFE)).unwrap_or(this.approval_life);
            this.holds = table.tables("holds").into_iter().map(HoldOverride::read).collect();
            this.notify = NotifySettings::read(table);
            this
        })
    }

    /// Returns the time for which a call is held. `client` is the name that its client states,
    /// empty for none. If several entries match, the shortest time counts, so their order means
    /// nothing.
    pub fn hold_of(&self, caller: &Caller, profile: Option<&str>, client: &str) -> Duration {
        let matching = self.holds.iter().filter(|hold| hold.is_for(caller, profile.unwrap_or_default(), client));
        matching.map(|hold| hold.hold).min().unwrap_or(self.hold)
    }
}

impl HoldOverride {
    fn read(mut table: ConfigTable<'_>) -> Self {
        let hold = table.take("hold");
        if hold.is_none() {
            table.problem("needs `hold`, a duration such as \"40s\", or \"0s\" to refuse at once");
        }
        let this = Self {
            callers: patterns(&mut table, "callers"),
            profiles: patterns(&mut table, "profiles"),
            clients: patterns(&mut table, "clients"),
            hold: hold.and_then(|node| node.duration(&HOLD)).unwrap_or_default(),
        };
        if [&this.callers, &this.profiles, &this.clients].into_iter().all(Vec::is_empty) {
            table.problem(
                "is for all clients; write `hold` in [policy.consent] itself, or `callers`, `profiles` or `clients` here",
            );
        }
        for (key, list) in [("callers", &this.callers), ("profiles", &this.profiles), ("clients", &this.clients)] {
            for (index, _) in list.iter().enumerate().filter(|(_, text)| Policy::pattern(text).is_none()) {
                let path = format!("{}.{key}[{index}]", table.path);
                table.source.problem_at(&path, "must be a name or a pattern of one, such as \"ed*\"");
            }
        }
        table.finish();
        this
    }

    /// Reports whether the entry matches a call. Empty lists match everything.
    fn is_for(&self, caller: &Caller, profile: &str, client: &str) -> bool {
        let has = |list: &[String], name: &str| {
            let is_it = |text: &String| Policy::pattern(text).is_some_and(|matches| matches(name));
            list.is_empty() || list.iter().any(is_it)
        };
        has(&self.callers, caller.name()) && has(&self.profiles, profile) && has(&self.clients, client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_under_its_former_name_works_with_a_warning_and_not_beside_the_present_one() {
        let nothing = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
        let read = |keys: &str| crate::parse(&format!("[policy.consent]\n{keys}\n"), "t", &|_| None, &nothing);
        let (config, warnings) = read("prompt-life = \"5m\"").unwrap();
        assert_eq!(config.consent.approval_life, Duration::from_secs(300));
        let told: String = warnings.iter().map(ToString::to_string).collect();
        assert!(told.contains("is called `approval-life` now"), "{told}");
        let problems = read("prompt-life = \"5m\"\napproval-life = \"6m\"").unwrap_err().to_string();
        assert!(problems.contains("former name of `approval-life`"), "{problems}");
        let (config, _) = read("approval-life = \"6m\"").unwrap();
        assert_eq!(config.consent.approval_life, Duration::from_secs(360));
    }

    fn hold(callers: &[&str], profiles: &[&str], clients: &[&str], seconds: u64) -> HoldOverride {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        let hold = Duration::from_secs(seconds);
        HoldOverride { callers: own(callers), profiles: own(profiles), clients: own(clients), hold }
    }

    #[test]
    fn the_shortest_time_of_all_entries_that_match_counts() {
        let holds = vec![
            hold(&["ci-*"], &[], &[], 0),
            hold(&[], &["work"], &[], 50),
            hold(&["local"], &[], &["ed*", "*-cli"], 10),
            hold(&[], &[], &["ed-beta"], 5),
        ];
        let consent = ApprovalSettings { holds, ..ApprovalSettings::default() };
        for (caller, profile, client, want) in [
            ("local", None, "", 40),
            ("local", None, "other", 40),
            ("local", None, "ed", 10),
            ("local", None, "x-cli", 10),
            ("dev", None, "ed", 40),
            ("dev", Some("work"), "ed", 50),
            ("local", Some("work"), "ed", 10),
            ("local", Some("work"), "ed-beta", 5),
            ("ci-1", Some("work"), "ed-beta", 0),
        ] {
            let got = consent.hold_of(&Caller::named(caller), profile, client);
            assert_eq!(got, Duration::from_secs(want), "{caller} {profile:?} {client:?}");
        }
    }
}
