use std::sync::Arc;

use super::*;
use crate::mcp::definition::annotations::StatedHints;
use crate::policy::consent::desk::OpeningResult;
use crate::policy::consent::tests::{asked, shown};
use crate::policy::consent::{
    AnswerError, ApprovalDesk, ApprovalGrant, ApprovalId, ApprovalSubject, CallDetails, DeskLimits, GrantLifetime,
    LiveGrants, PersonAnswer, SteadySeconds,
};
use crate::policy::evidence::ApprovalEvidence;
use crate::wire::digest::Digest;

fn places() -> ReservedFolders {
    ReservedFolders { homes: vec!["/home/me".to_owned()], own: vec!["/home/me/app/gate/headend.toml".to_owned()] }
}

fn call(item: &str, arguments: &str) -> (ApprovalSubject, CallDetails) {
    let json = RawJson::trusted(arguments.to_owned());
    let asked = ApprovalSubject { arguments: Digest::of_arguments(Some(&json)), item: Arc::from(item), ..asked() };
    (asked, CallDetails::new(item, StatedHints::default(), Some(&json)))
}

fn offers(item: &str, arguments: &str) -> Vec<FolderScope> {
    let (asked, shown) = call(item, arguments);
    FolderScope::offers(&asked, &shown, &places())
}

fn below(arguments: &str, base: &str) -> Result<FolderScope, ScopeError> {
    let (asked, shown) = call("files__write", arguments);
    FolderScope::of(&asked, &shown, base, &places())
}

fn covers(grant: &FolderScope, arguments: &str) -> bool {
    grant.covers(&OutlinedArguments::new(arguments), &places())
}

#[test]
fn a_path_is_covered_below_the_folder_in_its_plain_spelling_alone() {
    let grant =
        below(r#"{"path":"/home/me/app/src/a.rs","content":"x","mode":420,"new":false}"#, "/home/me/app/").unwrap();
    assert_eq!((grant.base(), grant.judged()), ("/home/me/app", &["/path".to_owned()][..]));
    let json = |path: &str| format!(r#"{{"path":{path},"content":"fn main() {{}}\n/etc/x","mode":1,"new":false}}"#);
    for path in ["/home/me/app/b", "/home/me/app/b/", "/home/me/app/x/y/z w.rs"] {
        assert!(covers(&grant, &json(&format!("{path:?}"))), "{path}");
    }
    let plain = "/home/me/apple/b /home/me/app /home/me/app/ /home/me /etc/passwd /home/me/app/../x \
                 /home/me/app/./x /home/me/app//x /home/me/app/%2e%2e/x /home/me/App/b /HOME/me/app/b \
                 home/me/app/b app/b ~/app/b file:///home/me/app/b /home/me/app/.git/hooks/x \
                 /home/me/app/.env /home/me/app/gate/headend.toml /home/me/app/gate /home/me/app/gate/ \
                 /home/me/app/Gate/headend.toml/x";
    for path in plain.split(' ').chain([
        "/home/me/app\\\\x",
        "",
        "/home/me/app/b\\u0000",
        "/home/me/app/b\\n",
        " /home/me/app/b",
    ]) {
        assert!(!covers(&grant, &json(&format!("\"{path}\""))), "{path}");
    }
    for path in ["7", "null", "true", "[\"/home/me/app/b\"]", "{\"x\":\"/home/me/app/b\"}", "[]"] {
        assert!(!covers(&grant, &json(path)), "{path}");
    }
}

#[test]
fn a_call_with_anything_that_the_approved_one_lacked_asks() {
    let grant = below(r#"{"path":"/srv/app/a","content":"x","n":1,"force":false}"#, "/srv/app").unwrap();
    for (call, want) in [
        (r#"{"path":"/srv/app/b"}"#, true),
        (r#"{"path":"/srv/app"}"#, true),
        (r#"{"path":"/srv/app/"}"#, true),
        (r#"{"n":2,"path":"/srv/app/b","content":""}"#, true),
        (r#"{"path":"/srv/app/b","force":true}"#, false),
        (r#"{"path":"/srv/app/b","backup":"x"}"#, false),
        (r#"{"path":"/srv/app/b","content":null}"#, false),
        (r#"{"path":"/srv/app/b","content":["x"]}"#, false),
        (r#"{"path":"/srv/app/b","n":"1"}"#, false),
        (r#"{"content":"x"}"#, false),
        (r#"{"path":"/srv/app/b","Path":"/etc/x"}"#, false),
        (r#"{"path":"/srv/app/b","PATH":"/srv/app/b"}"#, false),
        (r#"{"path":"/srv/app/b","content":"/etc/x"}"#, false),
        (r#"{"path":"/srv/app/b","content":" ../x "}"#, false),
        (r#"{"path":"/srv/app/b","content":"https://evil.example/x"}"#, false),
        (r#"{"path":"/srv/app/b","content":"C:\\x"}"#, false),
        (r#"{"path":"/srv/app/b","content":"'/etc/x'"}"#, false),
        (r#"{"path":"/srv/app/b","content":"https://evil.example/\nx"}"#, false),
        (r#"{"path":"/srv/app/b","content":"see https://a.example/"}"#, true),
        (r#"{"path":"/srv/app/b","content":"// a comment\nin two lines"}"#, true),
        (r#"["/srv/app/b"]"#, false),
        (r#"{"path":"/srv/app/b""#, false),
        ("", false),
    ] {
        assert_eq!(covers(&grant, call), want, "{call}");
    }
}

#[test]
fn every_path_of_a_call_is_judged_in_lists_and_objects_too() {
    let grant = below(r#"{"edits":[{"path":"/srv/app/a","new":"x"}],"to":"/srv/app/b"}"#, "/srv/app").unwrap();
    assert_eq!(grant.judged(), ["/edits/*/path", "/to"]);
    for (edits, want) in [
        (r#"[{"path":"/srv/app/c","new":"y"},{"new":"z","path":"/srv/app/d"}]"#, true),
        (r#"[{"path":"/srv/app/c"},{"path":"/etc/d"}]"#, false),
        (r#"[{"path":"/srv/app/c"},{"new":"z"}]"#, false),
        (r#"[{"path":"/srv/app/c","also":1}]"#, false),
        (r#"[[{"path":"/srv/app/c"}]]"#, false),
        (r#"{"0":{"path":"/srv/app/c"}}"#, false),
        (r#"["/srv/app/c"]"#, false),
        ("[]", false),
    ] {
        assert_eq!(covers(&grant, &format!(r#"{{"to":"/srv/app/e","edits":{edits}}}"#)), want, "{edits}");
    }
    let many = format!(r#"{{"to":"/srv/app/e","edits":[{}]}}"#, vec![r#"{"path":"/srv/app/c"}"#; 5000].join(","));
    assert!(covers(&grant, &many));
    for (arguments, pointer) in [
        (r#"{"from":"/srv/app/a","to":"/tmp/b"}"#, "/to"),
        (r#"{"path":"/srv/app/a","file":"b"}"#, "/file"),
        (r#"{"path":"/srv/app/a","outputFile":"b"}"#, "/outputFile"),
        (r#"{"path":"/srv/app/a","url":"https://a.example/"}"#, "/url"),
        (r#"{"path":"/srv/app/.git/config"}"#, "/path"),
    ] {
        assert_eq!(
            below(arguments, "/srv/app"),
            Err(ScopeError::Outside(pointer.to_owned(), "/srv/app".to_owned())),
            "{arguments}"
        );
    }
}

#[test]
fn a_site_is_a_scheme_a_host_and_a_port() {
    let grant = below(r#"{"url":"https://Docs.Example/a?x=1","max_length":5000}"#, "HTTPS://docs.example:443").unwrap();
    assert_eq!(grant.base(), "https://docs.example/");
    for (url, want) in [
        ("https://docs.example", true),
        ("https://docs.example:443/b#c", true),
        ("HTTPS://DOCS.EXAMPLE/%2e%2e/x", true),
        ("http://docs.example/", false),
        ("https://docs.example:8443/", false),
        ("https://docs.example.evil.example/", false),
        ("https://evil.example/https://docs.example/", false),
        ("https://user@docs.example/", false),
        ("https://docs.example@evil.example/", false),
        ("https://docs.example:pw@evil.example/", false),
        ("https://docs.example\\\\@evil.example/", false),
        ("https://docs%2eexample/", false),
        ("https://docs.example./", false),
        (" https://docs.example/", false),
        ("https://docs.example/\\u0000", false),
        ("https:/docs.example/", false),
        ("//docs.example/", false),
        ("wss://docs.example/", false),
        ("file:///etc/passwd", false),
        ("docs.example", false),
    ] {
        assert_eq!(covers(&grant, &format!(r#"{{"max_length":1,"url":"{url}"}}"#)), want, "{url}");
    }
    let other = below(r#"{"url":"http://[::1]:8080/"}"#, "http://[::1]:8080/").unwrap();
    assert!(covers(&other, r#"{"url":"http://[::1]:8080/x"}"#) && !covers(&other, r#"{"url":"http://[::1]/x"}"#));
    for base in ["https://docs.example/a", "https://docs.example/?x", "https://u@docs.example/", "ftp://docs.example/"]
    {
        assert!(matches!(below(r#"{"url":"https://docs.example/a"}"#, base), Err(ScopeError::Base(_))), "{base}");
    }
}

#[test]
fn wide_folders_commands_and_headends_own_files_are_refused() {
    let arguments = r#"{"path":"/home/me/app/gate/x"}"#;
    let plain = "/ /home /home/me /home/me/ /Home/Me /home/other /Users/me /root app ~/app \
                 /home/me/app/.. /home/me/./app /home/me/.config /home/me/app/gate/headend.toml";
    for base in plain.split(' ').chain([""]) {
        assert!(matches!(below(arguments, base), Err(ScopeError::Base(_))), "{base}: {:?}", below(arguments, base));
    }
    for (item, arguments) in [
        ("files__run", arguments),
        ("files__executeSql", arguments),
        ("files__write", r#"{"path":"/srv/app/x","command":"ls"}"#),
        ("files__write", r#"{"path":"/srv/app/x","opts":[{"sqlQuery":1}]}"#),
        ("files__write", r#"{"cwd":"/srv/app","JSCode":"x"}"#),
    ] {
        let (asked, shown) = call(item, arguments);
        let refused = FolderScope::of(&asked, &shown, "/srv/app", &places());
        assert!(matches!(refused, Err(ScopeError::Command(_))), "{item} {arguments}: {refused:?}");
        assert_eq!(offers(item, arguments), [], "{item} {arguments}");
    }
    assert_eq!(below(r#"{"text":"x"}"#, "/srv/app"), Err(ScopeError::NoPlace));
    let long = format!(r#"{{"path":"/srv/app/x","content":"{}"}}"#, "x".repeat(300 * 1024));
    assert_eq!(below(&long, "/srv/app"), Err(ScopeError::Item), "nobody saw all of it");
}

#[test]
fn the_nearest_folder_is_offered_first_and_no_home() {
    let bases = |arguments: &str| -> Vec<String> {
        offers("files__write", arguments).iter().map(|one| one.base().to_owned()).collect()
    };
    assert_eq!(bases(r#"{"path":"/home/me/app/src/a.rs"}"#), ["/home/me/app/src", "/home/me/app"]);
    assert_eq!(bases(r#"{"repo_path":"/home/me/lib"}"#), ["/home/me/lib"]);
    assert_eq!(bases(r#"{"from":"/srv/a/b/c","to":"/srv/a/d"}"#), ["/srv/a", "/srv"]);
    assert_eq!(bases(r#"{"from":"/srv/a","to":"/etc/d"}"#), [""; 0]);
    assert_eq!(bases(r#"{"url":"http://A.example:80/x"}"#), ["http://a.example/"]);
    assert_eq!(bases(r#"{"path":"/home/me/x"}"#), [""; 0]);
    assert_eq!(bases(r#"{"path":"src/x"}"#), [""; 0]);
    assert_eq!(bases(&format!(r#"{{"path":"/srv/.x{}"}}"#, "/a".repeat(100_000))), [""; 0]);
    let offered = below(r#"{"path":"/srv/app/a","content":"x"}"#, "/srv/app").unwrap();
    assert!(offered.told().contains("Judged: /path") && offered.told().contains("any: /content"), "{}", offered.told());
    assert!(offered.told().ends_with("Symbolic links are the server's matter."));
    assert!(below(r#"{"url":"http://a.example/"}"#, "http://a.example").unwrap().told().contains("Redirects are the"));
}

#[test]
fn a_kept_one_reads_back_and_a_damaged_one_is_none() {
    let grant = below(r#"{"path":"/srv/app/\"a","content":"x"}"#, "/srv/app").unwrap();
    assert_eq!(FolderScope::parse(&grant.text()), Some(grant));
    for text in [
        "",
        "{}",
        "null",
        r#"{"base":"/srv","judged":[],"members":[]}"#,
        r#"{"base":"/srv/..","judged":["/p"],"members":[]}"#,
        r#"{"base":"/srv","judged":[1],"members":[]}"#,
        r#"{"base":"ftp://x/","judged":["/p"],"members":[]}"#,
    ] {
        assert_eq!(FolderScope::parse(text), None, "{text}");
    }
}

proptest::proptest! {
    /// A covered path stays below the folder when a server resolves it, for any path.
    #[test]
    fn no_covered_path_leaves_the_folder(path in "(/srv/app|/srv|/)?([/.a%\\\\ \u{0}]|\\.\\.|app){0,12}") {
        let grant = below(r#"{"path":"/srv/app/a"}"#, "/srv/app").unwrap();
        if covers(&grant, &serde_json::json!({ "path": path }).to_string()) {
            let mut stack = Vec::new();
            for part in path.split('/').filter(|part| !part.is_empty()) {
                proptest::prop_assert!(!part.starts_with('.') && !part.contains(['%', '\\', '\0']), "{path}");
                stack.push(part);
            }
            proptest::prop_assert!(stack.starts_with(&["srv", "app"]), "{path}");
        }
    }
}

/// A person who always takes the widest grant that is offered below a folder.
struct Day {
    desk: ApprovalDesk,
    grants: LiveGrants,
    questions: usize,
    now: SteadySeconds,
}

impl Day {
    fn offered(&self, id: &ApprovalId) -> Vec<FolderScope> {
        let approval = self.desk.get(id).unwrap();
        FolderScope::offers(&approval.asked, &approval.shown, self.grants.places())
    }

    fn call(&mut self, item: &str, arguments: &serde_json::Value) {
        self.now += 60;
        let json = RawJson::trusted(arguments.to_string());
        let asked = ApprovalSubject {
            item: Arc::from(item),
            arguments: Digest::of_arguments(Some(&json)),
            need: ApprovalEvidence::Page,
            destructive: true,
            ..asked()
        };
        if self.grants.claim_call(&asked, Some(&json), self.now, None).is_some() {
            return;
        }
        self.questions += 1;
        let id = ApprovalId::new(u128::try_from(self.questions).unwrap().to_be_bytes());
        let shown = CallDetails { client: None, ..CallDetails::new(item, StatedHints::default(), Some(&json)) };
        let OpeningResult { id, .. } = self.desk.open(asked.clone(), shown, id, self.now, 900, None).unwrap();
        let widest = self.offered(&id).pop().expect("one is offered");
        let answer = PersonAnswer::AllowBelow(Arc::from(widest.base()));
        let grant_id = Arc::from(format!("{:016x}", self.questions));
        let grant = self.desk.answer(&id, answer, ApprovalEvidence::Page, "me", self.now, grant_id).unwrap().unwrap();
        self.grants = self.grants.with(Arc::new(grant));
        assert!(self.grants.claim_call(&asked, Some(&json), self.now, None).is_some(), "the call itself goes on");
    }
}

#[test]
fn a_day_of_edits_has_few_questions() {
    let homes = vec!["/home/me".to_owned()];
    let places = Arc::new(ReservedFolders { homes, own: vec!["/home/me/.config/headend/headend.toml".to_owned()] });
    let mut desk = ApprovalDesk::new(DeskLimits { max_open: 9, per_minute: 9 });
    desk.set_places(Arc::clone(&places));
    let mut day = Day { desk, grants: LiveGrants::new(1_000_000).with_places(places), questions: 0, now: 0 };
    for n in 0..60 {
        let folder = ["/home/me/app/src", "/home/me/notes/2026"][n / 2 % 2];
        let path = format!("{folder}/module_{}/file {n}.rs", n % 7);
        if n % 2 == 0 {
            day.call(
                "files__write_file",
                &serde_json::json!({ "path": path, "content": format!("// {n}\nfn x() {{}}") }),
            );
        } else {
            let edits = vec![serde_json::json!({ "oldText": format!("a{n}"), "newText": "b" }); n % 3 + 1];
            day.call("files__edit_file", &serde_json::json!({ "path": path, "edits": edits }));
        }
        if n % 3 == 0 {
            let message = format!("Fix: change {n}\n\nSee /etc/x and https://a.example/{n}.");
            day.call("git__git_commit", &serde_json::json!({ "repo_path": "/home/me/app", "message": message }));
        }
        if n % 6 == 0 {
            let site = ["https://docs.example", "https://crates.example:8443"][n / 6 % 2];
            day.call("web__fetch", &serde_json::json!({ "url": format!("{site}/{n}?q={n}"), "max_length": n + 1 }));
        }
    }
    // Two tools in two folders, one repository, two sites.
    assert_eq!(day.questions, 7);
}

#[test]
fn a_grant_below_a_folder_needs_a_person_beyond_the_client_and_releases_what_it_covers() {
    let mut desk = ApprovalDesk::new(DeskLimits { max_open: 9, per_minute: 9 });
    let json = |path: &str| RawJson::trusted(format!(r#"{{"path":"{path}"}}"#));
    let mut open = |n: u8, path: &str| {
        let asked = ApprovalSubject {
            arguments: Digest::of_arguments(Some(&json(path))),
            need: ApprovalEvidence::Page,
            ..asked()
        };
        let shown = CallDetails {
            exposed: shown().exposed,
            ..CallDetails::new("x", StatedHints::default(), Some(&json(path)))
        };
        desk.open(asked.clone(), shown, ApprovalId::new([n; 16]), 0, 900, None).unwrap();
        asked
    };
    let (first, second) = (open(1, "/srv/app/a"), open(2, "/srv/app/b"));
    open(3, "/srv/other");
    let answer = || PersonAnswer::AllowBelow(Arc::from("/srv/app"));
    let mut give = |answer, evidence| desk.answer(&ApprovalId::new([1; 16]), answer, evidence, "me", 1, Arc::from("g"));
    assert_eq!(give(answer(), ApprovalEvidence::Client).unwrap_err(), AnswerError::Evidence(ApprovalEvidence::Page));
    let outside = give(PersonAnswer::AllowBelow(Arc::from("/srv/other")), ApprovalEvidence::Page).unwrap_err();
    assert!(matches!(outside, AnswerError::Below(ScopeError::Outside(..))), "the prompt stays open: {outside}");
    let grant: ApprovalGrant = give(answer(), ApprovalEvidence::Page).unwrap().unwrap();
    assert_eq!((grant.lifetime(), grant.arguments().into_str()), (GrantLifetime::UntilChanged, "below"));
    assert_eq!(desk.release(&grant, 2), [ApprovalId::new([2; 16])]);
    let covers = |asked: &ApprovalSubject, path: &str| {
        let (json, places) = (json(path).text().into_owned(), ReservedFolders::default());
        grant.covers_call(asked, Some(&OutlinedArguments::new(&json)), &places)
    };
    assert!(covers(&first, "/srv/app/a") && covers(&second, "/srv/app/b"));
    assert!(!grant.covers(&first), "without its arguments nothing is covered");
    assert!(
        !covers(&ApprovalSubject { need: ApprovalEvidence::Operator, ..first.clone() }, "/srv/app/a"),
        "more evidence"
    );
    assert!(
        !covers(&ApprovalSubject { definition: Digest::of(b"x"), ..first.clone() }, "/srv/app/a"),
        "another definition"
    );
    assert!(!covers(&ApprovalSubject { item: Arc::from("files__other"), ..first }, "/srv/app/a"), "another item");
    let mut lax = ApprovalDesk::new(DeskLimits { max_open: 9, per_minute: 9 });
    let shown = CallDetails::new("x", StatedHints::default(), Some(&json("/srv/app/a")));
    lax.open(
        ApprovalSubject { need: ApprovalEvidence::Client, ..second },
        shown,
        ApprovalId::new([1; 16]),
        0,
        900,
        None,
    )
    .unwrap();
    let client = lax.answer(&ApprovalId::new([1; 16]), answer(), ApprovalEvidence::Client, "c", 1, Arc::from("g"));
    assert_eq!(client.unwrap_err(), AnswerError::TooLong, "a client's form never gives it");
}
