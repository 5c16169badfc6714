//! `headend check`.

use super::output::{Failure, complain, plain, print};
use super::{Common, source};
use crate::config::{preflight, show};

pub(super) fn run(common: &Common) -> Result<u8, Failure> {
    let loaded = source::load(common, &[])?;
    for warning in loaded.warnings.iter().map(ToString::to_string).chain(preflight(&loaded.config)) {
        complain(&plain(&format!("warning: {warning}")));
    }
    print(&show::render(&loaded.config))
}
