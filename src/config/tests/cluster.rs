//! Refusals of `[cluster]`.

use super::problems::refused;

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
