//! `headend import`.

use std::path::PathBuf;

use super::output::{Failure, print};
use super::{CONFIG, USAGE};

pub(super) fn run(files: &[PathBuf]) -> Result<u8, Failure> {
    let mut texts = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::new(USAGE, format!("{}: {error}", path.display())))?;
        texts.push((path.clone(), text));
    }
    print(&convert(&texts).map_err(|error| Failure::new(CONFIG, error))?)
}
