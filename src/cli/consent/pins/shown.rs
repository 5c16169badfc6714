//! Formats a pin for people: its state, and the waiting text compared with the approved one.

use crate::operator::pins::PinView;
use crate::wire::foreign;
use crate::wire::foreign::changes::{TextChange, changes};
use crate::wire::foreign::oddities::TextOddities;

/// Unchanged lines that are kept on each side of a change if the others are left out.
const CONTEXT: usize = 2;
/// Longest text that is shown among others, in bytes.
const MAX_BRIEF: usize = 64 << 10;

/// Formats a pin with its texts. Foreign characters that could control a terminal are escaped.
pub(super) fn text(pin: &PinView, colour: bool) -> String {
    told(pin, colour, false)
}

/// Formats a pin as [`text`] does, without unchanged lines far from a change; `None` if no text
/// waits or the result is longer than [`MAX_BRIEF`].
pub(super) fn brief(pin: &PinView, colour: bool) -> Option<String> {
    pin.waiting.as_ref()?;
    Some(told(pin, colour, true)).filter(|text| text.len() <= MAX_BRIEF)
}

/// Returns the digest of the shown text in hexadecimal; empty if the pin has none.
pub(super) fn digest(pin: &PinView) -> String {
    pin.shown().map(|digest| digest.hex()).unwrap_or_default()
}

fn told(pin: &PinView, colour: bool, brief: bool) -> String {
    let lines = |text: &Option<String>| text.as_deref().map(|text| pin.lay_out(text));
    let (name, why) = (foreign::line(&pin.name), foreign::line(&pin.by));
    let (kind, state) = (pin.kind.into_str(), pin.state.into_str());
    let new = if pin.is_new { ", new: its server added it after its first list" } else { "" };
    let mut out = format!("{name} ({kind}): {state}, {why}{new}\n");
    let mut oddities = TextOddities::default();
    let looked_at = pin.waiting.iter().chain(pin.approved.iter().filter(|_| pin.is_new));
    looked_at.for_each(|text| oddities.look_at_json(text));
    oddities.told_mixed().iter().for_each(|mixed| out.push_str(&format!("WARNING: {mixed}\n")));
    match (lines(&pin.approved), lines(&pin.waiting)) {
        (Some(old), Some(new)) => out.push_str(&format_changes(&old, &new, colour, brief)),
        (old, new) => out.push_str(&foreign::block(&new.or(old).unwrap_or_default())),
    }
    out.push_str(&format!("\ndigest {}\n", digest(pin)));
    out
}

/// Formats the differences by words: `-[old]-` and `+[new]+`, in colour if asked for.
fn format_changes(old: &str, new: &str, colour: bool, brief: bool) -> String {
    let mark = |colours: &str, open: &str, text: &str, close: &str| {
        let (on, off) = if colour { (colours, "\u{1b}[0m") } else { ("", "") };
        format!("{on}{open}{text}{close}{off}")
    };
    let parts = changes(old, new);
    let last = parts.len().saturating_sub(1);
    let told = parts.into_iter().enumerate().map(|(at, (change, text))| match change {
        TextChange::Kept if brief => shorten_unchanged(&text, at == 0, at == last),
        TextChange::Kept => text,
        TextChange::Removed => mark("\u{1b}[31m", "-[", &text, "]-"),
        TextChange::Added => mark("\u{1b}[32m", "+[", &text, "]+"),
    });
    told.collect()
}

/// Returns an unchanged part with only the lines next to a change. The first and the last part are
/// next to a change on one side only.
fn shorten_unchanged(text: &str, is_first: bool, is_last: bool) -> String {
    let lines: Vec<&str> = text.split('\n').collect();
    // One more line than [`CONTEXT`]: the line that contains the change itself.
    let head = if is_first { 0 } else { CONTEXT + 1 };
    let tail = if is_last { 0 } else { CONTEXT + 1 };
    let left_out = lines.len().saturating_sub(head + tail);
    if left_out < 2 {
        return text.to_owned();
    }
    let (before, rest) = lines.split_at_checked(head).unwrap_or_default();
    let after = rest.get(left_out..).unwrap_or_default();
    let gap = format!("  ... {left_out} lines as approved ...");
    let kept: Vec<&str> = before.iter().copied().chain([gap.as_str()]).chain(after.iter().copied()).collect();
    kept.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::pins::PinKind;
    use crate::policy::PinState;

    fn shown(approved: Option<&str>, waiting: Option<&str>) -> PinView {
        PinView {
            name: "fx__a\u{1b}[2J".to_owned(),
            kind: PinKind::Tool,
            upstream: "fx".to_owned(),
            state: PinState::Changed,
            by: "the upstream changed it".to_owned(),
            is_new: false,
            approved: approved.map(str::to_owned),
            waiting: waiting.map(str::to_owned),
            approved_digest: None,
            waiting_digest: None,
            since: 0,
        }
    }

    #[test]
    fn a_difference_reads_word_by_word_and_steers_no_terminal() {
        let (old, new) =
            (r#"{"description":"Reads a file."}"#, r#"{"description":"Sends a file.\u001b[31m\u202e\u3164\n\u2028x"}"#);
        let text = text(&shown(Some(old), Some(new)), false);
        assert!(text.contains(r#""description": -["Reads]-+["Sends]+ a "#), "{text}");
        for hidden in ['\u{1b}', '\u{202e}', '\u{3164}', '\u{2028}'] {
            assert!(!text.contains(hidden), "{text:?}");
        }
        assert!(super::text(&shown(Some(old), Some(new)), true).contains("\u{1b}[32m"), "colours of our own");
        assert!(super::text(&shown(None, Some(new)), false).contains("Sends"));
        assert!(!super::text(&shown(Some(old), None), false).contains("-["));
        let mixed = super::text(&shown(Some(old), Some(r#"{"name":"p\u0430y","description":"one\nДва"}"#)), false);
        let warning = "WARNING: letters of several scripts in one word: \"p\u{430}y\" (\u{430} is U+0430)\n";
        assert!(mixed.contains(warning), "{mixed}");
        assert!(!text.contains("WARNING"), "{text}");
        let of = |maximum: &str| format!(r#"{{"maximum":{maximum}}}"#);
        let text =
            super::text(&shown(Some(&of("12345678901234567890123")), Some(&of("12345678901234567890124"))), false);
        assert!(text.contains("-[12345678901234567890123]-+[12345678901234567890124]+"), "digits are kept: {text}");
    }

    #[test]
    fn among_others_the_lines_far_from_a_change_are_left_out() {
        let of = |one: &str, two: &str| {
            let rest: Vec<String> = (0..20).map(|n| format!("{n}")).collect();
            format!(r#"{{"a":"{one}","list":[{}],"z":"{two}"}}"#, rest.join(","))
        };
        let (old, new) = (of("old words", "same"), of("new words", "same"));
        let text = brief(&shown(Some(&old), Some(&new)), false).unwrap();
        assert!(text.contains(r#"  "a": -["old]-+["new]+ words","#), "{text}");
        assert!(
            text.contains("lines as approved ...") && text.contains("    0,") && !text.contains("    9,"),
            "{text}"
        );
        assert!(!text.contains("same"), "{text}");
        let text = brief(&shown(Some(&old), Some(&of("new words", "other"))), false).unwrap();
        assert!(text.contains("    0,") && !text.contains("    9,") && text.contains("    19\n"), "{text}");
        assert!(text.contains(r#"-["same"]-+["other"]+"#), "{text}");
        let all = brief(&shown(None, Some(&new)), false).unwrap();
        assert!(all.contains("    9,") && all.contains("same"), "a new one is shown as a whole: {all}");
        assert!(super::text(&shown(Some(&old), Some(&new)), false).contains("    9,"));
    }

    #[test]
    fn what_cannot_be_shown_as_a_whole_is_not_shown_among_others() {
        assert!(brief(&shown(Some("{}"), None), false).is_none(), "a text whose key is missing");
        let long = format!(r#"{{"description":"{}"}}"#, "x".repeat(MAX_BRIEF));
        assert!(brief(&shown(None, Some(&long)), false).is_none());
        assert!(text(&shown(None, Some(&long)), false).len() > MAX_BRIEF);
    }
}
