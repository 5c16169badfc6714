//! An open approval, and the message that a person reads.

use super::shown::KeptArguments;
use super::view::ViewColours;
use super::{ApprovalId, ApprovalSubject, CallDetails, SteadySeconds};
use crate::policy::kind::ActionKind;
use crate::wire::digest::Digest;
use crate::wire::foreign::quoted;

/// Longest message of an approval, in bytes. The arguments are cut to what the rest leaves.
const MAX_MESSAGE: usize = 2048;
/// Most bytes of a message for the arguments.
const MAX_BRIEF: usize = 1024;
/// Longest name in a message, in bytes.
const MAX_NAME: usize = 64;
/// Longest item name in a message, in bytes.
const MAX_ITEM: usize = 160;

/// An open approval: the action that needs it, and the call as a person sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenApproval {
    pub id: ApprovalId,
    pub asked: ApprovalSubject,
    pub shown: CallDetails,
    pub opened_at: SteadySeconds,
    /// The time from which no answer counts.
    pub until: SteadySeconds,
}

impl OpenApproval {
    /// Returns the digest of the message, which an answer to several approvals states for each.
    pub fn digest(&self) -> Digest {
        Digest::of(self.message().as_bytes())
    }

    /// Renders the message of an approval, the same for all channels: at most 2 KiB, and without
    /// hidden characters.
    ///
    /// The first line says that headend needs an approval. Foreign text is between quotes, which it
    /// cannot close, or behind an indent, which no line of headend's own has.
    pub fn message(&self) -> String {
        let ApprovalSubject { caller, upstream, kind, item, definition, arguments, rule, .. } = &self.asked;
        let shown = &self.shown;
        let says = shown.client.as_ref().map_or(String::new(), |client| {
            format!(", says it is {} (not verified)", quoted(&client.to_string(), 2 * MAX_NAME))
        });
        let called = if *shown.exposed == **item {
            String::new()
        } else {
            format!(" (called {})", quoted(&shown.exposed, MAX_NAME))
        };
        let warnings: String = self.warnings().iter().map(|text| format!("WARNING:   {text}\n")).collect();
        let head = format!(
            "headend needs your approval:\n\
             caller:    {}{says}\nupstream:  {}\n{:<11}{}{called}\neffect:    {}\n{warnings}\
             arguments: {} bytes, digest {}\n",
            quoted(caller.name(), MAX_NAME),
            quoted(upstream, MAX_NAME),
            format!("{}:", kind.into_str()),
            quoted(item, MAX_ITEM),
            self.effect(),
            shown.arguments_bytes,
            arguments.short(),
        );
        let tail = format!(
            "definition {}, rule {}\n{}\nIf nobody answers, the call is not made.",
            definition.short(),
            quoted(rule, MAX_NAME),
            self.outcome(),
        );
        let room = MAX_MESSAGE.saturating_sub(head.len() + tail.len()).min(MAX_BRIEF);
        head + &self.brief(room) + &tail
    }

    /// Renders the arguments in indented lines, within `room` bytes. A line at the end says if
    /// something is left out.
    fn brief(&self, room: usize) -> String {
        const MORE: &str = "  .. and more that is not shown here\n";
        let view = self.shown.arguments.view(room).map(|view| (view.told(&ViewColours::NONE), view.is_whole()));
        let (told, mut is_whole) = match (&self.shown.arguments, &view) {
            (_, Some((told, is_whole))) => (told.as_str(), *is_whole),
            (KeptArguments::Beginning(told), None) => (&**told, false),
            (KeptArguments::Whole(_), None) => ("", false),
        };
        let mut out = String::new();
        for line in told.lines() {
            let left = room.saturating_sub(out.len() + 3 + MORE.len());
            if line.len() > left {
                is_whole = false;
                let end = line.char_indices().map(|(at, _)| at).take_while(|at| *at <= left).last();
                out.extend(["  ", line.get(..end.unwrap_or(0)).unwrap_or_default(), "\n"]);
                break;
            }
            out.extend(["  ", line, "\n"]);
        }
        if !is_whole {
            out.push_str(MORE);
        }
        out
    }

    /// Returns warnings about facts that a reader would not notice, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let oddities = &self.shown.oddities;
        let hidden = oddities.told_hidden().map(|hidden| format!("{hidden}, shown as \\u{{..}}"));
        let bare = self.shown.bare.as_ref().map(|name| {
            format!(
                "called by its bare name {}, as an app does; any app of the client may have",
                quoted(name, MAX_NAME)
            )
        });
        hidden.into_iter().chain(oddities.told_mixed()).chain(bare).collect()
    }

    /// Describes the possible effect of the call, and who states it.
    pub fn effect(&self) -> String {
        // Other items state no effects; the protocol only reads them.
        if self.asked.kind == ActionKind::Tool { self.shown.effect() } else { "reads only".to_owned() }
    }

    /// Returns a sentence about the effect of a yes.
    pub fn outcome(&self) -> String {
        describe_outcome(self.asked.kind, &self.asked.upstream)
    }
}

/// Returns a sentence about the effect of a yes to a call of this kind at this upstream.
fn describe_outcome(kind: ActionKind, upstream: &str) -> String {
    let upstream = quoted(upstream, MAX_NAME);
    let does = match kind {
        ActionKind::Tool => "runs this tool",
        ActionKind::Prompt => "fills in this prompt",
        ActionKind::Resource
        | ActionKind::Completion
        | ActionKind::Subscription
        | ActionKind::Task
        | ActionKind::Sampling
        | ActionKind::Elicitation
        | ActionKind::Launch => "is asked for this resource",
    };
    format!("If you allow it once, {upstream} {does} with exactly these arguments, once.")
}
