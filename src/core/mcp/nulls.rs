//! Removes optional members that a server wrote as `null`. No revision of the protocol allows that,
//! they mean that the member is absent, and strict clients refuse the whole message for one. Every
//! other value keeps its bytes.
//!
//! Definitions have tables of their own, see [`crate::mcp::definition::item`]. Values that a caller
//! or a tool defines (`structuredContent`, arguments, vendor members of `_meta`) are not searched,
//! and neither are members whose `null` has a meaning (`ttl` of a task).

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::mcp::method::Method;
use crate::wire::json::raw::{RawJson, RawObject, elements};

/// The optional members of an object, and its members that are objects or lists of objects.
struct OptionalMembers {
    optional: &'static [&'static str],
    parts: &'static [(&'static str, &'static Self)],
    /// Required lists; some languages write an empty one as `null`.
    lists: &'static [&'static str],
}

/// Creates a shape without required lists.
const fn of(
    optional: &'static [&'static str],
    parts: &'static [(&'static str, &'static OptionalMembers)],
) -> OptionalMembers {
    OptionalMembers { optional, parts, lists: &[] }
}

const ANNOTATIONS: OptionalMembers = of(&["audience", "priority", "lastModified"], &[]);
const ICON: OptionalMembers = of(&["mimeType", "sizes", "theme"], &[]);
const CONTENTS: OptionalMembers = of(&["mimeType", "text", "blob", "_meta"], &[]);
const IN_BLOCK: &[&str] =
    &["annotations", "_meta", "mimeType", "title", "description", "size", "icons", "isError", "structuredContent"];
const INNER_BLOCK: OptionalMembers =
    of(IN_BLOCK, &[("annotations", &ANNOTATIONS), ("icons", &ICON), ("resource", &CONTENTS)]);
/// A block of content. The blocks of a tool's result in a message of a model hold no further ones.
const BLOCK: OptionalMembers = of(
    IN_BLOCK,
    &[("annotations", &ANNOTATIONS), ("icons", &ICON), ("resource", &CONTENTS), ("content", &INNER_BLOCK)],
);
const MESSAGE: OptionalMembers = of(&["_meta"], &[("content", &BLOCK)]);

const TOOL_RESULT: OptionalMembers = OptionalMembers {
    optional: &["isError", "_meta", "resultType"],
    parts: &[("content", &BLOCK)],
    lists: &["content"],
};
const PROMPT_RESULT: OptionalMembers = OptionalMembers {
    optional: &["description", "_meta", "resultType"],
    parts: &[("messages", &MESSAGE)],
    lists: &["messages"],
};
const READ_RESULT: OptionalMembers =
    OptionalMembers { optional: &["_meta", "resultType"], parts: &[("contents", &CONTENTS)], lists: &["contents"] };
const COMPLETION: OptionalMembers = OptionalMembers { optional: &["total", "hasMore"], parts: &[], lists: &["values"] };
const COMPLETE_RESULT: OptionalMembers = of(&["_meta", "resultType"], &[("completion", &COMPLETION)]);

const CHOICE: OptionalMembers = of(&["title", "type"], &[]);
const ITEMS: OptionalMembers = of(&["type", "enum", "oneOf", "anyOf"], &[("oneOf", &CHOICE), ("anyOf", &CHOICE)]);
/// A field of a form; its `default` may be `null`.
const FIELD: OptionalMembers = of(
    &[
        "title",
        "description",
        "format",
        "minLength",
        "maxLength",
        "pattern",
        "minimum",
        "maximum",
        "minItems",
        "maxItems",
        "enum",
        "enumNames",
        "oneOf",
        "anyOf",
        "items",
    ],
    &[("items", &ITEMS), ("oneOf", &CHOICE), ("anyOf", &CHOICE)],
);
const FORM: OptionalMembers = of(&["$schema", "required", "title", "description"], &[("properties", &EACH_FIELD)]);
/// An object whose members are fields.
const EACH_FIELD: OptionalMembers = of(&[], &[(EACH, &FIELD)]);
/// Stands for every member of an object.
const EACH: &str = "*";

const ELICITATION: OptionalMembers = of(&["mode", "elicitationId", "_meta"], &[("requestedSchema", &FORM)]);
const HINT: OptionalMembers = of(&["name"], &[]);
const PREFERENCES: OptionalMembers =
    of(&["hints", "costPriority", "speedPriority", "intelligencePriority"], &[("hints", &HINT)]);
const CHOSEN: OptionalMembers = of(&["mode"], &[]);
const SAMPLING: OptionalMembers = of(
    &[
        "modelPreferences",
        "systemPrompt",
        "includeContext",
        "temperature",
        "stopSequences",
        "metadata",
        "tools",
        "toolChoice",
        "_meta",
    ],
    &[("messages", &MESSAGE), ("modelPreferences", &PREFERENCES), ("toolChoice", &CHOSEN)],
);
const ROOTS: OptionalMembers = of(&["_meta"], &[]);
const PROGRESS: OptionalMembers = of(&["total", "message", "_meta"], &[]);
const LOG: OptionalMembers = of(&["logger", "_meta"], &[]);
const NOTICE: OptionalMembers = of(&["reason", "_meta"], &[]);

/// Returns the result of a call without its `null` members; `None` if nothing changes.
pub fn remove_nulls_of_result(method: Method, result: &RawJson) -> Option<RawJson> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "results of other methods are not passed on")]
    let shape = match method {
        Method::ToolsCall => &TOOL_RESULT,
        Method::PromptsGet => &PROMPT_RESULT,
        Method::ResourcesRead => &READ_RESULT,
        Method::Complete => &COMPLETE_RESULT,
        _ => return None,
    };
    remove_nulls(shape, result)
}

/// Returns the `params` of a server's request or notification without its `null` members; `None` if
/// nothing changes.
pub fn remove_nulls_of_params(method: &str, params: &RawJson) -> Option<RawJson> {
    let shape = match method {
        "elicitation/create" => &ELICITATION,
        "sampling/createMessage" => &SAMPLING,
        "roots/list" => &ROOTS,
        "notifications/progress" => &PROGRESS,
        "notifications/message" => &LOG,
        _ if method.starts_with("notifications/") => &NOTICE,
        _ => return None,
    };
    remove_nulls(shape, params)
}

/// Returns an `input_required` result without its `null` members; `None` if nothing changes, and
/// for any other result.
pub fn remove_nulls_of_questions(result: &RawJson) -> Option<RawJson> {
    static ASKS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"input_required\""));
    if ASKS.find(result.bytes()).is_none() || !has_null(result) {
        return None;
    }
    let mut object = RawObject::parse(result).ok()?;
    if object.string("resultType").as_deref() != Some("input_required") {
        return None;
    }
    let mut is_changed = drop_nulls(&mut object, &["inputRequests", "requestState", "_meta"]);
    if let Some(mut requests) = object.object("inputRequests") {
        let mut are_changed = false;
        let each = requests.try_map(|request| {
            let new = question(request);
            are_changed |= new.is_some();
            Ok::<_, ()>(new.unwrap_or_else(|| request.clone()))
        });
        if each.is_ok() && are_changed {
            object.set("inputRequests", requests.encode());
            is_changed = true;
        }
    }
    is_changed.then(|| object.encode())
}

/// Returns one request for input without its `null` members; `None` if nothing changes.
fn question(request: &RawJson) -> Option<RawJson> {
    let mut object = RawObject::parse(request).ok()?;
    let mut is_changed = drop_nulls(&mut object, &["params"]);
    if let (Some(method), Some(params)) = (object.string("method"), object.get("params"))
        && let Some(params) = remove_nulls_of_params(&method, params)
    {
        object.set("params", params);
        is_changed = true;
    }
    is_changed.then(|| object.encode())
}

/// Searches for `null`: the only cost for most messages.
fn has_null(text: &RawJson) -> bool {
    // Prepared once: preparing a search costs as much as searching most messages.
    static NULL: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("null"));
    NULL.find(text.bytes()).is_some()
}

/// Returns an object, or a list of objects, of this shape without its `null` members; `None` if
/// nothing changes.
fn remove_nulls(shape: &OptionalMembers, value: &RawJson) -> Option<RawJson> {
    if !has_null(value) {
        return None;
    }
    if value.bytes().first() == Some(&b'[') {
        let mut is_changed = false;
        let each = |element: RawJson| match remove_nulls(shape, &element) {
            Some(new) => {
                is_changed = true;
                new
            }
            None => element,
        };
        let all: Vec<RawJson> = elements(value).ok()?.into_iter().map(each).collect();
        return is_changed.then(|| RawJson::list(all));
    }
    // An object with a duplicate key stays as it is: readers differ on which member counts.
    let mut object = RawObject::parse(value).ok()?;
    let mut is_changed = drop_nulls(&mut object, shape.optional);
    for name in shape.lists {
        if object.get(name).is_some_and(RawJson::is_null) {
            object.set(name, RawJson::trusted("[]"));
            is_changed = true;
        }
    }
    for (name, part) in shape.parts {
        if *name == EACH {
            let each = object.try_map(|member| {
                let new = remove_nulls(part, member);
                is_changed |= new.is_some();
                Ok::<_, ()>(new.unwrap_or_else(|| member.clone()))
            });
            each.ok()?;
        } else if let Some(new) = object.get(name).and_then(|member| remove_nulls(part, member)) {
            object.set(name, new);
            is_changed = true;
        }
    }
    is_changed.then(|| object.encode())
}

/// Removes the members with these names that are `null`; returns whether there was one.
pub(crate) fn drop_nulls(object: &mut RawObject, names: &[&str]) -> bool {
    // Nearly every object has none, and then no name is compared.
    if !object.has_null_member() {
        return false;
    }
    let mut is_changed = false;
    for name in names {
        if object.get(name).is_some_and(RawJson::is_null) {
            object.remove(name);
            is_changed = true;
        }
    }
    is_changed
}

#[cfg(test)]
pub(crate) mod schema;
#[cfg(test)]
mod tests;
