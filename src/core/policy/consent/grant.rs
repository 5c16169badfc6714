//! Grants: remembered yeses, and the proof that one covers an action.
//!
//! A live grant ends or changes as follows:
//!
//! - `claim` of a once-grant: claimed. While the call that was asked about waits, only it can claim
//!   the grant.
//! - The proof of a claim is dropped unspent, because the call was refused: live again.
//! - `spend` of a claim, because the call goes on: consumed.
//! - Its time is over, or it was not used for long: expired.
//! - A person revokes it: revoked.
//! - Definition or launch changed, upstream gone, session over: invalidated.
//!
//! Consumed, expired, revoked and invalidated are final; such a grant is in no [`LiveGrants`] any
//! more. A grant covers an action if, and only if, caller, kind, item, upstream, definition, launch
//! and rule are equal, the arguments are equal, any or below the folder that it names
//! ([`FolderScope`]), the session is equal if the grant is for a session, and its evidence is at
//! least what the action needs.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foldhash::fast::RandomState;

use super::below::{FolderScope, OutlinedArguments, ReservedFolders};
use super::{ApprovalId, ApprovalSubject, SteadySeconds};
use crate::policy::caller::Caller;
use crate::policy::evidence::ApprovalEvidence;
use crate::wire::json::raw::RawJson;

/// Life of an unused once-grant, in seconds. After a day its call is long forgotten.
pub const ONCE_LIFE: SteadySeconds = 24 * 3600;

/// The arguments that a grant covers.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum GrantArguments {
    /// Exactly the approved arguments.
    Exact,
    Any,
    /// Arguments that name places below a folder, or at a site.
    Below(Arc<FolderScope>),
}

impl GrantArguments {
    /// Returns the arguments that a grant with this lifetime and evidence covers.
    pub fn of(lifetime: GrantLifetime, evidence: ApprovalEvidence, destructive: bool) -> Self {
        match lifetime {
            GrantLifetime::Once => Self::Exact,
            GrantLifetime::Session | GrantLifetime::Until(_) | GrantLifetime::UntilChanged => {
                if destructive && evidence == ApprovalEvidence::Client { Self::Exact } else { Self::Any }
            }
        }
    }

    /// Parses the word of a variant and the text of [`Self::below`].
    pub fn parse(word: &str, below: Option<&str>) -> Option<Self> {
        match (word, below) {
            ("exact", None) => Some(Self::Exact),
            ("any", None) => Some(Self::Any),
            ("below", Some(text)) => FolderScope::parse(text).map(|below| Self::Below(Arc::new(below))),
            _ => None,
        }
    }

    /// Returns the folder or site that the arguments must name; `None` for the other variants.
    pub const fn below(&self) -> Option<&Arc<FolderScope>> {
        match self {
            Self::Below(below) => Some(below),
            Self::Exact | Self::Any => None,
        }
    }
}

/// The lifetime of a grant. A change of the definition or the launch ends every grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub enum GrantLifetime {
    Once,
    /// Until the session or pipe of its caller ends.
    Session,
    Until(SteadySeconds),
    UntilChanged,
}

impl GrantLifetime {
    /// Returns the date at which the grant ends, if it has one.
    pub const fn until(self) -> Option<SteadySeconds> {
        match self {
            Self::Until(until) => Some(until),
            Self::Once | Self::Session | Self::UntilChanged => None,
        }
    }

    /// Parses the word of a variant and the time of [`Self::until`].
    pub fn parse(word: &str, until: Option<SteadySeconds>) -> Option<Self> {
        match (word, until) {
            ("once", None) => Some(Self::Once),
            ("session", None) => Some(Self::Session),
            ("until", Some(until)) => Some(Self::Until(until)),
            ("until-changed", None) => Some(Self::UntilChanged),
            _ => None,
        }
    }
}

/// The stored parts of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRow {
    pub id: Arc<str>,
    pub asked: ApprovalSubject,
    pub arguments: GrantArguments,
    pub lifetime: GrantLifetime,
    pub evidence: ApprovalEvidence,
    /// The person who answered, as the channel identifies them.
    pub by: Arc<str>,
    pub granted_at: SteadySeconds,
    pub last_used: SteadySeconds,
    pub uses: u64,
}

/// A remembered yes, with its use.
#[derive(Debug)]
pub struct ApprovalGrant {
    row: GrantRow,
    last_used: AtomicU64,
    uses: AtomicU64,
    /// Number of uses that the store has.
    written: AtomicU64,
    claimed: AtomicBool,
    consumed: AtomicBool,
    /// Whether a record on disk says that the grant was used.
    recorded: AtomicBool,
    /// The answered approval, if its call was waiting then.
    approval: Option<ApprovalId>,
    /// True while that call waits; no other call can claim the grant.
    reserved: AtomicBool,
}

impl ApprovalGrant {
    pub fn new(row: GrantRow) -> Self {
        Self {
            last_used: AtomicU64::new(row.last_used),
            uses: AtomicU64::new(row.uses),
            written: AtomicU64::new(row.uses),
            claimed: AtomicBool::new(false),
            consumed: AtomicBool::new(false),
            recorded: AtomicBool::new(row.uses > 0),
            approval: None,
            reserved: AtomicBool::new(false),
            row,
        }
    }

    /// Makes a grant that is reserved for the call that waits for `prompt`, until
    /// [`Self::release`].
    pub(super) fn for_call(row: GrantRow, approval: ApprovalId) -> Self {
        Self { approval: Some(approval), reserved: AtomicBool::new(true), ..Self::new(row) }
    }

    /// Whether the grant is reserved for a waiting call.
    pub fn is_reserved(&self) -> bool {
        self.reserved.load(Ordering::Acquire)
    }

    /// Ends the reservation, because the call waits no longer.
    pub fn release(&self) {
        self.reserved.store(false, Ordering::Release);
    }

    /// Whether the grant answers this approval.
    fn is_of(&self, approval: Option<&ApprovalId>) -> bool {
        approval.is_some() && self.approval.as_ref() == approval
    }

    pub fn id(&self) -> &Arc<str> {
        &self.row.id
    }

    pub fn asked(&self) -> &ApprovalSubject {
        &self.row.asked
    }

    pub fn arguments(&self) -> GrantArguments {
        self.row.arguments.clone()
    }

    pub const fn lifetime(&self) -> GrantLifetime {
        self.row.lifetime
    }

    pub const fn evidence(&self) -> ApprovalEvidence {
        self.row.evidence
    }

    pub fn by(&self) -> &Arc<str> {
        &self.row.by
    }

    pub const fn granted_at(&self) -> SteadySeconds {
        self.row.granted_at
    }

    pub fn last_used(&self) -> SteadySeconds {
        self.last_used.load(Ordering::Relaxed)
    }

    pub fn uses(&self) -> u64 {
        self.uses.load(Ordering::Relaxed)
    }

    /// Returns the number of uses that the store does not have yet.
    pub fn unwritten(&self) -> u64 {
        self.uses().saturating_sub(self.written.load(Ordering::Relaxed))
    }

    /// Notes that the store has this number of further uses.
    pub fn written(&self, uses: u64) {
        self.written.fetch_add(uses, Ordering::Relaxed);
    }

    /// Notes a use by another process.
    pub fn also_used(&self, at: SteadySeconds) {
        self.last_used.fetch_max(at, Ordering::Relaxed);
    }

    pub fn is_once(&self) -> bool {
        self.row.lifetime == GrantLifetime::Once
    }

    /// Whether the record of a use must be on disk before its call is sent: for every use of a
    /// once-grant, and for the first use of another grant. Later uses of a lasting grant are
    /// recorded like calls that a rule allows.
    pub fn is_grave(&self) -> bool {
        self.is_once() || !self.recorded.load(Ordering::Acquire)
    }

    /// Notes that the record of a use is on disk, and with it the earlier record of the answer.
    pub fn set_recorded(&self) {
        self.recorded.store(true, Ordering::Release);
    }

    /// Returns the stored parts as of this moment.
    pub fn row(&self) -> GrantRow {
        GrantRow { last_used: self.last_used(), uses: self.uses(), ..self.row.clone() }
    }

    /// Consumes the one use of a once-grant for good. Returns true the first time only.
    pub fn consume(&self) -> bool {
        !self.consumed.swap(true, Ordering::AcqRel)
    }

    /// Frees the claim of a call that was refused, so that another call can use the grant. Has no
    /// effect once the grant is consumed.
    pub fn give_back(&self) {
        if !self.consumed.load(Ordering::Acquire) {
            self.claimed.store(false, Ordering::Release);
        }
    }

    /// Whether the grant has expired: by its date, or because it was not used for `unused` seconds.
    pub fn is_over(&self, now: SteadySeconds, unused: SteadySeconds) -> bool {
        let idle = if self.is_once() { unused.min(ONCE_LIFE) } else { unused };
        self.row.lifetime.until().is_some_and(|until| now >= until)
            || now.saturating_sub(self.last_used().max(self.row.granted_at)) >= idle
    }

    /// Whether the grant covers more than one call of the action's item with some arguments. All
    /// URIs of a template count as one item, since they have its definition.
    fn lasts_for(&self, action: &ApprovalSubject) -> bool {
        !self.is_once() && self.is_like(action)
    }

    /// Whether the grant was given for this action and has the evidence that it needs. Does not
    /// check that the grant is live. A grant below a folder covers nothing here, because its
    /// judgement needs the arguments: see [`Self::covers_call`].
    pub fn covers(&self, action: &ApprovalSubject) -> bool {
        self.covers_call(action, None, &ReservedFolders::default())
    }

    /// As [`Self::covers`], for a call with these arguments if they are known.
    pub fn covers_call(
        &self,
        action: &ApprovalSubject,
        given: Option<&OutlinedArguments<'_>>,
        places: &ReservedFolders,
    ) -> bool {
        let asked = &self.row.asked;
        let are_covered = || match &self.row.arguments {
            GrantArguments::Exact => asked.arguments == action.arguments,
            // The client's user agreed before the tool was known to be destructive, and did not
            // agree to a destructive tool in general.
            GrantArguments::Any => !action.destructive || self.row.evidence != ApprovalEvidence::Client,
            GrantArguments::Below(below) => {
                self.row.evidence != ApprovalEvidence::Client && given.is_some_and(|given| below.covers(given, places))
            }
        };
        self.is_like(action) && asked.item == action.item && are_covered()
    }

    /// Whether the grant was given for such an action, if the name of the item and the arguments
    /// are left aside.
    fn is_like(&self, action: &ApprovalSubject) -> bool {
        let ApprovalSubject { caller, session, upstream, kind, definition, launch, rule, need, .. } = action;
        let given = &self.row.asked;
        let in_session =
            self.row.lifetime != GrantLifetime::Session || (session.is_some() && given.session == *session);
        given.caller == *caller
            && given.kind == *kind
            && given.upstream == *upstream
            && given.definition == *definition
            && given.launch == *launch
            && given.rule == *rule
            && in_session
            && self.row.evidence >= *need
    }
}

/// The grants of one caller, by item.
type CallerGrants = HashMap<Arc<str>, Vec<Arc<ApprovalGrant>>, RandomState>;

/// An immutable set of live grants.
#[derive(Clone, Debug)]
pub struct LiveGrants {
    callers: HashMap<Caller, Arc<CallerGrants>, RandomState>,
    /// Seconds without use after which a grant ends.
    unused: SteadySeconds,
    len: usize,
    places: Arc<ReservedFolders>,
}

impl LiveGrants {
    pub fn new(unused: SteadySeconds) -> Self {
        Self { callers: HashMap::default(), unused, len: 0, places: Arc::default() }
    }

    /// Returns the grants with other folders that a grant below a folder must not cover.
    pub fn with_places(&self, places: Arc<ReservedFolders>) -> Self {
        Self { places, ..self.clone() }
    }

    /// Returns the folders that a grant below a folder must not cover.
    pub const fn places(&self) -> &Arc<ReservedFolders> {
        &self.places
    }

    /// Returns the grants with another time of disuse, in seconds.
    pub fn with_unused(&self, unused: SteadySeconds) -> Self {
        Self { unused, ..self.clone() }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns the seconds without use after which a grant ends.
    pub const fn unused(&self) -> SteadySeconds {
        self.unused
    }

    /// Returns the number of a caller's grants.
    pub fn of_caller(&self, caller: &Caller) -> usize {
        self.callers.get(caller).map_or(0, |items| items.values().map(Vec::len).sum())
    }

    /// Finds a live grant that covers the action. A lasting grant is taken before a once-grant. A
    /// once-grant is claimed, so that no other call gets it. `own` is the approval that the call
    /// waited for: its once-grant is taken before others, and no other call gets it while this one
    /// waits.
    pub fn claim(&self, asked: &ApprovalSubject, now: SteadySeconds, own: Option<&ApprovalId>) -> Option<GrantProof> {
        self.claim_call(asked, None, now, own)
    }

    /// As [`Self::claim`], for a call with these arguments, which a grant below a folder may cover
    /// too.
    pub fn claim_call(
        &self,
        asked: &ApprovalSubject,
        arguments: Option<&RawJson>,
        now: SteadySeconds,
        own: Option<&ApprovalId>,
    ) -> Option<GrantProof> {
        let grants = self.callers.get(&asked.caller)?.get(&*asked.item)?;
        let text = arguments.map(RawJson::text);
        let given = text.as_deref().map(OutlinedArguments::new);
        let covers = |grant: &ApprovalGrant| grant.covers_call(asked, given.as_ref(), &self.places);
        let fitting = |once: bool| {
            let fits = move |grant: &&Arc<ApprovalGrant>| grant.is_once() == once && covers(grant);
            grants.iter().filter(fits).filter(|grant| !grant.is_over(now, self.unused))
        };
        let free = |grant: &&Arc<ApprovalGrant>| {
            grant.claimed.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire).is_ok()
        };
        let own_once = || fitting(true).filter(|grant| grant.is_of(own)).find(free);
        let any_once = || fitting(true).filter(|grant| !grant.is_of(own) && !grant.is_reserved()).find(free);
        let grant = fitting(false).next().or_else(own_once).or_else(any_once)?;
        Some(GrantProof { grant: Arc::clone(grant), now, spent: false })
    }

    /// Whether a live grant for longer than once is about this item, for any arguments. Uses
    /// nothing up.
    pub fn lasting(&self, asked: &ApprovalSubject, now: SteadySeconds) -> bool {
        let Some(items) = self.callers.get(&asked.caller) else { return false };
        items.values().flatten().any(|grant| grant.lasts_for(asked) && !grant.is_over(now, self.unused))
    }

    /// Returns the set with a further grant.
    pub fn with(&self, grant: Arc<ApprovalGrant>) -> Self {
        let mut grants = self.clone();
        let (caller, item) = (grant.asked().caller.clone(), Arc::clone(&grant.asked().item));
        Arc::make_mut(grants.callers.entry(caller).or_default()).entry(item).or_default().push(grant);
        grants.len += 1;
        grants
    }

    /// Returns the grants for which `gone` is false.
    pub fn without(&self, gone: impl Fn(&ApprovalGrant) -> bool) -> Self {
        let kept = self.iter().filter(|grant| !gone(grant)).cloned();
        kept.fold(Self::new(self.unused).with_places(Arc::clone(&self.places)), |mut grants, grant| {
            let (caller, item) = (grant.asked().caller.clone(), Arc::clone(&grant.asked().item));
            Arc::make_mut(grants.callers.entry(caller).or_default()).entry(item).or_default().push(grant);
            grants.len += 1;
            grants
        })
    }

    pub fn has(&self, grant: &ApprovalGrant) -> bool {
        let asked = grant.asked();
        let grants = self.callers.get(&asked.caller).and_then(|items| items.get(&*asked.item));
        grants.is_some_and(|grants| grants.iter().any(|live| live.id() == grant.id()))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<ApprovalGrant>> {
        self.callers.values().flat_map(|items| items.values()).flatten()
    }
}

/// Proof that a live grant covers an action; only [`LiveGrants::claim`] makes one.
///
/// Dropping the proof without [`Self::spend`] frees a claimed once-grant: a refused call uses
/// nothing up.
#[derive(Debug)]
#[must_use = "a consent that is dropped is given back"]
pub struct GrantProof {
    grant: Arc<ApprovalGrant>,
    now: SteadySeconds,
    spent: bool,
}

impl GrantProof {
    /// Makes a proof for tests of decisions, which do not look at its action.
    #[cfg(test)]
    pub(in crate::policy) fn stand_in(id: &str) -> Self {
        let text = Arc::<str>::from("x");
        let asked = ApprovalSubject::new(
            &crate::policy::action::PolicyAction::stand_in("x", "x", "x"),
            &text,
            ApprovalEvidence::Client,
        );
        let grant = ApprovalGrant::new(GrantRow {
            id: Arc::from(id),
            asked,
            arguments: GrantArguments::Exact,
            lifetime: GrantLifetime::Once,
            evidence: ApprovalEvidence::Client,
            by: text,
            granted_at: 0,
            last_used: 0,
            uses: 0,
        });
        Self { grant: Arc::new(grant), now: 0, spent: false }
    }

    #[cfg(test)]
    pub fn grant(&self) -> &ApprovalGrant {
        &self.grant
    }

    #[cfg(test)]
    pub fn is_once(&self) -> bool {
        self.grant.is_once()
    }

    /// Counts a use, because the call goes on. A once-grant stays claimed and covers nothing more;
    /// the store must consume it before the call is sent.
    pub fn spend(mut self) -> Arc<ApprovalGrant> {
        self.spent = true;
        self.grant.last_used.fetch_max(self.now, Ordering::Relaxed);
        self.grant.uses.fetch_add(1, Ordering::Relaxed);
        Arc::clone(&self.grant)
    }
}

impl Drop for GrantProof {
    fn drop(&mut self) {
        if !self.spent && self.grant.is_once() {
            self.grant.claimed.store(false, Ordering::Release);
        }
    }
}
