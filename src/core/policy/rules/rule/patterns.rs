//! Lists of patterns.

use super::spec::PatternField;
use crate::policy::rules::pattern::NamePattern;
use crate::policy::rules::problems::PolicyProblems;
use crate::policy::rules::uri::respell;

/// A list of patterns. It matches if one of them does.
#[derive(Debug, Default)]
pub(in crate::policy) struct PatternList(Box<[NamePattern]>);

impl PatternList {
    /// Compiles a list; adds the problems of broken patterns to `problems` and leaves these out.
    pub(in crate::policy) fn compile(
        path: &str,
        field: PatternField,
        texts: &[String],
        problems: &mut PolicyProblems,
    ) -> Self {
        let mut patterns = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            let also = if field == PatternField::Resources { respell(text) } else { None };
            match NamePattern::compile(text, also.as_deref()) {
                Ok(pattern) => patterns.push(pattern),
                Err(message) => {
                    problems.add(format!("{path}.{}[{index}]", field.into_str()), message);
                }
            }
        }
        Self(patterns.into_boxed_slice())
    }

    pub(in crate::policy) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in crate::policy) fn iter(&self) -> impl Iterator<Item = &NamePattern> {
        self.0.iter()
    }

    pub(in crate::policy) fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(text))
    }
}
