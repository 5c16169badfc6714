use super::files::LogSegment;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use tempfile::TempDir;

use super::verify::{KnownRecord, verify};
use super::*;
use crate::base::clock;
use crate::policy::records::chain::RetentionBounds;
use crate::policy::{AuditEvent, Caller};
use crate::telemetry::metrics::Metrics;

mod crash;
mod retention;

/// A state directory for a test.
pub(super) struct Place(TempDir);

impl Place {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn options(&self) -> AuditLogOptions {
        AuditLogOptions {
            folder: self.0.path().join("audit"),
            chain: MAIN.to_owned(),
            arguments: false,
            strict: false,
            deny: true,
            max_segment: 64 << 20,
            retain: RetentionBounds::default(),
        }
    }

    pub(super) fn open(&self, options: AuditLogOptions) -> AuditLog {
        AuditLog::open(options, self.db(), Metrics::new().unwrap().audit()).unwrap()
    }

    fn db(&self) -> Db {
        Db::open(self.0.path()).unwrap()
    }

    pub(super) fn folder(&self) -> LogFolder {
        LogFolder::at(self.0.path().join("audit"))
    }

    /// Verifies the log: returns one line for each chain, with the head's number or the defect.
    fn verdict(&self) -> String {
        let known: Vec<KnownRecord> =
            self.db().audit_heads().run_now().unwrap().into_iter().map(KnownRecord::from).collect();
        let form = LogSettings::new(&self.db().installation_key().run_now().unwrap(), false);
        let reports = verify(&self.folder(), &known, Some(&form), false).unwrap();
        let one = |report: &verify::ChainReport| match &report.verdict {
            Ok(sound) => format!("{} {}", report.chain, sound.head.seq),
            Err(bad) => format!("{} {bad}", report.chain),
        };
        reports.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    /// Reads all lines, in order.
    pub(super) fn text(&self) -> String {
        let segments = self.folder().chains().unwrap().remove(MAIN).unwrap_or_default();
        segments.iter().map(|segment| fs::read_to_string(self.segment(segment.number)).unwrap()).collect()
    }

    fn segment(&self, number: u32) -> PathBuf {
        self.0.path().join("audit").join(LogSegment { chain: MAIN.to_owned(), number }.name())
    }
}

fn entry(call: u64) -> AuditEntry {
    AuditEntry { call: Some(call), caller: Some(Caller::named("ci")), ..AuditEntry::new(AuditEvent::Decision) }
}

/// Writes that many records and closes the log, as a process does.
async fn session(place: &Place, options: AuditLogOptions, records: u64) {
    let audit = place.open(options);
    for call in 0..records {
        audit.record(entry(call), false).written().await.unwrap();
    }
    audit.flush().await;
}

#[tokio::test]
async fn a_durable_record_is_on_disk_when_it_says_so() {
    let place = Place::new();
    let audit = place.open(place.options());
    audit.record(entry(7), true).written().await.unwrap();
    assert!(place.text().contains(r#""call":"7""#));
    assert_eq!(place.verdict(), "main 1");
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(place.segment(1)), mode(place.folder().path().to_owned())), (0o600, 0o700));
}

#[tokio::test]
async fn a_second_daemon_is_refused_the_folder_of_another_one() {
    let (first, second) = (Place::new(), Place::new());
    let audit = first.open(first.options());
    let link = second.0.path().join("link");
    std::os::unix::fs::symlink(first.folder().path(), &link).unwrap();
    let open = |folder: &Path, chain: &str| {
        let options = AuditLogOptions { folder: folder.to_owned(), chain: chain.to_owned(), ..second.options() };
        AuditLog::open(options, second.db(), Metrics::new().unwrap().audit())
    };
    for folder in [first.folder().path(), &link] {
        let text = open(folder, MAIN).unwrap_err().to_string();
        assert!(text.contains(&folder.display().to_string()) && text.contains("`[audit] path`"), "{text}");
    }
    let beside = open(first.folder().path(), "s-0a0b0c0d").unwrap();
    beside.record(entry(1), true).written().await.unwrap();
    audit.record(entry(2), true).written().await.unwrap();
    audit.flush().await;
    drop((audit, beside));
    assert!(open(first.folder().path(), MAIN).is_ok(), "the first daemon has ended");
    assert!(open(second.0.path(), MAIN).is_ok(), "the lock of the state directory is enough for that");
}

#[tokio::test]
async fn a_plain_record_and_its_head_are_on_disk_soon() {
    let place = Place::new();
    let audit = place.open(place.options());
    assert!(matches!(audit.record(entry(1), false), RecordState::Accepted));
    let deadline = clock::now() + Duration::from_secs(10);
    while place.db().audit_heads().run_now().unwrap().first().is_none_or(|kept| kept.head.seq != 1) {
        assert!(clock::now() < deadline, "{}", place.text());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_writers_every_record_is_there_and_each_ones_in_order() {
    const TASKS: u64 = 16;
    const RECORDS: u64 = 1500;
    let place = Place::new();
    let audit = place.open(AuditLogOptions { max_segment: 1 << 20, ..place.options() });
    let write = |task: u64| {
        let audit = audit.clone();
        async move {
            for n in 0..RECORDS {
                let entry = AuditEntry { session: Some(task), ..entry(n) };
                audit.record(entry, n % 100 == 0).written().await.unwrap();
            }
        }
    };
    futures_util::future::join_all((0..TASKS).map(|task| {
        let write = write(task);
        async move { tokio::task::LocalSet::new().run_until(write).await }
    }))
    .await;
    audit.flush().await;
    assert_eq!(place.verdict(), format!("main {}", TASKS * RECORDS));
    let mut next = vec![0; usize::try_from(TASKS).unwrap()];
    for line in place.text().lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let call = u64::from_str_radix(record["call"].as_str().unwrap(), 16).unwrap();
        let task = &mut next[usize::try_from(record["session"].as_u64().unwrap()).unwrap()];
        assert_eq!(call, *task, "{line}");
        *task += 1;
    }
    assert!(place.folder().chains().unwrap()[MAIN].len() > 3, "segments were changed");
}

#[tokio::test]
async fn a_restart_goes_on_with_the_chain_and_starts_a_segment_where_one_is_full() {
    let place = Place::new();
    for _ in 0..3 {
        session(&place, AuditLogOptions { max_segment: 100, ..place.options() }, 1).await;
    }
    session(&place, place.options(), 5).await;
    assert_eq!(place.verdict(), "main 8");
    assert_eq!(place.folder().chains().unwrap()[MAIN].len(), 3);
    let other = AuditLogOptions { chain: new_chain_name(), ..place.options() };
    session(&place, other, 2).await;
    assert!(place.verdict().starts_with("main 8; s-"), "{}", place.verdict());
}

#[tokio::test]
async fn a_torn_record_is_cut_off_and_that_is_recorded() {
    let place = Place::new();
    session(&place, place.options(), 3).await;
    let whole = place.text();
    fs::write(place.segment(1), format!("{whole}{}", &whole[..40])).unwrap();
    assert_eq!(place.verdict(), "main 3", "a crash is no damage");
    session(&place, place.options(), 1).await;
    assert_eq!(place.verdict(), "main 5");
    assert!(place.text().starts_with(&whole) && place.text().contains("recovered a torn record: 40 bytes"));
}

#[tokio::test]
async fn a_log_that_was_tampered_with_stays_bad_whatever_is_written_after() {
    type Damage = fn(&str) -> String;
    let rows: &[(&str, Damage, &str)] = &[
        (
            "cut",
            |text| text.lines().take(4).map(|line| format!("{line}\n")).collect(),
            "audit-main-000002.jsonl: line 1: record 7: sequence gap: the records from 5 on were removed",
        ),
        (
            "cut in a line",
            |text| text[..text.len() - 9].to_owned(),
            "audit-main-000001.jsonl: line 6: record 6: not a record",
        ),
        (
            "emptied",
            |_| String::new(),
            "audit-main-000002.jsonl: line 1: record 7: sequence gap: the records from 1 on were removed",
        ),
        (
            "changed at the end",
            |text| text.replace(r#""call":"5""#, r#""call":"6""#),
            "audit-main-000001.jsonl: line 6: record 6: wrong hash: it was changed",
        ),
        (
            "changed at the start",
            |text| text.replace(r#""call":"0""#, r#""call":"6""#),
            "audit-main-000001.jsonl: line 1: record 1: wrong hash: it was changed",
        ),
    ];
    for (label, damage, wanted) in rows {
        let place = Place::new();
        session(&place, place.options(), 6).await;
        fs::write(place.segment(1), damage(&place.text())).unwrap();
        assert!(!place.verdict().starts_with("main 6"), "{label}");
        session(&place, place.options(), 3).await;
        session(&place, place.options(), 3).await;
        let verdict = place.verdict();
        assert!(verdict.starts_with(&format!("main {wanted}")), "{label}: {verdict}");
    }
}

#[tokio::test]
async fn files_that_are_gone_are_missed() {
    let place = Place::new();
    for _ in 0..4 {
        session(&place, AuditLogOptions { max_segment: 100, ..place.options() }, 1).await;
    }
    let text = fs::read(place.segment(2)).unwrap();
    fs::remove_file(place.segment(2)).unwrap();
    let gap = "main audit-main-000003.jsonl: line 1: record 3: sequence gap: the records from 2 on were removed";
    assert_eq!(place.verdict(), gap);
    fs::write(place.segment(2), text).unwrap();
    assert_eq!(place.verdict(), "main 4");
    fs::remove_file(place.segment(1)).unwrap();
    let archived = verify(&place.folder(), &[], None, true).unwrap();
    assert_eq!(archived[0].verdict.as_ref().unwrap().head.seq, 4, "the oldest may be archived");
    fs::remove_dir_all(place.folder().path()).unwrap();
    assert!(place.verdict().ends_with("missing: the log was cut or rolled back, it had records up to 4"));
    session(&place, place.options(), 1).await;
    assert!(place.verdict().contains("the records from 1 on were removed"), "{}", place.verdict());
}

#[tokio::test]
async fn what_cannot_be_recorded_is_refused_until_it_can() {
    let place = Place::new();
    let audit = place.open(AuditLogOptions { max_segment: 1, ..place.options() });
    audit.record(entry(0), true).written().await.unwrap();
    // The next record needs a new segment.
    let (folder, aside) = (place.0.path().join("audit"), place.0.path().join("aside"));
    fs::rename(&folder, &aside).unwrap();
    assert_eq!(audit.record(entry(1), true).written().await, Err(UnrecordedError));
    for call in 2..5 {
        assert_eq!(
            audit.record(entry(call), false).written().await,
            Err(UnrecordedError),
            "plain ones wait for proof as well"
        );
    }
    fs::rename(&aside, &folder).unwrap();
    audit.record(entry(5), false).written().await.unwrap();
    assert!(matches!(audit.record(entry(6), false), RecordState::Accepted), "nobody waits any more");
    audit.flush().await;
    assert_eq!(place.verdict(), "main 4");
    assert!(place.text().contains("4 records before this one could not be written"), "{}", place.text());
}

#[tokio::test]
async fn a_store_that_does_not_answer_holds_up_no_record() {
    let place = Place::new();
    let db = place.db();
    let audit = AuditLog::open(place.options(), db.clone(), Metrics::new().unwrap().audit()).unwrap();
    audit.record(entry(0), true).written().await.unwrap();
    let (release, held) = std::sync::mpsc::channel::<()>();
    db.latest_time().then(move |_| held.recv().unwrap_or_default());
    let begun = clock::now();
    // The head is due to be stored meanwhile.
    while clock::since(begun) < Duration::from_millis(1500) {
        let written = audit.record(entry(1), true).written();
        tokio::time::timeout(Duration::from_secs(60), written).await.expect("the writer waits").unwrap();
    }
    drop(release);
    audit.flush().await;
    assert!(place.verdict().starts_with("main "), "{}", place.verdict());
}

#[tokio::test]
async fn events_that_have_taken_effect_are_recorded_when_the_disk_takes_records_again() {
    let place = Place::new();
    let metrics = Metrics::new().unwrap();
    let options = AuditLogOptions { max_segment: 1, ..place.options() };
    let audit = AuditLog::open(options, place.db(), metrics.audit()).unwrap();
    audit.record(entry(0), true).written().await.unwrap();
    let (folder, aside) = (place.0.path().join("audit"), place.0.path().join("aside"));
    fs::rename(&folder, &aside).unwrap();
    let done = |call: u64| AuditEntry { event: AuditEvent::Revoke, ..entry(call) };
    audit.record_done(done(1));
    audit.flush().await;
    assert_eq!(audit.record(entry(2), false).written().await, Err(UnrecordedError));
    audit.reserve().await.unwrap().record(done(3));
    assert_eq!(audit.reserve().await.unwrap().written(entry(4)).await, Err(UnrecordedError));
    let lost = audit.loss();
    fs::rename(&aside, &folder).unwrap();
    audit.flush().await;

    let (text, page) = (place.text(), metrics.render());
    let calls: Vec<bool> = (0..5).map(|call| text.contains(&format!(r#""call":"{call:x}""#))).collect();
    assert_eq!(calls, [true, true, false, true, false], "{text}");
    assert!(text.contains("2 records before this one could not be written"), "{text}");
    assert!(page.contains("headend_audit_failures_total 2"), "{page}");
    assert!(page.contains(r#"headend_audit_records_total{event="revoke"} 2"#), "{page}");
    assert!(lost.unwrap().contains("lost: 2,") && audit.loss().is_some(), "shown after the disk is back");
    assert_eq!(place.verdict(), "main 4");
}

#[tokio::test]
async fn calls_go_on_unrecorded_where_the_operator_says_so() {
    let place = Place::new();
    let metrics = Metrics::new().unwrap();
    let options = AuditLogOptions { max_segment: 1, deny: false, ..place.options() };
    let audit = AuditLog::open(options, place.db(), metrics.audit()).unwrap();
    audit.record(entry(0), true).written().await.unwrap();
    let (folder, aside) = (place.0.path().join("audit"), place.0.path().join("aside"));
    fs::rename(&folder, &aside).unwrap();
    audit.record(entry(1), true).written().await.unwrap();
    assert!(matches!(audit.record(entry(2), false), RecordState::Accepted));
    audit.record(entry(3), true).written().await.unwrap();
    fs::rename(&aside, &folder).unwrap();
    audit.record(entry(4), true).written().await.unwrap();
    assert!(place.text().contains("3 records before this one could not be written"), "{}", place.text());
    let page = metrics.render();
    assert!(page.contains("headend_audit_failures_total 3"), "{page}");
    assert!(page.contains(r#"headend_audit_records_total{event="decision"} 2"#), "{page}");
}

#[tokio::test]
async fn calls_wait_for_a_writer_that_is_behind_and_ends_of_calls_keep_their_places() {
    let place = Place::new();
    let audit = place.open(place.options());
    let writer = audit.hold().await;
    for call in 0..1024 {
        assert!(matches!(audit.record(entry(call), false), RecordState::Accepted), "{call}");
    }
    drop(audit.record(AuditEntry { event: AuditEvent::Outcome, ..entry(1024) }, false));
    let [allowed, refused, durable] = [false, false, true].map(|durable| audit.record(entry(1025), durable));
    assert!(allowed.waits_for_place() && refused.waits_for_place() && durable.waits_for_place());
    let slot = audit.reserve().await.unwrap();
    let (mut allowed, mut refused) = (Box::pin(allowed.written()), Box::pin(refused.placed()));
    assert!(futures_util::poll!(&mut allowed).is_pending() && futures_util::poll!(&mut refused).is_pending());
    drop(durable);
    slot.record(entry(1026));
    drop(writer);
    allowed.await.unwrap();
    refused.await;
    audit.flush().await;
    let text = place.text();
    let count = |call: u64| text.matches(&format!(r#""call":"{call:x}""#)).count();
    assert!((0..1025).all(|call| count(call) == 1) && count(1025) == 2 && count(1026) == 1);
    assert_eq!(place.verdict(), "main 1029", "one record is that of the loss");
    assert!(audit.loss().unwrap().contains("lost: 1,"), "the task that kept the last decision went away");
}

#[tokio::test]
async fn nothing_waits_for_a_writer_that_is_gone() {
    for deny in [true, false] {
        let (queue, jobs, says) = RecordQueue::new(deny, Metrics::new().unwrap().audit());
        while let RecordState::Accepted = queue.record(entry(0), false) {}
        let behind = queue.record(entry(1), false);
        drop((jobs, says));
        let late = queue.record(entry(2), true);
        for recorded in [behind, late] {
            assert_eq!(recorded.written().await.is_err(), deny);
        }
        assert_eq!(queue.reserve().await.is_err(), deny);
    }
}

#[tokio::test]
async fn links_and_pipes_are_no_segments() {
    let place = Place::new();
    session(&place, place.options(), 1).await;
    let real = place.0.path().join("elsewhere");
    fs::rename(place.segment(1), &real).unwrap();
    std::os::unix::fs::symlink(&real, place.segment(1)).unwrap();
    let opened = AuditLog::open(place.options(), place.db(), Metrics::new().unwrap().audit());
    assert!(matches!(opened, Err(AuditOpenError::Folder { .. })), "{opened:?}");
    fs::remove_file(place.segment(1)).unwrap();
    std::process::Command::new("mkfifo").arg(place.segment(1)).status().unwrap();
    let opened = AuditLog::open(place.options(), place.db(), Metrics::new().unwrap().audit());
    assert!(matches!(opened, Err(AuditOpenError::Folder { .. })), "{opened:?}");
}

#[tokio::test]
async fn a_log_is_followed_over_its_segments() {
    let place = Place::new();
    session(&place, AuditLogOptions { max_segment: 100, ..place.options() }, 3).await;
    let (mut tail, lines) = tail::LogTail::begin(place.folder(), 2, &|_| true).unwrap();
    assert_eq!(lines.len(), 2);
    assert_eq!(tail.more().unwrap(), Vec::<String>::new());
    let audit = place.open(AuditLogOptions { max_segment: 100, ..place.options() });
    for call in 0..4 {
        audit.record(entry(call), true).written().await.unwrap();
    }
    let calls: Vec<String> =
        tail.more().unwrap().iter().map(|line| line.split('"').nth(15).unwrap().to_owned()).collect();
    assert_eq!(calls, ["0", "1", "2", "3"]);
    let (_, lines) = tail::LogTail::begin(place.folder(), 100, &|line| line.contains(r#""call":"3""#)).unwrap();
    assert_eq!(lines.len(), 1);
}

#[tokio::test]
async fn a_chain_that_was_left_goes_on_in_another_process_and_back() {
    let place = Place::new();
    let (old, entry) = (place.open(place.options()), || AuditEntry::gateway("started", ""));
    old.record(entry(), true).written().await.unwrap();
    old.switch("s-1").await.unwrap();
    let new = place.open(place.options());
    old.record(entry(), true).written().await.unwrap();
    new.record(entry(), true).written().await.unwrap();
    assert!(old.switch(MAIN).await.is_err(), "the other process has the folder");
    old.record(entry(), true).written().await.unwrap();
    new.flush().await;
    drop(new);
    old.switch(MAIN).await.unwrap();
    old.record(entry(), true).written().await.unwrap();
    old.flush().await;
    assert_eq!(place.verdict(), "main 3; s-1 2");
}
