//! The name and version that a client states about itself. Nothing proves them.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::wire::json::raw::{RawJson, RawObject};

/// The length at which a name or version is cut, in bytes.
const MOST: usize = 64;
/// The longest client info that a connection remembers, in bytes.
const MOST_REMEMBERED: usize = 512;

/// Name and version that a client states about itself: foreign text, cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientName {
    pub name: Arc<str>,
    pub version: Option<Arc<str>>,
}

impl ClientName {
    /// Reads the client info; `None` without a name.
    pub fn read(info: &RawJson) -> Option<Self> {
        let info = RawObject::parse(info).ok()?;
        let text = |key: &str| info.string(key).filter(|text| !text.is_empty()).map(|text| Arc::from(cut(text)));
        Some(Self { name: text("name")?, version: text("version") })
    }
}

/// The name that was read last on a connection, as a cache: a modern client repeats its name in
/// each request.
#[derive(Debug, Default)]
pub struct ClientNameCache(Option<(RawJson, ClientName)>);

impl ClientNameCache {
    /// Reads the client info like [`ClientName::read`], or returns the remembered name if the info
    /// is unchanged.
    pub fn read(&mut self, info: &RawJson) -> Option<ClientName> {
        if let Some((said, name)) = &self.0
            && said == info
        {
            return Some(name.clone());
        }
        let name = ClientName::read(info)?;
        if info.bytes().len() <= MOST_REMEMBERED {
            // Copied: a slice would keep the whole request in memory.
            self.0 = Some((RawJson::trusted(Bytes::copy_from_slice(info.bytes())), name.clone()));
        }
        Some(name)
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.version.iter().try_for_each(|version| write!(f, " {version}"))
    }
}

/// Cuts a long text and appends dots, so that a cut text is longer than any text that is kept
/// whole.
fn cut(mut text: String) -> String {
    if text.len() > MOST {
        let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= MOST).last();
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_where_there_is_one_and_is_cut() {
        let read = |info: &str| ClientName::read(&RawJson::trusted(info.to_owned())).map(|name| name.to_string());
        for (info, want) in [
            (r#"{"name":"claude-code","version":"2.1"}"#, Some("claude-code 2.1")),
            (r#"{"name":"x"}"#, Some("x")),
            (r#"{"name":"x","version":7}"#, Some("x")),
            (r#"{"name":"x","version":""}"#, Some("x")),
            (r#"{"name":"","version":"1"}"#, None),
            (r#"{"name":7}"#, None),
            ("{}", None),
            (r#""x""#, None),
        ] {
            assert_eq!(read(info).as_deref(), want, "{info}");
        }
        let long = "é".repeat(100);
        let text = read(&format!(r#"{{"name":"{long}","version":"{long}"}}"#)).unwrap();
        assert_eq!(text, format!("{0}... {0}...", "é".repeat(32)));
    }

    #[test]
    fn a_connection_remembers_one_name_and_takes_each_new_one() {
        let mut last = ClientNameCache::default();
        let long = format!(r#"{{"name":"long","more":"{}"}}"#, "x".repeat(MOST_REMEMBERED));
        for (info, want, is_remembered) in [
            (r#"{"name":"a"}"#, Some("a"), true),
            (r#"{"name":"a"}"#, Some("a"), true),
            (r#"{"name":"a","version":"1"}"#, Some("a 1"), true),
            (r#"{"name":7}"#, None, false),
            (&long, Some("long"), false),
            (r#"{"name":"b"}"#, Some("b"), true),
        ] {
            let info = RawJson::trusted(info.to_owned());
            assert_eq!(last.read(&info).map(|name| name.to_string()).as_deref(), want);
            assert_eq!(last.0.as_ref().is_some_and(|(said, _)| *said == info), is_remembered);
        }
    }
}
