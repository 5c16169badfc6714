//! The health of one upstream in the answer to `status`.

use crate::upstream::handle::Handle;
use crate::wire::raw::{RawJson, RawObject};

/// Adds for how long the upstream is in its state, why, when it is tried again, and what to do.
pub(super) fn add_health(out: &mut RawObject, handle: &Handle) {
    out.set("since-seconds", RawJson::number(handle.health.age().as_secs()));
    if let Some(wait) = handle.next_start() {
        out.set("next-try-seconds", RawJson::number(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)));
    }
    if let Some(error) = handle.health.last_error() {
        out.set("last-error", RawJson::string(&error));
    }
    if let Some(advice) = handle.advice() {
        out.set("advice", RawJson::string(&advice));
    }
    let stderr = handle.health.stderr();
    if !stderr.is_empty() {
        out.set("stderr", RawJson::list(stderr.iter().map(|line| RawJson::string(line))));
    }
}
