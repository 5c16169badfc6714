//! Tests of files that other users could have written: they are refused with the reason, the path,
//! and the command that fixes them.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools::harness::{Gateway, GatewaySetup, TestHome};
use crate::tools::process::{eventually, said};
use crate::tools::upstream::Fake;

/// A way in which a file becomes untrusted.
#[derive(Clone, Copy)]
enum Harm {
    Mode(u32),
    /// Owned by another user.
    Owner,
    /// Replaced by a symbolic link to the moved file.
    Link,
}

fn harm(path: &Path, how: Harm) {
    match how {
        Harm::Mode(mode) => fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap(),
        Harm::Owner => chown(path, Some(4711), None).unwrap(),
        Harm::Link => {
            let elsewhere = path.with_file_name("elsewhere");
            fs::rename(path, &elsewhere).unwrap();
            symlink(&elsewhere, path).unwrap();
        }
    }
}

/// Runs the command after "run" in the message, and puts a moved file back.
fn mend(told: &str, path: &Path) {
    let command = told.rsplit("run `").next().and_then(|rest| rest.split('`').next()).unwrap();
    assert!(Command::new("sh").args(["-c", command]).status().unwrap().success(), "{command}");
    let elsewhere = path.with_file_name("elsewhere");
    if elsewhere.exists() {
        fs::rename(elsewhere, path).unwrap();
    }
}

fn is_root() -> bool {
    let is = rustix::process::getuid().is_root();
    if !is {
        eprintln!("left out: files of other users: only root can make them");
    }
    is
}

/// Creates a world in which a daemon has run.
fn used() -> (TestHome, PathBuf) {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let (world, config) = (gateway.world.clone(), gateway.config.clone());
    // The daemon is killed, which may happen before the file has its name.
    eventually("its catalog is on disk", || inventory(&world).is_some());
    drop(gateway);
    (world, config)
}

/// Returns the file with the catalog of the world's upstream.
fn inventory(world: &TestHome) -> Option<PathBuf> {
    let is_inventory = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("inventory-") && name.ends_with(".json")
    };
    fs::read_dir(world.path("state/headend")).unwrap().map(|file| file.unwrap().path()).find(is_inventory)
}

#[test]
fn a_state_directory_and_its_files_that_others_may_write_or_own_are_refused() {
    let (world, config) = used();
    let state = world.path("state/headend");
    let segment = fs::read_dir(state.join("audit")).unwrap().next().unwrap().unwrap().file_name();
    let segment = format!("audit/{}", segment.to_str().unwrap());
    let (group, all, owner, link) = (Harm::Mode(0o660), Harm::Mode(0o606), Harm::Owner, Harm::Link);
    let rows = [
        ("", Harm::Mode(0o770)),
        ("", Harm::Mode(0o1777)),
        ("", owner),
        ("headend.db", group),
        ("headend.db", all),
        ("headend.db", owner),
        ("headend.db", link),
        ("headend.db-wal", link),
        ("headend.db-shm", all),
        ("headend.lock", all),
        ("headend.lock", link),
        ("token", group),
        ("token", owner),
        ("token", link),
        ("console-token", Harm::Mode(0o640)),
        ("console-token", link),
        ("secrets.key", Harm::Mode(0o640)),
        ("secrets.key", owner),
        ("secrets.key", link),
        ("audit", Harm::Mode(0o770)),
        ("audit", owner),
        ("audit", link),
        (&*segment, all),
        (&*segment, owner),
        (&*segment, link),
    ];
    let config = config.to_str().unwrap();
    for (name, how) in rows {
        if matches!(how, Harm::Owner) && !is_root() {
            continue;
        }
        let path = if name.is_empty() { state.clone() } else { state.join(name) };
        // The journal exists only during a write, or after a crash.
        if name.contains('-') && name.starts_with("headend.db") {
            fs::write(&path, "").unwrap();
        }
        harm(&path, how);
        let refused = world.run(&["serve", "--config", config]);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(75), "{name}: {}", said(&refused));
        assert!(told.contains(&path.display().to_string()), "{name}: {told}");
        let what = match how {
            Harm::Mode(0o640) => "may be read by others (mode 0640)",
            Harm::Mode(_) => "may be written by others (mode ",
            Harm::Owner => "belongs to uid 4711, who is neither us",
            Harm::Link => "is a symbolic link",
        };
        assert!(told.contains(what), "{name}: {told}");
        if name == "headend.db" {
            let other = world.run(&["stdio", "--no-daemon", "--config", config]);
            assert_eq!(other.status.code(), Some(75), "{}", said(&other));
            let other = world.run(&["approvals", "--config", config]);
            assert_eq!(other.status.code(), Some(75), "{}", said(&other));
        }
        mend(&told, &path);
    }
    let gateway = Gateway::start(world, Some(PathBuf::from(config)), &["serve"], &[]);
    gateway.wait_for_tools(&["fx__echo"]);
}

#[test]
fn the_state_directory_itself_may_be_reached_through_a_link() {
    let (world, config) = used();
    let state = world.path("state/headend");
    harm(&state, Harm::Link);
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    gateway.wait_for_tools(&["fx__echo"]);
}

#[test]
fn what_an_upstream_offered_last_is_not_believed_where_others_may_write_it() {
    let (world, config) = used();
    harm(&inventory(&world).unwrap(), Harm::Link);
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    gateway.wait_for_tools(&["fx__echo"]);
    let warned = |line: &String| line.contains("is a symbolic link") && line.contains("inventory-");
    eventually("the operator is told", || gateway.stderr.all().iter().any(warned));
}

#[test]
fn the_admin_socket_is_not_made_where_others_could_replace_it() {
    for (mode, accepted) in [(0o770, false), (0o777, false), (0o1777, true), (0o755, true)] {
        let (world, config) = GatewaySetup::new().write();
        let folder = world.path("sockets");
        fs::create_dir(&folder).unwrap();
        harm(&folder, Harm::Mode(mode));
        let socket = folder.join("headend.sock");
        let args = ["serve", "--socket", socket.to_str().unwrap()];
        if accepted {
            drop(Gateway::start(world, Some(config), &args, &[]));
            continue;
        }
        let refused = world.run(&[&args[..], &["--config", config.to_str().unwrap()]].concat());
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(75), "{mode:o}: {}", said(&refused));
        let command = format!("run `chmod go-w {}`", folder.display());
        assert!(told.contains(&command), "{mode:o}: {told}");
    }
}

#[test]
fn configuration_and_secrets_may_be_links_and_what_they_lead_to_is_judged() {
    let world = TestHome::new();
    let secret = world.write("secret", "token-of-the-second-caller-0123456789\n");
    // Laid out as Kubernetes does: the file is a link through a link to a folder.
    fs::create_dir(world.path("..data-1")).unwrap();
    fs::rename(&secret, world.path("..data-1/secret")).unwrap();
    symlink("..data-1", world.path("..data")).unwrap();
    symlink("..data/secret", &secret).unwrap();
    let target = world.path("..data-1/secret");
    let text = format!("[server.auth]\ntokens = {{ ci = {{ file = \"{}\" }} }}\n", secret.display());
    world.write("real.toml", &text);
    symlink(world.path("real.toml"), world.path("headend.toml")).unwrap();
    let config = world.path("headend.toml");
    let credentials =
        world.write("by-credential.toml", "[server.auth]\ntokens = { ci = { credential = \"secret\" } }\n");
    let check = |config: &Path| {
        let mut command = world.command(crate::tools::harness::headend());
        command.env("CREDENTIALS_DIRECTORY", world.path("")).args(["check", "--config"]).arg(config);
        command.output().unwrap()
    };
    let own = rustix::process::getuid().as_raw();
    let rows = [(0o400, own, true), (0o440, own, true), (0o644, own, true), (0o664, own, false), (0o600, 4711, false)];
    for (path, what) in [(&target, "secret"), (&world.path("real.toml"), "configuration")] {
        for (mode, owner, accepted) in rows {
            if owner != own && !is_root() {
                continue;
            }
            harm(path, Harm::Mode(mode));
            chown(path, Some(owner), None).unwrap();
            for config in [&config, &credentials] {
                if what == "configuration" && config == &credentials {
                    continue;
                }
                let checked = check(config);
                assert_eq!(checked.status.success(), accepted, "{what} {mode:o} of {owner}: {}", said(&checked));
                let told = String::from_utf8_lossy(&checked.stderr);
                let command = if owner == own { "run `chmod go-w " } else { "run `chown " };
                assert!(accepted || (checked.status.code() == Some(78) && told.contains(command)), "{told}");
            }
            chown(path, Some(own), None).unwrap();
            harm(path, Harm::Mode(0o600));
        }
    }
    // Another code path that reads the file.
    harm(&world.path("real.toml"), Harm::Mode(0o666));
    let config = config.to_str().unwrap();
    let refused = world.run(&["stdio", "--no-daemon", "--upstream", "x=/bin/true", "--config", config]);
    assert_eq!(refused.status.code(), Some(78), "{}", said(&refused));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("may be written by others"), "{}", said(&refused));
}

#[test]
fn a_token_that_can_be_guessed_is_refused_from_wherever_it_comes() {
    let world = TestHome::new();
    let file = world.write("short", "0123456789abcde\n");
    let sources = [
        "\"0123456789abcde\"".to_owned(),
        format!("{{ file = \"{}\" }}", file.display()),
        "{ credential = \"short\" }".to_owned(),
        "{ env = \"SHORT\" }".to_owned(),
        "{ env = \"SHORT\", prefix = \"\" }".to_owned(),
    ];
    for source in sources {
        let config =
            world.write("headend.toml", &format!("[server.auth.tokens]\nlong = \"0123456789abcdef\"\nci = {source}\n"));
        for command in ["check", "serve", "stdio"] {
            let mut run = world.command(crate::tools::harness::headend());
            run.args([command, "--config"]).arg(&config).env("SHORT", "0123456789abcde");
            let refused =
                run.env("CREDENTIALS_DIRECTORY", world.path("")).stdin(std::process::Stdio::null()).spawn_and_wait();
            assert_eq!(refused.status.code(), Some(78), "{command} {source}: {}", said(&refused));
            let wanted = "headend.toml:3: server.auth.tokens.ci: a token of fewer than 16 characters can be guessed";
            assert!(
                String::from_utf8_lossy(&refused.stderr).contains(wanted),
                "{command} {source}: {}",
                said(&refused)
            );
        }
    }
}

trait SpawnAndWait {
    fn spawn_and_wait(&mut self) -> std::process::Output;
}

impl SpawnAndWait for Command {
    fn spawn_and_wait(&mut self) -> std::process::Output {
        let piped = std::process::Stdio::piped;
        let child = self.stdout(piped()).stderr(piped()).spawn().unwrap();
        crate::tools::process::output_within(child, std::time::Duration::from_secs(30), "headend")
    }
}
