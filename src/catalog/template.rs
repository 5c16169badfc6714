//! Does a URI belong to a URI template? Enough of RFC 6570 to route by: literals must match, expressions match something.

/// A template, split into its literals and what stands between them.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    first: String,
    rest: Vec<(Expression, String)>,
}

/// What one `{...}` may stand for.
#[derive(Clone, Copy, Debug)]
struct Expression {
    /// `{+x}`, `{#x}`, `{/x}` and exploded variables cross path segments.
    spans_segments: bool,
    /// `{?x}`, `{&x}`, `{;x}`, `{/x}`, `{.x}` and `{#x}` may expand to nothing.
    optional: bool,
}

impl Template {
    /// Splits a template; `None` when a brace does not close.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('{');
        let first = parts.next().unwrap_or_default().to_owned();
        let mut rest = Vec::new();
        for part in parts {
            let (inner, literal) = part.split_once('}')?;
            let operator = inner.chars().next().unwrap_or(' ');
            let expression = Expression {
                spans_segments: matches!(operator, '+' | '#' | '/' | '?' | '&') || inner.ends_with('*'),
                optional: matches!(operator, '#' | '.' | '/' | ';' | '?' | '&'),
            };
            rest.push((expression, literal.to_owned()));
        }
        Some(Self { first, rest })
    }

    pub(crate) fn matches(&self, uri: &str) -> bool {
        uri.strip_prefix(self.first.as_str()).is_some_and(|tail| matches_rest(tail, &self.rest))
    }
}

/// Bounded: each step strips one expression, and a literal is looked for from the left, from the right for the last one.
fn matches_rest(tail: &str, rest: &[(Expression, String)]) -> bool {
    let Some(((expression, literal), later)) = rest.split_first() else { return tail.is_empty() };
    let fits =
        |value: &str| (expression.optional || !value.is_empty()) && (expression.spans_segments || !value.contains('/'));
    if later.is_empty() {
        return tail.strip_suffix(literal.as_str()).is_some_and(fits);
    }
    if literal.is_empty() {
        // Two expressions side by side: the first takes what it can up to the next slash, the rest decides.
        let end = if expression.spans_segments { tail.len() } else { tail.find('/').unwrap_or(tail.len()) };
        return fits(tail.get(..end).unwrap_or_default()) && matches_rest(tail.get(end..).unwrap_or_default(), later)
            || matches_rest(tail, later);
    }
    tail.match_indices(literal.as_str()).take(16).any(|(at, _)| {
        fits(tail.get(..at).unwrap_or_default())
            && matches_rest(tail.get(at + literal.len()..).unwrap_or_default(), later)
    })
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
        ] {
            assert_eq!(Template::parse(template).unwrap().matches(uri), want, "{template} {uri}");
        }
        assert!(Template::parse("a{b").is_none());
    }
}
