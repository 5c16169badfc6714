use super::*;

fn project(text: &'static str, to: Revision) -> String {
    let raw = RawObject::parse(&RawJson::trusted(text)).unwrap();
    project_definition(ItemList::Tools, &raw, "x__t", to, false).encode().text().into_owned()
}

#[test]
fn definitions_lose_what_an_older_revision_does_not_know() {
    const TOOL: &str = r#"{"name":"t","title":"T","icons":[],"inputSchema":{"type":"object","$defs":{"a":{}}},"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"execution":{},"_meta":{"v":1},"x-vendor":9}"#;
    for (to, want) in [
        (
            Revision::V2026_07_28,
            r#"{"name":"x__t","title":"T","icons":[],"inputSchema":{"type":"object","$defs":{"a":{}}},"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"_meta":{"v":1},"x-vendor":9}"#,
        ),
        (
            Revision::V2025_06_18,
            r#"{"name":"x__t","title":"T","inputSchema":{"type":"object","$defs":{"a":{}}},"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"_meta":{"v":1},"x-vendor":9}"#,
        ),
        (
            Revision::V2025_03_26,
            r#"{"name":"x__t","inputSchema":{"type":"object","$defs":{"a":{}}},"annotations":{"readOnlyHint":true,"title":"T"},"x-vendor":9}"#,
        ),
        (Revision::V2024_11_05, r#"{"name":"x__t","inputSchema":{"type":"object","$defs":{"a":{}}},"x-vendor":9}"#),
    ] {
        assert_eq!(project(TOOL, to), want, "{to}");
    }
}

#[test]
fn schemas_become_objects_where_a_revision_demands_it() {
    let array = r#"{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"array"}}"#;
    assert!(project(array, Revision::V2025_11_25).contains(r#""properties":{"result":{"type":"array"}}"#));
    assert!(project(array, Revision::V2026_07_28).contains(r#""outputSchema":{"type":"array"}"#));
}

#[test]
fn a_wrapped_schema_keeps_its_references_and_one_that_cannot_is_left_out() {
    for (label, schema, want) in [
        (
            "definitions",
            r##"{"type":"array", "items":{"$ref":"#/$defs/a"},"$defs":{"a":{}},"$schema":"x"}"##,
            Some(
                r##"{"type":"object","properties":{"result":{"type":"array","items":{"$ref":"#/$defs/a"}}},"required":["result"],"$schema":"x","$defs":{"a":{}}}"##,
            ),
        ),
        (
            "several types",
            r#"{"type":["array", "null"]}"#,
            Some(r#"{"type":"object","properties":{"result":{"type":["array", "null"]}},"required":["result"]}"#),
        ),
        ("the root", r##"{"type":"array","items":{"$ref":"#"}}"##, None),
        ("a part of the root", r##"{"type":"array","items":{"$ref":"#\/items"}}"##, None),
        ("its own address", r##"{"$id":"https://a.example/s","type":"array"}"##, None),
        ("no type", r#"{"anyOf":[{"type":"object"},{"type":"array"}]}"#, None),
        ("an object or nothing", r#"{"type":["object","null"]}"#, None),
    ] {
        let tool = format!(r#"{{"name":"t","inputSchema":{{"type":"object"}},"outputSchema":{schema}}}"#);
        let raw = RawObject::parse(&RawJson::trusted(tool)).unwrap();
        let shown = project_definition(ItemList::Tools, &raw, "x__t", Revision::V2025_11_25, false);
        assert_eq!(shown.get("outputSchema").map(|schema| schema.text().into_owned()).as_deref(), want, "{label}");
        let modern = project_definition(ItemList::Tools, &raw, "x__t", Revision::V2026_07_28, false);
        assert_eq!(modern.get("outputSchema").unwrap().text(), schema, "{label}");
    }
}

fn call(text: &'static str, from: Era, to: Revision) -> String {
    project_result(Method::ToolsCall, RawJson::trusted(text), from, to).unwrap().text().into_owned()
}

#[test]
fn results_cross_the_eras_with_the_fewest_changes() {
    let big = r#"{ "b": 12345678901234567890123, "content":[] }"#;
    assert_eq!(call(big, Era::Legacy, Revision::V2025_11_25), big, "same era: not one byte");
    assert_eq!(
        call(big, Era::Legacy, Revision::V2026_07_28),
        r#"{"resultType":"complete", "b": 12345678901234567890123, "content":[] }"#
    );
    assert_eq!(call("{ }", Era::Legacy, Revision::V2026_07_28), r#"{"resultType":"complete" }"#);
    for (label, modern, legacy) in [
        ("in front", r#"{"resultType":"complete","content":[], "b":2.50}"#, r#"{"content":[], "b":2.50}"#),
        ("in front, then a space", r#"{"resultType":"complete", "content":[]}"#, r#"{ "content":[]}"#),
        ("alone", r#"{"resultType":"complete"}"#, "{}"),
        ("not in front", r#"{"content":[],"resultType":"complete"}"#, r#"{"content":[]}"#),
        ("others behind it", r#"{"resultType":"complete","content":[],"ttlMs":1}"#, r#"{"content":[]}"#),
        ("others, escaped", r#"{"resultType":"complete","content":[],"ttl\u004ds":1}"#, r#"{"content":[]}"#),
    ] {
        assert_eq!(call(modern, Era::Modern, Revision::V2025_11_25), legacy, "{label}");
    }
}

#[test]
fn a_modern_client_is_told_that_a_result_is_complete_where_the_server_left_it_out() {
    let cases = [
        ("left out", r#"{ "content":[]}"#, r#"{"resultType":"complete", "content":[]}"#),
        ("nothing at all", "{}", r#"{"resultType":"complete"}"#),
        ("said", r#"{"content":[],"resultType":"complete"}"#, r#"{"content":[],"resultType":"complete"}"#),
        ("asks", r#"{"resultType":"input_required"}"#, r#"{"resultType":"input_required"}"#),
    ];
    for (label, text, wanted) in cases {
        assert_eq!(call(text, Era::Modern, Revision::V2026_07_28), wanted, "{label}");
    }
}

#[test]
fn a_result_is_complete_where_no_reader_finds_another_word() {
    for (text, want) in [
        (r#"{"resultType":"complete"}"#, true),
        (r#"{"resultType":"complete","content":[]}"#, true),
        (r#"{"content":[]}"#, true),
        (r#"{"content":[],"result\u0054ype":"complete"}"#, true),
        (r#"{"resultType":"complete","content":[{"text":"resultType, \u0072esultType"}]}"#, true),
        (r#"{"resultType":"input_required"}"#, false),
        (r#"{"resultType":"complete","resultType":"input_required","requestState":"x"}"#, false),
        (r#"{"resultType":"complete","x":1,"\u0072esultType":"input_required"}"#, false),
        (r#"{"resultType":"complete","result\u0054yp\u0065":"input_required"}"#, false),
        (r#"{"result\u0054ype":"complete","resultType":"input_required"}"#, false),
    ] {
        assert_eq!(is_complete(&RawJson::trusted(text)), want, "{text}");
    }
}

#[test]
fn what_a_legacy_server_says_in_modern_words_never_reaches_a_modern_client() {
    let modern = |text: &'static str| {
        let shown = project_result(Method::ToolsCall, RawJson::trusted(text), Era::Legacy, Revision::V2026_07_28);
        shown.map(|raw| raw.text().into_owned())
    };
    for (text, want) in [
        (
            r#"{"content":[],"resultType":"input_required","inputRequests":{}}"#,
            Some(r#"{"resultType":"complete","content":[],"inputRequests":{}}"#),
        ),
        (
            r#"{"content":[],"\u0072esultType":"input_required","inputRequests":{}}"#,
            Some(r#"{"resultType":"complete","content":[],"inputRequests":{}}"#),
        ),
        (r#"{"content":[],"cach\u0065Scop\u0065":"public"}"#, Some(r#"{"resultType":"complete","content":[]}"#)),
        (r#"{"resultType":"a","resultType":"input_required"}"#, None),
        (r#"{"resultType":"a","r\u0065sultType":"input_required"}"#, None),
        (
            r#"{ "content":[{"text":"ttlMs \u0065 \u00e9"}], "b":2.50 }"#,
            Some(r#"{"resultType":"complete", "content":[{"text":"ttlMs \u0065 \u00e9"}], "b":2.50 }"#),
        ),
    ] {
        assert_eq!(modern(text).as_deref(), want, "{text}");
    }
}

#[test]
fn a_modern_result_with_a_word_twice_reaches_no_legacy_client() {
    let twice = RawJson::trusted(r#"{"resultType":"complete","ttlMs":1,"ttlMs":2}"#);
    assert!(project_result(Method::ToolsCall, twice, Era::Modern, Revision::V2025_11_25).is_none());
    let text = r#"{ "content":[{"text":"resultType"}], "b":2.50 }"#;
    assert_eq!(call(text, Era::Modern, Revision::V2025_11_25), text);
}

#[test]
fn structured_content_keeps_a_text_twin_when_it_goes() {
    let text = r#"{"content":[],"structuredContent":{"a":1}}"#;
    assert_eq!(call(text, Era::Legacy, Revision::V2024_11_05), r#"{"content":[{"type":"text","text":"{\"a\":1}"}]}"#);
    assert_eq!(call(text, Era::Legacy, Revision::V2025_06_18), text);
    assert_eq!(
        call(r#"{"content":[{"type":"text","text":"x"}],"structuredContent":[1]}"#, Era::Modern, Revision::V2025_11_25),
        r#"{"content":[{"type":"text","text":"x"}],"structuredContent":{"result":[1]}}"#
    );
}

#[test]
fn structured_content_that_is_null_is_cut_out_and_every_other_byte_stays() {
    for (text, want) in [
        (r#"{"content":[ 1.0 ],"structuredContent":null}"#, Some(r#"{"content":[ 1.0 ]}"#)),
        (r#"{"structuredContent" : null , "content":[]}"#, Some(r#"{ "content":[]}"#)),
        (r#"{"structuredContent":null}"#, Some("{}")),
        (r#"{"a":1,"structured\u0043ontent":null,"isError":true}"#, Some(r#"{"a":1,"isError":true}"#)),
        (r#"{"content":[],"structuredContent":{"a":null}}"#, None),
        (r#"{"content":[{"structuredContent":null}]}"#, None),
        (r#"{"content":[{"type":"text","text":"structuredContent"}]}"#, None),
    ] {
        let got = without_null_content(&RawJson::trusted(text));
        assert_eq!(got.as_ref().map(RawJson::text).as_deref(), want, "{text}");
    }
}

#[test]
fn results_are_wrapped_where_their_schema_is() {
    for (schema, want) in [
        (r#"{"type":"array"}"#, true),
        (r#"{"type":["array","null"]}"#, true),
        (r#"{"type":"object"}"#, false),
        (r#"{"anyOf":[{}]}"#, false),
    ] {
        let definition = RawObject::of([("outputSchema", RawJson::trusted(schema))]);
        assert_eq!(wraps_results(&definition), want, "{schema}");
    }
    assert!(!wraps_results(&RawObject::default()));
}

#[test]
fn content_blocks_that_a_revision_does_not_know_become_ones_it_knows() {
    let link = r#"{"content":[{"type":"resource_link","uri":"a://b","name":"n"}]}"#;
    assert_eq!(call(link, Era::Legacy, Revision::V2025_03_26), r#"{"content":[{"type":"text","text":"n: a://b"}]}"#);
    let audio = r#"{"content":[{"type":"audio","data":"AA==","mimeType":"audio/wav"}]}"#;
    assert_eq!(call(audio, Era::Legacy, Revision::V2025_03_26), audio);
    assert!(call(audio, Era::Legacy, Revision::V2024_11_05).contains(r#""blob":"AA==""#));
}

#[test]
fn legacy_clients_get_no_name_of_the_server_and_every_other_byte() {
    const INFO: &str = r#""io.modelcontextprotocol/serverInfo": {"name":"s","icons":[{}]}"#;
    let odd = r#""io.modelcontextprotocol\/server\u0049nfo":{"name":"s"}"#;
    let rows = [
        (
            format!(r#"{{"resultType":"complete","content":[ 1.0, "}}" ],"_meta":{{{INFO}}}}}"#),
            r#"{"content":[ 1.0, "}" ]}"#,
        ),
        (format!(r#"{{"resultType":"complete","_meta":{{{INFO}}},"content" : []}}"#), r#"{"content" : []}"#),
        (format!(r#"{{"_meta":{{{INFO}}}}}"#), "{}"),
        (format!(r#"{{"_meta":{{"a":1,{INFO}}},"x":1e2}}"#), r#"{"_meta":{"a":1},"x":1e2}"#),
        (format!(r#"{{"x":1e2,"_meta": {{{INFO},"a" :{{}}}}}}"#), r#"{"x":1e2,"_meta": {"a" :{}}}"#),
        (format!(r#"{{"_meta":{{"a":{{{INFO}}}}},"b":{{"_meta":{{{INFO}}}}}}}"#), ""),
        (format!(r#"{{"x":"{}"}}"#, INFO.replace('"', "\\\"")), ""),
        (format!(r#"{{"x":[],"_meta":{{{odd}}}}}"#), r#"{"x":[]}"#),
        (r#"{"_meta":"serverInfo"}"#.to_owned(), ""),
    ];
    for (text, want) in rows {
        let want = if want.is_empty() { &text } else { want };
        let raw = RawJson::checked(text.clone()).unwrap();
        for to in [Revision::V2024_11_05, Revision::V2025_11_25] {
            let got = project_result(Method::ResourcesRead, raw.clone(), Era::Modern, to).unwrap();
            assert_eq!(got.text(), want, "{to}: {text}");
            assert!(RawJson::checked(got.into_bytes()).is_ok());
        }
        let same = project_result(Method::ResourcesRead, raw, Era::Modern, Revision::V2026_07_28).unwrap();
        assert!(same.text().ends_with(&text[1..]), "modern clients get it: {}", same.text());
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2000))]

    #[test]
    fn one_look_takes_out_what_two_take_out(
        members in proptest::collection::vec((
            proptest::sample::select(vec!["resultType", "ttlMs", "cacheScope", "_meta", "_meta", "content", "a", "b", "\\u0061"]),
            proptest::sample::select(vec![
                "\"complete\"", "1", "{}", "[ {\"_meta\":{}} ]", "{\"io.modelcontextprotocol/serverInfo\":{\"name\":\"s\"}}",
                "{ \"x\" : 1 , \"io.modelcontextprotocol/serverInfo\" : {} }", "\"serverInfo\"",
                "{\"io.modelcontextprotocol/serverInfo\":1,\"y\":{\"resultType\":2}}",
            ]),
        ), 0..7),
        between in proptest::sample::select(vec![",", " , "]),
    ) {
        let members: Vec<String> = members.into_iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        let text = format!("{{{}}}", members.join(between));
        let members = |raw: &RawJson| RawObject::parse(raw).map(|object| object.encode().text().into_owned()).ok();
        if let Some(short) = cut_modern_members_and_info(text.as_bytes()) {
            let long = without_modern_members(without_server_info(RawJson::trusted(text.clone())));
            let short = RawJson::trusted(short);
            proptest::prop_assert_eq!(long.as_ref().and_then(members), members(&short), "{} {}", text, short.text());
        }
    }
}
