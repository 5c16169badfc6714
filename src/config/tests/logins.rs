//! Tests of problems of `[upstreams.NAME.auth]`.

use super::problems::{Row, refused};

#[test]
fn logins_are_checked() {
    let rows: &[Row] = &[
        (
            "a workload without a token",
            "[upstreams.x]\nurl=\"https://x\"\nauth={type=\"workload\"}\n",
            "`type = \"workload\"` needs `client-id` and `assertion-file`",
        ),
        (
            "credentials without a client",
            "[upstreams.x]\nurl=\"https://x\"\nauth={type=\"client-credentials\"}\n",
            "needs `client-id` and `client-secret`",
        ),
        (
            "credentials without an issuer",
            "[upstreams.x]\nurl=\"https://x\"\nauth={type=\"client-credentials\",client-id=\"a\",client-secret={env=\"B\"}}\n",
            "x.auth: `client-secret` needs `issuers` with one authorization server",
        ),
        (
            "a key without an issuer",
            "[upstreams.x]\nurl=\"https://x\"\nauth={client-id=\"a\",private-key={env=\"B\"}}\n",
            "x.auth: `private-key` needs `issuers` with one authorization server",
        ),
        (
            "a workload without an issuer",
            "[upstreams.x]\nurl=\"https://x\"\nauth={type=\"workload\",client-id=\"a\",assertion-file=\"/b\"}\n",
            "x.auth: `type = \"workload\"` needs `issuers` with one authorization server",
        ),
        (
            "a secret with two issuers",
            "[upstreams.x]\nurl=\"https://x\"\nauth={client-id=\"a\",client-secret={env=\"B\"},issuers=[\"https://b\",\"https://c\"]}\n",
            "x.auth: `client-secret` needs `issuers` with one authorization server",
        ),
        (
            "an issuer on this machine for a server elsewhere",
            "[upstreams.x]\nurl=\"https://x\"\nauth={issuers=[\"http://127.0.0.1:1\"]}\n",
            "x.auth.issuers[0]: must be an https:// URL",
        ),
        (
            "a secret without a client",
            "[upstreams.x]\nurl=\"https://x\"\nauth={client-secret={env=\"B\"}}\n",
            "belongs to a `client-id`",
        ),
        (
            "two scopes in one",
            "[upstreams.x]\nurl=\"https://x\"\nauth={scopes=[\"a b\"]}\n",
            "x.auth.scopes[0]: must be one scope",
        ),
        (
            "a metadata document without a path",
            "[upstreams.x]\nurl=\"https://x\"\nauth={client-metadata-url=\"https://y\"}\n",
            "must be an https:// URL with a path",
        ),
        (
            "a resource that is no URI",
            "[upstreams.x]\nurl=\"https://x\"\nauth={resource=\"mcp\"}\n",
            "must be \"auto\", \"omit\" or the URI",
        ),
    ];
    refused(rows, "");
}

#[test]
fn a_credential_with_its_one_issuer_is_accepted() {
    for table in [
        r#"type="client-credentials",client-id="a",client-secret={env="B"},issuers=["https://b"]"#,
        r#"type="workload",client-id="a",assertion-file="/b",issuers=["https://b"]"#,
        r#"client-id="a",private-key={env="B"},issuers=["https://b"]"#,
        r#"client-id="a""#,
        r#"issuers=["https://b","https://c"]"#,
    ] {
        let text = format!("[upstreams.x]\nurl=\"https://x\"\nauth={{{table}}}\n");
        super::parse(&text, "t", &super::every, &super::paths).unwrap_or_else(|problems| panic!("{table}: {problems}"));
    }
}
