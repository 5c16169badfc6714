//! Tests of logins in a backup: they are sealed, so they can be used only with the key.

use super::*;
use crate::commands_at_work::backup::{ok, start_on};

#[test]
fn a_login_is_restored_with_the_key_alone() {
    let mut world = world("modern", 3600);
    eventually("it waits for a login", || world.state() == "needs-login");
    world.log_in();
    world.gateway.wait_for_tools(&["docs__echo"]);
    let folder = tempfile::tempdir().unwrap();
    let [without, with] = ["without", "with"].map(|name| folder.path().join(name));
    let told = ok(&world.gateway, &["backup", without.to_str().unwrap()]);
    assert!(told.contains("1 login,") && told.contains("you have to log in to upstreams again"), "{told}");
    ok(&world.gateway, &["backup", "--with-key", with.to_str().unwrap()]);
    world.gateway.signal(Signal::TERM);
    assert!(world.gateway.wait(Duration::from_secs(60)).is_some());

    let config = world.gateway.config.clone();
    world.gateway = start_on(&without, &config);
    eventually("it waits for a login", || world.state() == "needs-login");
    let folder_of_first = world.gateway.world.clone();
    world.gateway = start_on(&with, &folder_of_first.path("headend.toml"));
    eventually("it is ready", || world.state() == "ready");
    assert_eq!(world.call()["result"]["content"][0]["text"], "hello");
    assert_eq!(world.asked("authorize"), 1, "no second login was needed");
}
