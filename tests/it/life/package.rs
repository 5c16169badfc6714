//! Tests of the Debian package: installed, used, upgraded with its state, removed and purged in a
//! root of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::tools::harness::{TestHome, headend};
use crate::tools::process::{installed, output_within, said};

const TIME: Duration = Duration::from_secs(120);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a program to its end, and returns the reason if it fails.
fn done(command: &mut Command, what: &str) -> Result<(), String> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let output = output_within(child.map_err(|error| format!("{what}: {error}"))?, TIME, what);
    if output.status.success() { Ok(()) } else { Err(format!("{what}: {}", said(&output))) }
}

/// Returns what this machine lacks for the test.
fn lacking() -> Option<String> {
    if !rustix::process::getuid().is_root() {
        return Some("only root can install a package".to_owned());
    }
    let tools = ["bash", "chroot", "dpkg", "dpkg-deb", "ip", "setpriv", "systemd-sysusers", "unshare"];
    if let Some(missing) = tools.into_iter().find(|tool| !installed(tool)) {
        return Some(format!("`{missing}` is not installed"));
    }
    let namespaces = done(Command::new("unshare").args(["--mount", "--net", "--pid", "--fork", "true"]), "unshare");
    namespaces.err().map(|_| "this machine gives no namespaces".to_owned())
}

/// Returns the package of the program under test, or the one that `HEADEND_TEST_PACKAGE` names.
fn package(world: &TestHome) -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("HEADEND_TEST_PACKAGE") {
        return Ok(named.into());
    }
    let tools = root().join("target/tools/bin");
    if !installed("cargo-deb") && !tools.join("cargo-deb").exists() {
        return Err("`cargo-deb` is not installed".to_owned());
    }
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(root().join(".ci/package"));
    command.args(["--program", headend()]).env("CARGO_TARGET_DIR", world.path("target")).env("PATH", path);
    done(&mut command, ".ci/package").unwrap_or_else(|why| panic!("{why}"));
    let mut found = fs::read_dir(world.path("target/debian")).unwrap().map(|file| file.unwrap().path());
    Ok(found.find(|path| path.extension().is_some_and(|extension| extension == "deb")).unwrap())
}

/// Creates the same package as version 99.
fn later(world: &TestHome, package: &Path) -> PathBuf {
    let (folder, out) = (world.path("later"), world.path("later.deb"));
    done(Command::new("dpkg-deb").arg("-R").arg(package).arg(&folder), "unpack").unwrap();
    let control = folder.join("DEBIAN/control");
    let text = fs::read_to_string(&control).unwrap();
    let line = |line: &str| if line.starts_with("Version: ") { "Version: 99.0-1".to_owned() } else { line.to_owned() };
    fs::write(&control, text.lines().map(|text| line(text) + "\n").collect::<String>()).unwrap();
    done(Command::new("dpkg-deb").args(["-Znone", "-b"]).arg(&folder).arg(&out), "pack").unwrap();
    out
}

/// Returns the README's commands about the package, in the order in which `package.sh` takes them,
/// from blocks and from sentences.
fn printed() -> Vec<String> {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let begins = [
        "sudo apt install ",
        "systemctl --user enable ",
        "sudo systemctl enable ",
        "sudo apt remove ",
        "sudo apt purge ",
    ];
    let pieces: Vec<&str> = text.split(['\n', '`']).collect();
    let one =
        |begin: &str| pieces.iter().find(|piece| piece.starts_with(begin)).unwrap_or_else(|| panic!("no {begin:?}"));
    begins.iter().map(|begin| one(begin).to_string()).collect()
}

#[test]
fn the_package_is_installed_upgraded_with_its_state_removed_and_purged() {
    let world = TestHome::new();
    // The gate runs as any user, so a missing requirement is printed and is no failure.
    if let Some(why) = lacking() {
        return eprintln!("left out: the package: {why}");
    }
    let old = match package(&world) {
        Ok(old) => old,
        Err(why) => return eprintln!("left out: the package: {why}"),
    };
    let new = later(&world, &old);
    let scratch = world.path("scratch");
    fs::create_dir(&scratch).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh"]);
    command.arg(root().join("tests/data/package.sh")).arg(&scratch).arg(&old).arg(&new).args(printed());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = output_within(child, TIME, "the package");
    let said = said(&output);
    assert!(output.status.success() && said.contains("\ndone"), "{said}");
    let told = |line: &&str| line.starts_with("left out: ") || line.starts_with("from the package");
    said.lines().filter(told).for_each(|line| eprintln!("{line}"));
}
