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
    let all = ScopeSources { resource: Some(&resource), ..ScopeSources::default() };
    for (label, sources, want) in [
        ("nothing", ScopeSources::default(), &[][..]),
        ("metadata", all, &["r", "s"]),
        ("challenge", ScopeSources { challenge: Some("a  b a"), ..all }, &["a", "b"]),
        ("the operator's", ScopeSources { configured: &own, ..all }, &["own"]),
        (
            "the operator's and the challenge",
            ScopeSources { configured: &own, challenge: Some("a"), ..all },
            &["own", "a"],
        ),
        ("more rights", ScopeSources { granted: &granted, challenge: Some("a"), ..all }, &["old", "a"]),
        ("offline", ScopeSources { server: &server, offline: true, ..all }, &["r", "s", OFFLINE]),
        ("offline, not offered", ScopeSources { offline: true, ..all }, &["r", "s"]),
        ("not for a client of its own", ScopeSources { server: &server, ..all }, &["r", "s"]),
        ("no scopes at all", ScopeSources { challenge: Some("a\"b \\ \u{e4} ok"), ..ScopeSources::default() }, &["ok"]),
    ] {
        assert_eq!(sources.choose(), want, "{label}");
    }
}

#[test]
fn a_call_asks_twice_at_most() {
    let mut ups = StepUps::default();
    assert_eq!([ups.another(), ups.another(), ups.another(), ups.another()], [true, true, false, false]);
    let challenge = BearerChallenge { scope: Some("a b".to_owned()), ..BearerChallenge::default() };
    assert_eq!(missing_scopes(&challenge, &owned(&["a"])), ["b"]);
    assert!(missing_scopes(&challenge, &owned(&["b", "a"])).is_empty());
}
