//! Tests that the record of a decision is on disk before its call is sent.

use tempfile::TempDir;

use super::*;
use crate::policy::records::chain::RetentionBounds;
use crate::policy::{AuditEntry, AuditEvent};
use crate::store::audit::{AuditLog, AuditLogOptions, MAIN};
use crate::telemetry::metrics::Metrics;

/// Opens an audit log in which every record needs a new file.
fn audit(dir: &Path, db: Db) -> AuditLog {
    let options = AuditLogOptions {
        folder: dir.join("audit"),
        chain: MAIN.to_owned(),
        arguments: false,
        strict: false,
        deny: true,
        max_segment: 1,
        retain: RetentionBounds::default(),
    };
    AuditLog::open(options, db, Metrics::new().unwrap().audit()).unwrap()
}

fn decision(n: usize) -> AuditEntry {
    action(n).entry(AuditEvent::Decision, Some(1))
}

#[tokio::test]
async fn a_call_whose_record_cannot_be_written_is_refused_and_uses_up_no_grant() {
    let dir = TempDir::new().unwrap();
    let db = Db::open(dir.path()).unwrap();
    db.keep_grant(once(7, &action(7)), None).then(|outcome| assert!(outcome.unwrap()));
    db.all_so_far().run_now().unwrap();
    let audit = audit(dir.path(), db.clone());
    let approvals = Arc::new(Approvals::open(db, &ApprovalSettings::default()).unwrap());
    let claim = || approvals.grants().claim(&asked(&action(7)), approvals.wall(), None).map(|claimed| claimed.spend());
    audit.record(decision(0), true).written().await.unwrap();
    let (folder, aside) = (dir.path().join("audit"), dir.path().join("aside"));
    fs::rename(&folder, &aside).unwrap();

    let grant = claim().unwrap();
    let mut gate = DiskGate::new(&approvals, audit.record(decision(7), true), Some(&grant), None, None, false).unwrap();
    assert!(claim().is_none(), "the grant is this call's");
    let refused = gate.pass().await.unwrap_err();
    assert_eq!(
        (refused.reason, refused.executed),
        (FailureReason::Unrecorded, ExecutionDoubt::No),
        "{}",
        refused.detail
    );
    drop((gate, grant));
    let mut gate = DiskGate::new(&approvals, audit.record(decision(8), true), None, None, None, false).unwrap();
    assert_eq!(gate.pass().await.unwrap_err().reason, FailureReason::Unrecorded, "a call without a grant");

    fs::rename(&aside, &folder).unwrap();
    let grant = claim().expect("it was given back");
    let mut gate = DiskGate::new(&approvals, audit.record(decision(7), true), Some(&grant), None, None, false).unwrap();
    gate.pass().await.unwrap();
    drop((gate, grant));
    assert!(claim().is_none(), "now it is used up");
}
