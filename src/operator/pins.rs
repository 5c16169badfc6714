//! The operator's methods about pins: `pins.list`, `pins.diff`, `pins.show`, `pins.approve`, `pins.reject`. The last two decide one
//! pin by name, or all of `items`.

use crate::daemon::gateway::Gateway;
use crate::gateway::supervisor::Order;
use crate::policy::Digest;
use crate::store::pins::{Decision, PinError, PinKind, PinView};
use crate::wire::code;
use crate::wire::raw::{RawJson, RawObject};

type Refused = (i64, String);

pub(crate) async fn operate(gateway: &Gateway, by: &str, method: &str, params: &RawObject) -> Result<RawJson, Refused> {
    let told = |error: PinError| (1, error.to_string());
    gateway.pins.refresh().await.map_err(|error| (1, error.to_string()))?;
    match method {
        "pins.list" => Ok(listed(&gateway.pins.list(), false)),
        "pins.diff" => Ok(gateway.pins.find(&name(params)?, kind(params)?).map_err(told)?.to_json(true)),
        "pins.show" => Ok(listed(&gateway.pins.views(&each(params, |item| Ok((name(item)?, whole(item)?)))?), true)),
        "pins.approve" | "pins.reject" if params.get("items").is_some() => {
            let decisions =
                each(params, |item| Ok(Decision { name: name(item)?, kind: whole(item)?, shown: digest(item)? }))?;
            let decided = gateway.pins.decide_all(&decisions, method == "pins.approve", by).await;
            let decided = decided.map_err(|error| (1, error.to_string()))?;
            show_what_may_be_shown(gateway).await;
            Ok(outcome(&decisions, &decided))
        }
        "pins.approve" | "pins.reject" => {
            let (shown, name, kind) = (digest(params)?, name(params)?, kind(params)?);
            let decided = if method == "pins.approve" {
                gateway.pins.approve(&name, kind, shown, by).await
            } else {
                gateway.pins.reject(&name, kind, shown, by).await
            };
            let view = decided.map_err(told)?;
            show_what_may_be_shown(gateway).await;
            Ok(view.to_json(false))
        }
        other => Err((code::METHOD_NOT_FOUND, format!("no admin method {other:?}"))),
    }
}

fn name(params: &RawObject) -> Result<String, Refused> {
    params.string("name").ok_or((code::INVALID_PARAMS, "params lacks `name`".to_owned()))
}

fn kind(params: &RawObject) -> Result<Option<PinKind>, Refused> {
    let parse = |word: String| word.parse().map_err(|_| (1, format!("there is no kind {word:?}")));
    params.string("kind").map(parse).transpose()
}

fn whole(params: &RawObject) -> Result<PinKind, Refused> {
    kind(params)?.ok_or((code::INVALID_PARAMS, "an item lacks its `kind`".to_owned()))
}

fn digest(params: &RawObject) -> Result<Digest, Refused> {
    let shown = params.string("digest").and_then(|text| Digest::from_hex(&text));
    shown.ok_or((code::INVALID_PARAMS, "params lacks the `digest` of what was shown".to_owned()))
}

/// The members of `items`.
fn each<T>(params: &RawObject, read: impl Fn(&RawObject) -> Result<T, Refused>) -> Result<Vec<T>, Refused> {
    let wrong = || (code::INVALID_PARAMS, "params lacks `items`, a list of objects".to_owned());
    let items = params.list("items").ok_or_else(wrong)?;
    items.iter().map(|raw| read(&RawObject::parse(raw).map_err(|_| wrong())?)).collect()
}

/// Pins as JSON, with their texts where these are asked for.
pub(crate) fn listed(pins: &[PinView], texts: bool) -> RawJson {
    RawObject::of([("pins", RawJson::list(pins.iter().map(|pin| pin.to_json(texts))))]).encode()
}

/// How many pins were decided, and which were left and why.
pub(crate) fn outcome(decisions: &[Decision], decided: &[Result<PinView, PinError>]) -> RawJson {
    let left = decisions.iter().zip(decided).filter_map(|(decision, decided)| {
        let why = decided.as_ref().err()?.to_string();
        let told = [("name", &*decision.name), ("kind", decision.kind.into_str()), ("why", &*why)];
        Some(RawObject::of_strings(&told).encode())
    });
    let count = decided.iter().filter(|decided| decided.is_ok()).count();
    RawObject::of([("decided", RawJson::number(count)), ("left", RawJson::list(left))]).encode()
}

/// Waits until lists and calls reflect the decision.
async fn show_what_may_be_shown(gateway: &Gateway) {
    // The order fails only when the gateway shuts down.
    let _done = Order::ask(&gateway.supervised.orders, |reply| Order::Review { reply }).await;
}
