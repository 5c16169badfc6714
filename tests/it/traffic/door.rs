//! Tests of floods, silent connections and scarce descriptors at the listeners, which need sockets.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::tools::credentials::{SECOND, ask_anew, console, headers, setup, sign_in};
use crate::tools::harness::{Gateway, headend};
use crate::tools::http::{PATIENCE, request};
use crate::tools::process::{eventually, said};

/// Lets this process open as many sockets as the system allows, because tests run in parallel.
fn many_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

/// Opens connections and sends these bytes on each, and no more.
fn strangers(address: SocketAddr, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    many_files();
    let connect = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        // The connection may have been closed already.
        drop(stream.write_all(bytes));
        stream
    };
    (0..count).map(connect).collect()
}

#[test]
fn those_who_never_stop_sending_give_way_too() {
    let gateway = setup("anonymous-connections = 16").start();
    let address = gateway.address;
    let wrong = request("GET", "/mcp", &headers(address, "a-wrong-token-of-a-flood"), b"").repeat(500);
    // Half of them read the answers, so that their connections never wait; the others let answers
    // pile up.
    let flood: Vec<_> = strangers(address, 24, b"")
        .into_iter()
        .enumerate()
        .map(|(n, mut stream)| {
            let wrong = wrong.clone();
            thread::spawn(move || {
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
                if n % 2 == 0 {
                    let mut answers = stream.try_clone().unwrap();
                    thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
                }
                loop {
                    if let Err(error) = stream.write_all(&wrong) {
                        return error.kind();
                    }
                }
            })
        })
        .collect();
    for n in 0..20 {
        assert_eq!(ask_anew(address, SECOND).head.status, 405, "time {n}");
    }
    while !flood.iter().all(thread::JoinHandle::is_finished) {
        let _more = strangers(address, 16, b"");
        thread::sleep(Duration::from_millis(20));
    }
    for thread in flood {
        let ended = thread.join().unwrap();
        assert!([ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&ended), "{ended:?}: it was not closed");
    }
}

#[test]
fn commands_reach_the_daemon_beside_silent_connections() {
    let gateway = setup("").start();
    let socket = gateway.world.path("run/headend.sock");
    many_files();
    let mut silent: Vec<UnixStream> = (0..300).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let status = gateway.run(&["status"]);
    assert!(status.status.success(), "{}", said(&status));
    silent[0].set_read_timeout(Some(PATIENCE)).unwrap();
    let mut told = String::new();
    silent[0].read_to_string(&mut told).unwrap();
    assert!(told.contains("\"error\":\"too many connections"), "{told:?}");
}

#[test]
fn listeners_stay_within_the_descriptors_of_the_process() {
    const LIMIT: usize = 512;
    let (world, config) = setup("").write();
    let mut shell = world.command("sh");
    shell.args(["-c", &format!("ulimit -n {LIMIT} && exec \"$0\" \"$@\""), headend()]);
    let second = [("SECOND_TOKEN".to_owned(), SECOND.to_owned())];
    let gateway = Gateway::start_by(shell, world, Some(config), &["serve"], &second);
    gateway.wait_for_tools(&["fx__echo"]);
    let strangers: Vec<_> = [gateway.address, gateway.metrics.unwrap(), console(&gateway)]
        .into_iter()
        .map(|address| strangers(address, 400, b""))
        .collect();
    for n in 0..10 {
        assert_eq!(ask_anew(gateway.address, SECOND).head.status, 405, "time {n}");
        sign_in(&gateway);
        gateway.scrape();
        let open = fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().count();
        assert!(open < LIMIT - 50, "{open} descriptors are open");
    }
    eventually("the log says so", || gateway.story().contains("fewer connections than configured"));
    let log = gateway.story();
    assert!(!log.contains("not accepted"), "{log}");
    drop(strangers);
}
