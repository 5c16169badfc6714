//! Tests of issuers: a credential is sent only to its own issuer, and a login stays with its first
//! one. Two upstreams with one URL have two logins.

use rcgen::KeyPair;

use super::*;

/// Starts another authorization server, with its log.
fn other(folder: &tempfile::TempDir) -> (Listening, InputLog) {
    let log = InputLog::new(folder.path(), "other");
    (Fake::http("modern").behaving("login=3600").logging(&log).spawn(), log)
}

pub(super) fn origin(server: &Listening) -> String {
    server.url.trim_end_matches("/mcp").to_owned()
}

/// Changes what a server answers from now on.
pub(super) fn set(server: &Listening, words: &str) {
    assert!(head(&format!("{}/set?{words}", origin(server)), None, "POST").starts_with("HTTP/1.1 200"));
}

/// Returns the tables of logins without a person, without `issuers`.
pub(super) fn unattended(folder: &tempfile::TempDir) -> [(&'static str, String); 3] {
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let key = write("key.pem", &KeyPair::generate().unwrap().serialize_pem());
    let (secret, token) = (write("secret", "canary-secret"), write("assertion", "canary-assertion"));
    let of = |kind: &str, more: &str| format!("type = {kind:?}\nclient-id = \"me\"\n{more}\n");
    [
        ("a secret", of("client-credentials", &format!("client-secret = {{ file = {secret:?} }}"))),
        ("a key", of("client-credentials", &format!("private-key = {{ file = {key:?} }}"))),
        ("a workload", of("workload", &format!("assertion-file = {token:?}"))),
    ]
}

/// Creates a world whose gateway logs in without a person.
pub(super) fn unattended_world(auth: &str, life: u64, first: &str) -> LoginGateway {
    let folder = tempfile::tempdir().unwrap();
    let log = InputLog::new(folder.path(), "server");
    let server = Fake::http("modern").behaving(&format!("login={life}")).logging(&log).spawn();
    if !first.is_empty() {
        set(&server, first);
    }
    let auth = format!("[upstreams.docs.auth]\nissuers = [{:?}]\n{auth}", origin(&server));
    let setup = GatewaySetup::new().policy("default = \"allow\"").url("docs", &server.url).toml(&auth);
    LoginGateway { gateway: setup.env("HEADEND_LOG", "trace").start(), server, log, _folder: folder }
}

fn last_error(world: &LoginGateway) -> String {
    status_of(&world.gateway, "docs")["last-error"].to_string()
}

#[test]
fn a_credential_goes_to_no_issuer_that_the_server_names() {
    let folder = tempfile::tempdir().unwrap();
    for (label, auth) in unattended(&folder) {
        // At the start, and later: when the token ends, and at a 401.
        for moment in ["start", "renewal", "401"] {
            let (other, log) = other(&folder);
            let move_there = format!("issuer={}", origin(&other));
            let is_first = moment == "start";
            let life = if moment == "renewal" { 2 } else { 3600 };
            let world = unattended_world(&auth, life, if is_first { &move_there } else { "" });
            if !is_first {
                world.gateway.wait_for_tools(&["docs__echo"]);
                assert_eq!(world.call()["result"]["content"][0]["text"], "hello", "{label}, {moment}");
                set(&world.server, &move_there);
            }
            if moment == "401" {
                head(&format!("{}/end-all", origin(&world.server)), None, "POST");
            }
            let tokens = world.asked("by itself");
            eventually("the failure names both", || {
                world.call();
                let error = last_error(&world);
                error.contains(&origin(&other)) && error.contains(&origin(&world.server))
            });
            assert_eq!(log.lines_with(&["\"login\":"]), Vec::<String>::new(), "{label}, {moment}: nothing was sent");
            // A renewal may have begun before the server moved.
            assert!(moment == "renewal" || world.asked("by itself") == tokens, "{label}, {moment}");
            assert!(!world.gateway.story().contains("canary-"), "{label}, {moment}");
        }
    }
}

#[test]
fn a_login_stays_with_its_first_issuer_until_the_operator_names_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let (other, log) = other(&folder);
    let world = world("modern", 3600);
    eventually("it waits for a login", || world.state() == "needs-login");
    world.log_in();
    assert!(world.gateway.run(&["logout", "docs"]).status.success());
    eventually("it waits for a login again", || world.state() == "needs-login");
    set(&world.server, &format!("issuer={}", origin(&other)));
    let refused = world.gateway.run(&["login", "docs", "--paste"]);
    let line = format!("issuers = [\"{}\"]", origin(&other));
    assert!(!refused.status.success(), "{}", said(&refused));
    assert!(said(&refused).contains(&line) && said(&refused).contains(&origin(&world.server)), "{}", said(&refused));
    assert_eq!(world.state(), "needs-login");
    assert!(last_error(&world).contains(&origin(&other)), "{}", last_error(&world));
    assert_eq!(log.lines_with(&["\"login\":"]), Vec::<String>::new(), "nothing was sent");

    let config = fs::read_to_string(&world.gateway.config).unwrap();
    let reloaded = world.gateway.reload(&format!("{config}\n[upstreams.docs.auth]\n{line}\n"));
    assert!(reloaded.status.success(), "{}", said(&reloaded));
    eventually("it waits for a login", || world.state() == "needs-login");
    let (mut child, _out, link) = begin(&world.gateway, &["login", "docs", "--paste"]);
    assert!(link.starts_with(&origin(&other)), "{link}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn two_upstreams_with_one_url_have_two_logins() {
    let folder = tempfile::tempdir().unwrap();
    let log = InputLog::new(folder.path(), "server");
    let server = Fake::http("modern").behaving("login=3600").logging(&log).spawn();
    let setup = GatewaySetup::new().policy("default = \"allow\"").url("docs", &server.url).url("admin", &server.url);
    let mut gateway = setup.toml("[console]\nlisten = \"127.0.0.1:0\"").start();
    let state = |gateway: &Gateway, name: &str| status_of(gateway, name)["state"].as_str().unwrap().to_owned();
    eventually("both wait", || state(&gateway, "docs") == "needs-login" && state(&gateway, "admin") == "needs-login");
    let done = paste(&gateway);
    assert!(done.status.success(), "{}", said(&done));
    gateway.wait_for_tools(&["docs__echo"]);
    // Upstream `admin` has neither the login nor the list, now and after a restart.
    for _ in 0..2 {
        eventually("one is ready", || state(&gateway, "docs") == "ready");
        eventually("the other waits", || state(&gateway, "admin") == "needs-login");
        gateway.wait_for_tools(&["docs__echo"]);
        assert!(!gateway.modern().tool_names().contains(&"admin__echo".to_owned()));
        gateway.signal(Signal::TERM);
        assert!(gateway.wait(Duration::from_secs(60)).is_some());
        gateway = Gateway::start(gateway.world.clone(), Some(gateway.config.clone()), &["serve"], &[]);
    }
    let out = gateway.run(&["logout", "admin"]);
    assert!(said(&out).contains("had no login"), "{}", said(&out));
    assert_eq!(log.lines_with(&["\"login\":\"revoke\""]), Vec::<String>::new(), "the login of `docs` is not revoked");
    eventually("one is ready", || state(&gateway, "docs") == "ready");
    assert!(gateway.modern().call("docs__echo", json!({"text": "hello"})).raw.contains("hello"));
}
