//! Options that several commands share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Options that several commands share.
#[derive(Clone, Debug, Default, Args)]
pub(in crate::cli) struct CommonOptions {
    /// The configuration file.
    #[arg(long, value_name = "PATH", env = "HEADEND_CONFIG", global = true)]
    pub(in crate::cli) config: Option<PathBuf>,
    /// The daemon's admin socket; no other one is looked for then.
    #[arg(long, value_name = "PATH", env = "HEADEND_SOCKET", global = true)]
    pub(in crate::cli) socket: Option<PathBuf>,
    /// Log filter: a level, or `target=level` pairs. Logs go to stderr. [default: info]
    #[arg(long, value_name = "FILTER", env = "HEADEND_LOG", global = true)]
    pub(in crate::cli) log: Option<String>,
    /// Log format. [default: auto]
    #[arg(long, value_name = "FORMAT", env = "HEADEND_LOG_FORMAT", global = true, value_enum)]
    pub(in crate::cli) log_format: Option<LogFormatOption>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum LogFormatOption {
    /// To the journal under systemd, else text.
    Auto,
    Text,
    Json,
}
