//! The state that tells which tools are new: whether the first inventory of a launch was taken, and
//! for which launches a tool is confirmed. A pure state machine, kept beside the pins.
//!
//! A launch is open until its tools were listed in full once. Each tool of the first complete list
//! is confirmed for the launch, and that list closes the launch. The tools that a server shows only
//! to clients with input capabilities are read a moment later; the first such reading after that
//! list confirms them, and a reading that fails closes this part too. A list that was not read to
//! its end confirms no tool and closes nothing. Every other tool is new until an operator confirms
//! it. A confirmation is for one launch, as a grant is. A launch that comes back stays closed, as
//! happens when two configurations take turns with one store.

use crate::wire::digest::Digest;

/// Most launches that are remembered. A launch that was forgotten is open again.
const LAUNCHES: usize = 8;

/// A list of tools that was read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolListing {
    /// The launch whose server gave the list.
    pub launch: Digest,
    pub askers: AskerListing,
}

/// The state of the part of a list that only clients with input capabilities see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskerListing {
    /// The part is in the list, or there is none.
    Read,
    /// The part is still to be read.
    Awaited,
    /// The part could not be read this time.
    Failed,
}

/// The launches for which a tool is confirmed, or the launches of an upstream whose tools were
/// listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfirmedLaunches {
    /// The launches, the latest first.
    launches: [Option<Digest>; LAUNCHES],
    /// For a launch: whether the part of its first inventory that only some clients see is still
    /// missing.
    pub lacks_askers: bool,
}

impl ConfirmedLaunches {
    /// Restores the stored state; `launches` has the latest launch first.
    pub fn restore(launches: impl Iterator<Item = Digest>, lacks_askers: bool) -> Self {
        let mut out = Self { lacks_askers, ..Self::default() };
        out.launches.iter_mut().zip(launches).for_each(|(place, launch)| *place = Some(launch));
        out
    }

    /// Returns the launches, the latest first.
    pub fn launches(&self) -> impl Iterator<Item = Digest> {
        self.launches.iter().flatten().copied()
    }

    /// Whether the launch is one of these.
    pub fn is_for(&self, launch: Digest) -> bool {
        self.launches().any(|known| known == launch)
    }

    /// Returns the state with this launch added as the latest.
    #[must_use]
    pub fn and_for(self, launch: Digest) -> Self {
        let others = self.launches().filter(|other| *other != launch);
        Self::restore(std::iter::once(launch).chain(others), self.lacks_askers)
    }

    /// Whether a tool of this list belongs to the first inventory of its launch, which must be
    /// approved. `is_for_all` says that every client sees the tool.
    pub fn takes(self, reading: ToolListing, is_for_all: bool) -> bool {
        let is_open = !self.is_for(reading.launch);
        if is_for_all {
            is_open
        } else {
            reading.askers == AskerListing::Read && (is_open || self.lacks_askers_of(reading))
        }
    }

    /// Returns the launch's state after this list. The launch must be approved.
    pub fn after(self, reading: ToolListing) -> Self {
        let is_open = !self.is_for(reading.launch);
        let lacks_askers = reading.askers == AskerListing::Awaited && (is_open || self.lacks_askers_of(reading));
        Self { lacks_askers, ..self.and_for(reading.launch) }
    }

    /// Whether the part for some clients is missing and the reading is of the latest launch.
    fn lacks_askers_of(&self, reading: ToolListing) -> bool {
        self.lacks_askers && self.launches().next() == Some(reading.launch)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn reading(launch: u8, askers: AskerListing) -> ToolListing {
        ToolListing { launch: Digest::of(&[launch]), askers }
    }

    #[test]
    fn the_first_complete_list_closes_a_launch() {
        use AskerListing::{Awaited, Failed, Read};
        let start = ConfirmedLaunches::default();
        for (label, before, then, for_all, for_some) in [
            ("the first list", vec![], Read, true, true),
            ("the first list, the rest of which comes later", vec![], Awaited, true, false),
            ("the rest", vec![Awaited], Read, false, true),
            ("the list again before the rest", vec![Awaited, Awaited], Read, false, true),
            ("after a rest that failed", vec![Awaited, Failed], Read, false, false),
            ("after a first list without the rest", vec![Failed], Read, false, false),
            ("after the rest", vec![Awaited, Read], Read, false, false),
            ("the rest is read again", vec![Read, Awaited], Read, false, false),
            ("after the first list", vec![Read], Read, false, false),
        ] {
            let state = before.iter().fold(start, |state, askers| state.after(reading(1, *askers)));
            let then = reading(1, then);
            assert_eq!((state.takes(then, true), state.takes(then, false)), (for_all, for_some), "{label}");
        }
        let closed = start.after(reading(1, Read));
        assert!(closed.takes(reading(2, Read), true), "another launch is open");
        let (between, lacking) =
            (closed.after(reading(2, Read)), start.after(reading(1, Awaited)).after(reading(2, Awaited)));
        assert!(!between.takes(reading(1, Read), true), "the launch of before is closed when it comes back");
        assert!(
            !lacking.takes(reading(1, Read), false) && lacking.takes(reading(2, Read), false),
            "the rest is of one launch"
        );
        let many = (3..20).fold(between, |state, launch| state.after(reading(launch, Read)));
        assert_eq!(
            (many.launches().count(), many.is_for(Digest::of(&[19])), many.is_for(Digest::of(&[1]))),
            (LAUNCHES, true, false)
        );
        assert_eq!(ConfirmedLaunches::restore(many.launches(), false), many);
    }

    proptest! {
        /// In the lists of one launch, the tools that all clients see are confirmed by the first
        /// list alone, the others by all lists up to the first list that is not followed by another
        /// reading.
        #[test]
        fn a_tool_that_appears_later_is_new_whatever_is_read_and_fails(
            lists in prop::collection::vec((0..3_u8, prop::collection::vec((0..6_u8, any::<bool>()), 0..6)), 1..8)
        ) {
            let mut state = ConfirmedLaunches::default();
            let mut known = HashSet::new();
            let (mut want, mut is_over) = (HashSet::new(), false);
            for (at, (askers, tools)) in lists.iter().enumerate() {
                let askers = [AskerListing::Read, AskerListing::Awaited, AskerListing::Failed][usize::from(*askers)];
                let reading = reading(1, askers);
                for (tool, is_for_all) in tools {
                    if state.takes(reading, *is_for_all) {
                        known.insert(*tool);
                    }
                    if (*is_for_all && at == 0) || (!is_for_all && askers == AskerListing::Read && !is_over) {
                        want.insert(*tool);
                    }
                }
                is_over |= askers != AskerListing::Awaited;
                state = state.after(reading);
            }
            prop_assert_eq!(known, want);
        }
    }
}
