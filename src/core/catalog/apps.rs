//! Apps in the catalog: the app of each tool as clients may see it, and tools by their bare names.
//!
//! An app calls a tool by the name that its own server gave it, and its host passes the call on
//! unchanged. So the name lacks the prefix, and nothing says which upstream it is meant for. A bare
//! name counts only if no other upstream can be meant.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::mcp::definition::app::{ToolApp, is_view_uri, remove_app};
use crate::mcp::definition::item::Definition;
use crate::mcp::method::ItemList;
use crate::wire::json::raw::RawObject;

/// The apps that an upstream may have.
#[derive(Clone, Copy, Debug)]
pub struct OfferedApps<'a> {
    /// Whether it may have any.
    pub is_on: bool,
    /// URIs at the upstream of the views whose app waits for approval.
    pub withheld_views: Option<&'a HashSet<String>>,
}

impl OfferedApps<'_> {
    /// Returns the app of an item as clients may see it, and changes its definition accordingly;
    /// `None` if the item is for apps alone and its upstream may have none. A resource that is a
    /// view has itself as its view.
    pub(super) fn judge(self, item: &Definition, definition: &mut RawObject) -> Option<ToolApp> {
        let is_withheld = |view: &String| self.withheld_views.is_some_and(|views| views.contains(view));
        if item.list == ItemList::Resources {
            let view = Some(&item.key).filter(|uri| self.is_on && is_view_uri(uri) && !is_withheld(uri));
            return Some(ToolApp { view: view.cloned(), ..ToolApp::default() });
        }
        if item.list != ItemList::Tools || definition.get("_meta").is_none() {
            return Some(ToolApp::default());
        }
        let app = ToolApp::of(definition);
        if !self.is_on {
            remove_app(definition);
            return app.for_model.then(ToolApp::default);
        }
        Some(app)
    }
}

/// The outcome of the look-up of a bare name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BareName {
    /// No visible tool has this name.
    Unknown,
    /// The index of the one tool that is meant.
    Tool(usize),
    /// Indices of the visible tools of this name, none of which may be called by it.
    Refused(Vec<usize>),
}

/// A tool or a view, as the look-up of bare names knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct AppItem<'e> {
    /// Index in the catalog.
    pub(super) at: usize,
    pub(super) upstream: usize,
    pub(super) list: ItemList,
    pub(super) original: &'e Arc<str>,
    pub(super) app: &'e ToolApp,
}

/// A tool under its original name.
#[derive(Clone, Copy, Debug)]
struct BareTool {
    at: usize,
    upstream: usize,
    for_app: bool,
}

/// The tools of one view by their original names. Empty if none of them is about apps.
#[derive(Debug, Default)]
pub(super) struct BareNames {
    tools: HashMap<Arc<str>, Vec<BareTool>, RandomState>,
    /// Names of withheld tools. Their owners may be meant, so no other tool is called by them.
    withheld: HashSet<String>,
    /// Indices of entries with a view, each after its upstream's index.
    views: Vec<(usize, usize)>,
}

impl BareNames {
    pub(super) fn of<'e>(
        items: impl Iterator<Item = AppItem<'e>> + Clone,
        withheld: impl Iterator<Item = String>,
    ) -> Self {
        if items.clone().all(|item| *item.app == ToolApp::default()) {
            return Self::default();
        }
        let with_view = items.clone().filter(|item| item.app.view.is_some());
        let views = with_view.map(|item| (item.upstream, item.at)).collect();
        let mut tools: HashMap<Arc<str>, Vec<BareTool>, RandomState> = HashMap::default();
        for AppItem { at, upstream, original, app, .. } in items.filter(|item| item.list == ItemList::Tools) {
            let tool = BareTool { at, upstream, for_app: app.for_app };
            tools.entry(Arc::clone(original)).or_default().push(tool);
        }
        Self { tools, withheld: withheld.collect(), views }
    }

    /// Returns the index of the first tool of this name, visible or not.
    pub(super) fn owner(&self, name: &str) -> Option<usize> {
        self.tools.get(name)?.first().map(|tool| tool.at)
    }

    /// Finds the tool that an app means by a bare name: the only visible one of this name, if apps
    /// may call it and its upstream has an app that this client can see.
    pub(super) fn find(&self, name: &str, visible: impl Fn(usize) -> bool) -> BareName {
        let tools = self.tools.get(name).into_iter().flatten();
        let candidates: Vec<&BareTool> = tools.filter(|tool| visible(tool.at)).collect();
        let has_app = |upstream| self.views.iter().any(|(owner, view)| *owner == upstream && visible(*view));
        match candidates.as_slice() {
            [] => BareName::Unknown,
            [tool] if tool.for_app && !self.withheld.contains(name) && has_app(tool.upstream) => {
                BareName::Tool(tool.at)
            }
            _ => BareName::Refused(candidates.iter().map(|tool| tool.at).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::catalog::inventory::Inventory;
    use crate::catalog::merge::{Catalog, ItemFilters, MergeSource, NamingRules, WithheldItem, merge};
    use crate::catalog::name::UpstreamName;
    use crate::wire::json::raw::RawJson;

    const VIEW: &str = r#","_meta":{"ui":{"resourceUri":"ui://v"}}"#;
    const APP_ONLY: &str = r#","_meta":{"ui":{"visibility":["app"]}}"#;
    const MODEL_ONLY: &str = r#","_meta":{"ui":{"visibility":["model"]}}"#;

    /// One upstream: its tools with the rest of their definitions, and its withheld views and
    /// tools.
    struct Server<'a> {
        tools: &'a [(&'a str, &'a str)],
        apps: bool,
        views: HashSet<String>,
        withheld: HashSet<String>,
    }

    fn server<'a>(tools: &'a [(&'a str, &'a str)]) -> Server<'a> {
        Server { tools, apps: true, views: HashSet::new(), withheld: HashSet::new() }
    }

    fn joined(servers: &[Server<'_>]) -> (Catalog, Vec<WithheldItem>) {
        let names: Vec<_> = ["a", "b", "c"].map(|name| UpstreamName::parse(name).unwrap()).into();
        let prefixes = ["a__", "b__", "c__"];
        let inventories: Vec<Inventory> = servers
            .iter()
            .map(|server| {
                let mut inventory = Inventory::default();
                let read = |(name, rest): &(&str, &str)| {
                    let text = format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}{rest}}}"#);
                    Definition::read(ItemList::Tools, &RawJson::trusted(text)).unwrap()
                };
                inventory.replace(ItemList::Tools, server.tools.iter().map(read).collect());
                inventory
            })
            .collect();
        let (filters, hints) = (ItemFilters::default(), crate::policy::OperatorHints::default());
        let sources: Vec<MergeSource<'_>> = servers
            .iter()
            .enumerate()
            .map(|(index, server)| MergeSource {
                upstream: &names[index],
                prefix: prefixes[index],
                inventory: &inventories[index],
                filters: &filters,
                annotate: &hints,
                needs_headers: false,
                standings: None,
                withheld: None,
                withheld_tools: Some(&server.withheld),
                withheld_views: Some(&server.views),
                apps: server.apps,
                index,
            })
            .collect();
        let rules = NamingRules { max_length: 48, ..NamingRules::default() };
        merge(&sources, rules)
    }

    /// Returns the exposed name that a bare name leads to, or the candidates in brackets.
    fn found(catalog: &Catalog, name: &str, hidden: &[&str]) -> String {
        let exposed = |at: usize| catalog.entry(at).unwrap().exposed.to_string();
        match catalog.find_bare(name, |at| !hidden.contains(&exposed(at).as_str())) {
            BareName::Unknown => "unknown".to_owned(),
            BareName::Tool(at) => exposed(at),
            BareName::Refused(all) => format!("{:?}", all.into_iter().map(exposed).collect::<Vec<_>>()),
        }
    }

    #[test]
    fn a_bare_name_counts_only_for_the_one_tool_that_apps_of_its_server_may_call() {
        let (catalog, _) = joined(&[
            server(&[("show", VIEW), ("refresh", APP_ONLY), ("both", ""), ("wipe", MODEL_ONLY), ("only", MODEL_ONLY)]),
            server(&[("both", VIEW), ("wipe", "")]),
            server(&[("plain", "")]),
        ]);
        for (name, hidden, want) in [
            ("show", &[][..], "a__show"),
            ("refresh", &[], "a__refresh"),
            ("both", &[], r#"["a__both", "b__both"]"#),
            ("both", &["a__both"], "b__both"),
            // The copy of a tool that is for models alone gets no call of it.
            ("wipe", &[], r#"["a__wipe", "b__wipe"]"#),
            ("only", &[], r#"["a__only"]"#),
            ("plain", &[], r#"["c__plain"]"#),
            ("refresh", &["a__refresh"], "unknown"),
            // Its only app is hidden from this client.
            ("refresh", &["a__show"], r#"["a__refresh"]"#),
            ("a__show", &[], "unknown"),
            ("none", &[], "unknown"),
        ] {
            assert_eq!(found(&catalog, name, hidden), want, "{name} {hidden:?}");
        }
    }

    #[test]
    fn a_withheld_view_or_tool_closes_the_bare_name() {
        let tools: &[_] = &[("show", VIEW), ("refresh", APP_ONLY)];
        let texts = |catalog: &Catalog| -> Vec<String> {
            catalog.entries().iter().map(|entry| entry.definition.encode().text().into_owned()).collect()
        };
        let waiting = Server { views: HashSet::from(["ui://v".to_owned()]), ..server(tools) };
        let (catalog, _) = joined(&[waiting]);
        assert_eq!(found(&catalog, "refresh", &[]), r#"["a__refresh"]"#);
        let shown = texts(&catalog);
        assert!(shown.iter().all(|text| !text.contains("ui://")), "{shown:?}");
        assert!(shown[1].contains(APP_ONLY), "it stays away from models: {shown:?}");
        assert!(!catalog.same_as(&joined(&[server(tools)]).0));
        // The owner of the withheld tool may be meant.
        let waiting = Server { withheld: HashSet::from(["refresh".to_owned()]), ..server(&[("show", VIEW)]) };
        let (catalog, _) = joined(&[waiting, server(tools)]);
        assert_eq!(found(&catalog, "refresh", &[]), r#"["b__refresh"]"#);
    }

    #[test]
    fn an_upstream_without_apps_has_ordinary_tools_alone() {
        let tools: &[_] = &[("show", VIEW), ("refresh", APP_ONLY)];
        let (catalog, dropped) = joined(&[Server { apps: false, ..server(tools) }]);
        assert!(dropped.is_empty(), "{dropped:?}");
        let [entry] = catalog.entries() else { panic!("{:?}", catalog.entries()) };
        assert_eq!(entry.definition.encode().text(), r#"{"name":"show","inputSchema":{"type":"object"}}"#);
        assert_eq!(found(&catalog, "show", &[]), "unknown");
    }
}
