//! Exit codes, as `sysexits.h` names them.

/// Everything went well.
pub(super) const OK: u8 = 0;
/// The command did what it should and the answer is no.
pub(super) const NO: u8 = 1;
/// The command line is wrong.
pub(super) const USAGE: u8 = 64;
/// The daemon does not run, or an upstream cannot be reached.
pub(super) const UNAVAILABLE: u8 = 69;
/// A fault of this program.
pub(super) const SOFTWARE: u8 = 70;
/// The configuration is wrong; starting again does not help.
pub(super) const CONFIG: u8 = 78;
