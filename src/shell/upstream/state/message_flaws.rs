//! Counts the messages of one upstream that break the protocol: some could be read nevertheless,
//! others could not. `headend status NAME` shows the counts; `headend logs NAME` and the last error
//! describe the messages.
//!
//! The bytes of a message are the server's own. Values that headend gave to the server are removed
//! from them, and the daemon's log contains only the reason.

use std::collections::VecDeque;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::base::clock;
use crate::base::tally::LogTally;
use crate::config::source::secret::{Secret, is_secret_name};
use crate::config::{UpstreamSettings, UpstreamTarget};
use crate::upstream::state::last_words::LastWords;
use crate::upstream::state::logbook::{LineOrigin, UpstreamLog};
use crate::wire::quirk::Quirk;
use crate::wire::unreadable::UnreadableBytes;

/// Number of access tokens that are hidden.
const TOKENS: usize = 2;
/// Messages that are described at once in the upstream's log; after that, one a minute.
const NAMED: u64 = 20;

/// The counts of one upstream, and the logs in which its messages are described.
#[derive(Debug)]
pub struct MessageFlaws {
    log: Arc<UpstreamLog>,
    last_error: Arc<ArcSwap<String>>,
    state: Mutex<MessageFlawCounts>,
    named: LogTally,
}

/// The counts, and the values to remove from texts.
#[derive(Debug, Default)]
struct MessageFlawCounts {
    /// Messages with a quirk, in the order in which the quirks first occurred.
    quirks: Vec<(Quirk, u64)>,
    unreadable: u64,
    last: Option<UnreadMessage>,
    /// The first unreadable message since the current start began, or the first one that was meant
    /// as a message.
    first: Option<UnreadMessage>,
    /// Hides values that the server was given.
    words: Option<LastWords>,
    /// Hides the access tokens of the login, the latest one last.
    tokens: VecDeque<LastWords>,
}

impl MessageFlawCounts {
    /// Removes the values that the server was given from a text, which may end within one of them.
    fn shown(&self, text: &str) -> String {
        let words = self.words.iter().chain(&self.tokens);
        without_bearer(&words.fold(text.to_owned(), |text, words| words.shown(&text, true)))
    }
}

/// A message that cannot be read.
#[derive(Clone, Debug)]
struct UnreadMessage {
    why: String,
    /// The beginning of the message, with secrets removed.
    start: String,
    is_meant: bool,
}

impl UnreadMessage {
    fn text(&self) -> String {
        format!("{}; it begins: {}", self.why, self.start)
    }
}

impl MessageFlaws {
    pub fn new(log: Arc<UpstreamLog>, last_error: Arc<ArcSwap<String>>) -> Self {
        Self { log, last_error, state: Mutex::default(), named: LogTally::of(NAMED) }
    }

    /// Sets the values that are removed from messages from here on.
    pub fn hide(&self, words: LastWords) {
        self.state.lock().words = Some(words);
    }

    /// Hides a new access token of the login, and the one before it, which may still be in use.
    pub fn hide_token(&self, token: Secret) {
        let tokens = &mut self.state.lock().tokens;
        if tokens.len() == TOKENS {
            tokens.pop_front();
        }
        tokens.push_back(LastWords::of(&[("token".to_owned(), token)]));
    }

    /// Hides all values that a server behind a URL is given.
    pub fn hide_given(&self, spec: &UpstreamSettings) {
        let mut given = spec.expanded.clone();
        if let UpstreamTarget::Http { url, headers, .. } = &spec.target {
            for (name, value) in url.query_pairs().filter(|(name, _)| is_secret_name(name)) {
                given.push((name.into_owned(), Secret::new(value.into_owned())));
            }
            for (name, value) in headers {
                given.push((name.clone(), value.clone()));
                // The credential without its scheme.
                if let Some((_, credential)) = value.expose().split_once(' ') {
                    given.push((name.clone(), Secret::new(credential.to_owned())));
                }
            }
        }
        self.hide(LastWords::of(&given));
    }

    /// Removes the values that the server was given from a text.
    pub fn without_given(&self, text: &str) -> String {
        self.state.lock().shown(text)
    }

    /// Forgets the first unreadable message, because a new start begins.
    pub fn begin(&self) {
        self.state.lock().first = None;
    }

    /// Counts a message that broke the protocol but could be read. Adds a log line for the first
    /// message of each kind.
    pub fn read(&self, quirk: Quirk) {
        let mut state = self.state.lock();
        if let Some((_, count)) = state.quirks.iter_mut().find(|(known, _)| *known == quirk) {
            *count += 1;
            return;
        }
        state.quirks.push((quirk, 1));
        drop(state);
        self.log.add(LineOrigin::Headend, &format!("its messages break the protocol: {}", quirk.sentence()));
    }

    /// Counts and describes a message that cannot be read.
    pub fn unread(&self, message: &UnreadableBytes) {
        let mut state = self.state.lock();
        state.unreadable += 1;
        let start = state.shown(&message.start);
        let told = UnreadMessage { why: message.why.clone(), start, is_meant: message.is_meant };
        let text = told.text();
        if state.first.as_ref().is_none_or(|first| !first.is_meant && told.is_meant) {
            state.first = Some(told.clone());
        }
        state.last = Some(told);
        drop(state);
        if message.is_meant {
            self.last_error.store(Arc::new(format!("a message could not be read: {text}")));
        }
        if let Some(count) = self.named.count(clock::uptime()) {
            let since = if count > 1 { format!(" (with those before it {count})") } else { String::new() };
            self.log.add(LineOrigin::Headend, &format!("a message could not be read{since}: {text}"));
        }
    }

    /// Adds the beginning of the unreadable message to a reason for the operator, if that message
    /// is the reason.
    pub fn completed(&self, why: String) -> String {
        let state = self.state.lock();
        let message = [&state.first, &state.last].into_iter().flatten().find(|message| why.contains(&message.why));
        match message {
            Some(message) => format!("{why}; it begins: {}", message.start),
            None => why,
        }
    }

    /// Returns a line for each kind of flaw, with the number of messages.
    pub fn lines(&self) -> Vec<String> {
        let state = self.state.lock();
        let read = state.quirks.iter().map(|(quirk, count)| format!("{} (messages: {count})", quirk.sentence()));
        let last = state.last.as_ref();
        let unread = last
            .map(|last| format!("could not be read (messages: {}), the last one: {}", state.unreadable, last.text()));
        read.chain(unread).collect()
    }
}

/// Removes bearer tokens from a text, because a server may send them back.
fn without_bearer(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let Some(at) = lower.find("bearer ") else { return text.to_owned() };
    let (before, after) = text.split_at(at + "bearer ".len());
    let is_token = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
    let rest = after.trim_start_matches(is_token);
    format!("{before}..{}", without_bearer(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flaws() -> (MessageFlaws, Arc<UpstreamLog>, Arc<ArcSwap<String>>) {
        let (log, last) = (Arc::<UpstreamLog>::default(), Arc::<ArcSwap<String>>::default());
        (MessageFlaws::new(Arc::clone(&log), Arc::clone(&last)), log, last)
    }

    #[test]
    fn what_cannot_be_read_is_named_without_the_values_that_the_server_was_given() {
        let (flaws, log, last) = flaws();
        flaws.hide(LastWords::of(&[("TOKEN".to_owned(), Secret::new("hunter22".to_owned()))]));
        flaws.unread(&UnreadableBytes::no_json(br#"{"a":NaN,"b":"hunter22","c":"Bearer abc.def-1"}"#));
        let line = log.after(0, 9)[0].text.clone();
        assert!(line.contains("`NaN`") && line.contains("$TOKEN") && line.contains("Bearer ..\""), "{line}");
        assert!(!line.contains("hunter22") && !line.contains("abc.def"), "{line}");
        assert_eq!(last.load().as_str(), line);
        flaws.unread(&UnreadableBytes::no_json(b"listening"));
        assert_eq!(last.load().as_str(), line, "a log line in the wrong place is no error");
        assert!(flaws.lines()[0].starts_with("could not be read (messages: 2)"), "{:?}", flaws.lines());
        let told = UnreadableBytes::no_json(br#"{"a":NaN}"#).why;
        let why = flaws.completed(format!("in vain: {told}"));
        assert!(why.ends_with(r#"Bearer .."}"#), "{why}");
        let other = "in vain".to_owned();
        assert_eq!(flaws.completed(other.clone()), other);
        flaws.begin();
        assert_eq!(flaws.completed(told.clone()), told, "it is not of this start");
    }

    #[test]
    fn tokens_of_a_login_and_keys_in_the_url_are_not_shown() {
        let (flaws, log, _) = flaws();
        let config = "[upstreams.fx]\nurl = \"https://x.example/mcp?api_key=hunter22&page=home\"\n";
        let (config, _) = crate::config::parse(config, "test", &|_| None, &|_| Ok(String::new())).unwrap();
        flaws.hide_given(&config.upstreams[0]);
        for token in ["canary-a.b-1", "canary-c.d-2", "canary-e.f-3"] {
            flaws.hide_token(Secret::new(token.to_owned()));
        }
        flaws.unread(&UnreadableBytes::no_json(
            br#"{"a":NaN,"url":"/mcp?api_key=hunter22&page=home","t":"canary-e.f-3","u":"canary-c.d-2"}"#,
        ));
        flaws.unread(&UnreadableBytes::no_json(format!("{{\"a\":\"{}canary-e.f-3\"}}", "x".repeat(185)).as_bytes()));
        let lines: Vec<String> = log.after(0, 9).iter().map(|line| line.text.clone()).collect();
        assert!(!lines.iter().any(|line| line.contains("canary") || line.contains("hunter22")), "{lines:?}");
        assert!(
            lines[0].contains("$api_key") && lines[0].contains("page=home") && lines[0].contains("$token"),
            "{lines:?}"
        );
    }

    #[test]
    fn a_flood_has_few_lines_and_every_message_is_counted() {
        let (flaws, log, _) = flaws();
        for _ in 0..1000 {
            flaws.unread(&UnreadableBytes::no_json(b"{"));
            flaws.read(Quirk::Array);
        }
        assert_eq!(log.after(0, usize::MAX).len(), 21);
        assert!(flaws.lines()[0].ends_with("(messages: 1000)") && flaws.lines()[1].contains("(messages: 1000)"));
    }
}
