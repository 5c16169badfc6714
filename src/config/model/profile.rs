//! A profile: a view of some upstreams with names, items and callers of its own.

use serde::{Serialize, Serializer};

use crate::catalog::name::UpstreamName;
use crate::values::instructions::InstructionSetting;

/// The items that are offered, and their local names. Globs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FilterSettings {
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    /// (original, local name), for tools and prompts of upstreams only.
    #[serde(serialize_with = "pairs", skip_serializing_if = "Vec::is_empty")]
    pub rename: Vec<(String, String)>,
}

impl Default for FilterSettings {
    fn default() -> Self {
        Self { allow: vec!["*".to_owned()], deny: Vec::new(), rename: Vec::new() }
    }
}

/// A `[profiles.<name>]` table: a named view of the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Profile {
    #[serde(skip)]
    pub name: String,
    /// The upstreams of the view; all of them if the file names none.
    #[serde(skip)]
    pub upstreams: Vec<UpstreamName>,
    /// The callers that may use the view over HTTP; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<String>,
    /// The groups whose callers may use the view over HTTP; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Audiences of issuers that are accepted here besides the profile's own address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
    /// A filter over canonical names.
    pub tools: FilterSettings,
    pub prompts: FilterSettings,
    pub resources: FilterSettings,
    /// True if names and URIs of its single upstream stay unchanged.
    pub transparent: bool,
    pub hints: ShownHints,
    /// The instructions of its upstreams for clients; `None` without the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<InstructionSetting>,
}

/// The hints that the clients of a view see on tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, Serialize)]
#[strum(const_into_str, serialize_all = "kebab-case")]
#[serde(into = "&'static str")]
pub enum ShownHints {
    /// The server's hints, overridden by the operator's. For an untrusted server, the hints that
    /// policy uses.
    #[default]
    Server,
    /// The hints that policy uses.
    Tightened,
}

/// Writes names with values, in the order of the file, as a table.
pub(super) fn pairs<V: Serialize, S: Serializer>(pairs: &[(String, V)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}
