//! Prompts and grants as the admin socket and `--json` show them.

use super::PromptRow;
use crate::policy::consent::{AgentWait, CallBlock, GrantRow, Wall};
use crate::wire::raw::{RawJson, RawObject};

/// An open prompt with everything that a person is shown: [`prompt`], and the details of that prompt, which are an object.
pub fn whole(row: &PromptRow, details: &str, now: Wall) -> RawJson {
    let [prompt, details] = [prompt(row, now), RawJson::trusted(details.to_owned())];
    let mut out = RawObject::parse(&prompt).unwrap_or_default();
    let Ok(mut details) = RawObject::parse(&details) else { return prompt };
    let mut names = Vec::new();
    details.retain(|name| {
        names.push(name.to_owned());
        true
    });
    for name in names {
        if let Some(value) = details.remove(&name).filter(|_| out.get(&name).is_none()) {
            out.set(&name, value);
        }
    }
    out.encode()
}

/// An open prompt. Dates are seconds since 1970, `age` and `left` are seconds.
pub fn prompt(row: &PromptRow, now: Wall) -> RawJson {
    let PromptRow { id, caller, upstream, kind, item, exposed, rule, need, message, .. } = row;
    let mut out = RawObject::of_strings(&[
        ("id", id),
        ("caller", caller.name()),
        ("upstream", upstream),
        ("kind", kind),
        ("item", item),
        ("exposed", exposed),
        ("rule", rule),
        ("min-evidence", need),
        ("message", message),
    ]);
    out.set("digest", RawJson::string(&row.digest()));
    out.set("destructive", RawJson::boolean(row.destructive));
    out.set("session", RawJson::boolean(row.session));
    out.set("opened-at", RawJson::number(row.opened_at));
    out.set("until", RawJson::number(row.until));
    out.set("age", RawJson::number(now.saturating_sub(row.opened_at)));
    out.set("left", RawJson::number(row.until.saturating_sub(now)));
    out.encode()
}

/// The same with what is known of the agent: `waits`, and `wait-left` in seconds where that is
/// known.
pub fn with_wait(prompt: &RawJson, wait: AgentWait) -> RawJson {
    let mut out = RawObject::parse(prompt).unwrap_or_default();
    out.set("waits", RawJson::boolean(wait != AgentWait::Stopped));
    if let AgentWait::Waits { left: Some(left) } = wait {
        out.set("wait-left", RawJson::number(left));
    }
    out.encode()
}

/// A live grant. Dates are seconds since 1970; `last-used` is 0 for never.
pub fn grant(row: &GrantRow) -> RawJson {
    let asked = &row.asked;
    let (definition, launch) = (asked.definition.short(), asked.launch.short());
    let mut out = RawObject::of_strings(&[
        ("id", &row.id),
        ("caller", asked.caller.name()),
        ("upstream", &asked.upstream),
        ("kind", asked.kind.into_str()),
        ("item", &asked.item),
        ("rule", &asked.rule),
        ("lifetime", row.lifetime.into_str()),
        ("arguments", row.arguments.into_str()),
        ("evidence", row.evidence.into_str()),
        ("by", &row.by),
        ("definition", &definition),
        ("launch", &launch),
    ]);
    if let Some(below) = row.arguments.below() {
        out.set("below", RawJson::string(below.base()));
        out.set("judges", RawJson::list(below.judged().iter().map(|pointer| RawJson::string(pointer))));
        out.set("covers", RawJson::string(&below.told()));
    }
    if let Some(until) = row.lifetime.until() {
        out.set("until", RawJson::number(until));
    }
    out.set("granted-at", RawJson::number(row.granted_at));
    out.set("last-used", RawJson::number(row.last_used));
    out.set("uses", RawJson::number(row.uses));
    out.encode()
}

/// A block; one of a denial says who denied what. Dates are seconds since 1970, `left` is in
/// seconds.
pub fn block(block: &CallBlock, now: Wall) -> RawJson {
    let id = block.id.to_string();
    let mut out = RawObject::of_strings(&[("id", &id), ("caller", block.caller.name()), ("item", &block.item)]);
    if let Some(client) = &block.client {
        out.set("client", RawJson::string(client));
    }
    if let Some(denial) = &block.denial {
        let asked = &denial.asked;
        let (kind, evidence) = (asked.kind.into_str(), denial.evidence.into_str());
        let texts = [("by", &*denial.by), ("kind", kind), ("rule", &asked.rule), ("evidence", evidence)];
        texts.into_iter().for_each(|(name, text)| out.set(name, RawJson::string(text)));
        out.set("denied-at", RawJson::number(denial.at));
    }
    out.set("until", RawJson::number(block.until));
    out.set("left", RawJson::number(block.until.saturating_sub(now)));
    out.encode()
}

/// An object with one list.
pub fn list(name: &str, rows: impl Iterator<Item = RawJson>) -> RawJson {
    let mut out = RawObject::default();
    out.set(name, RawJson::list(rows));
    out.encode()
}
