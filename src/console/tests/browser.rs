//! Checks the console's pages in a real browser.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::*;

/// Returns the paths of Node.js, of its modules and of a browser, or says what is missing.
fn browser() -> Result<(PathBuf, PathBuf, PathBuf), &'static str> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let peers = std::env::var_os("HEADEND_TEST_PEERS").map_or_else(|| root.join("target/peers"), PathBuf::from);
    let modules = peers.join("node/node_modules");
    let node = modules.join(".bin/node");
    if !node.exists() || !modules.join("playwright-core").exists() || !modules.join("axe-core").exists() {
        return Err("playwright-core and axe-core are not installed");
    }
    let names = ["chromium-headless-shell", "chromium", "google-chrome"];
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = names
        .iter()
        .find_map(|name| std::env::split_paths(&paths).map(|folder| folder.join(name)).find(|path| path.exists()));
    let named = std::env::var_os("HEADEND_TEST_BROWSER").map(PathBuf::from);
    Ok((node, modules, named.or(found).ok_or("no browser is installed")?))
}

/// Checks every page in a real browser, in light and dark, wide and narrow, with and without
/// scripts. Screenshots go to the folder that `HEADEND_TEST_SHOTS` names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_work_in_a_browser_for_everybody() {
    let (node, modules, browser) = match browser() {
        Ok(found) => found,
        Err(why) => {
            eprintln!("left out: the console in a browser: {why}");
            return;
        }
    };
    let stage = ConsoleTestServer::set(FakeBackend::busy()).await;
    let quiet = ConsoleTestServer::set(FakeBackend::empty()).await;
    let texts = ConsoleTestServer::set(FakeBackend::with_texts()).await;
    let crowded = ConsoleTestServer::set(FakeBackend::crowded()).await;
    let script = modules.join("../console.mjs");
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/console.mjs"), &script).unwrap();
    let mut child = tokio::process::Command::new(node);
    child.arg(script).arg(browser).arg(&**stage.console.base()).arg(&**quiet.console.base()).arg(TOKEN);
    child.arg(&**texts.console.base()).arg(&**crowded.console.base());
    child.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let ended = tokio::time::timeout(Duration::from_secs(600), child.output()).await;
    let output = ended.expect("the browser is done in time").unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let done = stage.desk.done();
    for wanted in ["answer z3n8ytf6b4lqsg2v deny", "answer pb4xw2nkd7q3tz6m once", "revoke a1b2c3d4e5f60718"] {
        assert!(done.iter().any(|line| line == wanted), "{wanted}: {done:?}\n{said}");
    }
    // Answers by keys alone: every third approval is denied.
    let answered = crowded.desk.done();
    let denied = answered.iter().filter(|line| line.ends_with(" deny")).count();
    assert_eq!((answered.len(), denied), (40, 13), "{answered:?}\n{said}");
}
