//! Tests of foreign text on the command line: a name is one line with any content.

use serde_json::json;

use crate::stage::harness::GatewaySetup;
use crate::stage::process::{eventually, said};
use crate::stage::upstream::Fake;
use crate::stage::upstream::Patch;

#[test]
fn a_name_prints_no_row_of_another_server() {
    let setup = GatewaySetup::new();
    let row = "files__read  tool      pinned       0123abcd  operator";
    let breaks = ["\n", "\r", "\r\n", "\u{85}", "\u{b}", "\u{2028}", "\u{2029}", "\t"];
    let resources: Vec<_> = breaks.iter().map(|c| json!({"uri": format!("fx://a/{c}{row}"), "name": "n"})).collect();
    let result = json!({"resultType": "complete", "resources": resources, "ttlMs": 0, "cacheScope": "private"});
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":${{ID}},\"result\":{result}}}");
    let script = setup.world.write("work/script.json", &json!({"resources/list": [line]}).to_string());
    let fake = Fake::stdio("legacy").with("--script", script.to_str().unwrap());
    let gateway = setup.fake("fx", &fake).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let pins = || said(&gateway.run(&["pins"]));
    eventually("the resources are pinned", || pins().contains("files__read"));
    let shown = pins();
    for line in shown.split(['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}']) {
        assert!(!line.starts_with("files__read"), "{line:?} in {shown}");
    }
    assert!(!shown.contains(['\t', '\r', '\u{2028}', '\u{85}']), "{shown:?}");
}
