//! The demo server `notes`: notes in memory, offered as tools, resources and a prompt.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value, json};

use super::server::{Demo, DemoCall, DemoRefusal};

/// Most notes in memory.
const MAX_NOTES: usize = 1000;
/// Longest note, in bytes.
const MAX_BYTES: usize = 16 << 10;
/// Most values in one completion. Source: MCP server/utilities/completion.
const MAX_VALUES: usize = 100;

#[derive(Debug)]
struct Note {
    title: String,
    text: String,
}

/// The notes by number, and the number of the next one.
#[derive(Debug)]
struct NoteTable {
    notes: BTreeMap<u64, Note>,
    next: u64,
}

/// The server `notes`.
pub(super) struct NotesDemo(Mutex<NoteTable>);

impl Default for NotesDemo {
    fn default() -> Self {
        let welcome = Note {
            title: "Welcome".to_owned(),
            text: "This note lives in a demo server of headend, and in memory only.".to_owned(),
        };
        Self(Mutex::new(NoteTable { notes: BTreeMap::from([(1, welcome)]), next: 2 }))
    }
}

impl NotesDemo {
    fn shelf(&self) -> MutexGuard<'_, NoteTable> {
        self.0.lock()
    }

    /// Adds a note and announces the change.
    fn add(&self, title: &str, text: &str, call: &DemoCall) -> Result<String, String> {
        if title.trim().is_empty() || title.len() + text.len() > MAX_BYTES {
            return Err(format!("A note needs a title, and title and text together at most {MAX_BYTES} bytes."));
        }
        let mut shelf = self.shelf();
        if shelf.notes.len() >= MAX_NOTES {
            return Err("There is no room for another note; delete one first.".to_owned());
        }
        let id = shelf.next;
        shelf.next += 1;
        shelf.notes.insert(id, Note { title: title.to_owned(), text: text.to_owned() });
        drop(shelf);
        call.resources_changed();
        Ok(format!("Added note://{id}."))
    }

    fn search(&self, query: &str) -> String {
        let query = query.to_lowercase();
        let hit = |note: &Note| note.title.to_lowercase().contains(&query) || note.text.to_lowercase().contains(&query);
        let shelf = self.shelf();
        let found: Vec<String> = shelf
            .notes
            .iter()
            .filter(|(_, note)| hit(note))
            .map(|(id, note)| format!("note://{id} {}", note.title))
            .collect();
        if found.is_empty() { "No note contains this.".to_owned() } else { found.join("\n") }
    }

    /// Deletes a note and announces the change.
    fn delete(&self, id: u64, call: &DemoCall) -> Result<String, String> {
        let gone = self.shelf().notes.remove(&id);
        let note = gone.ok_or_else(|| format!("There is no note {id}."))?;
        call.resources_changed();
        Ok(format!("Deleted note://{id} {}.", note.title))
    }
}

impl Demo for NotesDemo {
    fn name(&self) -> &'static str {
        "notes"
    }

    fn tools(&self) -> Value {
        let text = |description: &str| json!({"type": "string", "description": description});
        json!([
            {
                "name": "add",
                "description": "Adds a note.",
                "inputSchema": {
                    "type": "object",
                    "properties": {"title": text("What the note is about."), "text": text("The note.")},
                    "required": ["title", "text"],
                    "additionalProperties": false,
                },
                "annotations": {"readOnlyHint": false, "destructiveHint": false, "openWorldHint": false},
            },
            {
                "name": "search",
                "description": "Lists the notes that contain a text; all notes for an empty one.",
                "inputSchema": {
                    "type": "object",
                    "properties": {"query": text("The text to look for, in any case.")},
                    "required": ["query"],
                    "additionalProperties": false,
                },
                "annotations": {"readOnlyHint": true, "openWorldHint": false},
            },
            {
                "name": "delete",
                "description": "Deletes a note for good.",
                "inputSchema": {
                    "type": "object",
                    "properties": {"id": {"type": "integer", "minimum": 1, "description": "The number in note://NUMBER."}},
                    "required": ["id"],
                    "additionalProperties": false,
                },
                "annotations": {"readOnlyHint": false, "destructiveHint": true, "openWorldHint": false},
            },
        ])
    }

    fn call(&self, tool: &str, arguments: &Map<String, Value>, call: &DemoCall) -> Option<Result<String, String>> {
        let text = |name: &str| {
            arguments.get(name).and_then(Value::as_str).ok_or_else(|| format!("`{name}` must be a string."))
        };
        Some(match tool {
            "add" => text("title").and_then(|title| self.add(title, text("text")?, call)),
            "search" => text("query").map(|query| self.search(query)),
            "delete" => {
                let id = arguments.get("id").and_then(Value::as_u64).ok_or_else(|| "`id` must be a number.".to_owned());
                id.and_then(|id| self.delete(id, call))
            }
            _ => return None,
        })
    }

    fn prompts(&self) -> Option<Value> {
        Some(json!([{
            "name": "summarise",
            "description": "Asks for a summary of one note.",
            "arguments": [{"name": "id", "description": "The number in note://NUMBER.", "required": true}],
        }]))
    }

    fn prompt(&self, name: &str, arguments: &Map<String, Value>) -> Result<Value, DemoRefusal> {
        if name != "summarise" {
            return Err(DemoRefusal::params(format!("Unknown prompt: {name}")));
        }
        let id = arguments.get("id").and_then(Value::as_str).and_then(|id| id.parse().ok());
        let shelf = self.shelf();
        let note = id.and_then(|id: u64| shelf.notes.get(&id));
        let note = note.ok_or_else(|| DemoRefusal::params("`id` must be the number of a note"))?;
        let text = format!("Summarise this note in one sentence.\n\n{}\n\n{}", note.title, note.text);
        Ok(json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}))
    }

    fn complete(&self, so_far: &str) -> Vec<String> {
        let shelf = self.shelf();
        shelf.notes.keys().map(u64::to_string).filter(|id| id.starts_with(so_far)).take(MAX_VALUES).collect()
    }

    fn resources(&self) -> Option<Value> {
        let shelf = self.shelf();
        let resources = shelf.notes.iter().map(|(id, note)| {
            json!({"uri": format!("note://{id}"), "name": note.title, "mimeType": "text/plain", "size": note.text.len()})
        });
        Some(resources.collect())
    }

    fn templates(&self) -> Value {
        json!([{"uriTemplate": "note://{id}", "name": "note", "description": "One note.", "mimeType": "text/plain"}])
    }

    fn read(&self, uri: &str) -> Option<String> {
        let id: u64 = uri.strip_prefix("note://")?.parse().ok()?;
        self.shelf().notes.get(&id).map(|note| note.text.clone())
    }
}
