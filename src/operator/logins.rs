//! The operator's methods `login.*` and `logout`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::clock;
use crate::daemon::gateway::Gateway;
use crate::gateway::logins::{Done, LIFE, NotTaken, WantedScope, Way};
use crate::upstream::handle::Handle;
use crate::wire::code;
use crate::wire::raw::{RawJson, RawObject};

/// How long the answer waits for the upstream after a login.
const PATIENCE: Duration = Duration::from_secs(20);

/// Does what the method says.
pub(crate) async fn operate(
    gateway: &Gateway,
    by: &str,
    method: &str,
    params: &RawObject,
) -> Result<RawJson, (i64, String)> {
    let text = |name: &'static str| params.string(name).ok_or((code::INVALID_PARAMS, format!("params lacks `{name}`")));
    let refused = |why: String| (1, why);
    match method {
        "login.begin" => {
            let handle = handle(gateway, &text("name")?)?;
            let way = if params.is_true("paste") { Way::Paste } else { Way::Page };
            let begun = gateway.logins.begin(&handle, way).await.map_err(refused)?;
            tracing::info!(upstream.name = %handle.name, by, "login begun by the operator");
            let mut out =
                RawObject::of_strings(&[("id", &begun.id), ("upstream", &begun.upstream), ("issuer", &begun.issuer)]);
            match (way, gateway.console.get()) {
                (Way::Page, Some(console)) => {
                    out.set("link", RawJson::string(&format!("{}/login/{}", console.base(), begun.id)));
                }
                (Way::Page | Way::Paste, _) => out.set("link", RawJson::string(&begun.address)),
            }
            let names = |is_shown: fn(&WantedScope) -> bool| {
                let names: Vec<_> =
                    begun.scopes.iter().filter(|scope| is_shown(scope)).map(|scope| &*scope.name).collect();
                (!names.is_empty()).then(|| RawJson::string(&names.join(" ")))
            };
            out.set_some("page-host", begun.page_host.as_deref().map(RawJson::string));
            out.set_some("scopes", names(|_| true));
            out.set_some("more-scopes", names(|scope| scope.is_more));
            out.set_some("warning", begun.warning.as_deref().map(RawJson::string));
            out.set("seconds", RawJson::number(LIFE.as_secs()));
            Ok(out.encode())
        }
        "login.wait" => {
            let id = text("id")?;
            let ended = gateway.service.draining.run_until_cancelled(gateway.logins.ended(&id)).await;
            let stopped = || refused("headend is stopping, and the login ends with it; begin another one".to_owned());
            let done = ended.ok_or_else(stopped)?.map_err(refused)?;
            Ok(told(gateway, &done).await)
        }
        "login.paste" => {
            let done = gateway.logins.pasted(&text("id")?, &text("address")?).await;
            let done = done.map_err(|error| {
                refused(match error {
                    NotTaken::Unknown => {
                        "this address does not belong to the login that was begun here; copy the whole address from the browser".to_owned()
                    }
                    NotTaken::Failed(why) => why,
                })
            })?;
            Ok(told(gateway, &done).await)
        }
        "logout" => {
            let handle = handle(gateway, &text("name")?)?;
            let was_there = gateway.logins.log_out(&handle).await.map_err(refused)?;
            tracing::info!(upstream.name = %handle.name, by, was_there, "logged out by the operator");
            let mut out = RawObject::of_strings(&[("name", handle.name.as_str())]);
            out.set("was-there", RawJson::boolean(was_there));
            Ok(out.encode())
        }
        other => Err((code::METHOD_NOT_FOUND, format!("no admin method {other:?}"))),
    }
}

/// The upstream of that name.
fn handle(gateway: &Gateway, name: &str) -> Result<Arc<Handle>, (i64, String)> {
    let snapshot = gateway.service.snapshots.load_full();
    let found = snapshot.handles.iter().find(|handle| handle.name.as_str() == name).cloned();
    found.ok_or_else(|| (1, format!("there is no upstream `{name}`; `headend status` lists them")))
}

/// The end of a login, with the state of its upstream once that has connected.
async fn told(gateway: &Gateway, done: &Done) -> RawJson {
    let mut out = RawObject::of_strings(&[("upstream", &done.upstream), ("issuer", &done.issuer)]);
    out.set_some("account", done.account.as_deref().map(RawJson::string));
    if let Ok(handle) = handle(gateway, &done.upstream) {
        let until = clock::now() + PATIENCE;
        handle.main.started(PATIENCE).await;
        // The end of a start is told a moment before the state that comes of it, and the lists are read after it.
        let is_whole = || handle.main.listed.load(Ordering::Relaxed);
        let goes_on = |state| state == "starting" || (state == "ready" && !is_whole());
        while goes_on(handle.health.state()) && clock::now() < until {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        out.set("state", RawJson::string(handle.health.state()));
        out.set_some("last-error", handle.health.last_error().map(|error| RawJson::string(&error)));
    }
    out.encode()
}
