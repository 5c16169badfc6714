//! Tests of logins at upstreams: calls that find their server waiting for a login, and the login
//! itself.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::logins::{CallbackError, LoginChannel, LoginOffer};
use crate::login::authorize::LoginCallback;
use crate::stage::harness::{Gateway, GatewaySetup, status_of};
use crate::stage::mcp::{ClientEra, Mcp, OpenCall};
use crate::stage::process::eventually;
use crate::stage::upstream::{Fake, InputLog, Listening};
use crate::stage::{block_on, http, now};

/// Token of a second caller besides the local one.
const TOKEN: &str = "token-of-the-second-caller-0123456789";
/// A hold longer than any test.
const LONG: &str = "10m";
const MOMENT: Duration = Duration::from_millis(400);

/// A daemon in front of one server that wants a login, and that server's own log.
#[derive(Debug)]
struct LoginRequiredGateway {
    gateway: Gateway,
    _server: Listening,
    log: InputLog,
}

impl LoginRequiredGateway {
    /// Starts a stage whose server waits for its first login.
    fn new(setup: GatewaySetup, hold: &str) -> Self {
        let log = InputLog::new(&setup.world.path("work"), "server");
        let server = Fake::http("modern").behaving("login=3600").logging(&log).spawn();
        let setup = setup.policy(&format!("default = \"allow\"\n[policy.consent]\nhold = {hold:?}"));
        let setup = setup.url("docs", &server.url).toml("[console]\nlisten = \"127.0.0.1:0\"");
        let gateway = setup.start();
        let stage = Self { gateway, _server: server, log };
        stage.wait_for_state("needs-login");
        stage
    }

    /// Starts a stage whose server has listed its tools and waits for a login again.
    fn waiting(setup: GatewaySetup, hold: &str) -> Self {
        let stage = Self::new(setup, hold);
        stage.log_in();
        stage.gateway.wait_for_tools(&["docs__echo"]);
        stage.log_out();
        stage
    }

    fn wait_for_state(&self, state: &str) {
        eventually(state, || status_of(&self.gateway, "docs")["state"] == state);
    }

    fn begin(&self, way: LoginChannel) -> LoginOffer {
        let daemon = Arc::clone(self.gateway.inner());
        let snapshot = daemon.service.snapshots.load_full();
        let handle = snapshot.handles.iter().find(|handle| handle.name.as_str() == "docs").unwrap();
        block_on(daemon.logins.begin(handle, way)).unwrap()
    }

    /// Logs in like a person who pastes the address at which the browser ended.
    fn log_in(&self) {
        let begun = self.begin(LoginChannel::Paste);
        let back = agree(&begun);
        let done = block_on(self.gateway.inner().logins.pasted(&begun.id, &back)).unwrap();
        assert_eq!(done.upstream, "docs");
    }

    fn log_out(&self) {
        assert!(self.gateway.run(&["logout", "docs"]).status.success());
        self.wait_for_state("needs-login");
        self.gateway.wait_for_tools(&["docs__echo"]);
    }

    fn client(&self, era: ClientEra, capabilities: Value) -> Mcp {
        Mcp::http_at(self.gateway.address, self.gateway.token(), era, "/mcp", capabilities)
    }

    /// Counts the calls with that text at the server.
    fn called(&self, text: &str) -> usize {
        self.log.lines_with(&["\"method\":\"tools/call\"", &format!("{text:?}")]).len()
    }

    /// Counts the entries of that kind about logins in the server's log.
    fn asked(&self, what: &str) -> usize {
        self.log.lines_with(&[&format!("\"login\":\"{what}\"")]).len()
    }
}

/// Agrees on the server's page. Returns the URL to which the server sends the browser back.
fn agree(begun: &LoginOffer) -> String {
    let rest = begun.address.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let page = http::get(host.parse().unwrap(), &format!("/{path}")).unwrap();
    page.head.header("location").unwrap_or_else(|| panic!("{}", page.text())).to_owned()
}

fn pages() -> Value {
    json!({"elicitation": {"url": {}}})
}

fn echo(text: &str) -> Value {
    json!({"name": "docs__echo", "arguments": {"text": text}})
}

fn is_echo(response: &Value, text: &str) -> bool {
    response["result"]["content"][0]["text"] == text && response["result"]["isError"] != true
}

fn reason(response: &Value) -> &str {
    response["result"]["_meta"]["headend/refusal"]["reason"].as_str().unwrap_or_default()
}

fn waits(call: &mut OpenCall) -> bool {
    call.next_within(MOMENT).is_err()
}

#[test]
fn a_login_is_ended_once_by_the_browser_that_opened_its_link() {
    let stage = LoginRequiredGateway::new(GatewaySetup::new(), "0s");
    let begun = stage.begin(LoginChannel::Page);
    let (back, logins) = (agree(&begun), &stage.gateway.inner().logins);
    let returned = |cookies: &[&str]| block_on(logins.returned(&LoginCallback::of_pasted(&back), cookies));
    assert!(logins.shown(&begun.id).is_some() && logins.opened(&begun.id).is_none());
    assert!(matches!(returned(&["none"]), Err(CallbackError::Unknown)), "the link was not opened");
    let (_, cookie) = logins.enter(&begun.id).unwrap();
    assert!(logins.enter(&begun.id).is_none(), "it opens once");
    assert!(logins.shown(&begun.id).is_none() && logins.opened(&begun.id).is_some());
    assert!(matches!(returned(&["another"]), Err(CallbackError::Unknown)), "another browser");
    let pasted = block_on(logins.pasted(&begun.id, &back));
    assert!(matches!(pasted, Err(CallbackError::Unknown)), "a command ends no login of a page");
    assert_eq!(stage.asked("code"), 0, "none of them reached the server");
    assert_eq!(returned(&["another", &cookie]).unwrap().upstream, "docs");
    assert!(matches!(returned(&[&cookie]), Err(CallbackError::Unknown)), "its state is used up");
    assert_eq!(block_on(logins.ended(&begun.id)).unwrap().upstream, "docs", "its outcome is there later");
    assert_eq!(stage.asked("code"), 1);
    stage.gateway.wait_for_tools(&["docs__echo"]);
}

#[test]
fn a_login_that_its_server_or_time_refuses_ends_with_the_reason() {
    let stage = LoginRequiredGateway::new(GatewaySetup::new(), "0s");
    let logins = &stage.gateway.inner().logins;
    let begun = stage.begin(LoginChannel::Paste);
    let back = agree(&begun);
    let (place, rest) = back.split_once("code=").unwrap();
    let end = rest.find('&').map_or("", |at| &rest[at..]);
    let refused = block_on(logins.pasted(&begun.id, &format!("{place}error=access_denied{end}")));
    let Err(CallbackError::Failed(why)) = refused else { panic!("{refused:?}") };
    assert_eq!(why, "you (or the server) refused the login");
    assert_eq!(block_on(logins.ended(&begun.id)).unwrap_err(), why);
    let late = stage.begin(LoginChannel::Paste);
    let back = agree(&late);
    crate::stage::pass(Duration::from_secs(601));
    assert!(matches!(block_on(logins.pasted(&late.id, &back)), Err(CallbackError::Unknown)), "ten minutes are over");
    assert!(block_on(logins.ended(&late.id)).is_err());
    assert_eq!(stage.asked("code"), 0);
    assert_eq!(status_of(&stage.gateway, "docs")["state"], "needs-login");
}

#[test]
fn a_held_call_goes_on_after_the_login_and_is_made_once() {
    let stage = LoginRequiredGateway::waiting(GatewaySetup::new(), LONG);
    for era in ClientEra::BOTH {
        let text = format!("held {era:?}");
        let mut client = stage.client(era, json!({}));
        let mut params = echo(&text);
        params["_meta"] = json!({"progressToken": "mine"});
        let mut call = client.open("tools/call", params);
        let first = call.next().unwrap();
        assert_eq!(first["params"]["message"], "waiting for a login at docs", "{era:?}: {first}");
        assert!(waits(&mut call), "{era:?}");
        assert_eq!(stage.called(&text), 0, "{era:?}");
        stage.log_in();
        let response = call.response();
        assert!(is_echo(&response, &text), "{era:?}: {response}\n{}", stage.gateway.story());
        assert_eq!(stage.called(&text), 1, "{era:?}");
        stage.log_out();
    }
}

#[test]
fn a_call_that_was_held_in_vain_is_refused_with_the_command_and_no_link() {
    let stage = LoginRequiredGateway::waiting(GatewaySetup::new(), "900ms");
    let before = stage.asked("no token");
    let began = now();
    let answer = stage.gateway.modern().call("docs__echo", json!({"text": "in vain"}));
    assert!(now() - began >= Duration::from_millis(900), "{:?}", now() - began);
    assert_eq!(reason(&answer.message), "needs_login", "{}", answer.raw);
    assert_eq!(answer.result()["_meta"]["headend/refusal"]["login"]["command"], "headend login docs");
    assert!(!answer.raw.contains("http://"), "{}", answer.raw);
    assert_eq!((stage.asked("no token"), stage.called("in vain")), (before, 0), "the server is left alone");
    // A call that its client gave up is not made after the login.
    drop(stage.gateway.modern().open("tools/call", echo("given up")));
    stage.log_in();
    assert_eq!(stage.called("given up"), 0);
}

#[test]
fn a_legacy_client_is_led_to_the_page_by_one_call_and_hears_of_the_end() {
    let stage = LoginRequiredGateway::waiting(GatewaySetup::new(), LONG);
    let mut client = stage.client(ClientEra::LEGACY, pages());
    let mut call = client.open("tools/call", echo("led"));
    let question = call.next().unwrap();
    let base = format!("http://{}", stage.gateway.console_address().unwrap());
    assert_eq!((&question["method"], &question["params"]["mode"]), (&json!("elicitation/create"), &json!("url")));
    assert_eq!(question["params"]["url"], format!("{base}/upstreams/docs"), "{question}");
    let mut other = client.open("tools/call", echo("beside"));
    assert!(waits(&mut other), "one call leads there");
    client.respond(&question["id"], json!({"action": "accept"}));
    assert!(waits(&mut call), "it only means that the page is opened");
    stage.log_in();
    let end = call.next().unwrap();
    assert_eq!(end["method"], "notifications/elicitation/complete", "{end}");
    assert_eq!(end["params"]["elicitationId"], question["params"]["elicitationId"]);
    assert!(is_echo(&call.response(), "led") && is_echo(&other.response(), "beside"));
    assert_eq!((stage.called("led"), stage.called("beside")), (1, 1));

    stage.log_out();
    let mut call = client.open("tools/call", echo("declined"));
    let question = call.next().unwrap();
    client.respond(&question["id"], json!({"action": "decline"}));
    assert_eq!(reason(&call.response()), "needs_login");
    let mut again = client.open("tools/call", echo("again"));
    assert!(waits(&mut again), "who declined is not asked again, and the call is held");
    assert_eq!(stage.called("declined"), 0);
}

#[test]
fn a_modern_client_is_led_to_the_page_and_goes_on_with_the_same_call() {
    let stage = LoginRequiredGateway::waiting(GatewaySetup::new(), LONG);
    let mut client = stage.client(ClientEra::Modern, pages());
    let asked = |client: &mut Mcp, text: &str| {
        let answer = client.call("docs__echo", json!({"text": text}));
        let result = answer.result();
        let question = result["inputRequests"]["gw.login"]["params"].clone();
        assert_eq!(question["mode"], "url", "{}", answer.raw);
        assert!(question["url"].as_str().unwrap().ends_with("/upstreams/docs"), "{}", answer.raw);
        let mut retry = echo(text);
        retry["requestState"] = result["requestState"].clone();
        retry
    };
    let mut retry = asked(&mut client, "led");
    retry["inputResponses"] = json!({"gw.login": {"action": "accept"}});
    let mut call = client.open("tools/call", retry);
    assert!(waits(&mut call), "it waits for the person on the page");
    stage.log_in();
    let response = call.response();
    assert!(is_echo(&response, "led"), "{response}");
    assert_eq!(stage.called("led"), 1);

    stage.log_out();
    let mut retry = asked(&mut client, "other");
    retry["inputResponses"] = json!({"gw.login": {"action": "accept"}});
    retry["arguments"] = json!({"text": "changed"});
    assert!(client.request("tools/call", retry).code().is_some(), "a state is good for its own call");
    let mut retry = asked(&mut client, "declined");
    retry["inputResponses"] = json!({"gw.login": {"action": "decline"}});
    assert_eq!(reason(&client.request("tools/call", retry).message), "needs_login");
    assert_eq!((stage.called("declined"), stage.called("changed")), (0, 0));
}

#[test]
fn where_another_caller_is_admitted_nobody_is_led_to_the_page() {
    let stage = LoginRequiredGateway::waiting(GatewaySetup::new().second_caller(TOKEN), "600ms");
    let tokens = [stage.gateway.token().unwrap(), TOKEN.to_owned()];
    for (token, era) in tokens.iter().flat_map(|token| ClientEra::BOTH.map(|era| (token, era))) {
        let mut client = Mcp::http_at(stage.gateway.address, Some(token.clone()), era, "/mcp", pages());
        let answer = client.call("docs__echo", json!({"text": "a"}));
        assert_eq!(reason(&answer.message), "needs_login", "{era:?}: {}", answer.raw);
        assert!(!answer.raw.contains("http://") && answer.notices.is_empty(), "{era:?}: {}", answer.raw);
    }
}
