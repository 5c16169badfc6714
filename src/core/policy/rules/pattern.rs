//! Glob patterns over names and over texts of calls.
//!
//! A glob's `*` matches any text, the empty one and `/` included; `?`, `[a-z]`, `{a,b}` and `\`
//! have their meaning in a shell. Case matters.

use globset::GlobMatcher;

use crate::catalog::glob::glob;

use super::truth::Truth;

/// A compiled glob over names. It also matches its own text, so that a template matches itself:
/// `docs+file:///{path}`.
#[derive(Debug)]
pub(in crate::policy) struct NamePattern {
    text: Box<str>,
    form: GlobForm,
    /// The glob for the second reading of a URI, if that differs.
    respelled: Option<GlobForm>,
}

/// A compiled glob. Usual globs take a comparison, all others a regular expression.
#[derive(Debug)]
enum GlobForm {
    /// `*`.
    Any,
    /// A glob without special characters.
    Literal(Box<str>),
    /// A glob whose only special character is a `*` at its end: the text before it.
    Prefix(Box<str>),
    /// A glob whose only special characters are single `*`s: the texts before, between and after
    /// them.
    Stars {
        head: Box<str>,
        middle: Vec<Box<str>>,
        tail: Box<str>,
    },
    Glob(GlobMatcher),
}

impl GlobForm {
    /// Compiles a glob to its cheapest form.
    fn compile(text: &str) -> Result<Self, String> {
        Ok(match text.strip_suffix('*') {
            Some("") => Self::Any,
            Some(prefix) if is_literal(prefix) => Self::Prefix(Box::from(prefix)),
            None if is_literal(text) => Self::Literal(Box::from(text)),
            Some(_) | None if is_literal(&text.replace('*', "")) && !text.contains("**") => Self::stars(text),
            Some(_) | None => Self::Glob(glob(text)?.compile_matcher()),
        })
    }

    fn stars(text: &str) -> Self {
        let mut pieces = text.split('*').map(Box::from);
        let head = pieces.next().unwrap_or_default();
        let mut middle: Vec<_> = pieces.collect();
        let tail = middle.pop().unwrap_or_default();
        Self::Stars { head, middle, tail }
    }

    fn matches<'t>(&self, text: &'t str) -> bool {
        match self {
            Self::Any => true,
            Self::Literal(literal) => *text == **literal,
            Self::Prefix(prefix) => text.starts_with(&**prefix),
            Self::Stars { head, middle, tail } => {
                let inner = text.strip_prefix(&**head).and_then(|t| t.strip_suffix(&**tail));
                // The earliest match of each piece leaves the most room for the pieces that follow.
                let after = |rest: &'t str, piece| Some(rest.split_once::<&str>(piece)?.1);
                inner.and_then(|inner| middle.iter().map(|piece| &**piece).try_fold(inner, after)).is_some()
            }
            Self::Glob(glob) => glob.is_match(text),
        }
    }
}

impl NamePattern {
    /// Compiles a glob and, for resources, its respelling; the error says what is wrong with it.
    pub(in crate::policy) fn compile(text: &str, respelled: Option<&str>) -> Result<Self, String> {
        if text.is_empty() {
            return Err("must not be empty; write \"*\" for everything".to_owned());
        }
        let respelled = respelled.map(GlobForm::compile).transpose()?;
        Ok(Self { text: Box::from(text), form: GlobForm::compile(text)?, respelled })
    }

    /// Returns the pattern as written.
    pub(in crate::policy) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the pattern matches a name or is spelled like it.
    pub(in crate::policy) fn matches(&self, text: &str) -> bool {
        self.form.matches(text) || *text == *self.text
    }

    /// Whether this pattern matches every name that the other matches. Says no if that is hard to
    /// tell.
    pub(in crate::policy) fn covers(&self, other: &Self) -> bool {
        let head = other.head();
        match &self.form {
            GlobForm::Any => true,
            _ if self.text == other.text => true,
            GlobForm::Prefix(prefix) => head.starts_with(&**prefix),
            GlobForm::Literal(_) | GlobForm::Stars { .. } | GlobForm::Glob(_) => {
                head.len() == other.text.len() && self.matches(&other.text)
            }
        }
    }

    /// Returns the literal text before the first special character.
    pub(in crate::policy) fn head(&self) -> &str {
        self.text.split(is_special).next().unwrap_or_default()
    }

    /// Whether the pattern matches the second reading of a URI.
    pub(in crate::policy) fn matches_respelled(&self, other: &str) -> bool {
        self.form.matches(other) || self.respelled.as_ref().is_some_and(|form| form.matches(other))
    }

    /// Whether the pattern, by its form, matches every resource of the upstream.
    pub(in crate::policy) fn covers_all_of(&self, upstream: &str) -> bool {
        match &self.form {
            GlobForm::Any => true,
            GlobForm::Prefix(prefix) => is_prefix_of_uris(prefix, upstream),
            GlobForm::Literal(_) | GlobForm::Stars { .. } | GlobForm::Glob(_) => false,
        }
    }

    /// Whether the pattern can match any resource of the upstream, judged by the text before the
    /// first special character.
    pub(in crate::policy) fn may_touch(&self, upstream: &str) -> bool {
        let head = self.head();
        let whole = head.len() == self.text.len();
        let inside = head.strip_prefix(upstream).is_some_and(|rest| rest.starts_with('+'));
        inside || (!whole && is_prefix_of_uris(head, upstream))
    }
}

/// A compiled glob over a text of a call. Unlike a [`NamePattern`] it does not match its own text.
#[derive(Debug)]
pub(in crate::policy) struct TextGlob(GlobForm);

impl TextGlob {
    /// Compiles a glob; the error says what is wrong with it.
    pub(in crate::policy) fn compile(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("must not be empty; write \"*\" for any text".to_owned());
        }
        GlobForm::compile(text).map(Self)
    }

    /// Whether the text matches.
    pub(in crate::policy) fn truth(&self, text: &str) -> Truth {
        match &self.0 {
            form if form.matches(text) => Truth::Yes,
            // `?` and classes match bytes, but operators think in characters.
            GlobForm::Glob(_) if !text.is_ascii() => Truth::Unknown,
            GlobForm::Any | GlobForm::Literal(_) | GlobForm::Prefix(_) | GlobForm::Stars { .. } | GlobForm::Glob(_) => {
                Truth::No
            }
        }
    }
}

/// Whether `text` is the beginning of `<upstream>+`.
fn is_prefix_of_uris(text: &str, upstream: &str) -> bool {
    text.strip_suffix('+').map_or_else(|| upstream.starts_with(text), |name| name == upstream)
}

fn is_literal(text: &str) -> bool {
    !text.contains(is_special)
}

/// Whether a character has a meaning in a glob.
pub(in crate::policy) const fn is_special(c: char) -> bool {
    matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\')
}

#[cfg(test)]
mod tests;
