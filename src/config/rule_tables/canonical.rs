//! Checks patterns over canonical names.

use crate::catalog::name::UpstreamName;

use crate::source::words::did_you_mean;

/// The separator between the upstream and the rest of a canonical name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str)]
pub(crate) enum Separator {
    /// `__` for tools and prompts.
    #[strum(serialize = "__")]
    Name,
    /// `+` for resources.
    #[strum(serialize = "+")]
    Uri,
}

/// Reports a problem for each pattern of a list that can match no canonical name of these
/// upstreams.
pub(crate) fn check_all(
    path: &str,
    patterns: &[String],
    separator: Separator,
    upstreams: &[UpstreamName],
    at: &mut dyn FnMut(String, String),
) {
    for (index, pattern) in patterns.iter().enumerate() {
        if let Err(message) = check_pattern(pattern, separator, upstreams) {
            at(format!("{path}[{index}]"), message);
        }
    }
}

/// Refuses a pattern that can match no canonical name of these upstreams: a rule that silently does
/// nothing is the classic failure.
fn check_pattern(pattern: &str, separator: Separator, upstreams: &[UpstreamName]) -> Result<(), String> {
    let between = separator.into_str();
    let head = pattern.split(['*', '?', '[', ']', '{', '}', '\\']).next().unwrap_or_default();
    let starts = |name: &UpstreamName| {
        let start = format!("{name}{between}");
        head.starts_with(&start) || (start.starts_with(head) && head.len() < pattern.len())
    };
    if pattern.is_empty() || upstreams.iter().any(starts) {
        return Ok(());
    }
    let Some((name, _)) = head.split_once(between) else {
        let example = upstreams.first().map_or("files", UpstreamName::as_str);
        let form = match separator {
            Separator::Name => format!("`<upstream>__<name>`, for example \"{example}__{pattern}\""),
            Separator::Uri => format!("`<upstream>+<URI>`, for example \"{example}+{pattern}\""),
        };
        return Err(format!("matches nothing: rules and profiles use canonical names, {form}"));
    };
    let near = did_you_mean(name, upstreams.iter().map(UpstreamName::as_str));
    Err(format!("matches nothing: there is no upstream `{name}` here{near}"))
}
