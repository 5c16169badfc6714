//! Variables in texts of an upstream: `${VAR}` and `${VAR:-default}`, as in configurations of
//! hosts; `$${` is a literal `${`.
//!
//! The text as written identifies the upstream: in its launch, in the output of `check` and in
//! errors. The values of variables are secrets.

use std::fmt;

use super::file::ConfigNode;
use super::secret::{ConfiguredSecret, MissingSecrets, Secret};

/// A text as it is written and as it is used. Debug shows the written text.
#[derive(Clone, PartialEq, Eq)]
pub struct VariableText {
    written: String,
    /// The text with its variables replaced; `None` if nothing was replaced.
    value: Option<Secret>,
}

impl VariableText {
    /// Creates a text without variables.
    pub const fn plain(text: String) -> Self {
        Self { written: text, value: None }
    }

    pub fn written(&self) -> &str {
        &self.written
    }

    /// Returns the text to use, for the one place that needs it.
    pub fn expose(&self) -> &str {
        self.value.as_ref().map_or(&self.written, Secret::expose)
    }

    /// Reports whether the two texts may differ.
    pub const fn is_expanded(&self) -> bool {
        self.value.is_some()
    }

    /// Reports whether the text has variables, and not only `$${`.
    pub(crate) fn has_variables(&self) -> bool {
        let is_literal = |at: usize| self.written.get(..at).is_some_and(|before| before.ends_with('$'));
        self.is_expanded() && self.written.match_indices("${").any(|(at, _)| !is_literal(at))
    }

    /// Returns the text to use, as a secret that is part of a launch by its written text.
    pub(crate) fn into_secret(self) -> Secret {
        let Self { written, value } = self;
        match value {
            Some(value) => value.written_as(written),
            None => Secret::new(written),
        }
    }
}

impl fmt::Debug for VariableText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.written.fmt(f)
    }
}

/// Reports whether a text is a variable name that every shell accepts.
pub(crate) fn is_name(text: &str) -> bool {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A text with its variables replaced.
struct Expansion {
    text: String,
    /// Name and value of each variable that was set.
    variables: Vec<(String, Secret)>,
}

impl MissingSecrets {
    /// Replaces the variables of a text. A variable that is not set is noted and keeps this
    /// upstream from being started. `expand = false` leaves all texts unchanged.
    pub(crate) fn expand(&mut self, node: &ConfigNode<'_>, written: String) -> VariableText {
        if self.expands == Some(false) || !written.contains("${") {
            return VariableText::plain(written);
        }
        match expand(&written, node.source.env) {
            Ok(Expansion { text, variables }) => {
                for (name, value) in variables {
                    if !self.expanded.iter().any(|(known, _)| *known == name) {
                        self.expanded.push((name, value));
                    }
                }
                VariableText { written, value: Some(Secret::new(text)) }
            }
            Err(troubles) => {
                for trouble in troubles {
                    // The key in the upstream's table: the path begins with `upstreams.<name>.`.
                    let key = node.path.splitn(3, '.').last().unwrap_or_default();
                    self.add_of(node, key, &trouble);
                }
                VariableText::plain(written)
            }
        }
    }
}

impl ConfiguredSecret {
    /// Replaces the variables of a text that stands in the file itself; other secrets stay as they
    /// are.
    pub(crate) fn expanded(self, node: &ConfigNode<'_>, lacks: &mut MissingSecrets) -> Self {
        if !self.literal || lacks.expands == Some(false) {
            return self;
        }
        let template = lacks.expand(node, self.secret.expose().to_owned());
        // A text with variables is no literal, even if one of them is not set.
        Self { literal: !template.written().contains("${"), secret: template.into_secret() }
    }
}

/// Replaces the variables of a text. Fails with every trouble at once, each with its remedy.
fn expand(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Expansion, Vec<String>> {
    let (mut out, mut variables, mut troubles) = (String::new(), Vec::new(), Vec::new());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, found) = rest.split_at(at);
        let behind = found.get(2..).unwrap_or_default();
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = behind;
            continue;
        }
        out.push_str(before);
        let Some((inner, behind)) = behind.split_once('}') else {
            troubles.push("`${` has no `}`; write `$${` for the characters themselves".to_owned());
            rest = "";
            break;
        };
        rest = behind;
        let (name, default) = inner.split_once(":-").map_or((inner, None), |(name, default)| (name, Some(default)));
        if !is_name(name) || default.is_some_and(|default| default.contains("${")) {
            troubles.push(format!(
                "`${{{inner}}}` is neither `${{VAR}}` nor `${{VAR:-default}}`; write `$${{` for the characters themselves"
            ));
            continue;
        }
        match (env(name).filter(|value| !value.is_empty()), default) {
            (Some(value), _) => {
                out.push_str(&value);
                variables.push((name.to_owned(), Secret::new(value)));
            }
            (None, Some(default)) => out.push_str(default),
            (None, None) => troubles.push(format!(
                "the environment variable `{name}` is not set; set it where headend is started (`export {name}=...` in a shell, \
                 `Environment={name}=...` in a drop-in of its unit) and start headend again, or write `${{{name}:-default}}`"
            )),
        }
    }
    out.push_str(rest);
    if troubles.is_empty() { Ok(Expansion { text: out, variables }) } else { Err(troubles) }
}

#[cfg(test)]
mod tests;
