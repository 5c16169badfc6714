//! Tests with servers from npm and `PyPI` under both units as shipped, and under a host that a
//! desktop starts.
//!
//! The servers are downloaded each time, so these tests run only with `HEADEND_TEST_NETWORK=1`. No
//! init system runs here: `data/unit.py` reads the system unit and does what systemd would do,
//! including the filter of system calls.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;

use crate::tools::harness::{Gateway, TestHome, headend};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::{installed, output_within, said, within};
use crate::tools::stdio::Pipe;

/// Time limit, which allows for downloads on a slow line.
const TIME: Duration = Duration::from_secs(300);
const SERVERS: &str = r#"
[server]
listen = ["127.0.0.1:0"]
[metrics]
listen = "127.0.0.1:0"
[console]
listen = ""
[policy]
default = "allow"
[upstreams.every]
command = ["npx", "-y", "@modelcontextprotocol/server-everything@2026.8.31"]
start-timeout = "4m"
[upstreams.clock]
command = ["uvx", "mcp-server-time==2026.10.19", "--local-timezone=UTC"]
start-timeout = "4m"
"#;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns a folder with `uv` and `uvx`, from `PyPI` if the machine has none; `None` if something
/// is missing.
fn tools(what: &str) -> Option<PathBuf> {
    let lacks = |why: &str| eprintln!("left out: {what}: {why}");
    if std::env::var_os("HEADEND_TEST_NETWORK").is_none() {
        lacks("HEADEND_TEST_NETWORK=1 downloads servers from npm and PyPI");
        return None;
    }
    if let Some(missing) = ["npx", "python3"].into_iter().find(|program| !installed(program)) {
        lacks(&format!("`{missing}` is not installed"));
        return None;
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    if let Some(folder) = std::env::split_paths(&folders).find(|folder| folder.join("uvx").is_file()) {
        return Some(folder);
    }
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let venv = root().join("target/tools/uv");
    if !venv.join("bin/uvx").exists() {
        let script = format!("python3 -m venv '{0}' && '{0}/bin/pip' install --quiet uv", venv.display());
        let made = Command::new("sh").args(["-c", &script]).output().unwrap();
        if !made.status.success() {
            lacks(&format!("no uv: {}", said(&made)));
            return None;
        }
    }
    Some(venv.join("bin"))
}

/// Returns variables for certificates that this machine's network needs, as a drop-in or the user's
/// manager would set them.
fn certificates() -> Vec<(String, String)> {
    let names = ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "HTTPS_PROXY", "NO_PROXY"];
    names.into_iter().filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?))).collect()
}

#[test]
fn npx_and_uvx_start_under_the_system_unit_and_keep_their_caches_where_it_says() {
    let what = "npx and uvx under the system unit";
    let Some(tools) = tools(what) else { return };
    let needs = ["unshare", "chroot", "mount", "systemd-sysusers", "systemd-analyze"];
    let missing = needs.into_iter().find(|program| !installed(program));
    if !rustix::process::getuid().is_root() || missing.is_some() {
        return eprintln!("left out: {what}: it needs root and {needs:?}");
    }
    let world = TestHome::new();
    let config = world.write("headend.toml", SERVERS);
    // The service needs the modes that the package gives.
    Command::new("chmod").arg("644").arg(&config).status().unwrap();
    let scratch = world.path("scratch");
    fs::create_dir(&scratch).unwrap();
    let drop_in: Vec<String> = certificates().iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--ipc", "--fork", "--kill-child", "--propagation", "private", "python3"]);
    command.arg(root().join("tests/data/unit.py")).arg(&scratch).arg(root().join("systemd")).arg(headend());
    command
        .arg(tools)
        .arg(config)
        .args([r#"every__echo={"message": "x"}"#, r#"clock__get_current_time={"timezone": "UTC"}"#]);
    command.env("DROP_IN", drop_in.join("\n")).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = output_within(command.spawn().unwrap(), TIME, what);
    let said = said(&output);
    eprintln!("{said}");
    assert!(output.status.success() && said.contains("\ndone"), "{said}");
    assert!(said.contains("\ncache npm: ") && said.contains("_npx"), "{said}");
    assert!(said.contains("\ncache uv: ") && said.contains("archive-v0"), "{said}");
    let state = said.lines().find(|line| line.starts_with("StateDirectory: ")).unwrap();
    assert!(![" .npm", " .cache"].iter().any(|cache| state.contains(cache)), "{state}");
}

/// Returns `Environment=` and `ExecStart=` of the user's unit, with this home.
fn user_unit(home: &Path) -> (BTreeMap<String, String>, Vec<String>) {
    let text = fs::read_to_string(root().join("systemd/headend-user.service")).unwrap();
    let values = |key: &str| {
        let lines = text.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix('='));
        lines.flat_map(str::split_whitespace).map(|word| word.replace("%h", home.to_str().unwrap())).collect::<Vec<_>>()
    };
    let pairs = values("Environment").into_iter();
    (
        pairs
            .filter_map(|pair| pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())))
            .collect(),
        values("ExecStart"),
    )
}

#[test]
fn npx_and_uvx_start_under_the_users_unit_and_under_a_host_of_the_desktop() {
    let Some(tools) = tools("npx and uvx under the user's unit") else { return };
    let world = TestHome::new();
    let home = world.path("home");
    // The locations of uv's own installer and of a manual copy.
    let own = home.join(".local/bin");
    fs::create_dir_all(&own).unwrap();
    for (program, from) in [("uv", tools.join("uv")), ("uvx", tools.join("uvx")), ("headend", headend().into())] {
        fs::copy(from, own.join(program)).unwrap();
    }
    for folder in ["home/.config", "home/.config/headend"] {
        fs::create_dir(world.path(folder)).unwrap();
    }
    world.write("home/.config/headend/headend.toml", SERVERS);

    let (environment, start) = user_unit(&home);
    let mut command = Command::new("setpriv");
    command.args(["--no-new-privs", "--"]).args(&start).env_clear().current_dir(&home).stdin(Stdio::null());
    command.env("HOME", &home).env("XDG_RUNTIME_DIR", world.path("run")).envs(environment).envs(certificates());
    let gateway = Gateway::start_by(command, world.clone(), None, &[], &[]);
    for call in
        [["call", "every__echo", r#"{"message": "x"}"#], ["call", "clock__get_current_time", r#"{"timezone": "UTC"}"#]]
    {
        within(TIME, call[1], || gateway.run(&call).status.success());
    }
    for cache in [".npm/_npx", ".cache/uv/archive-v0"] {
        assert!(home.join(cache).is_dir(), "{cache}");
    }
    drop(gateway);

    // A host of the desktop starts it by its full path, with no more variables than these.
    let mut command = Command::new(own.join("headend"));
    command.arg("stdio").env_clear().env("HOME", &home).env("PATH", "/usr/bin:/bin").envs(certificates());
    command.current_dir(&home);
    let mut client = Mcp::stdio(Pipe::of(command), ClientEra::LEGACY);
    let mut names = Vec::new();
    within(TIME, "both servers are listed", || {
        names = client.tool_names();
        ["every__echo", "clock__get_current_time"].iter().all(|name| names.iter().any(|other| other == name))
    });
    assert!(client.call("clock__get_current_time", json!({"timezone": "UTC"})).text().contains("UTC"));
}
