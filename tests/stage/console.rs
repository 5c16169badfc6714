//! Tests of a daemon's console: its sign-in and its content. The browser test of the console covers
//! the look and use of its pages.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stage::browser::{Browser, shown};
use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::http::{EventReader, TestConnection, request};
use crate::stage::process::{eventually, said};
use crate::stage::upstream::Fake;

fn setup() -> GatewaySetup {
    GatewaySetup::new().toml("[console]\nlisten = \"127.0.0.1:0\"")
}

/// Returns the path of a new link from `headend console`.
fn link(gateway: &Gateway) -> String {
    let printed = gateway.run(&["console", "--json"]);
    assert!(printed.status.success(), "{}", said(&printed));
    let answer: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(answer["seconds"], 900);
    let link = answer["link"].as_str().unwrap();
    let base = format!("http://{}", gateway.console_address().unwrap());
    link.strip_prefix(&base).expect("the link leads to the console").to_owned()
}

#[test]
fn the_operators_token_opens_the_console_and_the_clients_token_does_not() {
    let mut gateway = setup().start();
    let path = gateway.world.path("state/headend/console-token");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let token = fs::read_to_string(&path).unwrap();
    assert_ne!(Some(token.trim()), gateway.token().as_deref());
    let mut browser = Browser::new(&gateway);
    let refused = browser.post("/sign-in", &format!("token={}", gateway.token().unwrap()));
    assert_eq!((refused.head.status, refused.head.header("set-cookie")), (403, None));
    let page = browser.get("/");
    assert_eq!((page.head.status, page.head.header("location")), (303, Some("/sign-in")));
    assert_eq!(Browser::signed_in(&gateway).get("/").head.status, 200);

    gateway.signal(Signal::TERM);
    assert!(gateway.wait(Duration::from_secs(60)).is_some());
    let again = Gateway::start(gateway.world.clone(), Some(gateway.config.clone()), &["serve"], &[]);
    assert_eq!(fs::read_to_string(&path).unwrap(), token, "the token outlives the daemon");
    assert_eq!(Browser::signed_in(&again).get("/").head.status, 200);
}

#[test]
fn behind_a_proxy_the_link_comes_with_the_name_of_the_proxy() {
    let gateway = GatewaySetup::new()
        .toml("[console]\nlisten = \"127.0.0.1:0\"\nallowed-hosts = [\"console.example.com\"]")
        .start();
    let printed = gateway.run(&["console"]);
    let link = String::from_utf8(printed.stdout).unwrap();
    assert!(link.starts_with("http://127.0.0.1:") && link.lines().count() == 1, "{link}");
    assert_eq!(
        String::from_utf8(printed.stderr).unwrap(),
        "headend: behind your proxy, open it at https://console.example.com\n"
    );
}

#[test]
fn a_sign_in_outlives_the_daemon_until_it_is_given_up_or_the_token_is_another() {
    let mut gateway = setup().start();
    let stays = Browser::signed_in(&gateway);
    let mut leaves = Browser::signed_in(&gateway);
    let csrf = |browser: &Browser| {
        let page = browser.get("/").text();
        page.split("name=\"csrf\" value=\"").nth(1).expect("a page").split('"').next().unwrap().to_owned()
    };
    let form = csrf(&stays);
    let left = Browser { cookie: leaves.cookie.clone(), ..Browser::new(&gateway) };
    assert_eq!(leaves.post("/sign-out", &format!("csrf={}", csrf(&leaves))).head.status, 303);
    // Killed: the store must have the sign-out already.
    gateway.signal(Signal::KILL);
    let (world, config) = (gateway.world.clone(), gateway.config.clone());
    drop(gateway);
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    let at = |browser: &Browser| Browser { cookie: browser.cookie.clone(), ..Browser::new(&gateway) };
    let mut stays = at(&stays);
    assert_eq!(stays.get("/").head.status, 200);
    assert_eq!(at(&left).get("/").head.status, 303, "what was signed out stays so");
    assert_eq!(stays.post("/grants", &format!("csrf={form}&id=x")).head.status, 303, "an open page goes on");

    let mut conn = TestConnection::open(stays.address).unwrap();
    conn.send(&request("GET", "/events", &stays.headers(), b"")).unwrap();
    assert!(conn.head().unwrap().is_stream());
    fs::remove_file(gateway.world.path("state/headend/console-token")).unwrap();
    let reloaded = gateway.run(&["reload"]);
    assert!(reloaded.status.success(), "{}", said(&reloaded));
    assert_eq!(stays.get("/").head.status, 303, "another token ends it");
    let mut events = EventReader::default();
    while let Ok(Some(_)) = events.next(&mut conn) {}
    assert_eq!(Browser::signed_in(&gateway).get("/").head.status, 200, "and opens the console");
}

#[test]
fn a_link_of_the_command_signs_in_once() {
    let gateway = setup().start();
    let path = link(&gateway);
    let mut browser = Browser::new(&gateway);
    assert_eq!(browser.get(&path).head.status, 200);
    assert_eq!(browser.get(&path).head.header("set-cookie"), None, "looking uses nothing up");
    let opened = browser.post(&path, "");
    assert_eq!((opened.head.status, opened.head.header("location")), (303, Some("/")));
    assert!(browser.get("/").text().contains("Nothing waits for you"));
    assert_eq!(Browser::new(&gateway).post(&path, "").head.status, 403);
    let plain = gateway.run(&["console"]);
    assert!(said(&plain).contains("/open/"), "{}", said(&plain));
    let story = gateway.stderr.all().join("\n");
    assert!(!story.contains(path.trim_start_matches("/open/")), "links are not logged");
}

#[test]
fn every_page_of_the_daemon_carries_the_headers_and_knows_its_own_name_only() {
    let gateway = setup().start();
    let browser = Browser::signed_in(&gateway);
    for path in [
        "/",
        "/grants",
        "/pins",
        "/upstreams",
        "/upstreams/none",
        "/decisions",
        "/calls",
        "/approvals/aaaa",
        "/sign-in",
        "/nope",
    ] {
        let page = browser.get(path);
        let policy = page.head.header("content-security-policy").unwrap_or_default();
        assert!(policy.starts_with("default-src 'none'; style-src 'self'; script-src 'self'"), "{path}: {policy}");
        assert_eq!(page.head.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(page.head.header("cache-control"), Some("no-store"), "{path}");
        assert_eq!(page.head.header("access-control-allow-origin"), None, "{path}");
    }
    for (label, host) in [("rebinding", "evil.example"), ("another port", "localhost:1")] {
        let mut conn = TestConnection::open(browser.address).unwrap();
        conn.send(&request("GET", "/", &[("Host".to_owned(), host.to_owned())], b"")).unwrap();
        assert_eq!(conn.response().unwrap().head.status, 403, "{label}");
    }
    // The clients' listener does not serve the console, nor the console the clients' endpoint.
    assert_ne!(crate::stage::http::get(gateway.address, "/sign-in").unwrap().head.status, 200);
    assert_eq!(browser.get("/mcp").head.status, 404);
}

#[test]
fn calls_and_upstreams_appear_and_an_open_page_is_told() {
    let gateway = setup().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let browser = Browser::signed_in(&gateway);
    let page = browser.get("/upstreams").text();
    assert!(page.contains("<bdi>fx</bdi>") && page.contains("ready"), "{page}");

    let mut conn = TestConnection::open(browser.address).unwrap();
    conn.send(&request("GET", "/events", &browser.headers(), b"")).unwrap();
    let head = conn.head().unwrap();
    assert!(head.status == 200 && head.is_stream());
    let mut events = EventReader::default();
    let first = events.next(&mut conn).unwrap().unwrap();
    assert_eq!(first.name.as_deref(), Some("changed"));
    assert!(first.data.contains("decisions"), "{}", first.data);

    let mut client = gateway.modern();
    client.call("fx__echo", json!({"text": "canary-4711"}));
    loop {
        let event = events.next(&mut conn).unwrap().expect("the stream goes on");
        if event.data.contains("decisions") {
            break;
        }
    }
    let page = browser.get("/decisions").text();
    for wanted in ["<bdi>fx__echo</bdi>", "<bdi>default</bdi>", "allowed"] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    assert!(!page.contains("canary-4711"), "decisions carry no arguments");
}

#[test]
fn a_refused_call_leads_to_its_page_and_passes_once_it_is_allowed_there() {
    let gateway = setup().fake("fx", &Fake::stdio("both")).policy("default = \"ask\"").start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.modern();
    let arguments = json!({"text": "a\u{202e}b <script>"});
    let refused = client.call("fx__echo", arguments.clone());
    assert!(refused.is_error(), "{}", refused.raw);
    let (_, url) =
        refused.raw.split_once(&format!("http://{}/approvals/", gateway.console_address().unwrap())).expect("a page");
    let id: String = url.chars().take_while(char::is_ascii_alphanumeric).collect();
    let path = format!("/approvals/{id}");

    let mut browser = Browser::new(&gateway);
    let to = browser.get(&path);
    assert_eq!(to.head.header("location"), Some(format!("/sign-in?then={path}").as_str()), "the address shows nothing");
    browser = Browser::signed_in(&gateway);
    let page = browser.get(&path).text();
    let form = shown(&page, &path);
    for wanted in ["fx__echo</bdi>", "1 hidden character", "\\u{202e}", "&#60;script&#62;", "<bdi>local</bdi>"] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    assert!(browser.get("/").text().contains("1 approval waits for you"));
    let csrf = page.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    assert_eq!(browser.post(&path, "answer=once").head.status, 403);
    assert!(client.call("fx__echo", arguments.clone()).is_error(), "nothing was allowed so far");
    assert_eq!(browser.post(&path, &format!("csrf={csrf}&answer=once")).head.status, 400, "it names what was shown");
    let other = form.replace("digest=", "digest=f").replace("digest=ff", "digest=f0");
    let other = other.split_at(other.len() - 1).0.to_owned();
    browser.post(&path, &format!("{other}&answer=once"));
    assert!(browser.get("/").text().contains("It is not what was shown; look at it again."));
    assert!(client.call("fx__echo", arguments.clone()).is_error(), "nothing was allowed so far");
    assert_eq!(browser.post(&path, &format!("{form}&answer=once")).head.status, 303);
    assert!(browser.get("/").text().contains("Allowed once: fx__echo for local, with exactly these arguments."));
    assert!(browser.get(&path).text().contains("<h1 id=\"closed-title\">Allowed</h1>"));
    assert!(browser.get("/grants").text().contains("these arguments only"));
    assert!(!client.call("fx__echo", arguments.clone()).is_error());
    assert!(client.call("fx__echo", arguments).is_error(), "once is once");
    let other = client.call("fx__echo", json!({"text": "other"}));
    assert!(other.is_error(), "{}", other.raw);

    let page = browser.get("/").text();
    let open = page.split("action=\"/approvals/").nth(1).unwrap().split('"').next().unwrap().to_owned();
    browser
        .post(&format!("/approvals/{open}"), &format!("{}&answer=hour", shown(&page, &format!("/approvals/{open}"))));
    let told = browser.get("/").text();
    assert!(told.contains("Allowed for 1 hour: all calls of fx__echo by local, with any arguments, until "), "{told}");
    let page = browser.get("/grants").text();
    assert!(page.contains("60 min more") && page.contains("any arguments"), "{page}");
    assert!(!client.call("fx__echo", json!({"text": "anything"})).is_error());
    let grant = page.split("name=\"id\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    assert_eq!(browser.post("/grants", &format!("csrf={csrf}&id={grant}")).head.status, 303);
    assert!(browser.get("/grants").text().contains("Revoked."));
    assert!(client.call("fx__echo", json!({"text": "anything"})).is_error());
}

#[test]
fn calls_of_one_tool_are_answered_together_as_far_as_they_were_shown() {
    let gateway = setup().fake("fx", &Fake::stdio("both")).policy("default = \"ask\"").start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.modern();
    let arguments = |n: usize| json!({"text": format!("said-{n}")});
    let mut passes = |n: usize| !client.call("fx__echo", arguments(n)).is_error();
    assert!((0..6).all(|n| !passes(n)));
    let mut browser = Browser::signed_in(&gateway);
    let overview = browser.get("/").text();
    let path = overview.split("href=\"/group").nth(1).unwrap().split('"').next().unwrap().replace("&#38;", "&");
    let page = browser.get(&format!("/group{path}")).text();
    let csrf = page.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let rows: Vec<&str> = page.split("name=\"member\" value=\"").skip(1).collect();
    assert_eq!(rows.len(), 6, "{page}");
    let member = |n: usize| {
        let row = rows.iter().find(|row| row.contains(&format!("said-{n}"))).unwrap();
        row.split('"').next().unwrap().to_owned()
    };
    // A seventh call arrives after the page was made.
    assert!(!passes(6));
    let form = |answer: &str, members: &[usize]| {
        let members: String = members.iter().map(|n| format!("&member={}", member(*n))).collect();
        format!("csrf={csrf}&answer={answer}{members}")
    };
    let (id, _) = member(5).split_once(':').map(|(id, digest)| (id.to_owned(), digest.to_owned())).unwrap();
    let forged = format!("csrf={csrf}&answer=once&member={id}:{}", "0".repeat(64));
    assert_eq!(browser.post("/group", &forged).head.status, 303);
    assert!(browser.get("/").text().contains("It is not what was shown"));
    assert_eq!(browser.post("/group", &form("once", &[0, 1, 2, 4])).head.status, 303);
    assert_eq!(browser.post("/group", &form("deny", &[3])).head.status, 303);
    let passed: Vec<usize> = (0..7).filter(|n| passes(*n)).collect();
    assert_eq!(passed, [0, 1, 2, 4], "the denied one, the one that was left and the later one do not");
    assert!((0..7).all(|n| !passes(n)), "once is once");
}

#[test]
fn an_upstream_is_restarted_and_switched_off_for_this_daemon_alone_and_on_record() {
    let other = Fake::stdio("both").command();
    let more = format!("[upstreams.other]\ncommand = {other}");
    let mut gateway = setup().fake("fx", &Fake::stdio("both")).toml(&more).start();
    gateway.wait_for_tools(&["fx__echo", "other__echo"]);
    let file = fs::read(&gateway.config).unwrap();
    let mut browser = Browser::signed_in(&gateway);
    let path = "/upstreams/fx";
    let page = browser.get(path).text();
    for wanted in ["ready", "<bdi>fx__echo</bdi>", " tokens", "headend logs fx -f"] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    assert!(!page.contains(env!("CARGO_MANIFEST_DIR")), "no command: {page}");
    let form = shown(&page, path);
    let mut act = |action: &str| {
        assert_eq!(browser.post(path, &format!("{form}&do={action}")).head.status, 303, "{action}");
        browser.get(path).text()
    };
    assert!(act("restart").contains("Restarted; its state is ready now."));
    let page = act("disable");
    assert!(page.contains("Disabled until headend starts again") && page.contains("value=\"enable\""), "{page}");
    let mut client = gateway.modern();
    let is_alone = |names: &[String]| !names.is_empty() && names.iter().all(|name| name.starts_with("other__"));
    assert!(is_alone(&client.tool_names()));
    assert_eq!(client.call("other__echo", json!({"text": "x"})).text(), "x", "the others go on under their own names");
    let status: Value = serde_json::from_slice(&gateway.run(&["status", "fx", "--json"]).stdout).unwrap();
    assert_eq!(status["state"], "disabled");
    assert!(status["advice"].as_str().unwrap().contains("headend restart fx"), "{status}");
    assert!(gateway.run(&["reload"]).status.success());
    assert!(is_alone(&client.tool_names()), "a reload switches nothing on");
    assert!(act("enable").contains("Enabled; its state is ready now."));
    gateway.wait_for_tools(&["fx__echo", "other__echo"]);
    act("disable");
    assert!(gateway.run(&["restart", "fx"]).status.success(), "the command starts it too");
    gateway.wait_for_tools(&["fx__echo", "other__echo"]);
    act("disable");
    assert_eq!(fs::read(&gateway.config).unwrap(), file, "the file is not touched");

    gateway.signal(Signal::TERM);
    assert!(gateway.wait(Duration::from_secs(60)).is_some());
    let tail = gateway.world.run(&["audit", "tail", "-n", "100", "--json"]);
    let records: Vec<Value> =
        String::from_utf8_lossy(&tail.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_fx = records.iter().filter(|record| record["event"] == "action" && record["name"] == "fx");
    let told: Vec<_> = of_fx
        .map(|record| (record["action"].as_str().unwrap(), record["by"].as_str().unwrap().starts_with("console:")))
        .collect();
    let words = [("restart", true), ("disable", true), ("enable", true), ("disable", true), ("restart", false)];
    let words: Vec<_> = words.into_iter().chain([("disable", true)]).collect();
    assert_eq!(told, words);
    let again = Gateway::start(gateway.world.clone(), Some(gateway.config.clone()), &["serve"], &[]);
    again.wait_for_tools(&["fx__echo", "other__echo"]);
}

#[test]
fn a_definition_that_waits_is_read_and_approved_on_its_page() {
    let command = Fake::stdio("both").command();
    let gateway = setup().toml(&format!("[upstreams.un]\ncommand = {command}\ntrust = \"untrusted\"")).start();
    let mut browser = Browser::signed_in(&gateway);
    eventually("it waits", || browser.get("/pins").text().contains("<bdi>un__echo</bdi>"));
    let page = browser.get("/pins").text();
    let card = page.split("<article ").find(|card| card.contains("<bdi>un__echo</bdi>")).unwrap();
    assert!(card.contains("New, never approved") && card.contains("description"), "{card}");
    let value = |name: &str| {
        let (_, rest) = card.split_once(&format!("name=\"{name}\" value=\"")).expect("a field");
        rest.split('"').next().unwrap().to_owned()
    };
    let form = |digest: &str, answer: &str| {
        let (csrf, kind, name) = (value("csrf"), value("kind"), value("name"));
        format!("csrf={csrf}&upstream=un&kind={kind}&name={name}&digest={digest}&answer={answer}")
    };
    let mut client = gateway.modern();
    browser.post("/pins", &form(&"0".repeat(64), "approve"));
    assert!(browser.get("/pins").text().contains("notice danger"), "what was not shown is not approved");
    assert!(!client.tool_names().contains(&"un__echo".to_owned()));
    assert_eq!(browser.post("/pins", &form(&value("digest"), "approve")).head.status, 303);
    assert!(browser.get("/pins").text().contains("Approved."));
    assert_eq!(client.tool_names(), ["un__echo"]);
    assert_eq!(client.call("un__echo", json!({"text": "x"})).text(), "x");
}
