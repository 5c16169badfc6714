//! Words of a configuration: keys that occur twice, and the nearest word to a misspelt one.

use std::collections::HashMap;

use strsim::osa_distance;

/// Items that occur twice, each with the one it repeats.
pub(crate) fn find_repeated<'t, T: Copy>(items: impl Iterator<Item = (&'t str, T)>) -> Vec<(T, T)> {
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

/// `; did you mean ..?` when one of the words is near.
pub(crate) fn did_you_mean<'w>(text: &str, words: impl Iterator<Item = &'w str>) -> String {
    // `osa_distance` counts two swapped neighbours as one slip.
    let near = |word: &&str| osa_distance(text, word) <= (word.len() / 3).clamp(1, 3);
    let best = words.filter(near).min_by_key(|word| osa_distance(text, word));
    best.map(|word| format!("; did you mean `{word}`?")).unwrap_or_default()
}
