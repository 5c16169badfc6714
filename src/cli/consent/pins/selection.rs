//! Resolves the names on the command line to pins.

use clap::Args;

use crate::cli::exit::{NO, USAGE};
use crate::cli::words::output::CommandFailure;
use crate::operator::pins::{PinKind, PinView, compile_pattern};
use crate::operator::request::PinName;
use crate::wire::foreign;

/// The pins that a command is about.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct PinSelectionArgs {
    /// An item as `headend pins` lists it, an upstream for everything of it that waits, or a
    /// pattern such as `fx__get_*`.
    #[arg(required_unless_present = "all", value_name = "NAME")]
    pub(super) names: Vec<String>,
    /// Everything that waits, of all upstreams.
    #[arg(long, conflicts_with = "names")]
    pub(super) all: bool,
    /// The launch of an upstream, not its items: how it is started.
    #[arg(long, conflicts_with = "kind")]
    pub(super) launch: bool,
    /// Only this kind: tool, prompt, resource, template, app, instructions or launch.
    #[arg(long)]
    pub(super) kind: Option<String>,
}

/// The pins that the command line selects.
pub(super) enum PinSelection {
    /// Pins by their own names, in any state, with a kind if one was given.
    Each(Vec<PinName>),
    /// Waiting pins of all upstreams, of an upstream, or matching a pattern.
    Many(Vec<PinView>),
}

impl PinSelectionArgs {
    /// Parses the option `--kind`.
    ///
    /// # Errors
    /// 1 for an unknown kind.
    fn kind(&self) -> Result<Option<PinKind>, CommandFailure> {
        let unknown = |word: &String| CommandFailure::new(NO, format!("there is no kind {word:?}"));
        self.kind.as_ref().map(|word| word.parse().map_err(|_| unknown(word))).transpose()
    }
}

impl PinSelection {
    /// Resolves the names against the existing pins. Launches are selected only by `--launch` or
    /// `--kind launch`.
    ///
    /// # Errors
    /// 64 for an invalid pattern, 1 for an unknown name or if nothing that it selects waits.
    pub(super) fn of(pins: &[PinView], chosen: &PinSelectionArgs) -> Result<Self, CommandFailure> {
        let kind = if chosen.launch { Some(PinKind::Launch) } else { chosen.kind()? };
        // The launch of an upstream has the upstream's name, so it is selected only by its kind.
        let of_kind = |pin: &&PinView| kind.map_or(pin.kind != PinKind::Launch, |kind| pin.kind == kind);
        // So do its instructions, and the name alone means everything of the upstream that waits.
        let has_own_name = |pin: &&PinView| of_kind(pin) && (kind.is_some() || pin.kind != PinKind::Instructions);
        let waiting = || pins.iter().filter(|pin| pin.waits()).filter(of_kind);
        if chosen.all {
            return Ok(Self::Many(waiting().cloned().collect()));
        }
        let mut each = Vec::new();
        let mut many: Vec<PinView> = Vec::new();
        let mut is_many = false;
        for name in &chosen.names {
            if pins.iter().filter(has_own_name).any(|pin| pin.name == *name) {
                each.push(PinName { name: name.clone(), kind });
                many.extend(waiting().filter(|pin| pin.name == *name).cloned());
                continue;
            }
            let found: Vec<PinView> = if kind != Some(PinKind::Launch) && pins.iter().any(|pin| pin.upstream == *name) {
                waiting().filter(|pin| pin.upstream == *name).cloned().collect()
            } else if name.contains(['*', '?', '[', '{']) {
                let matches = compile_pattern(name).map_err(|why| CommandFailure::new(USAGE, why))?;
                waiting().filter(|pin| matches(&pin.name)).cloned().collect()
            } else {
                let text = format!("no pin has the name {name:?}; `headend pins` lists them");
                return Err(CommandFailure::new(NO, text));
            };
            if found.is_empty() {
                return Err(nothing_waits(pins, name));
            }
            is_many = true;
            many.extend(found);
        }
        if !is_many {
            return Ok(Self::Each(each));
        }
        if let Some(PinName { name, .. }) =
            each.iter().find(|PinName { name, .. }| many.iter().all(|pin| pin.name != *name))
        {
            return Err(nothing_waits(pins, name));
        }
        many.sort_by(|a, b| (&a.upstream, a.kind.into_str(), &a.name).cmp(&(&b.upstream, b.kind.into_str(), &b.name)));
        many.dedup_by(|a, b| (&a.kind, &a.name) == (&b.kind, &b.name));
        Ok(Self::Many(many))
    }
}

fn nothing_waits(pins: &[PinView], name: &str) -> CommandFailure {
    let launch = pins.iter().find(|pin| pin.kind == PinKind::Launch && pin.name == name && pin.waits());
    let shown = foreign::line(name);
    let text = match launch {
        Some(_) => format!("no item of {shown} waits for approval, but its launch does; add --launch for that"),
        None => format!("nothing of {shown} waits for approval; `headend pins --waiting` lists what does"),
    };
    CommandFailure::new(NO, text)
}

/// Describes how many pins of which kinds: `3 items of fx (2 tools, 1 prompt)`.
pub(super) fn describe_counts(pins: &[PinView]) -> String {
    let mut kinds: Vec<(PinKind, usize)> = Vec::new();
    let mut upstreams: Vec<&str> = Vec::new();
    for pin in pins {
        match kinds.iter_mut().find(|(kind, _)| *kind == pin.kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((pin.kind, 1)),
        }
        if !upstreams.contains(&pin.upstream.as_str()) {
            upstreams.push(&pin.upstream);
        }
    }
    let of = match upstreams.as_slice() {
        [one] => foreign::line(one).into_owned(),
        several => format!("{} upstreams", several.len()),
    };
    let plural = |kind: PinKind, count: usize| match (kind, count) {
        (PinKind::Instructions, 1) => "text of instructions".to_owned(),
        (PinKind::Instructions, _) => "texts of instructions".to_owned(),
        (kind, 1) => kind.into_str().to_owned(),
        (PinKind::Launch, _) => "launches".to_owned(),
        (kind, _) => format!("{}s", kind.into_str()),
    };
    let kinds: Vec<String> =
        kinds.into_iter().map(|(kind, count)| format!("{count} {}", plural(kind, count))).collect();
    match kinds.as_slice() {
        [one] => format!("{one} of {of}"),
        several => format!("{} items of {of} ({})", pins.len(), several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::json::raw::RawObject;

    fn pin(upstream: &str, kind: &str, name: &str, state: &str) -> PinView {
        let members = [("upstream", upstream), ("kind", kind), ("name", name), ("state", state), ("why", "")];
        RawObject::of_strings(&members).encode().parse().unwrap()
    }

    fn pins() -> Vec<PinView> {
        [
            ("a", "launch", "a", "pinned"),
            ("a", "tool", "a__x", "changed"),
            ("a", "tool", "a__y", "quarantined"),
            ("a", "prompt", "a__x", "changed"),
            ("a", "tool", "a__z", "pinned"),
            ("b", "launch", "b", "changed"),
            ("b", "tool", "b__x", "rejected"),
            ("b", "resource", "b+u://[1]", "changed"),
            ("c", "launch", "c", "quarantined"),
            ("e", "tool", "e__w", "changed"),
            ("e", "instructions", "e", "changed"),
        ]
        .map(|(upstream, kind, name, state)| pin(upstream, kind, name, state))
        .into()
    }

    fn chosen(names: &[&str]) -> PinSelectionArgs {
        PinSelectionArgs { names: names.iter().map(ToString::to_string).collect(), ..PinSelectionArgs::default() }
    }

    fn told(chosen: &PinSelectionArgs) -> String {
        match PinSelection::of(&pins(), chosen) {
            Ok(PinSelection::Each(each)) => {
                let told = each
                    .into_iter()
                    .map(|PinName { name, kind }| format!("{name}/{}", kind.map_or("", |kind| kind.into_str())));
                format!("each {}", told.collect::<Vec<_>>().join(" "))
            }
            Ok(PinSelection::Many(many)) => {
                let told = many.iter().map(|pin| format!("{}/{}", pin.name, pin.kind.into_str()));
                format!("many {}", told.collect::<Vec<_>>().join(" "))
            }
            Err(failure) => format!("{} {}", failure.code, failure.text),
        }
    }

    #[test]
    fn a_name_is_an_item_an_upstream_or_a_pattern() {
        let kind = |kind: &str, names: &[&str]| PinSelectionArgs { kind: Some(kind.to_owned()), ..chosen(names) };
        let launch = |names: &[&str]| PinSelectionArgs { launch: true, ..chosen(names) };
        let all = PinSelectionArgs { all: true, ..PinSelectionArgs::default() };
        for (label, chosen, want) in [
            ("an item", chosen(&["a__z"]), "each a__z/"),
            ("an item with its kind", kind("prompt", &["a__x"]), "each a__x/prompt"),
            ("a URI that looks like a pattern", chosen(&["b+u://[1]"]), "each b+u://[1]/"),
            ("an upstream", chosen(&["a"]), "many a__x/prompt a__x/tool a__y/tool"),
            ("an upstream's tools", kind("tool", &["a"]), "many a__x/tool a__y/tool"),
            ("a pattern", chosen(&["*x"]), "many a__x/prompt a__x/tool"),
            ("an item among others", chosen(&["a__y", "b"]), "many a__y/tool b+u://[1]/resource"),
            (
                "a pinned item among others",
                chosen(&["a__z", "b"]),
                "1 nothing of a__z waits for approval; `headend pins --waiting` lists what does",
            ),
            ("one named twice", chosen(&["a", "a__*"]), "many a__x/prompt a__x/tool a__y/tool"),
            ("all", all.clone(), "many a__x/tool a__y/tool a__x/prompt b+u://[1]/resource e__w/tool e/instructions"),
            ("an upstream with instructions", chosen(&["e"]), "many e/instructions e__w/tool"),
            ("instructions", kind("instructions", &["e"]), "each e/instructions"),
            ("a launch", launch(&["b"]), "each b/launch"),
            ("a launch by its kind", kind("launch", &["b"]), "each b/launch"),
            ("all launches", PinSelectionArgs { launch: true, ..all }, "many b/launch c/launch"),
            ("launches by a pattern", launch(&["?"]), "many b/launch c/launch"),
            ("an item's launch", launch(&["a__x"]), "1 no pin has the name \"a__x\"; `headend pins` lists them"),
            ("unknown", chosen(&["a", "d"]), "1 no pin has the name \"d\"; `headend pins` lists them"),
            ("no pattern", chosen(&["a["]), "64 `a[` is not a glob: unclosed character class; missing ']'"),
        ] {
            assert_eq!(told(&chosen), want, "{label}");
        }
        assert!(told(&chosen(&["c"])).contains("its launch does; add --launch"), "{}", told(&chosen(&["c"])));
        assert!(told(&chosen(&["b__*"])).starts_with("1 nothing of b__* waits"), "what was rejected waits no more");
    }

    #[test]
    fn what_is_counted_is_named() {
        let pins = pins();
        assert_eq!(describe_counts(&pins[1..2]), "1 tool of a");
        assert_eq!(describe_counts(&pins[1..3]), "2 tools of a");
        assert_eq!(describe_counts(&pins[1..4]), "3 items of a (2 tools, 1 prompt)");
        assert_eq!(describe_counts(&[pins[0].clone(), pins[5].clone()]), "2 launches of 2 upstreams");
    }
}
