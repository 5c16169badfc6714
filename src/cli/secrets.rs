//! The command `headend secrets rekey`: seals the values of the store anew after a change of the
//! key.

use clap::{Args, Subcommand};

use super::exit::{NO, OK};
use crate::cli::reach::operator::OperatorClient;
use crate::cli::reach::source;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, complain, count, print, print_json};
use crate::operator::alone::id_of_key;
use crate::operator::rekey::{RekeyParams, RekeyView};
use crate::operator::request::Request;
use crate::wire::foreign;

#[derive(Clone, Copy, Debug, Subcommand)]
pub(super) enum SecretsCommand {
    /// Seal every value of the store that an earlier key sealed with the present key.
    ///
    /// Write the new key as `key` and the old one as `previous-key` in `[secrets]`, restart the
    /// daemon, and run this command, with the daemon or without one. It can be interrupted and
    /// repeated. When it says so, the earlier key can go. Exit 1 when a value does not open.
    Rekey(RekeyArgs),
}

#[derive(Clone, Copy, Debug, Args)]
pub(super) struct RekeyArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(common: &CommonOptions, command: SecretsCommand) -> Result<u8, CommandFailure> {
    let SecretsCommand::Rekey(RekeyArgs { json }) = command;
    let mut client = OperatorClient::find_something(common)?;
    let config = if client.is_without_daemon() {
        // Without the right configuration, values would be sealed with another key.
        Some(source::load(common, &[])?.config)
    } else {
        source::load_quietly(common)
    };
    let is_in_cluster = config.as_ref().is_some_and(|config| config.cluster.is_some());
    let key = config.and_then(|config| config.secrets.key).as_ref().and_then(id_of_key);
    let rekeyed: RekeyView = client.ask(&Request::Rekey(RekeyParams { key }))?;
    if let Ok(Some(store)) = source::open_existing_store(common) {
        for other in store.other_gateways() {
            complain(&format!(
                "{other} runs on this store with the keys of its start; when it has ended, run this command again before an \
                 earlier key goes"
            ));
        }
    }
    if is_in_cluster {
        complain(
            "a replica that does not have the present key cannot read these values; each needs it as `key` before an earlier key goes",
        );
    }
    if json {
        print_json(&rekeyed)?;
    } else {
        print(&text(&rekeyed))?;
    }
    Ok(if rekeyed.lost_count > 0 { NO } else { OK })
}

fn text(rekeyed: &RekeyView) -> String {
    let mut lines = vec![format!("sealed {} anew", count(rekeyed.sealed, "value"))];
    if rekeyed.lost_count > 0 {
        let names: Vec<_> = rekeyed.lost.iter().map(|name| foreign::line(name).into_owned()).collect();
        let more = rekeyed.lost_count.saturating_sub(names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        lines.push(format!("{} opened with no key: {}{more}", count(rekeyed.lost_count, "value"), names.join(", ")));
        lines.push(
            "put their key into `previous-key` in [secrets], restart and run this again; or leave them: they count as absent"
                .to_owned(),
        );
    } else if rekeyed.earlier.is_empty() {
        lines.push("every value is sealed with the present key; there is no other key".to_owned());
    } else {
        lines.push(format!("every value is sealed with the present key; this can go: {}", rekeyed.earlier.join(", ")));
        lines.push(
            "clients whose sessions began under an earlier key begin new ones once it is gone (none is left after \
             `session-max-age`)"
                .to_owned(),
        );
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}
