//! Logs: to stderr as text or JSON, or to the journal when stderr is connected to it.
//!
//! Writing never holds a call up: lines go through a bounded queue to a thread of their own, and what does not fit is dropped.

use std::io::{self, IsTerminal as _, Write};

use crate::config::LogFormat;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

/// Lines that wait for a slow reader of stderr.
const WAITING_LINES: usize = 16_384;

/// How to log.
#[derive(Clone, Debug)]
pub(crate) struct LogOptions {
    pub(crate) format: LogFormat,
    /// A level, or `target=level` pairs with commas between.
    pub(crate) filter: String,
}

/// Writes what is still queued when it is dropped.
#[derive(Debug)]
pub(crate) struct LogGuard {
    _worker: Option<WorkerGuard>,
}

/// Starts logging for the whole process.
///
/// # Errors
/// A filter that cannot be read, with the reason.
pub(crate) fn init(options: &LogOptions) -> Result<LogGuard, String> {
    let filter = EnvFilter::try_new(&options.filter).map_err(|error| {
        format!("log filter {:?}: {error}; write a level such as `info`, or `target=level`", options.filter)
    })?;
    let (layer, worker) = match options.format {
        LogFormat::Auto => match journal() {
            Some(layer) => (layer, None),
            None => to_stderr(false),
        },
        LogFormat::Text => to_stderr(false),
        LogFormat::Json => to_stderr(true),
    };
    // A second subscriber, in tests of the command line, is no reason to stop.
    drop(tracing_subscriber::registry().with(layer.with_filter(filter)).try_init());
    Ok(LogGuard { _worker: worker })
}

type Boxed = Box<dyn Layer<Registry> + Send + Sync>;

fn to_stderr(json: bool) -> (Boxed, Option<WorkerGuard>) {
    let queue = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING_LINES).thread_name("logs");
    let (writer, guard) = queue.finish(io::stderr());
    let layer = if json {
        // JSON strings have their control characters escaped already.
        fmt::layer().json().flatten_event(true).with_writer(writer).boxed()
    } else {
        let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let writer = move || Escaping { inner: writer.clone(), colours };
        fmt::layer().with_ansi(colours).with_writer(writer).boxed()
    };
    (layer, Some(guard))
}

/// The journal, if it is what stderr writes to. Source: `JOURNAL_STREAM` in `systemd.exec(5)`.
fn journal() -> Option<Boxed> {
    let stream = std::env::var("JOURNAL_STREAM").ok()?;
    let (device, inode) = stream.split_once(':')?;
    let stderr = rustix::fs::fstat(io::stderr()).ok()?;
    if device.parse() != Ok(stderr.st_dev) || inode.parse() != Ok(stderr.st_ino) {
        return None;
    }
    let layer = tracing_journald::layer().ok()?;
    Some(layer.with_syslog_identifier("headend".to_owned()).boxed())
}

/// Writes lines of which only the end is a control character: what a peer sent cannot forge a line or move a cursor.
struct Escaping {
    inner: NonBlocking,
    /// Our own colours are escape sequences, which a terminal is meant to see.
    colours: bool,
}

impl Write for Escaping {
    /// Takes whole lines, which is how the subscriber writes.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.inner.write_all(escaped(&String::from_utf8_lossy(line), self.colours).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn escaped(line: &str, colours: bool) -> String {
    let body = line.strip_suffix('\n').unwrap_or(line);
    let mut out = String::with_capacity(line.len());
    for c in body.chars() {
        if c.is_control() && !(colours && c == '\u{1b}') {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(escaped("a\nb\r\u{1b}[2Jc\u{9b}d\n", false), "a\\nb\\r\\u{1b}[2Jc\\u{9b}d\n");
    }

    #[test]
    fn a_bad_filter_is_explained() {
        let options = LogOptions { format: LogFormat::Text, filter: "headend=loud".to_owned() };
        let error = init(&options).err().unwrap_or_default();
        assert!(error.contains("headend=loud"), "{error}");
    }
}
