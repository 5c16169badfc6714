//! Bounds that no key sets: real clients and servers stay far below them. The keys of earlier
//! releases that set them are in a table, for the texts that still have one.

use crate::catalog::name::MAX_LENGTH;
use crate::wire::frame::JsonBounds;
use crate::wire::id::MAX_ID_BYTES;

use super::units;

/// Request line and headers in bytes. Bearer tokens with many claims reach 16 KiB.
pub const MAX_HEAD: usize = 64 << 10;
/// Header fields of a request; browsers send about 30. It is the bound of the HTTP library as well.
pub const MAX_HEADER_FIELDS: usize = 100;
/// One header field in bytes.
pub const MAX_HEADER_FIELD: usize = 16 << 10;

/// A bound and its unit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FixedBound {
    Count(usize),
    Bytes(usize),
}

/// A key of an earlier release whose bound is fixed now.
#[derive(Debug)]
pub(crate) struct RemovedKey {
    table: &'static str,
    key: &'static str,
    pub(crate) bound: FixedBound,
    /// The way to be stricter than the bound.
    instead: &'static str,
}

impl RemovedKey {
    /// Compares a value of the key with the fixed bound. Returns the warning that the key has no
    /// effect, if the value is not smaller than the bound.
    ///
    /// # Errors
    /// The problem that no smaller bound is possible.
    pub(crate) fn judge(&self, value: usize) -> Result<String, String> {
        let (bound, text) = match self.bound {
            FixedBound::Count(bound) => (bound, bound.to_string()),
            FixedBound::Bytes(bound) => (bound, units::size(bound)),
        };
        if value < bound {
            let instead = self.instead;
            Err(format!("is always {text}, and no smaller number is possible; remove the key, and {instead}"))
        } else {
            Ok(format!("is always {text}, so the key changes nothing; remove it"))
        }
    }
}

const PROXY: &str = "let a proxy in front of headend refuse such requests";
const BODY: &str = "bound what clients send with `max-body`";
const RESULT: &str = "bound what servers send with `max-upstream-result`";
const NAMES: &str = "give the upstream a shorter `prefix`, or its tools other names with `rename`";

const fn removed(table: &'static str, key: &'static str, bound: FixedBound, instead: &'static str) -> RemovedKey {
    RemovedKey { table, key, bound, instead }
}

const REMOVED: &[RemovedKey] = &[
    removed("server.limits", "max-head", FixedBound::Bytes(MAX_HEAD), PROXY),
    removed("server.limits", "max-header-fields", FixedBound::Count(MAX_HEADER_FIELDS), PROXY),
    removed("server.limits", "max-header-field", FixedBound::Bytes(MAX_HEADER_FIELD), PROXY),
    removed("server.limits", "max-depth", FixedBound::Count(JsonBounds::CLIENT.depth), BODY),
    removed("server.limits", "max-nodes", FixedBound::Count(JsonBounds::CLIENT.nodes), BODY),
    removed("server.limits", "max-id", FixedBound::Bytes(MAX_ID_BYTES), BODY),
    removed("server.limits", "max-upstream-depth", FixedBound::Count(JsonBounds::UPSTREAM.depth), RESULT),
    removed("server.limits", "max-upstream-nodes", FixedBound::Count(JsonBounds::UPSTREAM.nodes), RESULT),
    removed("naming", "max-length", FixedBound::Count(MAX_LENGTH), NAMES),
];

/// Finds a removed key by the path of its table.
pub(crate) fn find_removed(table: &str, key: &str) -> Option<&'static RemovedKey> {
    REMOVED.iter().find(|removed| removed.table == table && removed.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The problems of a text with one key, or its warnings.
    fn judged(removed: &RemovedKey, value: usize) -> Result<String, String> {
        let text = format!("[{}]\n{} = {value}\n", removed.table, removed.key);
        let nothing = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
        match crate::parse(&text, "t", &|_| None, &nothing) {
            Ok((_, warnings)) => Ok(warnings.iter().map(|warning| format!("{warning}\n")).collect()),
            Err(problems) => Err(problems.to_string()),
        }
    }

    #[test]
    fn a_stricter_bound_is_refused_and_any_other_means_nothing() {
        for removed in REMOVED {
            let (FixedBound::Count(bound) | FixedBound::Bytes(bound)) = removed.bound;
            let path = format!("t:2: {}.{}: is always ", removed.table, removed.key);
            let refused = judged(removed, bound - 1).unwrap_err();
            assert!(refused.contains(&path) && refused.contains(removed.instead), "{refused}");
            for value in [bound, bound + 1] {
                let warned = judged(removed, value).unwrap();
                assert!(warned.contains(&path) && warned.contains("changes nothing"), "{warned}");
            }
        }
    }

    #[test]
    fn a_value_that_is_no_number_is_refused() {
        let nothing = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
        let text = "[server.limits]\nmax-depth = true\nmax-head = \"64 KB\"\n";
        let problems = crate::parse(text, "t", &|_| None, &nothing).unwrap_err().to_string();
        assert!(problems.contains("max-depth: must be a whole number"), "{problems}");
        assert!(problems.contains("max-head: must be a size"), "{problems}");
    }
}
