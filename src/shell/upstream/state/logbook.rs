//! The log of one upstream for its operator: lines that its programs write to stderr, and changes
//! of its state. It is kept in memory only, bounded in lines and bytes. Secrets were removed from
//! the lines before they are added.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::base::clock;

/// Most lines that are kept, and most bytes of them together.
const LINES: usize = 1000;
const BYTES: usize = 128 << 10;

/// The log of one handle.
#[derive(Debug)]
pub struct UpstreamLog {
    /// A random number that distinguishes this log from that of a handle that it replaced.
    pub id: u64,
    kept: Mutex<LogLines>,
    more: Notify,
}

/// The lines of a log.
#[derive(Debug, Default)]
struct LogLines {
    lines: VecDeque<LogLine>,
    bytes: usize,
    /// Number of the line that was added last.
    last: u64,
}

/// The source of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub enum LineOrigin {
    Stderr,
    Headend,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Number of the line, from 1 on.
    pub number: u64,
    /// Time in milliseconds since 1970.
    pub at: u64,
    pub origin: LineOrigin,
    pub text: String,
}

impl Default for UpstreamLog {
    fn default() -> Self {
        // 53 bits, which every JSON parser preserves.
        Self { id: u64::from_be_bytes(clock::random()) >> 11, kept: Mutex::default(), more: Notify::new() }
    }
}

impl UpstreamLog {
    /// Adds a line and drops the oldest ones beyond the limits.
    pub fn add(&self, origin: LineOrigin, text: &str) {
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

    /// Returns the lines after that number, oldest first; if there are more than `most`, the newest
    /// ones.
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
        let book = UpstreamLog::default();
        (0..2000).for_each(|number| book.add(LineOrigin::Stderr, &format!("line {number}")));
        let kept = book.after(0, usize::MAX);
        assert_eq!((kept.len(), kept[0].number, kept[0].text.as_str()), (LINES, 1001, "line 1000"));
        assert_eq!(book.after(1998, 10).iter().map(|line| line.number).collect::<Vec<_>>(), [1999, 2000]);
        assert_eq!(book.after(0, 2).iter().map(|line| line.number).collect::<Vec<_>>(), [1999, 2000]);
        (0..100).for_each(|_| book.add(LineOrigin::Headend, &"x".repeat(4096)));
        let bytes: usize = book.after(0, usize::MAX).iter().map(|line| line.text.len()).sum();
        assert!(bytes <= BYTES, "{bytes}");
        book.add(LineOrigin::Headend, &"y".repeat(2 * BYTES));
        assert_eq!(book.after(0, usize::MAX).len(), 1, "a line that is longer than all room is the only one");
    }

    #[tokio::test]
    async fn a_reader_waits_for_the_next_line() {
        let book = UpstreamLog::default();
        book.add(LineOrigin::Headend, "starting");
        book.more_than(0).await;
        let write = async {
            tokio::task::yield_now().await;
            book.add(LineOrigin::Headend, "ready");
        };
        tokio::join!(book.more_than(1), write);
        assert_eq!(book.after(1, 10)[0].text, "ready");
    }
}
