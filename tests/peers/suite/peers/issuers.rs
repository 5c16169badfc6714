//! Callers who sign in at real authorization servers: their tokens, and tokens that were forged.
//!
//! Two servers of different authors issue the tokens, and print their private keys, so that the
//! tests sign what they would never issue. The programs of this folder's clients sign in by the
//! gateway's metadata alone.

use std::net::TcpListener;

use serde_json::{Value, json};

use self::mint::{TokenMint, now};
use self::team::{IssuerSetup, TOOL, access, describe};
use crate::mcp::{ClientEra, Mcp};
use crate::peers::logins::parts::{EventPeer, post};
use crate::process::free_port;

mod clients;
mod example;
mod mint;
mod scenarios;
mod team;

/// Returns tokens that no gateway may take, each with what is wrong with it. `foreign` is a key
/// that the issuer has not published, `own` the address of a server of the forger.
fn bad_tokens(mint: &TokenMint, foreign: &Value, own: &str) -> Vec<(&'static str, String)> {
    let stranger = mint.with_key(foreign);
    let issuer = mint.claim("iss").as_str().unwrap();
    let mut rows = vec![
        ("expired", mint.with_claim("exp", json!(now() - 90))),
        ("no expiry", mint.with_claim("exp", None)),
        ("the expiry as text", mint.with_claim("exp", json!((now() + 600).to_string()))),
        ("no number as expiry", mint.with_claim("exp", json!(null))),
        ("not valid yet", mint.with_claim("nbf", json!(now() + 300))),
        ("its beginning as text", mint.with_claim("nbf", json!("now"))),
        ("a foreign audience", mint.with_claim("aud", json!("https://other.example.com/mcp"))),
        ("foreign audiences", mint.with_claim("aud", json!(["https://other.example.com/mcp", "other"]))),
        ("no audience", mint.with_claim("aud", None)),
        ("an empty list of audiences", mint.with_claim("aud", json!([]))),
        ("an audience that is no text", mint.with_claim("aud", json!([7]))),
        ("an audience that is an object", mint.with_claim("aud", json!({"resource": mint.claim("aud")}))),
        ("a foreign issuer", mint.with_claim("iss", json!("https://other.example.com"))),
        ("an issuer with a slash behind", mint.with_claim("iss", json!(format!("{issuer}/")))),
        ("no issuer", mint.with_claim("iss", None)),
        ("an issuer in a list", mint.with_claim("iss", json!([issuer]))),
        ("no subject", mint.with_claim("sub", None)),
        ("a number as subject", mint.with_claim("sub", json!(7))),
        ("an empty subject", mint.with_claim("sub", json!(""))),
        ("a subject with a line break", mint.with_claim("sub", json!("alice\nbob"))),
        ("a subject of 256 bytes", mint.with_claim("sub", json!("x".repeat(256)))),
        ("no algorithm", mint.unsigned("none")),
        ("no algorithm, in other letters", mint.unsigned("nOnE")),
        ("no signature", mint.unsigned("RS256")),
        ("an algorithm that is not the key's", mint.by_rs512()),
        ("other claims under the signature", mint.tampered()),
        ("a critical extension", mint.with_header("crit", json!(["b64"]))),
        ("an unknown key", mint.with_header("kid", json!("unknown"))),
        ("a foreign key under a known name", stranger.with_header("kid", mint.kid().clone())),
        ("a foreign key", stranger.token()),
        ("keys at the forger's address", stranger.with_header("jku", json!(own))),
        ("certificates at the forger's address", stranger.with_header("x5u", json!(own))),
        ("a key of its own", stranger.with_header("jwk", public_half(foreign))),
        ("another type", mint.with_header("typ", json!("dpop+jwt"))),
    ];
    rows.extend(mint.by_public_key());
    rows
}

/// Returns the public half of a private JWK.
fn public_half(key: &Value) -> Value {
    json!({"kty": "RSA", "n": key["n"], "e": key["e"], "alg": "RS256"})
}

/// Fails unless each token is refused with 401 and a challenge that leads to the metadata.
fn are_refused(setup: &IssuerSetup, path: &str, rows: &[(&'static str, String)]) {
    let mut wrong = Vec::new();
    for (label, token) in rows {
        let answer = setup.call_at(path, token);
        let challenge = answer.head.header("www-authenticate").unwrap_or_default();
        let metadata =
            format!("resource_metadata=\"{}\"", setup.place(&format!("/.well-known/oauth-protected-resource{path}")));
        let leads = challenge.starts_with("Bearer ")
            && challenge.contains(&metadata)
            && challenge.contains("error=\"invalid_token\"");
        if answer.status != 401 || !leads {
            wrong.push(format!("{label}: {}\n  {token}", describe(&answer)));
        }
        let signature = token.rsplit('.').next().unwrap();
        if signature.len() > 20 && setup.gateway.story().contains(signature) {
            wrong.push(format!("{label}: the log contains the token"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn tokens_of_two_real_issuers_pass_and_forged_ones_do_not() {
    let mut canaille = None;
    let Some(setup) = IssuerSetup::with(&[], |peers, setup| {
        let peer = EventPeer::start(peers, &setup.world, "canaille-server.py", &[], &[]);
        let line = format!(
            "{{ name = \"canaille\", issuer = {:?}, audiences = [\"team\"], types = [\"JWT\"], \
             scopes-claim = \"groups\" }},",
            peer.said("issuer")
        );
        canaille = Some(peer);
        (line, "[profiles.listed]\nupstreams = [\"time\"]\naudiences = [\"team\"]")
    }) else {
        return;
    };
    let canaille = canaille.unwrap();
    let next = setup.issuer.events("listening")[0]["next"].clone();
    let forger = TcpListener::bind("127.0.0.1:0").unwrap();
    forger.set_nonblocking(true).unwrap();
    let own = format!("http://{}/jwks", forger.local_addr().unwrap());

    let scope = "openid mcp:read mcp:write";
    let alice = setup.sign_in(&setup.issuer, "alice", json!({"resource": setup.place("/mcp"), "scope": scope}));
    let mint = setup.mint(&access(&alice));
    setup.passes("a token of oidc-provider", &access(&alice));
    setup.passes("a token of a machine", &setup.machine_token());
    setup.passes("a token that the test signed", &mint.token());
    setup.passes("an audience among others", &mint.with_claim("aud", json!(["other", mint.claim("aud")])));
    setup.passes("expired within the leeway", &mint.with_claim("exp", json!(now() - 30)));
    setup.passes("the long name of its type", &mint.with_header("typ", json!("application/at+jwt")));
    let mut rows = bad_tokens(&mint, &next, &own);
    rows.push(("an id token", alice["id_token"].as_str().unwrap().to_owned()));
    rows.push(("the type of an id token", mint.with_header("typ", json!("JWT"))));
    rows.push(("no type", mint.with_header("typ", None)));
    are_refused(&setup, "/mcp", &rows);

    let job = json!({"client": "team", "scope": "openid profile groups"});
    let alice = setup.sign_in(&canaille, "alice", job);
    let mint = TokenMint::like(&access(&alice), &canaille.events("listening")[0]["key"]);
    setup.passes("a token of Canaille", &access(&alice));
    setup.passes("a token that the test signed with Canaille's key", &mint.token());
    let mut rows = bad_tokens(&mint, &next, &own);
    rows.push(("an id token", alice["id_token"].as_str().unwrap().to_owned()));
    for hash in ["nonce", "at_hash", "c_hash"] {
        rows.push(("a claim of id tokens", mint.with_claim(hash, json!("x"))));
    }
    rows.push(("no scopes", mint.with_claim("groups", None)));
    are_refused(&setup, "/mcp", &rows);
    let there = |path: &str| setup.call_at(path, &mint.token());
    assert_eq!(there("/mcp/listed").status, 200, "a profile that lists its audience");
    assert_eq!(there("/mcp/reading").status, 401, "a profile that does not");

    let said = setup.gateway.stderr.all();
    assert!(said.iter().any(|line| line.contains("a JWT was refused") && line.contains("reason=")), "{said:?}");
    assert!(forger.accept().is_err(), "the gateway read the forger's keys");
    setup.passes("a good token after all that", &mint.token());
}

#[test]
fn a_token_is_good_at_the_place_it_was_asked_for_and_nowhere_else() {
    let Some(setup) = IssuerSetup::new(&[]) else { return };
    let (endpoint, profile) = ("/mcp", "/mcp/reading");
    let metadata = |path: &str| {
        let mut answer =
            ureq::get(setup.place(&format!("/.well-known/oauth-protected-resource{path}"))).call().unwrap();
        serde_json::from_str::<Value>(&answer.body_mut().read_to_string().unwrap()).unwrap()
    };
    for (path, resource) in [("", endpoint), (endpoint, endpoint), (profile, profile)] {
        let document = metadata(path);
        assert_eq!(document["resource"], json!(setup.place(resource)), "{document}");
        assert_eq!(document["authorization_servers"], json!([setup.issuer.said("issuer")]), "{document}");
    }
    let (here, there) = (setup.token("alice", &setup.place(endpoint)), setup.token("alice", &setup.place(profile)));
    for (path, good, bad) in [(endpoint, &here, &there), (profile, &there, &here)] {
        let answer = setup.call_at(path, good);
        assert_eq!(answer.status, 200, "{path}: {}", describe(&answer));
        are_refused(&setup, path, &[("a token of another place", bad.clone())]);
    }
}

#[test]
fn a_key_that_is_published_and_then_used_fails_no_call_and_a_stopped_issuer_none_either() {
    let Some(setup) = IssuerSetup::new(&[]) else { return };
    let real = setup.machine_token();
    let old = setup.mint(&real);
    let new = old.with_key(&setup.issuer.events("listening")[0]["next"]);
    let at = |what: &str| format!("{}/test/{what}", setup.issuer.said("issuer"));
    setup.passes("the first token", &real);
    for number in 0..1000 {
        match number {
            300 => post(&at("publish"), ""),
            500 => post(&at("use"), ""),
            _ => {}
        }
        let real = (number % 100 == 50).then(|| setup.machine_token());
        let minted = if number < 500 { &old } else { &new };
        let token = real.unwrap_or_else(|| minted.token());
        setup.passes(&format!("call {number}"), &token);
    }
    let fetched = setup.issuer.events("jwks").len();
    assert!((1..=3).contains(&fetched), "the keys were fetched {fetched} times");

    let IssuerSetup { issuer, peers: _peers, gateway, .. } = setup;
    drop(issuer);
    for token in [real, old.token(), new.token()] {
        let mut client = Mcp::http(gateway.address, Some(token), ClientEra::Modern);
        let answer = client.call(TOOL, json!({}));
        assert_eq!(answer.status, 200, "without the issuer: {}", describe(&answer));
    }
}

#[test]
fn an_issuer_that_was_never_reached_is_no_fault_of_its_tokens() {
    let port = free_port();
    let nowhere = format!("http://127.0.0.1:{port}");
    let line = format!("{{ name = \"away\", issuer = {nowhere:?} }},");
    let Some(setup) = IssuerSetup::with(&[], |_, _| (line, "")) else { return };
    let mint = setup.mint(&setup.machine_token());
    let answer = setup.call_at("/mcp", &mint.with_claim("iss", json!(nowhere)));
    assert_eq!(answer.status, 503, "{}", describe(&answer));
    assert!(answer.head.header("retry-after").is_some(), "{:?}", answer.head);
    setup.passes("a token of the other issuer", &mint.token());
}
