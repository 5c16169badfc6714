use super::*;
use crate::login::fixtures::{document, json, terms};
use crate::login::server::SoughtIssuer;

const ISSUER: &str = "https://as.example";

fn server(methods: &str) -> AuthorizationServer {
    let text = format!(
        r#"{{"issuer":"{ISSUER}","token_endpoint":"{ISSUER}/token","revocation_endpoint":"{ISSUER}/revoke"{methods}}}"#
    );
    AuthorizationServer::read(
        &terms("https://a.example/mcp"),
        &SoughtIssuer::Named(ISSUER.to_owned()),
        &document(&text),
    )
    .unwrap()
}

fn login(server: AuthorizationServer, method: Option<&str>) -> UpstreamLogin {
    let registration = ClientRegistration {
        issuer: ISSUER.to_owned(),
        redirect_url: String::new(),
        scopes: Vec::new(),
        id: "me:1".to_owned(),
        secret: Some(SecretText::new("canary &1".to_owned())),
        method: method.map(str::to_owned),
        expires: None,
    };
    let tokens = LoginTokens {
        access: SecretText::new("canary-access".to_owned()),
        refresh: Some(SecretText::new("canary-refresh".to_owned())),
        expires: Some(100),
        scopes: vec!["a".to_owned()],
    };
    let (resource, account) = (Some("https://a.example/mcp".to_owned()), None);
    UpstreamLogin {
        server,
        client_id: registration.id.clone(),
        registration: Some(registration),
        resource,
        tokens,
        account,
    }
}

fn moment() -> AssertionMoment {
    AssertionMoment { now: 1_000, once: [1; 16] }
}

fn sent(request: &OAuthRequest) -> (String, Option<String>) {
    let RequestContent::Form(form) = &request.content else { panic!("{request:?}") };
    (form.expose().to_owned(), request.authorization.as_ref().map(|value| value.expose().to_owned()))
}

#[test]
fn a_client_says_who_it_is_as_it_was_registered_or_as_the_server_takes_it() {
    let refresh = "grant_type=refresh_token&refresh_token=canary-refresh&resource=https%3A%2F%2Fa.example%2Fmcp";
    let basic = Some(format!("Basic {}", data_encoding::BASE64.encode(b"me%3A1:canary+%261")));
    let post = "&client_id=me%3A1&client_secret=canary+%261";
    let none = "&client_id=me%3A1";
    for (label, offered, registered, form, authorization) in [
        ("nothing said", "", None, none, basic.clone()),
        (
            "basic",
            r#","token_endpoint_auth_methods_supported":["client_secret_post","client_secret_basic"]"#,
            None,
            none,
            basic.clone(),
        ),
        ("post", r#","token_endpoint_auth_methods_supported":["client_secret_post"]"#, None, post, None),
        ("none", r#","token_endpoint_auth_methods_supported":["none"]"#, None, none, None),
        ("registered", r#","token_endpoint_auth_methods_supported":["none"]"#, Some("client_secret_post"), post, None),
        ("registered as public", "", Some("none"), none, None),
        ("registered as basic", "", Some("client_secret_basic"), none, basic),
    ] {
        let request = login(server(offered), registered).refresh(&terms("https://a.example/mcp"), moment());
        let request = request.unwrap().unwrap();
        assert_eq!(sent(&request), (format!("{refresh}{form}"), authorization), "{label}");
        assert_eq!(request.url.as_str(), "https://as.example/token");
        assert!(!format!("{request:?}").contains("canary"), "{request:?}");
    }
}

#[test]
fn a_login_serves_its_own_issuer_and_client_alone() {
    let login = login(server(""), None);
    let mut terms = terms("https://a.example/mcp");
    assert!(login.fits(&terms));
    terms.issuers = vec!["https://other.example".to_owned()];
    assert!(matches!(login.refresh(&terms, moment()), Err(OAuthError::NotPinned { .. })));
    assert!(login.revoke(&terms, moment()).is_err());
    terms.issuers = vec![ISSUER.to_owned()];
    assert!(login.fits(&terms));
    (terms.issuers, terms.first_issuer) = (Vec::new(), Some("https://other.example".to_owned()));
    assert!(matches!(login.refresh(&terms, moment()), Err(OAuthError::OtherThanFirst { .. })));
    terms.issuers = vec![ISSUER.to_owned()];
    assert!(login.fits(&terms), "the operator's word counts");
    terms.client = Some(super::super::client::ConfiguredClient { id: "other".to_owned(), secret: None, key: None });
    assert!(!login.fits(&terms));
    let moved = UpstreamLogin { client_id: "other".to_owned(), registration: None, ..login };
    assert!(moved.fits(&terms));
    let secret = Some(SecretText::new("s".to_owned()));
    terms.client = Some(super::super::client::ConfiguredClient { id: "other".to_owned(), secret, key: None });
    assert!(moved.fits(&terms));
    terms.issuers.clear();
    assert!(matches!(moved.refresh(&terms, moment()), Err(OAuthError::OneIssuer)), "the secret has no issuer");
    terms.client = None;
    assert!(!moved.fits(&terms));
}

#[test]
fn a_refresh_keeps_what_the_server_does_not_replace() {
    let login = login(server(""), None);
    let all = r#"{"access_token":"n","token_type":"bearer","expires_in":5,"refresh_token":"r2","scope":"a b"}"#;
    let renewed = login.refreshed(&json(200, all), 1_000).unwrap();
    assert_eq!(renewed.tokens.refresh.as_ref().map(SecretText::expose), Some("r2"));
    assert_eq!((renewed.tokens.expires, renewed.tokens.scopes.join(" ")), (Some(1_005), "a b".to_owned()));
    let few = r#"{"access_token":"n","token_type":"Bearer","expires_in":"60"}"#;
    let renewed = login.refreshed(&json(200, few), 1_000).unwrap();
    assert_eq!(renewed.tokens.refresh.as_ref().map(SecretText::expose), Some("canary-refresh"));
    assert_eq!((renewed.tokens.expires, renewed.tokens.scopes.join(" ")), (Some(1_060), "a".to_owned()));
}

#[test]
fn only_bearer_tokens_are_taken_and_no_text_of_the_server_is_repeated() {
    let login = login(server(""), None);
    let token = |kind: &str| format!(r#"{{"access_token":"x"{kind},"canary":1}}"#);
    let error = |code: &str| format!(r#"{{"error":"{code}","error_description":"canary"}}"#);
    for (status, body, want) in [
        (200, token(r#","token_type":"mac""#), OAuthError::Token("its type is not Bearer")),
        (200, token(""), OAuthError::Token("its type is not Bearer")),
        (200, r#"{"token_type":"Bearer"}"#.to_owned(), OAuthError::Token("the answer has no access token")),
        (
            200,
            r#"{"access_token":"a\r\nb","token_type":"Bearer"}"#.to_owned(),
            OAuthError::Token("the answer has no access token"),
        ),
        (200, error("invalid_grant"), OAuthError::Refused(OAuthRefusal::InvalidGrant)),
        (400, error("invalid_grant"), OAuthError::Refused(OAuthRefusal::InvalidGrant)),
        (401, error("invalid_client"), OAuthError::Refused(OAuthRefusal::InvalidClient)),
        (400, error("canary"), OAuthError::Refused(OAuthRefusal::Other)),
        (400, "<p>canary".to_owned(), OAuthError::Refused(OAuthRefusal::Other)),
        (200, "canary".to_owned(), OAuthError::NoAnswer(AnswerFailure::NotJson)),
        (200, r#"["x"]"#.to_owned(), OAuthError::NoAnswer(AnswerFailure::NotJson)),
        (
            200,
            r#"{"access_token":"a","access_token":"b","token_type":"Bearer"}"#.to_owned(),
            OAuthError::NoAnswer(AnswerFailure::NotJson),
        ),
        (302, String::new(), OAuthError::NoAnswer(AnswerFailure::Redirect)),
        (503, error("invalid_grant"), OAuthError::NoAnswer(AnswerFailure::Busy)),
        (429, String::new(), OAuthError::NoAnswer(AnswerFailure::Busy)),
    ] {
        let found = login.refreshed(&json(status, &body), 1).unwrap_err();
        assert_eq!(found, want, "{status} {body}");
        assert!(!found.to_string().contains("canary"));
        assert_eq!(found.ends_grant(), want == OAuthError::Refused(OAuthRefusal::InvalidGrant));
        assert_eq!(found.passes(), want == OAuthError::NoAnswer(AnswerFailure::Busy));
    }
}

#[test]
fn the_account_is_the_issuers_own() {
    let token = |text: &str| format!("e30.{}.sig", BASE64URL_NOPAD.encode(text.as_bytes()));
    let server = server("");
    let read = |text: &str, nonce| account(claims(&token(text)).as_ref(), &server, nonce);
    let account = read(r#"{"iss":"https://as.example","sub":"1","email":"a@b.example","nonce":"n"}"#, Some("n"));
    assert_eq!(account, Ok(Some(LoginAccount { subject: "1".to_owned(), shown: "a@b.example".to_owned() })));
    assert_eq!(read(r#"{"sub":"1","nonce":"m"}"#, Some("n")), Err(OAuthError::Mixed));
    assert_eq!(read(r#"{"sub":"1","iss":"https://x.example"}"#, None), Err(OAuthError::Mixed));
    assert_eq!(read("no JSON", Some("n")), Ok(None));
    assert!(claims("a.b").is_none() && claims("").is_none());
}

#[test]
fn both_tokens_are_revoked_the_refresh_token_first() {
    let all = login(server(""), Some("none")).revoke(&terms("https://a.example/mcp"), moment()).unwrap();
    let forms: Vec<_> = all.iter().map(|request| sent(request).0).collect();
    assert_eq!(
        forms,
        [
            "token=canary-refresh&token_type_hint=refresh_token&client_id=me%3A1",
            "token=canary-access&token_type_hint=access_token&client_id=me%3A1",
        ]
    );
    assert!(!format!("{all:?} {:?}", login(server(""), None)).contains("canary"));
}
