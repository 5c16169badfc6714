use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwapOption;

use super::*;
use crate::base::budget::ByteBudget;
use crate::base::callers::CallerCounts;
use crate::base::stop::StopTimes;
use crate::base::task_group::TaskGroup;
use crate::catalog::inventory::Inventory;
use crate::catalog::merge::{ItemFilters, MergeSource, NamingRules, merge};
use crate::catalog::name::UpstreamName;
use crate::config;
use crate::gateway::client::ClientContext;
use crate::gateway::client::admission::RequestAdmission;
use crate::gateway::client::connected::ConnectedClients;
use crate::gateway::client::handed_uris::HandedUris;
use crate::gateway::held::HeldCalls;
use crate::gateway::keys::Keys;
use crate::gateway::role::GatewayRole;
use crate::gateway::snapshot::{CatalogView, Snapshot};
use crate::gateway::supervisor::{self, SupervisorHandle, SupervisorServices};
use crate::gateway::turned_away::MAX_NAME;
use crate::mcp::definition::item::Definition;
use crate::mcp::method::{ItemList, Method};
use crate::mcp::version::Revision;
use crate::policy::{Caller, Limiter, Policy, PolicySpec, RuleEffect, RuleSpec};
use crate::store::approvals::Approvals;
use crate::store::audit::AuditLog;
use crate::store::leases::Leases;
use crate::store::pins::PinRegistry;
use crate::store::recent::RecentDecisions;
use crate::telemetry::metrics::Metrics;
use crate::upstream::call::parks::ParkedCalls;
use crate::upstream::login::parts::LoginServices;
use crate::upstream::net::client::HttpClient;
use crate::upstream::process::mark::OwnerMarks;
use crate::upstream::spawner::IntakeLimits;
use crate::wire::json::raw::{RawJson, RawObject};

/// Makes a gateway without upstreams whose catalog has the tools `fx__open` and `fx__hidden`.
struct Gateway {
    service: Arc<Service>,
    _supervised: SupervisorHandle,
}

fn gateway() -> Gateway {
    let no_file = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
    let (config, _) = config::parse("", "test.toml", &|_| None, &no_file).unwrap_or_else(|why| panic!("{why}"));
    let (metrics, limits) = (Metrics::new().unwrap(), config.server.limits.clone());
    let budget = ByteBudget::new(limits.buffered_bytes);
    let leases = Leases::new(None, metrics.clone());
    let parts = SupervisorServices {
        role: GatewayRole::Serve,
        metrics: metrics.clone(),
        store: None,
        http: HttpClient::new(),
        intake: IntakeLimits::new(Arc::clone(&budget), &limits),
        logins: LoginServices::new(None, AuditLog::none()),
        leases: leases.clone(),
        pins: PinRegistry::memory(),
        times: StopTimes::DAEMON,
        marks: OwnerMarks::claim(None),
        prior: Default::default(),
        membership: Default::default(),
    };
    let approvals = Arc::new(Approvals::memory(&config.consent));
    let supervised = supervisor::start(config, parts).unwrap();
    let (tasks, draining) = (TaskGroup::default(), CancellationToken::new());
    let (turned_away, watch) = queue();
    let service = Arc::new(Service {
        role: GatewayRole::Serve,
        presence: OnceLock::new(),
        host_command: OnceLock::new(),
        turned_away,
        snapshots: Arc::clone(&supervised.snapshots),
        generation: supervised.generation.clone(),
        settled: supervised.settled.clone(),
        metrics,
        audit: AuditLog::none(),
        parks: ParkedCalls::new(tasks.clone(), draining.clone()),
        pins: PinRegistry::memory(),
        handed: HandedUris::default(),
        approvals,
        leases,
        tasks,
        draining,
        giving_up: CancellationToken::new(),
        arriving: Arc::default(),
        keys: Keys::open(None).unwrap().unwrap(),
        cluster: None,
        max_result_bytes: AtomicUsize::new(limits.result_bytes),
        budget,
        admission: RequestAdmission::new(&limits),
        held: HeldCalls::default(),
        calls: AtomicU64::new(0),
        calls_of: CallerCounts::default(),
        clients: ConnectedClients::default(),
        recent: RecentDecisions::default(),
        console: OnceLock::new(),
        ports: OnceLock::new(),
        refused_reload: ArcSwapOption::empty(),
        started: clock::now(),
    });
    supervised.tasks.spawn("turned-away", watch.run(Arc::clone(&service), supervised.stop.clone()));
    let mut inventory = Inventory::default();
    let tools = [r#"{"name":"open"}"#, r#"{"name":"hidden"}"#]
        .map(|text| Definition::read(ItemList::Tools, &RawJson::trusted(text)).unwrap());
    inventory.replace(ItemList::Tools, tools.into());
    let source = MergeSource {
        upstream: &UpstreamName::parse("fx").unwrap(),
        prefix: "fx__",
        inventory: &inventory,
        filters: &ItemFilters::default(),
        annotate: &policy::OperatorHints::default(),
        needs_headers: false,
        standings: None,
        withheld: None,
        withheld_tools: None,
        withheld_views: None,
        apps: true,
        index: 0,
    };
    let rules = NamingRules { max_length: 48, ..NamingRules::default() };
    let mut rule = RuleSpec::new("no", RuleEffect::Deny);
    rule.tools = vec!["fx__hidden".to_owned()];
    let spec = PolicySpec { default: RuleEffect::Allow, rules: vec![rule], scopes: Vec::new(), limits: Vec::new() };
    let policy = Arc::new(Policy::build(&spec).unwrap());
    let old = service.snapshots.load_full();
    service.snapshots.store(Arc::new(Snapshot {
        generation: old.generation + 1,
        config: Arc::clone(&old.config),
        handles: Vec::new(),
        completes: Vec::new(),
        logs: Vec::new(),
        extensions: Vec::new(),
        instructions: Vec::new(),
        unlisted: Vec::new(),
        input: Vec::new(),
        whole: Arc::new(CatalogView::new("", merge(&[source], rules).0, &policy)),
        profiles: std::collections::HashMap::new(),
        unkept: std::collections::HashMap::new(),
        limiter: Arc::new(Limiter::new(&policy)),
        policy,
        dropped: Vec::new(),
        ttl_ms: 0,
    }));
    Gateway { service, _supervised: supervised }
}

fn client() -> ClientContext {
    let access = crate::base::access::Access::new(&CancellationToken::new());
    ClientContext::new(Caller::local().clone(), access, None, Revision::V2026_07_28)
}

fn params(name: &str) -> RawObject {
    RawObject::parse(&RawJson::trusted(format!(r#"{{"name":"{name}","arguments":{{}}}}"#))).unwrap()
}

#[tokio::test]
async fn hidden_and_unknown_calls_are_handed_over_alike_and_told_apart_later() {
    let gateway = gateway();
    let (turned_away, mut watch) = queue();
    let snapshot = gateway.service.snapshots.load_full();
    for name in ["fx__hidden", "fx__absent"] {
        turned_away.tell(&snapshot, &client(), Method::ToolsCall, &params(name));
    }
    let calls: Vec<UnknownCall> = std::iter::from_fn(|| watch.calls.try_recv().ok()).collect();
    assert_eq!(calls.len(), 2, "the request does not look whether the item exists");
    let kept: Vec<_> = calls.iter().map(|call| call.kept_back().map(|(action, rule)| (action.listed, rule))).collect();
    assert_eq!(kept, [Some((Arc::from("fx__hidden"), Arc::from("no"))), None]);
}

#[tokio::test]
async fn what_finds_no_place_or_is_too_long_is_counted_and_summed_up() {
    let gateway = gateway();
    let (turned_away, mut watch) = queue();
    let snapshot = gateway.service.snapshots.load_full();
    for _ in 0..QUEUE + 5 {
        turned_away.tell(&snapshot, &client(), Method::ToolsCall, &params("fx__hidden"));
    }
    watch.look(&gateway.service, &mut Vec::new(), &CancellationToken::new()).await;
    turned_away.tell(&snapshot, &client(), Method::ToolsCall, &params(&"x".repeat(MAX_NAME + 1)));
    watch.look(&gateway.service, &mut Vec::new(), &CancellationToken::new()).await;
    assert_eq!(watch.missed.load(Ordering::Relaxed), 6);
    watch.sum_up(&gateway.service, Duration::ZERO);
    assert_eq!((watch.missed.load(Ordering::Relaxed), watch.missed_due), (0, Some(EVERY)));
    watch.sum_up(&gateway.service, EVERY);
    assert_eq!(watch.missed_due, None, "nothing more to say");
}
