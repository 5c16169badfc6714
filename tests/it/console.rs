//! Tests of the console's address, with ports that are taken, and of a process without a console.
//! The others run on the stage.

use std::net::TcpListener;
use std::time::Duration;

use crate::tools::browser::Browser;
use crate::tools::harness::{GatewaySetup, TestHome, headend};
use crate::tools::process::{output_within, said};

#[test]
fn the_default_address_gives_way_and_a_chosen_one_must_be_had() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (world, path) = GatewaySetup::new().toml(&format!("[console]\nlisten = \"127.0.0.1:{port}\"")).write();
    let refused = world.run(&["serve", "--config", path.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(75), "{}", said(&refused));
    assert!(said(&refused).contains(&port.to_string()), "{}", said(&refused));

    // The first console gets the default port, the other one another port, and both work.
    let (first, second) = (GatewaySetup::new().start(), GatewaySetup::new().start());
    let (one, other) = (first.console_address().unwrap(), second.console_address().unwrap());
    assert!(one != other && one.ip().is_loopback() && other.ip().is_loopback());
    assert_eq!(Browser::signed_in(&second).get("/").head.status, 200);

    let off = GatewaySetup::new().toml("[console]\nlisten = \"\"").start();
    assert_eq!(off.console_address(), None);
    let printed = off.run(&["console"]);
    assert_eq!(printed.status.code(), Some(1), "{}", said(&printed));
    assert!(said(&printed).contains("the console is off"), "{}", said(&printed));
}

#[test]
fn a_stdio_gateway_has_no_console() {
    let world = TestHome::new();
    let mut command = world.command(headend());
    command.args(["stdio", "--no-daemon"]).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let output = output_within(command.spawn().unwrap(), Duration::from_secs(30), "headend stdio");
    assert!(!said(&output).contains("console"), "{}", said(&output));
    assert!(!world.path("state/headend/console-token").exists());
}
