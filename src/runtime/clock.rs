//! The only place that reads the time and the only source of randomness.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

static START: LazyLock<Instant> = LazyLock::new(now);

/// The monotonic clock.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Time since the process first asked; what limits count in.
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
