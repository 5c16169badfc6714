//! The card of an open approval.

use super::argument::{Argument, arguments};
use super::text::{Piece, When, block, capitalised, json, span, visible};
use crate::policy::consent::{ApprovalView, Wall};
use crate::policy::{Evidence, Hints, Kind, Said};
use crate::wire::foreign;
use crate::wire::layout::indented;

/// Bytes of the arguments on a card beside others, and on a page of its own.
const MAX_BRIEF: usize = 8 * 1024;
const MAX_WHOLE: usize = 64 * 1024;
/// Characters of them in a list.
const MAX_LINE: usize = 240;

/// A possible effect of a call in words, and its mark.
#[derive(Debug)]
pub(crate) struct Effect {
    pub(crate) tone: &'static str,
    pub(crate) text: String,
}

/// The words of those who state something about the item; nobody has verified them.
fn effects(approval: &ApprovalView) -> Vec<Effect> {
    if approval.kind != Kind::Tool.into_str() {
        // The protocol lets other items do nothing else.
        return vec![Effect { tone: "calm", text: "Only reads".to_owned() }];
    }
    let tone = |hints: &Hints| match (hints.destructive, hints.read_only) {
        (Some(true), _) => "danger",
        (_, Some(true)) => "calm",
        _ => "warn",
    };
    let Said { server, operator } = &approval.said;
    let by_operator = approval.said.by_operator().map(|text| Effect { tone: tone(operator), text: capitalised(&text) });
    let by_server = Effect { tone: tone(server), text: capitalised(&approval.said.by_server()) };
    by_operator.into_iter().chain([by_server]).collect()
}

/// The effect in a word or two.
fn mark(approval: &ApprovalView) -> Effect {
    let (tone, text) = match (approval.destructive, approval.kind != Kind::Tool.into_str()) {
        (true, _) => ("danger", "May delete"),
        (false, true) => ("calm", "Only reads"),
        (false, false) if approval.said.operator.read_only == Some(true) => ("calm", "Only reads"),
        (false, false) if approval.said.server.read_only == Some(true) => ("calm", "Says it only reads"),
        (false, false) => ("warn", "Changes things"),
    };
    Effect { tone, text: text.to_owned() }
}

/// The beginning of the arguments in one line, hidden characters spelled out.
fn brief(values: &[Argument], texts: &[Argument]) -> String {
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

/// An open approval.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) id: String,
    /// Digest of what is shown, which an answer to several approvals names.
    pub(crate) digest: String,
    pub(crate) caller: String,
    pub(crate) upstream: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) canonical: Option<String>,
    pub(crate) rule: String,
    pub(crate) effects: Vec<Effect>,
    /// The effect of a repeated call, and who states it.
    pub(crate) repetition: Option<String>,
    /// The effect in a word, and the beginning of the arguments, for a list.
    pub(crate) mark: Effect,
    pub(crate) brief: String,
    pub(crate) destructive: bool,
    /// The name that the client gives itself.
    pub(crate) client: Option<String>,
    pub(crate) outcome: String,
    pub(crate) description: Vec<Piece>,
    /// Short ones, then those in lines.
    pub(crate) values: Vec<Argument>,
    pub(crate) texts: Vec<Argument>,
    pub(crate) no_arguments: bool,
    /// How much of the arguments is not shown.
    pub(crate) left_out: Option<String>,
    /// The arguments exactly as they are sent, on the page of one approval.
    pub(crate) exact: Option<Vec<Piece>>,
    pub(crate) arguments_bytes: usize,
    pub(crate) hidden: Option<String>,
    pub(crate) mixed: Option<String>,
    pub(crate) arguments_digest: String,
    pub(crate) definition_digest: String,
    pub(crate) has_session: bool,
    /// Folders or the site below which it can be allowed, the nearest first.
    pub(crate) below: Vec<String>,
    /// Sentences about the calls that a grant below the nearest folder covers.
    pub(crate) covers: String,
    /// The words of its button.
    pub(crate) below_word: &'static str,
    /// Whether the console's evidence suffices to allow it.
    pub(crate) answerable: bool,
    pub(crate) asked: When,
    pub(crate) left: String,
    /// Whether the agent still waits.
    pub(crate) agent: String,
}

/// Whether the agent still waits, in a sentence.
fn told_of_agent(approval: &ApprovalView) -> String {
    match (approval.waits, approval.wait_left) {
        (Some(true), Some(left)) => format!("The agent waits, {} left.", span(left)),
        (Some(true), None) => "The agent waits.".to_owned(),
        (Some(false) | None, _) => "The agent was told to stop: after a yes, tell it to try again.".to_owned(),
    }
}

impl Card {
    /// A card beside others, with the beginning of long arguments.
    pub(crate) fn new(approval: &ApprovalView, now: Wall) -> Self {
        Self::bounded(approval, now, MAX_BRIEF)
    }

    /// The card of a page of its own.
    pub(crate) fn whole(approval: &ApprovalView, now: Wall) -> Self {
        let exact = match &approval.arguments {
            Some(json_text) if json_text.bytes().len() <= MAX_WHOLE => {
                let text = json_text.text();
                // Deep nesting would be mostly indents.
                let lines = indented(&text);
                let exact: &str = if lines.len() <= 4 * MAX_WHOLE { &lines } else { &text };
                Some(json(exact))
            }
            Some(_) | None => None,
        };
        Self { exact, ..Self::bounded(approval, now, MAX_WHOLE) }
    }

    fn bounded(approval: &ApprovalView, now: Wall, bound: usize) -> Self {
        let view = approval.arguments_view(bound);
        let all = view.as_ref().map(arguments).unwrap_or_default();
        let (values, mut texts): (Vec<_>, Vec<_>) = all.into_iter().partition(|argument| argument.value.is_some());
        if let Some(text) = &approval.arguments_beginning {
            texts.push(Argument::beginning(text, bound));
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
            mark: mark(approval),
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
            answerable: approval.is_met_by(Evidence::Page),
            asked: When::past(now, approval.opened_at),
            left: span(approval.until.saturating_sub(now)),
            agent: told_of_agent(approval),
        }
    }
}
