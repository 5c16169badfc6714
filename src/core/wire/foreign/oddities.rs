//! Finds oddities of a foreign text that a reader would not notice: hidden characters, and words
//! with letters of several scripts.

use std::fmt::Write as _;

use icu_properties::CodePointMapData;
use icu_properties::props::{GeneralCategory, GeneralCategoryGroup};
use unicode_security::mixed_script::AugmentedScriptSet;

use super::{count_hidden, quoted};
use crate::wire::json::tokens::visit_strings;

/// The limit of words that are listed; further ones are counted.
const MAX_WORDS: usize = 3;
/// The limit of letters that are named for each word.
const MAX_LETTERS: usize = 3;
/// The length in bytes at which a word is cut.
const MAX_WORD: usize = 48;

/// The oddities of the texts that were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TextOddities {
    /// The number of hidden characters.
    pub hidden: usize,
    /// Descriptions of the first words that mix scripts.
    words: Vec<String>,
    /// The number of further words that mix scripts.
    more: usize,
}

impl TextOddities {
    /// Adds the oddities of one more text.
    pub fn look_at(&mut self, text: &str) {
        // CR LF ends a line, so its CR is not counted as hidden.
        self.hidden += count_hidden(text) - text.matches("\r\n").count();
        if text.is_ascii() {
            return;
        }
        for word in text.split(|c| !is_of_word(c)).filter(|word| !word.is_ascii()) {
            let Some(told) = describe_mixed_word(word) else { continue };
            if self.words.contains(&told) {
                continue;
            }
            if self.words.len() < MAX_WORDS { self.words.push(told) } else { self.more += 1 }
        }
    }

    /// Adds the oddities of all strings of a JSON text, keys included.
    pub fn look_at_json(&mut self, json: &str) {
        visit_strings(json.as_bytes(), &mut |text| self.look_at(text));
    }

    pub fn is_empty(&self) -> bool {
        self.hidden == 0 && self.words.is_empty()
    }

    /// Describes the number of hidden characters; `None` if there are none.
    pub fn told_hidden(&self) -> Option<String> {
        match self.hidden {
            0 => None,
            1 => Some("1 hidden character".to_owned()),
            many => Some(format!("{many} hidden characters")),
        }
    }

    /// Describes the words with letters of several scripts; `None` if there are none.
    pub fn told_mixed(&self) -> Option<String> {
        let mut out = format!("letters of several scripts in one word: {}", self.words.join("; "));
        if self.more > 0 && write!(out, "; and {} more", self.more).is_err() {
            out.clear();
        }
        (!self.words.is_empty()).then_some(out)
    }
}

/// Reports whether a character belongs to a word: a letter, a digit or a mark.
fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || GeneralCategoryGroup::Mark.contains(CodePointMapData::<GeneralCategory>::new().get(c))
}

/// Describes a word that mixes scripts, with its letters that are not Latin; `None` if it does not
/// mix them. Latin letters beside Chinese, Japanese or Korean ones are ordinary. Source: UTS 39,
/// "highly restrictive".
fn describe_mixed_word(word: &str) -> Option<String> {
    let latin = AugmentedScriptSet::for_char('a');
    let (mut all, mut others) = (AugmentedScriptSet::default(), AugmentedScriptSet::default());
    let mut letters: Vec<char> = Vec::new();
    for c in word.chars() {
        let set = AugmentedScriptSet::for_char(c);
        all.intersect_with(set);
        let mut as_latin = set;
        as_latin.intersect_with(latin);
        if as_latin.is_empty() {
            others.intersect_with(set);
            if letters.len() < MAX_LETTERS && !letters.contains(&c) {
                letters.push(c);
            }
        }
    }
    if !all.is_empty() || others.hanb || others.jpan || others.kore {
        return None;
    }
    let named: Vec<String> = letters.iter().map(|c| format!("{c} is U+{:04X}", u32::from(*c))).collect();
    Some(format!("{} ({})", quoted(word, MAX_WORD), named.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> TextOddities {
        let mut oddities = TextOddities::default();
        oddities.look_at(text);
        oddities
    }

    #[test]
    fn scripts_are_mixed_inside_a_word_or_they_are_not() {
        for (label, text, want) in [
            ("one script", "plain Straße étage Ελλάδα Россия हिन्दी ไทย العربية", None),
            ("scripts beside each other", "/srv/данные/files, שלום/x and_имя", None),
            ("Japanese", "日本語のテキスト Tシャツ", None),
            ("Korean and Chinese", "한국어 USB메모리 中文ABC", None),
            ("marks and digits", "e\u{301}t1 x² 2й", None),
            ("Cyrillic in Latin", "p\u{430}ypal.com", Some("\"p\u{430}ypal\" (\u{430} is U+0430)")),
            ("Greek in Latin", "g\u{3bf}\u{3bf}gle", Some("\"g\u{3bf}\u{3bf}gle\" (\u{3bf} is U+03BF)")),
            ("Greek in Cyrillic", "\u{3c1}о", Some("\"\u{3c1}о\" (\u{3c1} is U+03C1, о is U+043E)")),
        ] {
            let want = want.map(|want| format!("letters of several scripts in one word: {want}"));
            assert_eq!(found(text).told_mixed(), want, "{label}");
        }
        let many = "a\u{430} b\u{430} c\u{430} d\u{430} a\u{430}";
        assert!(found(many).told_mixed().unwrap().ends_with("; and 1 more"));
    }

    #[test]
    fn hidden_characters_are_counted_and_ends_of_lines_are_not() {
        let told = |text| found(text).told_hidden();
        assert_eq!(told("a\r\nb\n\tc"), None);
        assert_eq!(told("a\rb"), Some("1 hidden character".to_owned()));
        assert_eq!(told("\u{3164}\u{202e}x\r\r\n"), Some("3 hidden characters".to_owned()));
        assert!(found("a 语 😀").is_empty() && !found("\u{200b}").is_empty());
        let mut in_json = TextOddities::default();
        in_json.look_at_json(r#"{"text":"one\nДва \u0430b","p\u0430y":[1]}"#);
        assert_eq!(in_json.words, ["\"\u{430}b\" (\u{430} is U+0430)", "\"p\u{430}y\" (\u{430} is U+0430)"]);
    }
}
