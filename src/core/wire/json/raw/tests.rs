use super::*;

fn object(text: &'static str) -> Result<RawObject, serde_json::Error> {
    RawObject::parse(&RawJson::trusted(text))
}

#[test]
fn editing_one_member_leaves_every_other_byte_alone() {
    let mut o = object(r#"{"z":12345678901234567890123 , "name":"a","\u0078": [1, 2.50]}"#).unwrap();
    o.set("name", RawJson::string("b"));
    o.set("new", RawJson::trusted("true"));
    assert_eq!(o.encode().text(), r#"{"z":12345678901234567890123,"name":"b","\u0078":[1, 2.50],"new":true}"#);
    assert_eq!(o.get("x").unwrap().text(), "[1, 2.50]");
    assert_eq!(o.remove("x").unwrap().text(), "[1, 2.50]");
}

#[test]
fn an_object_is_split_where_the_library_splits_it() {
    for text in [
        "{}",
        " { } ",
        r#"{"a":1}"#,
        "{\t\"a\" :\r[1,{\"b\":2}] , \"c\":{\"d\":\"},\"}\n}",
        r#"{"a":"\"","b":"\\","\u0063":null,"d":-1.5e3}"#,
        r#"{"a":{},"b":[],"c":""}"#,
        r#"{"\ud800":1}"#,
        r#"{"a":1,"\ud800":1}"#,
        "[]",
        "\"a\"",
        "1",
        "null",
        "",
        "{",
        r#"{"a"}"#,
        r#"{"a":}"#,
        r#"{"a":1,}"#,
        r#"{,"a":1}"#,
        r#"{"a":1 "b":2}"#,
        r#"{"a":1}}"#,
        r#"{"a":1} 2"#,
        r#"{"a":[}"#,
        r#"{"a":"#,
        r#"{"a":"b"#,
        "{1:2}",
    ] {
        let want = members(text).ok().map(|members| {
            let own = |(key, value): (Cow<'_, str>, &str)| (key.into_owned(), value.to_owned());
            members.into_iter().map(own).collect::<Vec<_>>()
        });
        let split = object(text).ok().map(|object| {
            let own =
                |member: &RawMember| (unescaped(&member.key).unwrap().into_owned(), member.value.text().into_owned());
            object.members.iter().map(own).collect::<Vec<_>>()
        });
        assert_eq!(split, want, "{text}");
    }
}

#[test]
fn a_name_is_found_however_its_key_is_written() {
    let object = object(r#"{"a\u0062":1,"a\\b":2,"ab\"":3,"abc":4}"#).unwrap();
    for (name, value) in [("ab", Some("1")), (r"a\b", Some("2")), ("ab\"", Some("3")), ("abc", Some("4"))] {
        assert_eq!(object.get(name).map(RawJson::text).as_deref(), value, "{name}");
    }
    for name in ["", "a", "abd", "abcd", r"a\\b", r"a\u0062", r#"ab\""#] {
        assert_eq!(object.get(name), None, "{name}");
    }
}

#[test]
fn text_that_is_not_one_value_is_not_taken() {
    for (text, is_json) in [("{}", true), (" [1] ", true), ("{}{}", false), (r#"{"a":x}"#, false), ("", false)] {
        assert_eq!(RawJson::checked(text).is_ok(), is_json, "{text}");
    }
}

#[test]
fn strings_are_read_as_the_library_reads_them() {
    for text in [
        r#""""#,
        r#""plain""#,
        r#""\u0041\n\"""#,
        r#""\ud83d\ude00""#,
        r#""\ud83d""#,
        "\"ä – 日本\"",
        "\"tab\t\"",
        "\"nul\0\"",
        "\"\u{7f}\"",
        "\"a\"b\"",
        "\"",
        "1",
        "null",
        r#"["a"]"#,
    ] {
        let value = RawJson::trusted(text);
        let object = RawObject { members: vec![RawMember::of("a", value)] };
        assert_eq!(object.string("a"), serde_json::from_str::<String>(text).ok(), "{text:?}");
    }
}

#[test]
fn strings_are_written_as_json_writes_them() {
    for text in ["", "plain", "é✓ \u{7f}\u{2028}", "a\"b", "back\\slash", "line\nbreak", "\u{1f}"] {
        assert_eq!(RawJson::string(text).text(), serde_json::to_string(text).unwrap());
    }
}

#[test]
fn duplicate_keys_are_refused_even_when_spelt_with_escapes() {
    assert!(object(r#"{"name":1,"n\u0061me":2}"#).is_err());
    assert!(object("[1]").is_err());
    let many =
        |last: &str| RawJson::trusted((0..50).fold("{".to_owned(), |text, n| text + &format!("\"k{n}\":{n},")) + last);
    assert!(RawObject::parse(&many("\"z\":1}")).is_ok());
    assert!(RawObject::parse(&many("\"\\u006b7\":1}")).is_err());
}

#[test]
fn a_member_that_is_a_string_is_found_without_the_others() {
    for (text, has) in [
        (r#"{"name":"x"}"#, true),
        (r#"{ "a" : {"name":"y"} , "name" : "x" }"#, true),
        (r#"{"n\u0061me":"x"}"#, true),
        (r#"{"a":["name","x"],"b":{"name":"y"}}"#, false),
        (r#"{"a":"name","version":"x"}"#, false),
        (r#"{"name":["x"]}"#, false),
        (r#"{"name":7,"name":"x"}"#, false),
        (r#"["name"]"#, false),
        (r#""name""#, false),
        ("{}", false),
    ] {
        assert_eq!(RawJson::trusted(text).has_string("name"), has, "{text}");
    }
}

#[test]
fn kept_members_are_written_where_an_object_begins() {
    let object = RawObject::parse(&RawJson::trusted(r#"{"a":1, "b" : [2],"c\n":"3"}"#)).unwrap();
    for (kept, want) in [("", "x"), ("b", r#"x{"b":[2]"#), ("a c\n", r#"x{"a":1,"c\n":"3""#)] {
        let mut out = b"x".to_vec();
        object.write_kept(&mut out, 1, |name| kept.split(' ').any(|part| part == name));
        assert_eq!(String::from_utf8(out).unwrap(), want, "{kept:?}");
    }
}
