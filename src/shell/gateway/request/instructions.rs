//! The instructions of one client: the gateway's own rules, and the approved texts of the upstreams
//! of which the client sees an item.

use std::collections::HashSet;

use crate::config::{InstructionSetting, Profile};
use crate::gateway::client::ClientContext;
use crate::gateway::service::Service;
use crate::gateway::snapshot::{CatalogView, Snapshot};
use crate::mcp::extension::ExtensionSet;
use crate::mcp::instructions::{InstructionFit, InstructionSource, MergedInstructions, merge_instructions};

impl Service {
    /// Returns the instructions for a client, and whether another client may get other ones.
    pub(super) fn instructions(&self, client: &ClientContext) -> (String, bool) {
        let snapshot = self.snapshots.load_full();
        let merged = snapshot.view(client.profile.as_deref()).map(|view| snapshot.instructions_in(view, Some(client)));
        (
            merged.unwrap_or_else(|| merge_instructions(&[], snapshot.config.instruction_limits())).text,
            snapshot.tells_clients_apart(),
        )
    }

    /// Returns the extensions and the instructions for a client that sends `initialize`. Right
    /// after the first start with an upstream, waits a moment for its text and its apps.
    pub async fn greeting(&self, client: &ClientContext) -> (ExtensionSet, String) {
        let is_new = {
            let snapshot = self.snapshots.load();
            let upstreams = snapshot.config.upstreams.iter().zip(&snapshot.unlisted);
            let says_more = |spec| client.apps.is_some() || snapshot.config.passes_instructions_of(spec);
            upstreams.into_iter().any(|(spec, is_unlisted)| *is_unlisted && says_more(spec))
        };
        if is_new {
            self.settled().await;
        }
        (self.offered_extensions(client), self.instructions(client).0)
    }
}

impl Snapshot {
    /// Merges the instructions of a view, in the order of the configuration. `client` limits them
    /// to upstreams of which this client sees an item.
    fn instructions_in(&self, view: &CatalogView, client: Option<&ClientContext>) -> MergedInstructions {
        let sources = self.instruction_sources(view, client);
        let sources: Vec<InstructionSource<'_>> = sources.into_iter().map(|(_, source)| source).collect();
        merge_instructions(&sources, self.config.instruction_limits())
    }

    /// Returns the texts of a view, each with its upstream's index; that of an operator's text for
    /// a whole profile has none.
    fn instruction_sources(
        &self,
        view: &CatalogView,
        client: Option<&ClientContext>,
    ) -> Vec<(Option<usize>, InstructionSource<'_>)> {
        let profile = self.profile(view);
        if let Some(InstructionSetting::Text(text)) = profile.and_then(|profile| profile.instructions.as_ref()) {
            return vec![(None, InstructionSource { server: None, text })];
        }
        let texts = self.handles.iter().enumerate().filter_map(|(index, handle)| {
            let spec = self.config.upstreams.iter().find(|spec| spec.name == handle.name)?;
            let text = match self.config.instructions_of(profile, spec) {
                InstructionSetting::Pass => self.instructions.get(index)?.as_deref()?,
                InstructionSetting::Drop => return None,
                InstructionSetting::Text(text) => text,
            };
            Some((Some(index), InstructionSource { server: Some(spec.name.as_str()), text }))
        });
        let texts: Vec<_> = texts.collect();
        if texts.is_empty() {
            return texts;
        }
        let seen = self.seen_upstreams(view, client);
        texts.into_iter().filter(|(index, _)| index.is_some_and(|index| seen.contains(&index))).collect()
    }

    fn profile(&self, view: &CatalogView) -> Option<&Profile> {
        self.config.profiles.iter().find(|profile| !view.name.is_empty() && profile.name == view.name)
    }

    /// Returns the upstreams of which a client sees an item, or any client without one.
    fn seen_upstreams(&self, view: &CatalogView, client: Option<&ClientContext>) -> HashSet<usize> {
        let mut seen = HashSet::new();
        for (at, entry) in view.catalog.entries().iter().enumerate() {
            let is_seen = |client: &ClientContext| view.visible(&self.policy, at, client.viewer());
            if !seen.contains(&entry.upstream) && client.is_none_or(is_seen) {
                seen.insert(entry.upstream);
            }
        }
        seen
    }

    /// Returns whether two clients may get different instructions.
    fn tells_clients_apart(&self) -> bool {
        let has_text = |profile: &Profile| matches!(profile.instructions, Some(InstructionSetting::Text(_)));
        self.instructions.iter().any(Option::is_some)
            || self.config.upstreams.iter().any(|spec| matches!(spec.instructions, Some(InstructionSetting::Text(_))))
            || self.config.profiles.iter().any(has_text)
    }

    /// Returns the text of an upstream that clients without a profile get and how much of it, if
    /// they see its items; `None` if they get none.
    pub fn passed_instructions(&self, upstream: usize) -> Option<(&str, InstructionFit)> {
        let sources = self.instruction_sources(&self.whole, None);
        let fits = self.instructions_in(&self.whole, None).fits;
        let (at, (_, source)) = sources.iter().enumerate().find(|(_, (index, _))| *index == Some(upstream))?;
        Some((source.text, *fits.get(at)?))
    }
}
