//! Tests of the scopes that are requested, and where: the bound of logins without a person, and
//! what a person is told.

use super::issuers::{origin, set, unattended, unattended_world};
use super::*;

#[test]
fn a_403_raises_no_rights_of_a_login_without_a_person() {
    let folder = tempfile::tempdir().unwrap();
    for (label, auth) in unattended(&folder) {
        for scopes in ["", "scopes = [\"mcp\"]\n"] {
            let world = unattended_world(&format!("{auth}{scopes}"), 3600, "");
            world.gateway.wait_for_tools(&["docs__echo"]);
            assert_eq!(world.call()["result"]["content"][0]["text"], "hello", "{label}");
            let tokens = world.asked("by itself");
            set(&world.server, "needed=admin");
            let refused = world.call().to_string();
            assert!(refused.contains("admin") && refused.contains("`scopes`"), "{label} {scopes:?}: {refused}");
            assert!(!refused.contains("headend login"), "{label}: no person helps: {refused}");
            assert_eq!(world.asked("by itself"), tokens, "{label} {scopes:?}: no token was asked for");
            let error = status_of(&world.gateway, "docs")["last-error"].to_string();
            assert!(error.contains("admin"), "{label} {scopes:?}: {error}");
            set(&world.server, "needed=");
            assert_eq!(
                world.call()["result"]["content"][0]["text"],
                "hello",
                "{label}: the token serves what it served"
            );
        }
        // A scope that the operator allows is asked for.
        let world = unattended_world(&format!("{auth}scopes = [\"mcp\", \"admin\"]\n"), 3600, "needed=admin");
        world.gateway.wait_for_tools(&["docs__echo"]);
        assert_eq!(world.call()["result"]["content"][0]["text"], "hello", "{label}");
    }
}

#[test]
fn the_command_says_both_hosts_and_the_rights_that_are_more_than_before() {
    let world = world("modern", 3600);
    eventually("it waits for a login", || world.state() == "needs-login");
    let begun = || said(&world.gateway.run(&["login", "docs", "--paste"]));
    let first = begun();
    assert!(first.contains("It asks for these rights: mcp\n"), "{first}");
    assert!(!first.contains("another host") && !first.contains("More than before"), "{first}");
    world.log_in();
    world.gateway.wait_for_tools(&["docs__echo"]);
    set(&world.server, "needed=admin");
    world.call();
    let page = origin(&world.server).replace("127.0.0.1", "localhost");
    set(&world.server, &format!("page={page}"));
    let second = begun();
    assert!(second.contains("It asks for these rights: mcp admin\nMore than before: admin\n"), "{second}");
    let host = page.strip_prefix("http://").unwrap();
    assert!(second.contains(&format!("Its login page is on another host: {host}\n")), "{second}");
    assert!(second.contains(&format!("docs wants a login at {}\n", origin(&world.server))), "{second}");
}
