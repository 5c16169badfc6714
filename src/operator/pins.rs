//! Shows pins and decides them, in a running gateway and in a store without a daemon.

use serde::{Deserialize, Serialize};

use super::request::{PinItems, PinName, PinsParams};
use super::{OperatorRefusal, Person};
use crate::store::pins::{PinError, PinRegistry};

pub(crate) use crate::store::pins::{PinDecision, PinKind, PinView, compile_pattern};

/// A list of pins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PinsView {
    pub(crate) pins: Vec<PinView>,
}

/// Result of a decision about one pin or about many.
pub(super) enum PinDecisionResult {
    One(Box<PinView>),
    Many(DecidedPinsView),
}

/// Result of a decision about many pins.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct DecidedPinsView {
    /// Number of pins that were approved or rejected.
    pub(crate) decided: usize,
    /// Pins that were left as they are.
    pub(crate) left: Vec<UndecidedPin>,
}

/// A pin that was left as it is, and why.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UndecidedPin {
    pub(crate) name: String,
    pub(crate) kind: PinKind,
    pub(crate) why: String,
}

/// Returns all pins without their texts.
pub(super) fn list(pins: &PinRegistry) -> PinsView {
    PinsView { pins: pins.list().into_iter().map(PinView::without_texts).collect() }
}

/// Returns one pin with its texts.
pub(super) fn show(pins: &PinRegistry, PinName { name, kind }: &PinName) -> Result<PinView, OperatorRefusal> {
    pins.find(name, *kind).map_err(OperatorRefusal::refused)
}

/// Returns the named pins with their texts; names without a pin are left out.
pub(super) fn texts(pins: &PinRegistry, PinItems { items }: &PinItems) -> PinsView {
    let wanted: Vec<(String, PinKind)> = items.iter().map(|item| (item.name.clone(), item.kind)).collect();
    PinsView { pins: pins.views(&wanted) }
}

/// Approves or rejects one pin, or all of `items`. Each decision names the digest of the text that
/// was shown.
pub(super) async fn decide(
    pins: &PinRegistry,
    approve: bool,
    params: &PinsParams,
    by: &Person,
) -> Result<PinDecisionResult, OperatorRefusal> {
    if let Some(decisions) = &params.items {
        let decided = pins.decide_all(decisions, approve, &by.name).await.map_err(OperatorRefusal::unusable)?;
        return Ok(PinDecisionResult::Many(outcome(decisions, &decided)));
    }
    let lacks = |what: &str| OperatorRefusal::Params(format!("params: missing field `{what}`"));
    let name = params.name.as_deref().ok_or_else(|| lacks("name"))?;
    let shown = params.digest.ok_or_else(|| lacks("digest"))?;
    let decided = if approve {
        pins.approve(name, params.kind, shown, &by.name).await
    } else {
        pins.reject(name, params.kind, shown, &by.name).await
    };
    Ok(PinDecisionResult::One(Box::new(decided.map_err(undecided)?.without_texts())))
}

fn undecided(error: PinError) -> OperatorRefusal {
    match error {
        PinError::Db(error) => OperatorRefusal::unusable(error),
        PinError::Unknown(_) | PinError::Several(_) | PinError::Undecided(_) => OperatorRefusal::refused(error),
    }
}

/// Counts the decisions that were carried out, and lists the others with their reasons.
fn outcome(decisions: &[PinDecision], decided: &[Result<PinView, PinError>]) -> DecidedPinsView {
    let left = decisions.iter().zip(decided).filter_map(|(decision, decided)| {
        let why = decided.as_ref().err()?.to_string();
        Some(UndecidedPin { name: decision.name.clone(), kind: decision.kind, why })
    });
    DecidedPinsView { decided: decided.iter().filter(|decided| decided.is_ok()).count(), left: left.collect() }
}
