//! The demo server `time`: tells the time and converts between UTC offsets.

use serde_json::{Map, Value, json};
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

use super::server::{Demo, DemoCall};

/// The server `time`.
pub(super) struct TimeDemo;

impl Demo for TimeDemo {
    fn name(&self) -> &'static str {
        "time"
    }

    fn tools(&self) -> Value {
        let offset = json!({"type": "string", "description": "An offset from UTC such as +02:00; UTC when left out."});
        json!([
            {
                "name": "now",
                "description": "The current date and time.",
                "inputSchema": {"type": "object", "properties": {"offset": offset}, "additionalProperties": false},
                "annotations": {"readOnlyHint": true, "openWorldHint": false},
            },
            {
                "name": "convert",
                "description": "The same moment at another offset from UTC.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "time": {"type": "string", "description": "A moment as in RFC 3339, such as 2026-07-28T12:00:00Z."},
                        "offset": offset,
                    },
                    "required": ["time"],
                    "additionalProperties": false,
                },
                "annotations": {"readOnlyHint": true, "idempotentHint": true, "openWorldHint": false},
            },
        ])
    }

    fn call(&self, tool: &str, arguments: &Map<String, Value>, _call: &DemoCall) -> Option<Result<String, String>> {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        let moment = match tool {
            "now" => Ok(OffsetDateTime::now_utc()),
            "convert" => OffsetDateTime::parse(text("time").unwrap_or_default(), &Rfc3339)
                .map_err(|_| "`time` must be a moment as in RFC 3339, such as 2026-07-28T12:00:00Z.".to_owned()),
            _ => return None,
        };
        let offset = match arguments.get("offset") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err("`offset` must be a string such as +02:00.".to_owned()),
        };
        Some(moment.and_then(|moment| at(moment, offset?)))
    }
}

/// Formats a moment at an offset such as `+02:00`, without fractions of a second.
fn at(moment: OffsetDateTime, offset: Option<&str>) -> Result<String, String> {
    let minutes = format_description!("[offset_hour sign:mandatory]:[offset_minute]");
    let offset = match offset {
        None | Some("Z") => UtcOffset::UTC,
        Some(text) => UtcOffset::parse(text, minutes).map_err(|_| "`offset` must look like +02:00.".to_owned())?,
    };
    let moment = moment.checked_to_offset(offset).ok_or("that moment is out of range")?;
    let moment = moment.replace_nanosecond(0).unwrap_or(moment);
    moment.format(&Rfc3339).map_err(|_| "that moment is out of range".to_owned())
}
