use crate::wire::headers::{HeaderError, ParamHeaders};

#[test]
fn annotations_are_found_through_properties() {
    type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);
    let cases: &[Case<'_>] = &[
        ("none", r#"{"type":"object","properties":{"a":{"type":"string"}}}"#, &[]),
        ("no object", "true", &[]),
        ("one", r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}"#, &[("A", "a")]),
        (
            "three types",
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"x-mcp-header":"B","type":"integer"},
               "c":{"type":"boolean","x-mcp-header":"x-C_1"}}}"#,
            &[("A", "a"), ("B", "b"), ("x-C_1", "c")],
        ),
        (
            "nested",
            r#"{"properties":{"a":{"type":"object","properties":{"b.c":{"type":"integer","x-mcp-header":"B"}}}}}"#,
            &[("B", "a/b.c")],
        ),
        ("escaped keyword", r#"{"properties":{"a":{"type":"string","x\u002Dmcp-header":"A"}}}"#, &[("A", "a")]),
        ("escaped name", r#"{"properties":{"\u0061":{"type":"string","x-mcp-header":"\u0041"}}}"#, &[("A", "a")]),
        ("property of that name", r#"{"properties":{"x-mcp-header":{"type":"number"}}}"#, &[]),
        ("property of that name elsewhere", r#"{"items":{"properties":{"x-mcp-header":{"type":"null"}}}}"#, &[]),
        ("definition of that name", r#"{"$defs":{"x-mcp-header":{"type":"null"}}}"#, &[]),
        (
            "property named like a keyword",
            r#"{"properties":{"items":{"type":"string","x-mcp-header":"I"}}}"#,
            &[("I", "items")],
        ),
        ("only in a text", r#"{"description":"see x-mcp-header","required":["x-mcp-header"]}"#, &[]),
        (
            "only in data",
            r#"{"default":{"x-mcp-header":1},"enum":[{"x-mcp-header":1}],"const":{"x-mcp-header":1}}"#,
            &[],
        ),
        (
            "beside a reference",
            r##"{"properties":{"a":{"$ref":"#/$defs/a","type":"string","x-mcp-header":"A"}}}"##,
            &[("A", "a")],
        ),
    ];
    for (label, schema, expected) in cases {
        let headers = ParamHeaders::from_schema(schema).unwrap();
        let found: Vec<_> = headers.params().map(|(name, path)| (name.to_owned(), path.join("/"))).collect();
        let expected: Vec<_> = expected.iter().map(|(name, path)| ((*name).to_owned(), (*path).to_owned())).collect();
        assert_eq!(found, expected, "{label}");
        assert_eq!(headers.is_empty(), expected.is_empty(), "{label}");
    }
}

#[test]
fn invalid_annotations_are_refused() {
    let name = |value: &str| format!(r#"{{"properties":{{"a":{{"type":"string","x-mcp-header":{value}}}}}}}"#);
    let kind = |value: &str| format!(r#"{{"properties":{{"a":{{"type":{value},"x-mcp-header":"A"}}}}}}"#);
    let cases = [
        ("empty name", name(r#""""#), HeaderError::Name),
        ("space", name(r#""My Region""#), HeaderError::Name),
        ("colon", name(r#""Region:Primary""#), HeaderError::Name),
        ("line break", name(r#""A\r\nX: y""#), HeaderError::Name),
        ("non-ASCII", name(r#""Région""#), HeaderError::Name),
        ("name is a number", name("1"), HeaderError::Name),
        ("name is null", name("null"), HeaderError::Name),
        ("number", kind(r#""number""#), HeaderError::Type),
        ("object", kind(r#""object""#), HeaderError::Type),
        ("array", kind(r#""array""#), HeaderError::Type),
        ("null", kind(r#""null""#), HeaderError::Type),
        ("several types", kind(r#"["string","null"]"#), HeaderError::Type),
        ("no type", r#"{"properties":{"a":{"x-mcp-header":"A"}}}"#.into(), HeaderError::Type),
        (
            "names differ in case only",
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"Aa"},"b":{"properties":{"c":{"type":"string","x-mcp-header":"aA"}}}}}"#.into(),
            HeaderError::NameTaken { name: "aA".into() },
        ),
        ("keyword twice", r#"{"properties":{"a":{"type":"string","x-mcp-header":"A","x-mcp-header":"B"}}}"#.into(), HeaderError::SchemaKey),
        ("properties twice", r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"}},"prop\u0065rties":{}}"#.into(), HeaderError::SchemaKey),
        ("not JSON", r#"{"properties":{"x-mcp-header"}}"#.into(), HeaderError::Schema),
        ("cut off", r#"{"properties":{"a":{"type":"string","x-mcp-header":"A""#.into(), HeaderError::Schema),
        ("on the root", r#"{"type":"string","x-mcp-header":"A"}"#.into(), HeaderError::Unreachable),
    ];
    for (label, schema, expected) in cases {
        assert_eq!(ParamHeaders::from_schema(&schema), Err(expected), "{label}");
    }
}

#[test]
fn annotations_reached_in_another_way_are_refused() {
    let annotated = r#"{"type":"string","x-mcp-header":"A"}"#;
    for keyword in
        ["items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "x-other"]
    {
        for inner in [annotated.to_owned(), format!(r#"{{"properties":{{"b":{annotated}}}}}"#)] {
            for schema in
                [format!(r#"{{"{keyword}":{inner}}}"#), format!(r#"{{"properties":{{"a":{{"{keyword}":{inner}}}}}}}"#)]
            {
                assert_eq!(ParamHeaders::from_schema(&schema), Err(HeaderError::Unreachable), "{schema}");
            }
        }
    }
    for keyword in ["allOf", "anyOf", "oneOf", "prefixItems", "items", "properties", "x-other"] {
        let schema = format!(r#"{{"{keyword}":[{{}},{annotated}]}}"#);
        assert_eq!(ParamHeaders::from_schema(&schema), Err(HeaderError::Unreachable), "{schema}");
    }
    for keyword in ["$defs", "definitions", "patternProperties", "dependentSchemas", "dependencies"] {
        let schema = format!(r#"{{"{keyword}":{{"default":{annotated}}}}}"#);
        assert_eq!(ParamHeaders::from_schema(&schema), Err(HeaderError::Unreachable), "{schema}");
    }
}

#[test]
fn nesting_is_bounded_where_it_matters() {
    let nested =
        |depth: usize, leaf: &str| format!("{}{leaf}{}", r#"{"properties":{"a":"#.repeat(depth), "}}".repeat(depth));
    let annotated = r#"{"type":"string","x-mcp-header":"A"}"#;
    assert_eq!(ParamHeaders::from_schema(&nested(64, annotated)).unwrap().params().count(), 1);
    let too_deep = Err(HeaderError::Depth { limit: 64 });
    assert_eq!(ParamHeaders::from_schema(&nested(65, annotated)), too_deep);
    assert_eq!(ParamHeaders::from_schema(&nested(20_000, annotated)), too_deep);
    let arrays = format!(r#"{{"allOf":{}{annotated}{}}}"#, "[".repeat(20_000), "]".repeat(20_000));
    assert_eq!(ParamHeaders::from_schema(&arrays), too_deep);
    let beside = format!(r#"{{"properties":{{"a":{annotated},"b":{}}}}}"#, nested(20_000, "{}"));
    assert_eq!(ParamHeaders::from_schema(&beside).unwrap().params().count(), 1);
}

#[test]
fn number_of_annotations_is_bounded() {
    let schema = |count: usize| {
        let properties: Vec<_> =
            (0..count).map(|n| format!(r#""p{n}":{{"type":"string","x-mcp-header":"P{n}"}}"#)).collect();
        format!(r#"{{"properties":{{{}}}}}"#, properties.join(","))
    };
    assert_eq!(ParamHeaders::from_schema(&schema(64)).unwrap().params().count(), 64);
    assert_eq!(ParamHeaders::from_schema(&schema(65)), Err(HeaderError::TooMany { limit: 64 }));
}
