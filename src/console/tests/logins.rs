//! Tests the pages of logins: begun by the button, bound to a browser, finished by the call-back or
//! by a pasted address.

use super::fake::logins::{COOKIE, NEW, OPENED};
use super::*;

const ADDRESS: &str = "address=http%3A%2F%2F127.0.0.1%3A8628%2Foauth%2Fcallback%3Fcode%3Dc%26state%3Dthe-state";

#[tokio::test]
async fn the_button_begins_a_login_for_this_browser_and_leads_to_its_address() {
    let stage = ConsoleTestServer::set(FakeBackend::busy()).await;
    let cookie = stage.sign_in().await;
    let page = stage.get("/upstreams/docs", &cookie).await;
    assert!(page.body.contains("value=\"log-in\""), "{}", page.body);
    assert!(stage.get("/", &cookie).await.body.contains("href=\"/upstreams/docs\">Log in"), "the overview leads there");
    let csrf = page.csrf();
    let log_in = |name: &'static str, csrf: String| {
        let (stage, cookie) = (&stage, &cookie);
        let (path, form) = (format!("/upstreams/{name}"), format!("csrf={csrf}&do=log-in"));
        async move { stage.send("POST", &path, &[("Cookie", cookie)], &form).await }
    };
    assert_eq!(log_in("docs", "wrong".to_owned()).await.status, 403);
    let refused = log_in("mail", csrf.clone()).await;
    assert_eq!((refused.status, refused.header("location")), (303, Some("/upstreams/mail")));
    assert!(stage.get("/upstreams/mail", &cookie).await.body.contains("`mail` takes no login."));
    assert!(stage.desk.done().is_empty(), "{:?}", stage.desk.done());
    let begun = log_in("docs", csrf.clone()).await;
    let own = format!("/login/{OPENED}");
    assert_eq!((begun.status, begun.header("location")), (303, Some(&*own)));
    let bound = begun.header("set-cookie").unwrap();
    for part in ["headend-login-k2VbZt0s=", "HttpOnly", "SameSite=Lax", "Path=/oauth/callback", "Max-Age=600"] {
        assert!(bound.contains(part), "{bound}");
    }
    let shown = stage.get(&own, &cookie).await;
    assert!(
        shown.status == 200 && shown.body.contains("https://login.xn--exmple-cua.com/authorize?"),
        "{}",
        shown.body
    );
    assert!(shown.body.contains("in another script"), "{}", shown.body);
    assert_eq!(stage.get(&own, "").await.status, 404, "an opened login is shown to the operator alone");
    assert_eq!(stage.desk.done(), ["log in docs"]);

    let held = stage.get("/upstreams/wiki", &cookie).await.body;
    assert!(
        held.contains("alice@example.com at https://login.example.com") && held.contains("value=\"log-out\""),
        "{held}"
    );
    let out = stage.send("POST", "/upstreams/wiki", &[("Cookie", &cookie)], &format!("csrf={csrf}&do=log-out")).await;
    assert_eq!((out.status, stage.desk.done().last().map(String::as_str)), (303, Some("log out wiki")));
    assert!(!stage.get("/upstreams/files", &cookie).await.body.contains("log-in"), "it takes none");
}

#[tokio::test]
async fn an_address_is_pasted_in_the_browser_that_began_the_login_and_in_no_other() {
    let stage = ConsoleTestServer::set(FakeBackend::busy()).await;
    let link = stage.get(&format!("/login/{NEW}"), "").await;
    assert!(link.status == 200 && link.header("set-cookie").is_none(), "{}", link.body);
    let entered = stage.send("POST", &format!("/login/{NEW}"), &[], "").await;
    assert!(entered.body.contains("action=\"/oauth/callback\"") && entered.status == 200, "{}", entered.body);
    let own = entered.cookie();
    assert_eq!(own, format!("headend-login-Nm3yxXKp={COOKIE}"));
    let guess = "headend-login-Nm3yxXKp=guess";
    for (label, headers, form, status) in [
        ("no cookie", &[][..], ADDRESS, 400),
        ("another cookie", &[("Cookie", guess)], ADDRESS, 400),
        ("another state", &[("Cookie", &*own)], "address=http%3A%2F%2F127.0.0.1%2F%3Fstate%3Dother", 400),
        ("nothing", &[("Cookie", &*own)], "", 400),
        ("another site", &[("Cookie", &*own), ("Sec-Fetch-Site", "cross-site")], ADDRESS, 403),
        ("another origin", &[("Cookie", &*own), ("Origin", "https://evil.example")], ADDRESS, 403),
    ] {
        let got = stage.send("POST", "/oauth/callback", headers, form).await;
        assert_eq!(got.status, status, "{label}");
        assert_eq!(got.body.contains("name=\"address\""), status == 400, "{label}: it can be pasted again");
    }
    let done = stage.send("POST", "/oauth/callback", &[("Cookie", &own)], ADDRESS).await;
    assert!(
        done.status == 200 && done.body.contains("logged in to docs at https://login.example.com as "),
        "{}",
        done.body
    );
    assert!(!done.body.contains("<script>alert") && !done.body.contains('\u{202e}'), "{}", done.body);
}

#[tokio::test]
async fn the_pages_say_both_hosts_and_the_rights_that_are_more_than_before() {
    let stage = ConsoleTestServer::set(FakeBackend::busy()).await;
    let cookie = stage.sign_in().await;
    let same = stage.get(&format!("/login/{NEW}"), "").await.body;
    assert!(!same.contains("another host"), "{same}");
    let other = stage.get(&format!("/login/{OPENED}"), &cookie).await.body;
    assert!(other.contains("The next page is on <strong>login.xn--exmple-cua.com</strong>"), "{other}");
    assert!(other.contains("https://sso.example.com/") && !other.contains("belongs to"), "{other}");
    let entered = stage.send("POST", &format!("/login/{NEW}"), &[], "").await.body;
    assert!(entered.contains("The next page belongs to <strong>https://login.xn--exmple-cua.com/"), "{entered}");
    for page in [same, other, entered] {
        assert!(page.contains("<code>read</code></li>"), "{page}");
        assert!(page.contains("<code>write</code> <strong>more than before</strong>"), "{page}");
    }
}
