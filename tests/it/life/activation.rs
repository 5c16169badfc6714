//! Tests of listening sockets that the service manager holds, by the protocol of
//! `sd_listen_fds(3)`: connections wait in them while the daemon restarts.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::tools::harness::{Gateway, GatewaySetup, TestHome, headend};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::{descendants, eventually, said};
use crate::tools::upstream::Fake;

/// Clients that connect anew for each call, and restarts meanwhile.
const CLIENTS: usize = 8;
const RESTARTS: usize = 3;

/// Starts the daemon as the service manager does, with a socket as descriptor 3. `passing` is the
/// part of a shell's script that sets up further descriptors and the variables.
fn start(world: &TestHome, config: &Path, socket: OwnedFd, passing: &str) -> Gateway {
    let mut command = world.command("sh");
    let script = format!("exec 3<&0 0</dev/null; {passing}; exec \"$@\"");
    command.stdin(Stdio::from(socket)).args(["-c", &script, "sh", headend()]);
    Gateway::start_by(command, world.clone(), Some(config.to_owned()), &["serve"], &[])
}

const ONE: &str = "export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=mcp";

/// Writes a configuration that has this address of `[server] listen` and one server.
fn write(address: SocketAddr) -> (TestHome, PathBuf) {
    let setup = GatewaySetup::new().fake("fx", &Fake::stdio("modern"));
    let text = setup.text().replacen("127.0.0.1:0", &address.to_string(), 1);
    let path = setup.world.write("headend.toml", &text);
    (setup.world, path)
}

/// Ends the daemon in order.
fn stop(mut gateway: Gateway) {
    gateway.signal(Signal::TERM);
    assert!(gateway.wait(Duration::from_secs(60)).is_some_and(|status| status.success()), "{}", gateway.story());
}

#[test]
fn no_connection_is_refused_while_the_daemon_restarts_and_each_call_is_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (world, config) = write(address);
    let again = || start(&world, &config, listener.try_clone().unwrap().into(), ONE);
    let gateway = again();
    assert_eq!(gateway.address, address);
    gateway.wait_for_tools(&["fx__echo"]);

    // Programs that the daemon starts get neither the socket nor the variables.
    let own = fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
    let children = descendants(gateway.pid());
    assert!(!children.is_empty());
    for pid in children {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&environment).contains("LISTEN_"));
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        assert!(!files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file == own), "{pid}");
    }

    let (is_over, answered, token) = (AtomicBool::new(false), AtomicUsize::new(0), gateway.token());
    let gateway = thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let answer =
                        Mcp::http(address, token.clone(), ClientEra::Modern).call("fx__echo", json!({"text": "hello"}));
                    assert!(answer.raw.contains("hello"), "{}", answer.raw);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut gateway = gateway;
        for _ in 0..RESTARTS {
            let before = answered.load(Ordering::Relaxed);
            eventually("calls are answered", || answered.load(Ordering::Relaxed) > before + 2 * CLIENTS);
            stop(gateway);
            gateway = again();
        }
        is_over.store(true, Ordering::Relaxed);
        gateway
    });
    assert!(!gateway.story().contains("socket activation"), "{}", gateway.story());
}

#[test]
fn sockets_that_no_setting_wants_are_named_and_those_of_another_process_are_left_alone() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (world, config) = write(address);
    let socket = || listener.try_clone().unwrap().into();
    let gateway = start(&world, &config, socket(), "exec 4</dev/null 5<&3; export LISTEN_PID=$$ LISTEN_FDS=3");
    assert_eq!(gateway.address, address);
    for part in ["descriptor 4 of the service manager is no listening stream socket".to_owned(), {
        format!("no setting has the address {address} of a socket of the service manager")
    }] {
        eventually("the doubt is logged", || gateway.stderr.all().iter().any(|line| line.contains(&part)));
    }
    stop(gateway);
    let text = fs::read_to_string(&config).unwrap().replacen(&address.to_string(), "127.0.0.1:0", 1);
    world.write("headend.toml", &text);
    let gateway = start(&world, &config, socket(), "export LISTEN_PID=1 LISTEN_FDS=1");
    assert_ne!(gateway.address, address);
    assert!(!gateway.story().contains("socket activation"), "{}", gateway.story());
    stop(gateway);
}

#[test]
fn the_admin_socket_of_the_service_manager_outlives_the_daemon() {
    let (world, config) = write("127.0.0.1:0".parse().unwrap());
    let path = world.path("run/headend.sock");
    let listener = UnixListener::bind(&path).unwrap();
    for _ in 0..2 {
        let gateway = start(&world, &config, listener.try_clone().unwrap().into(), ONE);
        let shown = gateway.run(&["status"]);
        assert!(shown.status.success(), "{}\n{}", said(&shown), gateway.story());
        stop(gateway);
        assert!(path.exists(), "connections wait at it for the next process");
    }
}
