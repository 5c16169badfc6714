//! The numbers of requests that one replica has passed on, so that none of them is taken twice.
//! Source: RFC 4303, section 3.4.3.

/// Numbers below the highest one that are told apart; older ones are refused.
const WINDOW: u64 = 65_536;
const WORDS: usize = (WINDOW / 64) as usize;

/// The numbers that were taken from one replica.
#[derive(Debug)]
pub struct ReplayWindow {
    highest: u64,
    /// A bit for each number of the window, at its remainder.
    taken: Box<[u64; WORDS]>,
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self { highest: 0, taken: Box::new([0; WORDS]) }
    }
}

impl ReplayWindow {
    /// Takes a number; `false` if it was taken before, is too old to tell, or is 0.
    pub fn take(&mut self, number: u64) -> bool {
        if number == 0 || number.saturating_add(WINDOW) <= self.highest {
            return false;
        }
        if number > self.highest {
            // At most one round: after it, every bit is clear.
            for passed in (self.highest + 1..=number).rev().take(64 * WORDS) {
                self.set(passed, false);
            }
            self.highest = number;
        } else if self.has(number) {
            return false;
        }
        self.set(number, true);
        true
    }

    fn has(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.taken.get(word).is_some_and(|bits| bits & bit != 0)
    }

    fn set(&mut self, number: u64, on: bool) {
        let (word, bit) = place(number);
        if let Some(bits) = self.taken.get_mut(word) {
            *bits = if on { *bits | bit } else { *bits & !bit };
        }
    }
}

/// Returns the word and the bit of a number.
fn place(number: u64) -> (usize, u64) {
    let at = number % WINDOW;
    (usize::try_from(at / 64).unwrap_or_default(), 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_number_is_taken_once_and_none_that_is_too_old(
            steps in prop::collection::vec(prop_oneof![0..40_u64, 0..3 * WINDOW, 65_000..66_000_u64], 1..200),
        ) {
            let (mut window, mut taken, mut highest) = (ReplayWindow::default(), BTreeSet::new(), 0);
            for number in steps {
                let is_new = number > 0 && number + WINDOW > highest && taken.insert(number);
                prop_assert_eq!(window.take(number), is_new, "{}", number);
                highest = highest.max(if is_new { number } else { 0 });
            }
        }
    }
}
