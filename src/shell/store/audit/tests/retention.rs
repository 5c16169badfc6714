//! Old files are removed and their removal is recorded; anything else that is missing is still
//! found.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::policy::RecordRemoval;
use crate::policy::records::chain::{BadRecord, ChainHead, ChainWriter, RetentionBounds};

/// Settings with which each record gets a file of its own.
fn options(place: &Place, retain: RetentionBounds) -> AuditLogOptions {
    AuditLogOptions { max_segment: 1, retain, ..place.options() }
}

fn bytes(bytes: u64) -> RetentionBounds {
    RetentionBounds { age: None, size: Some(bytes) }
}

/// Lists the numbers of the chain's files.
fn numbers(place: &Place) -> Vec<u32> {
    let segments = place.folder().chains().unwrap().remove(MAIN).unwrap_or_default();
    segments.iter().map(|segment| segment.number).collect()
}

/// Writes that many records, each to a file of its own.
async fn filled(place: &Place, records: u64) {
    let audit = place.open(options(place, RetentionBounds::default()));
    for call in 0..records {
        audit.record(entry(call), true).written().await.unwrap();
    }
    audit.flush().await;
    closed(audit, place).await;
}

/// Closes a log and waits for its writer, which may still remove files. A new file is not locked at
/// once, so the locks do not show that.
async fn closed(audit: AuditLog, place: &Place) {
    let writer = Arc::downgrade(audit.0.as_ref().unwrap().queue.shared());
    drop(audit);
    let deadline = clock::now() + Duration::from_secs(10);
    while writer.strong_count() > 0 {
        assert!(clock::now() < deadline, "the writer goes on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    ended(place, MAIN).await;
}

/// Waits until the last writer of a chain has closed its files.
async fn ended(place: &Place, chain: &str) {
    let deadline = clock::now() + Duration::from_secs(10);
    let last = || place.folder().chains().unwrap().remove(chain).unwrap().pop().unwrap();
    while fs::File::open(place.folder().path().join(last().name())).is_ok_and(|file| file.try_lock().is_err()) {
        assert!(clock::now() < deadline, "{chain}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Writes records until the condition holds.
async fn write_until(audit: &AuditLog, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = clock::now() + Duration::from_secs(20);
    let mut call = 0;
    while !holds() {
        assert!(clock::now() < deadline, "{what}");
        audit.record(entry(call), true).written().await.unwrap();
        call += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    audit.flush().await;
}

/// Creates a log of which old files were removed by size.
async fn trimmed() -> Place {
    let place = Place::new();
    let audit = place.open(options(&place, bytes(3000)));
    write_until(&audit, "old files go", || numbers(&place).first().is_some_and(|first| *first > 3)).await;
    closed(audit, &place).await;
    place
}

fn report(place: &Place) -> verify::ChainReport {
    let form = LogSettings::new(&place.db().installation_key().run_now().unwrap(), false);
    let known: Vec<KnownRecord> =
        place.db().audit_heads().run_now().unwrap().into_iter().map(KnownRecord::from).collect();
    let mut reports = verify(&place.folder(), &known, Some(&form), false).unwrap();
    reports.retain(|report| report.chain == MAIN);
    reports.pop().unwrap()
}

#[tokio::test]
async fn the_oldest_files_go_by_size_and_the_log_says_which() {
    let place = trimmed().await;
    let report = report(&place);
    let sound = report.verdict.unwrap_or_else(|bad| panic!("{bad}\n{}", place.text()));
    let last = report.removals.last().unwrap();
    assert_eq!(sound.after, Some(ChainHead { seq: last.until, hash: last.hash }));
    assert!(last.since.starts_with("20") && last.to >= last.since && last.bad.is_none(), "{last:?}");
    let size: u64 = numbers(&place).iter().map(|number| fs::metadata(place.segment(*number)).unwrap().len()).sum();
    assert!(size < 6000, "{size} bytes are left");
    // A restart continues the chain.
    session(&place, place.options(), 2).await;
    assert!(place.verdict().starts_with("main ") && !place.verdict().contains(':'), "{}", place.verdict());
}

#[tokio::test]
async fn a_removal_that_was_interrupted_is_no_damage() {
    let place = Place::new();
    filled(&place, 12).await;
    let copies: Vec<_> =
        (1..=12).map(|number| (place.segment(number), fs::read(place.segment(number)).unwrap())).collect();
    let audit = place.open(options(&place, bytes(3000)));
    write_until(&audit, "old files go", || numbers(&place).first().is_some_and(|first| *first > 3)).await;
    closed(audit, &place).await;
    let gone = usize::try_from(numbers(&place)[0] - 1).unwrap().min(copies.len());
    for left in (0..gone).rev() {
        fs::write(&copies[left].0, &copies[left].1).unwrap();
        let report = report(&place);
        assert!(report.verdict.is_ok(), "{} of {gone} files are left: {:?}", gone - left, report.verdict);
    }
    fs::remove_file(&copies[gone - 1].0).unwrap();
    assert!(report(&place).verdict.is_err(), "a file in the middle");
}

#[tokio::test]
async fn nothing_goes_without_a_bound_or_below_it() {
    for retain in [
        RetentionBounds::default(),
        bytes(1 << 20),
        RetentionBounds { age: Some(Duration::from_secs(3600)), size: None },
    ] {
        let place = Place::new();
        filled(&place, 10).await;
        session(&place, options(&place, retain), 5).await;
        assert_eq!(numbers(&place).first(), Some(&1), "{retain:?}");
        assert_eq!(place.verdict(), "main 15", "{retain:?}");
    }
}

#[tokio::test]
async fn files_go_by_age_and_a_file_holds_one_day() {
    let place = Place::new();
    let kept_for = |millis| RetentionBounds { age: Some(Duration::from_millis(millis)), size: None };
    filled(&place, 10).await;
    let audit = place.open(options(&place, kept_for(1)));
    write_until(&audit, "old files go", || numbers(&place).first().is_some_and(|first| *first > 8)).await;
    closed(audit, &place).await;
    assert!(report(&place).verdict.is_ok());

    // The last file is of an earlier day.
    let place = Place::new();
    session(&place, place.options(), 1).await;
    ended(&place, MAIN).await;
    let text = place.text();
    let day = text.split_once("\"ts\":\"").unwrap().1.get(..10).unwrap().to_owned();
    fs::write(place.segment(1), text.replace(&day, "2001-01-01")).unwrap();
    assert!(!place.folder().is_of(&LogSegment { chain: MAIN.to_owned(), number: 1 }, clock::unix_millis()));
    fs::write(place.segment(1), text).unwrap();
    assert!(place.folder().is_of(&LogSegment { chain: MAIN.to_owned(), number: 1 }, clock::unix_millis()));
}

#[tokio::test]
async fn a_file_that_was_removed_otherwise_is_found() {
    let place = trimmed().await;
    let numbers = numbers(&place);
    fs::remove_file(place.segment(numbers[0])).unwrap();
    let bad = report(&place).verdict.unwrap_err();
    assert!(bad.to_string().contains("sequence gap: the records from 1 on were removed"), "{bad}");
}

#[tokio::test]
async fn a_removal_that_was_added_by_another_hand_explains_nothing() {
    let place = Place::new();
    filled(&place, 6).await;
    let line = fs::read_to_string(place.segment(3)).unwrap();
    let last = ChainHead::of_line(line.trim_end().as_bytes()).unwrap();
    // Lines that anyone can write who knows the format: a sound record at the end of the chain, and
    // a whole chain.
    let removal = RecordRemoval {
        chain: MAIN.to_owned(),
        from: 1,
        until: last.seq,
        hash: last.hash,
        since: String::new(),
        to: String::new(),
        files: 3,
        bad: None,
        mac: String::new(),
    };
    let form = LogSettings::new(&[1; 32], false);
    let mut vouched = removal.clone();
    form.vouch(&mut vouched);
    let end = ChainHead::of_line(fs::read_to_string(place.segment(6)).unwrap().trim_end().as_bytes()).unwrap();
    let (mut own, mut other) = (fs::read(place.segment(6)).unwrap(), Vec::new());
    ChainWriter::after(end).append(&AuditEntry::removal(vouched), 0, &form, &mut own);
    ChainWriter::after(ChainHead::none("s-1")).append(&AuditEntry::removal(removal), 0, &form, &mut other);
    fs::write(place.segment(6), own).unwrap();
    fs::write(place.folder().path().join("audit-s-1-000001.jsonl"), other).unwrap();
    assert!(report(&place).verdict.is_ok(), "a longer log is none that was cut");
    for number in 1..=3 {
        fs::remove_file(place.segment(number)).unwrap();
    }
    let bad = report(&place).verdict.unwrap_err();
    assert!(bad.to_string().contains("the records from 1 on were removed"), "{bad}");
}

#[tokio::test]
async fn what_was_wrong_with_removed_files_is_still_said() {
    let place = Place::new();
    filled(&place, 10).await;
    let text = fs::read_to_string(place.segment(2)).unwrap();
    fs::write(place.segment(2), text.replace("\"ci\"", "\"cj\"")).unwrap();
    let audit = place.open(options(&place, bytes(1000)));
    write_until(&audit, "old files go", || numbers(&place).first().is_some_and(|first| *first > 2)).await;
    closed(audit, &place).await;
    let report = report(&place);
    assert!(report.verdict.is_ok(), "{:?}", report.verdict);
    let told = place.text();
    assert!(told.contains("\"bad\":\"audit-main-000002.jsonl: line 1: record 2: wrong hash"), "{told}");
}

#[tokio::test]
async fn ended_chains_go_as_a_whole_and_live_ones_stay() {
    let place = Place::new();
    let (over, live, fresh) = ("s-ended", "s-live", "s-fresh");
    let of = |chain: &str| AuditLogOptions { chain: chain.to_owned(), ..place.options() };
    let writer = place.open(AuditLogOptions { max_segment: 1, ..of(over) });
    for call in 0..3 {
        writer.record(entry(call), true).written().await.unwrap();
    }
    writer.flush().await;
    drop(writer);
    session(&place, of(fresh), 3).await;
    let writer = place.open(of(live));
    writer.record(entry(0), true).written().await.unwrap();
    let part =
        |chain: &str, number| place.0.path().join("audit").join(LogSegment { chain: chain.to_owned(), number }.name());
    let file = |chain| part(chain, 1);
    ended(&place, over).await;
    let hour_ago = std::time::UNIX_EPOCH + Duration::from_secs(clock::unix_seconds() - 3600);
    for file in [part(over, 1), part(over, 2), part(over, 3), file(live)] {
        fs::OpenOptions::new().append(true).open(file).unwrap().set_modified(hour_ago).unwrap();
    }
    let last = (part(over, 3), fs::read(part(over, 3)).unwrap());
    let all: u64 = [over, live, fresh].iter().map(|chain| fs::metadata(file(chain)).unwrap().len()).sum();
    let audit = place.open(options(&place, bytes(all + 3000)));
    write_until(&audit, "the ended one goes", || !file(over).exists()).await;
    closed(audit, &place).await;
    assert!(file(live).exists() && file(fresh).exists());
    let verdict = place.verdict();
    assert!(!verdict.contains(over) && !verdict.contains("missing") && verdict.contains("s-live 1"), "{verdict}");
    assert!(place.text().contains("\"removed\":{\"chain\":\"s-ended\",\"from\":1,\"until\":3"), "{}", place.text());
    // The state after an end in the middle of the removal.
    fs::write(&last.0, &last.1).unwrap();
    assert!(place.verdict().contains("s-ended 3"), "{}", place.verdict());
    drop(writer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_whose_oldest_files_go_meanwhile_is_verified() {
    let place = Place::new();
    let audit = place.open(options(&place, bytes(6000)));
    let form = LogSettings::new(&place.db().installation_key().run_now().unwrap(), false);
    let folder = place.folder();
    let is_enough = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&is_enough);
    let looks = tokio::task::spawn_blocking(move || {
        let mut wrong = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            match verify(&folder, &[], Some(&form), false) {
                Err(error) => wrong.push(error.to_string()),
                Ok(reports) => {
                    wrong.extend(
                        reports.iter().filter_map(|report| report.verdict.as_ref().err()).map(BadRecord::to_string),
                    );
                }
            }
        }
        wrong
    });
    write_until(&audit, "a hundred files go", || numbers(&place).first().is_some_and(|first| *first > 100)).await;
    is_enough.store(true, Ordering::Relaxed);
    let wrong = looks.await.unwrap();
    assert!(wrong.is_empty(), "{}: {:?}", wrong.len(), wrong.first());
}
