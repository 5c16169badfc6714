//! What a person is shown of a call, in plain ASCII: foreign text cannot look like anything else, hide anything or steer a
//! terminal.

use std::fmt::Write as _;

use crate::policy::Annotations;
use crate::wire::foreign;
use crate::wire::raw::RawJson;

/// Arguments are shown up to here on a page, in bytes.
const MAX_PAGE: usize = 64 * 1024;
/// And up to here in a message.
const MAX_BRIEF: usize = 1024;

/// What a person is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The name by which the client called the item; foreign text.
    pub(crate) exposed: String,
    /// The arguments over several lines, escaped, the first 64 KiB.
    pub(crate) arguments: String,
    /// The same on one line, the first 1 KiB.
    pub(crate) brief: String,
    /// Whether `brief` is all of them.
    pub(crate) brief_is_whole: bool,
    /// Whether `arguments` is all of them.
    pub(crate) complete: bool,
    /// Bytes of the arguments as they were received.
    pub(crate) arguments_bytes: usize,
    /// Characters in the arguments that nobody would have seen.
    pub(crate) hidden_characters: usize,
    /// The effective ones.
    pub(crate) annotations: Annotations,
}

impl Shown {
    pub(crate) fn new(exposed: &str, annotations: Annotations, arguments: Option<&RawJson>) -> Self {
        let raw: &[u8] = arguments.map_or(b"{}", |raw| raw.bytes());
        let (mut page, mut brief) = (Text::new(MAX_PAGE, true), Text::new(MAX_BRIEF, false));
        let mut hidden = 0;
        tokens(raw, &mut |token| {
            if let Token::String(text) = token {
                hidden += foreign::hidden_in(text);
            }
            page.token(token);
            brief.token(token);
        });
        Self {
            exposed: exposed.to_owned(),
            complete: !page.full,
            arguments: page.out,
            brief_is_whole: !brief.full,
            brief: brief.out,
            arguments_bytes: raw.len(),
            hidden_characters: hidden,
            annotations,
        }
    }

    /// What may come of it, in words.
    pub(crate) fn effect(&self) -> String {
        let Annotations { read_only, destructive, open_world, known_destructive, .. } = self.annotations;
        let what = if read_only {
            "reads only"
        } else if known_destructive {
            "may destroy or overwrite"
        } else if destructive {
            "changes things, may destroy or overwrite (nothing is said about it)"
        } else {
            "changes things"
        };
        let reach = if open_world { "; reaches outside this machine's control" } else { "" };
        format!("{what}{reach}")
    }
}

/// Foreign text in plain ASCII, without quotes around it: everything but printable characters as `\u{..}`.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| escape(c, &mut out));
    out
}

fn escape(c: char, out: &mut String) {
    match c {
        '"' | '\\' => out.extend(['\\', c]),
        ' '..='~' => out.push(c),
        // Writing to a string cannot fail.
        c => drop(write!(out, "\\u{{{:x}}}", u32::from(c))),
    }
}

/// A part of a JSON text.
#[derive(Clone, Copy, Debug)]
enum Token<'t> {
    Open(char),
    Close(char),
    Comma,
    Colon,
    String(&'t str),
    /// A number, a word, or a string that is no text, as it was received.
    Other(&'t str),
}

/// Takes a JSON text apart. Text that is not JSON is one token.
fn tokens(raw: &[u8], tell: &mut dyn FnMut(Token<'_>)) {
    let Ok(text) = std::str::from_utf8(raw) else {
        return tell(Token::Other(&String::from_utf8_lossy(raw)));
    };
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => string_length(rest),
            c if c.is_ascii_whitespace() || "{}[],:".contains(c) => 1,
            _ => rest.find([' ', '\n', '\r', '\t', '{', '}', '[', ']', ',', ':', '"']).unwrap_or(rest.len()),
        };
        let Some((part, after)) = rest.split_at_checked(length) else { return tell(Token::Other(rest)) };
        match first {
            '{' | '[' => tell(Token::Open(first)),
            '}' | ']' => tell(Token::Close(first)),
            ',' => tell(Token::Comma),
            ':' => tell(Token::Colon),
            '"' => match serde_json::from_str::<String>(part) {
                Ok(text) => tell(Token::String(&text)),
                Err(_) => tell(Token::Other(part)),
            },
            c if c.is_ascii_whitespace() => {}
            _ => tell(Token::Other(part)),
        }
        rest = after;
    }
}

/// Length of the string literal at the start, quotes included.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// JSON that is written anew, up to a bound.
struct Text {
    out: String,
    bound: usize,
    full: bool,
    /// Over several lines.
    pretty: bool,
    depth: usize,
    /// An array or object was opened and nothing stands in it so far.
    is_empty: bool,
}

impl Text {
    fn new(bound: usize, pretty: bool) -> Self {
        Self { out: String::new(), bound, full: false, pretty, depth: 0, is_empty: false }
    }

    fn token(&mut self, token: Token<'_>) {
        if self.full {
            return;
        }
        if let Token::Close(c) = token {
            self.depth = self.depth.saturating_sub(1);
            if !self.is_empty {
                self.line();
            }
            self.is_empty = false;
            return self.push(c);
        }
        if std::mem::take(&mut self.is_empty) {
            self.line();
        }
        match token {
            Token::Open(c) => {
                self.push(c);
                self.depth += 1;
                self.is_empty = true;
            }
            Token::Comma => {
                self.push(',');
                self.line();
            }
            Token::Colon => {
                self.push(':');
                if self.pretty {
                    self.push(' ');
                }
            }
            Token::String(text) => {
                self.push('"');
                self.text(text);
                self.push('"');
            }
            Token::Other(text) => self.text(text),
            Token::Close(_) => {}
        }
    }

    fn line(&mut self) {
        if self.pretty {
            self.push('\n');
            (0..self.depth).for_each(|_| {
                self.push(' ');
                self.push(' ');
            });
        }
    }

    fn text(&mut self, text: &str) {
        let mut one = String::with_capacity(12);
        for c in text.chars() {
            one.clear();
            escape(c, &mut one);
            self.whole(&one);
        }
    }

    fn push(&mut self, c: char) {
        self.whole(c.encode_utf8(&mut [0; 4]));
    }

    /// Adds all of a piece or none, so that no escape is cut in two.
    fn whole(&mut self, piece: &str) {
        self.full |= self.out.len() + piece.len() > self.bound;
        if !self.full {
            self.out.push_str(piece);
        }
    }
}
