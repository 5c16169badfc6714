//! Servers of different revisions beside each other.

use super::*;

#[test]
fn a_server_of_2026_07_28_hears_of_no_later_revision() {
    const NOW: &str = "2026-07-28";
    const LATER: &str = "2099-12-31";
    let mut world = World::new().upstream("a", Revision::V2026_07_28, &["t"]).upstream("b", Revision::Later, &["t"]);
    for tool in ["a__t", "b__t"] {
        world.call("x", &echo(tool, 1)).unwrap();
    }
    let heard = |upstream: usize| -> Vec<(&str, &str)> {
        let seen = world.upstreams[upstream].server.seen.iter();
        seen.map(|message| (message["method"].as_str().unwrap(), claim(message))).collect()
    };
    assert_eq!(heard(0), [("server/discover", NOW), ("tools/list", NOW), ("tools/call", NOW)]);
    let asked_again =
        [("server/discover", NOW), ("server/discover", LATER), ("tools/list", LATER), ("tools/call", LATER)];
    assert_eq!(heard(1), asked_again);
}
