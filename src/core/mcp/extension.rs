//! The table of protocol extensions that headend supports. An extension without a row is off in
//! both directions.
//!
//! Both sides of a hop declare an extension in the member `extensions` of their capabilities, which
//! maps its identifier to an object of settings. Source: MCP SEP-2133.

use crate::mcp::version::Era;
use crate::wire::code;
use crate::wire::json::raw::{RawJson, RawObject};

/// A row of the table of extensions.
#[derive(Debug)]
pub struct Extension {
    id: &'static str,
    /// The settings that headend declares towards clients and upstreams, as JSON.
    settings: &'static str,
    /// Eras in which the extension is declared.
    eras: &'static [Era],
    /// Request methods that the extension adds.
    methods: &'static [&'static str],
}

/// The extension for calls that their server continues after its response; see [`super::task`].
pub const TASKS: Extension = Extension {
    id: "io.modelcontextprotocol/tasks",
    settings: "{}",
    eras: &[Era::Modern],
    methods: &["tasks/get", "tasks/update", "tasks/cancel"],
};

const ALL: &[Extension] = &[TASKS];

/// Reports whether any extension adds this method to an era.
pub(crate) fn any_adds(method: &str, era: Era) -> bool {
    ALL.iter().any(|extension| extension.adds(method, era))
}

/// Builds the value of the member `extensions` that declares these extensions.
pub(crate) fn declare_extensions(extensions: &[&Extension]) -> RawJson {
    let entries: Vec<String> = extensions.iter().map(|one| format!(r#""{}":{}"#, one.id, one.settings)).collect();
    RawJson::trusted(format!("{{{}}}", entries.join(",")))
}

impl Extension {
    /// Reports whether the extension adds this method to an era.
    pub fn adds(&self, method: &str, era: Era) -> bool {
        self.eras.contains(&era) && self.methods.contains(&method)
    }

    /// Reports whether the capabilities of a client or a server declare this extension.
    pub fn is_in(&self, capabilities: &RawJson) -> bool {
        let extensions = |raw: &RawJson| RawObject::parse(RawObject::parse(raw).ok()?.get("extensions")?).ok();
        extensions(capabilities).is_some_and(|extensions| extensions.get(self.id).is_some_and(RawJson::is_object))
    }

    /// Returns the client capabilities with this extension as the only one.
    pub fn added_to(&self, capabilities: Option<&RawJson>) -> RawJson {
        let mut declared = capabilities.and_then(|raw| RawObject::parse(raw).ok()).unwrap_or_default();
        declared.set("extensions", declare_extensions(&[self]));
        declared.encode()
    }

    /// Builds `data` of the error for a client that does not declare this extension.
    pub fn required_data(&self) -> RawJson {
        RawJson::trusted(format!(
            r#"{{"requiredCapabilities":{{"extensions":{}}}}}"#,
            declare_extensions(&[self]).text()
        ))
    }

    /// Reports whether an error says that a call requires this extension and nothing else, so that
    /// nothing was executed.
    pub fn alone_is_wanted(&self, error: &RawJson) -> bool {
        let wanted = || {
            let error = RawObject::parse(error).ok()?;
            if error.get("code")?.parse::<i64>().ok()? != code::MISSING_CAPABILITY {
                return None;
            }
            let data = error.object("data")?;
            let required = data.object("requiredCapabilities")?.into_sorted().ok()?;
            let [(name, extensions)] = required.as_slice() else { return None };
            let extensions = RawObject::parse(extensions).ok()?.into_sorted().ok()?;
            Some(name == "extensions" && matches!(extensions.as_slice(), [(name, _)] if name == self.id))
        };
        wanted().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> RawJson {
        RawJson::trusted(text.to_owned())
    }

    #[test]
    fn an_extension_is_declared_by_an_object_under_its_identifier() {
        let tasks = format!(r#"{{"extensions":{{"{}":{{}},"other":{{}}}}}}"#, TASKS.id);
        for (label, text, want) in [
            ("declared", tasks.as_str(), true),
            ("another extension", r#"{"extensions":{"other":{}}}"#, false),
            ("the core feature", r#"{"tasks":{"requests":{"tools":{"call":{}}}}}"#, false),
            ("no object", r#"{"extensions":{"io.modelcontextprotocol/tasks":true}}"#, false),
            ("nothing", "{}", false),
        ] {
            assert_eq!(TASKS.is_in(&raw(text)), want, "{label}");
        }
        let both = TASKS.added_to(Some(&raw(r#"{"elicitation":{}}"#)));
        assert_eq!(both.text(), r#"{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#);
        assert!(TASKS.is_in(&TASKS.added_to(None)));
    }

    #[test]
    fn only_an_error_that_wants_nothing_but_tasks_allows_a_second_call() {
        let error = |code: i64, required: &str| {
            raw(&format!(r#"{{"code":{code},"message":"m","data":{{"requiredCapabilities":{required}}}}}"#))
        };
        let tasks = format!(r#"{{"extensions":{{"{}":{{}}}}}}"#, TASKS.id);
        for (label, error, want) in [
            ("tasks", error(-32021, &tasks), true),
            ("another code", error(-32603, &tasks), false),
            ("sampling", error(-32021, r#"{"sampling":{}}"#), false),
            ("sampling too", error(-32021, &tasks.replacen('{', r#"{"sampling":{},"#, 1)), false),
            ("another extension", error(-32021, r#"{"extensions":{"other":{}}}"#), false),
            ("no data", raw(r#"{"code":-32021,"message":"m"}"#), false),
        ] {
            assert_eq!(TASKS.alone_is_wanted(&error), want, "{label}");
        }
    }
}
