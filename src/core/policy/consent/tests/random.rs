//! Random histories of approvals and grants, checked against invariants.

use super::super::desk::OpeningResult;
use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

const CALLERS: [&str; 2] = ["ci", "dev"];
const ITEMS: [&str; 3] = ["files__a", "files__b", "files__c"];
const LIMITS: DeskLimits = DeskLimits { max_open: 5, per_minute: 3 };
const UNUSED: SteadySeconds = 40_000;

/// One event of a history.
#[derive(Clone, Debug)]
enum Step {
    /// A call needs an approval. The number picks the approval that the call says to have already.
    Ask(ApprovalSubject, Option<usize>),
    /// The call of the picked approval waits no longer; `true` if it was answered with the
    /// question.
    Leave(usize, bool),
    /// An answer to the picked approval over a channel with this evidence.
    Answer(usize, PersonAnswer, ApprovalEvidence),
    /// A call claims a grant. The flag says whether the call goes on, and the number picks the
    /// approval that it waited for.
    Claim(ApprovalSubject, bool, Option<usize>),
    Pass(SteadySeconds),
    /// The definition with this number changes.
    Invalidate(u8),
    /// The session with this number ends.
    End(u64),
}

fn actions() -> impl Strategy<Value = ApprovalSubject> {
    let who = (0..CALLERS.len(), 0..ITEMS.len(), proptest::option::of(1_u64..3));
    let what = (0_u8..2, 0_u8..2, 0_u8..2, 0_u8..2, evidence(), any::<bool>());
    (who, what).prop_map(|((caller, item, session), (definition, launch, arguments, rule, need, destructive))| {
        ApprovalSubject {
            caller: Caller::named(CALLERS[caller]),
            session,
            item: Arc::from(ITEMS[item]),
            definition: Digest::of(&[definition]),
            launch: Digest::of(&[launch]),
            arguments: Digest::of(&[arguments]),
            rule: Arc::from(["r", "s"][usize::from(rule)]),
            need,
            destructive,
            ..asked()
        }
    })
}

fn evidence() -> impl Strategy<Value = ApprovalEvidence> {
    prop_oneof![Just(ApprovalEvidence::Client), Just(ApprovalEvidence::Page), Just(ApprovalEvidence::Operator)]
}

fn answers() -> impl Strategy<Value = PersonAnswer> {
    prop_oneof![
        4 => Just(PersonAnswer::Allow(GrantLifetime::Once)),
        2 => Just(PersonAnswer::Allow(GrantLifetime::Session)),
        2 => (0_u64..100_000).prop_map(|until| PersonAnswer::Allow(GrantLifetime::Until(until))),
        1 => Just(PersonAnswer::Allow(GrantLifetime::UntilChanged)),
        1 => Just(PersonAnswer::Deny),
        3 => Just(PersonAnswer::Dismiss),
    ]
}

fn own() -> impl Strategy<Value = Option<usize>> {
    proptest::option::of(0_usize..4)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (actions(), own()).prop_map(|(asked, own)| Step::Ask(asked, own)),
        3 => (0_usize..4, any::<bool>()).prop_map(|(which, carried)| Step::Leave(which, carried)),
        5 => (0_usize..4, answers(), evidence()).prop_map(|(which, answer, by)| Step::Answer(which, answer, by)),
        8 => (actions(), any::<bool>(), own()).prop_map(|(asked, goes_on, own)| Step::Claim(asked, goes_on, own)),
        4 => prop_oneof![0_u64..100, 0_u64..5000].prop_map(Step::Pass),
        1 => (0_u8..2).prop_map(Step::Invalidate),
        1 => (1_u64..3).prop_map(Step::End),
    ];
    proptest::collection::vec(step, 1..200)
}

/// A desk and grants, with the state that the checks expect.
struct World {
    desk: ApprovalDesk,
    grants: LiveGrants,
    now: SteadySeconds,
    next: u64,
    open: HashMap<ApprovalId, ApprovalSubject>,
    spent: HashSet<Arc<str>>,
    gone: HashSet<Arc<str>>,
    embargoes: HashMap<(Caller, Arc<str>), SteadySeconds>,
    /// Approvals that calls wait for, also after an answer.
    held: HashSet<ApprovalId>,
    /// Once-grants that are reserved for such calls.
    reserved: HashMap<ApprovalId, Arc<ApprovalGrant>>,
}

impl World {
    fn new() -> Self {
        Self {
            desk: ApprovalDesk::new(LIMITS),
            grants: LiveGrants::new(UNUSED),
            now: 1,
            next: 0,
            open: HashMap::new(),
            spent: HashSet::new(),
            gone: HashSet::new(),
            embargoes: HashMap::new(),
            held: HashSet::new(),
            reserved: HashMap::new(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Ask(asked, own) => self.ask(asked, own),
            Step::Leave(which, carried) => self.leave(which, carried),
            Step::Answer(which, answer, evidence) => self.answer(which, answer, evidence),
            Step::Claim(asked, goes_on, own) => self.claim(&asked, goes_on, own),
            Step::Pass(time) => {
                self.now += time;
                for id in self.desk.expire(self.now) {
                    assert!(self.open.remove(&id).is_some(), "closed twice");
                }
            }
            Step::Invalidate(number) => {
                let changed = |asked: &ApprovalSubject| asked.definition == Digest::of(&[number]);
                let dead = self.grants.iter().filter(|grant| changed(grant.asked())).map(|grant| grant.id().clone());
                self.gone.extend(dead);
                self.grants = self.grants.without(|grant| changed(grant.asked()));
                for id in self.desk.supersede(|approval| changed(&approval.asked)) {
                    assert!(self.open.remove(&id).is_some_and(|asked| changed(&asked)));
                }
            }
            Step::End(session) => {
                self.desk.session_ended(session);
                let over = |grant: &ApprovalGrant| {
                    grant.lifetime() == GrantLifetime::Session && grant.asked().session == Some(session)
                };
                self.grants = self.grants.without(over);
            }
        }
        let listed: HashSet<ApprovalId> = self.desk.open_approvals().map(|approval| approval.id).collect();
        assert_eq!(listed, self.open.keys().copied().collect(), "nothing open is lost");
        for caller in CALLERS {
            let mine = self.desk.open_approvals().filter(|approval| approval.asked.caller.name() == caller);
            assert!(mine.count() <= LIMITS.max_open);
        }
        assert!(self.open.keys().all(|id| self.desk.is_held(id) == self.held.contains(id)));
        assert!(self.desk.largest_memory() <= 64);
    }

    /// Picks one of the open approvals.
    fn pick(&self, which: usize) -> Option<ApprovalId> {
        let mut ids: Vec<ApprovalId> = self.open.keys().copied().collect();
        ids.sort_unstable();
        ids.get(which).copied()
    }

    fn ask(&mut self, asked: ApprovalSubject, own: Option<usize>) {
        self.next += 1;
        let mut random = [0; 16];
        random[..8].copy_from_slice(&self.next.to_be_bytes());
        let pair = (asked.caller.clone(), asked.item.clone());
        let own = own.and_then(|which| self.pick(which));
        let mine = self.open.values().filter(|open| open.caller == asked.caller).count();
        match self.desk.open(asked.clone(), shown(), ApprovalId::new(random), self.now, 900, own.as_ref()) {
            Ok(OpeningResult { id, joined: true }) => {
                assert_eq!(self.open[&id].action(), asked.action());
                assert!(self.held.insert(id), "another call waits for it");
            }
            Ok(OpeningResult { id, joined: false }) => {
                let embargo = self.embargoes.get(&pair).copied().unwrap_or(0);
                assert!(embargo <= self.now, "asked within an embargo");
                assert!(self.open.insert(id, asked).is_none() && self.held.insert(id));
            }
            Err(ApprovalRefusal::Embargo { until, .. }) => {
                assert!(until > self.now);
                let before = self.embargoes.insert(pair, until).unwrap_or(0);
                assert!(before <= until, "an embargo grew shorter");
            }
            Err(ApprovalRefusal::TooManyOpen { open, max_open, .. }) => assert!(open == mine && mine >= max_open),
            Err(ApprovalRefusal::Unanswered { unanswered, .. }) => assert!(unanswered >= LIMITS.per_minute),
            Err(ApprovalRefusal::Declined | ApprovalRefusal::Full { .. }) => {}
            Err(ApprovalRefusal::NotKept) => panic!("the desk knows no store"),
        }
    }

    fn leave(&mut self, which: usize, carried: bool) {
        let mut held: Vec<ApprovalId> = self.held.iter().copied().collect();
        held.sort_unstable();
        let Some(id) = held.get(which) else { return };
        if carried {
            self.desk.carry(id, std::time::Duration::from_secs(self.now));
        } else {
            self.desk.leave(id);
        }
        self.held.remove(id);
        if let Some(grant) = self.reserved.remove(id) {
            grant.release();
        }
    }

    fn answer(&mut self, which: usize, answer: PersonAnswer, evidence: ApprovalEvidence) {
        let Some(id) = self.pick(which) else { return };
        self.next += 1;
        let grant_id = Arc::from(format!("{:016x}", self.next));
        match self.desk.answer(&id, answer, evidence, "by", self.now, grant_id) {
            Ok(grant) => {
                self.open.remove(&id);
                if let Some(grant) = grant {
                    assert!(evidence >= grant.asked().need);
                    assert!(
                        evidence > ApprovalEvidence::Client
                            || matches!(grant.lifetime(), GrantLifetime::Once | GrantLifetime::Session)
                    );
                    assert!(!grant.is_once() || grant.arguments() == GrantArguments::Exact);
                    let grant = Arc::new(grant);
                    assert_eq!(grant.is_reserved(), grant.is_once() && self.held.contains(&id));
                    if grant.is_reserved() {
                        self.reserved.insert(id, Arc::clone(&grant));
                    }
                    self.grants = self.grants.with(Arc::clone(&grant));
                    self.release(&grant);
                }
                assert!(self.desk.get(&id).is_none());
            }
            Err(_) => assert!(self.desk.get(&id).is_some(), "an answer that does not count closes nothing"),
        }
    }

    /// Checks that a grant closes the approvals of calls that pass with it, and no other.
    fn release(&mut self, grant: &ApprovalGrant) {
        let passes = |asked: &ApprovalSubject| {
            let given = grant.asked();
            let is_any = grant.arguments() == GrantArguments::Any;
            let in_session = asked.session.is_some() && asked.session == given.session;
            (&given.caller, &given.item, given.kind, &given.upstream)
                == (&asked.caller, &asked.item, asked.kind, &asked.upstream)
                && (given.definition, given.launch, &given.rule) == (asked.definition, asked.launch, &asked.rule)
                && (is_any || given.arguments == asked.arguments)
                && (grant.lifetime() != GrantLifetime::Session || in_session)
                && grant.evidence() >= asked.need
                && !(asked.destructive && is_any && grant.evidence() == ApprovalEvidence::Client)
        };
        let open = self.desk.open_approvals().filter(|approval| self.now < approval.until);
        let expected: HashMap<ApprovalId, ApprovalSubject> = open
            .filter(|approval| passes(&approval.asked))
            .map(|approval| (approval.id, approval.asked.clone()))
            .collect();
        let released = self.desk.release(grant, self.now);
        if grant.is_once() {
            assert_eq!(released, [], "once is for one call");
            return;
        }
        assert_eq!(released.iter().copied().collect::<HashSet<_>>(), expected.keys().copied().collect());
        assert_eq!(released.len(), expected.len(), "each once");
        for id in &released {
            assert!(self.open.remove(id).is_some() && self.desk.get(id).is_none());
            assert!(self.grants.claim(&expected[id], self.now, Some(id)).is_some(), "its call passes");
        }
    }

    fn claim(&mut self, asked: &ApprovalSubject, goes_on: bool, own: Option<usize>) {
        let mut waited: Vec<ApprovalId> = self.reserved.keys().copied().collect();
        waited.sort_unstable();
        let own = own.and_then(|which| waited.get(which).copied());
        let Some(consented) = self.grants.claim(asked, self.now, own.as_ref()) else { return };
        let grant = consented.grant();
        let of_another = self.reserved.iter().any(|(id, other)| other.id() == grant.id() && Some(*id) != own);
        assert!(!of_another, "another call waits for it");
        let given = grant.asked();
        assert!(!self.spent.contains(grant.id()) && !self.gone.contains(grant.id()));
        assert!(given.caller == asked.caller && given.item == asked.item && given.kind == asked.kind);
        assert!(given.definition == asked.definition && given.launch == asked.launch && given.rule == asked.rule);
        assert!(grant.arguments() == GrantArguments::Any || given.arguments == asked.arguments);
        assert!(
            grant.lifetime() != GrantLifetime::Session || (asked.session.is_some() && given.session == asked.session)
        );
        assert!(grant.evidence() >= asked.need && !grant.is_over(self.now, UNUSED));
        if grant.is_once() {
            let held = self.grants.claim(asked, self.now, own.as_ref());
            assert!(held.is_none_or(|second| second.grant().id() != grant.id()), "claimed twice at once");
        }
        if goes_on && consented.is_once() {
            self.spent.insert(consented.spend().id().clone());
        } else if goes_on {
            drop(consented.spend());
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_consent_covers_what_was_consented_to(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
    }
}
