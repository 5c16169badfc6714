//! The details of a call that are kept for the people who decide about it.

use std::borrow::Cow;
use std::sync::Arc;

use super::view::{ArgumentView, ViewColours};
use crate::mcp::client_name::ClientName;
use crate::mcp::definition::annotations::StatedHints;
use crate::wire::foreign::oddities::TextOddities;
use crate::wire::json::layout::lay_out;
use crate::wire::json::raw::RawJson;

/// Most bytes of arguments that are kept whole, as JSON. Of longer arguments only the beginning of
/// their view is kept.
const MAX_KEPT: usize = 256 * 1024;
/// Most bytes kept of the view of longer arguments.
const MAX_BEGINNING: usize = 64 * 1024;
/// Most bytes kept of a description; a longer one is cut.
const MAX_DESCRIPTION: usize = 4096;

/// The details of a call, as a person sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallDetails {
    /// The name by which the client called the item; foreign text.
    pub exposed: String,
    pub arguments: KeptArguments,
    /// Size of the arguments as received, in bytes.
    pub arguments_bytes: usize,
    /// Oddities in all of the arguments and in the name.
    pub oddities: TextOddities,
    /// The stated hints on a tool.
    pub said: StatedHints,
    /// The item's own description, cut; foreign text.
    pub description: Option<String>,
    /// The name that the client gives itself.
    pub client: Option<ClientName>,
    /// The bare name by which the client called a tool, as apps do; foreign text.
    pub bare: Option<String>,
}

/// The arguments of a call, as far as they are kept for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptArguments {
    /// All arguments as JSON on one line, with the values as received.
    Whole(Arc<str>),
    /// The beginning of the view, as text, of arguments that are too long to be kept.
    Beginning(Arc<str>),
}

impl KeptArguments {
    /// Renders the arguments for a person, in about `bound` bytes; `None` if they are not kept
    /// whole.
    pub fn view(&self, bound: usize) -> Option<ArgumentView> {
        match self {
            Self::Whole(json) => Some(ArgumentView::of(json, bound)),
            Self::Beginning(_) => None,
        }
    }
}

impl CallDetails {
    /// Makes the details of a call: keeps its arguments within their bounds and looks for oddities
    /// in all of them.
    pub fn new(exposed: &str, said: StatedHints, arguments: Option<&RawJson>) -> Self {
        let json = arguments.map_or(Cow::Borrowed("{}"), RawJson::text);
        let is_kept = json.len() <= MAX_KEPT;
        let view = ArgumentView::of(&json, if is_kept { 0 } else { MAX_BEGINNING });
        let kept = if is_kept {
            let mut one_line = String::with_capacity(json.len());
            lay_out(&json, false, &mut |_, part| one_line.push_str(part));
            KeptArguments::Whole(one_line.into())
        } else {
            KeptArguments::Beginning(view.told(&ViewColours::NONE).into())
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
            bare: None,
        }
    }

    /// Adds the item's description, cut to its bound.
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

    /// Adds the name that the client gives itself.
    #[must_use]
    pub fn asked_by(self, client: Option<ClientName>) -> Self {
        Self { client, ..self }
    }

    /// Adds the bare name by which the client called a tool.
    #[must_use]
    pub fn called_by(self, bare: Option<&str>) -> Self {
        Self { bare: bare.map(str::to_owned), ..self }
    }

    /// Returns the name that the client gives itself, without its version; empty if it gives none.
    pub fn client_name(&self) -> Arc<str> {
        self.client.as_ref().map_or_else(|| Arc::from(""), |client| Arc::clone(&client.name))
    }

    /// Describes the possible effects of a tool's call, and who states each.
    pub fn effect(&self) -> String {
        let by_server = self.said.by_server();
        self.said.by_operator().map_or(by_server.clone(), |by_operator| format!("{by_operator}; {by_server}"))
    }
}
