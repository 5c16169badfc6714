//! Judges the apps of an upstream by their pins. An app is first seen when a client reads its view.

use std::collections::{BTreeMap, HashSet};

use super::judge::hidden_reason;
use super::{HiddenReason, PinRegistry};
use crate::catalog::name::UpstreamName;
use crate::mcp::definition::app::{is_view_uri, rename_views};
use crate::mcp::definition::app_text::{find_app_doubt, without_html};
use crate::policy::{ChangePolicy, Digest, PinState, UpstreamTrust};
use crate::store::pin_record::{PinKey, PinKind, PinRecord};
use crate::store::pins::texts::SeenText;
use crate::wire::json::raw::{RawJson, RawObject};

/// Most pins of apps of one upstream.
const MAX_APPS: usize = 128;

/// An app that a client has read.
#[derive(Clone, Debug)]
pub struct SeenApp<'a> {
    /// The URI of its view at the upstream.
    pub uri: &'a str,
    /// The text of its pin.
    pub text: RawJson,
    pub trust: UpstreamTrust,
    /// True if the text covers the HTML.
    pub has_html: bool,
}

impl SeenApp<'_> {
    /// Reports whether the app differs from the approved text only by HTML that the pin does not
    /// cover: it does not cover it any more, or did not before.
    fn is_same_but_html(&self, record: Option<&PinRecord>) -> bool {
        let Some(approved) = record.and_then(|record| record.approved.as_ref()).map(RawJson::shared) else {
            return false;
        };
        let plain = without_html(&approved);
        let is_covered = self.has_html && Digest::of_json(&plain) != Digest::of_json(&approved);
        !is_covered && Digest::of_json(&plain) == Digest::of_json(&without_html(&self.text))
    }
}

impl PinRegistry {
    /// Judges an app that a client has read: clients may see it if this returns `Ok`. New and
    /// changed ones are stored first, and the change is announced. A change waits whatever
    /// `on-change` says. `is_named` tells whether a definition names a view at present: the pins of
    /// those that none names, and no pinned tool did, make room for new ones. Blocks.
    ///
    /// # Errors
    /// The reason why the app is withheld.
    pub fn judge_app(
        &self,
        upstream: &UpstreamName,
        app: &SeenApp<'_>,
        is_named: &dyn Fn(&str) -> bool,
    ) -> Result<(), HiddenReason> {
        let key = PinKey::app(upstream, app.uri);
        let before = self.book().of(&key).cloned();
        let is_same_but_html = app.is_same_but_html(before.as_ref());
        let forget = self.find_app_to_forget(&key, is_named)?;
        let on_change = if is_same_but_html { ChangePolicy::Accept } else { ChangePolicy::Quarantine };
        let seen = SeenText { text: &app.text, trust: app.trust, on_change, is_recalled: false };
        let doubt = || find_app_doubt(&app.text).filter(|_| !is_same_but_html);
        let judged = self.judge_text(&key, seen, forget.as_slice(), doubt);
        if judged.is_ok() != before.is_none_or(|before| before.pin.state() == PinState::Pinned) {
            self.0.apps.notify_one();
        }
        judged
    }

    /// Returns the oldest pin that makes room for a new one; `None` if there is room.
    ///
    /// # Errors
    /// No pin may make room.
    fn find_app_to_forget(
        &self,
        key: &PinKey,
        is_named: &dyn Fn(&str) -> bool,
    ) -> Result<Option<PinKey>, HiddenReason> {
        let book = self.book();
        if book.of(key).is_some() || book.kind(&key.upstream, PinKind::App).count() < MAX_APPS {
            return Ok(None);
        }
        let mut of_tools = HashSet::new();
        for (_, tool) in book.kind(&key.upstream, PinKind::Tool) {
            let texts = tool.approved.iter().chain(&tool.waiting);
            for mut tool in texts.filter_map(|text| RawObject::parse(&RawJson::shared(text)).ok()) {
                rename_views(&mut tool, &mut |uri| {
                    of_tools.insert(uri.to_owned());
                    None
                });
            }
        }
        let is_free = |(uri, record): &(&String, &PinRecord)| {
            record.pin.state() == PinState::Pinned && !of_tools.contains(*uri) && !is_named(uri)
        };
        let oldest = book.kind(&key.upstream, PinKind::App).filter(is_free).min_by_key(|(_, record)| record.at);
        let oldest = oldest.map(|(uri, _)| PinKey::app(&key.upstream, uri));
        let why = || format!("its upstream has {MAX_APPS} other apps");
        oldest.map(Some).ok_or_else(|| HiddenReason { why: why(), state: None, is_unkept: false })
    }

    /// Waits until the pin of an app may have changed by a client's read.
    pub async fn app_seen(&self) {
        self.0.apps.notified().await;
    }

    /// Returns the reasons why views of an upstream are withheld, by URI.
    pub fn withheld_apps(&self, upstream: &UpstreamName) -> BTreeMap<String, HiddenReason> {
        let book = self.book();
        let withheld = book.kind(upstream, PinKind::App).filter(|(_, record)| record.pin.state() != PinState::Pinned);
        withheld.map(|(uri, record)| (uri.clone(), hidden_reason(record, None))).collect()
    }

    /// Returns the upstreams and URIs of all views of which a listed definition or an app was ever
    /// approved.
    pub fn known_views(&self) -> Vec<(UpstreamName, String)> {
        let of_view = |key: &PinKey| matches!(key.kind, PinKind::Resource | PinKind::App) && is_view_uri(&key.name);
        let book = self.book();
        let known = book.iter().filter(|(key, record)| of_view(key) && record.pin.approved().is_some());
        known.map(|(key, _)| (key.upstream, key.name)).collect()
    }
}
