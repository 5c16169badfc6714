//! The buffer between log lines and stderr. A thread that logs copies its line into the buffer and
//! continues; one thread writes the buffer out every few milliseconds. Lines that find the buffer
//! full are dropped and counted.
//!
//! `tracing-appender` is not used: it bounds its queue by lines and not by bytes, allocates for
//! each line, often wakes its thread for a single line, and does not log how many lines it dropped.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Bytes that may wait for a slow reader of stderr.
const CAPACITY: usize = 8 << 20;
/// How long the thread collects lines before it writes them, so that one wake-up serves many lines.
const GATHER: Duration = Duration::from_millis(5);

/// The count that [`dropped`] returns.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of lines dropped since the process started.
pub(super) fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Lines that have not been written yet.
#[derive(Debug, Default)]
struct BufferedLines {
    bytes: Vec<u8>,
    /// Lines dropped since the last write.
    dropped: u64,
    /// True while the thread waits for the first line.
    asleep: bool,
    /// True once the sink's [`LogFlusher`] is being dropped.
    closed: bool,
}

/// The shared buffer of log lines. Clones write to the same buffer.
#[derive(Clone, Debug, Default)]
pub(super) struct LogBuffer(Arc<LogBufferState>);

/// The state that the sink and its thread share.
#[derive(Debug, Default)]
struct LogBufferState {
    waiting: Mutex<BufferedLines>,
    /// Signals the first line, or the end, to the thread.
    news: Condvar,
}

/// A handle to the writing thread. Dropping it ends the thread after a last write, for which it
/// waits half a second at most.
#[derive(Debug)]
pub(super) struct LogFlusher {
    shared: Arc<LogBufferState>,
    thread: Option<JoinHandle<()>>,
}

impl LogBuffer {
    /// Starts the thread that writes to `out`.
    pub(super) fn start(out: impl Write + Send + 'static) -> (Self, LogFlusher) {
        let sink = Self::default();
        let shared = Arc::clone(&sink.0);
        let thread = thread::Builder::new().name("logs".to_owned()).spawn(move || drain(&shared, out)).ok();
        let flusher = LogFlusher { shared: Arc::clone(&sink.0), thread };
        (sink, flusher)
    }

    /// Appends one whole line, or drops it as a whole.
    pub(super) fn line(&self, line: &[u8]) {
        let mut waiting = self.0.waiting.lock();
        if waiting.bytes.len() + line.len() > CAPACITY {
            waiting.dropped += 1;
            DROPPED.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes.extend_from_slice(line);
        if std::mem::take(&mut waiting.asleep) {
            drop(waiting);
            self.0.news.notify_one();
        }
    }
}

impl Write for LogBuffer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes lines until the sink is closed and empty.
fn drain(shared: &LogBufferState, mut out: impl Write) {
    let mut batch = Vec::new();
    loop {
        let (dropped, closed) = {
            let mut waiting = shared.waiting.lock();
            while waiting.bytes.is_empty() && !waiting.closed {
                waiting.asleep = true;
                shared.news.wait(&mut waiting);
            }
            std::mem::swap(&mut waiting.bytes, &mut batch);
            (std::mem::take(&mut waiting.dropped), waiting.closed)
        };
        // If stderr is closed, the daemon continues without its logs.
        drop(out.write_all(&batch));
        if dropped > 0 {
            drop(writeln!(out, "headend: {dropped} log lines were dropped: the reader of the log is too slow"));
        }
        drop(out.flush());
        batch.clear();
        batch.shrink_to(64 * 1024);
        if closed {
            return;
        }
        thread::sleep(GATHER);
    }
}

impl Drop for LogFlusher {
    fn drop(&mut self) {
        self.shared.waiting.lock().closed = true;
        self.shared.news.notify_one();
        if let Some(thread) = self.thread.take() {
            // A reader that has stopped reading must not keep the daemon from ending.
            for _ in 0..100 {
                if thread.is_finished() {
                    return;
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A reader that takes nothing until it gets a signal.
    struct Slow {
        go: mpsc::Receiver<()>,
        page: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        #[expect(clippy::unwrap_in_result, reason = "a sender that is gone fails the test")]
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.page.lock().is_empty() {
                self.go.recv().unwrap();
            }
            self.page.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stuck_reader_costs_lines_and_never_a_caller() {
        let (tell, go) = mpsc::channel();
        let page = Arc::new(Mutex::new(Vec::new()));
        let (sink, flusher) = LogBuffer::start(Slow { go, page: Arc::clone(&page) });
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        // The thread may have taken one batch before it was blocked.
        for _ in 0..3 * CAPACITY / line.len() {
            sink.line(&line);
        }
        tell.send(()).unwrap();
        drop(flusher);
        assert!(dropped() > 0);
        let text = String::from_utf8(page.lock().clone()).unwrap();
        assert!(text.len() < 3 * CAPACITY, "{}", text.len());
        assert!(text.lines().any(|line| line.ends_with("the reader of the log is too slow")));
        assert!(text.lines().all(|line| line.len() == 1023 || line.starts_with("headend: ")));
    }
}
