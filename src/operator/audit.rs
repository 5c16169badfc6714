//! Reads and verifies the audit log of a state directory from its files, with or without a running
//! daemon.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::OperatorRefusal;
use crate::config::{self, ClusterSettings};
use crate::policy::records::chain::{AuditLine, BadRecord, LogSettings, RecordDefect};
use crate::policy::{Digest, RecordRemoval};
use crate::store::audit::past::{FoundLine, LogReading, ReadingStart};
use crate::store::audit::verify::{self, KnownRecord};
use crate::store::audit::{LogFolder, read_heads_in};
use crate::store::db::{Db, ReplicaLogs};

pub(crate) use crate::store::audit::past::ReadingTally;
pub(crate) use crate::store::audit::tail::LogTail;
pub(crate) use crate::store::audit::verify::ChainReport;

/// The folder of an audit log, and the state directory whose store knows its last records.
#[derive(Clone, Debug)]
pub(crate) struct AuditLog {
    folder: LogFolder,
    /// The state directory; `None` for a copy of the log.
    state: Option<PathBuf>,
    /// The cluster whose store is used in place of the directory's database.
    cluster: Option<ClusterSettings>,
}

/// Records that a log must contain, known from the store or from the command line.
pub(crate) struct KnownRecords {
    anchors: Vec<KnownRecord>,
    /// The form of this installation's records, if the store knows it.
    form: Option<LogSettings>,
}

/// Records of the replicas of a cluster that its store knows.
pub(crate) struct ClusterRecords(ReplicaLogs);

/// The verdict on one chain, as `headend audit verify` shows it.
#[derive(Debug, Serialize)]
pub(crate) struct ChainView<'r> {
    /// The folder of the log, if it was named as a copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<&'r Path>,
    /// The replica with whose records in the store the chain was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    replica: Option<&'r str>,
    chain: &'r str,
    ok: bool,
    files: usize,
    #[serde(flatten)]
    verdict: ChainVerdict<'r>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ChainVerdict<'r> {
    Sound { seq: u64, hash: Digest, torn: bool, removed: u64, removals: &'r [RecordRemoval] },
    Bad { file: PathBuf, line: u64, seq: u64, what: &'static str, text: String },
}

/// Totals of the records of a period that were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeriodSummary {
    pub(crate) records: u64,
    /// Dates of the oldest (`from`) and the latest (`to`) record.
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    pub(crate) tally: ReadingTally,
}

impl AuditLog {
    /// Names the log of a state directory. Nothing is opened, and the directory may be missing.
    pub(crate) fn new(state: PathBuf, settings: &config::AuditSettings) -> Self {
        Self { folder: LogFolder::at(state.join(&settings.path)), state: Some(state), cluster: None }
    }

    /// Uses the store of a cluster, if there is one, in place of the directory's database.
    pub(crate) fn in_cluster(self, cluster: Option<ClusterSettings>) -> Self {
        Self { cluster, ..self }
    }

    /// Names a copy of a log, which has no store beside it.
    pub(crate) fn of_copy(folder: PathBuf) -> Self {
        Self { folder: LogFolder::at(folder), state: None, cluster: None }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the records that the log must contain: those the store knows, and those of
    /// `written`, each as `CHAIN:SEQ:HASH`. Call it before [`Self::verify`]: a record that is added
    /// in between would be reported as missing otherwise.
    ///
    /// # Errors
    /// If an entry of `written` is malformed, or the store cannot be read.
    pub(crate) fn known_records(&self, written: &[String]) -> Result<KnownRecords, OperatorRefusal> {
        let anchors: Result<Vec<KnownRecord>, String> = written.iter().map(|text| text.parse()).collect();
        let mut anchors = anchors.map_err(|why| OperatorRefusal::Params(format!("--head: {why}")))?;
        let Some(state) = &self.state else { return Ok(KnownRecords { anchors, form: None }) };
        let (kept, form) =
            read_heads_in(state, self.cluster.as_ref()).map_err(|error| OperatorRefusal::of_ended(&error))?;
        anchors.extend(kept.into_iter().map(KnownRecord::from));
        Ok(KnownRecords { anchors, form })
    }

    /// Verifies every chain. With `archived`, the oldest files of a chain may be absent.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn verify(&self, known: &KnownRecords, archived: bool) -> io::Result<Vec<ChainReport>> {
        verify::verify(&self.folder, &known.anchors, known.form.as_ref(), archived)
    }

    /// Returns the last `count` lines of each chain for which `wanted` is true, and a reader that
    /// continues after them.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn tail(&self, count: usize, wanted: &dyn Fn(&str) -> bool) -> io::Result<(LogTail, Vec<String>)> {
        LogTail::begin(self.folder.clone(), count, wanted)
    }

    /// Passes the records from the date `since` on to `take`, latest first, and stops at the first
    /// record before the date `end`. Damaged lines are counted.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(crate) fn read(
        &self,
        since: &str,
        end: &str,
        take: &mut dyn FnMut(&AuditLine<'_>),
    ) -> io::Result<PeriodSummary> {
        let mut past = LogReading::begin(self.folder.clone(), &ReadingStart::Latest)?;
        let mut read = PeriodSummary::default();
        while let Some(found) = past.next() {
            let FoundLine::Record { line, .. } = found else { continue };
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
    /// Converts a report about the log in `folder`.
    pub(crate) fn new(report: &'r ChainReport, folder: &Path) -> Self {
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
        Self {
            dir: None,
            replica: None,
            chain: &report.chain,
            ok: report.verdict.is_ok(),
            files: report.segments,
            verdict,
        }
    }

    /// Names the folder as that of a copy, and the replica whose copy it is.
    pub(crate) fn of_copy(self, folder: &'r Path, replica: Option<&'r str>) -> Self {
        Self { dir: Some(folder), replica, ..self }
    }
}

impl ClusterRecords {
    /// Reads the records from the store, and waits for no store that is away.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn read(cluster: &ClusterSettings) -> Result<Self, OperatorRefusal> {
        Db::logs_of_replicas(cluster).map(Self).map_err(|error| OperatorRefusal::of_ended(&error))
    }

    /// Returns the names of the replicas that the store knows records of.
    pub(crate) fn replicas(&self) -> impl Iterator<Item = &str> {
        self.0.heads.keys().map(String::as_str)
    }

    /// Returns the records that the log of a replica must contain.
    pub(crate) fn of_replica(&self, name: &str) -> KnownRecords {
        let heads = self.0.heads.get(name).into_iter().flatten().cloned();
        KnownRecords {
            anchors: heads.map(KnownRecord::from).collect(),
            form: Some(LogSettings::new(&self.0.key, false)),
        }
    }
}

impl KnownRecords {
    /// Returns no known records, for a log that is checked by itself.
    pub(crate) const fn none() -> Self {
        Self { anchors: Vec::new(), form: None }
    }

    /// Forgets the records of chains that end before the last one of them, and returns whether
    /// there are such chains. Chains without a file are not among them.
    pub(crate) fn forget_later_records(&mut self, reports: &[ChainReport]) -> bool {
        let ends_before = |report: &&ChainReport| {
            let is_cut = |bad: &BadRecord| matches!(bad.what, RecordDefect::CutOff { .. } | RecordDefect::Torn);
            report.segments > 0 && report.verdict.as_ref().is_err_and(is_cut)
        };
        let older: Vec<&str> = reports.iter().filter(ends_before).map(|report| &*report.chain).collect();
        self.anchors.retain(|anchor| !older.contains(&anchor.chain()));
        !older.is_empty()
    }
}
