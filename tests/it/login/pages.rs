//! Tests of the console's login button, and of addresses pasted on its page.

use super::*;
use crate::tools::browser::Browser;

/// Returns the value of an attribute in the page's text after this mark.
fn behind(page: &str, mark: &str) -> String {
    let (_, rest) = page.split_once(mark).unwrap_or_else(|| panic!("no {mark}: {page}"));
    rest.split('"').next().unwrap().replace("&#38;", "&").replace("&amp;", "&")
}

/// Presses the button on the page of `docs`. Returns the login's cookie, and the address of the
/// login page.
fn begin(browser: &mut Browser) -> (String, String) {
    let page = browser.get("/upstreams/docs").text();
    let form = format!("csrf={}&do=log-in", behind(&page, "name=\"csrf\" value=\""));
    let session = browser.headers();
    let begun = browser.post("/upstreams/docs", &form);
    assert_eq!(begun.head.status, 303, "{}", begun.text());
    let cookie = begun.head.header("set-cookie").unwrap().to_owned();
    assert!(cookie.contains("SameSite=Lax") && cookie.contains("Path=/oauth/callback"), "{cookie}");
    // A real browser keeps both; this one has the latest.
    let session = session.into_iter().find(|(name, _)| name == "Cookie").unwrap().1;
    let at = format!("http://{}{}", browser.address, begun.head.header("location").unwrap());
    let page = head(&at, Some(&session), "GET");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(head(&at, None, "GET").starts_with("HTTP/1.1 404"), "for the operator alone");
    (cookie.split(';').next().unwrap().to_owned(), behind(&page, "class=\"button primary\" href=\""))
}

/// Returns the address to which the login page sends its browser.
fn back(address: &str) -> String {
    let answer = head(address, None, "GET");
    field(&answer, "location").expect(&answer).to_owned()
}

/// Sends a form to the call-back.
fn paste(browser: &Browser, cookie: &str, address: &str) -> String {
    let host = browser.address.to_string();
    send(&host, &pasting(&host, cookie, address))
}

#[test]
fn the_button_logs_in_by_the_redirect_or_by_a_pasted_address() {
    let world = world("modern", 3600);
    eventually("it waits for a login", || world.state() == "needs-login");
    let overview = Browser::signed_in(&world.gateway).get("/").text();
    assert!(overview.contains("href=\"/upstreams/docs\">Log in"), "{overview}");
    for is_pasted in [false, true] {
        let mut browser = Browser::signed_in(&world.gateway);
        let (cookie, address) = begin(&mut browser);
        let (stranger, _) = begin(&mut Browser::signed_in(&world.gateway));
        let back = back(&address);
        for wrong in ["headend-login-aaaaaaaa=guess", &*stranger] {
            assert!(paste(&browser, wrong, &back).starts_with("HTTP/1.1 400"), "the cookie of another login");
        }
        assert!(paste(&browser, &cookie, &back.replace("state=", "state=x")).starts_with("HTTP/1.1 400"));
        assert_ne!(world.state(), "ready");
        let done = if is_pasted { paste(&browser, &cookie, &back) } else { head(&back, Some(&cookie), "GET") };
        assert!(done.starts_with("HTTP/1.1 200") && done.contains("logged in to docs at http://127.0.0.1"), "{done}");
        assert!(paste(&browser, &cookie, &back).starts_with("HTTP/1.1 400"), "a state is used once");
        eventually("it is connected", || world.state() == "ready");
        world.gateway.wait_for_tools(&["docs__echo"]);

        let mut browser = Browser::signed_in(&world.gateway);
        let page = browser.get("/upstreams/docs").text();
        assert!(page.contains("<dt>Login</dt>") && page.contains("value=\"log-out\""), "{page}");
        let out = format!("csrf={}&do=log-out", behind(&page, "name=\"csrf\" value=\""));
        assert_eq!(browser.post("/upstreams/docs", &out).head.status, 303);
        eventually("it waits for a login again", || world.state() == "needs-login");
    }
    assert!(world.asked("revoke") >= 2, "the server was told");
    let story = world.gateway.story();
    assert!(!story.contains("canary-"), "{}", story.lines().find(|line| line.contains("canary-")).unwrap());
}

#[test]
fn a_redirect_to_another_place_ends_on_the_page() {
    let setup = GatewaySetup::new().toml("[upstreams.docs.auth]\nredirect-url = \"http://127.0.0.1:9/elsewhere\"");
    let world = world_of(setup, "modern", 3600);
    eventually("it waits for a login", || world.state() == "needs-login");
    let browser = &mut Browser::signed_in(&world.gateway);
    let (cookie, address) = begin(browser);
    let back = back(&address);
    assert!(back.starts_with("http://127.0.0.1:9/elsewhere?"), "{back}");
    assert!(paste(browser, &cookie, &back).contains("logged in to docs"));
    eventually("it is connected", || world.state() == "ready");
}
