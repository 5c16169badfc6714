//! Verification of an audit log: a state machine that takes the log line by line and names the
//! first bad record.

use super::{ChainHead, LineParts};

/// The defect of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, thiserror::Error)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub enum RecordDefect {
    /// The line does not have the form of a record.
    #[error("not a record")]
    NotARecord,
    /// The line, or one before it, is not the line that was written.
    #[error("wrong hash: it was changed")]
    Changed,
    /// The records from `from` up to the one before this one are gone.
    #[error("sequence gap: the records from {from} on were removed")]
    Removed { from: u64 },
    /// The record is too early: the one that belongs here comes later.
    #[error("out of order: records were moved")]
    Reordered,
    /// A record with this number came before.
    #[error("duplicate: the record occurs twice")]
    Duplicate,
    /// The last line ends in the middle, in a record that is known to have been whole.
    #[error("torn last line: the log was cut")]
    Torn,
    /// The log ends here, but a record with the number `until` is known.
    #[error("missing: the log was cut or rolled back, it had records up to {until}")]
    CutOff { until: u64 },
}

/// The first bad record of a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{segment}: line {line}: record {seq}: {what}")]
pub struct BadRecord {
    pub segment: String,
    /// Number of the line in its segment, from one.
    pub line: u64,
    /// The record's own number, or the expected number if it has none.
    pub seq: u64,
    pub what: RecordDefect,
}

/// The verdict on a log without defects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoundLog {
    pub head: ChainHead,
    /// True if half a line follows, as after a crash in the middle of a write.
    pub torn: bool,
    /// The record before the first one of the log; `None` if the log begins with the first record
    /// of the chain.
    pub after: Option<ChainHead>,
}

/// The verifier of one chain.
#[derive(Debug)]
pub struct ChainVerifier {
    /// The last good record.
    head: ChainHead,
    /// Records that are known from elsewhere and must be in the chain.
    known: Vec<ChainHead>,
    /// Whether the chain may begin with any record.
    anywhere: bool,
    /// Ends of removals after which the chain may begin.
    removed: Vec<ChainHead>,
    /// The record after which the chain begins, if earlier records were removed.
    after: Option<ChainHead>,
    segment: String,
    line: u64,
    torn: bool,
    broken: Option<FirstDefect>,
}

/// The first defect. While it may still prove to be a moved record, also the number of the record
/// to look for.
#[derive(Debug)]
struct FirstDefect {
    bad: BadRecord,
    missing: Option<u64>,
}

impl ChainVerifier {
    /// `known` are records of this chain that must be in it.
    pub fn new(chain: &str, known: Vec<ChainHead>) -> Self {
        Self {
            head: ChainHead::none(chain),
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

    /// Accepts any first record, because the records before it are archived elsewhere.
    pub fn beginning_anywhere(mut self) -> Self {
        self.anywhere = true;
        self
    }

    /// Accepts a chain that begins after one of these records, because a removal says that the
    /// records up to it are gone. The chain may also begin before it: an interrupted removal leaves
    /// its last records, and they must lead to the record that it names.
    pub fn beginning_after(mut self, removed: Vec<ChainHead>) -> Self {
        self.removed = removed;
        self
    }

    /// Returns the last good record.
    pub const fn head(&self) -> ChainHead {
        self.head
    }

    /// Whether a defect was found so far.
    pub const fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Begins the next file.
    pub fn segment(&mut self, name: &str) {
        self.refuse_torn();
        name.clone_into(&mut self.segment);
        self.line = 0;
    }

    /// Checks a whole line, given without its newline.
    pub fn line(&mut self, text: &[u8]) {
        self.refuse_torn();
        self.line += 1;
        if let Err((seq, what)) = self.judge(text) {
            let missing = if let RecordDefect::Removed { from } = what { Some(from) } else { None };
            self.fail(seq, what, missing);
        }
    }

    /// Takes the bytes of a file after its last newline.
    pub fn rest(&mut self, text: &[u8]) {
        self.refuse_torn();
        self.torn = !text.is_empty();
    }

    /// Ends the verification and returns the verdict.
    ///
    /// # Errors
    /// The first bad record.
    pub fn end(mut self) -> Result<SoundLog, BadRecord> {
        let last = self.known.iter().map(|known| known.seq).max().unwrap_or(0);
        if self.broken.is_none() && self.head.seq < last {
            self.line += 1;
            let what = if self.torn { RecordDefect::Torn } else { RecordDefect::CutOff { until: last } };
            self.fail(self.head.seq + 1, what, None);
        }
        match self.broken {
            Some(broken) => Err(broken.bad),
            None => Ok(SoundLog { head: self.head, torn: self.torn, after: self.after }),
        }
    }

    /// Reports half a line that was not at the very end of the log.
    fn refuse_torn(&mut self) {
        if std::mem::take(&mut self.torn) {
            self.line += 1;
            self.fail(self.head.seq + 1, RecordDefect::NotARecord, None);
        }
    }

    /// Keeps the first defect; later ones are ignored.
    fn fail(&mut self, seq: u64, what: RecordDefect, missing: Option<u64>) {
        if self.broken.is_none() {
            let bad = BadRecord { segment: self.segment.clone(), line: self.line, seq, what };
            self.broken = Some(FirstDefect { bad, missing });
        }
    }

    /// Checks that a line is the next record of the chain, and moves the head.
    fn judge(&mut self, text: &[u8]) -> Result<(), (u64, RecordDefect)> {
        let parts = LineParts::of(text);
        if let Some(broken) = &mut self.broken {
            // After the first defect only a record that looks removed can still be found.
            if parts.is_some_and(|parts| Some(parts.seq) == broken.missing && parts.computed() == parts.hash) {
                broken.bad.what = RecordDefect::Reordered;
                broken.missing = None;
            }
            return Ok(());
        }
        let due = self.head.seq + 1;
        let parts = parts.ok_or((due, RecordDefect::NotARecord))?;
        let seq = parts.seq;
        if parts.computed() != parts.hash {
            return Err((seq, RecordDefect::Changed));
        }
        let is_first = self.head.seq == 0 && self.after.is_none();
        let before = ChainHead { seq: seq.saturating_sub(1), hash: parts.prev };
        if std::mem::take(&mut self.anywhere) {
            self.known.retain(|known| known.seq >= seq);
        } else if is_first
            && seq > due
            && let Some(end) =
                self.removed.iter().copied().filter(|end| end.seq >= before.seq).min_by_key(|end| end.seq)
        {
            if end.seq == before.seq && end != before {
                return Err((seq, RecordDefect::Removed { from: due }));
            }
            if self.known.iter().any(|known| known.seq == before.seq && *known != before) {
                return Err((seq, RecordDefect::Changed));
            }
            // The records before were removed, so known ones among them cannot be compared.
            self.known.retain(|known| known.seq > before.seq);
            self.known.extend((end != before).then_some(end));
            self.after = Some(before);
        } else if seq > due {
            return Err((seq, RecordDefect::Removed { from: due }));
        } else if seq < due {
            return Err((seq, RecordDefect::Duplicate));
        } else if parts.prev != self.head.hash {
            return Err((seq, RecordDefect::Changed));
        }
        if self.known.iter().any(|known| known.seq == seq && known.hash != parts.hash) {
            return Err((seq, RecordDefect::Changed));
        }
        self.head = ChainHead { seq, hash: parts.hash };
        Ok(())
    }
}
