//! Definitions of tools, prompts, resources and templates, read shallowly: the key and the few fields that are acted on.

use crate::mcp::method::List;
use crate::wire::digest::Digest;
use crate::wire::headers::ParamHeaders;
use crate::wire::raw::{RawJson, RawObject, elements};

mod hygiene;

/// Largest definition that is offered on, in bytes: a 16 KiB description and a 256 KiB schema fit twice.
const MAX_DEFINITION_BYTES: usize = 512 * 1024;

/// One item as its upstream defines it.
#[derive(Clone)]
pub(crate) struct Definition {
    pub(crate) list: List,
    /// What the upstream calls it: name, URI or URI template.
    pub(crate) key: String,
    pub(crate) raw: RawObject,
    /// Of all that clients could see of it. Pins and consents are bound to it.
    pub(crate) digest: Digest,
    /// The arguments that an HTTP request of 2026-07-28 repeats in headers; tools only.
    pub(crate) headers: ParamHeaders,
    /// Its server shows it only to clients that can be asked for input.
    pub(crate) needs_input: bool,
    /// The header annotations break the rules; an HTTP upstream's tool must then be dropped.
    pub(crate) bad_headers: bool,
}

/// One page of a list.
pub(crate) struct ListPage {
    pub(crate) items: Vec<Definition>,
    /// The cursor of the next page, opaque; the empty string is a cursor too.
    pub(crate) next: Option<String>,
    /// Items that could not be read, with the reason, for the operator.
    pub(crate) skipped: Vec<String>,
    /// Bytes of the page, to bound what a list may hold.
    pub(crate) bytes: usize,
}

impl ListPage {
    /// Reads the result of a list request. One bad item costs that item, not the page.
    ///
    /// # Errors
    /// When the result has no array of definitions.
    pub(crate) fn read(list: List, result: &RawJson) -> Result<Self, serde_json::Error> {
        let object = RawObject::parse(result)?;
        let Some(array) = object.get(list.member()) else {
            return Err(serde::de::Error::custom(format!("no `{}` in the result", list.member())));
        };
        let mut page = Self {
            items: Vec::new(),
            next: object.string("nextCursor"),
            skipped: Vec::new(),
            bytes: result.bytes().len(),
        };
        for raw in elements(array)? {
            match Definition::read(list, &raw) {
                Ok(item) => page.items.push(item),
                Err(why) => page.skipped.push(why),
            }
        }
        Ok(page)
    }
}

impl Definition {
    /// Reads one definition.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(crate) fn read(list: List, raw: &RawJson) -> Result<Self, String> {
        if raw.bytes().len() > MAX_DEFINITION_BYTES {
            return Err(format!("a definition of {} bytes (limit {MAX_DEFINITION_BYTES})", raw.bytes().len()));
        }
        let unreadable = |error| format!("a definition that cannot be read: {error}");
        let clean = hygiene::clean(raw).map_err(|why| match RawObject::parse(raw) {
            Ok(object) => format!("`{}`: {why}", object.string(list.key()).unwrap_or_default().escape_default()),
            Err(error) => unreadable(error),
        })?;
        let mut object = RawObject::parse(&clean).map_err(unreadable)?;
        let key = object.string(list.key()).ok_or_else(|| format!("a definition without `{}`", list.key()))?;
        hygiene::drop_unsafe_icons(&mut object);
        let schema = object.get("inputSchema").filter(|_| list == List::Tools);
        let headers = schema.map_or_else(|| Ok(ParamHeaders::default()), |s| ParamHeaders::from_schema(&s.text()));
        let bad_headers = headers.is_err();
        let digest = Digest::of_json(&object.encode());
        Ok(Self {
            list,
            key,
            raw: object,
            digest,
            headers: headers.unwrap_or_default(),
            needs_input: false,
            bad_headers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_definition_costs_itself_alone() {
        let text =
            r#"{"tools":[{"name":"a"},{"title":"nameless"},7,{"name":"b","name":"c"},{"name":"d"}],"nextCursor":""}"#;
        let page = ListPage::read(List::Tools, &RawJson::trusted(text)).unwrap();
        assert_eq!(page.items.iter().map(|i| i.key.as_str()).collect::<Vec<_>>(), ["a", "d"]);
        assert_eq!(page.skipped.len(), 3);
        assert_eq!(page.next.as_deref(), Some(""));
        assert!(ListPage::read(List::Tools, &RawJson::trusted("{}")).is_err());
    }
}
