//! Recognition of errors caused by a lack of file descriptors.

use std::io;

use rustix::io::Errno;

/// Returns whether an error means that the process, or the whole system, may open no more files.
pub(crate) fn ran_out(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    code == Some(Errno::MFILE.raw_os_error()) || code == Some(Errno::NFILE.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_descriptors_counts() {
        let of = |code: Errno| io::Error::from_raw_os_error(code.raw_os_error());
        assert!(ran_out(&of(Errno::MFILE)) && ran_out(&of(Errno::NFILE)));
        assert!(!ran_out(&of(Errno::CONNREFUSED)) && !ran_out(&io::Error::other("too many open files")));
    }
}
