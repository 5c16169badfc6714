//! The settings of the log.

use crate::keys::{keys, read_value, shown_value};

keys! {
    /// The `[log]` table. Command line and environment take precedence.
    struct LoggingSettings {
        format: LogFormatSetting as choice = "format", LogFormatSetting::Auto;
    }
    besides {
        /// A level, or `target=level` pairs. The default has the changes that an operator sees, and
        /// nothing of each call.
        filter: String = "info".to_owned();
    }
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub enum LogFormatSetting {
    /// Lines to the journal under systemd, else text.
    Auto,
    Text,
    Json,
}
