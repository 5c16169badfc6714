//! The log of one upstream for its operator: what its programs write to stderr, and the changes of its state. Memory only, the newest
//! lines within bounds; secrets are gone from the lines before they come here.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::base::clock;

/// Lines that are kept, and their bytes together.
const LINES: usize = 1000;
const BYTES: usize = 128 << 10;

/// The log of one handle.
#[derive(Debug)]
pub struct Logbook {
    /// Tells it from the log of a handle that it replaced.
    pub id: u64,
    kept: Mutex<Kept>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<LogLine>,
    bytes: usize,
    /// Number of the line that was added last.
    last: u64,
}

/// Where a line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub enum Origin {
    Stderr,
    Headend,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// From 1 on.
    pub number: u64,
    /// Milliseconds since 1970.
    pub at: u64,
    pub origin: Origin,
    pub text: String,
}

impl Default for Logbook {
    fn default() -> Self {
        // 53 bits, which every reader of JSON keeps.
        Self { id: u64::from_be_bytes(clock::random()) >> 11, kept: Mutex::default(), more: Notify::new() }
    }
}

impl Logbook {
    pub fn add(&self, origin: Origin, text: &str) {
        let mut kept = self.kept.lock();
        kept.last += 1;
        kept.bytes += text.len();
        let line = LogLine { number: kept.last, at: clock::unix_millis(), origin, text: text.to_owned() };
        kept.lines.push_back(line);
        while kept.lines.len() > LINES || kept.bytes > BYTES && kept.lines.len() > 1 {
            let gone = kept.lines.pop_front().map_or(0, |line| line.text.len());
            kept.bytes = kept.bytes.saturating_sub(gone);
        }
        drop(kept);
        self.more.notify_waiters();
    }

    /// The lines after that number, oldest first; of more than `most` the newest.
    pub fn after(&self, number: u64, most: usize) -> Vec<LogLine> {
        let kept = self.kept.lock();
        let newer = kept.lines.iter().rev().take_while(|line| line.number > number).take(most);
        let mut lines: Vec<LogLine> = newer.cloned().collect();
        lines.reverse();
        lines
    }

    /// Waits for a line after that number. Cancel-safe.
    pub async fn more_than(&self, number: u64) {
        loop {
            let more = self.more.notified();
            tokio::pin!(more);
            // From here on no line is missed.
            more.as_mut().enable();
            if self.kept.lock().last > number {
                return;
            }
            more.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_are_kept_within_the_bounds() {
        let book = Logbook::default();
        (0..2000).for_each(|number| book.add(Origin::Stderr, &format!("line {number}")));
        let kept = book.after(0, usize::MAX);
        assert_eq!((kept.len(), kept[0].number, kept[0].text.as_str()), (LINES, 1001, "line 1000"));
        assert_eq!(book.after(1998, 10).iter().map(|line| line.number).collect::<Vec<_>>(), [1999, 2000]);
        assert_eq!(book.after(0, 2).iter().map(|line| line.number).collect::<Vec<_>>(), [1999, 2000]);
        (0..100).for_each(|_| book.add(Origin::Headend, &"x".repeat(4096)));
        let bytes: usize = book.after(0, usize::MAX).iter().map(|line| line.text.len()).sum();
        assert!(bytes <= BYTES, "{bytes}");
        book.add(Origin::Headend, &"y".repeat(2 * BYTES));
        assert_eq!(book.after(0, usize::MAX).len(), 1, "a line that is longer than all room is the only one");
    }

    #[tokio::test]
    async fn a_reader_waits_for_the_next_line() {
        let book = Logbook::default();
        book.add(Origin::Headend, "starting");
        book.more_than(0).await;
        let write = async {
            tokio::task::yield_now().await;
            book.add(Origin::Headend, "ready");
        };
        tokio::join!(book.more_than(1), write);
        assert_eq!(book.after(1, 10)[0].text, "ready");
    }
}
