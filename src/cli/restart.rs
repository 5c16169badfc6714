//! `headend restart NAME`.

use super::daemon;
use super::exit::{NO, OK};
use super::options::Common;
use super::output::{Failure, print};
use super::status::unknown;
use crate::telemetry::upstream_state::UpstreamState;
use crate::wire::foreign;
use crate::wire::raw::RawObject;

pub(super) fn run(common: &Common, name: &str) -> Result<u8, Failure> {
    let mut daemon = daemon::connect(common, "admin", None).map_err(Failure::from).map_err(|failure| {
        let text = format!(
            "{}, which starts every upstream; a host that runs `headend stdio` without a daemon starts its own",
            failure.text
        );
        Failure { text, ..failure }
    })?;
    let params = RawObject::of_strings(&[("name", name)]).encode();
    let answer = daemon.ask("restart", Some(&params.text())).map_err(|failure| unknown(&mut daemon, name, failure))?;
    let said = |name: &str| answer.string(name).map(|text| foreign::line(&text).into_owned());
    let state = said("state").unwrap_or_default();
    let name = foreign::line(name);
    match state.parse() {
        Ok(UpstreamState::Ready) => print(&format!("{name}: ready\n")),
        // A lazy one that no call needs.
        Ok(UpstreamState::Idle) => print(&format!("{name}: was started, and is idle until it is needed\n")),
        Ok(UpstreamState::Starting) => {
            print(&format!("{name}: still starting; `headend status {name}` shows what comes of it\n"))?;
            Ok(OK)
        }
        _ => {
            let (why, advice) = (said("last-error").unwrap_or_default(), said("advice"));
            let advice = advice.map(|advice| format!("; {advice}")).unwrap_or_default();
            Err(Failure::new(NO, format!("{name} is {state}: {why}{advice}")))
        }
    }
}
