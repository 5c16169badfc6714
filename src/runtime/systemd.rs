//! stand-in
pub(crate) fn ready(){} pub(crate) fn reloading(){} pub(crate) fn stopping(){}
