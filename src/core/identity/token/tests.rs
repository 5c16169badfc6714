use super::*;
use crate::identity::fixtures::{TestKey, key_set};

const NOW: Duration = Duration::from_secs(1_800_000_000);
const ISSUER: &str = "https://login.example.com";
const GOOD: &str = r#""iss":"https://login.example.com","aud":"https://h/mcp","exp":1800000300,"sub":"alice""#;

fn terms() -> IssuerTerms {
    IssuerTerms::new("corp".to_owned(), ISSUER.to_owned())
}

fn keys(keys: &[&TestKey]) -> KeySet {
    KeySet::parse(&Bytes::from(key_set(keys))).unwrap()
}

fn judge(token: &str, terms: &IssuerTerms, keys: &KeySet) -> Result<ValidToken, TokenRefusal> {
    PresentedToken::parse(token.as_bytes())?.validate(terms, keys, NOW)
}

#[test]
fn a_valid_token_gives_its_caller_scopes_groups_and_expiry() {
    let key = TestKey::new("k1");
    let claims = format!(r#"{{{GOOD},"scope":"b a b","groups":["g","h","g"]}}"#);
    let valid = judge(&key.token(&claims), &terms(), &keys(&[&key])).unwrap();
    let texts = |texts: &[&str]| texts.iter().map(|text| Box::from(*text)).collect::<Box<[Box<str>]>>();
    assert_eq!(valid.caller, Caller::issued("corp", "alice").unwrap());
    assert_eq!(valid.rights.scopes, Scopes::Of(texts(&["b", "a"])));
    assert_eq!(valid.rights.groups, Groups::Of(texts(&["g", "h"])));
    assert_eq!(valid.audiences, ["https://h/mcp"]);
    assert_eq!(valid.expires, Duration::from_secs(1_800_000_360));
    assert!(keys(&[&key]).has(&valid.key) && !keys(&[&TestKey::new("k1")]).has(&valid.key));
}

#[test]
fn claims_of_the_wrong_kind_are_refused() {
    let key = TestKey::new("k1");
    let set = keys(&[&key]);
    for (label, claims, want) in [
        ("no issuer", r#""aud":"a","exp":1800000300,"sub":"alice""#, TokenRefusal::NoIssuer),
        ("another issuer", r#""iss":"https://x","aud":"a","exp":1800000300,"sub":"a""#, TokenRefusal::OtherIssuer),
        ("issuers", r#""iss":["https://login.example.com"],"aud":"a","exp":1800000300"#, TokenRefusal::ClaimType),
        ("no audience", r#""iss":"https://login.example.com","exp":1800000300,"sub":"a""#, TokenRefusal::NoAudience),
        (
            "null audience",
            r#""iss":"https://login.example.com","aud":null,"exp":1800000300,"sub":"a""#,
            TokenRefusal::ClaimType,
        ),
        (
            "no audiences",
            r#""iss":"https://login.example.com","aud":[],"exp":1800000300,"sub":"a""#,
            TokenRefusal::NoAudience,
        ),
        (
            "a number",
            r#""iss":"https://login.example.com","aud":["a",1],"exp":1800000300,"sub":"a""#,
            TokenRefusal::ClaimType,
        ),
        ("no expiry", r#""iss":"https://login.example.com","aud":"a","sub":"a""#, TokenRefusal::NoExpiry),
        (
            "expiry as text",
            r#""iss":"https://login.example.com","aud":"a","exp":"1800000300","sub":"a""#,
            TokenRefusal::ClaimType,
        ),
        ("below zero", r#""iss":"https://login.example.com","aud":"a","exp":-1,"sub":"a""#, TokenRefusal::ClaimType),
        ("expired", r#""iss":"https://login.example.com","aud":"a","exp":1799999940,"sub":"a""#, TokenRefusal::Expired),
        ("no subject", r#""iss":"https://login.example.com","aud":"a","exp":1800000300"#, TokenRefusal::Subject),
        (
            "an empty one",
            r#""iss":"https://login.example.com","aud":"a","exp":1800000300,"sub":"""#,
            TokenRefusal::Subject,
        ),
        (
            "a number",
            r#""iss":"https://login.example.com","aud":"a","exp":1800000300,"sub":1"#,
            TokenRefusal::ClaimType,
        ),
        (
            "a line break",
            r#""iss":"https://login.example.com","aud":"a","exp":1800000300,"sub":"a\nb""#,
            TokenRefusal::Subject,
        ),
        (
            "twice",
            r#""iss":"https://login.example.com","iss":"https://x","aud":"a","exp":1800000300"#,
            TokenRefusal::Json,
        ),
    ] {
        assert_eq!(judge(&key.token(&format!("{{{claims}}}")), &terms(), &set).unwrap_err(), want, "{label}");
    }
    for (label, more, want) in [
        ("not yet", r#""nbf":1800000061"#, Some(TokenRefusal::NotYetValid)),
        ("within the leeway", r#""nbf":1800000060"#, None),
        ("nbf as text", r#""nbf":"1""#, Some(TokenRefusal::ClaimType)),
        ("scopes of a wrong type", r#""scope":7"#, Some(TokenRefusal::ClaimType)),
        ("a nonce does not matter beside a type of its own", r#""nonce":"n""#, None),
    ] {
        let token = key.token(&format!("{{{GOOD},{more}}}"));
        assert_eq!(judge(&token, &terms(), &set).err(), want, "{label}");
    }
}

#[test]
fn headers_and_signatures_of_the_wrong_kind_are_refused() {
    let (key, other) = (TestKey::new("k1"), TestKey::new("k1"));
    let set = keys(&[&key]);
    let claims = format!("{{{GOOD}}}");
    for (label, header, want) in [
        ("none", r#"{"alg":"none","typ":"at+jwt"}"#, Some(TokenRefusal::Algorithm)),
        ("a secret", r#"{"alg":"HS256","typ":"at+jwt","kid":"k1"}"#, Some(TokenRefusal::Algorithm)),
        ("no algorithm", r#"{"typ":"at+jwt","kid":"k1"}"#, Some(TokenRefusal::Algorithm)),
        ("of another key", r#"{"alg":"RS256","typ":"at+jwt","kid":"k1"}"#, Some(TokenRefusal::OtherKey)),
        ("ES384 on P-256", r#"{"alg":"ES384","typ":"at+jwt","kid":"k1"}"#, Some(TokenRefusal::OtherKey)),
        ("an unknown key", r#"{"alg":"ES256","typ":"at+jwt","kid":"k2"}"#, Some(TokenRefusal::UnknownKey)),
        ("a key id that is no text", r#"{"alg":"ES256","typ":"at+jwt","kid":1}"#, Some(TokenRefusal::ClaimType)),
        ("no key id", r#"{"alg":"ES256","typ":"at+jwt"}"#, None),
        ("crit", r#"{"alg":"ES256","typ":"at+jwt","kid":"k1","crit":["exp"]}"#, Some(TokenRefusal::Critical)),
        ("empty crit", r#"{"alg":"ES256","typ":"at+jwt","kid":"k1","crit":null}"#, Some(TokenRefusal::Critical)),
        ("another type", r#"{"alg":"ES256","typ":"JWT","kid":"k1"}"#, Some(TokenRefusal::Type)),
        ("no type", r#"{"alg":"ES256","kid":"k1"}"#, Some(TokenRefusal::Type)),
        ("the long type", r#"{"alg":"ES256","typ":"application/AT+JWT","kid":"k1"}"#, None),
        (
            "another place for keys",
            r#"{"alg":"ES256","typ":"at+jwt","kid":"k9","jku":"https://x"}"#,
            Some(TokenRefusal::UnknownKey),
        ),
    ] {
        assert_eq!(judge(&key.token_with(header, &claims), &terms(), &set).err(), want, "{label}");
    }
    assert_eq!(judge(&other.token(&claims), &terms(), &set).unwrap_err(), TokenRefusal::Signature);
    let jwk = format!(r#"{{"alg":"ES256","typ":"at+jwt","kid":"k1","jwk":{}}}"#, other.jwk());
    assert_eq!(judge(&other.token_with(&jwk, &claims), &terms(), &set).unwrap_err(), TokenRefusal::Signature);
    let token = key.token(&claims);
    let unsigned = format!("{}.", token.rsplit_once('.').unwrap().0);
    assert_eq!(judge(&unsigned, &terms(), &set).unwrap_err(), TokenRefusal::Signature);
    for text in ["", "a", "a.b", "a.b.c.d", "a.b.c", "e30.e30.", "\u{fc}.b.c", "a b.c.d"] {
        assert!(PresentedToken::parse(text.as_bytes()).is_err(), "{text:?}");
    }
    let two = keys(&[&key, &other]);
    let header = r#"{"alg":"ES256","typ":"at+jwt"}"#;
    assert_eq!(judge(&key.token_with(header, &claims), &terms(), &two).unwrap_err(), TokenRefusal::UnknownKey);
}

#[test]
fn a_token_of_the_general_type_must_be_no_id_token() {
    let key = TestKey::new("k1");
    let mut terms = terms();
    terms.types = vec!["JWT".to_owned()];
    let header = r#"{"alg":"ES256","typ":"jwt","kid":"k1"}"#;
    for (label, more, want) in [
        ("an access token", r#""scope":"a""#, None),
        ("no scope in it", r#""scope":"""#, None),
        ("no scopes", r#""x":1"#, Some(TokenRefusal::NoScopes)),
        ("a nonce", r#""scope":"a","nonce":"n""#, Some(TokenRefusal::IdToken)),
        ("a digest of a token", r#""scope":"a","at_hash":"n""#, Some(TokenRefusal::IdToken)),
        ("a digest of a code", r#""scope":"a","c_hash":"n""#, Some(TokenRefusal::IdToken)),
    ] {
        let token = key.token_with(header, &format!("{{{GOOD},{more}}}"));
        assert_eq!(judge(&token, &terms, &keys(&[&key])).err(), want, "{label}");
    }
}

#[test]
fn claims_have_the_names_of_the_terms_and_groups_may_be_unknown() {
    let key = TestKey::new("k1");
    let mut terms = terms();
    (terms.subject_claim, terms.scopes_claim, terms.groups_claim) = ("oid".into(), "scp".into(), "roles".into());
    let many = format!(r#"["{}"]"#, vec!["g"; MAX_LIST + 1].join("\",\""));
    for (label, roles, unknown) in [
        ("a list", r#"["g"]"#, false),
        ("a text", "\"g\"", false),
        ("an object", "{}", true),
        ("too many", &many, true),
    ] {
        let claims = format!(r#"{{{GOOD},"oid":"o-1","scp":["a","b"],"roles":{roles}}}"#);
        let valid = judge(&key.token(&claims), &terms, &keys(&[&key])).unwrap();
        assert_eq!(valid.caller.name(), "corp:o-1", "{label}");
        assert!(valid.rights.scopes.has("b"), "{label}");
        assert_eq!(valid.rights.groups == Groups::Unknown, unknown, "{label}");
    }
    let valid = judge(&key.token(&format!(r#"{{{GOOD},"oid":"o"}}"#)), &terms, &keys(&[&key])).unwrap();
    assert_eq!(valid.rights.groups, Groups::Unknown);
}

#[test]
fn keys_for_other_uses_are_not_in_the_set() {
    let key = TestKey::new("k1");
    for (label, text, empty) in [
        ("good", key.jwk(), false),
        ("for encryption", key.jwk().replace("\"sig\"", "\"enc\""), true),
        ("another operation", key.jwk().replace("\"use\":\"sig\"", "\"key_ops\":[\"sign\"]"), true),
        ("another algorithm", key.jwk().replace("\"use\"", "\"alg\":\"RS256\",\"use\""), true),
        ("a secret", r#"{"kty":"oct","k":"c2VjcmV0","alg":"HS256"}"#.to_owned(), true),
        ("an unknown curve", key.jwk().replace("P-256", "P-521"), true),
    ] {
        let set = KeySet::parse(&Bytes::from(format!(r#"{{"keys":[{text}]}}"#))).unwrap();
        assert_eq!(set.is_empty(), empty, "{label}");
    }
    assert!(["", "[]", "{}", r#"{"keys":{}}"#].iter().all(|text| KeySet::parse(&Bytes::from(*text)).is_none()));
}
