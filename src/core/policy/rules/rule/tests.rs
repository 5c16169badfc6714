use super::*;

#[test]
fn names_that_do_not_belong_to_their_upstream_are_no_subject() {
    let rows = [
        ("tool", ActionKind::Tool, "a", "a__x", true),
        ("odd tool name", ActionKind::Tool, "a", "a___+", true),
        ("prompt", ActionKind::Prompt, "a", "a__x", true),
        ("resource", ActionKind::Resource, "a", "a+x:y", true),
        ("completion of a prompt", ActionKind::Completion, "a", "a__x", true),
        ("completion of a template", ActionKind::Completion, "a", "a+x:{y}", true),
        ("no upstream", ActionKind::Tool, "", "__x", false),
        ("another upstream", ActionKind::Tool, "b", "a__x", false),
        ("longer upstream", ActionKind::Tool, "a", "ab__x", false),
        ("no name", ActionKind::Tool, "a", "a__", false),
        ("no URI", ActionKind::Resource, "a", "a+", false),
        ("tool with a URI", ActionKind::Tool, "a", "a+x:y", false),
        ("resource with a name", ActionKind::Resource, "a", "a__x", false),
        ("exposed name", ActionKind::Tool, "a", "x", false),
    ];
    for (label, kind, upstream, canonical, expected) in rows {
        assert_eq!(MatchedItem::new(kind, upstream, canonical).is_some(), expected, "{label}");
    }
}

#[test]
fn resource_patterns_hold_for_every_reading_of_a_uri() {
    let rows = [
        ("plain", "fs+file:///srv/*", "file:///srv/a", Truth::Yes),
        ("plain, elsewhere", "fs+file:///srv/*", "file:///etc/a", Truth::No),
        ("copied with its escapes", "fs+file:///my%20docs/*", "file:///my%20docs/a", Truth::Yes),
        ("written without escapes", "fs+file:///my docs/*", "file:///my%20docs/a", Truth::Unknown),
        ("escaped letters", "fs+file:///secret/*", "file:///%73ecret/a", Truth::Unknown),
        ("escaped, elsewhere", "fs+file:///secret/*", "file:///%6fther/a", Truth::No),
        ("escaped star in a pattern", "fs+x:a%2Ab", "x:a%2ab", Truth::Unknown),
        ("escaped star is no star", "fs+x:a%2Ab", "x:a%62b", Truth::No),
        ("upper-case scheme", "fs+file:///srv/*", "FILE:///srv/a", Truth::Unknown),
        ("upper-case host", "fs+https://Example.com/*", "https://Example.com/a", Truth::Yes),
        ("host in another case", "fs+https://example.com/*", "https://EXAMPLE.com/a", Truth::Unknown),
        ("host of an unknown scheme", "fs+notes://Ann/*", "notes://Ann/a", Truth::Yes),
        ("parent", "fs+file:///srv/*", "file:///srv/../etc/a", Truth::Unknown),
        ("parent, any of the upstream", "fs+*", "file:///srv/../etc/a", Truth::Yes),
        ("parent, another upstream", "git+*", "file:///srv/../etc/a", Truth::No),
        ("parent, written out", "fs+x:/a/../b", "x:/a/../b", Truth::Yes),
        ("escaped parent", "fs+file:///srv/*", "file:///srv/%2e%2e/etc/a", Truth::Unknown),
        ("escaped slash", "fs+file:///srv/*", "file:///srv%2fa", Truth::Unknown),
        ("escaped twice", "fs+file:///srv/*", "file:///srv/%252e", Truth::Unknown),
        ("template", "fs+file:///{path}", "file:///{path}", Truth::Yes),
    ];
    for (label, pattern, uri, expected) in rows {
        let mut problems = PolicyProblems::default();
        let texts = [pattern.to_owned()];
        let patterns = PatternList::compile("", PatternField::Resources, &texts, &mut problems);
        assert!(problems.0.is_empty(), "{label}: {problems:?}");
        let canonical = format!("fs+{uri}");
        let subject = MatchedItem::new(ActionKind::Resource, "fs", &canonical).unwrap();
        assert_eq!(patterns.truth(&subject), expected, "{label}");
    }
}
