//! The card of an open approval: everything the operator needs to see before answering.

use super::argument::{ShownArgument, arguments};
use crate::console::text::{DisplayTime, ForeignPiece, block, capitalised, json, span, visible};
use crate::policy::consent::{ApprovalView, SteadySeconds};
use crate::policy::{ActionKind, ApprovalEvidence, Hints, StatedHints};
use crate::wire::foreign;
use crate::wire::json::layout::indented;

/// Most bytes of the arguments on a card beside others (`MAX_BRIEF`), and on a page of its own
/// (`MAX_WHOLE`).
const MAX_BRIEF: usize = 8 * 1024;
const MAX_WHOLE: usize = 64 * 1024;
/// Most characters of the arguments on one line of a list.
const MAX_LINE: usize = 240;

/// A possible effect of a call, in words and with a colour.
#[derive(Debug)]
pub(crate) struct EffectTag {
    pub(crate) tone: &'static str,
    pub(crate) text: String,
}

/// Returns the hints of the operator and of the server about the item. They are claims that headend
/// has not verified.
fn effects(approval: &ApprovalView) -> Vec<EffectTag> {
    if approval.kind != ActionKind::Tool.into_str() {
        // Under the protocol, items other than tools only read.
        return vec![EffectTag { tone: "calm", text: "Only reads".to_owned() }];
    }
    let tone = |hints: &Hints| match (hints.destructive, hints.read_only) {
        (Some(true), _) => "danger",
        (_, Some(true)) => "calm",
        _ => "warn",
    };
    let StatedHints { server, operator } = &approval.said;
    let by_operator =
        approval.said.by_operator().map(|text| EffectTag { tone: tone(operator), text: capitalised(&text) });
    let by_server = EffectTag { tone: tone(server), text: capitalised(&approval.said.by_server()) };
    by_operator.into_iter().chain([by_server]).collect()
}

/// Returns the effect of the call in a few words.
fn effect_tag(approval: &ApprovalView) -> EffectTag {
    let (tone, text) = match (approval.destructive, approval.kind != ActionKind::Tool.into_str()) {
        (true, _) => ("danger", "May delete"),
        (false, true) => ("calm", "Only reads"),
        (false, false) if approval.said.operator.read_only == Some(true) => ("calm", "Only reads"),
        (false, false) if approval.said.server.read_only == Some(true) => ("calm", "Says it only reads"),
        (false, false) => ("warn", "Changes things"),
    };
    EffectTag { tone, text: text.to_owned() }
}

/// Returns the beginning of the arguments in one line, with hidden characters spelled out.
fn brief(values: &[ShownArgument], texts: &[ShownArgument]) -> String {
    let mut out = String::new();
    for one in values.iter().chain(texts) {
        let said = one.value.as_ref().or_else(|| one.rows.first().map(|row| &row.pieces));
        for (separator, pieces) in [(if out.is_empty() { "" } else { ", " }, Some(&one.place)), (": ", said)] {
            out.push_str(separator);
            out.extend(pieces.into_iter().flatten().map(|piece| piece.text.as_str()));
        }
        if out.len() > MAX_LINE {
            break;
        }
    }
    foreign::short(&out, MAX_LINE)
}

/// The card of one open approval.
#[derive(Debug)]
pub(crate) struct ApprovalCard {
    pub(crate) id: String,
    /// Digest of what is shown. An answer to several approvals names it.
    pub(crate) digest: String,
    pub(crate) caller: String,
    pub(crate) upstream: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) canonical: Option<String>,
    pub(crate) rule: String,
    pub(crate) effects: Vec<EffectTag>,
    /// The effect of a repeated call, and who states it.
    pub(crate) repetition: Option<String>,
    /// Effect of the call in a few words, for a list.
    pub(crate) mark: EffectTag,
    /// Beginning of the arguments in one line, for a list.
    pub(crate) brief: String,
    pub(crate) destructive: bool,
    /// Name that the client gives itself.
    pub(crate) client: Option<String>,
    pub(crate) outcome: String,
    pub(crate) description: Vec<ForeignPiece>,
    /// Arguments that fit on one line.
    pub(crate) values: Vec<ShownArgument>,
    /// Arguments that take several lines.
    pub(crate) texts: Vec<ShownArgument>,
    pub(crate) no_arguments: bool,
    /// Sentence about the arguments that are not shown.
    pub(crate) left_out: Option<String>,
    /// Arguments exactly as they are sent, indented; on the page of one approval alone.
    pub(crate) exact: Option<Vec<ForeignPiece>>,
    pub(crate) arguments_bytes: usize,
    pub(crate) hidden: Option<String>,
    pub(crate) mixed: Option<String>,
    pub(crate) arguments_digest: String,
    pub(crate) definition_digest: String,
    pub(crate) has_session: bool,
    /// Folders, or the site, below which the calls can be allowed, the nearest first.
    pub(crate) below: Vec<String>,
    /// Sentences about the calls that a grant below the nearest folder covers.
    pub(crate) covers: String,
    /// Label of the button that allows calls below a folder or site.
    pub(crate) below_word: &'static str,
    /// True if the console's evidence (L2) suffices to allow the call.
    pub(crate) answerable: bool,
    pub(crate) asked: DisplayTime,
    /// Time until the approval expires.
    pub(crate) left: String,
    /// Sentence that says whether the agent still waits.
    pub(crate) agent: String,
}

/// Returns a sentence that says whether the agent still waits for the answer.
fn describe_agent(approval: &ApprovalView) -> String {
    match (approval.waits, approval.wait_left) {
        (Some(true), Some(left)) => format!("The agent waits, {} left.", span(left)),
        (Some(true), None) => "The agent waits.".to_owned(),
        (Some(false) | None, _) => "The agent was told to stop: after a yes, tell it to try again.".to_owned(),
    }
}

impl ApprovalCard {
    /// Makes a card that is shown beside others, with the beginning of long arguments.
    pub(crate) fn new(approval: &ApprovalView, now: SteadySeconds) -> Self {
        Self::bounded(approval, now, MAX_BRIEF)
    }

    /// Makes the card for a page of its own, with the exact arguments if they are not too long.
    pub(crate) fn whole(approval: &ApprovalView, now: SteadySeconds) -> Self {
        let exact = match &approval.arguments {
            Some(json_text) if json_text.bytes().len() <= MAX_WHOLE => {
                let text = json_text.text();
                // Indented JSON that is deeply nested would be mostly blanks, so the text is not
                // indented then.
                let lines = indented(&text);
                let exact: &str = if lines.len() <= 4 * MAX_WHOLE { &lines } else { &text };
                Some(json(exact))
            }
            Some(_) | None => None,
        };
        Self { exact, ..Self::bounded(approval, now, MAX_WHOLE) }
    }

    /// Makes a card with at most `bound` bytes of the arguments.
    fn bounded(approval: &ApprovalView, now: SteadySeconds, bound: usize) -> Self {
        let view = approval.arguments_view(bound);
        let all = view.as_ref().map(arguments).unwrap_or_default();
        let (values, mut texts): (Vec<_>, Vec<_>) = all.into_iter().partition(|argument| argument.value.is_some());
        if let Some(text) = &approval.arguments_beginning {
            texts.push(ShownArgument::beginning(text, bound));
        }
        let left_out = view.as_ref().map(|view| view.left_out).filter(|left_out| left_out.values > 0);
        Self {
            id: approval.id.clone(),
            digest: approval.digest.clone(),
            caller: visible(approval.caller.name()),
            upstream: visible(&approval.upstream),
            kind: approval.kind.clone(),
            name: visible(&approval.exposed),
            canonical: (approval.item != approval.exposed).then(|| visible(&approval.item)),
            rule: visible(&approval.rule),
            effects: effects(approval),
            repetition: approval.said.repetition(),
            mark: effect_tag(approval),
            brief: brief(&values, &texts),
            destructive: approval.destructive,
            client: approval.client.as_deref().map(visible),
            outcome: approval.outcome.as_deref().map(visible).unwrap_or_default(),
            description: approval.description.as_deref().map(block).unwrap_or_default(),
            no_arguments: values.is_empty() && texts.is_empty() && left_out.is_none(),
            values,
            texts,
            left_out: left_out.map(|left_out| format!("{}.", left_out.told())),
            exact: None,
            arguments_bytes: approval.arguments_bytes.unwrap_or_default(),
            hidden: approval.oddities.told_hidden(),
            mixed: approval.oddities.told_mixed().as_deref().map(capitalised),
            arguments_digest: approval.arguments_digest.clone().unwrap_or_default(),
            definition_digest: approval.definition_digest.clone().unwrap_or_default(),
            has_session: approval.session,
            below: approval.offers().iter().map(|offer| visible(&offer.base)).collect(),
            below_word: if approval.offers().iter().any(|offer| offer.base.contains("://")) {
                "Always for this site"
            } else {
                "Always below this folder"
            },
            covers: approval.offers().first().map(|offer| visible(&offer.covers)).unwrap_or_default(),
            answerable: approval.is_met_by(ApprovalEvidence::Page),
            asked: DisplayTime::past(now, approval.opened_at),
            left: span(approval.until.saturating_sub(now)),
            agent: describe_agent(approval),
        }
    }
}
