//! The command `headend grants`: lists and revokes remembered approvals.

use clap::{Args, Subcommand};

use super::approvals::{HasId, find_by_id_start};
use crate::cli::exit::{NO, OK};
use crate::cli::reach::operator::OperatorClient;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, count, print, print_json};
use crate::cli::words::screen::{Column, Screen};
use crate::daemon::local_time::local_minute;
use crate::operator::request::{IdParams, NoParams, Request, RevokeParams};
use crate::operator::views::{EndedBlockView, EndedReviewView, GrantsView, RevokedGrants};
use crate::policy::consent::GrantView;
use crate::wire::foreign;

/// Length of a grant's id, in digits.
const ID_LEN: usize = 16;

#[derive(Clone, Debug, Default, Args)]
pub(in crate::cli) struct GrantsArgs {
    #[command(subcommand)]
    what: Option<GrantsAction>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum GrantsAction {
    /// List grants. The default.
    List,
    /// Take grants back; the calls that they allowed need an approval again. A denial can be taken
    /// back too.
    Revoke {
        /// The id of the grant or denial, or the start of it (4 characters or more).
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        id: Option<String>,
        /// Revoke every grant; denials stay.
        #[arg(long)]
        all: bool,
    },
    /// Say that you have reviewed grants and tokens after the restore of a backup; `headend status`
    /// asks for it until then.
    Reviewed,
}

pub(in crate::cli) fn run(common: &CommonOptions, args: GrantsArgs) -> Result<u8, CommandFailure> {
    let mut client = OperatorClient::find(common)?;
    if matches!(args.what, Some(GrantsAction::Reviewed)) {
        let reviewed: EndedReviewView = client.ask(&Request::Review(NoParams {}))?;
        return if args.json { print_json(&reviewed) } else { print(&format!("{}\n", reviewed.outcome)) };
    }
    let listed: GrantsView = client.ask(&Request::Grants(NoParams {}))?;
    match args.what.unwrap_or(GrantsAction::List) {
        GrantsAction::List if args.json => print_json(&listed),
        GrantsAction::List | GrantsAction::Reviewed => list(&listed),
        GrantsAction::Revoke { id, all } => {
            let id = id.map(|start| named(&listed, &start)).transpose()?;
            if let Some(id) = id.as_ref().filter(|id| id.len() > ID_LEN) {
                // A denial has the id of the approval that was denied.
                let ended: EndedBlockView = client.ask(&Request::Unblock(IdParams { id: id.clone() }))?;
                let told = "the denial is taken back: the same call is asked about again\n";
                return if args.json { print_json(&ended) } else { print(told) };
            }
            let params = RevokeParams { all: id.is_none(), id };
            let answer: RevokedGrants = client.ask(&Request::Revoke(params))?;
            if args.json {
                print_json(&answer)?;
            } else {
                print(&format!("revoked {}\n", count(answer.revoked, "grant")))?;
            }
            Ok(if answer.revoked == 0 && !all { NO } else { OK })
        }
    }
}

impl HasId for GrantView {
    fn id(&self) -> &str {
        &self.id
    }
}

/// Returns the id of the grant or denial whose id is `start` or begins with it. A whole id is
/// accepted even if it is not listed, since a grant that cannot be read is not.
fn named(listed: &GrantsView, start: &str) -> Result<String, CommandFailure> {
    let is_whole = start.len() == ID_LEN && start.bytes().all(|byte| byte.is_ascii_hexdigit());
    let grants = listed.grants.iter().map(|grant| grant as &dyn HasId);
    match find_by_id_start(grants.chain(listed.denials.iter().map(|denial| denial as &dyn HasId)), start, "grant") {
        Ok(row) => Ok(row.id().to_owned()),
        Err(_) if is_whole => Ok(start.to_ascii_lowercase()),
        Err(failure) => Err(failure),
    }
}

fn list(GrantsView { grants, denials }: &GrantsView) -> Result<u8, CommandFailure> {
    if grants.is_empty() && denials.is_empty() {
        return print("there are no grants\n");
    }
    let columns = [
        ("ID", 0),
        ("CALLER", 1),
        ("ITEM", 0),
        ("FOR", 0),
        ("ARGUMENTS", 6),
        ("EVIDENCE", 5),
        ("BY", 4),
        ("USES", 2),
        ("RULE", 3),
    ];
    let columns = columns.map(|(head, rank)| Column { head, rank });
    let mut lines: Vec<Vec<String>> = Vec::new();
    for grant in grants {
        let GrantView { id, caller, item, evidence, by, rule, .. } = grant;
        let until = grant.until.map(|until| format!("until {}", local_minute(until)));
        let lifetime = until.as_ref().unwrap_or(&grant.lifetime);
        let below = grant.below.as_ref().map(|base| format!("below {base}"));
        let arguments = below.as_ref().unwrap_or(&grant.arguments);
        let cells = [id, caller, item, lifetime, arguments, evidence, by, &grant.uses.to_string(), rule];
        lines.push(cells.map(|cell| foreign::line(cell).into_owned()).to_vec());
    }
    for denial in denials {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let until = format!("denied until {}", local_minute(denial.until));
        let (evidence, by, rule) = (text(&denial.evidence), text(&denial.by), text(&denial.rule));
        let [exact, none] = ["exact", "-"].map(str::to_owned);
        let cells = [&denial.id, &denial.caller, &denial.item, &until, &exact, &evidence, &by, &none, &rule];
        lines.push(cells.map(|cell| foreign::line(cell).into_owned()).to_vec());
    }
    print(&Screen::of_stdout().plain(&columns, &lines))
}
