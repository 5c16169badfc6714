//! Tests that every form of the console is recorded as an action, with the session that sent it.

use std::collections::BTreeSet;

use url::form_urlencoded;

use super::fake::logins::{COOKIE, NEW};
use super::*;
use crate::policy::records::chain::RetentionBounds;
use crate::store::audit::{AuditLogOptions, MAIN};
use crate::store::db::Db;
use crate::telemetry::metrics::Metrics;

/// A console with an audit log of its actions.
struct RecordedTestServer {
    stage: ConsoleTestServer,
    audit: AuditLog,
    dir: tempfile::TempDir,
}

impl RecordedTestServer {
    async fn set() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = AuditLogOptions {
            folder: dir.path().join("audit"),
            chain: MAIN.to_owned(),
            arguments: false,
            strict: false,
            deny: true,
            max_segment: 64 << 20,
            retain: RetentionBounds::default(),
        };
        let db = Db::open(dir.path()).unwrap();
        let audit = AuditLog::open(options, db, Metrics::new().unwrap().audit()).unwrap();
        Self { stage: ConsoleTestServer::set_with(FakeBackend::busy(), audit.clone()).await, audit, dir }
    }

    /// Reads the members `action`, `by`, `name` and `result` of all records, each of which must be
    /// an action.
    async fn actions(&self) -> Vec<[String; 4]> {
        self.audit.flush().await;
        let log = std::fs::read_to_string(self.dir.path().join("audit/audit-main-000001.jsonl")).unwrap_or_default();
        let members = |line: &str| {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(record["event"], "action");
            ["action", "by", "name", "result"].map(|member| record[member].as_str().unwrap_or_default().to_owned())
        };
        log.lines().map(members).collect()
    }
}

/// Returns the path and body of each form on a page that changes something, one for each button.
fn forms(page: &str) -> Vec<(String, String)> {
    let attribute = |tag: &str, name: &str| {
        let value = tag.split_once(&format!(" {name}=\""))?.1.split('"').next()?;
        Some(value.replace("&#38;", "&").replace("&amp;", "&"))
    };
    let mut all = Vec::new();
    for form in page.split("<form").skip(1).filter(|form| form.split('>').next().unwrap().contains("\"post\"")) {
        let form = form.split("</form>").next().unwrap();
        let path = attribute(form, "action").unwrap();
        let field = |tag: &str| Some((attribute(tag, "name")?, attribute(tag, "value")?));
        let inputs: Vec<_> = form.split("<input").skip(1).filter_map(field).collect();
        let buttons = form.split("<button").skip(1).map(|tag| field(tag.split('>').next().unwrap()));
        for button in buttons {
            let fields = inputs.iter().cloned().chain(button);
            let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
            all.push((path.clone(), body));
        }
    }
    all
}

#[tokio::test]
async fn each_button_of_each_page_leaves_one_record_with_the_session_behind_it() {
    let recorded = RecordedTestServer::set().await;
    let stage = &recorded.stage;
    let cookie = stage.sign_in().await;
    let mut before = 1;
    let (mut seen, mut by) = (BTreeSet::new(), String::new());
    for path in PAGES {
        let page = stage.get(path, &cookie).await;
        assert_eq!(recorded.actions().await.len(), before, "{path}: a look leaves none");
        for (path, body) in forms(&page.body) {
            if path == "/sign-out" {
                continue;
            }
            let answer = stage.send("POST", &path, &[("Cookie", &cookie)], &body).await;
            assert_eq!(answer.status, 303, "{path} {body}");
            let actions = recorded.actions().await;
            assert_eq!(actions.len(), before + 1, "{path} {body}");
            before += 1;
            let [action, who, _, _] = actions.last().unwrap().clone();
            seen.insert(action);
            by = who;
            assert!(by.starts_with("console:") && by.len() == "console:".len() + 8, "{by}");
        }
    }
    let wanted =
        ["approve", "deny", "login-begin", "logout", "pins-approve", "pins-reject", "restart", "revoke", "unblock"];
    assert!(wanted.iter().all(|action| seen.contains(*action)) && seen.contains("disable"), "{seen:?}");
    stage.send("POST", "/upstreams/files", &[("Cookie", &cookie)], "").await;
    assert_eq!(recorded.actions().await.len(), before, "a form of another session is no action");
    let csrf = stage.get("/", &cookie).await.csrf();
    let enable = format!("csrf={csrf}&do=enable");
    stage.send("POST", "/upstreams/files", &[("Cookie", &cookie)], &enable).await;
    stage.send("POST", "/sign-out", &[("Cookie", &cookie)], &format!("csrf={csrf}")).await;
    let actions = recorded.actions().await;
    let of = |action: &str, name: &str| [action, &by, name, "done"].map(str::to_owned);
    assert_eq!(actions[before..], [of("enable", "files"), of("sign-out", "")]);
    assert_eq!(actions[0], of("sign-in", "token"));
}

#[tokio::test]
async fn sign_ins_by_link_logins_and_wrong_sign_ins_are_on_record() {
    let recorded = RecordedTestServer::set().await;
    let stage = &recorded.stage;
    let (link, _) = stage.console.link();
    let path = link.strip_prefix(&**stage.console.base()).unwrap();
    let opened = stage.send("POST", path, &[], "").await;
    assert_eq!(opened.status, 303);
    for _ in 0..20 {
        assert!(matches!(stage.send("POST", path, &[], "").await.status, 403 | 429));
        assert!(matches!(stage.send("POST", "/sign-in", &[], "token=guess").await.status, 403 | 429));
    }
    assert_eq!(stage.send("POST", &format!("/login/{NEW}"), &[], "").await.status, 200);
    assert_eq!(stage.send("POST", "/login/unknown", &[], "").await.status, 404);
    let login = format!("headend-login-x={COOKIE}");
    let ended = stage.get("/oauth/callback?code=c&state=the-state", &login).await;
    assert_eq!(ended.status, 200, "{}", ended.body);
    assert_eq!(stage.get("/oauth/callback?code=c&state=guess", &login).await.status, 400);
    let actions = recorded.actions().await;
    let of = |action: &str, by: &str, name: &str, result: &str| [action, by, name, result].map(str::to_owned);
    let by = &actions[0][1];
    assert!(by.starts_with("console:"));
    assert_eq!(
        actions,
        [
            of("sign-in", by, "link", "done"),
            of("wrong-sign-in", "unknown", "", "refused"),
            of("login-open", "console", "docs", "done"),
            of("login-end", "console", "docs", "done"),
        ]
    );
    assert!(!std::fs::read_to_string(recorded.dir.path().join("audit/audit-main-000001.jsonl")).unwrap().contains(NEW));
}
