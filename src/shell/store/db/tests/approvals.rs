//! Grants, open approvals and the answers to them.

use super::*;
use crate::policy::consent::{ApprovalSubject, ApprovalView, GrantArguments, GrantLifetime, GrantRow, SharedAnswer};
use crate::policy::{ApprovalEvidence, Caller, Digest, PolicyAction};
use crate::store::port::{AnsweredElsewhere, ForeignAnswer, OwnedApproval, UnwrittenGrantUses};

/// Longer than any of the histories.
const UNUSED: u64 = 1_000_000;

fn grant(id: u8, is_once: bool) -> GrantRow {
    GrantRow {
        id: Arc::from(id.to_string()),
        asked: ApprovalSubject::new(
            &PolicyAction::stand_in("ci", "fx", "fx__echo"),
            &Arc::from("ask-all"),
            ApprovalEvidence::Client,
        ),
        arguments: GrantArguments::Any,
        lifetime: if is_once { GrantLifetime::Once } else { GrantLifetime::UntilChanged },
        evidence: ApprovalEvidence::Operator,
        by: Arc::from("uid:1"),
        granted_at: 1,
        last_used: 1,
        uses: 0,
    }
}

#[test]
fn a_grant_is_kept_once_and_ends_once_over_all_processes() {
    play((0..2_usize, 0..7_u8, 0..6_u8), |dbs, events| {
        // Live grants with their uses; of those that may be used once, `None`.
        let (mut live, mut ever) = (BTreeMap::<u8, Option<u64>>::new(), BTreeMap::new());
        for (process, what, id) in events {
            let (db, name) = (&dbs[*process], Arc::<str>::from(id.to_string()));
            match what {
                0 | 1 => {
                    let is_once = *what == 0;
                    let kept = db.keep_grant(grant(*id, is_once), None).run_now();
                    assert_eq!(kept.is_ok(), ever.insert(*id, ()).is_none(), "no id is given twice");
                    if kept.is_ok() {
                        live.insert(*id, (!is_once).then_some(0));
                    }
                }
                2 => {
                    let is_taken = live.get(id) == Some(&None) && live.remove(id).is_some();
                    assert_eq!(db.consume_grant(name, 2).run_now().unwrap(), is_taken);
                }
                3 => {
                    let revoked = db.revoke_grants(Some(name.to_string()), 2).run_now().unwrap();
                    assert_eq!(revoked.len(), usize::from(live.remove(id).is_some()));
                }
                4 => {
                    db.invalidate_grants(vec![name], 2).run_now().unwrap();
                    live.remove(id);
                }
                5 => {
                    let used = UnwrittenGrantUses { id: name, more: 3, last_used: 2 };
                    db.settle_approvals(vec![used], UNUSED, 2).run_now().unwrap();
                    live.entry(*id).and_modify(|uses| *uses = uses.map(|uses| uses + 3));
                }
                _ => assert_eq!(db.open_approvals(UNUSED, 2).unwrap().len(), live.len()),
            }
            let grants = dbs[1 - *process].grants().run_now().unwrap();
            let is_once = |row: &GrantRow| row.lifetime == GrantLifetime::Once;
            let seen = grants.iter().map(|row| (row.id.to_string(), (!is_once(row)).then_some(row.uses)));
            let expected = live.iter().map(|(id, uses)| (id.to_string(), *uses));
            assert_eq!(seen.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
    });
}

/// Returns a row of the list, as an engine returns it.
fn row(id: u8) -> ApprovalView {
    let text = |text: &str| text.to_owned();
    let message = format!("message {id}");
    ApprovalView {
        id: id.to_string(),
        caller: Caller::named("ci"),
        upstream: text("fx"),
        kind: text("tool"),
        item: text("fx__echo"),
        exposed: text("fx__echo"),
        rule: text("ask-all"),
        min_evidence: text("L1"),
        digest: Digest::of(message.as_bytes()).hex(),
        message,
        opened_at: 1,
        until: 100,
        ..ApprovalView::default()
    }
}

fn action(id: u8) -> Digest {
    Digest::of(&[id])
}

/// Returns the approval of [`row`] with everything that is kept about it.
fn view(id: u8) -> ApprovalView {
    ApprovalView { effect: Some(format!("effect {id}")), ..row(id) }
}

#[test]
fn an_approval_is_shown_to_all_and_an_answer_reaches_its_owner_until_it_has_judged() {
    let owner = |process: usize| ["one", "daemon-two"][process].to_owned();
    play((0..2_usize, 0..5_u8, 0..4_u8), |dbs, events| {
        let mut open = BTreeMap::<u8, usize>::new();
        // The process that left each answer, and the verdict about it.
        let mut answers = BTreeMap::<u8, (usize, Option<String>)>::new();
        for (process, what, id) in events {
            let (db, name) = (&dbs[*process], id.to_string());
            match what {
                0 if !open.contains_key(id) => {
                    let entered = db.enter_approval(owner(*process), view(*id), action(*id)).run_now();
                    assert_eq!(entered.unwrap(), name);
                    open.insert(*id, *process);
                }
                1 => {
                    let holder = owner(open.remove(id).unwrap_or_default());
                    let closed = OwnedApproval { id: name.clone(), owner: holder };
                    db.remove_approval(closed, None).run_now().unwrap();
                }
                2 => {
                    let verdict = format!("verdict of {process}");
                    db.tell_outcome(name.clone(), verdict.clone()).run_now().unwrap();
                    answers.entry(*id).and_modify(|(_, outcome)| *outcome = Some(verdict));
                }
                _ => {
                    let answer =
                        ForeignAnswer { approval: name.clone(), answer: "once".to_owned(), by: owner(*process) };
                    assert_eq!(db.leave_answer(answer, 2).run_now().unwrap(), open.contains_key(id));
                    if open.contains_key(id) {
                        answers.insert(*id, (*process, None));
                    }
                }
            }
            let outcome = answers.get(id).and_then(|(_, outcome)| outcome.clone());
            assert_eq!(db.outcome(name.clone()).run_now().unwrap(), outcome);
            let details = open.contains_key(id).then(|| view(*id));
            assert_eq!(db.approval_details(name).run_now().unwrap(), details);
            for with_daemons in [true, false] {
                let shown = open.iter().filter(|(_, process)| with_daemons || **process == 0);
                let expected: Vec<_> = shown.map(|(id, _)| row(*id)).collect();
                assert_eq!(db.listed_approvals(3, with_daemons).run_now().unwrap(), expected);
            }
            let changes = dbs[0].approvals_changed(owner(0), -1).run_now().unwrap().unwrap();
            let mut told: Vec<_> = changes.answers.into_iter().map(|one| (one.approval, one.by)).collect();
            told.sort();
            let is_due = |id: &u8, outcome: &Option<String>| outcome.is_none() && open.get(id) == Some(&0);
            let due = answers.iter().filter(|(id, (_, outcome))| is_due(id, outcome));
            assert_eq!(told, due.map(|(id, (by, _))| (id.to_string(), owner(*by))).collect::<Vec<_>>());
        }
        let daemons = dbs[0].remove_approvals_of_daemons(String::new()).run_now().unwrap();
        assert_eq!(daemons.len(), open.values().filter(|process| **process == 1).count());
        assert!(dbs[1].remove_approvals_of_daemons(String::new()).run_now().unwrap().is_empty());
    });
}

/// Returns the approvals of `owner` that were answered elsewhere.
fn told(db: &Db, owner: &str) -> Vec<AnsweredElsewhere> {
    db.approvals_changed(owner.to_owned(), -1).run_now().unwrap().unwrap().ended
}

fn owned(id: &str, owner: &str) -> OwnedApproval {
    OwnedApproval { id: id.to_owned(), owner: owner.to_owned() }
}

#[test]
fn the_same_action_has_one_open_approval_over_all_replicas_and_its_first_answer_counts() {
    let dir = tempfile::tempdir().unwrap();
    let [db, other] = [(); 2].map(|()| Db::open(dir.path()).unwrap());
    // Processes on one machine list their own approvals.
    if db.replicas().is_none() {
        return;
    }
    let enter =
        |db: &Db, owner: &str, id: u8| db.enter_approval(owner.to_owned(), view(id), action(0)).run_now().unwrap();
    let list =
        || -> Vec<String> { db.listed_approvals(2, true).run_now().unwrap().into_iter().map(|row| row.id).collect() };
    assert_eq!([enter(&db, "one", 1), enter(&other, "two", 2), enter(&other, "three", 3)], ["1", "1", "1"]);
    assert_eq!(enter(&db, "one", 4), "4", "an equal call that waits in the same process has one of its own");
    assert_eq!(list(), ["1", "4"]);

    // One owner judges an answer that was left, whichever looks first.
    let left = ForeignAnswer { approval: "1".to_owned(), answer: "once".to_owned(), by: "uid:1".to_owned() };
    assert!(db.leave_answer(left, 2).run_now().unwrap());
    for owner in ["one", "two", "three"] {
        let changes = other.approvals_changed(owner.to_owned(), -1).run_now().unwrap().unwrap();
        assert_eq!(changes.answers.len(), 1, "{owner}");
    }
    let taken = [&db, &other].map(|db| db.take_answer("1".to_owned()).run_now().unwrap());
    assert_eq!(taken, [true, false]);

    // An end without an answer leaves it open for the others.
    other.remove_approval(owned("1", "three"), None).run_now().unwrap();
    assert_eq!(list(), ["1", "4"]);

    // One of two answers counts, and the other owner is told until it has closed the approval too.
    assert!(other.keep_grant(grant(9, true), Some(owned("1", "two"))).run_now().unwrap());
    assert!(!db.keep_grant(grant(8, true), Some(owned("1", "one"))).run_now().unwrap());
    assert_eq!(db.grants().run_now().unwrap().len(), 1, "a once is one call");
    let denial = SharedAnswer { is_denial: true, evidence: ApprovalEvidence::Client, by: "client".to_owned() };
    let [AnsweredElsewhere { approval, answer }] = told(&db, "one").try_into().unwrap();
    let granted = SharedAnswer { is_denial: false, evidence: ApprovalEvidence::Operator, by: "uid:1".to_owned() };
    assert_eq!((&*approval, answer), ("1", granted));
    assert!(told(&other, "two").is_empty() && told(&other, "three").is_empty());
    assert_eq!(list(), ["4"], "an answered one is not open");
    db.remove_approval(owned("1", "one"), Some(denial.clone())).run_now().unwrap();
    assert!(told(&db, "one").is_empty(), "it has closed the approval too");

    // The action is free again, also after a denial and after the time of an approval.
    assert_eq!([enter(&db, "one", 5), enter(&other, "two", 6)], ["5", "5"]);
    db.remove_approval(owned("5", "one"), Some(denial)).run_now().unwrap();
    assert!(told(&other, "two")[0].answer.is_denial);
    let late = ApprovalView { opened_at: 101, until: 200, ..view(8) };
    assert_eq!(enter(&db, "one", 7), "7");
    assert_eq!(other.enter_approval("two".to_owned(), late, action(0)).run_now().unwrap(), "8");
}

#[test]
fn an_approval_of_two_replicas_outlives_one_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    if db.replicas().is_none() {
        return;
    }
    for owner in ["daemon-killed", "alone"] {
        assert_eq!(db.enter_approval(owner.to_owned(), view(1), action(1)).run_now().unwrap(), "1");
    }
    assert!(db.remove_approvals_of_daemons("daemon-next".to_owned()).run_now().unwrap().is_empty());
    assert_eq!(db.listed_approvals(2, true).run_now().unwrap().len(), 1);
    db.remove_approval(owned("1", "alone"), None).run_now().unwrap();
    assert!(db.listed_approvals(2, true).run_now().unwrap().is_empty());
}
