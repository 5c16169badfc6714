//! Recognition of errors caused by a lack of file descriptors.

use std::io;

use rustix::io::Errno;

/// Returns whether an error means that the process, or the whole system, may open no more files.
pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    code == Some(Errno::MFILE.raw_os_error()) || code == Some(Errno::NFILE.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_descriptors_counts() {
        let of = |code: Errno| io::Error::from_raw_os_error(code.raw_os_error());
        assert!(lacks_descriptors(&of(Errno::MFILE)) && lacks_descriptors(&of(Errno::NFILE)));
        assert!(
            !lacks_descriptors(&of(Errno::CONNREFUSED)) && !lacks_descriptors(&io::Error::other("too many open files"))
        );
    }
}
