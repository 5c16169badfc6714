//! The back-off of a server's stream of changes: how long to pause before it is opened again.

use std::time::{Duration, Instant};

/// First pause; doubles up to [`LONGEST`].
pub const SHORTEST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(300);
/// A stream that stayed open for this long counts as useful even if it brought no message.
const CALM: Duration = Duration::from_secs(300);

/// The back-off of one stream.
#[derive(Debug, Default)]
pub struct StreamPace {
    /// Number of streams in a row that brought no message.
    in_vain: u32,
    /// End of the last pause.
    resumed: Option<Instant>,
}

impl StreamPace {
    /// Records that a stream ended or could not be opened, and returns the pause before the next
    /// attempt. `has_lived` is true if the stream brought a message, `wish` is the server's lower
    /// bound for the pause, and `jitter`, a random number in 0..1, spreads the streams of many
    /// gateways.
    pub fn ended(&mut self, has_lived: bool, wish: Option<Duration>, jitter: f64, now: Instant) -> Duration {
        let was_calm = self.resumed.is_some_and(|resumed| now.saturating_duration_since(resumed) >= CALM);
        if has_lived || was_calm {
            self.in_vain = 0;
        }
        let pause = SHORTEST.saturating_mul(1 << self.in_vain.min(16)).min(LONGEST);
        self.in_vain = self.in_vain.saturating_add(1);
        // Without jitter: most streams can be opened again after the first pause.
        let spread = if pause > SHORTEST { 0.75 + 0.25 * jitter.clamp(0.0, 1.0) } else { 1.0 };
        let pause = pause.mul_f64(spread).max(wish.unwrap_or_default());
        self.resumed = Some(now + pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::sim::epoch;

    /// Returns the pauses of streams that end at once, in milliseconds.
    fn pauses(pace: &mut StreamPace, count: usize, wish: Option<Duration>, jitter: f64) -> Vec<u64> {
        let mut now = epoch();
        let mut pause = || {
            let pause = pace.ended(false, wish, jitter, now);
            now += pause;
            pause.as_millis().try_into().unwrap()
        };
        (0..count).map(|_| pause()).collect()
    }

    #[test]
    fn streams_that_bring_nothing_double_the_pause_up_to_minutes() {
        let mut pace = StreamPace::default();
        let all = pauses(&mut pace, 100, None, 1.0);
        assert_eq!(all[..8], [2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000, 256_000]);
        assert!(all[8..].iter().all(|pause| *pause == 300_000));
        let least = pauses(&mut StreamPace::default(), 3, None, 0.0);
        assert_eq!(least, [2000, 3000, 6000], "a quarter is random");
    }

    #[test]
    fn a_stream_that_lived_begins_anew_and_so_does_one_that_stood_for_long() {
        let now = epoch();
        let failing = || StreamPace { in_vain: 6, resumed: Some(now) };
        assert_eq!(failing().ended(true, None, 1.0, now), SHORTEST);
        assert_eq!(failing().ended(false, None, 1.0, now + CALM), SHORTEST);
        assert_eq!(failing().ended(false, None, 1.0, now + CALM / 2), Duration::from_secs(128));
    }

    #[test]
    fn the_wish_of_the_server_is_obeyed() {
        let wish = Some(Duration::from_secs(10));
        assert_eq!(pauses(&mut StreamPace::default(), 5, wish, 1.0), [10_000, 10_000, 10_000, 16_000, 32_000]);
    }
}
