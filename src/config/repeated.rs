//! Finds keys that occur twice although they must not.

use std::collections::HashMap;

/// Returns the items whose key occurred before, each with the first item of that key.
pub(super) fn repeated<'t, T: Copy>(items: impl Iterator<Item = (&'t str, T)>) -> Vec<(T, T)> {
    let mut seen: HashMap<&str, T> = HashMap::new();
    let mut repeated = Vec::new();
    for (key, item) in items {
        match seen.get(key) {
            Some(first) => repeated.push((item, *first)),
            None => drop(seen.insert(key, item)),
        }
    }
    repeated
}
