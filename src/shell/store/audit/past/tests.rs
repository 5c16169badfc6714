use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::policy::records::chain::{ChainHead, ChainWriter as Written, LogSettings};
use crate::policy::{AuditEntry, AuditEvent, Caller};

const BEGIN: u64 = 1_795_256_100_000;

/// A record's date and number, as a reading returns it.
type Seen = (String, u64);

/// Writes chains whose records are at random times, in files of random size. Returns all records,
/// the latest first.
fn chains(folder: &Path, random: &mut fastrand::Rng, count: usize) -> Vec<Seen> {
    let mut all = Vec::new();
    for chain in 0..count {
        let name = format!("s-{chain}");
        let (mut written, form) = (Written::after(ChainHead::none(&name)), LogSettings::new(&[1; 32], true));
        let (mut at, mut number) = (BEGIN + random.u64(0..100_000), 1);
        let mut text = Vec::new();
        for _ in 0..random.u64(1..60) {
            // Each record has a time of its own.
            at += 1000 + random.u64(0..50) * 10 + chain as u64;
            at = at - at % 10 + chain as u64;
            let caller = "x".repeat(random.usize(0..3000));
            let call = all.len() as u64;
            let entry = AuditEntry {
                call: Some(call),
                caller: Some(Caller::named(&caller)),
                ..AuditEntry::new(AuditEvent::Outcome)
            };
            written.append(&entry, at, &form, &mut text);
            all.push((timestamp(at), call));
            if random.u8(0..12) == 0 {
                put(folder, &name, number, &text);
                (number, text) = (number + 1, Vec::new());
            }
        }
        put(folder, &name, number, &text);
    }
    all.sort_by(|one, other| other.cmp(one));
    all
}

fn put(folder: &Path, chain: &str, number: u32, text: &[u8]) {
    let name = LogSegment { chain: chain.to_owned(), number }.name();
    fs::write(folder.join(name), text).unwrap();
}

fn read(past: &mut LogReading, at_most: usize) -> (Vec<Seen>, Option<LogCursor>) {
    let mut seen = Vec::new();
    while seen.len() < at_most
        && let Some(found) = past.next()
    {
        if let FoundLine::Record { line, .. } = found {
            seen.push((line.ts.to_string(), u64::from_str_radix(line.call.as_deref().unwrap(), 16).unwrap()));
        }
    }
    (seen, past.cursor())
}

#[test]
fn records_of_all_chains_come_in_order_from_any_place_on() {
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..40 {
        let dir = TempDir::new().unwrap();
        let count = random.usize(1..9);
        let all = chains(dir.path(), &mut random, count);
        let folder = LogFolder::at(dir.path().to_owned());
        let begin = |begin: &ReadingStart| LogReading::begin(folder.clone(), begin).unwrap();
        assert_eq!(read(&mut begin(&ReadingStart::Latest), usize::MAX).0, all, "round {round}");
        let (date, _) = &all[random.usize(0..all.len())];
        let older: Vec<Seen> = all.iter().filter(|(one, _)| one < date).cloned().collect();
        assert_eq!(
            read(&mut begin(&ReadingStart::Before(date.clone())), usize::MAX).0,
            older,
            "round {round}, before {date}"
        );
        // In pages of random length, each from the cursor of the one before.
        let mut place = Some(ReadingStart::Latest);
        let mut seen = Vec::new();
        while let Some(at) = place {
            let (page, cursor) = read(&mut begin(&at), random.usize(1..20));
            seen.extend(page);
            place = cursor.map(|cursor| ReadingStart::After(LogCursor::decode(&cursor.encode()).unwrap()));
        }
        assert_eq!(seen, all, "round {round}, in pages");
    }
}

#[test]
fn damage_is_counted_and_the_rest_is_read() {
    let dir = TempDir::new().unwrap();
    let mut random = fastrand::Rng::with_seed(4);
    let all = chains(dir.path(), &mut random, 1);
    let folder = LogFolder::at(dir.path().to_owned());
    let path = dir.path().join("audit-s-0-000001.jsonl");
    let text = fs::read(&path).unwrap();
    for (label, damage, lost) in [
        ("a long line", vec![b'x'; 3 << 20], 1),
        ("not text", vec![0xff; 100], 1),
        ("empty lines", b"\n\n".to_vec(), 3),
        (
            "another record",
            b"{\"v\":1,\"seq\":1,\"ts\":\"2026-11-21T10:15:00.250Z\",\"event\":\"decision\"}".to_vec(),
            1,
        ),
    ] {
        fs::write(&path, [&damage[..], b"\n", &text, b"{\"half\":"].concat()).unwrap();
        let mut past = LogReading::begin(folder.clone(), &ReadingStart::Latest).unwrap();
        assert_eq!(read(&mut past, usize::MAX).0, all, "{label}");
        let tally = past.tally();
        assert_eq!((tally.damaged, tally.unread), (lost, 0), "{label}");
        assert!(tally.example.unwrap().starts_with("audit-s-0-000001.jsonl"), "{label}");
    }
    let none =
        LogReading::begin(LogFolder::at(dir.path().join("none")), &ReadingStart::Latest).unwrap().next().is_none();
    assert!(none, "a folder that is not there has no records");
}
