//! The demo server `lab`: tools that show how the gateway handles slow, failing and large calls.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::server::{Demo, DemoCall};

/// The server `lab`.
pub(super) struct LabDemo;

/// The longest wait, in milliseconds.
const MAX_WAIT_MS: u64 = 600_000;
/// The largest answer, in KiB.
const MAX_KIB: u64 = 8 << 10;

impl Demo for LabDemo {
    fn name(&self) -> &'static str {
        "lab"
    }

    fn tools(&self) -> Value {
        let whole = |description: &str, default: u64, maximum: u64| json!({"type": "integer", "minimum": 0, "maximum": maximum, "default": default, "description": description});
        let schema =
            |properties: Value| json!({"type": "object", "properties": properties, "additionalProperties": false});
        let read_only = json!({"readOnlyHint": true, "openWorldHint": false});
        json!([
            {
                "name": "echo",
                "description": "Returns the given text.",
                "inputSchema": schema(json!({"text": {"type": "string", "description": "Any text."}})),
                "annotations": read_only,
            },
            {
                "name": "countdown",
                "description": "Counts down and reports its progress.",
                "inputSchema": schema(json!({
                    "steps": whole("How many steps.", 5, 1000),
                    "delay_ms": whole("Milliseconds before each step.", 200, 10_000),
                })),
                "annotations": read_only,
            },
            {
                "name": "slow",
                "description": "Answers late.",
                "inputSchema": schema(json!({"ms": whole("Milliseconds to wait.", 2000, MAX_WAIT_MS)})),
                "annotations": read_only,
            },
            {
                "name": "fail",
                "description": "Fails with an error result.",
                "inputSchema": schema(json!({"message": {"type": "string", "description": "Text of the error."}})),
                "annotations": read_only,
            },
            {
                "name": "big",
                "description": "Returns a long text.",
                "inputSchema": schema(json!({"kib": whole("Length in KiB.", 64, MAX_KIB)})),
                "annotations": read_only,
            },
        ])
    }

    fn call(&self, tool: &str, arguments: &Map<String, Value>, call: &DemoCall) -> Option<Result<String, String>> {
        let text =
            |name: &str, default: &str| arguments.get(name).and_then(Value::as_str).unwrap_or(default).to_owned();
        let whole = |name: &str, default: u64, maximum: u64| match arguments.get(name) {
            None => Ok(default),
            Some(value) => value
                .as_u64()
                .filter(|value| *value <= maximum)
                .ok_or_else(|| format!("`{name}` must be a whole number up to {maximum}.")),
        };
        Some(match tool {
            "echo" => Ok(text("text", "")),
            "countdown" => {
                whole("steps", 5, 1000).and_then(|steps| Ok(countdown(call, steps, whole("delay_ms", 200, 10_000)?)))
            }
            "slow" => whole("ms", 2000, MAX_WAIT_MS).map(|ms| {
                call.wait(Duration::from_millis(ms));
                format!("Waited {ms} ms.")
            }),
            "fail" => Err(text("message", "This tool always fails.")),
            "big" => {
                whole("kib", 64, MAX_KIB).map(|kib| "0123456789abcde\n".repeat(usize::try_from(kib * 64).unwrap_or(0)))
            }
            _ => return None,
        })
    }
}

/// Counts down with progress notifications. Returns early if the call is cancelled.
fn countdown(call: &DemoCall, steps: u64, delay_ms: u64) -> String {
    for step in 1..=steps {
        if !call.wait(Duration::from_millis(delay_ms)) {
            return "Cancelled.".to_owned();
        }
        call.progress(step, steps, &format!("{} to go", steps - step));
    }
    "Lift-off.".to_owned()
}
