//! What a request is by itself and by its head, before the session is looked at: the body says which era it is of, and the head
//! must agree.

use crate::engine::answer::{Answer, invalid, not_found};
use crate::engine::client::head::{Head, check, claimed_revision, is_modern, mismatch};
use crate::engine::route::Params;
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::wire::code;
use crate::wire::message::Request;
use crate::wire::raw::RawJson;

/// A request that may be served as far as it can be told by itself.
pub(crate) enum Asked {
    Initialize(Initialize),
    /// Of the legacy era.
    Legacy(Params),
    /// It says everything about itself, and its method exists.
    Modern {
        revision: Revision,
        method: Method,
        params: Params,
    },
}

/// What `initialize` asked for and gets.
#[derive(Debug)]
pub(crate) struct Initialize {
    pub(crate) revision: Revision,
    /// The client's.
    pub(crate) capabilities: Option<RawJson>,
}

impl Asked {
    /// Tells the eras apart. Pipes have no head.
    ///
    /// # Errors
    /// The answer to send.
    pub(crate) fn of(request: &Request, head: Option<&dyn Head>) -> Result<Self, Answer> {
        let head_is_modern = head.is_some_and(is_modern);
        if request.method.starts_with("rpc.") {
            // Reserved by JSON-RPC: no head can make these a method.
            return Err(not_found(&request.method, if head_is_modern { Era::Modern } else { Era::Legacy }));
        }
        let method = Method::parse(&request.method);
        let params = Params::read(request.params.as_ref()).map_err(|error| invalid(&error))?;
        match (params.meta.has_claim(), method) {
            (false, Method::Initialize) if head_is_modern => {
                Err(mismatch("`initialize` does not exist in the version that the header names"))
            }
            (false, Method::Initialize) => Initialize::read(&params).map(Self::Initialize),
            (false, _) if !head_is_modern => Ok(Self::Legacy(params)),
            (true | false, _) => Self::modern(request, head, method, params),
        }
    }

    fn modern(request: &Request, head: Option<&dyn Head>, method: Method, params: Params) -> Result<Self, Answer> {
        let envelope = params.meta.modern();
        let envelope =
            envelope.map_err(|error| Answer::error(code::INVALID_PARAMS, &error.to_string(), None).with_status(400))?;
        let revision = match head {
            Some(head) => check(head, request, method, &params.object, &envelope.version)?,
            None => claimed_revision(&envelope.version)?,
        };
        if !method.defined_in(revision.era()) {
            return Err(not_found(&request.method, revision.era()));
        }
        Ok(Self::Modern { revision, method, params })
    }
}

impl Initialize {
    fn read(params: &Params) -> Result<Self, Answer> {
        let Some(version) = params.object.string("protocolVersion") else {
            return Err(Answer::error(code::INVALID_PARAMS, "`initialize` needs params.protocolVersion", None));
        };
        let capabilities = params.object.get("capabilities").cloned();
        Ok(Self { revision: Revision::negotiate(&version), capabilities })
    }
}
