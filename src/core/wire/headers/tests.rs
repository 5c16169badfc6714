use std::borrow::Cow;

use proptest::prelude::*;

use super::{HeaderError, MAX_SAFE_INTEGER, ParamHeaders, decode_value, encode_value, integer};

#[test]
fn values_are_encoded_as_the_specification_shows() {
    let cases: &[(&str, &str, &str)] = &[
        ("plain", "us-west1", "us-west1"),
        ("interior space and tab", "us west\t1", "us west\t1"),
        ("punctuation", "file:///a?b=c%20", "file:///a?b=c%20"),
        ("non-ASCII", "Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        ("padded", " padded ", "=?base64?IHBhZGRlZCA=?="),
        ("leading tab", "\tx", "=?base64?CXg=?="),
        ("newline", "line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("literal sentinel", "=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("overlapping markers", "=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
        ("start of a sentinel only", "=?base64?x", "=?base64?x"),
        ("other case of the sentinel", "=?BASE64?x?=", "=?BASE64?x?="),
        ("empty", "", "=?base64??="),
        ("nul", "\0", "=?base64?AA==?="),
        ("delete", "\u{7f}", "=?base64?fw==?="),
    ];
    for (label, value, header) in cases {
        assert_eq!(encode_value(value), *header, "{label}");
        assert_eq!(decode_value(header.as_bytes()), Ok(Cow::Borrowed(*value)), "{label}");
    }
}

#[test]
fn received_values_are_decoded_or_refused() {
    let cases: &[(&str, &[u8], Result<&str, HeaderError>)] = &[
        ("whitespace around", b" \t fx__echo \t", Ok("fx__echo")),
        ("whitespace around a sentinel", b"  =?base64?ZnhfX2VjaG8=?= ", Ok("fx__echo")),
        ("raw empty", b"", Ok("")),
        ("markers overlap", b"=?base64?=", Ok("=?base64?=")),
        ("not in the alphabet", b"=?base64?Znhf!!VjaG8=?=", Err(HeaderError::Base64)),
        ("no padding", b"=?base64?SGVsbG8?=", Err(HeaderError::Base64)),
        ("too much padding", b"=?base64?SGVsbG8==?=", Err(HeaderError::Base64)),
        ("bits behind the end", b"=?base64?QQ1=?=", Err(HeaderError::Base64)),
        ("url alphabet", b"=?base64?_-8=?=", Err(HeaderError::Base64)),
        ("space inside", b"=?base64?QU JD?=", Err(HeaderError::Base64)),
        ("two values", b"=?base64?QQ==?=, =?base64?QQ==?=", Err(HeaderError::Base64)),
        ("not UTF-8 inside", b"=?base64?//79?=", Err(HeaderError::Utf8)),
        ("raw UTF-8", "é".as_bytes(), Err(HeaderError::Character)),
        ("raw Latin-1", b"\xE9", Err(HeaderError::Character)),
        ("control", b"a\x01b", Err(HeaderError::Character)),
        ("carriage return at the edge", b"a\r", Err(HeaderError::Character)),
        ("delete", b"a\x7f", Err(HeaderError::Character)),
    ];
    for (label, header, expected) in cases {
        assert_eq!(decode_value(header), expected.clone().map(Cow::Borrowed), "{label}");
    }
}

#[test]
fn headers_are_made_of_the_arguments_that_are_present() {
    type Case<'a> = (&'a str, Option<&'a str>, &'a [(&'a str, &'a str)]);
    let cases: &[Case<'_>] = &[
        ("no arguments", None, &[]),
        ("null arguments", Some("null"), &[]),
        ("empty", Some(" {} "), &[]),
        ("all null", Some(r#"{"region":null,"n":null,"in":null,"flag":null}"#), &[]),
        ("text", Some(r#"{"other":[{"region":"no"}],"region":"us-west1"}"#), &[("Region", "us-west1")]),
        ("escaped key and value", Some(r#"{"reg\u0069on":"a\nb"}"#), &[("Region", "=?base64?YQpi?=")]),
        ("empty text", Some(r#"{"region":""}"#), &[("Region", "=?base64??=")]),
        ("integer", Some(r#"{"n": -7 }"#), &[("N", "-7")]),
        ("integer in other words", Some(r#"{"n":4.20e1}"#), &[("N", "42")]),
        ("boolean", Some(r#"{"flag":false}"#), &[("Flag", "false")]),
        ("nested", Some(r#"{"in":{"x":1,"deep":"d"}}"#), &[("Deep", "d")]),
        ("nested null", Some(r#"{"in":{"deep":null}}"#), &[]),
        ("parent is no object", Some(r#"{"in":[{"deep":"d"}]}"#), &[]),
        (
            "wrong type but expressible",
            Some(r#"{"region":5,"n":"x","flag":"true"}"#),
            &[("Region", "5"), ("N", "x"), ("Flag", "true")],
        ),
    ];
    for (label, arguments, expected) in cases {
        let expected: Vec<_> = expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(sample().values(*arguments), Ok(expected), "{label}");
    }
}

#[test]
fn arguments_without_header_form_are_refused() {
    let argument = |name: &str| HeaderError::Argument { name: name.into() };
    let cases: &[(&str, &str, HeaderError)] = &[
        ("object", r#"{"region":{}}"#, argument("Mcp-Param-Region")),
        ("array", r#"{"region":["a"]}"#, argument("Mcp-Param-Region")),
        ("fraction", r#"{"n":1.5}"#, argument("Mcp-Param-N")),
        ("beyond the safe range", r#"{"n":9007199254740992}"#, argument("Mcp-Param-N")),
        ("lone surrogate", r#"{"region":"\ud800"}"#, argument("Mcp-Param-Region")),
        ("key twice", r#"{"region":"a","r\u0065gion":"a"}"#, HeaderError::Arguments),
        ("not an object", r#"["region"]"#, HeaderError::Arguments),
        ("not JSON", r#"{"region":}"#, HeaderError::Arguments),
        ("two objects", r#"{}{}"#, HeaderError::Arguments),
    ];
    for (label, arguments, expected) in cases {
        assert_eq!(sample().values(Some(arguments)), Err(expected.clone()), "{label}");
        let found = sample().check(Some(arguments), |_| Some(b"x"));
        assert!(found.is_err(), "{label}: {found:?}");
    }
}

#[test]
fn client_headers_are_compared_with_the_arguments() {
    let missing = |name: &str| Err(HeaderError::Missing { name: name.into() });
    let unexpected = |name: &str| Err(HeaderError::Unexpected { name: name.into() });
    let mismatch = |name: &str| Err(HeaderError::Mismatch { name: name.into() });
    let region = "Mcp-Param-Region";
    let n = "Mcp-Param-N";
    type Case<'a> = (&'a str, Option<&'a str>, &'a [(&'a str, &'a str)], Result<(), HeaderError>);
    let cases: &[Case<'_>] = &[
        ("nothing", None, &[], Ok(())),
        ("equal", Some(r#"{"region":"us"}"#), &[(region, "us")], Ok(())),
        ("equal, header name in lower case", Some(r#"{"region":"us"}"#), &[("mcp-param-region", " us ")], Ok(())),
        ("equal, encoded without need", Some(r#"{"region":"us"}"#), &[(region, "=?base64?dXM=?=")], Ok(())),
        (
            "equal, empty in both forms",
            Some(r#"{"region":"","in":{"deep":""}}"#),
            &[(region, ""), ("Mcp-Param-Deep", "=?base64??=")],
            Ok(()),
        ),
        ("unknown headers are ignored", Some("{}"), &[("Mcp-Param-Unknown", "x")], Ok(())),
        ("other value", Some(r#"{"region":"us-west1"}"#), &[(region, "eu-west1")], mismatch(region)),
        ("values are case-sensitive", Some(r#"{"region":"us"}"#), &[(region, "US")], mismatch(region)),
        ("bad Base64", Some(r#"{"region":"us"}"#), &[(region, "=?base64?!!!?=")], Err(HeaderError::Base64)),
        ("bad character", Some(r#"{"region":"é"}"#), &[(region, "é")], Err(HeaderError::Character)),
        ("header is missing", Some(r#"{"region":"us"}"#), &[], missing(region)),
        ("header of a null", Some(r#"{"region":null}"#), &[(region, "us")], unexpected(region)),
        ("header of nothing", None, &[(region, "us")], unexpected(region)),
        ("integers are numbers", Some(r#"{"n":42}"#), &[(n, "42.0")], Ok(())),
        ("integers are numbers in the body too", Some(r#"{"n":4.2e1}"#), &[(n, "42")], Ok(())),
        ("other integer", Some(r#"{"n":42}"#), &[(n, "43")], mismatch(n)),
        ("rounded integer", Some(r#"{"n":42}"#), &[(n, "42.00000000000000001")], mismatch(n)),
        ("hexadecimal", Some(r#"{"n":42}"#), &[(n, "0x2A")], mismatch(n)),
        ("text that looks like a number", Some(r#"{"region":"42"}"#), &[(region, "42.0")], mismatch(region)),
        ("boolean", Some(r#"{"flag":true}"#), &[("Mcp-Param-Flag", "true")], Ok(())),
        (
            "boolean in another case",
            Some(r#"{"flag":true}"#),
            &[("Mcp-Param-Flag", "True")],
            mismatch("Mcp-Param-Flag"),
        ),
        ("nested", Some(r#"{"in":{"deep":"d"}}"#), &[("Mcp-Param-Deep", "e")], mismatch("Mcp-Param-Deep")),
    ];
    for (label, arguments, headers, expected) in cases {
        assert_eq!(sample().check(*arguments, find_in(headers)), *expected, "{label}");
    }
}

#[test]
fn integers_are_read_exactly() {
    let cases: &[(&str, Option<i64>)] = &[
        ("0", Some(0)),
        ("-0.0", Some(0)),
        ("0e99999999999999999999", Some(0)),
        ("42", Some(42)),
        ("42.000", Some(42)),
        ("0.00042e5", Some(42)),
        ("4200E-2", Some(42)),
        ("1e15", Some(1_000_000_000_000_000)),
        ("9007199254740991", Some(MAX_SAFE_INTEGER)),
        ("-9007199254740991.0", Some(-MAX_SAFE_INTEGER)),
        ("9007199254740992", None),
        ("9007199254740990.6", None),
        ("1e16", None),
        ("1e999999999", None),
        ("1e-999999999", None),
        ("1e9223372036854775807", None),
        ("4.25e1", None),
        ("", None),
        ("-", None),
        ("+1", None),
        ("042", None),
        (".5", None),
        ("5.", None),
        ("1e", None),
        ("1e+", None),
        ("1e+-1", None),
        ("1 ", None),
        ("Infinity", None),
        ("\u{661}", None),
    ];
    for (input, expected) in cases {
        assert_eq!(integer(input), *expected, "{input:?}");
    }
}

proptest! {
    #[test]
    fn any_text_survives_the_header(value in prop_oneof![any::<String>(), "[ -~\t]{0,12}", "[\0\r\n\t =?bas64A-]{0,20}"]) {
        let header = encode_value(&value);
        prop_assert!(header.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')));
        prop_assert!(!header.is_empty());
        prop_assert_eq!(header.trim_matches([' ', '\t']), header.as_ref());
        prop_assert_eq!(decode_value(header.as_bytes()), Ok(Cow::Borrowed(value.as_str())));
    }

    #[test]
    fn any_header_is_decoded_or_refused(header in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(value) = decode_value(&header) {
            let again = encode_value(&value);
            prop_assert_eq!(decode_value(again.as_bytes()), Ok(value.clone()));
        }
    }

    #[test]
    fn own_headers_pass_the_own_check(
        region in proptest::option::of(any::<String>()),
        n in proptest::option::of(-MAX_SAFE_INTEGER..=MAX_SAFE_INTEGER),
        flag in proptest::option::of(any::<bool>()),
        deep in proptest::option::of("[\0-~]{0,8}"),
    ) {
        let arguments = serde_json::json!({"region": region, "n": n, "flag": flag, "in": {"deep": deep}}).to_string();
        let headers = sample().values(Some(&arguments)).unwrap();
        let sent: Vec<_> = headers.iter().map(|(name, value)| (format!("Mcp-Param-{name}"), value.as_str())).collect();
        let sent: Vec<_> = sent.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        prop_assert_eq!(sample().check(Some(&arguments), find_in(&sent)), Ok(()));
        for left_out in 0..sent.len() {
            let mut fewer = sent.clone();
            fewer.remove(left_out);
            prop_assert!(sample().check(Some(&arguments), find_in(&fewer)).is_err());
        }
    }

    #[test]
    fn any_text_as_schema_or_arguments_is_handled(text in "[{}\\[\\]\",:a x-]{0,40}") {
        let schema = format!(r#"{{"properties":{{"x-mcp-header":{text}}}}}"#);
        drop(ParamHeaders::from_schema(&schema));
        drop(sample().values(Some(&text)));
    }

    #[test]
    fn integers_agree_with_the_float_reading(mantissa in -1_000_000_i64..1_000_000, exponent in -4_i32..8) {
        let text = format!("{mantissa}e{exponent}");
        let float: f64 = text.parse().unwrap();
        let expected = (float.fract() == 0.0).then(|| format!("{float:.0}").parse::<i64>().unwrap());
        prop_assert_eq!(integer(&text), expected);
    }
}

/// A tool that mirrors a text, an integer, a boolean and a nested text.
fn sample() -> ParamHeaders {
    ParamHeaders::from_schema(
        r#"{"type":"object","properties":{
            "region":{"type":"string","x-mcp-header":"Region"},
            "n":{"type":"integer","x-mcp-header":"N"},
            "other":{},
            "flag":{"type":"boolean","x-mcp-header":"Flag"},
            "in":{"type":"object","properties":{"deep":{"type":"string","x-mcp-header":"Deep"}}}}}"#,
    )
    .unwrap()
}

fn find_in<'h>(headers: &'h [(&str, &'h str)]) -> impl Fn(&str) -> Option<&'h [u8]> {
    move |name| headers.iter().find(|(sent, _)| sent.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_bytes())
}
