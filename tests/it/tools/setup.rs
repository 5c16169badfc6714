//! A home for one daemon and its configuration, before anything is started.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use super::ground::Folder;
use super::upstream::Fake;

/// A home for one daemon, with nothing but the test's own files.
#[derive(Debug, Clone)]
pub(crate) struct TestHome {
    dir: Arc<Folder>,
}

impl TestHome {
    pub(crate) fn new() -> Self {
        let dir = Folder::new();
        for name in ["home", "config", "state", "run", "work"] {
            let folder = dir.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        }
        Self { dir: Arc::new(dir) }
    }

    /// Returns a path inside.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.dir.path().join(relative)
    }

    /// Writes a file that only this user may write, and returns its path.
    pub(crate) fn write(&self, relative: &str, text: &str) -> PathBuf {
        let path = self.path(relative);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// Returns environment variables that make `headend` find its folders here and nowhere else.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let folder = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let mut environment = vec![
            ("HOME".to_owned(), folder("home")),
            ("XDG_CONFIG_HOME".to_owned(), folder("config")),
            ("XDG_STATE_HOME".to_owned(), folder("state")),
            ("XDG_RUNTIME_DIR".to_owned(), folder("run")),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ];
        environment.extend(std::env::var("PATH").ok().map(|path| ("PATH".to_owned(), path)));
        environment
    }

    /// Returns the bearer token that the daemon created at its first start.
    pub(crate) fn token(&self) -> Option<String> {
        fs::read_to_string(self.path("state/headend/token")).ok().map(|token| token.trim().to_owned())
    }
}

/// A daemon about to be started.
#[derive(Debug)]
pub(crate) struct GatewaySetup {
    pub(crate) world: TestHome,
    server: String,
    policy: String,
    rest: String,
    /// Variables of the daemon.
    pub(crate) environment: Vec<(String, String)>,
}

impl GatewaySetup {
    /// Creates a setup with free ports, one generated token, metrics, everything allowed, and no
    /// upstream.
    pub(crate) fn new() -> Self {
        Self {
            world: TestHome::new(),
            server: String::new(),
            policy: "default = \"allow\"".to_owned(),
            rest: String::new(),
            environment: Vec::new(),
        }
    }

    /// Adds lines to the table `[server]`.
    pub(crate) fn server(mut self, lines: &str) -> Self {
        self.server.push_str(lines);
        self.server.push('\n');
        self
    }

    /// Adds a second caller, `second`. With two callers each has a rate, set here so high that no
    /// machine reaches it. Write other lines of these tables likewise, as dotted keys.
    pub(crate) fn second_caller(self, token: &str) -> Self {
        self.env("SECOND_TOKEN", token)
            .server("auth.tokens.second = { env = \"SECOND_TOKEN\" }")
            .server("limits.caller-rate = \"100000/s\"\nlimits.caller-burst = 100000")
    }

    /// Sets the lines of the table `[policy]`.
    pub(crate) fn policy(mut self, lines: &str) -> Self {
        lines.clone_into(&mut self.policy);
        self
    }

    /// Adds tables.
    pub(crate) fn toml(mut self, tables: &str) -> Self {
        self.rest.push_str(tables);
        self.rest.push('\n');
        self
    }

    /// Adds an upstream that the daemon starts.
    pub(crate) fn fake(self, name: &str, fake: &Fake) -> Self {
        let command = fake.command();
        self.toml(&format!("[upstreams.{name}]\ncommand = {command}"))
    }

    /// Adds an upstream behind HTTP.
    pub(crate) fn url(self, name: &str, url: &str) -> Self {
        self.toml(&format!("[upstreams.{name}]\nurl = \"{url}\""))
    }

    /// Adds a variable of the daemon's environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Returns the text of the configuration file.
    pub(crate) fn text(&self) -> String {
        format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\n{}\n[metrics]\nlisten = \"127.0.0.1:0\"\n\n[policy]\n{}\n\n{}",
            self.server,
            self.unheld_policy(),
            self.rest
        )
    }

    /// Returns the policy. Unless the test sets `hold` itself, calls that need an approval are
    /// refused at once, because most tests are about the refusal.
    fn unheld_policy(&self) -> String {
        const TABLE: &str = "[policy.consent]\n";
        match self.policy.split_once(TABLE) {
            Some((_, lines)) if lines.contains("hold = ") => self.policy.clone(),
            Some((before, lines)) => format!("{before}{TABLE}hold = \"0s\"\n{lines}"),
            None => format!("{}\n{TABLE}hold = \"0s\"", self.policy),
        }
    }

    /// Writes the file without starting anything.
    pub(crate) fn write(self) -> (TestHome, PathBuf) {
        let text = self.text();
        let path = self.world.write("headend.toml", &text);
        (self.world, path)
    }
}
