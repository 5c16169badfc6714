//! Where the last record of each chain is kept, outside of the log, so that a log that was cut or rolled back is noticed.

use std::fmt;

use crate::policy::chain::Head;

/// The last record of a chain that is known to be on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) chain: String,
    pub(crate) head: Head,
    /// The file that it stands in.
    pub(crate) segment: String,
}

/// The store, as far as the log needs it. Calls block.
pub(crate) trait Heads: fmt::Debug + Send {
    /// All chains.
    ///
    /// # Errors
    /// Why they could not be read.
    fn load(&self) -> Result<Vec<Kept>, String>;

    /// Replaces the head of its chain.
    ///
    /// # Errors
    /// Why it could not be written.
    fn save(&self, kept: &Kept) -> Result<(), String>;

    /// The secret of the installation, made at the first use.
    ///
    /// # Errors
    /// Why there is none.
    fn key(&self) -> Result<[u8; 32], String>;
}

/// Two small files in the state directory.
// Goes when the store is a database.
#[derive(Debug)]
pub(crate) struct InFiles(pub(crate) std::path::PathBuf);

impl InFiles {
    fn write(&self, name: &str, text: &[u8]) -> std::io::Result<()> {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let fresh = self.0.join(format!("{name}.{}", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(text)?;
        file.sync_data()?;
        std::fs::rename(&fresh, self.0.join(name))
    }
}

impl Heads for InFiles {
    fn load(&self) -> Result<Vec<Kept>, String> {
        let text = match std::fs::read_to_string(self.0.join("audit-heads")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text.map_err(|error| error.to_string())?,
        };
        let read = |line: &str| {
            let mut words = line.split(' ');
            let (chain, seq, hash, segment) = (words.next()?, words.next()?, words.next()?, words.next()?);
            let head = Head { seq: seq.parse().ok()?, hash: crate::policy::Digest::from_hex(hash)? };
            Some(Kept { chain: chain.to_owned(), head, segment: segment.to_owned() })
        };
        text.lines().map(|line| read(line).ok_or_else(|| "audit-heads is damaged".to_owned())).collect()
    }

    fn save(&self, kept: &Kept) -> Result<(), String> {
        use std::fmt::Write as _;
        let mut all = self.load()?;
        all.retain(|other| other.chain != kept.chain);
        all.push(kept.clone());
        let mut text = String::new();
        for Kept { chain, head, segment } in all {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{chain} {} {} {segment}", head.seq, head.hash);
        }
        self.write("audit-heads", text.as_bytes()).map_err(|error| error.to_string())
    }

    fn key(&self) -> Result<[u8; 32], String> {
        match std::fs::read(self.0.join("audit-key")) {
            Ok(key) => key.try_into().map_err(|_| "audit-key is damaged".to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let key = crate::runtime::clock::random::<32>();
                self.write("audit-key", &key).map_err(|error| error.to_string())?;
                Ok(key)
            }
            Err(error) => Err(error.to_string()),
        }
    }
}
