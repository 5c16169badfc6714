//! A minimal browser for tests of the console.
#![allow(dead_code, reason = "a tool of both grounds, of which each uses its own part")]

use std::fs;
use std::net::SocketAddr;

use super::harness::Gateway;
use super::http::{TestConnection, TestResponse, request};

/// A browser with one address and one cookie.
#[derive(Debug)]
pub(crate) struct Browser {
    pub(crate) address: SocketAddr,
    pub(crate) cookie: Option<String>,
}

impl Browser {
    pub(crate) fn new(gateway: &Gateway) -> Self {
        Self { address: gateway.console_address().expect("the console is on"), cookie: None }
    }

    pub(crate) fn headers(&self) -> Vec<(String, String)> {
        let mut headers = vec![("Host".to_owned(), self.address.to_string())];
        headers.extend(self.cookie.iter().map(|cookie| ("Cookie".to_owned(), cookie.clone())));
        headers
    }

    pub(crate) fn get(&self, path: &str) -> TestResponse {
        let mut conn = TestConnection::open(self.address).unwrap();
        conn.send(&request("GET", path, &self.headers(), b"")).unwrap();
        conn.response().unwrap()
    }

    /// Sends a form as its own page would, and keeps the cookie of the answer.
    pub(crate) fn post(&mut self, path: &str, form: &str) -> TestResponse {
        let mut headers = self.headers();
        for (name, value) in [
            ("Origin", format!("http://{}", self.address)),
            ("Sec-Fetch-Site", "same-origin".to_owned()),
            ("Content-Type", "application/x-www-form-urlencoded".to_owned()),
        ] {
            headers.push((name.to_owned(), value));
        }
        let mut conn = TestConnection::open(self.address).unwrap();
        conn.send(&request("POST", path, &headers, form.as_bytes())).unwrap();
        let answer = conn.response().unwrap();
        if let Some(cookie) = answer.head.header("set-cookie") {
            self.cookie = cookie.split(';').next().map(str::to_owned);
        }
        answer
    }

    /// Presses a button on an approval's page.
    pub(crate) fn answer(&mut self, id: &str, answer: &str) {
        let path = format!("/approvals/{id}");
        let form = shown(&self.get(&path).text(), &path);
        assert_eq!(self.post(&path, &format!("{form}&answer={answer}")).head.status, 303);
    }

    pub(crate) fn signed_in(gateway: &Gateway) -> Self {
        let mut browser = Self::new(gateway);
        let token = fs::read_to_string(gateway.world.path("state/headend/console-token")).unwrap();
        assert_eq!(browser.post("/sign-in", &format!("token={}", token.trim())).head.status, 303);
        browser
    }
}

/// Returns the hidden fields of the form on a page that posts to this path.
pub(crate) fn shown(page: &str, path: &str) -> String {
    let form = page.split(&format!("action=\"{path}\"")).nth(1).unwrap_or_else(|| panic!("no form for {path}: {page}"));
    let form = form.split("</form>").next().unwrap();
    let fields = form.split("type=\"hidden\" name=\"").skip(1).map(|field| {
        let (name, rest) = field.split_once("\" value=\"").unwrap();
        format!("{name}={}", rest.split('"').next().unwrap())
    });
    fields.collect::<Vec<_>>().join("&")
}
