//! Tells another process when the programs of an upstream have ended.
//!
//! Each guard of an upstream holds the write end of one pipe, and a daemon that is taken over
//! passes the read end to its successor. The system reports the end of the pipe once the daemon has
//! closed its own write end and every guard is gone, however they ended. A guard ends last, after
//! all that the program has started.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd as _, OwnedFd};

use parking_lot::Mutex;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

/// The pipe of one upstream.
#[derive(Debug)]
pub struct Lifeline {
    reader: PipeReader,
    /// `None` once no further program may start.
    writer: Mutex<Option<PipeWriter>>,
}

impl Lifeline {
    /// Creates the pipe.
    ///
    /// # Errors
    /// The process may open no more files.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Self { reader, writer: Mutex::new(Some(writer)) })
    }

    /// Duplicates the write end for a guard.
    ///
    /// # Errors
    /// No further program may start, or the process may open no more files.
    pub(super) fn hold(&self) -> io::Result<OwnedFd> {
        let closed = || io::Error::other("another daemon takes the upstream over");
        self.writer.lock().as_ref().ok_or_else(closed)?.as_fd().try_clone_to_owned()
    }

    /// Duplicates the read end for a successor.
    ///
    /// # Errors
    /// The process may open no more files.
    pub fn pass(&self) -> io::Result<OwnedFd> {
        self.reader.as_fd().try_clone_to_owned()
    }

    /// Lets no further program start. The pipe ends with the guards that run now.
    pub fn close(&self) {
        self.writer.lock().take();
    }
}

/// Waits until the daemon before this one and all guards of an upstream have closed their ends of
/// the pipe whose read end is `passed`. If the pipe cannot be read, waits forever: a doubt must not
/// start a second program.
pub async fn wait_until_ended(passed: OwnedFd) {
    let mut reader = match pipe::Receiver::from_owned_fd(passed) {
        Ok(reader) => reader,
        Err(error) => {
            tracing::error!(error = %error, "the programs of the daemon before cannot be watched; restart headend");
            return std::future::pending().await;
        }
    };
    // Nothing is written to the pipe.
    while !matches!(reader.read(&mut [0; 1]).await, Ok(0)) {}
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_end_is_that_of_the_daemon_and_of_the_last_guard() {
        let lifeline = Lifeline::new().unwrap();
        let (one, other) = (lifeline.hold().unwrap(), lifeline.hold().unwrap());
        let ended = wait_until_ended(lifeline.pass().unwrap());
        tokio::pin!(ended);
        let waits = async |ended: &mut _| tokio::time::timeout(Duration::from_millis(20), ended).await.is_err();
        drop(one);
        lifeline.close();
        assert!(lifeline.hold().is_err());
        assert!(waits(&mut ended).await, "a guard lives");
        drop(other);
        ended.await;
    }

    #[tokio::test]
    async fn a_daemon_that_lives_may_start_another_program() {
        let lifeline = Lifeline::new().unwrap();
        let ended = wait_until_ended(lifeline.pass().unwrap());
        tokio::pin!(ended);
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut ended).await.is_err());
        drop(lifeline);
        ended.await;
    }
}
