//! Verification: a state machine that is fed a log line by line.

use super::{Head, Parts};

/// Defects of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, thiserror::Error)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub enum What {
    /// The line has not the form of a record.
    #[error("not a record")]
    NotARecord,
    /// The line, or one before it, is not the one that was written.
    #[error("wrong hash: it was changed")]
    Changed,
    /// Records that stood before this one are gone: from there to the one before it.
    #[error("sequence gap: the records from {from} on were removed")]
    Removed { from: u64 },
    /// The record stands too early: the one that belongs here comes later.
    #[error("out of order: records were moved")]
    Reordered,
    /// A record of this number stood before.
    #[error("duplicate: the record occurs twice")]
    Duplicate,
    /// The last line ends in the middle, in a record that was whole.
    #[error("torn last line: the log was cut")]
    Torn,
    /// The log ends here, but a record of that number is known.
    #[error("missing: the log was cut or rolled back, it had records up to {until}")]
    CutOff { until: u64 },
}

/// The first record that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{segment}: line {line}: record {seq}: {what}")]
pub struct Bad {
    pub segment: String,
    /// From one.
    pub line: u64,
    /// The record's own number, or the expected one if it has none.
    pub seq: u64,
    pub what: What,
}

/// A log in which nothing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sound {
    pub head: Head,
    /// Whether half a line follows, as after a crash in the middle of a write.
    pub torn: bool,
    /// The record before the first one, where that is not the first of the chain.
    pub after: Option<Head>,
}

/// Verifies one chain.
#[derive(Debug)]
pub struct Reader {
    /// The last good record.
    head: Head,
    /// Records that are known from elsewhere.
    known: Vec<Head>,
    /// Whether the chain may begin with any record.
    anywhere: bool,
    /// Removed records that the chain may begin after.
    removed: Vec<Head>,
    /// The one of them that it begins after.
    after: Option<Head>,
    segment: String,
    line: u64,
    torn: bool,
    broken: Option<Broken>,
}

/// The first finding; while it may still be a moved record, also the record to look for.
#[derive(Debug)]
struct Broken {
    bad: Bad,
    missing: Option<u64>,
}

impl Reader {
    /// `known` are records of this chain that must be in it.
    pub fn new(chain: &str, known: Vec<Head>) -> Self {
        Self {
            head: Head::none(chain),
            known,
            anywhere: false,
            removed: Vec::new(),
            after: None,
            segment: String::new(),
            line: 0,
            torn: false,
            broken: None,
        }
    }

    /// Takes the first record as it is: what stood before it is archived elsewhere.
    pub fn beginning_anywhere(mut self) -> Self {
        self.anywhere = true;
        self
    }

    /// Allows the chain to begin after one of these records, since it says that those up to there were removed, or before it: a
    /// removal that was interrupted leaves its last records, and they must lead to the one that it names.
    pub fn beginning_after(mut self, removed: Vec<Head>) -> Self {
        self.removed = removed;
        self
    }

    /// The last good record.
    pub const fn head(&self) -> Head {
        self.head
    }

    /// Whether something was wrong so far.
    pub const fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// The next file begins.
    pub fn segment(&mut self, name: &str) {
        self.refuse_torn();
        name.clone_into(&mut self.segment);
        self.line = 0;
    }

    /// A whole line, without its newline.
    pub fn line(&mut self, text: &[u8]) {
        self.refuse_torn();
        self.line += 1;
        if let Err((seq, what)) = self.judge(text) {
            let missing = if let What::Removed { from } = what { Some(from) } else { None };
            self.fail(seq, what, missing);
        }
    }

    /// Bytes of a file after its last newline.
    pub fn rest(&mut self, text: &[u8]) {
        self.refuse_torn();
        self.torn = !text.is_empty();
    }

    /// The verdict, with the first bad record.
    ///
    /// # Errors
    /// When something is wrong.
    pub fn end(mut self) -> Result<Sound, Bad> {
        let last = self.known.iter().map(|known| known.seq).max().unwrap_or(0);
        if self.broken.is_none() && self.head.seq < last {
            self.line += 1;
            let what = if self.torn { What::Torn } else { What::CutOff { until: last } };
            self.fail(self.head.seq + 1, what, None);
        }
        match self.broken {
            Some(broken) => Err(broken.bad),
            None => Ok(Sound { head: self.head, torn: self.torn, after: self.after }),
        }
    }

    /// Half a line is possible at the very end only.
    fn refuse_torn(&mut self) {
        if std::mem::take(&mut self.torn) {
            self.line += 1;
            self.fail(self.head.seq + 1, What::NotARecord, None);
        }
    }

    fn fail(&mut self, seq: u64, what: What, missing: Option<u64>) {
        if self.broken.is_none() {
            let bad = Bad { segment: self.segment.clone(), line: self.line, seq, what };
            self.broken = Some(Broken { bad, missing });
        }
    }

    fn judge(&mut self, text: &[u8]) -> Result<(), (u64, What)> {
        let parts = Parts::of(text);
        if let Some(broken) = &mut self.broken {
            // Only what looks removed can still be found.
            if parts.is_some_and(|parts| Some(parts.seq) == broken.missing && parts.computed() == parts.hash) {
                broken.bad.what = What::Reordered;
                broken.missing = None;
            }
            return Ok(());
        }
        let due = self.head.seq + 1;
        let parts = parts.ok_or((due, What::NotARecord))?;
        let seq = parts.seq;
        if parts.computed() != parts.hash {
            return Err((seq, What::Changed));
        }
        let is_first = self.head.seq == 0 && self.after.is_none();
        let before = Head { seq: seq.saturating_sub(1), hash: parts.prev };
        if std::mem::take(&mut self.anywhere) {
            self.known.retain(|known| known.seq >= seq);
        } else if is_first
            && seq > due
            && let Some(end) =
                self.removed.iter().copied().filter(|end| end.seq >= before.seq).min_by_key(|end| end.seq)
        {
            if end.seq == before.seq && end != before {
                return Err((seq, What::Removed { from: due }));
            }
            if self.known.iter().any(|known| known.seq == before.seq && *known != before) {
                return Err((seq, What::Changed));
            }
            // Earlier ones were removed, so nothing is left to compare them with.
            self.known.retain(|known| known.seq > before.seq);
            self.known.extend((end != before).then_some(end));
            self.after = Some(before);
        } else if seq > due {
            return Err((seq, What::Removed { from: due }));
        } else if seq < due {
            return Err((seq, What::Duplicate));
        } else if parts.prev != self.head.hash {
            return Err((seq, What::Changed));
        }
        if self.known.iter().any(|known| known.seq == seq && known.hash != parts.hash) {
            return Err((seq, What::Changed));
        }
        self.head = Head { seq, hash: parts.hash };
        Ok(())
    }
}
