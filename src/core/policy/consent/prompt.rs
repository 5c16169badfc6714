//! A prompt and its message.

use super::{Asked, PromptId, Shown, Wall};
use crate::policy::{Digest, Kind};
use crate::wire::foreign;

/// An open request for consent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    pub id: PromptId,
    pub asked: Asked,
    pub shown: Shown,
    pub opened_at: Wall,
    /// From then on no answer counts.
    pub until: Wall,
}

impl Prompt {
    /// Digest of what a person is shown, which an answer to several prompts names for each.
    pub fn digest(&self) -> Digest {
        Digest::of(self.message().as_bytes())
    }

    /// The message of a prompt on any channel: plain ASCII, at most 2 KiB.
    ///
    /// The first line says that headend asks. Foreign text stands between quotes only, and cannot close them.
    pub fn message(&self) -> String {
        let Asked { caller, upstream, kind, item, definition, arguments, rule, .. } = &self.asked;
        let shown = &self.shown;
        let called =
            if *shown.exposed == **item { String::new() } else { format!(" (called {})", quoted(&shown.exposed, 64)) };
        let rest = if shown.brief_is_whole { "" } else { "\n           .. and more that is not shown here" };
        let hidden = match shown.hidden_characters {
            0 => String::new(),
            n => format!("\nWARNING:   {n} hidden characters in the arguments, shown as \\u{{..}}"),
        };
        format!(
            "headend asks for consent. This is the gateway itself, not a server behind it.\n\
             caller:    {}\nupstream:  {}\n{:<11}{}{called}\neffect:    {}\n\
             arguments: {}{rest}\n           ({} bytes, digest {}){hidden}\n\
             definition {}, rule {}\n\
             No answer is a no: the call is not made then, and never later.",
            quoted(caller, 64),
            quoted(upstream, 64),
            format!("{}:", kind.into_str()),
            quoted(item, 160),
            // Other kinds of items say nothing about what they do; the protocol only reads them.
            if *kind == Kind::Tool { shown.effect() } else { "reads only".to_owned() },
            shown.brief,
            shown.arguments_bytes,
            arguments.short(),
            definition.short(),
            quoted(rule, 64),
        )
    }
}

/// Foreign text between quotes, escaped; at most so many bytes of it, with its length where it is cut.
fn quoted(text: &str, most: usize) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        let before = out.len();
        foreign::ascii(c, &mut out);
        if out.len() > most {
            out.truncate(before);
            return format!("{out}..\" ({} bytes)", text.len());
        }
    }
    out + "\""
}
