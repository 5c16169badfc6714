use super::*;
use crate::engine::oauth::hidden::Hidden;
use crate::engine::oauth::server::Server;
use crate::engine::oauth::token::Tokens;

fn login(refresh: &str) -> Login {
    let url = |path: &str| url::Url::parse(&format!("https://as.example/{path}")).unwrap();
    Login {
        server: Server {
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
        tokens: Tokens {
            access: Hidden::new("canary-access".to_owned()),
            refresh: Some(Hidden::new(refresh.to_owned())),
            expires: Some(1),
            scopes: vec!["a".to_owned()],
        },
        account: None,
    }
}

fn refresh(held: &Held) -> &str {
    held.login.tokens.refresh.as_ref().unwrap().expose()
}

#[tokio::test]
async fn of_several_processes_one_renews_and_the_others_see_its_row() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = [(); 2].map(|()| Logins::new(Db::open(dir.path()).unwrap()));
    assert!(one.get("l").await.unwrap().is_none());
    let version = one.keep("l", &login("r1")).await.unwrap();
    assert_eq!(refresh(&two.get("l").await.unwrap().unwrap()), "r1");
    assert!(two.get("other").await.unwrap().is_none());
    let Claiming::Mine(claimed) = one.claim("l", version).await.unwrap() else { panic!("not mine") };
    assert!(!claimed.was_tried);
    assert!(matches!(two.claim("l", version).await.unwrap(), Claiming::Busy));
    let next = claimed.renewed(&login("r2")).await.unwrap().unwrap();
    assert!(matches!(two.claim("l", version).await.unwrap(), Claiming::Moved), "the verdict is about another row");
    assert!(!two.expire("l", version).await.unwrap(), "a late refusal of the old token ends nothing");
    let held = two.get("l").await.unwrap().unwrap();
    assert_eq!((refresh(&held), held.version, held.is_expired), ("r2", next, false));
    assert!(two.expire("l", next).await.unwrap() && one.get("l").await.unwrap().unwrap().is_expired);
    assert!(matches!(one.claim("l", next).await.unwrap(), Claiming::Moved), "an ended login is not renewed");
    assert!(two.forget("l").await.unwrap() && !one.forget("l").await.unwrap());
}

#[tokio::test]
async fn a_process_that_ends_in_the_middle_leaves_a_mark_and_no_lock() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = [(); 2].map(|()| Logins::new(Db::open(dir.path()).unwrap()));
    let version = one.keep("l", &login("r1")).await.unwrap();
    let Claiming::Mine(gone) = one.claim("l", version).await.unwrap() else { panic!("not mine") };
    // Its end, and the time that its claim has.
    drop(gone);
    two.db.damage("UPDATE logins SET claimed_until = 1");
    let Claiming::Mine(claimed) = two.claim("l", version).await.unwrap() else { panic!("not free") };
    assert!(claimed.was_tried);
    claimed.release(false).await;
    let Claiming::Mine(again) = one.claim("l", version).await.unwrap() else { panic!("not given back") };
    assert!(again.was_tried, "that nothing was sent this time says nothing of the first time");
    let next = again.renewed(&login("r2")).await.unwrap().unwrap();
    let Claiming::Mine(fresh) = two.claim("l", next).await.unwrap() else { panic!("not free") };
    assert!(!fresh.was_tried, "the mark belongs to the old token");
}

#[tokio::test]
async fn nothing_of_a_login_lies_in_the_clear() {
    let dir = tempfile::tempdir().unwrap();
    let logins = Logins::new(Db::open(dir.path()).unwrap());
    logins.keep("l", &login("canary-refresh")).await.unwrap();
    let made =
        r#"{"issuer":"https://as.example","redirect_url":"http://127.0.0.1/cb","id":"x","secret":"canary-secret"}"#;
    let made: Registration = serde_json::from_str(made).unwrap();
    logins.keep_registration("l", &made).await.unwrap();
    assert_eq!(logins.registrations("l").await.unwrap(), [made]);
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(6).any(|window| window == b"canary"));
    }
    logins.forget_registrations("l").await.unwrap();
    assert!(logins.registrations("l").await.unwrap().is_empty());
}
