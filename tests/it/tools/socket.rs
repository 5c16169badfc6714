//! A client of the admin socket that reads and writes its lines itself.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;

use rustix::process::{Gid, Uid};
use serde_json::{Value, json};

use super::harness::Gateway;

/// A user other than the daemon's.
pub(crate) const OTHER: u32 = 65534;

/// A connection to the admin socket.
pub(crate) struct Socket(BufReader<UnixStream>);

impl Socket {
    /// Connects as this user, who is the daemon's too.
    pub(crate) fn local(gateway: &Gateway, want: &str) -> (Value, Self) {
        Self::greet(UnixStream::connect(gateway.world.path("run/headend.sock")).unwrap(), want)
    }

    /// Connects as another user, whose identity one thread assumes for this.
    pub(crate) fn other(gateway: &Gateway, want: &str) -> (Value, Self) {
        let path = gateway.world.path("run/headend.sock");
        let connect = || {
            let (user, group) = (Uid::from_raw(OTHER), Gid::from_raw(OTHER));
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            UnixStream::connect(path).unwrap()
        };
        Self::greet(thread::spawn(connect).join().unwrap(), want)
    }

    /// Connects as a relay of lines, which is told before the daemon ends.
    pub(crate) fn relay(gateway: &Gateway) -> Self {
        let stream = UnixStream::connect(gateway.world.path("run/headend.sock")).unwrap();
        stream.set_read_timeout(Some(super::http::PATIENCE)).unwrap();
        let mut socket = Self(BufReader::new(stream));
        socket.send(&json!({"headend": 1, "want": "mcp", "leaves": true}));
        let hello = socket.line();
        assert!(hello.get("error").is_none(), "{hello}");
        socket
    }

    /// Exchanges hellos, and returns the daemon's hello with the connection.
    fn greet(stream: UnixStream, want: &str) -> (Value, Self) {
        stream.set_read_timeout(Some(super::http::PATIENCE)).unwrap();
        let mut socket = Self(BufReader::new(stream));
        socket.send(&json!({"headend": 1, "want": want}));
        (socket.line(), socket)
    }

    pub(crate) fn send(&mut self, message: &Value) {
        writeln!(self.0.get_mut(), "{message}").unwrap();
    }

    pub(crate) fn line(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}));
        self.line()
    }
}
