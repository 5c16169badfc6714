//! Questions, notifications and contents of a real server, through the gateway to real clients of
//! both eras.

use std::process::Command;

use serde_json::{Value, json};

use super::bench::{Bench, face_command, face_environment};
use super::{ClientFace, PeerFolders};
use crate::harness::{Gateway, GatewaySetup};
use crate::upstream::{Listening, toml_array};

/// The transport of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DialogueTransport {
    Stdio,
    Http,
}

/// Starts a gateway in front of `server-everything`.
fn gateway(peers: &PeerFolders, behind: DialogueTransport) -> (Gateway, Option<Listening>) {
    let (setup, node) = (GatewaySetup::new(), peers.node().to_str().unwrap().to_owned());
    let (target, listening) = match behind {
        DialogueTransport::Stdio => {
            let server = peers.package("server-everything").join("dist/index.js");
            (format!("command = {}", toml_array([node.as_str(), server.to_str().unwrap(), "stdio"])), None)
        }
        DialogueTransport::Http => {
            let script = crate::ground::root().join("tests/peers/everything.mjs").to_str().unwrap().to_owned();
            let folder = peers.folder().to_str().unwrap().to_owned();
            let running = Listening::spawn(&peers.node(), &[script, folder, "streamableHttp".to_owned()]);
            (format!("url = \"{}\"", running.url), Some(running))
        }
    };
    let gateway = setup.toml(&format!("[upstreams.every]\n{target}")).start();
    gateway.wait_for_tools_within(std::time::Duration::from_secs(60), &["every__toggle-simulated-logging"]);
    (gateway, listening)
}

fn play(peers: &PeerFolders, gateway: &Gateway, face: ClientFace, sdk: &str) -> Vec<String> {
    let at = format!("{sdk} over {face:?}");
    let target = if face == ClientFace::Http {
        json!({"url": format!("http://{}/mcp", gateway.address), "token": gateway.token()})
    } else {
        json!({"command": face_command(gateway, face), "env": face_environment(gateway)})
    };
    let job = json!({"sdk": sdk, "target": target}).to_string();
    let script = crate::ground::root().join("tests/peers/dialogue.mjs");
    let output = Bench::run_client(peers, gateway, Command::new(peers.node()).arg(script).arg(job), &at);
    let last = String::from_utf8_lossy(&output.stdout).lines().next_back().map(serde_json::from_str::<Value>);
    let Some(Ok(report)) = last else {
        return vec![format!("{at}: no report\n{}", String::from_utf8_lossy(&output.stderr))];
    };
    let mut wrong = Vec::new();
    let mut check = |what: &str, good: bool| {
        if !good {
            wrong.push(format!("{at}: {what}: {report}"));
        }
    };
    check("nothing is missing", report.get("missing").is_none());
    check("tools that need input are listed", report["listed"] == true);
    check("asked twice", report["asked"].as_array().is_some_and(|asked| asked.len() == 2));
    check("the server is named", report["asked"][0].as_str().is_some_and(|text| text.starts_with("[every] ")));
    check("told of its own resource", report["updated"][0] == report["uri"]);
    let said = report["said"].to_string();
    check("the form's answer arrived", said.contains("Ada"));
    check("the sample arrived", said.contains("sampled here"));
    check("no tool failed", !said.contains("\"isError\":true"));
    wrong
}

fn every_client(behind: DialogueTransport) {
    let Some(peers) = PeerFolders::find() else { return };
    let (gateway, _server) = gateway(&peers, behind);
    // The clients run one after the other, since they share the server's state.
    for face in [ClientFace::Http, ClientFace::Attached] {
        for sdk in ["v1", "v2"] {
            let wrong = play(&peers, &gateway, face, sdk);
            assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), gateway.story());
        }
    }
}

#[test]
fn a_real_server_on_stdio_asks_tells_and_shows_real_clients_of_both_eras() {
    every_client(DialogueTransport::Stdio);
}

#[test]
fn a_real_server_on_http_asks_tells_and_shows_real_clients_of_both_eras() {
    every_client(DialogueTransport::Http);
}
