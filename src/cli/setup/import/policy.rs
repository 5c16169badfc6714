//! The policy of an import: calls that the host let run without approval still do, and the rest
//! needs approval unless a tool only reads.

use crate::config::show::{array, quoted};
use crate::policy::RuleEffect;

use super::entry::{UpstreamBlock, names_of};

/// Id of the rule for tools that claim to be read-only.
const READS: &str = "import-reads";
/// Id of the rule for upstreams whose host has no rule for approvals.
const SILENT: &str = "import-silent";

/// The default for servers whose host does not say which calls need approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SilentDefault {
    Allow,
    /// Calls need approval, like the unlisted calls of other hosts.
    Ask,
}

/// The policy of the existing configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct ExistingPolicy {
    /// The default in force; `None` if the configuration has neither a policy nor upstreams.
    pub(super) default: Option<RuleEffect>,
    /// Ids of its rules.
    pub(super) rules: Vec<String>,
}

/// The text to add for the policy, and remarks for the user.
#[derive(Debug, Default)]
pub(super) struct PolicyAddition {
    /// Text before the upstreams.
    pub(super) head: String,
    /// Text behind the upstreams.
    pub(super) rules: String,
    pub(super) told: Vec<String>,
}

/// Returns true for a server that is on and whose host has no rule for approvals.
pub(super) fn is_silent(block: &UpstreamBlock) -> bool {
    is_on(block) && !block.says
}

/// Returns true if the server is on here.
fn is_on(block: &UpstreamBlock) -> bool {
    block.off.is_none() && block.reasons.is_empty()
}

/// Builds the policy of an import: a whole one, or rules beside the existing one.
pub(super) fn added(blocks: &[UpstreamBlock], silent: SilentDefault, present: &ExistingPolicy) -> PolicyAddition {
    match present.default {
        None => fresh(blocks, silent),
        Some(default) => beside(blocks, default, present),
    }
}

/// Builds the policy of a new configuration.
fn fresh(blocks: &[UpstreamBlock], silent: SilentDefault) -> PolicyAddition {
    let quiet: Vec<String> = blocks.iter().filter(|block| is_silent(block)).map(|block| block.name.clone()).collect();
    let on = blocks.iter().filter(|block| is_on(block)).count();
    let mut added = PolicyAddition::default();
    if silent == SilentDefault::Allow && quiet.len() == on {
        added.head = "# Your hosts' files do not say which tools may run unasked, so every call is allowed. With default = \"ask\" a person approves\n\
                      # them; config/desk.toml has a rule that lets tools which only read go.\n[policy]\ndefault = \"allow\"\n"
            .to_owned();
        if on > 0 {
            added.told.push(
                "your hosts' files do not say which tools may run unasked, so every call is allowed (default = \"allow\")"
                    .to_owned(),
            );
        }
        return added;
    }
    added.head = format!(
        "# A person approves calls that no rule allows.\n[policy]\ndefault = \"ask\"\n\n\
         # Tools that only read, and nothing beyond this machine, by the word of their server.\n\
         [[policy.rules]]\nid = {}\neffect = \"allow\"\nclaims = {{ read-only = true, open-world = false }}\n",
        quoted(READS)
    );
    if silent == SilentDefault::Ask && !quiet.is_empty() {
        added.told.push(format!(
            "your hosts' files do not say which tools of {} may run unasked, so their calls wait for your approval unless a tool only reads; \
             `headend import --allow-all` lets every call run",
            quiet.join(", ")
        ));
    }
    if silent == SilentDefault::Allow && !quiet.is_empty() {
        added.rules.push_str("\n# Their hosts' files do not say which tools may run unasked.\n");
        added.rules.push_str(&rule(SILENT, "upstreams", &quiet));
        added.told.push(format!(
            "your hosts' files do not say which tools of {} may run unasked, so every call of them is allowed (rule \"{SILENT}\")",
            quiet.join(", ")
        ));
    }
    let mut taken = vec![READS.to_owned(), SILENT.to_owned()];
    added.rules.push_str(&unasked(blocks, &mut taken));
    added
}

/// Builds rules beside an existing policy, which decides everything else.
fn beside(blocks: &[UpstreamBlock], default: RuleEffect, present: &ExistingPolicy) -> PolicyAddition {
    let mut added = PolicyAddition::default();
    let word = default.into_str();
    let names =
        |these: &dyn Fn(&UpstreamBlock) -> bool| names_of(blocks.iter().filter(|block| is_on(block) && these(block)));
    if default == RuleEffect::Allow {
        let asked = names(&|block| block.says && !block.unasked_all);
        if !asked.is_empty() {
            added.told.push(format!(
                "the policy that is there has default = \"{word}\": calls of {asked} that their host asks about run without a question; \
                 default = \"ask\" and the rule of config/desk.toml change that"
            ));
        }
        return added;
    }
    let mut taken = present.rules.clone();
    added.rules = unasked(blocks, &mut taken);
    let rest = names(&|block| !block.unasked_all);
    if !rest.is_empty() {
        let does = if default == RuleEffect::Deny { "are denied" } else { "wait for an approval" };
        added.told.push(format!(
            "the policy that is there stays (default = \"{word}\"): calls of {rest} that no rule allows {does}"
        ));
    }
    added
}

/// Builds a rule for each upstream of which the host lets calls run without approval. Their ids are
/// added to `taken`.
fn unasked(blocks: &[UpstreamBlock], taken: &mut Vec<String>) -> String {
    let mut out = String::new();
    for block in blocks.iter().filter(|block| is_on(block)) {
        let (key, values) = if block.unasked_all && block.says {
            ("upstreams", vec![block.name.clone()])
        } else if block.unasked.is_empty() {
            continue;
        } else {
            ("tools", block.unasked.clone())
        };
        let id = format!("import-{}", block.name);
        let again = (2..).map(|number| format!("{id}-{number}"));
        let id = std::iter::once(id.clone()).chain(again).find(|id| !taken.contains(id)).unwrap_or(id);
        out.push_str("\n# The host lets these run without a question.\n");
        out.push_str(&rule(&id, key, &values));
        taken.push(id);
    }
    out
}

/// Writes one allow rule.
fn rule(id: &str, key: &str, values: &[String]) -> String {
    format!("[[policy.rules]]\nid = {}\neffect = \"allow\"\n{key} = {}\n", quoted(id), array(values))
}
