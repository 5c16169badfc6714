use super::*;

fn owned(scopes: &[&str]) -> Vec<String> {
    scopes.iter().map(|scope| (*scope).to_owned()).collect()
}

#[test]
fn the_challenge_goes_before_the_metadata_and_nothing_is_assumed() {
    let resource = owned(&["r", "s"]);
    let server = owned(&["s", OFFLINE]);
    let own = owned(&["own"]);
    let granted = owned(&["old"]);
    let all = Sources { resource: Some(&resource), ..Sources::default() };
    for (label, sources, want) in [
        ("nothing", Sources::default(), &[][..]),
        ("metadata", all, &["r", "s"]),
        ("challenge", Sources { challenge: Some("a  b a"), ..all }, &["a", "b"]),
        ("the operator's", Sources { configured: &own, ..all }, &["own"]),
        ("the operator's and the challenge", Sources { configured: &own, challenge: Some("a"), ..all }, &["own", "a"]),
        ("more rights", Sources { granted: &granted, challenge: Some("a"), ..all }, &["old", "a"]),
        ("offline", Sources { server: &server, offline: true, ..all }, &["r", "s", OFFLINE]),
        ("offline, not offered", Sources { offline: true, ..all }, &["r", "s"]),
        ("not for a client of its own", Sources { server: &server, ..all }, &["r", "s"]),
        ("no scopes at all", Sources { challenge: Some("a\"b \\ \u{e4} ok"), ..Sources::default() }, &["ok"]),
    ] {
        assert_eq!(sources.choose(), want, "{label}");
    }
}

#[test]
fn a_call_asks_twice_at_most() {
    let mut ups = StepUps::default();
    assert_eq!([ups.another(), ups.another(), ups.another(), ups.another()], [true, true, false, false]);
    let challenge = Challenge { scope: Some("a b".to_owned()), ..Challenge::default() };
    assert_eq!(lacking(&challenge, &owned(&["a"])), ["b"]);
    assert!(lacking(&challenge, &owned(&["b", "a"])).is_empty());
}
