//! Tests pages with many open approvals, and the page of one upstream.

use super::fake::approval;
use super::*;

#[tokio::test]
async fn many_questions_are_lines_and_are_denied_together_as_far_as_they_were_listed() {
    let stage = ConsoleTestServer::set(FakeBackend::crowded()).await;
    let cookie = stage.sign_in().await;
    let headers = [("Cookie", cookie.as_str())];
    let page = stage.get("/", &cookie).await;
    assert_eq!(page.body.matches("<details class=\"card ask question").count(), 40);
    assert!(
        !page.body.contains("question\" open") && !page.body.contains("id=\"approval-q00\" open"),
        "all are closed"
    );
    assert!(page.body.contains("5 calls of <bdi>mail__send</bdi> by <bdi>ci</bdi>"), "{}", page.body);
    assert!(
        page.body.contains("/srv/work/file-3.md") && page.body.contains("text: "),
        "a line has the arguments' beginning"
    );
    let form = page.body.split("id=\"deny-all\"").nth(1).unwrap().split("</form>").next().unwrap();
    let members: Vec<&str> =
        form.split("name=\"member\" value=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(members.len(), 40);
    stage.desk.ask(approval("late", "x", "x", StatedHints::default(), 1, "{}"));
    let body = |members: &[&str]| {
        let members: String = members.iter().map(|member| format!("&member={member}")).collect();
        format!("csrf={}&answer=deny{members}", page.csrf())
    };
    let allowing = body(&members).replace("deny", "once");
    assert_eq!(stage.send("POST", "/approvals", &headers, &allowing).await.status, 400, "there is no allow all");
    assert_eq!(stage.send("POST", "/approvals", &headers, "answer=deny").await.status, 403);
    assert_eq!(stage.desk.done(), [""; 0]);
    assert_eq!(stage.send("POST", "/approvals", &headers, &body(&members)).await.status, 303);
    assert_eq!(stage.desk.done().len(), 40);
    let page = stage.get("/", &cookie).await.body;
    assert!(page.contains("Denied: 40 of 40.") && page.contains("id=\"approval-late\" open"), "{page}");
}

#[tokio::test]
async fn an_upstream_has_a_page_with_its_last_words_tools_and_two_actions() {
    let stage = ConsoleTestServer::set(FakeBackend::busy()).await;
    let cookie = stage.sign_in().await;
    let headers = [("Cookie", cookie.as_str())];
    assert!(stage.get("/upstreams", &cookie).await.body.contains("href=\"/upstreams/legacy-crm\""));
    let broken = stage.get("/upstreams/legacy-crm", &cookie).await;
    for wanted in
        ["Down for 42 s, tried again in 8 s", "<mark>\\u{202e}</mark>Error", "&#60;script&#62;", "Last error:"]
    {
        assert!(broken.body.contains(wanted), "{wanted}: {}", broken.body);
    }
    let page = stage.get("/upstreams/files", &cookie).await.body;
    for wanted in [
        "4 tools, about 961 tokens together",
        "373 tokens",
        "May delete or overwrite, may reach outside (the server says so)",
        "files__chmod",
        "its definition changed",
    ] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    let large = page.find("<bdi>files__write_file</bdi>").unwrap();
    assert!(large < page.find("<bdi>files__read_file</bdi>").unwrap(), "the largest first");
    let inputs: Vec<&str> = page.split("<input").skip(1).map(|rest| rest.split('>').next().unwrap()).collect();
    assert!(
        inputs.iter().all(|input| input.contains("type=\"hidden\" name=\"csrf\"")),
        "no page takes a command: {inputs:?}"
    );
    let path = "/upstreams/files";
    let post = |action: &str| format!("csrf={}&do={action}", broken.csrf());
    assert_eq!(stage.send("POST", path, &headers, "do=restart").await.status, 403);
    assert_eq!(stage.send("POST", path, &headers, &post("command")).await.status, 400);
    for wanted in [
        "Its tools could not be read (cut off; attempts: 2). Clients see what was known; next try in 9 s.",
        "Not as the protocol wants it, definition: tool `x`",
        "Calls of these pass one at a time: files__ask.",
        "Several callers share its process.",
        "<dt>Program</dt><dd><bdi>/usr/bin/files</bdi></dd>",
    ] {
        assert!(page.contains(wanted), "as `status NAME` says it: {wanted}: {page}");
    }
    for (action, done, told) in [
        ("restart", "Restart files", "Restarted; its state is ready now."),
        ("disable", "Disable files", "Disabled until headend starts again."),
        ("enable", "Enable files", "Enabled; its state is ready now."),
    ] {
        let answer = stage.send("POST", path, &headers, &post(action)).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some(path)), "{action}");
        assert_eq!(stage.desk.done().last().unwrap(), done);
        let page = stage.get(path, &cookie).await.body;
        assert!(page.contains(told), "{action}");
        let is_off = page.contains("the next start of headend starts it again");
        assert_eq!(is_off, action == "disable");
        assert_eq!(page.contains("value=\"enable\""), is_off);
    }
    assert_eq!(stage.get("/upstreams/none", &cookie).await.status, 404);
    stage.send("POST", "/upstreams/none", &headers, &post("restart")).await;
    assert!(stage.get("/", &cookie).await.body.contains("There is no upstream `none`."));
}
