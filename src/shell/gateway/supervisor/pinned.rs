//! Applies pins to what upstreams list, before the merge, and so hides unapproved items from
//! clients.
//!
//! This is the only place: lists, calls, completions and profiles are all made from the merged
//! result.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::ManagedUpstream;
use super::draft::SnapshotDraft;
use crate::catalog::inventory::{Inventory, ListGap};
use crate::catalog::merge::{ViewOwners, WithheldItem, WithheldPart};
use crate::catalog::name::{ItemKind, MAX_LENGTH, UpstreamName, expose};
use crate::config::UpstreamSettings;
use crate::gateway::snapshot::Snapshot;
use crate::mcp::definition::app::{is_view_uri, rename_views};
use crate::mcp::definition::item::Definition;
use crate::mcp::instructions::find_instruction_doubt;
use crate::mcp::method::ItemList;
use crate::mcp::version::Revision;
use crate::policy::facts::likeness::{ForeignMarkers, NameSkeletons, shared_titles, skeleton};
use crate::policy::{AskerListing, PinState, PinStatus, ToolListing, UpstreamTrust};
use crate::store::pins::{ItemVerdict, ListedItems, PinTier};
use crate::wire::foreign;

/// The items of one upstream that may be shown, and those that are withheld.
#[derive(Default)]
pub(super) struct PinnedInventory {
    pub(super) inventory: Inventory,
    /// Withheld items with the reasons, for the operator.
    pub(super) withheld: Vec<WithheldItem>,
    /// Items withheld because their pins cannot be stored at present.
    pub(super) unkept: Inventory,
    /// URIs of the withheld resources.
    pub(super) uris: HashSet<String>,
    /// Original names of the withheld tools; of all known ones while the upstream shows nothing.
    pub(super) tools: HashSet<String>,
    /// URIs of the views whose apps are withheld.
    pub(super) views: HashSet<String>,
    /// Number of items that wait for the operator.
    pub(super) waiting: usize,
    /// The upstream's own instructions, if they may be passed to clients.
    pub(super) instructions: Option<Arc<str>>,
    /// The standing of each shown tool by name, from its pin.
    pub(super) standings: HashMap<String, PinStatus>,
}

impl PinnedInventory {
    /// Withholds an item. `exposed` is its name for clients, `pin` the state of a pin that
    /// withholds it.
    fn keep_back(
        &mut self,
        upstream: &UpstreamName,
        item: &Definition,
        exposed: Option<String>,
        pin: Option<&'static str>,
        why: String,
    ) {
        match item.list {
            ItemList::Resources => drop(self.uris.insert(item.key.clone())),
            ItemList::Tools => drop(self.tools.insert(item.key.clone())),
            ItemList::Prompts | ItemList::Templates => {}
        }
        let (part, item) = (WithheldPart::Item(item.list), foreign::line(&item.key).into_owned());
        self.withheld.push(WithheldItem { upstream: upstream.clone(), part, item, exposed, pin, why });
    }
}

impl ManagedUpstream {
    /// Describes the reading of the tool list; `None` if this launch has not read it to the end.
    fn reading(&self, inventory: &Inventory) -> Option<ToolListing> {
        let askers = match inventory.gap(ItemList::Tools) {
            None => AskerListing::Read,
            Some(ListGap::Askers) if inventory.awaits_askers => AskerListing::Awaited,
            Some(ListGap::Askers) => AskerListing::Failed,
            Some(ListGap::Awaited | ListGap::Unread) => return None,
        };
        self.is_read.then(|| ToolListing { launch: self.gate.digest(), askers })
    }
}

impl SnapshotDraft {
    /// Applies pins to each inventory, in the order of the upstreams. `old` is the snapshot that
    /// clients see now. Of two new names that look alike, the upstream configured first gets to
    /// show its own.
    pub(super) fn shown(
        &self,
        managed: &[&ManagedUpstream],
        order: &[&UpstreamSettings],
        known: &[Option<&(Inventory, Revision)>],
        old: &Snapshot,
    ) -> Vec<PinnedInventory> {
        // Built at the first name that has to be compared.
        let looks: RefCell<Option<NameSkeletons>> = RefCell::default();
        let mut shown: Vec<PinnedInventory> = Vec::with_capacity(managed.len());
        for ((m, spec), known) in managed.iter().zip(order).zip(known) {
            let imitated = |name: &str| {
                let mut looks = looks.borrow_mut();
                let looks = looks.get_or_insert_with(|| {
                    let entries = old.whole.catalog.entries().iter();
                    let mut looks =
                        NameSkeletons::of(entries.map(|entry| (&entry.upstream_name, entry.exposed.as_ref())));
                    for ((m, spec), earlier) in managed.iter().zip(order).zip(&shown) {
                        self.add_names(m, spec, earlier, &mut looks);
                    }
                    looks
                });
                looks.imitated(&spec.name, name).map(str::to_owned)
            };
            let next = match (m.gate.shut(), known) {
                (Some(why), _) => self.withhold_all(spec, why),
                (None, Some((inventory, _))) => self.pinned(m, spec, inventory, &imitated),
                (None, None) => PinnedInventory { tools: self.pins.tool_names(&spec.name), ..Default::default() },
            };
            if let Some(looks) = &mut *looks.borrow_mut() {
                self.add_names(m, spec, &next, looks);
            }
            shown.push(next);
        }
        name_shared_titles(&mut shown, order);
        shown
    }

    /// Adds an upstream's shown names to the ones that later upstreams are compared with.
    fn add_names(
        &self,
        managed: &ManagedUpstream,
        spec: &UpstreamSettings,
        shown: &PinnedInventory,
        looks: &mut NameSkeletons,
    ) {
        let items = ItemList::ALL.iter().flat_map(|list| shown.inventory.items(*list));
        items.filter_map(|item| self.exposed(managed, spec, item)).for_each(|name| looks.add(&spec.name, &name));
    }

    /// Judges an upstream's items against their pins, stores new pins, and divides the items into
    /// shown and withheld ones.
    fn pinned(
        &self,
        managed: &ManagedUpstream,
        spec: &UpstreamSettings,
        inventory: &Inventory,
        imitated: &dyn Fn(&str) -> Option<String>,
    ) -> PinnedInventory {
        let offered = |item: &&Definition| managed.filters.of(item.list).admits(&item.key);
        // A faulty definition is not pinned; once mended it counts as seen for the first time.
        let (faulty, items): (Vec<&Definition>, Vec<&Definition>) = ItemList::ALL
            .iter()
            .flat_map(|list| inventory.items(*list))
            .filter(offered)
            .partition(|item| item.fault.is_some());
        let markers = OnceCell::new();
        let markers = || {
            markers.get_or_init(|| {
                ForeignMarkers::new(&spec.name, self.config.upstreams.iter().map(|u| (&u.name, u.prefix.as_str())))
            })
        };
        let doubt = |item: &Definition| {
            if item.hides {
                return Some("it has hidden characters outside of its title and description".to_owned());
            }
            if spec.trust == UpstreamTrust::Trusted {
                return None;
            }
            if let Some(marker) = markers().named_in(item) {
                return Some(format!("it speaks of another upstream's `{marker}`"));
            }
            let exposed = self.exposed(managed, spec, item)?;
            let other = imitated(&exposed)?;
            Some(format!("its name looks like `{other}`"))
        };
        // Pins for a full list, and as many again for items that are gone.
        let tier = PinTier { trust: spec.trust, on_change: spec.on_change, most: spec.max_inventory.saturating_mul(2) };
        let listed = ListedItems {
            items: &items,
            is_recalled: !managed.is_read,
            removed: managed.removed,
            reading: managed.reading(inventory),
        };
        let judged = self.pins.judge(&spec.name, tier, listed, &doubt);
        let mut shown = PinnedInventory { inventory: inventory.without_items(), ..PinnedInventory::default() };
        for item in faulty {
            let why = item.fault.unwrap_or_default().to_owned();
            shown.keep_back(&spec.name, item, self.exposed(managed, spec, item), None, why);
        }
        let mut kept: Vec<Definition> = Vec::with_capacity(items.len());
        let mut unkept: Vec<Definition> = Vec::new();
        for (item, judged) in items.into_iter().zip(judged) {
            let away = match judged {
                ItemVerdict::Shown => {
                    kept.push(item.clone());
                    continue;
                }
                ItemVerdict::AsPinned(item) => {
                    kept.push(*item);
                    continue;
                }
                ItemVerdict::Away(away) => away,
            };
            shown.waiting += usize::from(away.waits());
            unkept.extend(away.is_unkept.then(|| item.clone()));
            let pin = away.state.filter(|state| *state != PinState::Pinned).map(|state| state.into_str());
            shown.keep_back(&spec.name, item, self.exposed(managed, spec, item), pin, away.why);
        }
        for list in ItemList::ALL {
            let of = |items: &[Definition]| items.iter().filter(|item| item.list == list).cloned().collect();
            shown.inventory.replace(list, of(&kept));
            shown.unkept.replace(list, of(&unkept));
        }
        shown.standings = self.pins.standings(&spec.name, shown.inventory.items(ItemList::Tools));
        self.withhold_apps(spec, &mut shown);
        let own = inventory.instructions.as_ref().filter(|_| self.config.passes_instructions_of(spec));
        own.iter().for_each(|text| self.judge_instructions(managed, spec, text, &markers, &mut shown));
        shown
    }

    /// Adds the apps that their pins withhold to what is withheld.
    fn withhold_apps(&self, spec: &UpstreamSettings, shown: &mut PinnedInventory) {
        for (uri, away) in self.pins.withheld_apps(&spec.name) {
            shown.waiting += usize::from(away.waits());
            let item = foreign::line(&uri).into_owned();
            let (upstream, pin) = (spec.name.clone(), away.state.map(|state| state.into_str()));
            shown.withheld.push(WithheldItem {
                upstream,
                part: WithheldPart::App,
                item,
                exposed: None,
                pin,
                why: away.why,
            });
            shown.views.insert(uri);
        }
    }

    /// Returns the upstreams that have each view: listed, named by a tool, or known to pins, so
    /// that a URI never passes from one upstream to another.
    pub(super) fn view_owners(&self, order: &[&UpstreamSettings], shown: &[PinnedInventory]) -> ViewOwners {
        let mut owners = ViewOwners::default();
        self.pins.known_views().iter().for_each(|(upstream, uri)| owners.add(upstream, uri));
        for (shown, spec) in shown.iter().zip(order) {
            for list in [ItemList::Resources, ItemList::Templates] {
                let views = shown.inventory.items(list).iter().filter(|item| is_view_uri(&item.key));
                views.for_each(|item| owners.add(&spec.name, &item.key));
            }
            for tool in shown.inventory.items(ItemList::Tools) {
                rename_views(&mut tool.raw.clone(), &mut |uri| {
                    owners.add(&spec.name, uri);
                    None
                });
            }
        }
        owners
    }

    /// Judges an upstream's instructions against their pin, and adds them to what is shown or
    /// withheld.
    fn judge_instructions<'m>(
        &self,
        managed: &ManagedUpstream,
        spec: &UpstreamSettings,
        text: &Arc<str>,
        markers: &dyn Fn() -> &'m ForeignMarkers,
        shown: &mut PinnedInventory,
    ) {
        let doubt = || {
            let is_trusted = spec.trust == UpstreamTrust::Trusted;
            let foreign = || markers().find(text).map(|marker| format!("it speaks of another upstream's `{marker}`"));
            let doubt = find_instruction_doubt(text).map(str::to_owned);
            doubt.or_else(|| if is_trusted { None } else { foreign() })
        };
        match self.pins.judge_instructions(&spec.name, spec.trust, text, !managed.is_read, doubt) {
            Ok(()) => shown.instructions = Some(Arc::clone(text)),
            Err(away) => {
                shown.waiting += usize::from(away.waits());
                shown.withheld.push(WithheldItem {
                    upstream: spec.name.clone(),
                    part: WithheldPart::Instructions,
                    item: "(instructions)".to_owned(),
                    exposed: None,
                    pin: away.state.filter(|state| *state != PinState::Pinned).map(|state| state.into_str()),
                    why: away.why,
                });
            }
        }
    }

    /// Withholds everything of an upstream whose launch is not approved.
    fn withhold_all(&self, spec: &UpstreamSettings, why: String) -> PinnedInventory {
        let item = "(all)".to_owned();
        let withheld =
            WithheldItem { upstream: spec.name.clone(), part: WithheldPart::All, item, exposed: None, pin: None, why };
        let tools = self.pins.tool_names(&spec.name);
        PinnedInventory { withheld: vec![withheld], waiting: 1, tools, ..PinnedInventory::default() }
    }

    /// Returns the name of a tool or prompt as clients would see it; `None` for resources.
    fn exposed(&self, managed: &ManagedUpstream, spec: &UpstreamSettings, item: &Definition) -> Option<String> {
        let kind = match item.list {
            ItemList::Tools => ItemKind::Tool,
            ItemList::Prompts => ItemKind::Prompt,
            ItemList::Resources | ItemList::Templates => return None,
        };
        let local = managed.filters.of(item.list).local(&item.key);
        expose(&spec.prefix, &spec.name, kind, local, MAX_LENGTH).ok()
    }
}

/// Prefixes a title with its upstream's name if the title looks like one of another upstream or
/// begins with another's name. Titles of trusted upstreams stay.
fn name_shared_titles(shown: &mut [PinnedInventory], order: &[&UpstreamSettings]) {
    if shown.iter().filter(|shown| !shown.inventory.is_empty()).count() < 2 {
        return;
    }
    let titles: Vec<(&UpstreamName, String)> = shown
        .iter()
        .zip(order)
        .flat_map(|(shown, spec)| {
            let items = ItemList::ALL.iter().flat_map(|list| shown.inventory.items(*list));
            items.flat_map(Definition::titles).map(|title| (&spec.name, skeleton(&title)))
        })
        .collect();
    let shared = shared_titles(titles.iter().map(|(upstream, title)| (*upstream, title.as_str())));
    let heads: Vec<(&UpstreamName, String)> =
        order.iter().map(|spec| (&spec.name, skeleton(&format!("{}: ", spec.name)))).collect();
    for (shown, spec) in shown.iter_mut().zip(order).filter(|(_, spec)| spec.trust != UpstreamTrust::Trusted) {
        let imitates = |title: &str| {
            let title = skeleton(&title.to_lowercase());
            heads.iter().any(|(name, head)| **name != spec.name && title.starts_with(head))
        };
        let is_anothers = |title: String| shared.contains(&skeleton(&title)) || imitates(&title);
        for list in ItemList::ALL {
            let mut items = shown.inventory.items(list).to_vec();
            for item in &mut items {
                if item.titles().any(&is_anothers) {
                    item.name_titles(spec.name.as_str());
                }
            }
            shown.inventory.replace(list, items);
        }
    }
}
