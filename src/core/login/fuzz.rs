//! Fuzzed properties of what peers send during a login.
#![allow(clippy::panic, clippy::unwrap_used, clippy::indexing_slicing, reason = "a property fails by panicking")]

use bytes::Bytes;

use super::authorize::LoginCallback;
use super::challenge::{BearerChallenge, parse};
use super::fixtures;
use super::flow::{LoginAction, LoginFlow, LoginHistory, LoginKind};
use super::request::{OAuthAnswer, OAuthRequest, RequestContent};
use super::terms::LoginTerms;
use crate::wire::fuzz::halves;
use crate::wire::reach::Reach;

/// Checks that challenges are read or ignored, and that a challenge written from what was read is
/// read alike.
pub fn challenges(data: &[u8]) {
    let read = parse(data.split(|byte| *byte == b'\n'));
    for any in &read {
        assert!(any.params.len() <= 32 && !any.scheme.is_empty());
        let quote = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let params = any.params.iter().map(|(name, value)| format!("{name}=\"{}\"", quote(value)));
        let written = format!("{} {}", any.scheme, params.collect::<Vec<_>>().join(", "));
        if written.len() < 4096 {
            assert_eq!(parse([written.as_bytes()]), std::slice::from_ref(any), "{written}");
        }
    }
    assert!(read.len() <= 16);
    let _found = BearerChallenge::bearer(data.split(|byte| *byte == b'\n'));
}

/// Checks that a login ends however servers answer, that nothing is asked outside of what the
/// configuration allows, and that no secret goes to an address that was not judged. The first line
/// is the challenge, each further line an answer.
pub fn logins(data: &[u8]) {
    let (challenge, rest) = halves(data);
    for (url, is_local) in [("https://mcp.example/a/mcp", false), ("http://127.0.0.1:4000/mcp", true)] {
        let terms = fixtures::terms(url);
        let mut flow = LoginFlow::new(
            terms.clone(),
            LoginKind::Person,
            BearerChallenge::bearer([challenge]),
            LoginHistory::default(),
            fixtures::chance(),
            1,
        );
        let mut answers = rest.split(|byte| *byte == b'\n').map(Bytes::copy_from_slice);
        let mut steps = 0;
        loop {
            steps += 1;
            assert!(steps < 20, "a login that never ends");
            match flow.next() {
                LoginAction::Send(request) => {
                    judged(&terms, &request, is_local);
                    let body = answers.next().unwrap_or_default();
                    // A blank line stands for an address without a document.
                    let status = if body.is_empty() { 404 } else { 200 };
                    flow.answered(Ok(OAuthAnswer { status, is_json: true, body }), 1);
                }
                LoginAction::Open(authorization) => {
                    assert!(terms.reach(&authorization.url).is_some());
                    let line = answers.next().unwrap_or_default();
                    let query = String::from_utf8_lossy(&line).into_owned();
                    let wild = flow.returned(&LoginCallback::of_query(&query), 1);
                    if wild.is_err() && matches!(flow.next(), LoginAction::Open(_)) {
                        let issuer = flow.server().unwrap().issuer.clone();
                        let query = url::form_urlencoded::Serializer::new(String::new())
                            .append_pair("state", authorization.state.expose())
                            .append_pair("code", "c")
                            .append_pair("iss", &issuer)
                            .finish();
                        flow.returned(&LoginCallback::of_query(&query), 1).unwrap();
                    }
                }
                LoginAction::Done(login) => {
                    assert!(login.fits(&terms));
                    let text = serde_json::to_string(&*login).unwrap();
                    assert_eq!(serde_json::from_str::<super::token::UpstreamLogin>(&text).unwrap(), *login);
                    break;
                }
                LoginAction::Failed(error) => {
                    assert!(error.to_string().len() < 500);
                    break;
                }
            }
        }
    }
}

/// Checks that a request goes where the terms allow, and that a GET carries no credential.
fn judged(terms: &LoginTerms, request: &OAuthRequest, is_local: bool) {
    assert_eq!(terms.reach(&request.url), Some(request.reach));
    assert_eq!(request.reach == Reach::Loopback, is_local, "{}", request.url);
    assert!(is_local || request.url.scheme() == "https");
    if let RequestContent::None = request.content {
        assert!(request.authorization.is_none());
    }
}
