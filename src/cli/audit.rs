//! The commands `headend audit verify` and `headend audit tail`. Both read the log's files and need
//! no daemon.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Map, Value};
use unicode_width::UnicodeWidthStr as _;

use super::exit::{CONFIG, NO, OK, SOFTWARE, USAGE};
use crate::cli::reach::source;
use crate::cli::service::ends::end_when_unread;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, complain, follow, print, print_json};
use crate::cli::words::screen::Screen;
use crate::config::{self, AuditSettings};
use crate::daemon::local_time::local_of;
use crate::operator::audit::{AuditLog, ChainReport, ChainView, ClusterRecords, KnownRecords};
use crate::policy::RecordRemoval;
use crate::policy::records::chain::SoundLog;
use crate::wire::foreign;

/// Pause of `tail -f` between two looks for new records.
const LOOK: Duration = Duration::from_millis(100);
/// Digits that remain of a digest where the screen is too narrow for all.
const DIGITS: usize = 8;
/// Columns between a record's time and its event, which contain the record's number.
const TO_EVENT: usize = 8;
/// Most removals that `verify` names for each chain.
const SHOWN: usize = 3;

#[derive(Clone, Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// Check that no record was changed, removed, added or moved; exit 1 names the first bad
    /// record.
    ///
    /// The log may grow meanwhile. Apart from the chain itself, the last record that the store
    /// knows of must be in it. In a cluster, name the directories of all replicas or copies of
    /// them, each by the name of its replica: `left=/srv/logs/left right=/srv/logs/right`.
    Verify(VerifyArgs),
    /// Print the last records.
    Tail(TailArgs),
}

#[derive(Clone, Debug, Args)]
pub(super) struct VerifyArgs {
    /// State or audit directory of a replica, or a copy of it. NAME is the replica's; without it,
    /// the name of the directory is.
    #[arg(value_name = "[NAME=]DIR", conflicts_with_all = ["heads", "dir"])]
    directories: Vec<String>,
    /// Accept copies that were made before the last record that the store knows of.
    #[arg(long, requires = "directories")]
    older: bool,
    /// A record that must be in the log, from a checkpoint line in the journal. May be repeated.
    #[arg(long = "head", value_name = "CHAIN:SEQ:HASH")]
    heads: Vec<String>,
    /// Accept that the oldest files of a chain are archived: begin with the first one present.
    #[arg(long)]
    archived: bool,
    /// Check a copy of the log in this folder, without the store.
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    /// Print JSON, one object for each chain.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
pub(super) struct TailArgs {
    /// Number of records.
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 20)]
    lines: usize,
    /// Follow the log: print new records as they are written.
    #[arg(short, long)]
    follow: bool,
    /// Print only records about this caller.
    #[arg(long, value_name = "NAME")]
    caller: Option<String>,
    /// Print the records unchanged, as JSON lines.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(common: &CommonOptions, command: AuditCommand) -> Result<u8, CommandFailure> {
    match command {
        AuditCommand::Verify(args) => check(common, &args),
        AuditCommand::Tail(args) => show(common, &args),
    }
}

/// Returns the audit log of the state directory.
///
/// # Errors
/// 78 if the environment names no state directory.
pub(super) fn log(common: &CommonOptions) -> Result<AuditLog, CommandFailure> {
    let state = config::state_dir(&config::environment)
        .ok_or_else(|| CommandFailure::new(CONFIG, "no state directory: set $XDG_STATE_HOME or $HOME"))?;
    let (settings, cluster) = match source::load(common, &[]) {
        Ok(loaded) => (loaded.config.audit, loaded.config.cluster),
        Err(failure) => {
            complain(&format!(
                "the log is read without the configuration, and so without a store of a cluster: {}",
                failure.text
            ));
            (AuditSettings::default(), None)
        }
    };
    Ok(AuditLog::new(state, &settings).in_cluster(cluster))
}

pub(super) fn unreadable(log: &AuditLog, error: &io::Error) -> CommandFailure {
    CommandFailure::new(SOFTWARE, format!("read the audit log in {}: {error}", log.path().display()))
}

/// Verifies the chains of the log and prints a report for each; exit code 1 if one is damaged.
fn check(common: &CommonOptions, args: &VerifyArgs) -> Result<u8, CommandFailure> {
    if !args.directories.is_empty() {
        return check_copies(common, args);
    }
    let log = match &args.dir {
        Some(dir) if dir.is_dir() => AuditLog::of_copy(dir.clone()),
        Some(dir) => return Err(CommandFailure::new(USAGE, format!("--dir: there is no folder {}", dir.display()))),
        None => log(common)?,
    };
    let known = log.known_records(&args.heads).map_err(CommandFailure::from)?;
    let reports = log.verify(&known, args.archived).map_err(|error| unreadable(&log, &error))?;
    if reports.is_empty() && !args.json {
        return print(&format!("no records in {}\n", foreign::line(&log.path().display().to_string())));
    }
    for report in &reports {
        if args.json {
            print_json(&ChainView::new(report, log.path()))?;
        } else {
            print(&Screen::of_stdout().folded(&as_text(report, log.path()), 4))?;
        }
    }
    Ok(if reports.iter().all(|report| report.verdict.is_ok()) { OK } else { NO })
}

/// The log of a replica that is named on the command line.
struct ReplicaCopy {
    folder: PathBuf,
    /// Name of the replica, as given or as the folder has it.
    name: String,
}

impl ReplicaCopy {
    /// Parses `NAME=DIR` or `DIR`; a text before `=` with a slash belongs to the directory.
    fn of_argument(text: &str) -> Result<Self, CommandFailure> {
        let (name, folder) = match text.split_once('=').filter(|(name, _)| !name.contains('/')) {
            Some((name, folder)) => (Some(name), PathBuf::from(folder)),
            None => (None, PathBuf::from(text)),
        };
        if !folder.is_dir() {
            return Err(CommandFailure::new(USAGE, format!("there is no directory {}", folder.display())));
        }
        let own_name = || Some(folder.canonicalize().ok()?.file_name()?.to_string_lossy().into_owned());
        let name = name.map(str::to_owned).or_else(own_name).unwrap_or_default();
        // A state directory has the log in a folder of its own.
        let inner = folder.join("audit");
        Ok(Self { folder: if inner.is_dir() { inner } else { folder }, name })
    }
}

/// Verifies the logs of several replicas, each by itself and, in a cluster whose store answers, by
/// the records that the store knows of. Exit code 1 if one is damaged or has no records.
fn check_copies(common: &CommonOptions, args: &VerifyArgs) -> Result<u8, CommandFailure> {
    let copies: Result<Vec<_>, _> = args.directories.iter().map(|text| ReplicaCopy::of_argument(text)).collect();
    let copies = copies?;
    // The store is read before the logs, which may grow meanwhile.
    let read = source::load(common, &[]).and_then(|loaded| {
        let cluster = loaded.config.cluster;
        cluster.as_ref().map(ClusterRecords::read).transpose().map_err(CommandFailure::from)
    });
    let records = read.unwrap_or_else(|failure| {
        complain(&format!("the directories are checked without the store of a cluster: {}", failure.text));
        None
    });
    if let Some(records) = &records {
        let names: BTreeSet<&str> = records.replicas().collect();
        if let Some(copy) = copies.iter().find(|copy| !names.contains(&*copy.name)) {
            return Err(unknown_replica(copy, &names));
        }
    }
    let mut all_sound = true;
    for copy in &copies {
        all_sound &= check_copy(copy, records.as_ref(), args)?;
    }
    let named = |name: &&str| copies.iter().any(|copy| copy.name == *name);
    let absent: Vec<_> = records.iter().flat_map(ClusterRecords::replicas).filter(|name| !named(name)).collect();
    if !absent.is_empty() {
        complain(&format!("not checked, since no directory is named for it: {}", absent.join(", ")));
    }
    Ok(if all_sound { OK } else { NO })
}

fn unknown_replica(copy: &ReplicaCopy, names: &BTreeSet<&str>) -> CommandFailure {
    let ReplicaCopy { folder, name } = copy;
    let folder = folder.display();
    let names = names.iter().copied().collect::<Vec<_>>().join(", ");
    let text =
        format!("{folder}: the store knows no replica {name:?}; write NAME={folder} with a name of these: {names}");
    CommandFailure::new(USAGE, text)
}

/// Verifies the log of one replica, prints the reports, and returns whether it has records and all
/// are sound.
fn check_copy(copy: &ReplicaCopy, records: Option<&ClusterRecords>, args: &VerifyArgs) -> Result<bool, CommandFailure> {
    let log = AuditLog::of_copy(copy.folder.clone());
    let mut known = records.map_or_else(KnownRecords::none, |records| records.of_replica(&copy.name));
    let verify = |known: &KnownRecords| log.verify(known, args.archived).map_err(|error| unreadable(&log, &error));
    let mut reports = verify(&known)?;
    let is_older = args.older && known.forget_later_records(&reports);
    if is_older {
        reports = verify(&known)?;
    }
    let (replica, screen) = (records.map(|_| &*copy.name), Screen::of_stdout());
    if !args.json {
        let compared = match replica {
            Some(name) if is_older => format!("replica {name}; the store knows later records, which are not in it"),
            Some(name) => format!("replica {name}, compared with the store"),
            None => "not compared with a store".to_owned(),
        };
        let line = format!("{}: {compared}", copy.folder.display());
        print(&screen.folded(&foreign::line(&line), 4))?;
    }
    for report in &reports {
        if args.json {
            print_json(&ChainView::new(report, log.path()).of_copy(log.path(), replica))?;
        } else {
            print(&screen.folded(&format!("  {}", as_text(report, log.path())), 4))?;
        }
    }
    if reports.is_empty() {
        complain(&format!("{}: no records", log.path().display()));
    }
    Ok(!reports.is_empty() && reports.iter().all(|report| report.verdict.is_ok()))
}

fn as_text(report: &ChainReport, folder: &Path) -> String {
    let ChainReport { chain, segments, removals, verdict } = report;
    let text = match verdict {
        Ok(sound) => {
            let files = if *segments == 1 { "1 file".to_owned() } else { format!("{segments} files") };
            let torn = if sound.torn { ", then half a line, as a crash leaves it" } else { "" };
            let removed = describe_removals(chain, removals, sound);
            format!("{chain}: ok, {files}, last record {}{torn}{removed}", sound.head)
        }
        Err(bad) => {
            let file = folder.join(&bad.segment);
            format!("{chain}: BAD: {}: line {}: record {}: {}", file.display(), bad.line, bad.seq, bad.what)
        }
    };
    foreign::line(&text).into_owned()
}

/// Describes the records that retention has removed: their number and days, as far as the log still
/// tells.
fn describe_removals(chain: &str, removals: &[RecordRemoval], sound: &SoundLog) -> String {
    let (own, others): (Vec<&RecordRemoval>, Vec<&RecordRemoval>) =
        removals.iter().partition(|removal| removal.chain == *chain);
    let day = |date: &str| date.get(..10).unwrap_or("?").to_owned();
    let one = |removal: &&RecordRemoval| {
        let bad = removal.bad.as_deref().map(|bad| format!(", damaged: {bad}")).unwrap_or_default();
        format!("{} to {} of {} to {}{bad}", removal.from, removal.until, day(&removal.since), day(&removal.to))
    };
    let mut out = String::new();
    if let Some(after) = sound.after {
        let shown = own.iter().rev().take(SHOWN).rev().map(one).collect::<Vec<_>>().join("; ");
        out.push_str(&format!("; retention removed {} records before, ", after.seq));
        out.push_str(if own.len() > SHOWN { "the last of them " } else { "" });
        out.push_str(&shown);
    }
    if !others.is_empty() {
        let records: u64 =
            others.iter().map(|removal| removal.until.saturating_sub(removal.from.saturating_sub(1))).sum();
        let chains =
            if others.len() == 1 { "1 ended chain".to_owned() } else { format!("{} ended chains", others.len()) };
        out.push_str(&format!("; and {records} records of {chains}"));
    }
    out
}

fn show(common: &CommonOptions, args: &TailArgs) -> Result<u8, CommandFailure> {
    let log = log(common)?;
    let failed = |error| unreadable(&log, &error);
    let wanted = |line: &str| match &args.caller {
        None => true,
        Some(caller) => member(line, "caller").as_ref() == Some(caller),
    };
    let (mut tail, mut lines) = log.tail(args.lines, &wanted).map_err(failed)?;
    // Several chains may have been written at the same time, so their records are merged by time.
    lines.sort_by_cached_key(|line| member(line, "ts"));
    let first = lines.len().saturating_sub(args.lines);
    let mut fresh = lines.split_off(first);
    let screen = Screen::of_stdout();
    if args.follow {
        end_when_unread();
    }
    loop {
        let text: String = fresh
            .iter()
            .map(|line| if args.json { foreign::json(line) + "\n" } else { format_record(line, screen) })
            .collect();
        let is_read = text.is_empty() || follow(&text)?;
        if !args.follow || !is_read {
            return Ok(OK);
        }
        std::thread::sleep(LOOK);
        fresh = tail.more().map_err(failed)?;
        fresh.retain(|line| wanted(line));
    }
}

/// Returns a string member of a record.
fn member(line: &str, name: &str) -> Option<String> {
    let record: Map<String, Value> = serde_json::from_str(line).ok()?;
    record.get(name)?.as_str().map(str::to_owned)
}

/// Formats a record for people: time, event, result, and the other members by name. If it does not
/// fit the screen, digests are cut to eight digits, and the line is folded.
fn format_record(line: &str, screen: Screen) -> String {
    let Ok(mut record) = serde_json::from_str::<Map<String, Value>>(line) else {
        return format!("not a record: {}\n", foreign::line(line));
    };
    for hidden in ["v", "prev", "hash"] {
        record.remove(hidden);
    }
    let mut take = |name: &str| record.remove(name).map_or_else(|| "-".to_owned(), |value| format_value(&value));
    let time = local_of(&take("ts"));
    let mut out = format!("{time} {:>6} {:<8} {:<9}", take("seq"), take("event"), take("result"));
    let begin = out.len();
    let order =
        ["action", "name", "caller", "item", "count", "rule", "call", "by", "evidence", "grant", "prompt", "why"];
    let first = order.iter().filter_map(|name| Some(((*name).to_owned(), record.remove(*name)?))).collect::<Vec<_>>();
    for (name, value) in first.into_iter().chain(record) {
        out.push_str(&format!(" {}={}", foreign::line(&name), format_value(&value)));
    }
    if !screen.fits(out.width()) {
        let cut = |word: &str| match word.split_once('=') {
            Some((name, digest)) if is_digest(digest) => format!("{name}={}", digest.get(..DIGITS).unwrap_or(digest)),
            _ => word.to_owned(),
        };
        let members = out.split_off(begin);
        out.push_str(&members.split(' ').map(cut).collect::<Vec<_>>().join(" "));
    }
    screen.folded(out.trim_end(), time.width() + TO_EVENT)
}

/// Returns true for the digest of a definition, launch or arguments, and for ids of the same form.
fn is_digest(text: &str) -> bool {
    text.len() >= 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Formats a value so that it cannot look like another member or line.
fn format_value(value: &Value) -> String {
    match value.as_str() {
        Some(text) if !text.is_empty() && !text.contains([' ', '"', '=', '\t', '\n', '\r']) => {
            foreign::line(text).into_owned()
        }
        _ => foreign::line(&value.to_string()).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_that_steers_no_terminal() {
        let line = r#"{"v":1,"seq":7,"ts":"2026-11-21T10:00:00.000Z","event":"decision","caller":"ci","item":"a__b\u001b[2J\n","result":"deny","why":"rule \"x\" matches","prev":"00","hash":"11"}"#;
        let time = local_of("2026-11-21T10:00:00.000Z");
        let want = format!(
            "{time}      7 decision deny      caller=ci item=\"a__b\\u001b[2J\\n\" why=\"rule \\\"x\\\" matches\"\n"
        );
        let plain = Screen::of(None);
        assert_eq!(format_record(line, plain), want);
        assert_eq!(format_record("x\u{1b}", plain), "not a record: x\\u{1b}\n");
    }

    #[test]
    fn a_record_fits_a_narrow_screen_with_its_digests_cut() {
        let digest = "1ce75224635258b8c9adafcc6553c82b3a685b6dd02b7745b30355524b527a81";
        let line = format!(
            r#"{{"v":1,"seq":28,"ts":"2026-11-23T04:40:49.889Z","event":"pin","item":"memory__add_observations","result":"pinned","why":"first sight","definition":"{digest}","prev":"00","hash":"11"}}"#
        );
        let time = local_of("2026-11-23T04:40:49.889Z");
        let indent = " ".repeat(time.len() + TO_EVENT);
        let wanted = format!(
            "{time}     28 pin      pinned    item=memory__add_observations\n{indent}why=\"first sight\" definition=1ce75224\n"
        );
        assert_eq!(format_record(&line, Screen::of(Some(80))), wanted);
        assert!(
            format_record(&line, Screen::of(None)).contains(digest)
                && format_record(&line, Screen::of(Some(200))).contains(digest)
        );
    }
}
