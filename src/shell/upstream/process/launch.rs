//! The program to start for an upstream, and the errors of starting it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::base::descriptors::lacks_descriptors;
use crate::cluster::lease::ProgramLease;
use crate::config::source::secret::Secret;
use crate::config::{Confinement, ContainerRun, UpstreamSettings, UpstreamTarget, VariableText, inherited_variables};
use crate::store::pins::{LaunchProgram, find_program};
use crate::upstream::process::lifeline::Lifeline;

/// The environment variable that says which process started a child, see `owner`.
pub(super) const MARK: &str = "HEADEND_OWNER";

/// The reason why a child could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("the command is empty")]
    Empty,
    #[error("`{path}` is not there")]
    NotThere { path: String },
    #[error("the working directory `{path}` is not there")]
    NoDirectory { path: String },
    #[error("start `{program}`: the interpreter that its first line names is not there")]
    NoInterpreter { program: String },
    #[error("start `{program}`: {source}")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("the pipes of `{program}` are missing")]
    Pipes { program: String },
}

impl SpawnError {
    /// Returns how to fix the error; `None` if it may pass by itself, as on a machine with too many
    /// processes.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Empty => Some("write the program and its arguments in `command`"),
            Self::NotThere { .. } => Some("install the program, or correct `command`"),
            Self::NoDirectory { .. } => Some("create the directory, or correct `cwd`"),
            Self::NoInterpreter { .. } => Some("install the interpreter, or correct the program's first line"),
            Self::Start { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("make the program executable for the user that runs headend")
            }
            Self::Start { source, .. } if source.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
                Some("name a program of this machine, or the interpreter of the script, in `command`")
            }
            Self::Start { .. } | Self::Pipes { .. } => None,
        }
    }

    /// Returns whether no file descriptor was left for the child's pipes.
    pub fn lacks_descriptors(&self) -> bool {
        let source = std::error::Error::source(self).and_then(|source| source.downcast_ref());
        source.is_some_and(lacks_descriptors)
    }
}

/// A program to start, with its environment.
#[derive(Clone, Debug)]
pub struct Launch {
    pub command: Vec<VariableText>,
    /// The program as shown in errors.
    shown: String,
    /// The file of the first word, if it has been resolved.
    pub program: Option<PathBuf>,
    /// The child's `PATH`.
    pub path: Option<OsString>,
    /// Variables inherited from headend's environment.
    pub inherited: InheritedVariables,
    /// Variables that the configuration names or sets.
    pub env: Vec<(String, Secret)>,
    pub cwd: Option<VariableText>,
    /// Values of variables that were inserted into the configuration.
    pub expanded: Vec<(String, Secret)>,
    pub confinement: Confinement,
    /// The mark of this start, by which its processes can be found if nothing else is left to end
    /// them.
    pub mark: Option<String>,
    /// The pipe that the guard holds while the program runs.
    pub lifeline: Option<Arc<Lifeline>>,
    /// The lease under which the program runs; `None` if it needs none.
    pub lease: Option<Arc<ProgramLease>>,
}

/// Variables of headend's own environment.
#[derive(Clone, Default)]
pub struct InheritedVariables(Vec<(OsString, OsString)>);

// Their values may be secret.
impl fmt::Debug for InheritedVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Launch {
    /// Returns the launch of an upstream as it would be started now; `None` for a server behind
    /// HTTP.
    pub fn of(spec: &UpstreamSettings, found: Option<LaunchProgram>, mark: Option<String>) -> Option<Self> {
        let UpstreamTarget::Stdio { command, env, cwd } = spec.target.clone() else { return None };
        let [plain, named] = inherited_variables(spec, &|name| std::env::var_os(name));
        let mut inherited: Vec<(OsString, OsString)> =
            plain.into_iter().map(|(name, value)| (name.into(), value)).collect();
        let mut all = Vec::new();
        for (name, value) in named {
            // Secrets are texts; a value that is no text is passed on as well.
            match value.into_string() {
                Ok(value) => all.push((name, Secret::new(value))),
                Err(value) => inherited.push((name.into(), value)),
            }
        }
        all.extend(env);
        let (inherited, confinement) = (InheritedVariables(inherited), spec.confinement);
        let (program, path) = found.map(|found| (found.program, found.path)).unzip();
        let word = command.first();
        let word = word.filter(|word| program.is_none() || spec.target.hides_program(word));
        let path_of = |program: Option<&PathBuf>| program.map(|path| path.display().to_string()).unwrap_or_default();
        let shown = word.map_or_else(|| path_of(program.as_ref()), |word| word.written().to_owned());
        let (path, expanded) = (path.flatten(), spec.expanded.clone());
        let (lifeline, lease) = (None, None);
        Some(Self {
            command,
            shown,
            program,
            path,
            inherited,
            env: all,
            cwd,
            expanded,
            confinement,
            mark,
            lifeline,
            lease,
        })
    }

    /// Returns whether it runs a container that gets no standard input.
    pub fn lacks_stdin(&self) -> bool {
        let words: Vec<String> = self.command.iter().map(|word| word.written().to_owned()).collect();
        ContainerRun::of(&words).is_some_and(ContainerRun::lacks_stdin)
    }

    /// Creates the launch of another program in the surroundings of an upstream's program; `None`
    /// if no folder of the search path has it.
    pub fn beside(spec: &UpstreamSettings, words: &[&str]) -> Option<Self> {
        let mut spec = spec.clone();
        let UpstreamTarget::Stdio { command, .. } = &mut spec.target else { return None };
        *command = words.iter().map(|word| VariableText::plain((*word).to_owned())).collect();
        Self::of(&spec, Some(find_program(&spec, true)?), None)
    }

    /// Creates the launch of a program that headend itself needs, by its absolute path: it inherits
    /// nothing from headend's environment.
    pub fn bare(command: &[String]) -> Self {
        let shown = command.first().cloned().unwrap_or_default();
        Self {
            program: Some(PathBuf::from(&shown)),
            shown,
            command: command.iter().cloned().map(VariableText::plain).collect(),
            path: None,
            inherited: InheritedVariables::default(),
            env: Vec::new(),
            cwd: None,
            expanded: Vec::new(),
            confinement: Confinement::default(),
            mark: None,
            lifeline: None,
            lease: None,
        }
    }

    /// Returns the first word and the others.
    ///
    /// # Errors
    /// [`SpawnError::Empty`].
    pub fn words(&self) -> Result<(&str, Vec<&str>), SpawnError> {
        let (program, rest) = self.command.split_first().ok_or(SpawnError::Empty)?;
        Ok((program.expose(), rest.iter().map(VariableText::expose).collect()))
    }

    /// Returns the first word as it is written.
    pub(super) fn name(&self) -> String {
        self.command.first().map_or_else(String::new, |word| word.written().to_owned())
    }

    /// Returns the directory to start in.
    pub(super) fn directory(&self) -> Option<&Path> {
        self.cwd.as_ref().map(|cwd| Path::new(cwd.expose()))
    }

    /// Returns the file to execute, or the word to look up.
    pub fn file(&self) -> &Path {
        let word = || Path::new(self.command.first().map_or("", VariableText::expose));
        self.program.as_deref().unwrap_or_else(word)
    }

    /// Returns the child's whole environment; later variables replace earlier ones.
    pub(super) fn environment(&self) -> impl Iterator<Item = (OsString, OsString)> {
        let own = |(key, value): &(String, Secret)| (OsStr::new(key).to_owned(), OsStr::new(value.expose()).to_owned());
        let mark = self.mark.as_ref().map(|mark| (MARK.into(), mark.into()));
        let path = self.path.as_ref().map(|path| ("PATH".into(), path.clone()));
        self.inherited.0.iter().cloned().chain(self.env.iter().map(own)).chain(path).chain(mark)
    }

    /// Converts the system's error, after [`Self::look`] has found no file missing.
    pub(super) fn refused(&self, source: io::Error) -> SpawnError {
        let program = self.name();
        if source.kind() == io::ErrorKind::NotFound {
            SpawnError::NoInterpreter { program }
        } else {
            SpawnError::Start { program, source }
        }
    }

    /// Checks the files without which no start succeeds, since the system's error does not name
    /// them.
    pub fn look(&self) -> Result<(), SpawnError> {
        match (&self.program, &self.cwd) {
            (Some(path), _) if !path.exists() => Err(SpawnError::NotThere { path: self.shown.clone() }),
            (_, Some(cwd)) if !Path::new(cwd.expose()).is_dir() => {
                Err(SpawnError::NoDirectory { path: cwd.written().to_owned() })
            }
            _ => Ok(()),
        }
    }
}
