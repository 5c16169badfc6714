//! Hosts' files that their users have changed in ways of their own, and writes that fail.

use super::*;

/// Two servers in a file of Cursor.
const TWO: &str = "{\"mcpServers\": {\"a\": {\"command\": \"/bin/a\"}, \"b\": {\"command\": \"/bin/b\"}}}";

/// A server named like our entry.
const OWN: &str = "{\"mcpServers\": {\"headend\": {\"command\": \"/opt/mine\"}}}";

fn keys(path: &Path) -> Vec<String> {
    servers(path, &["mcpServers"]).into_iter().collect()
}

#[test]
fn a_server_of_the_user_that_is_called_headend_stays() {
    let home = Home::new();
    let path = home.write(CURSOR, OWN);
    for line in ["connect cursor --yes", "connect cursor --move --yes"] {
        let (code, said) = home.run(line);
        assert!(code == NO && said.contains("`headend` is another server"), "{line}: {said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), OWN);
    }
    // Here the user puts one in the place of our entry.
    fs::write(&path, TWO).unwrap();
    home.ok("connect cursor --move --yes");
    fs::write(&path, OWN).unwrap();
    home.ok("disconnect cursor --yes");
    assert_eq!(keys(&path), ["a", "b", "headend"]);
    assert!(fs::read_to_string(&path).unwrap().contains("/opt/mine"));
}

#[test]
fn an_entry_that_the_user_renamed_goes() {
    let home = Home::new();
    let path = home.write(CURSOR, TWO);
    home.ok("connect cursor --move --yes");
    let text = fs::read_to_string(&path).unwrap().replace("\"headend\"", "\"gateway\"");
    fs::write(&path, text).unwrap();
    home.ok("disconnect cursor --yes");
    assert_eq!(keys(&path), ["a", "b"]);
}

#[test]
fn servers_come_back_also_into_a_file_that_was_removed() {
    let home = Home::new();
    let path = home.write(CURSOR, TWO);
    home.ok("connect cursor --move --yes");
    fs::remove_file(&path).unwrap();
    let said = home.ok("disconnect cursor --yes");
    assert_eq!(keys(&path), ["a", "b"], "{said}");
    assert!(said.contains("put back: a, b") && home.enabled().is_empty(), "{said}");
}

#[test]
fn a_name_that_the_user_gave_again_keeps_its_new_server() {
    let home = Home::new();
    let path = home.write(CURSOR, TWO);
    home.ok("connect cursor --move --yes");
    let other =
        fs::read_to_string(&path).unwrap().replace("{\"headend\"", "{\"a\": {\"command\": \"/new\"}, \"headend\"");
    fs::write(&path, other).unwrap();
    let said = home.ok("disconnect cursor --yes");
    assert_eq!(keys(&path), ["a", "b"]);
    assert!(fs::read_to_string(&path).unwrap().contains("/new"));
    assert!(said.contains("put back: b\n") && said.contains("a: the file has another server of that name"), "{said}");
}

#[test]
fn what_a_host_cannot_take_is_not_added_to_headend_either() {
    let home = Home::new();
    let path = home.write(CURSOR, TWO);
    // A directory in the place of the new file: it cannot be written.
    let blocked = home.path(&format!(".cursor/.headend-edit.{}", std::process::id()));
    fs::create_dir(&blocked).unwrap();
    let (code, said) = home.run("connect cursor --move --yes");
    assert!(code == NO && said.contains("it was left alone"), "{said}");
    assert!(!home.path(".config/headend/headend.toml").exists(), "no server is in two places");
    assert_eq!(fs::read_to_string(&path).unwrap(), TWO);
    fs::remove_dir(&blocked).unwrap();
    home.ok("connect cursor --move --yes");
    fs::create_dir(&blocked).unwrap();
    assert_eq!(home.run("disconnect cursor --yes").0, NO);
    assert_eq!((keys(&path).len(), home.enabled().len()), (1, 2), "headend has them still");
}

#[test]
fn an_undo_survives_a_command_that_comes_too_late() {
    let home = Home::new();
    let path = home.write(CURSOR, TWO);
    let late = home.within(|| {
        let host = find("cursor").unwrap();
        HostEdit::read(host, &path, home.0.path()).unwrap()
    });
    home.ok("connect cursor --move --yes");
    let connected = fs::read_to_string(&path).unwrap();
    let args = ConnectArgs { yes: true, ..ConnectArgs::default() };
    let members = EntryMembers(vec![("command", "/bin/headend".into()), ("args", ["stdio"][..].into())]);
    let refused = home.within(|| connect(&CommonOptions::default(), &args, &late, &members)).unwrap_err();
    assert!(refused.text.contains("in the meantime; run the command again"), "{}", refused.text);
    assert_eq!(fs::read_to_string(&path).unwrap(), connected);
    home.ok("disconnect cursor --yes");
    assert_eq!(fs::read_to_string(&path).unwrap(), TWO);
    assert!(home.enabled().is_empty());
}

#[test]
fn no_secret_of_a_comment_or_in_another_spelling_is_shown() {
    for (host, file, text) in [
        (
            "cursor",
            CURSOR,
            format!(
                "{{\n  // \"A_TOKEN\": \"{SECRET}\"\n  \"mcpServers\": {{ /*\n {SECRET} */\n  }} // {SECRET}\n}}\n"
            ),
        ),
        ("codex", CODEX, format!("# token = \"{SECRET}\"\n[mcp_servers.a]\ncommand = \"/bin/a\" # {SECRET}\n")),
        (
            "cursor",
            CURSOR,
            format!(
                "{{\"mcpServers\": {{\"a\": {{\"env\": {{\"A_TOKEN\": \"{SECRET}\", \"B_TOKEN\": \"{}\"}}}}}}}}",
                SECRET.replace("can", "\\u0063an")
            ),
        ),
    ] {
        let home = Home::new();
        home.write(file, &text);
        let said = home.ok(&format!("connect {host} --move --take-secrets --dry-run"));
        assert!(!said.contains("0123456789abcdef"), "{said}");
    }
}

#[test]
fn the_reason_why_a_secret_stays_names_what_can_be_done() {
    let home = Home::new();
    let text = format!(
        "{{\"mcpServers\": {{\"line\": {{\"command\": \"/bin/l\", \"args\": [\"--token\", \"{SECRET}\"]}}, \"url\": {{\"url\": \"https://x.example/mcp?api_key={SECRET}\"}}, \"env\": {{\"command\": \"/bin/e\", \"env\": {{\"E_TOKEN\": \"{SECRET}e\"}}}}}}}}"
    );
    home.write(CURSOR, text);
    let said = home.ok("connect cursor --move --dry-run");
    assert!(said.contains("env: it has a secret (E_TOKEN"), "{said}");
    assert_eq!(said.matches("--take-secrets").count(), 1, "it takes no secret of an address or argument: {said}");
    let said = home.ok("connect cursor --move --take-secrets --dry-run");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for why in ["line: a secret in its arguments or address", "url: a secret in its arguments or address", "LINE_TOKEN"]
    {
        assert!(said.contains(why), "{why}: {said}");
    }
}

#[test]
fn without_a_daemon_the_variables_that_headend_needs_are_named() {
    let home = Home::new();
    home.write(
        CURSOR,
        "{\"mcpServers\": {\"a\": {\"command\": \"/bin/a\", \"env\": {\"X\": \"${env:XDG_RUNTIME_DIR}\"}}}}",
    );
    let said = home.ok("connect cursor --move --yes");
    assert!(said.contains("headend reads XDG_RUNTIME_DIR from its environment: set it where it starts"), "{said}");
}

#[test]
fn disconnect_shows_both_changes_and_reports_a_broken_configuration() {
    let home = Home::new();
    let path = home.write(CURSOR, TWO);
    home.ok("connect cursor --move --yes");
    let said = home.ok("disconnect cursor --dry-run");
    assert_eq!(said.matches("+ enabled = false").count(), 2, "{said}");
    let own = home.path(".config/headend/headend.toml");
    fs::write(&own, fs::read_to_string(&own).unwrap() + "[broken\n").unwrap();
    let said = home.ok("disconnect cursor --yes");
    assert_eq!(fs::read_to_string(&path).unwrap(), TWO, "{said}");
    assert!(said.contains("a, b stay in headend"), "{said}");
}
