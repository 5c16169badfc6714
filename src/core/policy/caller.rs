//! The identity of a client after authentication.
//!
//! Two callers are equal if their kinds and names are. Rules, records, metrics and people know a
//! caller by its name; grants, limits and sessions use the caller itself. Two callers may have one
//! name: [`Caller::local`] and [`Caller::anyone`].

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

mod rights;

pub use self::rights::{CallerRights, Groups, Scopes};

/// The name of the user that runs the gateway; the generated token authenticates as this user too.
/// The configuration need not name it.
pub const LOCAL: &str = "local";
/// Prefix of the name of another user, followed by the uid.
const UID: &str = "uid:";
/// Names that no issuer and no token of the configuration may have: they are words of callers.
pub const RESERVED: [&str; 3] = [LOCAL, "uid", "token"];
/// Most bytes of the subject of a person or machine.
pub const MAX_SUBJECT_BYTES: usize = 255;

static OWN: LazyLock<Caller> = LazyLock::new(|| Caller::new(CallerKind::User, LOCAL));
static ANYONE: LazyLock<Caller> = LazyLock::new(|| Caller::new(CallerKind::Anyone, LOCAL));

/// The way in which a caller proved its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
enum CallerKind {
    /// A user of this machine, proved by a pipe, the admin socket, or a file that only this user
    /// can read.
    User,
    /// A named token.
    Token,
    /// A person or machine, proved by a JWT of an issuer. The name is `<issuer>:<subject>`, with
    /// the issuer's name in the configuration.
    Jwt,
    /// All subjects of an issuer together, in counters. No client is this caller.
    Issuer,
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

    /// Returns the caller of a named token; `None` for an empty name, for a [`RESERVED`] one and
    /// for one with a `:`.
    pub fn token(name: &str) -> Option<Self> {
        let is_taken = name.is_empty() || name.contains(':') || RESERVED.contains(&name);
        (!is_taken).then(|| Self::new(CallerKind::Token, name))
    }

    /// Returns the person or machine that an issuer calls `subject`. `issuer` is the issuer's name
    /// in the configuration.
    ///
    /// `None` for an issuer that may not have this name, and for a subject that is empty, longer
    /// than [`MAX_SUBJECT_BYTES`] or not printable ASCII.
    pub fn issued(issuer: &str, subject: &str) -> Option<Self> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_issuer = !issuer.is_empty() && issuer.chars().all(is_name) && !RESERVED.contains(&issuer);
        let is_subject = (1..=MAX_SUBJECT_BYTES).contains(&subject.len())
            && subject.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
        (is_issuer && is_subject).then(|| Self::new(CallerKind::Jwt, &format!("{issuer}:{subject}")))
    }

    /// Returns the caller that stands for all subjects of an issuer in counters. `issuer` is the
    /// issuer's name in the configuration.
    pub fn all_of_issuer(issuer: &str) -> Self {
        Self::new(CallerKind::Issuer, issuer)
    }

    /// Returns the caller of every client if no credential is required. Its name is that of our own
    /// user, but it does not share that user's grants, limits and sessions.
    pub fn anyone() -> &'static Self {
        &ANYONE
    }

    /// Returns the caller that a rule, a record or a command names: a user if the name is a user's,
    /// a person or machine if it is an issuer's name, `:` and a subject, else a token's caller.
    pub fn named(name: &str) -> Self {
        let issued = || name.split_once(':').and_then(|(issuer, subject)| Self::issued(issuer, subject));
        Self::user_named(name).or_else(issued).unwrap_or_else(|| Self::new(CallerKind::Token, name))
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
            "jwt" => name.split_once(':').and_then(|(issuer, subject)| Self::issued(issuer, subject)),
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

    /// Returns the issuer's name in the configuration and the subject of a person or machine;
    /// `None` for all others.
    pub fn issuer_and_subject(&self) -> Option<(&str, &str)> {
        self.name().split_once(':').filter(|_| self.0.kind == CallerKind::Jwt)
    }

    /// Returns the rights that dry runs assume for the caller: all scopes, and unknown groups if
    /// its credential may state some.
    pub fn assumed_rights(&self) -> Arc<CallerRights> {
        match self.issuer_and_subject() {
            Some(_) => Arc::new(CallerRights { scopes: Scopes::All, groups: Groups::Unknown }),
            None => CallerRights::all(),
        }
    }

    /// Returns the name for a metric's label: an issuer's name stands for all its subjects.
    pub fn label(&self) -> &str {
        self.issuer_and_subject().map_or_else(|| self.name(), |(issuer, _)| issuer)
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

    fn all() -> [Caller; 6] {
        let (token, person) = (Caller::token("ci").unwrap(), Caller::issued("corp", "a b|c:d").unwrap());
        [Caller::local().clone(), Caller::user(0), Caller::user(1000), token, person, Caller::anyone().clone()]
    }

    #[test]
    fn callers_of_two_kinds_are_two_callers_even_if_they_have_one_name() {
        let [local, .., anyone] = all();
        assert_eq!((local.name(), anyone.name()), (LOCAL, LOCAL));
        assert_ne!(local, anyone);
        assert_eq!(all().iter().collect::<HashSet<_>>().len(), 6);
        assert_eq!(all().map(|caller| caller.shared_name_kind()), [None, None, None, None, None, Some("anyone")]);
        let mut sorted = all();
        sorted.sort();
        assert_eq!(
            sorted.map(|caller| caller.key().to_owned()),
            ["token ci", "jwt corp:a b|c:d", "user local", "anyone local", "user uid:0", "user uid:1000"]
        );
    }

    #[test]
    fn no_token_has_the_name_of_a_user() {
        for name in ["", LOCAL, "uid", "token", "uid:0", "uid:1000", "uid:", "uid:x", "corp:alice"] {
            assert_eq!(Caller::token(name), None, "{name:?}");
        }
    }

    #[test]
    fn the_operator_is_our_own_user_or_root() {
        assert_eq!(all().map(|caller| caller.is_operator()), [true, true, false, false, false, false]);
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
    fn an_issuer_and_a_subject_are_a_person_and_never_a_user_or_a_token() {
        let alice = Caller::issued("corp", "alice").unwrap();
        assert_eq!(alice.issuer_and_subject(), Some(("corp", "alice")));
        assert_eq!((alice.name(), alice.label(), alice.is_operator()), ("corp:alice", "corp", false));
        let all = Caller::all_of_issuer("corp");
        assert_eq!((all.label(), Caller::from_key(all.key())), ("corp", None));
        assert!(all != alice && all != Caller::named("corp"), "no client is all subjects of an issuer");
        let long = "x".repeat(MAX_SUBJECT_BYTES);
        assert!(Caller::issued("corp", &long).is_some());
        for (issuer, subject) in [
            ("uid", "0"),
            (LOCAL, "x"),
            ("token", "ci"),
            ("", "x"),
            ("a:b", "x"),
            ("a b", "x"),
            ("corp", ""),
            ("corp", "a\nb"),
            ("corp", "b\u{fc}"),
            ("corp", &(long + "x")),
        ] {
            assert_eq!(Caller::issued(issuer, subject), None, "{issuer:?} {subject:?}");
        }
        assert!(!Caller::named("uid:-0").is_operator());
    }

    #[test]
    fn a_name_is_that_of_a_user_or_else_of_a_token() {
        for caller in &all()[..5] {
            assert_eq!(Caller::named(caller.name()), *caller);
        }
    }
}
