//! Open approvals: which answers by which evidence count, and which calls are refused without one.
//!
//! | state | event | to | remembered |
//! |---|---|---|---|
//! | none | `open`: nothing speaks against it | open | the caller's last minute |
//! | none | `open`: denied lately, embargo, another prompt of that caller and item, too many | none | |
//! | open | `open` of the very same action | open (joined) | |
//! | open | `answer`: allow, by sufficient evidence | granted | strikes are forgotten |
//! | open | `answer`: deny | denied | this action, 10 minutes; strikes are forgotten |
//! | open | `answer`: dismiss | dismissed | a strike |
//! | open | `expire` at its time | timed out | a strike |
//! | open | `supersede`: definition or launch changed, or the process ends | superseded | |
//! | open | `set_limits`: one too many of its caller | superseded | |
//!
//! Three strikes in a row are an embargo on that item for that caller: 10 minutes, then an hour, then a day. A closed prompt
//! is never opened again, and an answer that may not be given leaves the prompt open.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::fatigue::Fatigue;
use super::grant::{Arguments, Grant, GrantRow, Lifetime};
use super::{Asked, Prompt, PromptId, Shown, Wall};
use crate::policy::Evidence;

/// Prompts of all callers that may be open at once.
const MAX_PROMPTS: usize = 1024;
/// The wait in a refusal when the time is unknown, in seconds.
const SOME_TIME: u64 = 60;

/// A caller's bounds on approvals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeskLimits {
    /// Open prompts of one caller.
    pub max_open: usize,
    /// Prompts that one caller may open in a minute.
    pub per_minute: usize,
}

/// A person's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Allow(Lifetime),
    Deny,
    /// Closed without saying either.
    Dismiss,
}

/// How a prompt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub enum Closed {
    /// There is a live grant.
    Granted,
    Denied,
    Dismissed,
    TimedOut,
    /// The item of the call has changed or is gone.
    Superseded,
}

/// A prompt that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub id: PromptId,
    /// It was open already.
    pub joined: bool,
}

/// Why a call is refused without an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the same call was denied within the last 10 minutes")]
    Declined,
    #[error("the last approvals of this item were not answered; try again later")]
    Embargo { until: Wall },
    #[error("another approval of this item is open: {0}")]
    OpenAlready(PromptId),
    #[error("too many approvals are open or were opened just now; try again in a minute")]
    TooMany { retry: Duration },
    #[error("an approval cannot be kept, since the store takes no writes")]
    NotKept,
}

/// Why an answer does not count. The prompt stays as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotAnswer {
    #[error("no open approval with that id; it was answered or has expired")]
    Unknown,
    #[error("this needs evidence {} or more: {}", .0.into_str(), who_may(*.0))]
    Evidence(Evidence),
    #[error("an answer that came through the client may allow once or for its session, nothing longer")]
    TooLong,
    #[error("the caller has no session, or it has ended; allow once, for a time, or always")]
    NoSession,
    #[error("that time is over already")]
    Past,
    #[error("there are too many grants; revoke some with `headend grants revoke`")]
    Full,
    #[error("the answer could not be kept, so it does not count: {0}")]
    NotKept(String),
}

fn who_may(need: Evidence) -> &'static str {
    match need {
        Evidence::Client => "the client's user",
        Evidence::Page => "a person on the console page, or the operator with `headend approve`",
        Evidence::Operator => "the operator with `headend approve`",
    }
}

/// Open prompts and the memory of those that are closed.
#[derive(Debug)]
pub struct Desk {
    limits: DeskLimits,
    prompts: HashMap<PromptId, Prompt>,
    fatigue: Fatigue,
}

impl Desk {
    pub fn new(limits: DeskLimits) -> Self {
        Self { limits, prompts: HashMap::new(), fatigue: Fatigue::default() }
    }

    /// Puts other bounds in force, for open prompts too: beyond `max_open` the newest ones of a caller close, and none stays open
    /// for longer than `life` says. Returns those that close.
    pub fn set_limits(&mut self, limits: DeskLimits, life: impl Fn(&Prompt) -> Wall) -> Vec<PromptId> {
        self.limits = limits;
        let mut of_callers: HashMap<Arc<str>, Vec<(Wall, PromptId)>> = HashMap::new();
        for prompt in self.prompts.values_mut() {
            prompt.until = prompt.until.min(prompt.opened_at + life(prompt));
            let caller = Arc::clone(&prompt.asked.caller);
            of_callers.entry(caller).or_default().push((prompt.opened_at, prompt.id));
        }
        let excess = of_callers.into_values().flat_map(|mut open| {
            open.sort_unstable();
            open.into_iter().skip(limits.max_open)
        });
        let excess: Vec<PromptId> = excess.map(|(_, id)| id).collect();
        excess.iter().for_each(|id| drop(self.prompts.remove(id)));
        excess
    }

    /// Opens a prompt of `life` seconds, or joins the open one about the very same action.
    ///
    /// # Errors
    /// Why the call is refused without a prompt.
    pub fn open(&mut self, asked: Asked, shown: Shown, id: PromptId, now: Wall, life: Wall) -> Result<Opened, Refused> {
        self.fatigue.sweep(now);
        let action = asked.action();
        let others = self.prompts.values_mut().filter(|prompt| prompt.asked.caller == asked.caller);
        let mut open = 0;
        for other in others {
            open += 1;
            if other.asked.item != asked.item {
                continue;
            }
            // A session that has asked may have ended; its caller comes back in another one.
            let same_session = other.asked.session == asked.session || other.asked.session.is_none();
            let same_need = other.asked.need == asked.need && other.asked.destructive == asked.destructive;
            if same_session && same_need && other.asked.action() == action && now < other.until {
                other.asked.session = asked.session;
                return Ok(Opened { id: other.id, joined: true });
            }
            return Err(Refused::OpenAlready(other.id));
        }
        if self.fatigue.is_denied(&action, now) {
            return Err(Refused::Declined);
        }
        if let Some(until) = self.fatigue.embargo(&asked, now) {
            return Err(Refused::Embargo { until });
        }
        let wait = self.fatigue.wait(&asked.caller, self.limits.per_minute, now);
        if wait > 0 {
            return Err(Refused::TooMany { retry: Duration::from_secs(wait) });
        }
        let full = open >= self.limits.max_open || self.prompts.len() >= MAX_PROMPTS;
        if full || !self.fatigue.has_room(&asked) || self.prompts.contains_key(&id) {
            return Err(Refused::TooMany { retry: Duration::from_secs(SOME_TIME) });
        }
        self.fatigue.opened(&asked.caller, now);
        self.prompts.insert(id, Prompt { id, asked, shown, opened_at: now, until: now + life });
        Ok(Opened { id, joined: false })
    }

    /// A person's answer over a channel of that evidence; the prompt is closed by it.
    ///
    /// # Errors
    /// Why it does not count; the prompt is as before.
    pub fn answer(
        &mut self,
        id: &PromptId,
        answer: Answer,
        evidence: Evidence,
        by: &str,
        now: Wall,
        grant_id: Arc<str>,
    ) -> Result<Option<Grant>, CannotAnswer> {
        let prompt = self.prompts.get(id).filter(|prompt| now < prompt.until).ok_or(CannotAnswer::Unknown)?;
        if let Answer::Allow(lifetime) = answer {
            may_allow(&prompt.asked, lifetime, evidence, now)?;
        }
        let Some(prompt) = self.prompts.remove(id) else { return Err(CannotAnswer::Unknown) };
        match answer {
            Answer::Allow(lifetime) => {
                self.fatigue.answered(&prompt.asked);
                let arguments = Arguments::of(lifetime, evidence, prompt.asked.destructive);
                let (asked, by) = (prompt.asked, Arc::from(by));
                let row = GrantRow {
                    id: grant_id,
                    asked,
                    arguments,
                    lifetime,
                    evidence,
                    by,
                    granted_at: now,
                    last_used: 0,
                    uses: 0,
                };
                return Ok(Some(Grant::new(row)));
            }
            Answer::Deny => {
                self.fatigue.answered(&prompt.asked);
                self.fatigue.denied(&prompt.asked, now);
            }
            Answer::Dismiss => self.fatigue.strike(&prompt.asked, now),
        }
        Ok(None)
    }

    /// Closes the prompts whose time is over.
    pub fn expire(&mut self, now: Wall) -> Vec<PromptId> {
        self.fatigue.sweep(now);
        let over: Vec<PromptId> = self.prompts.values().filter(|p| now >= p.until).map(|p| p.id).collect();
        for id in &over {
            if let Some(prompt) = self.prompts.remove(id) {
                self.fatigue.strike(&prompt.asked, now);
            }
        }
        over
    }

    /// Closes the prompts about changed items; this counts towards no embargo.
    pub fn supersede(&mut self, changed: impl Fn(&Prompt) -> bool) -> Vec<PromptId> {
        let gone: Vec<PromptId> = self.prompts.values().filter(|prompt| changed(prompt)).map(|p| p.id).collect();
        for id in &gone {
            self.prompts.remove(id);
        }
        gone
    }

    /// A session ended: its prompts can still be answered, but not for that session.
    pub fn session_ended(&mut self, session: u64) {
        for prompt in self.prompts.values_mut().filter(|prompt| prompt.asked.session == Some(session)) {
            prompt.asked.session = None;
        }
    }

    pub fn get(&self, id: &PromptId) -> Option<&Prompt> {
        self.prompts.get(id)
    }

    /// All open prompts, in no order.
    pub fn prompts(&self) -> impl Iterator<Item = &Prompt> {
        self.prompts.values()
    }

    #[cfg(test)]
    pub(super) fn largest_memory(&self) -> usize {
        self.fatigue.largest()
    }
}

fn may_allow(asked: &Asked, lifetime: Lifetime, evidence: Evidence, now: Wall) -> Result<(), CannotAnswer> {
    if evidence < asked.need {
        return Err(CannotAnswer::Evidence(asked.need));
    }
    match lifetime {
        Lifetime::Once => Ok(()),
        Lifetime::Session if asked.session.is_none() => Err(CannotAnswer::NoSession),
        Lifetime::Session => Ok(()),
        Lifetime::Until(_) | Lifetime::UntilChanged if evidence == Evidence::Client => Err(CannotAnswer::TooLong),
        Lifetime::Until(until) if until <= now => Err(CannotAnswer::Past),
        Lifetime::Until(_) | Lifetime::UntilChanged => Ok(()),
    }
}
