//! Approvals of the same action on two replicas of a cluster.

use super::*;

/// Returns two replicas on one store; `None` for a store of one machine.
fn replicas(dir: &tempfile::TempDir) -> Option<[Approvals; 2]> {
    let [one, two] = [kept(dir), kept(dir)];
    one.db()?.replicas().map(|_| [one, two])
}

/// Opens an approval for a call that waits, and waits until it is listed.
async fn wait(approvals: &Approvals) -> ApprovalWait {
    let (asked, life) = (asked("ci", "fx__echo", "{}"), ApprovalLife::Person(Duration::from_secs(900)));
    let mut seat = approvals.ask_for(asked, shown(), life, None, AuditEntry::new(AuditEvent::Prompt)).unwrap();
    assert!(!seat.is_listed(), "nobody may be told of an id that the store has not decided");
    assert_eq!(seat.wait_until_listed().await, Some(seat.approval()));
    seat
}

async fn answer(approvals: &Approvals, id: ApprovalId, answer: PersonAnswer) -> Result<ApprovalEnd, AnswerError> {
    approvals.answer(&id, answer, ApprovalEvidence::Page, "page").await
}

/// Waits until a replica knows how an approval ended on another one.
async fn end_on(approvals: &Approvals, id: ApprovalId) -> ApprovalEnd {
    approvals.follow().await;
    let changes = approvals.db().unwrap().approvals_changed(approvals.inner.owner(), -1).run().await;
    assert!(changes.unwrap().unwrap().ended.is_empty(), "the store knows that this replica knows");
    approvals.settled(&id).await
}

#[tokio::test]
async fn the_same_action_is_asked_about_once_and_each_answer_reaches_both_replicas() {
    let dir = tempfile::tempdir().unwrap();
    let Some([one, two]) = replicas(&dir) else { return };
    let action = asked("ci", "fx__echo", "{}");
    let claim = |approvals: &Approvals| approvals.grants().claim(&action, approvals.wall(), None);

    // Once: one of both calls is made, the other one is asked about anew.
    let seats = [wait(&one).await, wait(&two).await];
    let id = seats[0].approval();
    assert_eq!(seats[1].approval(), id);
    assert_eq!(one.all_approvals().await.unwrap().len(), 1);
    assert_eq!(answer(&two, id, PersonAnswer::Allow(GrantLifetime::Once)).await, Ok(ApprovalEnd::Granted));
    assert_eq!(end_on(&one, id).await, ApprovalEnd::Granted);
    let [first, second] = [two.grants().claim(&action, two.wall(), Some(&id)), claim(&one)];
    assert!(two.consume(&first.unwrap().spend()).await.is_ok());
    assert_eq!(one.consume(&second.unwrap().spend()).await, Err(GrantUseError::Already));
    drop(seats);
    let anew = wait(&one).await.approval();
    assert!(anew != id);
    assert_eq!(answer(&one, anew, PersonAnswer::Dismiss).await, Ok(ApprovalEnd::Dismissed));

    // A denial refuses the action on both.
    let seats = [wait(&one).await, wait(&two).await];
    let id = seats[0].approval();
    assert_eq!(answer(&one, id, PersonAnswer::Deny).await, Ok(ApprovalEnd::Denied));
    one.db().unwrap().all_so_far().run().await.unwrap();
    assert_eq!(end_on(&two, id).await, ApprovalEnd::Denied);
    assert!(matches!(two.ask(action.clone(), shown()), Err(ApprovalRefusal::Declined)));
    assert_eq!(answer(&two, id, PersonAnswer::Allow(GrantLifetime::Once)).await, Ok(ApprovalEnd::Granted), "after all");
}

#[tokio::test]
async fn an_approval_that_two_replicas_have_open_is_answered_once() {
    let dir = tempfile::tempdir().unwrap();
    let Some([one, two]) = replicas(&dir) else { return };
    let seats = [wait(&one).await, wait(&two).await];
    let id = seats[0].approval();
    let yes = || PersonAnswer::Allow(GrantLifetime::Once);
    let outcomes = tokio::join!(answer(&one, id, yes()), answer(&two, id, yes()));
    assert!((outcomes.0 == Ok(ApprovalEnd::Granted)) != (outcomes.1 == Ok(ApprovalEnd::Granted)), "{outcomes:?}");
    for approvals in [&one, &two] {
        assert_eq!(end_on(approvals, id).await, ApprovalEnd::Granted);
        assert_eq!(approvals.grants().len(), 1);
    }
}

#[tokio::test]
async fn an_approval_of_a_replica_that_is_gone_goes_on_at_the_one_that_is_asked_next() {
    let dir = tempfile::tempdir().unwrap();
    let Some([one, two]) = replicas(&dir) else { return };
    let (id, command) = (wait(&one).await.approval(), kept(&dir));
    drop(one);
    assert_eq!(wait(&two).await.approval(), id);
    let judging = async {
        loop {
            two.follow().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let id = id.to_string();
    let outcome = tokio::select! {
        outcome = command.operator_answers(&id, None, OperatorAnswer::Once, "uid:1") => outcome.unwrap(),
        () = judging => return,
    };
    assert_eq!(outcome.word, "granted");
}

#[tokio::test]
async fn an_approval_that_the_store_does_not_take_is_not_open() {
    let dir = tempfile::tempdir().unwrap();
    let Some([one, _]) = replicas(&dir) else { return };
    one.db().unwrap().refuse_writes(true);
    let life = ApprovalLife::Person(Duration::from_secs(900));
    let entry = AuditEntry::new(AuditEvent::Prompt);
    let mut seat = one.ask_for(asked("ci", "fx__echo", "{}"), shown(), life, None, entry).unwrap();
    assert_eq!(seat.wait_until_listed().await, None);
    assert!(one.open_approvals().is_empty());
    assert!(matches!(one.ask(asked("ci", "fx__echo", "{}"), shown()), Err(ApprovalRefusal::NotKept)));
}
