//! Tests operator requests on a gateway in this process: every action, from every face, leaves
//! exactly one audit record.

use std::collections::BTreeSet;

use strum::VariantArray as _;
use tempfile::TempDir;

use super::alone::OfflineOperator;
use super::rekey::RekeyParams;
use super::request::*;
use super::status::StatusView;
use super::*;
use crate::config;
use crate::daemon::access::operator_name;
use crate::daemon::admin::proof::PeerProof;
use crate::daemon::admin::{build_status, operate};
use crate::daemon::gateway::{ConfigLoader, ConfigSource, RunningGateway, StopTimes};
use crate::gateway::condition::{GatewayFault, conditions};
use crate::listener::callers::credentials::CallerAccess;
use crate::policy::consent::{ApprovalSubject, CallDetails};
use crate::policy::{ActionKind, ApprovalEvidence, AuditEvent, Caller, Digest, LOCAL, OperatorAction, StatedHints};
use crate::store::approvals::OperatorAnswer;
use crate::store::audit::MAIN;
use crate::store::directory::StateDir;
use crate::store::seal::KeySource;
use crate::wire::id::ClientId;
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::message;

/// A gateway with one upstream whose program does not exist, in a temporary directory.
struct OperatorTestGateway {
    gateway: Arc<RunningGateway>,
    dir: TempDir,
}

impl OperatorTestGateway {
    fn set() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("headend.toml");
        std::fs::write(&path, "[upstreams.fx]\ncommand = [\"/no/such/program\"]\n").unwrap();
        let config::LoadedConfig { outcome, files } = config::load(&path);
        let load: ConfigLoader = Box::new({
            let path = path.clone();
            move || config::load(&path)
        });
        let warned = parking_lot::Mutex::default();
        let source = ConfigSource { path: Some(path), load, remembers: true, files: files.into(), warned };
        let store = StateDir::open(dir.path().join("state"), KeySource::default()).unwrap();
        let gateway = RunningGateway::build(outcome.unwrap().0, source, Some(store), MAIN, StopTimes::DAEMON).unwrap();
        Self { gateway: Arc::new(gateway), dir }
    }

    /// Sends a request as the user `caller`.
    async fn ask(&self, caller: &str, method: &str, params: &str) -> Result<RawJson, (i64, String)> {
        let caller = CallerAccess { caller: Caller::named(caller), ..self.gateway.own_caller() };
        let (id, params) = (ClientId::from_raw(RawJson::trusted("1")).unwrap(), RawJson::trusted(params.to_owned()));
        let request = message::Request { id, method: method.to_owned(), params: Some(params) };
        operate(&self.gateway, &caller, &mut PeerProof::new(None), &request).await
    }

    /// Opens an approval of a call by the caller `ci` and returns its id.
    fn open_approval(&self, item: &str) -> String {
        let asked = ApprovalSubject {
            caller: Caller::named("ci"),
            session: None,
            upstream: Arc::from("fx"),
            kind: ActionKind::Tool,
            item: Arc::from(item),
            definition: Digest::of(b"definition"),
            launch: Digest::of(b"launch"),
            arguments: Digest::of(b"{}"),
            rule: Arc::from("default"),
            need: ApprovalEvidence::Client,
            destructive: false,
        };
        let shown = CallDetails::new(item, StatedHints::default(), None);
        self.gateway.service.approvals.ask(asked, shown).unwrap().to_string()
    }

    /// Reads the members `action`, `by`, `name`, `result` and `why` of all actions in the log.
    async fn actions(&self) -> Vec<[String; 5]> {
        self.gateway.service.audit.flush().await;
        let log = self.dir.path().join("state/audit/audit-main-000001.jsonl");
        let log = std::fs::read_to_string(log).unwrap();
        let records = log.lines().map(|line| RawObject::parse(&RawJson::trusted(line.to_owned())).unwrap());
        let actions = records.filter(|record| record.string("event").as_deref() == Some("action"));
        let members = ["action", "by", "name", "result", "why"];
        actions.map(|record| members.map(|member| record.string(member).unwrap_or_default())).collect()
    }
}

#[tokio::test]
async fn a_lost_record_is_a_reason_for_degraded() {
    let stage = OperatorTestGateway::set();
    let service = &stage.gateway.service;
    let has_reason = || conditions(service).iter().any(|condition| condition.reason == "audit-log");
    let degraded =
        || serde_json::to_string(&build_status(&stage.gateway)).unwrap().contains("found no place in its queue");
    let writer = service.audit.hold().await;
    assert!(!has_reason() && !degraded());
    while service.audit.loss().is_none() {
        drop(service.audit.record(crate::policy::AuditEntry::new(AuditEvent::Outcome), false));
    }
    drop(writer);
    let found = conditions(service).into_iter().find(|condition| condition.reason == "audit-log").unwrap();
    assert!(found.text.contains("are lost: 1,") && !found.stops_calls && degraded());
    assert!(service.metrics.render().contains("headend_audit_failures_total 1"));
    service.audit.flush().await;
    assert!(degraded(), "a look some minutes later still finds it");
    drop(stage.dir);
}

#[tokio::test]
async fn a_refused_configuration_is_a_reason_for_degraded_until_one_is_applied() {
    let stage = OperatorTestGateway::set();
    let path = stage.dir.path().join("headend.toml");
    let good = std::fs::read_to_string(&path).unwrap();
    let found = || conditions(&stage.gateway.service).into_iter().find(|condition| condition.reason == "configuration");
    assert_eq!(found(), None);
    for (text, first) in [("[policy]\ndefault = \"alow\"\nx = 1\n", "policy.default"), ("[x", "not TOML")] {
        std::fs::write(&path, text).unwrap();
        drop(stage.ask("local", "reload", "{}").await.unwrap_err());
        let GatewayFault { text, stops_calls, .. } = found().unwrap();
        assert!(text.contains(first) && !text.contains('\n') && !stops_calls, "{text}");
        assert!(serde_json::to_string(&build_status(&stage.gateway)).unwrap().contains(first));
    }
    let since = stage.gateway.service.refused_reload.load_full().unwrap().since;
    stage.gateway.service.reload_ended(Err("later\nand more"));
    assert_eq!(stage.gateway.service.refused_reload.load_full().unwrap().since, since, "the first refusal counts");
    std::fs::write(&path, good).unwrap();
    stage.ask("local", "reload", "{}").await.unwrap();
    assert_eq!(found(), None);
}

#[tokio::test]
async fn a_status_that_a_command_has_read_has_the_same_members() {
    let stage = OperatorTestGateway::set();
    let text = |status: &StatusView| serde_json::to_string(status).unwrap();
    let running = build_status(&stage.gateway);
    let browser = Person::of_console("console:01234567");
    let off = Request::Switch(SwitchParams { name: "fx".to_owned(), on: false });
    stage.gateway.operator.perform(&off, &browser).await.unwrap();
    let disabled = build_status(&stage.gateway);
    assert_eq!([&running, &disabled].map(|status| status.upstreams[0].facts.is_some()), [true, false]);
    for status in [running, disabled] {
        let read: StatusView = serde_json::from_str(&text(&status)).unwrap();
        assert_eq!(text(&read), text(&status));
    }
}

/// Actions that other code records: sessions of the console, reloads and wrong codes.
const ELSEWHERE: [OperatorAction; 5] = [
    OperatorAction::Reload,
    OperatorAction::SignIn,
    OperatorAction::SignOut,
    OperatorAction::WrongCode,
    OperatorAction::WrongSignIn,
];

/// Requests that the console makes. Most of them are refused, which is recorded too.
fn requests_of_the_console(id: &str) -> Vec<Request> {
    let (digest, name, by_id) = (Digest::of(b"shown"), || "fx".to_owned(), || IdParams { id: id.to_owned() });
    let member = ApprovalDigest { id: id.to_owned(), digest };
    let pins = PinsParams { name: Some(name()), digest: Some(digest), ..PinsParams::default() };
    let answer = |answer| AnswerParams { id: id.to_owned(), answer, digest: Some(digest) };
    let many = |answer| AnswerManyParams { members: vec![member.clone()], answer, is_group: true };
    vec![
        Request::Answer(answer(OperatorAnswer::Once)),
        Request::Answer(answer(OperatorAnswer::Deny)),
        Request::AnswerMany(many(OperatorAnswer::Once)),
        Request::AnswerMany(many(OperatorAnswer::Deny)),
        Request::Unblock(by_id()),
        Request::Revoke(RevokeParams { id: Some(id.to_owned()), all: false }),
        Request::ApprovePins(pins.clone()),
        Request::RejectPins(pins),
        Request::BeginLogin(LoginParams { name: name(), paste: false }),
        Request::LogOut(NameParams { name: name() }),
        Request::Switch(SwitchParams { name: name(), on: false }),
        Request::Switch(SwitchParams { name: name(), on: true }),
        Request::Restart(NameParams { name: name() }),
    ]
}

#[tokio::test(start_paused = true)]
async fn each_action_leaves_one_record_from_each_face_and_a_look_leaves_none() {
    let stage = OperatorTestGateway::set();
    let own = operator_name(Caller::local()).unwrap();
    let (mut before, mut seen) = (0, BTreeSet::new());
    for (method, effect) in Request::METHODS {
        // The params suit some methods; the others are refused, which is recorded too.
        let id = if *method == "approvals.answer" { stage.open_approval("fx__a") } else { String::new() };
        let params = format!(r#"{{"name":"fx","id":"{id}","answer":"once","code":"wrong"}}"#);
        let outcome = stage.ask(LOCAL, method, &params).await;
        let actions = stage.actions().await;
        let wanted = match (*method, effect) {
            (_, RequestEffect::Act(action)) => vec![(action.into_str(), &*own)],
            ("reload", _) => vec![("reload", &*own)],
            ("operator.prove", _) => vec![("wrong-code", "unknown")],
            // A call is recorded as a decision, and a call of no tool is not recorded.
            ("call", _) | (_, RequestEffect::Look) => vec![],
            (_, RequestEffect::Elsewhere) => panic!("{method}: where?"),
        };
        let new: Vec<_> = actions[before..].iter().map(|[action, by, ..]| (&**action, &**by)).collect();
        assert_eq!(new, wanted, "{method}: {outcome:?}");
        for [action, .., result, why] in &actions[before..] {
            seen.insert(action.clone());
            assert_eq!(result, if outcome.is_ok() { "done" } else { "refused" }, "{method}");
            assert!(!why.is_empty() || *method == "console.link", "{method}");
        }
        before = actions.len();
    }
    let browser = Person::of_console("console:01234567");
    for request in requests_of_the_console(&stage.open_approval("fx__b")) {
        let outcome = stage.gateway.operator.perform(&request, &browser).await;
        let actions = stage.actions().await;
        assert_eq!(actions.len(), before + 1, "{request:?}: {outcome:?}");
        let [action, by, _, result, _] = &actions[before];
        let RequestEffect::Act(wanted) = request.effect() else { panic!("{request:?} is a look") };
        assert_eq!((&**action, &**by), (wanted.into_str(), "console:01234567"), "{request:?}");
        let is_done = outcome.as_ref().is_ok_and(|view| view.outcome().is_ok());
        assert_eq!(result, if is_done { "done" } else { "refused" }, "{request:?}");
        seen.insert(action.clone());
        before += 1;
    }
    let stranger = EndLoginParams { callback: Default::default(), cookies: Vec::new() };
    for request in [Request::OpenLogin(IdParams { id: "guess".to_owned() }), Request::EndLogin(stranger)] {
        let outcome = stage.gateway.operator.perform(&request, &browser).await;
        assert_eq!(outcome.map(|_| ()), Err(OperatorRefusal::Stranger), "strangers try as often as they like");
        assert_eq!(stage.actions().await.len(), before);
        let RequestEffect::Act(action) = request.effect() else { panic!("{request:?} is a look") };
        seen.insert(action.into_str().to_owned());
    }
    let all = OperatorAction::VARIANTS.iter().filter(|action| !ELSEWHERE.contains(action));
    let missing: Vec<_> = all.map(|action| action.into_str()).filter(|action| !seen.contains(*action)).collect();
    assert_eq!(missing, [""; 0], "an action that no face has here");
    let foreign = stage.ask("uid:4711", "restart", r#"{"name":"fx"}"#).await;
    assert!(foreign.is_err() && stage.ask(LOCAL, "no.such", "{}").await.is_err());
    assert_eq!(stage.actions().await.len(), before, "neither is an operator's action");
}

#[test]
fn each_action_without_a_daemon_leaves_one_record() {
    let dir = tempfile::tempdir().unwrap();
    let store = StateDir::open(dir.path().join("state"), KeySource::default()).unwrap();
    drop(store.db().unwrap());
    let mut alone = OfflineOperator::open(Some(&store), config::AuditSettings::default()).unwrap();
    let actions = || {
        let files = std::fs::read_dir(dir.path().join("state/audit")).into_iter().flatten();
        let texts = files.filter_map(|file| std::fs::read_to_string(file.unwrap().path()).ok());
        let lines: Vec<String> = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
        let is_action = |line: &&String| line.contains(r#""event":"action""#);
        lines.iter().filter(is_action).cloned().collect::<Vec<_>>()
    };
    let mut before = 0;
    let (name, digest) = ("ci".to_owned(), Digest::of(b"token"));
    let token = AddTokenParams { name: name.clone(), digest, scopes: Vec::new(), lifetime: None };
    let more = [
        Request::Review(NoParams {}),
        Request::AddToken(token.clone()),
        Request::AddToken(token),
        Request::RevokeToken(NameParams { name: name.clone() }),
        Request::RevokeToken(NameParams { name }),
        Request::Rekey(RekeyParams::default()),
    ];
    for request in requests_of_the_console("abcd").into_iter().chain(more) {
        let outcome = alone.perform(&request);
        let all = actions();
        let RequestEffect::Act(action) = request.effect() else { panic!("{request:?} is a look") };
        let is_possible = matches!(
            action,
            OperatorAction::Approve
                | OperatorAction::Deny
                | OperatorAction::Revoke
                | OperatorAction::Review
                | OperatorAction::PinsApprove
                | OperatorAction::PinsReject
                | OperatorAction::TokenAdd
                | OperatorAction::TokenRevoke
                | OperatorAction::Rekey
        ) && !matches!(request, Request::AnswerMany(_));
        assert_eq!(all.len() - before, usize::from(is_possible), "{request:?}: {outcome:?}");
        if is_possible {
            let word = format!(r#""action":"{}""#, action.into_str());
            let new = all.iter().filter(|line| line.contains(&word)).count();
            assert!(new > 0 && all.iter().all(|line| line.contains(r#""by":"command:uid:"#)), "{all:?}");
        }
        before = all.len();
    }
}

#[tokio::test]
async fn a_record_of_an_action_says_what_it_was_about_and_its_outcome() {
    let stage = OperatorTestGateway::set();
    let (yes, no) = (stage.open_approval("fx__a"), stage.open_approval("fx__b"));
    let answer = |id: &str, answer: &str| format!(r#"{{"id":"{id}","answer":"{answer}"}}"#);
    stage.ask(LOCAL, "approvals.answer", &answer(&yes, "8h")).await.unwrap();
    stage.ask(LOCAL, "approvals.answer", &answer(&no, "deny")).await.unwrap();
    stage.ask(LOCAL, "approvals.answer", &answer(&no, "always")).await.unwrap_err();
    stage.ask(LOCAL, "grants.revoke", r#"{"all":true}"#).await.unwrap();
    stage.ask(LOCAL, "reload", r#"{"dry-run":true}"#).await.unwrap();
    stage.ask(LOCAL, "reload", r#"{"for":"disable","name":"fx"}"#).await.unwrap();
    stage.ask(LOCAL, "restart", r#"{"name":"fy"}"#).await.unwrap_err();
    let config = stage.dir.path().join("headend.toml");
    std::fs::write(config, "[upstreams.fx]\ncommand = 3\n").unwrap();
    stage.gateway.reload_changed(None).await;
    let wanted = [
        ["approve", &yes, "done", "outcome: granted"],
        ["deny", &no, "done", "outcome: denied"],
        [
            "approve",
            &no,
            "refused",
            "this call was denied; it can be allowed once, and for longer when it is asked about again",
        ],
        ["revoke", "all", "done", "revoked: 1"],
        ["reload", "", "done", "nothing changed"],
        ["restart", "fy", "refused", "there is no upstream `fy`; `headend status` lists them"],
    ];
    let mut actions = stage.actions().await;
    let [action, by, _, result, why] = actions.pop().unwrap();
    assert_eq!([action, by, result], ["reload", "file-watch", "refused"]);
    assert!(why.contains("command"), "{why}");
    let own = operator_name(Caller::local()).unwrap();
    for ([action, by, name, result, why], wanted) in actions.iter().zip(wanted) {
        assert_eq!((&[&**action, name, result, why], by), (&wanted, &own));
    }
    assert_eq!(actions.len(), 6);

    // Searches of the log skip these records.
    let page = stage.gateway.service.audit.search(DecisionQuery::default()).await.unwrap();
    assert_eq!((page.rows.len(), page.tally.damaged), (0, 0));
    let log = std::fs::read_to_string(stage.dir.path().join("state/audit/audit-main-000001.jsonl")).unwrap();
    let revoked = log.lines().find(|line| line.contains(r#""event":"revoke""#)).unwrap();
    assert!(revoked.contains(&format!(r#""by":"{own}""#)), "{revoked}");
}

#[tokio::test]
async fn a_param_that_a_method_does_not_read_is_no_name_in_its_record() {
    let stage = OperatorTestGateway::set();
    let (yes, no) = (stage.open_approval("fx__a"), stage.open_approval("fx__b"));
    let answer = |id: &str, answer: &str| format!(r#"{{"id":"{id}","answer":"{answer}","name":"harmless"}}"#);
    for (method, params, wanted) in [
        ("approvals.answer", answer(&yes, "once"), ["approve", &yes]),
        ("approvals.answer", answer(&no, "deny"), ["deny", &no]),
        ("approvals.notify", r#"{"name":"x","id":"y"}"#.to_owned(), ["notify", ""]),
        ("grants.revoke", r#"{"all":true,"name":"one"}"#.to_owned(), ["revoke", "all"]),
        ("grants.revoke", r#"{"id":"zzz","name":"all"}"#.to_owned(), ["revoke", "zzz"]),
        ("console.link", r#"{"name":"x","all":true}"#.to_owned(), ["console-link", ""]),
        ("restart", r#"{"id":"fx","all":true,"items":[1]}"#.to_owned(), ["restart", ""]),
        ("pins.approve", r#"{"items":[],"name":"fx__a"}"#.to_owned(), ["pins-approve", ""]),
        ("login.paste", r#"{"id":"secret","name":"x"}"#.to_owned(), ["login-end", ""]),
        ("logout", r#"{"name":"fx","id":"x"}"#.to_owned(), ["logout", "fx"]),
        ("reload", r#"{"for":"enable","name":"github"}"#.to_owned(), ["reload", ""]),
        ("reload", r#"{"for":"disable","name":"fx"}"#.to_owned(), ["reload", ""]),
    ] {
        // Most of these are refused, which is recorded too.
        drop(stage.ask(LOCAL, method, &params).await);
        let actions = stage.actions().await;
        let [action, _, name, ..] = actions.last().unwrap();
        assert_eq!([action, name], wanted, "{method} {params}");
    }
    let config = stage.dir.path().join("headend.toml");
    for (enabled, word) in [(false, "disable"), (true, "enable")] {
        let text = format!("[upstreams.fx]\ncommand = [\"/no/such/program\"]\nenabled = {enabled}\n");
        std::fs::write(&config, text).unwrap();
        stage.ask(LOCAL, "reload", &format!(r#"{{"for":"{word}","name":"fx"}}"#)).await.unwrap();
        let actions = stage.actions().await;
        let [action, _, name, ..] = actions.last().unwrap();
        assert_eq!([action, name], [word, "fx"], "that upstream is what changed");
    }
}
