//! Grants below a folder: they are stored, listed, recorded and revoked; and rows that cannot be
//! read.

use super::*;
use crate::policy::consent::{GrantView, ReservedFolders};

fn call(path: &str) -> (RawJson, ApprovalSubject, CallDetails) {
    let json = RawJson::trusted(format!(r#"{{"path":"{path}","content":"x"}}"#));
    let asked = asked("ci", "fx__write", &json.text());
    let shown = CallDetails::new("write", StatedHints::default(), Some(&json));
    (json, ApprovalSubject { need: ApprovalEvidence::Page, destructive: true, ..asked }, shown)
}

fn covers(approvals: &Approvals, path: &str) -> bool {
    let (json, asked, _) = call(path);
    approvals.grants().claim_call(&asked, Some(&json), approvals.wall(), None).is_some()
}

fn guarded(approvals: Approvals) -> Approvals {
    approvals.set_places(ReservedFolders { homes: vec!["/home/me".into()], own: vec!["/srv/app/state".into()] });
    approvals
}

#[tokio::test]
async fn an_operator_allows_calls_below_a_folder_until_that_is_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let approvals = guarded(kept(&dir));
    let db = approvals.inner.db.clone().unwrap();
    let audit = full_queue::log(dir.path(), db.clone(), &Metrics::new().unwrap());
    approvals.record_in(audit.clone());
    let (_, asked, shown) = call("/srv/app/a");
    let id = approvals.ask(asked.clone(), shown).unwrap().to_string();
    let offered = approvals.show(&id).await.unwrap().unwrap();
    let bases: Vec<&str> = offered.offers().iter().map(|one| one.base.as_str()).collect();
    assert_eq!(bases, ["/srv/app", "/srv"]);
    for (base, why) in [("/", "home"), ("/srv/other", "is not below"), ("/home/me", "home"), ("x", "absolute")] {
        let refused =
            approvals.operator_answers(&id, None, OperatorAnswer::Below(Arc::from(base)), "uid:1").await.unwrap_err();
        assert!(refused.contains(why), "{base}: {refused}");
    }
    let (known, answer) = (ApprovalId::parse(&id).unwrap(), PersonAnswer::AllowBelow("/srv/app".into()));
    let client = approvals.answer(&known, answer, ApprovalEvidence::Client, "client").await;
    assert_eq!(client, Err(AnswerError::Evidence(ApprovalEvidence::Page)));
    let wish = OperatorAnswer::Below(Arc::from("/srv/app"));
    assert_eq!(approvals.operator_answers(&id, None, wish, "uid:1").await.unwrap().word, "granted");
    let holds = |approvals: &Approvals| {
        ["/srv/app/b/c", "/srv/other", "/srv/app/state/x", "/srv/app/.git/x"].map(|path| covers(approvals, path))
    };
    assert_eq!(holds(&approvals), [true, false, false, false]);
    audit.flush().await;
    let log = std::fs::read_to_string(dir.path().join("audit/audit-main-000001.jsonl")).unwrap();
    assert!(log.contains(r#""why":"below /srv/app, judged by /path""#), "{log}");

    approvals.inner.db.as_ref().unwrap().all_so_far().run().await.unwrap();
    let next = guarded(kept(&dir));
    assert_eq!(holds(&next), [true, false, false, false], "over a restart");
    let row = next.grants().iter().next().unwrap().row();
    let listed = GrantView::from(&row);
    let texts = [&listed.arguments, listed.below.as_ref().unwrap(), &listed.lifetime];
    assert_eq!(texts, ["below", "/srv/app", "until-changed"]);
    assert!(listed.covers.unwrap().contains("Symbolic links"));
    assert_eq!(next.revoke(Some(&row.id), "uid:1").await.unwrap(), 1);
    assert_eq!(holds(&next), [false; 4]);
}

#[tokio::test]
async fn an_answer_below_a_folder_reaches_the_process_that_asks() {
    let dir = tempfile::tempdir().unwrap();
    let approvals = guarded(kept(&dir));
    let (_, asked, shown) = call("/srv/app/a b");
    let id = approvals.ask(asked, shown).unwrap();
    approvals.settle().await;
    let beside = Db::open(dir.path()).unwrap();
    let shown = Some(approvals.approval(&id).unwrap().digest());
    let stop = tokio_util::sync::CancellationToken::new();
    let (_, outcome) = tokio::join!(approvals.clone().run(stop.clone()), async {
        let wish = OperatorAnswer::Below(Arc::from("/srv/app/a b"));
        let outcome = beside::leave_answer(&beside, &id.to_string(), shown, wish, "uid:1").await;
        stop.cancel();
        outcome
    });
    assert_eq!(outcome, Ok(AnswerOutcome::of(ApprovalEnd::Granted, true)));
    assert_eq!(["/srv/app/a b/c", "/srv/app/a"].map(|path| covers(&approvals, path)), [true, false]);
}

#[tokio::test]
async fn a_row_below_a_folder_that_cannot_be_read_covers_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let approvals = guarded(kept(&dir));
    let (_, asked, shown) = call("/srv/app/a");
    let id = approvals.ask(asked, shown).unwrap();
    approvals
        .answer(&id, PersonAnswer::AllowBelow("/srv/app".into()), ApprovalEvidence::Page, "console")
        .await
        .unwrap();
    let db = approvals.inner.db.clone().unwrap();
    assert!(covers(&guarded(kept(&dir)), "/srv/app/b"));
    for damage in [
        "UPDATE grants SET below = NULL",
        "UPDATE grants SET below = '{}'",
        "UPDATE grants SET below = '{\"base\":\"/srv/..\",\"judged\":[\"/path\"],\"members\":[\"text /path\"]}'",
        "UPDATE grants SET scope = 'any', below = 'x'",
    ] {
        db.damage(damage);
        assert!(!covers(&guarded(kept(&dir)), "/srv/app/b"), "{damage}");
    }
}
