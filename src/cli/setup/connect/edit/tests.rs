use super::*;

/// Puts an entry, takes the others out, puts them back and removes the entry.
fn there_and_back(path: &str, text: &str) -> Result<(String, String), String> {
    let path = Path::new(path);
    let keys: &[&'static str] = if path.ends_with("x.toml") { &["mcp_servers"] } else { &["mcpServers"] };
    let mut list = ListText::new(path, text, keys)?;
    let names = list.names().to_vec();
    list.put("headend", &EntryMembers(vec![("command", "/bin/h".into()), ("args", ["stdio"][..].into())]))?;
    let mut taken = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let after = at.checked_sub(1).map(|at| names[at].clone());
        taken.push((name, after, list.remove(name)?.unwrap()));
    }
    let there = list.clone().finish()?;
    let mut list = ListText::new(path, &there, keys)?;
    for (name, after, entry) in &taken {
        list.insert(name, after.as_deref(), entry)?;
    }
    list.remove("headend")?;
    Ok((there, list.finish()?))
}

#[test]
fn json_is_edited_as_it_is_written() {
    let entry = "\"headend\": {\n    \"command\": \"/bin/h\",\n    \"args\": [\n      \"stdio\"\n    ]\n  }";
    for (text, there) in [
        ("{\"mcpServers\": {\n  \"a\": {},\n  \"b\": {}\n}}", format!("{{\"mcpServers\": {{\n  {entry}\n}}}}")),
        ("{\"mcpServers\": {\n  \"a\": {},\n  \"b\": {},\n}}", format!("{{\"mcpServers\": {{\n  {entry},\n}}}}")),
        ("{\"mcpServers\": {\n  \"a\": {} // last\n}}", format!("{{\"mcpServers\": {{\n  {entry}\n}}}}")),
        (
            "{\"mcpServers\":{\"a\":{\"x\":1},\"b\":{}}}",
            "{\"mcpServers\":{\"headend\": {\"command\":\"/bin/h\",\"args\":[\"stdio\"]}}}".to_owned(),
        ),
    ] {
        let (now, back) = there_and_back("x.json", text).unwrap();
        // The unit of the file is unknown where its only member stands in the first line.
        assert_eq!(now, there, "{text}");
        assert_eq!(back, text);
    }
}

#[test]
fn no_entry_ends_up_in_a_comment() {
    for text in [
        "{\"mcpServers\": { \"a\": {}, // one\n  \"b\": {} // two\n}}",
        "{\"mcpServers\": { // none\n}}",
        "{\"mcpServers\": {\n  \"a\": {}, // one\n  // two\n}, // three\n}",
        "{ /* x */ \"mcpServers\": {\"a\": {} /* y */, /* z */ }}",
        "{\"mcpServers\": {\n    \"a\": {}\n  , \"b\": {}\n}}",
    ] {
        let (there, _) = there_and_back("x.json", text).unwrap();
        let list = ListText::new(Path::new("x.json"), &there, &["mcpServers"]).unwrap();
        assert_eq!(list.names(), ["headend"], "{text}\n{there}");
    }
}

#[test]
fn toml_is_edited_by_whole_tables() {
    let text =
        "x = 1\n\n[mcp_servers.a]\ncommand = \"a\"\n\n[mcp_servers.a.env]\nk = \"\"\"\n[mcp_servers.b]\n\"\"\"\n";
    let (now, back) = there_and_back("x.toml", text).unwrap();
    assert_eq!(now, "x = 1\n\n[mcp_servers.headend]\ncommand = \"/bin/h\"\nargs = [\"stdio\"]\n");
    assert_eq!(back, text);
    assert!(there_and_back("x.toml", "[mcp_servers]\na = { command = \"a\" }\n").unwrap_err().contains("in one line"));
}

#[test]
fn what_is_secret_is_shown_as_dots() {
    let hides = |keys: &[&str], value: &str| keys.contains(&"env") || value.contains("s3cret");
    let text = "{\"a\": {\"env\": {\"K\": \"v\"}, \"args\": [\"x\", \"--k=s3cret\"]}}";
    let shown = redacted(Path::new("x.json"), text, &hides).unwrap();
    assert_eq!(shown, "{\"a\": {\"env\": {\"K\": \"•••••\"}, \"args\": [\"x\", \"•••••\"]}}");
    let shown = redacted(Path::new("x.toml"), "a = [\"s3cret\"]\n[env]\nb = 'c'\n", &hides).unwrap();
    assert_eq!(shown, "a = [\"•••••\"]\n[env]\nb = '•••••'\n");
    let escaped = redacted(Path::new("x.json"), "{\"env\": {\"K\": \"v\\u0041\"}}", &hides);
    assert_eq!(escaped, None, "what is not found is not shown");
}

proptest::proptest! {
    #[test]
    fn members_come_back_whatever_stands_around_them(
        names in proptest::collection::btree_set("[a-d]", 0..4),
        gaps in proptest::collection::vec(0..5_usize, 8),
        comma in proptest::bool::ANY,
    ) {
        let gap = |at: usize| ["\n  ", "\r\n\t", " ", "", "\n\n    "][gaps[at % 8]];
        let members: Vec<String> =
            names.iter().enumerate().map(|(at, name)| format!("{}\"{name}\": {{\"k\": {at}}}", gap(at))).collect();
        let last = if comma && !members.is_empty() { "," } else { "" };
        let text = format!("{{\"o\": 1,{}\"mcpServers\": {{{}{last}{}}}}}", gap(5), members.join(","), gap(6));
        let (_, back) = there_and_back("x.json", &text).unwrap();
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(&text.replace(",}", "}").replace(['\n', '\r', '\t', ' '], "").replace(",}", "}")).unwrap();
        proptest::prop_assert_eq!(value(&back), value(&text), "{}", text);
    }
}
