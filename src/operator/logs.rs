//! The operator's method `logs`: the log of one upstream, and what is added to it.

use std::sync::Arc;
use std::time::Duration;

use crate::daemon::gateway::Gateway;
use crate::policy::chain::timestamp;
use crate::wire::code;
use crate::wire::foreign;
use crate::wire::raw::{RawJson, RawObject};

/// How often, and in which rhythm, an answer that waits for a line looks for another log: twenty seconds.
const LOOKS: u32 = 40;
const LOOK: Duration = Duration::from_millis(500);
/// Lines in one answer.
const MOST: usize = 1000;

/// The lines of `name` after the number `after` of the log `log`, at most `most`; with `wait` the answer waits for one. A log of another
/// id is another log, and all of it is new.
pub(crate) async fn operate(gateway: &Gateway, params: &RawObject) -> Result<RawJson, (i64, String)> {
    let name = params.string("name").ok_or((code::INVALID_PARAMS, "params lacks `name`".to_owned()))?;
    let number = |name: &str| params.get(name).and_then(|raw| raw.parse::<u64>().ok());
    let unknown = || (1, format!("there is no upstream `{}`; `headend status` lists them", foreign::line(&name)));
    let mut looks = if params.is_true("wait") { LOOKS } else { 0 };
    let (handle, after) = loop {
        // A restart puts another handle, with another log, in the place of this one.
        let snapshot = gateway.service.snapshots.load_full();
        let handle = snapshot.handles.iter().find(|handle| handle.name.as_str() == name).ok_or_else(unknown)?;
        let book = &handle.health.log;
        let after = number("after").filter(|_| number("log") == Some(book.id)).unwrap_or(0);
        if looks == 0 || gateway.service.draining.is_cancelled() {
            break (Arc::clone(handle), after);
        }
        looks -= 1;
        tokio::select! {
            () = book.more_than(after) => looks = 0,
            () = tokio::time::sleep(LOOK) => {}
            () = gateway.service.draining.cancelled() => {}
        }
    };
    let book = &handle.health.log;
    let most = number("most").and_then(|most| usize::try_from(most).ok()).unwrap_or(MOST).min(MOST);
    let lines = book.after(after, most);
    let mut out = RawObject::default();
    out.set("log", RawJson::number(book.id));
    out.set("last", RawJson::number(lines.last().map_or(after, |line| line.number)));
    let lines = lines.iter().map(|line| {
        let (time, origin) = (timestamp(line.at), line.origin.into_str());
        RawObject::of_strings(&[("time", &time), ("from", origin), ("text", &line.text)]).encode()
    });
    out.set("lines", RawJson::list(lines));
    Ok(out.encode())
}
