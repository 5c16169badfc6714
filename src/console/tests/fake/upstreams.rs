//! Invented upstreams in every state.

use super::logins;
use crate::operator::upstreams::{HealthView, UnreadView, UpstreamFacts, UpstreamView};
use crate::telemetry::upstream_state::UpstreamState::{self, Down, Idle, NeedsLogin, Ready, Starting, Stopped};

/// Advice for an upstream whose program is missing.
const INSTALL: &str = "install it, or correct `command`";

pub(super) fn upstreams() -> Vec<UpstreamView> {
    let rows: [(&str, UpstreamState, usize, Option<&str>); 12] = [
        ("github", Ready, 41, None),
        ("files", Ready, 14, None),
        ("postgres", Ready, 9, None),
        ("notion", Ready, 22, None),
        ("browser", Starting, 0, None),
        ("mail", Ready, 6, None),
        ("calendar", Idle, 0, None),
        (
            "search",
            Down,
            0,
            Some("connect to https://search.example.com/mcp: connection refused (tried 4 times, next in 30 s)"),
        ),
        ("legacy-crm", Down, 0, Some("exit status 1: Error: Cannot find module 'express'")),
        ("time", Stopped, 0, None),
        ("docs", NeedsLogin, 0, Some("the server wants a login (HTTP status 401 Unauthorized)")),
        ("wiki", Ready, 3, None),
    ];
    let view = |(name, state, tools, error): (&str, UpstreamState, usize, Option<&str>)| UpstreamView {
        name: name.to_owned(),
        state,
        facts: Some(Box::new(UpstreamFacts {
            revision: (state == Ready).then(|| "2025-11-25".to_owned()),
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
        advice: error.map(|_| {
            let way = if state == NeedsLogin { format!("log in: `headend login {name}`") } else { INSTALL.to_owned() };
            format!("{way}; `headend restart {name}` tries at once")
        }),
    };
    rows.into_iter().map(view).collect()
}

/// Returns facts that a person would not expect.
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
