use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

#[test]
fn upstream_names_keep_to_their_alphabet() {
    for good in ["a", "0", "files", "a-b", "a--", "7zip", &"x".repeat(31)] {
        assert_eq!(UpstreamName::parse(good).unwrap().as_str(), good);
    }
    let rows = [
        ("empty", "", UpstreamNameError::Empty),
        ("leading hyphen", "-a", UpstreamNameError::LeadingHyphen),
        ("underscore", "a_b", UpstreamNameError::BadCharacter { bad: '_' }),
        ("plus", "a+b", UpstreamNameError::BadCharacter { bad: '+' }),
        ("upper case", "Files", UpstreamNameError::BadCharacter { bad: 'F' }),
        ("not ASCII", "\u{e9}", UpstreamNameError::BadCharacter { bad: '\u{e9}' }),
        ("line break", "a\n", UpstreamNameError::BadCharacter { bad: '\n' }),
        ("too long", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", UpstreamNameError::TooLong),
    ];
    for (label, text, expected) in rows {
        assert_eq!(UpstreamName::parse(text), Err(expected), "{label}");
    }
}

#[test]
fn a_fitting_name_is_prefixed_and_nothing_else() {
    assert_eq!(tool("files__", "files", "read_file"), "files__read_file");
    assert_eq!(tool("f-", "files", "Read-File"), "f-Read-File");
    let edge = "x".repeat(MAX_LENGTH - "files__".len());
    assert_eq!(tool("files__", "files", &edge), format!("files__{edge}"));
}

// These names are fixed: a change here renames tools in every prompt, rule and transcript of every
// installation.
#[test]
fn mapped_names_are_the_same_for_ever() {
    let rows = [
        ("bad character", "files__", "files", "read.file", "files__read_file_"),
        ("space", "files__", "files", "read file", "files__read_file_"),
        ("overlong", "files__", "files", &"a".repeat(42), "files__aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa_"),
        ("bad prefix", "f.", "files", "read", "f_read_"),
    ];
    for (label, prefix, upstream, original, stem) in rows {
        let name = tool(prefix, upstream, original);
        assert_eq!(name.len(), stem.len() + 8, "{label}: {name}");
        assert!(name.starts_with(stem), "{label}: {name}");
    }
    // Computed independently of this code.
    assert_eq!(tool("files__", "files", "read.file"), "files__read_file_ussj2ang");
    let prompt = expose("files__", &upstream("files"), ItemKind::Prompt, "read.file", MAX_LENGTH).unwrap();
    assert_eq!(prompt, "files__read_file_g4aqptzo");
}

#[test]
fn an_empty_prefix_maps_and_cuts_nothing() {
    for original in ["read.file", "a b", &"n".repeat(MAX_ORIGINAL_LENGTH)] {
        assert_eq!(tool("", "files", original), original);
    }
}

#[test]
fn unusable_originals_are_withheld_under_any_prefix() {
    let too_long = "n".repeat(MAX_ORIGINAL_LENGTH + 1);
    let rows = [
        ("empty", "", ItemNameError::Empty),
        ("too long", too_long.as_str(), ItemNameError::TooLong),
        ("escape", "a\u{1b}[0m", ItemNameError::ControlCharacter),
        ("delete", "a\u{7f}", ItemNameError::ControlCharacter),
        ("next line", "a\u{85}", ItemNameError::ControlCharacter),
        ("homograph", "re\u{430}d", ItemNameError::NotAscii),
        ("zero width", "read\u{200b}", ItemNameError::NotAscii),
    ];
    for (label, original, expected) in rows {
        for prefix in ["", "files__"] {
            let result = expose(prefix, &upstream("files"), ItemKind::Tool, original, MAX_LENGTH);
            assert_eq!(result, Err(expected), "{label} with prefix {prefix:?}");
        }
    }
}

#[test]
fn a_tiny_max_length_is_raised_to_the_minimum() {
    let name = expose("files__", &upstream("files"), ItemKind::Tool, "a_rather_long_name", 3).unwrap();
    assert_eq!(name.len(), MIN_MAX_LENGTH);
}

#[test]
fn all_items_of_a_shared_name_are_reported() {
    let names = ["a__x", "b__x", "a__x", "c", "b__x", "a__x"];
    assert_eq!(collisions(names.into_iter().zip(0..)), [0, 1, 2, 4, 5]);
    assert_eq!(collisions(["a", "b"].into_iter().zip(0..)), [0_usize; 0]);
}

#[test]
fn a_clean_name_that_imitates_a_mapped_one_is_reported() {
    let mapped = tool("files__", "files", "read.file");
    let imitation = mapped.strip_prefix("files__").unwrap();
    let clean = tool("files__", "files", imitation);
    assert_eq!(collisions([(mapped.as_str(), 0), (clean.as_str(), 1)].into_iter()), [0, 1]);
}

#[test]
fn prefixes_that_begin_with_each_other_are_warned_of() {
    type Pairs = &'static [(&'static str, &'static str)];
    let rows: [(&str, Pairs, Pairs); 5] = [
        ("defaults", &[("a", "a__"), ("ab", "ab__")], &[]),
        ("longer after", &[("a", "x"), ("b", "x_")], &[("b", "a")]),
        ("longer before", &[("a", "x_"), ("b", "x")], &[("a", "b")]),
        ("equal", &[("a", "x_"), ("b", "x_")], &[("b", "a")]),
        ("bare", &[("a", ""), ("b", "b__")], &[("b", "a")]),
    ];
    for (label, prefixes, expected) in rows {
        let prefixes: Vec<_> = prefixes.iter().map(|(name, prefix)| (upstream(name), (*prefix).to_owned())).collect();
        let found = prefix_warnings(&prefixes);
        let pairs: Vec<_> = found.iter().map(|w| (w.upstream.as_str(), w.other.as_str())).collect();
        assert_eq!(pairs, expected, "{label}");
        assert!(found.iter().all(|w| w.to_string().contains(w.other.as_str())), "{label}");
    }
}

#[test]
fn canonical_names_tell_kinds_apart() {
    let docs = upstream("docs");
    assert_eq!(canonical_name(&docs, "search"), "docs__search");
    assert_eq!(canonical_uri(&docs, "file:///a"), "docs+file:///a");
}

proptest! {
    #[test]
    fn exposed_names_fit_and_never_change(
        name in "[a-z0-9][a-z0-9-]{0,30}", prefix in ".{1,60}", original in "[ -~]{1,128}", max_length in 16_usize..200,
    ) {
        let upstream = upstream(&name);
        let exposed = expose(&prefix, &upstream, ItemKind::Tool, &original, max_length).unwrap();
        prop_assert!(exposed.len() <= max_length && !exposed.is_empty());
        prop_assert!(exposed.chars().all(is_clean));
        prop_assert_eq!(expose(&prefix, &upstream, ItemKind::Tool, &original, max_length).unwrap(), exposed);
    }

    #[test]
    fn every_outcome_is_a_name_or_a_reason(original in any::<String>(), prefix in any::<String>(), max_length in any::<usize>()) {
        if let Ok(name) = expose(&prefix, &upstream("u"), ItemKind::Prompt, &original, max_length) {
            prop_assert!(!name.is_empty() && name.chars().all(|c| !c.is_control()));
        }
    }

    // The alphabet and the lengths are small so that equal stems, separators and mapped characters
    // meet often.
    #[test]
    fn distinct_items_differ_or_are_reported(items in prop::collection::hash_set(("[ab0-]{1,2}", "[ab_.-]{1,4}|[ab._]{44,50}"), 1..60)) {
        let items: Vec<_> = items.into_iter().filter_map(|(u, o)| Some((UpstreamName::parse(&u).ok()?, o))).collect();
        let names: Vec<_> = items.iter().map(|(u, o)| tool(&format!("{u}__"), u.as_str(), o)).collect();
        let reported: HashSet<_> = collisions(names.iter().map(String::as_str).zip(0..)).into_iter().collect();
        let mut owner = HashMap::new();
        for (index, name) in names.iter().enumerate() {
            if !reported.contains(&index) {
                prop_assert_eq!(owner.insert(name, index), None);
            }
        }
    }

    #[test]
    fn canonical_names_are_injective(a in ("[ab0-]{1,3}", "[ab_+.-]{0,4}"), b in ("[ab0-]{1,3}", "[ab_+.-]{0,4}")) {
        let (Ok(ua), Ok(ub)) = (UpstreamName::parse(&a.0), UpstreamName::parse(&b.0)) else { return Ok(()) };
        prop_assert_eq!(canonical_name(&ua, &a.1) == canonical_name(&ub, &b.1), a == b);
        prop_assert_eq!(canonical_uri(&ua, &a.1) == canonical_uri(&ub, &b.1), a == b);
        prop_assert_ne!(canonical_name(&ua, &a.1), canonical_uri(&ub, &b.1));
    }
}

fn upstream(name: &str) -> UpstreamName {
    UpstreamName::parse(name).unwrap()
}

fn tool(prefix: &str, name: &str, original: &str) -> String {
    expose(prefix, &upstream(name), ItemKind::Tool, original, MAX_LENGTH).unwrap()
}
