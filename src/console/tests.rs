//! Tests the console over real connections, with invented data.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use self::fake::{FakeBackend, HOSTILE, approval, digest, hostile};
use super::site::MAX_ACTIONS;
use super::*;
use crate::base::local_time::local_clock;
use crate::base::task_group::TaskGroup;
use crate::operator::{OperatorBackend, OperatorService};
use crate::policy::StatedHints;
use crate::policy::consent::ApprovalView;
use crate::store::audit::AuditLog;

mod actions;
mod below;
mod browser;
mod fake;
mod fake_calls;
mod lists;
mod logins;

const TOKEN: &str = "the-operators-token-of-this-test";
const PAGES: &[&str] = &[
    "/",
    "/grants",
    "/pins",
    "/upstreams",
    "/upstreams/files",
    "/upstreams/legacy-crm",
    "/upstreams/docs",
    "/upstreams/wiki",
    "/decisions",
    "/calls",
    "/calls?item=x&decision=allow",
    "/approvals/k7hq9cmv2r5wjd8x",
    "/group?caller=user+local&kind=tool&item=mail__send",
];

/// One request of a table of cases: a label, headers, a body, and the expected status.
type RequestCase<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str, u16);

/// A console on a free port, which stops when this is dropped.
struct ConsoleTestServer {
    console: Arc<ConsoleSite>,
    desk: Arc<FakeBackend>,
    address: SocketAddr,
    stop: CancellationToken,
}

impl Drop for ConsoleTestServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct ConsoleTestReply {
    status: u16,
    head: String,
    body: String,
}

impl ConsoleTestReply {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn cookie(&self) -> String {
        self.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
    }

    fn csrf(&self) -> String {
        let (_, rest) = self.body.split_once("name=\"csrf\" value=\"").expect("a form");
        rest.split('"').next().unwrap().to_owned()
    }
}

impl ConsoleTestServer {
    async fn set(desk: FakeBackend) -> Self {
        Self::set_with(desk, AuditLog::none()).await
    }

    /// Starts the console with an audit log for its actions.
    async fn set_with(desk: FakeBackend, audit: AuditLog) -> Self {
        let (listener, address) = bind("127.0.0.1:0".parse().unwrap(), true).await.unwrap();
        let (desk, stop) = (Arc::new(desk), CancellationToken::new());
        let doors = ConsoleSessions::new(TOKEN, None, crate::base::clock::uptime());
        let tasks = TaskGroup::default();
        let live = Arc::clone(&desk) as Arc<dyn OperatorBackend>;
        let live = OperatorService::new(live, audit);
        let console = Arc::new(ConsoleSite::new(live, doors, address, &[], tasks.clone(), stop.clone()));
        let lobby = Lobby::new("console", ANONYMOUS, None);
        tasks.spawn("console", serve(Arc::clone(&console), listener, lobby));
        Self { console, desk, address, stop }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> ConsoleTestReply {
        let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            text += &format!("Host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        if method == "POST" {
            text += &format!("Content-Length: {}\r\n", body.len());
            if !headers.iter().any(|(name, _)| *name == "Content-Type") {
                text += "Content-Type: application/x-www-form-urlencoded\r\n";
            }
        }
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(format!("{text}\r\n{body}").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        ConsoleTestReply { status, head: head.to_owned(), body: body.to_owned() }
    }

    async fn get(&self, path: &str, cookie: &str) -> ConsoleTestReply {
        self.send("GET", path, &[("Cookie", cookie)], "").await
    }

    async fn sign_in(&self) -> String {
        self.send("POST", "/sign-in", &[], &format!("token={TOKEN}")).await.cookie()
    }
}

#[tokio::test]
async fn every_answer_carries_the_headers() {
    let stage = ConsoleTestServer::set(FakeBackend::busy()).await;
    let cookie = stage.sign_in().await;
    let own = [
        "/sign-in",
        "/open/aaaaaaaaaaaaaaaaaaaaaa",
        "/static/console.css",
        "/static/console.js",
        "/static/questions.js",
        "/static/icon/7.svg",
        "/nope",
        "/approvals/x",
    ];
    for path in PAGES.iter().chain(&own) {
        for cookie in [cookie.as_str(), "a=b"] {
            let got = stage.get(path, cookie).await;
            let policy = got.header("content-security-policy").unwrap_or_default();
            assert!(policy.starts_with("default-src 'none'; style-src 'self'; script-src 'self'"), "{path}: {policy}");
            assert!(policy.contains("frame-ancestors 'none'") && policy.contains("form-action 'self'"), "{path}");
            for (name, value) in [
                ("x-content-type-options", "nosniff"),
                ("cache-control", "no-store"),
                ("x-frame-options", "DENY"),
                ("cross-origin-opener-policy", "same-origin"),
                ("cross-origin-resource-policy", "same-origin"),
                ("referrer-policy", "same-origin"),
            ] {
                assert_eq!(got.header(name), Some(value), "{path}: {name}");
            }
            assert!(!got.body.contains(" style=\"") && !got.body.contains("<style"), "{path}");
        }
    }
    let refused = stage.send("GET", "/", &[("Host", "evil.example")], "").await;
    assert_eq!((refused.status, refused.header("x-frame-options")), (403, Some("DENY")));
}

#[tokio::test]
async fn nobody_sees_a_page_without_signing_in() {
    let stage = ConsoleTestServer::set(FakeBackend::busy()).await;
    for path in PAGES.iter().chain(&["/events"]) {
        let got = stage.get(path, "headend-console=guess").await;
        assert_eq!(got.status, 303, "{path}");
        assert!(got.header("location").unwrap().starts_with("/sign-in"), "{path}");
        assert!(got.body.is_empty(), "{path}");
    }
    let to = stage.get("/approvals/k7hq9cmv2r5wjd8x", "").await;
    assert_eq!(to.header("location"), Some("/sign-in?then=/approvals/k7hq9cmv2r5wjd8x"));
    let page = stage.get("/sign-in?then=/approvals/k7hq9cmv2r5wjd8x", "").await;
    assert!(page.body.contains("name=\"then\" value=\"/approvals/k7hq9cmv2r5wjd8x\""));
    for bad in ["//evil.example", "https://evil.example/", "/approvals/../x", "/sign-out", "/approvals/%22", "/open/x"]
    {
        let page = stage.get(&format!("/sign-in?then={bad}"), "").await;
        assert!(page.body.contains("name=\"then\" value=\"/\""), "{bad}");
        let got = stage.send("POST", "/sign-in", &[], &format!("token={TOKEN}&then={bad}")).await;
        assert_eq!((got.status, got.header("location")), (303, Some("/")), "{bad}");
    }
    let cookie = stage.send("POST", "/sign-in", &[], &format!("token={TOKEN}")).await;
    let cookie = cookie.header("set-cookie").unwrap();
    assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/") && cookie.len() > 60, "{cookie}");
}

#[tokio::test]
async fn a_link_signs_in_once_and_looking_at_it_uses_nothing_up() {
    let stage = ConsoleTestServer::set(FakeBackend::busy()).await;
    let (link, life) = stage.console.link();
    assert_eq!(life, Duration::from_secs(900));
    let path = link.strip_prefix(&**stage.console.base()).unwrap();
    for _ in 0..3 {
        let page = stage.get(path, "").await;
        assert_eq!((page.status, page.header("set-cookie")), (200, None));
        assert_eq!(stage.send("HEAD", path, &[], "").await.status, 200);
    }
    let opened = stage.send("POST", path, &[], "").await;
    assert_eq!((opened.status, opened.header("location")), (303, Some("/")));
    assert_eq!(stage.get("/", &opened.cookie()).await.status, 200);
    let again = stage.send("POST", path, &[], "").await;
    assert_eq!((again.status, again.header("set-cookie")), (403, None));
    assert_eq!(stage.send("POST", "/open/aaaaaaaaaaaaaaaaaaaaaaaaa", &[], "").await.status, 403);
}

#[tokio::test]
async fn wrong_tokens_are_paced_and_keep_no_right_one_out() {
    let stage = ConsoleTestServer::set(FakeBackend::empty()).await;
    for _ in 0..5 {
        assert_eq!(stage.send("POST", "/sign-in", &[], "token=guess").await.status, 403);
    }
    let late = stage.send("POST", "/sign-in", &[], "token=guess").await;
    assert_eq!((late.status, late.header("set-cookie")), (429, None));
    assert!(late.header("retry-after").is_some());
    assert_eq!(stage.send("POST", "/sign-in", &[], &format!("token={TOKEN}")).await.status, 303);
}

#[tokio::test]
async fn only_a_form_of_the_own_session_and_page_changes_anything() {
    let stage = ConsoleTestServer::set(FakeBackend::busy()).await;
    let (mine, other) = (stage.sign_in().await, stage.sign_in().await);
    let csrf = stage.get("/", &mine).await.csrf();
    let foreign = stage.get("/", &other).await.csrf();
    let own = format!("http://{}", stage.address);
    let digest = digest("k7hq9cmv2r5wjd8x");
    let good = format!("csrf={csrf}&answer=once&digest={digest}");
    let path = "/approvals/k7hq9cmv2r5wjd8x";
    let cookie = ("Cookie", mine.as_str());
    let rows: &[RequestCase<'_>] = &[
        ("no token", &[cookie], "answer=once", 403),
        ("empty token", &[cookie], "csrf=&answer=once", 403),
        ("another session's", &[cookie], &format!("csrf={foreign}&answer=once"), 403),
        ("two tokens", &[cookie], &format!("{good}&csrf={csrf}"), 403),
        ("foreign origin", &[cookie, ("Origin", "https://evil.example")], &good, 403),
        ("no origin", &[cookie, ("Origin", "null")], &good, 403),
        ("another port", &[cookie, ("Origin", "http://127.0.0.1:1")], &good, 403),
        ("another site", &[cookie, ("Sec-Fetch-Site", "cross-site")], &good, 403),
        ("another port of this site", &[cookie, ("Sec-Fetch-Site", "same-site")], &good, 403),
        ("another host", &[cookie, ("Host", "evil.example")], &good, 403),
        ("JSON", &[cookie, ("Content-Type", "application/json")], "{}", 415),
        ("nobody", &[], &good, 303),
        ("no answer", &[cookie], &format!("csrf={csrf}"), 400),
        ("odd answer", &[cookie], &format!("csrf={csrf}&answer=often&digest={digest}"), 400),
        ("nothing that was shown", &[cookie], &format!("csrf={csrf}&answer=once"), 400),
        ("too much", &[cookie], &format!("csrf={csrf}&answer=once&x={}", "x".repeat(70_000)), 413),
    ];
    for (label, headers, body, status) in rows {
        assert_eq!(stage.send("POST", path, headers, body).await.status, *status, "{label}");
    }
    assert_eq!(stage.desk.done(), [""; 0], "nothing was done");
    let headers = [cookie, ("Origin", own.as_str()), ("Sec-Fetch-Site", "same-origin")];
    let done = stage.send("POST", path, &headers, &good).await;
    assert_eq!((done.status, done.header("location")), (303, Some("/")));
    assert_eq!(stage.desk.done(), ["answer k7hq9cmv2r5wjd8x once"]);
    let told = "Allowed once: postgres__execute_sql for local, with exactly these arguments.";
    let refreshed = stage.send("GET", "/", &[cookie, ("headend-refresh", "1")], "").await;
    assert!(!refreshed.body.contains(told), "the script takes no notice away");
    assert!(stage.get("/", &mine).await.body.contains(told));
    assert!(!stage.get("/", &mine).await.body.contains(told), "told once");
    assert!(stage.get(path, &mine).await.body.contains("<h1 id=\"closed-title\">Allowed</h1>"));
}

#[tokio::test]
async fn actions_have_a_bound_and_signing_in_needs_no_place() {
    let stage = ConsoleTestServer::set(FakeBackend::busy()).await;
    let mine = stage.sign_in().await;
    let csrf = stage.get("/", &mine).await.csrf();
    let (path, body) = ("/approvals/k7hq9cmv2r5wjd8x", format!("csrf={csrf}&answer=deny"));
    let all = Arc::clone(&stage.console.actions).try_acquire_many_owned(MAX_ACTIONS.try_into().unwrap()).unwrap();
    let full = stage.send("POST", path, &[("Cookie", &mine)], &body).await;
    assert_eq!((full.status, full.header("retry-after")), (503, Some("10")));
    assert_eq!(stage.send("POST", path, &[("Cookie", &mine)], "csrf=wrong").await.status, 403);
    assert_eq!(stage.get("/", &stage.sign_in().await).await.status, 200, "the operator gets in");
    assert_eq!(stage.desk.done(), [""; 0]);
    drop(all);
    assert_eq!(stage.send("POST", path, &[("Cookie", &mine)], &body).await.status, 400, "nothing that was shown");
}

#[tokio::test]
async fn every_button_reaches_the_desk() {
    let stage = ConsoleTestServer::set(FakeBackend::busy()).await;
    let cookie = stage.sign_in().await;
    let csrf = stage.get("/", &cookie).await.csrf();
    let until = local_clock(stage.desk.now() + 3600);
    let hour = format!("with any arguments, until {until}, or until the tool or its server changes.");
    for (word, reply) in
        [("deny", "deny"), ("once", "once"), ("session", "session"), ("hour", "1h"), ("always", "always")]
    {
        stage.desk.ask(approval("a1", "x", "x", StatedHints::default(), 1, "{}"));
        let other = format!("csrf={csrf}&answer={word}&digest={}", digest("a2"));
        stage.send("POST", "/approvals/a1", &[("Cookie", &cookie)], &other).await;
        assert!(stage.get("/", &cookie).await.body.contains("It is not what was shown."), "{word}");
        let body = format!("csrf={csrf}&answer={word}&digest={}", digest("a1"));
        assert_eq!(stage.send("POST", "/approvals/a1", &[("Cookie", &cookie)], &body).await.status, 303, "{word}");
        assert_eq!(stage.desk.done().last().unwrap(), &format!("answer a1 {reply}"));
        let told = match word {
            "deny" => "Denied: this call of x by local is not made.",
            "once" => "Allowed once: x for local, with exactly these arguments.",
            "session" => "until that session ends, or until the tool or its server changes.",
            "hour" => &hour,
            _ => "Allowed always: all calls of x by local, with any arguments, until the tool or its server changes.",
        };
        assert!(stage.get("/", &cookie).await.body.contains(told), "{word}");
        stage.send("POST", "/approvals/a1", &[("Cookie", &cookie)], &body).await;
        assert!(stage.get("/", &cookie).await.body.contains("It was answered already."), "{word}");
    }
    let body = format!("csrf={csrf}&id=a1b2c3d4e5f60718");
    assert_eq!(stage.send("POST", "/grants", &[("Cookie", &cookie)], &body).await.status, 303);
    assert_eq!(stage.desk.done().last().unwrap(), "revoke a1b2c3d4e5f60718");
    let page = stage.get("/pins", &cookie).await.body;
    let digest = page.split("name=\"digest\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(digest.len(), 64);
    let pin = |digest: &str, answer: &str| {
        format!("csrf={csrf}&upstream=github&kind=tool&name=create_issue&digest={digest}&answer={answer}")
    };
    stage.send("POST", "/pins", &[("Cookie", &cookie)], &pin(&fake::digest("x"), "approve")).await;
    assert!(stage.get("/pins", &cookie).await.body.contains("It changed again meanwhile"));
    stage.send("POST", "/pins", &[("Cookie", &cookie)], &pin(digest, "reject")).await;
    assert_eq!(stage.desk.done().last().unwrap(), "reject create_issue");
    stage.send("POST", "/pins", &[("Cookie", &cookie)], &pin(digest, "approve")).await;
    assert_eq!(stage.desk.done().last().unwrap(), "approve create_issue");
    let card = page.split("<article ").find(|card| card.contains("<bdi>move_file</bdi>")).unwrap();
    assert!(card.contains("Confirm it") && card.contains("Clients see it"), "{card}");
    assert!(card.contains("Letters of several scripts in one word"), "{card}");
    let digest = card.split("name=\"digest\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let form = format!("csrf={csrf}&upstream=files&kind=tool&name=move_file&digest={digest}&answer=approve");
    stage.send("POST", "/pins", &[("Cookie", &cookie)], &form).await;
    assert_eq!(stage.desk.done().last().unwrap(), "approve move_file");
    assert!(!stage.get("/pins", &cookie).await.body.contains("Confirm it"));
    assert_eq!(
        stage.send("POST", "/pins", &[("Cookie", &cookie)], &format!("csrf={csrf}&answer=approve")).await.status,
        400
    );
}

#[tokio::test]
async fn a_group_is_answered_as_far_as_it_was_shown_and_checked() {
    let stage = ConsoleTestServer::set(FakeBackend::busy()).await;
    let cookie = stage.sign_in().await;
    let headers = [("Cookie", cookie.as_str())];
    assert!(!stage.get("/", &cookie).await.body.contains("href=\"/group"), "one of a kind is no group");
    for id in ["a1", "a2", "a3"] {
        stage.desk.ask(approval(id, "x", "x", StatedHints::default(), 1, "{}"));
    }
    // An MCP prompt with the same name as the tool is not in the tool's group.
    stage
        .desk
        .ask(ApprovalView { kind: "prompt".to_owned(), ..approval("p1", "x", "x", StatedHints::default(), 1, "{}") });
    let link = "/group?caller=user+local&#38;kind=tool&#38;item=x";
    for path in ["/", "/approvals/a1"] {
        assert!(stage.get(path, &cookie).await.body.contains(link), "{path}");
    }
    let page = stage.get("/group?caller=user+local&kind=tool&item=x", &cookie).await;
    assert!(!page.body.contains("value=\"p1:"), "{}", page.body);
    let csrf = page.csrf();
    let value = |id: &str| format!("{id}:{}", digest(id));
    for id in ["a1", "a2", "a3"] {
        assert!(page.body.contains(&format!("name=\"member\" value=\"{}\"", value(id))), "{id}: {}", page.body);
    }
    // One more approval was opened after the page was made.
    stage.desk.ask(approval("a4", "x", "x", StatedHints::default(), 1, "{}"));
    let form = |ids: &[&str], answer: &str| {
        let members: String = ids.iter().map(|id| format!("&member={}", value(id))).collect();
        format!("csrf={csrf}&answer={answer}{members}")
    };
    assert_eq!(stage.send("POST", "/group", &headers, "answer=once").await.status, 403);
    assert_eq!(stage.send("POST", "/group", &headers, &form(&["a1"], "often")).await.status, 400);
    assert_eq!(stage.send("POST", "/group", &headers, &format!("csrf={csrf}&answer=once&member=a1")).await.status, 400);
    stage.send("POST", "/group", &headers, &form(&[], "once")).await;
    assert!(stage.get("/", &cookie).await.body.contains("No call was checked"));
    assert_eq!(stage.desk.done(), [""; 0]);
    let done = stage.send("POST", "/group", &headers, &form(&["a1", "a3"], "once")).await;
    assert_eq!((done.status, done.header("location")), (303, Some("/")));
    assert_eq!(stage.desk.done(), ["answer a1 once", "answer a3 once"]);
    assert!(stage.get("/", &cookie).await.body.contains("Allowed once: 2 of 2."));
    let again = format!("csrf={csrf}&answer=deny&member={}&member=a4:{}", value("a2"), digest("x"));
    stage.send("POST", "/group", &headers, &again).await;
    let told = stage.get("/", &cookie).await.body;
    assert!(told.contains("Denied: 1 of 2. Not answered: 1 (It is not what was shown.)"), "{told}");
    assert!(told.contains("approval-a4"), "it stays open");
    let empty = stage.get("/group?caller=nobody", &cookie).await;
    assert!(empty.status == 200 && empty.body.contains("Nothing waits for you here"));
}

#[tokio::test]
async fn signing_out_ends_the_session() {
    let stage = ConsoleTestServer::set(FakeBackend::empty()).await;
    let cookie = stage.sign_in().await;
    let csrf = stage.get("/", &cookie).await.csrf();
    assert_eq!(stage.send("POST", "/sign-out", &[("Cookie", &cookie)], "").await.status, 403);
    let out = stage.send("POST", "/sign-out", &[("Cookie", &cookie)], &format!("csrf={csrf}")).await;
    assert_eq!(out.status, 303);
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(stage.get("/", &cookie).await.status, 303);
}

#[tokio::test]
async fn each_address_takes_its_methods_only() {
    let stage = ConsoleTestServer::set(FakeBackend::busy()).await;
    let cookie = stage.sign_in().await;
    let csrf = format!("csrf={}", stage.get("/", &cookie).await.csrf());
    for (method, path, status) in [
        ("HEAD", "/", 200),
        ("HEAD", "/static/console.css", 200),
        ("POST", "/static/console.css", 405),
        ("POST", "/", 405),
        ("POST", "/upstreams", 405),
        ("GET", "/sign-out", 405),
        ("PUT", "/", 405),
        ("DELETE", "/approvals/k7hq9cmv2r5wjd8x", 405),
        ("OPTIONS", "/", 405),
        ("PATCH", "/nope", 405),
        ("HEAD", "/events", 405),
        ("GET", "/approvals/", 404),
        ("GET", "/approvals/UPPER", 404),
        ("GET", "/open/short", 404),
        ("GET", "/static/../console.rs", 404),
        ("POST", "/nope", 404),
    ] {
        let got = stage.send(method, path, &[("Cookie", &cookie)], &csrf).await;
        assert_eq!(got.status, status, "{method} {path}");
        assert!(status != 405 || got.header("allow").is_some(), "{method} {path}");
    }
}

#[tokio::test]
async fn foreign_text_is_shown_and_never_obeyed() {
    let stage = ConsoleTestServer::set(FakeBackend::empty()).await;
    stage.desk.ask(hostile("h1"));
    stage.desk.ask(hostile("h2"));
    let cookie = stage.sign_in().await;
    let overview = stage.get("/", &cookie).await.body;
    let group = overview.split("href=\"/group").nth(1).unwrap().split('"').next().unwrap();
    let group = format!("/group{}", group.replace("&#38;", "&"));
    for path in ["/", "/approvals/h1", group.as_str()] {
        let body = stage.get(path, &cookie).await.body;
        for raw in ["<script>alert", "<img", "\u{202e}", "\u{200b}", "\u{1b}", "onerror=alert(2)>"] {
            assert!(!body.contains(raw), "{path}: {raw:?}");
        }
        assert!(body.contains("\\u{202e}") && body.contains("{{7*7}}"), "{path}");
    }
    assert!(HOSTILE.contains('\u{202e}'));
}

#[tokio::test]
async fn an_open_page_is_told_what_changes() {
    let stage = ConsoleTestServer::set(FakeBackend::empty()).await;
    let cookie = stage.sign_in().await;
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    let request = format!("GET /events HTTP/1.1\r\nHost: {}\r\nCookie: {cookie}\r\n\r\n", stage.address);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut heard = String::new();
    until(&mut stream, &mut heard, "data: approvals grants pins upstreams decisions\n").await;
    until(&mut stream, &mut heard, "data: {\"new\":[],\"count\":0}\n").await;
    assert!(heard.contains("text/event-stream") && heard.contains("no-store"), "{heard}");
    heard.clear();
    stage.desk.ask(hostile("h1"));
    until(&mut stream, &mut heard, "data: approvals grants pins\n").await;
    until(&mut stream, &mut heard, "\"count\":1}\n").await;
    let waiting = heard.split("event: waiting\n").nth(1).unwrap();
    assert!(waiting.contains("{\"new\":[{\"id\":\"h1\",\"title\":\""), "{waiting}");
    assert!(waiting.contains("wants to use this tool of") && waiting.contains("\\\\u{202e}"), "{waiting}");
    assert!(!waiting.contains("new_text") && !waiting.contains('\u{202e}'), "no arguments, nothing hidden: {waiting}");
    heard.clear();
    stage.desk.ask(approval("a1", "mail__send", "mail", StatedHints::default(), 1, "{\"text\":\"canary-4711\"}"));
    until(&mut stream, &mut heard, "\"count\":2}\n").await;
    assert!(
        heard.contains("\"id\":\"a1\"") && !heard.contains("h1") && !heard.contains("canary"),
        "only the new one: {heard}"
    );
    stage.stop.cancel();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
}

async fn until(stream: &mut TcpStream, heard: &mut String, wanted: &str) {
    let mut chunk = vec![0; 4096];
    while !heard.contains(wanted) {
        let read = stream.read(&mut chunk).await.unwrap();
        assert!(read > 0, "{heard}");
        heard.push_str(&String::from_utf8_lossy(&chunk[..read]));
    }
}

#[tokio::test]
async fn a_taken_default_gives_way_and_a_chosen_address_does_not() {
    let (first, address) = bind("127.0.0.1:0".parse().unwrap(), true).await.unwrap();
    assert!(bind(address, true).await.is_err());
    let (_, other) = bind(address, false).await.unwrap();
    assert!(other != address && other.ip().is_loopback());
    drop(first);
}
