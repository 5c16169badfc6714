use std::time::Duration;

use expect_test::expect;
use proptest::prelude::*;

use super::*;
use crate::policy::evidence::ApprovalEvidence;
use crate::policy::kind::ActionKind;
use crate::policy::records::record::{AuditEvent, OperatorAction};

const KEY: [u8; 32] = [7; 32];
/// 2026-11-21T10:15:00.250Z
const AT: u64 = 1_795_256_100_250;

fn line(entry: &AuditEntry, form: &LogSettings) -> String {
    let mut out = Vec::new();
    ChainWriter::after(ChainHead::none("main")).append(entry, AT, form, &mut out);
    String::from_utf8(out).unwrap()
}

fn full() -> AuditEntry {
    AuditEntry {
        call: Some(255),
        caller: Some(Caller::named("ci")),
        session: Some(3),
        upstream: Some("fs".into()),
        kind: Some(ActionKind::Tool),
        item: Some("fs__\"a\"\n".into()),
        definition: Some(Digest::of(b"")),
        arguments: Some(RawJson::trusted(r#"{"b":1, "a":2}"#)),
        result: "allow",
        rule: Some("r".into()),
        grant: Some("g".into()),
        approval: Some("p".into()),
        evidence: Some(ApprovalEvidence::Page),
        by: Some("operator".into()),
        why: "rule matches".into(),
        duration: Some(Duration::from_millis(2)),
        ..AuditEntry::new(AuditEvent::Decision)
    }
}

/// Returns the lines of a chain with this number of records, and its head.
fn log(records: u64) -> (Vec<Vec<u8>>, ChainHead) {
    let mut chain = ChainWriter::after(ChainHead::none("main"));
    let form = LogSettings::new(&KEY, false);
    let mut lines = Vec::new();
    for call in 0..records {
        let mut out = Vec::new();
        let entry = AuditEntry { call: Some(call), ..AuditEntry::new(AuditEvent::Outcome) };
        chain.append(&entry, AT + call, &form, &mut out);
        lines.push(out);
    }
    (lines, chain.head())
}

/// Verifies a file with this content.
fn verdict(text: &[u8], known: &[ChainHead]) -> Result<SoundLog, BadRecord> {
    let mut reader = ChainVerifier::new("main", known.to_vec());
    reader.segment("file");
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\n") {
            Some(line) => reader.line(line),
            None => reader.rest(line),
        }
    }
    reader.end()
}

#[test]
fn a_record_has_every_member_once_in_its_order() {
    let mut got = line(&full(), &LogSettings::new(&KEY, true));
    got.push_str(&line(&AuditEntry::gateway("started", ""), &LogSettings::new(&KEY, true)));
    let (by, name) = (Some("uid:1".into()), Some("fx".into()));
    let action = AuditEntry {
        action: Some(OperatorAction::Restart),
        name,
        by,
        result: "done",
        ..AuditEntry::new(AuditEvent::Action)
    };
    got.push_str(&line(&action, &LogSettings::new(&KEY, true)));
    expect![[r#"
        {"v":1,"seq":1,"ts":"2026-11-21T10:15:00.250Z","event":"decision","call":"ff","caller":"ci","session":3,"upstream":"fs","kind":"tool","item":"fs__\"a\"\n","definition":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","args":"2015f92abc192995f01024438788893a","arguments":{"a":2,"b":1},"result":"allow","rule":"r","grant":"g","prompt":"p","evidence":"L2","by":"operator","why":"rule matches","us":2000,"prev":"0d6e4079e36703ebd37c00722f5891d28b0e2811dc114b129215123adcce3605","hash":"bc96d75cf411206641114f1ede93e6fe5fbdfc40be5f3598b5e160be97a8e4ca"}
        {"v":1,"seq":1,"ts":"2026-11-21T10:15:00.250Z","event":"gateway","result":"started","prev":"0d6e4079e36703ebd37c00722f5891d28b0e2811dc114b129215123adcce3605","hash":"c10463bffe1ec31a98c59c30b84da09369d3fb67696cd97445b5a7fc69cacde3"}
        {"v":1,"seq":1,"ts":"2026-11-21T10:15:00.250Z","event":"action","action":"restart","name":"fx","result":"done","by":"uid:1","prev":"0d6e4079e36703ebd37c00722f5891d28b0e2811dc114b129215123adcce3605","hash":"7e439afaa7ec81741d3bb246206ccb9f7038cf11f4d2106b291fbf1adbdb6fea"}
    "#]]
    .assert_eq(&got);
}

#[test]
fn one_record_tells_of_all_pins_that_a_reading_changed() {
    let changes = ListChanges { added: 1, changed: 29, withheld: 30, removed: 2, digest: Digest::of(b"") };
    let got = line(&AuditEntry::relisted("fx".into(), changes), &LogSettings::new(&KEY, false));
    expect![[r#"
        {"v":1,"seq":1,"ts":"2026-11-21T10:15:00.250Z","event":"pin","upstream":"fx","result":"relisted","count":30,"changes":{"added":1,"changed":29,"withheld":30,"removed":2,"digest":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},"why":"one reading of its lists: 1 added, 29 changed, 30 of both withheld, 2 removed","prev":"0d6e4079e36703ebd37c00722f5891d28b0e2811dc114b129215123adcce3605","hash":"6128effaa41576b6c1ed79098f5a367ccbf6e14ef2816a31293e3eb25b23ce65"}
    "#]]
    .assert_eq(&got);
    let read: serde_json::Value = serde_json::from_str(&got).unwrap();
    assert_eq!((&read["event"], &read["count"]), (&"pin".into(), &30.into()));
    assert_eq!(read["changes"]["digest"], Digest::of(b"").hex());
}

#[test]
fn arguments_are_a_digest_under_the_key_unless_they_are_wanted() {
    let of = |arguments: &str, key: [u8; 32]| {
        let arguments = Some(RawJson::trusted(arguments.to_owned()));
        line(&AuditEntry { arguments, ..AuditEntry::new(AuditEvent::Decision) }, &LogSettings::new(&key, false))
    };
    assert_eq!(of(r#"{"a":1,"b":"x"}"#, KEY), of("{ \"b\": \"\\u0078\",\n\"a\": 1 }", KEY));
    assert_ne!(of(r#"{"a":1}"#, KEY), of(r#"{"a":2}"#, KEY));
    assert_ne!(of(r#"{"a":1}"#, KEY), of(r#"{"a":1}"#, [8; 32]));
    assert!(!of(r#"{"a":"secret"}"#, KEY).contains("secret"));
}

#[test]
fn long_texts_are_cut_and_the_line_says_so() {
    let long = "é\n".repeat(MAX_ARGUMENTS);
    let arguments = RawJson::trusted(serde_json::to_vec(&serde_json::json!({ "a": long })).unwrap());
    let size = arguments.bytes().len();
    let entry = AuditEntry { arguments: Some(arguments), item: Some(long.into()), ..full() };
    let text = line(&entry, &LogSettings::new(&KEY, true));
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["arguments-bytes"], size);
    assert!(record["arguments"].is_string() && record["item"].as_str().unwrap().ends_with('…'));
    assert!(text.len() < 4 * MAX_ARGUMENTS && text.matches('\n').count() == 1, "{} bytes", text.len());
    assert_eq!(ChainHead::of_line(text.trim_end().as_bytes()).map(|head| head.seq), Some(1));
}

#[test]
fn a_log_that_nobody_touched_is_sound() {
    let (lines, head) = log(9);
    let text = lines.concat();
    let known = [ChainHead::of_line(lines[3].trim_ascii_end()).unwrap(), head];
    assert_eq!(verdict(&text, &known), Ok(SoundLog { head, torn: false, after: None }));
    assert_eq!(verdict(b"", &[]), Ok(SoundLog { head: ChainHead::none("main"), torn: false, after: None }));
    let torn = [&text, &lines[0][..20]].concat();
    assert_eq!(
        verdict(&torn, &known),
        Ok(SoundLog { head, torn: true, after: None }),
        "a crash after the last kept record"
    );
    let mut reader = ChainVerifier::new("main", known.to_vec()).beginning_anywhere();
    lines[5..].iter().for_each(|line| reader.line(line.trim_ascii_end()));
    assert_eq!(reader.end().map(|sound| sound.head), Ok(head), "the beginning is archived");
}

#[test]
fn the_first_bad_record_is_named_for_each_kind_of_damage() {
    let (lines, head) = log(9);
    let (mut chain, mut other) = (ChainWriter::after(ChainHead::none("main")), Vec::new());
    (0..9).for_each(|_| {
        chain.append(&AuditEntry::new(AuditEvent::Gateway), AT, &LogSettings::new(&KEY, false), &mut other)
    });
    let without = |from: usize, to: usize| [&lines[..from], &lines[to..]].concat().concat();
    let mut flipped = lines.clone();
    flipped[4][60] ^= 1;
    let mut swapped = lines.clone();
    swapped.swap(3, 6);
    let mut garbage = lines.clone();
    garbage.insert(2, b"{}\n".to_vec());
    let mut doubled = lines.clone();
    doubled.insert(5, lines[4].clone());
    let mut renumbered = lines.clone();
    renumbered[3] = String::from_utf8(lines[3].clone()).unwrap().replace("\"seq\":4", "\"seq\":04").into_bytes();
    let rows: Vec<(&str, Vec<u8>, u64, u64, RecordDefect)> = vec![
        ("flipped bit", flipped.concat(), 5, 5, RecordDefect::Changed),
        ("removed line", without(4, 5), 5, 6, RecordDefect::Removed { from: 5 }),
        ("removed lines", without(0, 3), 1, 4, RecordDefect::Removed { from: 1 }),
        ("swapped lines", swapped.concat(), 4, 7, RecordDefect::Reordered),
        ("doubled line", doubled.concat(), 6, 5, RecordDefect::Duplicate),
        ("foreign line", garbage.concat(), 3, 3, RecordDefect::NotARecord),
        ("another spelling of a number", renumbered.concat(), 4, 4, RecordDefect::NotARecord),
        ("cut at a line", without(7, 9), 8, 8, RecordDefect::CutOff { until: 9 }),
        ("cut in a line", [without(8, 9), lines[8][..50].to_vec()].concat(), 9, 9, RecordDefect::Torn),
        ("everything gone", Vec::new(), 1, 1, RecordDefect::CutOff { until: 9 }),
        ("written anew", other, 9, 9, RecordDefect::Changed),
    ];
    for (label, text, line, seq, what) in rows {
        assert_eq!(verdict(&text, &[head]), Err(BadRecord { segment: "file".to_owned(), line, seq, what }), "{label}");
    }
}

proptest! {
    #[test]
    fn any_single_change_of_any_byte_is_found(records in 1_u64..8, at in any::<prop::sample::Index>(), flip in 1_u8..) {
        let (lines, head) = log(records);
        let mut text = lines.concat();
        let at = at.index(text.len());
        text[at] ^= flip;
        prop_assert!(verdict(&text, &[head]).is_err());
    }

    #[test]
    fn any_removed_or_added_byte_is_found(records in 1_u64..8, at in any::<prop::sample::Index>(), add in any::<Option<u8>>()) {
        let (lines, head) = log(records);
        let mut text = lines.concat();
        let at = at.index(text.len());
        match add {
            Some(byte) => text.insert(at, byte),
            None => drop(text.remove(at)),
        }
        prop_assert!(verdict(&text, &[head]).is_err());
    }

    #[test]
    fn any_removal_is_found(records in 1_u64..20, a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>()) {
        let (mut lines, head) = log(records);
        let (a, b) = (a.index(lines.len()), b.index(lines.len()));
        lines.drain(a.min(b)..=a.max(b));
        let bad = verdict(&lines.concat(), &[head]).unwrap_err();
        prop_assert_eq!(bad.line, a.min(b) as u64 + 1);
    }

    #[test]
    fn any_swap_is_found(records in 2_u64..20, a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>()) {
        let (mut lines, head) = log(records);
        let (a, b) = (a.index(lines.len()), b.index(lines.len()));
        prop_assume!(a != b);
        lines.swap(a, b);
        let bad = verdict(&lines.concat(), &[head]).unwrap_err();
        prop_assert_eq!((bad.line, bad.what), (a.min(b) as u64 + 1, RecordDefect::Reordered));
    }

    #[test]
    fn any_cut_is_found(records in 1_u64..20, at in any::<prop::sample::Index>()) {
        let (lines, head) = log(records);
        let text = lines.concat();
        prop_assert!(verdict(&text[..at.index(text.len())], &[head]).is_err());
    }
}

#[test]
fn times_are_written_in_utc() {
    for (at, want) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_400_007, "2000-02-29T00:00:00.007Z"),
        (1_795_273_500_250, "2026-11-21T15:05:00.250Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "1970-01-01T00:00:00.000Z"),
        (u64::MAX, "1970-01-01T00:00:00.000Z"),
    ] {
        assert_eq!(timestamp(at), want);
    }
}

/// Returns a removal of the first `until` records.
fn removal(until: u64, hash: Digest) -> RecordRemoval {
    let (chain, since, to) = ("main".to_owned(), timestamp(AT), timestamp(AT + until));
    RecordRemoval { chain, from: 1, until, hash, since, to, files: 1, bad: None, mac: String::new() }
}

#[test]
fn a_removal_is_read_back_from_its_record_and_proved_by_its_key_alone() {
    let form = LogSettings::new(&KEY, false);
    let mut removal = removal(3, Digest::of(b"3"));
    form.vouch(&mut removal);
    let text = line(&AuditEntry::removal(removal.clone()), &form);
    let record = text.trim_end().as_bytes();
    assert_eq!(RecordRemoval::of_line(record), Some(removal.clone()), "{text}");
    assert_eq!(
        (date_of(record), ChainHead::before_line(record)),
        (Some(&*timestamp(AT)), Some(ChainHead::none("main")))
    );
    assert!(form.vouches(&removal) && !LogSettings::new(&[8; 32], false).vouches(&removal));
    let others: [fn(&mut RecordRemoval); 5] = [
        |removal| removal.chain.push('x'),
        |removal| removal.from += 1,
        |removal| removal.until += 1,
        |removal| removal.hash = Digest::of(b"4"),
        |removal| removal.mac.clear(),
    ];
    for change in others {
        let mut other = removal.clone();
        change(&mut other);
        assert!(!form.vouches(&other), "{other:?}");
    }
    // A client's text that looks like a removal is none.
    let arguments = RawJson::trusted(format!(r#"{{"a":1,"removed":{}}}"#, serde_json::to_string(&removal).unwrap()));
    let call = AuditEntry { arguments: Some(arguments), result: RecordRemoval::RESULT, ..full() };
    assert_eq!(RecordRemoval::of_line(line(&call, &LogSettings::new(&KEY, true)).trim_end().as_bytes()), None);
}

/// Verifies lines whose chain may begin after one of the `removed` records.
fn later(lines: &[Vec<u8>], known: &[ChainHead], removed: &[ChainHead]) -> Result<SoundLog, RecordDefect> {
    let mut reader = ChainVerifier::new("main", known.to_vec()).beginning_after(removed.to_vec());
    reader.segment("file");
    lines.iter().for_each(|line| reader.line(line.strip_suffix(b"\n").unwrap()));
    reader.end().map_err(|bad| bad.what)
}

#[test]
fn a_chain_may_begin_after_a_removal_and_nowhere_else() {
    let (lines, head) = log(9);
    let at = |seq: usize| ChainHead::of_line(lines[seq - 1].strip_suffix(b"\n").unwrap()).unwrap();
    let other = ChainHead { seq: 4, hash: Digest::of(b"other") };
    let sound = SoundLog { head, torn: false, after: Some(at(4)) };
    assert_eq!(later(&lines[4..], &[head], &[at(4)]), Ok(sound));
    assert_eq!(later(&lines[4..], &[at(2), at(4), at(7)], &[at(2), at(4)]), Ok(sound), "of several the one that fits");
    assert_eq!(later(&lines, &[head], &[at(4)]).unwrap().after, None, "the files are still there");
    let unfinished = SoundLog { after: Some(at(3)), ..sound };
    assert_eq!(later(&lines[3..], &[at(2), head], &[at(4), at(6)]), Ok(unfinished), "the removal was interrupted");
    assert_eq!(later(&lines[4..], &[head], &[at(6)]), Ok(sound), "likewise");
    for (label, from, known, removed) in [
        ("no removal", 4, vec![head], vec![]),
        ("more is gone", 5, vec![head], vec![at(4)]),
        ("an interrupted removal of another record", 3, vec![head], vec![other]),
        ("one of records that are not there", 3, vec![], vec![ChainHead { seq: 12, ..other }]),
        ("another record", 4, vec![head], vec![other]),
        ("a removal of what is kept elsewhere", 4, vec![other, head], vec![at(4)]),
        ("all is gone", 9, vec![head], vec![at(4)]),
    ] {
        let verdict = later(&lines[from..], &known, &removed);
        assert!(verdict.is_err(), "{label}: {verdict:?}");
    }
    let mut gap = lines[4..].to_vec();
    gap.remove(2);
    assert_eq!(later(&gap, &[head], &[at(4), at(6)]), Err(RecordDefect::Removed { from: 7 }), "at its begin alone");
}

#[test]
fn a_line_is_read_as_it_was_written_and_a_changed_one_is_none() {
    use crate::mcp::client_name::ClientName;
    use crate::mcp::definition::annotations::{Annotations, Hints};
    use crate::mcp::definition::claims::Claims;
    use crate::policy::action::ToolFacts;
    let claims = Claims { hints: Hints { read_only: Some(true), ..Hints::default() }, may_open: true };
    let facts = ToolFacts { annotations: Annotations { known_destructive: true, ..Annotations::ASSUMED }, claims };
    let client = ClientName::read(&RawJson::trusted(r#"{"name":"desk \"1\"","version":"2"}"#));
    let entry = AuditEntry { client, profile: Some("view".into()), facts: Some(facts), ..full() };
    for (keeps, want) in [(true, LoggedArguments::Whole(r#"{"a":2,"b":1}"#)), (false, LoggedArguments::Not)] {
        let text = line(&entry, &LogSettings::new(&KEY, keeps));
        let text = text.trim_end().as_bytes();
        let read = AuditLine::read(text).unwrap();
        assert_eq!(
            (&*read.ts, &*read.event, read.seq, read.us),
            ("2026-11-21T10:15:00.250Z", "decision", 1, Some(2000))
        );
        let members = [&read.call, &read.caller, &read.client, &read.profile, &read.upstream, &read.kind, &read.item];
        let want_members = ["ff", "ci", "desk \"1\" 2", "view", "fs", "tool", "fs__\"a\"\n"];
        assert_eq!(members.map(|member| member.as_deref().unwrap()), want_members);
        assert_eq!((read.facts(), read.arguments()), (Some(facts), want));
        for at in 0..text.len() {
            let mut changed = text.to_vec();
            changed[at] ^= 1;
            assert!(AuditLine::read(&changed).is_none(), "byte {at}");
        }
    }
    let none = line(&AuditEntry { arguments: None, ..entry }, &LogSettings::new(&KEY, true));
    assert_eq!(AuditLine::read(none.trim_end().as_bytes()).unwrap().arguments(), LoggedArguments::None);
}
