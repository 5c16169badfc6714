//! Tests of grants below a folder.

use super::operator::{headend, pending};
use super::*;

#[test]
fn calls_below_a_folder_are_allowed_by_one_command() {
    let stage = ConsentGateway::new();
    let mut client = stage.client(ClientEra::Modern, json!({}));
    let mut write = |path: &str| {
        let answer = client.call("fx__write", json!({ "path": path }));
        if answer.is_error() { reason(&answer) } else { answer.text() }
    };
    assert_eq!(write("/srv/app/a"), "awaiting_approval");
    let id = pending(&stage).remove(0);
    let shown = headend(&stage, &["approvals", "show", &id]);
    for part in ["b1  always below /srv/app\n", "b2  always below /srv\n", "Judged: /path", "[--below PATH]"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let failed = |args: &[&str]| {
        let output = stage.gateway.world.run(&[&["approve", &id][..], args].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = failed(&["--below", "/srv/app"]);
    assert!(code == Some(64) && text.contains("--for always"), "{code:?} {text}");
    let (code, text) = failed(&["--for", "always", "--below", "/srv/other"]);
    assert!(code == Some(1) && text.contains("is not below /srv/other"), "{code:?} {text}");
    let allowed = headend(&stage, &["approve", &id, "--for", "always", "--below", "/srv/app"]);
    assert!(allowed.contains("until it or its server changes, below /srv/app"), "{allowed}");
    for (path, want) in [
        ("/srv/app/a", "write"),
        ("/srv/app/b/c", "write"),
        ("/srv/app/../etc", "awaiting_approval"),
        ("/srv/app/.git/config", "awaiting_approval"),
        ("/srv/apple", "awaiting_approval"),
    ] {
        assert_eq!(write(path), want, "{path}");
    }
    let grants = headend(&stage, &["grants"]);
    assert!(grants.contains("below /srv/app"), "{grants}");
    let log = headend(&stage, &["audit", "tail", "--json", "-n", "100"]);
    assert!(log.contains("below /srv/app, judged by /path"), "{log}");
    headend(&stage, &["grants", "revoke", "--all"]);
    assert_eq!(write("/srv/app/b/c"), "awaiting_approval");
}
