//! Open approvals that a daemon passes to the one that takes over.

use super::*;
use crate::store::approvals::ApprovalWait;

/// Two daemons on one store. What the first passes on, the second adopts.
struct Daemons {
    old: Approvals,
    new: Approvals,
    later: mpsc::Receiver<PassedApproval>,
    _dir: tempfile::TempDir,
}

impl Daemons {
    /// Opens two daemons, and prepares the first one by `before`, which may keep a call waiting.
    fn new<T>(before: impl FnOnce(&Approvals) -> T) -> (Self, T) {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (kept(&dir), kept(&dir));
        [&old, &new].into_iter().for_each(|daemon| daemon.keep_operator(SettingOwner::Daemon));
        let prepared = before(&old);
        // Else the row of the first daemon could be written over that of the second.
        old.inner.db.as_ref().unwrap().all_so_far().run_now().unwrap();
        let (sender, later) = mpsc::channel(9);
        for passed in old.pass_on(sender) {
            new.adopt(sent(&passed));
        }
        (Self { old, new, later, _dir: dir }, prepared)
    }

    async fn written(&self) {
        for daemon in [&self.old, &self.new] {
            daemon.inner.db.as_ref().unwrap().all_so_far().run().await.unwrap();
        }
    }
}

/// Returns the approval as it arrives in another process.
fn sent(passed: &PassedApproval) -> PassedApproval {
    let arrived = serde_json::from_str(&serde_json::to_string(passed).unwrap()).unwrap();
    assert_eq!(&arrived, passed);
    arrived
}

fn wait(approvals: &Approvals, item: &str) -> ApprovalWait {
    let life = ApprovalLife::Person(Duration::from_secs(900));
    let named = Some(ClientName { name: Arc::from("agent"), version: Some(Arc::from("1")) });
    let arguments = RawJson::trusted(r#"{"path":"/a"}"#);
    let shown = CallDetails::new("echo", StatedHints::default(), Some(&arguments)).asked_by(named);
    approvals.ask_for(asked("ci", item, "{}"), shown, life, None, AuditEntry::new(AuditEvent::Prompt)).unwrap()
}

#[tokio::test]
async fn an_approval_without_a_call_goes_over_as_it_is_and_its_answer_counts_there() {
    let (daemons, (id, view)) = Daemons::new(|old| {
        let seat = wait(old, "fx__left");
        let (id, view) = (seat.approval(), old.view(&seat.approval()).unwrap());
        drop(seat);
        (id, view)
    });
    let Daemons { old, new, .. } = &daemons;
    assert!(old.approval(&id).is_none());
    let there = new.view(&id).unwrap();
    assert_eq!((&there.message, there.until, &there.digest), (&view.message, view.until, &view.digest));
    daemons.written().await;
    let text = id.to_string();
    let answering = old.operator_answers(&text, None, OperatorAnswer::parse("once").unwrap(), "uid:1");
    tokio::pin!(answering);
    let answered = loop {
        tokio::select! {
            answered = &mut answering => break answered,
            () = tokio::time::sleep(Duration::from_millis(5)) => {
                old.follow().await;
                new.follow().await;
            }
        }
    };
    assert!(answered.is_ok(), "{answered:?}");
    let grant = new.grants().iter().next().cloned().unwrap();
    old.follow().await;
    let there = old.grants().iter().next().cloned().unwrap();
    assert!(new.consume(&grant).await.is_ok() && old.consume(&there).await.is_err(), "it counts once");
}

#[tokio::test]
async fn an_approval_whose_call_waits_follows_once_the_call_has_ended() {
    let (mut daemons, seat) = Daemons::new(|old| wait(old, "fx__held"));
    let id = seat.approval();
    assert!(daemons.old.is_awaited("fx") && daemons.new.approval(&id).is_none());
    assert!(daemons.later.try_recv().is_err());
    seat.carry();
    let passed = daemons.later.try_recv().unwrap();
    daemons.new.adopt(sent(&passed));
    assert!(!daemons.old.is_awaited("fx") && daemons.new.asked_at(&id).is_some(), "its client comes back");
    let seat = wait(&daemons.new, "fx__other");
    assert!(seat.approval() != id && daemons.new.open_approvals().len() == 2);
}

#[tokio::test]
async fn approvals_that_were_not_adopted_are_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let old = kept(&dir);
    let left = wait(&old, "fx__left").approval();
    let held = wait(&old, "fx__held");
    let id = held.approval();
    let (sender, later) = mpsc::channel(1);
    let passed = old.pass_on(sender);
    drop(held);
    assert_eq!((passed.len(), old.approval(&left), old.approval(&id)), (1, None, None));
    old.take_back(passed, later);
    drop(wait(&old, "fx__other"));
    assert_eq!(old.open_approvals().len(), 3);
}
