//! Tests of the output that a person sees at a terminal: addresses, clients and approvals in
//! `status`, an approval on one line, the text of a result, local times, advice for a taken port, a
//! server that is starting, and a doctor whose findings fit the screen.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr as _;

use crate::tools::harness::{GatewaySetup, TestHome, headend};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::{eventually, output_within, said, wait};
use crate::tools::stdio::Pipe;
use crate::tools::terminal::Terminal;
use crate::tools::upstream::Fake;

/// A second caller's token.
const TOKEN: &str = "token-of-the-second-caller-0123456789";
/// A time zone three hours east that needs no zone file.
const ZONE: &str = "<+03>-3";

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(output)))
}

#[test]
fn a_command_that_follows_ends_with_its_reader_also_while_it_waits() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    gateway.modern().call("fx__echo", json!({"text": "x"}));
    for (args, reads) in [
        (&["audit", "tail", "-f"][..], true),
        (&["logs", "-f", "fx"][..], true),
        (&["approvals", "--watch"][..], false),
    ] {
        let mut command = gateway.world.command(headend());
        let mut child = command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        if reads {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            assert!(!line.is_empty(), "{args:?}");
        }
        drop(reader);
        let status = wait(&mut child, Duration::from_secs(20));
        // The command would run forever.
        let _ignored = child.kill();
        let _ignored = child.wait();
        assert_eq!(status.and_then(|status| status.code()), Some(0), "{args:?}");
    }
}

#[test]
fn a_taken_port_names_the_key_that_sets_it() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap();
    // Only the one that the test is about is taken.
    let free = "[server]\nlisten = [\"127.0.0.1:0\"]\n";
    for (key, text) in [
        ("[server] listen", format!("[server]\nlisten = [\"{address}\"]\n[metrics]\nlisten = \"127.0.0.1:0\"\n")),
        ("[metrics] listen", format!("{free}[metrics]\nlisten = \"{address}\"\n")),
        ("[console] listen", format!("{free}[metrics]\nlisten = \"127.0.0.1:0\"\n[console]\nlisten = \"{address}\"\n")),
    ] {
        let world = TestHome::new();
        let config = world.write("headend.toml", &format!("{text}[policy]\ndefault = \"ask\"\n"));
        let refused = world.run(&["serve", "--config", config.to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(75), "{}", said(&refused));
        let told = said(&refused).split_whitespace().collect::<Vec<_>>().join(" ");
        let want = format!("{key}: {address} is in use by another program");
        assert!(told.contains(&want), "{want}: {told}");
        assert!(told.contains(&format!("`ss -ltnp 'sport = :{}'`", address.port())), "{told}");
    }
}

#[test]
fn numbers_in_json_logs_are_numbers() {
    let limit = "[[policy.limits]]\nid = \"few\"\ntools = [\"fx__*\"]\nrate = \"1/h\"";
    let log = "[log]\nformat = \"json\"\nfilter = \"debug\"\n[upstreams.gone]\ncommand = [\"/bin/false\"]";
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).toml(limit).toml(log).start();
    gateway.wait_for_tools(&["fx__echo"]);
    for _ in 0..2 {
        gateway.modern().call("fx__echo", json!({"text": "x"}));
    }
    for member in ["retry_ms", "retry_after_ms"] {
        let logged = |lines: &[String]| {
            let records = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            records.into_iter().find_map(|record| record.get(member).cloned())
        };
        let value = gateway.stderr.wait_for(Duration::from_secs(20), logged).unwrap_or_else(|| panic!("no {member}"));
        assert!(value.is_u64(), "{member}: {value}");
    }
}

#[test]
fn times_are_of_the_own_zone_for_people_and_in_utc_in_json() {
    let setup = GatewaySetup::new().policy("default = \"ask\"").fake("fx", &Fake::stdio("both"));
    let gateway = setup.start();
    gateway.wait_for_tools(&["fx__echo"]);
    gateway.modern().call("fx__echo", json!({"text": "x"}));
    let id = json_of(&gateway.run(&["approvals", "--json"]))["approvals"][0]["id"].as_str().unwrap().to_owned();
    assert!(gateway.run(&["approve", &id, "--for", "8h"]).status.success());
    let run = |zone: &str, args: &[&str]| {
        let mut command = gateway.world.command(headend());
        let child = command.args(args).env("TZ", zone).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        stdout(&output_within(child, Duration::from_secs(30), "headend"))
    };
    for args in [&["audit", "tail"][..], &["logs", "fx"], &["grants"]] {
        let (east, utc) = (run(ZONE, args), run("UTC", args));
        assert!(east.contains(" +03:00 ") && !east.contains("UTC"), "{args:?}: {east}");
        assert!(utc.contains(" UTC ") && !utc.contains("Z "), "{args:?}: {utc}");
    }
    for args in [&["audit", "tail", "--json"][..], &["logs", "fx", "--json"]] {
        let told = run(ZONE, args);
        assert!(told.contains("Z\"") && !told.contains("+03:00"), "{args:?}: {told}");
    }
}

#[test]
fn a_tool_of_a_server_that_starts_for_the_first_time_is_starting() {
    let slow = Fake::stdio("legacy").behaving("slow-start=600000").command();
    let rule = "[[policy.rules]]\nid = \"no\"\neffect = \"deny\"\ntools = [\"slow__*\"]\ncallers = [\"second\"]";
    let profiles = "[profiles.without]\nupstreams = [\"fx\"]\n[profiles.few]\ntools = { allow = [\"fx__*\"] }\n\
                    [profiles.bare]\nupstreams = [\"slow\"]\ntransparent = true";
    let setup = GatewaySetup::new().second_caller(TOKEN).fake("fx", &Fake::stdio("both")).toml(rule).toml(profiles);
    let gateway = setup
        .toml(&format!("[upstreams.slow]\ncommand = {slow}\nstart-timeout = \"10m\"\ntools = {{ deny = [\"no_*\"] }}"))
        .start();
    gateway.wait_for_tools(&["fx__echo"]);
    let at =
        |token: Option<String>, era: ClientEra, path: &str| Mcp::http_at(gateway.address, token, era, path, json!({}));
    let pipe = |era: ClientEra| {
        // `status` reads the configuration too.
        let mut command = gateway.world.command(headend());
        command.env("SECOND_TOKEN", TOKEN);
        Mcp::stdio(Pipe::start_by(command, &gateway.config, &[]), era)
    };
    for era in ClientEra::BOTH {
        let local = |path: &str| at(gateway.token(), era, path);
        for (mut client, name) in
            [(local("/mcp"), "slow__anything"), (local("/mcp/bare"), "anything"), (pipe(era), "slow__anything")]
        {
            let answer = client.call(name, json!({}));
            let text = answer.text();
            assert!(
                answer.is_error() && text.contains("The server `slow` has been starting for"),
                "{era:?}: {}",
                answer.raw
            );
            assert!(text.contains("Try again in"), "{era:?}: {text}");
        }
        for (mut client, name) in [
            (local("/mcp"), "other__anything"),
            (local("/mcp"), "fx__anything"),
            (local("/mcp"), "slow__no_thing"),
            (local("/mcp/without"), "slow__anything"),
            (local("/mcp/few"), "slow__anything"),
            (at(Some(TOKEN.to_owned()), era, "/mcp"), "slow__anything"),
        ] {
            let answer = client.call(name, json!({}));
            assert_eq!(answer.code(), Some(-32602), "{era:?}, {name}: {}", answer.raw);
            assert!(answer.raw.contains("Unknown tool"), "{era:?}, {name}: {}", answer.raw);
        }
    }
    let called = gateway.run(&["call", "slow__anything"]);
    assert!(called.status.code() == Some(1) && said(&called).contains("has been starting for"), "{}", said(&called));
}

#[test]
fn a_call_at_a_terminal_waits_for_a_server_that_starts() {
    let slow = Fake::stdio("legacy").behaving("slow-start=3000").command();
    let gateway = GatewaySetup::new().toml(&format!("[upstreams.fx]\ncommand = {slow}")).start();
    let call = Terminal::start(&gateway.world, &["call", "fx__echo", r#"{"text":"hello"}"#], "");
    let (code, screen) = call.end();
    assert!(code == Some(0) && screen.contains("hello"), "{screen}");
}

#[test]
fn status_has_addresses_clients_by_name_and_open_approvals() {
    let setup = GatewaySetup::new().policy("default = \"ask\"").toml("[console]\nlisten = \"127.0.0.1:0\"");
    let gateway = setup.fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut named = Mcp::http_named(gateway.address, gateway.token(), ClientEra::Modern, "codex\u{1b}[2J");
    named.call("fx__echo", json!({"text": "x"}));
    let mut pipe = Mcp::stdio(Pipe::start(&gateway.world, &gateway.config, &[]), ClientEra::LEGACY);
    let _listed = pipe.tool_names();
    let _session = gateway.legacy().tool_names();
    let status = json_of(&gateway.run(&["status", "--json"]));
    let addresses = &status["addresses"];
    assert_eq!(addresses["mcp"], json!([format!("http://{}/mcp", gateway.address)]), "{status}");
    for (name, part) in [("console", "http://127.0.0.1:"), ("metrics", "/metrics"), ("socket", "/headend.sock")] {
        assert!(addresses[name].as_str().is_some_and(|address| address.contains(part)), "{name}: {addresses}");
    }
    let clients = status["clients"].as_array().unwrap();
    assert!(clients.iter().any(|client| client["caller"] == "local" && client["name"] != ""), "{status}");
    assert_eq!(status["approvals"]["open"], 1, "{status}");
    let text = stdout(&gateway.run(&["status"]));
    for part in ["listening: http://", "metrics http://", "socket /", "\nclients: ", "codex", "1 approval open, for "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    drop((named, pipe));
    eventually("the pipe's client has left", || {
        let status = json_of(&gateway.run(&["status", "--json"]));
        let clients = status["clients"].as_array().unwrap().clone();
        !clients.iter().any(|client| client["name"].as_str().is_some_and(|name| name.contains("codex")))
    });
}

#[test]
fn approvals_are_a_line_each_the_oldest_first() {
    let gateway = GatewaySetup::new().policy("default = \"ask\"").fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    for text in ["1st", "2nd"] {
        gateway.modern().call("fx__echo", json!({"text": format!("{text} {}", "word ".repeat(200))}));
        // Ages are in seconds.
        std::thread::sleep(Duration::from_millis(1100));
    }
    let (code, screen) = Terminal::wide(&gateway.world, 80, &["approvals"]).end();
    assert_eq!(code, Some(0), "{screen}");
    let rows: Vec<&str> = screen.lines().filter(|line| line.contains("fx__echo")).collect();
    assert_eq!(rows.len(), 2, "{screen}");
    assert!(rows[0].contains(": 1st") && rows[1].contains(": 2nd"), "{screen}");
    assert!(screen.lines().all(|line| line.width() <= 80), "{screen}");
    let id = rows[0].split_whitespace().next().unwrap();
    let shown = gateway.run(&["approvals", "show", id]);
    assert!(stdout(&shown).contains(&"word ".repeat(200)), "{}", said(&shown));
}

#[test]
fn a_call_prints_text_for_people_and_the_result_where_asked() {
    let gateway = GatewaySetup::new().policy("default = \"ask\"").fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let call = ["call", "fx__echo", r#"{"text": "said"}"#];
    let mut terminal = Terminal::start(&gateway.world, &call, "");
    terminal.wait_for("[y/N]");
    terminal.type_in("\n");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(1), "{screen}");
    // The words for a model are not for a person.
    let flat = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("it needs your approval. `headend approve") && !flat.contains("Stop here"), "{screen}");
    let refused = json_of(&gateway.run(&[&call[..], &["--json"]].concat()));
    assert_eq!(refused["_meta"]["headend/refusal"]["reason"], "awaiting_approval", "{refused}");
    let mut terminal = Terminal::start(&gateway.world, &call, "");
    terminal.wait_for("[y/N]");
    terminal.type_in("y\n");
    let (code, screen) = terminal.end();
    assert!(code == Some(0) && screen.ends_with("said\r\n"), "{screen}");
}

#[test]
fn the_doctor_fits_a_screen() {
    let setup = GatewaySetup::new();
    let table = |n: usize| format!("[upstreams.server-{n}]\ncommand = [\"npx\", \"-y\", \"@example/server-{n}\"]\n");
    let tables: String = (0..14).map(table).collect();
    let servers: serde_json::Map<String, Value> = (0..14)
        .map(|n| (format!("mine-{n}"), json!({"command": "npx", "args": ["-y", format!("@example/server-{n}")]})))
        .collect();
    std::fs::create_dir_all(setup.world.path("home/.cursor")).unwrap();
    for file in ["home/.claude.json", "home/.cursor/mcp.json"] {
        setup.world.write(file, &json!({"mcpServers": servers}).to_string());
    }
    std::fs::create_dir_all(setup.world.path("home/.npm/_npx/1/node_modules/@example/server-3")).unwrap();
    let package = r#"{"name": "@example/server-3", "version": "2026.8.31"}"#;
    setup.world.write("home/.npm/_npx/1/node_modules/@example/server-3/package.json", package);
    let (world, config) = setup.toml(&tables).write();
    let doctor = ["doctor", "--no-start", "--config", config.to_str().unwrap()];
    let (_, screen) = Terminal::wide(&world, 80, &doctor).end();
    assert!(screen.lines().count() < 24, "{} lines: {screen}", screen.lines().count());
    assert!(screen.contains("PROBLEM") && screen.contains("`headend doctor --all`"), "{screen}");
    assert!(!screen.contains("1.2.3"), "{screen}");
    let whole = stdout(&world.run(&doctor));
    let flat = whole.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        ".claude.json still starts 14 servers itself that are here too",
        "mcp.json still starts 14 servers itself",
        "`@example/server-3@2026.8.31`",
        "`@example/server-4@VERSION`",
    ] {
        assert_eq!(flat.matches(part).count(), 1, "{part}: {whole}");
    }
}
