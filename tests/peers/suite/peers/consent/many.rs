//! Six calls at once of the official filesystem server, by each kind of client: what a client's own
//! forms allow, what one answer to a group allows, and that every allowed call runs exactly once.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::client::ReportedEnd;
use super::*;
use crate::browser::Browser;
use crate::harness::{Gateway, GatewaySetup, left_out};
use crate::upstream::toml_array;

/// Whether a call that waits for a person is held, so that it completes in itself; else it is
/// refused and made again.
const HELD: bool = true;

/// A kind of client: its library and face, its capabilities, and whether its own forms can allow a
/// call.
type PeerClientKind = (Sdk, ClientFace, &'static str, bool);

const KINDS: [PeerClientKind; 6] = [
    (Sdk::TypeScript1, ClientFace::Http, FORMS, true),
    (Sdk::TypeScript2, ClientFace::Http, FORMS, true),
    (Sdk::Python, ClientFace::Http, FORMS, true),
    (Sdk::TypeScript1, ClientFace::Http, NOBODY, false),
    (Sdk::TypeScript1, ClientFace::Http, PAGES, false),
    (Sdk::TypeScript2, ClientFace::Http, PAGES, false),
];

/// A daemon before the filesystem server, whose input is recorded.
struct RecordedDaemon {
    gateway: Gateway,
    folder: String,
    log: PathBuf,
}

impl RecordedDaemon {
    fn start(peers: &PeerFolders) -> Option<Self> {
        let server = peers.package("server-filesystem").join("dist/index.js");
        if !server.exists() {
            left_out("many calls at once", &format!("{} is missing", server.display()));
            return None;
        }
        let setup = GatewaySetup::new()
            .policy("default = \"ask\"\n[policy.consent]\nhold = \"40s\"")
            .toml("[console]\nlisten = \"127.0.0.1:0\"");
        let folder = fs::canonicalize(setup.world.path("work")).unwrap();
        let log = setup.world.path("files.log");
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let words = [text(&log), text(&peers.node()), text(&server), text(&folder)];
        let shell = ["/bin/sh", "-c", r#"tee -a "$0" | exec "$@""#];
        let command = toml_array(shell.into_iter().chain(words.iter().map(String::as_str)));
        let table = format!("[upstreams.files]\nstart-wait = \"120s\"\ncommand = {command}");
        let gateway = setup.toml(&table).start();
        gateway.wait_for_tools_within(Duration::from_secs(240), &["files__write_file"]);
        Some(Self { gateway, folder: text(&folder), log })
    }

    /// Returns the paths of the calls of a tool that reached the server.
    fn called(&self, tool: &str) -> Vec<String> {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let calls = lines.filter(|line| line["method"] == "tools/call" && line["params"]["name"] == tool);
        let mut paths: Vec<String> =
            calls.map(|call| call["params"]["arguments"]["path"].as_str().unwrap().to_owned()).collect();
        paths.sort();
        paths
    }

    /// Returns the ids of the open approvals of a tool, by the name in their arguments.
    fn open(&self, tool: &str) -> BTreeMap<String, String> {
        let output = self.gateway.run(&["approvals", "--json"]);
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mine = listed["approvals"].as_array().unwrap().iter().filter(|one| one["item"] == format!("files__{tool}"));
        let name = |one: &Value| {
            let message = one["message"].as_str().unwrap();
            let (_, rest) = message.split_once("/play-").unwrap_or_else(|| panic!("no path: {message}"));
            rest.chars().take_while(char::is_ascii_alphanumeric).collect()
        };
        mine.map(|one| (name(one), one["id"].as_str().unwrap().to_owned())).collect()
    }

    fn arguments(&self, name: &str) -> Value {
        json!({"path": format!("{}/play-{name}", self.folder), "content": name})
    }

    fn paths(&self, names: &[String]) -> Vec<String> {
        let mut paths: Vec<String> = names.iter().map(|name| format!("{}/play-{name}", self.folder)).collect();
        paths.sort();
        paths
    }

    /// Allows those once, all with one answer: on the page, or on the command line.
    fn allow(&self, ids: &[&String], on_page: bool) {
        if on_page {
            let mut browser = Browser::signed_in(&self.gateway);
            let overview = browser.get("/").text();
            let path = overview.split("href=\"/group").nth(1).unwrap().split('"').next().unwrap().replace("&#38;", "&");
            let page = browser.get(&format!("/group{path}")).text();
            let csrf = page.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
            let values = page.split("name=\"member\" value=\"").skip(1).map(|row| row.split('"').next().unwrap());
            let mine = values.filter(|value| ids.iter().any(|id| value.starts_with(&format!("{id}:"))));
            let form: String = mine.map(|value| format!("&member={value}")).collect();
            assert_eq!(browser.post("/group", &format!("csrf={csrf}&answer=once{form}")).head.status, 303);
            return;
        }
        let words: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
        let output = self.gateway.run(&[&["approve", "--yes"][..], &words[..]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Begins six calls with names of that letter; the person gives that answer to each question.
fn begin(
    play: &RecordedDaemon,
    client: &mut ApprovingClient,
    tool: &str,
    letter: char,
    answer: &str,
) -> Vec<(String, u64)> {
    let names = (0..6).map(|n| format!("{letter}{n}"));
    let begin = |name: String| {
        let call = client.begin(&format!("files__{tool}"), &play.arguments(&name), &[answer; 6]);
        (name, call)
    };
    names.map(begin).collect()
}

/// Returns the end of a call that was allowed or denied: its own end if it was held, else that of a
/// repeated call.
fn end(play: &RecordedDaemon, client: &mut ApprovingClient, tool: &str, (name, call): &(String, u64)) -> ReportedEnd {
    let done = client.end(*call);
    if HELD || done.0["refusal"]["reason"] != "awaiting_approval" {
        return done;
    }
    let again = client.begin(&format!("files__{tool}"), &play.arguments(name), &["cancel"; 6]);
    client.end(again)
}

fn played(peers: &PeerFolders, (sdk, face, capabilities, has_forms): PeerClientKind, on_page: bool) {
    let Some(play) = RecordedDaemon::start(peers) else { return };
    let at = format!("{sdk:?} {capabilities}");
    let mut client = ApprovingClient::start(peers, &play.gateway, sdk, face, capabilities);
    if has_forms {
        let calls = begin(&play, &mut client, "create_directory", 'd', "once");
        for (name, call) in &calls {
            assert_eq!(client.end(*call).0["isError"], false, "{at}: {name}");
        }
        let names: Vec<String> = calls.into_iter().map(|(name, _)| name).collect();
        assert_eq!(play.called("create_directory"), play.paths(&names), "{at}: each once");
    } else {
        in_a_group(&play, &mut client, "create_directory", on_page, &at);
    }
    // The server calls this tool destructive, so a form of a client does not suffice.
    in_a_group(&play, &mut client, "write_file", on_page, &at);
}

/// Plays six calls that wait, of which one answer allows five and another denies one, and a seventh
/// that came later.
fn in_a_group(play: &RecordedDaemon, client: &mut ApprovingClient, tool: &str, on_page: bool, at: &str) {
    let letter = tool.chars().next().unwrap();
    let (no, after) = (format!("{letter}3"), format!("{letter}late"));
    let calls = begin(play, client, tool, letter, "accept");
    eventually("six approvals are open", || play.open(tool).len() == 6);
    assert_eq!(play.called(tool), [""; 0], "{at}: {tool}: nothing ran before an answer");
    let shown = play.open(tool);
    let (denied, allowed): (Vec<_>, Vec<_>) = shown.iter().partition(|(name, _)| **name == no);
    let late = client.begin(&format!("files__{tool}"), &play.arguments(&after), &["accept"; 6]);
    eventually("the seventh waits", || play.open(tool).contains_key(&after));
    assert!(play.gateway.run(&["deny", denied[0].1]).status.success());
    play.allow(&allowed.iter().map(|(_, id)| *id).collect::<Vec<_>>(), on_page);
    for call in &calls {
        let done = end(play, client, tool, call);
        if call.0 == no {
            assert_eq!(done.reason(), "denied", "{at}: {tool}: {done:?}");
        } else {
            assert_eq!(done.0["isError"], false, "{at}: {tool} {}: {done:?}", call.0);
        }
    }
    let names: Vec<String> = allowed.iter().map(|(name, _)| (*name).clone()).collect();
    assert_eq!(play.called(tool), play.paths(&names), "{at}: {tool}: exactly the allowed ones, once each");
    let open = play.open(tool);
    assert_eq!(open.keys().collect::<Vec<_>>(), [&after], "{at}: {tool}: it was not shown, so it was not answered");
    assert!(play.gateway.run(&["deny", &open[&after]]).status.success());
    let done = end(play, client, tool, &(after, late));
    assert_eq!(done.reason(), "denied", "{at}: {tool}: {done:?}");
    assert_eq!(play.called(tool).len(), 5, "{at}: {tool}");
}

#[test]
fn six_calls_at_once_wait_and_run_as_they_were_answered() {
    let Some(peers) = PeerFolders::find() else { return };
    for (pair, kinds) in KINDS.chunks(2).enumerate() {
        std::thread::scope(|scope| {
            for (nth, kind) in kinds.iter().enumerate() {
                let (peers, kind) = (&peers, *kind);
                scope.spawn(move || played(peers, kind, (pair + nth) % 2 == 0));
            }
        });
    }
}
