//! One glob.
//!
//! A glob's `*` matches any text, `/` and nothing included; `?`, `[a-z]`, `{a,b}` and `\` mean what
//! they mean in a shell. Case matters.

use globset::GlobMatcher;

use crate::catalog::glob::glob;

use super::truth::Truth;

/// One compiled glob. It also matches its own text, so that a template stands for itself:
/// `docs+file:///{path}`.
#[derive(Debug)]
pub(in crate::policy) struct Pattern {
    text: Box<str>,
    form: Form,
    /// The form for a URI's second reading, if that differs.
    respelled: Option<Form>,
}

/// The usual forms cost a comparison, the rest a regular expression.
#[derive(Debug)]
enum Form {
    /// `*`.
    Any,
    /// No special characters: the text itself.
    Literal(Box<str>),
    /// Special only in one `*` at the end: what stands before it.
    Prefix(Box<str>),
    /// Special only in lone `*`s: what stands before, between and after them.
    Stars {
        head: Box<str>,
        middle: Vec<Box<str>>,
        tail: Box<str>,
    },
    Glob(GlobMatcher),
}

impl Form {
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
                // The earliest place for each piece leaves the most room for those that follow.
                let after = |rest: &'t str, piece| Some(rest.split_once::<&str>(piece)?.1);
                inner.and_then(|inner| middle.iter().map(|piece| &**piece).try_fold(inner, after)).is_some()
            }
            Self::Glob(glob) => glob.is_match(text),
        }
    }
}

impl Pattern {
    /// Compiles a glob and, for resources, its respelling; the error says what is wrong with it.
    pub(in crate::policy) fn compile(text: &str, respelled: Option<&str>) -> Result<Self, String> {
        if text.is_empty() {
            return Err("must not be empty; write \"*\" for everything".to_owned());
        }
        let respelled = respelled.map(Form::compile).transpose()?;
        Ok(Self { text: Box::from(text), form: Form::compile(text)?, respelled })
    }

    /// The pattern as written.
    pub(in crate::policy) fn text(&self) -> &str {
        &self.text
    }

    pub(in crate::policy) fn matches(&self, text: &str) -> bool {
        self.form.matches(text) || *text == *self.text
    }

    /// Whether this matches whatever the other matches. Says no in cases that are hard to tell.
    pub(in crate::policy) fn covers(&self, other: &Self) -> bool {
        let head = other.head();
        match &self.form {
            Form::Any => true,
            _ if self.text == other.text => true,
            Form::Prefix(prefix) => head.starts_with(&**prefix),
            Form::Literal(_) | Form::Stars { .. } | Form::Glob(_) => {
                head.len() == other.text.len() && self.matches(&other.text)
            }
        }
    }

    /// The literal text before the first special character.
    pub(in crate::policy) fn head(&self) -> &str {
        self.text.split(is_special).next().unwrap_or_default()
    }

    /// Whether this matches the second reading of a URI.
    pub(super) fn matches_respelled(&self, other: &str) -> bool {
        self.form.matches(other) || self.respelled.as_ref().is_some_and(|form| form.matches(other))
    }

    /// Whether this matches each resource of the upstream, by its form.
    pub(super) fn covers_all_of(&self, upstream: &str) -> bool {
        match &self.form {
            Form::Any => true,
            Form::Prefix(prefix) => is_prefix_of_uris(prefix, upstream),
            Form::Literal(_) | Form::Stars { .. } | Form::Glob(_) => false,
        }
    }

    /// Whether this can match any resource of the upstream, judged by what stands before the first
    /// special character.
    pub(super) fn may_touch(&self, upstream: &str) -> bool {
        let head = self.head();
        let whole = head.len() == self.text.len();
        let inside = head.strip_prefix(upstream).is_some_and(|rest| rest.starts_with('+'));
        inside || (!whole && is_prefix_of_uris(head, upstream))
    }
}

/// A glob over text of a call, which is not taken for a template.
#[derive(Debug)]
pub(in crate::policy) struct Glob(Form);

impl Glob {
    /// Compiles a glob; the error says what is wrong with it.
    pub(in crate::policy) fn compile(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("must not be empty; write \"*\" for any text".to_owned());
        }
        Form::compile(text).map(Self)
    }

    pub(in crate::policy) fn truth(&self, text: &str) -> Truth {
        match &self.0 {
            form if form.matches(text) => Truth::Yes,
            // `?` and classes go by bytes, people by characters.
            Form::Glob(_) if !text.is_ascii() => Truth::Unknown,
            Form::Any | Form::Literal(_) | Form::Prefix(_) | Form::Stars { .. } | Form::Glob(_) => Truth::No,
        }
    }
}

/// Whether `text` is a beginning of `<upstream>+`.
fn is_prefix_of_uris(text: &str, upstream: &str) -> bool {
    text.strip_suffix('+').map_or_else(|| upstream.starts_with(text), |name| name == upstream)
}

fn is_literal(text: &str) -> bool {
    !text.contains(is_special)
}

/// Whether a character means something in a glob.
pub(in crate::policy) const fn is_special(c: char) -> bool {
    matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\')
}

#[cfg(test)]
mod tests;
