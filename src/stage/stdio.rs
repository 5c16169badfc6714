//! A client on pipes: `headend stdio` as the whole gateway, on the stage.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex, split,
};
use tokio_util::sync::CancellationToken;

use super::harness::Gateway;
use super::http::ResponseHead;
use super::mcp::McpAnswer;
use super::{block_on, stage};
use crate::serve::lines;

/// Bytes that wait in a pipe.
const PIPE: usize = 64 * 1024;

/// The ends of the pipes that the host holds.
#[derive(Debug)]
pub(crate) struct Pipe {
    writer: Option<WriteHalf<DuplexStream>>,
    reader: BufReader<ReadHalf<DuplexStream>>,
    ended: CancellationToken,
}

impl Pipe {
    /// A host on pipes of this gateway.
    pub(crate) fn of(gateway: &Gateway) -> Self {
        Self::of_profile(gateway, None)
    }

    /// Starts a client for a host with that profile.
    pub(crate) fn of_profile(gateway: &Gateway, profile: Option<&str>) -> Self {
        let (host, ours) = duplex(PIPE);
        let (reader, writer) = split(ours);
        let service = &gateway.inner().service;
        let stage = stage();
        let _entered = stage.runtime.enter();
        let client = gateway.inner().line_client(gateway.inner().own_caller(), profile.map(Into::into));
        let (draining, ended) = (service.draining.clone(), CancellationToken::new());
        let end = ended.clone().drop_guard();
        block_on(async {
            service.tasks.spawn("host", async move {
                lines::serve(client, reader, writer, draining).await;
                drop(end);
            });
        });
        let (reader, writer) = split(host);
        Self { writer: Some(writer), reader: BufReader::new(reader), ended }
    }

    /// Writes one line.
    pub(crate) fn send(&mut self, line: &[u8]) {
        self.try_send(line).unwrap();
    }

    /// Writes one line; the other side may be gone.
    pub(crate) fn try_send(&mut self, line: &[u8]) -> std::io::Result<()> {
        let writer = self.writer.as_mut().unwrap();
        let end: &[u8] = if line.ends_with(b"\n") { b"" } else { b"\n" };
        block_on(async {
            writer.write_all(line).await?;
            writer.write_all(end).await
        })
    }

    /// The next line, `None` when none came in time.
    pub(crate) fn line(&mut self, patience: Duration) -> Option<String> {
        let mut line = String::new();
        let reader = &mut self.reader;
        let read = block_on(async { tokio::time::timeout(patience, reader.read_line(&mut line)).await });
        matches!(read, Ok(Ok(1..))).then(|| line.trim_end().to_owned())
    }

    /// The response to that id, with the notices before it.
    pub(crate) fn answer(&mut self, id: &Value, patience: Duration) -> McpAnswer {
        let mut notices = Vec::new();
        while let Some(raw) = self.line(patience) {
            let message: Value =
                serde_json::from_str(&raw).unwrap_or_else(|error| panic!("stdout is the protocol: {error}: {raw}"));
            if message.get("method").is_none() && message.get("id") == Some(id) {
                return McpAnswer { status: 200, head: ResponseHead::default(), message, raw, notices };
            }
            notices.push(message);
        }
        panic!("no response to {id} but {notices:?}");
    }

    /// Ends the input and waits for the end, at most that long.
    pub(crate) fn close(&mut self, patience: Duration) -> Option<()> {
        if let Some(mut writer) = self.writer.take() {
            drop(block_on(writer.shutdown()));
        }
        block_on(async { tokio::time::timeout(patience, self.ended.cancelled()).await.ok() })
    }
}
