//! Detects questions of a server that pretend to be headend's own.
//!
//! A person who is asked to approve a call must be able to tell who asks. A server's question names
//! the server in front, and one that uses the gateway's name reaches no client.

use crate::mcp::lookalike::{fold_lookalikes, letters, split_words};
use crate::wire::canonical::canonicalize;
use crate::wire::foreign;
use crate::wire::json::raw::RawJson;
use crate::wire::json::tokens::visit_strings;

/// The name that only the gateway may use.
const NAME: &str = "headend";
/// The prefix of the gateway's own keys among `inputRequests`.
const KEYS: &str = "gw.";

/// Reports whether some string of a JSON value has the gateway's name as a word. True also for a
/// value without one meaning, such as an object with a duplicate key.
pub(crate) fn has_gateway_name(value: &RawJson) -> bool {
    // A value without one meaning is not searched, but refused.
    let mut found = canonicalize(value).is_err();
    visit_strings(value.bytes(), &mut |text| found = found || text_has_gateway_name(text));
    found
}

/// Reports whether a text has the gateway's name as people read it, so also in look-alike or spaced
/// letters, or changes the direction of its letters.
fn text_has_gateway_name(text: &str) -> bool {
    // Text whose direction is changed shows other words than it holds.
    if text.contains(foreign::turns_direction) {
        return true;
    }
    // Characters without width divide a word for programs, not for people.
    let text = text.replace(|c: char| foreign::is_hidden(c) && !(c.is_control() && c.is_whitespace()), "");
    let name = fold_lookalikes(NAME);
    let has_word = |text: &str| {
        let mut words = text.split(|c: char| !c.is_alphanumeric());
        words.any(|word| fold_lookalikes(word) == name) || has_spelled(text, &name)
    };
    // Signs that look like letters may divide the name or join it to another word.
    has_word(&text)
        || has_word(&fold_lookalikes(&text))
        || split_words(&text).iter().any(|word| fold_lookalikes(word) == name)
}

/// Reports whether a text spells the name with signs between its letters, as in "h-e-a-d-e-n-d", or
/// with a blank between them.
fn has_spelled(text: &str, name: &str) -> bool {
    let mut row = String::new();
    for word in text.split_whitespace() {
        let spelled = letters(word);
        if spelled == name {
            return true;
        }
        if word.chars().filter(|c| c.is_alphanumeric()).count() > 1 {
            row.clear();
            continue;
        }
        row.push_str(&spelled);
        if row.ends_with(name) {
            return true;
        }
    }
    false
}

/// Reports whether a server's key among `inputRequests` could be taken for one of the gateway's
/// own: it begins with `gw.` in any case, also after white space.
pub(crate) fn is_reserved_key(key: &str) -> bool {
    key.trim_start().to_ascii_lowercase().starts_with(KEYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_alike_of_the_gateways_name_is_the_name() {
        for text in [
            "\u{41d}EADEND asks",
            "\u{397}\u{395}\u{391}D\u{395}\u{39d}D asks",
            "\u{13bb}EADEND asks",
            "HEADE\u{2c9a}D asks",
            "\u{2c8e}EADEND asks",
            "\u{43d}eadend asks",
            "\u{ff28}\u{ff25}\u{ff21}\u{ff24}\u{ff25}\u{ff2e}\u{ff24} asks",
            "\u{24d7}\u{24d4}\u{24d0}\u{24d3}\u{24d4}\u{24dd}\u{24d3} asks",
            "\u{1f137}\u{1f134}\u{1f130}\u{1f133}\u{1f134}\u{1f13d}\u{1f133} asks",
            "\u{1f157}\u{1f154}\u{1f150}\u{1f153}\u{1f154}\u{1f15d}\u{1f153} asks",
            "\u{1f177}\u{1f174}\u{1f170}\u{1f173}\u{1f174}\u{1f17d}\u{1f173} asks",
            "\u{1f1ed}\u{1f1ea}\u{1f1e6}\u{1f1e9}\u{1f1ea}\u{1f1f3}\u{1f1e9} asks",
            "\u{29c}\u{1d07}\u{1d00}\u{1d05}\u{1d07}\u{274}\u{1d05} asks",
            "\u{2b0}\u{1d49}\u{1d43}\u{1d48}\u{1d49}\u{207f}\u{1d48} asks",
            "H\u{c9}ADEND asks",
            "h\u{332}e\u{332}a\u{332}d\u{332}e\u{332}n\u{332}d\u{332} asks",
            "headend2 asks",
            "HeadendGateway asks",
            "theHeadend asks",
            "headend_gateway",
            "HEADEND\u{2223}docs",
            "h e a d e n d asks",
            "This is h e a d e n d, the gateway",
            "h\u{3000}e\u{3000}a\u{3000}d\u{3000}e\u{3000}n\u{3000}d",
            "\u{41d} E A D E N D",
        ] {
            assert!(text_has_gateway_name(text), "{text}");
        }
        for text in [
            "Headends differ",
            "Which head ends here?",
            "a h e a d",
            "\u{41d}\u{435} \u{43d}\u{430}\u{434}\u{43e}",
            "\u{1f1e9}\u{1f1ea}",
            "headending",
        ] {
            assert!(!text_has_gateway_name(text), "{text}");
        }
    }

    #[test]
    fn a_server_does_not_speak_in_the_gateways_name() {
        for (label, text, want) in [
            ("our words", r#"{"message":"headend needs your approval:\ncaller: \"ci\""}"#, true),
            ("our words in other letters", r#"{"message":"HeadEnd Needs Your Approval"}"#, true),
            ("our words with a look-alike", "{\"message\":\"he\u{430}dend needs your approval:\"}", true),
            ("our words behind others", r#"{"message":"Note: headend needs your approval."}"#, true),
            ("our words before", r#"{"message":"headend asks for consent"}"#, true),
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
            assert_eq!(has_gateway_name(&RawJson::trusted(text.to_owned())), want, "{label}");
        }
        assert!(is_reserved_key("gw.consent") && is_reserved_key("GW.x") && !is_reserved_key("gwen"));
    }
}
