//! Tests of the operator's commands as other users, and of the metrics page with promtool,
//! processes and its documentation.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::tools::harness::{Gateway, GatewaySetup, headend, left_out};
use crate::tools::http;
use crate::tools::process::{installed, output_within, said};
use crate::tools::upstream::Fake;

#[test]
fn other_users_of_the_socket_are_clients_and_not_the_operator() {
    if !rustix::process::getuid().is_root() || !installed("setpriv") {
        return eprintln!("left out: the socket for other users: only root can become another user, with setpriv");
    }
    let stage = |access: &str| {
        let setup = GatewaySetup::new().toml(&format!("[admin]\n{access}"));
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
fn client_text_never_becomes_a_series() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
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
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
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

/// Marsaglia's xorshift generator, for unknown names that are the same in every run.
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
