//! Tests of disks that take no writes: the daemon starts nevertheless, its knowledge holds, and it
//! recovers when writes succeed again.
//!
//! The state directory is a small file system of its own, in a mount namespace that only the daemon
//! under test sees. That needs root; otherwise these tests are left out with a line that says so.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::tools::harness::{Gateway, GatewaySetup, TestHome, headend, left_out};
use crate::tools::http;
use crate::tools::mcp::{ClientEra, Mcp, McpAnswer};
use crate::tools::process::{Lines, end, eventually, output_within, said};
use crate::tools::stdio::Pipe;
use crate::tools::upstream::Fake;

/// A file system of 4 MiB that replaces the state directory.
struct Disk {
    holder: Child,
    world: TestHome,
}

impl Disk {
    fn new(world: &TestHome) -> Option<Self> {
        let state = world.path("state/headend");
        fs::create_dir_all(&state).unwrap();
        let mount = "mount -t tmpfs -o size=4m,mode=0700 headend-test \"$0\" && echo mounted && exec sleep 300";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", mount]).arg(&state).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut holder = match command.spawn() {
            Ok(holder) => holder,
            Err(error) => {
                left_out("a full disk", &format!("unshare cannot be started: {error}"));
                return None;
            }
        };
        let lines = Lines::of(holder.stdout.take().unwrap());
        let mounted = |lines: &[String]| lines.iter().any(|line| line == "mounted").then_some(());
        if lines.wait_for(Duration::from_secs(5), mounted).is_none() {
            end(&mut holder);
            left_out("a full disk", "no file system can be mounted in a namespace of its own; that needs root");
            return None;
        }
        Some(Self { holder, world: world.clone() })
    }

    /// Returns the path of a file in the state directory, as the daemon sees it.
    fn path(&self, name: &str) -> PathBuf {
        let state = self.world.path("state/headend");
        Path::new(&format!("/proc/{}/root", self.holder.id())).join(state.strip_prefix("/").unwrap()).join(name)
    }

    /// Creates a command for a program that sees the disk.
    fn command(&self, program: &str) -> Command {
        let mut command = self.world.command("nsenter");
        command.args(["--mount", "--target", &self.holder.id().to_string(), "--", program]);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        let child = self.command(headend()).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        output_within(child, Duration::from_secs(30), &format!("headend {args:?}"))
    }

    fn start(&self, config: &Path) -> Gateway {
        let command = self.command(headend());
        let gateway = Gateway::start_by(command, self.world.clone(), Some(config.to_owned()), &["serve"], &[]);
        // Copied for the clients of the test, which do not see the disk.
        fs::write(self.world.path("state/headend/token"), fs::read(self.path("token")).unwrap()).unwrap();
        gateway
    }

    /// Fills the disk to the last byte.
    fn fill(&self) {
        let mut ballast = OpenOptions::new().create(true).append(true).open(self.path("ballast")).unwrap();
        for size in [4096, 1] {
            while ballast.write_all(&vec![b'x'; size]).is_ok() {}
        }
    }

    fn empty(&self) {
        fs::remove_file(self.path("ballast")).unwrap();
    }

    /// Mounts the disk again with `ro` or `rw`.
    fn remount(&self, how: &str) {
        let state = self.world.path("state/headend");
        let mut mount = self.command("mount");
        assert!(mount.args(["-o", &format!("remount,{how}")]).arg(state).status().unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        end(&mut self.holder);
    }
}

const HIDES: &str = "tools = { deny = [\"write\"] }";

/// Creates a setup that asks about `echo` and `fail`, limits `sleep`, and hides `write` at first.
/// The audit log is on another disk.
fn setup() -> GatewaySetup {
    let rules = "[[policy.rules]]\nid = \"ask\"\neffect = \"ask\"\ntools = [\"fx__echo\", \"fx__fail\"]\n\
                 [[policy.limits]]\nid = \"few\"\ntools = [\"fx__sleep\"]\nrate = \"1000/h\"";
    let setup = GatewaySetup::new();
    let audit = setup.world.path("audit");
    setup
        .policy(&format!("default = \"allow\"\n{rules}"))
        .toml(&format!("[audit]\npath = \"{}\"", audit.display()))
        .fake("fx", &Fake::stdio("both"))
        .toml(HIDES)
}

/// Offers `write` from the next start on.
fn offer_write(world: &TestHome) {
    let text = fs::read_to_string(world.path("headend.toml")).unwrap();
    world.write("headend.toml", &text.replace(HIDES, ""));
}

fn reason(answer: &McpAnswer) -> String {
    let refusal = &answer.message["result"]["_meta"]["headend/refusal"];
    let data = if refusal.is_null() { &answer.message["error"]["data"] } else { refusal };
    data["reason"].as_str().unwrap_or_default().to_owned()
}

/// Makes a call that needs an approval, and approves it.
fn approve(gateway: &Gateway, tool: &str, arguments: &Value, how: &[&str]) {
    let refused = gateway.modern().call(tool, arguments.clone());
    let id = refused.result()["_meta"]["headend/refusal"]["approval"]["id"].as_str().unwrap().to_owned();
    let approved = gateway.run(&[&["approve", &id], how].concat());
    assert!(approved.status.success(), "{}", said(&approved));
}

/// Runs a first daemon that creates everything that must hold: a pin, a denial, a grant for a time
/// and a grant for one call.
fn lived(disk: &Disk, config: &Path, by: Signal) {
    let mut gateway = disk.start(config);
    gateway.wait_for_tools(&["fx__echo", "fx__env", "fx__sleep"]);
    approve(&gateway, "fx__echo", &json!({"text": "x"}), &["--for", "1h"]);
    approve(&gateway, "fx__fail", &json!({"a": 1}), &[]);
    let rejected = gateway.run(&["pins", "reject", "fx__p"]);
    assert!(rejected.status.success(), "{}", said(&rejected));
    gateway.signal(by);
    assert!(gateway.wait(Duration::from_secs(20)).is_some(), "{}", gateway.story());
    if by != Signal::KILL {
        is_whole(disk, "serve");
    }
}

/// Checks that the process that ended left all rows in the database file.
fn is_whole(disk: &Disk, who: &str) {
    let left = ["headend.db-wal", "headend.db-shm"].map(|name| disk.path(name).exists());
    assert_eq!(left, [false, false], "{who}");
}

fn lines_with(gateway: &Gateway, text: &str) -> usize {
    gateway.stderr.all().iter().filter(|line| line.contains(text)).count()
}

fn metric(gateway: &Gateway, name: &str) -> String {
    let page = gateway.scrape();
    page.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap_or_default().to_owned()
}

/// Checks with a client of a gateway on a full disk what holds and what is refused.
fn holds_for(client: &mut Mcp, face: &str) {
    eventually("the server is up", || client.tool_names().contains(&"fx__echo".to_owned()));
    assert_eq!(client.call("fx__echo", json!({"text": "x"})).text(), "x", "{face}: the grant for an hour holds");
    assert!(!client.call("fx__env", json!({})).is_error(), "{face}: what is plainly allowed goes on");
    let refused = [
        ("a once-grant", "fx__fail", json!({"a": 1})),
        ("a question", "fx__fail", json!({"a": 2})),
        ("a limit", "fx__sleep", json!({"ms": 1})),
        ("a first sight", "fx__write", json!({"path": "x"})),
    ];
    for (what, tool, arguments) in refused {
        let answer = client.call(tool, arguments);
        assert_eq!(reason(&answer), "unrecorded", "{face}: {what}: {}", answer.message);
    }
    assert!(!client.tool_names().contains(&"fx__write".to_owned()), "{face}");
    assert_eq!(client.list("prompts/list", "prompts"), Vec::<Value>::new(), "{face}: what was rejected stays so");
}

/// Checks the same on every interface of a daemon, and in a process beside it.
fn holds(disk: &Disk, gateway: &Gateway) {
    for era in ClientEra::BOTH {
        holds_for(&mut gateway.client(era), &format!("HTTP, {era:?}"));
        let attached = Pipe::start(&gateway.world, &gateway.config, &[]);
        holds_for(&mut Mcp::stdio(attached, era), &format!("a pipe to the daemon, {era:?}"));
        let alone = Pipe::start_by(disk.command(headend()), &gateway.config, &["--no-daemon"]);
        holds_for(&mut Mcp::stdio(alone, era), &format!("a pipe of its own, {era:?}"));
    }
    assert_eq!(metric(gateway, "headend_store_writable"), "0");
    let status = gateway.run(&["status"]);
    assert!(said(&status).contains("degraded: store: the store takes no writes since 2"), "{}", said(&status));
    let ready = http::get(gateway.metrics.unwrap(), "/readyz").unwrap();
    assert_eq!(ready.head.status, 200, "plainly allowed calls work");
    assert!(ready.text().starts_with("degraded\nstore: the store takes no writes since 2"), "{}", ready.text());
    assert!(gateway.scrape().contains("headend_degraded{reason=\"store\"} 1"));
    assert_eq!(lines_with(gateway, "the store takes no writes"), 1, "{}", gateway.story());
}

/// Checks the same daemon after its disk takes writes again.
fn recovers(gateway: &Gateway) {
    eventually("the store takes writes", || metric(gateway, "headend_store_writable") == "1");
    gateway.wait_for_tools(&["fx__write"]);
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        assert!(!client.call("fx__sleep", json!({"ms": 1})).is_error(), "{era:?}");
        assert!(!client.call("fx__write", json!({"path": "x"})).is_error(), "{era:?}");
        assert_eq!(client.call("fx__echo", json!({"text": "x"})).text(), "x", "{era:?}");
        assert_eq!(reason(&client.call("fx__fail", json!({"a": 2}))), "awaiting_approval", "{era:?}");
    }
    let mut client = gateway.modern();
    assert_ne!(reason(&client.call("fx__fail", json!({"a": 1}))), "awaiting_approval", "the once-grant is there");
    assert_eq!(reason(&client.call("fx__fail", json!({"a": 1}))), "awaiting_approval", "and is used once");
    assert_eq!(lines_with(gateway, "the store takes writes again"), 1, "{}", gateway.story());
    assert!(!said(&gateway.run(&["status"])).contains("takes no writes"));
}

#[test]
fn a_daemon_starts_on_a_full_disk_holds_what_it_knows_and_goes_on_when_there_is_room() {
    let (world, config) = setup().write();
    let Some(disk) = Disk::new(&world) else { return };
    lived(&disk, &config, Signal::TERM);
    offer_write(&world);
    disk.fill();
    let gateway = disk.start(&config);
    holds(&disk, &gateway);
    disk.empty();
    recovers(&gateway);
}

#[test]
fn what_has_ended_leaves_its_store_in_one_file() {
    let (world, config) = setup().write();
    let Some(disk) = Disk::new(&world) else { return };
    lived(&disk, &config, Signal::TERM);
    // A command must end as soon as it has read: closing the file must not delay its exit.
    for _ in 0..10 {
        let listed = disk.run(&["grants", "list"]);
        assert!(listed.status.success(), "{}", said(&listed));
        is_whole(&disk, "grants list");
    }
    let mut alone = Pipe::start_by(disk.command(headend()), &config, &["--no-daemon"]);
    alone.send(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    alone.answer(&json!(1), Duration::from_secs(20));
    assert!(alone.close(Duration::from_secs(20)).is_some(), "{}", alone.story());
    is_whole(&disk, "stdio");
}

#[test]
fn what_a_killed_daemon_left_in_the_journal_holds_on_a_full_disk() {
    for has_index in [true, false] {
        let (world, config) = setup().write();
        let Some(disk) = Disk::new(&world) else { return };
        lived(&disk, &config, Signal::KILL);
        assert!(fs::metadata(disk.path("headend.db-wal")).unwrap().len() > 0, "not all is in the file itself");
        if !has_index {
            // As after a copy, or on a disk that lost the file.
            fs::remove_file(disk.path("headend.db-shm")).unwrap();
        }
        offer_write(&world);
        disk.fill();
        let gateway = disk.start(&config);
        holds(&disk, &gateway);
        disk.empty();
        recovers(&gateway);
    }
}

#[test]
fn a_read_only_disk_is_like_a_full_one() {
    let (world, config) = setup().write();
    let Some(disk) = Disk::new(&world) else { return };
    lived(&disk, &config, Signal::TERM);
    offer_write(&world);
    disk.remount("ro");
    let gateway = disk.start(&config);
    holds(&disk, &gateway);
    disk.remount("rw");
    recovers(&gateway);
}

#[test]
fn sessions_open_on_a_disk_that_takes_no_writes_and_end_with_the_daemon() {
    let (world, config) = setup().write();
    let Some(disk) = Disk::new(&world) else { return };
    let mut gateway = disk.start(&config);
    gateway.wait_for_tools(&["fx__env"]);
    let mut before = gateway.legacy();
    let mut restart = |how: &str, remount: &str| {
        gateway.signal(Signal::KILL);
        assert!(gateway.wait(Duration::from_secs(20)).is_some(), "{}", gateway.story());
        disk.remount(remount);
        gateway = disk.start(&config);
        gateway.wait_for_tools(&["fx__env"]);
        (gateway.address, gateway.token(), how.to_owned())
    };
    let listed = |client: &mut Mcp| client.request("tools/list", json!({})).status;
    let (address, token, how) = restart("read-only", "ro");
    before.follow(address);
    assert_eq!(listed(&mut before), 404, "{how}: its end could not be noted");
    let mut opened = Mcp::http(address, token, ClientEra::LEGACY);
    assert_eq!(listed(&mut opened), 200, "{how}");
    let (address, _, how) = restart("writable", "rw");
    before.follow(address);
    opened.follow(address);
    assert_eq!((listed(&mut before), listed(&mut opened)), (200, 404), "{how}");
}

#[test]
fn a_revocation_that_the_disk_did_not_take_holds_and_is_written_later() {
    let (world, config) = setup().write();
    let Some(disk) = Disk::new(&world) else { return };
    lived(&disk, &config, Signal::TERM);
    disk.fill();
    let gateway = disk.start(&config);
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.modern();
    assert_eq!(client.call("fx__echo", json!({"text": "x"})).text(), "x");
    let revoked = gateway.run(&["grants", "revoke", "--all"]);
    assert!(!revoked.status.success(), "it is not kept: {}", said(&revoked));
    assert_eq!(reason(&client.call("fx__echo", json!({"text": "x"}))), "unrecorded");
    disk.empty();
    eventually("the store takes writes", || metric(&gateway, "headend_store_writable") == "1");
    let refused = || reason(&gateway.modern().call("fx__echo", json!({"text": "x"})));
    eventually("it is asked again", || refused() == "awaiting_approval");
    eventually("the store knows", || !said(&disk.run(&["grants", "list", "--json"])).contains("fx__echo"));
    assert_eq!(refused(), "awaiting_approval");
}

#[test]
fn a_model_whose_approval_the_disk_did_not_take_reads_no_reason_of_the_store() {
    let (world, config) = setup().write();
    let Some(disk) = Disk::new(&world) else { return };
    let gateway = disk.start(&config);
    gateway.wait_for_tools(&["fx__echo"]);
    let forms = json!({"elicitation": {}});
    let mut client = Mcp::http_at(gateway.address, gateway.token(), ClientEra::LEGACY, "/mcp", forms);
    let mut call = client.open("tools/call", json!({"name": "fx__echo", "arguments": {"text": "x"}}));
    let question = call.next().unwrap();
    disk.fill();
    client.respond(&question["id"], json!({"action": "accept", "content": {"decision": "once"}}));
    let refused = call.response();
    let text = refused["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(text, "The approval of this call could not be taken, so it was not made.", "{refused}");
    eventually("the operator reads it", || lines_with(&gateway, "an approval did not count") == 1);
}

#[test]
fn a_store_that_cannot_be_read_ends_the_start_with_75() {
    let (world, config) = setup().write();
    let Some(disk) = Disk::new(&world) else { return };
    disk.fill();
    let config = config.to_str().unwrap();
    for command in [&["serve"][..], &["stdio", "--no-daemon"]] {
        let refused = disk.run(&[command, &["--config", config]].concat());
        assert_eq!(refused.status.code(), Some(75), "{command:?}: {}", said(&refused));
        assert!(said(&refused).contains("state/headend"), "{command:?}: {}", said(&refused));
    }
}

#[test]
fn an_audit_folder_that_cannot_be_made_refuses_calls_until_it_can() {
    let setup = GatewaySetup::new();
    let blocker = setup.world.path("blocker");
    fs::write(&blocker, "").unwrap();
    let path = format!("[audit]\npath = \"{}\"", blocker.join("audit").display());
    let gateway = setup.fake("fx", &Fake::stdio("both")).toml(&path).start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in ClientEra::BOTH {
        assert_eq!(reason(&gateway.client(era).call("fx__echo", json!({"text": "x"}))), "unrecorded", "{era:?}");
    }
    assert_eq!(lines_with(&gateway, "the audit log takes no records"), 1, "{}", gateway.story());
    // The daemon creates the whole folder as soon as it can, so the test must not do it meanwhile.
    fs::remove_file(&blocker).unwrap();
    let mut client = gateway.modern();
    eventually("calls work", || !client.call("fx__echo", json!({"text": "x"})).is_error());
    let verdict = gateway.run(&["audit", "verify", "--config", gateway.config.to_str().unwrap()]);
    assert!(verdict.status.success() && said(&verdict).contains("main: ok"), "{}", said(&verdict));
}

#[test]
fn a_socket_that_cannot_be_made_is_made_later() {
    let setup = GatewaySetup::new();
    let blocker = setup.world.path("blocker");
    fs::write(&blocker, "").unwrap();
    let socket = blocker.join("run/headend.sock");
    let socket = socket.to_str().unwrap();
    let (world, config) = setup.fake("fx", &Fake::stdio("both")).write();
    let gateway = Gateway::start(world, Some(config), &["serve", "--socket", socket], &[]);
    gateway.wait_for_tools(&["fx__echo"]);
    assert!(!gateway.modern().call("fx__echo", json!({"text": "x"})).is_error());
    assert_eq!(lines_with(&gateway, "there is no admin socket"), 1, "{}", gateway.story());
    fs::remove_file(&blocker).unwrap();
    eventually("the socket is there", || gateway.run(&["status", "--socket", socket]).status.success());
}

/// Returns the files with the inventories of upstreams.
fn inventories(world: &TestHome) -> Vec<PathBuf> {
    let files = fs::read_dir(world.path("state/headend")).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("inventory-")).collect()
}

#[test]
fn what_removed_upstreams_offered_is_removed_too() {
    let (one, other) = (Fake::stdio("both"), Fake::stdio("legacy"));
    let both = GatewaySetup::new().fake("fx", &one).fake("gx", &other);
    let text = both.text();
    let without = text.replace(&format!("[upstreams.gx]\ncommand = {}", other.command()), "");
    let mut gateway = both.start();
    gateway.wait_for_tools(&["fx__echo", "gx__echo"]);
    eventually("both are kept", || inventories(&gateway.world).len() == 2);
    let reloaded = gateway.reload(&without);
    assert!(reloaded.status.success(), "{}", said(&reloaded));
    assert_eq!(inventories(&gateway.world).len(), 1);

    // An upstream that is removed while headend does not run loses its file later: another process
    // may know it.
    assert!(gateway.reload(&text).status.success());
    eventually("both are kept again", || inventories(&gateway.world).len() == 2);
    gateway.signal(Signal::TERM);
    assert!(gateway.wait(Duration::from_secs(20)).is_some(), "{}", gateway.story());
    gateway.world.write("headend.toml", &without);
    let restarted = || Gateway::start(gateway.world.clone(), Some(gateway.config.clone()), &["serve"], &[]);
    drop(restarted());
    assert_eq!(inventories(&gateway.world).len(), 2);
    let week_ago = std::time::SystemTime::now() - Duration::from_secs(8 * 24 * 3600);
    for path in inventories(&gateway.world) {
        OpenOptions::new().append(true).open(path).unwrap().set_modified(week_ago).unwrap();
    }
    drop(restarted());
    assert_eq!(inventories(&gateway.world).len(), 1);
}
