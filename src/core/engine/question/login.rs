//! The gateway's own question in a call whose upstream waits for a login: to open the upstream's
//! page in the console.

use super::approval;
use crate::mcp::asking::input::InputRequest;

/// Key of the question in `inputRequests`; no upstream's question has it.
pub const KEY: &str = "gw.login";

/// Makes the request to open the page of that upstream at `url`.
pub fn page(upstream: &str, url: &str) -> InputRequest {
    let message = format!(
        "The server {upstream} wants a login, which this call waits for. The page of headend's console shows who asks for it, and has a \
         button to log in there."
    );
    approval::page(&message, url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::version::Revision;

    #[test]
    fn the_page_is_asked_for_in_the_words_of_each_revision() {
        let asked = page("docs", "http://127.0.0.1:8628/upstreams/docs");
        let of = |revision| asked.clone().for_revision(revision, || "one".to_owned());
        let params = of(Revision::V2026_07_28).unwrap().params.unwrap();
        assert!(
            params.text().contains(r#""mode":"url""#) && !params.text().contains("elicitationId"),
            "{}",
            params.text()
        );
        let params = of(Revision::V2025_11_25).unwrap().params.unwrap();
        assert!(params.text().contains(r#""elicitationId":"one""#), "{}", params.text());
        assert!(of(Revision::V2025_06_18).is_err(), "it knows no pages");
    }
}
