//! The only place that reads the time and the only source of randomness.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

static START: LazyLock<Instant> = LazyLock::new(now);

/// The monotonic clock.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Time since the process first asked.
pub(crate) fn uptime() -> Duration {
    now().duration_since(*START)
}

/// Wall time in seconds, for metrics and dates on disk; never for a decision about access.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Wall time in milliseconds, for what people read; never for a decision about access.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub(crate) fn unix_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

/// What `uptime` is ahead of 1970, in nanoseconds, by the latest that was ever read of the wall clock.
static SINCE_1970: AtomicU64 = AtomicU64::new(0);

/// Time since 1970 on a clock that never goes back; what limits count in.
///
/// It follows the wall clock where that is ahead, so a machine that slept has its time; where the wall clock was set back, it
/// goes on from where it was.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub(crate) fn since_1970() -> Duration {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let uptime = uptime();
    let ahead = nanos(wall.saturating_sub(uptime));
    uptime + Duration::from_nanos(SINCE_1970.fetch_max(ahead, Ordering::Relaxed).max(ahead))
}

/// It is at least that late since 1970, as was seen before a restart.
pub(crate) fn not_before(seen: Duration) {
    SINCE_1970.fetch_max(nanos(seen.saturating_sub(uptime())), Ordering::Relaxed);
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// `N` random bytes.
///
/// # Panics
/// When the operating system has no randomness: nothing secret could be made then.
#[expect(
    clippy::expect_used,
    reason = "without randomness no token and no session id can be made; going on would be unsafe"
)]
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Straight from the kernel: a generator of our own would cost milliseconds at every start.
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(rest, flags).expect("invariant: the operating system provides randomness");
    }
    bytes
}

/// A random number in 0..1, for jitter.
pub(crate) fn jitter() -> f64 {
    f64::from(u32::from_be_bytes(random())) / f64::from(u32::MAX)
}

/// Waits until then; for ever where there is no time to wait for.
pub(crate) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
