//! The way from an issuer to the address of its keys.
//!
//! Source: RFC 8414, section 3; `OpenID` Connect Discovery 1.0, section 4.

use bytes::Bytes;
use url::Url;

use super::keys::read_object;
use crate::wire::reach::{Reach, is_loopback};

const OAUTH: &str = "/.well-known/oauth-authorization-server";
const OPENID: &str = "/.well-known/openid-configuration";

/// Returns the addresses at which an issuer's metadata may lie, to ask in this order.
pub fn metadata_addresses(issuer: &str) -> Vec<Url> {
    let Ok(issuer) = Url::parse(issuer) else { return Vec::new() };
    let path = issuer.path().trim_end_matches('/');
    let at = |path: String| {
        let mut url = issuer.clone();
        url.set_path(&path);
        url
    };
    let mut addresses = vec![at(format!("{OPENID}{path}")), at(format!("{OAUTH}{path}"))];
    if !path.is_empty() {
        addresses.insert(0, at(format!("{path}{OPENID}")));
    }
    addresses
}

/// Reads the address of the key set from an issuer's metadata. `None` if the document is that of
/// another issuer, or names no address that may be asked.
pub fn key_address(document: &Bytes, issuer: &str) -> Option<Url> {
    let document = read_object(document)?;
    if document.string("issuer")? != issuer {
        return None;
    }
    let address = Url::parse(&document.string("jwks_uri")?).ok()?;
    let is_plain = address.username().is_empty() && address.password().is_none();
    let reach = reach_of(&address, issuer);
    (is_plain && (address.scheme() == "https" || reach == Reach::Loopback)).then_some(address)
}

/// Returns the machines that a request for an issuer's metadata or keys may reach: this machine for
/// an issuer on it, the issuer's own networks for its origin, and the internet for all others.
pub fn reach_of(address: &Url, issuer: &str) -> Reach {
    match Url::parse(issuer) {
        Ok(issuer) if is_loopback(&issuer) => Reach::Loopback,
        Ok(issuer) if issuer.origin() == address.origin() => Reach::Private,
        Ok(_) | Err(_) => Reach::Public,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metadata_of_an_issuer_with_a_path_has_three_places() {
        let texts = |issuer| metadata_addresses(issuer).iter().map(Url::to_string).collect::<Vec<_>>();
        assert_eq!(
            texts("https://a.example/realms/r"),
            [
                "https://a.example/realms/r/.well-known/openid-configuration",
                "https://a.example/.well-known/openid-configuration/realms/r",
                "https://a.example/.well-known/oauth-authorization-server/realms/r"
            ]
        );
        assert_eq!(texts("https://a.example/").len(), 2);
    }

    #[test]
    fn only_the_issuer_itself_names_its_keys() {
        let document =
            |issuer: &str, keys: &str| Bytes::from(format!(r#"{{"issuer":"{issuer}","jwks_uri":"{keys}"}}"#));
        for (issuer, keys, wanted) in [
            ("https://a.example", "https://a.example/k", true),
            ("https://a.example", "https://b.example/k", true),
            ("https://a.example/", "https://a.example/k", false),
            ("https://a.example", "http://a.example/k", false),
            ("https://a.example", "http://127.0.0.1/k", false),
            ("https://a.example", "https://u:p@a.example/k", false),
        ] {
            let found = key_address(&document(issuer, keys), "https://a.example");
            assert_eq!(found.is_some(), wanted, "{issuer} {keys}");
        }
        let local = document("http://127.0.0.1:9", "http://127.0.0.1:9/k");
        assert!(key_address(&local, "http://127.0.0.1:9").is_some());
        assert_eq!(reach_of(&Url::parse("https://a.example/k").unwrap(), "https://a.example"), Reach::Private);
        assert_eq!(reach_of(&Url::parse("https://b.example/k").unwrap(), "https://a.example"), Reach::Public);
    }
}
