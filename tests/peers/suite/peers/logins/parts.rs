//! The programs of a world with a login: an authorization server, a server that wants its tokens, a
//! browser.

use std::io::Write as _;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Gateway, TestHome};
use crate::peers::PeerFolders;
use crate::process::{Lines, end, output_within, said, wait};

/// Longest start of a runtime on a busy machine.
const START: Duration = Duration::from_secs(120);
const LOGIN: Duration = Duration::from_secs(60);

/// A peer that prints its actions, one JSON object a line.
#[derive(Debug)]
pub(in crate::peers) struct EventPeer {
    child: Child,
    lines: Lines,
}

impl EventPeer {
    /// Starts a script of `tests/peers`, `.mjs` or `.py`, and waits until it listens.
    pub(in crate::peers) fn start(
        peers: &PeerFolders,
        world: &TestHome,
        script: &str,
        args: &[&str],
        more: &[(&str, &str)],
    ) -> Self {
        let program = if script.ends_with(".py") { peers.python("python") } else { peers.node() };
        let mut command = world.command(program.to_str().unwrap());
        command.arg(crate::ground::root().join("tests/peers").join(script)).args(args);
        command.env("PEERS_NODE", peers.folder()).envs(more.iter().copied());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        let peer = Self { child, lines };
        let listens =
            peer.lines.wait_for(START, |lines| lines.iter().any(|line| line.contains("listening")).then_some(()));
        assert!(listens.is_some(), "{script} does not listen: {:?}", peer.lines.all());
        peer
    }

    /// Returns the peer's events of a kind, in order.
    pub(in crate::peers) fn events(&self, kind: &str) -> Vec<Value> {
        let read = self.lines.all().into_iter().filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        read.filter(|event| event["event"] == kind).collect()
    }

    /// Returns a member of the line that the peer printed when it began to listen.
    pub(in crate::peers) fn said(&self, member: &str) -> String {
        self.events("listening")[0][member].as_str().unwrap().to_owned()
    }

    /// Returns the granted token requests with that grant type.
    pub(in crate::peers) fn tokens(&self, grant: &str) -> Vec<Value> {
        self.events("token").into_iter().filter(|event| event["type"] == grant).collect()
    }

    pub(in crate::peers) fn story(&self) -> String {
        self.lines.all().join("\n")
    }
}

impl Drop for EventPeer {
    fn drop(&mut self) {
        end(&mut self.child);
        if std::thread::panicking() {
            eprintln!("{}", self.story());
        }
    }
}

/// Posts to a test's own address of a peer.
pub(in crate::peers) fn post(url: &str, body: &str) {
    let answer = ureq::post(url).send(body).unwrap();
    assert_eq!(answer.status(), 204, "{url}");
}

/// Logs in with `headend login NAME --paste` and a browser without a person. Returns whether it
/// worked, and the output.
pub(super) fn login(gateway: &Gateway, peers: &PeerFolders, name: &str) -> (bool, String) {
    let browse = |address: &str| {
        let job = json!({ "url": address, "back": redirect(address) });
        script(gateway, peers, "browser.mjs", &job)
    };
    login_by(gateway, name, browse)
}

/// Does the same as [`login`] with another browser: it gets the address of the page and returns the
/// address at which it ended.
pub(super) fn login_by(gateway: &Gateway, name: &str, browse: impl FnOnce(&str) -> String) -> (bool, String) {
    let mut command = gateway.world.command(crate::harness::headend());
    command.args(["login", name, "--paste"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let stdout = Lines::of(child.stdout.take().unwrap());
    let stderr = Lines::of(child.stderr.take().unwrap());
    let address = |lines: &[String]| lines.iter().find(|line| line.contains("code_challenge=")).cloned();
    let ended = |child: &mut Child| child.try_wait().unwrap().is_some();
    let deadline = std::time::Instant::now() + LOGIN;
    let found = loop {
        if let Some(found) = stdout.wait_for(Duration::from_millis(200), address) {
            break Some(found);
        }
        if ended(&mut child) || std::time::Instant::now() > deadline {
            break stdout.wait_for(Duration::from_millis(200), address);
        }
    };
    if let Some(found) = found {
        let page = found.split_whitespace().find(|word| word.starts_with("http")).unwrap().to_owned();
        let back = browse(&page);
        writeln!(stdin, "{}", back.trim()).unwrap();
    }
    drop(stdin);
    let status = wait(&mut child, LOGIN);
    let text = [stdout.to_end(), stderr.to_end()].concat().join("\n");
    (status.is_some_and(|status| status.success()), text)
}

/// Returns the redirect address in the address of a login page.
pub(super) fn redirect(address: &str) -> String {
    let url: url::Url = address.parse().unwrap();
    url.query_pairs().find(|(name, _)| name == "redirect_uri").unwrap().1.into_owned()
}

/// Runs a script of `tests/peers` with a job to its end, and returns its output.
pub(super) fn script(gateway: &Gateway, peers: &PeerFolders, name: &str, job: &Value) -> String {
    let mut command = gateway.world.command(peers.node().to_str().unwrap());
    command.arg(crate::ground::root().join("tests/peers").join(name)).arg(job.to_string());
    command.env("PEERS_NODE", peers.folder());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = output_within(child, LOGIN, name);
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}
