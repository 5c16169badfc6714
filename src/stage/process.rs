//! Waiting on a stage, and what its daemon logs.

use std::io;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;

use super::{now, pass};

/// How long the stage goes on between the first two looks, and at most.
const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(160);

/// Asks again and again until the answer is yes; fails with that description after a minute.
pub(crate) fn eventually(what: &str, probe: impl FnMut() -> bool) {
    within(Duration::from_secs(60), what, probe);
}

/// [`eventually`] with a time of the test's choice.
pub(crate) fn within(patience: Duration, what: &str, mut probe: impl FnMut() -> bool) {
    let (until, mut look) = (now() + patience, FIRST);
    while !probe() {
        assert!(now() < until, "not within {patience:?}: {what}");
        pass(look);
        look = (look * 2).min(LONGEST);
    }
}

/// Lines of a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    pub(crate) fn all(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.0.lock()).lines().map(str::to_owned).collect()
    }

    /// Waits until `find` sees what it wants in the lines so far.
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

/// Logs there what a daemon logs by default.
pub(super) fn subscriber(lines: &Lines) -> impl Subscriber + Send + Sync + 'static {
    tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::INFO).with_writer(lines.clone()).finish()
}

/// The output of an ended command, for a failure's message.
pub(crate) fn said(output: &Output) -> String {
    format!(
        "{:?}\nstdout: {}\nstderr: {}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
