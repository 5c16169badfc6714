//! Answers while the queue of the audit log is full: each is in the log once, or is counted as
//! lost.

use std::collections::HashMap;
use std::path::Path;

use super::*;
use crate::policy::records::chain::RetentionBounds;
use crate::store::audit::past::{FoundLine, LogReading, ReadingStart};
use crate::store::audit::{AuditLogOptions, LogFolder, MAIN, RecordState};
use crate::store::port::ForeignAnswer;
use crate::telemetry::metrics::Metrics;

/// Number of answers of each kind.
const ANSWERS: usize = 512;

pub(super) fn log(dir: &Path, db: Db, metrics: &Metrics) -> AuditLog {
    let options = AuditLogOptions {
        folder: dir.join("audit"),
        chain: MAIN.to_owned(),
        arguments: false,
        strict: false,
        deny: true,
        max_segment: 64 << 20,
        retain: RetentionBounds::default(),
    };
    AuditLog::open(options, db, metrics.audit()).unwrap()
}

/// Builds a record that may take every place of the queue.
fn filling() -> AuditEntry {
    AuditEntry::new(AuditEvent::Action)
}

/// Reads the members `event`, `prompt` or `grant`, and `result` of all records, oldest first.
pub(super) fn records(dir: &Path) -> Vec<(String, String, String)> {
    let mut past = LogReading::begin(LogFolder::at(dir.join("audit")), &ReadingStart::Latest).unwrap();
    let mut all = Vec::new();
    while let Some(found) = past.next() {
        let FoundLine::Record { line, .. } = found else { panic!("a damaged line") };
        let about = if line.event == "revoke" { &line.grant } else { &line.approval };
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        all.push((line.event.to_string(), text(about.as_deref()), text(line.result.as_deref())));
    }
    all.reverse();
    all
}

/// Counts the records of that kind by subject and result.
fn counts(all: &[(String, String, String)], kind: &str) -> HashMap<(String, String), usize> {
    let mut counts = HashMap::new();
    for (_, about, result) in all.iter().filter(|(event, ..)| event == kind) {
        *counts.entry((about.clone(), result.clone())).or_default() += 1;
    }
    counts
}

/// Answers over one of the five channels, by its number.
async fn answer_over(channel: usize, approvals: &Approvals, id: ApprovalId, wish: OperatorAnswer) {
    let text = id.to_string();
    let shown = approvals.approval(&id).unwrap().digest();
    let (answer, by) = (wish.answer(approvals.wall()), "someone");
    let outcome = match channel % 5 {
        0 => approvals.answer(&id, answer, ApprovalEvidence::Client, by).await.map_err(|why| why.to_string()),
        1 => approvals
            .answer_shown(&(id, shown), answer, ApprovalEvidence::Page, by)
            .await
            .map_err(|why| why.to_string()),
        2 => {
            let answered = approvals.answer_group(&[(id, shown)], answer, ApprovalEvidence::Page, by).await.unwrap();
            answered.into_iter().next().unwrap().map_err(|why| why.to_string())
        }
        3 => return assert!(approvals.operator_answers(&text, Some(shown), wish, by).await.is_ok()),
        _ => {
            let answered = ForeignAnswer { approval: text, answer: wish.to_string(), by: by.to_owned() };
            approvals.take(answered).await;
            return;
        }
    };
    outcome.unwrap();
}

#[tokio::test]
async fn of_answers_and_revocations_before_a_full_queue_each_is_recorded_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let metrics = Metrics::new().unwrap();
    let limits = ApprovalSettings { per_minute: 100, max_open: 2 * ANSWERS, ..ApprovalSettings::default() };
    let approvals = Approvals::open(db.clone(), &limits).unwrap();
    let audit = log(dir.path(), db, &metrics);
    approvals.record_in(audit.clone());
    let writer = audit.hold().await;
    while let RecordState::Accepted = audit.record(filling(), false) {}

    let mut wanted: HashMap<(String, String), usize> = HashMap::new();
    let mut waiting = Vec::new();
    for n in 0..ANSWERS {
        let [yes, no] =
            ["yes", "no"].map(|word| approvals.ask(asked("ci", &format!("fx__{n}_{word}"), "{}"), shown()).unwrap());
        let mut granted = Box::pin(answer_over(n, &approvals, yes, OperatorAnswer::Once));
        assert!(futures_util::poll!(&mut granted).is_pending(), "its record is not on disk");
        waiting.push((yes, granted));
        answer_over(n, &approvals, no, OperatorAnswer::Deny).await;
        assert_eq!(approvals.settled(&no).await, ApprovalEnd::Denied, "it has taken effect");
        wanted.extend([(yes, "granted"), (no, "denied")].map(|(id, word)| ((id.to_string(), word.to_owned()), 1)));
    }
    assert_eq!((approvals.grants().len(), wanted.len()), (0, 2 * ANSWERS));
    drop(writer);
    for (id, granted) in waiting {
        granted.await;
        assert_eq!(approvals.settled(&id).await, ApprovalEnd::Granted);
    }
    let writer = audit.hold().await;
    while let RecordState::Accepted = audit.record(filling(), false) {}
    let grants: Vec<Arc<str>> = approvals.grants().iter().map(|grant| Arc::clone(grant.id())).collect();
    assert_eq!((grants.len(), approvals.revoke(None, "uid:1").await.unwrap()), (ANSWERS, ANSWERS));
    assert_eq!(approvals.grants().len(), 0, "a revocation takes effect at once");
    drop(writer);
    audit.flush().await;

    let all = records(dir.path());
    assert_eq!(counts(&all, "answer"), wanted);
    let revoked = grants.iter().map(|id| ((id.to_string(), "revoked".to_owned()), 1)).collect();
    assert_eq!(counts(&all, "revoke"), revoked);
    assert_eq!(counts(&all, "prompt").len(), 2 * ANSWERS);
    assert!(counts(&all, "gateway").is_empty(), "nothing is missing");
    assert!(metrics.render().contains("headend_audit_failures_total 0"));
    assert_eq!(audit.loss(), None);
}

#[tokio::test]
async fn a_record_without_a_place_is_lost_aloud_and_a_grant_waits_for_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let metrics = Metrics::new().unwrap();
    let approvals = Approvals::open(db.clone(), &limits()).unwrap();
    let audit = log(dir.path(), db, &metrics);
    approvals.record_in(audit.clone());
    let ask = |name: &str| approvals.ask(asked("ci", name, "{}"), shown()).unwrap();
    let (granted, denied) = (ask("fx__a"), ask("fx__b"));
    let writer = audit.hold().await;
    let mut handed_over = 0_u64;
    while audit.loss().is_none() {
        drop(audit.record(filling(), false));
        handed_over += 1;
    }
    assert_eq!(handed_over, 1024 + 2 * 16 * 1024 + 1, "the bound of the queue");

    let no = approvals.answer(&denied, PersonAnswer::Deny, ApprovalEvidence::Operator, "uid:1").await;
    assert_eq!(no, Ok(ApprovalEnd::Denied), "at once, though its record is lost");
    let yes =
        approvals.answer(&granted, PersonAnswer::Allow(GrantLifetime::Session), ApprovalEvidence::Operator, "uid:1");
    tokio::pin!(yes);
    assert!(futures_util::poll!(&mut yes).is_pending(), "its record has no place");
    assert!(approvals.approval(&granted).is_some() && approvals.grants().len() == 0);
    assert!(audit.loss().unwrap().contains("lost: 2,"));
    assert!(metrics.render().contains("headend_audit_failures_total 2"), "counted as they are lost");
    drop(writer);
    assert_eq!(yes.await, Ok(ApprovalEnd::Granted));
    audit.record(filling(), true).written().await.unwrap();
    audit.flush().await;

    let all = records(dir.path());
    assert_eq!(counts(&all, "answer"), HashMap::from([((granted.to_string(), "granted".to_owned()), 1)]));
    assert_eq!(counts(&all, "action").values().sum::<usize>() as u64, handed_over, "one was lost, one came later");
    assert_eq!(counts(&all, "gateway"), HashMap::from([((String::new(), "lost".to_owned()), 1)]));
    assert!(metrics.render().contains("headend_audit_failures_total 2"));
}

#[tokio::test]
async fn calls_and_their_ends_keep_no_record_of_an_operator_out() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let metrics = Metrics::new().unwrap();
    let limits = ApprovalSettings { per_minute: 100, max_open: 100, ..ApprovalSettings::default() };
    let approvals = Approvals::open(db.clone(), &limits).unwrap();
    let audit = log(dir.path(), db, &metrics);
    approvals.record_in(audit.clone());
    let ids: Vec<_> =
        (0..64).map(|n| approvals.ask(asked("ci", &format!("fx__{n}"), "{}"), shown()).unwrap()).collect();
    audit.flush().await;
    let writer = audit.hold().await;
    // Clients make calls that a rule denies, and disconnect.
    let refused = |_| audit.record(AuditEntry::new(AuditEvent::Decision), false);
    let denials: Vec<_> = (0..1030).map(refused).collect();
    let waiting = denials.iter().filter(|record| record.waits_for_place()).count();
    assert_eq!((waiting, audit.loss()), (6, None), "the tasks of the last calls keep their records");
    drop(denials);
    assert!(audit.loss().unwrap().contains("lost: 6,"), "no client waits for them any more");
    let mut ends = 0;
    while !audit.loss().unwrap().contains("lost: 7,") {
        drop(audit.record(AuditEntry::new(AuditEvent::Outcome), false));
        ends += 1;
    }
    assert_eq!(ends, 16 * 1024 + 1, "ends of calls have places of their own");

    for id in &ids {
        assert_eq!(
            approvals.answer(id, PersonAnswer::Deny, ApprovalEvidence::Operator, "uid:1").await,
            Ok(ApprovalEnd::Denied)
        );
    }
    let mut late = Box::pin(audit.record(AuditEntry::new(AuditEvent::Decision), false).written());
    assert!(futures_util::poll!(&mut late).is_pending());
    drop(writer);
    late.await.unwrap();
    audit.flush().await;
    let all = records(dir.path());
    let denied = ids.iter().map(|id| ((id.to_string(), "denied".to_owned()), 1)).collect();
    assert_eq!(counts(&all, "answer"), denied, "each denial is in the log once");
    assert_eq!(counts(&all, "decision").values().sum::<usize>(), 1024 + 1);
    assert!(metrics.render().contains("headend_audit_failures_total 7"));
}
