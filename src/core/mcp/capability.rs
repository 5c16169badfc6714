//! The capabilities that headend offers to clients, in its results of `initialize` and
//! `server/discover`.

use crate::mcp::extension::ExtensionSet;
use crate::mcp::meta::{SERVER_INFO, implementation, implementation_bare};
use crate::mcp::version::{Era, Revision};
use crate::wire::json::raw::RawJson;

/// The time for which a modern client may keep the result of `server/discover`, in milliseconds.
const DISCOVER_TTL_MS: u32 = 300_000;

const LISTS: &str =
    r#""tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true}"#;

/// Writes the capabilities object without its closing brace.
fn capabilities(completions: bool, logging: bool) -> String {
    let completions = if completions { r#","completions":{}"# } else { "" };
    let logging = if logging { r#","logging":{}"# } else { "" };
    format!("{{{LISTS}{completions}{logging}")
}

/// Builds the result of `initialize` in a legacy revision. Legacy capabilities are fixed here,
/// often before the first upstream has started, so they state what headend can do, not what its
/// upstreams offer now. `extensions` and `instructions` are those for this client. Source:
/// protocol, capability negotiation.
pub fn initialize_result(revision: Revision, extensions: ExtensionSet, instructions: &str) -> RawJson {
    let features = revision.features();
    let info = if features.titles { implementation() } else { implementation_bare() };
    RawJson::trusted(format!(
        r#"{{"protocolVersion":"{revision}","capabilities":{}{}}},"serverInfo":{},"instructions":{}}}"#,
        capabilities(features.completions, true),
        extensions.offered(),
        info.text(),
        RawJson::string(instructions).text(),
    ))
}

/// The capabilities that are offered only while some upstream has them.
#[derive(Clone, Copy, Debug)]
pub struct CurrentCapabilities {
    pub completions: bool,
    pub logging: bool,
    pub extensions: ExtensionSet,
}

/// Builds the result of `server/discover`. It lists modern revisions only: a client picks one of
/// them for requests with `_meta`, which older revisions lack. It `is_private` if another client
/// may get another result, so that no cache may share it.
pub fn discover_result(present: CurrentCapabilities, instructions: &str, is_private: bool) -> RawJson {
    let scope = if is_private { "private" } else { "public" };
    let open = capabilities(present.completions, present.logging);
    let extensions = present.extensions.offered();
    RawJson::trusted(format!(
        r#"{{"resultType":"complete","supportedVersions":{},"capabilities":{open}{extensions}}},"instructions":{},"ttlMs":{DISCOVER_TTL_MS},"cacheScope":"{scope}","_meta":{{"{SERVER_INFO}":{}}}}}"#,
        modern_revisions(),
        RawJson::string(instructions).text(),
        implementation().text(),
    ))
}

/// Builds `data` of the error for an unsupported version. Source: MCP 2026-07-28, basic/versioning.
pub(crate) fn unsupported_version_data(requested: &str) -> RawJson {
    RawJson::trusted(format!(
        r#"{{"supported":{},"requested":{}}}"#,
        modern_revisions(),
        RawJson::string(requested).text()
    ))
}

/// Returns the revisions that a modern request can name, newest first, as JSON.
fn modern_revisions() -> String {
    let quoted: Vec<String> = Revision::of(Era::Modern).rev().map(|revision| format!(r#""{revision}""#)).collect();
    format!("[{}]", quoted.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::extension::{APPS, TASKS};

    const INFO: &str = concat!(r#""name":"headend","title":"headend","version":""#, env!("CARGO_PKG_VERSION"), r#"""#);
    const BARE_INFO: &str = concat!(r#""name":"headend","version":""#, env!("CARGO_PKG_VERSION"), r#"""#);
    const SERVES: &str = r#""tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true}"#;

    #[test]
    fn discovery_tells_what_there_is_at_present() {
        let tasks = r#","extensions":{"io.modelcontextprotocol/tasks":{}}"#;
        let (none, has_tasks) = (ExtensionSet::default(), ExtensionSet::default().with(&TASKS));
        let cases = [
            (false, false, none, String::new()),
            (false, true, none, r#","logging":{}"#.to_owned()),
            (true, false, none, r#","completions":{}"#.to_owned()),
            (false, true, has_tasks, format!(r#","logging":{{}}{tasks}"#)),
            (true, true, has_tasks, format!(r#","completions":{{}},"logging":{{}}{tasks}"#)),
        ];
        for (completions, logging, extensions, told) in cases {
            // The build for tests has a later revision, which a client of 2026-07-28 sees in the
            // list; everything else stays.
            let want = format!(
                r#"{{"resultType":"complete","supportedVersions":["2099-12-31","2026-07-28"],"capabilities":{{{SERVES}{told}}},"instructions":{},"ttlMs":300000,"cacheScope":"public","_meta":{{"io.modelcontextprotocol/serverInfo":{{{INFO}}}}}}}"#,
                r#""Use it.""#
            );
            let present = CurrentCapabilities { completions, logging, extensions };
            let result = |is_private| discover_result(present, "Use it.", is_private);
            assert_eq!(result(false).text(), want);
            assert_eq!(result(true).text(), want.replace("public", "private"));
        }
        let data = unsupported_version_data("2031-01-01");
        assert_eq!(data.text(), r#"{"supported":["2099-12-31","2026-07-28"],"requested":"2031-01-01"}"#);
    }

    #[test]
    fn initialize_is_answered_in_the_words_of_each_revision() {
        for (revision, completions, info) in [
            ("2024-11-05", "", BARE_INFO),
            ("2025-03-26", r#","completions":{}"#, BARE_INFO),
            ("2025-06-18", r#","completions":{}"#, INFO),
            ("2025-11-25", r#","completions":{}"#, INFO),
        ] {
            let want = format!(
                r#"{{"protocolVersion":"{revision}","capabilities":{{{SERVES}{completions},"logging":{{}}}},"serverInfo":{{{info}}},"instructions":{}}}"#,
                r#""Use it.""#
            );
            let result = |extensions| initialize_result(Revision::parse(revision).unwrap(), extensions, "Use it.");
            assert_eq!(result(ExtensionSet::default()).text(), want);
            let apps = r#""logging":{},"extensions":{"io.modelcontextprotocol/ui":{}}"#;
            assert_eq!(result(ExtensionSet::default().with(&APPS)).text(), want.replace(r#""logging":{}"#, apps));
        }
    }
}
