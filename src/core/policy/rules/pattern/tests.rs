use globset::GlobBuilder;
use proptest::prelude::*;

use super::NamePattern;

#[test]
fn globs_mean_what_they_mean_in_a_shell_but_cross_slashes() {
    let rows = [
        ("everything", "*", "", true),
        ("literal", "a__b", "a__b", true),
        ("literal is anchored", "a__b", "a__bc", false),
        ("case matters", "a__B", "a__b", false),
        ("prefix", "a__*", "a__b", true),
        ("prefix matches the empty rest", "a__*", "a__", true),
        ("prefix is anchored", "a__*", "xa__b", false),
        ("suffix", "*__b", "a__b", true),
        ("head and tail do not overlap", "aba*aba", "ababa", false),
        ("pieces in order", "*b*a*", "aab", false),
        ("inner star", "a__*_x", "a__b_x", true),
        ("one character", "a__?", "a__bc", false),
        ("class", "a__[a-c]", "a__b", true),
        ("negated class", "a__[!a-c]", "a__b", false),
        ("alternatives", "{a,b}__x", "b__x", true),
        ("escape", "a__\\*", "a__b", false),
        ("escaped star", "a__\\*", "a__*", true),
        ("star crosses slashes", "a+file:///*.txt", "a+file:///b/c.txt", true),
        ("dot is no special character", "a__x.y", "a__xzy", false),
        ("line break", "a__*b", "a__\nb", true),
        ("a template stands for itself", "a+x://{id}", "a+x://{id}", true),
    ];
    for (label, glob, text, expected) in rows {
        assert_eq!(NamePattern::compile(glob, None).unwrap().matches(text), expected, "{label}");
    }
}

#[test]
fn a_broken_glob_says_so() {
    for glob in ["", "[a", "a{b", "a}", "a\\", "[z-a]"] {
        assert!(NamePattern::compile(glob, None).is_err(), "{glob:?}");
    }
}

#[test]
fn reach_over_an_upstream_is_judged_by_the_beginning() {
    let rows = [
        ("everything", "*", true, true),
        ("the upstream", "fs+*", true, true),
        ("half its name", "f*", true, true),
        ("a part of it", "fs+file:///srv/*", false, true),
        ("one of it", "fs+file:///a", false, true),
        ("open beginning", "*secret*", false, true),
        ("alternatives", "{fs,git}+*", false, true),
        ("another", "git+*", false, false),
        ("longer name", "fs2+*", false, false),
        ("shorter name", "f+*", false, false),
        ("tools", "fs__*", false, false),
        ("literal without a URI", "fs", false, false),
    ];
    for (label, glob, covers, touches) in rows {
        let pattern = NamePattern::compile(glob, None).unwrap();
        assert_eq!(pattern.covers_all_of("fs"), covers, "{label}: covers");
        assert_eq!(pattern.may_touch("fs"), touches, "{label}: touches");
    }
}

proptest! {
    #[test]
    fn shortcuts_agree_with_the_general_matcher(glob in "[ab/*]{0,8}[*]?", text in "[ab/]{0,8}") {
        let (Ok(pattern), Ok(general)) = (NamePattern::compile(&glob, None), GlobBuilder::new(&glob).build()) else {
            return Ok(());
        };
        prop_assert_eq!(pattern.matches(&text), general.compile_matcher().is_match(&text));
    }

    #[test]
    fn a_pattern_touches_what_it_matches(glob in "[ab+*{},]{1,6}", text in "[ab+]{0,4}") {
        let canonical = format!("ab+{text}");
        if let Ok(pattern) = NamePattern::compile(&glob, None) {
            prop_assert!(!pattern.matches(&canonical) || pattern.may_touch("ab") || *glob == canonical);
            prop_assert!(!pattern.covers_all_of("ab") || pattern.matches(&canonical));
        }
    }
}
