use proptest::prelude::*;

use super::*;

fn bearer(values: &[&str]) -> Option<BearerChallenge> {
    BearerChallenge::bearer(values.iter().map(|value| value.as_bytes()))
}

#[test]
fn the_challenge_of_bearer_is_found_beside_any_other() {
    let metadata = Some("https://a.example/x?y=1,2".to_owned());
    for (label, values, want) in [
        ("plain", &["Bearer"][..], Some(BearerChallenge::default())),
        ("none", &[], None),
        ("other scheme", &["Basic realm=\"x\""], None),
        (
            "quoted, any case",
            &["bEARER Resource_Metadata=\"https://a.example/x?y=1,2\", scope=\"a b\", error=\"invalid_token\""],
            Some(BearerChallenge {
                resource_metadata: metadata.clone(),
                scope: Some("a b".to_owned()),
                error: Some(TokenComplaint::InvalidToken),
            }),
        ),
        (
            "after others in one value",
            &["Negotiate abc==, Basic realm=\"a, Bearer x=\\\"y\\\"\", Bearer error=insufficient_scope"],
            Some(BearerChallenge { error: Some(TokenComplaint::InsufficientScope), ..BearerChallenge::default() }),
        ),
        (
            "in the second value, without quotes",
            &["Basic realm=x", ", ,Bearer resource_metadata=https://a.example/x?y=1"],
            Some(BearerChallenge {
                resource_metadata: Some("https://a.example/x?y=1".to_owned()),
                ..BearerChallenge::default()
            }),
        ),
        (
            "blanks around the sign",
            &["Bearer error = \"other\" , scope\t=\t\"a\""],
            Some(BearerChallenge {
                scope: Some("a".to_owned()),
                error: Some(TokenComplaint::Other),
                ..BearerChallenge::default()
            }),
        ),
        ("a parameter that stands twice says nothing", &["Bearer scope=a, scope=b"], Some(BearerChallenge::default())),
        ("a parameter of the next scheme", &["Bearer, Basic scope=a"], Some(BearerChallenge::default())),
        ("a quote that never ends", &["Bearer scope=\"a"], Some(BearerChallenge::default())),
        ("a value without a name", &["=x, Bearer scope=a"], None),
        ("a control in a quote", &["Bearer scope=\"a\u{1}\""], Some(BearerChallenge::default())),
    ] {
        assert_eq!(bearer(values), want, "{label}");
    }
}

#[test]
fn a_long_value_is_cut() {
    let many = "A, ".repeat(20) + "Bearer";
    assert_eq!(bearer(&[&many]), None);
    let long = format!("Basic realm=\"{}\", Bearer", "x".repeat(MAX_BYTES));
    assert_eq!(bearer(&[&long]), None);
    let params = (0..100).map(|n| format!("p{n}=x")).collect::<Vec<_>>().join(", ");
    assert_eq!(bearer(&[&format!("Bearer {params}, scope=a")]), Some(BearerChallenge::default()));
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        crate::login::fuzz::challenges(&bytes);
    }

    #[test]
    fn texts_like_challenges_are_read(text in "([A-Za-z=\", \\\\]|Bearer |scope=|\"|, ){0,60}") {
        crate::login::fuzz::challenges(text.as_bytes());
    }

    #[test]
    fn what_is_written_is_read(scope in "[ -~]{1,40}", place in "[a-z:/.]{1,40}") {
        let quoted = scope.replace('\\', "\\\\").replace('"', "\\\"");
        let value = format!("Digest a=\"{quoted}\", Bearer scope=\"{quoted}\", resource_metadata=\"{place}\"");
        let read = bearer(&[&value]).unwrap();
        prop_assert_eq!(read.scope.as_deref(), Some(&*scope));
        prop_assert_eq!(read.resource_metadata.as_deref(), Some(&*place));
    }
}
