//! The text of a call for a person, in plain ASCII: foreign text cannot look like anything else, hide anything or steer a
//! terminal.

use std::borrow::Cow;

use crate::policy::Said;
use crate::wire::foreign;
use crate::wire::layout::laid_out;
use crate::wire::raw::RawJson;
use crate::wire::tokens::{Kind, unescaped};

/// Arguments are shown up to here on a page, in bytes.
const MAX_PAGE: usize = 64 * 1024;
/// And up to here in a message.
const MAX_BRIEF: usize = 1024;

/// The text of a call for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The name by which the client called the item; foreign text.
    pub exposed: String,
    /// The arguments over several lines, escaped, the first 64 KiB.
    pub arguments: String,
    /// The same on one line, the first 1 KiB.
    pub(crate) brief: String,
    /// Whether `brief` is all of them.
    pub(crate) brief_is_whole: bool,
    /// Whether `arguments` is all of them.
    pub complete: bool,
    /// Bytes of the arguments as they were received.
    pub(crate) arguments_bytes: usize,
    /// Number of characters in the arguments that a person could not see.
    pub hidden_characters: usize,
    /// The hints on a tool.
    pub said: Said,
}

impl Shown {
    pub fn new(exposed: &str, said: Said, arguments: Option<&RawJson>) -> Self {
        let json = arguments.map_or(Cow::Borrowed("{}"), RawJson::text);
        let mut hidden_characters = 0;
        let page = Text::of(&json, true, MAX_PAGE, &mut |text| hidden_characters += foreign::hidden_in(text));
        let brief = Text::of(&json, false, MAX_BRIEF, &mut |_| {});
        Self {
            exposed: exposed.to_owned(),
            complete: !page.full,
            arguments: page.out,
            brief_is_whole: !brief.full,
            brief: brief.out,
            arguments_bytes: json.len(),
            hidden_characters,
            said,
        }
    }

    /// The possible effects of a tool's call, by the words of those who state them.
    pub fn effect(&self) -> String {
        let by_server = self.said.by_server();
        self.said.by_operator().map_or(by_server.clone(), |by_operator| format!("{by_operator}; {by_server}"))
    }
}

/// A JSON text written anew, up to a bound.
struct Text {
    out: String,
    bound: usize,
    full: bool,
}

impl Text {
    /// The text in plain ASCII, over lines or on one. `each` sees all of its strings, also those beyond the bound.
    fn of(json: &str, lines: bool, bound: usize, each: &mut dyn FnMut(&str)) -> Self {
        let mut this = Self { out: String::new(), bound, full: false };
        laid_out(json, lines, &mut |kind, part| {
            let is_string = matches!(kind, Some(Kind::Key | Kind::String));
            match unescaped(part.as_bytes()).filter(|_| is_string) {
                Some(text) => {
                    each(&text);
                    this.whole("\"");
                    this.escaped(&text);
                    this.whole("\"");
                }
                None if kind.is_none() => this.whole(part),
                // A number, a word, or a string that is no text, as it was received.
                None => this.escaped(part),
            }
        });
        this
    }

    fn escaped(&mut self, text: &str) {
        let mut one = String::with_capacity(12);
        for c in text.chars() {
            if self.full {
                return;
            }
            one.clear();
            foreign::ascii(c, &mut one);
            self.whole(&one);
        }
    }

    /// Adds all of a piece or none, so that no escape is cut in two.
    fn whole(&mut self, piece: &str) {
        self.full |= self.out.len() + piece.len() > self.bound;
        if !self.full {
            self.out.push_str(piece);
        }
    }
}
