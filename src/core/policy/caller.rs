//! The identity of a client after authentication.
//!
//! Two callers are equal if their kinds and names are. Rules, records, metrics and people know a
//! caller by its name; grants, limits and sessions use the caller itself. Two callers may have one
//! name: [`Caller::local`] and [`Caller::anyone`].

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of the user that runs the gateway; the generated token authenticates as this user too.
/// The configuration need not name it.
pub const LOCAL: &str = "local";
/// Prefix of the name of another user, followed by the uid.
const UID: &str = "uid:";

static OWN: LazyLock<Caller> = LazyLock::new(|| Caller::new(CallerKind::User, LOCAL));
static ANYONE: LazyLock<Caller> = LazyLock::new(|| Caller::new(CallerKind::Anyone, LOCAL));

/// The way in which a caller proved its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
enum CallerKind {
    /// A user of this machine, proved by a pipe, the admin socket, or a file that only this user
    /// can read.
    User,
    /// A token of the configuration.
    Token,
    /// No proof: no credential is required.
    Anyone,
}

/// The identity of a client after authentication, ordered by name and then by kind. Clones share
/// one allocation.
#[derive(Clone, PartialOrd, Ord)]
pub struct Caller(Arc<CallerIdentity>);

/// The shared content of a [`Caller`].
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CallerIdentity {
    name: Box<str>,
    kind: CallerKind,
    /// Kind and name with a space between; unique for each caller.
    key: Box<str>,
}

impl Caller {
    fn new(kind: CallerKind, name: &str) -> Self {
        let key = format!("{} {name}", kind.into_str()).into_boxed_str();
        Self(Arc::new(CallerIdentity { kind, name: Box::from(name), key }))
    }

    /// Returns the user that runs the gateway.
    pub fn local() -> &'static Self {
        &OWN
    }

    /// Returns another user of this machine.
    pub fn user(uid: u32) -> Self {
        Self::new(CallerKind::User, &format!("{UID}{uid}"))
    }

    /// Returns the caller of a token of the configuration; `None` for an empty name and for the
    /// name of a user.
    pub fn token(name: &str) -> Option<Self> {
        let is_taken = name.is_empty() || name == LOCAL || name.starts_with(UID);
        (!is_taken).then(|| Self::new(CallerKind::Token, name))
    }

    /// Returns the caller of every client if no credential is required. Its name is that of our own
    /// user, but it does not share that user's grants, limits and sessions.
    pub fn anyone() -> &'static Self {
        &ANYONE
    }

    /// Returns the caller that a rule, a record or a command names: a user if the name is a user's,
    /// else a token's caller.
    pub fn named(name: &str) -> Self {
        Self::user_named(name).unwrap_or_else(|| Self::new(CallerKind::Token, name))
    }

    /// Returns the user of this name; `None` if the name is not a user's.
    fn user_named(name: &str) -> Option<Self> {
        if name == LOCAL {
            return Some(Self::local().clone());
        }
        let user = Self::user(name.strip_prefix(UID)?.parse().ok()?);
        (user.name() == name).then_some(user)
    }

    /// Parses a [`Self::key`]; `None` for any other text.
    pub fn from_key(key: &str) -> Option<Self> {
        let (kind, name) = key.split_once(' ')?;
        let caller = match kind {
            "user" => Self::user_named(name),
            "token" => Self::token(name),
            "anyone" => Some(Self::anyone().clone()),
            _ => None,
        };
        caller.filter(|caller| caller.key() == key)
    }

    /// Returns the name for rules, records and people.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns a text that is unique for each caller, for the store.
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// Returns the kind of a caller that shares its name with another caller; `None` for all
    /// others.
    pub fn shared_name_kind(&self) -> Option<&'static str> {
        (self.0.kind == CallerKind::Anyone).then_some(self.0.kind.into_str())
    }

    /// Whether the caller may do everything: our own user, or root, who could do so anyway.
    pub fn is_operator(&self) -> bool {
        self.0.kind == CallerKind::User && matches!(self.name(), LOCAL | "uid:0")
    }

    /// Whether the caller is exempt from rates and shares: our own user, and every client if no
    /// credential is required.
    pub fn is_local(&self) -> bool {
        self.name() == LOCAL
    }
}

impl PartialEq for Caller {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.key() == other.key()
    }
}

impl Eq for Caller {}

impl Hash for Caller {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// The caller with the fewest rights: every client.
impl Default for Caller {
    fn default() -> Self {
        Self::anyone().clone()
    }
}

/// The name, as people and commands know a caller.
impl Serialize for Caller {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The caller that a name stands for: [`Caller::named`].
impl<'de> Deserialize<'de> for Caller {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|name| Self::named(&name))
    }
}

/// Writes the name.
impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn all() -> [Caller; 5] {
        let token = Caller::token("ci").unwrap();
        [Caller::local().clone(), Caller::user(0), Caller::user(1000), token, Caller::anyone().clone()]
    }

    #[test]
    fn callers_of_two_kinds_are_two_callers_even_if_they_have_one_name() {
        let [local, .., anyone] = all();
        assert_eq!((local.name(), anyone.name()), (LOCAL, LOCAL));
        assert_ne!(local, anyone);
        assert_eq!(all().iter().collect::<HashSet<_>>().len(), 5);
        assert_eq!(all().map(|caller| caller.shared_name_kind()), [None, None, None, None, Some("anyone")]);
        let mut sorted = all();
        sorted.sort();
        assert_eq!(
            sorted.map(|caller| caller.key().to_owned()),
            ["token ci", "user local", "anyone local", "user uid:0", "user uid:1000"]
        );
    }

    #[test]
    fn no_token_has_the_name_of_a_user() {
        for name in ["", LOCAL, "uid:0", "uid:1000", "uid:", "uid:x"] {
            assert_eq!(Caller::token(name), None, "{name:?}");
        }
    }

    #[test]
    fn the_operator_is_our_own_user_or_root() {
        assert_eq!(all().map(|caller| caller.is_operator()), [true, true, false, false, false]);
        for name in ["uid:00", "uid:1", "root", "", "uid:-0"] {
            assert!(!Caller::named(name).is_operator(), "{name:?}");
        }
    }

    #[test]
    fn a_key_reads_back_and_nothing_else_is_one() {
        for caller in all() {
            assert_eq!(Caller::from_key(caller.key()), Some(caller));
        }
        for text in
            ["", "local", "ci", "user", "user ", "user ci", "user uid:01", "token ", "token local", "token uid:0"]
        {
            assert_eq!(Caller::from_key(text), None, "{text:?}");
        }
        for text in ["anyone", "anyone ci", "root local", "USER local", " local", "user  local", "user local "] {
            assert_eq!(Caller::from_key(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_name_is_that_of_a_user_or_else_of_a_token() {
        for caller in &all()[..4] {
            assert_eq!(Caller::named(caller.name()), *caller);
        }
    }
}
