//! Plays `connect` and `disconnect` in a home of the test: files of many shapes, changes in
//! between, and a kill at each step of a write.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fs, iter};

use clap::Parser as _;
use tempfile::TempDir;

use super::*;
use crate::cli::exit::NO;
use crate::cli::reach::exchange::fault;
use crate::cli::setup::hosts::HostFolders;
use crate::cli::setup::import::{FileValue, read_value};
use crate::stage::surroundings::Surroundings;

mod unusual;

const SECRET: &str = "ghp_canary0123456789abcdef";

struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.0.path().join(inside)
    }

    fn write(&self, inside: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(inside);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Puts this thread into the home.
    fn enter(&self) {
        let home = ("HOME".to_owned(), self.0.path().display().to_string());
        let runtime = ("XDG_RUNTIME_DIR".to_owned(), self.path("run").display().to_string());
        Surroundings::of([home, runtime]).enter();
    }

    /// Calls a function in this home.
    fn within<T>(&self, call: impl FnOnce() -> T) -> T {
        self.enter();
        let done = call();
        drop(Surroundings::leave());
        done
    }

    /// Runs a command in this home; returns its exit code and all that it prints.
    fn run(&self, line: &str) -> (u8, String) {
        self.enter();
        let words = iter::once("headend").chain(line.split(' '));
        let done = crate::cli::dispatch(crate::cli::CommandLine::try_parse_from(words).unwrap());
        let said = Surroundings::leave();
        let mut text = String::from_utf8([said.stdout, said.stderr].concat()).unwrap();
        let code = done.unwrap_or_else(|failure| {
            text.push_str(&failure.text);
            failure.code
        });
        assert!(!text.contains("canary"), "{line}: {text}");
        (code, text)
    }

    fn ok(&self, line: &str) -> String {
        let (code, text) = self.run(line);
        assert_eq!(code, OK, "{line}: {text}");
        text
    }

    /// Returns the names of headend's enabled upstreams.
    fn enabled(&self) -> BTreeSet<String> {
        let loaded = crate::config::load(&self.path(".config/headend/headend.toml"));
        let config = loaded.outcome.map(|(config, _)| config);
        config.map(|config| config.upstreams.iter().map(|one| one.name.to_string()).collect()).unwrap_or_default()
    }
}

/// Returns the servers of a host's file, by name.
fn servers(path: &Path, keys: &[&str]) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = read_value(path, &text).unwrap_or(FileValue::Null);
    let list = value.at(keys).map(|list| list.members().iter().map(|(name, _)| name.clone()));
    list.into_iter().flatten().collect()
}

struct Shape {
    label: &'static str,
    host: &'static str,
    file: &'static str,
    text: String,
}

fn shape(label: &'static str, host: &'static str, file: &'static str, text: impl Into<String>) -> Shape {
    Shape { label, host, file, text: text.into() }
}

const CLAUDE: &str = ".claude.json";
const CURSOR: &str = ".cursor/mcp.json";
const CODEX: &str = ".codex/config.toml";

/// Files in which two servers `a` and `b` are moved, beside what stays.
fn shapes() -> Vec<Shape> {
    let plain = format!(
        "{{\n  \"numStartups\": 7,\n  \"mcpServers\": {{\n    \"a\": {{\n      \"command\": \"/bin/a\",\n      \"env\": {{\n        \"A_TOKEN\": \"{SECRET}\"\n      }}\n    }},\n    \"b\": {{\n      \"type\": \"http\",\n      \"url\": \"https://b.example/mcp\"\n    }}\n  }},\n  \"tips\": {{}}\n}}\n"
    );
    let comments = format!(
        "// head\n{{\n  /* list */ \"mcpServers\": {{ // of mine\n    // about a\n    \"a\": {{ \"command\": \"/bin/a\", \"env\": {{ \"A_TOKEN\": \"{SECRET}\" }} }}, // first\n\n    // about b\n    \"b\": {{ \"command\": \"/bin/b\" /* x */ }} // last\n    // end\n  }},\n}}\n// foot\n"
    );
    let toml = format!(
        "# head\nmodel = \"o\"\n\n[mcp_servers.a]\ncommand = \"/bin/a\" # of a\nargs = [\n  \"x\", # one\n]\n\n[mcp_servers.a.env]\nA_TOKEN = \"{SECRET}\"\n\n# about b\n[mcp_servers.b]\nurl = \"https://b.example/mcp\"\n\n[tools]\nweb = true\n"
    );
    let scopes = plain.replace(
        "\"tips\": {}",
        "\"projects\": {\"/p\": {\"mcpServers\": {\"c\": {\"command\": \"/bin/c\"}}, \"mcpContextUris\": []}}",
    );
    let large = plain
        .replace("\"tips\": {}", &format!("\"history\": [{}]", "{\"t\": \"words\"},\n".repeat(35_000)))
        .replace(",\n]", "\n]");
    let compact = |text: &str| text.split('\n').map(str::trim).collect::<String>().replace("\": ", "\":");
    let opencode = format!(
        "{{\n\t\"$schema\": \"x\",\n\t\"mcp\": {{\n\t\t\"a\": {{\"type\": \"local\", \"command\": [\"/bin/a\"], \"environment\": {{\"A_TOKEN\": \"{SECRET}\"}}}},\n\t\t\"b\": {{\"type\": \"remote\", \"url\": \"https://b.example/mcp\"}}\n\t}}\n}}"
    );
    let zed = plain
        .replace("mcpServers", "context_servers")
        .replace("\"numStartups\"", "\"theme\": \"One\", // dark\n  \"n\"");
    vec![
        shape("as Claude Code writes it", "claude-code", CLAUDE, plain.clone()),
        shape("with projects", "claude-code", CLAUDE, scopes),
        shape("500 KB", "claude-code", CLAUDE, large),
        shape("one line", "claude-code", CLAUDE, compact(&plain)),
        shape(
            "one line with spaces",
            "gemini",
            ".gemini/settings.json",
            compact(&plain).replace("\":", "\": ").replace("https\": ", "https:").replace(",\"", ", \""),
        ),
        shape("CRLF", "claude-desktop", ".config/Claude/claude_desktop_config.json", plain.replace('\n', "\r\n")),
        shape("a byte order mark", "cursor", CURSOR, format!("\u{feff}{plain}")),
        shape("no last line feed", "cursor", CURSOR, plain.trim_end()),
        shape("tabs", "lmstudio", ".lmstudio/mcp.json", plain.replace("  ", "\t")),
        shape("four spaces", "copilot", ".copilot/mcp-config.json", plain.replace("  ", "    ")),
        shape("comments and commas at ends", "cursor", CURSOR, comments.clone()),
        shape("comments and CRLF", "cursor", CURSOR, comments.replace('\n', "\r\n")),
        shape("VS Code", "vscode", ".config/Code/User/mcp.json", plain.replace("mcpServers", "servers")),
        shape("Zed", "zed", ".config/zed/settings.json", zed),
        shape("opencode", "opencode", ".config/opencode/opencode.jsonc", opencode.clone()),
        shape(
            "opencode 2",
            "opencode",
            ".config/opencode/opencode.json",
            opencode.replace("\"mcp\": {", "\"mcp\": {\"servers\": {").replace("\n\t}\n", "\n\t}}\n"),
        ),
        shape("TOML", "codex", CODEX, toml.clone()),
        shape("TOML with CRLF", "codex", CODEX, toml.replace('\n', "\r\n")),
        shape("TOML without last line feed", "codex", CODEX, toml.trim_end()),
        shape("TOML with a byte order mark", "codex", CODEX, format!("\u{feff}{toml}")),
        shape("blank lines at the end", "codex", CODEX, format!("{toml}\n\n")),
    ]
}

#[test]
fn files_of_many_shapes_come_back_byte_for_byte_and_keep_what_changed() {
    for Shape { label, host, file, text } in shapes() {
        let home = Home::new();
        let path = home.write(file, &text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let known = find(host).unwrap();
        let keys: Vec<&str> = known.list.iter().copied().chain((label == "opencode 2").then_some("servers")).collect();
        let before = servers(&path, &keys);
        assert!(before.contains("a") && before.contains("b"), "{label}: {text}");

        home.ok(&format!("connect {host} --move --take-secrets --dry-run"));
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "{label}");
        let said = home.ok(&format!("connect {host} --move --take-secrets --yes"));
        let connected = fs::read_to_string(&path).unwrap();
        let names: BTreeSet<String> = iter::once("headend".to_owned()).collect();
        assert_eq!(servers(&path, &keys), names, "{label}: {said}\n{connected}");
        let upstreams = home.enabled();
        assert_eq!(upstreams, BTreeSet::from(["a".to_owned(), "b".to_owned()]), "{label}: {said}");
        assert_eq!(connected.contains("\r\n"), text.contains("\r\n"), "{label}");
        assert!(!connected.replace("\r\n", "").contains('\r'), "{label}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640, "{label}");
        let toml = fs::read_to_string(home.path(".config/headend/headend.toml")).unwrap();
        assert!(!toml.contains("canary"), "{label}: {toml}");
        assert!(home.ok(&format!("connect {host}")).contains("is connected already"), "{label}");

        home.ok(&format!("disconnect {host} --yes"));
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "{label}");
        assert!(home.enabled().is_empty(), "{label}");

        // The same servers again; then the host adds something.
        home.ok(&format!("connect {host} --move --take-secrets --yes"));
        assert_eq!(home.enabled(), upstreams, "{label}: no server is in headend twice");
        let now = fs::read_to_string(&path).unwrap();
        let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let table = format!("{line_end}[other]{line_end}x = 1{line_end}");
        let (added, changed) = if file.ends_with("toml") {
            (&*table, format!("{now}{table}"))
        } else {
            ("\"hostKey\": 1, ", now.replacen('{', "{\"hostKey\": 1, ", 1))
        };
        fs::write(&path, &changed).unwrap();
        home.ok(&format!("disconnect {host} --yes"));
        let end = fs::read_to_string(&path).unwrap();
        assert_eq!(servers(&path, &keys), before, "{label}: {end}");
        assert!(end.contains(added) && end.contains("canary") && !end.contains("headend"), "{label}: {end}");
        if label != "comments and commas at ends" && label != "comments and CRLF" && !file.ends_with("toml") {
            assert_eq!(end.replacen(added, "", 1), text, "{label}: also an edited file has its old bytes");
        }
    }
}

#[test]
fn a_host_without_file_or_list_gets_one_and_loses_it_again() {
    for (host, file, before) in [
        ("claude-code", CLAUDE, None),
        ("cursor", CURSOR, Some("")),
        ("gemini", ".gemini/settings.json", Some("{\n  \"theme\": \"x\"\n}\n")),
        ("zed", ".config/zed/settings.json", Some("// mine\n{}\n")),
        ("codex", CODEX, Some("model = \"o\"")),
        ("codex", CODEX, None),
    ] {
        let home = Home::new();
        let path = home.path(file);
        if let Some(text) = before {
            home.write(file, text);
        }
        let said = home.ok(&format!("connect {host} --yes"));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("headend") && text.contains("stdio"), "{host}: {said}\n{text}");
        assert!(home.ok("connect").contains("yes"), "{host}");
        // Another program writes the file in between, and the list that we made goes all the same.
        if let Some(text) = before.filter(|text| text.len() > 10 && !file.ends_with("toml")) {
            let now = fs::read_to_string(&path).unwrap();
            fs::write(&path, now.replacen('\n', "\n\n", 1)).unwrap();
            home.ok(&format!("disconnect {host} --yes"));
            assert_eq!(fs::read_to_string(&path).unwrap(), text.replacen('\n', "\n\n", 1), "{host}");
            continue;
        }
        home.ok(&format!("disconnect {host} --yes"));
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), before, "{host}");
    }
}

#[test]
fn a_file_that_cannot_be_edited_safely_is_left_alone() {
    let list = "{\"mcpServers\": {\"a\": {\"command\": \"/bin/a\"}}}";
    let cases: &[(&str, &str, &str, &str)] = &[
        ("claude-code", CLAUDE, "{\"mcpServers\": {\"a\": {}", "not JSON"),
        ("claude-code", CLAUDE, "[]", "is not a JSON object"),
        ("claude-code", CLAUDE, "{\"mcpServers\": []}", "is not an object"),
        ("claude-code", CLAUDE, "{\"mcpServers\": {}, \"mcpServers\": {}}", "is in it twice"),
        (
            "claude-code",
            CLAUDE,
            "{\"mcpServers\": {\"headend\": {\"url\": \"https://x.example\"}, \"headend\": {\"command\": \"x\"}}}",
            "is another server",
        ),
        ("codex", CODEX, "[mcp_servers.a]\n[mcp_servers.a]\n", "not TOML"),
        ("codex", CODEX, "mcp_servers = { a = { command = \"/bin/a\" } }\n", "edit it by hand"),
    ];
    for (host, file, text, why) in cases {
        let home = Home::new();
        let path = home.write(file, text);
        let (code, said) = home.run(&format!("connect {host} --move --yes"));
        assert!(code != OK && said.contains(why), "{text}: {said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), *text);
        assert!(!home.path(".config/headend/headend.toml").exists(), "{text}");
    }
    // A link out of the home, one within it, one to nothing, and a file of another user.
    let (home, other) = (Home::new(), Home::new());
    let target = other.write("mcp.json", list);
    fs::create_dir_all(home.path(".cursor")).unwrap();
    symlink(&target, home.path(CURSOR)).unwrap();
    let (code, said) = home.run("connect cursor --yes");
    assert!(code == NO && said.contains("out of"), "{said}");
    assert_eq!(fs::read_to_string(&target).unwrap(), list);
    fs::remove_file(home.path(CURSOR)).unwrap();
    symlink(home.path("dots/mcp.json"), home.path(CURSOR)).unwrap();
    assert_eq!(home.run("connect cursor --yes").0, NO, "a link to nothing");
    let inside = home.write("dots/mcp.json", list);
    home.ok("connect cursor --yes");
    assert!(home.path(CURSOR).is_symlink() && fs::read_to_string(&inside).unwrap().contains("headend"));
    home.ok("disconnect cursor --yes");
    assert_eq!(fs::read_to_string(&inside).unwrap(), list);
    if std::os::unix::fs::chown(&inside, Some(4711), None).is_ok() {
        let (code, said) = home.run("connect cursor --yes");
        assert!(code == NO && said.contains("belongs to uid 4711"), "{said}");
    }
}

#[test]
fn a_file_that_changes_meanwhile_stays_and_a_lock_is_waited_for() {
    let home = Home::new();
    let path = home.write(CLAUDE, "{\"a\": 1}");
    let read = || EditedFile::read(find("claude-code").unwrap(), &path, home.0.path()).unwrap();
    let file = read();
    fs::write(&path, "{\"a\": 2}").unwrap();
    assert!(file.replace(Some("{}"), || Ok(())).unwrap_err().text.contains("changed in the meantime"));
    let file = read();
    fs::rename(home.write("other", "{\"a\": 2}"), &path).unwrap();
    assert!(file.replace(Some("{}"), || Ok(())).is_err(), "another file of the same text");
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"a\": 2}");
    let lock = home.path(".claude.json.lock");
    fs::create_dir(&lock).unwrap();
    std::thread::scope(|scope| {
        let done = scope.spawn(|| home.run("connect claude-code --yes"));
        while !home.path(".local/state/headend/hosts").exists() {
            std::thread::yield_now();
        }
        assert!(!fs::read_to_string(&path).unwrap().contains("headend"), "the host has the lock");
        fs::remove_dir(&lock).unwrap();
        assert_eq!(done.join().unwrap().0, OK);
    });
    assert!(!lock.exists() && fs::read_to_string(&path).unwrap().contains("headend"));
}

#[test]
fn what_the_user_added_to_the_entry_stays() {
    let home = Home::new();
    home.ok("connect gemini --yes");
    let path = home.path(".gemini/settings.json");
    let text = fs::read_to_string(&path).unwrap().replace("\"command\"", "\"trust\": true, \"command\"");
    fs::write(&path, &text).unwrap();
    assert!(home.ok("connect gemini --yes").contains("is connected already"));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn servers_that_headend_could_not_start_stay_and_are_listed() {
    let home = Home::new();
    let text = format!(
        "{{\"servers\": {{\n \"plain\": {{\"command\": \"/bin/p\"}},\n \"token\": {{\"command\": \"/bin/t\", \"env\": {{\"T_TOKEN\": \"{SECRET}\"}}}},\n \"input\": {{\"command\": \"/bin/i\", \"env\": {{\"I_TOKEN\": \"${{input:key}}\"}}}},\n \"line\": {{\"command\": \"/bin/l\", \"args\": [\"--token\", \"{SECRET}2\"]}},\n \"socket\": {{\"type\": \"ws\", \"url\": \"wss://x.example\"}},\n \"variable\": {{\"command\": \"/bin/v\", \"env\": {{\"V\": \"${{env:NOT_SET}}\"}}}}\n}}, \"inputs\": [{{\"id\": \"key\", \"type\": \"promptString\"}}]}}\n"
    );
    let path = home.write(".config/Code/User/mcp.json", &text);
    let said = home.ok("connect vscode --move --yes");
    let all = ["headend", "input", "line", "socket", "token", "variable"];
    assert_eq!(servers(&path, &["servers"]), all.map(str::to_owned).into(), "{said}");
    for why in [
        "input: its host asks",
        "token: it has a secret (T_TOKEN)",
        "socket: headend does not speak",
        "variable: set NOT_SET",
    ] {
        assert!(said.contains(why), "{why}: {said}");
    }
    let said = home.ok("connect vscode --move --take-secrets --yes");
    let left = ["headend", "input", "line", "socket", "variable"];
    assert_eq!(servers(&path, &["servers"]), left.map(str::to_owned).into(), "{said}");
    let kept = home.path(".local/state/headend/secrets/token.T_TOKEN");
    assert_eq!(fs::read_to_string(&kept).unwrap(), format!("{SECRET}\n"));
    for folder in ["secrets", "hosts"] {
        for entry in fs::read_dir(home.path(".local/state/headend").join(folder)).unwrap().flatten() {
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
        }
    }
    home.ok("disconnect vscode --yes");
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "what two commands moved comes back at once");
}

#[test]
fn a_server_of_two_hosts_stays_enabled_until_both_have_it_back() {
    let home = Home::new();
    let text = "{\"mcpServers\": {\"a\": {\"command\": \"/bin/a\"}}}";
    let paths = [home.write(CURSOR, text), home.write(".lmstudio/mcp.json", text)];
    home.ok("connect cursor --move --yes");
    home.ok("connect lmstudio --move --yes");
    assert_eq!(home.enabled().len(), 1, "one upstream for both");
    home.ok("disconnect cursor --yes");
    assert_eq!(home.enabled().len(), 1, "LM Studio has it by headend alone");
    home.ok("disconnect lmstudio --yes");
    assert!(home.enabled().is_empty(), "no server runs in two places");
    assert!(paths.iter().all(|path| fs::read_to_string(path).unwrap() == text));
}

#[test]
fn entries_are_printed_for_hosts_whose_file_is_not_edited() {
    let home = Home::new();
    let (_, said) = home.run("connect windsurf");
    assert!(said.contains("--print"), "{said}");
    for host in HOSTS {
        let said = home.ok(&format!("connect {} --print", host.id));
        assert!(said.contains("headend") && said.contains("stdio") && said.contains("goes into"), "{said}");
        let text = said.split("headend: this goes").next().unwrap();
        let ending = host.user_file(&HostFolders::of_home(PathBuf::from("/h"))).unwrap();
        let value = read_value(Path::new("/h/x").with_extension(ending.extension().unwrap()).as_path(), text).unwrap();
        assert!(value.at(host.list).is_some(), "{}: {text}", host.id);
    }
    assert!(home.run("connect emacs").1.contains("Known are: claude-code"));
    assert!(home.run("connect claude-desktop --scope project").1.contains("has no file for projects"));
}

/// Runs a command that is killed after that number of steps; returns false if it came to its end.
fn is_killed(home: &Home, line: &str, steps: usize) -> bool {
    fault::after(steps);
    let done = catch_unwind(AssertUnwindSafe(|| home.run(line)));
    fault::after(usize::MAX);
    drop(Surroundings::leave());
    done.is_err()
}

#[test]
fn a_kill_at_any_step_leaves_whole_files_and_no_server_in_neither() {
    let Shape { text, .. } = shapes().remove(0);
    let all = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
    let mut killed = 0;
    for line in ["connect claude-code --move --take-secrets --yes", "disconnect claude-code --yes"] {
        for steps in 0.. {
            let home = Home::new();
            let path = home.write(CLAUDE, &text);
            if line.starts_with("disconnect") {
                home.ok("connect claude-code --move --take-secrets --yes");
            }
            let old = fs::read_to_string(&path).unwrap();
            if !is_killed(&home, line, steps) {
                break;
            }
            killed += 1;
            let now = fs::read_to_string(&path).unwrap();
            let here: BTreeSet<String> = servers(&path, &["mcpServers"]).union(&home.enabled()).cloned().collect();
            assert!(all.is_subset(&here), "{line} {steps}: {here:?}");
            // The old file or the new one, and a second run makes the change whole.
            home.run(line);
            let end = fs::read_to_string(&path).unwrap();
            assert!(now == old || now == end, "{line} {steps}: {now}");
            home.run("disconnect claude-code --yes");
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "{line} {steps}");
            assert!(home.enabled().is_empty(), "{line} {steps}: no server runs in two places");
            let left = fs::read_dir(home.0.path()).unwrap().flatten().map(|entry| entry.file_name());
            let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("headend-edit")).collect();
            assert!(left.is_empty(), "{line} {steps}: {left:?}");
        }
    }
    assert!(killed > 20, "{killed} steps");
}
