//! What all worlds share, made once: two upstreams with the same tools, the policy about them, and the key of states.

use std::sync::LazyLock;

use crate::catalog::inventory::{Inventory, ListBounds, Next, Reading};
use crate::catalog::merge::{Catalog, Entry, Filters, NamingRules, Source, merge};
use crate::catalog::name::UpstreamName;
use crate::engine::state::{Carrier, StateKey, StateScope};
use crate::mcp::method::{List, Method};
use crate::mcp::version::Revision;
use crate::policy::{Action, Annotator, Digest, Effect, ItemRules, Kind, Policy, PolicySpec, RuleSpec};
use crate::wire::raw::RawJson;
use crate::wire::secrets::Secrets;

/// What never changes: made once for all worlds.
pub(super) struct House {
    pub(super) catalog: Catalog,
    pub(super) policy: Policy,
    pub(super) rules: Vec<ItemRules>,
    pub(super) states: StateKey,
}

pub(super) static HOUSE: LazyLock<House> = LazyLock::new(|| {
    let both = |tool: &str| vec![format!("a__{tool}"), format!("b__{tool}")];
    let rules = vec![
        RuleSpec { tools: both("hidden"), ..RuleSpec::new("no", Effect::Deny) },
        RuleSpec { tools: both("asks"), ..RuleSpec::new("ask", Effect::Ask) },
    ];
    let policy = Policy::build(&PolicySpec { default: Effect::Allow, rules, limits: Vec::new() }).unwrap();
    let page = RawJson::trusted(
        r#"{"tools":[{"name":"open"},{"name":"hidden"},{"name":"asks"},{"name":"task","execution":{"taskSupport":"required"}}]}"#,
    );
    let Ok(Next::Done { items, .. }) = Reading::new(List::Tools, ListBounds::default()).page(&page) else { panic!() };
    let mut inventory = Inventory::default();
    inventory.replace(List::Tools, items);
    let (filters, annotator) = (Filters::default(), Annotator::default());
    let names = ["a", "b"].map(|name| UpstreamName::parse(name).unwrap());
    let source = |index: usize| Source {
        upstream: &names[index],
        prefix: ["a__", "b__"][index],
        inventory: &inventory,
        filters: &filters,
        annotate: &annotator,
        needs_headers: false,
        standings: None,
        withheld: None,
        index,
    };
    let naming =
        NamingRules { max_length: 48, prefix_uris: false, transparent: false, tightened: false, profile: None };
    let catalog = merge(&[source(0), source(1)], naming).0;
    let of = |entry: &Entry| policy.item_rules(Kind::Tool, entry.upstream_name.as_str(), &entry.canonical);
    let rules = catalog.entries().iter().map(of).collect();
    House { catalog, policy, rules, states: StateKey::new(&Secrets::new([7; 32])).unwrap() }
});

pub(super) fn launch() -> Digest {
    Digest::of(b"launch")
}

/// What a state of that call is bound to.
pub(super) fn scope(action: &Action) -> StateScope<'_> {
    let carrier = Carrier { kind: "user", revision: Revision::V2026_07_28, capabilities: 0 };
    StateScope { method: Method::ToolsCall, action, carrier }
}
