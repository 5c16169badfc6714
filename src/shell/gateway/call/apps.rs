//! Apps in the results of calls: the URIs that tools hand to callers, and reads of views, which
//! their pins withhold or let pass.

use crate::base::aside::run_aside;
use crate::base::clock;
use crate::catalog::merge::CatalogEntry;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::route::{RouteError, shorten};
use crate::gateway::answer::{RequestAnswer, unknown_item_answer};
use crate::gateway::call::context::CallContext;
use crate::gateway::client::handed_uris::{HandedTo, HandingTool, MAX_OF_RESULT, ResultUri};
use crate::gateway::decision::found::STORE_WAIT;
use crate::mcp::definition::app::is_view_uri;
use crate::mcp::definition::app_text::{ReadView, app_text_of};
use crate::mcp::handed_uris::{
    has_view_content, may_hand_uris, rename_contents, rename_handed_uris, withhold_embedded_views,
};
use crate::mcp::method::Method;
use crate::store::pins::SeenApp;
use crate::wire::json::raw::{RawJson, RawObject};

/// Most embedded views of one result that are judged; the others are withheld.
const MAX_EMBEDDED: usize = 16;

/// The reason why a view is not passed.
enum ViewRefusal {
    /// Two readers may find different views in it.
    Malformed,
    /// The view's app is new, and its pin cannot be stored at present.
    Unkept,
    /// The view's app waits for approval.
    Withheld,
}

/// The reason why a client gets no result of its call.
pub(super) enum ReadRefusal {
    /// The app behind the view waits for approval: the answer is that for an unknown resource.
    Unknown(RequestAnswer),
    Failed(CallFailure),
}

impl CallContext {
    /// Returns a result as its client may see it. Remembers the URIs that a tool hands out, and
    /// judges views by the pins of their apps; blocks while pins are stored.
    ///
    /// # Errors
    /// The view is withheld, or it cannot be read without doubt.
    pub(super) fn pass_uris(&self, raw: RawJson) -> Result<RawJson, ReadRefusal> {
        if self.labels.method == Method::ToolsCall {
            return self.hand_uris(raw);
        }
        if self.labels.method == Method::PromptsGet && may_hand_uris(&raw) {
            return self.judge_embedded(raw);
        }
        if self.labels.method != Method::ResourcesRead {
            return Ok(raw);
        }
        let own = self.action.canonical.strip_prefix(self.handle.name.as_str()).and_then(|uri| uri.strip_prefix('+'));
        let Some(uri) = own.filter(|uri| is_view_uri(uri)) else {
            // Read with another URI, no pin would cover the view.
            let has_view = has_view_content(&raw);
            return if has_view { Err(ReadRefusal::Failed(CallFailure::malformed())) } else { Ok(raw) };
        };
        self.judge_read(uri, &raw)?;
        let renamed = self.asked.as_ref().and_then(|asked| rename_contents(&raw, uri, asked));
        Ok(renamed.unwrap_or(raw))
    }

    /// Judges the content of a view by the pin of its app, and returns the answer for the client if
    /// it is withheld.
    fn judge_read(&self, uri: &str, raw: &RawJson) -> Result<(), ReadRefusal> {
        let entry = self.item().map_err(ReadRefusal::Failed)?;
        self.judge_view(uri, entry, raw).map_err(|refusal| match refusal {
            ViewRefusal::Malformed => ReadRefusal::Failed(CallFailure::malformed()),
            ViewRefusal::Unkept => {
                let text = "The app of this view is new and cannot be recorded at the moment, so it is not shown.";
                let failure = CallFailure::new(FailureReason::Unrecorded, ExecutionDoubt::Unknown, text);
                ReadRefusal::Failed(failure.retry_after(STORE_WAIT))
            }
            ViewRefusal::Withheld => {
                let asked = self.asked.as_deref().unwrap_or(uri);
                let params = RawObject::of_strings(&[("uri", asked)]);
                let error = RouteError::UnknownResource(shorten(asked));
                ReadRefusal::Unknown(unknown_item_answer(&error, &params, self.revision))
            }
        })
    }

    /// Judges a view by the pin of its app. `entry` is its entry in the catalog and `raw` the
    /// result of its read. Blocks while the pin is stored.
    fn judge_view(&self, uri: &str, entry: &CatalogEntry, raw: &RawJson) -> Result<(), ViewRefusal> {
        let spec = self.handle.spec.load();
        let view = ReadView { uri, entry: &entry.definition, has_html: spec.pin_html };
        let Some(text) = app_text_of(raw, view).map_err(|_| ViewRefusal::Malformed)? else { return Ok(()) };
        let app = SeenApp { uri, text, trust: spec.trust, has_html: spec.pin_html };
        let is_named = |uri: &str| {
            let snapshot = self.service.snapshots.load();
            let is_it = |entry: &CatalogEntry| entry.upstream_name == self.handle.name && *entry.original == *uri;
            snapshot.whole.catalog.all_entries().iter().any(is_it)
        };
        run_aside(|| self.service.pins.judge_app(&self.handle.name, &app, &is_named))
            .map_err(|away| if away.is_unkept { ViewRefusal::Unkept } else { ViewRefusal::Withheld })
    }

    /// Judges the views that a result embeds as it judges reads of them, and returns the
    /// result without the withheld ones. Blocks while pins are stored.
    fn judge_embedded(&self, raw: RawJson) -> Result<RawJson, ReadRefusal> {
        let (catalog, mut left) = (&self.view.catalog, MAX_EMBEDDED);
        let judged = withhold_embedded_views(&raw, &mut |uri, resource| {
            let at = catalog.find_handed(&self.handle.name, uri).filter(|_| left > 0);
            let Some(entry) = at.and_then(|at| catalog.entry(at)) else { return false };
            left -= 1;
            let read = RawObject::of([("contents", RawJson::list([resource.clone()]))]).encode();
            self.judge_view(uri, entry, &read).is_ok()
        });
        let judged = judged.map_err(|_| ReadRefusal::Failed(CallFailure::malformed()))?;
        Ok(judged.unwrap_or(raw))
    }

    /// Remembers the URIs that a tool's result hands to the caller, and returns the result with
    /// their URIs for clients and without embedded views that are withheld.
    pub(super) fn hand_uris(&self, raw: RawJson) -> Result<RawJson, ReadRefusal> {
        if !may_hand_uris(&raw) {
            return Ok(raw);
        }
        let raw = self.judge_embedded(raw)?;
        let (upstream, handed, now) = (&self.handle.name, &self.service.handed, clock::uptime());
        let to = HandedTo { caller: &self.action.caller, profile: self.action.profile.as_ref() };
        let mut uris = Vec::new();
        let renamed = rename_handed_uris(&raw, &mut |uri| {
            let is_taken = || handed.find(to, uri, now).is_some_and(|known| known.upstream.as_ref() != Some(upstream));
            let exposed = is_view_uri(uri).then(|| self.view.catalog.exposed_view(upstream, uri, is_taken)).flatten();
            if uris.len() < MAX_OF_RESULT {
                let known = exposed.clone().unwrap_or_else(|| uri.to_owned());
                uris.push(ResultUri { exposed: known, original: uri.to_owned() });
            }
            exposed
        });
        handed.hand(to, HandingTool { upstream, tool: &self.action.canonical }, &uris, now);
        Ok(renamed.unwrap_or(raw))
    }

    /// Does as [`Self::hand_uris`] for the result in a task.
    pub(super) fn hand_uris_of_task(&self, task: RawJson) -> Result<RawJson, ReadRefusal> {
        let object = may_hand_uris(&task).then(|| RawObject::parse(&task).ok()).flatten();
        let Some(mut object) = object else { return Ok(task) };
        let Some(result) = object.get("result").cloned() else { return Ok(task) };
        object.set("result", self.hand_uris(result)?);
        Ok(object.encode())
    }
}
