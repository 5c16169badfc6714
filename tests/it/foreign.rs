//! Foreign text on the command line: a name is one line, whatever it contains.

use serde_json::json;

use crate::harness::Setup;
use crate::process::{eventually, said};
use crate::terminal::Terminal;
use crate::upstream::Fake;
use crate::upstream::Patch;

#[test]
fn a_name_prints_no_row_of_another_server() {
    let setup = Setup::new();
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

#[test]
fn letters_of_every_script_are_letters_on_a_terminal_and_nothing_is_hidden() {
    let setup = Setup::new();
    let patch = Patch::new(&setup);
    patch.write(&json!({}));
    let fake = patch.of(Fake::stdio("legacy"));
    let gateway = setup.toml("[upstreams.gone]\ncommand = [\"/没有/größe\u{3164}\"]").fake("fx", &fake).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let text = "第一章 Größe 👍\u{3164}\u{2800}\u{a0}end";
    patch.write(&json!({"fx://doc/1": {"description": text}, "echo": {"description": "你好 Grüße 🎉"}}));
    assert!(gateway.run(&["restart", "fx"]).status.success());
    let names = ["fx+fx://doc/1", "fx__echo"];
    eventually("the changes wait", || {
        let waiting = said(&gateway.run(&["pins", "--waiting"]));
        names.iter().all(|name| waiting.contains(name))
    });
    let end = |args: &[&str]| {
        let (code, screen) = Terminal::start(&gateway.world, args, "").end();
        assert_eq!(code, Some(0), "{args:?}: {screen}");
        assert!(!screen.contains(['\u{3164}', '\u{2800}', '\u{a0}', '\u{202e}']), "{args:?}: {screen}");
        screen
    };
    let diff = names.map(|name| end(&["pins", "diff", name])).concat();
    // Changed words stand beside each other, each text in its letters.
    assert!(["第一章 Größe 👍", "你好", "Grüße", "🎉"].iter().all(|text| diff.contains(text)), "{diff}");
    assert!(diff.contains("\\u{2800}") && diff.contains("\\u{a0}"), "{diff}");
    for args in [&["tools"][..], &["status"], &["status", "gone"], &["pins"]] {
        end(args);
    }
    assert!(end(&["status"]).contains("/没有/größe\\u{3164}"), "{}", end(&["status"]));
}
