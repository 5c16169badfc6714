//! Routes a client's request to one item of one upstream and its original name, or to an error.

use crate::catalog::merge::Catalog;
use crate::catalog::name::{canonical_uri, view_uri};
use crate::engine::askers::{CallOrigin, DefinedItem};
use crate::engine::call::OutgoingCall;
use crate::mcp::definition::app::{VIEW_SCHEME, is_view_uri};
use crate::mcp::meta::{Meta, MetaError};
use crate::mcp::method::{ItemList, Method};
use crate::mcp::nulls;
use crate::wire::foreign;
use crate::wire::id::ClientId;
use crate::wire::json::raw::{RawJson, RawObject};

mod handed;

pub use self::handed::route_handed;

/// A client's request with the item that it reaches.
#[derive(Debug)]
pub struct RoutedRequest {
    /// Index of the item in the catalog; for a URI that a template covers, index of the template.
    pub entry: usize,
    /// Canonical name to judge by, if it is not the entry's own: for a URI that a template covers.
    pub canonical: Option<String>,
    pub outgoing: OutgoingCall,
    /// The client's progress token.
    pub token: Option<ClientId>,
    /// State and answers, if the client continues a call that asked it for input.
    pub resume: Option<CallResumption>,
}

/// The members of a request that continues a call.
#[derive(Clone, Debug)]
pub struct CallResumption {
    /// The state that the call was given; not checked yet.
    pub state: String,
    /// The client's answers, an object.
    pub responses: Option<RawJson>,
}

impl CallResumption {
    /// Reads the members; `None` for a request that starts a call.
    fn read(method: Method, params: &RawObject) -> Result<Option<Self>, RouteError> {
        // Only these three methods can ask; for the others the protocol does not define
        // `inputResponses`.
        let asks = matches!(method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead);
        let responses = params.get("inputResponses").filter(|_| asks);
        if responses.is_some_and(|raw| !raw.is_object()) {
            return Err(RouteError::Member("inputResponses"));
        }
        // All our questions come with a state. Responses without one answer none of them, so the
        // call starts anew and the responses are dropped.
        let Some(state) = params.get("requestState") else { return Ok(None) };
        let state = Some(state).filter(|_| asks).and_then(|raw| raw.parse::<String>().ok()).ok_or(RouteError::State)?;
        Ok(Some(Self { state, responses: responses.cloned() }))
    }
}

/// The reason why a request has no target. It becomes -32602, with the same text for unknown and
/// for hidden items.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    #[error("params must be an object")]
    Params,
    #[error("params lacks `{0}` or it is of the wrong type")]
    Member(&'static str),
    #[error("Unknown tool: {0}")]
    UnknownTool(String),
    #[error("Unknown prompt: {0}")]
    UnknownPrompt(String),
    #[error("Resource not found: {0}")]
    UnknownResource(String),
    #[error("the request state is not valid; start the call again without it")]
    State,
    #[error("The page that the server asked for was not opened, so the call was not made.")]
    PageDeclined,
    #[error("The replica that held the call is gone.")]
    ReplicaLost,
    #[error(transparent)]
    Meta(#[from] MetaError),
}

impl RouteError {
    /// Returns whether the request names something that does not exist for its caller.
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::UnknownTool(_) | Self::UnknownPrompt(_) | Self::UnknownResource(_))
    }
}

/// Returns the members of `params`; missing or `null` `params` are an empty object.
///
/// # Errors
/// [`RouteError::Params`] when `params` is something else than an object.
pub(crate) fn params_object(params: Option<&RawJson>) -> Result<RawObject, RouteError> {
    match params.filter(|raw| !raw.is_null()) {
        None => Ok(RawObject::default()),
        Some(raw) => RawObject::parse(raw).map_err(|_| RouteError::Params),
    }
}

/// The parameters of a request, parsed once for all readers.
#[derive(Default, Debug)]
pub struct RequestParams {
    pub object: RawObject,
    pub meta: Meta,
}

/// Members of requests that may be left out.
const OPTIONAL: &[&str] = &[
    "_meta",
    "arguments",
    "inputResponses",
    "requestState",
    "context",
    "cursor",
    "capabilities",
    "clientInfo",
    "task",
];

impl RequestParams {
    /// Reads `params`, and drops optional members that are `null`: some hosts write `null` for what
    /// they leave out.
    ///
    /// # Errors
    /// [`RouteError::Params`] or [`RouteError::Meta`] when `params` or its `_meta` is something
    /// else than an object.
    pub fn read(params: Option<&RawJson>) -> Result<Self, RouteError> {
        let mut object = params_object(params)?;
        nulls::drop_nulls(&mut object, OPTIONAL);
        let meta = Meta::of(&object)?;
        Ok(Self { object, meta })
    }
}

/// Finds the item that a call, a read, a subscription or a completion names, and builds the
/// upstream's request. Members of `params` that the protocol does not define are left out: an
/// upstream with a laxer parser must not see a name that was not judged.
///
/// `visible` tells which entries this caller may reach. Any other entry is answered like an item
/// that does not exist. `visible` is called for such an item too, with [`NOWHERE`], so that both
/// take the same steps.
///
/// # Errors
/// [`RouteError`].
pub fn route(
    catalog: &Catalog,
    method: Method,
    params: &RawObject,
    meta: Meta,
    visible: impl Fn(usize) -> bool,
) -> Result<RoutedRequest, RouteError> {
    let resume = CallResumption::read(method, params)?;
    let token = meta.progress_token()?;
    let mut body = RawObject::default();
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other method is no call")]
    let (entry, canonical) = match method {
        Method::ToolsCall => named(catalog, ItemList::Tools, params, &mut body, visible)?,
        Method::PromptsGet => named(catalog, ItemList::Prompts, params, &mut body, visible)?,
        Method::ResourcesRead | Method::ResourcesSubscribe => by_uri(catalog, params, &mut body, visible)?,
        Method::Complete => completion(catalog, params, &mut body, visible)?,
        _ => return Err(RouteError::Params),
    };
    let (capabilities, log_level) = (meta.input_capabilities(), meta.log_level());
    let outgoing = OutgoingCall {
        body,
        wants_progress: token.is_some(),
        capabilities,
        log_level,
        party: CallOrigin { item: item(catalog, method, entry), ..CallOrigin::default() },
        ..OutgoingCall::own(method, meta)
    };
    Ok(RoutedRequest { entry, canonical, outgoing, token, resume })
}

/// Returns the item that a call is made of. A question about an item is no call of it.
fn item(catalog: &Catalog, method: Method, entry: usize) -> Option<DefinedItem> {
    let is_call = matches!(method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead);
    catalog.entry(entry).filter(|_| is_call).map(DefinedItem::of)
}

/// The index of an entry, and the canonical name if it is not the entry's own.
type RoutedItem = (usize, Option<String>);

/// Finds a tool or a prompt, and writes its original name and the arguments to `body`.
fn named(
    catalog: &Catalog,
    list: ItemList,
    params: &RawObject,
    body: &mut RawObject,
    visible: impl Fn(usize) -> bool,
) -> Result<RoutedItem, RouteError> {
    let name = params.said("name").ok_or(RouteError::Member("name"))?;
    let found = visible_entry(catalog.find(list, &name), visible);
    let Some((at, entry)) = found.and_then(|at| Some((at, catalog.entry(at)?))) else {
        return Err(if list == ItemList::Tools {
            RouteError::UnknownTool(shorten(&name))
        } else {
            RouteError::UnknownPrompt(shorten(&name))
        });
    };
    body.append("\"name\"", entry.original_json.clone());
    if let Some(arguments) = params.get("arguments") {
        if !arguments.is_object() {
            return Err(RouteError::Member("arguments"));
        }
        body.append("\"arguments\"", arguments.clone());
    }
    Ok((at, None))
}

/// Finds the resource or the template of a URI, and writes the original URI to `body`.
fn by_uri(
    catalog: &Catalog,
    params: &RawObject,
    body: &mut RawObject,
    visible: impl Fn(usize) -> bool,
) -> Result<RoutedItem, RouteError> {
    let uri = params.said("uri").ok_or(RouteError::Member("uri"))?;
    let found = uri_entry(catalog, &uri);
    let at = visible_entry(found, visible).ok_or_else(|| RouteError::UnknownResource(shorten(&uri)))?;
    let (canonical, original) =
        upstream_uri(catalog, at, &uri).ok_or_else(|| RouteError::UnknownResource(shorten(&uri)))?;
    body.set("uri", RawJson::string(&original));
    Ok((at, canonical))
}

/// Returns the entry that owns a URI: the resource itself, else the one template that matches.
fn uri_entry(catalog: &Catalog, uri: &str) -> Option<usize> {
    catalog.find(ItemList::Resources, uri).or_else(|| catalog.find_template(uri))
}

/// Returns the canonical name of a URI if it is not its entry's own, and the URI as the entry's
/// upstream knows it.
fn upstream_uri(catalog: &Catalog, at: usize, uri: &str) -> Option<(Option<String>, String)> {
    let entry = catalog.entry(at)?;
    if entry.list == ItemList::Resources {
        return Some((None, entry.original.to_string()));
    }
    let upstream = &entry.upstream_name;
    let original = if entry.exposed == entry.original {
        uri.to_owned()
    } else if is_view_uri(&entry.original) {
        format!("{VIEW_SCHEME}{}", uri.strip_prefix(&view_uri(upstream, VIEW_SCHEME))?)
    } else {
        uri.strip_prefix(&canonical_uri(upstream, ""))?.to_owned()
    };
    Some((Some(canonical_uri(upstream, &original)), original))
}

/// An index that no catalog has.
const NOWHERE: usize = usize::MAX;

/// Returns the entry that was found, if the caller may reach it. Calls `visible` once in any case.
fn visible_entry(found: Option<usize>, visible: impl Fn(usize) -> bool) -> Option<usize> {
    let at = found.unwrap_or(NOWHERE);
    visible(at).then_some(at).filter(|at| *at != NOWHERE)
}

/// Finds the item that a completion is about, and writes the upstream's `params` to `body`.
fn completion(
    catalog: &Catalog,
    params: &RawObject,
    body: &mut RawObject,
    visible: impl Fn(usize) -> bool,
) -> Result<RoutedItem, RouteError> {
    let reference = params.get("ref").ok_or(RouteError::Member("ref"))?;
    let reference = RawObject::parse(reference).map_err(|_| RouteError::Member("ref"))?;
    let argument = params.get("argument").filter(|raw| raw.is_object()).ok_or(RouteError::Member("argument"))?;
    let kind = reference.string("type").ok_or(RouteError::Member("ref"))?;
    let (at, member) = match kind.as_str() {
        "ref/prompt" => {
            let name = reference.string("name").ok_or(RouteError::Member("ref"))?;
            let at = visible_entry(catalog.find(ItemList::Prompts, &name), visible);
            (at.ok_or_else(|| RouteError::UnknownPrompt(shorten(&name)))?, "name")
        }
        "ref/resource" => {
            let uri = reference.string("uri").ok_or(RouteError::Member("ref"))?;
            let at = catalog.find(ItemList::Templates, &uri).or_else(|| catalog.find(ItemList::Resources, &uri));
            (visible_entry(at, visible).ok_or_else(|| RouteError::UnknownResource(shorten(&uri)))?, "uri")
        }
        _ => return Err(RouteError::Member("ref")),
    };
    let original = catalog.entry(at).map(|e| e.original.to_string()).unwrap_or_default();
    debug_assert!(!original.is_empty());
    body.set("ref", RawObject::of_strings(&[("type", &kind), (member, &original)]).encode());
    body.set("argument", argument.clone());
    if let Some(context) = params.get("context").filter(|raw| raw.is_object()) {
        let mut stated = RawObject::parse(context).map_err(|_| RouteError::Member("context"))?;
        let is_changed = nulls::drop_nulls(&mut stated, &["arguments"]);
        body.set("context", if is_changed { stated.encode() } else { context.clone() });
    }
    Ok((at, None))
}

/// Shortens a client's text for an error message, as one line without hidden characters. The answer
/// for a hidden item uses it too, so that it is that for an unknown one.
pub fn shorten(text: &str) -> String {
    foreign::short(text, 128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nulls_are_absent_and_other_values_are_not() {
        let read = |text: &'static str| RequestParams::read(Some(&RawJson::trusted(text)));
        assert!(read("null").unwrap().object.is_empty());
        let params = read(r#"{"name":"t","arguments":null,"_meta":null}"#).unwrap();
        assert_eq!(params.object.encode().text(), r#"{"name":"t"}"#);
        let params = read(r#"{"_meta":{"progressToken":null,"a":null},"arguments":{"a":null}}"#).unwrap();
        assert_eq!(params.meta.progress_token().unwrap(), None);
        assert_eq!(params.object.get("arguments").unwrap().text(), r#"{"a":null}"#, "arguments are the caller's");
        for wrong in ["[]", "\"null\"", "0", "false", r#"{"_meta":[]}"#, r#"{"_meta":""}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
    use crate::catalog::inventory::Inventory;
    use crate::catalog::merge::{ItemFilters, MergeSource, NamingRules, merge};
    use crate::catalog::name::UpstreamName;
    use crate::mcp::definition::item::Definition;

    fn catalog() -> Catalog {
        let mut inventory = Inventory::default();
        let mut put = |list: ItemList, text: &'static str| {
            inventory.replace(list, vec![Definition::read(list, &RawJson::trusted(text)).unwrap()]);
        };
        put(ItemList::Tools, r#"{"name":"read"}"#);
        put(ItemList::Prompts, r#"{"name":"p"}"#);
        put(ItemList::Resources, r#"{"uri":"a://x","name":"x"}"#);
        put(ItemList::Templates, r#"{"uriTemplate":"a://t/{id}","name":"t"}"#);
        let name = UpstreamName::parse("fs").unwrap();
        let filters = ItemFilters::default();
        let source = MergeSource {
            upstream: &name,
            prefix: "fs__",
            inventory: &inventory,
            filters: &filters,
            annotate: &crate::policy::OperatorHints::default(),
            needs_headers: false,
            standings: None,
            withheld: None,
            withheld_tools: None,
            withheld_views: None,
            apps: true,
            index: 0,
        };
        let rules = NamingRules { max_length: 48, ..NamingRules::default() };
        merge(&[source], rules).0
    }

    fn go(method: Method, params: &'static str) -> Result<RoutedRequest, RouteError> {
        let params = RawObject::parse(&RawJson::trusted(params)).map_err(|_| RouteError::Params)?;
        let meta = Meta::of(&params)?;
        route(&catalog(), method, &params, meta, |_| true)
    }

    /// Describes everything in a request that is acted on or sent on.
    fn meaning(method: Method, params: &serde_json::Value) -> String {
        let params = RequestParams::read(Some(&RawJson::trusted(params.to_string()))).unwrap();
        params.meta.modern().unwrap();
        let kinds = crate::mcp::asking::kinds::InputKinds::of(params.meta.get(crate::mcp::meta::CLIENT_CAPABILITIES));
        let name = params.meta.client_name();
        let routed = route(&catalog(), method, &params.object, params.meta, |_| true).unwrap();
        let (body, capabilities) = (routed.outgoing.body.encode(), routed.outgoing.capabilities);
        let capabilities = capabilities.map(|raw| raw.text().into_owned());
        let token = routed.token.map(|token| token.raw().text().into_owned());
        let resume = routed.resume.map(|resume| (resume.state, resume.responses.map(|raw| raw.text().into_owned())));
        let level = routed.outgoing.log_level;
        format!("{name:?} {kinds:?} {level:?} {} {capabilities:?} {token:?} {resume:?}", body.text())
    }

    #[test]
    fn a_request_with_nulls_is_the_request_without_them() {
        use serde_json::json;
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "sampling": {}},
        });
        let mut bare = meta.clone();
        bare.as_object_mut().unwrap().remove("io.modelcontextprotocol/clientInfo");
        let prompt = json!({"ref": {"type": "ref/prompt", "name": "fs__p"}, "argument": {"name": "a", "value": "b"}});
        let mut context = prompt.clone();
        context["context"] = json!({});
        for (method, name, params) in [
            (Method::ToolsCall, "CallToolRequestParams", json!({"name": "fs__read"})),
            (Method::PromptsGet, "GetPromptRequestParams", json!({"name": "fs__p"})),
            (Method::ResourcesRead, "ReadResourceRequestParams", json!({"uri": "a://x"})),
            (Method::Complete, "CompleteRequestParams", prompt),
            (Method::Complete, "CompleteRequestParams", context),
        ] {
            for meta in [&meta, &bare] {
                let mut whole = params.clone();
                whole["_meta"] = meta.clone();
                let want = meaning(method, &whole);
                for (label, nulls) in nulls::schema::with_nulls(name, &whole) {
                    assert_eq!(meaning(method, &nulls), want, "{label}");
                }
            }
        }
    }

    #[test]
    fn the_upstream_gets_its_own_name_and_only_defined_members() {
        let routed =
            go(Method::ToolsCall, r#"{"Name":"x","name":"fs__read","extra":1,"arguments":{"a": 1},"task":{}}"#)
                .unwrap();
        assert_eq!(routed.outgoing.body.encode().text(), r#"{"name":"read","arguments":{"a": 1}}"#);
        let routed = go(Method::ResourcesRead, r#"{"uri":"a://t/7"}"#).unwrap();
        assert_eq!(routed.canonical.as_deref(), Some("fs+a://t/7"));
        let routed =
            go(Method::Complete, r#"{"ref":{"type":"ref/prompt","name":"fs__p"},"argument":{"name":"a","value":"b"}}"#);
        assert_eq!(
            routed.unwrap().outgoing.body.encode().text(),
            r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"b"}}"#
        );
    }

    #[test]
    fn hidden_and_unknown_are_one_answer() {
        let params = RawObject::parse(&RawJson::trusted(r#"{"name":"fs__read"}"#)).unwrap();
        let hidden = route(&catalog(), Method::ToolsCall, &params, Meta::default(), |_| false).unwrap_err();
        assert_eq!(hidden, RouteError::UnknownTool("fs__read".into()));
        assert_eq!(go(Method::ToolsCall, r#"{"name":"nope"}"#).unwrap_err(), RouteError::UnknownTool("nope".into()));
        assert_eq!(
            go(Method::ResourcesRead, r#"{"uri":"a://y"}"#).unwrap_err().to_string(),
            "Resource not found: a://y"
        );
    }

    #[test]
    fn hidden_and_unknown_take_the_same_steps() {
        for (method, hidden, unknown) in [
            (Method::ToolsCall, r#"{"name":"fs__read"}"#, r#"{"name":"fs__none"}"#),
            (Method::PromptsGet, r#"{"name":"fs__p"}"#, r#"{"name":"fs__q"}"#),
            (Method::ResourcesRead, r#"{"uri":"a://x"}"#, r#"{"uri":"a://y"}"#),
            (Method::ResourcesRead, r#"{"uri":"a://t/1"}"#, r#"{"uri":"b://t/1"}"#),
            (
                Method::Complete,
                r#"{"ref":{"type":"ref/prompt","name":"fs__p"},"argument":{}}"#,
                r#"{"ref":{"type":"ref/prompt","name":"fs__q"},"argument":{}}"#,
            ),
        ] {
            for params in [hidden, unknown] {
                let params = RawObject::parse(&RawJson::trusted(params)).unwrap();
                let asked = std::cell::Cell::new(0);
                let visible = |_| {
                    asked.set(asked.get() + 1);
                    false
                };
                let error = route(&catalog(), method, &params, Meta::default(), visible).unwrap_err();
                assert!(error.is_unknown() && asked.get() == 1, "{method:?}: {error}");
            }
        }
    }

    #[test]
    fn responses_without_a_state_start_the_call_anew_and_go_nowhere() {
        for (method, params, body) in [
            (
                Method::ToolsCall,
                r#"{"name":"fs__read","arguments":{},"inputResponses":{"k":{"action":"accept"}}}"#,
                r#"{"name":"read","arguments":{}}"#,
            ),
            (Method::PromptsGet, r#"{"name":"fs__p","inputResponses":{}}"#, r#"{"name":"p"}"#),
            (Method::ResourcesRead, r#"{"uri":"a://x","inputResponses":{"k":1}}"#, r#"{"uri":"a://x"}"#),
        ] {
            let routed = go(method, params).unwrap();
            assert!(routed.resume.is_none(), "{params}");
            assert_eq!(routed.outgoing.body.encode().text(), body, "{params}");
        }
    }

    #[test]
    fn malformed_params_are_told_apart() {
        for (label, method, params, want) in [
            ("no name", Method::ToolsCall, "{}", RouteError::Member("name")),
            (
                "arguments no object",
                Method::ToolsCall,
                r#"{"name":"fs__read","arguments":[]}"#,
                RouteError::Member("arguments"),
            ),
            ("state no text", Method::ToolsCall, r#"{"name":"fs__read","requestState":1}"#, RouteError::State),
            (
                "responses no object",
                Method::ToolsCall,
                r#"{"name":"fs__read","inputResponses":[]}"#,
                RouteError::Member("inputResponses"),
            ),
            ("state where nothing asks", Method::Complete, r#"{"requestState":"x"}"#, RouteError::State),
            ("no ref", Method::Complete, "{}", RouteError::Member("ref")),
        ] {
            assert_eq!(go(method, params).unwrap_err(), want, "{label}");
        }
    }
}
