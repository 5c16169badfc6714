//! Tests of the README: its blocks run in order, as printed, and each does what it says.
//!
//! `cargo` is a stand-in that starts the program under test. `HEADEND_TEST_FRESH=1` clones the
//! repository instead, builds and tests it there by the printed commands, and prints the time from
//! the clone to the first call. That takes many minutes, and `HEADEND_TEST_FRESH=short` leaves out
//! the tests of the clone. `systemctl --user` is a stand-in too, since no init system runs here: it
//! starts the unit's command with the unit's variables. The lines about the package are tested in
//! `package.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::commands_at_work::demo::ports;
use crate::tools::harness::{Gateway, TestHome, headend};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::{alive, eventually, installed, output_within, said, within};
use crate::tools::stdio::Pipe;

/// The README's length is bounded, so that a newcomer reads it to its end.
const MAX_LINES: usize = 200;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read_me() -> String {
    fs::read_to_string(root().join("README.md")).unwrap()
}

/// Returns the fenced blocks below a heading of the second level: language and text.
fn blocks(heading: &str) -> Vec<(String, String)> {
    let text = read_me();
    let section = text.split("\n## ").find(|section| section.starts_with(heading));
    let section = section.unwrap_or_else(|| panic!("README.md has no section {heading:?}"));
    let fenced = section.split("\n```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').unwrap()).map(|(lang, text)| (lang.to_owned(), text.to_owned())).collect()
}

/// Returns the commands of a section's shell blocks, one for each line.
fn commands(heading: &str) -> Vec<String> {
    let shell = blocks(heading).into_iter().filter(|(lang, _)| lang == "sh");
    shell.flat_map(|(_, text)| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// A stand-in for `systemctl --user`: `enable --now` and `disable --now` of a unit that is where
/// the user's manager looks for it.
const SYSTEMCTL: &str = r#"#!/bin/sh
set -e
[ "$1" = --user ] && [ "$3" = --now ] || { echo "systemctl $*?" >&2; exit 1; }
unit=$HOME/.config/systemd/user/$4.service wants=$HOME/.config/systemd/user/default.target.wants
[ -f "$unit" ] && [ "$(stat -c %a "$unit")" = 644 ] || { echo "Unit $4.service does not exist" >&2; exit 5; }
case $2 in
enable)
  grep -qx WantedBy=default.target "$unit"
  mkdir -p "$wants" && ln -s "$unit" "$wants/"
  setsid env -i "HOME=$HOME" "XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR" $(sed -n "s|%h|$HOME|g; s/^Environment=//p" "$unit") \
    $(sed -n 's/^ExecStart=//p' "$unit") >"$HOME/unit.log" 2>&1 </dev/null &
  echo $! >"$HOME/unit.pid" ;;
disable)
  rm "$wants/$4.service" && rmdir "$wants"
  kill "$(cat "$HOME/unit.pid")"
  while kill -0 "$(cat "$HOME/unit.pid")" 2>/dev/null; do sleep 0.1; done ;;
*) exit 1 ;;
esac
"#;

fn is_fresh() -> bool {
    std::env::var_os("HEADEND_TEST_FRESH").is_some()
}

/// A clone of this repository, or a folder that looks like one, with the stand-in for `cargo`.
struct Checkout {
    world: TestHome,
    folder: PathBuf,
    bin: PathBuf,
}

impl Checkout {
    fn new() -> Self {
        let world = TestHome::new();
        let (folder, bin) = (world.path("work/headend"), world.path("home/bin"));
        fs::create_dir_all(&bin).unwrap();
        if is_fresh() {
            let clone = Command::new("git").args(["clone", "--quiet"]).arg(root()).arg(&folder).status().unwrap();
            assert!(clone.success());
            return Self { world, folder, bin };
        }
        fs::create_dir_all(folder.join("target/release")).unwrap();
        symlink(headend(), folder.join("target/release/headend")).unwrap();
        let stand_in = format!(
            "#!/bin/sh\ncase \"$*\" in\n'run --release') exec '{program}' ;;\n'test --locked') echo tests ;;\n\
             'install --locked --path .') mkdir -p ~/.cargo/bin; ln -s '{program}' ~/.cargo/bin/headend ;;\n\
             'uninstall headend') rm ~/.cargo/bin/headend ;;\n*) echo \"cargo $*?\" >&2; exit 1 ;;\nesac\n",
            program = headend()
        );
        let checkout = Self { world, folder, bin };
        checkout.program("cargo", &stand_in);
        checkout
    }

    /// Puts a script before the programs of this machine.
    fn program(&self, name: &str, text: &str) {
        let path = self.world.write(&format!("home/bin/{name}"), text);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Creates a command that runs these lines by `sh -c` in the folder, with nothing of this
    /// machine but its programs.
    fn shell(&self, lines: &str) -> Command {
        let mut command = self.world.command("sh");
        let cargo = self.world.path("home/.cargo");
        let path = format!("{}:{}/bin:{}", self.bin.display(), cargo.display(), std::env::var("PATH").unwrap());
        command.arg("-ec").arg(lines).current_dir(&self.folder).env("PATH", path);
        if is_fresh() {
            let kept =
                ["CARGO_HOME", "RUSTUP_HOME"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
            let home = std::env::var("HOME").unwrap();
            let kept: BTreeMap<_, _> = kept.collect();
            command
                .env("CARGO_INSTALL_ROOT", cargo)
                .env("CARGO_HOME", format!("{home}/.cargo"))
                .env("RUSTUP_HOME", format!("{home}/.rustup"))
                .envs(kept);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, lines: &str) -> Output {
        let patience = Duration::from_secs(if is_fresh() { 3600 } else { 60 });
        output_within(self.shell(lines).spawn().unwrap(), patience, lines)
    }
}

#[test]
fn the_first_minute_goes_as_it_is_printed() {
    let Some(_ports) = ports() else { return };
    let begun = Instant::now();
    let checkout = Checkout::new();
    let is_short = std::env::var("HEADEND_TEST_FRESH").is_ok_and(|value| value == "short");
    assert!(read_me().contains("`cargo test --locked`"));
    let mut lines = commands("The first minute").into_iter().chain(["cargo test --locked".to_owned()]);
    let first = lines.next().unwrap();
    assert_eq!(first, "cargo run --release");
    if is_fresh() {
        // The wait for the daemon is bounded, and building takes long.
        let built = checkout.run("cargo build --release");
        assert!(built.status.success(), "{}", said(&built));
    }
    let gateway = Gateway::start_by(checkout.shell(&format!("exec {first}")), checkout.world.clone(), None, &[], &[]);
    let (mut setting, mut id, mut did) = (String::new(), None::<String>, Vec::new());
    gateway.wait_for_tools(&["time__now", "notes__add"]);
    for line in lines {
        if line.starts_with("export ") {
            setting = line;
            continue;
        }
        if line.starts_with("cargo test") && is_short {
            eprintln!("left out: `{line}` in the clone");
            did.push(line);
            continue;
        }
        // The only word that a reader has to replace.
        let command = line.replace(" ID", &format!(" {}", id.as_deref().unwrap_or("ID")));
        let output = checkout.run(&format!("{setting}\n{command}"));
        let text = said(&output);
        let words: Vec<&str> = line.split(' ').take(3).collect();
        let works = match (words.as_slice(), did.contains(&line)) {
            (["headend", "tools"], _) => text.contains("notes__add") && text.contains("ask"),
            (["headend", "call", "time__now"], _) => {
                if is_fresh() {
                    eprintln!("from the clone to the first call: {:?}", begun.elapsed());
                }
                output.status.success()
            }
            (["headend", "call", "notes__add"], false) => output.status.code() == Some(1) && text.contains("approval"),
            (["headend", "call", "notes__add"], true) => output.status.success() && text.contains("Added note://2"),
            (["headend", "approvals"], _) => {
                let shown = String::from_utf8_lossy(&output.stdout).into_owned();
                id = shown
                    .lines()
                    .nth(1)
                    .and_then(|row| row.split_whitespace().next())
                    .map(|id| id.chars().take(4).collect());
                text.contains("notes__add")
            }
            (["headend", "approve", "ID"], _) => output.status.success(),
            (["cargo", "test", "--locked"], _) => output.status.success(),
            _ => panic!("no expectation for `{line}`"),
        };
        assert!(works, "{command}\n{text}");
        did.push(line);
    }
    assert_eq!(did.len(), 7, "{did:#?}");
}

#[test]
fn own_servers_are_configured_as_it_is_printed() {
    let checkout = Checkout::new();
    let lines = commands("Your own servers");
    let [init, import, check, serve] = lines.as_slice() else { panic!("{lines:#?}") };
    let installed = checkout.run(&commands("Install")[0]);
    assert!(installed.status.success(), "{}", said(&installed));
    let made = checkout.run(init);
    assert!(made.status.success(), "{}", said(&made));

    let (_, tables) = blocks("Your own servers").into_iter().find(|(lang, _)| lang == "toml").unwrap();
    let file = checkout.world.path("config/headend/headend.toml");
    let first = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{first}\n{tables}")).unwrap();
    let token = "DOCS_TOKEN=a-token-of-some-length";
    let checked = checkout.run(&format!("export {token}\n{check}"));
    assert!(checked.status.success(), "{}", said(&checked));

    // A host's file, and the demo in the place of a server that would be downloaded.
    let server = checkout.world.path("home/notes-server");
    symlink(headend(), &server).unwrap();
    let demo = json!({"mcpServers": {"notes": {"command": server, "args": ["demo", "notes"]}}});
    checkout.world.write("home/.claude.json", &demo.to_string());
    // The harness keeps the configuration elsewhere than `~/.config`.
    let home = "unset XDG_CONFIG_HOME\n";
    let imported = checkout.run(&format!("{home}{import}\n{check}"));
    assert!(imported.status.success(), "{}", said(&imported));
    let written = fs::read_to_string(checkout.world.path("home/.config/headend/headend.toml")).unwrap();
    assert!(written.contains("[upstreams.notes]"), "{written}");
    assert_eq!(serve, "headend serve");
    let Some(_ports) = ports() else { return };
    let gateway = Gateway::start_by(
        checkout.shell(&format!("unset XDG_CONFIG_HOME\nexec {serve}")),
        checkout.world.clone(),
        None,
        &[],
        &[],
    );
    gateway.wait_for_tools(&["notes__search"]);
}

#[test]
fn the_service_and_its_removal_go_as_they_are_printed() {
    let checkout = Checkout::new();
    checkout.program("systemctl", SYSTEMCTL);
    if !is_fresh() {
        fs::create_dir_all(checkout.folder.join("systemd")).unwrap();
        for unit in ["headend-user.service", "headend.service"] {
            fs::copy(root().join("systemd").join(unit), checkout.folder.join("systemd").join(unit)).unwrap();
        }
    }
    // The harness keeps configuration and state elsewhere than a user does.
    let run = |line: &str| checkout.run(&format!("unset XDG_CONFIG_HOME XDG_STATE_HOME\n{line}"));
    let ok = |line: &str| {
        let output = run(line);
        assert!(output.status.success(), "{line}: {}", said(&output));
    };
    ok(&commands("Install")[0]);
    let home = checkout.world.path("home");
    fs::create_dir_all(home.join(".config/headend")).unwrap();
    let ports = "[server]\nlisten = [\"127.0.0.1:0\"]\n[metrics]\nlisten = \"127.0.0.1:0\"\n[console]\nlisten = \"\"\n[policy]\ndefault = \"ask\"\n";
    checkout.world.write("home/.config/headend/headend.toml", ports);
    commands("As a service").iter().for_each(|line| ok(line));
    within(Duration::from_secs(60), "the unit's headend answers", || run("headend status").status.success());
    let pid: u32 = fs::read_to_string(home.join("unit.pid")).unwrap().trim().parse().unwrap();
    assert!(home.join(".local/state/headend/headend.db").exists());
    // PATH of the machine may hold another headend.
    let program = || PathBuf::from(String::from_utf8(run("command -v headend").stdout).unwrap().trim());
    assert!(program().starts_with(&home), "{:?}", program());

    let lines = commands("Uninstall");
    assert_eq!(lines.len(), 4, "{lines:#?}");
    lines.iter().for_each(|line| ok(line));
    assert!(!alive(pid), "its daemon has ended");
    let mut left = Vec::new();
    named_headend(&home, &mut left);
    assert!(left.is_empty(), "{left:#?}");
    assert!(!program().starts_with(&home), "{:?}", program());
}

/// Finds files and folders whose name contains headend.
fn named_headend(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if entry.file_name().to_string_lossy().contains("headend") {
            found.push(path);
        } else if path.is_dir() && !path.is_symlink() {
            named_headend(&path, found);
        }
    }
}

/// Returns the command line that a host starts, from the host's own format.
fn started(host: &str, line: &str) -> Vec<String> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let entry = |entry: &Value| {
        let args = entry["args"].as_array().unwrap().iter();
        let words = [&entry["command"]].into_iter().chain(args);
        words.map(|word| word.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    match host {
        "Claude Code" | "Codex" => words(line.split_once(" headend -- ").unwrap().1),
        "Gemini CLI" => words(line.split_once(" add --scope user headend ").unwrap().1),
        "VS Code" => {
            let text = line.strip_prefix("code --add-mcp '").unwrap().strip_suffix('\'').unwrap();
            let server: Value = serde_json::from_str(text).unwrap();
            assert_eq!(server["name"], "headend");
            entry(&server)
        }
        "mcpServers" | "context_servers" => {
            let file: Value = serde_json::from_str(line).unwrap();
            entry(&file[host]["headend"])
        }
        _ => panic!("no format for the host {host:?}"),
    }
}

/// Returns the section of the reference with the entries of hosts.
fn entries() -> String {
    let page = fs::read_to_string(root().join("config/README.md")).unwrap();
    page.split("\n## ").find(|section| section.starts_with("Entries by hand")).unwrap().to_owned()
}

#[test]
fn each_hosts_line_starts_headend_as_its_server() {
    let text = entries();
    let section = text.as_str();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | `"));
    let mut hosts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut files = Vec::new();
    for (host, rest) in rows {
        let line = rest.rsplit_once("` |").map_or(rest, |(line, _)| line);
        if line.contains("headend") { drop(hosts.insert(host, started(host, line))) } else { files.push(host) }
    }
    assert_eq!(files, ["Claude Desktop", "Cursor", "Windsurf", "Zed"]);
    for text in section.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        let key = if text.contains("context_servers") { "context_servers" } else { "mcpServers" };
        hosts.insert(key, started(key, text));
    }
    assert_eq!(hosts.len(), 6, "{hosts:#?}");

    let checkout = Checkout::new();
    assert!(checkout.run(&commands("Install")[0]).status.success());
    for (host, words) in &hosts {
        assert_eq!(words, &["headend", "stdio"], "{host}");
    }
    let page = fs::read_to_string(root().join("config/README.md")).unwrap();
    let (_, section) = page.split_once("\n## Hosts over HTTP\n").unwrap();
    let codex: toml::Table = toml::from_str(section.split("```").nth(1).unwrap().trim_start_matches("toml")).unwrap();
    let url = codex["mcp_servers"]["headend"]["url"].as_str().unwrap();
    assert_eq!(url, "http://127.0.0.1:8627/mcp");

    // The command that all hosts start, with the demo behind it.
    let mut command = checkout.shell("exec \"$@\"");
    command.arg("sh").args(&hosts["Claude Code"]);
    let mut client = Mcp::stdio(Pipe::of(command), ClientEra::LEGACY);
    eventually("the demo's tools are listed", || client.tool_names().iter().any(|name| name == "notes__add"));
}

#[test]
fn hosts_that_are_installed_take_their_line() {
    for (host, program) in
        [("Claude Code", "claude"), ("Codex", "codex"), ("Gemini CLI", "gemini"), ("VS Code", "code")]
    {
        if !installed(program) {
            eprintln!("the line of {host} is only read, not run: `{program}` is not installed");
            continue;
        }
        let checkout = Checkout::new();
        let text = entries();
        let row = text.lines().find_map(|line| line.strip_prefix(&format!("| {host} | `"))).unwrap();
        let output = checkout.run(row.strip_suffix("` |").unwrap());
        assert!(output.status.success(), "{host}: {}", said(&output));
    }
}

#[test]
fn the_read_me_is_short_and_its_links_lead_somewhere() {
    let lines = read_me().lines().count();
    assert!(lines <= MAX_LINES, "README.md has {lines} lines, more than {MAX_LINES}");
    for page in ["README.md", "config/README.md", "systemd/README.md", "tests/README.md", ".github/CONTRIBUTING.md"] {
        let page = root().join(page);
        let text = fs::read_to_string(&page).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.starts_with("http")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link}", page.display());
            if !anchor.is_empty() {
                let text = fs::read_to_string(&target).unwrap();
                let slug = |heading: &str| {
                    heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-").replace(['`', ':'], "")
                };
                let found = text.lines().filter(|line| line.starts_with('#')).any(|line| slug(line) == anchor);
                assert!(found, "{}: {link}", page.display());
            }
        }
    }
}
