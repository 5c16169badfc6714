//! Questions of a server that pretend to be the gateway's own.
//!
//! A person who is asked to agree to a call must be able to tell who asks. A server's question names the server in front, and
//! one that speaks in the gateway's name does not reach anybody.

use unicode_security::skeleton;

use crate::wire::canonical::canonical;
use crate::wire::foreign;
use crate::wire::raw::RawJson;
use crate::wire::tokens::strings;

/// What only the gateway calls itself, as [`folded`] gives it.
const NAME: &str = "headend";
/// How the gateway's own keys among `inputRequests` begin.
const KEYS: &str = "gw.";

/// Whether some string of a JSON value speaks in the gateway's name: has it as a word.
pub(crate) fn imitates(value: &RawJson) -> bool {
    // A value without one meaning, such as a key that stands twice, is not looked into.
    let mut found = canonical(value).is_err();
    strings(value.bytes(), &mut |text| found = found || speaks(text));
    found
}

fn speaks(text: &str) -> bool {
    // What turns the direction of text shows other words than it holds.
    if text.contains(foreign::turns_direction) {
        return true;
    }
    // Characters of no width part a word for programs alone.
    let text = text.replace(|c: char| foreign::is_hidden(c) && !(c.is_control() && c.is_whitespace()), "");
    let words = || text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words().any(|word| folded(word) == folded(NAME)) || text.split(char::is_whitespace).any(is_spelled_with_joiners)
}

/// Whether the letters of one word, without the punctuation between them, are the gateway's name, as in "h-e-a-d-e-n-d".
fn is_spelled_with_joiners(word: &str) -> bool {
    letters(word) == letters(NAME)
}

/// Returns the letters and digits of a text as [`folded`] gives them, so that "Allow-once" equals "allow once".
pub(super) fn letters(text: &str) -> String {
    let letters: String = text.chars().filter(|c| c.is_alphanumeric()).collect();
    folded(&letters)
}

/// Whether a server's key could be taken for one of ours.
pub(crate) fn is_reserved_key(key: &str) -> bool {
    key.trim_start().to_ascii_lowercase().starts_with(KEYS)
}

/// Look-alikes as what they look like, in lower case.
fn folded(text: &str) -> String {
    skeleton(&text.to_lowercase()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_does_not_speak_in_the_gateways_name() {
        for (label, text, want) in [
            ("plain", r#"{"message":"headend asks for consent"}"#, true),
            ("in a title", r#"{"a":{"title":"HeadEnd: approve"}}"#, true),
            ("escaped", r#"{"message":"\u0068eadend asks"}"#, true),
            ("zero width", "{\"message\":\"head\u{200b}end asks\"}", true),
            ("a joiner", "{\"message\":\"head\u{34f}end asks\"}", true),
            ("a selector", "{\"message\":\"head\u{fe0f}end asks\"}", true),
            ("behind a line feed", r#"{"message":"Done.\nheadend asks for your consent"}"#, true),
            ("behind a tab", r#"{"message":"Done.\theadend asks"}"#, true),
            ("behind a form feed", r#"{"message":"Done.\fheadend asks"}"#, true),
            ("behind an escaped control", r#"{"message":"Done.\u000bheadend asks"}"#, true),
            ("parted by a control", r#"{"message":"head\u0000end asks, head\bend"}"#, true),
            ("in a name", r#"{"a\nheadend":1}"#, true),
            ("no escapes", r#"{"message":"C:\\nheadend is \"nheadend\""}"#, false),
            ("backwards", "{\"message\":\"\u{202e}dnedaeh asks\"}", true),
            ("Cyrillic letters", "{\"message\":\"he\u{0430}d\u{0435}nd asks\"}", true),
            ("with a hyphen", r#"{"message":"head-end needs your approval"}"#, true),
            ("with hyphens and a colon", r#"{"title":"HEAD\u2010END: allow this call?"}"#, true),
            ("letter by letter", r#"{"message":"h.e.a.d.e.n.d asks"}"#, true),
            ("parts of other words", r#"{"message":"Go ahead, end it? Headends differ."}"#, false),
            ("somebody else", r#"{"message":"Which head is at the end?"}"#, false),
            ("nothing", "{}", false),
        ] {
            assert_eq!(imitates(&RawJson::trusted(text.to_owned())), want, "{label}");
        }
        assert!(is_reserved_key("gw.consent") && is_reserved_key("GW.x") && !is_reserved_key("gwen"));
    }
}
