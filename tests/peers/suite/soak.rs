//! A short round of the soak program, so that it cannot rot: all of its clients and servers, and no
//! lost answer.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::headend;
use crate::process::{output_within, said};
use crate::upstream::example;

#[test]
fn a_few_seconds_of_churn_lose_no_answer() {
    let mut command = Command::new(example("soak"));
    command.args(["--binary", headend(), "--seconds", "3", "--rate", "30", "--sample", "1", "--settle", "1"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = output_within(child, Duration::from_secs(240), "soak");
    assert!(output.status.success(), "{}", said(&output));
}
