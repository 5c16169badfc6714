//! Which era an upstream speaks and what it offers: the questions and the verdicts, for every transport.

use crate::engine::ask::Declared;
use crate::mcp::extension::TASKS;
use crate::mcp::meta::{HopMeta, implementation};
use crate::mcp::task;
use crate::mcp::version::{Era, Revision};
use crate::wire::code;
use crate::wire::foreign;
use crate::wire::raw::{RawJson, RawObject};

/// What is known of an upstream's era before it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EraHint {
    /// Ask `server/discover`, then `initialize`.
    Probe,
    /// Ask `initialize` at once: configured, or remembered.
    Legacy,
    /// Ask `server/discover` only: configured.
    Modern,
}

/// What an upstream agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) revision: Revision,
    pub(crate) offers: Offers,
}

/// The server capabilities that the gateway acts on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offers {
    pub(crate) prompts: bool,
    pub(crate) resources: bool,
    pub(crate) completions: bool,
    /// Tool calls may become tasks: the extension of 2026-07-28, or the core feature of 2025-11-25.
    pub(crate) tasks: bool,
    /// Log messages, at a level that legacy clients set.
    pub(crate) logging: bool,
    /// Updates of resources.
    pub(crate) subscriptions: bool,
    /// Any `listChanged`, which is worth a subscription.
    pub(crate) changes: bool,
}

/// The verdict on an answer to `server/discover`. Source: MCP 2026-07-28, stdio and versioning; protocol 3.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discovered {
    Modern(Agreed),
    /// Not modern, or not in a revision that both know: ask `initialize`.
    Legacy,
    /// It refused the version that it was asked in and speaks this one: ask once more.
    Again(Revision),
    /// Modern, but in revisions that this gateway does not speak.
    Unspeakable,
}

/// `params` of `server/discover`, asked in that revision.
pub(crate) fn discover_params(hop: &HopMeta, revision: Revision) -> RawJson {
    RawJson::trusted(format!(r#"{{"_meta":{}}}"#, hop.envelope(revision).text()))
}

/// `params` of the `subscriptions/listen` that tells of changed lists.
pub(crate) fn listen_params(hop: &HopMeta, revision: Revision) -> RawJson {
    RawJson::trusted(format!(
        r#"{{"notifications":{{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}},"_meta":{}}}"#,
        hop.envelope(revision).text()
    ))
}

/// `params` of `initialize`, with what the server may ask for.
pub(crate) fn initialize_params(declared: &Declared) -> RawJson {
    RawJson::trusted(format!(
        r#"{{"protocolVersion":"{}","capabilities":{},"clientInfo":{}}}"#,
        Revision::preferred(Era::Legacy),
        declared.kinds.capabilities().text(),
        implementation().text()
    ))
}

/// Judges the answer to `server/discover`.
pub(crate) fn judge_discover(answer: &Result<RawJson, RawJson>) -> Discovered {
    match answer {
        Ok(result) => {
            let Ok(result) = RawObject::parse(result) else { return Discovered::Legacy };
            let Some(versions) = result.get("supportedVersions").and_then(|raw| raw.parse::<Vec<String>>().ok()) else {
                return Discovered::Legacy;
            };
            match pick(&versions) {
                Pick::Modern(revision) => {
                    let capabilities = result.get("capabilities");
                    let tasks = capabilities.is_some_and(|raw| TASKS.is_in(raw));
                    let offers = capabilities.map(offers).unwrap_or_default();
                    Discovered::Modern(Agreed { revision, offers: Offers { tasks, ..offers } })
                }
                Pick::Legacy => Discovered::Legacy,
                Pick::Nothing => Discovered::Unspeakable,
            }
        }
        Err(error) => {
            let Ok(error) = RawObject::parse(error) else { return Discovered::Legacy };
            if error.get("code").and_then(|raw| raw.parse::<i64>().ok()) != Some(code::UNSUPPORTED_VERSION) {
                return Discovered::Legacy;
            }
            let supported = error.object("data");
            let supported = supported.and_then(|data| data.get("supported")?.parse::<Vec<String>>().ok());
            match supported.map(|versions| pick(&versions)) {
                Some(Pick::Modern(revision)) => Discovered::Again(revision),
                Some(Pick::Nothing) => Discovered::Unspeakable,
                Some(Pick::Legacy) | None => Discovered::Legacy,
            }
        }
    }
}

enum Pick {
    Modern(Revision),
    Legacy,
    Nothing,
}

fn pick(versions: &[String]) -> Pick {
    let known: Vec<Revision> = versions.iter().filter_map(|v| Revision::parse(v)).collect();
    match known.iter().max() {
        Some(best) if best.era() == Era::Modern => Pick::Modern(*best),
        Some(_) => Pick::Legacy,
        None => Pick::Nothing,
    }
}

/// Judges the answer to `initialize`.
///
/// # Errors
/// A sentence for the operator.
pub(crate) fn judge_initialize(answer: &Result<RawJson, RawJson>) -> Result<Agreed, String> {
    let result = answer.as_ref().map_err(|error| format!("`initialize` was refused: {}", message_of(error)))?;
    let result = RawObject::parse(result).map_err(|_| "the answer to `initialize` is no object".to_owned())?;
    let version = result.string("protocolVersion").ok_or("the answer to `initialize` names no protocolVersion")?;
    let revision = Revision::parse(&version)
        .filter(|revision| revision.era() == Era::Legacy)
        .ok_or_else(|| format!("the server wants protocol version {version:?}, which has no `initialize`"))?;
    let mut offers = result.get("capabilities").map(offers).unwrap_or_default();
    // Where there is no such capability, the method may simply exist.
    offers.completions |= !revision.features().completions && offers.prompts;
    Ok(Agreed { revision, offers })
}

/// The message of an error object, shortened, for the operator.
pub(crate) fn message_of(error: &RawJson) -> String {
    let message = RawObject::parse(error).ok().and_then(|error| error.string("message")).unwrap_or_default();
    foreign::short(&message, 200)
}

fn offers(capabilities: &RawJson) -> Offers {
    let Ok(capabilities) = RawObject::parse(capabilities) else { return Offers::default() };
    let changes = |name: &str| capabilities.object(name).is_some_and(|s| s.is_true("listChanged"));
    Offers {
        prompts: capabilities.object("prompts").is_some(),
        resources: capabilities.object("resources").is_some(),
        completions: capabilities.object("completions").is_some(),
        tasks: task::takes_calls(&capabilities),
        logging: capabilities.object("logging").is_some(),
        subscriptions: capabilities.object("resources").is_some_and(|s| s.is_true("subscribe")),
        changes: ["tools", "prompts", "resources"].into_iter().any(changes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(text: &'static str) -> Result<RawJson, RawJson> {
        Ok(RawJson::trusted(text))
    }

    fn err(text: &'static str) -> Result<RawJson, RawJson> {
        Err(RawJson::trusted(text))
    }

    #[test]
    fn the_era_is_judged_by_the_whole_answer_not_by_one_code() {
        for (label, answer, want) in [
            ("no versions", ok("{}"), Discovered::Legacy),
            ("only legacy listed", ok(r#"{"supportedVersions":["2025-11-25"]}"#), Discovered::Legacy),
            ("only unknown listed", ok(r#"{"supportedVersions":["2031-01-01"]}"#), Discovered::Unspeakable),
            ("method not found", err(r#"{"code":-32601}"#), Discovered::Legacy),
            ("bad params", err(r#"{"code":-32602}"#), Discovered::Legacy),
            ("code zero", err(r#"{"code":0}"#), Discovered::Legacy),
            (
                "refused with our version",
                err(r#"{"code":-32022,"data":{"supported":["2026-07-28"]}}"#),
                Discovered::Again(Revision::V2026_07_28),
            ),
            (
                "refused with a later version",
                err(r#"{"code":-32022,"data":{"supported":["2025-11-25","2099-12-31"]}}"#),
                Discovered::Again(Revision::Later),
            ),
            ("refused with legacy", err(r#"{"code":-32022,"data":{"supported":["2025-06-18"]}}"#), Discovered::Legacy),
            (
                "refused, disjoint",
                err(r#"{"code":-32022,"data":{"supported":["2031-01-01"]}}"#),
                Discovered::Unspeakable,
            ),
            ("refused without data", err(r#"{"code":-32022}"#), Discovered::Legacy),
        ] {
            assert_eq!(judge_discover(&answer), want, "{label}");
        }
        let modern =
            ok(r#"{"supportedVersions":["2025-11-25","2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}"#);
        let Discovered::Modern(agreed) = judge_discover(&modern) else { panic!() };
        assert_eq!(agreed.revision, Revision::V2026_07_28);
        assert!(agreed.offers.changes && !agreed.offers.resources && !agreed.offers.tasks);
    }

    #[test]
    fn each_era_offers_tasks_in_its_own_words_alone() {
        const CORE: &str = r#""tasks":{"requests":{"tools":{"call":{}}}}"#;
        const EXTENSION: &str = r#""extensions":{"io.modelcontextprotocol/tasks":{}}"#;
        for (words, modern, legacy) in [(CORE, false, true), (EXTENSION, true, false)] {
            let text = format!(r#"{{"supportedVersions":["2026-07-28"],"capabilities":{{{words}}}}}"#);
            let Discovered::Modern(agreed) = judge_discover(&Ok(RawJson::trusted(text))) else { panic!() };
            assert_eq!(agreed.offers.tasks, modern, "{words}");
            let text = format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{{{words}}}}}"#);
            assert_eq!(judge_initialize(&Ok(RawJson::trusted(text))).unwrap().offers.tasks, legacy, "{words}");
        }
    }

    #[test]
    fn initialize_must_end_in_a_known_legacy_revision() {
        for (text, ok_) in [
            (r#"{"protocolVersion":"2024-11-05","capabilities":{}}"#, true),
            (r#"{"protocolVersion":"2026-07-28"}"#, false),
            (r#"{"protocolVersion":"1.0"}"#, false),
            ("{}", false),
        ] {
            assert_eq!(judge_initialize(&ok(text)).is_ok(), ok_, "{text}");
        }
    }
}
