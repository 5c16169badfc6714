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
    /// The bit that stands for the extension in an [`ExtensionSet`].
    bit: u8,
    /// The settings that headend declares towards clients, as JSON.
    offered: &'static str,
    /// The settings that headend declares towards upstreams in its own name, as JSON.
    declared: &'static str,
    /// Eras in which the extension is declared.
    eras: &'static [Era],
    /// Request methods that the extension adds.
    methods: &'static [&'static str],
}

/// The extension for calls that their server continues after its response; see [`super::task`].
pub const TASKS: Extension = Extension {
    id: "io.modelcontextprotocol/tasks",
    bit: 1,
    offered: "{}",
    declared: "{}",
    eras: &[Era::Modern],
    methods: &["tasks/get", "tasks/update", "tasks/cancel"],
};

/// The extension for views that hosts render beside the results of tools; see
/// [`super::definition::app`]. Legacy peers declare it in `initialize`, by practice.
pub const APPS: Extension = Extension {
    id: "io.modelcontextprotocol/ui",
    bit: 2,
    offered: "{}",
    declared: r#"{"mimeTypes":["text/html;profile=mcp-app"]}"#,
    eras: &[Era::Legacy, Era::Modern],
    methods: &[],
};

const ALL: &[Extension] = &[TASKS, APPS];

/// Longest settings of a client that are passed on, in bytes. Longer ones declare nothing.
const MAX_SETTINGS: usize = 1024;

/// Reports whether any extension adds this method to an era.
pub(crate) fn any_adds(method: &str, era: Era) -> bool {
    ALL.iter().any(|extension| extension.adds(method, era))
}

/// A set of extensions of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtensionSet(u8);

impl ExtensionSet {
    /// Returns the extensions that the capabilities of a server declare, in an era that has them.
    pub(crate) fn declared_in(capabilities: &RawObject, era: Era) -> Self {
        let Some(declared) = capabilities.object("extensions") else { return Self::default() };
        let is_declared = |one: &&Extension| declared.get(one.id).is_some_and(RawJson::is_object);
        ALL.iter().filter(is_declared).fold(Self::default(), Self::with).in_era(era)
    }

    /// Reads the text of [`Self::to_json`]; unknown extensions are left out.
    pub(crate) fn of_json(ids: &RawJson) -> Self {
        let ids = ids.parse::<Vec<String>>().unwrap_or_default();
        ALL.iter().filter(|one| ids.iter().any(|id| id == one.id)).fold(Self::default(), Self::with)
    }

    /// Encodes the set for the disk, as a list of identifiers.
    pub(crate) fn to_json(self) -> RawJson {
        RawJson::list(self.rows().map(|one| RawJson::string(one.id)))
    }

    /// Returns the set and this extension.
    #[must_use]
    pub const fn with(self, extension: &Extension) -> Self {
        Self(self.0 | extension.bit)
    }

    pub const fn has(self, extension: &Extension) -> bool {
        self.0 & extension.bit != 0
    }

    /// Returns the extensions of the set that an era has.
    #[must_use]
    pub fn in_era(self, era: Era) -> Self {
        self.rows().filter(|one| one.eras.contains(&era)).fold(Self::default(), Self::with)
    }

    /// Writes the member `extensions` of our capabilities towards clients, with a comma before it;
    /// empty for an empty set.
    pub(crate) fn offered(self) -> String {
        let entries: Vec<String> = self.rows().map(|one| format!(r#""{}":{}"#, one.id, one.offered)).collect();
        if entries.is_empty() { String::new() } else { format!(r#","extensions":{{{}}}"#, entries.join(",")) }
    }

    fn rows(self) -> impl Iterator<Item = &'static Extension> {
        ALL.iter().filter(move |one| self.has(one))
    }
}

impl Extension {
    /// Reports whether the extension adds this method to an era.
    pub fn adds(&self, method: &str, era: Era) -> bool {
        self.eras.contains(&era) && self.methods.contains(&method)
    }

    /// Reports whether the capabilities of a client declare this extension.
    pub fn is_in(&self, capabilities: &RawJson) -> bool {
        RawObject::parse(capabilities).is_ok_and(|capabilities| self.settings_in(&capabilities).is_some())
    }

    /// Returns the settings under which the capabilities of a client declare this extension.
    pub fn settings_in(&self, capabilities: &RawObject) -> Option<RawJson> {
        let extensions = RawObject::parse(capabilities.get("extensions")?).ok()?;
        let settings = extensions.get(self.id)?;
        (settings.is_object() && settings.bytes().len() <= MAX_SETTINGS).then(|| settings.clone())
    }

    /// Returns the settings that headend declares towards upstreams in its own name.
    pub const fn own_settings(&self) -> RawJson {
        RawJson::of_static(self.declared)
    }

    /// Returns the client capabilities with this extension among their extensions, under its own
    /// settings.
    pub fn added_to(&self, capabilities: Option<&RawJson>) -> RawJson {
        self.added_with(&self.own_settings(), capabilities)
    }

    /// Returns the client capabilities with this extension among their extensions, under the given
    /// settings.
    pub fn added_with(&self, settings: &RawJson, capabilities: Option<&RawJson>) -> RawJson {
        let mut declared = capabilities.and_then(|raw| RawObject::parse(raw).ok()).unwrap_or_default();
        let mut extensions = declared.object("extensions").unwrap_or_default();
        extensions.set(self.id, settings.clone());
        declared.set("extensions", extensions.encode());
        declared.encode()
    }

    /// Builds `data` of the error for a client that does not declare this extension.
    pub fn required_data(&self) -> RawJson {
        RawJson::trusted(format!(r#"{{"requiredCapabilities":{}}}"#, self.added_to(None).text()))
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
        let both = TASKS.added_to(Some(&APPS.added_with(&raw(r#"{"mimeTypes":[ "x" ]}"#), None)));
        let want =
            r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":[ "x" ]},"io.modelcontextprotocol/tasks":{}}}"#;
        assert_eq!(both.text(), want, "each keeps its own settings");
        let long = raw(&format!(r#"{{"mimeTypes":["{}"]}}"#, "x".repeat(MAX_SETTINGS)));
        assert!(!APPS.is_in(&APPS.added_with(&long, None)));
    }

    #[test]
    fn a_server_has_a_set_of_extensions_that_outlives_a_restart() {
        let declared = RawObject::parse(&TASKS.added_to(Some(&APPS.added_to(None)))).unwrap();
        let both = ExtensionSet::declared_in(&declared, Era::Modern);
        assert!(both.has(&TASKS) && both.has(&APPS));
        assert_eq!(ExtensionSet::declared_in(&declared, Era::Legacy), ExtensionSet::default().with(&APPS));
        assert_eq!(ExtensionSet::of_json(&both.to_json()), both);
        assert_eq!(ExtensionSet::of_json(&raw(r#"["other",7]"#)), ExtensionSet::default());
        let offered = r#","extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{}}"#;
        assert_eq!((both.offered().as_str(), ExtensionSet::default().offered()), (offered, String::new()));
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
