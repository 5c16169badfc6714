use super::*;
use crate::wire::json::raw::RawJson;

fn name(text: &str) -> UpstreamName {
    UpstreamName::parse(text).unwrap()
}

fn inventory(list: ItemList, keys: &[&str]) -> Inventory {
    let mut inventory = Inventory::default();
    let items = keys.iter().map(|key| {
        let mut raw = RawObject::of_strings(&[("name", "n")]);
        raw.set(list.key(), RawJson::string(key));
        Definition::read(list, &raw.encode()).unwrap()
    });
    inventory.replace(list, items.collect());
    inventory
}

/// An [`HintJudge`] without hints of an upstream or an operator.
#[derive(Debug)]
struct Assumed;

impl HintJudge for Assumed {
    fn annotate(&self, _: &str, _: &Hints, _: bool) -> JudgedHints {
        JudgedHints::default()
    }
}

const RULES: NamingRules<'static> = NamingRules {
    max_length: 48,
    prefix_uris: false,
    transparent: false,
    tightened: false,
    profile: None,
    view_owners: None,
};

fn run(parts: &[(&str, &str, Inventory)], rules: NamingRules<'_>) -> (Vec<String>, Vec<WithheldItem>, Catalog) {
    let names: Vec<UpstreamName> = parts.iter().map(|(n, _, _)| name(n)).collect();
    let filters = ItemFilters::default();
    let sources: Vec<MergeSource<'_>> = parts
        .iter()
        .enumerate()
        .map(|(index, (_, prefix, inventory))| MergeSource {
            upstream: &names[index],
            prefix,
            inventory,
            filters: &filters,
            annotate: &Assumed,
            needs_headers: false,
            standings: None,
            withheld: None,
            withheld_tools: None,
            withheld_views: None,
            apps: true,
            index,
        })
        .collect();
    let (catalog, dropped) = merge(&sources, rules);
    (catalog.entries().iter().map(|e| e.exposed.to_string()).collect(), dropped, catalog)
}

#[test]
fn names_carry_their_prefix_and_are_found_again() {
    let (names, dropped, catalog) = run(
        &[("a", "a__", inventory(ItemList::Tools, &["read", "write"])), ("b", "", inventory(ItemList::Tools, &["x"]))],
        RULES,
    );
    assert_eq!(names, ["a__read", "a__write", "x"]);
    assert!(dropped.is_empty());
    let at = catalog.find(ItemList::Tools, "a__write").unwrap();
    assert_eq!(&*catalog.entry(at).unwrap().original, "write");
    assert_eq!(catalog.find(ItemList::Prompts, "a__write"), None);
    assert_eq!(catalog.find(ItemList::Tools, "write"), None);
}

#[test]
fn two_items_of_one_name_are_both_withheld() {
    let (names, dropped, _) = run(
        &[("a", "", inventory(ItemList::Tools, &["x", "y"])), ("b", "", inventory(ItemList::Tools, &["x"]))],
        RULES,
    );
    assert_eq!(names, ["y"]);
    assert_eq!(dropped.len(), 2);
}

#[test]
fn uris_stay_unless_two_upstreams_own_them() {
    let (names, _, catalog) = run(
        &[
            ("a", "a__", inventory(ItemList::Resources, &["file:///x", "file:///same"])),
            ("b", "b__", inventory(ItemList::Resources, &["file:///same"])),
        ],
        RULES,
    );
    assert_eq!(names, ["file:///x", "a+file:///same", "b+file:///same"]);
    assert!(catalog.find(ItemList::Resources, "file:///same").is_none());
}

#[test]
fn a_template_of_two_upstreams_owns_nothing_by_its_bare_uri() {
    let (names, _, catalog) = run(
        &[
            ("a", "a__", inventory(ItemList::Templates, &["doc://{id}"])),
            ("b", "b__", inventory(ItemList::Templates, &["doc://{id}", "only://{id}"])),
        ],
        RULES,
    );
    assert_eq!(names, ["a+doc://{id}", "b+doc://{id}", "only://{id}"]);
    assert_eq!(catalog.find_template("doc://1"), None);
    assert_eq!(catalog.find_template("b+doc://1"), Some(1));
    assert_eq!(catalog.find_template("only://1"), Some(2));
}

#[test]
fn a_transparent_view_changes_no_name() {
    let long = "n".repeat(100);
    let rules = NamingRules { transparent: true, ..RULES };
    let (names, _, _) = run(&[("a", "a__", inventory(ItemList::Tools, &["dot.ted", &long]))], rules);
    assert_eq!(names, ["dot.ted", &long]);
}

#[test]
fn catalogs_compare_by_what_clients_see() {
    let parts = || [("a", "a__", inventory(ItemList::Tools, &["x"]))];
    let (_, _, one) = run(&parts(), RULES);
    let (_, _, two) = run(&parts(), RULES);
    let (_, _, other) = run(&[("a", "a__", inventory(ItemList::Tools, &["y"]))], RULES);
    assert!(one.same_as(&two));
    assert!(!one.same_as(&other));
}

#[test]
fn a_command_that_is_suggested_can_be_copied_to_a_shell() {
    let dropped = |item: &str| WithheldItem {
        upstream: name("fx"),
        part: WithheldPart::Item(ItemList::Resources),
        item: item.to_owned(),
        exposed: None,
        pin: Some("waiting"),
        why: "it changed".to_owned(),
    };
    let told = dropped("file:///my notes/$(x).txt").told();
    let word = "'fx+file:///my notes/$(x).txt'";
    assert_eq!(
        told,
        format!("it changed; look at it with `headend pins diff {word}`, then `headend pins approve {word}`")
    );
    assert!(dropped("file:///a").told().contains("`headend pins approve fx+file:///a`"));
}

/// Returns an inventory with a tool for each of these views.
fn tools_with(views: &[&str], meta: &str) -> Inventory {
    let mut inventory = Inventory::default();
    let items = views.iter().enumerate().map(|(n, view)| {
        let meta = meta.replace("VIEW", view);
        let raw = format!(r#"{{"name":"t{n}","inputSchema":{{"type":"object"}},"_meta":{{"ui":{meta}}}}}"#);
        Definition::read(ItemList::Tools, &RawJson::checked(raw).unwrap()).unwrap()
    });
    inventory.replace(ItemList::Tools, items.collect());
    inventory
}

const NAMES_VIEW: &str = r#"{"resourceUri":"VIEW"}"#;

fn meta_of(catalog: &Catalog, tool: &str) -> String {
    let entry = catalog.find(ItemList::Tools, tool).and_then(|at| catalog.entry(at)).unwrap();
    entry.definition.get("_meta").map(|meta| meta.text().into_owned()).unwrap_or_default()
}

#[test]
fn a_view_that_a_tool_names_is_found_and_listed_nowhere() {
    let tools = tools_with(&["ui://v", "ui://v", "ui://w"], NAMES_VIEW);
    let (names, dropped, catalog) = run(&[("a", "a__", tools)], RULES);
    assert_eq!((names.len(), dropped.len()), (3, 0));
    let view = |uri| catalog.find(ItemList::Resources, uri).and_then(|at| catalog.entry(at)).unwrap();
    assert!(matches!(&view("ui://v").reach, EntryReach::OfTools(tools) if *tools == [0, 1]));
    assert_eq!(&*view("ui://w").canonical, "a+ui://w");
    assert_eq!(catalog.find(ItemList::Resources, ""), None, "the entry of handed URIs has no name");
    let resources = ItemFilter::build(&["*".into()], &["a+ui://v".into()], &[]).unwrap();
    let profile = ItemFilters { resources, ..ItemFilters::default() };
    let rules = NamingRules { profile: Some(&profile), ..RULES };
    let catalog = run(&[("a", "a__", tools_with(&["ui://v"], NAMES_VIEW))], rules).2;
    assert_eq!((catalog.entries().len(), catalog.find(ItemList::Resources, "ui://v")), (1, None));
    assert_eq!(catalog.find_handed(&name("a"), "ui://v"), None, "nor is it read by way of a result");
}

#[test]
fn views_of_several_owners_have_their_names_and_only_they() {
    let mut owners = ViewOwners::default();
    for (upstream, uri) in [("a", "UI://V/1"), ("b", "ui://v/1"), ("a", "ui://OWN"), ("c", "ui://gone")] {
        owners.add(&name(upstream), uri);
    }
    let owners = Arc::new(owners);
    let parts = || {
        let mut both = tools_with(&["ui://v/1", "ui://own"], NAMES_VIEW);
        both.replace(
            ItemList::Resources,
            inventory(ItemList::Resources, &["ui://own", "ui://b+v/1"]).items(ItemList::Resources).to_vec(),
        );
        [("a", "a__", both), ("b", "b__", inventory(ItemList::Resources, &["ui://v/1"]))]
    };
    let (_, dropped, catalog) = run(&parts(), NamingRules { view_owners: Some(&owners), ..RULES });
    assert!(dropped.is_empty(), "{dropped:?}");
    let of =
        |uri| catalog.find(ItemList::Resources, uri).and_then(|at| catalog.entry(at)).map(|e| e.canonical.to_string());
    assert_eq!(of("ui://a+v/1").as_deref(), Some("a+ui://v/1"));
    assert_eq!(of("ui://b+v/1").as_deref(), Some("b+ui://v/1"), "and no URI of another owner imitates it");
    assert_eq!(of("ui://a+b+v/1").as_deref(), Some("a+ui://b+v/1"));
    assert_eq!((of("ui://v/1"), of("ui://own").as_deref()), (None, Some("a+ui://own")));
    assert_eq!(meta_of(&catalog, "a__t0"), r#"{"ui":{"resourceUri":"ui://a+v/1"}}"#);
    assert_eq!(meta_of(&catalog, "a__t1"), r#"{"ui":{"resourceUri":"ui://own"}}"#);
    let exposed = |upstream: &str, uri: &str, is_taken| catalog.exposed_view(&name(upstream), uri, || is_taken);
    assert_eq!(exposed("b", "ui://own", false).as_deref(), Some("ui://b+own"), "it is another's");
    assert_eq!((exposed("a", "ui://own", false), exposed("b", "ui://new", false)), (None, None));
    assert_eq!(exposed("b", "ui://new", true).as_deref(), Some("ui://b+new"));
    assert_eq!(exposed("b", "Ui://oWn", false).as_deref(), Some("ui://b+oWn"), "in another case");
    assert_eq!(exposed("b", "ui://gone", false).as_deref(), Some("ui://b+gone"), "its owner is not here");
    assert_eq!(exposed("b", "ui://own/", false), None, "a path has a case");
    let rules = NamingRules { transparent: true, view_owners: Some(&owners), ..RULES };
    let (_, _, bare) = run(&[("a", "a__", tools_with(&["ui://v/1"], NAMES_VIEW))], rules);
    assert_eq!(meta_of(&bare, "t0"), r#"{"ui":{"resourceUri":"ui://v/1"}}"#);
    assert_eq!(bare.exposed_view(&name("a"), "ui://v/1", || true), None);
}

#[test]
fn tools_lose_a_view_that_waits_and_no_list_shows_it() {
    let withheld = HashSet::from(["ui://v".to_owned()]);
    let (upstream, filters) = (name("a"), ItemFilters::default());
    let with = |meta: &str| {
        let mut inventory = tools_with(&["ui://v", "ui://w"], meta);
        let listed = self::inventory(ItemList::Resources, &["ui://v", "ui://w"]).items(ItemList::Resources).to_vec();
        inventory.replace(ItemList::Resources, listed);
        let source = MergeSource {
            upstream: &upstream,
            prefix: "",
            inventory: &inventory,
            filters: &filters,
            annotate: &Assumed,
            needs_headers: false,
            standings: None,
            withheld: None,
            withheld_tools: None,
            withheld_views: Some(&withheld),
            apps: true,
            index: 0,
        };
        merge(&[source], RULES).0
    };
    let catalog = with(NAMES_VIEW);
    let exposed: Vec<&str> = catalog.entries().iter().map(|entry| &*entry.exposed).collect();
    assert_eq!(exposed, ["t0", "t1", "ui://w"]);
    assert_eq!(
        (meta_of(&catalog, "t0").as_str(), meta_of(&catalog, "t1").as_str()),
        ("", r#"{"ui":{"resourceUri":"ui://w"}}"#)
    );
    assert!(catalog.find(ItemList::Resources, "ui://v").is_some(), "a read is judged again");
    let of_app = with(r#"{"resourceUri":"VIEW","visibility":["app"]}"#);
    assert_eq!(meta_of(&of_app, "t0"), r#"{"ui":{"visibility":["app"]}}"#, "no tool of models");
}
