//! A call as it is kept for the people who decide about it.

use std::borrow::Cow;
use std::sync::Arc;

use super::view::{Paint, View};
use crate::mcp::annotations::Said;
use crate::mcp::client_name::ClientName;
use crate::wire::foreign::oddities::Oddities;
use crate::wire::layout::laid_out;
use crate::wire::raw::RawJson;

/// Longer arguments are not kept, in bytes of JSON; of those only the beginning of their view is.
const MAX_KEPT: usize = 256 * 1024;
/// The beginning of arguments that are not kept, in bytes.
const MAX_BEGINNING: usize = 64 * 1024;
/// A longer description is cut, in bytes.
const MAX_DESCRIPTION: usize = 4096;

/// A call for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The name by which the client called the item; foreign text.
    pub exposed: String,
    pub arguments: Kept,
    /// Bytes of the arguments as they were received.
    pub arguments_bytes: usize,
    /// Found in all of the arguments and in the name.
    pub oddities: Oddities,
    /// The hints on a tool.
    pub said: Said,
    /// The item's own description, cut; foreign text.
    pub description: Option<String>,
    /// The name that the client gives itself.
    pub client: Option<ClientName>,
}

/// The arguments of a call that a person decides about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// JSON on one line: the same values as they were received.
    Whole(Arc<str>),
    /// They are too long to be kept. This is the beginning of their view, as text.
    Beginning(Arc<str>),
}

impl Kept {
    /// The arguments as a person reads them, in about so many bytes; `None` where they were not kept.
    pub fn view(&self, bound: usize) -> Option<View> {
        match self {
            Self::Whole(json) => Some(View::of(json, bound)),
            Self::Beginning(_) => None,
        }
    }
}

impl Shown {
    pub fn new(exposed: &str, said: Said, arguments: Option<&RawJson>) -> Self {
        let json = arguments.map_or(Cow::Borrowed("{}"), RawJson::text);
        let is_kept = json.len() <= MAX_KEPT;
        let view = View::of(&json, if is_kept { 0 } else { MAX_BEGINNING });
        let kept = if is_kept {
            let mut one_line = String::with_capacity(json.len());
            laid_out(&json, false, &mut |_, part| one_line.push_str(part));
            Kept::Whole(one_line.into())
        } else {
            Kept::Beginning(view.told(&Paint::NONE).into())
        };
        let mut oddities = view.oddities;
        oddities.look_at(exposed);
        Self {
            exposed: exposed.to_owned(),
            arguments: kept,
            arguments_bytes: json.len(),
            oddities,
            said,
            description: None,
            client: None,
        }
    }

    /// The same with the item's description.
    #[must_use]
    pub fn described(self, description: Option<String>) -> Self {
        let description = description.filter(|text| !text.trim().is_empty()).map(|mut text| {
            if text.len() > MAX_DESCRIPTION {
                let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= MAX_DESCRIPTION).last();
                text.truncate(end.unwrap_or(0));
                text.push_str(" [..]");
            }
            text
        });
        Self { description, ..self }
    }

    /// The same with the name that the client gives itself.
    #[must_use]
    pub fn asked_by(self, client: Option<ClientName>) -> Self {
        Self { client, ..self }
    }

    /// The name that the client gives itself, without its version; empty where it gives none.
    pub fn client_name(&self) -> Arc<str> {
        self.client.as_ref().map_or_else(|| Arc::from(""), |client| Arc::clone(&client.name))
    }

    /// The possible effects of a tool's call, by the words of those who state them.
    pub fn effect(&self) -> String {
        let by_server = self.said.by_server();
        self.said.by_operator().map_or(by_server.clone(), |by_operator| format!("{by_operator}; {by_server}"))
    }
}
