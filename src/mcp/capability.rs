//! What the gateway offers: the answers to `initialize` and `server/discover`.

use std::borrow::Cow;

use crate::mcp::meta::{SERVER_INFO, implementation, implementation_bare};
use crate::mcp::task::EXTENSION;
use crate::mcp::version::Revision;
use crate::wire::raw::RawJson;

/// How long a modern client may keep the answer of `server/discover`, in milliseconds.
const DISCOVER_TTL_MS: u32 = 300_000;

/// Our own words. An upstream's instructions are untrusted text that would speak with the gateway's voice, so none pass.
const INSTRUCTIONS: &str = "This server joins several MCP servers. The part of a name before the first double underscore \
names the server behind it. A result with `isError` and `headend/refusal` in `_meta` comes from the gateway itself and says \
whether the call was executed and when to try again. `headend/upstream-refusal` is the word of the server that it names.";

const WITH_COMPLETIONS: &str = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{}}"#;
const WITHOUT_COMPLETIONS: &str = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{}}"#;

/// What can be served for at least one upstream. Upstreams come and go and legacy capabilities are frozen at `initialize`, so
/// this is what the gateway can serve, not what today's upstreams offer. Source: protocol, capability negotiation.
fn capabilities(revision: Revision) -> &'static str {
    // The capability is younger than the method.
    if revision >= Revision::V2025_03_26 { WITH_COMPLETIONS } else { WITHOUT_COMPLETIONS }
}

/// The result of `initialize` in a legacy revision.
pub(crate) fn initialize_result(revision: Revision) -> RawJson {
    let info = if revision >= Revision::V2025_06_18 { implementation() } else { implementation_bare() };
    RawJson::trusted(format!(
        r#"{{"protocolVersion":"{revision}","capabilities":{},"serverInfo":{},"instructions":{}}}"#,
        capabilities(revision),
        info.text(),
        RawJson::string(INSTRUCTIONS).text(),
    ))
}

/// What is told as it is at the moment, because it takes an upstream that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtPresent {
    pub(crate) completions: bool,
    pub(crate) tasks: bool,
}

/// The result of `server/discover`. Lists modern revisions alone: a client picks one of them for requests with an envelope, and
/// older revisions have none.
pub(crate) fn discover_result(present: AtPresent) -> RawJson {
    let plain = if present.completions { capabilities(Revision::LATEST) } else { WITHOUT_COMPLETIONS };
    let open = plain.strip_suffix('}').unwrap_or(plain);
    let with_tasks = || format!(r#"{open},"extensions":{{"{EXTENSION}":{{}}}}}}"#);
    let capabilities = if present.tasks { Cow::Owned(with_tasks()) } else { Cow::Borrowed(plain) };
    RawJson::trusted(format!(
        r#"{{"resultType":"complete","supportedVersions":["{}"],"capabilities":{},"instructions":{},"ttlMs":{DISCOVER_TTL_MS},"cacheScope":"public","_meta":{{"{SERVER_INFO}":{}}}}}"#,
        Revision::LATEST,
        capabilities,
        RawJson::string(INSTRUCTIONS).text(),
        implementation().text(),
    ))
}

/// `data` of the error for a version that is not served. Source: MCP 2026-07-28, basic/versioning.
pub(crate) fn unsupported_version_data(requested: &str) -> RawJson {
    RawJson::trusted(format!(
        r#"{{"supported":["{}"],"requested":{}}}"#,
        Revision::LATEST,
        RawJson::string(requested).text()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::task;
    use crate::wire::raw::RawObject;

    #[test]
    fn discovery_tells_what_there_is_at_present() {
        for (completions, tasks) in [(false, false), (true, false), (false, true), (true, true)] {
            let result = RawObject::parse(&discover_result(AtPresent { completions, tasks })).unwrap();
            let told = result.get("capabilities").unwrap();
            let sections = RawObject::parse(told).unwrap();
            assert_eq!(sections.get("completions").is_some(), completions, "{}", told.text());
            assert_eq!(task::declares(told), tasks, "{}", told.text());
            assert!(sections.get("tasks").is_none(), "the core feature is never offered");
        }
    }
}
