//! Logins at real authorization servers, whose own records are checked: how often tokens were
//! requested, by which client, for which scopes.
//!
//! `oidc-provider` gives access tokens of a few seconds and takes a whole login back when a refresh
//! token is used twice; servers of `FastMCP` and of the TypeScript SDK believe its tokens alone.

use std::fs;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::parts::{EventPeer, login, login_by, post, redirect, script};
use super::PeerFolders;
use crate::harness::{Gateway, GatewaySetup, TestHome, left_out};
use crate::mcp::{ClientEra, Mcp};
use crate::process::{said, within};
use crate::stdio::Pipe;

pub(super) mod parts;

/// Lifetime of access tokens, in seconds.
const LIFE: u64 = 5;
const PATIENCE: Duration = Duration::from_secs(60);

/// An authorization server, and a server behind a gateway that believes its tokens.
struct LoginSetup {
    peers: PeerFolders,
    issuer: EventPeer,
    server: EventPeer,
    gateway: Gateway,
}

impl LoginSetup {
    /// Starts the authorization server, the guarded server and the gateway. `kind` is the server's
    /// script; `auth` has the lines of `[upstreams.guarded.auth]`.
    fn new(kind: &str, life: u64, clients: &Value, auth: &[&str]) -> Option<Self> {
        Self::with(kind, life, clients, auth, &[])
    }

    /// Does the same as [`LoginSetup::new`], with more variables of the authorization server.
    fn with(kind: &str, life: u64, clients: &Value, auth: &[&str], more: &[(&str, &str)]) -> Option<Self> {
        let peers = PeerFolders::find()?;
        let setup = GatewaySetup::new();
        let (life, clients) = (life.to_string(), clients.to_string());
        let mut all = vec![("ACCESS_TTL", &*life), ("CLIENTS", &*clients)];
        all.extend_from_slice(more);
        let issuer = EventPeer::start(&peers, &setup.world, "oidc-provider.mjs", &[], &all);
        let args: &[&str] = if kind.ends_with(".py") { &["remote"] } else { &[] };
        let server = EventPeer::start(&peers, &setup.world, kind, args, &[("ISSUER", &issuer.said("issuer"))]);
        let mut table =
            if auth.is_empty() { String::new() } else { format!("[upstreams.guarded.auth]\n{}\n", auth.join("\n")) };
        if auth.iter().any(|line| line.starts_with("client-secret") || line.starts_with("private-key")) {
            table.push_str(&format!("issuers = [{:?}]\n", issuer.said("issuer")));
        }
        let gateway = setup.url("guarded", &server.said("url")).toml(&table).start();
        Some(Self { peers, issuer, server, gateway })
    }

    fn log_in(&self) -> String {
        let (worked, text) = login(&self.gateway, &self.peers, "guarded");
        assert!(worked, "{text}\n{}", self.issuer.story());
        text
    }

    fn status(&self) -> String {
        said(&self.gateway.run(&["status", "guarded"]))
    }

    fn wait_for_state(&self, state: &str) {
        within(PATIENCE, state, || self.status().contains(state));
    }

    /// Returns the times at which tokens were refreshed, in milliseconds.
    fn refreshes(&self) -> Vec<u64> {
        self.issuer.tokens("refresh_token").iter().map(|event| event["at"].as_u64().unwrap()).collect()
    }

    /// Returns the text of a call's answer, and whether it is an error.
    fn call(&self, tool: &str) -> (String, bool) {
        answer(&self.gateway, tool)
    }
}

fn answer(gateway: &Gateway, tool: &str) -> (String, bool) {
    let called = gateway.modern().call(tool, json!({}));
    let is_error = called.is_error() || called.code().is_some();
    (called.raw, is_error)
}

#[test]
fn a_server_that_wants_a_login_says_so_and_works_once_a_person_logged_in() {
    for kind in ["oauth-server.py", "oauth-server.mjs"] {
        let Some(place) = LoginSetup::new(kind, 3600, &json!([]), &[]) else { return };
        place.wait_for_state("needs-login");
        let text = place.log_in();
        assert!(text.contains("Logged in to guarded"), "{text}");
        let tool = if kind.ends_with(".py") { "guarded__whoami" } else { "guarded__read" };
        place.gateway.wait_for_tools(&[tool]);
        let (text, is_error) = place.call(tool);
        assert!(!is_error && text.contains("alice"), "{text}");
        assert_eq!(place.issuer.events("registered").len(), 1);
        let resource = place.server.said("url");
        assert_eq!(place.issuer.tokens("authorization_code")[0]["resource"], json!(resource), "as it was published");
        assert!(place.issuer.events("refused").is_empty() && place.issuer.events("broken").is_empty());
    }
}

/// `HEADEND_TEST_EXPIRIES` sets their number; over more than a few, tokens live shorter and fewer
/// tasks call.
#[test]
fn many_tasks_over_many_expiries_cause_one_refresh_each() {
    let expiries: u64 = std::env::var("HEADEND_TEST_EXPIRIES").ok().map_or(10, |text| text.parse().unwrap());
    let (life, tasks) = if expiries > 10 { (2, 4) } else { (LIFE, 32) };
    let Some(place) = LoginSetup::new("oauth-server.py", life, &json!([]), &[]) else { return };
    place.wait_for_state("needs-login");
    place.log_in();
    place.gateway.wait_for_tools(&["guarded__whoami"]);
    let (calls, began) = (AtomicUsize::new(0), Instant::now());
    thread::scope(|scope| {
        for _ in 0..tasks {
            scope.spawn(|| {
                let mut client = place.gateway.modern();
                while began.elapsed() < Duration::from_secs(life * expiries) {
                    let called = client.call("guarded__whoami", json!({}));
                    assert!(called.raw.contains("alice") && !called.is_error(), "{}", called.raw);
                    calls.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(client.tool_names(), ["guarded__whoami"], "a tool left the list");
                    thread::sleep(Duration::from_millis(500));
                }
            });
        }
    });
    assert!(calls.load(Ordering::Relaxed) >= 200, "{calls:?}");
    let refreshes = place.refreshes();
    // Each refresh is well after the one before, so no two are of one expiry. Tokens end at whole
    // seconds, so for the shortest lives only the number counts.
    let least = if life < LIFE { 0 } else { life * 1000 / 3 };
    let close: Vec<_> = refreshes.windows(2).filter(|pair| pair[1] - pair[0] < least).collect();
    assert!(close.is_empty() && refreshes.len() as u64 >= expiries - 1, "{refreshes:?}");
    assert!(refreshes.len() as u64 <= expiries * 2 + 1, "{refreshes:?}");
    eprintln!(
        "{} calls, {} refreshes in the time of {expiries} expiries",
        calls.load(Ordering::Relaxed),
        refreshes.len()
    );
    for kind in ["refused", "revoked", "broken"] {
        assert!(place.issuer.events(kind).is_empty(), "{kind}");
    }
    assert_eq!(place.issuer.events("authorized").len(), 1);
    let page = place.gateway.scrape();
    let series = |name: &str| page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let renewed = series("headend_login_renewals_total{result=\"renewed\",upstream=\"guarded\"}").unwrap();
    assert!(renewed >= refreshes.len() as u64 && renewed <= place.refreshes().len() as u64, "{renewed}: {page}");
    assert!(series("headend_login_token_expiry_timestamp_seconds{upstream=\"guarded\"}").unwrap() > 1_700_000_000);
}

#[test]
fn a_login_that_was_taken_back_has_expired_and_its_tools_stay_listed() {
    let Some(place) = LoginSetup::new("oauth-server.py", LIFE, &json!([]), &[]) else { return };
    place.wait_for_state("needs-login");
    place.log_in();
    place.gateway.wait_for_tools(&["guarded__whoami"]);
    post(&format!("{}/test/revoke", place.issuer.said("issuer")), "");
    // The server believes the token that it was shown until it expires.
    within(PATIENCE, "a call that is refused", || place.call("guarded__whoami").1);
    place.wait_for_state("login-expired");
    assert_eq!(place.gateway.modern().tool_names(), ["guarded__whoami"]);
    let (text, is_error) = place.call("guarded__whoami");
    assert!(is_error && text.contains("headend login guarded"), "{text}");
    let tried = place.issuer.events("refused").len();
    assert_eq!(tried, 1, "a refused refresh token is tried once");
    place.log_in();
    within(PATIENCE, "a call after the second login", || !place.call("guarded__whoami").1);
}

#[test]
fn a_restart_keeps_a_login() {
    let Some(mut place) = LoginSetup::new("oauth-server.py", LIFE, &json!([]), &[]) else { return };
    place.wait_for_state("needs-login");
    place.log_in();
    place.gateway.wait_for_tools(&["guarded__whoami"]);
    for _ in 0..3 {
        let (world, config) = (place.gateway.world.clone(), place.gateway.config.clone());
        place.gateway.signal(rustix::process::Signal::KILL);
        place.gateway.wait(PATIENCE);
        thread::sleep(Duration::from_secs(LIFE));
        place.gateway = Gateway::start(world, Some(config), &["serve"], &[]);
        place.gateway.wait_for_tools(&["guarded__whoami"]);
        within(PATIENCE, "a call after a restart", || !place.call("guarded__whoami").1);
    }
    assert_eq!(place.issuer.events("authorized").len(), 1, "nobody was asked again");
    assert!(place.issuer.events("revoked").is_empty());
}

/// Kills at any moment, also of a refresh. `HEADEND_TEST_KILLS` sets their number.
#[test]
fn a_kill_loses_no_login_unless_the_answer_to_a_refresh_was_on_its_way() {
    let Some(mut place) = LoginSetup::new("oauth-server.py", 2, &json!([]), &[]) else { return };
    place.wait_for_state("needs-login");
    place.log_in();
    place.gateway.wait_for_tools(&["guarded__whoami"]);
    let kills: u64 = std::env::var("HEADEND_TEST_KILLS").ok().map_or(5, |text| text.parse().unwrap());
    let mut lost = 0;
    let refused = |place: &LoginSetup| place.issuer.events("refused").len();
    for turn in 0..kills {
        // Refreshes are about every second: the moments pass over all of one.
        thread::sleep(Duration::from_millis(500 + turn * 137 % 2000));
        place.call("guarded__whoami");
        place.gateway.signal(rustix::process::Signal::KILL);
        place.gateway.wait(PATIENCE);
        let refreshed = place.issuer.tokens("refresh_token").len();
        let (world, config) = (place.gateway.world.clone(), place.gateway.config.clone());
        place.gateway = Gateway::start(world, Some(config), &["serve"], &[]);
        let mut expired = false;
        within(PATIENCE, "a call, or an expired login", || {
            expired = place.status().contains("login-expired");
            expired || !place.call("guarded__whoami").1
        });
        if expired {
            // The server had rotated, and its answer never arrived: the old token is refused at its
            // first use.
            lost += 1;
            within(PATIENCE, "one refusal of an old token for each loss", || refused(&place) == lost);
            assert!(refreshed > 0, "{}", place.issuer.story());
            place.log_in();
            within(PATIENCE, "a call", || !place.call("guarded__whoami").1);
        }
    }
    assert_eq!(place.issuer.events("authorized").len(), 1 + lost);
    eprintln!("{kills} kills, {lost} of them while the answer to a refresh was on its way");
    // Renewals are as frequent as here nowhere else, and slow on a busy machine.
    assert!(u64::try_from(lost).unwrap() <= kills / 4 + 1, "{lost} of {kills}");
}

/// A second program with the same state directory, as `headend stdio` without the daemon is one.
#[test]
fn two_programs_of_one_store_share_one_refresh() {
    let Some(place) = LoginSetup::new("oauth-server.py", LIFE, &json!([]), &[]) else { return };
    place.wait_for_state("needs-login");
    place.log_in();
    place.gateway.wait_for_tools(&["guarded__whoami"]);
    let pipe = Pipe::start(&place.gateway.world, &place.gateway.config, &["--no-daemon"]);
    let mut other = Mcp::stdio(pipe, ClientEra::Modern);
    within(PATIENCE, "the tools of the second program", || other.tool_names() == ["guarded__whoami"]);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(LIFE * 4) {
        assert!(!place.call("guarded__whoami").1);
        let called = other.call("guarded__whoami", json!({}));
        assert!(called.raw.contains("alice"), "{}", called.raw);
        thread::sleep(Duration::from_millis(250));
    }
    let refreshes = place.refreshes();
    assert!(refreshes.windows(2).all(|pair| pair[1] - pair[0] >= LIFE * 1000 / 3), "{refreshes:?}");
    assert!(place.issuer.events("refused").is_empty() && place.issuer.events("revoked").is_empty());
}

#[test]
fn more_rights_are_asked_for_once_and_keep_the_old_ones() {
    let Some(place) = LoginSetup::new("oauth-server.mjs", 3600, &json!([]), &[]) else { return };
    place.wait_for_state("needs-login");
    place.log_in();
    place.gateway.wait_for_tools(&["guarded__read", "guarded__write"]);
    assert!(!place.call("guarded__read").1);
    let (text, is_error) = place.call("guarded__write");
    assert!(is_error && text.contains("headend login guarded"), "{text}");
    assert!(!place.call("guarded__read").1, "the login serves what it served before");
    place.log_in();
    within(PATIENCE, "a call with more rights", || !place.call("guarded__write").1);
    let asked: Vec<_> = place.issuer.events("authorized").iter().map(|event| event["scope"].to_string()).collect();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[1].contains("mcp:read") && asked[1].contains("mcp:write"), "{asked:?}");
}

#[test]
fn a_server_that_moves_to_another_issuer_gets_no_credential_of_the_old_one() {
    let Some(place) = LoginSetup::new("oauth-server.mjs", LIFE, &json!([]), &[]) else { return };
    place.wait_for_state("needs-login");
    place.log_in();
    place.gateway.wait_for_tools(&["guarded__read"]);
    let client = place.issuer.events("registered")[0]["client"].clone();
    let other = EventPeer::start(&place.peers, &place.gateway.world, "oidc-provider.mjs", &[], &[]);
    let base = place.server.said("url");
    post(&format!("{}/test/issuer", base.trim_end_matches("/mcp")), &other.said("issuer"));
    within(PATIENCE, "a call that needs a login", || place.call("guarded__read").0.contains("headend login guarded"));
    let (worked, text) = login(&place.gateway, &place.peers, "guarded");
    let line = format!("issuers = [{:?}]", other.said("issuer"));
    assert!(!worked && text.contains(&line) && text.contains(&place.issuer.said("issuer")), "{text}");
    assert!(other.events("registered").is_empty(), "nothing was sent there: {}", other.story());
    let config = fs::read_to_string(&place.gateway.config).unwrap();
    let reloaded = place.gateway.reload(&format!("{config}\n[upstreams.guarded.auth]\n{line}\n"));
    assert!(reloaded.status.success(), "{}", said(&reloaded));
    place.wait_for_state("needs-login");
    place.log_in();
    within(PATIENCE, "a call with the new issuer's token", || !place.call("guarded__read").1);
    assert_eq!(other.events("registered").len(), 1);
    assert_eq!(other.tokens("authorization_code").len(), 1);
    let seen = other.story();
    assert!(!seen.contains(client.as_str().unwrap()), "{seen}");
    assert!(other.events("refused").is_empty(), "{seen}");
}

#[test]
fn a_client_with_rights_of_its_own_needs_no_person() {
    let world = TestHome::new();
    let key = world.path("key.pem");
    let mut made = world.command("openssl");
    made.args(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key.to_str().unwrap()]);
    let has_key = made.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !has_key {
        left_out("a client that proves itself by its key", "openssl is not installed");
    }
    let pem = has_key.then(|| fs::read_to_string(&key).unwrap());
    let secret = ("client_secret_basic", "client-secret = \"canary & secret\"".to_owned());
    let by_key = pem.map(|_| ("private_key_jwt", format!("private-key = {{ file = {:?} }}", key.to_str().unwrap())));
    for (method, line) in [Some(secret), by_key].into_iter().flatten() {
        let is_secret = method == "client_secret_basic";
        let mut client = json!({ "client_id": "own", "grant_types": ["client_credentials"], "redirect_uris": [],
            "response_types": [], "token_endpoint_auth_method": method });
        if is_secret {
            client["client_secret"] = json!("canary & secret");
        }
        let auth = ["type = \"client-credentials\"", "client-id = \"own\"", &line];
        let more = [("KEY", key.to_str().unwrap())];
        let more = if is_secret { &[][..] } else { &more[..] };
        let Some(place) = LoginSetup::with("oauth-server.mjs", LIFE, &json!([client]), &auth, more) else { return };
        place.gateway.wait_for_tools(&["guarded__read"]);
        for _ in 0..3 {
            assert!(!place.call("guarded__read").1, "{method}");
            thread::sleep(Duration::from_secs(LIFE));
        }
        let granted = place.issuer.tokens("client_credentials");
        assert!(granted.len() >= 2, "{method}: {granted:?}");
        assert!(place.issuer.events("authorized").is_empty() && place.issuer.events("refused").is_empty(), "{method}");
        assert!(!place.gateway.story().contains("canary"));
    }
}

#[test]
fn a_client_whose_id_is_the_address_of_its_document_registers_nowhere() {
    let id = "https://headend.example/client.json";
    let back = "http://127.0.0.1/oauth/callback";
    let document = json!({ "client_id": id, "client_name": "headend", "redirect_uris": [back],
        "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"],
        "token_endpoint_auth_method": "none", "application_type": "native" })
    .to_string();
    let auth = [format!("client-metadata-url = {id:?}")];
    let auth: Vec<&str> = auth.iter().map(String::as_str).collect();
    let Some(place) = LoginSetup::with("oauth-server.mjs", LIFE, &json!([]), &auth, &[("DOCUMENT", &document)]) else {
        return;
    };
    place.wait_for_state("needs-login");
    place.log_in();
    place.gateway.wait_for_tools(&["guarded__read"]);
    thread::sleep(Duration::from_secs(LIFE));
    assert!(!place.call("guarded__read").1, "a refresh as the same client");
    assert!(place.issuer.events("registered").is_empty());
    assert!(place.issuer.events("token").iter().all(|event| event["client"] == id), "{}", place.issuer.story());
    assert_eq!(place.issuer.events("fetched")[0]["url"], id);
}

#[test]
fn fastmcp_with_an_authorization_server_of_its_own() {
    let Some(peers) = PeerFolders::find() else { return };
    let setup = GatewaySetup::new();
    let server = EventPeer::start(&peers, &setup.world, "oauth-server.py", &["own"], &[]);
    let gateway = setup.url("guarded", &server.said("url")).start();
    within(PATIENCE, "needs-login", || said(&gateway.run(&["status", "guarded"])).contains("needs-login"));
    let (worked, text) = login(&gateway, &peers, "guarded");
    assert!(worked, "{text}\n{}", server.story());
    gateway.wait_for_tools(&["guarded__whoami"]);
    let (text, is_error) = answer(&gateway, "guarded__whoami");
    assert!(!is_error, "{text}");
    assert_eq!(server.events("call").len(), 1);
}

#[test]
fn a_person_at_the_login_form_of_canaille() {
    let Some(peers) = PeerFolders::find() else { return };
    let Some(browser) = peers.browser("a login form in a browser") else { return };
    let setup = GatewaySetup::new();
    let issuer = EventPeer::start(&peers, &setup.world, "canaille-server.py", &[], &[]);
    let at = issuer.said("issuer");
    let keys = format!("{at}/oauth/jwks.json");
    let more = [("ISSUER", &*at), ("JWKS", &*keys)];
    let server = EventPeer::start(&peers, &setup.world, "oauth-server.py", &["plain"], &more);
    let gateway = setup.url("guarded", &server.said("url")).start();
    within(PATIENCE, "needs-login", || said(&gateway.run(&["status", "guarded"])).contains("needs-login"));
    let (worked, text) = login_by(&gateway, "guarded", |address| {
        let job = json!({ "browser": browser, "url": address, "back": redirect(address), "user": "alice",
            "password": "canary-password" });
        script(&gateway, &peers, "login-form.mjs", &job)
    });
    assert!(worked, "{text}\n{}", issuer.story());
    assert!(text.contains("as Alice") || text.contains("as alice"), "the account that was logged in: {text}");
    gateway.wait_for_tools(&["guarded__whoami"]);
    let (text, is_error) = answer(&gateway, "guarded__whoami");
    assert!(!is_error && text.contains("alice"), "{text}");
    let posted = |path: &str| {
        issuer.events("request").iter().filter(|one| one["path"] == path && one["method"] == "POST").count()
    };
    assert_eq!((posted("/oauth/register"), posted("/oauth/token")), (1, 1));
    assert!(!gateway.story().contains("canary"));
}
