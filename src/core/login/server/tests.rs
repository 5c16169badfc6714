use super::*;
use crate::login::fixtures::{document, terms, texts};

fn metadata(issuer: &str, more: &str) -> PeerDocument {
    document(&format!(
        r#"{{"issuer":"{issuer}","authorization_endpoint":"{issuer}/authorize","token_endpoint":"{issuer}/token"{more}}}"#
    ))
}

#[test]
fn an_issuers_metadata_is_looked_for_in_order() {
    for (issuer, want) in [
        (
            "https://as.example",
            &[
                "https://as.example/.well-known/oauth-authorization-server",
                "https://as.example/.well-known/openid-configuration",
            ][..],
        ),
        (
            "https://as.example/tenant/1/",
            &[
                "https://as.example/.well-known/oauth-authorization-server/tenant/1",
                "https://as.example/.well-known/openid-configuration/tenant/1",
                "https://as.example/tenant/1/.well-known/openid-configuration",
            ],
        ),
    ] {
        let places = SoughtIssuer::Named(issuer.to_owned()).places(&terms("https://a.example/mcp")).unwrap();
        assert_eq!(texts(&places), want);
    }
}

#[test]
fn only_addresses_that_the_configuration_allows_are_issuers() {
    let places = |url: &str, pins: &[&str], issuer: &str| {
        let mut terms = terms(url);
        terms.issuers = pins.iter().map(|pin| (*pin).to_owned()).collect();
        SoughtIssuer::Named(issuer.to_owned()).places(&terms).map(|places| terms.reach(&places[0]).unwrap())
    };
    let (remote, local) = ("https://a.example/mcp", "http://127.0.0.1:4000/mcp");
    use crate::wire::reach::Reach;
    for (label, url, pins, issuer, want) in [
        ("public", remote, &[][..], "https://as.example", Some(Reach::Public)),
        ("own origin", remote, &[], "https://a.example/as", Some(Reach::Private)),
        ("own private origin", "https://10.0.0.1/mcp", &[], "https://10.0.0.1", Some(Reach::Private)),
        ("private", remote, &[], "https://10.0.0.1", None),
        ("pinned private", remote, &["https://10.0.0.1/as"], "https://10.0.0.1/as", Some(Reach::Private)),
        ("plain", remote, &[], "http://as.example", None),
        ("plain and pinned", remote, &["http://as.example"], "http://as.example", None),
        ("loopback", remote, &[], "https://127.0.0.1", None),
        ("plain loopback", remote, &[], "http://localhost:1", None),
        ("pinned loopback", remote, &["https://localhost:1"], "https://localhost:1", Some(Reach::Loopback)),
        ("of this machine", local, &[], "http://localhost:1", Some(Reach::Loopback)),
        ("of this machine, elsewhere", local, &[], "https://as.example", None),
        ("of this machine, pinned", local, &["https://as.example"], "https://as.example", Some(Reach::Private)),
        ("of this machine, link-local", local, &[], "http://169.254.169.254", None),
        ("mapped", local, &[], "http://[::ffff:127.0.0.1]", None),
        ("user", remote, &[], "https://user:pw@as.example/", None),
        ("backslash", remote, &[], "https://evil.example\\@good.example/", None),
        ("tab", remote, &[], "https://ex\tample.com/", None),
        ("query", remote, &[], "https://as.example/?x", None),
        ("fragment", remote, &[], "https://as.example/#x", None),
        ("no URL", remote, &[], "-oProxyCommand=x", None),
    ] {
        assert_eq!(places(url, pins, issuer).ok(), want, "{label}");
    }
}

#[test]
fn metadata_is_of_the_issuer_that_was_sought_as_text() {
    let read = |sought: &SoughtIssuer, url: &str, document: &PeerDocument| {
        AuthorizationServer::read(&terms(url), sought, document)
    };
    let named = SoughtIssuer::Named("https://as.example".to_owned());
    let found = read(&named, "https://a.example", &metadata("https://as.example", "")).unwrap();
    assert!(!found.pkce && !found.names_itself && !found.client_documents && found.auth_methods.is_none());
    let slash = read(&named, "https://a.example", &metadata("https://as.example/", "")).unwrap();
    assert_eq!(slash.issuer, "https://as.example/", "its own text counts from then on");
    let path = SoughtIssuer::Named("https://as.example/a".to_owned());
    for other in ["https://as.example/a/", "https://as.example/A", "https://as.example"] {
        assert_eq!(read(&path, "https://a.example", &metadata(other, "")), Err(OAuthError::OtherIssuer), "{other}");
    }
    for other in ["https://as.example//", "https://AS.example", "https://as.example:443", "https://honest.example"] {
        assert_eq!(read(&named, "https://a.example", &metadata(other, "")), Err(OAuthError::OtherIssuer), "{other}");
    }
    for own in ["https://a.example", "https://a.example/"] {
        assert!(read(&SoughtIssuer::OwnOrigin, "https://a.example/mcp", &metadata(own, "")).is_ok());
    }
    assert!(read(&SoughtIssuer::OwnOrigin, "https://a.example/mcp", &metadata("https://b.example", "")).is_err());
}

#[test]
fn endpoints_that_lead_elsewhere_or_into_a_shell_are_refused() {
    for endpoint in [
        "https://a.example/$(calc.exe)",
        "https://a.example/`id`",
        "-oProxyCommand=x",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "http://as.example/authorize",
        "https://127.0.0.1/authorize",
        "https://as.example/a;id",
        "https://user@as.example/",
        "",
    ] {
        for name in ["authorization_endpoint", "registration_endpoint", "revocation_endpoint", "token_endpoint"] {
            let text = format!(
                r#"{{"issuer":"https://as.example","token_endpoint":"https://as.example/t","{name}":"{endpoint}"}}"#
            );
            let text = text.replacen(
                r#""token_endpoint":"https://as.example/t","#,
                if name == "token_endpoint" { "" } else { r#""token_endpoint":"https://as.example/t","# },
                1,
            );
            let sought = SoughtIssuer::Named("https://as.example".to_owned());
            let found = AuthorizationServer::read(&terms("https://a.example"), &sought, &document(&text));
            assert!(found.is_err(), "{name} {endpoint}: {found:?}");
        }
    }
}
