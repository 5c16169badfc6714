//! Tests of the shipped files for a cluster: the manifest for Kubernetes, and the image that it
//! names.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::Parser as _;
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use super::import::value::{FileValue, read};
use crate::config::source::guard;
use crate::config::{self, Config};
use crate::daemon::listen::check_certificates;

/// Time that a daemon needs after `drain-timeout`, in seconds, as in `headend.service`.
const REST: u64 = 15;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn shipped(name: &str) -> String {
    fs::read_to_string(root().join("config").join(name)).unwrap()
}

/// The objects of the manifest.
struct Manifest {
    text: String,
    objects: Vec<FileValue>,
}

impl Manifest {
    fn load() -> Self {
        let text = shipped("kubernetes.yaml");
        let read = |part: &str| read(Path::new("kubernetes.yaml"), part).unwrap_or_else(|error| panic!("{error}"));
        let objects = text.split("\n---\n").map(read).collect();
        Self { text, objects }
    }

    /// Returns the only object of this kind and name.
    fn object(&self, kind: &str, name: &str) -> &FileValue {
        let has = |object: &&FileValue| text(object, &["kind"]) == kind && text(object, &["metadata", "name"]) == name;
        let found: Vec<_> = self.objects.iter().filter(has).collect();
        assert_eq!(found.len(), 1, "{kind} {name}");
        found[0]
    }

    fn pod(&self) -> &FileValue {
        self.object("StatefulSet", "headend").at(&["spec", "template", "spec"]).unwrap()
    }

    fn container(&self) -> &FileValue {
        let containers = self.pod().get("containers").unwrap().items();
        assert_eq!(containers.len(), 1);
        &containers[0]
    }

    fn named<'m>(list: &'m FileValue, name: &str) -> &'m FileValue {
        list.items().iter().find(|item| text(item, &["name"]) == name).unwrap_or_else(|| panic!("no {name}"))
    }

    fn port(&self, name: &str) -> u64 {
        number(Self::named(self.container().get("ports").unwrap(), name), &["containerPort"])
    }

    /// Returns the keys of a Secret, by the command that makes it.
    fn keys_of_secret(&self, name: &str) -> BTreeSet<String> {
        let commands = self.text.lines().filter_map(|line| line.strip_prefix("#   ")).collect::<Vec<_>>().join("\n");
        let commands = commands.replace(" \\\n", " ");
        let command = |kind: &str| {
            commands.lines().find(|line| line.starts_with(&format!("kubectl create secret {kind} {name} ")))
        };
        match (command("generic"), command("tls")) {
            (Some(line), None) => {
                let keys =
                    line.split("--from-literal=").skip(1).filter_map(|key| Some(key.split_once('=')?.0.to_owned()));
                keys.collect()
            }
            (None, Some(_)) => ["tls.crt", "tls.key"].map(str::to_owned).into(),
            other => panic!("{name}: {other:?}"),
        }
    }

    /// Returns a variable of the container in a pod with this name and address.
    fn variable(&self, name: &str) -> Option<String> {
        let variables = self.container().get("env")?.items();
        let one = variables.iter().find(|variable| text(variable, &["name"]) == name)?;
        match one.at(&["valueFrom", "fieldRef", "fieldPath"]).and_then(FileValue::as_str) {
            Some("metadata.name") => Some("headend-0".to_owned()),
            Some("status.podIP") => Some("10.1.2.3".to_owned()),
            Some(other) => panic!("{other}"),
            None => Some(text(one, &["value"]).replace("$(POD_IP)", &self.variable("POD_IP")?)),
        }
    }

    /// Makes the files that the pod mounts below a folder, and loads the configuration.
    fn load_config(&self, mounted: &Path) -> Config {
        let container = self.container();
        let place = |volume: &str| {
            let mounts = container.get("volumeMounts").unwrap().items();
            let mount = mounts.iter().find(|mount| text(mount, &["name"]) == volume).unwrap();
            text(mount, &["mountPath"]).to_owned()
        };
        let (secrets, tls) = (place("secrets"), place("tls"));
        let volumes = self.pod().get("volumes").unwrap();
        let name_of = |volume: &str| text(Self::named(volumes, volume), &["secret", "secretName"]).to_owned();
        let pair = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["mcp.example.com".to_owned()]).unwrap().self_signed(&pair).unwrap();
        let (certificate, key) = (certificate.pem(), pair.serialize_pem());
        for (place, volume) in [(&secrets, "secrets"), (&tls, "tls")] {
            let folder = mounted.join(place.trim_start_matches('/'));
            fs::create_dir_all(&folder).unwrap();
            for key_name in self.keys_of_secret(&name_of(volume)) {
                let value = match &*key_name {
                    "tls.crt" => certificate.clone(),
                    "tls.key" => key.clone(),
                    "store-url" => "postgres://headend:PASSWORD@db.example.com/headend".to_owned(),
                    _ => "0123456789abcdef".repeat(4),
                };
                fs::write(folder.join(&key_name), value).unwrap();
                fs::set_permissions(folder.join(key_name), fs::Permissions::from_mode(0o440)).unwrap();
            }
        }
        let map = self.object("ConfigMap", text(Self::named(volumes, "config"), &["configMap", "name"]));
        let file = text(map, &["data", "headend.toml"]);
        let moved = |path: &str| mounted.join(path.trim_start_matches('/')).display().to_string();
        let file = file.replace(&format!("\"{secrets}"), &format!("\"{}", moved(&secrets)));
        let file = file.replace(&format!("\"{tls}"), &format!("\"{}", moved(&tls)));
        let loaded = config::parse(&file, "headend.toml", &|name| self.variable(name), &guard::read);
        let (config, warnings) = loaded.unwrap_or_else(|problems| panic!("{problems}\n{file}"));
        assert_eq!(warnings, []);
        check_certificates(&config).unwrap();
        config
    }
}

fn text<'v>(value: &'v FileValue, path: &[&str]) -> &'v str {
    value.at(path).and_then(FileValue::as_str).unwrap_or_else(|| panic!("no {path:?} in {value:?}"))
}

fn number(value: &FileValue, path: &[&str]) -> u64 {
    let found = value.at(path).and_then(FileValue::scalar);
    found.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {path:?} in {value:?}"))
}

#[test]
fn the_manifest_has_the_configuration_of_a_replica() {
    let (manifest, mounted) = (Manifest::load(), TempDir::new().unwrap());
    let config = manifest.load_config(mounted.path());
    let cluster = config.cluster.unwrap();
    assert_eq!((&*cluster.name, cluster.peer_url.unwrap().as_str()), ("headend-0", "https://10.1.2.3:8630/"));
    let ports = [
        ("mcp", config.server.listen[0]),
        ("peers", cluster.peer_listen.unwrap()),
        ("metrics", config.metrics.listen.unwrap()),
    ];
    for (name, address) in ports {
        assert!(address.ip().is_unspecified(), "{name}: other pods reach {address}");
        assert_eq!(u64::from(address.port()), manifest.port(name), "{name}");
    }
    let patience = number(manifest.pod(), &["terminationGracePeriodSeconds"]);
    let stop = manifest.container().at(&["lifecycle", "preStop", "exec", "command"]).unwrap().texts();
    assert_eq!(stop[0], "sleep");
    let drain = config.server.drain_timeout + Duration::from_secs(stop[1].parse::<u64>().unwrap() + REST);
    assert!(Duration::from_secs(patience) > drain, "{patience} s are too few for {drain:?}");
    let start = manifest.container().get("startupProbe").unwrap();
    let start = number(start, &["periodSeconds"]) * number(start, &["failureThreshold"]);
    assert!(
        Duration::from_secs(start) > cluster.store_wait,
        "a start that waits for the store is ended after {start} s"
    );
}

#[test]
fn the_objects_of_the_manifest_fit_together() {
    let manifest = Manifest::load();
    let set = manifest.object("StatefulSet", "headend");
    let label = text(set, &["spec", "template", "metadata", "labels", "app"]);
    let selectors = [
        set.at(&["spec", "selector", "matchLabels"]),
        manifest.object("Service", "headend").at(&["spec", "selector"]),
        manifest.object("Service", text(set, &["spec", "serviceName"])).at(&["spec", "selector"]),
        manifest.object("PodDisruptionBudget", "headend").at(&["spec", "selector", "matchLabels"]),
        manifest.object("NetworkPolicy", "headend").at(&["spec", "podSelector", "matchLabels"]),
    ];
    for selector in selectors {
        assert_eq!(text(selector.unwrap(), &["app"]), label);
    }
    assert_eq!(manifest.objects.len(), 6, "every object is checked");
    assert_eq!(number(set, &["spec", "replicas"]), 3);
    let container = manifest.container();
    for (probe, path) in [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        let get = container.at(&[probe, "httpGet"]).unwrap();
        assert_eq!((text(get, &["path"]), text(get, &["port"]), text(get, &["scheme"])), (path, "metrics", "HTTPS"));
        let header = &get.get("httpHeaders").unwrap().items()[0];
        assert_eq!(text(header, &["name"]), "Host");
        assert!(manifest.text.contains(&format!("allowed-hosts = [\"{}\"]", text(header, &["value"]))), "{probe}");
    }
    let claims = set.at(&["spec", "volumeClaimTemplates"]).unwrap().items();
    let volumes = manifest.pod().get("volumes").unwrap().items().iter().map(|volume| text(volume, &["name"]));
    let volumes: BTreeSet<_> = volumes.chain(claims.iter().map(|claim| text(claim, &["metadata", "name"]))).collect();
    let mounts = container.get("volumeMounts").unwrap().items();
    let mounted: BTreeSet<_> = mounts.iter().map(|mount| text(mount, &["name"])).collect();
    assert_eq!(volumes, mounted);
    let is_set = |path: &[&str]| container.at(path) == Some(&FileValue::Bool(true));
    assert!(is_set(&["securityContext", "readOnlyRootFilesystem"]));
    assert_eq!(manifest.pod().at(&["securityContext", "runAsNonRoot"]), Some(&FileValue::Bool(true)));
    // The image and the pod agree.
    let image = shipped("Containerfile");
    let user = number(manifest.pod(), &["securityContext", "runAsUser"]);
    assert!(image.contains(&format!("\nUSER {user}:{user}\n")) && image.contains(text(container, &["image"])));
    let state = mounts.iter().find(|mount| text(mount, &["name"]) == "state").unwrap();
    assert!(image.contains(&format!("STATE_DIRECTORY={}/", text(state, &["mountPath"]))));
    let args = container.get("args").unwrap().texts();
    crate::cli::CommandLine::try_parse_from([vec!["headend".to_owned()], args].concat()).unwrap();
}

/// Returns the words after an instruction of the file for images, for each of its lines.
fn instructions<'f>(file: &'f str, word: &str) -> Vec<Vec<&'f str>> {
    let lines = file.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    lines.map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn the_image_is_built_from_files_that_exist() {
    let image = shipped("Containerfile");
    let copied = TempDir::new().unwrap();
    let (from_stage, from_clone): (Vec<_>, Vec<_>) =
        instructions(&image, "COPY").into_iter().partition(|words| words[0].starts_with("--from="));
    for words in &from_clone {
        let (target, sources) = words.split_last().unwrap();
        for source in sources {
            let place = if target.ends_with('/') {
                copied.path().join(target).join(source)
            } else {
                copied.path().join(target)
            };
            let status = Command::new("cp").arg("-r").arg(root().join(source)).arg(place).status().unwrap();
            assert!(status.success(), "COPY {source}");
        }
    }
    // The manifests of all packages are among them, and the lock file fits.
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"]).current_dir(copied.path());
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stages: Vec<_> = instructions(&image, "FROM").into_iter().filter_map(|words| words.get(2).copied()).collect();
    for words in &from_stage {
        assert!(stages.contains(&words[0].trim_start_matches("--from=")), "{words:?}");
    }
    // `cargo install --root` puts the program where the second stage takes it.
    let build = instructions(&image, "RUN").into_iter().find(|words| words[0] == "cargo").unwrap();
    let out = build[build.iter().position(|word| *word == "--root").unwrap() + 1];
    assert_eq!(from_stage[0][1], format!("{out}/bin/headend"));
    assert_eq!(instructions(&image, "ENTRYPOINT"), [[format!("[\"{}\"]", from_stage[0][2])]]);
}
