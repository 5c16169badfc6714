//! The words of the command line: help, results and questions, and the screen that they are on.

pub(super) mod help;
pub(super) mod manual;
pub(super) mod meant;
pub(super) mod options;
pub(super) mod output;
pub(super) mod screen;
pub(super) mod terminal;
