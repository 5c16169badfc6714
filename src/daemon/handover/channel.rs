//! The connection between two daemons: messages as lines of JSON, with files beside them.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use bytes::BytesMut;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Most files that one message carries.
const FILES: usize = 2;
/// Most files that are received and not taken.
const MAX_UNTAKEN: usize = 8;
/// Longest line, in bytes: an approval with all that is kept of its arguments, escaped.
const MAX_LINE: usize = 4 << 20;
const CHUNK: usize = 16 * 1024;
/// No child that another thread starts gets the files.
#[cfg(target_os = "linux")]
const RECEIVING: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const RECEIVING: RecvFlags = RecvFlags::empty();

/// One end of the connection.
#[derive(Debug)]
pub(super) struct HandoverChannel {
    stream: UnixStream,
    received: BytesMut,
    files: VecDeque<OwnedFd>,
}

impl HandoverChannel {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, received: BytesMut::new(), files: VecDeque::new() }
    }

    /// Ends the exchange, and keeps the connection open for as long as the returned stream lives.
    pub(super) fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Sends a message with its files. Not cancel-safe.
    pub(super) async fn send(&self, message: &impl Serialize, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let (mut left, mut files) = (line.as_slice(), files);
        while !left.is_empty() {
            let sent = self.stream.async_io(Interest::WRITABLE, || {
                let mut space = [const { MaybeUninit::uninit() }; rustix::cmsg_space!(ScmRights(FILES))];
                let mut passed = SendAncillaryBuffer::new(&mut space);
                if !files.is_empty() && !passed.push(SendAncillaryMessage::ScmRights(files)) {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                Ok(sendmsg(&self.stream, &[IoSlice::new(left)], &mut passed, SendFlags::empty())?)
            });
            left = left.get(sent.await?..).unwrap_or_default();
            // The files went with the first bytes.
            files = &[];
        }
        Ok(())
    }

    /// Receives the next message; `None` at the end of the connection. Cancel-safe.
    ///
    /// # Errors
    /// The connection fails, or the other process sends something else or too much.
    pub(super) async fn receive<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.received) {
                return Ok(Some(serde_json::from_slice(&self.received.split_to(end + 1))?));
            }
            let mut chunk = vec![0; CHUNK];
            let (bytes, files) = self.stream.async_io(Interest::READABLE, || self.receive_now(&mut chunk)).await?;
            self.received.extend_from_slice(chunk.get(..bytes).unwrap_or_default());
            self.files.extend(files);
            if self.received.len() > MAX_LINE || self.files.len() > MAX_UNTAKEN {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if bytes == 0 {
                return Ok(None);
            }
        }
    }

    /// Receives what is there, and the files beside it.
    fn receive_now(&self, chunk: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let mut space = [const { MaybeUninit::uninit() }; rustix::cmsg_space!(ScmRights(FILES))];
        let mut passed = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(&self.stream, &mut [IoSliceMut::new(chunk)], &mut passed, RECEIVING)?;
        let mut files = Vec::new();
        for message in passed.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        Ok((received.bytes, files))
    }

    /// Takes the oldest file that was received and not taken.
    ///
    /// # Errors
    /// The message came without the file, as when this process may open no more.
    pub(super) fn take_file(&mut self) -> io::Result<OwnedFd> {
        self.files.pop_front().ok_or_else(|| io::Error::other("a file did not come along"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;

    use super::*;

    #[tokio::test]
    async fn messages_arrive_in_order_with_their_files() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (sender, mut receiver) = (HandoverChannel::new(ours), HandoverChannel::new(theirs));
        let (mut reader, writer) = io::pipe().unwrap();
        let long = "x".repeat(100_000);
        let sending = async {
            sender.send(&"one", &[]).await.unwrap();
            sender.send(&long, &[writer.as_fd()]).await.unwrap();
            sender.send(&"three", &[writer.as_fd(), writer.as_fd()]).await.unwrap();
        };
        let receiving = async {
            assert_eq!(receiver.receive::<String>().await.unwrap().unwrap(), "one");
            assert_eq!(receiver.receive::<String>().await.unwrap().unwrap(), long);
            let passed = receiver.take_file().unwrap();
            assert_eq!(receiver.receive::<String>().await.unwrap().unwrap(), "three");
            drop((receiver.take_file().unwrap(), receiver.take_file().unwrap()));
            assert!(receiver.take_file().is_err());
            passed
        };
        let ((), passed) = tokio::join!(sending, receiving);
        drop(writer);
        std::fs::File::from(passed).write_all(b"!").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "!");
        drop(sender);
        assert!(receiver.receive::<String>().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn too_much_or_something_else_is_refused() {
        for bytes in [vec![b'x'; MAX_LINE + CHUNK], b"{\n".to_vec()] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            let mut receiver = HandoverChannel::new(theirs);
            let sending = async { drop(tokio::io::AsyncWriteExt::write_all(&mut ours, &bytes).await) };
            tokio::select! {
                () = sending => assert!(receiver.receive::<String>().await.is_err()),
                received = receiver.receive::<String>() => assert!(received.is_err()),
            }
        }
    }
}
