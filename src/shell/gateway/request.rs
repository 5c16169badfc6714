//! Dispatches a client's request by its method, for every transport.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::base::clock;
use crate::engine::failure::CallFailure;
use crate::engine::route::{RequestParams, RouteError};
use crate::gateway::answer::{CallLabels, RequestAnswer, invalid_params, label, method_not_found, refusal_answer};
use crate::gateway::client::{ClientContext, view_of};
use crate::gateway::service::Service;
use crate::gateway::waiting::client_call::RequestOutcome;
use crate::mcp::capability::{CurrentCapabilities, discover_result};
use crate::mcp::extension::{ExtensionSet, TASKS};
use crate::mcp::log::LogLevel;
use crate::mcp::method::{ItemList, Method};
use crate::mcp::version::Revision;
use crate::wire::code;
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::message::Request;

mod about_task;
mod calls;
mod completions;
mod consent;
mod instructions;
mod login;
mod programs;

impl Service {
    /// Serves one request that is not bound to a session or stream of its own: checks its
    /// parameters and era, then answers it or starts its call.
    pub fn handle(
        self: &Arc<Self>,
        client: &ClientContext,
        request: &Request,
        params: Result<RequestParams, RouteError>,
    ) -> RequestOutcome {
        if self.is_full(client) {
            return RequestOutcome::Overloaded;
        }
        let arrived = clock::now();
        let method = Method::parse(&request.method);
        let era = client.revision.era();
        let RequestParams { object: params, meta } = match params {
            Ok(params) => params,
            Err(error) => return RequestOutcome::Answer(invalid_params(&error)),
        };
        if let Err(error) = meta.progress_token() {
            return RequestOutcome::Answer(invalid_params(&error.into()));
        }
        if !method.defined_in(era) {
            return RequestOutcome::Answer(method_not_found(&request.method, era));
        }
        if let Some(failure) = self.role.refusal(method) {
            return RequestOutcome::Answer(refusal_answer(&failure, &self.labels(method, arrived), client.revision));
        }
        match method {
            Method::Ping => RequestOutcome::Answer(RequestAnswer::ok(RawJson::EMPTY_OBJECT)),
            Method::Discover => RequestOutcome::Answer(self.discover(client)),
            Method::ToolsList => RequestOutcome::Answer(self.list(client, ItemList::Tools, &params)),
            Method::PromptsList => RequestOutcome::Answer(self.list(client, ItemList::Prompts, &params)),
            Method::ResourcesList => RequestOutcome::Answer(self.list(client, ItemList::Resources, &params)),
            Method::TemplatesList => RequestOutcome::Answer(self.list(client, ItemList::Templates, &params)),
            Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead | Method::Complete => {
                self.call(client, method, &params, meta, arrived)
            }
            Method::ResourcesSubscribe => {
                RequestOutcome::Later(Box::pin(Arc::clone(self).subscribe(client.clone(), params)))
            }
            Method::ResourcesUnsubscribe => Self::unsubscribe(client, &params),
            Method::SetLevel => set_level(client, &params),
            Method::TasksGet | Method::TasksCancel | Method::TasksUpdate if TASKS.adds(method.as_str(), era) => {
                self.task(client, method, &params, meta, arrived)
            }
            // Legacy clients are never given a task, so every id is unknown.
            Method::TasksGet | Method::TasksCancel | Method::TasksResult => {
                RequestOutcome::Answer(about_task::unknown())
            }
            Method::Initialize | Method::Listen | Method::TasksList | Method::TasksUpdate | Method::Unknown => {
                RequestOutcome::Answer(method_not_found(&request.method, era))
            }
        }
    }

    /// Takes the next call number and returns the labels of that call.
    pub(super) fn labels(&self, method: Method, arrived: Instant) -> CallLabels {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        CallLabels { method, label: label(method), call, arrived }
    }

    /// Returns the refusal of a request that comes to no call here.
    pub fn refusal(&self, failure: &CallFailure, method: Method, revision: Revision) -> RequestAnswer {
        refusal_answer(failure, &self.labels(method, clock::now()), revision)
    }

    /// Answers `server/discover`.
    fn discover(&self, client: &ClientContext) -> RequestAnswer {
        let (text, is_private) = self.instructions(client);
        let is_private = is_private || self.snapshots.load().has_apps();
        RequestAnswer::ok(discover_result(self.at_present(client), &text, is_private))
    }

    /// Returns the features that can be declared to the client now.
    fn at_present(&self, client: &ClientContext) -> CurrentCapabilities {
        let snapshot = self.snapshots.load();
        let extensions = self.offered_extensions(client);
        let logging = snapshot.logs(client.profile.as_deref());
        CurrentCapabilities { completions: snapshot.completes(), logging, extensions }
    }

    /// Returns the extensions that can be declared to the client now.
    pub fn offered_extensions(&self, client: &ClientContext) -> ExtensionSet {
        let snapshot = self.snapshots.load();
        let view = view_of(&snapshot, client);
        view.map(|view| snapshot.offered_extensions(view, client.viewer())).unwrap_or_default()
    }
}

/// Sets the log level of a legacy session and stores it with a session that outlives a restart.
/// Answered without error even if no server logs.
fn set_level(client: &ClientContext, params: &RawObject) -> RequestOutcome {
    let (Some(level), Some(log)) = (params.get("level").and_then(LogLevel::read), &client.log) else {
        let text = "`level` must be one of the eight levels of syslog";
        return RequestOutcome::Answer(RequestAnswer::error(code::INVALID_PARAMS, text, None));
    };
    log.set(level);
    let done = RequestAnswer::ok(RawJson::EMPTY_OBJECT);
    let Some(kept) = client.kept.clone() else { return RequestOutcome::Answer(done) };
    RequestOutcome::Later(Box::pin(async move {
        kept.keep_level(level).await;
        done
    }))
}
