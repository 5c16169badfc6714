//! The health of one upstream in the answer to `status`, and what of its lists is not offered.

use crate::mcp::method::List;
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

/// Adds how many items are not offered because the upstream's lists are longer than its `max-inventory`.
pub(super) fn add_excess(out: &mut RawObject, handle: &Handle) {
    let excess = List::ALL.into_iter().zip(handle.excess()).filter(|(_, excess)| !excess.is_none());
    let mut left = RawObject::default();
    for (list, excess) in excess {
        let mut counted = RawObject::default();
        counted.set("items", RawJson::number(excess.items));
        counted.set("or-more", RawJson::boolean(excess.or_more));
        left.set(if list == List::Templates { "resource-templates" } else { list.member() }, counted.encode());
    }
    if handle.excess().iter().any(|excess| !excess.is_none()) {
        out.set("not-offered", left.encode());
    }
}

/// Adds which definitions were repaired or are withheld because they are invalid.
pub(super) fn add_flaws(out: &mut RawObject, handle: &Handle) {
    let flaws = handle.flaws();
    if flaws.lines.is_empty() {
        return;
    }
    out.set("repairs", RawJson::number(flaws.repairs));
    out.set("invalid-definitions", RawJson::list(flaws.lines.iter().map(|line| RawJson::string(line))));
    if flaws.more > 0 {
        out.set("invalid-definitions-not-shown", RawJson::number(flaws.more));
    }
}
