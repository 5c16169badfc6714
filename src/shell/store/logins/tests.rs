use super::*;
use crate::login::hidden::SecretText;
use crate::login::server::AuthorizationServer;
use crate::login::token::LoginTokens;

fn login(refresh: &str) -> UpstreamLogin {
    let url = |path: &str| url::Url::parse(&format!("https://as.example/{path}")).unwrap();
    UpstreamLogin {
        server: AuthorizationServer {
            issuer: "https://as.example".to_owned(),
            authorization_endpoint: Some(url("authorize")),
            token_endpoint: url("token"),
            registration_endpoint: None,
            revocation_endpoint: None,
            auth_methods: None,
            scopes: Vec::new(),
            pkce: true,
            names_itself: false,
            client_documents: false,
        },
        registration: None,
        client_id: "me".to_owned(),
        resource: None,
        tokens: LoginTokens {
            access: SecretText::new("canary-access".to_owned()),
            refresh: Some(SecretText::new(refresh.to_owned())),
            expires: Some(1),
            scopes: vec!["a".to_owned()],
        },
        account: None,
    }
}

fn key(upstream: &str) -> LoginKey {
    LoginKey { upstream: upstream.to_owned(), launch: "l".to_owned() }
}

/// Stores a login that began before any other; returns its version.
async fn keep(logins: &Logins, key: &LoginKey, login: &UpstreamLogin) -> u64 {
    match logins.keep(key, login, None).await.unwrap() {
        KeepOutcome::Kept(version) => version,
        KeepOutcome::OtherIssuer(other) => panic!("{other}"),
    }
}

fn refresh(held: &StoredLogin) -> &str {
    held.login.tokens.refresh.as_ref().unwrap().expose()
}

#[tokio::test]
async fn of_several_processes_one_renews_and_the_others_see_its_row() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = [(); 2].map(|()| Logins::new(Db::open(dir.path()).unwrap()));
    assert!(one.get(&key("a")).await.unwrap().is_none());
    let version = keep(&one, &key("a"), &login("r1")).await;
    assert_eq!(refresh(&two.get(&key("a")).await.unwrap().unwrap()), "r1");
    assert!(two.get(&key("b")).await.unwrap().is_none());
    let ClaimAttempt::Mine(claimed) = one.claim(&key("a"), version).await.unwrap() else { panic!("not mine") };
    assert!(!claimed.was_tried);
    assert!(matches!(two.claim(&key("a"), version).await.unwrap(), ClaimAttempt::Busy));
    let next = claimed.renewed(&login("r2")).await.unwrap().unwrap();
    assert!(
        matches!(two.claim(&key("a"), version).await.unwrap(), ClaimAttempt::Moved),
        "the verdict is about another row"
    );
    assert!(!two.expire(&key("a"), version).await.unwrap(), "a late refusal of the old token ends nothing");
    let held = two.get(&key("a")).await.unwrap().unwrap();
    assert_eq!((refresh(&held), held.version, held.is_expired), ("r2", next, false));
    assert!(two.expire(&key("a"), next).await.unwrap() && one.get(&key("a")).await.unwrap().unwrap().is_expired);
    assert!(matches!(one.claim(&key("a"), next).await.unwrap(), ClaimAttempt::Moved), "an ended login is not renewed");
    assert!(two.forget(&key("a")).await.unwrap() && !one.forget(&key("a")).await.unwrap());
}

#[tokio::test]
async fn a_process_that_ends_in_the_middle_leaves_a_mark_and_no_lock() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = [(); 2].map(|()| Logins::new(Db::open(dir.path()).unwrap()));
    let version = keep(&one, &key("a"), &login("r1")).await;
    let ClaimAttempt::Mine(gone) = one.claim(&key("a"), version).await.unwrap() else { panic!("not mine") };
    // The process has ended, and its claim has expired.
    drop(gone);
    two.db.damage("UPDATE logins SET claimed_until = 1");
    let ClaimAttempt::Mine(claimed) = two.claim(&key("a"), version).await.unwrap() else { panic!("not free") };
    assert!(claimed.was_tried);
    claimed.release(false).await;
    let ClaimAttempt::Mine(again) = one.claim(&key("a"), version).await.unwrap() else { panic!("not given back") };
    assert!(again.was_tried, "that nothing was sent this time says nothing of the first time");
    let next = again.renewed(&login("r2")).await.unwrap().unwrap();
    let ClaimAttempt::Mine(fresh) = two.claim(&key("a"), next).await.unwrap() else { panic!("not free") };
    assert!(!fresh.was_tried, "the mark belongs to the old token");
}

#[tokio::test]
async fn nothing_of_a_login_lies_in_the_clear() {
    let dir = tempfile::tempdir().unwrap();
    let logins = Logins::new(Db::open(dir.path()).unwrap());
    keep(&logins, &key("a"), &login("canary-refresh")).await;
    let made =
        r#"{"issuer":"https://as.example","redirect_url":"http://127.0.0.1/cb","id":"x","secret":"canary-secret"}"#;
    let made: ClientRegistration = serde_json::from_str(made).unwrap();
    logins.keep_registration(&key("a"), &made).await.unwrap();
    assert_eq!(logins.registrations(&key("a")).await.unwrap(), [made]);
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(6).any(|window| window == b"canary"));
    }
    logins.forget_registrations(&key("a")).await.unwrap();
    assert!(logins.registrations(&key("a")).await.unwrap().is_empty());
}

#[tokio::test]
async fn two_upstreams_with_one_launch_have_two_logins() {
    let dir = tempfile::tempdir().unwrap();
    let logins = Logins::new(Db::open(dir.path()).unwrap());
    keep(&logins, &key("a"), &login("of a")).await;
    assert!(logins.get(&key("b")).await.unwrap().is_none(), "the account of one is not open to the other");
    keep(&logins, &key("b"), &login("of b")).await;
    assert_eq!(refresh(&logins.get(&key("a")).await.unwrap().unwrap()), "of a");
    assert!(logins.forget(&key("a")).await.unwrap());
    assert_eq!(refresh(&logins.get(&key("b")).await.unwrap().unwrap()), "of b", "the end of one leaves the other");
    logins.db.damage("UPDATE logins SET upstream = 'a'");
    assert!(logins.get(&key("a")).await.unwrap().is_none(), "a row that was moved is sealed for the other");
}

#[tokio::test]
async fn a_login_that_began_before_another_one_does_not_replace_its_issuer() {
    let dir = tempfile::tempdir().unwrap();
    let logins = Logins::new(Db::open(dir.path()).unwrap());
    let at = |issuer: &str| {
        let mut login = login(issuer);
        login.server.issuer = issuer.to_owned();
        login
    };
    let (a, e) = ("https://a.example", "https://e.example");
    let key = key("a");
    assert!(matches!(logins.keep(&key, &at(a), None).await.unwrap(), KeepOutcome::Kept(_)));
    assert_eq!(logins.keep(&key, &at(e), None).await.unwrap(), KeepOutcome::OtherIssuer(a.to_owned()));
    assert_eq!(logins.issuer(&key).await.unwrap().as_deref(), Some(a));
    assert_eq!(refresh(&logins.get(&key).await.unwrap().unwrap()), a, "the tokens stay as well");
    assert!(logins.forget(&key).await.unwrap());
    let late = logins.keep(&key, &at(e), None).await.unwrap();
    assert_eq!(late, KeepOutcome::OtherIssuer(a.to_owned()), "the issuer outlives its login");
    // Two logins at one issuer, and one that the operator moves to another.
    assert!(matches!(logins.keep(&key, &at(a), None).await.unwrap(), KeepOutcome::Kept(_)));
    assert!(matches!(logins.keep(&key, &at(e), Some(a)).await.unwrap(), KeepOutcome::Kept(_)));
    assert_eq!(logins.issuer(&key).await.unwrap().as_deref(), Some(e));
}

#[tokio::test]
async fn the_issuer_outlives_the_login() {
    let dir = tempfile::tempdir().unwrap();
    let logins = Logins::new(Db::open(dir.path()).unwrap());
    assert_eq!(logins.issuer(&key("a")).await.unwrap(), None);
    keep(&logins, &key("a"), &login("r")).await;
    logins.forget(&key("a")).await.unwrap();
    assert_eq!(logins.issuer(&key("a")).await.unwrap().as_deref(), Some("https://as.example"));
    assert_eq!(logins.issuer(&key("b")).await.unwrap(), None);
}

/// A store of version 8 has one login for all upstreams with its launch.
#[tokio::test]
async fn an_old_login_stays_with_the_one_upstream_that_has_its_launch() {
    for (owners, adopter) in [(&["a"][..], Some("a")), (&["a", "b"], None), (&[], None)] {
        let dir = tempfile::tempdir().unwrap();
        let logins = Logins::new(Db::open(dir.path()).unwrap());
        keep(&logins, &key(""), &login("old")).await;
        let mut keys: Vec<LoginKey> = owners.iter().map(|name| key(name)).collect();
        keys.push(LoginKey { launch: "another".to_owned(), ..key("c") });
        logins.adopt(keys).unwrap();
        for name in ["a", "b", "c"] {
            let held = logins.get(&key(name)).await.unwrap();
            assert_eq!(held.as_ref().map(refresh), (adopter == Some(name)).then_some("old"), "{owners:?} {name}");
        }
        if let Some(name) = adopter {
            assert_eq!(logins.issuer(&key(name)).await.unwrap().as_deref(), Some("https://as.example"));
        }
        assert_eq!(
            logins.get(&key("")).await.unwrap().is_some(),
            owners.is_empty(),
            "{owners:?}: it waits for its upstream"
        );
    }
}

#[tokio::test]
async fn an_old_login_takes_the_place_of_no_newer_one() {
    let dir = tempfile::tempdir().unwrap();
    let logins = Logins::new(Db::open(dir.path()).unwrap());
    keep(&logins, &key(""), &login("old")).await;
    keep(&logins, &key("a"), &login("new")).await;
    logins.adopt(vec![key("a")]).unwrap();
    assert_eq!(refresh(&logins.get(&key("a")).await.unwrap().unwrap()), "new");
    assert!(logins.get(&key("")).await.unwrap().is_none());
}
