//! The outcome of an operator's answer, as the process that has the approval writes it for others.

use crate::policy::consent::ApprovalEnd;

/// The end of an approval by an operator's answer.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AnswerOutcome {
    /// The word of a [`ApprovalEnd`].
    #[serde(rename = "outcome")]
    pub word: String,
    /// True if the call was allowed after the agent had been told to stop.
    #[serde(rename = "late", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_late: bool,
}

impl AnswerOutcome {
    /// Suffix of the word of a late outcome in the store.
    const LATE: &str = " late";

    pub fn of(how: ApprovalEnd, is_late: bool) -> Self {
        Self { word: how.into_str().to_owned(), is_late }
    }

    /// Writes the outcome as the owner of the approval leaves it for other processes.
    pub fn written(&self) -> String {
        format!("{}{}", self.word, if self.is_late { Self::LATE } else { "" })
    }

    /// Parses the text of [`Self::written`]; `None` if the text is the reason why an answer does
    /// not count.
    pub fn parse(text: &str) -> Option<Self> {
        let (word, is_late) = text.strip_suffix(Self::LATE).map_or((text, false), |word| (word, true));
        let is_good = [ApprovalEnd::Granted, ApprovalEnd::Denied, ApprovalEnd::Dismissed]
            .iter()
            .any(|how| how.into_str() == word);
        is_good.then(|| Self { word: word.to_owned(), is_late })
    }
}
