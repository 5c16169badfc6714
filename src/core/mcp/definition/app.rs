//! The app of a tool: the view that renders its results, and who may call the tool. Source: MCP
//! Apps 2026-01-26, `_meta.ui` of a tool.

use std::borrow::Cow;

use crate::wire::json::raw::{RawJson, RawObject};

/// The beginning of the URI of each view.
pub const VIEW_SCHEME: &str = "ui://";

/// The member of `_meta` that holds a tool's app.
const UI: &str = "ui";

/// The deprecated member of `_meta` that holds the URI of a tool's view.
const FLAT_URI: &str = "ui/resourceUri";

/// Reports whether a URI is one of a view.
pub fn is_view_uri(uri: &str) -> bool {
    uri.get(..VIEW_SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(VIEW_SCHEME))
}

/// Returns the URI of a view with its scheme and its authority in lower case, and any other URI as
/// it is. Two spellings of one view are one: hosts may parse a URI, and its authority has no case.
/// Source: RFC 3986, section 6.2.2.1.
pub fn fold_view_uri(uri: &str) -> Cow<'_, str> {
    if !is_view_uri(uri) {
        return Cow::Borrowed(uri);
    }
    let rest = uri.get(VIEW_SCHEME.len()..).unwrap_or_default();
    let end = VIEW_SCHEME.len() + rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (head, path) = uri.split_at_checked(end).unwrap_or((uri, ""));
    if head.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Cow::Owned(format!("{}{path}", head.to_ascii_lowercase()));
    }
    Cow::Borrowed(uri)
}

/// The app of one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolApp {
    /// The `ui://` URI of the view that renders the tool's results.
    pub view: Option<String>,
    /// True if the model of a host may call the tool.
    pub for_model: bool,
    /// True if an app of the same server may call the tool.
    pub for_app: bool,
}

impl ToolApp {
    /// Reads the app of a tool's definition. A tool that does not limit its callers is for all of
    /// them; a limit that cannot be read admits none.
    pub fn of(definition: &RawObject) -> Self {
        let meta = definition.object("_meta").unwrap_or_default();
        let ui = meta.object(UI).unwrap_or_default();
        let view = ui.string("resourceUri").or_else(|| meta.string(FLAT_URI));
        let callers = ui.get("visibility").map(|raw| raw.parse::<Vec<String>>().unwrap_or_default());
        let admits = |caller: &str| callers.as_ref().is_none_or(|all| all.iter().any(|one| one == caller));
        Self { view: view.filter(|uri| is_view_uri(uri)), for_model: admits("model"), for_app: admits("app") }
    }
}

impl Default for ToolApp {
    /// Returns the app of a tool whose definition says nothing about apps.
    fn default() -> Self {
        Self { view: None, for_model: true, for_app: true }
    }
}

/// Removes the view from a tool's definition, and leaves who may call the tool: a host must not
/// show a tool for apps alone to its model.
pub fn remove_view(definition: &mut RawObject) {
    let ui = definition.object("_meta").and_then(|meta| meta.object(UI));
    let callers = ui.and_then(|ui| ui.get("visibility").cloned());
    remove_app(definition);
    if let Some(callers) = callers {
        let mut meta = definition.object("_meta").unwrap_or_default();
        meta.set(UI, RawObject::of([("visibility", callers)]).encode());
        definition.set("_meta", meta.encode());
    }
}

/// Removes the app from a tool's definition, so that a client sees an ordinary tool.
pub fn remove_app(definition: &mut RawObject) {
    let Some(mut meta) = definition.object("_meta") else { return };
    if meta.get(UI).is_none() && meta.get(FLAT_URI).is_none() {
        return;
    }
    meta.retain(|name| name != UI && name != FLAT_URI);
    if meta.is_empty() {
        definition.remove("_meta");
    } else {
        definition.set("_meta", meta.encode());
    }
}

/// Passes each URI of a view in the `_meta` of a definition or a result to `rename`, and writes the
/// URIs that it returns. Returns whether it wrote any.
pub fn rename_views(object: &mut RawObject, rename: &mut dyn FnMut(&str) -> Option<String>) -> bool {
    let Some(mut meta) = object.object("_meta") else { return false };
    let mut ui = meta.object(UI).unwrap_or_default();
    let mut is_renamed = rename_member(&mut ui, "resourceUri", rename);
    if is_renamed {
        meta.set(UI, ui.encode());
    }
    is_renamed |= rename_member(&mut meta, FLAT_URI, rename);
    if is_renamed {
        object.set("_meta", meta.encode());
    }
    is_renamed
}

/// Renames the view in one member.
fn rename_member(object: &mut RawObject, name: &str, rename: &mut dyn FnMut(&str) -> Option<String>) -> bool {
    let renamed = object.string(name).filter(|uri| is_view_uri(uri)).and_then(|uri| rename(&uri));
    let is_renamed = renamed.is_some();
    object.set_some(name, renamed.map(|uri| RawJson::string(&uri)));
    is_renamed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(meta: &str) -> RawObject {
        RawObject::parse(&RawJson::trusted(format!(r#"{{"name":"a","_meta":{meta}}}"#))).unwrap()
    }

    #[test]
    fn an_app_is_read_from_both_forms_and_a_limit_that_cannot_be_read_admits_nobody() {
        let view = Some("ui://a/b".to_owned());
        for (meta, want) in [
            (r"{}", (None, true, true)),
            (r#"{"ui":{"resourceUri":"ui://a/b"}}"#, (view.clone(), true, true)),
            (r#"{"ui/resourceUri":"ui://a/b"}"#, (view.clone(), true, true)),
            (r#"{"ui":{"resourceUri":"https://a/b"}}"#, (None, true, true)),
            (r#"{"ui":{"visibility":["app"]}}"#, (None, false, true)),
            (r#"{"ui":{"visibility":["model"]}}"#, (None, true, false)),
            (r#"{"ui":{"visibility":[]}}"#, (None, false, false)),
            (r#"{"ui":{"visibility":"model"}}"#, (None, false, false)),
            (r#"{"ui":7}"#, (None, true, true)),
        ] {
            let (view, for_model, for_app) = want;
            assert_eq!(ToolApp::of(&tool(meta)), ToolApp { view, for_model, for_app }, "{meta}");
        }
    }

    #[test]
    fn the_scheme_and_the_authority_of_a_view_have_no_case() {
        for (uri, want) in [
            ("ui://maps/View.html", "ui://maps/View.html"),
            ("UI://Maps/View.html", "ui://maps/View.html"),
            ("Ui://MAPS?Q#F", "ui://maps?Q#F"),
            ("ui://MAPS", "ui://maps"),
            ("ui://É/A", "ui://É/A"),
            ("NOTE://A", "NOTE://A"),
            ("ui:/A", "ui:/A"),
        ] {
            assert_eq!(fold_view_uri(uri), want, "{uri}");
        }
    }

    #[test]
    fn an_app_of_odd_types_is_none_or_admits_nobody() {
        let deep = format!(r#"{{"ui":{{"resourceUri":{}{}}}}}"#, "[".repeat(60), "]".repeat(60));
        let none = ToolApp { view: None, for_model: true, for_app: true };
        let closed = ToolApp { for_model: false, for_app: false, ..none.clone() };
        for (meta, want) in [
            (r#"{"ui":[{"resourceUri":"ui://a"}]}"#, &none),
            (r#"{"ui":{"resourceUri":["ui://a"]},"ui/resourceUri":7}"#, &none),
            (r#"{"ui":{"resourceUri":{"toString":"ui://a"}}}"#, &none),
            (deep.as_str(), &none),
            (r#"{"ui":{"visibility":null}}"#, &closed),
            (r#"{"ui":{"visibility":["model",7]}}"#, &closed),
            (r#"{"ui":{"visibility":{"0":"model"}}}"#, &closed),
            (r#"{"ui":{"visibility":["Model","APP"]}}"#, &closed),
            (r#"{"\u0075i":{"visib\u0069lity":[]}}"#, &closed),
        ] {
            assert_eq!(ToolApp::of(&tool(meta)), *want, "{meta}");
        }
        let mut escaped = tool(r#"{"\u0075i":{"resourceUri":"ui://a"},"ui\/resourceUri":"ui://a","x":1}"#);
        assert!(rename_views(&mut escaped.clone(), &mut |uri| Some(format!("{uri}+"))));
        remove_app(&mut escaped);
        assert_eq!(escaped.encode().text(), r#"{"name":"a","_meta":{"x":1}}"#);
    }

    #[test]
    fn a_definition_without_its_view_still_says_who_may_call_it() {
        for (meta, want) in [
            (r#"{"ui":{"resourceUri":"ui://a","visibility":["app"]},"x":1}"#, r#"{"x":1,"ui":{"visibility":["app"]}}"#),
            (r#"{"ui":{"visibility":["app"]},"ui/resourceUri":"ui://a"}"#, r#"{"ui":{"visibility":["app"]}}"#),
        ] {
            let mut definition = tool(meta);
            remove_view(&mut definition);
            assert_eq!(definition.encode().text(), format!(r#"{{"name":"a","_meta":{want}}}"#));
        }
        let mut definition = tool(r#"{"ui":{"resourceUri":"ui://a"}}"#);
        remove_view(&mut definition);
        assert_eq!(definition.encode().text(), r#"{"name":"a"}"#);
    }

    #[test]
    fn views_are_renamed_in_both_forms_and_nothing_else_is_written() {
        let renamed = |meta: &str| {
            let mut definition = tool(meta);
            let is_renamed = rename_views(&mut definition, &mut |uri| (uri != "ui://keep").then(|| format!("{uri}+")));
            (is_renamed, definition.encode().text().into_owned())
        };
        for (meta, want) in [
            (
                r#"{"ui":{"resourceUri":"ui:\/\/a", "x": 1},"y": 2}"#,
                Some(r#"{"ui":{"resourceUri":"ui://a+","x":1},"y":2}"#),
            ),
            (r#"{"ui/resourceUri":"ui://a"}"#, Some(r#"{"ui/resourceUri":"ui://a+"}"#)),
            (r#"{"ui":{"resourceUri": "ui://keep"}}"#, None),
            (r#"{"ui":{"resourceUri":"https://a"}, "x":"ui://a"}"#, None),
        ] {
            let want = format!(r#"{{"name":"a","_meta":{}}}"#, want.unwrap_or(meta));
            assert_eq!(renamed(meta), (want != format!(r#"{{"name":"a","_meta":{meta}}}"#), want.clone()), "{meta}");
        }
    }

    #[test]
    fn a_definition_without_its_app_keeps_all_other_members() {
        for (meta, want) in [
            (r#"{"ui":{},"ui/resourceUri":"ui://a","x":1}"#, r#"{"name":"a","_meta":{"x":1}}"#),
            (r#"{"ui":{}}"#, r#"{"name":"a"}"#),
            (r#"{"x":{"ui":1}}"#, r#"{"name":"a","_meta":{"x":{"ui":1}}}"#),
        ] {
            let mut definition = tool(meta);
            remove_app(&mut definition);
            assert_eq!(definition.encode().text(), want);
        }
    }
}
