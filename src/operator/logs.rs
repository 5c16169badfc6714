//! Returns lines from the log of one upstream, and waits for new ones.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::request::LogsParams;
use super::{OperatorRefusal, upstreams};
use crate::gateway::service::Service;
use crate::policy::records::chain::timestamp;

/// Number of looks, and the time between them, while a request waits for a line: twenty seconds in
/// total. Each look also finds the new log of a restarted upstream.
const LOOKS: u32 = 40;
const LOOK: Duration = Duration::from_millis(500);
/// Most lines in one answer.
const MOST: usize = 1000;

/// Lines of an upstream's log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LogView {
    /// Id of the log. Each process of the gateway, and each restart of an upstream, has another
    /// log.
    pub(crate) log: u64,
    /// Number of the last line of this answer; the `after` of the next request.
    pub(crate) last: u64,
    pub(crate) lines: Vec<LogLineView>,
}

/// A line of an upstream's log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LogLineView {
    pub(crate) time: String,
    /// Author of the line: `stderr` or `headend`.
    pub(crate) from: String,
    pub(crate) text: String,
}

/// Returns the lines after line `after` of the log `log`, at most `most`. With `wait`, waits up to
/// twenty seconds for a new line. If `log` is not the current log, returns its lines from the
/// beginning.
pub(crate) async fn read_lines(service: &Service, params: &LogsParams) -> Result<LogView, OperatorRefusal> {
    let mut looks = if params.wait { LOOKS } else { 0 };
    let (handle, after) = loop {
        // A restart replaces the handle and its log.
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
