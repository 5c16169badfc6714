use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, panic};

use fastrand::Rng;

use super::TARGETS;

#[path = "../../tests/fuzz/mutation.rs"]
mod mutation;

/// Mutations of a target's corpus in each run. `HEADEND_FUZZ_RUNS` and `HEADEND_FUZZ_SEED` select
/// other numbers and mutations.
const RUNS: u64 = 2000;
/// Longer entries, in bytes, are replayed but not mutated.
const MAX_BYTES: usize = 8192;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().map_or(otherwise, |text| text.parse().unwrap())
}

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let read = |path: &Path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap());
    files.iter().map(|path| read(path)).collect()
}

/// Checks a property, and prints the bytes that break it, so that they can be added to the corpus.
fn check(target: &str, property: fn(&[u8]), data: &[u8], from: &str) {
    let outcome = panic::catch_unwind(|| property(data));
    assert!(outcome.is_ok(), "{target} does not hold for {from}: b\"{}\"", data.escape_ascii());
}

#[test]
fn every_property_holds_for_its_corpus_and_what_is_like_it() {
    let (runs, seed) = (number("HEADEND_FUZZ_RUNS", RUNS), number("HEADEND_FUZZ_SEED", 1));
    std::thread::scope(|scope| {
        for (target, property) in TARGETS {
            scope.spawn(move || {
                let corpus = corpus(target);
                assert!(!corpus.is_empty(), "{target} has no corpus");
                for (name, data) in &corpus {
                    check(target, *property, data, name);
                }
                let mut rng = Rng::with_seed(seed);
                for run in 0..runs {
                    let mut pick = || &corpus[rng.usize(..corpus.len())].1;
                    let (one, other) = (pick(), pick());
                    if one.len() <= MAX_BYTES {
                        let data = mutation::mutate(&mut rng, one, other);
                        check(target, *property, &data, &format!("run {run} of seed {seed}"));
                    }
                }
            });
        }
    });
}

#[test]
fn every_property_is_a_target_and_has_a_corpus() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz");
    let package: toml::Table = fs::read_to_string(root.join("Cargo.toml")).unwrap().parse().unwrap();
    let targets: BTreeSet<&str> =
        package["bin"].as_array().unwrap().iter().map(|bin| bin["name"].as_str().unwrap()).collect();
    assert_eq!(targets, TARGETS.iter().map(|(name, _)| *name).collect());
    for folder in fs::read_dir(root.join("corpus")).unwrap() {
        let name = folder.unwrap().file_name().into_string().unwrap();
        assert!(targets.contains(name.as_str()), "no target has the corpus {name}");
    }
}
