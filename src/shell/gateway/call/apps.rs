//! Apps in the results of calls: the URIs that tools hand to callers, and reads of views, which
//! their pins withhold or let pass.

use crate::base::aside::run_aside;
use crate::base::clock;
use crate::catalog::merge::CatalogEntry;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::route::{RouteError, shorten};
use crate::gateway::answer::{RequestAnswer, unknown_item_answer};
use crate::gateway::call::context::CallContext;
use crate::gateway::client::handed_uris::HandedTo;
use crate::gateway::decision::found::STORE_WAIT;
use crate::mcp::definition::app::is_view_uri;
use crate::mcp::definition::app_text::app_text_of;
use crate::mcp::handed_uris::{may_hand_uris, rename_contents, rename_handed_uris};
use crate::mcp::method::Method;
use crate::store::pins::SeenApp;
use crate::wire::json::raw::{RawJson, RawObject};

/// The reason why a client gets no result of its read.
pub(super) enum ReadRefusal {
    /// The app behind the view waits for approval: the answer is that for an unknown resource.
    Unknown(RequestAnswer),
    Failed(CallFailure),
}

impl CallContext {
    /// Returns a result as its client may see it. Remembers the URIs that a tool hands out, and
    /// judges a view by the pin of its app; blocks while the pin is stored.
    ///
    /// # Errors
    /// The view is withheld, or it cannot be read without doubt.
    pub(super) fn pass_uris(&self, raw: RawJson) -> Result<RawJson, ReadRefusal> {
        if self.labels.method == Method::ToolsCall {
            return Ok(self.hand_uris(raw));
        }
        if self.labels.method != Method::ResourcesRead {
            return Ok(raw);
        }
        let own = self.action.canonical.strip_prefix(self.handle.name.as_str()).and_then(|uri| uri.strip_prefix('+'));
        let Some(uri) = own.filter(|uri| is_view_uri(uri)) else { return Ok(raw) };
        self.judge_view(uri, &raw)?;
        let renamed = self.asked.as_ref().and_then(|asked| rename_contents(&raw, uri, asked));
        Ok(renamed.unwrap_or(raw))
    }

    /// Judges the content of a view by the pin of its app.
    fn judge_view(&self, uri: &str, raw: &RawJson) -> Result<(), ReadRefusal> {
        let entry = self.item().map_err(ReadRefusal::Failed)?;
        let spec = self.handle.spec.load();
        let text = app_text_of(raw, &entry.definition, spec.pin_html);
        let Some(text) = text.map_err(|_| ReadRefusal::Failed(CallFailure::malformed()))? else { return Ok(()) };
        let app = SeenApp { uri, text, trust: spec.trust, has_html: spec.pin_html };
        let is_named = |uri: &str| {
            let snapshot = self.service.snapshots.load();
            let is_it = |entry: &CatalogEntry| entry.upstream_name == self.handle.name && *entry.original == *uri;
            snapshot.whole.catalog.all_entries().iter().any(is_it)
        };
        run_aside(|| self.service.pins.judge_app(&self.handle.name, &app, &is_named)).map_err(|away| {
            if away.is_unkept {
                let text = "The app of this view is new and cannot be recorded at the moment, so it is not shown.";
                let failure = CallFailure::new(FailureReason::Unrecorded, ExecutionDoubt::Unknown, text);
                return ReadRefusal::Failed(failure.retry_after(STORE_WAIT));
            }
            let asked = self.asked.as_deref().unwrap_or(uri);
            let params = RawObject::of_strings(&[("uri", asked)]);
            let error = RouteError::UnknownResource(shorten(asked));
            ReadRefusal::Unknown(unknown_item_answer(&error, &params, self.revision))
        })
    }

    /// Remembers the URIs that a tool's result hands to the caller, and returns the result with
    /// their URIs for clients.
    pub(super) fn hand_uris(&self, raw: RawJson) -> RawJson {
        if !may_hand_uris(&raw) {
            return raw;
        }
        let (upstream, handed, now) = (&self.handle.name, &self.service.handed, clock::uptime());
        let to = HandedTo { caller: &self.action.caller, profile: self.action.profile.as_ref() };
        let renamed = rename_handed_uris(&raw, &mut |uri| {
            let is_taken = || handed.find(to, uri, now).is_some_and(|known| known.upstream.as_ref() != Some(upstream));
            let exposed = is_view_uri(uri).then(|| self.view.catalog.exposed_view(upstream, uri, is_taken)).flatten();
            handed.hand(to, exposed.as_deref().unwrap_or(uri), upstream, uri, now);
            exposed
        });
        renamed.unwrap_or(raw)
    }

    /// Does as [`Self::hand_uris`] for the result in a task.
    pub(super) fn hand_uris_of_task(&self, task: RawJson) -> RawJson {
        let object = may_hand_uris(&task).then(|| RawObject::parse(&task).ok()).flatten();
        let Some(mut object) = object else { return task };
        let Some(result) = object.get("result").cloned() else { return task };
        object.set("result", self.hand_uris(result));
        object.encode()
    }
}
