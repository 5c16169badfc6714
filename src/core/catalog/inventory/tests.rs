use super::*;
use crate::mcp::asking::kinds::InputKinds;

fn page(names: &[&str], next: Option<&str>) -> RawJson {
    let items: Vec<String> = names.iter().map(|n| format!(r#"{{"name":"{n}"}}"#)).collect();
    let next = next.map(|c| format!(r#","nextCursor":"{c}""#)).unwrap_or_default();
    RawJson::trusted(format!(r#"{{"tools":[{}]{next}}}"#, items.join(",")))
}

#[test]
fn all_pages_are_read_and_a_cursor_loop_ends() {
    let mut reading = ListReading::new(ItemList::Tools, ListBounds::default());
    assert!(matches!(reading.page(&page(&["a"], Some("1"))).unwrap(), ReadingStep::Page(c) if c == "1"));
    assert!(matches!(reading.page(&page(&["b", "a"], Some("2"))).unwrap(), ReadingStep::Page(_)));
    let ReadingStep::Done { items, endless, .. } = reading.page(&page(&["c"], Some("1"))).unwrap() else { panic!() };
    assert_eq!(items.iter().map(|i| i.key.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(endless.is_some());
}

#[test]
fn a_name_with_two_owners_is_offered_by_neither() {
    let mut reading = ListReading::new(ItemList::Tools, ListBounds::default());
    let text = r#"{"tools":[{"name":"a"},{"name":"b"},{"name":"a","title":"other"},{"name":"b"}]}"#;
    let ReadingStep::Done { items, skipped, .. } = reading.page(&RawJson::trusted(text)).unwrap() else { panic!() };
    assert_eq!(items.iter().map(|i| i.key.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(skipped.len(), 1, "{skipped:?}");
}

/// Reads pages until the list ends. Returns the offered names, the number of notes about missing
/// parts, the excess and the number of pages.
fn read(bounds: ListBounds, mut next: impl FnMut(usize) -> RawJson) -> (Vec<String>, usize, ListExcess, usize) {
    let (mut reading, mut pages) = (ListReading::new(ItemList::Tools, bounds), 0);
    loop {
        pages += 1;
        if let ReadingStep::Done { items, skipped, excess, endless } = reading.page(&next(pages)).unwrap() {
            let left = skipped.len() + usize::from(endless.is_some());
            return (items.into_iter().map(|item| item.key).collect(), left, excess, pages);
        }
    }
}

#[test]
fn of_a_list_that_is_too_long_the_first_items_are_offered_and_the_others_counted() {
    let bounds = ListBounds { pages: 3, items: 2, bytes: 1 << 20 };
    let excess = |items, or_more| ListExcess { items, or_more };
    let (items, skipped, left, _) = read(bounds, |_| page(&["b", "a", "c"], None));
    assert_eq!((items, skipped, left), (vec!["b".to_owned(), "a".to_owned()], 0, excess(1, false)));
    let names = |n: usize| page(&[&format!("t{n}")], (n < 5).then_some(&*format!("c{n}")));
    let (items, skipped, left, pages) = read(bounds, names);
    assert_eq!((items.len(), skipped, left, pages), (2, 0, excess(3, false), 5), "several pages");
    let (items, skipped, left, pages) = read(bounds, |n| page(&[&format!("t{n}")], Some(&format!("c{n}"))));
    assert_eq!((items.len(), skipped, left, pages), (2, 0, excess(3, true), 5), "without an end");
    let (items, _, left, _) = read(bounds, |_| page(&["a", "b"], None));
    assert_eq!((items.len(), left), (2, ListExcess::default()), "just as many");
}

#[test]
fn bounds_end_an_endless_list() {
    let bounds = ListBounds { pages: 3, items: 100, bytes: 1 << 10 };
    let (items, skipped, left, pages) = read(bounds, |n| page(&[], Some(&format!("c{n}"))));
    assert_eq!((items.len(), skipped, left.or_more, pages), (0, 1, true, 3), "pages without an item");
    let (items, skipped, left, pages) = read(bounds, |n| page(&[&"t".repeat(600 + n)], Some(&format!("c{n}"))));
    assert_eq!((items.len(), skipped, left.or_more, pages), (2, 1, true, 2), "bytes");
}

#[test]
fn an_inventory_from_disk_is_bounded_and_says_whether_there_was_more() {
    let tools = ["a", "b", "c"]
        .map(|name| Definition::read(ItemList::Tools, &RawJson::trusted(format!(r#"{{"name":"{name}"}}"#))).unwrap());
    let mut inventory = Inventory::default();
    inventory.replace(ItemList::Tools, tools.to_vec());
    assert!(inventory.bound(3) && inventory.excess()[0].is_none());
    assert!(inventory.bound(2));
    let (mut back, _) = Inventory::from_json(&inventory.to_json(Revision::V2025_06_18)).unwrap();
    assert_eq!((back.items(ItemList::Tools).len(), back.excess()[0]), (2, ListExcess { items: 1, or_more: false }));
    assert!(!back.bound(3), "a reading would find the third");
    back.add_for(Audience::askable(), ItemList::Tools, tools.to_vec(), 2);
    assert_eq!((back.items(ItemList::Tools).len(), back.excess()[0].items), (2, 1));
}

#[test]
fn a_gap_is_filled_with_what_was_known_and_comes_back_from_disk() {
    let tool = |name: &str, title: &str| {
        let text = format!(r#"{{"name":"{name}","title":"{title}"}}"#);
        Definition::read(ItemList::Tools, &RawJson::trusted(text)).unwrap()
    };
    let mut known = Inventory::default();
    known.replace(ItemList::Tools, vec![tool("a", "old"), tool("b", "old")]);
    known.add_for(Audience::askable(), ItemList::Tools, vec![tool("ask", "old")], 10);
    for (gap, items, most, want) in [
        (None, vec![tool("c", "new")], 10, "c"),
        (Some(ListGap::Awaited), vec![], 10, "a b ask"),
        (Some(ListGap::Unread), vec![], 10, "a b ask"),
        (Some(ListGap::Unread), vec![tool("b", "new"), tool("c", "new")], 10, "b c a ask"),
        (Some(ListGap::Unread), vec![tool("c", "new")], 2, "c a"),
        (Some(ListGap::Askers), vec![tool("c", "new")], 10, "c ask"),
    ] {
        let mut inventory = Inventory::default();
        inventory.replace(ItemList::Tools, items);
        inventory.set_gap(ItemList::Tools, gap);
        inventory.keep(&known, most);
        let names: Vec<&str> = inventory.items(ItemList::Tools).iter().map(|item| item.key.as_str()).collect();
        assert_eq!(names.join(" "), want, "{gap:?}");
        let (back, _) = Inventory::from_json(&inventory.to_json(Revision::V2025_06_18)).unwrap();
        let is_unread = matches!(gap, Some(ListGap::Awaited | ListGap::Unread));
        assert_eq!(back.has_gap(ListGap::Unread), is_unread, "{gap:?}");
    }
}

#[test]
fn an_item_is_for_the_clients_that_were_shown_it() {
    let tool = |name: &str, title: &str| {
        let text = format!(r#"{{"name":"{name}","title":"{title}"}}"#);
        Definition::read(ItemList::Tools, &RawJson::trusted(text)).unwrap()
    };
    let tools = |names: &[&str], title: &str| names.iter().map(|name| tool(name, title)).collect::<Vec<_>>();
    let none = InputKinds::default();
    let (form, sampling) = (InputKinds { form: true, ..none }, InputKinds { sampling: true, ..none });
    let mut inventory = Inventory::default();
    inventory.replace(ItemList::Tools, tools(&["plain"], "all"));
    assert!(inventory.lacks(ItemList::Tools, &tools(&["plain", "asks"], "")));
    assert!(!inventory.lacks(ItemList::Tools, &tools(&["plain"], "another")));
    for (kinds, names, title) in [
        (form.and(sampling), &["plain", "both", "asks", "either"][..], "both"),
        (form, &["plain", "asks", "either"], "form"),
        (sampling, &["plain", "either"], "sampling"),
    ] {
        inventory.add_for(Audience::with(kinds), ItemList::Tools, tools(names, title), 10);
    }
    let (inventory, _) = Inventory::from_json(&inventory.to_json(Revision::V2025_06_18)).unwrap();
    let seen = |offered: InputKinds| {
        let items = inventory.items(ItemList::Tools).iter().filter(|item| item.audience.has(offered));
        items.map(|item| format!("{} {}", item.key, item.raw.string("title").unwrap())).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(seen(none), "plain all");
    assert_eq!(seen(InputKinds { roots: true, ..none }), "plain all");
    assert_eq!(seen(form), "plain all, asks both, either both");
    assert_eq!(seen(sampling), "plain all, either both");
    assert_eq!(seen(form.and(sampling)), "plain all, both both, asks both, either both");
    let old = inventory.to_json(Revision::V2025_06_18).text().replace("tools-audiences", "unknown");
    let (old, _) = Inventory::from_json(&RawJson::trusted(old)).unwrap();
    let audiences = old.items(ItemList::Tools).iter().map(|item| item.audience);
    assert_eq!(audiences.collect::<Vec<_>>()[..2], [Audience::ALL, Audience::askable()]);
}

#[test]
fn an_inventory_comes_back_from_disk_unchanged() {
    let extensions = ExtensionSet::default().with(&crate::mcp::extension::TASKS);
    let mut inventory = Inventory { completions: true, extensions, logging: true, ..Inventory::default() };
    let raw = RawJson::trusted(r#"{"name":"a","x":12345678901234567890123,"inputSchema":{ "type":"object"}}"#);
    inventory.replace(ItemList::Tools, vec![Definition::read(ItemList::Tools, &raw).unwrap()]);
    let (back, revision) = Inventory::from_json(&inventory.to_json(Revision::V2025_06_18)).unwrap();
    assert_eq!(revision, Revision::V2025_06_18);
    assert!(back.completions && back.extensions == extensions && back.logging);
    assert_eq!(back.items(ItemList::Tools)[0].raw.encode(), raw);
    assert!(Inventory::from_json(&RawJson::trusted("{}")).is_none());
}

#[test]
fn what_was_repaired_and_what_is_withheld_is_known_after_a_restart() {
    let read = |list, text| Definition::read(list, &RawJson::trusted(text)).unwrap();
    let mut inventory = Inventory::default();
    let tools = [r#"{"name":"a","title":7}"#, r#"{"name":"b","inputSchema":7}"#];
    inventory.replace(ItemList::Tools, tools.map(|text| read(ItemList::Tools, text)).to_vec());
    inventory.replace(ItemList::Prompts, vec![read(ItemList::Prompts, r#"{"name":"a","description":[]}"#)]);
    let told = |inventory: &Inventory| {
        inventory.flaws().map(|flaw| format!("{:?} {} {}", flaw.list, flaw.key, flaw.is_withheld)).collect::<Vec<_>>()
    };
    let want = ["Tools a false", "Tools a false", "Tools b true", "Prompts a false"];
    assert_eq!(told(&inventory), want);
    let (back, _) = Inventory::from_json(&inventory.to_json(Revision::V2025_06_18)).unwrap();
    assert_eq!(back.flaws().collect::<Vec<_>>(), inventory.flaws().collect::<Vec<_>>());
}

#[test]
fn an_empty_cursor_is_asked_for_and_ends_the_list_where_nothing_new_is_behind_it() {
    let reading = || ListReading::new(ItemList::Tools, ListBounds::default());
    let names = |next: ReadingStep| match next {
        ReadingStep::Done { items, endless: None, .. } => items.iter().map(|item| item.key.clone()).collect::<Vec<_>>(),
        next @ (ReadingStep::Page(_) | ReadingStep::Done { .. }) => panic!("{next:?}"),
    };
    let mut again = reading();
    assert!(
        matches!(again.page(&page(&["a", "b"], Some(""))).unwrap(), ReadingStep::Page(cursor) if cursor.is_empty())
    );
    assert_eq!(names(again.page(&page(&["a", "b"], Some(""))).unwrap()), ["a", "b"]);
    assert_eq!(again.take_quirks(), [Quirk::EmptyCursor]);

    let mut refused = reading();
    refused.page(&page(&["a"], Some(""))).unwrap();
    assert!(refused.refused(Some(-32603)).is_none(), "this says nothing about the cursor");
    assert_eq!(names(refused.refused(Some(-32602)).unwrap()), ["a"]);
    assert_eq!(refused.take_quirks(), [Quirk::EmptyCursor]);
    assert!(reading().refused(Some(-32602)).is_none(), "the first page was refused");

    let mut meant = reading();
    meant.page(&page(&["a"], Some(""))).unwrap();
    assert_eq!(names(meant.page(&page(&["b"], None)).unwrap()), ["a", "b"]);
    assert!(meant.take_quirks().is_empty());
    let mut endless = reading();
    endless.page(&page(&["a"], Some(""))).unwrap();
    let ReadingStep::Done { endless: Some(why), .. } = endless.page(&page(&["b"], Some(""))).unwrap() else { panic!() };
    assert!(why.contains("the same cursor"), "{why}");
}

#[test]
fn a_list_that_is_null_is_empty_and_a_cursor_that_is_none_is_named() {
    for list in ItemList::ALL {
        let mut reading = ListReading::new(list, ListBounds::default());
        let text = format!(r#"{{"{}":null,"nextCursor":null}}"#, list.member());
        let ReadingStep::Done { items, endless: None, .. } = reading.page(&RawJson::trusted(text)).unwrap() else {
            panic!()
        };
        assert!(items.is_empty());
        assert_eq!(reading.take_quirks(), [Quirk::NullOptional, Quirk::NullList]);
    }
    for cursor in ["7", "{}", "true", "[\"a\"]"] {
        let text = format!(r#"{{"tools":[{{"name":"a"}}],"nextCursor":{cursor}}}"#);
        let mut reading = ListReading::new(ItemList::Tools, ListBounds::default());
        let ReadingStep::Done { items, endless, excess, .. } = reading.page(&RawJson::trusted(text)).unwrap() else {
            panic!()
        };
        assert!(items.len() == 1 && excess.or_more, "what came stays");
        assert!(endless.is_some_and(|why| why.contains("`nextCursor`")), "{cursor}");
    }
}
