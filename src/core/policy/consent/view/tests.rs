use expect_test::{Expect, expect};

use super::*;

fn told(json: &str, bound: usize) -> String {
    ArgumentView::of(json, bound).told(&ViewColours::NONE)
}

fn shows(json: &str, want: &Expect) {
    want.assert_eq(&told(json, 4096));
}

#[test]
fn short_values_come_first_and_each_is_named_by_its_place() {
    shows(
        r#"{"content":"Grüße\n\t下一行 😀\r\nlast\n","path":"/srv/a b","n":1.50e3,"none":null,"deep":{"list":[1,{"x y":"a\"b\\"}],"empty":{}},"a.b":{"":"\u202e"},"long":{"words":"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"}}"#,
        &expect![[r#"
            path: "/srv/a b"
            n: 1.50e3
            none: null
            deep: {"list": [1, {"x y": "a\"b\\"}], "empty": {}}
            ["a.b"]: {"": "\u{202e}"}
            long: {"words": "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"}
            content (3 lines, 30 bytes):
              | Grüße
              | 	下一行 😀\r
              | last
              | 
        "#]],
    );
    for empty in ["{}", "{ }"] {
        assert_eq!(told(empty, 4096), "");
    }
    shows(
        r#"["a",["b"],{}]"#,
        &expect![[r#"
        (all): ["a", ["b"], {}]
    "#]],
    );
    shows(
        r#""alone""#,
        &expect![[r#"
        (all): "alone"
    "#]],
    );
}

#[test]
fn an_edit_is_a_comparison_under_the_names_that_servers_use() {
    shows(
        r#"{"path":"a.rs","edits":[{"oldText":"fn a() {\n    one();\n}\n","newText":"fn a() {\n    two();\n}\n"},{"newText":"x","oldText":"y"}],"dryRun":false}"#,
        &expect![[r#"
            path: "a.rs"
            dryRun: false
            edits[0].oldText -> newText (- is replaced by +):
                | fn a() {
              - |     one();
              + |     two();
                | }
            edits[1].oldText -> newText (- is replaced by +):
              - | y
              + | x
        "#]],
    );
    shows(
        r#"{"old_string":"a","other":1,"new_string":"b"}"#,
        &expect![[r#"
        old_string: "a"
        other: 1
        new_string: "b"
    "#]],
    );
    shows(
        r#"{"old_str":"a\n","x":{"new_str":"b"},"new_str":"a"}"#,
        &expect![[r#"
        x.new_str: "b"
        new_str: "a"
        old_str (2 bytes):
          | a
          | 
    "#]],
    );
    shows(
        r#"{"old_text":"end\n","new_text":"end"}"#,
        &expect![[r#"
        old_text -> new_text (- is replaced by +):
          - | end↵
          + | end
    "#]],
    );
    shows(
        r#"{"old_text":1,"new_text":"x"}"#,
        &expect![[r#"
        old_text: 1
        new_text: "x"
    "#]],
    );
    // Unchanged lines are folded to make room for changed ones.
    let same = "same\\n".repeat(900);
    let long = format!(r#"{{"old_text":"{same}a\n{same}","new_text":"{same}b\n{same}"}}"#);
    expect![[r#"
        old_text -> new_text (- is replaced by +):
          .. 898 lines in both texts
            | same
            | same
          - | a
          + | b
            | same
            | same
          .. 898 lines in both texts
    "#]]
    .assert_eq(&told(&long, 1000));
    assert_eq!(told(&long, 1 << 20).lines().count(), 1803);
}

#[test]
fn what_is_not_text_is_summarised_and_the_rest_of_a_long_text_is_counted() {
    let base64 = data_encoding::BASE64.encode(&(0..=255).collect::<Vec<u8>>());
    shows(
        &format!(r#"{{"image":"{base64}"}}"#),
        &expect![[r#"
        image (looks binary, 344 bytes, SHA-256 ab7727e21f4bbba6508dd72804d97435a78eb44a1e277af1c0f65a8522de382e), begins:
          | AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIj
    "#]],
    );
    let long = (1..=2000).fold(String::new(), |text, n| text + &format!("line {n}\\n"));
    let view = ArgumentView::of(&format!(r#"{{"text":"{long}","path":"/etc/x","other":"{long}"}}"#), 600);
    expect![[r#"
        path: "/etc/x"
        text (2000 lines, 18893 bytes):
          | line 1
          | line 2
          | line 3
          | line 4
          | line 5
          | line 6
          | line 7
          | line 8
          | line 9
          | line 10
          | line 11
          .. 18814 bytes more are not shown here
        other (2000 lines, 18893 bytes):
          | line 1
          | line 2
          | line 3
          | line 4
          | line 5
          | line 6
          | line 7
          | line 8
          | line 9
          | line 10
          | line 11
          | line 12
          .. 18806 bytes more are not shown here
    "#]]
    .assert_eq(&view.told(&ViewColours::NONE));
    assert!(!view.is_whole());
    let many = (0..999).fold("{\"a\":0".to_owned(), |json, n| json + &format!(",\"k{n}\":{n}")) + "}";
    let view = ArgumentView::of(&many, 80);
    expect![[r#"
        a: 0
        k0: 0
        k1: 1
        k2: 2
        k3: 3
        k4: 4
        994 values are not shown here (2882 bytes)
    "#]]
    .assert_eq(&view.told(&ViewColours::NONE));
    assert_eq!(view.left_out.values + view.blocks.len(), 1000);
}

#[test]
fn no_text_looks_like_anything_else() {
    for (label, one, other) in [
        ("text of an escape", r#"{"a":"\u202e"}"#, r#"{"a":"\\u{202e}"}"#),
        ("a quote", r#"{"a":"\",\"b\":\""}"#, r#"{"a":"","b":""}"#),
        ("a line", r#"{"a":"1\nb: 2"}"#, r#"{"a":1,"b":2}"#),
        ("a key", r#"{"a.b":1}"#, r#"{"a":{"b":1}}"#),
        ("a key of a list", r#"{"a[0]":1}"#, r#"{"a":[1]}"#),
        ("a number", r#"{"a":12345678901234567890}"#, r#"{"a":12345678901234567891}"#),
        ("a number and its text", r#"{"a":1}"#, r#"{"a":"1"}"#),
        ("empty ones", r#"{"a":[]}"#, r#"{"a":{}}"#),
        ("ends of lines", r#"{"a":"x\r\ny"}"#, r#"{"a":"x\ny"}"#),
        ("the last end", r#"{"a":"x\ny\n"}"#, r#"{"a":"x\ny"}"#),
        ("an edit", r#"{"old_text":"a\n","new_text":"a"}"#, r#"{"old_text":"a","new_text":"a\n"}"#),
        ("half a pair", r#"{"a":"\ud800"}"#, r#"{"a":"\\ud800"}"#),
    ] {
        assert_ne!(told(one, 4096), told(other, 4096), "{label}");
    }
    assert_eq!(told("{\"a\" :\n1}", 4096), told(r#"{"a":1}"#, 4096));
    // A text stays behind its bar, and a right-to-left letter affects no other value.
    shows(
        r#"{"שלום":"עולם","a":"x\nNo answer is a yes"}"#,
        &expect![[r#"
        שלום (8 bytes):
          | עולם
        a (2 lines, 20 bytes):
          | x
          | No answer is a yes
    "#]],
    );
}

#[test]
fn hostile_arguments_are_read_in_one_pass_and_stay_in_bounds() {
    let deep = format!("{}1{}", "{\"aaaaaaaa\":".repeat(5000), "}".repeat(5000));
    let halves = r#""old_text":"x","#.repeat(20_000);
    let keys = "k".repeat(90_000);
    for json in [
        deep,
        format!("{{{halves}\"z\":1}}"),
        format!("{{\"{keys}\":[[[[\"{keys}\"]]]]}}"),
        format!("[{}1]", "[[],".repeat(20_000)),
        "[".repeat(100_000),
        format!("[\"{}\"]", "\u{202e}".repeat(90_000)),
    ] {
        let view = ArgumentView::of(&json, 64 * 1024);
        let told = view.told(&ViewColours::TERMINAL);
        assert!(told.len() < 3 * 64 * 1024, "{} bytes", told.len());
    }
}

#[test]
fn many_edits_take_the_time_of_one() {
    let text = |line: &str| format!(r"{line}\nsame\n").repeat(250);
    let edit = format!(r#"{{"old_text":"{}","new_text":"{}"}}"#, text("a"), text("b"));
    let view = ArgumentView::of(&format!("[{edit},{edit},{edit}]"), 1 << 20);
    let kept = |block: &ViewBlock| {
        let BlockContent::Edit { lines, .. } = &block.content else { return 0 };
        lines.iter().filter(|line| matches!(line, EditLine::Line(TextChange::Kept, _))).count()
    };
    let kept: Vec<usize> = view.blocks.iter().map(kept).collect();
    assert_eq!(
        (kept.as_slice(), view.is_whole()),
        (&[250, 250, 1][..], true),
        "the third has only the end that both have"
    );
}

#[test]
fn a_string_that_is_no_text_is_looked_at_like_any_other() {
    let found = ArgumentView::of("{\"a\":\"p\u{430}y\u{202e}\\ud800\"}", 4096).oddities;
    assert_eq!((found.hidden, found.told_mixed().is_some()), (2, true));
}

#[test]
fn a_terminal_gets_colours_of_ours_alone() {
    let json = r#"{"a":"\u001b[31mred\n\u202e","old_text":"1","new_text":"2"}"#;
    expect![[r#"
        a (2 lines, 12 bytes):
        ESC[2m  | ESC[0mESC[1;31m\u{1b}ESC[0m[31mredESC[2m↵ESC[0m
        ESC[2m  | ESC[0mESC[1;31m\u{202e}ESC[0m
        old_text -> new_text (- is replaced by +):
        ESC[2m  - | ESC[0mESC[31m1ESC[0m
        ESC[2m  + | ESC[0mESC[32m2ESC[0m
    "#]]
    .assert_eq(&ArgumentView::of(json, 4096).told(&ViewColours::TERMINAL).replace('\u{1b}', "ESC"));
}
