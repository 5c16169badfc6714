//! The outcome of an operator's answer, as the process that has the approval writes it for others.

use crate::policy::consent::Closed;

/// The end of an approval by an operator's answer.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AnswerOutcome {
    /// The word of a [`Closed`].
    #[serde(rename = "outcome")]
    pub word: String,
    /// True if the answer came after the agent had been told to stop.
    #[serde(rename = "late", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_late: bool,
}

impl AnswerOutcome {
    /// Behind the word of one in the store.
    const LATE: &str = " late";

    pub fn of(how: Closed, is_late: bool) -> Self {
        Self { word: how.into_str().to_owned(), is_late }
    }

    /// As the process that has the prompt writes it for others.
    pub fn written(&self) -> String {
        format!("{}{}", self.word, if self.is_late { Self::LATE } else { "" })
    }

    /// Reads what [`Self::written`] wrote; `None` where it says why an answer does not count.
    pub fn parse(text: &str) -> Option<Self> {
        let (word, is_late) = text.strip_suffix(Self::LATE).map_or((text, false), |word| (word, true));
        let is_good = [Closed::Granted, Closed::Denied, Closed::Dismissed].iter().any(|how| how.into_str() == word);
        is_good.then(|| Self { word: word.to_owned(), is_late })
    }
}
