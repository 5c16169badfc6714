//! `headend tools`.

use super::daemon;
use super::options::Common;
use super::output::{Failure, print, table};
use crate::wire::raw::RawObject;

pub(super) fn run(common: &Common, json: bool) -> Result<u8, Failure> {
    let answer = daemon::connect(common, "admin", None)?.ask("tools", None)?;
    if json {
        return print(&format!("{}\n", answer.encode().text()));
    }
    let mut rows: Vec<Vec<String>> =
        vec![["NAME", "UPSTREAM", "ORIGINAL", "CANONICAL", "PIN", "EFFECT"].map(String::from).to_vec()];
    let tools = answer.list("tools").unwrap_or_default();
    for tool in tools.iter().filter_map(|raw| RawObject::parse(raw).ok()) {
        let names = ["name", "upstream", "original", "canonical", "pin", "effect"];
        rows.push(names.map(|name| tool.string(name).unwrap_or_default()).to_vec());
    }
    print(&table(&rows))
}
