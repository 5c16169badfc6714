use std::path::Path;

use super::super::value;
use super::*;

fn json(text: &str) -> FileValue {
    value::read(Path::new("x.json"), text).unwrap()
}

/// Reads the settings of a server from its own keys and from the files around it.
fn said(host: McpHost, name: &str, body: &str, root: &str, beside: &str) -> HostServerSettings {
    let server = HostEntry { name: name.to_owned(), body: json(body), scope: String::new(), project: None };
    HostServerSettings::of(host, &server, &HostSettings::of(host, &json(root), &[json(beside)], Some("/p")))
}

#[test]
fn a_server_that_is_off_in_any_way_is_off() {
    for (host, body, root, beside) in [
        (McpHost::Other, "{\"disabled\":true}", "{}", "{}"),
        (McpHost::Other, "{\"disabled\":\"yes\"}", "{}", "{}"),
        (McpHost::Other, "{\"enabled\":false}", "{}", "{}"),
        (McpHost::Goose, "{\"enabled\":\"no\"}", "{}", "{}"),
        (McpHost::Gemini, "{}", "{\"mcp\":{\"excluded\":[\"a\"]}}", "{}"),
        (McpHost::Gemini, "{}", "{\"mcp\":{\"allowed\":[\"b\"]}}", "{}"),
        (McpHost::Gemini, "{}", "{}", "{\"a\":{\"enabled\":false}}"),
        (McpHost::ClaudeCode, "{}", "{}", "{\"disabledMcpjsonServers\":[\"a\"]}"),
        (McpHost::ClaudeCode, "{}", "{}", "{\"projects\":{\"/p\":{\"disabledMcpServers\":[\"a\"]}}}"),
        (McpHost::ClaudeCode, "{}", "{}", "{\"deniedMcpServers\":[{\"serverName\":\"a\"}]}"),
        (McpHost::ClaudeCode, "{}", "{}", "{\"permissions\":{\"deny\":[\"mcp__a\"]}}"),
        (McpHost::OpenCode, "{}", "{\"tools\":{\"a_*\":false}}", "{}"),
        (McpHost::OpenCode, "{}", "{\"tools\":{\"*\":false}}", "{}"),
        (McpHost::OpenCode, "{}", "{\"permission\":\"deny\"}", "{}"),
        (McpHost::Cursor, "{}", "{}", "{\"permissions\":{\"deny\":[\"Mcp(a:*)\"]}}"),
    ] {
        assert!(said(host, "a", body, root, beside).off.is_some(), "{host:?} {body} {root} {beside}");
    }
    for (host, body, root, beside) in [
        (McpHost::Other, "{\"disabled\":false,\"enabled\":true}", "{}", "{}"),
        (McpHost::Other, "{\"disabled\":null}", "{}", "{}"),
        (McpHost::Gemini, "{}", "{\"mcp\":{\"excluded\":[\"ab\"],\"allowed\":[\"a\"]}}", "{\"a\":{\"enabled\":true}}"),
        (McpHost::ClaudeCode, "{}", "{}", "{\"projects\":{\"/q\":{\"disabledMcpServers\":[\"a\"]}}}"),
        (McpHost::OpenCode, "{}", "{\"tools\":{\"ab_*\":false}}", "{}"),
    ] {
        assert_eq!(said(host, "a", body, root, beside).off, None, "{host:?} {body} {root} {beside}");
    }
}

#[test]
fn tools_are_offered_as_the_host_does() {
    let lists = |host, body: &str, root: &str, beside: &str| {
        let said = said(host, "my-a", body, root, beside);
        (said.include.map(|list| list.join(" ")), said.exclude.join(" "))
    };
    let some = |text: &str| Some(text.to_owned());
    for (host, body, root, beside, wanted) in [
        (McpHost::Other, "{\"includeTools\":[\"x\",\"y\"],\"excludeTools\":[\"z\"]}", "{}", "{}", (some("x y"), "z")),
        (McpHost::Codex, "{\"enabled_tools\":[],\"disabled_tools\":[\"z\"]}", "{}", "{}", (some(""), "z")),
        (McpHost::Goose, "{\"available_tools\":[]}", "{}", "{}", (None, "")),
        (McpHost::Other, "{\"tools\":[\"*\"]}", "{}", "{}", (None, "")),
        (McpHost::Other, "{\"tools\":[]}", "{}", "{}", (some(""), "")),
        (McpHost::Codex, "{\"tools\":{\"x\":{\"enabled\":false}}}", "{}", "{}", (None, "x")),
        (McpHost::OpenCode, "{}", "{\"tools\":{\"my-a_x\":false,\"*_y\":false}}", "{}", (None, "x *y")),
        (McpHost::ClaudeCode, "{}", "{}", "{\"permissions\":{\"deny\":[\"mcp__my-a__x\"]}}", (None, "x")),
        (
            McpHost::Zed,
            "{}",
            "{\"agent\":{\"profiles\":{\"write\":{\"context_servers\":{\"my-a\":{\"tools\":{\"x\":false}}}}}}}",
            "{}",
            (None, "x"),
        ),
        (
            McpHost::Zed,
            "{}",
            "{\"agent\":{\"default_profile\":\"p\",\"profiles\":{\"p\":{\"enable_all_context_servers\":false,\"context_servers\":{\"my-a\":{\"tools\":{\"x\":true}}}}}}}",
            "{}",
            (some("x"), ""),
        ),
    ] {
        let wanted = (wanted.0, wanted.1.to_owned());
        assert_eq!(lists(host, body, root, beside), wanted, "{host:?} {body} {root}");
    }
}

#[test]
fn approvals_are_as_narrow_as_the_hosts() {
    let unasked = |host, body: &str, root: &str, beside: &str| {
        let said = said(host, "a", body, root, beside);
        (said.says, said.unasked_all, said.unasked.join(" "))
    };
    for (host, body, root, beside, wanted) in [
        (McpHost::Other, "{}", "{}", "{}", (false, false, "")),
        (McpHost::Cline, "{\"autoApprove\":[]}", "{}", "{}", (true, false, "")),
        (McpHost::Cline, "{\"alwaysAllow\":[\"x\"]}", "{}", "{}", (true, false, "x")),
        (McpHost::Cline, "{\"autoApprove\":[\"*\"]}", "{}", "{}", (true, true, "")),
        (McpHost::Gemini, "{\"trust\":true}", "{}", "{}", (true, true, "")),
        (McpHost::Gemini, "{\"trust\":\"true\"}", "{}", "{}", (true, false, "")),
        (McpHost::Codex, "{\"default_tools_approval_mode\":\"approve\"}", "{}", "{}", (true, true, "")),
        (
            McpHost::Codex,
            "{\"tools\":{\"x\":{\"approval_mode\":\"approve\"},\"y\":{\"approval_mode\":\"prompt\"}}}",
            "{}",
            "{}",
            (true, false, "x"),
        ),
        (
            McpHost::Codex,
            "{\"default_tools_approval_mode\":\"approve\",\"tools\":{\"y\":{\"approval_mode\":\"prompt\"}}}",
            "{}",
            "{}",
            (true, false, ""),
        ),
        (McpHost::ClaudeCode, "{}", "{}", "{\"permissions\":{\"allow\":[\"mcp__a\",\"mcp__b__x\"]}}", (true, true, "")),
        (
            McpHost::ClaudeCode,
            "{}",
            "{}",
            "{\"permissions\":{\"allow\":[\"mcp__a__x\",\"mcp__a__y\"],\"ask\":[\"mcp__a__y\"]}}",
            (true, false, "x"),
        ),
        (McpHost::ClaudeCode, "{}", "{}", "{\"permissions\":{\"allow\":[\"mcp__ab__x\"]}}", (false, false, "")),
        (
            McpHost::Goose,
            "{}",
            "{\"GOOSE_MODE\":\"auto\"}",
            "{\"user\":{\"ask_before\":[\"a__x\"]}}",
            (true, false, ""),
        ),
        (
            McpHost::Goose,
            "{}",
            "{\"GOOSE_MODE\":\"approve\"}",
            "{\"user\":{\"always_allow\":[\"a__x\"]}}",
            (true, false, "x"),
        ),
        (McpHost::OpenCode, "{}", "{\"permission\":{\"*\":\"allow\",\"a_x\":\"ask\"}}", "{}", (true, false, "")),
        (
            McpHost::OpenCode,
            "{}",
            "{\"permission\":{\"a_get_*\":\"allow\",\"*_y\":\"allow\"}}",
            "{}",
            (true, false, "get_*"),
        ),
        (McpHost::Zed, "{}", "{\"agent\":{\"always_allow_tool_actions\":true}}", "{}", (true, true, "")),
        (
            McpHost::Zed,
            "{}",
            "{\"agent\":{\"tool_permissions\":{\"tools\":{\"mcp:a:x\":{\"default\":\"allow\"},\"mcp:*:y\":{\"default\":\"deny\"}}}}}",
            "{}",
            (true, false, "x"),
        ),
        (McpHost::VsCode, "{}", "{}", "{\"chat.tools.autoApprove\":true}", (true, true, "")),
    ] {
        let wanted = (wanted.0, wanted.1, wanted.2.to_owned());
        assert_eq!(unasked(host, body, root, beside), wanted, "{host:?} {body} {root} {beside}");
    }
}

#[test]
fn time_outs_have_the_units_of_their_host() {
    let times = |host, body: &str| {
        let said = said(host, "a", body, "{}", "{}");
        let millis = |time: Option<Duration>| time.map_or(0, |time| time.as_millis());
        (millis(said.call_timeout), millis(said.start_timeout))
    };
    for (host, body, wanted) in [
        (McpHost::ClaudeCode, "{\"timeout\":30000}", (30_000, 0)),
        (McpHost::Cline, "{\"timeout\":1800}", (1_800_000, 0)),
        (McpHost::Other, "{\"timeout\":60}", (60_000, 0)),
        (McpHost::Other, "{\"timeout\":60000}", (60_000, 0)),
        (McpHost::OpenCode, "{\"timeout\":5000}", (0, 5_000)),
        (McpHost::Codex, "{\"tool_timeout_sec\":1.5,\"startup_timeout_ms\":2000}", (1_500, 2_000)),
        (McpHost::Goose, "{\"timeout\":-1}", (0, 0)),
        (McpHost::Other, "{\"timeout\":\"soon\"}", (0, 0)),
    ] {
        assert_eq!(times(host, body), wanted, "{host:?} {body}");
    }
}
