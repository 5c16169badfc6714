use std::collections::HashMap;

use super::*;
use crate::login::fixtures::{chance, document, terms};
use crate::login::server::SoughtIssuer;

const ISSUER: &str = "https://as.example";

fn server(more: &str) -> AuthorizationServer {
    let text = format!(
        r#"{{"issuer":"{ISSUER}","authorization_endpoint":"{ISSUER}/authorize?tenant=1","token_endpoint":"{ISSUER}/token",
        "code_challenge_methods_supported":["plain","S256"]{more}}}"#
    );
    AuthorizationServer::read(
        &terms("https://a.example/mcp"),
        &SoughtIssuer::Named(ISSUER.to_owned()),
        &document(&text),
    )
    .unwrap()
}

fn wait(server: &AuthorizationServer, scopes: &[String]) -> PendingAuthorization {
    let client = OAuthClient::documented("me");
    let redirect_url = "http://127.0.0.1:1/oauth/callback";
    let wish = AuthorizationRequest { client: &client, redirect_url, resource: Some("https://a.example"), scopes };
    PendingAuthorization::new(server, &wish, &chance()).unwrap()
}

#[test]
fn the_address_asks_for_what_is_needed_and_keeps_its_own_query() {
    let authorization = wait(&server(""), &["openid".to_owned(), OFFLINE.to_owned()]);
    let asked: HashMap<_, _> = authorization.url.query_pairs().into_owned().collect();
    let get = |name: &str| asked.get(name).map(String::as_str);
    assert_eq!(get("tenant"), Some("1"));
    assert_eq!(get("response_type"), Some("code"));
    assert_eq!(get("client_id"), Some("me"));
    assert_eq!(get("redirect_uri"), Some("http://127.0.0.1:1/oauth/callback"));
    assert_eq!(get("resource"), Some("https://a.example"));
    assert_eq!(get("scope"), Some("openid offline_access"));
    assert_eq!(get("prompt"), Some("consent"));
    assert_eq!(get("nonce"), authorization.nonce.as_deref());
    assert_eq!(get("state"), Some(authorization.state.expose()));
    assert_eq!(get("code_challenge_method"), Some("S256"));
    assert_eq!(get("code_challenge"), Some(&*challenge(authorization.verifier.expose())));
    assert!(!authorization.url.as_str().contains(authorization.verifier.expose()));
    assert!(!format!("{authorization:?}").contains(authorization.verifier.expose()));
    let bare = wait(&server(""), &[]);
    assert!(!bare.url.as_str().contains("scope=") && !bare.url.as_str().contains("nonce="));
    // RFC 7636, appendix B.
    assert_eq!(challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
}

#[test]
fn without_s256_no_page_is_opened() {
    for methods in ["", r#","code_challenge_methods_supported":["plain"]"#, r#","code_challenge_methods_supported":[]"#]
    {
        let mut plain = server("");
        plain.pkce = methods.contains("S256");
        let client = OAuthClient::documented("me");
        let wish = AuthorizationRequest { client: &client, redirect_url: "x", resource: None, scopes: &[] };
        assert_eq!(PendingAuthorization::new(&plain, &wish, &chance()).unwrap_err(), OAuthError::NoPkce);
    }
}

#[test]
fn the_answer_is_of_the_server_that_was_asked() {
    let silent = server("");
    let naming = server(r#","authorization_response_iss_parameter_supported":true"#);
    let authorization = wait(&silent, &[]);
    let state = authorization.state.expose();
    let judge = |server: &AuthorizationServer, query: &str| {
        let query = query.replace("STATE", state);
        authorization.returned(server, &LoginCallback::of_query(&query)).map(|code| code.expose().to_owned())
    };
    let good = Ok("c".to_owned());
    for (label, server, query, want) in [
        ("advertised and right", &naming, "code=c&state=STATE&iss=https%3A%2F%2Fas.example", good.clone()),
        ("advertised and missing", &naming, "code=c&state=STATE", Err(OAuthError::Mixed)),
        ("advertised and other", &naming, "code=c&state=STATE&iss=https://attacker.example", Err(OAuthError::Mixed)),
        ("advertised and normalised", &naming, "code=c&state=STATE&iss=https://as.example/", Err(OAuthError::Mixed)),
        ("not advertised and absent", &silent, "code=c&state=STATE", good.clone()),
        ("not advertised and right", &silent, "code=c&state=STATE&iss=https://as.example", good),
        ("not advertised and other", &silent, "code=c&state=STATE&iss=https://x.example", Err(OAuthError::Mixed)),
        (
            "an error of another server",
            &naming,
            "error=access_denied&state=STATE&iss=https://x",
            Err(OAuthError::Mixed),
        ),
        ("denied", &silent, "error=access_denied&state=STATE", Err(OAuthError::Denied(OAuthRefusal::AccessDenied))),
        ("an unknown error", &silent, "error=%3Cb%3E&state=STATE", Err(OAuthError::Denied(OAuthRefusal::Other))),
        ("another state", &silent, "code=c&state=x", Err(OAuthError::State)),
        ("no state", &silent, "code=c", Err(OAuthError::State)),
        ("two codes", &silent, "code=c&code=d&state=STATE", Err(OAuthError::State)),
        ("two states", &silent, "code=c&state=x&state=STATE", Err(OAuthError::State)),
        ("no code", &silent, "state=STATE", Err(OAuthError::NoCode)),
    ] {
        assert_eq!(judge(server, query), want, "{label}");
    }
    assert!(!OAuthError::Denied(OAuthRefusal::of("<b>")).to_string().contains('<'));
}

#[test]
fn an_address_can_be_pasted() {
    for text in ["http://127.0.0.1:1/oauth/callback?state=s&code=c#x\n", " ?state=s&code=c ", "state=s&code=c"] {
        let read = LoginCallback::of_pasted(text);
        assert_eq!(read.state.unwrap().expose(), "s");
        assert_eq!(read.code.unwrap().expose(), "c");
    }
    assert!(LoginCallback::of_query(&format!("state=s&x={}", "x".repeat(MAX_QUERY))).state.is_none());
}
