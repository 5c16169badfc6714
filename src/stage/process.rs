//! Waiting on a stage, and what its daemon logs.

use std::io;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;

use super::{now, pass};

/// Time that passes on the stage between the first two probes; it doubles up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(160);

/// Repeats `probe` until it returns true. Panics with `what` after a minute.
pub(crate) fn eventually(what: &str, probe: impl FnMut() -> bool) {
    within(Duration::from_secs(60), what, probe);
}

/// Repeats `probe` until it returns true. Panics with `what` after `patience`.
pub(crate) fn within(patience: Duration, what: &str, mut probe: impl FnMut() -> bool) {
    let (until, mut look) = (now() + patience, FIRST);
    while !probe() {
        assert!(now() < until, "not within {patience:?}: {what}");
        pass(look);
        look = (look * 2).min(LONGEST);
    }
}

/// The log of a daemon on the stage. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    pub(crate) fn all(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.0.lock()).lines().map(str::to_owned).collect()
    }

    /// Passes all lines so far to `find` until it returns a value, and returns that value; `None`
    /// after `patience`.
    pub(crate) fn wait_for<T>(&self, patience: Duration, find: impl Fn(&[String]) -> Option<T>) -> Option<T> {
        let (until, mut look) = (now() + patience, FIRST);
        loop {
            if let Some(found) = find(&self.all()) {
                return Some(found);
            }
            if now() >= until {
                return None;
            }
            pass(look);
            look = (look * 2).min(LONGEST);
        }
    }
}

impl io::Write for &Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Creates a subscriber that writes a daemon's log at its default level to `lines`, without
/// colours.
pub(super) fn subscriber(lines: &Lines) -> impl Subscriber + Send + Sync + 'static {
    tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::INFO).with_writer(lines.clone()).finish()
}

/// Formats the status, stdout and stderr of an ended command, for the message of a failed test.
pub(crate) fn said(output: &Output) -> String {
    format!(
        "{:?}\nstdout: {}\nstderr: {}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
