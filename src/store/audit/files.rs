//! The files of the audit log: `audit-<chain>-<number>.jsonl` in one folder, for their owner alone.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::config::guard;

/// Behind the name of each segment.
const EXTENSION: &str = ".jsonl";

/// The folder of the log.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

/// One segment's place in the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Segment {
    pub(crate) chain: String,
    /// From one.
    pub(crate) number: u32,
}

impl Segment {
    pub(crate) fn name(&self) -> String {
        format!("audit-{}-{:06}{EXTENSION}", self.chain, self.number)
    }

    /// Reads what [`Self::name`] wrote.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (chain, number) = name.strip_prefix("audit-")?.strip_suffix(EXTENSION)?.rsplit_once('-')?;
        let segment = Self { chain: chain.to_owned(), number: number.parse().ok()? };
        (segment.name() == name).then_some(segment)
    }
}

impl Folder {
    /// The folder, whether it is there or not.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Makes the folder, with mode 0700. One that is there must not be written or owned by others.
    pub(super) fn make(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        guard::directory(&self.path, false).map_err(guard::refusal)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The segments of each chain, in order. A folder that is not there has none.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(crate) fn chains(&self) -> io::Result<BTreeMap<String, Vec<Segment>>> {
        let mut chains: BTreeMap<String, Vec<Segment>> = BTreeMap::new();
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(chains),
            entries => entries?,
        };
        for entry in entries {
            if let Some(segment) = entry?.file_name().to_str().and_then(Segment::parse) {
                chains.entry(segment.chain.clone()).or_default().push(segment);
            }
        }
        chains.values_mut().for_each(|segments| segments.sort_unstable());
        Ok(chains)
    }

    /// Opens a segment for reading. Its owner may be any, as in a copy.
    ///
    /// # Errors
    /// Also when it is a link, or no file.
    pub(crate) fn read(&self, segment: &Segment) -> io::Result<File> {
        // A pipe would block without the last flag.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let path = self.path.join(segment.name());
        let file =
            File::from(rustix::fs::open(&path, flags, Mode::empty()).map_err(|error| guard::opening(&path, error))?);
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a file", segment.name())))
        }
    }

    /// Opens a segment to be gone on with, which must not be written or owned by others.
    pub(super) fn append(&self, segment: &Segment) -> io::Result<File> {
        self.write(segment, OFlags::empty())
    }

    /// Makes a segment, which must not be there, so that it is there after a power failure too.
    pub(super) fn create(&self, segment: &Segment) -> io::Result<File> {
        let file = self.write(segment, OFlags::CREATE | OFlags::EXCL)?;
        File::open(&self.path)?.sync_all()?;
        Ok(file)
    }

    fn write(&self, segment: &Segment, flags: OFlags) -> io::Result<File> {
        let path = self.path.join(segment.name());
        guard::open(&path, OFlags::RDWR | OFlags::APPEND | flags, guard::SHARED)
    }
}
