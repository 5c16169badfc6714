//! The ways in which this server can misbehave.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::server::FakeServer;

/// One way to misbehave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    NeverAnswer,
    ExitAtStart,
    /// Lines that are not JSON, all the time.
    Garbage,
    /// Log notifications as fast as they are read.
    Flood,
    StderrFlood,
    /// A line of 20 MiB before the first answer.
    HugeLine,
    /// Bytes without a newline, all the time.
    NoNewline,
    ExitOnDiscover,
    SilentOnDiscover,
    DiscoverEmptyResult,
    SlowStart(u64),
    /// Ends neither at the end of its input nor at SIGTERM.
    IgnoreEof,
    CursorLoop,
    DuplicateReplies,
    WrongId,
    ReplyBoth,
    DropSessionAfter(u64),
    Status(u64),
    /// Wants a login over HTTP; tokens live so many seconds.
    Login(u64),
    /// Answers calls over HTTP with this status and a JSON error of an authorization server.
    RefuseCalls(u64),
    /// Answers calls over HTTP with 403 and an error of its own in JSON-RPC.
    ForbidCalls,
    /// Answers calls over HTTP with this status and a body without an end, and says something on
    /// the session's own stream.
    SlowRefusal(u64),
    /// Closes the connection in the middle of an answer to `tools/call`; the stream, over HTTP+SSE.
    HttpCut,
    /// Asks something on the session's own stream when a cancellation over HTTP arrives, and reads
    /// it so many milliseconds later.
    LateCancel(u64),
    /// Answers a POST over HTTP+SSE when the request in it is handled.
    HoldPosts,
    /// Ends the stream of a call before its first message. A client gets the messages by resuming,
    /// two events at a time and so many milliseconds later.
    Polled(u64),
    /// Knows no event id that a client resumes from.
    ForgetEvents,
    /// Answers calls over HTTP on the session's own stream.
    Aside,
    /// Announces no changes: the server has no stream for them.
    NoChanges,
    /// Sends events that are no messages before those that are.
    Heartbeats,
    /// Ends its streams of changes at once; with a number it answers with that status instead.
    ShortStreams(u64),
    /// Names another endpoint before every message.
    SecondEndpoint,
    StopReading,
    CrashAfter(u64),
    /// Modern at first, legacy from the first call on.
    ForgetModern,
    /// Declares the tasks of 2025-11-25 and has a tool that needs them.
    Tasks,
    /// Offers tools that ask their client something.
    Asks,
    /// Lists the tools that ask only for clients that can answer, some of them by the kind of
    /// question.
    Coy,
}

impl Behaviour {
    /// Reads `name` or `name=number`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, number) = text.split_once('=').unwrap_or((text, "0"));
        let number = number.parse().map_err(|_| format!("{text}: not a number"))?;
        Ok(match name {
            "never-answer" => Self::NeverAnswer,
            "exit-at-start" => Self::ExitAtStart,
            "garbage" => Self::Garbage,
            "flood" => Self::Flood,
            "stderr-flood" => Self::StderrFlood,
            "huge-line" => Self::HugeLine,
            "no-newline" => Self::NoNewline,
            "exit-on-discover" => Self::ExitOnDiscover,
            "silent-on-discover" => Self::SilentOnDiscover,
            "discover-empty-result" => Self::DiscoverEmptyResult,
            "slow-start" => Self::SlowStart(number),
            "ignore-eof" => Self::IgnoreEof,
            "cursor-loop" => Self::CursorLoop,
            "duplicate-replies" => Self::DuplicateReplies,
            "wrong-id" => Self::WrongId,
            "reply-both" => Self::ReplyBoth,
            "drop-session-after" => Self::DropSessionAfter(number),
            "status" => Self::Status(number),
            "login" => Self::Login(number),
            "refuse-calls" => Self::RefuseCalls(number),
            "forbid-calls" => Self::ForbidCalls,
            "slow-refusal" => Self::SlowRefusal(number),
            "http-cut" => Self::HttpCut,
            "late-cancel" => Self::LateCancel(number),
            "hold-posts" => Self::HoldPosts,
            "polled" => Self::Polled(number),
            "forget-events" => Self::ForgetEvents,
            "aside" => Self::Aside,
            "no-changes" => Self::NoChanges,
            "heartbeats" => Self::Heartbeats,
            "short-streams" => Self::ShortStreams(number),
            "second-endpoint" => Self::SecondEndpoint,
            "stop-reading" => Self::StopReading,
            "crash-after" => Self::CrashAfter(number),
            "forget-modern" => Self::ForgetModern,
            "tasks" => Self::Tasks,
            "asks" => Self::Asks,
            "coy" => Self::Coy,
            _ => return Err(format!("there is no behaviour {text}")),
        })
    }
}

/// Runs the actions of behaviours before the first read.
pub(crate) async fn at_start(server: &Arc<FakeServer>) {
    if server.does(Behaviour::ExitAtStart) {
        return server.exit(3).await;
    }
    for behaviour in &server.args.behaviours {
        if let Behaviour::SlowStart(ms) = behaviour {
            tokio::time::sleep(Duration::from_millis(*ms)).await;
        }
    }
    if server.does(Behaviour::IgnoreEof) {
        tokio::spawn(async {
            let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
            while term.recv().await.is_some() {}
        });
    }
    if server.does(Behaviour::StderrFlood) {
        std::thread::spawn(|| while writeln!(std::io::stderr(), "{}", "noise ".repeat(100)).is_ok() {});
    }
    if server.does(Behaviour::Garbage) {
        let server = Arc::clone(server);
        tokio::spawn(async move {
            loop {
                server.out("this is {not JSON".into());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
    }
    if server.does(Behaviour::NoNewline) {
        std::thread::spawn(|| while std::io::stdout().write_all(&[b'x'; 64 * 1024]).is_ok() {});
    }
}

/// Runs the actions of behaviours after the handshake.
pub(crate) fn after_handshake(server: &Arc<FakeServer>) {
    if server.does(Behaviour::Flood) {
        // A thread of its own, which the pipe alone slows down.
        std::thread::spawn(|| {
            let params = json!({"level": "info", "data": "flood ".repeat(50)});
            let line = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params});
            let line = format!("{line}\n");
            while std::io::stdout().write_all(line.as_bytes()).is_ok() {}
        });
    }
}
