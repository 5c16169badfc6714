//! Projects definitions and results to the revision that a client speaks, one rule for each row of
//! the table.
//!
//! | value | 2025-11-25 | 2025-06-18 | 2025-03-26 | 2024-11-05 |
//! |---|---|---|---|---|
//! | `icons` | keep | drop | drop | drop |
//! | `title`, `_meta`, `outputSchema`, `structuredContent` | keep | keep | drop | drop |
//! | tool `annotations` | keep | keep | keep | drop |
//! | `outputSchema`, `structuredContent` if no object | wrap in `result` | wrap | drop | drop |
//! | `structuredContent: null`, see below | drop | drop | drop | drop |
//! | `outputSchema` that cannot be wrapped, see [`wrap_schema`] | drop | drop | drop | drop |
//! | `resource_link` content | keep | keep | text | text |
//! | `audio` content | keep | keep | keep | embedded blob |
//! | `resultType`, `ttlMs`, `cacheScope` | strip | strip | strip | strip |
//! | [`SERVER_INFO`] in the `_meta` of a result | strip | strip | strip | strip |
//!
//! A modern client gets a modern result unchanged, with `resultType` added if it is absent.
//! `structuredContent: null` of a legacy server reaches no client: it is an object or absent there.
//! Older clients get it from a modern server only if the tool's `outputSchema` was wrapped.
//! `execution` is dropped for all: headend does not offer the tasks of 2025-11-25 to clients.

use std::borrow::Cow;
use std::sync::LazyLock;

use bytes::{BufMut, BytesMut};
use memchr::memmem::Finder;

use crate::mcp::definition::app::remove_app;
use crate::mcp::meta::SERVER_INFO;
use crate::mcp::method::{ItemList, Method};
use crate::mcp::version::{Era, Revision, RevisionFeatures, StructuredContent};
use crate::wire::json::raw::{RawJson, RawObject, elements};
use crate::wire::json::tokens::{JsonTokens, TokenKind, has_escaped_ascii, unescaped};

mod member;

use self::member::find_member;

/// Members of a result that only the modern era has.
const MODERN_RESULT_MEMBERS: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];
/// The first bytes of nearly every modern result.
const COMPLETE: &[u8] = br#"{"resultType":"complete""#;
/// The type member of nearly every modern result.
const SAYS_SO: &[u8] = br#""resultType":"complete""#;

/// The limit of members for a result that is cut in one pass.
const FEW: usize = 8;

/// Searchers for names of members. Prepared once: preparing a search costs as much as searching
/// most results.
static MODERN: LazyLock<[Finder<'static>; 3]> = LazyLock::new(|| MODERN_RESULT_MEMBERS.map(Finder::new));
static RESULT_TYPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("resultType"));
static SAID_TYPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"resultType\""));
static INFO: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("serverInfo"));
static STRUCTURED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("structuredContent"));

/// Writes a definition for a client of `revision`, under its exposed key. A client that declared
/// `apps` sees the app of a tool and keeps `_meta` in every revision; for any other client, a tool
/// has no app.
pub fn project_definition(list: ItemList, raw: &RawObject, exposed: &str, revision: Revision, apps: bool) -> RawObject {
    let features = revision.features();
    let mut out = raw.clone();
    out.set(list.key(), RawJson::string(exposed));
    out.remove("execution");
    if list == ItemList::Tools {
        if !apps {
            remove_app(&mut out);
        }
        output_schema(&mut out, features.structured);
        if !features.annotations {
            out.remove("annotations");
        } else if !features.titles {
            title_into_annotations(&mut out);
        }
    }
    if !features.icons {
        out.remove("icons");
    }
    if !features.titles {
        out.remove("title");
        if !apps {
            out.remove("_meta");
        }
    }
    out
}

fn output_schema(out: &mut RawObject, structured: StructuredContent) {
    if structured == StructuredContent::None {
        out.remove("outputSchema");
    } else if structured == StructuredContent::Object
        && let Some(schema) = out.get("outputSchema").filter(|schema| !is_object_schema(schema))
    {
        match wrap_schema(schema) {
            Some(wrapped) => out.set("outputSchema", wrapped),
            None => drop(out.remove("outputSchema")),
        }
    }
}

/// Wraps a schema in an object, as the results that it describes are. `None` if the wrapped schema
/// would not describe them: results that may be objects are not wrapped, and a reference to the
/// root would lead to the wrapper. Some clients refuse the whole list for such a reference.
fn wrap_schema(schema: &RawJson) -> Option<RawJson> {
    let mut inner = RawObject::parse(schema).ok()?;
    let kind = inner.get("type")?;
    let kinds = kind.parse::<String>().map(|kind| vec![kind]).or_else(|_| kind.parse::<Vec<String>>()).ok()?;
    if kinds.iter().any(|kind| kind == "object") || inner.get("$id").is_some() || refers_to_root(schema) {
        return None;
    }
    let aside = ["$schema", "$defs", "definitions"].map(|name| (name, inner.remove(name)));
    let has_moved = aside.iter().any(|(_, value)| value.is_some());
    let inner = if has_moved { inner.encode() } else { schema.clone() };
    let mut out = RawObject::default();
    out.set("type", RawJson::trusted("\"object\""));
    out.set("properties", RawJson::trusted(format!(r#"{{"result":{}}}"#, inner.text())));
    out.set("required", RawJson::trusted(r#"["result"]"#));
    for (name, value) in aside {
        if let Some(value) = value {
            out.set(name, value);
        }
    }
    Some(out.encode())
}

/// Reports whether a reference in a schema leads to its root, or to a part of it other than its
/// `$defs` and `definitions`.
fn refers_to_root(schema: &RawJson) -> bool {
    let (mut tokens, mut is_reference) = (JsonTokens::of(schema.bytes()), false);
    while let Some(token) = tokens.next() {
        let literal = tokens.literal(token);
        if token.kind == TokenKind::String && is_reference {
            let target = unescaped(literal).unwrap_or_default();
            let is_aside = ["#/$defs/", "#/definitions/"].iter().any(|place| target.starts_with(place));
            if target.starts_with('#') && !is_aside {
                return true;
            }
        }
        is_reference = token.kind == TokenKind::Key && matches!(literal, b"\"$ref\"" | b"\"$dynamicRef\"");
    }
    false
}

fn is_object_schema(schema: &RawJson) -> bool {
    RawObject::parse(schema).is_ok_and(|schema| schema.string("type").as_deref() == Some("object"))
}

fn title_into_annotations(out: &mut RawObject) {
    let Some(title) = out.get("title").cloned() else { return };
    let annotations = out.object("annotations");
    let mut annotations = annotations.unwrap_or_default();
    if annotations.get("title").is_none() {
        annotations.set("title", title);
        out.set("annotations", annotations.encode());
    }
}

/// Writes an upstream's result for a client of `to`; `from` is the upstream's era. Most results
/// stay untouched.
///
/// `None` for a result with a duplicate key: the client may read the member that is not checked
/// here.
pub fn project_result(method: Method, raw: RawJson, from: Era, to: Revision) -> Option<RawJson> {
    match (from, to.era()) {
        (Era::Modern, Era::Modern) => Some(add_result_type(raw)),
        (Era::Legacy, Era::Modern) => upgrade(method, raw),
        (Era::Legacy | Era::Modern, Era::Legacy) => downgrade(method, raw, from, to),
    }
}

/// Reports whether every reader takes a modern result as final; false if the member is repeated.
/// Rarely parses the result.
pub fn is_complete(raw: &RawJson) -> bool {
    #[derive(serde::Deserialize)]
    struct ResultTypeHead<'a> {
        #[serde(borrow, default, rename = "resultType")]
        result_type: Option<Cow<'a, str>>,
    }
    let text = raw.bytes();
    // If the name occurs once, in plain letters and with this value, the answer is yes at any
    // depth: deeper inside, the member itself is absent.
    let mut said = RESULT_TYPE.find_iter(text);
    let (first, again) = (said.next(), said.next());
    let is_plain = first.is_none_or(|at| at > 0 && text.get(at - 1..).is_some_and(|text| text.starts_with(SAYS_SO)));
    if raw.is_object() && is_plain && again.is_none() && !has_escaped_ascii(text, |c| c.is_ascii_alphabetic()) {
        return true;
    }
    // A repeated member is an error here, in any spelling.
    raw.parse::<ResultTypeHead<'_>>().is_ok_and(|head| head.result_type.is_none_or(|t| t == "complete"))
}

/// Prepends the members that the modern era demands of every result, without parsing the rest.
fn upgrade(method: Method, raw: RawJson) -> Option<RawJson> {
    // A legacy server does not know these members. If it uses the names anyway, they are removed.
    let raw = without_modern_members(raw)?;
    let head: &[u8] = if method == Method::ResourcesRead {
        br#"{"resultType":"complete","ttlMs":0,"cacheScope":"private""#
    } else {
        COMPLETE
    };
    Some(with_head(head, &raw))
}

/// Adds an absent `resultType`, which the protocol reads as complete, so that headend's clients
/// always get it.
///
/// Source: MCP 2026-07-28, basic, "Results".
fn add_result_type(raw: RawJson) -> RawJson {
    // The name deeper in the result may hide that the member is absent; certainty would cost every
    // result a parse.
    if raw.bytes().starts_with(COMPLETE) || SAID_TYPE.find(raw.bytes()).is_some() {
        return raw;
    }
    with_head(COMPLETE, &raw)
}

/// Prepends members to an object's own, without parsing it. `head` is the beginning of an object,
/// such as [`COMPLETE`]: a brace and members, without a comma at the end.
fn with_head(head: &[u8], raw: &RawJson) -> RawJson {
    let body = raw.bytes().get(1..).unwrap_or(b"}");
    let empty = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'}');
    let mut out = BytesMut::with_capacity(head.len() + body.len() + 1);
    out.extend_from_slice(head);
    if !empty {
        out.extend_from_slice(b",");
    }
    out.extend_from_slice(body);
    RawJson::trusted(out.freeze())
}

fn downgrade(method: Method, raw: RawJson, from: Era, to: Revision) -> Option<RawJson> {
    let raw = if from == Era::Modern { cut_modern_members(raw)? } else { raw };
    let features = to.features();
    Some(if method == Method::ToolsCall {
        tool_result(raw, features)
    } else if method == Method::PromptsGet && !features.resource_links {
        prompt_result(&raw, features).unwrap_or(raw)
    } else {
        raw
    })
}

/// Reports whether a text may have a member of the modern era only, in any spelling.
fn may_have_modern_member(text: &[u8]) -> bool {
    MODERN.iter().any(|name| name.find(text).is_some()) || has_escaped_ascii(text, |c| c.is_ascii_alphabetic())
}

/// Cuts out the members that only the modern era has, and the name of the server. `None` for a
/// duplicate key.
fn cut_modern_members(raw: RawJson) -> Option<RawJson> {
    let text = raw.bytes();
    if INFO.find(text).is_some()
        && !has_escaped_ascii(text, |c| c.is_ascii_alphabetic())
        && let Some(rest) = cut_modern_members_and_info(text)
    {
        return Some(RawJson::trusted(rest));
    }
    without_modern_members(without_server_info(raw))
}

/// Cuts the modern members and the server's name out in one pass over a result with few members,
/// each once; `None` for any other result. Every other byte stays.
fn cut_modern_members_and_info(text: &[u8]) -> Option<Vec<u8>> {
    let mut tokens = JsonTokens::of(text);
    if tokens.next()?.kind != TokenKind::Object {
        return None;
    }
    let mut out = Vec::with_capacity(text.len());
    let mut names = [&b""[..]; FEW];
    // The end of the copied text, the end of the last member that stays, and the range of the
    // members since then that go.
    let (mut from, mut kept, mut gone) = (0, tokens.at(), None);
    for n in 0..FEW {
        let key = tokens.next()?;
        let name = tokens.literal(key);
        if key.kind != TokenKind::Key || key.escaped || names.get(..n)?.contains(&name) {
            return None;
        }
        *names.get_mut(n)? = name;
        tokens.peek()?;
        let start = tokens.at();
        tokens.skip_value();
        let end = tokens.at();
        let info = if name == b"\"_meta\"" { find_member(text.get(start..end)?, SERVER_INFO) } else { None };
        let name = name.get(1..name.len() - 1)?;
        if MODERN_RESULT_MEMBERS.iter().any(|modern| name == modern.as_bytes())
            || info.as_ref().is_some_and(|info| info.is_alone)
        {
            let (begin, _) = gone.unwrap_or((key.start, end));
            gone = Some((begin, end));
        } else {
            if let Some((begin, _)) = gone.take() {
                out.extend_from_slice(text.get(from..begin)?);
                from = key.start;
            }
            if let Some(info) = info {
                out.extend_from_slice(text.get(from..start + info.whole.start)?);
                from = start + info.whole.end;
            }
            kept = end;
        }
        match tokens.next()?.kind {
            TokenKind::Comma => {}
            TokenKind::ObjectEnd => {
                if let Some((_, end)) = gone {
                    // The comma after the last member that stays goes too.
                    out.extend_from_slice(text.get(from..kept)?);
                    from = end;
                }
                out.extend_from_slice(text.get(from..)?);
                return Some(out);
            }
            TokenKind::Object
            | TokenKind::Array
            | TokenKind::ArrayEnd
            | TokenKind::Key
            | TokenKind::String
            | TokenKind::Scalar => return None,
        }
    }
    None
}

/// Removes the members that only the modern era has. `None` for a duplicate key: readers could find
/// the member that is not removed.
fn without_modern_members(raw: RawJson) -> Option<RawJson> {
    if !may_have_modern_member(raw.bytes()) {
        return Some(raw);
    }
    // No parse if it is the only such member and comes first.
    if let Some(rest) = raw.bytes().strip_prefix(COMPLETE).and_then(|rest| rest.strip_prefix(b","))
        && !may_have_modern_member(rest)
    {
        let mut out = BytesMut::with_capacity(rest.len() + 1);
        out.put_u8(b'{');
        out.put_slice(rest);
        return Some(RawJson::trusted(out.freeze()));
    }
    let mut object = RawObject::parse(&raw).ok()?;
    let removed = MODERN_RESULT_MEMBERS.iter().filter(|name| object.remove(name).is_some()).count();
    Some(if removed > 0 { object.encode() } else { raw })
}

/// Cuts the name of the server out of `_meta`, and a `_meta` that has nothing else. Every other
/// byte stays.
fn without_server_info(raw: RawJson) -> RawJson {
    let text = raw.bytes();
    if INFO.find(text).is_none() && !has_escaped_ascii(text, |c| c.is_ascii_alphabetic()) {
        return raw;
    }
    let cut = || {
        let meta = find_member(text, "_meta")?;
        let info = find_member(text.get(meta.value.clone())?, SERVER_INFO)?;
        let at = meta.value.start;
        Some(if info.is_alone { meta.whole } else { info.whole.start + at..info.whole.end + at })
    };
    let Some(cut) = cut() else { return raw };
    let [before, after] = [text.get(..cut.start), text.get(cut.end..)].map(Option::unwrap_or_default);
    let mut out = BytesMut::with_capacity(before.len() + after.len());
    out.put_slice(before);
    out.put_slice(after);
    RawJson::trusted(out.freeze())
}

/// Cuts `structuredContent: null` out of a tool's result; `None` if it has none. Every other byte
/// stays.
pub fn without_null_content(raw: &RawJson) -> Option<RawJson> {
    let text = raw.bytes();
    if STRUCTURED.find(text).is_none() && !has_escaped_ascii(text, |c| c.is_ascii_alphabetic()) {
        return None;
    }
    let content = find_member(text, "structuredContent")?;
    if text.get(content.value)? != b"null" {
        return None;
    }
    let (before, after) = (text.get(..content.whole.start)?, text.get(content.whole.end..)?);
    Some(RawJson::trusted([before, after].concat()))
}

/// Reports whether results of a tool are wrapped in an object for clients of older revisions,
/// because its `outputSchema` is.
pub fn wraps_results(definition: &RawObject) -> bool {
    let schema = definition.get("outputSchema").filter(|schema| !is_object_schema(schema));
    schema.and_then(wrap_schema).is_some()
}

fn tool_result(raw: RawJson, to: &RevisionFeatures) -> RawJson {
    let structured = STRUCTURED.find(raw.bytes()).is_some();
    if !structured && to.resource_links {
        return raw;
    }
    let Ok(mut object) = RawObject::parse(&raw) else { return raw };
    let mut changed = false;
    if let Some(value) = object.get("structuredContent").cloned() {
        if to.structured == StructuredContent::None {
            object.remove("structuredContent");
            add_text_twin(&mut object, &value);
            changed = true;
        } else if to.structured == StructuredContent::Object && !value.is_object() {
            let wrapped = format!(r#"{{"result":{}}}"#, value.text());
            object.set("structuredContent", RawJson::trusted(wrapped));
            add_text_twin(&mut object, &value);
            changed = true;
        }
    }
    if !to.resource_links
        && let Some(content) = object.get("content").and_then(|content| blocks(content, to))
    {
        object.set("content", content);
        changed = true;
    }
    if changed { object.encode() } else { raw }
}

/// Adds a text block: older clients read only text, and the server sent only structured content.
fn add_text_twin(object: &mut RawObject, value: &RawJson) {
    let content = object.list("content").unwrap_or_default();
    let is_text =
        |block: &RawJson| RawObject::parse(block).is_ok_and(|block| block.string("type").as_deref() == Some("text"));
    if content.iter().any(is_text) {
        return;
    }
    let twin = format!(r#"{{"type":"text","text":{}}}"#, RawJson::string(&value.text()).text());
    object.set("content", RawJson::list(content.into_iter().chain([RawJson::trusted(twin)])));
}

/// Rewrites content blocks of types that a revision does not have; `None` if nothing changes.
fn blocks(content: &RawJson, to: &RevisionFeatures) -> Option<RawJson> {
    let old = elements(content).ok()?;
    let new: Vec<RawJson> = old.iter().map(|raw| block(raw, to)).collect();
    if new == old {
        return None;
    }
    Some(RawJson::list(new))
}

fn block(raw: &RawJson, to: &RevisionFeatures) -> RawJson {
    let Ok(object) = RawObject::parse(raw) else { return raw.clone() };
    match object.string("type").as_deref() {
        Some("resource_link") if !to.resource_links => {
            let name = object.string("name").unwrap_or_default();
            let uri = object.string("uri").unwrap_or_default();
            let text = RawJson::string(&format!("{name}: {uri}"));
            RawJson::trusted(format!(r#"{{"type":"text","text":{}}}"#, text.text()))
        }
        Some("audio") if !to.audio => {
            let mime = object.get("mimeType").map_or(Cow::Borrowed("\"audio/wav\""), RawJson::text);
            let data = object.get("data").map_or(Cow::Borrowed("\"\""), RawJson::text);
            RawJson::trusted(format!(
                r#"{{"type":"resource","resource":{{"uri":"data:audio","mimeType":{mime},"blob":{data}}}}}"#
            ))
        }
        _ => raw.clone(),
    }
}

fn prompt_result(raw: &RawJson, to: &RevisionFeatures) -> Option<RawJson> {
    let mut object = RawObject::parse(raw).ok()?;
    let messages = object.list("messages")?;
    let mut changed = false;
    let mut parts = Vec::with_capacity(messages.len());
    for message in messages {
        let mut message = RawObject::parse(&message).ok()?;
        if let Some(content) = message.get("content").cloned() {
            let projected = block(&content, to);
            changed |= projected != content;
            message.set("content", projected);
        }
        parts.push(message.encode());
    }
    object.set("messages", RawJson::list(parts));
    changed.then(|| object.encode())
}

#[cfg(test)]
mod tests;
