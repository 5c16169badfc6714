//! The approval's page: the operator's own browser answers, and the client's answer does not count.

use std::fs;

use super::client::LineProgram;
use super::strong::page_of;
use super::*;

/// A browser that is signed in as the operator, and the length of its output so far.
#[derive(Debug)]
struct OperatorBrowser(LineProgram, usize);

impl OperatorBrowser {
    /// Starts the browser, or says why there is none.
    fn start(peers: &PeerFolders, stage: &ApprovalGateway) -> Option<Self> {
        let browser = peers.browser("the page in a browser")?;
        let token = fs::read_to_string(stage.gateway.world.path("state/headend/console-token")).unwrap();
        let job = json!({"browser": browser, "token": token.trim()});
        let program = LineProgram::start(peers, &stage.gateway, "operator.mjs", &job, "the browser");
        program.wait_for("the browser", |said| said.iter().find(|line| line["ready"].is_string()).map(|_| ()));
        Some(Self(program, 1))
    }

    /// Opens that page and presses that button; returns the page's answer.
    fn press(&mut self, url: &str, answer: &str) -> String {
        let said = self.visit(url, answer);
        let after = said["after"].as_str().unwrap_or_else(|| panic!("{answer}: {said}"));
        assert!(said["heading"].as_str().is_some_and(|heading| heading.contains("fx__write")), "{answer}: {said}");
        after.to_owned()
    }

    fn visit(&mut self, url: &str, answer: &str) -> Value {
        self.0.tell(&json!({"url": url, "answer": answer}));
        let said = self.0.wait_for("the page", |said| said.get(self.1).cloned());
        self.1 += 1;
        said
    }
}

#[test]
fn the_page_alone_allows_what_a_typescript_1_client_was_sent_to_it_for() {
    answered_on_the_page(Sdk::TypeScript1);
}

#[test]
fn the_page_alone_allows_what_a_typescript_2_client_was_sent_to_it_for() {
    answered_on_the_page(Sdk::TypeScript2);
}

#[test]
fn the_page_alone_allows_what_a_python_client_was_sent_to_it_for() {
    answered_on_the_page(Sdk::Python);
}

fn answered_on_the_page(sdk: Sdk) {
    let Some(peers) = PeerFolders::find() else { return };
    let stage = ApprovalGateway::new();
    let Some(mut operator) = OperatorBrowser::start(&peers, &stage) else { return };
    let mut client = ApprovingClient::start(&peers, &stage.gateway, sdk, ClientFace::Http, BOTH);
    let path = |path: &str| json!({"path": path});
    let mut permitted = Vec::new();

    // (the file, what the client says, what the operator presses, whether the call runs)
    for (file, says, press, runs) in [
        ("once", "accept", "once", true),
        ("once", "accept", "deny", false),
        ("closed", "cancel", "", false),
        ("session", "accept", "session", true),
    ] {
        let call = client.begin("fx__write", &path(file), &["wait"]);
        let question = client.question(call, 0);
        let url = page_of(&stage, &question);
        assert_eq!(stage.called(), permitted, "{sdk:?}: {file}: nothing runs before somebody answers");
        if press == "deny" {
            // Opening the page and leaving it is no answer.
            let seen = operator.press(&url, "leave");
            assert!(seen.contains("Allow once"), "{sdk:?}: {seen}");
            assert_eq!(operator::pending(&stage).len(), 1, "{sdk:?}");
        }
        client.tell(&json!({"do": "answer", "answer": says}));
        if !press.is_empty() {
            operator.press(&url, press);
        }
        let done = client.end(call);
        if runs {
            assert_eq!(done.text(), "write", "{sdk:?}: {file}");
            permitted.push(path(file));
        } else {
            assert_eq!(done.reason(), "denied", "{sdk:?}: {file}: {done:?}");
        }
        if sdk == Sdk::TypeScript1 && press == "once" {
            assert!(url.ends_with(client.completed().as_str().unwrap()), "{url}: the client learns that it is done");
        }
        assert_eq!(stage.called(), permitted, "{sdk:?}: {file}");
    }
    assert_eq!(client.call("fx__write", &path("another"), &[]).text(), "write", "{sdk:?}: the session is allowed");
    permitted.push(path("another"));
    assert_eq!(stage.called(), permitted, "{sdk:?}");

    let audited = Audited::read(&stage, "fx__write", "outcome", 3);
    assert_eq!(audited.words("answer"), ["granted", "denied", "dismissed", "granted"], "{sdk:?}");
    assert_eq!(audited.words("outcome"), ["ok"; 3], "{sdk:?}");
    assert_eq!(audited.allowed().len(), 3, "{sdk:?}");
    let by = audited.of("answer")[0]["by"].as_str().unwrap();
    assert_eq!(audited.of("answer")[1]["evidence"], "L2", "{sdk:?}");
    audited.hangs_together("L2", by, &format!("{sdk:?}"));
}

#[test]
fn a_page_that_nobody_answers_allows_nothing_and_says_so_afterwards() {
    let Some(peers) = PeerFolders::find() else { return };
    // A call on a stream waits for `timeout`, a modern one for `approval-life`.
    for (sdk, key) in [(Sdk::TypeScript1, "timeout"), (Sdk::TypeScript2, "approval-life")] {
        // A browser on a busy machine may open the page too late: then the round begins anew with
        // more time.
        let in_time = [4, 16, 64].into_iter().any(|seconds| left_open(&peers, sdk, &format!("{key} = \"{seconds}s\"")));
        assert!(in_time, "{sdk:?}: the page was never there in time");
    }
}

/// Opens the page of an approval and leaves it so until its time is over. Whether the page was
/// opened in time.
fn left_open(peers: &PeerFolders, sdk: Sdk, patience: &str) -> bool {
    let stage = ApprovalGateway::with(patience, "");
    let Some(mut operator) = OperatorBrowser::start(peers, &stage) else { return true };
    let mut client = ApprovingClient::start(peers, &stage.gateway, sdk, ClientFace::Http, PAGES);
    let call = client.begin("fx__write", &json!({"path": "a"}), &["accept"]);
    let url = client.question(call, 0)["url"].as_str().unwrap().to_owned();
    let seen = operator.visit(&url, "leave");
    let done = client.end(call);
    assert_eq!(done.reason(), "denied", "{sdk:?}: {done:?}");
    let audited = Audited::read(&stage, "fx__write", "answer", 1);
    assert_eq!(audited.words("answer"), ["timed-out"], "{sdk:?}");
    assert_eq!((audited.allowed().len(), stage.called().len()), (0, 0), "{sdk:?}");
    let late = operator.visit(&url, "leave");
    assert!(!late["after"].as_str().unwrap().contains("Allow once"), "{sdk:?}: {late}");
    seen["heading"].as_str().is_some_and(|heading| heading.contains("fx__write"))
}
