//! `headend status`.

use super::daemon;
use super::options::Common;
use super::output::{Failure, print, table};
use crate::wire::foreign;
use crate::wire::raw::RawObject;

pub(super) fn run(common: &Common, json: bool) -> Result<u8, Failure> {
    let status = daemon::connect(common, "admin", None)?.ask("status", None)?;
    if json {
        return print(&format!("{}\n", status.encode().text()));
    }
    let field = |object: &RawObject, name: &str| {
        object
            .string(name)
            .or_else(|| object.get(name).map(|raw| raw.text().into_owned()))
            .map_or_else(|| "-".into(), |text| foreign::line(&text).into_owned())
    };
    let mut rows: Vec<Vec<String>> = vec![
        ["UPSTREAM", "STATE", "REVISION", "TOOLS", "PROMPTS", "RESOURCES", "IN FLIGHT", "RESTARTS", "LAST ERROR"]
            .map(String::from)
            .to_vec(),
    ];
    let upstreams = status.list("upstreams").unwrap_or_default();
    for upstream in upstreams.iter().filter_map(|raw| RawObject::parse(raw).ok()) {
        let names =
            ["name", "state", "revision", "tools", "prompts", "resources", "in-flight", "restarts", "last-error"];
        rows.push(names.map(|name| field(&upstream, name)).to_vec());
    }
    let head = format!(
        "headend {}, up {} s, configuration {}, {} legacy HTTP sessions, {} calls in flight, {} items withheld\n\n",
        field(&status, "version"),
        field(&status, "uptime-seconds"),
        field(&status, "config"),
        field(&status, "sessions"),
        field(&status, "in-flight"),
        field(&status, "withheld-items"),
    );
    print(&format!("{head}{}", table(&rows)))
}
