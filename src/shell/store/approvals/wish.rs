//! An operator's answer in text form: `deny`, `once`, `session`, a time such as `8h`, `always`,
//! `always below /srv/project`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{duration_text, parse_duration};
use crate::policy::consent::{GrantLifetime, PersonAnswer, SteadySeconds};

/// Longest time of a grant; for a longer one, `always` has to be said.
const MAX_TIME: Duration = Duration::from_secs(366 * 24 * 3600);

/// Prefix of an answer that names a folder or site.
const BELOW: &str = "always below ";

/// An operator's answer. A time starts when the answer counts.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum OperatorAnswer {
    Deny,
    Once,
    Session,
    For(Duration),
    /// Allow until the definition or the launch changes.
    Always,
    /// Allow until then for calls below that folder or for that site. Older programs refuse the
    /// text.
    Below(Arc<str>),
}

impl OperatorAnswer {
    /// Parses the text of a person or of `Display`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "deny" => Some(Self::Deny),
            "once" => Some(Self::Once),
            "session" => Some(Self::Session),
            "always" => Some(Self::Always),
            below if below.starts_with(BELOW) => below.strip_prefix(BELOW).map(|base| Self::Below(Arc::from(base))),
            time => {
                parse_duration(time).filter(|time| (Duration::from_secs(1)..=MAX_TIME).contains(time)).map(Self::For)
            }
        }
    }

    /// Converts to the answer of an approval. The time of a grant starts at `now`.
    pub fn answer(&self, now: SteadySeconds) -> PersonAnswer {
        match self {
            Self::Deny => PersonAnswer::Deny,
            Self::Once => PersonAnswer::Allow(GrantLifetime::Once),
            Self::Session => PersonAnswer::Allow(GrantLifetime::Session),
            Self::For(time) => PersonAnswer::Allow(GrantLifetime::Until(now + time.as_secs())),
            Self::Always => PersonAnswer::Allow(GrantLifetime::UntilChanged),
            Self::Below(base) => PersonAnswer::AllowBelow(Arc::clone(base)),
        }
    }
}

impl TryFrom<String> for OperatorAnswer {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        const WRONG: &str = "`answer` must be deny, once, session, always, always below PATH, or a time such as 8h";
        Self::parse(&text).ok_or(WRONG)
    }
}

impl From<OperatorAnswer> for String {
    fn from(wish: OperatorAnswer) -> Self {
        wish.to_string()
    }
}

impl fmt::Display for OperatorAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deny => f.write_str("deny"),
            Self::Once => f.write_str("once"),
            Self::Session => f.write_str("session"),
            Self::For(time) => f.write_str(&duration_text(*time)),
            Self::Always => f.write_str("always"),
            Self::Below(base) => write!(f, "{BELOW}{base}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_read_back_as_written() {
        for text in ["deny", "once", "session", "always", "90s", "8h", "30d", "always below /srv/a b"] {
            let wish = OperatorAnswer::parse(text).unwrap();
            assert_eq!(OperatorAnswer::parse(&wish.to_string()), Some(wish), "{text}");
        }
        for text in ["", "never", "0s", "500ms", "367d", "8", "Once", "once ", "always /srv", "always below"] {
            assert_eq!(OperatorAnswer::parse(text), None, "{text:?}");
        }
    }
}
