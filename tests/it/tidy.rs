//! House rules that the compiler cannot check: layers, import circles, purity, file size.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

mod imports;

use self::imports::{Imports, circles, imports, within};

/// The layers that a layer may import.
enum May {
    /// The layers before it, except these.
    AllBut(&'static [&'static str]),
    Only(&'static [&'static str]),
}

/// All layers, in reading order.
const LAYERS: &[(&str, May)] = &[
    ("wire", May::AllBut(&[])),
    ("mcp", May::AllBut(&[])),
    ("catalog", May::AllBut(&[])),
    ("policy", May::AllBut(&[])),
    ("engine", May::AllBut(&[])),
    ("identity", May::Only(&["wire", "policy"])),
    ("login", May::Only(&["wire", "mcp"])),
    ("config", May::AllBut(&["engine", "login"])),
    ("telemetry", May::AllBut(&["config"])),
    ("base", May::AllBut(&["config", "telemetry"])),
    ("store", May::AllBut(&[])),
    ("cluster", May::AllBut(&[])),
    ("upstream", May::AllBut(&[])),
    ("gateway", May::AllBut(&[])),
    ("listener", May::AllBut(&[])),
    ("serve", May::AllBut(&["upstream"])),
    ("operator", May::AllBut(&["serve"])),
    ("console", May::AllBut(&["serve", "upstream"])),
    ("daemon", May::AllBut(&[])),
    ("demo", May::Only(&["wire", "mcp"])),
    ("cli", May::AllBut(&["catalog", "engine", "base", "store", "listener", "console"])),
    // May import the properties of all layers, but only for tests and fuzzing.
    ("fuzz", May::Only(&[])),
];

/// Returns whether one layer may import another.
fn may_name(layer: &str, other: &str) -> bool {
    let place = |name: &str| LAYERS.iter().position(|(layer, _)| *layer == name);
    let (_, may) = &LAYERS[place(layer).expect("the layer is listed")];
    match may {
        May::AllBut(these) => place(other) <= place(layer) && !these.contains(&other),
        May::Only(these) => layer == other || these.contains(&other),
    }
}

/// The layers of the crate in `src/core`.
const CORE: &[&str] = &["wire", "mcp", "catalog", "policy", "engine", "identity", "login"];
/// The layers of the crate in `src/shell`. The configuration is a crate of its own; all other
/// layers are in the crate in `src`.
const GATEWAY: &[&str] = &["telemetry", "base", "store", "cluster", "upstream", "gateway", "listener", "serve"];
/// Text that the core must not contain outside its tests. Its manifest keeps other libraries out,
/// but not the standard one.
const IMPURE: &[&str] = &["async fn", ".await", "::now()", "std::env", "std::fs", "std::net", "std::process"];
/// Libraries that a pure crate must not use.
const SHELL: &[&str] =
    &["tokio", "hyper", "rustls", "notify", "rusqlite", "nix", "rustix", "futures-util", "http", "fastrand"];
/// Libraries for pages and commands, which the gateway must not use.
const ABOVE: &[&str] =
    &["askama", "clap", "clap_complete", "clap_mangen", "jsonc-parser", "saphyr-parser", "strsim", "toml", "toml_edit"];
/// The crates below the one in `src`, each with the other crates that it uses.
const CRATES: &[(&str, &[&str])] = &[("core", &[]), ("config", &["core"]), ("shell", &["config", "core"])];
/// Layers that pass payloads through and therefore never parse them into a tree.
const RAW: &[&str] =
    &["wire", "engine", "login", "base", "store", "upstream", "gateway", "listener", "serve", "console", "daemon"];
/// Most lines of a file; aim at 400.
const MAX_LINES: usize = 700;
/// Number of lines above which the head of a file must give a reason, as in [`REASON`].
const LONG: usize = 500;
const REASON: &str = "//! Long, and one file on purpose: ";

#[test]
fn layers_point_downwards_and_stay_pure() {
    let mut broken = Vec::new();
    for (layer, _) in LAYERS {
        for file in sources(layer) {
            check_layer(layer, &file, &mut broken);
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// Reads the dependencies of a manifest: names and specifications.
fn dependencies(manifest: &str) -> toml::Table {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(manifest)).unwrap();
    let mut manifest: toml::Table = manifest.parse().unwrap();
    let Some(toml::Value::Table(dependencies)) = manifest.remove("dependencies") else { panic!("no dependencies") };
    assert!(dependencies.contains_key("serde_json"), "{dependencies:?}");
    dependencies
}

#[test]
fn the_core_depends_on_nothing_that_does_io() {
    let names = dependencies("src/core/Cargo.toml");
    let impure: Vec<_> = names.keys().filter(|name| SHELL.contains(&name.as_str())).collect();
    assert!(impure.is_empty(), "src/core/Cargo.toml: {impure:?}");
}

#[test]
fn crates_depend_downwards_and_on_nothing_of_those_above() {
    for (name, below) in CRATES {
        let manifest = format!("src/{name}/Cargo.toml");
        let dependencies = dependencies(&manifest);
        let ours: Vec<_> = dependencies.keys().filter_map(|name| name.strip_prefix("headend")).collect();
        assert_eq!(ours, below.iter().map(|name| format!("-{name}")).collect::<Vec<_>>(), "{manifest}");
        let above =
            |name: &str| ABOVE.contains(&name) && !(manifest.contains("config") && ["strsim", "toml"].contains(&name));
        let above: Vec<_> = dependencies.keys().filter(|name| above(name)).collect();
        assert!(above.is_empty(), "{manifest}: {above:?}");
    }
    let config = dependencies("src/config/Cargo.toml");
    assert!(!config.contains_key("tokio") && !config.contains_key("hyper"), "the configuration has no runtime");
}

#[test]
fn no_program_is_built_with_what_is_for_tests() {
    for manifest in ["Cargo.toml", "src/config/Cargo.toml", "src/shell/Cargo.toml"] {
        for (name, wanted) in dependencies(manifest).iter().filter(|(name, _)| name.starts_with("headend-")) {
            let keys: Vec<_> = wanted.as_table().unwrap().keys().collect();
            assert_eq!(keys, ["path"], "{manifest}: `testing` of {name} belongs to the dev-dependencies");
        }
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let told = told_circles(&all_imports());
    assert!(told.is_empty(), "{told}Move what both sides need into a file of its own, below them.");
}

#[test]
fn no_folders_import_each_other_in_a_circle() {
    let all = all_imports();
    let folders = all.keys().filter_map(|module| Some(module.rsplit_once("::")?.0));
    for folder in folders.collect::<BTreeSet<_>>() {
        let told = told_circles(&within(&all, folder));
        assert!(told.is_empty(), "{folder}: {told}Move what both sides need beside them.");
    }
}

/// The imports of all files of `src` that are not for tests alone.
fn all_imports() -> Imports {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    imports(&texts(&root))
}

/// The circles, with what each of their members takes from the others.
fn told_circles(imports: &Imports) -> String {
    let mut told = String::new();
    for circle in circles(imports) {
        writeln!(told, "\n{} of them import each other in a circle:", circle.len()).unwrap();
        for file in &circle {
            for (from, names) in imports[*file].iter().filter(|(from, _)| circle.contains(from.as_str())) {
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                writeln!(told, "  {file} takes {} from {from}", names.join(", ")).unwrap();
            }
        }
    }
    told
}

/// Files that may lie side by side.
const MAX_SIDE_BY_SIDE: usize = 20;

#[test]
fn folders_hold_few_files_side_by_side() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut number = BTreeMap::<String, usize>::new();
    for file in ["src", "tests"].iter().flat_map(|folder| rust_files(&root.join(folder))) {
        let folder = file.parent().unwrap().strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        *number.entry(folder).or_default() += 1;
    }
    number.retain(|_, number| *number > MAX_SIDE_BY_SIDE);
    assert!(number.is_empty(), "move files that belong together into a folder: {number:?}");
}

/// Modules of `src` outside of tests, with their texts.
fn texts(root: &Path) -> Vec<(String, String)> {
    let files = rust_files(root).into_iter().filter(|file| !test_only(file));
    files.map(|file| (module_of(root, &file), text_of(root, &file))).collect()
}

/// Returns the module of a file as all of `src` names it: `policy::decide` for
/// `src/core/policy/decide.rs`, empty for `lib.rs`.
fn module_of(root: &Path, file: &Path) -> String {
    let inside = file.strip_prefix(root).unwrap().with_extension("");
    let parts = inside.iter().map(|part| part.to_str().unwrap());
    parts.filter(|part| !matches!(*part, "lib" | "core" | "shell")).collect::<Vec<_>>().join("::")
}

/// Reads a file, with paths written as in all of `src`.
fn text_of(root: &Path, file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    if !file.starts_with(root.join("config")) {
        return text;
    }
    // The configuration is a layer and a crate: its own names are at the root of that crate.
    let mut parts = text.split("crate::");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let name = part.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        text + if name.is_empty() || CORE.contains(&name) { "crate::" } else { "crate::config::" } + part
    })
}

#[test]
fn every_source_file_is_short_and_says_what_it_is_for() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut broken = Vec::new();
    for folder in ["src", "tests"] {
        for file in rust_files(&root.join(folder)) {
            let text = fs::read_to_string(&file).unwrap();
            let lines = text.lines().count();
            if lines > MAX_LINES {
                broken.push(format!("{}: {lines} lines, over {MAX_LINES}", file.display()));
            }
            if lines > LONG && folder == "src" && !text.contains(REASON) {
                broken.push(format!("{}: {lines} lines, over {LONG}, and its head gives no reason", file.display()));
            }
            // `foo/tests.rs` is the tests of `foo`.
            let explained = text.trim_start().starts_with("//!") || file.ends_with("tests.rs");
            if !explained && !text.contains("#![doc = include_str!") {
                broken.push(format!("{}: no module doc", file.display()));
            }
            if file.ends_with("mod.rs") {
                broken.push(format!("{}: write `foo.rs` beside `foo/`", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn what_upstreams_say_is_heard_in_one_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut readers = Vec::new();
    for folder in ["core/mcp", "core/catalog", "core/engine", "shell/upstream"] {
        let files = rust_files(&root.join(folder)).into_iter();
        let reads = |text: &str| text.contains("Message::parse(") || text.contains("Message::of_upstream(");
        readers.extend(files.filter(|file| !test_only(file) && reads(&fs::read_to_string(file).unwrap())));
    }
    readers.sort();
    // These read messages of clients.
    readers.retain(|file| !file.starts_with(root.join("core/engine/client")));
    // The latter reads messages that the gateway itself is about to post.
    assert_eq!(readers, [root.join("core/mcp/voice.rs"), root.join("shell/upstream/actor/sse.rs")]);
}

#[test]
fn revisions_are_told_apart_in_their_table_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let names_one = |file: &PathBuf| {
        let text = fs::read_to_string(file).unwrap();
        without_tests(&text).lines().any(|line| line.contains("Revision::V2"))
    };
    let mut naming: Vec<PathBuf> = rust_files(&root).into_iter().filter(|file| !test_only(file)).collect();
    naming.retain(names_one);
    naming.retain(|file| !file.ends_with("mcp/version.rs"));
    // The transport of one revision.
    naming.retain(|file| !file.ends_with("serve/legacy_sse.rs"));
    assert!(naming.is_empty(), "ask for a feature or an era, see src/core/mcp/version.rs: {naming:?}");
}

/// The engines of the store, each with its library.
const ENGINES: &[(&str, &str)] = &[("sqlite", "rusqlite"), ("postgres", "tokio_postgres")];

#[test]
fn a_database_is_named_below_its_own_module_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let opener = root.join("shell/store/db.rs");
    for (engine, library) in ENGINES {
        let own = root.join("shell/store").join(engine);
        let is_other = |file: &PathBuf| !file.starts_with(&own) && *file != own.with_extension("rs");
        let module = format!("store::{engine}::");
        let names = |file: &PathBuf| {
            let text = fs::read_to_string(file).unwrap();
            text.contains(library) || (text.contains(&module) && *file != opener)
        };
        let naming: Vec<PathBuf> = rust_files(&root).into_iter().filter(|file| is_other(file) && names(file)).collect();
        assert!(naming.is_empty(), "write an operation in src/shell/store/port: {naming:?}");
        let head = fs::read_to_string(own.with_extension("rs")).unwrap();
        let is_out = |line: &&str| {
            line.trim_start().starts_with("pub") && [library, "Connection"].iter().any(|word| line.contains(word))
        };
        assert_eq!(head.lines().find(is_out), None, "the engine hands out requests and answers alone");
    }
}

/// Modules of the store below its rooms, each with the others of the store that it may import.
const BELOW_ROOMS: &[(&str, &[&str])] = &[
    ("store::pin_record", &["store::seal"]),
    ("store::port", &["store::pin_record"]),
    ("store::sqlite", &["store::pin_record", "store::port", "store::seal"]),
    ("store::postgres", &["store::pin_record", "store::port", "store::seal"]),
];

#[test]
fn the_port_and_the_engine_of_the_store_know_no_room_above_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let imports = imports(&texts(&root));
    let is_in = |file: &str, module: &str| {
        file.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    for (module, others) in BELOW_ROOMS {
        let own: Vec<_> = imports.iter().filter(|(file, _)| is_in(file, module)).collect();
        assert!(!own.is_empty(), "{module} has moved");
        for (file, from) in own {
            let may = |other: &str| {
                !other.starts_with("store") || is_in(other, module) || others.iter().any(|one| is_in(other, one))
            };
            let above: Vec<_> = from.keys().filter(|other| !may(other)).collect();
            assert!(above.is_empty(), "{file} imports {above:?}: a row belongs into src/shell/store/port");
        }
    }
}

/// Tests in this process that depend on other processes or the disk, whose time no test clock
/// controls.
const SLEEPERS: &[&str] = &[
    "src/console/session.rs",
    "src/stage.rs",
    "src/shell/store/audit/tests/crash.rs",
    "src/shell/store/sqlite/tests/unwritable.rs",
    "src/shell/store/killed.rs",
    "src/shell/telemetry/logs/sink.rs",
    "src/shell/upstream/process/mark.rs",
    "src/shell/upstream/process/procfs.rs",
];

#[test]
fn no_test_in_process_sleeps_to_let_time_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sleeping = Vec::new();
    for folder in ["src", "tests/stage"] {
        for file in rust_files(&root.join(folder)) {
            let text = fs::read_to_string(&file).unwrap();
            let is_test = folder != "src" || test_only(&file);
            let tests = if is_test { &*text } else { &text[without_tests(&text).len()..] };
            let name = file.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let reads_time = folder != "src" && tests.contains("Instant::now()");
            if (tests.contains("thread::sleep(") || reads_time) && !SLEEPERS.contains(&&*name) {
                sleeping.push(name);
            }
        }
    }
    assert!(sleeping.is_empty(), "pause the clock, or test it with the binary: {sleeping:?}");
}

#[test]
fn every_module_belongs_to_a_layer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let known = |name: &str| {
        matches!(name, "lib" | "main" | "core" | "shell" | "stage") || LAYERS.iter().any(|(layer, _)| *layer == name)
    };
    let folders = [root.clone(), root.join("core"), root.join("shell")];
    let entries = folders.map(|folder| fs::read_dir(folder).unwrap().flatten());
    for path in entries.into_iter().flatten().map(|entry| entry.path()) {
        if path.is_dir() || path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.file_stem().unwrap().to_str().unwrap();
            assert!(known(name), "src/{name} is in no layer: add it to LAYERS and to the architecture text");
            let is_layer = LAYERS.iter().any(|(layer, _)| *layer == name);
            assert!(!is_layer || path.parent() == Some(crate_of(name).as_path()), "{}", path.display());
        }
    }
}

/// Returns a file up to its module of tests.
fn without_tests(text: &str) -> &str {
    text.split_once("\n#[cfg(test)]\nmod tests").map_or(text, |(code, _)| code)
}

fn check_layer(layer: &str, file: &Path, broken: &mut Vec<String>) {
    let text = text_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), file);
    let at = |n: usize| format!("{}:{}", file.display(), n + 1);
    for (n, line) in without_tests(&text).lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for (i, matched) in code.match_indices("crate::") {
            let rest = &code[i + matched.len()..];
            if rest.starts_with('{') {
                broken.push(format!("{}: write one `use crate::layer::..` per layer", at(n)));
            }
            let to = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            let is_layer = LAYERS.iter().any(|(name, _)| *name == to);
            if is_layer && !may_name(layer, to) {
                broken.push(format!("{}: {layer} may not use {to}", at(n)));
            }
        }
        for ours in ["headend_core", "headend_config", "headend_shell"] {
            // The configuration's crate has one line that names the layers below.
            if (code.contains(&format!("{ours}::")) || code.contains(&format!("use {ours}")))
                && !(file.ends_with("lib.rs") && code == "use headend_core::{catalog, identity, mcp, policy, wire};")
            {
                broken.push(format!("{}: write `crate::layer::..`, not `{ours}`", at(n)));
            }
        }
        if RAW.contains(&layer) && code.contains("serde_json::Value") {
            broken.push(format!("{}: `serde_json::Value` in {layer}", at(n)));
        }
        if CORE.contains(&layer) {
            for token in IMPURE.iter().filter(|token| has_token(code, token)) {
                broken.push(format!("{}: `{token}` in {layer}, a layer of the core", at(n)));
            }
        }
    }
}

/// Returns whether code contains a text that is not merely the end of another word: `Errand::` is
/// not `rand::`.
fn has_token(code: &str, token: &str) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(token).any(|(at, _)| !(token.starts_with(in_word) && code[..at].ends_with(in_word)))
}

/// Returns the folder of the crate that has a layer; for the configuration, the folder around its
/// own.
fn crate_of(layer: &str) -> PathBuf {
    let folder = match layer {
        _ if CORE.contains(&layer) => "src/core",
        _ if GATEWAY.contains(&layer) => "src/shell",
        _ => "src",
    };
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
}

/// Returns all files of a layer except test-only ones.
fn sources(layer: &str) -> Vec<PathBuf> {
    let root = crate_of(layer);
    let mut files = rust_files(&root.join(layer));
    files.push(root.join(layer).with_extension("rs"));
    files.retain(|file| file.exists() && !test_only(file));
    files
}

fn test_only(file: &Path) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let inside = file.strip_prefix(root).unwrap_or(file);
    let in_tests =
        inside.components().any(|part| ["tests", "sim", "stage"].iter().any(|name| part.as_os_str() == *name));
    let is_test = ["tests.rs", "sim.rs", "fuzz.rs", "stage.rs"].iter().any(|name| file.ends_with(name));
    is_test || in_tests
}

#[test]
fn every_row_about_foreign_input_names_a_test() {
    let rows = rows_of("Foreign input");
    let names: Vec<&str> = rows.iter().filter_map(|row| row.rsplit('`').nth(1)).collect();
    let missing = without_test(&names);
    assert!(rows.len() > 30 && names.len() == rows.len() && missing.is_empty(), "{missing:?}");
}

#[test]
fn every_row_about_apps_and_instructions_names_tests_or_has_a_reason() {
    let rows = rows_of("Apps and instructions");
    let ends = rows.iter().map(|row| row.trim_end_matches('|').rsplit('|').next().unwrap_or_default());
    let (tests, reasons): (Vec<&str>, Vec<&str>) = ends.partition(|end| end.contains('`'));
    let names: Vec<&str> = tests.iter().flat_map(|end| end.split('`').skip(1).step_by(2)).collect();
    let missing = without_test(&names);
    assert!(rows.len() > 15 && missing.is_empty(), "{missing:?}");
    assert!(reasons.iter().all(|reason| reason.trim().starts_with("none: ")), "{reasons:?}");
}

/// Returns the rows of the table in a section of `tests/README.md`.
fn rows_of(section: &str) -> Vec<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/README.md")).unwrap();
    let (_, section) = text.split_once(&format!("## {section}")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    section.lines().filter(|line| line.starts_with("| ")).skip(1).map(str::to_owned).collect()
}

/// Returns those of the names that no test has.
fn without_test<'n>(names: &[&'n str]) -> Vec<&'n str> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src", "tests"].into_iter().flat_map(|folder| rust_files(&root.join(folder)));
    let sources: String = folders.map(|file| fs::read_to_string(file).unwrap()).collect();
    names.iter().filter(|name| !sources.contains(&format!("fn {name}()"))).copied().collect()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                // Build output of the fuzz package is not ours.
                if !path.ends_with("fuzz/target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}
