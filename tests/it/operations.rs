//! What the operator does: check, reload, stop, look, limit, import.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::faces::upstream_pid;
use crate::harness::{
    Gateway, Setup, World, alive, descendants, eventually, installed, left_out, output_within,
    within,
};
use crate::http;
use crate::mcp::Era;
use crate::upstream::{Fake, Log};

#[test]
fn reload_adds_and_removes_upstreams_and_leaves_the_others_running() {
    let keep = Fake::stdio("both");
    let setup = Setup::new()
        .fake("keep", &keep)
        .fake("old", &Fake::stdio("legacy"));
    let gateway = setup.start();
    gateway.wait_for_tools(&["keep__env", "old__env"]);
    let (kept, old) = (
        upstream_pid(&gateway, "keep"),
        upstream_pid(&gateway, "old"),
    );

    let next = Setup::new()
        .fake("keep", &keep)
        .fake("new", &Fake::stdio("modern"))
        .text();
    let plan = gateway.reload(&next);
    assert!(plan.status.success(), "{}", said(&plan));
    gateway.wait_for_tools(&["keep__echo", "new__echo"]);
    eventually("the removed upstream's tools leave", || {
        !gateway
            .modern()
            .tool_names()
            .contains(&"old__echo".to_owned())
    });
    eventually("the removed upstream ends", || !alive(old));
    assert_eq!(
        upstream_pid(&gateway, "keep"),
        kept,
        "an unchanged upstream keeps its process"
    );
    assert_eq!(
        gateway
            .modern()
            .call("old__echo", json!({"text": "x"}))
            .code(),
        Some(-32602)
    );
}

#[test]
fn a_changed_file_is_noticed_without_being_told() {
    let gateway = Setup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let next = Setup::new()
        .fake("fx", &Fake::stdio("both"))
        .fake("more", &Fake::stdio("both"))
        .text();
    let fresh = gateway.world.write("headend.toml.new", &next);
    fs::rename(fresh, &gateway.config).unwrap();
    gateway.wait_for_tools(&["fx__echo", "more__echo"]);
}

#[test]
fn a_refused_file_changes_nothing() {
    let gateway = Setup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let pid = upstream_pid(&gateway, "fx");
    for (label, text) in [
        ("not TOML", "[upstreams".to_owned()),
        (
            "unknown key",
            format!("{}\n[nonsense]\nx = 1\n", Setup::new().text()),
        ),
        (
            "bad name",
            "[upstreams.Bad_Name]\ncommand = [\"/bin/true\"]\n".to_owned(),
        ),
    ] {
        let refused = gateway.reload(&text);
        assert_eq!(
            refused.status.code(),
            Some(1),
            "{label}: {}",
            said(&refused)
        );
        assert_eq!(upstream_pid(&gateway, "fx"), pid, "{label}");
        assert_eq!(
            gateway
                .modern()
                .call("fx__echo", json!({"text": label}))
                .text(),
            label
        );
    }
    gateway.signal(Signal::HUP);
    assert_eq!(upstream_pid(&gateway, "fx"), pid, "SIGHUP with a bad file");
    assert!(
        gateway
            .scrape()
            .contains("headend_config_last_reload_successful 0")
    );
}

#[test]
fn a_call_in_flight_survives_a_reload_that_removes_its_upstream() {
    let setup = Setup::new();
    let record = Log::new(&setup.world.path("work"), "fx");
    let gateway = setup
        .fake("fx", &Fake::stdio("legacy").logging(&record))
        .start();
    gateway.wait_for_tools(&["fx__sleep"]);
    let mut client = gateway.modern();
    let mut call = client.open(
        "tools/call",
        json!({"name": "fx__sleep", "arguments": {"ms": 1000}}),
    );
    eventually("the call arrives", || record.count("tools/call") == 1);
    let plan = gateway.reload(&Setup::new().text());
    assert!(plan.status.success(), "{}", said(&plan));
    let response = call.response();
    assert!(
        response["result"].is_object() && response["result"]["isError"] != json!(true),
        "{response}"
    );
}

#[test]
fn sigterm_finishes_the_calls_in_flight_and_leaves_no_process() {
    let setup = Setup::new();
    let record = Log::new(&setup.world.path("work"), "fx");
    let stubborn = Fake::stdio("legacy").logging(&record);
    let mut gateway = setup
        .fake("fx", &stubborn)
        .fake("two", &Fake::stdio("modern"))
        .start();
    gateway.wait_for_tools(&["fx__sleep", "two__echo"]);
    let children = descendants(gateway.pid());
    assert!(children.len() >= 2, "{children:?}");
    let mut client = gateway.modern();
    let mut call = client.open(
        "tools/call",
        json!({"name": "fx__sleep", "arguments": {"ms": 700}}),
    );
    let legacy = gateway.legacy();
    let stream = legacy.listen();
    eventually("the call arrives", || record.count("tools/call") == 1);
    gateway.signal(Signal::TERM);
    let response = call.response();
    assert!(
        response["result"].is_object() && response["result"]["isError"] != json!(true),
        "{response}"
    );
    let status = gateway.wait(Duration::from_secs(15));
    assert_eq!(
        status.and_then(|status| status.code()),
        Some(0),
        "{}",
        gateway.story()
    );
    drop(stream);
    for child in children {
        within(
            Duration::from_secs(2),
            &format!("process {child} is gone"),
            || !alive(child),
        );
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let setup = Setup::new();
    let record = Log::new(&setup.world.path("work"), "fx");
    let mut gateway = setup
        .fake("fx", &Fake::stdio("legacy").logging(&record))
        .start();
    gateway.wait_for_tools(&["fx__sleep"]);
    let children = descendants(gateway.pid());
    let mut client = gateway.modern();
    let call = client.open(
        "tools/call",
        json!({"name": "fx__sleep", "arguments": {"ms": 60_000}}),
    );
    eventually("the call arrives", || record.count("tools/call") == 1);
    gateway.signal(Signal::TERM);
    thread::sleep(Duration::from_millis(200));
    gateway.signal(Signal::TERM);
    assert!(
        gateway.wait(Duration::from_secs(5)).is_some(),
        "{}",
        gateway.story()
    );
    drop(call);
    for child in children {
        within(
            Duration::from_secs(2),
            &format!("process {child} is gone"),
            || !alive(child),
        );
    }
}

#[test]
fn a_denied_tool_is_hidden_and_indistinguishable_from_an_unknown_one() {
    let setup = Setup::new();
    let record = Log::new(&setup.world.path("work"), "fx");
    let gateway = setup
        .fake("fx", &Fake::stdio("both").logging(&record))
        .toml("[[policy.rules]]\nid = \"no-denied\"\neffect = \"deny\"\ntools = [\"fx__denied\"]")
        .start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in Era::BOTH {
        let mut client = gateway.client(era);
        assert!(
            !client.tool_names().contains(&"fx__denied".to_owned()),
            "{era:?}"
        );
        let denied = client.call("fx__denied", json!({}));
        let unknown = client.call("fx__nobody", json!({}));
        assert_eq!(denied.code(), Some(-32602), "{era:?}: {}", denied.raw);
        assert_eq!(denied.status, unknown.status, "{era:?}");
        let plain = |answer: &crate::mcp::Answer| answer.message["error"]["message"].to_string();
        assert_eq!(
            plain(&denied).replace("denied", "nobody"),
            plain(&unknown),
            "{era:?}"
        );
    }
    assert_eq!(record.count("tools/call"), 0);
}

#[test]
fn a_deny_that_looks_at_arguments_answers_as_a_tool_and_keeps_the_tool_listed() {
    let gateway = Setup::new()
        .fake("fx", &Fake::stdio("both"))
        .toml("[[policy.rules]]\nid = \"no-secret\"\neffect = \"deny\"\ntools = [\"fx__echo\"]\narguments = [{ pointer = \"/text\", glob = \"secret*\" }]")
        .start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in Era::BOTH {
        let mut client = gateway.client(era);
        assert_eq!(
            client.call("fx__echo", json!({"text": "plain"})).text(),
            "plain",
            "{era:?}"
        );
        let denied = client.call("fx__echo", json!({"text": "secret plan"}));
        assert!(denied.is_error(), "{era:?}: {}", denied.raw);
        assert_eq!(
            denied.result()["_meta"]["headend/refusal"]["executed"],
            "no",
            "{era:?}: {}",
            denied.raw
        );
    }
}

#[test]
fn what_no_rule_names_follows_the_default() {
    for (default, listed) in [("ask", true), ("deny", false)] {
        let setup = Setup::new().policy(&format!("default = \"{default}\""));
        let record = Log::new(&setup.world.path("work"), "fx");
        let gateway = setup
            .fake("fx", &Fake::stdio("both").logging(&record))
            .toml("[[policy.rules]]\nid = \"env\"\neffect = \"allow\"\ntools = [\"fx__env\"]")
            .start();
        gateway.wait_for_tools(&["fx__env"]);
        for era in Era::BOTH {
            let mut client = gateway.client(era);
            assert_eq!(
                client.tool_names().contains(&"fx__echo".to_owned()),
                listed,
                "{default} {era:?}"
            );
            assert!(
                !client.call("fx__env", json!({})).is_error(),
                "{default} {era:?}"
            );
            let refused = client.call("fx__echo", json!({"text": "x"}));
            let hidden = refused.code() == Some(-32602);
            assert!(
                if listed { refused.is_error() } else { hidden },
                "{default} {era:?}: {}",
                refused.raw
            );
        }
        assert!(
            record.lines_with(&["tools/call", "\"echo\""]).is_empty(),
            "{default}: nothing was called"
        );
    }
}

#[test]
fn a_limited_call_is_told_when_to_come_back() {
    let gateway = Setup::new()
        .fake("fx", &Fake::stdio("both"))
        .toml("[[policy.limits]]\nid = \"few\"\ntools = [\"fx__echo\"]\nkey = [\"caller\", \"tool\"]\nrate = \"2/m\"\nburst = 2")
        .start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.modern();
    for _ in 0..2 {
        assert_eq!(client.call("fx__echo", json!({"text": "in"})).text(), "in");
    }
    let limited = client.call("fx__echo", json!({"text": "over"}));
    assert!(limited.is_error(), "{}", limited.raw);
    let text = limited.text();
    assert!(
        text.chars().any(|c| c.is_ascii_digit()),
        "it says how many seconds: {text}"
    );
    let refusal = &limited.result()["_meta"]["headend/refusal"];
    assert_eq!(refusal["reason"], "limited", "{}", limited.raw);
    assert_eq!(refusal["executed"], "no", "{}", limited.raw);
    let wait = refusal["retry-after-ms"].as_u64().unwrap_or_default();
    assert!((1..=30_000).contains(&wait), "{}", limited.raw);
    assert_eq!(
        gateway.legacy().call("fx__fail", json!({})).result()["isError"],
        true,
        "other tools are not limited"
    );
}

#[test]
fn the_commands_answer_from_the_running_daemon() {
    let gateway = Setup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let status: Value =
        serde_json::from_slice(&ok(&gateway, &["status", "--json"]).stdout).unwrap();
    assert!(status.to_string().contains("\"fx\""), "{status}");
    assert!(!ok(&gateway, &["status"]).stdout.is_empty());
    let tools: Value = serde_json::from_slice(&ok(&gateway, &["tools", "--json"]).stdout).unwrap();
    assert!(tools.to_string().contains("fx__echo"), "{tools}");
    let called = ok(&gateway, &["call", "fx__echo", r#"{"text":"by hand"}"#]);
    assert!(String::from_utf8_lossy(&called.stdout).contains("by hand"));
    assert_eq!(gateway.run(&["call", "fx__fail"]).status.code(), Some(1));
    assert!(!gateway.run(&["call", "fx__nope"]).status.success());
    for args in [
        &["approvals"][..],
        &["grants"],
        &["pins"],
        &["audit", "verify"],
        &["reload"],
    ] {
        ok(&gateway, args);
    }
}

#[test]
fn the_token_is_made_once_and_only_its_owner_reads_it() {
    let mut gateway = Setup::new().start();
    let token = gateway.token().unwrap();
    assert!(token.len() >= 20, "{} characters", token.len());
    let path = gateway.world.path("state/headend/token");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    gateway.signal(Signal::TERM);
    assert!(gateway.wait(Duration::from_secs(10)).is_some());
    let again = Gateway::start(
        gateway.world.clone(),
        Some(gateway.config.clone()),
        &["serve"],
        &[],
    );
    assert_eq!(again.token(), Some(token));
    assert!(
        again.modern().tool_names().is_empty(),
        "the old token is good for the new daemon"
    );
}

#[test]
fn check_prints_every_problem_at_once_and_exits_with_78() {
    let (world, _) = Setup::new().write();
    let path = world.write(
        "bad.toml",
        "[upstreams.Bad]\ncommand = []\n[upstreams.ok]\nurl = \"ftp://x\"\nnonsense = 1\n",
    );
    let refused = world.run(&["check", "--config", path.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(78), "{}", said(&refused));
    let serve = world.run(&["serve", "--config", path.to_str().unwrap()]);
    assert_eq!(serve.status.code(), Some(78), "{}", said(&serve));

    let secret = Setup::new()
        .toml("[upstreams.docs]\nurl = \"https://docs.example.com/mcp\"\nheaders = { Authorization = { env = \"DOCS_AUTH\" } }");
    let (world, path) = secret.write();
    let mut command = world.command(crate::harness::headend());
    command
        .args(["check", "--config", path.to_str().unwrap()])
        .env("DOCS_AUTH", "Bearer canary-4711");
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let good = output_within(
        command.spawn().unwrap(),
        Duration::from_secs(20),
        "headend check",
    );
    assert!(good.status.success(), "{}", said(&good));
    assert!(
        String::from_utf8_lossy(&good.stdout).contains("docs.example.com"),
        "{}",
        said(&good)
    );
    assert!(!said(&good).contains("canary-4711"), "secrets are redacted");
}

#[test]
fn configurations_of_known_hosts_import_to_files_that_check_accepts() {
    const SAMPLES: &[(&str, &str, &[&str])] = &[
        (
            "claude_desktop_config.json",
            r#"{"mcpServers":{"files":{"command":"npx","args":["-y","@modelcontextprotocol/server-filesystem@1","/srv"],"env":{"A":"b"}}}}"#,
            &["upstreams.files", "server-filesystem"],
        ),
        (
            ".mcp.json",
            r#"{"mcpServers":{"docs":{"type":"http","url":"https://docs.example.com/mcp","headers":{"Authorization":"Bearer ${DOCS_TOKEN}"}},"time":{"type":"stdio","command":"mcp-server-time","args":[]}}}"#,
            &[
                "upstreams.docs",
                "https://docs.example.com/mcp",
                "upstreams.time",
            ],
        ),
        (
            "cursor-mcp.json",
            r#"{"mcpServers":{"web":{"url":"https://web.example.com/mcp"}}}"#,
            &["upstreams.web"],
        ),
        (
            "vscode-mcp.json",
            "{\n  // a comment\n  \"servers\": {\"git\": {\"type\": \"stdio\", \"command\": \"uvx\", \"args\": [\"mcp-server-git\"]},},\n  \"inputs\": []\n}",
            &["upstreams.git", "mcp-server-git"],
        ),
        (
            "zed-settings.json",
            r#"{"context_servers":{"pg":{"command":"pg-mcp","args":["--ro"],"env":{}}}}"#,
            &["upstreams.pg", "--ro"],
        ),
    ];
    let world = World::new();
    let mut inputs: Vec<(String, Vec<String>)> = Vec::new();
    for (name, text, wanted) in SAMPLES {
        let path = world.write(&format!("work/{name}"), text);
        inputs.push((
            path.to_str().unwrap().to_owned(),
            wanted.iter().map(|&w| w.to_owned()).collect(),
        ));
    }
    let shipped = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/import");
    for entry in fs::read_dir(shipped).into_iter().flatten().flatten() {
        if entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            inputs.push((entry.path().to_str().unwrap().to_owned(), Vec::new()));
        }
    }
    for (path, wanted) in inputs {
        let imported = world.run(&["import", &path]);
        assert!(imported.status.success(), "{path}: {}", said(&imported));
        let toml = String::from_utf8(imported.stdout).unwrap();
        assert!(
            wanted.iter().all(|text| toml.contains(text.as_str())),
            "{path}: {wanted:?} in\n{toml}"
        );
        let file = world.write("imported.toml", &toml);
        let mut command = world.command(crate::harness::headend());
        command
            .args(["check", "--config", file.to_str().unwrap()])
            .env("DOCS_TOKEN", "x");
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let checked = output_within(
            command.spawn().unwrap(),
            Duration::from_secs(20),
            "headend check",
        );
        assert!(
            checked.status.success(),
            "{path}: {}\n{toml}",
            said(&checked)
        );
    }
}

#[test]
fn client_text_never_becomes_a_series() {
    let gateway = Setup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let mut burst = |rounds: usize| {
        let (mut modern, mut legacy) = (gateway.modern(), gateway.legacy());
        for round in 0..rounds {
            let client = if round % 2 == 0 {
                &mut modern
            } else {
                &mut legacy
            };
            client.user_agent = format!("agent-{:x}", noise.next());
            let answer = client.call(&format!("fx__{:x}", noise.next()), json!({}));
            assert_eq!(answer.code(), Some(-32602));
            if round % 10 == 0 {
                client.request(&format!("no/{:x}", noise.next()), json!({}));
            }
        }
    };
    burst(20);
    let before = series(&gateway.scrape());
    burst(5000);
    let after = series(&gateway.scrape());
    assert_eq!(before, after, "the number of series is constant");
}

#[test]
fn the_metrics_page_passes_its_linter_and_the_probes_answer() {
    let gateway = Setup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    gateway.modern().call("fx__echo", json!({"text": "x"}));
    let page = gateway.scrape();
    for family in [
        "headend_build_info{",
        "headend_config_last_reload_successful 1",
    ] {
        assert!(page.contains(family), "{family} is missing:\n{page}");
    }
    let metrics = gateway.metrics.unwrap();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(http::get(metrics, path).unwrap().head.status, 200, "{path}");
    }
    assert_ne!(
        http::get(gateway.address, "/metrics").unwrap().head.status,
        200,
        "not on the public listener"
    );
    if !installed("promtool") {
        left_out("promtool check metrics", "promtool is not installed");
        return;
    }
    let file = gateway.world.write("metrics.txt", &page);
    let mut command = gateway.world.command("promtool");
    command
        .args(["check", "metrics"])
        .stdin(fs::File::open(file).unwrap());
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let linted = output_within(
        command.spawn().unwrap(),
        Duration::from_secs(30),
        "promtool",
    );
    assert!(linted.status.success(), "{}\n{page}", said(&linted));
}

#[test]
fn it_serves_within_a_second_of_its_start_with_no_upstream_up() {
    let begun = Instant::now();
    let gateway = Setup::new()
        .fake("slow", &Fake::stdio("legacy").behaving("never-answer"))
        .start();
    let answer = gateway.modern().request("server/discover", json!({}));
    assert!(answer.message.get("result").is_some(), "{}", answer.raw);
    // The promise is one second; a loaded machine with a debug build gets three.
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
}

/// Marsaglia's xorshift: names nobody has seen, the same ones in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn series(page: &str) -> usize {
    page.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .count()
}

fn ok(gateway: &Gateway, args: &[&str]) -> Output {
    let output = gateway.run(args);
    assert!(
        output.status.success(),
        "headend {args:?}: {}",
        said(&output)
    );
    output
}

fn said(output: &Output) -> String {
    format!(
        "{:?}\nstdout: {}\nstderr: {}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
