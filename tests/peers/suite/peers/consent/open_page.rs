//! Pages of the console that stay open, in a real browser before the real daemon.

use std::fs;

use rustix::process::Signal;

use super::client::LineProgram;
use super::*;
use crate::harness::{Gateway, GatewaySetup};
use crate::mcp::Mcp;
use crate::process::free_port;
use crate::upstream::{Fake, InputLog};

struct BrowserPage(LineProgram, usize);

impl BrowserPage {
    /// Sends a command to the browser and returns its answer.
    fn does(&mut self, command: &Value) -> Value {
        self.0.tell(command);
        let said = self.0.wait_for(&command.to_string(), |said| said.get(self.1).cloned());
        self.1 += 1;
        assert!(said["failed"].is_null(), "{command}: {said}");
        said
    }
}

/// Makes calls that each leave an open approval.
fn ask(client: &mut Mcp, numbers: std::ops::Range<u32>) {
    for n in numbers {
        assert!(client.call("fx__write", json!({"path": format!("file-{n}")})).is_error());
    }
}

#[test]
fn an_open_page_learns_of_questions_and_of_the_daemons_end_and_forty_are_answered_by_keys() {
    let Some(peers) = PeerFolders::find() else { return };
    let Some(browser) = peers.browser("open pages in a browser") else { return };
    // The page looks for the daemon where it was.
    let port = free_port();
    let setup = GatewaySetup::new().toml(&format!("[console]\nlisten = \"127.0.0.1:{port}\""));
    let setup = setup.policy("default = \"ask\"\n[policy.consent]\nper-minute = 100\nmax-open = 100");
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("legacy").logging(&log)).start();
    gateway.wait_for_tools(&["fx__write"]);
    let token = fs::read_to_string(gateway.world.path("state/headend/console-token")).unwrap();
    let job = json!({"browser": browser, "base": format!("http://127.0.0.1:{port}"), "token": token.trim()});
    let mut page = BrowserPage(LineProgram::start(&peers, &gateway, "open-page.mjs", &job, "the browser"), 1);
    page.0.wait_for("the browser", |said| said.iter().find(|line| line["ready"].is_string()).map(|_| ()));

    let said = page.does(&json!({"do": "background"}));
    assert_eq!((&said["hidden"], &said["icon"]), (&json!(true), &json!("/static/icon.svg")), "{said}");
    assert_eq!(said["shown"], json!([]), "{said}");
    let mut client = gateway.modern();
    ask(&mut client, 0..1);
    let said = page.does(&json!({"do": "title", "title": "(1) ", "shown": 1}));
    assert_eq!((&said["hidden"], &said["icon"]), (&json!(true), &json!("/static/icon/1.svg")), "{said}");
    assert_eq!(said["shown"][0]["title"], "fx__write waits for your answer", "{said}");
    assert!(!said["shown"].to_string().contains("file-0"), "no arguments: {said}");
    page.does(&json!({"do": "front"}));

    gateway.signal(Signal::KILL);
    let (world, config) = (gateway.world.clone(), gateway.config.clone());
    drop(gateway);
    let said = page.does(&json!({"do": "gone"}));
    assert!(said["text"].as_str().unwrap().starts_with("headend does not answer."), "{said}");
    assert_eq!(said["stays"], true, "{said}");
    assert!(said["title"].as_str().unwrap().starts_with("(gone) "), "{said}");
    let resting = said["resting"].as_array().unwrap();
    assert!(resting.len() > 1 && resting.iter().all(|rests| rests == true), "{said}");
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    gateway.wait_for_tools(&["fx__write"]);
    let said = page.does(&json!({"do": "back"}));
    assert!(said["resting"].as_array().unwrap().iter().all(|rests| rests == false), "{said}");
    assert_eq!(
        (&said["questions"], &said["title"]),
        (&json!(0), &json!("Overview · headend")),
        "still signed in: {said}"
    );

    let mut client = gateway.modern();
    ask(&mut client, 0..40);
    page.does(&json!({"do": "title", "title": "(40) "}));
    let mut said = Value::Null;
    // In parts: a command has its time, and a busy machine is slow.
    for left in [40, 30, 20, 10] {
        said = page.does(&json!({"do": "keys", "most": 10}));
        assert_eq!((&said["before"], &said["questions"]), (&json!(left), &json!(left - 10)), "{said}");
    }
    let answers = || {
        let tail = gateway.world.run(&["audit", "tail", "-n", "1000", "--json"]);
        let text = String::from_utf8_lossy(&tail.stdout).into_owned();
        let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.filter(|one| one["event"] == "answer" && one["by"] == "console").collect::<Vec<_>>()
    };
    eventually("forty answers on record", || answers().len() == 40);
    for (answer, pressed) in answers().iter().zip(said["pressed"].as_array().unwrap()) {
        let result = if pressed[1] == "a" { "granted" } else { "denied" };
        let id = format!("approval-{}", answer["prompt"].as_str().unwrap());
        assert_eq!((&json!(id), &answer["result"]), (&pressed[0], &json!(result)), "the one that had the focus");
    }
    // The old client's connection may have been closed for idleness.
    let mut client = gateway.modern();
    let passed = (0..40).filter(|n| !client.call("fx__write", json!({"path": format!("file-{n}")})).is_error()).count();
    assert_eq!(passed, 20);
}
