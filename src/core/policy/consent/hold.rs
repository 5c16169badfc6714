//! Limits on calls that are held open while they wait for a person: how many, and for how long.
//!
//! A held call takes a slot of its caller and one of all. After a client gave up a held call, the
//! next calls of that caller and client name are held for two thirds of the time that it waited.
//! This is forgotten once one of their calls is answered while it is held, or after an hour. Names
//! are the clients' own words, so a caller has room for a few; the oldest is dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::policy::caller::Caller;
/// Most calls of all callers that are held at once.
pub const MAX_HELD: usize = 256;

/// Time for which the patience of a client that gave up is remembered.
pub const REMEMBERED: Duration = Duration::from_secs(3600);
/// Most client names that are remembered for one caller.
const MAX_NAMES: usize = 16;
/// Most client names that are remembered for all callers.
const MAX_NAMES_OF_ALL: usize = 1024;

/// Time between two reminders to the client of a held call.
const REMIND: Duration = Duration::from_secs(10);

/// The schedule of the progress messages that tell a client that its call waits: at once, and then
/// from time to time.
#[derive(Debug, Default)]
pub struct HoldReminders {
    last: Option<Duration>,
}

impl HoldReminders {
    /// Whether a reminder is due; if so, the next one is due after [`REMIND`].
    pub fn is_due(&mut self, now: Duration) -> bool {
        let is_due = self.last.is_none_or(|last| now >= last + REMIND);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }

    /// Returns when the next reminder is due; `None` before the first one.
    pub fn next(&self) -> Option<Duration> {
        self.last.map(|last| last + REMIND)
    }
}

/// The client of a call: its caller, and the name that it gives itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientKey {
    pub caller: Caller,
    pub client: Arc<str>,
}

/// The way in which the wait of a held call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldEnd {
    /// A person answered.
    Answered,
    /// The client gave up after this time.
    GaveUp(Duration),
    /// The time was over, or the gateway ended the wait.
    Over,
}

/// The reason why a call is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldRefusal {
    /// There is no time to hold it for.
    NoTime,
    /// No slot is free for its caller, or for all callers together.
    Full,
}

/// The last wait that a client gave up.
#[derive(Debug)]
struct LastPatience {
    waited: Duration,
    at: Duration,
}

/// The numbers of held calls, and the clients that gave up. Times are of any clock that never goes
/// back.
#[derive(Debug, Default)]
pub struct HoldSlots {
    of_callers: HashMap<Caller, usize>,
    all: usize,
    gave_up: HashMap<ClientKey, LastPatience>,
}

impl HoldSlots {
    /// Takes a slot for a call that may be held for `hold`, if its caller has fewer than `most`.
    /// Returns the time for which to hold it.
    ///
    /// # Errors
    /// The reason why the call is not held; it takes no slot.
    pub fn begin(
        &mut self,
        holder: &ClientKey,
        hold: Duration,
        most: usize,
        now: Duration,
    ) -> Result<Duration, HoldRefusal> {
        let hold = hold.min(self.patience(holder, now).unwrap_or(hold));
        if hold.is_zero() {
            return Err(HoldRefusal::NoTime);
        }
        let mine = self.of_callers.get(&holder.caller).copied().unwrap_or(0);
        if mine >= most || self.all >= MAX_HELD {
            return Err(HoldRefusal::Full);
        }
        self.of_callers.insert(holder.caller.clone(), mine + 1);
        self.all += 1;
        Ok(hold)
    }

    /// Frees a slot that [`Self::begin`] took, and remembers or forgets the client's patience.
    pub fn end(&mut self, holder: &ClientKey, ended: HoldEnd, now: Duration) {
        if let Some(mine) = self.of_callers.get_mut(&holder.caller) {
            *mine = mine.saturating_sub(1);
            self.all = self.all.saturating_sub(1);
            if *mine == 0 {
                self.of_callers.remove(&holder.caller);
            }
        }
        match ended {
            HoldEnd::Answered => {
                self.gave_up.remove(holder);
            }
            HoldEnd::GaveUp(waited) => self.remember(holder, waited, now),
            HoldEnd::Over => {}
        }
    }

    /// Returns the number of held calls.
    pub const fn len(&self) -> usize {
        self.all
    }

    /// Returns the longest time to hold a call of the client, if it gave one up.
    fn patience(&self, holder: &ClientKey, now: Duration) -> Option<Duration> {
        let gave_up = self.gave_up.get(holder).filter(|gave_up| now < gave_up.at + REMEMBERED)?;
        Some(gave_up.waited / 3 * 2)
    }

    /// Remembers that a client gave up after `waited`, and drops the oldest name if there is no
    /// room.
    fn remember(&mut self, holder: &ClientKey, waited: Duration, now: Duration) {
        self.gave_up.retain(|_, gave_up| now < gave_up.at + REMEMBERED);
        // If several calls were held together, the shortest wait that was given up counts.
        let waited = self.gave_up.get(holder).map_or(waited, |before| before.waited.min(waited));
        if !self.gave_up.contains_key(holder) {
            let mine = self.gave_up.keys().filter(|known| known.caller == holder.caller).count();
            let (is_full, only_mine) = (mine >= MAX_NAMES || self.gave_up.len() >= MAX_NAMES_OF_ALL, mine >= MAX_NAMES);
            let others = self.gave_up.iter().filter(|(known, _)| !only_mine || known.caller == holder.caller);
            let oldest = others.min_by_key(|(_, gave_up)| gave_up.at).map(|(known, _)| known.clone());
            if let Some(oldest) = oldest.filter(|_| is_full) {
                self.gave_up.remove(&oldest);
            }
        }
        self.gave_up.insert(holder.clone(), LastPatience { waited, at: now });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOLD: Duration = Duration::from_secs(40);

    fn holder(caller: &str, client: &str) -> ClientKey {
        ClientKey { caller: Caller::named(caller), client: Arc::from(client) }
    }

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_client_that_gave_up_waits_two_thirds_of_that_until_it_is_answered_or_an_hour_has_passed() {
        let mut held = HoldSlots::default();
        let (ed, cli) = (holder("local", "ed"), holder("local", "cli"));
        assert_eq!(held.begin(&ed, HOLD, 20, s(0)), Ok(HOLD));
        held.end(&ed, HoldEnd::GaveUp(s(30)), s(30));
        assert_eq!(held.begin(&ed, HOLD, 20, s(31)), Ok(s(20)));
        held.end(&ed, HoldEnd::Over, s(51));
        assert_eq!(held.begin(&cli, HOLD, 20, s(52)), Ok(HOLD), "another client of that caller");
        assert_eq!(held.begin(&holder("ci", "ed"), HOLD, 20, s(52)), Ok(HOLD), "that client of another caller");
        assert_eq!(held.begin(&ed, s(5), 20, s(52)), Ok(s(5)), "its time may be shorter anyway");
        held.end(&ed, HoldEnd::GaveUp(s(3)), s(55));
        assert_eq!(held.begin(&ed, HOLD, 20, s(56)), Ok(s(2)));
        held.end(&ed, HoldEnd::Answered, s(57));
        assert_eq!(held.begin(&ed, HOLD, 20, s(58)), Ok(HOLD), "answered while held");
        held.end(&ed, HoldEnd::GaveUp(s(9)), s(100));
        assert_eq!(held.begin(&ed, HOLD, 20, s(3699)), Ok(s(6)));
        held.end(&ed, HoldEnd::Over, s(3699));
        assert_eq!(held.begin(&ed, HOLD, 20, s(3700)), Ok(HOLD), "an hour has passed");
    }

    #[test]
    fn calls_that_were_given_up_together_count_by_the_first_of_them() {
        let mut held = HoldSlots::default();
        let ed = holder("local", "ed");
        held.end(&ed, HoldEnd::GaveUp(s(6)), s(10));
        held.end(&ed, HoldEnd::GaveUp(s(30)), s(30));
        assert_eq!(held.begin(&ed, HOLD, 20, s(3629)), Ok(s(4)));
    }

    #[test]
    fn what_has_no_time_or_no_place_is_not_held() {
        let mut held = HoldSlots::default();
        let ed = holder("local", "ed");
        assert_eq!(held.begin(&ed, Duration::ZERO, 20, s(0)), Err(HoldRefusal::NoTime));
        let hasty = holder("local", "hasty");
        held.end(&hasty, HoldEnd::GaveUp(Duration::ZERO), s(0));
        assert_eq!(held.begin(&hasty, HOLD, 20, s(0)), Err(HoldRefusal::NoTime), "it waits for nothing");
        for _ in 0..20 {
            assert_eq!(held.begin(&ed, HOLD, 20, s(0)), Ok(HOLD));
        }
        assert_eq!(
            held.begin(&holder("local", "cli"), HOLD, 20, s(0)),
            Err(HoldRefusal::Full),
            "places are the caller's"
        );
        held.end(&ed, HoldEnd::Over, s(1));
        assert_eq!(held.begin(&ed, HOLD, 20, s(1)), Ok(HOLD));
        for n in 0..MAX_HELD - 20 {
            assert_eq!(held.begin(&holder(&format!("c{n}"), ""), HOLD, 20, s(1)), Ok(HOLD));
        }
        assert_eq!(held.begin(&holder("last", ""), HOLD, 20, s(1)), Err(HoldRefusal::Full), "all together");
        assert_eq!(held.len(), MAX_HELD);
    }

    #[test]
    fn a_client_hears_at_once_and_every_ten_seconds_that_its_call_waits() {
        let mut reminders = HoldReminders::default();
        let due: Vec<u64> = (100..140).filter(|second| reminders.is_due(s(*second))).collect();
        assert_eq!(due, [100, 110, 120, 130]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Begin(usize, usize, u64, usize),
        End(usize, u8, u64),
        Pass(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0_usize..4, 0_usize..40, 0_u64..100, 0_usize..8).prop_map(|(a, b, c, d)| Step::Begin(a, b, c, d)),
            4 => (0_usize..50, 0_u8..3, 1_u64..100).prop_map(|(a, b, c)| Step::End(a, b, c)),
            1 => (0_u64..5000).prop_map(Step::Pass),
        ];
        proptest::collection::vec(step, 1..300)
    }

    proptest! {
        /// In any history no caller has more slots than it may, every slot is freed, no call is
        /// held for longer than asked for or than two thirds of the last wait that its client gave
        /// up, and the memory keeps its bounds.
        #[test]
        fn places_and_memory_keep_their_bounds(steps in steps()) {
            let (mut held, mut now) = (HoldSlots::default(), Duration::ZERO);
            let mut open: Vec<ClientKey> = Vec::new();
            let mut gave_up: HashMap<ClientKey, (Duration, Duration)> = HashMap::new();
            for step in steps {
                match step {
                    Step::Begin(caller, client, hold, most) => {
                        let holder = holder(&format!("caller {caller}"), &format!("client {client}"));
                        let mine = open.iter().filter(|other| other.caller == holder.caller).count();
                        let got = held.begin(&holder, s(hold), most, now);
                        match got {
                            Ok(time) => {
                                prop_assert!(mine < most && time <= s(hold) && !time.is_zero());
                                let last = gave_up.get(&holder).filter(|(_, at)| now < *at + REMEMBERED);
                                // The oldest of many names may be forgotten, the newest not.
                                let newest = gave_up.iter().filter(|(other, _)| other.caller == holder.caller);
                                let newest = newest.max_by_key(|(_, (_, at))| *at).map(|(other, _)| other.clone());
                                if let Some((waited, _)) = last && newest.as_ref() == Some(&holder) {
                                    prop_assert!(time <= *waited / 3 * 2, "{time:?} after {waited:?}");
                                }
                                open.push(holder);
                            }
                            Err(HoldRefusal::Full) => prop_assert!(mine >= most || open.len() >= MAX_HELD),
                            Err(HoldRefusal::NoTime) => prop_assert_eq!(hold, 0),
                        }
                    }
                    Step::End(..) if open.is_empty() => {}
                    Step::End(which, how, waited) => {
                        let holder = open.swap_remove(which % open.len());
                        let ended = [HoldEnd::Answered, HoldEnd::Over, HoldEnd::GaveUp(s(waited))][usize::from(how)];
                        // No two ends are at the same time, so that one is the newest.
                        now += Duration::from_millis(1);
                        held.end(&holder, ended, now);
                        match ended {
                            HoldEnd::Answered => {
                                gave_up.remove(&holder);
                            }
                            HoldEnd::GaveUp(waited) => {
                                gave_up.insert(holder, (waited, now));
                            }
                            HoldEnd::Over => {}
                        }
                    }
                    Step::Pass(seconds) => now += s(seconds),
                }
                prop_assert_eq!(held.len(), open.len());
                prop_assert!(held.gave_up.len() <= MAX_NAMES_OF_ALL);
                for caller in 0..4 {
                    let caller = format!("caller {caller}");
                    prop_assert!(held.gave_up.keys().filter(|known| known.caller.name() == caller).count() <= MAX_NAMES);
                }
            }
            while let Some(holder) = open.pop() {
                held.end(&holder, HoldEnd::Over, now);
            }
            prop_assert!(held.len() == 0 && held.of_callers.is_empty());
        }
    }
}
