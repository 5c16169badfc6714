//! Takes the reports of upstream actors (new lists, new states) into the supervisor's state, and
//! writes lists to disk.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::Supervisor;
use super::made::SnapshotCallback;
use super::room::{set_list_trouble, too_many_bytes};
use crate::base::aside::{MANY_ITEMS, begin_aside, run_aside_if};
use crate::base::clock;
use crate::catalog::name::UpstreamName;
use crate::policy::MAX_SINGLE_CHANGES;
use crate::upstream::actor::context::{ActorNews, ActorReport};
use crate::upstream::session::link::LinkState;

impl Supervisor {
    /// Takes reports and requests a snapshot; a large inventory is taken on a blocking thread.
    /// Tasks that wait to see their report in force are told by that snapshot.
    pub(super) fn take_reports(&mut self, news: &mut Vec<ActorReport>) {
        let is_large =
            |report: &ActorReport| matches!(&report.news, ActorNews::Inventory(i, _) if i.len() >= MANY_ITEMS);
        let is_large = news.iter().any(is_large);
        run_aside_if(is_large, || self.reports(news.drain(..)));
    }

    fn reports(&mut self, news: impl Iterator<Item = ActorReport>) {
        let shown: Vec<_> = news
            .filter_map(|mut report| {
                let shown = report.shown.take();
                self.report(report);
                shown
            })
            .collect();
        self.publish(false);
        let tell = |shown: oneshot::Sender<()>| {
            Box::new(move || {
                let _waits_no_more = shown.send(());
            }) as SnapshotCallback
        };
        self.afterwards.extend(shown.into_iter().map(tell));
    }

    /// Takes one report: replaces the inventory unless all inventories would be too large, and
    /// notes whether the upstream is up. A report of a replaced handle is ignored.
    pub(super) fn report(&mut self, report: ActorReport) {
        let room = self.inventory_room(&report.upstream);
        let Some(managed) = self.managed.get_mut(&report.upstream) else { return };
        if !Arc::ptr_eq(&managed.handle, &report.handle) {
            return;
        }
        match report.news {
            ActorNews::Inventory(mut inventory, agreed) => {
                let most = managed.handle.spec.load().max_inventory;
                managed.inventory.iter().for_each(|known| inventory.keep(&known.0, most));
                managed.heard = true;
                let bytes = inventory.bytes();
                set_list_trouble(&managed.handle, &inventory, (bytes > room).then(|| too_many_bytes(bytes)));
                if bytes > room {
                    return;
                }
                managed.bytes = bytes;
                managed.removed += managed.inventory.as_ref().map_or(0, |known| inventory.lost(&known.0));
                let known = managed.inventory.as_ref().map_or(&[][..], |known| &known.0.skipped);
                let known: HashSet<&String> = known.iter().collect();
                let news = inventory.skipped.iter().filter(|why| !known.contains(why));
                // One log line for a reading with many faulty items.
                let mut others = news.clone().count();
                for why in news.take(if others > MAX_SINGLE_CHANGES { 1 } else { others }) {
                    others -= 1;
                    if let Some(count) = managed.handle.health.lines.lists.count(clock::uptime()) {
                        tracing::warn!(upstream.name = %report.upstream, error = %why, others, count, "part of a list is not offered");
                    }
                }
                managed.handle.listed(&inventory);
                managed.handle.unread.known(&inventory);
                managed.inventory = Some(Arc::new((*inventory, agreed.revision)));
                (managed.is_read, managed.is_fresh) = (true, true);
                self.unsaved.insert(report.upstream);
            }
            ActorNews::State => {}
        }
        match &*managed.handle.main.state() {
            LinkState::Down { .. } => {
                managed.heard = true;
                managed.down_since.get_or_insert_with(clock::now);
            }
            LinkState::Ready(_) => managed.down_since = None,
            LinkState::Idle | LinkState::Starting | LinkState::Stopped => {}
        }
    }

    /// Begins to write one unsaved upstream's lists to disk, for the next start.
    pub(super) fn remember(&mut self) {
        let Some(name) = self.unsaved.pop_first() else { return };
        let (Some(store), Some(managed)) = (&self.parts.store, self.managed.get(&name)) else { return };
        let Some(known) = &managed.inventory else { return };
        let (known, handle, key) =
            (Arc::clone(known), Arc::clone(&managed.handle), managed.handle.spec.load().inventory_key());
        let (store, pins) = (store.clone(), self.parts.pins.clone());
        self.saving = Some(begin_aside(move || {
            let (inventory, revision) = &*known;
            if let Err(error) = store.remember(&key, inventory, *revision)
                && pins.takes_writes()
                && let Some(count) = handle.health.lines.unkept.count(clock::uptime())
            {
                tracing::warn!(upstream.name = %name, error = %error, count, "inventory not kept on disk");
            }
        }));
    }

    /// Returns the bytes that an upstream's inventory may have beside those of all others.
    pub(super) fn inventory_room(&self, upstream: &UpstreamName) -> usize {
        let others = self.managed.iter().filter(|(name, _)| *name != upstream);
        self.max_inventory_bytes.saturating_sub(others.map(|(_, managed)| managed.bytes).sum())
    }
}
