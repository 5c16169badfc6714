use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn digest(text: u8) -> Digest {
    Digest::of(&[text])
}

const QUIET: ChangePolicy = ChangePolicy::Accept;
const ASK: ChangePolicy = ChangePolicy::Quarantine;

#[test]
fn the_table_holds_row_by_row() {
    let (a, b, c) = (digest(1), digest(2), digest(3));
    let pinned = Pin::at(a);
    let changed = pinned.see(b, ASK, false);
    let quarantined = Pin::first(a, UpstreamTrust::Untrusted, false);
    let rejected = changed.reject(b).unwrap();
    for (label, pin, state, approved, waiting) in [
        ("first, standard", Pin::first(a, UpstreamTrust::Standard, false), PinState::Pinned, Some(a), None),
        ("first, trusted", Pin::first(a, UpstreamTrust::Trusted, false), PinState::Pinned, Some(a), None),
        ("first, untrusted", quarantined, PinState::Quarantined, None, Some(a)),
        ("first, a doubt", Pin::first(a, UpstreamTrust::Standard, true), PinState::Quarantined, None, Some(a)),
        ("quarantined, other", quarantined.see(b, QUIET, false), PinState::Quarantined, None, Some(b)),
        ("pinned, same", pinned.see(a, ASK, true), PinState::Pinned, Some(a), None),
        ("pinned, other", changed, PinState::Changed, Some(a), Some(b)),
        ("pinned, other, accepted", pinned.see(b, QUIET, false), PinState::Pinned, Some(b), None),
        ("pinned, other, a doubt", pinned.see(b, QUIET, true), PinState::Changed, Some(a), Some(b)),
        ("changed, third", changed.see(c, ASK, false), PinState::Changed, Some(a), Some(c)),
        ("changed, back", changed.see(a, ASK, false), PinState::Pinned, Some(a), None),
        ("changed, approved", changed.approve(b).unwrap(), PinState::Pinned, Some(b), None),
        ("quarantined, approved", quarantined.approve(a).unwrap(), PinState::Pinned, Some(a), None),
        ("changed, rejected", rejected, PinState::Rejected, Some(a), Some(b)),
        ("rejected, same", rejected.see(b, QUIET, false), PinState::Rejected, Some(a), Some(b)),
        ("rejected, third", rejected.see(c, QUIET, false), PinState::Changed, Some(a), Some(c)),
        ("rejected, back", rejected.see(a, ASK, false), PinState::Pinned, Some(a), None),
        ("rejected, approved", rejected.approve(b).unwrap(), PinState::Pinned, Some(b), None),
        ("pinned, rejected", pinned.reject(a).unwrap(), PinState::Rejected, None, Some(a)),
        (
            "rejected without a pin, other",
            pinned.reject(a).unwrap().see(b, QUIET, false),
            PinState::Quarantined,
            None,
            Some(b),
        ),
        ("named", pinned.named(b, UpstreamTrust::Standard), PinState::Pinned, Some(b), None),
        ("named, untrusted", pinned.named(b, UpstreamTrust::Untrusted), PinState::Changed, Some(a), Some(b)),
    ] {
        assert_eq!((pin.state(), pin.approved(), pin.waiting()), (state, approved, waiting), "{label}");
    }
    for (label, outcome, want) in [
        ("approve another", changed.approve(c), PinDecisionError::ChangedSince),
        ("approve the old one", changed.approve(a), PinDecisionError::ChangedSince),
        ("approve what is pinned", pinned.approve(a), PinDecisionError::NothingWaits),
        ("reject another", changed.reject(c), PinDecisionError::ChangedSince),
        ("reject the old one while another waits", changed.reject(a), PinDecisionError::ChangedSince),
    ] {
        assert_eq!(outcome, Err(want), "{label}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    See { text: u8, accept: bool, doubtful: bool },
    Approve(u8),
    Reject(u8),
    Gone,
    Stored,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0..4_u8, any::<bool>(), any::<bool>()).prop_map(|(text, accept, doubtful)| Event::See { text, accept, doubtful }),
        2 => (0..4_u8).prop_map(Event::Approve),
        1 => (0..4_u8).prop_map(Event::Reject),
        1 => Just(Event::Gone),
        1 => Just(Event::Stored),
    ];
    prop::collection::vec(event, 0..40)
}

proptest! {
    /// A model of the texts that were let in: by the first sight, by `accept`, or by the operator
    /// with this very digest.
    #[test]
    fn no_path_shows_a_text_that_nobody_let_in(trust in 0..3_u8, doubt in any::<bool>(), list in events()) {
        let trust = [UpstreamTrust::Untrusted, UpstreamTrust::Standard, UpstreamTrust::Trusted][usize::from(trust)];
        let mut pin = Pin::first(digest(0), trust, doubt);
        let mut let_in = HashSet::new();
        if trust != UpstreamTrust::Untrusted && !doubt {
            let_in.insert(0);
        }
        for event in list {
            match event {
                Event::See { text, accept, doubtful } => {
                    let before = pin;
                    pin = pin.see(digest(text), if accept { QUIET } else { ASK }, doubtful);
                    let known = before.approved().is_some() && before.state() != PinState::Rejected;
                    if accept && !doubtful && known {
                        let_in.insert(text);
                    }
                }
                Event::Approve(text) => match pin.approve(digest(text)) {
                    Ok(after) => {
                        prop_assert_eq!(pin.waiting(), Some(digest(text)));
                        let_in.insert(text);
                        pin = after;
                    }
                    Err(_) => prop_assert_ne!(pin.waiting(), Some(digest(text))),
                },
                Event::Reject(text) => {
                    if let Ok(after) = pin.reject(digest(text)) {
                        let_in.remove(&text);
                        prop_assert_eq!(after.state(), PinState::Rejected);
                        pin = after;
                    }
                }
                Event::Gone => {}
                Event::Stored => {
                    let rejected = pin.state() == PinState::Rejected;
                    prop_assert_eq!(Pin::restore(pin.approved(), pin.waiting(), rejected), Some(pin));
                }
            }
            for text in 0..4 {
                prop_assert!(!pin.shows(digest(text)) || let_in.contains(&text), "{event:?} shows {text}: {pin:?}");
            }
        }
    }

    /// A launch changes only with its program, and only an approval with that digest starts it.
    #[test]
    fn a_changed_launch_starts_after_its_own_approval_alone(list in events()) {
        let mut pin = Pin::at(digest(0));
        let mut approved = HashSet::from([0]);
        for event in list {
            match event {
                Event::See { text, .. } => pin = pin.see(digest(text), ASK, false),
                Event::Approve(text) => if let Ok(after) = pin.approve(digest(text)) {
                    approved.insert(text);
                    pin = after;
                },
                Event::Reject(_) | Event::Gone | Event::Stored => {}
            }
            for text in 0..4 {
                prop_assert!(!pin.shows(digest(text)) || approved.contains(&text));
            }
        }
    }
}
