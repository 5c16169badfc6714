//! Tests of logins at upstreams: states, logins by command line and browser, tokens that expire,
//! restarts, and the end.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::tools::harness::{Gateway, GatewaySetup, headend};
use crate::tools::process::eventually;
use crate::tools::socket::Socket;
use crate::tools::upstream::{Fake, InputLog, Listening};
use crate::traffic::failures::status_of;

mod bounds;
mod issuers;
mod pages;
mod proxied;
mod rekey;
mod restored;

/// A daemon in front of one server that requires a login, and that server's log.
struct LoginGateway {
    gateway: Gateway,
    server: Listening,
    log: InputLog,
    _folder: tempfile::TempDir,
}

fn world(era: &str, life: u64) -> LoginGateway {
    world_of(GatewaySetup::new(), era, life)
}

fn world_of(setup: GatewaySetup, era: &str, life: u64) -> LoginGateway {
    let folder = tempfile::tempdir().unwrap();
    let log = InputLog::new(folder.path(), "server");
    let server = Fake::http(era).behaving(&format!("login={life}")).logging(&log).spawn();
    let setup = setup.policy("default = \"allow\"");
    let setup = setup.url("docs", &server.url).toml("[console]\nlisten = \"127.0.0.1:0\"");
    let setup = setup.fake("other", &Fake::stdio(era));
    let gateway = setup.env("HEADEND_LOG", "trace").start();
    LoginGateway { gateway, server, log, _folder: folder }
}

impl LoginGateway {
    fn state(&self) -> String {
        status_of(&self.gateway, "docs")["state"].as_str().unwrap().to_owned()
    }

    /// Counts how often the server was asked for this.
    fn asked(&self, what: &str) -> usize {
        self.log.lines_with(&[&format!("\"login\":\"{what}\"")]).len()
    }

    fn log_in(&self) {
        let done = paste(&self.gateway);
        assert!(done.status.success(), "{}\n{}", said(&done), self.gateway.story());
        assert!(said(&done).contains("Logged in to docs at http://127.0.0.1"), "{}", said(&done));
    }

    fn call(&self) -> Value {
        let answer = self.gateway.modern().call("docs__echo", json!({"text": "hello"}));
        serde_json::from_str(&answer.raw).unwrap_or(Value::Null)
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Sends a GET and returns the head of the answer, without following redirects.
fn head(url: &str, cookie: Option<&str>, method: &str) -> String {
    let (host, request) = request(url, cookie, method);
    send(host, &request)
}

/// Returns the host of an address, and a request for it.
fn request<'u>(url: &'u str, cookie: Option<&str>, method: &str) -> (&'u str, String) {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let cookie = cookie.map(|cookie| format!("Cookie: {cookie}\r\n")).unwrap_or_default();
    let form =
        if method == "POST" { "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 0\r\n" } else { "" };
    (host, format!("{method} /{path} HTTP/1.1\r\nHost: {host}\r\n{cookie}{form}Connection: close\r\n\r\n"))
}

/// Returns the request that sends the form with a pasted address to the call-back.
fn pasting(host: &str, cookie: &str, address: &str) -> String {
    let form = url::form_urlencoded::Serializer::new(String::new()).append_pair("address", address).finish();
    format!(
        "POST /oauth/callback HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nOrigin: http://{host}\r\nContent-Type: \
         application/x-www-form-urlencoded\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{form}",
        form.len()
    )
}

fn send(host: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn field<'t>(answer: &'t str, name: &str) -> Option<&'t str> {
    let heads = answer.split("\r\n\r\n").next().unwrap();
    heads.lines().find_map(|line| {
        let (known, value) = line.split_once(": ")?;
        known.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// Starts the login command and reads its output up to the link.
fn begin(gateway: &Gateway, args: &[&str]) -> (Child, BufReader<ChildStdout>, String) {
    let mut command: Command = gateway.world.command(headend());
    command.args(args).args(["--config", gateway.config.to_str().unwrap()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut link = String::new();
    for _ in 0..20 {
        let mut line = String::new();
        if out.read_line(&mut line).unwrap() == 0 {
            break;
        }
        if line.starts_with("http") {
            link = line.trim().to_owned();
            break;
        }
    }
    (child, out, link)
}

/// Logs in with `--paste`, as a person with a browser elsewhere does.
fn paste(gateway: &Gateway) -> Output {
    let (mut child, mut out, link) = begin(gateway, &["login", "docs", "--paste"]);
    assert!(link.contains("code_challenge="), "{link}\n{}", gateway.story());
    let answer = head(&link, None, "GET");
    let back = field(&answer, "location").expect(&answer);
    writeln!(child.stdin.take().unwrap(), "{back}").unwrap();
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    let mut output = child.wait_with_output().unwrap();
    output.stdout.extend(rest);
    output
}

#[test]
fn a_server_that_wants_a_login_is_left_alone_until_it_gets_one() {
    for era in ["modern", "legacy"] {
        let world = world(era, 3600);
        eventually("it waits for a login", || world.state() == "needs-login");
        let before = world.asked("no token");
        for _ in 0..5 {
            let answer = world.gateway.modern().call("docs__echo", json!({"text": "a"}));
            assert!(!answer.raw.contains("hello"), "{}", answer.raw);
        }
        thread::sleep(Duration::from_secs(3));
        assert_eq!(world.asked("no token"), before, "{era}: it is not asked again");
        let advice = status_of(&world.gateway, "docs")["advice"].to_string();
        assert!(advice.contains("`headend login docs`"), "{advice}");
        world.log_in();
        assert_eq!((world.state().as_str(), world.asked("register"), world.asked("code")), ("ready", 1, 1), "{era}");
        world.gateway.wait_for_tools(&["docs__echo"]);
        assert_eq!(world.call()["result"]["content"][0]["text"], "hello", "{era}");
    }
}

#[test]
fn tokens_are_renewed_once_for_all_calls_and_no_tool_leaves_a_list() {
    let world = world("modern", 2);
    eventually("it waits for a login", || world.state() == "needs-login");
    world.log_in();
    world.gateway.wait_for_tools(&["docs__echo"]);
    let until = Instant::now() + Duration::from_secs(10);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = world.gateway.modern();
                while Instant::now() < until {
                    let answer = client.call("docs__echo", json!({"text": "hello"}));
                    assert!(answer.raw.contains("hello"), "{}\n{}", answer.raw, world.gateway.story());
                    thread::sleep(Duration::from_millis(40));
                }
            });
        }
        scope.spawn(|| {
            let mut client = world.gateway.modern();
            while Instant::now() < until {
                assert!(client.tool_names().contains(&"docs__echo".to_owned()), "a tool has left the list");
                thread::sleep(Duration::from_millis(200));
            }
        });
    });
    assert_eq!((world.asked("reuse"), world.asked("authorize")), (0, 1));
    let refreshed = world.asked("refresh");
    assert!((3..=12).contains(&refreshed), "{refreshed} renewals in ten seconds of tokens that live for two");
}

#[test]
fn a_login_outlives_the_daemon_and_ends_when_its_server_says_so() {
    let mut world = world("modern", 3);
    eventually("it waits for a login", || world.state() == "needs-login");
    world.log_in();
    world.gateway.signal(Signal::KILL);
    assert!(world.gateway.wait(Duration::from_secs(60)).is_some());
    let again = Gateway::start(world.gateway.world.clone(), Some(world.gateway.config.clone()), &["serve"], &[]);
    world.gateway = again;
    eventually("it is ready again", || world.state() == "ready");
    assert_eq!(world.call()["result"]["content"][0]["text"], "hello");
    assert_eq!((world.asked("authorize"), world.asked("reuse")), (1, 0));

    head(&format!("http://{}/end-all", world.server.address()), None, "POST");
    eventually("its end is seen", || {
        world.call();
        world.state() == "login-expired"
    });
    world.gateway.wait_for_tools(&["docs__echo"]);
    let before = world.asked("refresh") + world.asked("wrong token") + world.asked("no token");
    let refusal = world.call()["result"]["_meta"]["headend/refusal"].clone();
    assert_eq!((&refusal["reason"], &refusal["executed"]), (&json!("needs_login"), &json!("no")));
    assert_eq!(refusal["login"]["command"], "headend login docs");
    assert_eq!(world.asked("refresh") + world.asked("wrong token") + world.asked("no token"), before);
    world.log_in();
    world.gateway.wait_for_tools(&["docs__echo"]);
    assert_eq!(world.call()["result"]["content"][0]["text"], "hello");
    // The console has another port since the restart, and so the gateway another redirect address.
    assert_eq!(world.asked("register"), 2);

    let out = world.gateway.run(&["logout", "docs"]);
    assert!(out.status.success(), "{}", said(&out));
    assert!(world.asked("revoke") >= 1);
    eventually("it waits for a login", || world.state() == "needs-login");
    world.gateway.wait_for_tools(&["docs__echo"]);
}

#[test]
fn the_browser_that_opened_the_link_ends_the_login_and_no_other_one() {
    let world = world("modern", 3600);
    eventually("it waits for a login", || world.state() == "needs-login");
    let (child, mut out, link) = begin(&world.gateway, &["login", "docs"]);
    let base = format!("http://{}", world.gateway.console_address().unwrap());
    assert!(link.starts_with(&format!("{base}/login/")), "{link}");
    for _ in 0..2 {
        let page = head(&link, None, "GET");
        assert!(
            page.starts_with("HTTP/1.1 200") && field(&page, "set-cookie").is_none(),
            "looking uses nothing up: {page}"
        );
    }
    let page = head(&link, None, "POST");
    let cookie = field(&page, "set-cookie").expect(&page).to_owned();
    for part in ["HttpOnly", "SameSite=Lax", "Path=/oauth/callback", "Max-Age=600"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(head(&link, None, "POST").starts_with("HTTP/1.1 404"), "it opens once");
    let back = agreed(&page);
    assert!(back.starts_with(&format!("{base}/oauth/callback?")), "{back}");
    for stranger in [None, Some("headend-login-aaaaaaaa=guess")] {
        assert!(head(&back, stranger, "GET").starts_with("HTTP/1.1 400"), "another browser");
    }
    let other = back.replace("iss=http", "iss=https");
    let cookie = cookie.split(';').next().unwrap();
    let wrong = back.replace("state=", "state=x");
    assert!(head(&wrong, Some(cookie), "GET").starts_with("HTTP/1.1 400") && other != back);
    let done = head(&back, Some(cookie), "GET");
    assert!(done.starts_with("HTTP/1.1 200") && done.contains("logged in to docs"), "{done}");
    assert!(head(&back, Some(cookie), "GET").starts_with("HTTP/1.1 400"), "a state is used once");
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && rest.contains("Logged in to docs"), "{rest}{}", said(&output));
}

/// Follows the link of this page and agrees. Returns the address to which the authorization server
/// redirects.
fn agreed(page: &str) -> String {
    let at = page.find("href=\"http://").expect(page) + 6;
    let login: String = page[at..].chars().take_while(|c| *c != '"').collect();
    let answer = head(&login.replace("&#38;", "&").replace("&amp;", "&"), None, "GET");
    field(&answer, "location").expect(&answer).to_owned()
}

#[test]
fn the_outcome_of_a_login_reaches_a_command_that_asks_late() {
    let world = world("modern", 3600);
    eventually("it waits for a login", || world.state() == "needs-login");
    let (_, mut socket) = Socket::local(&world.gateway, "admin");
    for (instead, result, error) in [
        ("error=access_denied&was=", Value::Null, "you (or the server) refused the login"),
        ("code=", json!("docs"), ""),
    ] {
        let begun = socket.ask("login.begin", json!({"name": "docs"}));
        let (id, link) = (&begun["result"]["id"], begun["result"]["link"].as_str().unwrap());
        let page = head(link, None, "POST");
        let cookie = field(&page, "set-cookie").expect(&page).split(';').next().unwrap();
        head(&agreed(&page).replace("code=", instead), Some(cookie), "GET");
        for _ in 0..2 {
            let told = socket.ask("login.wait", json!({"id": id}));
            assert_eq!(told["result"]["upstream"], result, "{told}");
            assert!(told["error"]["message"].as_str().unwrap_or_default().contains(error), "{told}");
        }
    }
    eventually("it is connected", || world.state() == "ready");
    let told = socket.ask("login.wait", json!({"id": "unknown"}));
    assert!(told["error"]["message"].as_str().is_some_and(|text| text.contains("within ten minutes")), "{told}");
}

#[test]
fn a_browser_that_goes_away_before_its_answer_has_ended_the_login_all_the_same() {
    let world = world("modern", 3600);
    eventually("it waits for a login", || world.state() == "needs-login");
    let (_, mut socket) = Socket::local(&world.gateway, "admin");
    let authority = world.server.url.trim_end_matches("/mcp");
    for (round, method) in [(1, "GET"), (2, "POST")] {
        let begun = socket.ask("login.begin", json!({"name": "docs"}));
        let (id, link) = (&begun["result"]["id"], begun["result"]["link"].as_str().unwrap());
        let page = head(link, None, "POST");
        let cookie = field(&page, "set-cookie").expect(&page).split(';').next().unwrap();
        let back = agreed(&page);
        assert!(head(&format!("{authority}/hold"), None, "POST").starts_with("HTTP/1.1 200"));
        let (host, redirected) = request(&back, Some(cookie), "GET");
        let asked = if method == "GET" { redirected } else { pasting(host, cookie, &back) };
        let mut browser = TcpStream::connect(host).unwrap();
        browser.write_all(asked.as_bytes()).unwrap();
        eventually("the code is exchanged", || world.asked("code") == round);
        drop(browser);
        // Gives the daemon time to notice that.
        thread::sleep(Duration::from_millis(300));
        head(&format!("{authority}/release"), None, "POST");
        let told = socket.ask("login.wait", json!({"id": id}));
        assert_eq!(told["result"]["upstream"], "docs", "{method}: {told}\n{}", world.gateway.story());
    }
    eventually("it is connected", || world.state() == "ready");
}

#[test]
fn a_daemon_that_stops_waits_for_no_login() {
    let mut world = world("modern", 3600);
    eventually("it waits for a login", || world.state() == "needs-login");
    let (child, _out, link) = begin(&world.gateway, &["login", "docs"]);
    assert!(link.contains("/login/"), "{link}");
    // Gives the command time to begin waiting.
    thread::sleep(Duration::from_millis(300));
    world.gateway.signal(Signal::TERM);
    assert!(world.gateway.wait(Duration::from_secs(60)).is_some(), "{}", world.gateway.story());
    assert!(!world.gateway.story().contains("calls in flight are cancelled"), "{}", world.gateway.story());
    let told = child.wait_with_output().unwrap();
    assert!(!told.status.success() && !said(&told).contains("ten minutes"), "{}", said(&told));
}

#[test]
fn an_answer_of_another_issuer_ends_the_login_without_a_token_request() {
    let world = world("modern", 3600);
    eventually("it waits for a login", || world.state() == "needs-login");
    let (mut child, mut out, link) = begin(&world.gateway, &["login", "docs", "--paste"]);
    let answer = head(&link, None, "GET");
    let back = field(&answer, "location").expect(&answer).replace("iss=http%3A", "iss=https%3A");
    writeln!(child.stdin.take().unwrap(), "{back}").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        !output.status.success() && said(&output).contains("does not name the authorization server"),
        "{}",
        said(&output)
    );
    assert_eq!((world.asked("code"), world.state().as_str()), (0, "needs-login"));
}

/// Returns whether the bytes contain a token or code of the server.
fn has_canary(bytes: &[u8]) -> bool {
    ["canary-access-", "canary-refresh-", "canary-code-"]
        .iter()
        .any(|canary| bytes.windows(canary.len()).any(|window| window == canary.as_bytes()))
}

#[test]
fn no_token_is_written_anywhere_in_the_clear() {
    let world = world("modern", 2);
    eventually("it waits for a login", || world.state() == "needs-login");
    world.log_in();
    world.gateway.wait_for_tools(&["docs__echo", "other__echo"]);
    let mut answers = String::new();
    for _ in 0..3 {
        answers += &world.call().to_string();
        answers += &world.gateway.modern().call("other__echo", json!({"text": "hello"})).raw;
        // Visible to other users of this machine, and to other children of the daemon.
        for process in fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()) {
            for part in ["cmdline", "environ"] {
                // It may have ended meanwhile, or be another user's.
                let bytes = fs::read(process.join(part)).unwrap_or_default();
                assert!(!has_canary(&bytes), "{part}: {}", String::from_utf8_lossy(&bytes));
            }
        }
        thread::sleep(Duration::from_secs(1));
    }
    assert!(answers.matches("hello").count() >= 6, "{answers}");
    let shown = [
        answers,
        world.gateway.story(),
        world.gateway.scrape(),
        said(&world.gateway.run(&["status", "--json"])),
        said(&world.gateway.run(&["audit", "tail"])),
        said(&world.gateway.run(&["check"])),
    ];
    for text in &shown {
        assert!(!has_canary(text.as_bytes()), "{}", text.lines().find(|line| line.contains("canary-")).unwrap());
    }
    let mut folders = vec![world.gateway.world.path("state")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            // A socket cannot be read.
            let Ok(bytes) = fs::read(&path) else { continue };
            files += 1;
            assert!(!has_canary(&bytes), "{}", path.display());
        }
    }
    assert!(files > 2, "{files} files");
    let audit = said(&world.gateway.run(&["audit", "tail", "--json"]));
    assert!(audit.contains("\"login\"") && audit.contains("login-renewed"), "{audit}");
}
