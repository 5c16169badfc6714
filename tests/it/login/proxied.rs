//! A test of a login at a server that is reached only through a proxy.

use super::*;
use crate::traffic::proxy::{ProxyNetwork, behind_a_login, is_discreet, login_origin};

#[test]
fn a_login_and_its_tokens_go_through_the_proxy() {
    let (network, folder) = (ProxyNetwork::new(), tempfile::tempdir().unwrap());
    let log = InputLog::new(folder.path(), "server");
    let origin = login_origin();
    let fake = Fake::http("modern").behaving("login=3600").with("--origin", &origin).logging(&log);
    let server = fake.spawn();
    let gateway = behind_a_login(&network, &server, network.setup());
    eventually("it wants a login", || status_of(&gateway, "docs")["state"] == "needs-login");
    let (mut child, mut out, link) = begin(&gateway, &["login", "docs", "--paste"]);
    assert!(link.starts_with(&format!("{origin}/authorize?")), "{link}\n{}", gateway.story());
    // The person's browser does not use the proxy.
    let answer = head(&link.replace(&origin, &format!("http://{}", server.address())), None, "GET");
    writeln!(child.stdin.take().unwrap(), "{}", field(&answer, "location").expect(&answer)).unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{rest}{}\n{}", said(&done), gateway.story());
    gateway.wait_for_tools(&["docs__echo"]);
    for what in ["register", "code"] {
        assert_eq!(log.lines_with(&[&format!("\"login\":\"{what}\"")]).len(), 1, "{what}");
    }
    let lines = network.lines();
    assert!(lines.iter().all(|line| line.starts_with("CONNECT server.proxied.invalid:443 ")), "{lines:?}");
    is_discreet(&gateway);
}
