//! Tests that each action of an operator, other than looking, makes one record in the audit log,
//! from each interface: commands with and without a daemon, the console, a signal, a changed file.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::tools::browser::Browser;
use crate::tools::harness::{GatewaySetup, TestHome};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::{eventually, said};
use crate::tools::stdio::Pipe;
use crate::tools::upstream::Fake;

/// Commands that record their action: the command, its words as the test writes them (`ID` is an
/// approval's id, `ITEM` a changed tool), and the action in the record.
const ACTIONS: [(&str, &str, &str); 20] = [
    ("approvals approve", "approvals approve ID", "approve"),
    ("approvals deny", "approvals deny ID", "deny"),
    ("approvals notify", "approvals notify", "notify"),
    ("approvals unblock", "approvals unblock ID", "unblock"),
    ("approve", "approve ID", "approve"),
    ("console", "console", "console-link"),
    ("deny", "deny ID", "deny"),
    ("disable", "disable gx", "disable"),
    ("enable", "enable gx", "enable"),
    ("grants reviewed", "grants reviewed", "review"),
    ("grants revoke", "grants revoke --all", "revoke"),
    ("login", "login fx", "login-begin"),
    ("logout", "logout fx", "logout"),
    ("pins approve", "pins approve un__echo --yes", "pins-approve"),
    ("pins reject", "pins reject un__write", "pins-reject"),
    ("reload", "reload", "reload"),
    ("restart", "restart fx", "restart"),
    ("secrets rekey", "secrets rekey", "rekey"),
    ("tokens add", "tokens add ci", "token-add"),
    ("tokens revoke", "tokens revoke ci", "token-revoke"),
];

/// Commands that change nothing in a gateway or its store, or that leave other records: `call`
/// leaves a decision, `serve` and `stdio` the start. `import`, `init`, `connect` and `disconnect`
/// write a file that the gateway reads later; `add` and `remove` edit it and ask for a reload,
/// which has the record.
const OTHERS: [&str; 29] = [
    "add",
    "approvals list",
    "approvals show",
    "audit tail",
    "audit verify",
    "backup",
    "call",
    "check",
    "completions",
    "connect",
    "demo",
    "disconnect",
    "doctor",
    "grants list",
    "help",
    "import",
    "init",
    "logs",
    "pins diff",
    "pins list",
    "policy replay",
    "policy suggest",
    "policy test",
    "remove",
    "serve",
    "status",
    "stdio",
    "tokens list",
    "tools",
];

/// Lists the subcommands of a command from its help.
fn commands(world: &TestHome, of: &str) -> Vec<String> {
    let help = world.run(&of.split_whitespace().chain(["--help"]).collect::<Vec<_>>());
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    let Some((_, list)) = text.split_once("Commands:\n") else { return Vec::new() };
    let lines = list.lines().take_while(|line| !line.trim().is_empty());
    let is_name = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    let names = lines.filter(is_name).filter_map(|line| line.split_whitespace().next());
    names.map(|name| format!("{of} {name}").trim().to_owned()).filter(|name| !name.ends_with(" help")).collect()
}

/// Returns `action`, `by`, `name` and `result` of all actions in the log, except reloads of changed
/// files.
fn actions(world: &TestHome) -> Vec<[String; 4]> {
    let files = fs::read_dir(world.path("state/headend/audit")).unwrap().map(|file| file.unwrap().path());
    let mut texts: Vec<_> = files.map(|path| fs::read_to_string(path).unwrap()).collect();
    texts.sort_by_key(|text| text.get(..80).map(|head| head.split_once("\"ts\":").map(|(_, at)| at.to_owned())));
    let whole = texts.iter().flat_map(|text| text.rfind('\n').map_or("", |end| &text[..end]).lines());
    let records = whole.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let members = |record: Value| {
        ["action", "by", "name", "result"].map(|member| record[member].as_str().unwrap_or_default().to_owned())
    };
    let all = records.filter(|record| record["event"] == "action").map(members);
    all.filter(|[_, by, ..]| by != "file-watch").collect()
}

/// Waits for the next recorded action and returns its members.
fn next(world: &TestHome, before: &mut usize, what: &str) -> [String; 4] {
    eventually(&format!("{what} is on record"), || actions(world).len() > *before);
    let all = actions(world);
    assert_eq!(all.len(), *before + 1, "{what}: one record: {all:?}");
    *before = all.len();
    all.last().unwrap().clone()
}

/// Makes a call that needs an approval, and returns the approval's id.
fn asked(world: &TestHome, client: &mut Mcp, n: usize) -> String {
    assert!(client.call("fx__echo", json!({"text": format!("call {n}")})).is_error());
    let mut id = None;
    eventually("the approval is listed", || {
        let listed = world.run(&["approvals", "--json"]);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        id = listed["approvals"][0]["id"].as_str().map(str::to_owned);
        id.is_some()
    });
    id.unwrap()
}

fn setup() -> GatewaySetup {
    let setup = GatewaySetup::new().toml("[console]\nlisten = \"127.0.0.1:0\"").fake("fx", &Fake::stdio("both"));
    let command = Fake::stdio("both").command();
    setup
        .policy("default = \"ask\"\n[policy.consent]\nper-minute = 100")
        .fake("gx", &Fake::stdio("both"))
        .toml(&format!("[upstreams.un]\ncommand = {command}\ntrust = \"untrusted\""))
}

fn own_user() -> String {
    format!("uid:{}", rustix::process::getuid().as_raw())
}

/// Runs a command of [`ACTIONS`] and checks its record.
fn play(world: &TestHome, client: &mut Mcp, before: &mut usize, (line, action): (&str, &str), by: &str) -> Value {
    let id = if line.contains("ID") { asked(world, client, *before) } else { String::new() };
    let line = line.replace("ID", &id);
    let config = world.path("headend.toml");
    let args: Vec<&str> = line.split_whitespace().chain(["--config", config.to_str().unwrap()]).collect();
    let output = world.run(&args);
    let [found, who, name, result] = next(world, before, &line);
    assert_eq!((&*found, &*who), (action, by), "{line}: {}", said(&output));
    assert_eq!(result, if output.status.success() { "done" } else { "refused" }, "{line}: {}", said(&output));
    json!([name, result])
}

#[test]
fn each_command_is_a_look_or_leaves_one_record() {
    let world = TestHome::new();
    let mut all = BTreeSet::new();
    for command in commands(&world, "") {
        let below = commands(&world, &command);
        // `approvals`, `grants`, `pins` and `tokens` without a subcommand list.
        all.extend(if below.is_empty() { vec![command] } else { below });
    }
    let known = ACTIONS.iter().map(|(command, ..)| *command).chain(OTHERS);
    assert_eq!(
        all,
        known.map(str::to_owned).collect(),
        "say which of both a new command is, and let it leave a record"
    );

    let gateway = setup().start();
    gateway.wait_for_tools(&["fx__echo", "gx__echo"]);
    let (world, mut client, mut before) = (&gateway.world, gateway.modern(), 0);
    for (_, line, action) in ACTIONS {
        let told = play(world, &mut client, &mut before, (line, action), &own_user());
        // The approval is open, so nothing is blocked, and nothing was restored.
        let is_done = !matches!(action, "notify" | "review" | "unblock" | "login-begin" | "logout");
        assert!(told[1] == "done" || !is_done, "{line}: {told}");
    }
}

#[test]
fn signals_files_and_browsers_leave_one_record_each() {
    let mut gateway = setup().start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut before = 0;
    gateway.signal(Signal::HUP);
    let [action, by, _, result] = next(&gateway.world, &mut before, "SIGHUP");
    assert_eq!([&*action, &by, &result], ["reload", "sighup", "done"]);

    let text = fs::read_to_string(&gateway.config).unwrap();
    fs::write(&gateway.config, format!("{text}\n# changed\n")).unwrap();
    let watched = || {
        let tail = gateway.run(&["audit", "tail", "--json", "-n", "1000"]);
        String::from_utf8_lossy(&tail.stdout).contains(r#""by":"file-watch""#)
    };
    eventually("the changed file is on record", watched);

    let mut browser = Browser::signed_in(&gateway);
    let [action, by, name, result] = next(&gateway.world, &mut before, "the sign-in");
    assert_eq!([&*action, &name, &result], ["sign-in", "token", "done"]);
    assert!(by.starts_with("console:"), "{by}");
    for _ in 0..3 {
        assert_eq!(browser.post("/sign-in", "token=guess").head.status, 403);
    }
    let wrong = next(&gateway.world, &mut before, "the wrong sign-ins");
    assert_eq!(wrong, ["wrong-sign-in", "unknown", "", "refused"]);
    let page = browser.get("/upstreams/fx").text();
    let (_, csrf) = page.split_once("name=\"csrf\" value=\"").unwrap();
    let csrf = csrf.split('"').next().unwrap().to_owned();
    for (word, wanted) in [("restart", "restart"), ("disable", "disable"), ("enable", "enable")] {
        assert_eq!(browser.post("/upstreams/fx", &format!("csrf={csrf}&do={word}")).head.status, 303);
        assert_eq!(next(&gateway.world, &mut before, word), [wanted, &by, "fx", "done"]);
    }
    assert_eq!(browser.post("/sign-out", &format!("csrf={csrf}")).head.status, 303);
    assert_eq!(next(&gateway.world, &mut before, "the sign-out"), ["sign-out", &by, "", "done"]);

    gateway.signal(Signal::TERM);
    gateway.wait(std::time::Duration::from_secs(60)).unwrap();
    let counted = gateway.world.run(&["audit", "tail", "--json", "-n", "1000"]);
    let counted = String::from_utf8_lossy(&counted.stdout).into_owned();
    let wrong = counted.lines().filter(|line| line.contains("wrong-sign-in"));
    let counts: u64 = wrong.map(|line| serde_json::from_str::<Value>(line).unwrap()["count"].as_u64().unwrap()).sum();
    assert_eq!(counts, 3, "the last ones are counted at the end");
    for args in [&["audit", "verify"][..], &["audit", "tail"], &["policy", "suggest"]] {
        let output = gateway.run(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    }
    let rule = "[[policy.rules]]\nid = \"all\"\neffect = \"allow\"\ntools = [\"fx__*\"]\n";
    let rules = gateway.world.write("rules.toml", rule);
    let config = gateway.config.to_str().unwrap();
    let replayed = gateway.run(&["policy", "replay", rules.to_str().unwrap(), "--config", config]);
    assert!(said(&replayed).contains("questions to people"), "{}", said(&replayed));
    let tail = said(&gateway.run(&["audit", "tail", "-n", "1000"]));
    assert!(tail.contains("action=restart name=fx by=console:"), "{tail}");
}

#[test]
fn commands_without_a_daemon_leave_one_record_each() {
    let (world, config) = setup().write();
    let mut client = Mcp::stdio(Pipe::start(&world, &config, &["--no-daemon"]), ClientEra::LEGACY);
    let has = |client: &mut Mcp, name: &str| client.tool_names().iter().any(|tool| tool == name);
    eventually("echo is listed", || has(&mut client, "fx__echo"));
    let is_waiting = || String::from_utf8_lossy(&world.run(&["pins", "--json"]).stdout).contains("un__write");
    eventually("tools of `un` wait", is_waiting);
    let (by, mut before) = (format!("command:{}", own_user()), 0);
    for (command, line, action) in ACTIONS {
        // The others need a daemon.
        if !["approvals notify", "approvals unblock", "console", "login", "logout", "reload", "restart"]
            .contains(&command)
        {
            let told = play(&world, &mut client, &mut before, (line, action), &by);
            // Nothing was restored.
            let wanted = if action == "review" { "refused" } else { "done" };
            assert_eq!(told[1], wanted, "{line}: {told}");
        }
    }
    let verified = world.run(&["audit", "verify"]);
    assert!(verified.status.success(), "{}", said(&verified));
    drop(client);
}
