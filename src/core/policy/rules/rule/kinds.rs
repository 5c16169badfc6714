//! Sets of kinds that a rule is about.

use super::spec::{PatternField, RuleSpec};
use crate::policy::effect::RuleEffect;
use crate::policy::kind::ActionKind;

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) struct KindSet(u16);

impl KindSet {
    /// Completions of prompts and of templates are told apart, so they have two bits.
    const OF_PROMPTS: u16 = 1 << (ActionKind::Completion as u16);
    const OF_TEMPLATES: u16 = 1 << 15;

    /// Kinds that can wait for an approval.
    pub(in crate::policy) const ASKING: Self =
        Self::from_kinds(&[ActionKind::Tool, ActionKind::Prompt, ActionKind::Resource]);
    /// Kinds that follow an item and cannot wait for an approval. Tasks are left out, since their
    /// calls were decided.
    pub(in crate::policy) const FOLLOWING: Self = Self::from_kinds(&[ActionKind::Completion, ActionKind::Subscription]);
    /// Kinds with arguments.
    pub(in crate::policy) const WITH_ARGUMENTS: Self =
        Self::from_kinds(&[ActionKind::Tool, ActionKind::Prompt, ActionKind::Completion]);
    /// Kinds that are allowed unless a rule denies them.
    const FREE: Self = Self::from_kinds(&[ActionKind::Sampling, ActionKind::Elicitation, ActionKind::Launch]);
    const TOOLS: Self = Self::from_kinds(&[ActionKind::Tool, ActionKind::Task]);
    const PROMPTS: Self = Self(Self::bits(ActionKind::Prompt) | Self::OF_PROMPTS);
    const RESOURCES: Self =
        Self(Self::bits(ActionKind::Resource) | Self::bits(ActionKind::Subscription) | Self::OF_TEMPLATES);
    const ITEMS: Self = Self(Self::TOOLS.0 | Self::PROMPTS.0 | Self::RESOURCES.0);

    const fn from_kinds(kinds: &[ActionKind]) -> Self {
        let mut bits = 0;
        let mut rest = kinds;
        while let [first, others @ ..] = rest {
            bits |= Self::bits(*first);
            rest = others;
        }
        Self(bits)
    }

    const fn bits(kind: ActionKind) -> u16 {
        let own = 1 << (kind as u16);
        if matches!(kind, ActionKind::Completion) { own | Self::OF_TEMPLATES } else { own }
    }

    /// Returns the kinds that a rule is about, from its kinds, lists, annotations and claims.
    /// Following kinds go with their item: a caller that may not call a tool may not poll its
    /// tasks.
    pub(in crate::policy) fn of(spec: &RuleSpec) -> Self {
        let mut kinds = Self::stated(spec);
        if spec.names_items() {
            let lists =
                [(&spec.tools, Self::TOOLS), (&spec.prompts, Self::PROMPTS), (&spec.resources, Self::RESOURCES)];
            let named = lists.iter().filter(|(list, _)| !list.is_empty()).fold(0, |bits, (_, kinds)| bits | kinds.0);
            kinds.0 &= named;
        }
        if !(spec.annotations.is_empty() && spec.claims.is_empty()) {
            kinds.0 &= Self::TOOLS.0;
        }
        kinds
    }

    /// Returns the kinds that the rule's `kinds` state, or the kinds of all items if it states
    /// none.
    fn stated(spec: &RuleSpec) -> Self {
        if spec.kinds.is_empty() {
            return Self::ITEMS;
        }
        Self(spec.kinds.iter().fold(0, |bits, kind| {
            bits | match kind {
                ActionKind::Tool => Self::TOOLS.0,
                ActionKind::Prompt => Self::PROMPTS.0,
                ActionKind::Resource => Self::RESOURCES.0,
                ActionKind::Completion
                | ActionKind::Subscription
                | ActionKind::Task
                | ActionKind::Sampling
                | ActionKind::Elicitation
                | ActionKind::Launch => Self::bits(*kind),
            }
        }))
    }

    /// Returns the kinds for which a rule with this effect makes a difference.
    pub(in crate::policy) const fn that_heed(self, effect: RuleEffect) -> Self {
        match effect {
            RuleEffect::Deny => self,
            RuleEffect::Ask => Self(self.0 & Self::ASKING.0),
            RuleEffect::Allow => Self(self.0 & !Self::FREE.0),
        }
    }

    pub(in crate::policy) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(in crate::policy) const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the two sets have a kind in common.
    pub(in crate::policy) const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(in crate::policy) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether the set has a kind. `field` is the list that names the item: it tells completions of
    /// prompts and of templates apart.
    pub(super) const fn has(self, kind: ActionKind, field: Option<PatternField>) -> bool {
        let bit = match (kind, field) {
            (ActionKind::Completion, Some(PatternField::Resources)) => Self::OF_TEMPLATES,
            (ActionKind::Completion, _) => Self::OF_PROMPTS,
            (kind, _) => Self::bits(kind),
        };
        self.0 & bit != 0
    }
}
