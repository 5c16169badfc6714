//! A test of foreign text on the command line, which needs a terminal.

use serde_json::json;

use crate::tools::harness::GatewaySetup;
use crate::tools::process::{eventually, said};
use crate::tools::terminal::Terminal;
use crate::tools::upstream::Fake;
use crate::tools::upstream::Patch;

#[test]
fn letters_of_every_script_are_letters_on_a_terminal_and_nothing_is_hidden() {
    let setup = GatewaySetup::new();
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
    // Changed words are shown next to each other, each text in its own script.
    assert!(["第一章 Größe 👍", "你好", "Grüße", "🎉"].iter().all(|text| diff.contains(text)), "{diff}");
    assert!(diff.contains("\\u{2800}") && diff.contains("\\u{a0}"), "{diff}");
    for args in [&["tools"][..], &["status"], &["status", "gone"], &["pins"]] {
        end(args);
    }
    assert!(end(&["status"]).contains("/没有/größe\\u{3164}"), "{}", end(&["status"]));
}
