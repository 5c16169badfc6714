//! Tests of two callers with one name: our own user, and clients that need no credential.

use super::operator::{headend, pending};
use super::*;

/// Starts a stage without authentication.
fn open_stage(more: &str) -> ConsentGateway {
    let setup = GatewaySetup::new().server("auth.mode = \"none\"");
    let setup = setup.policy("default = \"ask\"\n[policy.consent]\nper-minute = 100");
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("both").logging(&log)).toml(more).start();
    gateway.wait_for_tools(&["fx__echo"]);
    ConsentGateway { gateway, log }
}

/// Connects our own user on a pipe, and a client over HTTP.
fn clients(stage: &ConsentGateway, era: ClientEra) -> [Mcp; 2] {
    [Mcp::stdio(stage.gateway.pipe(), era), Mcp::http(stage.gateway.address, None, era)]
}

fn is_asked(client: &mut Mcp) -> bool {
    let answer = client.call("fx__echo", json!({"text": "x"}));
    answer.is_error() && reason(&answer) == "awaiting_approval"
}

#[test]
fn a_grant_serves_the_caller_that_it_was_given_to_and_no_namesake() {
    let stage = open_stage("");
    let [mut own, mut anyone] = clients(&stage, ClientEra::Modern);
    assert!(is_asked(&mut own));
    headend(&stage, &["approve", &pending(&stage)[0], "--for", "always"]);
    assert!(!is_asked(&mut own));
    assert!(is_asked(&mut anyone), "the grant is our own user's");
    headend(&stage, &["approve", &pending(&stage)[0], "--for", "always"]);
    assert!(!is_asked(&mut anyone));
    let records = stage.audit("answer");
    let kinds = records.iter().map(|record| json!([record["caller"], record["caller-kind"]]));
    assert_eq!(kinds.collect::<Vec<_>>(), [json!(["local", null]), json!(["local", "anyone"])]);

    let stage = ConsentGateway { gateway: stage.gateway.restart(), log: stage.log };
    stage.gateway.wait_for_tools(&["fx__echo"]);
    assert!(clients(&stage, ClientEra::Modern).iter_mut().all(|client| !is_asked(client)), "each has its own");
    headend(&stage, &["grants", "revoke", "--all"]);
    assert!(clients(&stage, ClientEra::Modern).iter_mut().all(is_asked));
    assert_eq!(pending(&stage).len(), 2, "nor do they share an approval");
}

#[test]
fn namesakes_are_counted_apart() {
    let limit = "[[policy.rules]]\nid = \"all\"\neffect = \"allow\"\ntools = [\"fx__echo\"]\n\
                 [[policy.limits]]\nid = \"few\"\nkey = [\"caller\"]\nper-day = 1";
    let stage = open_stage(limit);
    for client in &mut clients(&stage, ClientEra::Modern) {
        assert_eq!(client.call("fx__echo", json!({"text": "x"})).text(), "x");
        assert_eq!(reason(&client.call("fx__echo", json!({"text": "x"}))), "limited");
    }
    let stage = ConsentGateway { gateway: stage.gateway.restart(), log: stage.log };
    stage.gateway.wait_for_tools(&["fx__echo"]);
    for client in &mut clients(&stage, ClientEra::Modern) {
        assert_eq!(reason(&client.call("fx__echo", json!({"text": "x"}))), "limited", "the store has both counts");
    }
}

#[test]
fn a_caller_that_loses_its_access_ends_nothing_of_its_namesake() {
    let stage = open_stage("");
    let [mut own, mut anyone] = clients(&stage, ClientEra::LEGACY);
    assert!(is_asked(&mut own));
    headend(&stage, &["approve", &pending(&stage)[0], "--for", "session"]);
    assert!(!is_asked(&mut own) && is_asked(&mut anyone));
    let open = pending(&stage);
    assert_eq!(open.len(), 1);
    let text = std::fs::read_to_string(&stage.gateway.config).unwrap();
    let closed = text.replace("auth.mode = \"none\"", "auth.mode = \"token\"");
    assert!(stage.gateway.reload(&closed).status.success(), "{}", stage.gateway.story());
    assert_eq!(pending(&stage), <[String; 0]>::default(), "the approval of the clients without a token is closed");
    assert!(!is_asked(&mut own), "the session of our own user goes on, with its grant");
}
