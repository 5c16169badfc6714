//! Upstreams in every state.

use crate::console::desk::UpstreamView;

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
        state,
        revision: (state == "ready").then_some("2025-11-25"),
        tools,
        prompts: tools / 10,
        resources: if tools == 14 { 1 } else { 0 },
        not_offered: 0,
        in_flight: tools % 3,
        restarts: if error.is_some() { 4 } else { 0 },
        last_error: error.map(|text| std::sync::Arc::new(text.to_owned())),
        age: 42,
        next_try: error.map(|_| 8),
        advice: error.map(|_| match state {
            "needs-login" => format!("log in: `headend login {name}`; `headend restart {name}` tries at once"),
            _ => format!("install it, or correct `command`; `headend restart {name}` tries at once"),
        }),
    };
    rows.into_iter().map(view).collect()
}
