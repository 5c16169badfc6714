//! Judges the items that an upstream lists by their pins. The work is done in pieces of [`PIECE`]
//! items, so that other tasks go on meanwhile: no store operation covers more, and no lock is held
//! for more except in [`PinRegistry::make_room`].

use std::collections::HashSet;
use std::sync::Arc;

use strum::VariantArray as _;

use super::book::PinRecords;
use super::news::StoredPin;
use super::{HiddenReason, ItemVerdict, PinKey, PinKind, PinRegistry, PinTier};
use crate::catalog::name::UpstreamName;
use crate::mcp::definition::item::Definition;
use crate::mcp::method::ItemList;
use crate::policy::{ChangePolicy, Digest, PinState, ToolListing};
use crate::store::db::DbError;
use crate::store::pin_record::{ListedDefinition, PinRecord, PinStep, PinText};

/// Most items that one lock or one store operation covers.
const PIECE: usize = 256;

/// The items that an upstream lists.
#[derive(Clone, Copy, Debug)]
pub struct ListedItems<'i> {
    pub items: &'i [&'i Definition],
    /// True if the list is that of an earlier run. Then an item in its approved form does not
    /// replace a change that waits.
    pub is_recalled: bool,
    /// Number of items that were in the last reading and are not in this one.
    pub removed: u64,
    /// The complete reading of the tools; `None` if the tools among the items may not be all.
    pub reading: Option<ToolListing>,
}

impl PinRegistry {
    /// Judges the items that an upstream lists; the verdicts are in the order of the items. New and
    /// changed items are stored first, and the changes are announced. `doubt` returns a reason
    /// against an item; it is called only for items that need a decision. Blocks.
    pub fn judge(
        &self,
        upstream: &UpstreamName,
        tier: PinTier,
        listed: ListedItems<'_>,
        doubt: &dyn Fn(&Definition) -> Option<String>,
    ) -> Vec<ItemVerdict> {
        let ListedItems { items, is_recalled, removed, .. } = listed;
        // The reading matters only if it confirms something for the launch.
        let reading = listed.reading.filter(|reading| {
            self.book().launch(upstream).is_some_and(|launch| launch.after(*reading) != launch.confirmed)
        });
        let mut unsettled: Vec<&Definition> = Vec::new();
        for piece in items.chunks(PIECE) {
            let book = self.book();
            let is_first = |item: &Definition, record: &PinRecord| {
                let confirms = |(launch, reading): (&PinRecord, ToolListing)| {
                    launch.takes(reading, item.audience.is_all()) && !record.confirmed.is_for(reading.launch)
                };
                item.list == ItemList::Tools && book.launch(upstream).zip(reading).is_some_and(confirms)
            };
            let known = |item: &&&Definition| {
                let record = book.get(upstream, PinKind::of(item.list), &item.key);
                record.is_some_and(|record| {
                    let digest = record.known_as(ListedDefinition::of(item));
                    let is_stale = is_recalled && record.pin.approved() == Some(digest);
                    is_stale || needs_no_decision(record, digest, tier) && !is_first(item, record)
                })
            };
            unsettled.extend(piece.iter().filter(|item| !known(item)).copied());
        }
        let trouble = if unsettled.is_empty() && reading.is_none() {
            None
        } else {
            let (forget, left_out) = self.make_room(upstream, tier.most, items, &unsettled);
            let taken = |item: &&&Definition| !left_out.contains(&(PinKind::of(item.list), item.key.as_str()));
            let steps = unsettled.iter().filter(taken).map(|item| {
                let text = PinText { digest: item.digest, text: Arc::from(item.canonical_text()) };
                let (listed, doubt) = (ListedDefinition::of(item), doubt(item));
                let (trust, on_change, is_for_all) = (tier.trust, tier.on_change, item.audience.is_all());
                let step = PinStep::Seen { text, listed, trust, on_change, doubt, reading, is_for_all };
                (pin_key(upstream, item), step)
            });
            // The launch counts as listed only after all of its tools are stored.
            let launch = reading.map(|reading| (PinKey::launch(upstream), PinStep::Listed(reading)));
            let (stored, outcome) = self.take_in_pieces(steps.chain(launch), forget);
            self.tell(&stored, None, Some(removed));
            outcome.err()
        };
        let judge = |book: &PinRecords, item: &Definition| {
            let record = book.get(upstream, PinKind::of(item.list), &item.key);
            let digest = record.map(|record| record.known_as(ListedDefinition::of(item)));
            match record.zip(digest) {
                Some((record, digest)) if record.pin.shows(digest) => {
                    record.shown(item, digest).map_or(ItemVerdict::Shown, |item| ItemVerdict::AsPinned(Box::new(item)))
                }
                Some((record, _)) => ItemVerdict::Away(hidden_reason(record, trouble.as_ref())),
                None => {
                    let why = trouble.as_ref().map_or_else(
                        || format!("{} items of its kind were seen, more are not taken", tier.most),
                        |error| format!("its pin cannot be kept: {error}"),
                    );
                    ItemVerdict::Away(HiddenReason { why, state: None, is_unkept: trouble.is_some() })
                }
            }
        };
        let mut judged = Vec::with_capacity(items.len());
        for piece in items.chunks(PIECE) {
            let book = self.book();
            judged.extend(piece.iter().map(|item| judge(&book, item)));
        }
        judged
    }

    /// Removes the pins in `forget` and applies steps in pieces, until a piece cannot be stored.
    /// Returns the stored records and the error. Blocks if there is a store.
    fn take_in_pieces(
        &self,
        steps: impl Iterator<Item = (PinKey, PinStep)>,
        forget: Vec<PinKey>,
    ) -> (Vec<StoredPin>, Result<(), DbError>) {
        let (mut steps, mut forget, mut stored) = (steps.peekable(), forget, Vec::new());
        while steps.peek().is_some() || !forget.is_empty() {
            let piece = steps.by_ref().take(PIECE).collect();
            match self.store_now(piece, &std::mem::take(&mut forget)) {
                Ok((_, news)) => stored.extend(news),
                Err(error) => return (stored, Err(error)),
            }
        }
        (stored, Ok(()))
    }

    /// Chooses which pins make room for new items: returns the pins of vanished items to be
    /// removed, and the new items that find no room, the last ones in the upstream's order. Only
    /// resources and templates that are pinned and gone are removed. Pins of tools and prompts
    /// never are, so that a server cannot push one out to bring it back changed.
    fn make_room<'i>(
        &self,
        upstream: &UpstreamName,
        most: usize,
        items: &[&Definition],
        unsettled: &[&'i Definition],
    ) -> (Vec<PinKey>, HashSet<(PinKind, &'i str)>) {
        let book = self.book();
        let (mut forget, mut left_out) = (Vec::new(), HashSet::new());
        for &kind in PinKind::VARIANTS {
            let new =
                |item: &&&Definition| PinKind::of(item.list) == kind && book.get(upstream, kind, &item.key).is_none();
            let news: Vec<&'i Definition> = unsettled.iter().filter(new).copied().collect();
            let over = (book.kind(upstream, kind).count() + news.len()).saturating_sub(most);
            if news.is_empty() || over == 0 {
                continue;
            }
            let listed: HashSet<&str> =
                items.iter().filter(|item| PinKind::of(item.list) == kind).map(|item| item.key.as_str()).collect();
            let gone = |(name, record): &(&String, &PinRecord)| {
                record.pin.state() == PinState::Pinned && !listed.contains(name.as_str())
            };
            let mut old: Vec<(u64, &String)> =
                book.kind(upstream, kind).filter(gone).map(|(name, record)| (record.at, name)).collect();
            old.sort_unstable();
            let gives_way = if matches!(kind, PinKind::Resource | PinKind::Template) { over.min(old.len()) } else { 0 };
            let keys = old.into_iter().take(gives_way);
            forget.extend(keys.map(|(_, name)| PinKey { upstream: upstream.clone(), kind, name: name.clone() }));
            left_out.extend(news.iter().rev().take(over - gives_way).map(|item| (kind, item.key.as_str())));
        }
        (forget, left_out)
    }
}

/// Returns true if an item with that digest needs no decision: it is shown, or waits and is not
/// accepted by `on-change`.
fn needs_no_decision(record: &PinRecord, digest: Digest, tier: PinTier) -> bool {
    if record.pin.shows(digest) {
        return true;
    }
    let accepts = tier.on_change == ChangePolicy::Accept && record.pin.state() == PinState::Changed;
    record.pin.waiting() == Some(digest) && !accepts
}

fn pin_key(upstream: &UpstreamName, item: &Definition) -> PinKey {
    PinKey { upstream: upstream.clone(), kind: PinKind::of(item.list), name: item.key.clone() }
}

/// Builds the reason why an item with this record is hidden.
pub(super) fn hidden_reason(record: &PinRecord, trouble: Option<&DbError>) -> HiddenReason {
    let state = record.pin.state();
    let why = match (state, trouble) {
        (PinState::Changed, _) => "its definition changed".to_owned(),
        (PinState::Quarantined, _) => format!("it waits for approval ({})", record.by),
        (PinState::Rejected, _) => "it was rejected".to_owned(),
        // The listed text is not the pinned one, and the change could not be stored.
        (PinState::Pinned, Some(error)) => format!("its definition changed, and its pin cannot be kept: {error}"),
        (PinState::Pinned, None) => "its definition changed".to_owned(),
    };
    HiddenReason { why, state: Some(state), is_unkept: false }
}
