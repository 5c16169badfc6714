use super::*;
use crate::login::fixtures::{document, terms, texts};

#[test]
fn metadata_is_looked_for_at_the_servers_own_origin_in_order() {
    for (label, url, named, want) in [
        (
            "named",
            "https://a.example/mcp",
            Some("https://a.example/custom.json"),
            &[
                "https://a.example/custom.json",
                "https://a.example/.well-known/oauth-protected-resource/mcp",
                "https://a.example/.well-known/oauth-protected-resource",
            ][..],
        ),
        (
            "named as the path has it",
            "https://a.example/mcp/?x=1",
            Some("https://a.example/.well-known/oauth-protected-resource/mcp?x=1"),
            &[
                "https://a.example/.well-known/oauth-protected-resource/mcp?x=1",
                "https://a.example/.well-known/oauth-protected-resource",
            ],
        ),
        ("no path", "https://a.example", None, &["https://a.example/.well-known/oauth-protected-resource"]),
        (
            "this machine",
            "http://localhost:4000/mcp#x",
            None,
            &[
                "http://localhost:4000/.well-known/oauth-protected-resource/mcp",
                "http://localhost:4000/.well-known/oauth-protected-resource",
            ],
        ),
    ] {
        let places = ResourceMetadata::places(&terms(url), named).unwrap();
        assert_eq!(texts(&places), want, "{label}");
    }
}

#[test]
fn metadata_elsewhere_is_refused() {
    for named in [
        "https://b.example/x",
        "http://a.example/x",
        "https://a.example:444/x",
        "http://169.254.169.254/",
        "http://2852039166/",
        "http://0251.0376.0251.0376/",
        "http://0xA9FEA9FE/",
        "https://[64:ff9b::a9fe:a9fe]/",
        "https://[::ffff:169.254.169.254]/",
        "https://user@a.example/x",
        "https://b.example\\@a.example/",
        "https://a.exa\tmple/",
        "/relative",
        "",
    ] {
        let found = ResourceMetadata::places(&terms("https://a.example/mcp"), Some(named));
        assert_eq!(found, Err(OAuthError::ForeignMetadata), "{named}");
    }
    let unsafe_upstream = ResourceMetadata::places(&terms("http://a.example/mcp"), None);
    assert_eq!(unsafe_upstream, Err(OAuthError::Unreachable(DocumentKind::Resource)));
}

#[test]
fn metadata_of_another_resource_is_refused() {
    let read = |url: &str, resource: &str| {
        let text = format!(r#"{{"resource":"{resource}","authorization_servers":["https://as.example"]}}"#);
        ResourceMetadata::read(&terms(url), &document(&text)).map(|read| read.resource)
    };
    for resource in ["https://a.example/v1/mcp", "https://a.example", "https://a.example/", "https://a.example/v1"] {
        assert_eq!(read("https://a.example/v1/mcp", resource), Ok(resource.to_owned()));
    }
    for resource in [
        "https://b.example/v1/mcp",
        "http://a.example/v1/mcp",
        "https://a.example/v1/mc",
        "https://a.example/v1/mcp/more",
        "https://a.example/v1/mcp?x=1",
        "https://a.example/v1/mcp#x",
        "https://a.example:444/v1/mcp",
        "a.example",
    ] {
        assert_eq!(read("https://a.example/v1/mcp", resource), Err(OAuthError::OtherResource), "{resource}");
    }
    let mut own = terms("https://a.example/mcp");
    own.resource = ResourceRule::Is("urn:a".to_owned());
    let text = r#"{"resource":"https://b.example","authorization_servers":["https://as.example"]}"#;
    let found = ResourceMetadata::read(&own, &document(text)).unwrap();
    assert_eq!(resource_parameter(&own, Some(&found)).as_deref(), Some("urn:a"));
}

#[test]
fn the_parameter_is_what_was_published_byte_for_byte() {
    let mut terms = terms("https://a.example/");
    let published = |resource: &str| ResourceMetadata {
        resource: resource.to_owned(),
        issuers: vec!["https://as.example".to_owned()],
        scopes: None,
    };
    for text in ["https://a.example", "https://a.example/", "HTTPS://A.example"] {
        assert_eq!(resource_parameter(&terms, Some(&published(text))).as_deref(), Some(text));
    }
    assert_eq!(resource_parameter(&terms, None), None);
    terms.issuers = vec!["https://as.example".to_owned()];
    assert_eq!(resource_parameter(&terms, None).as_deref(), Some("https://a.example"));
    terms.resource = ResourceRule::Omit;
    assert_eq!(resource_parameter(&terms, Some(&published("https://a.example"))), None);
}
