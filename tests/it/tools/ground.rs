//! The environment of the test tools here: real time, real sockets, real folders. The stage has its
//! own version of this module.
#![allow(dead_code, reason = "a tool of several grounds, of which each uses its own part")]

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A connection to a listener.
pub(crate) type Stream = TcpStream;

/// Connects within this time, which also limits writes.
pub(crate) fn connect(address: SocketAddr, patience: Duration) -> io::Result<Stream> {
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A folder that is removed with its test.
#[derive(Debug)]
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::Builder::new().prefix("headend-it-").tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Returns the root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|folder| folder.join("src/core").exists()).unwrap()
}
