//! Tests of a change of the key that seals the store: the previous key, `headend secrets rekey`,
//! and the end of the previous key.

use std::path::Path;

use super::*;
use crate::tools::mcp::{ClientEra, Mcp};

const KEYS: [&str; 3] =
    ["a-first-key-0123456789abcdef0123", "second-key-0123456789abcdef0123456", "third-key-0123456789abcdef01234567"];

/// Returns the table of the configuration with these keys of [`KEYS`], each from its own file.
fn secrets(world: &Path, key: usize, previous: Option<usize>) -> String {
    let source = |key: usize| format!("{{ file = \"{}\" }}", world.join(format!("key-{key}")).display());
    let previous = previous.map(|key| format!("previous-key = {}\n", source(key))).unwrap_or_default();
    format!("[secrets]\nkey = {}\n{previous}", source(key))
}

impl LoginGateway {
    fn stop(&mut self) {
        self.gateway.signal(Signal::TERM);
        assert!(self.gateway.wait(Duration::from_secs(60)).is_some(), "{}", self.gateway.story());
        self.check_story();
    }

    /// Writes the configuration with other keys.
    fn write_keys(&self, key: usize, previous: Option<usize>) {
        let text = fs::read_to_string(&self.gateway.config).unwrap();
        let (before, rest) = text.split_once("[secrets]\n").unwrap();
        let after = rest.find("\n[").map_or("", |at| &rest[at..]);
        fs::write(&self.gateway.config, format!("{before}{}{after}", secrets(&self.keys(), key, previous))).unwrap();
    }

    fn keys(&self) -> std::path::PathBuf {
        self.gateway.world.path("")
    }

    fn start(&mut self) {
        let (home, config) = (self.gateway.world.clone(), self.gateway.config.clone());
        self.gateway = Gateway::start(home, Some(config), &["serve"], &[]);
        self.gateway.wait_for_tools(&["docs__echo"]);
        eventually("the login is in use", || self.state() == "ready");
    }

    /// Runs a command with the configuration; returns whether it succeeded, and what it said.
    fn command(&self, args: &[&str]) -> (bool, String) {
        let config = self.gateway.config.to_str().unwrap();
        let output = self.gateway.run(&[args, &["--config", config]].concat());
        (output.status.success(), said(&output))
    }

    /// Checks that no key is in what the daemon logged.
    fn check_story(&self) {
        let story = self.gateway.story();
        assert!(KEYS.iter().all(|key| !story.contains(key)), "{story}");
    }
}

#[test]
fn a_key_is_changed_while_sessions_and_logins_go_on_and_the_old_one_goes() {
    let setup = GatewaySetup::new();
    for (n, key) in KEYS.iter().enumerate() {
        setup.world.write(&format!("key-{n}"), key);
    }
    let keys = secrets(&setup.world.path(""), 0, None);
    let mut world = world_of(setup.toml(&keys), "modern", 3600);
    eventually("it waits for a login", || world.state() == "needs-login");
    world.log_in();
    world.gateway.wait_for_tools(&["docs__echo"]);
    let mut session = Mcp::http_at(world.gateway.address, world.gateway.token(), ClientEra::LEGACY, "/mcp", json!({}));
    assert!(session.call("docs__echo", json!({"text": "hello"})).raw.contains("hello"));

    // The previous key opens the login and the session.
    world.stop();
    world.write_keys(1, Some(0));
    world.start();
    session.follow(world.gateway.address);
    assert!(session.call("docs__echo", json!({"text": "again"})).raw.contains("again"), "the session goes on");
    let (_, checked) = world.command(&["check"]);
    assert!(checked.contains("still need `previous-key` in [secrets]; run `headend secrets rekey`"), "{checked}");
    let (_, shown) = world.command(&["check", "--resolved"]);
    assert!(shown.contains("previous-key = \"***\"") && KEYS.iter().all(|key| !shown.contains(key)), "{shown}");

    // A command with another key than the daemon's changes nothing.
    world.write_keys(2, Some(1));
    let (is_done, refused) = world.command(&["secrets", "rekey"]);
    assert!(!is_done && refused.contains("restart the daemon"), "{refused}");
    world.write_keys(1, Some(0));
    let (is_done, told) = world.command(&["secrets", "rekey"]);
    assert!(is_done && told.contains("this can go: `previous-key` in [secrets]"), "{told}");
    assert!(!told.contains("sealed 0 values"), "{told}");
    let (is_done, told) = world.command(&["secrets", "rekey"]);
    assert!(is_done && told.contains("sealed 0 values"), "it can be repeated: {told}");
    let (_, checked) = world.command(&["check"]);
    assert!(!checked.contains("previous-key"), "{checked}");

    // Without the previous key the login is still there.
    world.stop();
    world.write_keys(1, None);
    world.start();
    assert_eq!(world.call()["result"]["content"][0]["text"], "hello");

    // A key that was exchanged without the previous one closes the login, and says so.
    world.stop();
    world.write_keys(2, None);
    let (_, checked) = world.command(&["check"]);
    assert!(checked.contains("which is not here, and count as absent"), "{checked}");
    let (is_done, told) = world.command(&["secrets", "rekey"]);
    assert!(!is_done && told.contains("opened with no key: ") && told.contains("the login of docs"), "{told}");
    // With it, the store is sealed anew without a daemon.
    world.write_keys(2, Some(1));
    let (is_done, told) = world.command(&["secrets", "rekey"]);
    assert!(is_done && told.contains("this can go"), "{told}");
    world.write_keys(2, None);
    world.start();
    assert_eq!(world.call()["result"]["content"][0]["text"], "hello");
    assert_eq!((world.asked("authorize"), world.asked("reuse")), (1, 0), "one login for all of it");
    world.check_story();
    let log = fs::read_to_string(world.gateway.world.path("state/headend/audit/audit-main-000001.jsonl")).unwrap();
    assert!(log.contains(r#""action":"rekey""#) && KEYS.iter().all(|key| !log.contains(key)), "{log}");
}
