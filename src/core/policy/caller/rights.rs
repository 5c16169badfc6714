//! The rights that a credential gives to its caller: scopes and groups. A caller is the same caller
//! with any credential; two credentials of one caller may give different rights.

use std::sync::{Arc, LazyLock};

static ALL: LazyLock<Arc<CallerRights>> =
    LazyLock::new(|| Arc::new(CallerRights { scopes: Scopes::All, groups: Groups::none() }));

/// The rights of one credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerRights {
    pub scopes: Scopes,
    pub groups: Groups,
}

/// The scopes of a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scopes {
    /// Every scope: our own user, the generated token, and clients that need no credential.
    All,
    /// These scopes, without repetition.
    Of(Box<[Box<str>]>),
}

/// The groups of a caller as its credential states them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Groups {
    /// The credential does not say: the claim is missing, cannot be read or was left out because
    /// there are too many groups. Rules that deny or ask count, rules that allow do not.
    Unknown,
    /// These groups, without repetition. Callers without a JWT are in no group.
    Of(Box<[Box<str>]>),
}

impl CallerRights {
    /// Returns all scopes and no group.
    pub fn all() -> Arc<Self> {
        Arc::clone(&ALL)
    }
}

impl Scopes {
    pub fn has(&self, scope: &str) -> bool {
        match self {
            Self::All => true,
            Self::Of(scopes) => scopes.iter().any(|one| **one == *scope),
        }
    }
}

impl Groups {
    /// Returns [`Self::none`] for borrowers.
    pub(in crate::policy) fn empty() -> &'static Self {
        &ALL.groups
    }

    /// Returns the groups of a caller that is known to be in none.
    pub fn none() -> Self {
        Self::Of(Box::default())
    }
}
