//! The setting of instructions in force for each upstream and view.

use crate::mcp::instructions::InstructionLimits;
use crate::model::{Config, Profile, UpstreamSettings};
use crate::values::instructions::InstructionSetting;

impl Config {
    /// Returns the setting in force for an upstream in a profile; `None` stands for clients without
    /// a profile. A profile that drops all texts or has its own outranks its upstreams; its
    /// "pass" is for upstreams without a setting. Without any setting, texts of servers are passed
    /// as long as the local user is the only caller.
    pub fn instructions_of<'c>(
        &'c self,
        profile: Option<&'c Profile>,
        upstream: &'c UpstreamSettings,
    ) -> &'c InstructionSetting {
        let of_profile = profile.and_then(|profile| profile.instructions.as_ref());
        match (of_profile, &upstream.instructions) {
            (Some(own @ (InstructionSetting::Drop | InstructionSetting::Text(_))), _) => own,
            (_, Some(own)) => own,
            (Some(InstructionSetting::Pass), None) => &InstructionSetting::Pass,
            (None, None) if self.has_many_callers() => &InstructionSetting::Drop,
            (None, None) => &InstructionSetting::Pass,
        }
    }

    /// Returns the limits of the texts of servers.
    pub fn instruction_limits(&self) -> InstructionLimits {
        let limits = &self.server.limits;
        InstructionLimits { each: limits.instructions_each, all: limits.instructions_all }
    }

    /// Reports whether the text of a server may reach clients of some view.
    pub fn passes_instructions_of(&self, upstream: &UpstreamSettings) -> bool {
        let passes = |profile| *self.instructions_of(profile, upstream) == InstructionSetting::Pass;
        let has_it = |profile: &&Profile| profile.upstreams.contains(&upstream.name);
        passes(None) || self.profiles.iter().filter(has_it).any(|profile| passes(Some(profile)))
    }
}

/// Returns a warning that no instructions of servers are passed because there are other callers
/// than the local user; `None` if that is not so, or if each upstream has a setting of its own.
pub fn warn_of_dropped_instructions(config: &Config) -> Option<String> {
    let is_unset = |spec: &&UpstreamSettings| spec.instructions.is_none() && !config.passes_instructions_of(spec);
    let names: Vec<String> = config.upstreams.iter().filter(is_unset).map(|spec| format!("`{}`", spec.name)).collect();
    (config.has_many_callers() && !names.is_empty()).then(|| {
        format!(
            "upstreams: the instructions of {} reach no client: there are other callers than the local user; \
             `instructions = \"pass\"` passes them to all callers, `instructions = \"drop\"` says that it is meant",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::good;

    fn config(upstream: &str, more: &str) -> Config {
        good(&format!("[upstreams.a]\ncommand = [\"/a\"]\n{upstream}\n{more}")).0
    }

    const TOKEN: &str = "[server.auth]\nmode = \"token\"\n[server.auth.tokens]\nb = \"a-token-that-is-long\"\n";

    #[test]
    fn the_setting_of_an_upstream_and_its_profile_decide_and_other_callers_change_the_default() {
        for (label, upstream, profile, many, want) in [
            ("default", "", "", false, "pass pass"),
            ("other callers", "", "", true, "drop drop"),
            ("stated", "instructions = \"pass\"", "", true, "pass pass"),
            ("dropped", "instructions = \"drop\"", "instructions = \"pass\"", false, "drop drop"),
            ("text", "instructions = \"Ask.\"", "", true, "Ask. Ask."),
            ("profile passes", "", "instructions = \"pass\"", true, "drop pass"),
            ("profile drops", "instructions = \"Ask.\"", "instructions = \"drop\"", false, "Ask. drop"),
            ("profile has a text", "", "instructions = \"Wait.\"", false, "pass Wait."),
        ] {
            let more = format!("[profiles.p]\n{profile}\n{}", if many { TOKEN } else { "" });
            let config = config(upstream, &more);
            let of = |profile| match config.instructions_of(profile, &config.upstreams[0]) {
                InstructionSetting::Pass => "pass",
                InstructionSetting::Drop => "drop",
                InstructionSetting::Text(text) => text,
            };
            assert_eq!(format!("{} {}", of(None), of(config.profiles.first())), want, "{label}");
            let warns = warn_of_dropped_instructions(&config).is_some();
            assert_eq!(warns, label == "other callers", "{label}");
        }
    }
}
