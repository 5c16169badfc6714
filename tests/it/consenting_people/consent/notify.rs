//! Tests of `[policy.consent] notify`: notices of open approvals reach a program or a URL, and a
//! notifier that misbehaves delays nothing and reveals nothing.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use super::operator::pending;
use super::*;
use crate::tools::harness::{TestHome, left_out};
use crate::tools::process::{alive, said, within};

const CANARY: &str = "canary-in-the-arguments";
const SECRET: &str = "canary-of-the-header";
/// Longer than a notice may take, including its end.
const ENDED: Duration = Duration::from_secs(25);

/// Writes a script in this world.
fn script(world: &TestHome, name: &str, text: &str) -> PathBuf {
    let path = world.write(&format!("work/{name}"), &format!("#!/bin/sh\n{text}\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    path
}

/// Starts a gateway with this line for notices, which logs everything.
fn stage(setup: GatewaySetup, notify: &str) -> ApprovalGateway {
    ApprovalGateway::of(setup, notify, "[log]\nfilter = \"debug\"")
}

/// Returns the notices in a file, one on each line. The last line may still be incomplete.
fn notices(path: &PathBuf) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Makes a call that is refused and leaves an approval open.
fn leave_open(client: &mut Mcp, text: &str) {
    assert_eq!(reason(&client.call("fx__echo", json!({"text": text}))), "awaiting_approval");
}

fn count(stage: &ApprovalGateway, outcome: &str) -> u64 {
    let start = format!("headend_notices_total{{outcome=\"{outcome}\"}} ");
    let scraped = stage.gateway.scrape();
    scraped.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok()).unwrap_or(0)
}

/// Checks that arguments and secrets are only where the configuration asked for them.
fn is_discreet(stage: &ApprovalGateway, more: &str) {
    let story = format!("{}\n{}\n{more}", stage.gateway.story(), stage.gateway.scrape());
    for canary in [CANARY, SECRET] {
        let found = story.lines().find(|line| line.contains(canary));
        assert_eq!(found, None, "{canary}");
    }
}

/// A server that keeps each request, answers it in a set way, and counts its connections.
#[derive(Clone)]
struct WebhookServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl WebhookServer {
    fn answering(answer: impl Fn(TcpStream) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hook = Self { address: listener.local_addr().unwrap(), requests: Arc::default() };
        let requests = Arc::clone(&hook.requests);
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let (requests, answer) = (Arc::clone(&requests), answer.clone());
                thread::spawn(move || {
                    requests.lock().unwrap().push(request(&mut stream));
                    answer(stream);
                });
            }
        });
        hook
    }

    fn saying(answer: &'static str) -> Self {
        Self::answering(move |mut stream| drop(stream.write_all(answer.as_bytes())))
    }

    fn seen(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    fn wait(&self, number: usize) -> Vec<String> {
        within(ENDED, "the hook is told", || self.seen().len() >= number);
        self.seen()
    }
}

/// Reads one request with its body, which is a line of JSON.
fn request(stream: &mut TcpStream) -> String {
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    while !text.split_once("\r\n\r\n").is_some_and(|(_, body)| body.ends_with("}\n")) {
        match stream.read(&mut bytes) {
            Ok(read) if read > 0 => text.push_str(&String::from_utf8_lossy(&bytes[..read])),
            _ => break,
        }
    }
    text
}

#[test]
fn a_program_is_told_on_its_standard_input_and_gets_nothing_else() {
    let setup = GatewaySetup::new().env("CANARY_VARIABLE", SECRET).toml("[console]\nlisten = \"127.0.0.1:0\"");
    let (out, env) = (setup.world.path("work/out"), setup.world.path("work/env"));
    let tell =
        script(&setup.world, "tell", &format!("/bin/cat >> {out:?}\n/usr/bin/env >> {env:?}\necho {CANARY} >&2"));
    let stage = stage(setup, &format!("notify = [{tell:?}, \"--urgent\"]"));
    let mut client = stage.client(ClientEra::Modern, json!({}));
    leave_open(&mut client, CANARY);
    within(ENDED, "the program is told", || !notices(&out).is_empty());
    let told = notices(&out).remove(0);
    let approval = &told["approvals"][0];
    assert_eq!((&told["open"], &told["more"], &told["test"]), (&json!(1), &json!(0), &Value::Null), "{told}");
    assert_eq!((&approval["caller"], &approval["client"]), (&json!("local"), &json!("it 1")), "{told}");
    assert_eq!(approval["item"], "fx__echo", "{told}");
    assert!(approval["age"].as_u64().is_some_and(|age| age < 10), "{told}");
    assert!(approval["effect"].is_string() && approval.get("arguments").is_none(), "{told}");
    let page = approval["page"].as_str().unwrap();
    assert!(page.starts_with("http://127.0.0.1:") && page.ends_with(&pending(&stage)[0]), "{told}");
    assert!(!told.to_string().contains("/open/"), "no sign-in: {told}");
    eventually("it is counted", || count(&stage, "ok") == 1);
    // Variables that the shell itself sets.
    let environment = fs::read_to_string(&env).unwrap();
    let names: Vec<&str> = environment.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    assert!(names.iter().all(|name| matches!(*name, "PWD" | "OLDPWD" | "SHLVL" | "_")), "{environment}");

    let tried = stage.gateway.world.run(&["approvals", "notify"]);
    assert!(tried.status.success() && said(&tried).contains("took a test notice"), "{}", said(&tried));
    let test = notices(&out).pop().unwrap();
    assert_eq!((&test["test"], test["approvals"].as_array().map(Vec::len)), (&json!(true), Some(1)), "{test}");
    is_discreet(&stage, &fs::read_to_string(&out).unwrap());
}

#[test]
fn a_url_is_posted_to_with_its_secret_header_and_with_arguments_only_where_they_are_wanted() {
    let hook = WebhookServer::saying("HTTP/1.1 204 No Content\r\n\r\n");
    let header = "notify-headers = { Authorization = { env = \"HOOK_TOKEN\", prefix = \"Bearer \" } }";
    let url = format!("notify = \"http://{}/secret-path?k=v\"\n{header}", hook.address);
    let stage = stage(GatewaySetup::new().env("HOOK_TOKEN", SECRET), &url);
    let mut client = stage.client(ClientEra::LEGACY, json!({}));
    leave_open(&mut client, CANARY);
    let seen = hook.wait(1).remove(0);
    assert!(seen.starts_with("POST /secret-path?k=v HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains(&format!("authorization: Bearer {SECRET}")) && !seen.contains(CANARY), "{seen}");
    assert!(seen.contains("content-type: application/json"), "{seen}");
    eventually("it is counted", || count(&stage, "ok") == 1);
    is_discreet(&stage, "");
    let shown = stage.gateway.world.run(&["check", "--resolved", "--config", stage.gateway.config.to_str().unwrap()]);
    assert!(!said(&shown).contains("secret-path"), "{}", said(&shown));

    // From the reload on, a notice has the arguments.
    let before = fs::read_to_string(&stage.gateway.config).unwrap();
    let reloaded = stage.gateway.reload(&before.replace(header, &format!("{header}\nnotify-arguments = true")));
    assert!(said(&reloaded).contains("notify-arguments tells arguments"), "{}", said(&reloaded));
    leave_open(&mut client, "second");
    let seen = hook.wait(2).remove(1);
    let told: Value = serde_json::from_str(seen.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(told["approvals"][0]["arguments"], json!({"text": "second"}), "{told}");
    assert_eq!((&told["open"], told["approvals"].as_array().map(Vec::len)), (&json!(2), Some(1)), "only news: {told}");
    let tried = stage.gateway.world.run(&["approvals", "notify", "--json"]);
    assert!(said(&tried).contains(&format!("http://{}", hook.address)) && !said(&tried).contains("secret-path"));
    let off = stage.gateway.reload(&before.replace(&url, ""));
    assert!(off.status.success(), "{}", said(&off));
    leave_open(&mut client, "third");
    let tried = stage.gateway.world.run(&["approvals", "notify"]);
    assert!(tried.status.code() == Some(1) && said(&tried).contains("`notify` is not set"), "{}", said(&tried));
    thread::sleep(Duration::from_secs(1));
    assert_eq!(hook.seen().len(), 3, "off is off");
}

#[test]
fn a_program_that_hangs_is_ended_with_all_that_it_started_and_delays_nothing() {
    let setup = GatewaySetup::new();
    let pids = setup.world.path("work/pids");
    let hang = format!(
        "echo $$ >> {pids:?}\nsleep 600 & echo $! >> {pids:?}\nsetsid sleep 600 & echo $! >> {pids:?}\ntrap '' TERM\nwait\nsleep 600"
    );
    let tell = script(&setup.world, "tell", &hang);
    let stage = stage(setup, &format!("notify = [{tell:?}]\n{LONG}"));
    let mut client = stage.client(ClientEra::Modern, json!({}));
    let begun = Instant::now();
    let mut held = client.open("tools/call", json!({"name": "fx__echo", "arguments": {"text": CANARY}}));
    let read = || -> Vec<u32> {
        fs::read_to_string(&pids).unwrap_or_default().lines().filter_map(|line| line.parse().ok()).collect()
    };
    eventually("it runs", || read().len() == 3);
    assert!(read().iter().all(|pid| alive(*pid)));
    assert!(stage.gateway.scrape().contains("headend_calls_held 1\n"));
    let id = pending(&stage).remove(0);
    assert!(stage.gateway.world.run(&["approve", &id]).status.success());
    assert_eq!(held.response()["result"]["content"][0]["text"], CANARY);
    assert!(begun.elapsed() < Duration::from_secs(9), "the call did not wait for the notice: {:?}", begun.elapsed());
    within(ENDED, "the notice has failed", || count(&stage, "failed") == 1);
    within(Duration::from_secs(5), "nothing is left of it", || read().iter().all(|pid| !alive(*pid)));
    assert!(begun.elapsed() >= Duration::from_secs(9), "it had its time: {:?}", begun.elapsed());
    eventually("the reason is logged", || stage.gateway.story().contains("took longer than 10 s"));
    is_discreet(&stage, "");
}

#[test]
fn what_fails_or_floods_is_a_metric_and_one_line_for_each_change() {
    let setup = GatewaySetup::new();
    let mode = setup.world.write("work/mode", "exit 3");
    let flood = format!("exec 2>&1; while :; do echo {SECRET}; cat; done");
    let tell = script(&setup.world, "tell", &format!(". {mode:?}"));
    let stage = stage(setup, &format!("notify = [{tell:?}]"));
    let mut client = stage.client(ClientEra::Modern, json!({}));
    let fail = |client: &mut Mcp, number: u64| {
        leave_open(client, &format!("{CANARY} {number}"));
        within(ENDED, "it has failed", || count(&stage, "failed") == number);
    };
    fail(&mut client, 1);
    fail(&mut client, 2);
    fs::write(&mode, &flood).unwrap();
    fail(&mut client, 3);
    fs::write(&mode, "exit 0").unwrap();
    leave_open(&mut client, "good");
    within(ENDED, "it gets through", || count(&stage, "ok") == 1);
    fs::remove_file(&tell).unwrap();
    fail(&mut client, 4);
    eventually("the last change is logged", || stage.gateway.story().contains("is not there"));
    let story = stage.gateway.story();
    assert_eq!(story.matches("notices of open approvals do not get through").count(), 2, "{story}");
    assert_eq!(story.matches("notices of open approvals get through again").count(), 1, "{story}");
    assert!(story.contains("exit status: 3"), "{story}");
    is_discreet(&stage, "");
}

#[test]
fn a_server_that_redirects_hangs_fails_or_floods_leads_nowhere() {
    let elsewhere = WebhookServer::saying("HTTP/1.1 204 No Content\r\n\r\n");
    let to = elsewhere.address;
    let redirecting = WebhookServer::answering(move |mut stream| {
        let head = format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: http://{to}/\r\ncontent-length: 0\r\n\r\n");
        drop(stream.write_all(head.as_bytes()));
    });
    let hanging = WebhookServer::answering(|stream| {
        thread::sleep(Duration::from_secs(30));
        drop(stream);
    });
    let failing = WebhookServer::saying("HTTP/1.1 500 canary-in-the-arguments\r\ncontent-length: 5\r\n\r\nhello");
    let flooding = WebhookServer::answering(|mut stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\n"));
        let line = format!("x: {}\r\n", CANARY.repeat(100));
        while stream.write_all(line.as_bytes()).is_ok() {}
    });
    let of = |hook: &WebhookServer| format!("notify = \"http://{}/\"", hook.address);
    let header = format!("notify-headers = {{ X = \"{SECRET}\" }}");
    let stage = stage(GatewaySetup::new(), &format!("{}\n{header}", of(&redirecting)));
    let before = fs::read_to_string(&stage.gateway.config).unwrap();
    let mut client = stage.client(ClientEra::Modern, json!({}));
    for (number, hook, why) in [
        (1, &redirecting, "status 307; redirects are not followed"),
        (2, &hanging, "took longer than 10 s"),
        (3, &failing, "status 500"),
        (4, &flooding, ""),
    ] {
        let reloaded = stage.gateway.reload(&before.replace(&of(&redirecting), &of(hook)));
        assert!(reloaded.status.success(), "{}", said(&reloaded));
        let begun = Instant::now();
        leave_open(&mut client, &format!("{CANARY} {number}"));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        within(ENDED, "it has failed", || count(&stage, "failed") == number);
        assert_eq!(hook.seen().len(), 1, "{why}");
        eventually("the reason is logged", || stage.gateway.story().contains(why));
    }
    assert_eq!(elsewhere.seen().len(), 0, "no redirect is followed");
    assert_eq!(count(&stage, "ok"), 0);
    is_discreet(&stage, "");
}

#[test]
fn a_burst_of_a_thousand_is_few_notices() {
    const CALLERS: usize = 10;
    const CALLS: usize = 100;
    let mut setup = GatewaySetup::new().server("limits.caller-rate = \"100000/s\"\nlimits.caller-burst = 100000");
    for n in 0..CALLERS {
        setup = setup.server(&format!("auth.tokens.c{n} = \"the-token-of-the-caller-{n}\""));
    }
    let out = setup.world.path("work/out");
    let tell = script(&setup.world, "tell", &format!("/bin/cat >> {out:?}"));
    let policy = format!(
        "default = \"ask\"\n[policy.consent]\nmax-open = {CALLS}\nnotify = [{tell:?}]\nnotify-arguments = true"
    );
    let gateway = setup.policy(&policy).fake("fx", &Fake::stdio("legacy")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let begun = Instant::now();
    thread::scope(|scope| {
        for n in 0..CALLERS {
            let gateway = &gateway;
            scope.spawn(move || {
                let token = Some(format!("the-token-of-the-caller-{n}"));
                let mut client = Mcp::http_at(gateway.address, token, ClientEra::Modern, "/mcp", json!({}));
                (0..CALLS).for_each(|call| leave_open(&mut client, &format!("{call} {}", "x".repeat(9000))));
            });
        }
    });
    let burst = begun.elapsed();
    let told = || -> usize {
        let number = |notice: &Value| {
            notice["approvals"].as_array().map_or(0, Vec::len) + notice["more"].as_u64().unwrap_or(0) as usize
        };
        notices(&out).iter().map(number).sum()
    };
    within(ENDED, "all are told", || told() == CALLERS * CALLS);
    let most = 2 + burst.as_secs() as usize / 5;
    let notices = notices(&out);
    assert!(notices.len() <= most, "{} notices in {burst:?}", notices.len());
    for notice in &notices {
        assert!(notice["approvals"].as_array().is_some_and(|listed| listed.len() <= 20), "{notice}");
        assert!(notice.to_string().len() < 200_000, "bounded");
    }
}

/// Tests a name that leads to this machine, in a mount namespace with its own hosts file.
#[test]
fn a_name_that_leads_to_a_private_address_is_not_connected_to() {
    let works = Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success());
    if !works {
        return left_out("names that lead to private addresses", "no namespace can be made; that needs root");
    }
    let hook = WebhookServer::saying("HTTP/1.1 204 No Content\r\n\r\n");
    let setup = GatewaySetup::new();
    let hosts = setup.world.write("work/hosts", "127.0.0.1 localhost hook.example.com\n10.0.0.1 private.example.com\n");
    fs::set_permissions(&hosts, fs::Permissions::from_mode(0o644)).unwrap();
    let url = |host: &str| format!("notify = \"https://{host}:{}/\"", hook.address.port());
    let policy = format!("default = \"ask\"\n[policy.consent]\nper-minute = 100\n{}", url("hook.example.com"));
    let (world, config) = setup.policy(&policy).fake("fx", &Fake::stdio("legacy")).write();
    let mut command = world.command("unshare");
    let mounted = format!("mount --bind {hosts:?} /etc/hosts && exec \"$0\" \"$@\"");
    command.args(["--mount", "sh", "-c", &mounted, crate::tools::harness::headend()]);
    let gateway = Gateway::start_by(command, world, Some(config.clone()), &["serve"], &[]);
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.client(ClientEra::Modern);
    leave_open(&mut client, CANARY);
    let why = "its name leads to an address that is not on the internet";
    within(ENDED, "it is refused", || gateway.story().contains(why));
    let before = fs::read_to_string(&config).unwrap();
    let reloaded = gateway.reload(&before.replace("hook.example.com", "private.example.com"));
    assert!(reloaded.status.success(), "{}", said(&reloaded));
    leave_open(&mut client, "second");
    within(ENDED, "it is refused too", || gateway.story().matches(why).count() == 2);
    assert_eq!(hook.seen().len(), 0, "no connection was made");
}
