//! The log of one upstream, and the lines that are added to it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::request::LogsParams;
use super::{Refusal, upstreams};
use crate::gateway::service::Service;
use crate::policy::chain::timestamp;

/// How often, and in which rhythm, an answer that waits for a line looks for another log: twenty
/// seconds.
const LOOKS: u32 = 40;
const LOOK: Duration = Duration::from_millis(500);
/// Lines in one answer.
const MOST: usize = 1000;

/// Lines of a log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LogView {
    /// The log's number; that of another process is another log.
    pub(crate) log: u64,
    /// The number of the last line.
    pub(crate) last: u64,
    pub(crate) lines: Vec<LogLineView>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LogLineView {
    pub(crate) time: String,
    /// `stderr` or `headend`.
    pub(crate) from: String,
    pub(crate) text: String,
}

/// The lines after the number `after` of the log `log`, at most `most`; with `wait` the answer
/// waits for one. A log of another id is another log, and all of it is new.
pub(super) async fn operate(service: &Service, params: &LogsParams) -> Result<LogView, Refusal> {
    let mut looks = if params.wait { LOOKS } else { 0 };
    let (handle, after) = loop {
        // A restart puts another handle, with another log, in the place of this one.
        let handle = upstreams::find(service, &params.name)?;
        let book = &handle.health.log;
        let after = params.after.filter(|_| params.log == Some(book.id)).unwrap_or(0);
        if looks == 0 || service.draining.is_cancelled() {
            break (Arc::clone(&handle), after);
        }
        looks -= 1;
        tokio::select! {
            () = book.more_than(after) => looks = 0,
            () = tokio::time::sleep(LOOK) => {}
            () = service.draining.cancelled() => {}
        }
    };
    let book = &handle.health.log;
    let lines = book.after(after, params.most.unwrap_or(MOST).min(MOST));
    let last = lines.last().map_or(after, |line| line.number);
    let lines = lines.into_iter().map(|line| LogLineView {
        time: timestamp(line.at),
        from: line.origin.into_str().to_owned(),
        text: line.text,
    });
    Ok(LogView { log: book.id, last, lines: lines.collect() })
}
