use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::engine::sim::epoch;
use crate::mcp::asking::kinds::InputKinds;

const SECOND: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(60);
const FORM: &str = r#"{"method":"elicitation/create","params":{"message":"Which?"}}"#;

fn following(era: Era) -> FollowedCall {
    let terms = ElicitationTerms::for_tests(InputKinds { form: true, ..InputKinds::default() });
    FollowedCall::new(era, "git".to_owned(), terms, false)
}

fn result(era: Era, text: &str) -> CallOutcome {
    CallOutcome::Result { raw: RawJson::trusted(text.to_owned()), era }
}

/// Takes an answer of the server, and returns the request that follows at once.
fn hear(following: &mut FollowedCall, outcome: CallOutcome, now: Instant) -> Option<TaskRequest> {
    following.answered(outcome, |raw| ServerTask::got(raw, "git"), IDLE, now)
}

/// Returns a modern server's task in that state, with more members.
fn state(status: &str, more: &str) -> CallOutcome {
    let text = format!(r#"{{"resultType":"complete","taskId":"t","status":"{status}","pollIntervalMs":2000{more}}}"#);
    result(Era::Modern, &text)
}

fn asking(keys: impl IntoIterator<Item = u64>) -> CallOutcome {
    let asked: Vec<String> = keys.into_iter().map(|key| format!(r#""k{key}":{FORM}"#)).collect();
    state("input_required", &format!(r#","inputRequests":{{{}}}"#, asked.join(",")))
}

/// Returns a modern call that has become a task.
fn begun(now: Instant) -> FollowedCall {
    let mut following = following(Era::Modern);
    let created = result(Era::Modern, r#"{"resultType":"task","taskId":"t","status":"working","pollIntervalMs":2000}"#);
    assert!(hear(&mut following, created, now).is_none());
    following
}

fn events(following: &mut FollowedCall) -> Vec<CallEvent> {
    std::iter::from_fn(|| following.events.pop_front()).collect()
}

#[test]
fn a_call_that_becomes_no_task_ends_as_it_is() {
    for era in [Era::Legacy, Era::Modern] {
        let mut following = following(era);
        assert!(hear(&mut following, result(era, r#"{"content":[]}"#), epoch()).is_none());
        assert!(matches!(events(&mut following)[..], [CallEvent::Done(CallOutcome::Result { .. })]));
        assert_eq!((following.running(), following.due()), (None, None));
    }
}

#[test]
fn a_task_is_asked_after_as_often_as_its_server_wants_and_before_the_call_seems_silent() {
    let now = epoch();
    let mut task = begun(now);
    assert_eq!((task.running(), task.due()), (Some("t"), Some(now + 2 * SECOND)));
    assert!(task.ask_after(now + SECOND).is_none(), "not yet");
    assert!(matches!(task.ask_after(now + 2 * SECOND), Some(TaskRequest::Get)));
    assert_eq!(task.due(), None, "it is under way");
    let seldom = state("working", "");
    assert!(task.answered(seldom, |raw| ServerTask::got(raw, "git"), 2 * SECOND, now).is_none());
    assert_eq!(task.due(), Some(now + SECOND), "half of what a server may be silent");
}

#[test]
fn what_a_task_comes_to_is_what_the_call_comes_to() {
    let now = epoch();
    let of = |task: &mut FollowedCall| match events(task).pop() {
        Some(CallEvent::Done(CallOutcome::Result { raw, .. })) => raw.text().into_owned(),
        Some(CallEvent::Done(CallOutcome::Error { raw })) => format!("error {}", raw.text()),
        other => format!("{other:?}"),
    };
    for (label, answer, want, still_runs) in [
        ("completed", state("completed", r#","result":{"content":[]}"#), r#"{"content":[]}"#, false),
        ("failed", state("failed", r#","error":{"code":1,"message":"m"}"#), r#"error {"code":1,"message":"m"}"#, false),
        ("cancelled", state("cancelled", ""), "cancelled this call", false),
        ("no result", state("completed", ""), "UpstreamProtocol", false),
        ("another task", result(Era::Modern, r#"{"taskId":"u","status":"working"}"#), "UpstreamProtocol", true),
        ("unknown to its server", CallOutcome::Error { raw: RawJson::EMPTY_OBJECT }, "no longer knows the task", true),
        (
            "not offered",
            state("input_required", r#","inputRequests":{"k":{"method":"roots/list"}}"#),
            "did not offer",
            true,
        ),
    ] {
        let mut task = begun(now);
        task.ask_after(now + 2 * SECOND).unwrap();
        assert!(hear(&mut task, answer, now).is_none(), "{label}");
        let got = of(&mut task);
        assert!(got.contains(want), "{label}: {got}");
        assert_eq!(task.running().is_some(), still_runs, "{label}: what may still run is cancelled");
        assert!(matches!(task.poll_event(), Some(CallEvent::Done(CallOutcome::Failed(_)))), "{label}: it is over");
    }
}

#[test]
fn a_legacy_task_tells_its_result_on_request() {
    let now = epoch();
    let mut task = following(Era::Legacy);
    let created = r#"{"task":{"taskId":"t","status":"completed","pollInterval":50}}"#;
    assert!(
        matches!(hear(&mut task, result(Era::Legacy, created), now), Some(TaskRequest::Get)),
        "at once: it has ended"
    );
    let got = hear(&mut task, result(Era::Legacy, r#"{"taskId":"t","status":"input_required"}"#), now);
    assert!(matches!(got, Some(TaskRequest::Result)), "its questions come on that request");
    assert!(hear(&mut task, result(Era::Legacy, r#"{"content":[],"_meta":{"x/related-task":{}}}"#), now).is_none());
    let events = events(&mut task);
    let Some(CallEvent::Done(CallOutcome::Result { raw, .. })) = events.last() else { panic!("{events:?}") };
    assert_eq!((raw.text().as_ref(), task.running()), (r#"{"content":[]}"#, None));
}

#[test]
fn a_request_that_did_not_reach_the_server_is_made_again_twice() {
    let now = epoch();
    let mut task = begun(now);
    for _ in 0..3 {
        events(&mut task);
        let due = task.due().unwrap();
        task.ask_after(due).unwrap();
        let failure = CallFailure::new(FailureReason::Busy, ExecutionDoubt::No, "busy");
        assert!(hear(&mut task, CallOutcome::Failed(failure), due).is_none());
    }
    let told = events(&mut task);
    let [CallEvent::Done(CallOutcome::Failed(failure))] = &told[..] else { panic!("{told:?}") };
    assert_eq!(failure.executed, ExecutionDoubt::Unknown, "the call was taken");
    let mut task = begun(now);
    task.ask_after(task.due().unwrap()).unwrap();
    let failure = CallFailure::new(FailureReason::UpstreamTimeout, ExecutionDoubt::Unknown, "late");
    hear(&mut task, CallOutcome::Failed(failure), now);
    assert_eq!(task.due(), None, "one that may have been executed is not made again");
}

#[test]
fn what_cannot_be_an_answer_is_none() {
    let now = epoch();
    for (label, answer) in [("no object", Ok(RawJson::trusted("5"))), ("an error", Err(RawJson::EMPTY_OBJECT))] {
        let mut task = begun(now);
        task.ask_after(now + 2 * SECOND).unwrap();
        assert!(hear(&mut task, asking([1]), now).is_none());
        task.reply(&RawJson::string("k1"), answer, now);
        let Some(TaskRequest::Update(answers)) = task.ask_after(now) else { panic!("{label}") };
        assert_eq!(answers.text(), r#"{"k1":{"action":"cancel"}}"#, "{label}");
    }
}

#[test]
fn a_task_that_asks_too_much_is_not_heard_at_all() {
    let form = RawJson::trusted(FORM);
    let asked = |from: usize, to: usize| -> Vec<(String, RawJson)> {
        (from..to).map(|n| (format!("k{n:06}"), form.clone())).collect()
    };
    let mut task = following(Era::Modern);
    assert_eq!(task.questions(asked(0, 100_000)), Err(InputError::Malformed));
    assert!(task.open.is_empty() && task.known.is_empty() && task.events.is_empty());
    assert_eq!(task.questions(asked(0, MAX_QUESTIONS)), Ok(()));
    assert_eq!(task.questions(asked(0, MAX_QUESTIONS)), Ok(()), "the same once more");
    assert_eq!((task.open.len(), task.events.len()), (MAX_QUESTIONS, MAX_QUESTIONS));
    assert_eq!(task.questions(asked(1, MAX_QUESTIONS + 1)), Err(InputError::Malformed), "over its life");
    assert_eq!((task.open.len(), task.events.len()), (MAX_QUESTIONS, MAX_QUESTIONS));
}

#[derive(Clone, Debug)]
enum Step {
    /// The request in flight is answered: the server asks these questions, besides those that still
    /// wait.
    Ask(BTreeSet<u64>),
    /// The server no longer wants an answer to this question.
    Forget(u64),
    /// The request in flight never reached the server.
    Miss,
    /// The client answers one of its open questions.
    Answer(usize),
    Pass,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop::collection::btree_set(0..20_u64, 0..3).prop_map(Step::Ask),
        1 => (0..20_u64).prop_map(Step::Forget),
        1 => Just(Step::Miss),
        3 => any::<usize>().prop_map(Step::Answer),
        5 => Just(Step::Pass),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn each_question_of_a_task_is_asked_once_and_its_answer_sent_once(steps in steps()) {
        let mut now = epoch();
        let mut task = begun(now);
        // Questions that the server waits for, answers that it got, and questions that the client
        // has.
        let (mut waits, mut told, mut open) = (BTreeSet::<u64>::new(), BTreeSet::new(), Vec::<RawJson>::new());
        let (mut asked, mut sent, mut missed) = (BTreeSet::new(), None, 0);
        for step in steps {
            match (step, sent.take()) {
                (Step::Ask(keys), Some(errand)) => {
                    if let TaskRequest::Update(answers) = errand {
                        let answers = RawObject::parse(&answers).unwrap().into_sorted().unwrap();
                        for (key, _) in answers {
                            let key: u64 = key[1..].parse().unwrap();
                            prop_assert!(told.insert(key), "{} was answered twice", key);
                            waits.remove(&key);
                        }
                        hear(&mut task, state("working", ""), now);
                    } else {
                        waits.extend(keys.difference(&told));
                        hear(&mut task, asking(waits.iter().copied()), now);
                    }
                    missed = 0;
                }
                (Step::Miss, Some(errand)) if missed < 2 => {
                    missed += 1;
                    let failure = CallFailure::new(FailureReason::Busy, ExecutionDoubt::No, "busy");
                    hear(&mut task, CallOutcome::Failed(failure), now);
                    prop_assert!(task.due().is_some(), "{:?} is made again", errand);
                }
                (Step::Forget(key), under_way) => {
                    // Only a question that the server has seen no answer to.
                    if !matches!(under_way, Some(TaskRequest::Update(_))) {
                        waits.remove(&key);
                    }
                    sent = under_way;
                }
                (Step::Answer(at), under_way) => {
                    if !open.is_empty() {
                        let key = open.swap_remove(at % open.len());
                        task.reply(&key, Ok(RawJson::trusted(r#"{"action":"accept"}"#)), now);
                        if open.is_empty() && under_way.is_none() {
                            prop_assert!(task.due().is_some_and(|due| due <= now), "all is answered");
                        }
                    }
                    sent = under_way;
                }
                (Step::Pass, None) => {
                    let due = task.due().unwrap();
                    now = now.max(due);
                    sent = task.ask_after(now);
                    prop_assert!(sent.is_some());
                }
                (_, under_way) => sent = under_way,
            }
            for event in events(&mut task) {
                if let CallEvent::Ask(request) = event {
                    prop_assert!(asked.insert(request.id.text().into_owned()), "asked twice");
                    open.push(request.id);
                } else if let CallEvent::Withdrawn(key) = event {
                    open.retain(|open| *open != key);
                } else {
                    prop_assert!(matches!(event, CallEvent::Alive), "{:?}", event);
                }
            }
            prop_assert_eq!(task.due().is_none(), sent.is_some(), "it rests or something is under way");
        }
    }
}
