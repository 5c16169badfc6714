//! Tests of approvals while the log of a process cannot be written, which needs a limit of that
//! process.

use super::*;
use crate::consenting_people::audit::limit;
use crate::tools::harness::headend;
use crate::tools::process::said;
use crate::tools::steps::abuse::{approve, echoed, waits_for};

mod ways;

#[test]
fn what_was_agreed_to_is_not_done_while_the_log_cannot_be_written() {
    let setup = GatewaySetup::new().policy("default = \"ask\"\n[policy.consent]\nper-minute = 100");
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let (world, config) = setup.fake("fx", &Fake::stdio("legacy").logging(&log)).write();
    let mut command = world.command("/bin/sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", headend()]);
    let gateway = Gateway::start_by(command, world, Some(config), &["serve"], &[]);
    gateway.wait_for_tools(&["fx__echo"]);
    let client = |capabilities| Mcp::http_at(gateway.address, gateway.token(), ClientEra::Modern, "/mcp", capabilities);
    let (mut asking, mut mute) = (client(forms()), client(json!({})));
    // One grant for the session, one of the operator for a single call, and one open approval.
    let listed = json!({"text": "session"});
    let (_, state) = asked(&asking.call("fx__echo", listed.clone()));
    assert!(echoed(&go_on(&mut asking, "fx__echo", &listed, &state, &allow("session")), "session"));
    let once = json!({"a": 1});
    let id = waits_for(&mute.call("fx__fail", once.clone()));
    approve(&gateway, &id);
    let (_, open) = asked(&asking.call("fx__env", json!({})));
    let soon = json!({"ms": 1});
    let (_, first) = asked(&asking.call("fx__sleep", soon.clone()));
    let before = log.work();

    limit(&gateway, Some(10));
    let refused = |answer: &McpAnswer| answer.is_error() || answer.code().is_some();
    for _ in 0..5 {
        // The call whose record has to be on disk comes first: through it the log notices that it
        // cannot write, and then no other call is made.
        assert!(refused(&mute.call("fx__fail", once.clone())), "{}", gateway.story());
        assert!(refused(&asking.call("fx__echo", listed.clone())), "{}", gateway.story());
    }
    let answered = go_on(&mut asking, "fx__env", &json!({}), &open, &allow("once"));
    assert!(answered.result()["content"][0]["text"].as_str().is_none_or(|text| !text.contains("\"pid\"")));
    let answered = go_on(&mut asking, "fx__sleep", &soon, &first, &allow("session"));
    assert!(refused(&answered), "the first call under a longer grant waits for the log too: {}", answered.message);
    assert_eq!(log.work(), before, "nothing reaches the server");

    limit(&gateway, None);
    eventually("calls work again", || echoed(&asking.call("fx__echo", listed.clone()), "session"));
    mute.call("fx__fail", once.clone());
    mute.call("fx__fail", once);
    let fails = log.lines_with(&["\"method\":\"tools/call\"", "\"name\":\"fail\""]).len();
    assert_eq!(fails, 1, "a refused call uses no approval up, and a second one finds it used");
}
