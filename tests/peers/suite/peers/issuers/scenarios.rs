//! Scenarios of the official suite that its published versions lack, played after their
//! description: the audience of tokens, and challenges that name scopes.

use serde_json::{Value, json};

use super::are_refused;
use super::team::{IssuerSetup, describe};
use crate::mcp::{ClientEra, Mcp, McpAnswer};

/// The authorization server is up after the gateway only, and a token needs no scope to begin.
#[test]
fn tokens_are_for_exactly_the_address_of_the_endpoint() {
    let Some(setup) = IssuerSetup::before_its_issuer() else { return };
    let mint = setup.mint(&setup.machine_token());
    let audience = mint.claim("aud").as_str().unwrap().to_owned();
    assert_eq!(audience, setup.place("/mcp"));
    let bare = mint.with_claim("scope", None);
    let discovered = client(&setup, &bare, ClientEra::Modern).request("server/discover", json!({}));
    assert!(discovered.status == 200 && discovered.code().is_none(), "{}", describe(&discovered));
    let greeting = client(&setup, &bare, ClientEra::LEGACY).greeting;
    assert!(greeting["capabilities"].is_object(), "{greeting}");
    let others = [
        format!("{audience}/"),
        setup.place(""),
        setup.place("/"),
        audience.replace("127.0.0.1", "localhost"),
        audience.to_uppercase(),
        format!("{audience}?x=1"),
        format!("{audience}#x"),
        format!("{audience}/reading"),
    ];
    let rows: Vec<_> = others.iter().map(|other| ("another audience", mint.with_claim("aud", json!(other)))).collect();
    are_refused(&setup, "/mcp", &rows);
    setup.passes("the audience itself", &mint.token());
}

#[test]
fn a_challenge_names_every_scope_that_the_call_needs() {
    let Some(setup) = IssuerSetup::new(&[]) else { return };
    let mint = setup.mint(&setup.machine_token());
    let low = mint.with_claim("scope", json!("mcp:read"));
    let full = mint.with_claim("scope", json!("mcp:read mcp:write mcp:admin"));
    for era in ClientEra::BOTH {
        let (mut low, mut full) = (client(&setup, &low, era), client(&setup, &full, era));
        let uri = full.list("resources/list", "resources")[0]["uri"].clone();
        let template = full.list("resources/templates/list", "resourceTemplates")[0]["uriTemplate"].clone();
        let filled = template.as_str().unwrap().replace("{id}", "1");
        let needs: [(&str, Value, &[&str]); 5] = [
            ("tools/call", json!({"name": "notes__add", "arguments": {"title": "a", "text": "b"}}), &["mcp:write"]),
            ("resources/read", json!({"uri": uri}), &["mcp:write"]),
            ("resources/read", json!({"uri": filled}), &["mcp:write"]),
            ("prompts/get", json!({"name": "notes__summarise", "arguments": {"id": "1"}}), &["mcp:write"]),
            ("tools/call", json!({"name": "notes__delete", "arguments": {"id": 999}}), &["mcp:admin", "mcp:write"]),
        ];
        for (method, params, scopes) in needs {
            let refused = low.request(method, params.clone());
            assert_eq!(refused.status, 403, "{method} {params}: {}", describe(&refused));
            assert_eq!(challenged(&setup, &refused), scopes, "{method} {params}: {}", describe(&refused));
            let passed = full.request(method, params.clone());
            assert!(passed.status == 200 && passed.code().is_none(), "{method} {params}: {}", describe(&passed));
        }
        // The right scope is not enough for an item that is not there.
        assert_eq!(low.call("notes__nothing", json!({})).status, 200);
    }
}

fn client(setup: &IssuerSetup, token: &str, era: ClientEra) -> Mcp {
    Mcp::http_at(setup.gateway.address, Some(token.to_owned()), era, "/mcp", json!({}))
}

/// Returns the scopes that a challenge names, in the order of their names; fails if it does not
/// lead to the metadata.
fn challenged<'a>(setup: &IssuerSetup, answer: &'a McpAnswer) -> Vec<&'a str> {
    let challenge = answer.head.header("www-authenticate").unwrap_or_default();
    let metadata = format!("resource_metadata=\"{}\"", setup.place("/.well-known/oauth-protected-resource/mcp"));
    let leads = challenge.contains("error=\"insufficient_scope\"") && challenge.contains(&metadata);
    assert!(challenge.starts_with("Bearer ") && leads, "{}", describe(answer));
    let scopes = challenge.split_once("scope=\"").unwrap().1.split('"').next().unwrap();
    let mut scopes: Vec<&str> = scopes.split(' ').collect();
    scopes.sort_unstable();
    scopes
}
