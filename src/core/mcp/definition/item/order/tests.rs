use proptest::prelude::*;

use super::super::Definition;
use super::*;
use crate::mcp::method::ItemList;

fn tool(schema: &str) -> Definition {
    let text = format!(r#"{{"name":"a","inputSchema":{schema}}}"#);
    Definition::read(ItemList::Tools, &RawJson::trusted(text)).unwrap()
}

/// Reports whether two schemas have one digest.
fn same(one: &str, other: &str) -> bool {
    tool(one).digest == tool(other).digest
}

#[test]
fn the_digest_does_not_depend_on_the_order_of_these_lists() {
    for (label, one, other) in [
        ("required", r#"{"type":"object","required":["a","b","c"]}"#, r#"{"type":"object","required":["c","a","b"]}"#),
        (
            "type",
            r#"{"type":"object","properties":{"x":{"type":["string","null"]}}}"#,
            r#"{"type":"object","properties":{"x":{"type":["null","string"]}}}"#,
        ),
        (
            "enum",
            r#"{"type":"object","properties":{"x":{"enum":["a",1,null,{"k":[1,2]}]}}}"#,
            r#"{"type":"object","properties":{"x":{"enum":[{ "k":[1,2] },1.0,null,"\u0061"]}}}"#,
        ),
        (
            "default",
            r#"{"type":"object","properties":{"x":{"default":"summary,status,labels"}}}"#,
            r#"{"type":"object","properties":{"x":{"default":"labels,summary,status"}}}"#,
        ),
        (
            "default with spaces",
            r#"{"type":"object","properties":{"x":{"default":"a, b,c"}}}"#,
            r#"{"type":"object","properties":{"x":{"default":"c, b,a"}}}"#,
        ),
        (
            "deep",
            r#"{"type":"object","properties":{"required":{"anyOf":[{"items":{"required":["a","b"]}},{}]}}}"#,
            r#"{"type":"object","properties":{"required":{"anyOf":[{"items":{"required":["b","a"]}},{}]}}}"#,
        ),
        (
            "defined aside",
            r##"{"type":"object","$defs":{"enum":{"enum":["a","b"]}},"then":{"not":{"enum":[1,2]}}}"##,
            r##"{"type":"object","$defs":{"enum":{"enum":["b","a"]}},"then":{"not":{"enum":[2,1]}}}"##,
        ),
        (
            "lists of schemas",
            r#"{"type":"object","prefixItems":[{"enum":[1,2]}],"items":[{"enum":[1,2]}],"patternProperties":{"x":{"enum":[1,2]}}}"#,
            r#"{"type":"object","prefixItems":[{"enum":[2,1]}],"items":[{"enum":[2,1]}],"patternProperties":{"x":{"enum":[2,1]}}}"#,
        ),
        (
            "a keyword with escapes",
            r#"{"type":"object","required":["a","b"]}"#,
            r#"{"type":"object","requ\u0069red":["b","a"]}"#,
        ),
    ] {
        assert!(same(one, other), "{label}");
        assert_ne!(tool(one).exact, tool(other).exact, "{label}");
    }
    let output = |list: &str| {
        let text = format!(r#"{{"name":"a","outputSchema":{{"type":"object","required":[{list}]}}}}"#);
        Definition::read(ItemList::Tools, &RawJson::trusted(text)).unwrap().digest
    };
    assert_eq!(output(r#""a","b""#), output(r#""b","a""#));
}

#[test]
fn everything_else_is_exact() {
    let of = |list: &str| format!(r#"{{"type":"object","properties":{{"x":{list}}}}}"#);
    for (label, one, other) in [
        ("another name", r#"{"required":["a","b"]}"#, r#"{"required":["a","c"]}"#),
        ("a name more often", r#"{"required":["a","b","b"]}"#, r#"{"required":["a","a","b"]}"#),
        ("a name more", r#"{"required":["a","b"]}"#, r#"{"required":["a","b","b"]}"#),
        ("descriptions", r#"{"description":"a,b"}"#, r#"{"description":"b,a"}"#),
        ("titles", r#"{"title":"a,b"}"#, r#"{"title":"b,a"}"#),
        ("alternatives", r#"{"anyOf":[{"type":"string"},{}]}"#, r#"{"anyOf":[{},{"type":"string"}]}"#),
        ("names beside", r#"{"enum":[1,2],"enumNames":["a","b"]}"#, r#"{"enum":[2,1],"enumNames":["a","b"]}"#),
        ("few names beside", r#"{"enumNames":["a"],"enum":[1,2]}"#, r#"{"enumNames":["a"],"enum":[2,1]}"#),
        ("a list of that length", r#"{"enum":[1,2],"x-labels":["a","b"]}"#, r#"{"enum":[2,1],"x-labels":["a","b"]}"#),
        ("the same, first", r#"{"x-labels":["a","b"],"enum":[1,2]}"#, r#"{"x-labels":["a","b"],"enum":[2,1]}"#),
        ("examples", r#"{"examples":["a","b"]}"#, r#"{"examples":["b","a"]}"#),
        ("a value", r#"{"default":{"required":["a","b"]}}"#, r#"{"default":{"required":["b","a"]}}"#),
        ("a constant", r#"{"const":{"enum":[1,2]}}"#, r#"{"const":{"enum":[2,1]}}"#),
        ("a value among examples", r#"{"examples":[{"type":["a","b"]}]}"#, r#"{"examples":[{"type":["b","a"]}]}"#),
        ("a value to choose", r#"{"enum":[{"type":["a","b"]},1]}"#, r#"{"enum":[{"type":["b","a"]},1]}"#),
        ("a list as the default", r#"{"default":["a","b"]}"#, r#"{"default":["b","a"]}"#),
        ("a sentence", r#"{"default":"read this, then that"}"#, r#"{"default":"then that, read this"}"#),
        ("empty words", r#"{"default":"a,,b"}"#, r#"{"default":"b,,a"}"#),
        ("spaces", r#"{"default":"a, b"}"#, r#"{"default":"a,b"}"#),
        ("spaces that move", r#"{"default":"a, b,c"}"#, r#"{"default":"a,b, c"}"#),
        ("words with escapes", r#"{"default":"a\n,b"}"#, r#"{"default":"b,a\n"}"#),
        ("a constant of words", r#"{"const":"a,b"}"#, r#"{"const":"b,a"}"#),
        ("an unknown keyword", r#"{"x":{"required":["a","b"]}}"#, r#"{"x":{"required":["b","a"]}}"#),
        ("names that depend", r#"{"dependencies":{"x":["a","b"]}}"#, r#"{"dependencies":{"x":["b","a"]}}"#),
        ("no names", r#"{"required":[["a"],"b"]}"#, r#"{"required":["b",["a"]]}"#),
        ("other types", r#"{"type":[{},"b"]}"#, r#"{"type":["b",{}]}"#),
        ("properties of that name", r#"{"properties":{"default":"a,b"}}"#, r#"{"properties":{"default":"b,a"}}"#),
    ] {
        assert!(!same(&of(one), &of(other)), "{label}");
    }
    let prompt = |words: &str| {
        let text = format!(r#"{{"name":"a","inputSchema":{{"required":[{words}]}},"required":[{words}]}}"#);
        Definition::read(ItemList::Prompts, &RawJson::trusted(text)).unwrap().digest
    };
    assert_ne!(prompt(r#""a","b""#), prompt(r#""b","a""#), "a prompt has no schema");
    let outside = |words: &str| {
        let text = format!(r#"{{"name":"a","_meta":{{"inputSchema":{{"required":[{words}]}}}},"required":[{words}]}}"#);
        Definition::read(ItemList::Tools, &RawJson::trusted(text)).unwrap().digest
    };
    assert_ne!(outside(r#""a","b""#), outside(r#""b","a""#), "nor has anything else of a tool");
}

#[test]
fn a_definition_without_such_lists_keeps_the_digest_that_it_had() {
    for schema in [
        r#"{"type":"object"}"#,
        r#"{"type":"object","properties":{"x":{"type":["null","string"],"default":"a,b"}},"required":["x","y"]}"#,
    ] {
        let tool = tool(schema);
        assert_eq!(tool.digest, tool.exact, "{schema}");
        assert_eq!(tool.digest, Digest::of(tool.canonical_text().as_bytes()), "{schema}");
    }
}

#[test]
fn a_definition_is_put_into_the_order_that_was_pinned_byte_for_byte() {
    for (listed, pinned, want) in [
        (
            r#"{ "type":"object" , "required" : [ "b" ,"a", "c"],"description":"b,a" }"#,
            r#"{"description":"b,a","required":["a","b","c"],"type":"object"}"#,
            r#"{ "type":"object" , "required" : [ "a" ,"b", "c"],"description":"b,a" }"#,
        ),
        (
            r#"{"type":"object","properties":{"x":{"default":"c, b,a"},"y":{"enum":[2,{"k": 1},"\u00e9"]}}}"#,
            r#"{"properties":{"x":{"default":"a, c,b"},"y":{"enum":["é",2,{"k":1}]}},"type":"object"}"#,
            r#"{"type":"object","properties":{"x":{"default":"a, c,b"},"y":{"enum":["\u00e9",2,{"k": 1}]}}}"#,
        ),
        (
            r#"{"type":"object","allOf":[{"required":["a","b"]},{"required":["b","a"]}],"not":{"required":["b","a"]}}"#,
            r#"{"type":"object","allOf":[{"required":["b","a"]},{"required":["b","a"]}],"not":{"required":["a","b"]}}"#,
            r#"{"type":"object","allOf":[{"required":["b","a"]},{"required":["b","a"]}],"not":{"required":["a","b"]}}"#,
        ),
    ] {
        let of = |schema: &str| RawJson::trusted(format!(r#"{{"name":"a","inputSchema":{schema}}}"#));
        let arranged = arrange_like(&of(listed), &of(pinned)).unwrap();
        assert_eq!(arranged.text(), of(want).text());
        assert_eq!(arrange_like(&arranged, &of(pinned)), None, "it is in order now");
    }
}

#[test]
fn long_lists_and_long_ways_cost_no_more_than_their_length() {
    let names =
        |order: &mut dyn Iterator<Item = usize>| order.map(|n| format!("\"{n:05}\"")).collect::<Vec<_>>().join(",");
    let (up, down) = (names(&mut (0..20_000)), names(&mut (0..20_000).rev()));
    let key = "k".repeat(100_000);
    let schema = |list: &str| {
        let inner = format!(r#"{{"properties":{{"{key}":{{"anyOf":[{}1]}}}}}}"#, r#"{"enum":[2,1]},"#.repeat(2000));
        format!(r#"{{"type":"object","required":[{list}],"not":{inner}}}"#)
    };
    let (one, other) = (tool(&schema(&up)), tool(&schema(&down)));
    assert_eq!(one.digest, other.digest);
    assert_eq!(other.pinned_as(one.digest, &one.canonical_text()).raw, one.raw);
}

/// Generates a schema, and the same schema with its loose lists in another order.
fn schemas() -> impl Strategy<Value = (String, String)> {
    let names = Just(vec!["\"a\"", "\"b\"", "\"c\"", "\"d\""]);
    let list = (names.clone(), names.prop_shuffle());
    let leaf = list.prop_map(|(one, other)| {
        let of = |list: Vec<&str>| {
            let words = list.join(",").replace('"', "");
            format!(
                r#"{{"type":[{0}],"required":[{0}],"default":"{words}","title":"{{\"required\"}}"}}"#,
                list.join(",")
            )
        };
        (of(one), of(other))
    });
    leaf.prop_recursive(3, 32, 3, |inner| {
        prop::collection::vec(inner, 1..3).prop_map(|inner| {
            let (one, other): (Vec<String>, Vec<String>) = inner.into_iter().unzip();
            let of = |inner: Vec<String>| {
                let inner = inner.join(",");
                format!(
                    r#"{{"anyOf":[{inner}],"properties":{{"type":{{"oneOf":[{inner}]}}}},"const":{{"enum":[2,1]}}}}"#
                )
            };
            (of(one), of(other))
        })
    })
}

proptest! {
    #[test]
    fn any_order_has_one_digest_and_comes_back_as_it_was_pinned((one, other) in schemas()) {
        let (one, other) = (tool(&format!(r#"{{"type":"object","not":{one}}}"#)), tool(&format!(r#"{{"type":"object","not":{other}}}"#)));
        prop_assert_eq!(one.digest, other.digest);
        let shown = other.pinned_as(one.digest, &one.canonical_text());
        prop_assert_eq!(shown.raw.encode(), one.raw.encode());
        prop_assert_eq!(shown.exact, one.exact);
    }
}
