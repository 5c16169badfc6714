//! Tests of `headend init`: it writes the first configuration, which leads to a call.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::tools::harness::{Gateway, TestHome, headend};
use crate::tools::process::said;

#[test]
fn the_first_file_is_private_passes_the_check_and_asks_about_everything_but_reading() {
    let world = TestHome::new();
    let made = world.run(&["init"]);
    assert!(made.status.success(), "{}", said(&made));
    let path = world.path("config/headend/headend.toml");
    assert!(said(&made).contains(path.to_str().unwrap()), "{}", said(&made));
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let checked = world.run(&["check"]);
    let nothing_yet = said(&checked).contains("upstreams: there are none");
    assert!(checked.status.success() && nothing_yet, "{}", said(&checked));

    let text = fs::read_to_string(&path).unwrap();
    let server = format!("\n[upstreams.notes]\ncommand = [{:?}, \"demo\", \"notes\"]\n", headend());
    let ports = "\n[server]\nlisten = [\"127.0.0.1:0\"]\n[metrics]\nlisten = \"\"\n[console]\nlisten = \"\"\n";
    fs::write(&path, format!("{text}{ports}{server}")).unwrap();
    let gateway = Gateway::start(world, None, &[], &[]);
    gateway.wait_for_tools(&["notes__search"]);
    let read = gateway.run(&["call", "notes__search", r#"{"query": ""}"#]);
    assert!(read.status.success() && said(&read).contains("Welcome"), "{}", said(&read));
    let write = gateway.run(&["call", "notes__add", r#"{"title": "a", "text": "b"}"#]);
    assert_eq!(write.status.code(), Some(1), "{}", said(&write));
    let open = gateway.run(&["approvals"]);
    assert!(said(&open).contains("notes__add"), "{}", said(&open));
}

#[test]
fn a_file_that_exists_is_left_as_it_is_and_a_link_is_not_followed() {
    let world = TestHome::new();
    let path = world.write("own.toml", "# mine\n");
    let file = path.to_str().unwrap();
    let again = world.run(&["init", "--config", file]);
    assert_eq!(again.status.code(), Some(1), "{}", said(&again));
    assert!(said(&again).contains("exists and was left as it is"), "{}", said(&again));
    assert_eq!(fs::read_to_string(&path).unwrap(), "# mine\n");

    let link = world.path("link.toml");
    symlink(world.path("elsewhere.toml"), &link).unwrap();
    let linked = world.run(&["init", "--config", link.to_str().unwrap()]);
    assert!(!linked.status.success() && !world.path("elsewhere.toml").exists(), "{}", said(&linked));

    fs::remove_file(&path).unwrap();
    let nested = world.path("a/b/headend.toml");
    assert!(world.run(&["init", "--config", nested.to_str().unwrap()]).status.success() && nested.exists());
}
