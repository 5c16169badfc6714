//! Names that an import chooses: of upstreams, and of the variables that hold secrets.

use std::collections::{HashMap, HashSet};

/// The names that were chosen so far.
#[derive(Debug, Default)]
pub(super) struct ImportNames {
    upstreams: Vec<String>,
    /// The secret that each variable stands for.
    secrets: HashMap<String, String>,
    /// Variables of hosts and of the existing configuration, whose values are not known.
    taken: HashSet<String>,
}

impl ImportNames {
    /// Starts with the names of an existing configuration.
    pub(super) fn beside(upstreams: Vec<String>, variables: HashSet<String>) -> Self {
        Self { upstreams, secrets: HashMap::new(), taken: variables }
    }

    /// Reserves a variable that a host or the configuration names, so that no secret gets it.
    pub(super) fn keep(&mut self, variable: &str) {
        self.taken.insert(variable.to_owned());
    }

    /// Chooses a valid and unique name for an upstream.
    pub(super) fn upstream(&mut self, wanted: &str) -> String {
        let mut name = String::new();
        for c in wanted.chars().map(|c| c.to_ascii_lowercase()) {
            match c {
                'a'..='z' | '0'..='9' => name.push(c),
                _ if name.is_empty() || name.ends_with('-') => {}
                _ => name.push('-'),
            }
        }
        name.truncate(MAX_NAME);
        let stem = match name.trim_end_matches('-') {
            "" => "upstream",
            stem => stem,
        };
        let mut name = stem.to_owned();
        for number in 2.. {
            if !self.upstreams.contains(&name) {
                break;
            }
            name = format!("{stem}-{number}");
        }
        self.upstreams.push(name.clone());
        name
    }

    /// Returns the secret that a variable was chosen for; `None` for a variable of the host.
    pub(super) fn secret_of(&self, variable: &str) -> Option<&str> {
        self.secrets.get(variable).map(String::as_str)
    }

    /// Chooses a variable for a secret of an upstream. Different secrets never share one.
    pub(super) fn variable(&mut self, upstream: &str, wanted: &str, secret: &str) -> String {
        let short = variable_name(wanted);
        let long = variable_name(&format!("{upstream}_{wanted}"));
        let numbered = (2..).map(|number| format!("{long}_{number}"));
        let mut candidates = [short, long.clone()].into_iter().chain(numbered);
        let free =
            |name: &String| !self.taken.contains(name) && self.secrets.get(name).is_none_or(|other| other == secret);
        let name = candidates.find(free).unwrap_or(long);
        self.secrets.insert(name.clone(), secret.to_owned());
        name
    }
}

/// Length limit of a stem: an upstream's name has 31 characters at most, which leaves room for `-`
/// and a number.
const MAX_NAME: usize = 27;

/// Converts a text to a name that shells can export.
pub(super) fn variable_name(text: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = text.chars().map(fit).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}
