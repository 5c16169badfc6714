//! Definitions of tools, prompts, resources and templates, read shallowly: the key and the few fields that are acted on.

use std::borrow::Cow;

use crate::mcp::kinds::Audience;
use crate::mcp::method::List;
use crate::wire::canonical::canonical;
use crate::wire::digest::Digest;
use crate::wire::foreign;
use crate::wire::headers::ParamHeaders;
use crate::wire::quirk::Quirk;
use crate::wire::raw::{RawJson, RawObject, elements};
use crate::wire::tokens::strings;

mod hygiene;
mod order;
mod repair;

/// Largest definition that is offered on, in bytes: a 16 KiB description and a 256 KiB schema fit twice.
const MAX_DEFINITION_BYTES: usize = 512 * 1024;

/// One item as its upstream defines it.
#[derive(Clone)]
pub struct Definition {
    pub list: List,
    /// What the upstream calls it: name, URI or URI template.
    pub key: String,
    pub raw: RawObject,
    /// Of all that clients could see of it, but for order that means nothing. Pins and consents are bound to it.
    pub digest: Digest,
    /// The same, order included.
    pub exact: Digest,
    /// The arguments that an HTTP request of 2026-07-28 repeats in headers; tools only.
    pub headers: ParamHeaders,
    /// The clients that its server shows it to.
    pub audience: Audience,
    /// The header annotations break the rules; an HTTP upstream's tool must then be dropped.
    pub(crate) bad_headers: bool,
    /// Some string that is neither title nor description has hidden characters in it, so it cannot be cleaned: it would mean
    /// something else then.
    pub hides: bool,
    /// The repairs that let strict clients accept it, for the operator.
    pub repairs: Vec<String>,
    /// Why no client may see it, for the operator: strict ones would refuse the whole list.
    pub fault: Option<&'static str>,
}

/// One page of a list.
pub(crate) struct ListPage {
    pub items: Vec<Definition>,
    /// The cursor of the next page, opaque; the empty string is a cursor too.
    pub next: Option<String>,
    /// `nextCursor` is there and no cursor, so that the rest of the list cannot be asked for.
    pub has_bad_cursor: bool,
    /// The ways in which the page broke the protocol and was read all the same.
    pub quirks: Vec<Quirk>,
    /// Items that could not be read, with the reason, for the operator.
    pub skipped: Vec<String>,
    /// Bytes of the page, to bound what a list may hold.
    pub bytes: usize,
}

impl ListPage {
    /// Reads the result of a list request. One bad item costs that item, not the page. A list that
    /// is `null` is empty.
    ///
    /// # Errors
    /// When the result has no array of definitions.
    pub(crate) fn read(list: List, result: &RawJson) -> Result<Self, serde_json::Error> {
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
    /// Reads one definition.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn read(list: List, raw: &RawJson) -> Result<Self, String> {
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
        let fault = repair::mend(list, &mut object, &mut repairs).err();
        hygiene::drop_unsafe_icons(&mut object);
        let schema = object.get("inputSchema").filter(|_| list == List::Tools);
        let headers = schema.map_or_else(|| Ok(ParamHeaders::default()), |s| ParamHeaders::from_schema(&s.text()));
        let bad_headers = headers.is_err();
        let encoded = object.encode();
        let (exact, hides) = (Digest::of_json(&encoded), hygiene::has_hidden(&encoded));
        let digest = match list {
            List::Tools => match order::settled(&encoded) {
                Cow::Borrowed(_) => exact,
                Cow::Owned(settled) => Digest::of_json(&settled),
            },
            List::Prompts | List::Resources | List::Templates => exact,
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

    /// Shows each string of it, keys and values alike, as it reads.
    pub fn strings(&self, show: &mut dyn FnMut(&str)) {
        strings(self.raw.encode().bytes(), show);
    }

    /// The same item under the digest of its pin, with the order of the pinned text where order means nothing: clients get the
    /// bytes that were pinned.
    pub fn pinned_as(&self, digest: Digest, pinned: &str) -> Self {
        let mut item = Self { digest, ..self.clone() };
        let pinned = RawJson::checked(pinned.to_owned()).ok().filter(|_| self.list == List::Tools);
        let arranged = pinned.and_then(|pinned| order::arranged(&self.raw.encode(), &pinned));
        if let Some((text, raw)) = arranged.and_then(|text| RawObject::parse(&text).ok().map(|raw| (text, raw))) {
            (item.exact, item.raw) = (Digest::of_json(&text), raw);
        }
        item
    }

    /// The text that the digest is of, in the order in which it came.
    pub fn canonical_text(&self) -> String {
        let encoded = self.raw.encode();
        let canonical = canonical(&encoded).ok().and_then(|text| String::from_utf8(text.into_owned()).ok());
        canonical.unwrap_or_else(|| encoded.text().into_owned())
    }

    /// What clients may show instead of its name, where it has that: `title`, and a tool's older `annotations.title`.
    pub fn titles(&self) -> impl Iterator<Item = String> {
        let annotations = self.raw.object("annotations");
        let older = annotations.and_then(|annotations| annotations.string("title"));
        self.raw.string("title").into_iter().chain(older)
    }

    /// Puts the upstream's name in front of titles.
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
        let page = ListPage::read(List::Tools, &RawJson::trusted(text)).unwrap();
        assert_eq!(page.items.iter().map(|i| i.key.as_str()).collect::<Vec<_>>(), ["a", "d"]);
        assert_eq!(page.skipped.len(), 3);
        assert_eq!(page.next.as_deref(), Some(""));
        assert!(ListPage::read(List::Tools, &RawJson::trusted("{}")).is_err());
    }
}
