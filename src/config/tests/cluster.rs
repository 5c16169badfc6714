//! Refusals of `[cluster]`.

use super::paths;
use super::problems::refused;
use crate::parse;

/// An upstream and a policy, for rows that are about something else.
const BASE: &str = "[upstreams.fs]\ncommand = [\"/bin/true\"]\n";

#[test]
fn a_cluster_without_what_it_needs_is_refused() {
    let key = "[secrets]\nkey={file=\"/a/file/with/a/name/that/is/long/enough\"}\n[cluster]\n";
    let url = "store={env=\"S\",prefix=\"postgres://db.example\"}\n";
    let with = |rest: &str| format!("{key}{url}{rest}");
    let rows = [
        ("no key", format!("[cluster]\n{url}name=\"a\"\n"), "cluster: needs `key` in [secrets]"),
        ("no store", format!("{key}name=\"a\"\n"), "cluster: needs `store`"),
        ("no name", with(""), "cluster: needs `name`"),
        ("a name", with("name=\"a b\"\n"), "cluster.name: must be"),
        ("a store", format!("{key}name=\"a\"\nstore={{env=\"S\"}}\n"), "cluster.store: must be a URL such as"),
        ("a wait", with("name=\"a\"\nstore-wait=\"2h\"\n"), "cluster.store-wait"),
        ("half a link", with("name=\"a\"\npeer-listen=\"127.0.0.1:1\"\n"), "cluster: needs both `peer-listen`"),
        (
            "a plain link",
            with("name=\"a\"\npeer-listen=\"10.0.0.7:1\"\npeer-url=\"http://10.0.0.7:1\"\n"),
            "cluster.peer-url: must be an https:// URL",
        ),
        (
            "a plain listener",
            with("name=\"a\"\npeer-listen=\"10.0.0.7:1\"\npeer-url=\"http://127.0.0.1:1\"\n"),
            "cluster.peer-listen: plain HTTP between replicas",
        ),
    ];
    refused(&rows, BASE);
}

#[test]
fn what_differs_between_replicas_may_be_in_variables() {
    let text = format!(
        "{BASE}[secrets]\nkey=\"0123456789abcdef0123456789abcdef\"\n[cluster]\nstore=\"postgres://headend@localhost/headend\"\n\
         name={{env=\"POD_NAME\"}}\npeer-listen=\"0.0.0.0:8630\"\npeer-url={{env=\"PEER_URL\"}}\n"
    );
    let pod = |name: &str| match name {
        "POD_NAME" => Some("headend-0".to_owned()),
        "PEER_URL" => Some("https://10.1.2.3:8630".to_owned()),
        _ => None,
    };
    let (config, _) = parse(&text, "t", &pod, &paths).unwrap();
    let cluster = config.cluster.unwrap();
    assert_eq!((&*cluster.name, cluster.peer_url.unwrap().as_str()), ("headend-0", "https://10.1.2.3:8630/"));
    let unset = parse(&text, "t", &|_| None, &paths).unwrap_err().to_string();
    assert!(unset.contains("cluster.name.env: ") && unset.contains("cluster.peer-url.env: "), "{unset}");
}
