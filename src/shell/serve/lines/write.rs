//! Writes messages to a client as lines.

use bytes::{BufMut as _, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::base::budget::COUNTED_FROM;
use crate::listener::pieces::QueuedMessage;

/// Size in bytes of the buffers for reading and writing.
pub(super) const READ_CHUNK: usize = 64 * 1024;

/// Writes queued messages: small ones gathered into one write, large ones without copying.
pub(super) async fn write(mut writer: impl AsyncWrite + Unpin, mut outbound: mpsc::Receiver<QueuedMessage>) {
    let mut buffer = BytesMut::new();
    while let Some(first) = outbound.recv().await {
        // A client that reads no more closes the channel, and its senders notice that.
        let Ok(()) = write_gathered(&mut writer, &mut buffer, first, &mut outbound).await else { return };
    }
}

/// Writes this message and those queued behind it, up to [`READ_CHUNK`] bytes of small ones.
pub(super) async fn write_gathered(
    writer: &mut (impl AsyncWrite + Unpin),
    buffer: &mut BytesMut,
    first: QueuedMessage,
    outbound: &mut mpsc::Receiver<QueuedMessage>,
) -> std::io::Result<()> {
    let mut next = Some(first);
    while let Some(QueuedMessage { message, .. }) = &next {
        if message.len() < COUNTED_FROM {
            message.copy_to(buffer);
        } else {
            writer.write_all(buffer).await?;
            buffer.clear();
            for slice in message.clone().slices() {
                writer.write_all(&slice).await?;
            }
        }
        buffer.put_u8(b'\n');
        next = if buffer.len() < READ_CHUNK { outbound.try_recv().ok() } else { None };
    }
    writer.write_all(buffer).await?;
    buffer.clear();
    writer.flush().await
}
