//! Definitions of tools, prompts, resources and templates. Reads only the key and the few members
//! that the gateway acts on; cleans and repairs the rest.

use std::borrow::Cow;

use crate::mcp::asking::kinds::Audience;
use crate::mcp::method::ItemList;
use crate::wire::canonical::canonicalize;
use crate::wire::digest::Digest;
use crate::wire::foreign;
use crate::wire::headers::ParamHeaders;
use crate::wire::json::raw::{RawJson, RawObject, elements};
use crate::wire::json::tokens::visit_strings;
use crate::wire::quirk::Quirk;

mod hygiene;
mod order;
mod repair;

/// The largest definition that is offered to clients, in bytes: a 16 KiB description and a 256 KiB
/// schema fit twice.
const MAX_DEFINITION_BYTES: usize = 512 * 1024;

/// An item as its upstream defines it, cleaned and repaired.
#[derive(Clone)]
pub struct Definition {
    pub list: ItemList,
    /// The upstream's identifier of it: name, URI or URI template.
    pub key: String,
    pub raw: RawObject,
    /// The digest of everything that clients could see, independent of the order that means
    /// nothing. Pins and grants are bound to it.
    pub digest: Digest,
    /// The digest of everything that clients could see, order included.
    pub exact: Digest,
    /// The arguments that an HTTP request of 2026-07-28 repeats in headers; tools only.
    pub headers: ParamHeaders,
    /// The clients to which the server shows the item.
    pub audience: Audience,
    /// True if the header annotations break the rules; an HTTP upstream's tool must then be
    /// dropped.
    pub(crate) bad_headers: bool,
    /// True if some string other than a title or a description has hidden characters. Such a string
    /// cannot be cleaned without changing its meaning.
    pub hides: bool,
    /// The repairs after which strict clients accept it, described for the operator.
    pub repairs: Vec<String>,
    /// The reason why no client may see it, for the operator: strict clients would refuse the whole
    /// list.
    pub fault: Option<&'static str>,
}

impl std::fmt::Debug for Definition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.key)
    }
}

/// A page of a list.
pub(crate) struct ListPage {
    pub items: Vec<Definition>,
    /// The cursor of the next page, opaque; the empty string is a cursor too.
    pub next: Option<String>,
    /// True if `nextCursor` is present but no cursor, so that the rest of the list cannot be
    /// requested.
    pub has_bad_cursor: bool,
    /// The ways in which the page broke the protocol and was read even so.
    pub quirks: Vec<Quirk>,
    /// The reasons why items could not be read, for the operator.
    pub skipped: Vec<String>,
    /// The size of the page in bytes, to bound the whole list.
    pub bytes: usize,
}

impl ListPage {
    /// Reads the result of a list request. A bad item is skipped and costs only itself. A list that
    /// is `null` is empty.
    ///
    /// # Errors
    /// Fails if the result has no array of definitions.
    pub(crate) fn read(list: ItemList, result: &RawJson) -> Result<Self, serde_json::Error> {
        let object = RawObject::parse(result)?;
        let Some(array) = object.get(list.member()) else {
            return Err(serde::de::Error::custom(format!("no `{}` in the result", list.member())));
        };
        let is_null = |name| object.get(name).is_some_and(RawJson::is_null);
        let optional = ["nextCursor", "_meta"].into_iter().any(is_null).then_some(Quirk::NullOptional);
        let cursor = object.get("nextCursor").filter(|cursor| !cursor.is_null());
        let next = object.string("nextCursor");
        let mut page = Self {
            items: Vec::new(),
            has_bad_cursor: cursor.is_some() && next.is_none(),
            next,
            skipped: Vec::new(),
            quirks: optional.into_iter().chain(array.is_null().then_some(Quirk::NullList)).collect(),
            bytes: result.bytes().len(),
        };
        let listed = if array.is_null() { Vec::new() } else { elements(array)? };
        for raw in listed {
            match Definition::read(list, &raw) {
                Ok(item) => page.items.push(item),
                Err(why) => page.skipped.push(why),
            }
        }
        Ok(page)
    }
}

impl Definition {
    /// Reads, cleans and repairs one definition, and computes its digests.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn read(list: ItemList, raw: &RawJson) -> Result<Self, String> {
        if raw.bytes().len() > MAX_DEFINITION_BYTES {
            return Err(format!("a definition of {} bytes (limit {MAX_DEFINITION_BYTES})", raw.bytes().len()));
        }
        let unreadable = |error| format!("a definition that cannot be read: {error}");
        let clean = hygiene::clean(raw).map_err(|why| match RawObject::parse(raw) {
            Ok(object) => format!("`{}`: {why}", foreign::line(&object.string(list.key()).unwrap_or_default())),
            Err(error) => unreadable(error),
        })?;
        let mut object = RawObject::parse(&clean).map_err(unreadable)?;
        let key = object.string(list.key()).ok_or_else(|| format!("a definition without `{}`", list.key()))?;
        let mut repairs = Vec::new();
        let fault = repair::repair_definition(list, &mut object, &mut repairs).err();
        hygiene::drop_unsafe_icons(&mut object);
        let schema = object.get("inputSchema").filter(|_| list == ItemList::Tools);
        let headers = schema.map_or_else(|| Ok(ParamHeaders::default()), |s| ParamHeaders::from_schema(&s.text()));
        let bad_headers = headers.is_err();
        let encoded = object.encode();
        let (exact, hides) = (Digest::of_json(&encoded), hygiene::has_hidden(&encoded));
        let digest = match list {
            ItemList::Tools => match order::sort_unordered_lists(&encoded) {
                Cow::Borrowed(_) => exact,
                Cow::Owned(settled) => Digest::of_json(&settled),
            },
            ItemList::Prompts | ItemList::Resources | ItemList::Templates => exact,
        };
        Ok(Self {
            list,
            key,
            raw: object,
            digest,
            exact,
            headers: headers.unwrap_or_default(),
            audience: Audience::ALL,
            bad_headers,
            hides,
            repairs,
            fault,
        })
    }

    /// Passes each string of it, keys and values alike, to `show`, unescaped.
    pub fn strings(&self, show: &mut dyn FnMut(&str)) {
        visit_strings(self.raw.encode().bytes(), show);
    }

    /// Returns the item with the digest of its pin and, if it is a tool, with the order of the
    /// pinned text in lists whose order means nothing: clients get the bytes that were pinned.
    pub fn pinned_as(&self, digest: Digest, pinned: &str) -> Self {
        let mut item = Self { digest, ..self.clone() };
        let pinned = RawJson::checked(pinned.to_owned()).ok().filter(|_| self.list == ItemList::Tools);
        let arranged = pinned.and_then(|pinned| order::arrange_like(&self.raw.encode(), &pinned));
        if let Some((text, raw)) = arranged.and_then(|text| RawObject::parse(&text).ok().map(|raw| (text, raw))) {
            (item.exact, item.raw) = (Digest::of_json(&text), raw);
        }
        item
    }

    /// Returns the canonical text of the definition in the order in which it came; [`Self::exact`]
    /// is its digest.
    pub fn canonical_text(&self) -> String {
        let encoded = self.raw.encode();
        let canonical = canonicalize(&encoded).ok().and_then(|text| String::from_utf8(text.into_owned()).ok());
        canonical.unwrap_or_else(|| encoded.text().into_owned())
    }

    /// Returns the names that clients may show instead of its key: `title`, and a tool's older
    /// `annotations.title`.
    pub fn titles(&self) -> impl Iterator<Item = String> {
        let annotations = self.raw.object("annotations");
        let older = annotations.and_then(|annotations| annotations.string("title"));
        self.raw.string("title").into_iter().chain(older)
    }

    /// Puts the upstream's name in front of the titles.
    pub fn name_titles(&mut self, upstream: &str) {
        let named =
            |object: &RawObject| object.string("title").map(|title| RawJson::string(&format!("{upstream}: {title}")));
        if let Some(title) = named(&self.raw) {
            self.raw.set("title", title);
        }
        if let Some(mut annotations) = self.raw.object("annotations")
            && let Some(title) = named(&annotations)
        {
            annotations.set("title", title);
            self.raw.set("annotations", annotations.encode());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_definition_costs_itself_alone() {
        let text =
            r#"{"tools":[{"name":"a"},{"title":"nameless"},7,{"name":"b","name":"c"},{"name":"d"}],"nextCursor":""}"#;
        let page = ListPage::read(ItemList::Tools, &RawJson::trusted(text)).unwrap();
        assert_eq!(page.items.iter().map(|i| i.key.as_str()).collect::<Vec<_>>(), ["a", "d"]);
        assert_eq!(page.skipped.len(), 3);
        assert_eq!(page.next.as_deref(), Some(""));
        assert!(ListPage::read(ItemList::Tools, &RawJson::trusted("{}")).is_err());
    }
}
