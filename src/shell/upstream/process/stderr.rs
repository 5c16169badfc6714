//! Reads the stderr of a child process to its end.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::base::clock;
use crate::upstream::state::health::UpstreamHealth;
use crate::upstream::state::last_words::LastWords;
use crate::upstream::state::logbook::LineOrigin;
use crate::wire::lines::{LineDecoder, StreamLine};

const STDERR_LINE_BYTES: usize = 4096;
/// Most lines of one child that are logged each second; further lines are counted.
const STDERR_LINES_PER_SECOND: u32 = 50;

/// Reads a child's stderr to its end, so that the child never blocks on it. Logs lines within the
/// rate, and keeps the last ones without secrets.
pub(crate) async fn drain(health: Arc<UpstreamHealth>, stderr: impl AsyncRead + Unpin, words: LastWords) {
    let (mut stderr, upstream) = (stderr, health.upstream());
    let mut decoder = LineDecoder::new(STDERR_LINE_BYTES);
    let (mut window, mut logged, mut suppressed) = (clock::now(), 0_u32, 0_u64);
    loop {
        let buffer: &mut BytesMut = decoder.buffer();
        if !matches!(stderr.read_buf(buffer).await, Ok(n) if n > 0) {
            break;
        }
        while let Some(line) = decoder.next_line() {
            let (bytes, is_cut) = match line {
                StreamLine::Full(bytes) => (bytes, false),
                StreamLine::Oversize { prefix, .. } => (prefix, true),
            };
            let text = words.shown(&String::from_utf8_lossy(&bytes), is_cut);
            if clock::since(window) > Duration::from_secs(1) {
                if suppressed > 0 {
                    tracing::info!(upstream.name = %upstream, suppressed, "lines of stderr left out");
                }
                (window, logged, suppressed) = (clock::now(), 0, 0);
            }
            logged += 1;
            if logged <= STDERR_LINES_PER_SECOND {
                tracing::debug!(upstream.name = %upstream, line = %text, "stderr");
            } else {
                suppressed += 1;
            }
            health.log.add(LineOrigin::Stderr, &text);
            words.push(text);
        }
    }
}
