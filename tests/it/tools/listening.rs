//! Test servers that run in processes of their own.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Returns the path of one of our programs, which is next to the folder of the test executable, or
/// among the examples there.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let path = [profile.join(name), profile.join("examples").join(name)].into_iter().find(|path| path.exists());
    path.unwrap_or_else(|| {
        panic!("{name} is missing in {}: `cargo build --bins --examples` builds it", profile.display())
    })
}

/// One of our servers, which listens on a port of its own and ends with the test.
#[derive(Debug)]
pub(crate) struct Listening {
    child: Child,
    pub(crate) url: String,
}

impl Listening {
    /// Starts the program and reads its URL from the first line of its output.
    pub(crate) fn spawn(program: &Path, args: &[String]) -> Self {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("start {}: {error}", program.display()));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).map(str::to_owned);
        let url = url.unwrap_or_else(|| panic!("{} {args:?} printed no URL but {line:?}", program.display()));
        Self { child, url }
    }
}

impl Listening {
    /// Returns the address on which the server listens.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://").split('/').next().unwrap()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ignored = self.child.kill();
        let _ignored = self.child.wait();
    }
}
