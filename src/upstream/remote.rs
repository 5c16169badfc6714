//! The configured address of an HTTP upstream and the headers of its requests.

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use url::Url;

use crate::config::{Target, Transport};
use crate::upstream::context::Context;

/// Where an HTTP upstream is, and what goes with each request.
pub(crate) struct Remote {
    pub(crate) url: Url,
    pub(crate) uri: Uri,
    /// The operator's headers, credentials among them.
    pub(crate) fixed: HeaderMap,
    /// HTTP+SSE may be tried where streamable HTTP is not spoken.
    pub(super) may_be_older: bool,
}

impl Remote {
    /// Reads the configuration in force and makes its scheme usable.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(crate) fn of(context: &Context) -> Result<Self, String> {
        let spec = context.handle.spec.load_full();
        let Target::Http { url, headers, transport } = &spec.target else {
            return Err("not an HTTP upstream".to_owned());
        };
        let uri = url.as_str().parse::<Uri>().map_err(|_| "its URL is no HTTP URI".to_owned())?;
        let mut fixed = HeaderMap::new();
        for (name, value) in headers {
            let (Ok(name), Ok(mut value)) =
                (HeaderName::try_from(name.as_str()), HeaderValue::from_str(value.expose()))
            else {
                return Err(format!("its header `{name}` is no HTTP header"));
            };
            value.set_sensitive(true);
            fixed.insert(name, value);
        }
        let prepared = context.spawner.http.prepare(&uri);
        prepared.map_err(|error| format!("the system's certificate store cannot be used: {error}"))?;
        Ok(Self { url: url.clone(), uri, fixed, may_be_older: *transport == Transport::Auto })
    }
}
