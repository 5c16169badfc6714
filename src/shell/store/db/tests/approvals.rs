//! Grants, open approvals and the answers to them.

use super::*;
use crate::policy::consent::{ApprovalSubject, ApprovalView, GrantArguments, GrantLifetime, GrantRow};
use crate::policy::{ApprovalEvidence, Caller, Digest, PolicyAction};
use crate::store::port::{ForeignAnswer, UnwrittenGrantUses};

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
                    let kept = db.keep_grant(grant(*id, is_once), String::new()).run_now();
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
                    db.enter_approval(owner(*process), view(*id)).run_now().unwrap();
                    open.insert(*id, *process);
                }
                1 => {
                    db.remove_approval(name.clone()).run_now().unwrap();
                    open.remove(id);
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
