//! Tests of sealed values in the store: arguments of open approvals, and queries of upstreams'
//! URLs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::tools::harness::{Gateway, GatewaySetup, TestHome};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::{descendants, eventually, said};
use crate::tools::stdio::Pipe;
use crate::tools::upstream::{Fake, Listening};

/// Texts that must not be on disk in the clear.
const ARGUMENT: &str = "marker-in-an-argument";
const QUERY: &str = "marker-in-a-query";

/// Creates a setup with two servers, one of them behind a URL with a query, and a policy that asks.
fn setup(remote: &Listening) -> GatewaySetup {
    let setup = GatewaySetup::new().policy("default = \"ask\"\n[policy.consent]\nper-minute = 100");
    setup.fake("fx", &Fake::stdio("legacy")).url("docs", &format!("{}?key={QUERY}", remote.url))
}

/// Returns the files of the state directory that contain one of the markers.
fn in_clear(world: &TestHome) -> Vec<(PathBuf, &'static str)> {
    let mut found = Vec::new();
    let mut folders = vec![world.path("state/headend")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            // A file may vanish before it is read.
            let bytes = fs::read(&path).unwrap_or_default();
            let has = |marker: &str| bytes.windows(marker.len()).any(|part| part == marker.as_bytes());
            found.extend(
                [ARGUMENT, QUERY].into_iter().filter(|marker| has(marker)).map(|marker| (path.clone(), marker)),
            );
        }
    }
    found
}

fn database(world: &TestHome) -> Connection {
    Connection::open(world.path("state/headend/headend.db")).unwrap()
}

/// Returns one column of every row, as stored.
fn stored(world: &TestHome, query: &str) -> Vec<String> {
    let connection = database(world);
    let mut statement = connection.prepare(query).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

const MESSAGES: &str = "SELECT message FROM approvals";
const LAUNCHES: &str = "SELECT coalesce(approved, waiting) FROM pins WHERE kind = 'launch' AND upstream = 'docs'";

fn ask(client: &mut Mcp) -> String {
    let refused = client.call("fx__echo", json!({"text": ARGUMENT}));
    let id = &refused.result()["_meta"]["headend/refusal"]["approval"]["id"];
    id.as_str().unwrap_or_else(|| panic!("{}", refused.raw)).to_owned()
}

/// Returns the messages of the open approvals, as the operator sees them.
fn open(world: &TestHome) -> Vec<String> {
    let output = world.run(&["approvals", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = listed["approvals"].as_array().cloned().unwrap();
    rows.iter().map(|row| row["message"].as_str().unwrap().to_owned()).collect()
}

fn diff(world: &TestHome, name: &str) -> String {
    let output = world.run(&["pins", "diff", name]);
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Opens an approval, and checks that it and the launch are stored sealed but shown in full.
fn ask_and_look(world: &TestHome, client: &mut Mcp) {
    eventually("both are listed", || {
        let names = client.tool_names();
        ["fx__echo", "docs__echo"].iter().all(|name| names.iter().any(|listed| listed == name))
    });
    ask(client);
    eventually("the question is written down", || !stored(world, MESSAGES).is_empty());
    assert_eq!(in_clear(world), [], "{world:?}");
    for value in [stored(world, MESSAGES), stored(world, LAUNCHES)].concat() {
        let parts: Vec<&str> = value.split(':').collect();
        assert!(parts.len() == 4 && parts[..2] == ["sealed", "1"] && parts[2].len() == 16, "format and key: {value}");
    }
    // The operator sees the arguments in full.
    assert!(open(world)[0].contains(ARGUMENT));
    assert!(diff(world, "docs").contains(QUERY));
}

#[test]
fn arguments_and_queries_lie_sealed_and_the_operator_reads_them() {
    let remote = Fake::http("both").spawn();
    let gateway = setup(&remote).start();
    let mut client = gateway.modern();
    ask_and_look(&gateway.world, &mut client);
    let key = gateway.world.path("state/headend/secrets.key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);

    // Children get the key neither from the environment nor as an open file.
    let key = fs::read(&key).unwrap();
    let children = descendants(gateway.pid());
    assert!(!children.is_empty());
    for pid in children {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        assert!(!environment.windows(key.len()).any(|part| part == key));
        let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let files: Vec<PathBuf> = files.filter_map(|file| fs::read_link(file.path()).ok()).collect();
        let state = gateway.world.path("state");
        assert!(!files.iter().any(|file| file.starts_with(&state)), "{files:?}");
    }
}

#[test]
fn a_gateway_without_a_daemon_seals_with_the_same_key() {
    let remote = Fake::http("both").spawn();
    let (world, config) = setup(&remote).write();
    let mut client = Mcp::stdio(Pipe::start(&world, &config, &["--no-daemon"]), ClientEra::Modern);
    ask_and_look(&world, &mut client);
    // A daemon that runs at the same time sees its approval.
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    assert!(open(&gateway.world)[0].contains(ARGUMENT));
    assert!(diff(&gateway.world, "docs").contains(QUERY));
}

/// Creates a store with a grant, a rejected launch and an open approval, after the daemon has
/// ended.
fn used(remote: &Listening, more: &str) -> (TestHome, PathBuf) {
    let gateway = setup(remote).toml(more).start();
    let mut client = gateway.modern();
    gateway.wait_for_tools(&["fx__echo", "docs__echo"]);
    client.call("fx__env", json!({}));
    let answer = gateway.run(&["approvals", "--json"]);
    let listed: Value = serde_json::from_slice(&answer.stdout).unwrap();
    let id = listed["approvals"][0]["id"].as_str().unwrap();
    assert!(gateway.run(&["approve", id, "--for", "always"]).status.success());
    let rejected = gateway.run(&["pins", "reject", "docs", "--launch"]);
    assert!(rejected.status.success(), "{}", said(&rejected));
    ask(&mut client);
    eventually("the question is written down", || !stored(&gateway.world, MESSAGES).is_empty());
    // As a crash leaves it: an orderly end closes the approvals.
    gateway.signal(rustix::process::Signal::KILL);
    let (world, config) = (gateway.world.clone(), gateway.config.clone());
    drop(gateway);
    // Approvals of a dead daemon are not listed; this one becomes that of a process of which
    // nothing is known.
    assert_eq!(database(&world).execute("UPDATE approvals SET owner = 'other'", []).unwrap(), 1);
    (world, config)
}

/// Checks facts that hold after every restart: the grant of this client's caller, and the
/// rejection.
fn still_holds(gateway: &Gateway, client: &mut Mcp) {
    gateway.wait_for_tools(&["fx__echo"]);
    let allowed = client.call("fx__env", json!({}));
    assert!(!allowed.is_error(), "{}", allowed.raw);
    let pins = gateway.run(&["pins", "--json"]);
    let listed: Value = serde_json::from_slice(&pins.stdout).unwrap();
    let is_launch = |pin: &&Value| pin["kind"] == "launch" && pin["upstream"] == "docs";
    let state = listed["pins"].as_array().unwrap().iter().find(is_launch).unwrap()["state"].clone();
    assert_eq!(state, "rejected", "{listed}");
    assert!(!gateway.modern().tool_names().iter().any(|name| name.starts_with("docs__")));
}

/// Puts a store into the state of release 0.1.0, which had no key: all texts in the clear.
fn as_before(world: &TestHome, url: &str) {
    let message = format!("headend asks for consent.\narguments: {{\"text\":\"{ARGUMENT}\"}}");
    let launch = format!(r#"{{"transport":"auto","url":"{url}?key={QUERY}"}}"#);
    let connection = database(world);
    // First, because these statements rewrite the rows, and this connection keeps the replaced
    // ones.
    connection.execute("ALTER TABLE approvals DROP COLUMN details", []).unwrap();
    connection.execute("ALTER TABLE grants DROP COLUMN below", []).unwrap();
    for column in ["confirmed", "lacks_askers", "doubted"] {
        connection.execute(&format!("ALTER TABLE pins DROP COLUMN {column}"), []).unwrap();
    }
    for table in ["approvals", "grants"] {
        connection.execute(&format!("UPDATE {table} SET caller = 'local'"), []).unwrap();
    }
    assert_eq!(connection.execute("UPDATE approvals SET message = ?1", [&message]).unwrap(), 1);
    connection
        .execute_batch("ALTER TABLE answers RENAME COLUMN approval TO prompt; ALTER TABLE approvals RENAME TO prompts")
        .unwrap();
    let query = "UPDATE pins SET waiting = ?1 WHERE kind = 'launch' AND upstream = 'docs'";
    assert_eq!(connection.execute(query, [&launch]).unwrap(), 1);
    let later = [
        "ended_sessions",
        "ended_floors",
        "session_levels",
        "session_resources",
        "used_states",
        "sign_ins",
        "logins",
        "registrations",
        "login_issuers",
        "client_tokens",
    ];
    for table in later {
        connection.execute(&format!("DROP TABLE {table}"), []).unwrap();
    }
    connection.pragma_update(None, "user_version", 1).unwrap();
    drop(connection);
    fs::remove_file(world.path("state/headend/secrets.key")).unwrap_or_default();
    assert_eq!(in_clear(world).len(), 2, "in the database, nothing in its journal");
}

#[test]
fn a_store_of_before_opens_and_is_sealed_and_what_was_decided_holds() {
    let remote = Fake::http("both").spawn();
    let (world, config) = used(&remote, "");
    let digests =
        "SELECT coalesce(approved_digest, '') || coalesce(waiting_digest, '') FROM pins ORDER BY upstream, kind, name";
    let before = stored(&world, digests);
    as_before(&world, &remote.url);
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    // A caller was identified by name only: a grant of `local` is that of our own user, not of
    // clients without a credential.
    still_holds(&gateway, &mut Mcp::stdio(Pipe::start(&gateway.world, &gateway.config, &[]), ClientEra::Modern));
    assert_eq!(in_clear(&gateway.world), [], "nor in the journal");
    assert!(open(&gateway.world)[0].contains(ARGUMENT));
    assert!(diff(&gateway.world, "docs").contains(QUERY));
    assert_eq!(stored(&gateway.world, digests), before, "digests of pins stay");
    // An older program would not know the launch by its sealed text, and would let a rejected one
    // start.
    assert_eq!(stored(&gateway.world, "SELECT CAST(user_version AS TEXT) FROM pragma_user_version"), ["14"]);
}

#[test]
fn with_the_key_lost_open_questions_vanish_and_nothing_else() {
    let remote = Fake::http("both").spawn();
    let (world, config) = used(&remote, "");
    fs::remove_file(world.path("state/headend/secrets.key")).unwrap();
    // Without a daemon too, and without making a key.
    let shown = world.run(&["approvals", "--config", config.to_str().unwrap()]);
    assert!(shown.status.success(), "{}", said(&shown));
    assert!(String::from_utf8_lossy(&shown.stdout).contains("no approval is open"), "{}", said(&shown));
    assert!(String::from_utf8_lossy(&shown.stderr).contains("the key that seals them"), "{}", said(&shown));
    assert!(!world.path("state/headend/secrets.key").exists());
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    still_holds(&gateway, &mut gateway.modern());
    assert_eq!(open(&gateway.world), Vec::<String>::new());
    let lines =
        || gateway.stderr.all().iter().filter(|line| line.contains("sealed with a key that is not here")).count();
    assert_eq!(lines(), 1, "{}", gateway.story());
    // The configuration still has the server's URL, so the text of its launch is known again.
    assert!(diff(&gateway.world, "docs").contains(QUERY));
    assert_eq!(in_clear(&gateway.world), []);
    let mut client = gateway.modern();
    ask(&mut client);
    eventually("new questions are open", || open(&gateway.world).iter().any(|text| text.contains(ARGUMENT)));
}

#[test]
fn a_key_of_the_configuration_takes_over_and_makes_no_file() {
    let remote = Fake::http("both").spawn();
    let (world, config) = used(&remote, "");
    let made = stored(&world, MESSAGES);
    world.write("store.key", "0123456789abcdef0123456789abcdef\n");
    let text = fs::read_to_string(&config).unwrap();
    let with = |path: &Path| format!("{text}\n[secrets]\nkey = {{ file = \"{}\" }}\n", path.display());
    world.write("headend.toml", &with(&world.path("store.key")));
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    still_holds(&gateway, &mut gateway.modern());
    assert!(open(&gateway.world)[0].contains(ARGUMENT), "the key of before still opens");
    let key = |value: &str| value.split(':').nth(2).unwrap().to_owned();
    assert_ne!(key(&stored(&gateway.world, MESSAGES)[0]), key(&made[0]), "and everything is sealed with the new one");
    // Values sealed with the new key no longer need the old one.
    let (world, config) = (gateway.world.clone(), gateway.config.clone());
    gateway.signal(rustix::process::Signal::KILL);
    drop(gateway);
    fs::remove_file(world.path("state/headend/secrets.key")).unwrap();
    let shown = world.run(&["approvals", "--config", config.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains(ARGUMENT), "{}", said(&shown));
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    still_holds(&gateway, &mut gateway.modern());
    assert!(open(&gateway.world)[0].contains(ARGUMENT));
    assert!(!gateway.world.path("state/headend/secrets.key").exists());
    let shown = gateway.run(&["check", "--resolved", "--config", gateway.config.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(text.contains("[secrets]\nkey = \"***\"\n"), "{text}");
}

#[test]
fn processes_that_start_together_on_a_fresh_state_agree_on_the_key() {
    let setup = GatewaySetup::new().policy("default = \"ask\"\n[policy.consent]\nper-minute = 100");
    let (world, config) = setup.fake("fx", &Fake::stdio("legacy")).write();
    let pipes: Vec<Pipe> = (0..6).map(|_| Pipe::start(&world, &config, &["--no-daemon"])).collect();
    let mut clients: Vec<Mcp> = pipes.into_iter().map(|pipe| Mcp::stdio(pipe, ClientEra::Modern)).collect();
    for client in &mut clients {
        eventually("echo is listed", || client.tool_names().iter().any(|name| name == "fx__echo"));
        ask(client);
    }
    eventually("all have asked", || open(&world).len() == 6);
    let keys: std::collections::HashSet<String> =
        stored(&world, MESSAGES).iter().map(|value| value.split(':').nth(2).unwrap().to_owned()).collect();
    assert_eq!(keys.len(), 1, "{keys:?}");
    drop(clients);
    let left = fs::read_dir(world.path("state/headend")).unwrap().flatten();
    let left: Vec<_> =
        left.map(|entry| entry.file_name()).filter(|name| name.to_str().unwrap().starts_with("secrets.key.")).collect();
    assert!(left.is_empty(), "{left:?}");
}
