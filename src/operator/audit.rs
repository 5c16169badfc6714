//! The audit log of a state directory, which is read from its files beside a daemon and without
//! one.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Refusal;
use crate::config;
use crate::policy::chain::{Form, Line};
use crate::policy::{Digest, Removal};
use crate::store::audit::past::{Begin, Found, Past};
use crate::store::audit::verify::{self, Anchor};
use crate::store::audit::{Folder, kept_in};

pub(crate) use crate::store::audit::past::Tally;
pub(crate) use crate::store::audit::tail::Tail;
pub(crate) use crate::store::audit::verify::Report;

/// The files of an audit log, and the state directory whose store knows the last records.
#[derive(Clone, Debug)]
pub(crate) struct AuditLog {
    folder: Folder,
    /// `None` for a copy of the log.
    state: Option<PathBuf>,
}

/// Records that must be in a log.
pub(crate) struct KnownRecords {
    anchors: Vec<Anchor>,
    /// The form of the installation's records.
    form: Option<Form>,
}

/// The verdict on one chain.
#[derive(Debug, Serialize)]
pub(crate) struct ChainView<'r> {
    chain: &'r str,
    ok: bool,
    files: usize,
    #[serde(flatten)]
    verdict: ChainVerdict<'r>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ChainVerdict<'r> {
    Sound { seq: u64, hash: Digest, torn: bool, removed: u64, removals: &'r [Removal] },
    Bad { file: PathBuf, line: u64, seq: u64, what: &'static str, text: String },
}

/// The records of a period that were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeriodRead {
    pub(crate) records: u64,
    /// The dates of the oldest and the latest.
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    pub(crate) tally: Tally,
}

impl AuditLog {
    /// The log of a state directory, which need not be there yet.
    pub(crate) fn new(state: PathBuf, settings: &config::Audit) -> Self {
        Self { folder: Folder::at(state.join(&settings.path)), state: Some(state) }
    }

    /// A copy of a log, without a store.
    pub(crate) fn of_copy(folder: PathBuf) -> Self {
        Self { folder: Folder::at(folder), state: None }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the records that the store knows, and those written `CHAIN:SEQ:HASH`. They are to be
    /// read before the log is verified.
    ///
    /// # Errors
    /// For a record that is written otherwise, or when the store cannot be read.
    pub(crate) fn known_records(&self, written: &[String]) -> Result<KnownRecords, Refusal> {
        let anchors: Result<Vec<Anchor>, String> = written.iter().map(|text| text.parse()).collect();
        let mut anchors = anchors.map_err(|why| Refusal::Params(format!("--head: {why}")))?;
        let Some(state) = &self.state else { return Ok(KnownRecords { anchors, form: None }) };
        let (kept, form) = kept_in(state).map_err(Refusal::unusable)?;
        anchors.extend(kept.into_iter().map(Anchor::from));
        Ok(KnownRecords { anchors, form })
    }

    /// Verifies every chain. With `archived`, the oldest files of a chain may be elsewhere.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn verify(&self, known: &KnownRecords, archived: bool) -> io::Result<Vec<Report>> {
        verify::verify(&self.folder, &known.anchors, known.form.as_ref(), archived)
    }

    /// Returns the last `count` lines of each chain that `wanted` wants; the reader goes on behind
    /// them.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn tail(&self, count: usize, wanted: &dyn Fn(&str) -> bool) -> io::Result<(Tail, Vec<String>)> {
        Tail::begin(self.folder.clone(), count, wanted)
    }

    /// Reads the records since the date `since`, the latest first, and ends at the first one before
    /// the date `end`. Damaged lines are counted.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(crate) fn read(&self, since: &str, end: &str, take: &mut dyn FnMut(&Line<'_>)) -> io::Result<PeriodRead> {
        let mut past = Past::begin(self.folder.clone(), &Begin::Latest)?;
        let mut read = PeriodRead::default();
        while let Some(found) = past.next() {
            let Found::Record { line, .. } = found else { continue };
            if *line.ts < *end {
                break;
            }
            if *line.ts < *since {
                continue;
            }
            read.records += 1;
            if read.to.is_none() {
                read.to = Some(line.ts.clone().into_owned());
            }
            line.ts.as_ref().clone_into(read.from.get_or_insert_default());
            take(&line);
        }
        read.tally = past.tally();
        Ok(read)
    }
}

impl<'r> ChainView<'r> {
    /// Returns the verdict of a report about the log in `folder`.
    pub(crate) fn new(report: &'r Report, folder: &Path) -> Self {
        let verdict = match &report.verdict {
            Ok(sound) => ChainVerdict::Sound {
                seq: sound.head.seq,
                hash: sound.head.hash,
                torn: sound.torn,
                removed: sound.after.map_or(0, |after| after.seq),
                removals: &report.removals,
            },
            Err(bad) => ChainVerdict::Bad {
                file: folder.join(&bad.segment),
                line: bad.line,
                seq: bad.seq,
                what: bad.what.into_str(),
                text: bad.what.to_string(),
            },
        };
        Self { chain: &report.chain, ok: report.verdict.is_ok(), files: report.segments, verdict }
    }
}
