//! Rates: a number of calls in a unit of time.

use std::fmt;

/// A number of calls in a unit of time, written `30/m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    pub count: u32,
    pub per: RateUnit,
}

/// The unit of time of a [`Rate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::EnumString)]
pub enum RateUnit {
    #[strum(serialize = "s")]
    Second,
    #[strum(serialize = "m")]
    Minute,
    #[strum(serialize = "h")]
    Hour,
    #[strum(serialize = "d")]
    Day,
}

impl RateUnit {
    pub(in crate::policy) const fn nanos(self) -> u64 {
        let seconds = match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
        };
        seconds * 1_000_000_000
    }
}

impl Rate {
    /// Reads `N/s`, `N/m`, `N/h` or `N/d`. Zero is read;
    /// [`Policy::build`](crate::policy::compiled::Policy::build) refuses it where it knows the key.
    ///
    /// # Errors
    /// [`RateError`] for any other text.
    pub fn parse(text: &str) -> Result<Self, RateError> {
        let (count, per) = text.split_once('/').ok_or(RateError::Form)?;
        let per = per.parse().map_err(|_| RateError::Form)?;
        // `u32::from_str` alone would accept a sign.
        if count.is_empty() || !count.bytes().all(|b| b.is_ascii_digit()) {
            return Err(RateError::Form);
        }
        let count = count.parse().map_err(|_| RateError::TooLarge)?;
        Ok(Self { count, per })
    }
}

impl serde::Serialize for Rate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.per)
    }
}

/// The reason why a text is no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    #[error("must be a whole number and a unit, such as \"10/s\", \"30/m\", \"500/h\" or \"1000/d\"")]
    Form,
    #[error("must not be more than 4294967295 in its unit")]
    TooLarge,
}
