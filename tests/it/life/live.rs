//! Tests of settings in mounted files and of many reloads, which need watched files and sockets.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;

use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::process::eventually;
use crate::tools::upstream::Fake;
use crate::traffic::faces::upstream_pid;

mod storm;
mod tokens;

/// A folder as Kubernetes mounts a `ConfigMap` or `Secret`: each file is a link through `..data`,
/// which points to the files of one version.
struct Mount<'p>(&'p Path);

impl Mount<'_> {
    /// Replaces all files at once.
    fn put(&self, version: u32, files: &[(&str, &str)]) {
        let folder = format!("..2026_{version}");
        fs::create_dir_all(self.0.join(&folder)).unwrap();
        for (name, text) in files {
            fs::write(self.0.join(&folder).join(name), text).unwrap();
            if !self.0.join(name).is_symlink() {
                symlink(format!("..data/{name}"), self.0.join(name)).unwrap();
            }
        }
        symlink(&folder, self.0.join("..data_tmp")).unwrap();
        fs::rename(self.0.join("..data_tmp"), self.0.join("..data")).unwrap();
        if version > 0 {
            fs::remove_dir_all(self.0.join(format!("..2026_{}", version - 1))).unwrap();
        }
    }
}

fn fx(name: &str) -> String {
    format!("[upstreams.{name}]\ncommand = {}\n", Fake::stdio("both").command())
}

#[test]
fn a_mounted_configuration_is_followed_through_its_links() {
    let setup = GatewaySetup::new();
    let world = setup.world.clone();
    let dir = world.path("work/etc");
    fs::create_dir_all(&dir).unwrap();
    let config = Mount(&dir);
    let base = setup.text();
    config.put(0, &[("headend.toml", &format!("{base}{}", fx("one")))]);
    let gateway = Gateway::start(world, Some(dir.join("headend.toml")), &["serve"], &[]);
    gateway.wait_for_tools(&["one__echo"]);
    let pid = upstream_pid(&gateway, "one");
    for version in 1..=2 {
        let name = format!("two-{version}");
        config.put(version, &[("headend.toml", &format!("{base}{}{}", fx("one"), fx(&name)))]);
        gateway.wait_for_tools(&["one__echo", &format!("{name}__echo")]);
    }
    assert_eq!(upstream_pid(&gateway, "one"), pid);
}

#[test]
fn a_mounted_conf_d_is_followed_through_its_links() {
    let setup = GatewaySetup::new().toml(&fx("one"));
    let parts = setup.world.path("conf.d");
    fs::create_dir_all(&parts).unwrap();
    let more = Mount(&parts);
    more.put(0, &[("10-more.toml", &fx("more"))]);
    let gateway = setup.start();
    gateway.wait_for_tools(&["one__echo", "more__echo"]);
    for version in 1..=2 {
        let name = format!("more-{version}");
        more.put(version, &[("10-more.toml", &fx(&name))]);
        gateway.wait_for_tools(&["one__echo", &format!("{name}__echo")]);
    }
}

#[test]
fn a_secret_in_a_mounted_file_is_followed() {
    let setup = GatewaySetup::new();
    let dir = setup.world.path("work/secrets");
    fs::create_dir_all(&dir).unwrap();
    let mount = Mount(&dir);
    mount.put(0, &[("key", "the-first-key\n"), ("other", "x")]);
    let file = dir.join("key").display().to_string();
    let gateway = setup.toml(&format!("{}env = {{ KEY = {{ file = \"{file}\" }} }}\n", fx("fx"))).start();
    gateway.wait_for_tools(&["fx__env"]);
    let has = |key: &str| gateway.modern().call("fx__env", json!({})).raw.contains(key);
    assert!(has("the-first-key"));
    mount.put(1, &[("key", "the-second-key\n"), ("other", "x")]);
    eventually("the new key reaches the server", || has("the-second-key"));
}
