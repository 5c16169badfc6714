//! Shows an open approval in full: the caller, the item, all arguments, and the grants that can be
//! given.

use crate::cli::exit::UNAVAILABLE;
use crate::cli::status::time;
use crate::cli::words::output::CommandFailure;
use crate::policy::Digest;
use crate::policy::consent::ApprovalView;
use crate::policy::consent::view::{ArgumentView, ViewColours};
use crate::wire::foreign;
use crate::wire::foreign::marked::MarkedText;

/// The hint after the call was allowed too late for the agent.
pub(super) const TRY_AGAIN: &str = "Tell the agent to try again.";

/// Formats the whole approval for people, in the colours of `paint`.
pub(super) fn format_approval(approval: &ApprovalView, paint: &ViewColours) -> String {
    let mut out = String::new();
    let mut row = |name: &str, parts: &[MarkedText]| {
        out.push_str(&format!("{name:<11}"));
        parts.iter().for_each(|part| paint.marked(part, "", &mut out));
        out.push('\n');
    };
    let (own, quoted) = (MarkedText::own, MarkedText::quoted);
    let caller = quoted(approval.caller.name());
    match &approval.client {
        Some(client) => row("caller:", &[caller, own(", says it is "), quoted(client), own(" (not verified)")]),
        None => row("caller:", &[caller]),
    }
    row("upstream:", &[quoted(&approval.upstream)]);
    let kind = format!("{}:", foreign::line(&approval.kind));
    if approval.item == approval.exposed {
        row(&kind, &[quoted(&approval.item)]);
    } else {
        row(&kind, &[quoted(&approval.item), own(" (called "), quoted(&approval.exposed), own(")")]);
    }
    if let Some(effect) = &approval.effect {
        row("effect:", &[MarkedText::of(effect)]);
    }
    row("time:", &[own(&format!("asked {} ago, {} left", time(approval.age), time(approval.left)))]);
    let agent = match (approval.waits, approval.wait_left) {
        (None, _) => None,
        (Some(true), Some(left)) => Some(format!("waits, {} left", time(left))),
        (Some(true), None) => Some("waits".to_owned()),
        (Some(false), _) => Some("was told to stop; after a yes, tell it to try again".to_owned()),
    };
    if let Some(agent) = agent {
        row("agent:", &[own(&agent)]);
    }
    for warning in approval.warnings.iter().flatten() {
        out.extend([paint.alarm, "WARNING:   ", &foreign::line(warning), paint.off, "\n"]);
    }
    out.push('\n');
    out.push_str(&arguments(approval, paint));
    if let Some(description) = &approval.description {
        out.push_str("\nThe description, as the server wrote it:\n");
        out.push_str(&barred(description, paint));
    }
    let digest = |digest: &Option<String>| foreign::line(digest.as_deref().unwrap_or_default()).into_owned();
    let (arguments, definition) = (digest(&approval.arguments_digest), digest(&approval.definition_digest));
    let (need, rule) = (foreign::line(&approval.min_evidence), quoted(&approval.rule));
    out.push_str(&format!("\narguments {arguments}, definition {definition}, needs {need}, rule {rule}\n"));
    if let Some(outcome) = &approval.outcome {
        out.push_str(&format!("\n{}\n", foreign::line(outcome)));
    }
    out.push_str(&format_offers(approval));
    out
}

/// Returns the digest of the shown approval, which the answer must name. Fails with 69 for an old
/// daemon that sends none.
pub(super) fn digest(approval: &ApprovalView) -> Result<Digest, CommandFailure> {
    let old =
        || CommandFailure::new(UNAVAILABLE, "the daemon is older than this program and lists no digests; restart it");
    Digest::from_hex(&approval.digest).ok_or_else(old)
}

/// Lists the offered grants below a folder or site, numbered `b1`, `b2` and so on.
fn format_offers(approval: &ApprovalView) -> String {
    let offers = approval.offers();
    let mut out = String::new();
    for (at, offer) in offers.iter().enumerate() {
        out.push_str(&format!(
            "{}b{}  always below {}\n",
            if at == 0 { "\n" } else { "" },
            at + 1,
            foreign::line(&offer.base)
        ));
    }
    offers.first().map_or(String::new(), |offer| format!("{out}    {}\n", foreign::line(&offer.covers)))
}

/// Returns the commands that answer the approval.
pub(super) fn commands(approval: &ApprovalView) -> String {
    let id = foreign::line(&approval.id);
    let below = if approval.offers().is_empty() { "" } else { " [--below PATH]" };
    format!("headend approve {id} [--for once|session|8h|always]{below}\nheadend deny {id}\n")
}

/// Formats the arguments as far as they were kept.
fn arguments(approval: &ApprovalView, paint: &ViewColours) -> String {
    let size = approval.arguments_bytes.unwrap_or_default();
    let Some(json) = &approval.arguments else {
        let Some(beginning) = &approval.arguments_beginning else {
            // The approval comes from a process of an earlier release, which stored a message only.
            return foreign::block(&approval.message).into_owned() + "\n";
        };
        let text = foreign::block(beginning);
        return format!("The arguments, {size} bytes, are too long to be kept. This is how they begin:\n{text}");
    };
    let view = ArgumentView::of(&json.text(), usize::MAX / 4);
    if view.blocks.is_empty() {
        return "No arguments.\n".to_owned();
    }
    let whole = if view.is_whole() { "" } else { "; exactly as they are with --json" };
    format!("Arguments, {size} bytes{whole}:\n{}", view.told(paint))
}

/// Formats foreign text with a bar before each line.
fn barred(text: &str, paint: &ViewColours) -> String {
    let mut out = String::new();
    for (line, _) in foreign::lines(text) {
        out.extend([paint.pale, "  | ", paint.off]);
        paint.marked(&MarkedText::of(line), "", &mut out);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn shown(json: &'static str) -> String {
        let approval: ApprovalView = serde_json::from_str(json).unwrap();
        format_approval(&approval, &ViewColours::NONE) + &commands(&approval)
    }

    #[test]
    fn an_approval_is_told_with_all_of_its_arguments() {
        expect![[r#"
            caller:    "local", says it is "claude\u{1b}[2J 2.1" (not verified)
            upstream:  "fx"
            tool:      "fx__edit" (called "edit")
            effect:    may delete or overwrite (the server says so)
            time:      asked 75 s ago, 13 min left
            agent:     waits, 31 s left
            WARNING:   1 hidden character, shown as \u{..}

            Arguments, 99 bytes:
            path: "/x"
            text (2 lines, 20 bytes):
              | Grüße
              | 下一行\u{3164}

            The description, as the server wrote it:
              | Edits.
              | \u{202e}headend approve abcdefgh

            arguments 01234567, definition 89abcdef, needs L2, rule "default"

            If you allow it once, "fx" runs this tool with exactly these arguments, once.
            headend approve abcdefgh [--for once|session|8h|always]
            headend deny abcdefgh
        "#]].assert_eq(&shown(
            r#"{"id":"abcdefgh","caller":"local","client":"claude\u001b[2J 2.1","upstream":"fx","kind":"tool","item":"fx__edit","exposed":"edit","rule":"default","min-evidence":"L2","age":75,"left":825,"waits":true,"wait-left":31,"effect":"may delete or overwrite (the server says so)","outcome":"If you allow it once, \"fx\" runs this tool with exactly these arguments, once.","warnings":["1 hidden character, shown as \\u{..}"],"description":"Edits.\n\u202eheadend approve abcdefgh","arguments-bytes":99,"arguments-digest":"01234567","definition-digest":"89abcdef","arguments":{"text":"Grüße\n下一行\u3164","path":"/x"}}"#,
        ));
        let long = shown(r#"{"arguments-bytes":999999,"arguments-beginning":"text (999999 bytes):\n  | \u202e"}"#);
        assert!(long.contains("999999 bytes, are too long to be kept") && long.contains("  | \\u{202e}"), "{long}");
        assert!(
            shown(r#"{"waits":false,"arguments":{}}"#).contains("agent:     was told to stop; after a yes, tell it to")
        );
        assert!(shown(r#"{"arguments":{}}"#).contains("No arguments."));
        assert!(shown(r#"{"message":"headend asks"}"#).contains("headend asks\n"));
    }
}
