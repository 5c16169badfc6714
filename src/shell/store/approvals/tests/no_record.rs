//! Answers while the disk takes no records: there is no grant without its record.

use std::fs;
use std::path::Path;

use super::full_queue::records;
use super::*;
use crate::policy::records::chain::RetentionBounds;
use crate::store::audit::{AuditLogOptions, MAIN};
use crate::telemetry::metrics::Metrics;

/// Opens a log that begins a segment with each batch of records, so that it takes none while its
/// folder is missing.
fn log(dir: &Path, db: Db, metrics: &Metrics) -> AuditLog {
    let options = AuditLogOptions {
        folder: dir.join("audit"),
        chain: MAIN.to_owned(),
        arguments: false,
        strict: false,
        deny: true,
        max_segment: 1,
        retain: RetentionBounds::default(),
    };
    AuditLog::open(options, db, metrics.audit()).unwrap()
}

fn result(id: ApprovalId, word: &str) -> (String, String, String) {
    ("answer".to_owned(), id.to_string(), word.to_owned())
}

#[tokio::test]
async fn a_grant_is_nowhere_before_its_record_is_on_disk() {
    for lifetime in [GrantLifetime::Once, GrantLifetime::Session, GrantLifetime::UntilChanged] {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let approvals = Approvals::open(db.clone(), &limits()).unwrap();
        let audit = log(dir.path(), db.clone(), &Metrics::new().unwrap());
        approvals.record_in(audit.clone());
        let id = approvals.ask(asked("ci", "fx__a", "{}"), shown()).unwrap();
        let writer = audit.hold().await;
        {
            let mut yes =
                Box::pin(approvals.answer(&id, PersonAnswer::Allow(lifetime), ApprovalEvidence::Operator, "uid:1"));
            assert!(futures_util::poll!(&mut yes).is_pending(), "{lifetime:?}");
        }
        db.all_so_far().run().await.unwrap();
        let stored = Approvals::open(db.clone(), &limits()).unwrap();
        assert_eq!((approvals.grants().len(), stored.grants().len()), (0, 0), "{lifetime:?}");
        drop(writer);
        assert_eq!(approvals.settled(&id).await, ApprovalEnd::Granted, "though the task that answered is gone");
        assert!(records(dir.path()).contains(&result(id, "granted")), "{lifetime:?}");
        assert_eq!(approvals.grants().len(), 1, "{lifetime:?}");
    }
}

#[tokio::test]
async fn a_disk_that_takes_no_records_grants_nothing_and_gets_the_denials_later() {
    for lifetime in [GrantLifetime::Once, GrantLifetime::Session, GrantLifetime::UntilChanged] {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let metrics = Metrics::new().unwrap();
        let approvals = Approvals::open(db.clone(), &limits()).unwrap();
        let audit = log(dir.path(), db.clone(), &metrics);
        approvals.record_in(audit.clone());
        let ask = |name: &str| approvals.ask(asked("ci", name, "{}"), shown()).unwrap();
        let (yes, no) = (ask("fx__a"), ask("fx__b"));
        audit.flush().await;
        let (folder, aside) = (dir.path().join("audit"), dir.path().join("aside"));
        fs::rename(&folder, &aside).unwrap();

        let granted = approvals.answer(&yes, PersonAnswer::Allow(lifetime), ApprovalEvidence::Operator, "uid:1").await;
        let why = AnswerError::NotKept("the audit log takes no records".to_owned());
        assert_eq!(granted, Err(why), "{lifetime:?}");
        let denied = approvals.answer(&no, PersonAnswer::Deny, ApprovalEvidence::Operator, "uid:1").await;
        assert_eq!(denied, Ok(ApprovalEnd::Denied), "a denial takes effect at once");
        audit.flush().await;
        fs::rename(&aside, &folder).unwrap();
        audit.flush().await;

        let stored = Approvals::open(db.clone(), &limits()).unwrap();
        assert_eq!((approvals.grants().len(), stored.grants().len()), (0, 0), "{lifetime:?}");
        let all = records(dir.path());
        assert!(all.contains(&result(no, "denied")) && all.contains(&result(yes, "dismissed")), "{all:?}");
        assert!(!all.contains(&result(yes, "granted")), "{all:?}");
        assert!(audit.loss().unwrap().contains("lost: 1,"), "the record of the grant that was refused");
        assert!(metrics.render().contains("headend_audit_failures_total 1"));
    }
}
