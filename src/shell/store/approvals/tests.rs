use super::*;
use crate::base::clock::played::TestMachine;
use crate::mcp::client_name::ClientName;
use crate::policy::consent::ApprovalView;
use crate::policy::{ActionKind, AuditEntry, AuditEvent, Caller, Digest, StatedHints};
use crate::store::disk::lock::StateLock;
use crate::telemetry::metrics::Metrics;
use crate::wire::json::raw::RawJson;

mod below;
mod daemons;
mod full_queue;
mod killed;
mod no_record;
mod numbers;
mod passing;
mod shared;
mod steps;

pub(super) fn asked(caller: &str, item: &str, arguments: &str) -> ApprovalSubject {
    ApprovalSubject {
        caller: Caller::named(caller),
        session: Some(7),
        upstream: Arc::from("fx"),
        kind: ActionKind::Tool,
        item: Arc::from(item),
        definition: Digest::of(b"definition"),
        launch: Digest::of(b"launch"),
        arguments: Digest::of(arguments.as_bytes()),
        rule: Arc::from("ask-all"),
        need: ApprovalEvidence::Client,
        destructive: false,
    }
}

fn shown() -> CallDetails {
    CallDetails::new("echo", StatedHints::default(), None)
}

fn limits() -> ApprovalSettings {
    ApprovalSettings { per_minute: 100, ..ApprovalSettings::default() }
}

fn kept(dir: &tempfile::TempDir) -> Approvals {
    Approvals::open(Db::open(dir.path()).unwrap(), &limits()).unwrap()
}

async fn allow(approvals: &Approvals, asked: &ApprovalSubject, lifetime: GrantLifetime) -> ApprovalEnd {
    let id = approvals.ask(asked.clone(), shown()).unwrap();
    approvals.answer(&id, PersonAnswer::Allow(lifetime), ApprovalEvidence::Operator, "uid:1").await.unwrap()
}

#[tokio::test]
async fn a_caller_that_lost_its_access_loses_its_open_prompts_and_session_grants() {
    let approvals = Approvals::memory(&ApprovalSettings { max_open: 9, per_minute: 9, ..ApprovalSettings::default() });
    let ask = |caller: &str, item: &str| approvals.ask(asked(caller, item, "{}"), shown()).unwrap();
    allow(&approvals, &asked("ci", "session", "{}"), GrantLifetime::Session).await;
    allow(&approvals, &asked("ci", "always", "{}"), GrantLifetime::UntilChanged).await;
    let (ours, theirs) = (ask("ci", "open"), ask("dev", "open"));
    approvals.caller_left(&Caller::named("ci"));
    assert_eq!(approvals.settled(&ours).await, ApprovalEnd::Superseded);
    assert!(approvals.approval(&theirs).is_some());
    let left: Vec<GrantLifetime> = approvals.grants().iter().map(|grant| grant.lifetime()).collect();
    assert_eq!(left, [GrantLifetime::UntilChanged]);
}

#[tokio::test]
async fn a_grant_outlives_the_process_except_that_of_a_session() {
    let dir = tempfile::tempdir().unwrap();
    let approvals = kept(&dir);
    let until = approvals.wall() + 3600;
    for (item, lifetime) in [
        ("fx__once", GrantLifetime::Once),
        ("fx__session", GrantLifetime::Session),
        ("fx__until", GrantLifetime::Until(until)),
        ("fx__always", GrantLifetime::UntilChanged),
    ] {
        assert_eq!(allow(&approvals, &asked("ci", item, "{}"), lifetime).await, ApprovalEnd::Granted);
        assert!(approvals.grants().claim(&asked("ci", item, "{}"), approvals.wall(), None).is_some(), "{item}");
    }
    drop(approvals);
    let approvals = kept(&dir);
    for (item, lives) in [("fx__once", true), ("fx__session", false), ("fx__until", true), ("fx__always", true)] {
        let claimed = approvals.grants().claim(&asked("ci", item, "{}"), approvals.wall(), None);
        assert_eq!(claimed.is_some(), lives, "{item}");
    }
}

#[tokio::test]
async fn a_once_grant_is_consumed_once_over_processes_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (kept(&dir), kept(&dir));
    let action = asked("ci", "fx__echo", "{}");
    allow(&one, &action, GrantLifetime::Once).await;
    other.follow().await;
    let first = one.grants().claim(&action, one.wall(), None).unwrap().spend();
    let second = other.grants().claim(&action, other.wall(), None).unwrap().spend();
    let outcomes = tokio::join!(one.consume(&first), other.consume(&second));
    assert!(outcomes.0.is_ok() != outcomes.1.is_ok(), "{outcomes:?}");
    assert_eq!(one.consume(&first).await, Err(GrantUseError::Already));
    for approvals in [one, other, kept(&dir)] {
        assert!(approvals.grants().claim(&action, approvals.wall(), None).is_none());
    }
}

#[tokio::test]
async fn equal_calls_that_wait_have_a_grant_each() {
    let dir = tempfile::tempdir().unwrap();
    for approvals in [Approvals::memory(&limits()), kept(&dir)] {
        let action = asked("ci", "fx__echo", "{}");
        let ask = || {
            approvals
                .ask_for(
                    action.clone(),
                    shown(),
                    ApprovalLife::Person(Duration::from_secs(900)),
                    None,
                    AuditEntry::new(AuditEvent::Prompt),
                )
                .unwrap()
        };
        let seats: Vec<ApprovalWait> = (0..6).map(|_| ask()).collect();
        assert_eq!(approvals.open_approvals().len(), 6);
        let claim = |own: Option<ApprovalId>| {
            let claimed = approvals.grants().claim(&action, approvals.wall(), own.as_ref());
            claimed.map(|consented| consented.spend())
        };
        for n in [1, 4] {
            let once = PersonAnswer::Allow(GrantLifetime::Once);
            approvals.answer(&seats[n].approval(), once, ApprovalEvidence::Operator, "uid:1").await.unwrap();
        }
        approvals.answer(&seats[2].approval(), PersonAnswer::Deny, ApprovalEvidence::Operator, "uid:1").await.unwrap();
        assert!(claim(None).is_none() && claim(Some(seats[0].approval())).is_none(), "both have a call that waits");
        let own = claim(Some(seats[4].approval())).unwrap();
        assert!(approvals.consume(&own).await.is_ok());
        assert!(claim(Some(seats[4].approval())).is_none(), "one once is one call");
        drop(seats);
        assert!(approvals.inner.lock().reserved.is_empty());
        let left = claim(None).unwrap();
        assert!(approvals.consume(&left).await.is_ok(), "its call is gone, and another one finds it");
        assert!(claim(None).is_none());
        assert_eq!(approvals.open_approvals().len(), 3, "of those who were not answered");
    }
}

#[tokio::test]
async fn arguments_swapped_between_consent_and_retry_are_refused() {
    let approvals = Approvals::memory(&limits());
    allow(&approvals, &asked("ci", "fx__pay", r#"{"to":"a"}"#), GrantLifetime::Once).await;
    let swapped = asked("ci", "fx__pay", r#"{"to":"b"}"#);
    assert!(approvals.grants().claim(&swapped, approvals.wall(), None).is_none());
    assert!(approvals.grants().claim(&asked("ci", "fx__pay", r#"{"to":"a"}"#), approvals.wall(), None).is_some());
}

#[tokio::test]
async fn whoever_waits_for_a_prompt_learns_how_it_ended() {
    let approvals = Approvals::memory(&limits());
    let cases = [
        (PersonAnswer::Allow(GrantLifetime::Once), ApprovalEnd::Granted),
        (PersonAnswer::Deny, ApprovalEnd::Denied),
        (PersonAnswer::Decline, ApprovalEnd::Declined),
        (PersonAnswer::Dismiss, ApprovalEnd::Dismissed),
    ];
    for (n, (answer, closed)) in cases.into_iter().enumerate() {
        let id = approvals.ask(asked("ci", &format!("fx__{n}"), "{}"), shown()).unwrap();
        let answering = approvals.answer(&id, answer.clone(), ApprovalEvidence::Page, "page");
        let (settled, answered) = tokio::join!(approvals.settled(&id), answering);
        assert_eq!((settled, answered), (closed, Ok(closed)));
        assert_eq!(approvals.settled(&id).await, closed, "also afterwards");
        assert_eq!(approvals.answer(&id, answer, ApprovalEvidence::Page, "page").await, Err(AnswerError::Unknown));
    }
    assert_eq!(approvals.settled(&ApprovalId::new([0; 16])).await, ApprovalEnd::Superseded);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_nobody_answers_times_out() {
    let machine = TestMachine::new();
    machine.start();
    let approvals = Approvals::memory(&limits());
    let id = approvals.ask(asked("ci", "fx__echo", "{}"), shown()).unwrap();
    machine.pass(901);
    assert_eq!(approvals.settled(&id).await, ApprovalEnd::TimedOut);
    let late =
        approvals.answer(&id, PersonAnswer::Allow(GrantLifetime::Once), ApprovalEvidence::Operator, "uid:1").await;
    assert_eq!(late, Err(AnswerError::Unknown));
}

#[tokio::test]
async fn a_prompt_whose_call_waits_no_longer_has_timed_out_and_counts_as_a_strike() {
    let approvals = Approvals::memory(&limits());
    let action = asked("ci", "fx__echo", "{}");
    for _ in 0..3 {
        let id = approvals.ask(action.clone(), shown()).unwrap();
        approvals.unanswered(&id);
        approvals.unanswered(&id);
        assert_eq!(approvals.settled(&id).await, ApprovalEnd::TimedOut);
        let late =
            approvals.answer(&id, PersonAnswer::Allow(GrantLifetime::Once), ApprovalEvidence::Operator, "uid:1").await;
        assert_eq!(late, Err(AnswerError::Unknown));
    }
    assert!(matches!(approvals.ask(action, shown()), Err(ApprovalRefusal::Embargo { .. })));
}

#[tokio::test]
async fn what_changed_takes_its_grants_and_prompts_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let approvals = kept(&dir);
    let action = asked("ci", "fx__echo", "{}");
    allow(&approvals, &action, GrantLifetime::UntilChanged).await;
    let id = approvals.ask(asked("dev", "fx__echo", "{}"), shown()).unwrap();
    approvals.invalidate(|asked| *asked.upstream == *"other");
    assert_eq!((approvals.grants().len(), approvals.open_approvals().len()), (1, 1));
    approvals.invalidate(|asked| *asked.upstream == *"fx");
    assert_eq!(approvals.settled(&id).await, ApprovalEnd::Superseded);
    assert_eq!(approvals.grants().len(), 0);
    // Jobs run in order: everything sent before this one is on disk after it.
    approvals.inner.db.as_ref().unwrap().all_so_far().run().await.unwrap();
    drop(approvals);
    assert_eq!(kept(&dir).grants().len(), 0, "nor does it come back");
}

#[tokio::test]
async fn a_grant_that_is_revoked_while_it_is_written_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let approvals = kept(&dir);
    let id = approvals.ask(asked("ci", "fx__echo", "{}"), shown()).unwrap();
    let answering =
        approvals.answer(&id, PersonAnswer::Allow(GrantLifetime::UntilChanged), ApprovalEvidence::Operator, "uid:1");
    let changing = async { approvals.invalidate(|_| true) };
    let (closed, ()) = tokio::join!(biased; answering, changing);
    assert_eq!(closed, Ok(ApprovalEnd::Superseded));
    assert_eq!(approvals.settled(&id).await, ApprovalEnd::Superseded);
    drop(approvals);
    assert_eq!(kept(&dir).grants().len(), 0);
}

#[tokio::test]
async fn an_answer_that_comes_while_a_yes_is_written_takes_nothing_of_it_away() {
    for late in [PersonAnswer::Deny, PersonAnswer::Decline, PersonAnswer::Dismiss] {
        let dir = tempfile::tempdir().unwrap();
        let approvals = kept(&dir);
        let id = approvals.ask(asked("ci", "fx__echo", "{}"), shown()).unwrap();
        let yes = approvals.answer(&id, PersonAnswer::Allow(GrantLifetime::Once), ApprovalEvidence::Operator, "uid:1");
        let other = approvals.answer(&id, late.clone(), ApprovalEvidence::Client, "client");
        let (heard, closed, other) = tokio::join!(biased; approvals.settled(&id), yes, other);
        assert_eq!((closed, other), (Ok(ApprovalEnd::Granted), Err(AnswerError::Unknown)), "{late:?}");
        assert_eq!(heard, ApprovalEnd::Granted, "{late:?}: the call that waits hears of the yes");
    }
}

#[tokio::test]
async fn revoked_grants_are_gone_here_elsewhere_and_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (kept(&dir), kept(&dir));
    for (item, lifetime) in
        [("fx__a", GrantLifetime::UntilChanged), ("fx__b", GrantLifetime::Once), ("fx__c", GrantLifetime::Session)]
    {
        allow(&one, &asked("ci", item, "{}"), lifetime).await;
    }
    other.follow().await;
    assert_eq!(other.grants().len(), 2);
    let id = one.grants().iter().find(|grant| grant.is_once()).unwrap().id().clone();
    assert_eq!(one.revoke(Some(&id), "uid:1").await.unwrap(), 1);
    assert_eq!(one.revoke(Some(&id), "uid:1").await.unwrap(), 0);
    assert_eq!(one.revoke(None, "uid:1").await.unwrap(), 2);
    other.follow().await;
    assert_eq!((one.grants().len(), other.grants().len(), kept(&dir).grants().len()), (0, 0, 0));
}

#[tokio::test]
async fn a_session_takes_its_grants_with_it() {
    let approvals = Approvals::memory(&limits());
    let action = asked("ci", "fx__echo", "{}");
    allow(&approvals, &action, GrantLifetime::Session).await;
    let id = approvals.ask(asked("ci", "fx__other", "{}"), shown()).unwrap();
    approvals.session_ended(8);
    assert!(approvals.grants().claim(&action, approvals.wall(), None).is_some());
    approvals.session_ended(7);
    assert!(approvals.grants().claim(&action, approvals.wall(), None).is_none());
    let late =
        approvals.answer(&id, PersonAnswer::Allow(GrantLifetime::Session), ApprovalEvidence::Client, "client").await;
    assert_eq!(late, Err(AnswerError::NoSession));
}

#[tokio::test]
async fn time_does_not_go_back_over_a_restart_and_unused_grants_are_over() {
    let (machine, dir) = (TestMachine::new(), tempfile::tempdir().unwrap());
    machine.start();
    let approvals = kept(&dir);
    allow(&approvals, &asked("ci", "fx__idle", "{}"), GrantLifetime::UntilChanged).await;
    let used = asked("ci", "fx__used", "{}");
    allow(&approvals, &used, GrantLifetime::UntilChanged).await;
    machine.pass(89 * 24 * 3600);
    drop(approvals.grants().claim(&used, approvals.wall(), None).unwrap().spend());
    machine.pass(24 * 3600);
    let before = approvals.wall();
    approvals.settle().await;
    drop(approvals);
    let approvals = kept(&dir);
    assert!(approvals.wall() >= before);
    let left: Vec<_> = approvals.grants().iter().map(|grant| (grant.asked().item.clone(), grant.uses())).collect();
    assert_eq!(left, [(Arc::from("fx__used"), 1)]);
}

#[tokio::test]
async fn an_answer_that_another_process_left_counts_as_the_operators() {
    let dir = tempfile::tempdir().unwrap();
    let approvals = kept(&dir);
    let action = ApprovalSubject { need: ApprovalEvidence::Operator, ..asked("ci", "fx__echo", "{}") };
    let name = ClientName::read(&RawJson::trusted(r#"{"name":"claude-code","version":"2.1"}"#));
    let arguments = RawJson::trusted(r#"{ "text" : "x" }"#);
    let shown = CallDetails::new("echo", StatedHints::default(), Some(&arguments)).asked_by(name);
    let id = approvals.ask(action.clone(), shown).unwrap();
    // Operations run in order, so the answer is in the store after this one.
    approvals.settle().await;
    let beside = Db::open(dir.path()).unwrap();
    let listed = beside::stored_approvals(&beside).unwrap();
    let own = approvals.view(&id).unwrap();
    assert!(own.left > 0);
    // A second may pass between two looks.
    let timeless = |view: ApprovalView| ApprovalView { age: 0, left: 0, ..view };
    let own = timeless(own);
    assert_eq!(own.waits, Some(false), "no call waits for it");
    assert_eq!(timeless(listed[0].clone()), ApprovalView { waits: None, ..own.clone().row() });
    let (there, here) = (beside::details_of(&beside, &id.to_string()), approvals.show(&id.to_string()).await);
    let (there, here) = (timeless(there.unwrap().unwrap()), timeless(here.unwrap().unwrap()));
    assert_eq!(here, own);
    assert_eq!(there, ApprovalView { waits: None, said: there.said, oddities: there.oddities.clone(), ..here });
    assert_eq!((&*own.id, own.client.as_deref()), (&*id.to_string(), Some("claude-code 2.1")));
    assert_eq!(own.arguments.unwrap().text(), r#"{"text":"x"}"#);
    assert!(!own.message.is_empty());
    let stop = tokio_util::sync::CancellationToken::new();
    let (ran, outcome) = tokio::join!(approvals.clone().run(stop.clone()), async {
        let other =
            beside::leave_answer(&beside, &id.to_string(), Some(Digest::of(b"x")), OperatorAnswer::Always, "uid:1")
                .await;
        assert!(other.is_err_and(|why| why.contains("not what was shown")));
        let shown = Digest::from_hex(&listed[0].digest);
        let outcome = beside::leave_answer(&beside, &id.to_string(), shown, OperatorAnswer::Always, "uid:1").await;
        stop.cancel();
        outcome
    });
    // No call waits for the approval.
    assert_eq!((ran, outcome), ((), Ok(AnswerOutcome::of(ApprovalEnd::Granted, true))));
    let grant = approvals.grants().claim(&action, approvals.wall(), None).unwrap().spend();
    assert_eq!((grant.evidence(), &**grant.by()), (ApprovalEvidence::Operator, "uid:1"));
    assert_eq!(approvals.all_approvals().await.unwrap(), []);
}

#[tokio::test]
async fn an_answer_to_a_process_that_is_gone_grants_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let approvals = kept(&dir);
    let gone = kept(&dir);
    let id = gone.ask(asked("ci", "fx__echo", "{}"), shown()).unwrap().to_string();
    // Writes run in order, so the answer is in the store after this.
    gone.settle().await;
    drop(gone);
    assert_eq!(approvals.all_approvals().await.unwrap().len(), 1);
    assert!(
        approvals
            .operator_answers(&id, None, OperatorAnswer::Once, "uid:1")
            .await
            .unwrap_err()
            .contains("did not take")
    );
    assert_eq!(approvals.grants().len(), 0);
    assert!(approvals.operator_answers("nonsense", None, OperatorAnswer::Once, "uid:1").await.is_err());
}

#[tokio::test]
async fn nobody_is_asked_while_the_answer_could_not_be_kept_and_what_was_revoked_then_stays_so() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let approvals = Approvals::open(db.clone(), &limits()).unwrap();
    let other = kept(&dir);
    let until = GrantLifetime::Until(approvals.wall() + 3600);
    let (revoked, changed, once) = (asked("ci", "fx__a", "{}"), asked("ci", "fx__b", "{}"), asked("ci", "fx__c", "{}"));
    allow(&approvals, &revoked, until).await;
    allow(&approvals, &changed, until).await;
    allow(&approvals, &once, GrantLifetime::Once).await;
    approvals.follow().await;
    let holds = |action: &ApprovalSubject| approvals.grants().claim(action, approvals.wall(), None).is_some();
    let id = |action: &ApprovalSubject| {
        approvals.grants().iter().find(|g| g.asked().item == action.item).unwrap().id().to_string()
    };

    db.refuse_writes(true);
    let grant = approvals.grants().claim(&once, approvals.wall(), None).unwrap().spend();
    assert!(
        matches!(approvals.consume(&grant).await, Err(GrantUseError::NotKept(_))),
        "a use that is not kept does not count"
    );
    assert!(approvals.revoke(Some(&id(&revoked)), "uid:1").await.is_err(), "it says that it is not kept");
    approvals.invalidate(|asked| asked.item == changed.item);
    assert_eq!(approvals.ask(asked("ci", "fx__d", "{}"), shown()), Err(ApprovalRefusal::NotKept));
    assert!(!holds(&revoked) && !holds(&changed));

    // Another process writes meanwhile, so that this one reads the grants again.
    allow(&other, &asked("ci", "fx__e", "{}"), until).await;
    approvals.follow().await;
    assert!(!holds(&revoked) && !holds(&changed) && holds(&asked("ci", "fx__e", "{}")));

    db.refuse_writes(false);
    let deadline = clock::now() + Duration::from_secs(5);
    while !db.health().is_writable() {
        assert!(clock::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    approvals.follow().await;
    db.all_so_far().run().await.unwrap();
    approvals.follow().await;
    other.follow().await;
    for process in [&approvals, &other] {
        for action in [&revoked, &changed] {
            assert!(process.grants().claim(action, process.wall(), None).is_none(), "{}", action.item);
        }
    }
    assert!(approvals.ask(asked("ci", "fx__d", "{}"), shown()).is_ok());
}

#[tokio::test]
async fn a_yes_is_late_once_the_agent_was_told_to_stop() {
    let approvals = Approvals::memory(&limits());
    let ask = |item: &str| {
        let span = ApprovalLife::Person(Duration::from_secs(900));
        approvals.ask_for(asked("ci", item, "{}"), shown(), span, None, AuditEntry::new(AuditEvent::Prompt)).unwrap()
    };
    let (held, left) = (ask("fx__held"), ask("fx__left"));
    let [held_id, left_id] = [&held, &left].map(ApprovalWait::approval);
    held.waits_until(clock::now() + Duration::from_secs(31));
    assert!(matches!(approvals.agent_wait(&held_id), AgentWait::Waits { left: Some(30 | 31) }));
    drop(left);
    assert_eq!(approvals.agent_wait(&left_id), AgentWait::Stopped);
    for (id, is_late) in [(held_id, false), (left_id, true)] {
        let outcome = approvals.operator_answers(&id.to_string(), None, OperatorAnswer::Once, "uid:1").await.unwrap();
        assert_eq!((outcome.word.as_str(), outcome.is_late), ("granted", is_late));
    }
}

#[tokio::test]
async fn a_denied_call_is_allowed_once_after_all_and_both_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    for approvals in [Approvals::memory(&limits()), kept(&dir)] {
        let action = asked("ci", "fx__echo", "{}");
        let id = approvals.ask(action.clone(), shown()).unwrap();
        approvals.answer(&id, PersonAnswer::Deny, ApprovalEvidence::Page, "console").await.unwrap();
        assert_eq!(approvals.ask(action.clone(), shown()), Err(ApprovalRefusal::Declined));
        let by_client =
            approvals.answer(&id, PersonAnswer::Allow(GrantLifetime::Once), ApprovalEvidence::Client, "client").await;
        assert_eq!(by_client, Err(AnswerError::Unknown));
        let always = approvals.operator_answers(&id.to_string(), None, OperatorAnswer::Always, "uid:1").await;
        assert!(always.unwrap_err().contains("was denied"));
        let outcome = approvals.operator_answers(&id.to_string(), None, OperatorAnswer::Once, "uid:1").await.unwrap();
        assert_eq!((outcome.word.as_str(), outcome.is_late), ("granted", true));
        assert!(approvals.blocks().is_empty() && approvals.inner.lock().waiting.is_empty());
        let grant = approvals.grants().claim(&action, approvals.wall(), None).unwrap().spend();
        assert_eq!((grant.is_once(), &**grant.by()), (true, "uid:1"));
    }
}

#[tokio::test]
async fn a_denial_that_is_taken_back_asks_again() {
    let approvals = Approvals::memory(&limits());
    let action = asked("ci", "fx__echo", "{}");
    let id = approvals.ask(action.clone(), shown()).unwrap();
    approvals.answer(&id, PersonAnswer::Deny, ApprovalEvidence::Operator, "uid:1").await.unwrap();
    let [block] = &approvals.blocks()[..] else { panic!("one block") };
    assert_eq!((block.id, &*block.denial.as_ref().unwrap().by), (id, "uid:1"));
    assert!(approvals.unblock(&id.to_string(), "uid:1").is_some());
    assert!(approvals.unblock(&id.to_string(), "uid:1").is_none());
    assert!(approvals.ask(action, shown()).is_ok());
}
