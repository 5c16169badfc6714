//! Help texts: adds examples to each command, and shows the common options only in the first help.

use clap::Command;

/// Ids of the options that every command has.
const EVERYWHERE: [&str; 4] = ["config", "socket", "log", "log_format"];

/// Last line of each command's help.
const SEE: &str = "--config, --socket, --log and --log-format go with every command; see `headend --help`.";

/// Examples by command; a name of several words is a subcommand.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "serve",
        "headend serve\nheadend serve --upstream 'files=npx -y @modelcontextprotocol/server-filesystem /srv/work'",
    ),
    ("stdio", "headend stdio\nheadend stdio --upstream time='uvx mcp-server-time' --transparent"),
    (
        "add",
        "headend add files -- npx -y @modelcontextprotocol/server-filesystem ~/project\nheadend add docs https://docs.example.com/mcp --header 'Authorization: Bearer ${DOCS_TOKEN}'\nheadend add ./server.json --env-from API_KEY",
    ),
    ("remove", "headend remove files"),
    (
        "check",
        "headend check\nheadend check --resolved --config ./headend.toml\nheadend check --quiet && headend reload",
    ),
    ("policy test", "headend policy test --tool git__push --arguments '{\"force\": true}'"),
    (
        "policy suggest",
        "headend policy suggest\nheadend policy suggest --since 30d > rules.toml && headend policy replay rules.toml",
    ),
    ("policy replay", "headend policy replay rules.toml\nheadend policy replay --since 30d new-headend.toml"),
    ("status", "headend status\nheadend status files\nheadend status --json"),
    ("console", "headend console"),
    ("tools", "headend tools\nheadend tools files__read_file\nheadend tools --all\nheadend tools --tokens"),
    (
        "call",
        "headend call time__now\nheadend call files__read_file '{\"path\": \"/srv/work/notes.md\"}'\nheadend call --json time__now",
    ),
    ("pins", "headend pins --waiting\nheadend pins diff files__read_file\nheadend pins approve files"),
    ("approvals", "headend approvals\nheadend approvals show 4f2a\nheadend approvals --watch"),
    (
        "approve",
        "headend approve 4f2a\nheadend approve 4f2a --for 8h\nheadend approve 4f2a --for always --below ~/project",
    ),
    ("deny", "headend deny 4f2a"),
    ("grants", "headend grants\nheadend grants revoke 4f2a\nheadend grants revoke --all\nheadend grants reviewed"),
    ("tokens", "headend tokens\nheadend tokens list --json"),
    ("tokens add", "headend tokens add ci --expires 90d\nheadend tokens add ci --scopes 'mcp:read mcp:write' --json"),
    ("tokens revoke", "headend tokens revoke ci\nheadend tokens revoke ci --json"),
    ("reload", "headend reload --dry-run\nheadend reload"),
    ("enable", "headend enable files"),
    ("disable", "headend disable files"),
    ("restart", "headend restart files"),
    ("doctor", "headend doctor\nheadend doctor --all"),
    ("logs", "headend logs files\nheadend logs --follow files"),
    ("audit", "headend audit verify\nheadend audit tail --follow"),
    ("backup", "headend backup /srv/backup/headend\nheadend backup --with-key /media/vault/headend"),
    ("import", "headend import ~/.claude.json > headend.toml"),
    ("demo", "headend demo time"),
    ("completions", "headend completions bash > ~/.local/share/bash-completion/completions/headend"),
];

/// Adds the help texts to a command line: each command gets its examples, and hides the common
/// options.
pub(in crate::cli) fn command(mut command: Command) -> Command {
    // Building the command line first copies the common options into all commands.
    command.build();
    for name in names(&command) {
        command = command.mut_subcommand(&name, |sub| told(sub, &name));
    }
    command
}

/// Lists the names of the subcommands, except `help`.
fn names(command: &Command) -> Vec<String> {
    command.get_subcommands().map(|sub| sub.get_name().to_owned()).filter(|name| name != "help").collect()
}

/// Adds the help texts of one command and those below it. `name` is its whole name.
fn told(mut command: Command, name: &str) -> Command {
    command = command.mut_args(|arg| {
        let is_everywhere = EVERYWHERE.contains(&arg.get_id().as_str());
        if is_everywhere { arg.hide(true) } else { arg }
    });
    for below in names(&command) {
        command = command.mut_subcommand(&below, |sub| told(sub, &format!("{name} {below}")));
    }
    let examples = EXAMPLES.iter().find(|(command, _)| *command == name).map(|(_, lines)| *lines);
    let examples = examples.map(|lines| lines.lines().map(|line| format!("  {line}\n")).collect::<String>());
    let head = match examples.as_ref().map(|text| text.lines().count()) {
        None => "",
        Some(1) => "Example:\n",
        Some(_) => "Examples:\n",
    };
    let gap = if examples.is_some() { "\n" } else { "" };
    command.after_help(format!("{head}{}{gap}{SEE}", examples.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn examples_parse_and_the_common_options_stand_in_one_help_alone() {
        let mut all = command(crate::cli::CommandLine::command());
        assert!(all.render_long_help().to_string().contains("--log-format"));
        for name in names(&all) {
            let mut sub = all.find_subcommand(&name).unwrap().clone();
            let help = sub.render_long_help().to_string();
            assert!(help.contains(SEE) && !help.contains("<FILTER>"), "{help}");
            assert!(help.lines().all(|line| line.len() <= 120), "{help}");
        }
        for line in EXAMPLES.iter().flat_map(|(_, lines)| lines.lines()) {
            // The shell interprets the rest of the line.
            let line = line.split(" > ").next().unwrap().split(" && ").next().unwrap();
            let words = shlex::split(line).unwrap();
            assert!(all.clone().try_get_matches_from(&words).is_ok(), "{line}");
        }
    }
}
