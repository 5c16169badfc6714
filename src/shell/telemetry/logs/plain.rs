//! Formats log lines as plain text. Every call logs a line, so these lines skip the slower path
//! that colours need.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::registry::LookupSpan;

/// The formatter of lines like `time LEVEL target: message key=value ...`, with strings in quotes.
pub(super) struct PlainFormat;

impl<S, N> FormatEvent<S, N> for PlainFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        SystemTime.format_time(&mut out)?;
        let metadata = event.metadata();
        // Levels have four or five letters.
        let gap = if metadata.level().as_str().len() < 5 { "  " } else { " " };
        for part in [gap, metadata.level().as_str(), " ", metadata.target(), ":"] {
            out.write_str(part)?;
        }
        let mut fields = FieldWriter { out, result: Ok(()) };
        event.record(&mut fields);
        fields.result?;
        fields.out.write_str("\n")
    }
}

/// A visitor that writes the fields of an event and keeps the first error.
struct FieldWriter<'w> {
    out: Writer<'w>,
    result: fmt::Result,
}

impl FieldWriter<'_> {
    /// Writes one field, unless an earlier one has failed.
    fn write(&mut self, field: &Field, value: impl FnOnce(&mut Writer<'_>) -> fmt::Result) {
        if self.result.is_err() {
            return;
        }
        self.result = self.out.write_str(" ");
        if field.name() != "message" {
            self.result = self.result.and_then(|()| self.out.write_str(field.name()));
            self.result = self.result.and_then(|()| self.out.write_str("="));
        }
        self.result = self.result.and_then(|()| value(&mut self.out));
    }
}

impl Visit for FieldWriter<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        let plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\'));
        self.write(field, |out| match plain {
            true if field.name() == "message" => out.write_str(value),
            true => ["\"", value, "\""].iter().try_for_each(|part| out.write_str(part)),
            false => write!(out, "{value:?}"),
        });
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.write(field, |out| write!(out, "{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_has_time_level_target_message_and_fields() {
        let page = Page::default();
        let writer = page.clone();
        let layer = tracing_subscriber::fmt::layer().event_format(PlainFormat).with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(target: "audit", caller = "a\"b", count = 3, error = %"x y", "decision");
        });
        let text = String::from_utf8(page.0.lock().clone()).unwrap();
        let (time, rest) = text.split_once("  ").unwrap();
        assert!(time.ends_with('Z') && time.contains('T'), "{text}");
        assert_eq!(rest, "INFO audit: decision caller=\"a\\\"b\" count=3 error=x y\n");
    }
}
