//! Exit codes, as `sysexits.h` names them.

/// The command succeeded.
pub(super) const OK: u8 = 0;
/// The command worked, and the answer is no.
pub(super) const NO: u8 = 1;
/// The command line is wrong.
pub(super) const USAGE: u8 = 64;
/// The daemon does not run, or an upstream is unreachable.
pub(super) const UNAVAILABLE: u8 = 69;
/// A defect of this program.
pub(super) const SOFTWARE: u8 = 70;
/// An obstacle that may pass, such as a store that cannot be read or an address that is taken. A
/// later start may succeed.
pub(super) const TEMPFAIL: u8 = 75;
/// The configuration is wrong; a restart does not help.
pub(super) const CONFIG: u8 = 78;
