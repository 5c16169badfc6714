//! The operator's methods about pins: `pins.list`, `pins.diff`, `pins.approve`, `pins.reject`.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::daemon::gateway::Gateway;
use crate::gateway::supervisor::Order;
use crate::policy::Digest;
use crate::store::pins::{PinKind, PinView};
use crate::wire::code;
use crate::wire::message::Request;
use crate::wire::raw::{RawJson, RawObject};

type Refused = (i64, String);

pub(super) async fn operate(gateway: &Gateway, caller: &Arc<str>, request: &Request) -> Result<RawJson, Refused> {
    let params = request.params.as_ref().and_then(|raw| RawObject::parse(raw).ok()).unwrap_or_default();
    let told = |error: crate::store::pins::PinError| (1, error.to_string());
    gateway.pins.refresh().await.map_err(|error| (1, error.to_string()))?;
    let kind = match params.string("kind") {
        Some(word) => Some(PinKind::parse(&word).ok_or((1, format!("there is no kind {word:?}")))?),
        None => None,
    };
    let name = || params.string("name").ok_or((code::INVALID_PARAMS, "params lacks `name`".to_owned()));
    match request.method.as_str() {
        "pins.list" => Ok(listed(&gateway.pins.list())),
        "pins.diff" => Ok(gateway.pins.find(&name()?, kind).map_err(told)?.to_json(true)),
        "pins.approve" | "pins.reject" => {
            let shown = params.string("digest").and_then(|text| Digest::from_hex(&text));
            let shown =
                shown.ok_or((code::INVALID_PARAMS, "params lacks the `digest` of what was shown".to_owned()))?;
            let name = name()?;
            let decided = if request.method == "pins.approve" {
                gateway.pins.approve(&name, kind, shown, caller).await
            } else {
                gateway.pins.reject(&name, kind, shown, caller).await
            };
            let view = decided.map_err(told)?;
            show_what_may_be_shown(gateway).await;
            Ok(view.to_json(false))
        }
        other => Err((code::METHOD_NOT_FOUND, format!("no admin method {other:?}"))),
    }
}

/// All pins without their texts.
pub(crate) fn listed(pins: &[PinView]) -> RawJson {
    let mut out = RawObject::default();
    out.set("pins", RawJson::list(pins.iter().map(|pin| pin.to_json(false))));
    out.encode()
}

/// Waits until lists and calls reflect the decision.
async fn show_what_may_be_shown(gateway: &Gateway) {
    let (reply, done) = oneshot::channel();
    // Both fail only when the gateway shuts down.
    drop(gateway.supervised.orders.send(Order::Review { reply }).await);
    let _ended = done.await;
}
