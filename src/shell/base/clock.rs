//! The only module that reads the time, and the only source of randomness.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio_util::sync::CancellationToken;

use super::never::or_never;

#[cfg(any(test, feature = "testing"))]
pub mod played;
mod steady;

use self::steady::ClockReading;

#[cfg(any(test, feature = "testing"))]
use self::played::{reading, with_steady};
#[cfg(not(any(test, feature = "testing")))]
use self::{real_reading as reading, with_real_steady as with_steady};

static START: LazyLock<Instant> = LazyLock::new(now);

fn with_real_steady<T>(read: impl FnOnce(&steady::SteadyClock) -> T) -> T {
    static CLOCK: steady::SteadyClock = steady::SteadyClock::new();
    read(&CLOCK)
}

/// Reads the monotonic clock.
#[cfg(not(any(test, feature = "testing")))]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// Reads the monotonic clock; on a runtime whose time is paused, the runtime's clock.
#[cfg(any(test, feature = "testing"))]
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns the time since `then`, on the monotonic clock; zero if `then` is in the future.
pub fn since(then: Instant) -> Duration {
    now().saturating_duration_since(then)
}

/// Returns the time since the first call of this function.
pub fn uptime() -> Duration {
    now().duration_since(*START)
}

/// Returns the time since the machine was started, with the time in which it slept. All processes
/// of the machine read one clock.
#[cfg(not(any(test, feature = "testing")))]
pub fn since_boot() -> Duration {
    boot_time()
}

/// Returns the time since the machine was started; on a runtime whose time is paused, moved by the
/// runtime's clock.
#[cfg(any(test, feature = "testing"))]
pub fn since_boot() -> Duration {
    // Each thread of tests may have a runtime of its own.
    thread_local! {
        static BEGUN: (Duration, Instant) = (boot_time(), now());
    }
    BEGUN.with(|(at, begun)| *at + since(*begun))
}

#[cfg(target_os = "linux")]
fn boot_time() -> Duration {
    let read = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Neither number is negative on this clock.
    Duration::new(read.tv_sec.unsigned_abs(), u32::try_from(read.tv_nsec).unwrap_or_default())
}

#[cfg(not(target_os = "linux"))]
fn boot_time() -> Duration {
    uptime()
}

/// Returns the wall time in seconds since 1970, for metrics and dates on disk; never for a decision
/// about access.
pub fn unix_seconds() -> u64 {
    reading().wall.as_secs()
}

/// Returns the wall time in milliseconds since 1970, for people; never for a decision about access.
pub fn unix_millis() -> u64 {
    millis(reading().wall)
}

/// Returns the time since 1970 on a clock that never goes back, even if the wall clock is set back
/// or headend restarts. Every grant, limit, session and other lasting promise is measured on it
/// ([`steady`]).
pub fn since_1970() -> Duration {
    with_steady(|clock| clock.time(reading()))
}

/// Sets the clock of [`since_1970`] forward to a time that an earlier or another process has seen;
/// never back.
pub fn advance_clock(seen: Duration) {
    with_steady(|clock| clock.advance(seen, reading().machine));
}

fn real_reading() -> ClockReading {
    ClockReading { wall: wall(), machine: uptime() }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Converts to whole milliseconds.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Interval at which the two clocks are compared.
const COMPARE: Duration = Duration::from_secs(10);
/// Largest difference within one interval that is not logged.
const STEP: Duration = Duration::from_secs(30);

/// A jump of the wall clock: it was set, or the machine slept. `expected` follows from the
/// monotonic clock. Both are times since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockJump {
    expected: Duration,
    found: Duration,
}

/// Compares two readings, each of the wall clock (time since 1970) and the monotonic clock (time
/// since any moment). Returns the jump between them if it exceeds [`STEP`].
fn find_jump(before: (Duration, Duration), now: (Duration, Duration)) -> Option<ClockJump> {
    let expected = before.0 + now.1.saturating_sub(before.1);
    (expected.abs_diff(now.0) > STEP).then_some(ClockJump { expected, found: now.0 })
}

/// Logs jumps of the wall clock until `stop` fires.
///
/// A jump needs no other action. Deadlines and idle times use the monotonic clock, and promises in
/// time use [`since_1970`]. Dates in the audit log are wall-clock dates, and this line explains
/// their jump.
pub async fn watch_steps(stop: CancellationToken) {
    let read = || (Duration::from_millis(unix_millis()), uptime());
    let mut before = read();
    while tokio::time::timeout(COMPARE, stop.cancelled()).await.is_err() {
        let now = read();
        if let Some(ClockJump { expected, found }) = find_jump(before, now) {
            let (expected, found) = (date(expected), date(found));
            tracing::warn!(expected, found, "the wall clock was set, or the machine slept; dates in logs jump here");
        }
        before = now;
    }
}

fn date(since_1970: Duration) -> String {
    crate::policy::records::chain::timestamp(millis(since_1970))
}

/// Returns `N` random bytes.
///
/// # Panics
/// If the operating system has no randomness: headend could make no secret then.
#[expect(
    clippy::expect_used,
    reason = "without randomness no token and no session id can be made; going on would be unsafe"
)]
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    #[cfg(any(test, feature = "testing"))]
    if played::fill_from_seed(&mut bytes) {
        return bytes;
    }
    // Directly from the kernel: seeding a generator of our own would cost milliseconds at every
    // start.
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(rest, flags).expect("invariant: the operating system provides randomness");
    }
    bytes
}

/// Returns a random number from 0 to 1, for jitter.
pub fn jitter() -> f64 {
    f64::from(u32::from_be_bytes(random())) / f64::from(u32::MAX)
}

/// Waits until `at`, on the monotonic clock; forever for `None`.
pub async fn sleep_until(at: Option<Instant>) {
    or_never(at.map(|at| tokio::time::sleep_until(at.into()))).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_more_than_thirty_seconds_is_told_with_both_times() {
        let at = |wall: u64, monotonic: u64| (Duration::from_secs(wall), Duration::from_secs(monotonic));
        for (label, before, now, want) in [
            ("as it should be", at(1000, 50), at(1010, 60), None),
            ("a held-up task", at(1000, 50), at(4600, 3650), None),
            ("a small step ahead", at(1000, 50), at(1040, 60), None),
            ("a small step back", at(1000, 50), at(980, 60), None),
            ("a step ahead", at(1000, 50), at(1041, 60), Some((1010, 1041))),
            ("a step back", at(1000, 50), at(979, 60), Some((1010, 979))),
            ("back before 1970", at(1000, 50), at(0, 60), Some((1010, 0))),
            ("a night's sleep", at(1000, 50), at(30_000, 51), Some((1001, 30_000))),
            ("a monotonic clock that stands", at(1000, 50), at(1010, 50), None),
        ] {
            let want = want.map(|(expected, found)| ClockJump {
                expected: Duration::from_secs(expected),
                found: Duration::from_secs(found),
            });
            assert_eq!(find_jump(before, now), want, "{label}");
        }
    }
}
