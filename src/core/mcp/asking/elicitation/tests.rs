use super::*;
use crate::mcp::asking::input_error::BadAddress::{
    Host, Loopback, Malformed, Number, Own as Ours, Private, Scheme, UserInfo,
};
use crate::mcp::asking::kinds::InputKinds;

fn terms() -> ElicitationTerms {
    let own =
        OwnListeners { ports: vec![7777], names: vec!["gate.example.com".to_owned(), "hub.example:8443".to_owned()] };
    ElicitationTerms {
        own,
        ..ElicitationTerms::for_tests(InputKinds { form: true, url: true, ..InputKinds::default() })
    }
}

fn object(text: impl Into<bytes::Bytes>) -> RawObject {
    RawObject::parse(&RawJson::trusted(text)).unwrap()
}

/// Passes an elicitation of a URL and returns the URL that a client gets.
fn opened(url: &str, terms: &ElicitationTerms) -> Result<String, InputError> {
    let params =
        format!(r#"{{"mode":"url","message":"Go","url":{},"elicitationId":"e"}}"#, RawJson::string(url).text());
    let mut params = object(params);
    check_elicitation(&mut params, terms).map(|()| params.string("url").unwrap())
}

#[test]
fn only_safe_addresses_are_opened() {
    for (url, want) in [
        ("https://login.example.org/?a=%2F&b=ä#x", Ok("https://login.example.org/?a=%2F&b=ä#x")),
        ("https://Login.Example.ORG:8443", Ok("https://Login.Example.ORG:8443")),
        ("HTTPS://example.org/", Ok("HTTPS://example.org/")),
        ("https://bücher.example/ä", Ok("https://xn--bcher-kva.example/ä")),
        ("https://\u{430}pple.com:1/x", Ok("https://xn--pple-43d.com:1/x")),
        ("https://ex%61mple.org/", Ok("https://example.org/")),
        ("javascript:alert(1)", Err(Scheme)),
        ("data:text/html,x", Err(Scheme)),
        ("file:///etc/passwd", Err(Scheme)),
        ("ssh://example.org/", Err(Scheme)),
        ("vscode://x/y", Err(Scheme)),
        ("http://example.org/", Err(Scheme)),
        ("blob:https://example.org/x", Err(Scheme)),
        ("https:example.org", Err(Malformed)),
        ("https:/example.org", Err(Malformed)),
        ("https:///example.org", Err(Malformed)),
        ("/relative", Err(Malformed)),
        ("", Err(Malformed)),
        (" https://example.org/", Err(Malformed)),
        ("https://example.org/\u{1b}[2J", Err(Malformed)),
        ("https://example.org/\n", Err(Malformed)),
        ("https://exam\tple.org/", Err(Malformed)),
        ("https://example.org/\u{200b}gpj", Err(Malformed)),
        ("https://good.example\\@evil.example/", Err(Malformed)),
        ("https://localhost../", Err(Malformed)),
        ("https://printer.local../", Err(Malformed)),
        ("https://example..org/", Err(Malformed)),
        ("https://.example.org/", Err(Malformed)),
        ("https://./", Err(Malformed)),
        ("https://127.0.0.1../", Err(Malformed)),
        ("https://example\u{3002}\u{3002}org/", Err(Malformed)),
        ("https://user@example.org/", Err(UserInfo)),
        ("https://user:pw@example.org/", Err(UserInfo)),
        ("https://@example.org/", Err(UserInfo)),
        ("https://93.184.216.34/", Err(Number)),
        ("https://1572395042/", Err(Number)),
        ("https://0x5db8d822/", Err(Number)),
        ("https://0135.0270.0330.042/", Err(Number)),
        ("https://169.254.169.254/", Err(Number)),
        ("https://0.0.0.0/", Err(Number)),
        ("https://[2001:db8::1]/", Err(Number)),
        ("https://[::ffff:10.0.0.1]/", Err(Number)),
        ("https://[::]/", Err(Number)),
        ("https://intranet/", Err(Private)),
        ("https://wiki.corp.internal/", Err(Private)),
        ("https://printer.local./", Err(Private)),
        ("https://gate.example.com/approve", Err(Ours)),
        ("https://GATE.example.com.:1/", Err(Ours)),
        ("https://hub.example:8443/", Err(Ours)),
        ("https://hub.example/", Ok("https://hub.example/")),
        ("http://localhost:3000/cb?x=1", Ok("http://localhost:3000/cb?x=1")),
        ("http://127.0.0.1:3000/", Ok("http://127.0.0.1:3000/")),
        ("http://2130706433:3000/", Ok("http://127.0.0.1:3000/")),
        ("http://[::1]:3000/", Ok("http://[::1]:3000/")),
        ("https://app.localhost/", Ok("https://app.localhost/")),
        ("http://localhost:7777/", Err(Ours)),
        ("http://LOCALHOST.:7777/", Err(Ours)),
        ("http://127.9.9.9:7777/", Err(Ours)),
        ("http://0x7f.1:7777/", Err(Ours)),
        ("http://[::1]:7777/", Err(Ours)),
        ("http://[::ffff:127.0.0.1]:7777/", Err(Ours)),
        ("http://ⓛocalhost:7777/", Err(Ours)),
    ] {
        assert_eq!(opened(url, &terms()), want.map(str::to_owned).map_err(InputError::Address), "{url}");
    }
}

#[test]
fn loopback_is_for_those_on_this_machine_and_hosts_are_the_operators_choice() {
    let remote = ElicitationTerms { on_this_machine: false, ..terms() };
    for url in ["http://localhost:3000/", "https://127.0.0.1/", "http://[::1]/", "http://2130706433/"] {
        assert_eq!(opened(url, &remote), Err(InputError::Address(Loopback)), "{url}");
    }
    assert!(opened("https://example.org/", &remote).is_ok());
    let hosts = ["example.org", "*.bücher.example", "wiki.corp.internal"].map(|host| HostPattern::parse(host).unwrap());
    let elicit = ElicitationSettings { hosts: Some(hosts.to_vec()), secrets: false };
    let chosen = ElicitationTerms { elicit, ..terms() };
    for (url, want) in [
        ("https://example.org/", true),
        ("https://EXAMPLE.org./", true),
        ("https://wiki.corp.internal/", true),
        ("https://a.xn--bcher-kva.example/", true),
        ("https://bücher.example/", false),
        ("https://notexample.org/", false),
        ("https://a.example.org/", false),
        ("https://example.org.evil.example/", false),
        ("http://localhost:3000/", false),
    ] {
        assert_eq!(opened(url, &chosen).is_ok(), want, "{url}: {:?}", opened(url, &chosen));
    }
    assert_eq!(opened("https://evil.example/", &chosen), Err(InputError::Address(Host)));
    assert_eq!(HostPattern::parse("*.Bücher.example").unwrap().to_string(), "*.xn--bcher-kva.example");
    for bad in [
        "",
        "*",
        "*.*.org",
        "https://x.org",
        "x.org:1",
        "10.0.0.1",
        "*.127.0.0.1",
        "[::2]",
        "a b",
        "x/y",
        "a..b",
        "*..org",
        ".",
    ] {
        assert_eq!(HostPattern::parse(bad), None, "{bad}");
    }
}

/// Passes an elicitation of a form and returns its parameters as a client gets them.
fn asked(message: &str, fields: &str) -> Result<RawObject, InputError> {
    let params = format!(
        r#"{{"message":{},"requestedSchema":{{"type":"object","properties":{fields}}}}}"#,
        RawJson::string(message).text()
    );
    let mut params = object(params);
    check_elicitation(&mut params, &terms()).map(|()| params)
}

#[test]
fn the_label_stands_first_and_last_and_text_cannot_move_it() {
    for (label, message, want) in [
        ("one line", "Which?", "[git] Which? [git]"),
        ("lines", "a\r\nb", "[git] a\nb\n[git]"),
        ("blank lines", "a\n\n\n \n\t\nb\n\n", "[git] a\n\nb\n[git]"),
        ("a return", "a\r[files] b", "[git] a\\r[files] b [git]"),
        ("a terminal", "\u{1b}[2J\u{9b}H", "[git] \\u{1b}[2J\\u{9b}H [git]"),
        ("separators", "a\u{2028}b\u{b}c", "[git] a\\u{2028}b\\u{b}c [git]"),
        ("hidden", "a\u{200b}\u{e0041}b", "[git] a\\u{200b}\\u{e0041}b [git]"),
        ("other scripts", "Quel nom ? 名前は？ ❤\u{fe0f}", "[git] Quel nom ? 名前は？ ❤\u{fe0f} [git]"),
    ] {
        assert_eq!(asked(message, "{}").unwrap().string("message").unwrap(), want, "{label}");
    }
    let lines = |message: &str| asked(message, "{}").unwrap().string("message").unwrap();
    let feeds = lines(&format!("a{}b", "\n".repeat(60)));
    assert_eq!(feeds, "[git] a\n\nb\n[git]");
    let many = lines(&(0..500).map(|n| format!("{n}\n")).collect::<String>());
    assert_eq!(many.lines().count(), 26);
    assert!(many.ends_with("\n(476 more lines are not shown.)\n[git]"), "{many}");
    let long = lines(&"\u{200b}".repeat(100_000));
    assert!(long.len() < 4200 && long.ends_with("\n[git]"), "{} bytes", long.len());
}

#[test]
fn the_texts_of_a_form_are_escaped_and_its_values_are_seen_as_they_are() {
    let fields = r#"{"a":{"type":"string","title":"x\u001b[2J\ny","description":"l\n\n\n\nm\u200b","default":"one\ntwo"},
        "b":{"type":"string","enum":["p","q"],"enumNames":["P\nP","Q\u2028R"]}}"#;
    let schema = asked("m", fields).unwrap().get("requestedSchema").unwrap().text().into_owned();
    for want in
        [r#""x\\u{1b}[2J\\ny""#, r#""l\n\nm\\u{200b}""#, r#""one\ntwo""#, r#"["p","q"]"#, r#"["P\\nP","Q\\u{2028}R"]"#]
    {
        assert!(schema.contains(want), "{want}: {schema}");
    }
    for fields in [
        r#"{"a\u200bb":{"type":"string"}}"#,
        r#"{"a":{"type":"string","enum":["p","p\u200b"]}}"#,
        r#"{"a":{"type":"string","enum":["p\n\n\nq"]}}"#,
        r#"{"a":{"type":"string","default":"x\u001b"}}"#,
        r#"{"a":{"type":"string","oneOf":[{"const":"\u3164","title":"x"}]}}"#,
    ] {
        assert_eq!(asked("m", fields).map(drop), Err(InputError::Unreadable), "{fields}");
    }
}

#[test]
fn forms_that_copy_ours_or_ask_for_secrets_are_declined() {
    let ours = r#"{"x":{"type":"string","enum":["once","session","deny"]}}"#;
    let titled = r#"{"x":{"type":"string","oneOf":[{"const":"a","title":"Deny"},{"const":"b","title":"Allow once"}]}}"#;
    let listed = r#"{"x":{"type":"array","items":{"enum":["deny","once","session"]}},"y":{"type":"string"}}"#;
    let key = r#"{"decision":{"type":"string","enum":["yes","no"]}}"#;
    let joined = r#"{"x":{"type":"string","oneOf":[{"const":"a","title":"Deny"},{"const":"b","title":"Allow-once"}]}}"#;
    let values = r#"{"x":{"type":"string","enum":["o-n-c-e","session.","deny"]}}"#;
    let yes = r#"{"x":{"type":"string","oneOf":[{"const":"a","title":"No"},{"const":"b","title":"Yes, once"}]}}"#;
    let asks =
        r#"{"x":{"type":"string","title":"Allow this call?","enum":["yes","no"]},"y":{"type":"string","enum":["a"]}}"#;
    for fields in [ours, titled, listed, key, joined, values, yes, asks] {
        assert_eq!(asked("m", fields).map(drop), Err(InputError::Imitates), "{fields}");
    }
    for fields in [
        r#"{"x":{"type":"string","format":"password"}}"#,
        r#"{"x":{"type":"string","format":"pass\u0077ord"}}"#,
        r#"{"userPassword":{"type":"string"}}"#,
        r#"{"x":{"type":"string","title":"Your API key"}}"#,
        r#"{"x":{"title":"密码"}}"#,
        r#"{"token":{"anyOf":[{"type":"string"},{"type":"null"}],"title":"Access token"}}"#,
        r#"{"a":{"type":"boolean"},"private_key":{"type":["string","null"]}}"#,
        r#"{"x":{"type":"string","description":"Enter your password to go on."}}"#,
    ] {
        assert_eq!(asked("m", fields).map(drop), Err(InputError::Secret), "{fields}");
    }
    let (text, yes) = (r#"{"x":{"type":"string"}}"#, r#"{"x":{"type":"boolean"}}"#);
    let message = "Your session is over. Please type the password of your account here.";
    assert_eq!(asked(message, text).map(drop), Err(InputError::Secret));
    assert_eq!(asked(message, yes).map(drop), Ok(()), "no field can hold it");
    assert_eq!(asked("Never enter a password here. Which file?", text).map(drop), Ok(()));
    for fields in [
        r#"{"who":{"type":"string","title":"Name"}}"#,
        r#"{"decision":{"type":"string"},"x":{"type":"string","enum":["once","often"]}}"#,
        r#"{"secret":{"type":"boolean","title":"Keep it secret"}}"#,
        r#"{"secret":{"type":"string","enum":["a","b"]}}"#,
        r#"{"password_length":{"type":"integer"}}"#,
    ] {
        assert_eq!(asked("m", fields).map(drop), Ok(()), "{fields}");
    }
    let nested = r#"{"x":{"type":"object","properties":{"password":{"type":"string"}}}}"#;
    assert_eq!(asked("m", nested).map(drop), Err(InputError::Malformed));
    let mut params = RawObject::parse(&RawJson::trusted(
        r#"{"message":"m","requestedSchema":{"type":"object","properties":{"password":{"type":"string"}}}}"#,
    ))
    .unwrap();
    let trusting = ElicitationTerms { elicit: ElicitationSettings { secrets: true, hosts: None }, ..terms() };
    assert_eq!(check_elicitation(&mut params, &trusting), Ok(()));
}

/// Passes an elicitation with this schema.
fn judged(schema: &str) -> Result<(), InputError> {
    let mut params = object(format!(r#"{{"message":"Run files__delete","requestedSchema":{schema}}}"#));
    check_elicitation(&mut params, &terms())
}

#[test]
fn no_text_of_a_form_reads_as_our_question_or_as_its_answers() {
    let fields = |fields: &str| format!(r#"{{"type":"object","properties":{fields}}}"#);
    let yes = |shown: &str| fields(&format!(r#"{{"c":{{"enum":["a","b"],"enumNames":["{shown}","No"]}}}}"#));
    for schema in [
        r#"{"title":"Allow this call?","properties":{"c":{"type":"boolean"}}}"#.to_owned(),
        r#"{"title":"Allow this call?","properties":{"c":{"type":"string","enum":["y","n"]}}}"#.to_owned(),
        r#"{"title":"Allow this call?"}"#.to_owned(),
        r#"{"description":"Allow this call?","properties":{"c":{"type":"boolean"}}}"#.to_owned(),
        fields(r#"{"c":{"type":"boolean","title":"Allow this call?"}}"#),
        fields(r#"{"c":{"type":"boolean","description":"Allow this call?"}}"#),
        fields(r#"{"Allow this call?":{"type":"boolean"}}"#),
        fields(r#"{"c":{"type":"string","title":"\u0391LLOW TH\u0399S CALL?","enum":["x","y"]}}"#),
        yes("YES, \u{41e}NCE"),
        yes("YES, O\u{39d}CE"),
        yes("\u{3a5}es, once"),
        yes("Yes,\u{200b}once"),
        yes("\u{410}LL\u{41e}W ON\u{421}E"),
        fields(r#"{"c":{"type":"string","enum":["once","session","deny","hour"]}}"#),
        fields(r#"{"dec\u0456sion":{"type":"string","enum":["a","b"]}}"#),
        fields(r#"{"decision_":{"type":"string","enum":["a","b"]}}"#),
    ] {
        assert_eq!(judged(&schema), Err(InputError::Imitates), "{schema}");
    }
    for schema in [
        r#"{"title":"Allow calls","properties":{"c":{"type":"boolean"}}}"#.to_owned(),
        fields(r#"{"c":{"type":"boolean","title":"Allow this"}}"#),
        fields(r#"{"c":{"type":"string","enum":["once","daily","deny"]}}"#),
        yes("Yes, always"),
    ] {
        assert_eq!(judged(&schema), Ok(()), "{schema}");
    }
}

#[test]
fn a_number_or_a_remark_in_brackets_makes_no_secret_harmless() {
    for fields in [
        r#"{"pin":{"type":"integer","title":"Password"}}"#,
        r#"{"password":{"type":"number"}}"#,
        r#"{"password (of the database)":{"type":"string"}}"#,
        r#"{"a":{"type":"string","title":"Password of the database"}}"#,
        r#"{"a":{"type":"string","title":"API \u041aEY"}}"#,
        r#"{"api_token":{"type":"string"}}"#,
        r#"{"ssh_key":{"type":"string"}}"#,
        r#"{"aws_secret_access_key":{"type":"string"}}"#,
    ] {
        assert_eq!(asked("m", fields).map(drop), Err(InputError::Secret), "{fields}");
    }
    for fields in [
        r#"{"token_budget":{"type":"integer","title":"Token budget"}}"#,
        r#"{"tokens":{"type":"integer"}}"#,
        r#"{"key":{"type":"string","title":"Primary key of the table"}}"#,
        r#"{"keyboard":{"type":"string"}}"#,
        r#"{"page_token":{"type":"string"}}"#,
    ] {
        assert_eq!(asked("m", fields).map(drop), Ok(()), "{fields}");
    }
    let number = r#"{"x":{"type":"integer"}}"#;
    assert_eq!(asked("Enter your PIN code", number).map(drop), Err(InputError::Secret));
}

#[test]
fn a_text_field_for_a_secret_is_no_choice_because_it_says_so() {
    for (field, want) in [
        (r#"{"type":"string","items":{"enum":["a"]}}"#, InputError::Secret),
        (r#"{"type":"string","enum":[]}"#, InputError::Secret),
        (r#"{"type":"string","oneOf":[]}"#, InputError::Secret),
        (r#"{"type":"array","items":{"type":"string"}}"#, InputError::Secret),
        (r#"{"type":"array","items":{"enum":[]}}"#, InputError::Secret),
        (r#"{"type":"number","anyOf":[{"type":"string"}]}"#, InputError::Secret),
        (r#"{"type":"array","enum":["a"],"items":{"type":"string"}}"#, InputError::Malformed),
        (r#"{"type":"string","enum":null}"#, InputError::Malformed),
        (r#"{"type":"string","enum":"x"}"#, InputError::Malformed),
        (r#"{"type":"string","anyOf":{}}"#, InputError::Malformed),
        (r#"{"type":"array","items":["a"]}"#, InputError::Malformed),
    ] {
        assert_eq!(asked("m", &format!(r#"{{"password":{field}}}"#)).map(drop), Err(want), "{field}");
    }
    assert_eq!(asked("m", r#"{"password":{"type":"array","items":{"enum":["a"]}}}"#).map(drop), Ok(()));
}

#[test]
fn what_is_not_judged_of_a_form_does_not_reach_the_client() {
    let schema = |text: &str| {
        let mut params = object(format!(r#"{{"message":"m","requestedSchema":{text}}}"#));
        check_elicitation(&mut params, &terms()).map(|()| params.get("requestedSchema").unwrap().text().into_owned())
    };
    for (label, sent, want) in [
        (
            "a form",
            r#"{"type":"object","properties":{},"$defs":{"a":1},"x":"y"}"#,
            r#"{"type":"object","properties":{}}"#,
        ),
        (
            "a field",
            r#"{"properties":{"a":{"type":"string","x-hint":"y","uniqueItems":true}}}"#,
            r#"{"properties":{"a":{"type":"string"}}}"#,
        ),
        (
            "items of no list",
            r#"{"properties":{"a":{"items":{"enum":["deny","once","session"]}}}}"#,
            r#"{"properties":{"a":{}}}"#,
        ),
        (
            "items and choices",
            r#"{"properties":{"a":{"type":"array","items":{"title":"t","anyOf":[{"const":"p","title":"P","x":1}]}}}}"#,
            r#"{"properties":{"a":{"type":"array","items":{"anyOf":[{"const":"p","title":"P"}]}}}}"#,
        ),
    ] {
        assert_eq!(schema(sent).as_deref(), Ok(want), "{label}");
    }
    let refused = |text: &str, want: InputError| assert_eq!(schema(text).map(drop), Err(want), "{text}");
    refused(r#"{"type":"object","allOf":[{"properties":{"password":{"type":"string"}}}]}"#, InputError::Malformed);
    refused(r##"{"$ref":"#/$defs/a","$defs":{"a":{}}}"##, InputError::Malformed);
    for (field, want) in [
        (r##"{"$ref":"#/$defs/a"}"##, InputError::Malformed),
        (r#"{"allOf":[{"type":"string","title":"Password"}]}"#, InputError::Malformed),
        (r#"{"type":"array","items":{"type":"string","format":"password"}}"#, InputError::Secret),
        (r#"{"anyOf":[{"type":"string","format":"password","title":"Password"}]}"#, InputError::Malformed),
        (r#"{"anyOf":[{"type":"string"},{"const":"a"}]}"#, InputError::Malformed),
        (r#"{"anyOf":[{"type":"object"}]}"#, InputError::Malformed),
        (r#"{"oneOf":["a"]}"#, InputError::Malformed),
        (
            r#"{"type":"string","enum":["x"],"oneOf":[{"const":"deny"},{"const":"once","title":"Allow once"},{"const":"session"}]}"#,
            InputError::Malformed,
        ),
        (r#"{"type":"string","oneOf":[{"const":"a"}],"anyOf":[{"const":"a"}]}"#, InputError::Malformed),
        (r#"{"type":"string","title":{"a":"b"}}"#, InputError::Malformed),
        (r#"{"type":"string","default":{"a":"b"}}"#, InputError::Malformed),
        (r#"{"type":"string","enum":[["a"]]}"#, InputError::Malformed),
        (r#"{"type":"string","enum":["a"],"enumNames":"b"}"#, InputError::Malformed),
    ] {
        refused(&format!(r#"{{"properties":{{"x":{field}}}}}"#), want);
    }
}

#[test]
fn a_form_of_every_kind_that_the_protocol_knows_passes_untouched() {
    for field in [
        r#"{"type":"string","title":"A","description":"B","minLength":1,"maxLength":9,"format":"email","default":"a@b"}"#,
        r#"{"type":"string","pattern":"^a+$"}"#,
        r#"{"type":"integer","minimum":0,"maximum":9,"default":3}"#,
        r#"{"type":"number","title":"A","default":0.5}"#,
        r#"{"type":"boolean","default":true}"#,
        r#"{"type":"string","enum":["a","b"],"default":"a"}"#,
        r#"{"type":"string","enum":["a","b"],"enumNames":["A","B"]}"#,
        r#"{"type":"string","oneOf":[{"const":"a","title":"A"},{"const":"b","title":"B"}],"default":"b"}"#,
        r#"{"type":"array","minItems":1,"maxItems":2,"items":{"type":"string","enum":["a","b"]},"default":["a"]}"#,
        r#"{"type":"array","items":{"anyOf":[{"const":"a","title":"A"}]},"title":"T","default":["a"]}"#,
        r#"{"type":"array","items":{"type":"string"}}"#,
        r#"{"anyOf":[{"type":"string"},{"type":"null"}],"default":null}"#,
    ] {
        let schema = format!(
            r#"{{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","title":"T","description":"D","properties":{{"x":{field}}},"required":["x"]}}"#
        );
        let mut params = object(format!(r#"{{"message":"m","requestedSchema":{schema}}}"#));
        assert_eq!(check_elicitation(&mut params, &terms()), Ok(()), "{field}");
        assert_eq!(params.get("requestedSchema").unwrap().text(), schema);
    }
}

#[test]
fn no_text_of_a_form_is_without_a_bound() {
    let long = "x".repeat(100_000);
    for member in [r"title", r"\u0074itle", r"description", r"descriptio\u006e"] {
        let fields = format!(r#"{{"a":{{"type":"string","{member}":"{long}"}}}}"#);
        let shown = asked("m", &fields).unwrap().encode().bytes().len();
        assert!(shown < 2000, "{member}: {shown} bytes");
    }
    let names = format!(r#"{{"a":{{"type":"string","enum":["b"],"enu\u006dNames":["{long}"]}}}}"#);
    assert!(asked("m", &names).unwrap().encode().bytes().len() < 2000);
    for (fields, want) in [
        (format!(r#"{{"{long}":{{"type":"string"}}}}"#), InputError::Malformed),
        (format!(r#"{{"a":{{"type":"string","enum":["{long}"]}}}}"#), InputError::Malformed),
        (format!(r#"{{"a":{{"type":"array","items":{{"enum":["{long}"]}}}}}}"#), InputError::Malformed),
        (format!(r#"{{"a":{{"oneOf":[{{"const":"{long}","title":"b"}}]}}}}"#), InputError::Malformed),
        (format!(r#"{{"a":{{"type":"string","default":"{long}"}}}}"#), InputError::Unreadable),
        (format!(r#"{{"a":{{"type":"string","format":"{long}"}}}}"#), InputError::Unreadable),
        (format!(r#"{{"a":{{"type":"string","pattern":"{long}"}}}}"#), InputError::Unreadable),
    ] {
        let label: String = fields.chars().take(40).collect();
        assert_eq!(asked("m", &fields).map(drop), Err(want), "{label}");
    }
    let many = |count: usize| {
        let fields: Vec<String> = (0..count).map(|n| format!(r#""f{n}":{{"type":"string"}}"#)).collect();
        asked("m", &format!("{{{}}}", fields.join(","))).map(drop)
    };
    assert_eq!(many(64), Ok(()));
    assert_eq!(many(65), Err(InputError::Malformed));
}

#[test]
fn members_of_the_other_mode_reach_nobody() {
    let raw = r#"{"message":"m","url":"javascript:1","requestedSchema":{"type":"object","properties":{}}}"#;
    let mut params = object(raw);
    check_elicitation(&mut params, &terms()).unwrap();
    assert!(params.get("url").is_none() && params.get("requestedSchema").is_some());
    for mode in ["\"other\"", "1", "null"] {
        let raw = format!(r#"{{"mode":{mode},"message":"m","url":"https://x.example/"}}"#);
        let mut params = object(raw);
        assert_eq!(check_elicitation(&mut params, &terms()), Err(InputError::Malformed), "{mode}");
    }
}
