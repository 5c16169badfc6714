//! The URL of a store on `PostgreSQL`: its hosts, and whether the connection needs TLS.

use std::path::PathBuf;

use serde::Serialize;
use url::form_urlencoded;

use crate::source::secret::Secret;

/// How the connection to the store is protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreTls {
    /// Plain, within this machine.
    Off,
    /// TLS 1.2 or later. The server's certificate must be valid for the host of the URL, by the
    /// authorities of this file or else those of the system.
    Verified { authorities: Option<PathBuf> },
}

/// The URL of a store, which may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct StoreUrl {
    /// The URL without the parameters of TLS, for the client library.
    pub url: Secret,
    #[serde(skip)]
    pub tls: StoreTls,
}

impl StoreUrl {
    /// Returns whether a URL contains a password.
    pub(crate) fn has_password(text: &str) -> bool {
        user_info(text).contains(':') || text.contains("password=")
    }

    /// Parses a URL such as `postgres://headend@db.example/headend`.
    ///
    /// The parameter `sslmode` may ask for less than is done: off this machine the certificate is
    /// always verified, and a mode that allows a plain connection is refused.
    ///
    /// # Errors
    /// A sentence that does not contain the URL.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = "must be a URL such as \"postgres://headend@db.example/headend\"";
        let rest = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://")).ok_or(form)?;
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        let authority = address.split('/').next().unwrap_or_default();
        let named = authority.rsplit('@').next().unwrap_or_default();
        let mut hosts: Vec<String> =
            named.split(',').filter(|host| !host.is_empty()).map(|host| without_port(host).to_owned()).collect();
        let (mut mode, mut authorities, mut kept) = (None, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = form_urlencoded::parse(pair.as_bytes()).next() else { continue };
            match &*key {
                "sslmode" => mode = Some(value.into_owned()),
                "sslrootcert" => authorities = Some(PathBuf::from(&*value)),
                "sslcert" | "sslkey" => return Err("client certificates for the store are not supported".to_owned()),
                "host" | "hostaddr" => {
                    hosts.extend(value.split(',').map(str::to_owned));
                    kept.push(pair);
                }
                _ => kept.push(pair),
            }
        }
        if hosts.is_empty() {
            return Err(format!("names no host; it {form}"));
        }
        let is_local = hosts.iter().all(|host| is_local(host));
        let tls = match mode.as_deref() {
            Some("disable") if is_local => StoreTls::Off,
            None if is_local && authorities.is_none() => StoreTls::Off,
            None | Some("require" | "verify-ca" | "verify-full") => StoreTls::Verified { authorities },
            Some("disable" | "allow" | "prefer") => {
                return Err(
                    "allows a connection without TLS, which is possible within this machine only; write sslmode=verify-full"
                        .to_owned(),
                );
            }
            Some(_) => return Err("has an unknown `sslmode`; write sslmode=verify-full".to_owned()),
        };
        let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
        Ok(Self { url: Secret::new(format!("postgres://{address}{query}")), tls })
    }
}

/// Returns the user and the password before the hosts of a URL.
fn user_info(text: &str) -> &str {
    let address = text.split_once("://").map_or("", |(_, rest)| rest).split(['/', '?']).next().unwrap_or_default();
    address.rsplit_once('@').map_or("", |(user, _)| user)
}

/// Returns a host of the authority without its port.
fn without_port(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

/// Returns whether a host is a socket's folder or an address of this machine.
fn is_local(host: &str) -> bool {
    let is_folder = host.starts_with('/') || host.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("%2f"));
    is_folder || host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls(text: &str) -> Result<StoreTls, String> {
        StoreUrl::parse(text).map(|store| store.tls)
    }

    #[test]
    fn a_connection_off_this_machine_is_encrypted_and_verified() {
        let verified = StoreTls::Verified { authorities: None };
        for url in [
            "postgres://u:p@db.example/d",
            "postgresql://db.example:5433",
            "postgres://u@db.example/d?sslmode=require",
            "postgres://u@db.example/d?sslmode=verify-ca",
            "postgres://u@localhost/d?sslmode=verify-full",
            "postgres://u@localhost,db.example:1/d",
            "postgres://u@localhost/d?hostaddr=10.0.0.1",
            "postgres://u@127.0.0.1.example/d",
            "postgres://127.0.0.1@db.example/d",
            "postgres:///d?host=db.example",
        ] {
            assert_eq!(tls(url), Ok(verified.clone()), "{url}");
        }
        let with = StoreUrl::parse("postgres://u@a/d?sslrootcert=%2Fca.pem&sslmode=verify-full&connect_timeout=5");
        let with = with.unwrap();
        assert_eq!(with.tls, StoreTls::Verified { authorities: Some(PathBuf::from("/ca.pem")) });
        assert_eq!(with.url.expose(), "postgres://u@a/d?connect_timeout=5");
    }

    #[test]
    fn a_connection_within_this_machine_may_be_plain() {
        for url in [
            "postgres://u@localhost/d",
            "postgres://u@127.0.0.1:5433/d?sslmode=disable",
            "postgres://u@[::1]:5433/d",
            "postgres:///d?host=/run/postgresql",
            "postgres://%2Frun%2Fpostgresql/d",
        ] {
            assert_eq!(tls(url), Ok(StoreTls::Off), "{url}");
        }
    }

    #[test]
    fn a_url_that_leaves_a_doubt_is_refused_without_its_password() {
        for url in [
            "postgres://u:canary@db.example/d?sslmode=disable",
            "postgres://u:canary@db.example/d?sslmode=prefer",
            "postgres://u:canary@localhost/d?sslmode=allow",
            "postgres://u:canary@localhost,db.example/d?sslmode=disable",
            "postgres://u:canary@db.example/d?sslmode=any",
            "postgres://u:canary@db.example/d?sslkey=/k",
            "postgres://u:canary@/d",
            "mysql://u:canary@db.example/d",
            "canary",
        ] {
            let refused = tls(url).unwrap_err();
            assert!(!refused.contains("canary"), "{refused}");
        }
    }
}
