//! Unanswered approvals count by client, and blocks after them and after denials can be ended.

use super::*;

/// Opens an approval of the client with this name and dismisses it.
fn dismissed(
    desk: &mut ApprovalDesk,
    asked: &ApprovalSubject,
    client: &str,
    n: u8,
    now: SteadySeconds,
) -> Result<(), ApprovalRefusal> {
    let id = ApprovalId::new([n; 16]);
    desk.open(asked.clone(), by(client), id, now, 900, None)?;
    let dismissed = desk.answer(&id, PersonAnswer::Dismiss, ApprovalEvidence::Client, "client", now, Arc::from(""));
    assert!(dismissed.is_ok_and(|grant| grant.is_none()));
    Ok(())
}

fn by(client: &str) -> CallDetails {
    shown().asked_by(ClientName::read(&RawJson::trusted(format!(r#"{{"name":"{client}"}}"#))))
}

/// Dismisses three approvals of the client, far enough apart to be three strikes.
fn blocked(desk: &mut ApprovalDesk, client: &str, now: &mut SteadySeconds) {
    for n in 0..3 {
        *now += 60;
        dismissed(desk, &asked(), client, n, *now).unwrap();
    }
}

#[test]
fn what_one_client_leaves_unanswered_blocks_no_other_client_of_its_caller() {
    let (mut desk, mut now) = (desk(), 0);
    blocked(&mut desk, "codex", &mut now);
    assert!(matches!(dismissed(&mut desk, &asked(), "codex", 9, now), Err(ApprovalRefusal::Embargo { .. })));
    for _ in 0..2 {
        dismissed(&mut desk, &asked(), "claude-code", 9, now).unwrap();
    }
    dismissed(&mut desk, &of("files__other"), "codex", 9, now + 60).expect("another item");
    let per_minute = dismissed(&mut desk, &of("files__third"), "claude-code", 9, now);
    assert_eq!(per_minute, Ok(()), "those of the other client do not count");
}

#[test]
fn beyond_eight_names_the_clients_of_a_caller_count_as_one() {
    let (mut desk, mut now) = (desk(), 0);
    for n in 0..8 {
        now += 60;
        dismissed(&mut desk, &asked(), &format!("name {n}"), n, now).unwrap();
    }
    for n in 8..11 {
        now += 60;
        dismissed(&mut desk, &asked(), &format!("name {n}"), n, now).unwrap();
    }
    let new = dismissed(&mut desk, &asked(), "name 11", 11, now);
    assert!(matches!(new, Err(ApprovalRefusal::Embargo { .. })), "a new name begins nothing anew: {new:?}");
    dismissed(&mut desk, &asked(), "name 0", 12, now).expect("it is counted apart");
    let other = ApprovalSubject { caller: Caller::named("dev"), ..asked() };
    dismissed(&mut desk, &other, "name 11", 13, now).expect("another caller");
    assert_eq!(desk.blocks(now)[0].client, None);
}

#[test]
fn open_approvals_are_bounded_by_caller_whatever_its_clients_are_called() {
    let mut desk = ApprovalDesk::new(DeskLimits { max_open: 2, per_minute: 3 });
    let mut open = |client: &str, n: u8| {
        let item = of(&format!("files__{n}"));
        desk.open(item, by(client), ApprovalId::new([n; 16]), 0, 900, None).map(drop)
    };
    open("a", 1).unwrap();
    open("b", 2).unwrap();
    assert!(matches!(open("c", 3), Err(ApprovalRefusal::TooManyOpen { open: 2, .. })));
}

#[test]
fn a_block_is_listed_while_it_lasts_and_ends_when_an_operator_says_so() {
    let (mut desk, mut now) = (desk(), 0);
    blocked(&mut desk, "codex", &mut now);
    let blocks = desk.blocks(now);
    let [block] = &blocks[..] else { panic!("{blocks:?}") };
    assert_eq!((block.caller.name(), block.client.as_deref(), &*block.item), ("ci", Some("codex"), "files__delete"));
    assert_eq!(block.until, now + 600);
    assert!(desk.blocks(now + 600).is_empty());
    assert_eq!(desk.end_block(&ApprovalId::new([9; 16]), now), None);
    assert_eq!(desk.end_block(&block.id, now).as_ref(), Some(block));
    assert_eq!(desk.end_block(&block.id, now), None);
    for n in 0..2 {
        now += 1;
        dismissed(&mut desk, &asked(), "codex", n, now).expect("what was before is forgotten");
    }
}

/// Opens an approval of the action and has a person deny it.
fn denied(desk: &mut ApprovalDesk, asked: &ApprovalSubject, n: u8, now: SteadySeconds) -> ApprovalId {
    let id = ApprovalId::new([n; 16]);
    desk.open(asked.clone(), by("codex"), id, now, 900, None).unwrap();
    desk.answer(&id, PersonAnswer::Deny, ApprovalEvidence::Page, "console", now, Arc::from("")).unwrap();
    id
}

#[test]
fn a_denial_is_listed_with_its_person_and_can_be_taken_back() {
    let mut desk = desk();
    let id = denied(&mut desk, &asked(), 1, 100);
    let blocks = desk.blocks(100);
    let [block] = &blocks[..] else { panic!("{blocks:?}") };
    let denial = block.denial.as_ref().unwrap();
    assert_eq!((block.id, block.until, denial.at, &*denial.by), (id, 100 + DENIED, 100, "console"));
    assert_eq!(open(&mut desk, &asked(), 2, 101), Err(ApprovalRefusal::Declined));
    assert_eq!(desk.end_block(&id, 101).as_ref(), Some(block));
    open(&mut desk, &asked(), 2, 101).expect("it is asked about again");
    assert!(desk.blocks(100 + DENIED).is_empty());
}

#[test]
fn a_denied_call_can_be_allowed_once_by_the_evidence_that_it_needs_and_not_by_its_client() {
    let mut desk = desk();
    let (once, hour) = (&PersonAnswer::Allow(GrantLifetime::Once), &PersonAnswer::Allow(GrantLifetime::Until(5000)));
    let action = ApprovalSubject { need: ApprovalEvidence::Operator, ..asked() };
    let id = denied(&mut desk, &action, 1, 100);
    for (answer, evidence, why) in [
        (once, ApprovalEvidence::Client, AnswerError::Unknown),
        (once, ApprovalEvidence::Page, AnswerError::Evidence(ApprovalEvidence::Operator)),
        (hour, ApprovalEvidence::Operator, AnswerError::Denied),
        (&PersonAnswer::Deny, ApprovalEvidence::Operator, AnswerError::Unknown),
    ] {
        let answered = desk.answer(&id, answer.clone(), evidence, "op", 200, Arc::from("g"));
        assert_eq!(answered.unwrap_err(), why, "{answer:?} by {evidence:?}");
        assert!(desk.denial(&id, 200).is_some(), "it blocks on");
    }
    let late = desk.answer(&id, once.clone(), ApprovalEvidence::Operator, "op", 100 + DENIED, Arc::from("g"));
    assert_eq!(late.unwrap_err(), AnswerError::Unknown, "its time is over");
    let grant = desk.answer(&id, once.clone(), ApprovalEvidence::Operator, "op", 200, Arc::from("g")).unwrap().unwrap();
    assert!(grant.is_once() && !grant.is_reserved() && grant.covers(&action));
    assert!(!grant.covers(&ApprovalSubject { arguments: Digest::of(b"other"), ..action }));
    assert!(desk.denial(&id, 200).is_none() && desk.blocks(200).is_empty());
}
