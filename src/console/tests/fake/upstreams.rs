//! Upstreams in every state.

use super::logins;
use crate::operator::upstreams::{HealthView, UnreadView, UpstreamFacts, UpstreamView};

pub(super) fn upstreams() -> Vec<UpstreamView> {
    let rows: [(&str, &'static str, usize, Option<&str>); 12] = [
        ("github", "ready", 41, None),
        ("files", "ready", 14, None),
        ("postgres", "ready", 9, None),
        ("notion", "ready", 22, None),
        ("browser", "starting", 0, None),
        ("mail", "ready", 6, None),
        ("calendar", "idle", 0, None),
        (
            "search",
            "down",
            0,
            Some("connect to https://search.example.com/mcp: connection refused (tried 4 times, next in 30 s)"),
        ),
        ("legacy-crm", "down", 0, Some("exit status 1: Error: Cannot find module 'express'")),
        ("time", "stopped", 0, None),
        ("docs", "needs-login", 0, Some("the server wants a login (HTTP status 401 Unauthorized)")),
        ("wiki", "ready", 3, None),
    ];
    let view = |(name, state, tools, error): (&str, &'static str, usize, Option<&str>)| UpstreamView {
        name: name.to_owned(),
        state: state.to_owned(),
        facts: Some(Box::new(UpstreamFacts {
            revision: (state == "ready").then(|| "2025-11-25".to_owned()),
            tools,
            prompts: tools / 10,
            resources: if tools == 14 { 1 } else { 0 },
            in_flight: tools % 3,
            restarts: if error.is_some() { 4 } else { 0 },
            health: HealthView {
                since_seconds: 42,
                next_try_seconds: error.map(|_| 8),
                last_error: error.map(str::to_owned),
                stderr: Vec::new(),
            },
            login: (name == "wiki").then(logins::held),
            ..if name == "files" { odd() } else { UpstreamFacts::default() }
        })),
        advice: error.map(|_| match state {
            "needs-login" => format!("log in: `headend login {name}`; `headend restart {name}` tries at once"),
            _ => format!("install it, or correct `command`; `headend restart {name}` tries at once"),
        }),
    };
    rows.into_iter().map(view).collect()
}

/// Facts that a person would not expect.
fn odd() -> UpstreamFacts {
    let unread = UnreadView { why: "cut off".to_owned(), attempts: 2, since_seconds: 5, next_try_seconds: 9 };
    UpstreamFacts {
        unread_lists: [("tools".to_owned(), unread)].into(),
        invalid_definitions: vec!["tool `x`".to_owned()],
        one_at_a_time: vec!["files__ask".to_owned()],
        input: Some("several callers share its process".to_owned()),
        program: Some("/usr/bin/files".to_owned()),
        ..UpstreamFacts::default()
    }
}
