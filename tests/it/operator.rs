//! The operator's commands: check, status, call, import, metrics.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Gateway, Setup, World, headend, left_out};
use crate::http;
use crate::process::{installed, output_within, said};
use crate::upstream::Fake;

#[test]
fn the_commands_answer_from_the_running_daemon() {
    let gateway = Setup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let status: Value = serde_json::from_slice(&ok(&gateway, &["status", "--json"]).stdout).unwrap();
    assert!(status.to_string().contains("\"fx\""), "{status}");
    assert!(!ok(&gateway, &["status"]).stdout.is_empty());
    let tools: Value = serde_json::from_slice(&ok(&gateway, &["tools", "--json"]).stdout).unwrap();
    assert!(tools.to_string().contains("fx__echo"), "{tools}");
    let called = ok(&gateway, &["call", "fx__echo", r#"{"text":"by hand"}"#]);
    assert!(String::from_utf8_lossy(&called.stdout).contains("by hand"));
    assert_eq!(gateway.run(&["call", "fx__fail"]).status.code(), Some(1));
    assert!(!gateway.run(&["call", "fx__nope"]).status.success());
    for args in [&["tools"][..], &["status"], &["reload"]] {
        ok(&gateway, args);
    }
}

#[test]
fn other_users_of_the_socket_are_clients_and_not_the_operator() {
    if !rustix::process::getuid().is_root() || !installed("setpriv") {
        return eprintln!("left out: the socket for other users: only root can become another user, with setpriv");
    }
    let stage = |access: &str| {
        let setup = Setup::new().toml(&format!("[admin]\n{access}"));
        let rules = r#"default = "allow"
            [[policy.rules]]
            id = "not-theirs"
            effect = "deny"
            tools = ["fx__fail"]
            callers = ["uid:65534"]"#;
        let gateway = setup.policy(rules).fake("fx", &Fake::stdio("both")).start();
        gateway.wait_for_tools(&["fx__echo"]);
        for folder in ["", "run"] {
            let path = gateway.world.path(folder);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        gateway
    };
    let as_nobody = |gateway: &Gateway, args: &[&str]| {
        let mut command = gateway.world.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", headend()]).args(args).current_dir("/");
        let socket = gateway.world.path("run/headend.sock");
        let child = command.arg("--socket").arg(socket).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        output_within(child, Duration::from_secs(30), &format!("headend {args:?} as another user"))
    };
    let gateway = stage("group = \"nogroup\"\nusers = [\"nobody\"]");
    let called = as_nobody(&gateway, &["call", "fx__echo", r#"{"text":"as nobody"}"#]);
    assert!(String::from_utf8_lossy(&called.stdout).contains("as nobody"), "{}", said(&called));
    let listed = |output: &Output| String::from_utf8_lossy(&output.stdout).contains("fx__fail");
    assert!(
        listed(&ok(&gateway, &["tools"])) && !listed(&as_nobody(&gateway, &["tools"])),
        "what is hidden stays hidden"
    );
    for args in [&["reload"][..], &["status"], &["restart", "fx"], &["approvals"], &["grants"], &["pins"], &["console"]]
    {
        let refused = as_nobody(&gateway, args);
        assert!(
            !refused.status.success() && said(&refused).contains("only root and the user"),
            "{args:?}: {}",
            said(&refused)
        );
    }
    let closed = stage("");
    assert!(!as_nobody(&closed, &["call", "fx__echo", "{}"]).status.success());
}

#[test]
fn the_token_is_made_once_and_only_its_owner_reads_it() {
    let mut gateway = Setup::new().start();
    let token = gateway.token().unwrap();
    assert!(token.len() >= 20, "{} characters", token.len());
    let path = gateway.world.path("state/headend/token");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    gateway.signal(Signal::TERM);
    assert!(gateway.wait(Duration::from_secs(60)).is_some());
    let again = Gateway::start(gateway.world.clone(), Some(gateway.config.clone()), &["serve"], &[]);
    assert_eq!(again.token(), Some(token));
    assert!(again.modern().tool_names().is_empty(), "the old token is good for the new daemon");
}

#[test]
fn check_prints_every_problem_at_once_and_exits_with_78() {
    let (world, _) = Setup::new().write();
    let path =
        world.write("bad.toml", "[upstreams.Bad]\ncommand = []\n[upstreams.ok]\nurl = \"ftp://x\"\nnonsense = 1\n");
    let refused = world.run(&["check", "--config", path.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(78), "{}", said(&refused));
    let serve = world.run(&["serve", "--config", path.to_str().unwrap()]);
    assert_eq!(serve.status.code(), Some(78), "{}", said(&serve));

    let secret = Setup::new()
        .toml("[upstreams.docs]\nurl = \"https://docs.example.com/mcp\"\nheaders = { Authorization = { env = \"DOCS_AUTH\" } }");
    let (world, path) = secret.write();
    let mut command = world.command(headend());
    command.args(["check", "--resolved", "--config", path.to_str().unwrap()]).env("DOCS_AUTH", "Bearer canary-4711");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let good = output_within(command.spawn().unwrap(), Duration::from_secs(60), "headend check");
    assert!(good.status.success(), "{}", said(&good));
    assert!(String::from_utf8_lossy(&good.stdout).contains("docs.example.com"), "{}", said(&good));
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
            &["upstreams.docs", "https://docs.example.com/mcp", "upstreams.time"],
        ),
        ("cursor-mcp.json", r#"{"mcpServers":{"web":{"url":"https://web.example.com/mcp"}}}"#, &["upstreams.web"]),
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
        inputs.push((path.to_str().unwrap().to_owned(), wanted.iter().map(|&w| w.to_owned()).collect()));
    }
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/import");
    for entry in fs::read_dir(shipped).into_iter().flatten().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "json") {
            inputs.push((entry.path().to_str().unwrap().to_owned(), Vec::new()));
        }
    }
    for (path, wanted) in inputs {
        let imported = world.run(&["import", &path]);
        assert!(imported.status.success(), "{path}: {}", said(&imported));
        let toml = String::from_utf8(imported.stdout).unwrap();
        assert!(wanted.iter().all(|text| toml.contains(text.as_str())), "{path}: {wanted:?} in\n{toml}");
        let file = world.write("imported.toml", &toml);
        let mut command = world.command(headend());
        command.args(["check", "--config", file.to_str().unwrap()]).env("DOCS_TOKEN", "x");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let checked = output_within(command.spawn().unwrap(), Duration::from_secs(60), "headend check");
        assert!(checked.status.success(), "{path}: {}\n{toml}", said(&checked));
    }
}

#[test]
fn client_text_never_becomes_a_series() {
    let gateway = Setup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let burst = &|rounds: usize, seed: u64| {
        let mut noise = Noise(0x9e37_79b9_7f4a_7c15 ^ seed);
        let (mut modern, mut legacy) = (gateway.modern(), gateway.legacy());
        for round in 0..rounds {
            let client = if round % 2 == 0 { &mut modern } else { &mut legacy };
            client.user_agent = format!("agent-{:x}", noise.next());
            let answer = client.call(&format!("fx__{:x}", noise.next()), json!({}));
            assert_eq!(answer.code(), Some(-32602));
            if round % 10 == 0 {
                client.request(&format!("no/{:x}", noise.next()), json!({}));
            }
        }
    };
    burst(20, 0);
    let before = series(&gateway.scrape());
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            scope.spawn(move || burst(5_000, seed));
        }
    });
    let after = series(&gateway.scrape());
    assert_eq!(before, after, "the number of series is constant");
}

#[test]
fn the_metrics_page_passes_its_linter_and_the_probes_answer() {
    let gateway = Setup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    gateway.modern().call("fx__echo", json!({"text": "x"}));
    let page = gateway.scrape();
    for family in ["headend_build_info{", "headend_config_last_reload_successful 1"] {
        assert!(page.contains(family), "{family} is missing:\n{page}");
    }
    let metrics = gateway.metrics.unwrap();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(http::get(metrics, path).unwrap().head.status, 200, "{path}");
    }
    assert_ne!(http::get(gateway.address, "/metrics").unwrap().head.status, 200, "not on the public listener");
    if !installed("promtool") {
        left_out("promtool check metrics", "promtool is not installed");
        return;
    }
    let file = gateway.world.write("metrics.txt", &page);
    let mut command = gateway.world.command("promtool");
    command.args(["check", "metrics"]).stdin(fs::File::open(file).unwrap());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let linted = output_within(command.spawn().unwrap(), Duration::from_secs(30), "promtool");
    assert!(linted.status.success(), "{}\n{page}", said(&linted));
}

#[test]
fn it_serves_within_a_second_of_its_start_with_no_upstream_up() {
    let begun = Instant::now();
    let gateway = Setup::new().fake("slow", &Fake::stdio("legacy").behaving("never-answer")).start();
    let answer = gateway.modern().request("server/discover", json!({}));
    assert!(answer.message.get("result").is_some(), "{}", answer.raw);
    // The promise is one second, which the benchmark measures. Here nothing may wait for the handshake, which is given up after two minutes.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// Marsaglia's xorshift: unknown names, the same ones in every run.
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
    page.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count()
}

fn ok(gateway: &Gateway, args: &[&str]) -> Output {
    let output = gateway.run(args);
    assert!(output.status.success(), "headend {args:?}: {}", said(&output));
    output
}

#[test]
fn the_read_me_lists_exactly_the_metrics_that_there_are() {
    let gateway = Setup::new().fake("fx", &Fake::stdio("both")).toml(LIMIT).start();
    gateway.wait_for_tools(&["fx__echo"]);
    // Families without a series are not rendered, so each gets one.
    let mut client = gateway.legacy();
    for _ in 0..2 {
        client.call("fx__echo", json!({"text": "counted"}));
    }
    let page = gateway.scrape();
    let mut served: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE headend_")).collect();
    served.sort_unstable();
    let read_me = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/README.md")).unwrap();
    let listed = |line: &str| {
        let mut cells = line.strip_prefix("| `headend_")?.split(" | ");
        Some(format!("{} {}", cells.next()?.trim_end_matches('`'), cells.next()?))
    };
    let mut listed: Vec<String> = read_me.lines().filter_map(listed).collect();
    listed.sort_unstable();
    // Nothing misbehaved and there is no login, so these families have no series.
    listed.retain(|line| {
        !line.starts_with("upstream_faults_") && !line.starts_with("upstream_reserved_") && !line.starts_with("login_")
    });
    assert_eq!(served, listed);
}

const LIMIT: &str =
    "[[policy.limits]]\nid = \"one\"\ntools = [\"fx__echo\"]\nkey = [\"caller\"]\nrate = \"1/h\"\nburst = 1";
