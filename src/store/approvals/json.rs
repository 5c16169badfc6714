//! Prompts and grants as the admin socket and `--json` show them.

use super::PromptRow;
use crate::policy::consent::GrantRow;
use crate::wire::raw::{RawJson, RawObject};

fn number(value: u64) -> RawJson {
    RawJson::trusted(value.to_string())
}

fn boolean(value: bool) -> RawJson {
    RawJson::trusted(if value { "true" } else { "false" })
}

/// An open prompt. Dates are seconds since 1970.
pub(crate) fn prompt(row: &PromptRow) -> RawJson {
    let PromptRow { id, caller, upstream, kind, item, exposed, rule, need, message, .. } = row;
    let mut out = RawObject::default();
    let texts = [
        ("id", id),
        ("caller", caller),
        ("upstream", upstream),
        ("kind", kind),
        ("item", item),
        ("exposed", exposed),
        ("rule", rule),
        ("min-evidence", need),
        ("message", message),
    ];
    for (name, text) in texts {
        out.set(name, RawJson::string(text));
    }
    out.set("destructive", boolean(row.destructive));
    out.set("session", boolean(row.session));
    out.set("opened-at", number(row.opened_at));
    out.set("until", number(row.until));
    out.encode()
}

/// A live grant. Dates are seconds since 1970; `last-used` is 0 for never.
pub(crate) fn grant(row: &GrantRow) -> RawJson {
    let asked = &row.asked;
    let mut out = RawObject::default();
    let (definition, launch) = (asked.definition.short(), asked.launch.short());
    let texts = [
        ("id", &*row.id),
        ("caller", &*asked.caller),
        ("upstream", &*asked.upstream),
        ("kind", asked.kind.into_str()),
        ("item", &*asked.item),
        ("rule", &*asked.rule),
        ("lifetime", row.lifetime.into_str()),
        ("arguments", row.arguments.into_str()),
        ("evidence", row.evidence.into_str()),
        ("by", &*row.by),
        ("definition", &*definition),
        ("launch", &*launch),
    ];
    for (name, text) in texts {
        out.set(name, RawJson::string(text));
    }
    if let Some(until) = row.lifetime.until() {
        out.set("until", number(until));
    }
    out.set("granted-at", number(row.granted_at));
    out.set("last-used", number(row.last_used));
    out.set("uses", number(row.uses));
    out.encode()
}

/// An object with one list.
pub(crate) fn list(name: &str, rows: impl Iterator<Item = RawJson>) -> RawJson {
    let rows: Vec<String> = rows.map(|row| row.text().into_owned()).collect();
    let mut out = RawObject::default();
    out.set(name, RawJson::trusted(format!("[{}]", rows.join(","))));
    out.encode()
}
