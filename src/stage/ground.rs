//! Time that stands still and connections in memory, for the tools of tests.

use std::cell::RefCell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::{StageUse, block_on, net};
use crate::base::clock;

/// A connection to a listener of the gateway. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    stream: Rc<RefCell<DuplexStream>>,
    patience: Duration,
}

/// Connects; writes and reads take no longer than that time.
pub(crate) fn connect(address: SocketAddr, patience: Duration) -> io::Result<Stream> {
    Ok(Stream { stream: Rc::new(RefCell::new(net::connect(address.port())?)), patience })
}

pub(crate) fn now() -> Instant {
    block_on(async { clock::now() })
}

impl Stream {
    pub(crate) fn set_read_timeout(&mut self, patience: Option<Duration>) -> io::Result<()> {
        self.patience = patience.ok_or(ErrorKind::InvalidInput)?;
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "that of a socket can fail")]
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(self.clone())
    }

    /// Ends the client's side, while the answer can still be read.
    pub(crate) fn half_close(&mut self) -> io::Result<()> {
        block_on(self.stream.borrow_mut().shutdown())
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut stream = self.stream.borrow_mut();
        block_on(async { tokio::time::timeout(self.patience, stream.read(buf)).await })
            .unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut stream = self.stream.borrow_mut();
        block_on(async { tokio::time::timeout(self.patience, stream.write(buf)).await })
            .unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A folder that ends with its test.
#[derive(Debug)]
pub(crate) struct Folder(TempDir, StageUse);

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("headend-stage-").tempdir_in(super::base_folder());
        Self(folder.unwrap(), StageUse::take())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}
