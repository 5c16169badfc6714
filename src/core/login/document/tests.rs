use serde_json::{Value, json};

use super::*;
use crate::login::client::ClientRegistration;
use crate::login::fixtures::{document, json as answer, terms};
use crate::login::registration;
use crate::login::resource::ResourceMetadata;
use crate::login::server::{AuthorizationServer, SoughtIssuer};
use crate::login::token::LoginTokens;

const ISSUER: &str = "https://as.example";

/// Optional members of an authorization server's metadata. Source: RFC 8414, 2; RFC 9207, 3;
/// `OpenID` Connect Discovery 1.0, 3.
const SERVER: &[&str] = &[
    "authorization_endpoint",
    "jwks_uri",
    "registration_endpoint",
    "scopes_supported",
    "response_types_supported",
    "response_modes_supported",
    "grant_types_supported",
    "token_endpoint_auth_methods_supported",
    "token_endpoint_auth_signing_alg_values_supported",
    "service_documentation",
    "ui_locales_supported",
    "op_policy_uri",
    "op_tos_uri",
    "revocation_endpoint",
    "revocation_endpoint_auth_methods_supported",
    "introspection_endpoint",
    "code_challenge_methods_supported",
    "signed_metadata",
    "authorization_response_iss_parameter_supported",
    "client_id_metadata_document_supported",
    "userinfo_endpoint",
    "claims_supported",
];
/// Optional members of the metadata of a protected resource. Source: RFC 9728, 2.
const RESOURCE: &[&str] = &[
    "jwks_uri",
    "scopes_supported",
    "bearer_methods_supported",
    "resource_signing_alg_values_supported",
    "resource_name",
    "resource_documentation",
    "resource_policy_uri",
    "resource_tos_uri",
    "signed_metadata",
];
/// Optional members of a token answer. Source: RFC 6749, 5.1 and 5.2; `OpenID` Connect Core,
/// 3.1.3.3.
const TOKEN: &[&str] = &[
    "expires_in",
    "refresh_token",
    "scope",
    "id_token",
    "error",
    "error_description",
    "error_uri",
    "issued_token_type",
];
/// Optional members of a registration answer. Source: RFC 7591, 2 and 3.2.1; RFC 7592, 3.
const REGISTRATION: &[&str] = &[
    "client_secret",
    "client_id_issued_at",
    "client_secret_expires_at",
    "registration_access_token",
    "registration_client_uri",
    "redirect_uris",
    "token_endpoint_auth_method",
    "grant_types",
    "response_types",
    "client_name",
    "client_uri",
    "logo_uri",
    "scope",
    "contacts",
    "tos_uri",
    "policy_uri",
    "jwks_uri",
    "jwks",
    "software_id",
    "software_version",
];

/// Returns the document with each of these members as `null`, and with all of them.
fn with_nulls(whole: &Value, members: &[&str]) -> Vec<Value> {
    let with = |members: &[&str]| {
        let mut value = whole.clone();
        members.iter().for_each(|member| value[*member] = Value::Null);
        value
    };
    members.iter().map(|member| with(&[member])).chain([with(members)]).collect()
}

fn server(value: &Value) -> Result<AuthorizationServer, OAuthError> {
    let terms = terms("https://a.example/mcp");
    AuthorizationServer::read(&terms, &SoughtIssuer::Named(ISSUER.to_owned()), &document(&value.to_string()))
}

fn resource(value: &Value) -> Result<ResourceMetadata, OAuthError> {
    ResourceMetadata::read(&terms("https://a.example/mcp"), &document(&value.to_string()))
}

fn tokens(value: &Value) -> Result<LoginTokens, OAuthError> {
    LoginTokens::read(&answer(200, &value.to_string()), &["a".to_owned()], 1_000).map(|(tokens, _)| tokens)
}

fn registered(value: &Value) -> Result<ClientRegistration, OAuthError> {
    let server = server(&bare_server())?;
    registration::read(&terms("https://a.example/mcp"), &server, &[], &answer(201, &value.to_string()))
}

fn bare_server() -> Value {
    json!({"issuer": ISSUER, "token_endpoint": format!("{ISSUER}/token")})
}

fn same<T: PartialEq + std::fmt::Debug>(
    read: impl Fn(&Value) -> Result<T, OAuthError>,
    whole: &Value,
    members: &[&str],
) {
    let want = read(whole).unwrap();
    for nulls in with_nulls(whole, members) {
        assert_eq!(read(&nulls).ok().as_ref(), Some(&want), "{nulls}");
    }
}

#[test]
fn a_document_with_nulls_is_the_document_without_them() {
    same(server, &bare_server(), SERVER);
    same(resource, &json!({"resource": "https://a.example", "authorization_servers": [ISSUER]}), RESOURCE);
    same(tokens, &json!({"access_token": "t", "token_type": "bearer"}), TOKEN);
    same(registered, &json!({"client_id": "c"}), REGISTRATION);
}

#[test]
fn what_says_who_a_peer_is_has_to_be_there() {
    for (member, read) in
        [("issuer", true), ("token_endpoint", true), ("resource", false), ("authorization_servers", false)]
    {
        let mut value = if read {
            bare_server()
        } else {
            json!({"resource": "https://a.example", "authorization_servers": [ISSUER]})
        };
        for wrong in [Value::Null, json!(""), json!(7)] {
            value[member] = wrong;
            let refused = if read { server(&value).is_err() } else { resource(&value).is_err() };
            assert!(refused, "{value}");
        }
    }
    for text in [r#"{"access_token":null,"token_type":"Bearer"}"#, r#"{"access_token":"t","token_type":null}"#] {
        assert!(tokens(&serde_json::from_str(text).unwrap()).is_err(), "{text}");
    }
    for text in [r#"{"client_id":null}"#, r#"{"client_id":""}"#, r#"{"client_id":7}"#] {
        assert!(registered(&serde_json::from_str(text).unwrap()).is_err(), "{text}");
    }
}

#[test]
fn an_empty_text_for_what_a_client_or_a_login_does_not_have_is_none() {
    let with = |mut whole: Value, members: &[&str]| {
        members.iter().for_each(|member| whole[*member] = json!(""));
        whole
    };
    let client = json!({"client_id": "c"});
    let empty = with(client.clone(), &["client_secret", "token_endpoint_auth_method"]);
    assert_eq!(registered(&empty).unwrap(), registered(&client).unwrap());
    let bare = json!({"access_token": "t", "token_type": "BEARER"});
    let empty = with(bare.clone(), &["scope", "refresh_token", "id_token", "error", "expires_in"]);
    assert_eq!(tokens(&empty).unwrap(), tokens(&bare).unwrap());
}

#[test]
fn seconds_are_read_however_a_number_is_written() {
    for (text, want) in [
        ("3600", Some(3600)),
        ("3600.0", Some(3600)),
        ("\"3600\"", Some(3600)),
        ("\" 3600.9 \"", Some(3600)),
        ("3.6e3", Some(3600)),
        ("3.6E+3", Some(3600)),
        ("0", Some(0)),
        ("1e400", None),
        ("-1", None),
        ("\"\"", None),
        ("\"soon\"", None),
        ("\"inf\"", None),
        ("null", None),
        ("true", None),
        ("[3600]", None),
    ] {
        assert_eq!(document(&format!(r#"{{"a":{text}}}"#)).seconds("a"), want, "{text}");
    }
    assert_eq!(document("{}").seconds("a"), None);
}
