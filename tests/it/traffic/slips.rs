//! Tests of programs that are no servers: a terminal that echoes, a program that ends without
//! output, a container engine.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use crate::tools::harness::GatewaySetup;
use crate::tools::process::within;
use crate::traffic::failures::status_of;

/// Far less than the time limit of a call or of a start.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_terminal_and_an_end_without_a_word_are_named() {
    for (label, command, why) in [
        ("echo", r#"["cat"]"#, "sends back what it gets"),
        ("silent end", r#"["true"]"#, "exit status: 0"),
        ("container", r#"["ENGINE", "run", "--rm", "image"]"#, "write `run -i`"),
    ] {
        let setup = GatewaySetup::new();
        let engine = setup.world.write("work/docker", "#!/bin/sh\nexit 0\n");
        std::fs::set_permissions(&engine, std::fs::Permissions::from_mode(0o700)).unwrap();
        let command = command.replace("ENGINE", engine.to_str().unwrap());
        let gateway = setup.toml(&format!("[upstreams.fx]\ncommand = {command}\n")).start();
        within(SOON, &format!("{label} is named"), || {
            status_of(&gateway, "fx")["last-error"].as_str().is_some_and(|last| last.contains(why))
        });
    }
}
