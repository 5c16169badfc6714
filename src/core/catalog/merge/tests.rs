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

const RULES: NamingRules<'static> =
    NamingRules { max_length: 48, prefix_uris: false, transparent: false, tightened: false, profile: None, shared_views: None };

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
            withheld_views: None,
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
