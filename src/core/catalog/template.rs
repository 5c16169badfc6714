//! Matching of URIs against URI templates. It covers as much of RFC 6570 as routing needs: literals
//! must match, and expressions match any text.

use regex::{Regex, RegexBuilder};

/// Compiled size in bytes beyond which a template is refused; real templates take a few KiB.
const MAX_COMPILED: usize = 256 * 1024;

/// A URI template, compiled for matching. A match takes time linear in the URI, however many
/// expressions the template has.
#[derive(Clone, Debug)]
pub struct UriTemplate(Regex);

impl UriTemplate {
    /// Compiles a template; returns `None` if a brace does not close or the template is too large.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('{');
        let mut pattern = String::from("^");
        pattern.push_str(&regex::escape(parts.next().unwrap_or_default()));
        for part in parts {
            let (inner, literal) = part.split_once('}')?;
            pattern.push_str(expression(inner));
            pattern.push_str(&regex::escape(literal));
        }
        pattern.push('$');
        let mut builder = RegexBuilder::new(&pattern);
        builder.size_limit(MAX_COMPILED).dot_matches_new_line(true).build().ok().map(Self)
    }

    /// Whether a URI can be an expansion of the template.
    pub fn matches(&self, uri: &str) -> bool {
        self.0.is_match(uri)
    }
}

/// Returns a regular expression for the texts that a template expression can expand to. `inner` is
/// the text between the braces. `{+x}`, `{#x}`, `{/x}`, `{?x}`, `{&x}` and exploded variables cross
/// path segments; `{#x}`, `{.x}`, `{/x}`, `{;x}`, `{?x}` and `{&x}` may expand to nothing.
fn expression(inner: &str) -> &'static str {
    let operator = inner.chars().next().unwrap_or(' ');
    let spans_segments = matches!(operator, '+' | '#' | '/' | '?' | '&') || inner.ends_with('*');
    let optional = matches!(operator, '#' | '.' | '/' | ';' | '?' | '&');
    match (spans_segments, optional) {
        (true, true) => ".*",
        (true, false) => ".+",
        (false, true) => "[^/]*",
        (false, false) => "[^/]+",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_match_their_template_and_no_other() {
        for (template, uri, want) in [
            ("test://template/{id}/data", "test://template/123/data", true),
            ("test://template/{id}/data", "test://template/1/2/data", false),
            ("test://template/{id}/data", "test://template//data", false),
            ("note://{id}", "note://7", true),
            ("note://{id}", "notes://7", false),
            ("file:///{+path}", "file:///a/b/c", true),
            ("file:///{path}", "file:///a/b/c", false),
            ("{scheme}://x", "a://x", true),
            ("db://{table}/{row}", "db://t/1", true),
            ("db://{table}/{row}", "db://t", false),
            ("q://s{?limit}", "q://s", true),
            ("plain://x", "plain://x", true),
            ("plain://x", "plain://xy", false),
            ("{a}{b}{c}", "xyz", true),
            ("{a}{b}{c}", "xy", false),
            ("{a}-{b}-{c}", "1-2-3-4", true),
        ] {
            assert_eq!(UriTemplate::parse(template).unwrap().matches(uri), want, "{template} {uri}");
        }
        assert!(UriTemplate::parse("a{b").is_none());
        assert!(UriTemplate::parse(&"{a}".repeat(10_000)).is_none());
    }

    #[test]
    fn a_template_that_could_match_in_many_ways_costs_little() {
        let uri = "a-".repeat(2000);
        for expression in ["{?a}", "{+a}", "{+a}-", "{?a}-"] {
            let template = UriTemplate::parse(&format!("{}x", expression.repeat(32))).unwrap();
            assert!(!template.matches(&uri), "{expression}");
        }
    }
}
