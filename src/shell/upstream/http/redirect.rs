//! Redirects by a server. Within its own origin a redirect is followed once, with method and body;
//! credentials are sent to no other origin.
//!
//! Only 307 and 308 keep the method of a request. A server that redirects has not processed the
//! message.

use http::header::LOCATION;
use http::{Response, StatusCode, Uri};
use url::Url;

use crate::wire::foreign;

/// Most characters of an address that the operator sees.
const SHOWN: usize = 200;

/// The decision about a redirect.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    Followed(Uri),
    /// The redirect is not followed, with a sentence for the operator.
    Refused(String),
}

impl Redirect {
    /// Judges the answer to a request to this address; `None` if it is no redirect. `is_second`
    /// says that the request was redirected before.
    pub(super) fn of<B>(response: &Response<B>, from: &Uri, is_second: bool) -> Option<Self> {
        let status = response.status();
        if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return None;
        }
        let location = response.headers().get(LOCATION)?;
        let base = Url::parse(&from.to_string()).ok()?;
        let target = location.to_str().ok().and_then(|location| base.join(location).ok());
        let Some(mut target) = target else {
            return Some(Self::Refused(format!("the server redirects (HTTP status {}) to no URL", status.as_u16())));
        };
        target.set_fragment(None);
        let refused = |why: &str| {
            let (at, to) = (shown(&base), shown(&target));
            let status = status.as_u16();
            Some(Self::Refused(format!(
                "{at} redirects to {to} (HTTP status {status}), {why}; if the server is there, write that address as `url`"
            )))
        };
        if target.origin() != base.origin() || !target.username().is_empty() || target.password().is_some() {
            return refused("which is another origin: nothing is sent there");
        }
        let keeps_method = matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        if !keeps_method {
            return refused("which does not keep the method of a request");
        }
        if is_second {
            return refused("after another redirect");
        }
        match target.as_str().parse() {
            Ok(uri) => Some(Self::Followed(uri)),
            Err(_) => refused("which is no HTTP URI"),
        }
    }
}

/// Shortens an address and removes parts that may be secret.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    let has_query = url.query().is_some();
    url.set_query(None);
    // Cannot fail: these URLs have a host.
    let _has_host = (url.set_username(""), url.set_password(None));
    let end = if has_query { "?.." } else { "" };
    format!("{}{end}", foreign::short(url.as_str(), SHOWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: u16, location: Option<&str>, is_second: bool) -> Option<Redirect> {
        let mut response = Response::builder().status(status);
        if let Some(location) = location {
            response = response.header(LOCATION, location);
        }
        let from = "https://a.example/mcp?k=1".parse().unwrap();
        Redirect::of(&response.body(()).unwrap(), &from, is_second)
    }

    #[test]
    fn only_a_redirect_within_the_origin_that_keeps_the_method_is_followed_and_once() {
        for (status, location, wanted) in [
            (307, "/mcp/", Some("https://a.example/mcp/")),
            (308, "/mcp/?k=1#x", Some("https://a.example/mcp/?k=1")),
            (308, "https://a.example:443/other", Some("https://a.example/other")),
            (307, "http://a.example/mcp/", None),
            (307, "https://a.example:444/mcp/", None),
            (307, "https://b.example/mcp/", None),
            (307, "//b.example/mcp/", None),
            (307, "https://u:p@a.example/mcp/", None),
            (301, "/mcp/", None),
            (302, "/mcp/", None),
            (303, "/mcp/", None),
            (307, "https://", None),
        ] {
            match (judged(status, Some(location), false), wanted) {
                (Some(Redirect::Followed(uri)), Some(wanted)) => assert_eq!(uri.to_string(), wanted),
                (Some(Redirect::Refused(why)), None) => assert!(why.contains("redirects"), "{why}"),
                (other, _) => panic!("{status} {location}: {other:?}"),
            }
            assert!(matches!(judged(status, Some(location), true), Some(Redirect::Refused(_))), "{status} {location}");
        }
        for (status, location) in [(307, None), (200, Some("/x")), (304, Some("/x"))] {
            assert_eq!(judged(status, location, false), None, "{status}");
        }
    }

    #[test]
    fn what_may_be_secret_in_an_address_is_not_shown() {
        let Some(Redirect::Refused(why)) = judged(302, Some("https://u:p@b.example/x?token=t"), false) else {
            panic!("followed")
        };
        assert!(
            why.contains("https://b.example/x?.. (HTTP status 302)") && why.contains("write that address"),
            "{why}"
        );
        assert!(!why.contains("token") && !why.contains("k=1") && !why.contains("u:p"), "{why}");
    }
}
