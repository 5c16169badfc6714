//! Many calls at once: each has its own approval, and the bounds refuse further calls.

use std::time::Duration;

use super::super::desk::OpeningResult;
use super::*;

#[test]
fn each_call_that_waits_has_its_own_question_and_one_that_left_is_joined() {
    let mut desk = ApprovalDesk::new(DeskLimits { max_open: 20, per_minute: 3 });
    let id = |n: u8| ApprovalId::new([n; 16]);
    let opened = |n: u8, joined: bool| Ok(OpeningResult { id: id(n), joined });
    for n in 1..=6 {
        assert_eq!(open(&mut desk, &asked(), n, 0), opened(n, false), "an equal call beside those that wait");
    }
    let other_arguments = ApprovalSubject { arguments: Digest::of(b"x"), ..asked() };
    assert_eq!(open(&mut desk, &other_arguments, 7, 0), opened(7, false));
    desk.leave(&id(3));
    desk.leave(&id(7));
    assert_eq!(open(&mut desk, &asked(), 8, 1), opened(3, true), "its call waits no longer");
    assert_eq!(open(&mut desk, &asked(), 8, 1), opened(8, false));
    desk.leave(&id(2));
    let other_session = ApprovalSubject { session: Some(2), ..asked() };
    assert_eq!(open(&mut desk, &other_session, 9, 1), opened(9, false), "another client's");
    desk.session_ended(1);
    let third_session = ApprovalSubject { session: Some(3), ..asked() };
    assert_eq!(open(&mut desk, &third_session, 10, 1), opened(2, true), "it came back");
    assert_eq!(desk.get(&id(2)).unwrap().asked.session, Some(3));
    let other_caller = ApprovalSubject { caller: Caller::named("dev"), ..asked() };
    assert_eq!(open(&mut desk, &other_caller, 11, 1), opened(11, false));
    let more = ApprovalSubject { need: ApprovalEvidence::Page, ..third_session.clone() };
    desk.leave(&id(2));
    assert_eq!(open(&mut desk, &more, 12, 1), opened(12, false), "another need");
    let said = shown().asked_by(ClientName::read(&RawJson::trusted(r#"{"name":"other"}"#)));
    let own_name = desk.open(third_session, said, id(13), 1, 900, None);
    assert_eq!(own_name, opened(13, false), "a client by another name than the person was told");
}

#[test]
fn a_question_in_an_answer_is_its_clients_for_a_minute() {
    let mut desk = desk();
    let (first, second) = (ApprovalId::new([1; 16]), ApprovalId::new([2; 16]));
    open(&mut desk, &asked(), 1, 0).unwrap();
    desk.carry(&first, Duration::ZERO);
    assert_eq!(desk.asked_at(&first), Some(Duration::ZERO));
    let mut again =
        |n: u8, now, own: Option<&ApprovalId>| desk.open(asked(), shown(), ApprovalId::new([n; 16]), now, 900, own);
    assert_eq!(again(2, 59, None), Ok(OpeningResult { id: second, joined: false }), "a call of its own");
    assert_eq!(again(3, 59, Some(&first)), Ok(OpeningResult { id: first, joined: true }), "it comes back");
    assert_eq!(
        again(3, 59, Some(&first)),
        Ok(OpeningResult { id: ApprovalId::new([3; 16]), joined: false }),
        "a second time"
    );
    desk.carry(&first, Duration::from_secs(100));
    assert_eq!(
        open(&mut desk, &asked(), 4, 160),
        Ok(OpeningResult { id: first, joined: true }),
        "it did not come back"
    );
    answer(&mut desk, 2, PersonAnswer::Deny, ApprovalEvidence::Client, 161).unwrap();
    desk.leave(&first);
    assert_eq!(open(&mut desk, &asked(), 5, 161), Err(ApprovalRefusal::Declined), "an equal call was denied");
    let own = desk.open(asked(), shown(), ApprovalId::new([5; 16]), 161, 900, Some(&first));
    assert_eq!(own, Ok(OpeningResult { id: first, joined: true }), "its own question is still open");
}

#[test]
fn open_questions_count_by_their_number_and_those_without_an_answer_by_the_minute() {
    let mut desk = ApprovalDesk::new(DeskLimits { max_open: 20, per_minute: 3 });
    for n in 0..20 {
        open(&mut desk, &of(&format!("fx__{}", n % 2)), n, 100).unwrap();
    }
    let full = ApprovalRefusal::TooManyOpen { open: 20, max_open: 20, retry: Duration::from_secs(60) };
    assert_eq!(open(&mut desk, &of("fx__2"), 20, 100), Err(full));
    let dismiss =
        |desk: &mut ApprovalDesk, n: u8| answer(desk, n, PersonAnswer::Dismiss, ApprovalEvidence::Client, 110).unwrap();
    (0..10).for_each(|n| drop(dismiss(&mut desk, n)));
    open(&mut desk, &of("fx__2"), 20, 110).expect("those that were opened together count once for each tool");
    dismiss(&mut desk, 20);
    let unanswered =
        |retry| ApprovalRefusal::Unanswered { unanswered: 3, per_minute: 3, retry: Duration::from_secs(retry) };
    assert_eq!(open(&mut desk, &of("fx__3"), 21, 130), Err(unanswered(40)));
    open(&mut desk, &of("fx__3"), 21, 170).unwrap();
}

#[test]
fn six_equal_calls_are_six_members_and_one_once_is_for_one_of_them() {
    let mut desk = ApprovalDesk::new(DeskLimits { max_open: 20, per_minute: 3 });
    for n in 1..=6 {
        open(&mut desk, &asked(), n, 0).unwrap();
    }
    let once = || PersonAnswer::Allow(GrantLifetime::Once);
    let grant_of = |desk: &mut ApprovalDesk, n: u8| {
        let id = Arc::from(format!("grant {n}"));
        let grant =
            desk.answer(&ApprovalId::new([n; 16]), once(), ApprovalEvidence::Page, "me", 1, id).unwrap().unwrap();
        Arc::new(grant)
    };
    let (second, fifth) = (grant_of(&mut desk, 2), grant_of(&mut desk, 5));
    let grants = LiveGrants::new(1_000_000).with(Arc::clone(&second)).with(Arc::clone(&fifth));
    let claim = |n: Option<u8>| {
        let own = n.map(|n| ApprovalId::new([n; 16]));
        grants.claim(&asked(), 2, own.as_ref()).map(|consented| consented.spend().id().to_string())
    };
    assert_eq!(claim(None), None, "a seventh equal call");
    assert_eq!(claim(Some(1)), None, "a member that still waits");
    assert_eq!(claim(Some(5)).as_deref(), Some("grant 5"));
    assert_eq!(claim(Some(5)), None, "once");
    second.release();
    assert_eq!(claim(None).as_deref(), Some("grant 2"), "its call is gone: the same call made again finds it");
    assert_eq!(claim(None), None);
    assert_eq!(desk.open_approvals().count(), 4);
}

#[test]
fn a_prompt_says_whether_its_agent_still_waits() {
    let mut desk = desk();
    let id = ApprovalId::new([1; 16]);
    let waits = |left| AgentWait::Waits { left };
    open(&mut desk, &asked(), 1, 100).unwrap();
    assert_eq!(desk.agent_wait(&id, 100), waits(None));
    desk.waits_until(&id, 140);
    assert_eq!([109, 150].map(|now| desk.agent_wait(&id, now)), [waits(Some(31)), waits(Some(0))]);
    desk.leave(&id);
    assert_eq!(desk.agent_wait(&id, 141), AgentWait::Stopped, "it was refused");
    open(&mut desk, &asked(), 2, 142).unwrap();
    assert_eq!(desk.agent_wait(&id, 142), waits(None), "the same call made again");
    desk.carry(&id, Duration::from_secs(143));
    assert_eq!(desk.agent_wait(&id, 144), waits(None), "its client is asked");
    answer(&mut desk, 1, PersonAnswer::Deny, ApprovalEvidence::Page, 145).unwrap();
    assert_eq!(desk.agent_wait(&id, 145), AgentWait::Stopped);
}
