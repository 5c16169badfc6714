//! Logging: to stderr as text or JSON, or to the journal if stderr is connected to it.
//!
//! Logging never delays a call: lines go through a bounded buffer to a thread of their own, and a
//! line that finds the buffer full is dropped.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};
use std::sync::OnceLock;

use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, fmt, reload};

mod plain;
mod sink;

use self::plain::PlainFormat;
use self::sink::{LogBuffer, LogFlusher};
use crate::wire::foreign;

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The journal's if stderr is connected to it, else text.
    Auto,
    Text,
    Json,
}

/// The format and filter of the log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    pub format: LogFormat,
    /// A level, or comma-separated `target=level` pairs.
    pub filter: String,
    /// True if the configuration must not change the filter later.
    pub fixed: bool,
}

/// The filter in force; empty if the configuration must not change it.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Applies the filter of the configuration, unless the command line or the environment has set one.
pub fn set_filter(filter: &str) {
    if let (Some(handle), Ok(filter)) = (FILTER.get(), targets(filter)) {
        // Reloading fails only if nothing is logged any more.
        drop(handle.reload(filter));
    }
}

/// Parses a filter. Targets of headend have one prefix in it, regardless of the crate that holds
/// the module: `headend::upstream` stands for `headend_shell::upstream`.
fn targets(filter: &str) -> Result<Targets, ParseError> {
    let mut directives: Vec<Cow<'_, str>> = Vec::new();
    for directive in filter.split(',') {
        directives.push(directive.into());
        if let Some(module) = directive.trim_start().strip_prefix("headend::") {
            directives.extend(["core", "shell"].map(|name| format!("headend_{name}::{module}").into()));
        }
    }
    directives.join(",").parse()
}

/// Returns how many lines were dropped since the process started because stderr did not take them
/// in time.
pub fn dropped_lines() -> u64 {
    sink::dropped()
}

/// A handle that writes the buffered lines when it is dropped.
#[derive(Debug)]
pub struct LogGuard {
    _flusher: Option<LogFlusher>,
}

/// Starts logging for the whole process.
///
/// # Errors
/// The filter cannot be parsed, with the reason.
pub fn init(options: &LogOptions) -> Result<LogGuard, String> {
    let filter = targets(&options.filter).map_err(|error| {
        format!("log filter {:?}: {error}; write a level such as `info`, or `target=level`", options.filter)
    })?;
    let (layer, flusher) = match options.format {
        LogFormat::Auto => match journal() {
            Some(layer) => (layer, None),
            None => to_stderr(false),
        },
        LogFormat::Text => to_stderr(false),
        LogFormat::Json => to_stderr(true),
    };
    let (filter, handle) = reload::Layer::new(filter);
    if !options.fixed {
        drop(FILTER.set(handle));
    }
    // A second subscriber, as in tests of the command line, must not stop the process.
    drop(tracing_subscriber::registry().with(layer.with_filter(filter)).try_init());
    Ok(LogGuard { _flusher: flusher })
}

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Creates the layer that writes to stderr, and the thread behind it.
fn to_stderr(json: bool) -> (BoxedLayer, Option<LogFlusher>) {
    let (sink, flusher) = LogBuffer::start(io::stderr());
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let layer = if json {
        // JSON strings have their control characters escaped already.
        fmt::layer().json().flatten_event(true).with_writer(move || sink.clone()).boxed()
    } else if colours {
        fmt::layer().with_writer(move || EscapingWriter { sink: sink.clone(), colours }).boxed()
    } else {
        let writer = move || EscapingWriter { sink: sink.clone(), colours };
        fmt::layer().event_format(PlainFormat).with_writer(writer).boxed()
    };
    (layer, Some(flusher))
}

/// Returns the layer that logs to the journal, if stderr is connected to the journal. Source:
/// `JOURNAL_STREAM` in `systemd.exec(5)`.
fn journal() -> Option<BoxedLayer> {
    let stream = std::env::var("JOURNAL_STREAM").ok()?;
    let (device, inode) = stream.split_once(':')?;
    let stderr = rustix::fs::fstat(io::stderr()).ok()?;
    if device.parse() != Ok(stderr.st_dev) || inode.parse() != Ok(stderr.st_ino) {
        return None;
    }
    let layer = tracing_journald::layer().ok()?;
    Some(layer.with_syslog_identifier("headend".to_owned()).boxed())
}

/// A writer that escapes hidden characters, so that bytes of a peer can neither forge a line nor
/// move a cursor.
struct EscapingWriter {
    sink: LogBuffer,
    /// True if the escape sequences of our own colours must pass.
    colours: bool,
}

impl Write for EscapingWriter {
    /// Escapes the hidden characters of a line, and appends it to the sink, which may drop it.
    /// Never fails. The subscriber passes one whole line per call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.sink.line(&escaped(line, self.colours));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the line with hidden characters escaped, except for the newline at its end. Most lines
/// have none and are not copied.
fn escaped(line: &[u8], colours: bool) -> Cow<'_, [u8]> {
    let body = line.strip_suffix(b"\n").unwrap_or(line);
    if body.iter().all(|byte| (b' '..=b'~').contains(byte)) {
        return Cow::Borrowed(line);
    }
    let body = String::from_utf8_lossy(body);
    let shown = if colours { foreign::coloured_line(&body) } else { foreign::line(&body) };
    let mut out = shown.into_owned();
    out.push('\n');
    Cow::Owned(out.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line() {
        let line = escaped("a\nb\r\u{1b}[2Jc\u{9b}d\u{2028}\u{202e}\u{3164}\n".as_bytes(), false);
        assert_eq!(String::from_utf8_lossy(&line), "a\\nb\\r\\u{1b}[2Jc\\u{9b}d\\u{2028}\\u{202e}\\u{3164}\n");
    }

    #[test]
    fn a_target_of_a_filter_is_a_module_of_whichever_crate() {
        use tracing::Level;

        let enables = |filter: &str, target: &str| targets(filter).unwrap().would_enable(target, &Level::DEBUG);
        let here = module_path!();
        assert!(here.starts_with("headend_shell::telemetry::"), "{here}");
        for (filter, target, want) in [
            ("warn,headend::telemetry=debug", here, true),
            ("warn, headend::upstream=debug", "headend_shell::upstream::line::connection", true),
            ("warn,headend::upstream=debug", "headend_shell::gateway", false),
            ("headend::engine=debug,warn", "headend_core::engine::peer", true),
            ("warn,headend::daemon=debug", "headend::daemon::admin", true),
            ("warn,headend=debug", "headend_shell::gateway", true),
            ("warn,headend=debug", "hyper", false),
            ("debug,headend::upstream=warn", "headend_shell::upstream::line::connection", false),
        ] {
            assert_eq!(enables(filter, target), want, "{filter}: {target}");
        }
    }

    #[test]
    fn a_bad_filter_is_explained() {
        let options = LogOptions { format: LogFormat::Text, filter: "headend=loud".to_owned(), fixed: true };
        let error = init(&options).err().unwrap_or_default();
        assert!(error.contains("headend=loud"), "{error}");
    }
}
