//! The end of the process: it waits until each database thread has closed its file, also if another
//! thread drops the last handle.
//!
//! Without the wait no row is lost, but the last rows may be in the journal alone, and a copy of
//! the database file misses them.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The threads of the databases of this process.
static THREADS: RunningThreads = RunningThreads::new();

/// Waits until all databases of this process are closed, no longer than `most`. For the end of the
/// process, once all their clones are dropped. Blocks.
pub fn wait_until_closed(most: Duration) {
    THREADS.wait(most);
}

/// Counts one more thread of a database until the returned value is dropped.
pub(in crate::store) fn begin() -> ThreadCount<'static> {
    THREADS.begin()
}

/// Threads of databases that have not ended.
#[derive(Debug)]
struct RunningThreads {
    number: Mutex<usize>,
    fewer: Condvar,
}

/// Counts one thread until it is dropped.
pub(in crate::store) struct ThreadCount<'r>(&'r RunningThreads);

impl RunningThreads {
    const fn new() -> Self {
        Self { number: Mutex::new(0), fewer: Condvar::new() }
    }

    /// Counts one more thread.
    fn begin(&self) -> ThreadCount<'_> {
        *self.number.lock() += 1;
        ThreadCount(self)
    }

    /// Waits until no thread is left, no longer than `most`; returns whether none is.
    fn wait(&self, most: Duration) -> bool {
        let mut number = self.number.lock();
        !self.fewer.wait_while_for(&mut number, |number| *number > 0, most).timed_out()
    }
}

impl Drop for ThreadCount<'_> {
    fn drop(&mut self) {
        *self.0.number.lock() -= 1;
        self.0.fewer.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_waits_for_each_thread_and_for_none_without_end() {
        let threads = RunningThreads::new();
        assert!(threads.wait(Duration::ZERO), "there is none");
        let (one, other) = (threads.begin(), threads.begin());
        drop(one);
        assert!(!threads.wait(Duration::from_millis(10)), "another is left");
        std::thread::scope(|scope| {
            scope.spawn(move || drop(other));
            assert!(threads.wait(Duration::from_secs(60)));
        });
    }
}
