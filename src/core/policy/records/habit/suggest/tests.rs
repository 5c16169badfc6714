use super::*;
use crate::mcp::definition::annotations::Annotations;
use crate::policy::evidence::ApprovalEvidence;

/// One configured upstream with destructive tools that take these arguments.
struct Tools(Option<Vec<String>>);

impl PresentItems for Tools {
    fn has(&self, upstream: &str) -> bool {
        upstream == "files"
    }

    fn known(&self, _: ActionKind, _: &str) -> Option<PresentItem> {
        Some(PresentItem { facts: destroys(), arguments: self.0.clone() })
    }
}

fn destroys() -> ToolFacts {
    ToolFacts::from(Annotations { known_destructive: true, ..Annotations::ASSUMED })
}

/// Returns the suggestions after five approvals of a destructive tool with these arguments.
fn suggested(tool: &str, approved: &dyn Fn(usize) -> String, schema: Option<&[&str]>) -> Suggestions {
    let mut habit = CallerHabit::default();
    for n in 0..5 {
        habit.yes.add(ApprovalEvidence::Page);
        let _bytes = habit.shapes.add(Some(&approved(n)), ApprovalEvidence::Page, true);
    }
    let (upstream, facts) = (Arc::from("files"), Some(destroys()));
    let callers = [(Arc::from("ann"), habit)].into();
    let seen = ItemHabit { upstream, is_destructive: true, facts, callers, ..ItemHabit::default() };
    let item = HabitItem { kind: ActionKind::Tool, name: Arc::from(format!("files__{tool}")) };
    let mut habits = Habits::default();
    habits.items.insert(item, seen);
    let schema = schema.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    habits.suggest(&Tools(schema))
}

#[test]
fn a_tool_that_may_overwrite_gets_a_rule_below_its_folders_with_a_warning() {
    let edit = |n: usize| format!(r#"{{"path":"/srv/app/{n}.rs","edits":[{{"oldText":"{n}","newText":"x"}}]}}"#);
    let mut all = suggested("edit_file", &edit, Some(&["path", "edits", "dryRun"]));
    let [one] = &all.rules[..] else { panic!("{all:?}") };
    assert!(one.overwrites && !one.is_blind);
    let told: Vec<String> =
        one.rule.arguments.iter().map(|spec| format!("{} {:?}", spec.pointer, spec.matcher)).collect();
    assert_eq!(told, [r#"/path PathUnder("/srv/app")"#, "/dryRun Absent", r#"/path Regex("^(/[^/.][^/]*)+/?$")"#]);
    assert_eq!(one.also.len(), 2, "any edits, and any path below it: {:?}", one.also);
    all.fit(&PolicySpec { default: RuleEffect::Ask, rules: Vec::new(), scopes: Vec::new(), limits: Vec::new() });
    assert_eq!(all.rules.len(), 1, "the rule compiles: {:?}", all.left_out);
}

#[test]
fn a_destructive_tool_has_no_other_rule() {
    let path = |at: &'static str| move |n: usize| format!(r#"{{"path":"{at}/{n}"}}"#);
    let known: Option<&[&str]> = Some(&["path", "to", "url", "command"]);
    for (label, tool, approved, schema) in [
        ("it removes", "delete_file", Box::new(path("/srv/app")) as Box<dyn Fn(usize) -> String>, known),
        ("it runs", "run", Box::new(path("/srv/app")), known),
        ("unknown arguments", "write", Box::new(path("/srv/app")), None),
        ("a home", "write", Box::new(path("/home/me")), known),
        ("a dot", "write", Box::new(path("/srv/.app")), known),
        ("no folder", "write", Box::new(|_| r#"{"path":"/srv/app/x"}"#.to_owned()), known),
        ("no path", "write", Box::new(|n| format!(r#"{{"text":"{n}"}}"#)), known),
        ("a command", "write", Box::new(|n| format!(r#"{{"path":"/srv/app/{n}","command":"x"}}"#)), known),
        (
            "an open place",
            "write",
            Box::new(|n| format!(r#"{{"path":"/srv/app/{n}","edits":[{{"file":"{n}"}}]}}"#)),
            known,
        ),
    ] {
        let all = suggested(tool, &*approved, schema);
        assert!(all.rules.is_empty(), "{label}: {:?}", all.rules);
        assert_eq!(
            all.left_out.iter().map(|one| one.why).collect::<Vec<_>>(),
            [OmissionReason::Destructive],
            "{label}"
        );
    }
}
