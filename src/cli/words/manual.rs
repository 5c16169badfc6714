//! `headend man`: writes the manual pages, generated from the definitions of the command line.

use std::path::Path;

use super::output::CommandFailure;
use crate::cli::exit::{OK, TEMPFAIL};

/// Writes `headend.1` and a page for each command that is not hidden into a folder.
pub(in crate::cli) fn write(command: clap::Command, folder: &Path) -> Result<u8, CommandFailure> {
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    written.map(|()| OK).map_err(|error| CommandFailure::new(TEMPFAIL, format!("{}: {error}", folder.display())))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::CommandLine;

    #[test]
    fn each_command_that_is_not_hidden_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        write(CommandLine::command(), &folder.path().join("man")).unwrap();
        let page = |name: &str| std::fs::read_to_string(folder.path().join("man").join(name)).unwrap_or_default();
        assert!(page("headend.1").contains("HEADEND_CONFIG") && page("headend.1").contains("headend\\-approve(1)"));
        for command in CommandLine::command().get_subcommands() {
            let page = page(&format!("headend-{}.1", command.get_name()));
            assert_eq!(page.is_empty(), command.is_hide_set(), "{}", command.get_name());
        }
    }
}
