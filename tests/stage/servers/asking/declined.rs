//! Tests of questions that no person should see: addresses that headend does not open, forms that
//! copy ours or ask for secrets. The server gets a decline, and the operator the reason.

use super::*;

fn able() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}})
}

fn page(url: &str) -> Value {
    json!({"mode": "url", "message": "Log in", "url": url, "elicitationId": "e"})
}

fn fields(fields: Value) -> Value {
    json!({"message": "Go on?", "requestedSchema": {"type": "object", "properties": fields}})
}

/// Returns parameters of elicitations that are declined, and the fault that counts each.
fn bad(own_port: u16) -> Vec<(Value, &'static str)> {
    let own = format!("http://localhost:{own_port}/mcp");
    let mut rows: Vec<(Value, &'static str)> = [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "ssh://example.org/",
        "http://example.org/",
        "https://user@example.org/",
        "https://example.org/\u{1b}[2J",
        "https://93.184.216.34/",
        "https://0x5db8d822/",
        "https://[2001:db8::1]/",
        "https://printer.local/",
        &own,
    ]
    .iter()
    .map(|url| (page(url), "unsafe_url"))
    .collect();
    let ours = json!({"x": {"type": "string", "enum": ["deny", "once", "session"]}});
    rows.extend([
        (fields(ours), "forged_question"),
        (fields(json!({"decision": {"type": "string", "enum": ["yes", "no"]}})), "forged_question"),
        (fields(json!({"x": {"type": "string", "enum": ["a", "a\u{200b}"]}})), "forged_question"),
        (fields(json!({"x": {"type": "string", "format": "password"}})), "secret_question"),
        (fields(json!({"githubPassword": {"type": "string"}})), "secret_question"),
        (fields(json!({"x": {"type": "string", "title": "Zugriffstoken"}})), "secret_question"),
    ]);
    rows
}

/// Returns parameters that pass, and a text that the client sees.
fn good() -> [(Value, &'static str); 5] {
    let noisy = format!("a\r\u{1b}[2Jb{}c", "\n".repeat(60));
    let form = json!({"message": noisy, "requestedSchema": {"type": "object", "properties": {}}});
    [
        (page("https://login.example.org/?a=%2F"), "https://login.example.org/?a=%2F"),
        (page("https://b\u{fc}cher.example/x"), "https://xn--bcher-kva.example/x"),
        (page("http://localhost:1/x"), "http://localhost:1/x"),
        (form, "[fx] a\\\\r\\\\u{1b}[2Jb\\n\\nc\\n[fx]"),
        (fields(json!({"who": {"type": "string", "title": "x\ny"}})), "x\\\\ny"),
    ]
}

fn faults(gateway: &Gateway, fault: &str) -> f64 {
    let metrics = gateway.scrape();
    let wanted = format!("headend_upstream_faults_total{{fault=\"{fault}\",upstream=\"fx\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&wanted).map(str::to_owned));
    line.and_then(|count| count.parse().ok()).unwrap_or_default()
}

#[test]
fn what_a_legacy_server_must_not_ask_is_declined_in_the_persons_name() {
    for way in AskingTransport::ALL {
        let stage = AskingGateway::new(way, "");
        for era in ClientEra::BOTH {
            let mut client = stage.client(era, able());
            for (n, (params, fault)) in bad(stage.gateway.address.port()).into_iter().enumerate() {
                let label = format!("{way:?} {era:?} {params}");
                let before = faults(&stage.gateway, fault);
                let question = json!({"method": "elicitation/create", "params": params});
                let answer = client.call("fx__inquire", way.asks(&format!("{era:?}-{n}"), json!([[question]])));
                assert!(answer.notices.is_empty(), "{label}: {:?}", answer.notices);
                assert_ne!(answer.result()["resultType"], "input_required", "{label}: {}", answer.raw);
                assert_eq!(
                    answered(&answer.message)[0]["result"],
                    json!({"action": "decline"}),
                    "{label}: {}",
                    answer.raw
                );
                assert!(faults(&stage.gateway, fault) > before, "{label}");
            }
            for (n, (params, seen)) in good().into_iter().enumerate() {
                let question = json!({"method": "elicitation/create", "params": params});
                let arguments = way.asks(&format!("good-{era:?}-{n}"), json!([[question]]));
                let mut call = inquire(&mut client, &arguments);
                let first = call.next().expect("a question");
                assert!(first.to_string().contains(seen), "{way:?} {era:?}: {seen:?} in {first}");
                if era == ClientEra::LEGACY {
                    client.respond(&first["id"], json!({"action": "cancel"}));
                    call.response();
                }
            }
        }
        eventually("the operator is told", || stage.gateway.story().contains("question declined"));
    }
}

#[test]
fn what_a_modern_server_must_not_ask_is_declined_in_the_persons_name() {
    for over_http in [false, true] {
        let setup = GatewaySetup::new();
        let world = setup.world.clone();
        let log = InputLog::new(&setup.world.path("work"), "fx");
        let fake = if over_http { Fake::http("modern") } else { Fake::stdio("modern") }.logging(&log);
        let server = over_http.then(|| fake.spawn());
        let place = match &server {
            Some(server) => format!("url = \"{}\"", server.url),
            None => format!("command = {}", fake.command()),
        };
        let gateway = setup.toml(&format!("[upstreams.fx]\n{place}")).start();
        gateway.wait_for_tools(&["fx__raw"]);
        for era in ClientEra::BOTH {
            let mut client = Mcp::http_at(gateway.address, gateway.token(), era, "/mcp", able());
            for (n, (params, fault)) in bad(gateway.address.port()).into_iter().enumerate() {
                let label = format!("{era:?} {over_http} {params}");
                let key = format!("{}-{n}", if era == ClientEra::Modern { "m" } else { "l" });
                let result = json!({"resultType": "input_required", "requestState": "theirs",
                    "inputRequests": {&key: {"method": "elicitation/create", "params": params}}});
                let file = world.write("work/raw.json", &result.to_string());
                let before = faults(&gateway, fault);
                let answer = client.call("fx__raw", json!({"file": file}));
                assert!(answer.notices.is_empty(), "{label}: {:?}", answer.notices);
                assert_eq!(answer.code(), Some(-32603), "it asks the same for ever: {label}: {}", answer.raw);
                assert!(faults(&gateway, fault) > before, "{label}");
                let declined = format!("\"{key}\":{{\"action\":\"decline\"}}");
                let told = log.lines_with(&[&declined, "\"requestState\":\"theirs\""]);
                assert!(!told.is_empty(), "{label}: the server is told");
            }
        }
    }
}

#[test]
fn an_error_that_wants_an_unsafe_page_opened_is_another_error_without_it() {
    for url in ["javascript:alert(1)", "http://example.org/", "https://10.0.0.1/"] {
        let setup = GatewaySetup::new();
        let data = json!({"elicitations": [page("https://login.example.org/"), page(url)]});
        let error = json!({"code": -32042, "message": format!("open {url}"), "data": data});
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":${{ID}},\"error\":{error}}}");
        let script = setup.world.write("work/script.json", &json!({"tools/call/gate": [line]}).to_string());
        let fake = Fake::stdio("legacy").behaving("asks").with("--script", script.to_str().unwrap());
        let gateway = setup.toml(&format!("[upstreams.fx]\ncommand = {}", fake.command())).start();
        gateway.wait_for_tools(&["fx__gate"]);
        for era in ClientEra::BOTH {
            let mut client = Mcp::http_at(gateway.address, gateway.token(), era, "/mcp", able());
            let answer = client.call("fx__gate", json!({}));
            assert_eq!(answer.code(), Some(-32603), "{era:?}: {}", answer.raw);
            assert!(!answer.raw.contains(url) && !answer.raw.contains("login.example.org"), "{era:?}: {}", answer.raw);
        }
        assert!(faults(&gateway, "unsafe_url") >= 2.0);
    }
}

#[test]
fn a_legacy_tasks_question_is_declined_too() {
    let command = Fake::stdio("legacy").behaving("tasks").command();
    let gateway = GatewaySetup::new().toml(&format!("[upstreams.fx]\ncommand = {command}")).start();
    gateway.wait_for_tools(&["fx__job"]);
    for era in ClientEra::BOTH {
        let mut client = Mcp::http_at(gateway.address, gateway.token(), era, "/mcp", able());
        for params in [page("javascript:alert(1)"), fields(json!({"password": {"type": "string"}}))] {
            let answer = client.call("fx__job", json!({"polls": 1, "end": "ask", "params": params}));
            assert_eq!(answer.text(), "decline", "{era:?} {params}: {}", answer.raw);
        }
    }
}

#[test]
fn what_a_clients_own_task_must_not_ask_is_declined_by_an_update() {
    let extension = json!({"io.modelcontextprotocol/tasks": {}});
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let line = |result: Value| vec![format!("{{\"jsonrpc\":\"2.0\",\"id\":${{ID}},\"result\":{result}}}")];
    let ask = |params: Value| json!({"method": "elicitation/create", "params": params});
    let asked = json!({"page": ask(page("javascript:alert(1)")), "form": ask(fields(json!({"pin_code": {}}))),
        "fine": ask(fields(json!({"who": {"type": "string"}})))});
    let script = json!({
        "server/discover": line(json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}, "extensions": extension}, "ttlMs": 0, "cacheScope": "private"})),
        "tools/call/echo": line(json!({"resultType": "task", "taskId": "t", "status": "working", "ttlMs": 60000})),
        "tasks/get": line(json!({"resultType": "complete", "taskId": "t", "status": "input_required", "ttlMs": 60000,
            "inputRequests": asked})),
        "tasks/update": line(json!({"resultType": "complete"})),
    });
    let script = setup.world.write("work/script.json", &script.to_string());
    let fake = Fake::stdio("modern").logging(&log).with("--script", script.to_str().unwrap());
    let gateway = setup.fake("fx", &fake).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut capabilities = able();
    capabilities["extensions"] = extension;
    let mut client = Mcp::http_at(gateway.address, gateway.token(), ClientEra::Modern, "/mcp", capabilities);
    let task = client.call("fx__echo", json!({"text": "x"}));
    let answer = client.request("tasks/get", json!({"taskId": task.result()["taskId"]}));
    let shown = answer.result()["inputRequests"].as_object().expect("one question is fine");
    assert_eq!(shown.keys().collect::<Vec<_>>(), ["fine"], "{}", answer.raw);
    eventually("the server is told", || {
        let decline = |key: &str| format!("\"{key}\":{{\"action\":\"decline\"}}");
        !log.lines_with(&["\"method\":\"tasks/update\"", &decline("page"), &decline("form")]).is_empty()
    });
}

#[test]
fn loopback_pages_are_for_clients_and_servers_of_this_machine() {
    let stage = AskingGateway::new(AskingTransport::Stdio, "");
    let question = || json!([[{"method": "elicitation/create", "params": page("http://localhost:1/")}]]);
    // A request that a proxy forwards may come from another machine.
    for forwarded in [false, true] {
        let mut client = stage.client(ClientEra::Modern, able());
        client.user_agent = "test".to_owned();
        if forwarded {
            client.user_agent.push_str("\r\nX-Forwarded-For: 192.0.2.1");
        }
        let answer = client.call("fx__inquire", AskingTransport::Stdio.asks(&format!("{forwarded}"), question()));
        assert_eq!(answer.result()["resultType"] == "input_required", !forwarded, "{}", answer.raw);
    }
    let pipe = stage.gateway.pipe();
    let mut client = Mcp::stdio_with(pipe, ClientEra::Modern, able());
    let answer = client.call("fx__inquire", AskingTransport::Stdio.asks("pipe", question()));
    assert_eq!(answer.result()["resultType"], "input_required", "{}", answer.raw);
}

#[test]
fn the_operator_chooses_hosts_and_lets_secrets_be_asked_for() {
    let stage = AskingGateway::new(AskingTransport::Stdio, "elicit-hosts = [\"*.example.org\"]\nelicit-secrets = true");
    let mut client = stage.client(ClientEra::Modern, able());
    for (n, (params, passes)) in [
        (page("https://login.example.org/"), true),
        (page("https://example.org/"), false),
        (page("https://login.example.com/"), false),
        (fields(json!({"password": {"type": "string"}})), true),
        (fields(json!({"x": {"type": "string", "format": "password"}})), true),
        (fields(json!({"x": {"type": "string", "enum": ["deny", "once", "session"]}})), false),
    ]
    .into_iter()
    .enumerate()
    {
        let question = json!({"method": "elicitation/create", "params": params});
        let answer = client.call("fx__inquire", AskingTransport::Stdio.asks(&format!("{n}"), json!([[question]])));
        assert_eq!(answer.result()["resultType"] == "input_required", passes, "{params}: {}", answer.raw);
    }
}
