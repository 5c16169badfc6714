//! The effective annotations of tools: the upstream's hints are claims, and the operator's
//! annotations override them.
//!
//! Policy goes by the effective annotations alone. Clients of an `untrusted` upstream see these
//! too. Clients of other upstreams see the upstream's own hints below the operator's, unless the
//! view has `hints = "tightened"`.

use globset::GlobMatcher;

use crate::catalog::glob::glob;
use crate::catalog::merge::{HintJudge, JudgedHints};
use crate::mcp::definition::annotations::{Annotations, Hints, StatedHints};

/// The trust that the operator has in the hints of an upstream.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray, serde::Serialize,
)]
#[strum(const_into_str, serialize_all = "lowercase")]
#[serde(into = "&'static str")]
pub enum UpstreamTrust {
    /// Hints can only tighten, and new definitions and changed launches wait for the operator.
    Untrusted,
    /// Hints can only tighten.
    #[default]
    Standard,
    /// Hints may loosen too.
    Trusted,
}

/// The judge of the hints on one upstream's tools, with the operator's annotations.
#[derive(Clone, Debug, Default)]
pub struct OperatorHints {
    trust: UpstreamTrust,
    /// The operator's annotations, by globs over the upstream's own names.
    stated: Vec<(GlobMatcher, Hints)>,
}

impl OperatorHints {
    /// Compiles the operator's annotations.
    ///
    /// # Errors
    /// A sentence about the first pattern that is no glob.
    pub fn build(trust: UpstreamTrust, stated: &[(String, Hints)]) -> Result<Self, String> {
        let compile = |(pattern, hints): &(String, Hints)| Ok((glob(pattern)?.compile_matcher(), *hints));
        Ok(Self { trust, stated: stated.iter().map(compile).collect::<Result<_, String>>()? })
    }

    /// Returns the operator's annotations of a tool. If several patterns match, the stricter value
    /// applies, in any order.
    fn stated(&self, original: &str) -> Hints {
        let mut all = Hints::default();
        for (_, hints) in self.stated.iter().filter(|(glob, _)| glob.is_match(original)) {
            all.read_only = stricter_hint(all.read_only, hints.read_only, false);
            all.destructive = stricter_hint(all.destructive, hints.destructive, true);
            all.idempotent = stricter_hint(all.idempotent, hints.idempotent, false);
            all.open_world = stricter_hint(all.open_world, hints.open_world, true);
        }
        all
    }
}

/// Returns the `strict` value if either hint has it, else the hint that is stated.
fn stricter_hint(one: Option<bool>, other: Option<bool>, strict: bool) -> Option<bool> {
    if one == Some(strict) { one } else { other.or(one) }
}

impl HintJudge for OperatorHints {
    fn annotate(&self, original: &str, claims: &Hints, tightened: bool) -> JudgedHints {
        let operator = self.stated(original);
        let effective = join_hints(self.trust, claims, &operator);
        // A tool that the operator calls destructive is not read-only, even if its server says so.
        let destroys = operator.destructive == Some(true);
        let shown = if tightened || self.trust == UpstreamTrust::Untrusted {
            effective.into()
        } else if destroys {
            Hints { read_only: Some(false), ..operator }
        } else {
            operator
        };
        let is_heard = self.trust != UpstreamTrust::Untrusted;
        JudgedHints { effective, shown, said: StatedHints { server: *claims, operator }, is_heard }
    }
}

/// Joins the upstream's hints and the operator's to the annotations that policy goes by.
fn join_hints(trust: UpstreamTrust, claims: &Hints, operator: &Hints) -> Annotations {
    let assumed = Annotations::ASSUMED;
    // Only trusted upstreams may loosen. A tightening hint matches the protocol's default, so it
    // changes nothing.
    let believed = if trust == UpstreamTrust::Trusted { *claims } else { Hints::default() };
    let destructive = operator.destructive.or(claims.destructive.filter(|_| operator.read_only != Some(true)));
    let known_destructive = destructive == Some(true);
    // A destructive tool is not read-only, even if it claims to be.
    let read_only = operator.read_only.or(believed.read_only).unwrap_or(assumed.read_only) && !known_destructive;
    Annotations {
        read_only,
        destructive: !read_only && operator.destructive.or(believed.destructive).unwrap_or(assumed.destructive),
        idempotent: operator.idempotent.or(believed.idempotent).unwrap_or(assumed.idempotent),
        open_world: operator.open_world.or(believed.open_world).unwrap_or(assumed.open_world),
        known_destructive,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(text: &str) -> Hints {
        let mut hints = Hints::default();
        for word in text.split_whitespace() {
            let value = Some(!word.starts_with('!'));
            match word.trim_start_matches('!') {
                "read" => hints.read_only = value,
                "destroy" => hints.destructive = value,
                "same" => hints.idempotent = value,
                "open" => hints.open_world = value,
                other => panic!("{other}"),
            }
        }
        hints
    }

    fn told(annotations: Annotations) -> String {
        let Annotations { read_only, destructive, idempotent, open_world, known_destructive } = annotations;
        let words = [
            (read_only, "read"),
            (destructive, "destroy"),
            (idempotent, "same"),
            (open_world, "open"),
            (known_destructive, "known"),
        ];
        words.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn claims_only_tighten_unless_the_upstream_is_trusted() {
        let all = "read !destroy same !open";
        for (label, trust, claims, operator, want) in [
            ("nothing said", UpstreamTrust::Standard, "", "", "destroy open"),
            ("freeing claims", UpstreamTrust::Standard, all, "", "destroy open"),
            ("freeing claims, untrusted", UpstreamTrust::Untrusted, all, "", "destroy open"),
            ("freeing claims, trusted", UpstreamTrust::Trusted, all, "", "read same"),
            ("only reads, trusted", UpstreamTrust::Trusted, "read", "", "read open"),
            ("destructive", UpstreamTrust::Standard, "destroy", "", "destroy open known"),
            ("destructive, trusted", UpstreamTrust::Trusted, "destroy", "", "destroy open known"),
            ("reads and destroys, trusted", UpstreamTrust::Trusted, "read destroy", "", "destroy open known"),
            ("the operator frees", UpstreamTrust::Untrusted, "", "read !open", "read"),
            ("the operator frees against a claim", UpstreamTrust::Standard, "destroy", "!destroy", "open"),
            ("the operator says it only reads", UpstreamTrust::Standard, "destroy", "read", "read open"),
            ("the operator binds", UpstreamTrust::Trusted, "read", "!read", "destroy open"),
            ("the operator knows", UpstreamTrust::Trusted, "read", "destroy", "destroy open known"),
        ] {
            assert_eq!(told(join_hints(trust, &hints(claims), &hints(operator))), want, "{label}");
        }
    }

    #[test]
    fn of_several_patterns_the_stricter_word_holds() {
        let stated = [("*", "read"), ("get_*", "read !open"), ("*_all", "destroy"), ("get_all", "!destroy")];
        for order in [stated, [stated[3], stated[2], stated[1], stated[0]]] {
            let stated: Vec<_> = order.iter().map(|(glob, text)| ((*glob).to_owned(), hints(text))).collect();
            let annotator = OperatorHints::build(UpstreamTrust::Standard, &stated).unwrap();
            let of = |name: &str| told(annotator.annotate(name, &Hints::default(), false).effective);
            assert_eq!(of("x"), "read open");
            assert_eq!(of("get_one"), "read");
            assert_eq!(of("get_all"), "destroy known");
        }
        assert!(OperatorHints::build(UpstreamTrust::Standard, &[("a{".to_owned(), Hints::default())]).is_err());
    }

    #[test]
    fn clients_see_the_servers_hints_below_the_operators_where_it_is_trusted_at_all() {
        let stated = [("kept", "destroy"), ("k*", "read"), ("freed", "read")];
        let stated = stated.map(|(name, text)| (name.to_owned(), hints(text)));
        for (trust, tightened, name, want) in [
            (UpstreamTrust::Standard, false, "x", ""),
            (UpstreamTrust::Trusted, false, "x", ""),
            (UpstreamTrust::Standard, true, "x", "!read destroy !same open"),
            (UpstreamTrust::Untrusted, false, "x", "!read destroy !same open"),
            (UpstreamTrust::Standard, false, "kept", "!read destroy"),
            (UpstreamTrust::Trusted, false, "freed", "read"),
            (UpstreamTrust::Untrusted, false, "freed", "read !destroy !same open"),
        ] {
            let annotator = OperatorHints::build(trust, &stated).unwrap();
            let shown = annotator.annotate(name, &hints("read !open"), tightened).shown;
            assert_eq!(shown, hints(want), "{name} of a {trust:?} upstream, tightened: {tightened}");
        }
    }
}
