//! Keys that must not occur twice.

use std::collections::HashMap;

/// Items that occur twice, each with the one it repeats.
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
