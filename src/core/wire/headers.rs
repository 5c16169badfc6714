//! Encodes and decodes the values of the `Mcp-Name` and `Mcp-Param-*` headers, and compares them
//! with the body of the request.
//!
//! A value travels raw if a header can carry it, else as `=?base64?..?=`. A tool names the
//! arguments to mirror with `x-mcp-header` annotations in its input schema ([`ParamHeaders`]).
//! Policy never reads these headers: they are compared with the body, dropped, and built anew
//! towards the upstream.
//!
//! Source: MCP 2026-07-28, basic/transports/streamable-http, "Request Metadata".

mod error;
mod schema;

use std::borrow::Cow;

use data_encoding::BASE64;

pub use self::error::HeaderError;
use self::schema::HeaderAnnotation;
use crate::wire::json::raw;
use crate::wire::json::tokens::unescaped;

const SENTINEL_START: &str = "=?base64?";
const SENTINEL_END: &str = "?=";
const PARAM_PREFIX: &str = "Mcp-Param-";

/// The largest integer that every JSON implementation holds exactly; larger ones cannot be compared
/// safely.
const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// Encodes a value for a header: unchanged if a header can carry it, else as Base64 between
/// markers.
///
/// An empty value is encoded too, since receivers commonly take an empty header for a missing one.
pub fn encode_value(value: &str) -> Cow<'_, str> {
    let edge = |byte: Option<&u8>| byte.is_none_or(|byte| matches!(byte, b' ' | b'\t'));
    let bytes = value.as_bytes();
    let sentinel = value.starts_with(SENTINEL_START) && value.ends_with(SENTINEL_END);
    if !edge(bytes.first()) && !edge(bytes.last()) && !sentinel && bytes.iter().all(is_value_byte) {
        return Cow::Borrowed(value);
    }
    let length = SENTINEL_START.len() + BASE64.encode_len(bytes.len()) + SENTINEL_END.len();
    let mut out = String::with_capacity(length);
    out.push_str(SENTINEL_START);
    BASE64.encode_append(bytes, &mut out);
    out.push_str(SENTINEL_END);
    Cow::Owned(out)
}

/// Decodes the value of a header and removes the optional white space around it.
///
/// The markers are case-sensitive; anything else is taken literally.
///
/// # Errors
/// [`HeaderError::Character`], [`HeaderError::Base64`] (padding is required) or
/// [`HeaderError::Utf8`].
pub(crate) fn decode_value(header: &[u8]) -> Result<Cow<'_, str>, HeaderError> {
    let text = std::str::from_utf8(header).map_err(|_| HeaderError::Character)?;
    let text = text.trim_matches([' ', '\t']);
    if !text.bytes().all(|byte| is_value_byte(&byte)) {
        return Err(HeaderError::Character);
    }
    let Some(encoded) = text.strip_prefix(SENTINEL_START).and_then(|rest| rest.strip_suffix(SENTINEL_END)) else {
        return Ok(Cow::Borrowed(text));
    };
    let bytes = BASE64.decode(encoded.as_bytes()).map_err(|_| HeaderError::Base64)?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| HeaderError::Utf8)
}

/// Reports whether a byte is visible ASCII, space or tab. Source: RFC 9110, 5.5.
fn is_value_byte(byte: &u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~')
}

/// The arguments of one tool that are mirrored in headers, in the order of its schema. Empty for
/// nearly every tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParamHeaders {
    params: Box<[MirroredParam]>,
}

/// One mirrored argument.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MirroredParam {
    /// The full header name, `Mcp-Param-` included.
    header: String,
    /// Property names from the arguments down to the value; never empty.
    path: Vec<String>,
}

impl ParamHeaders {
    /// Reads the annotations of a tool from its input schema (raw JSON). Costs two substring
    /// searches if there are none.
    ///
    /// # Errors
    /// Fails if an annotation is invalid; the tool must then not be offered over HTTP. A schema
    /// without annotations is not checked.
    pub(crate) fn from_schema(input_schema: &str) -> Result<Self, HeaderError> {
        let params = schema::annotations(input_schema)?.into_iter().map(MirroredParam::of).collect();
        Ok(Self { params })
    }

    pub fn is_empty(&self) -> bool {
        self.params.is_empty()
    }

    /// Returns each mirrored argument: its header name without `Mcp-Param-`, and its property path.
    pub fn params(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.params.iter().map(|param| (param.name(), param.path.as_slice()))
    }

    /// Builds the headers to send with `arguments` (raw JSON): name without `Mcp-Param-`, and
    /// encoded value. An argument that is absent or null gets no header.
    ///
    /// A value is written by its own type, even if the schema declares another one: the upstream
    /// judges its arguments.
    ///
    /// # Errors
    /// [`HeaderError::Arguments`], or [`HeaderError::Argument`] for a value that has no header
    /// form.
    pub fn values(&self, arguments: Option<&str>) -> Result<Vec<(String, String)>, HeaderError> {
        let mut headers = Vec::with_capacity(self.params.len());
        for param in &self.params {
            let Some(value) = param.argument(arguments)? else {
                continue;
            };
            let text: Cow<'_, str> = match value {
                HeaderArgument::Text(text) => text,
                HeaderArgument::Integer(number) => number.to_string().into(),
                HeaderArgument::Bool(value) => if value { "true" } else { "false" }.into(),
            };
            headers.push((param.name().to_owned(), encode_value(&text).into_owned()));
        }
        Ok(headers)
    }

    /// Compares the headers that a client sent with its arguments (raw JSON). Headers without a
    /// parameter are ignored.
    ///
    /// `find` looks up a full header name, ignoring case. It has to refuse a header that was sent
    /// twice itself: only one value is seen here.
    ///
    /// # Errors
    /// [`HeaderError::Missing`], [`HeaderError::Unexpected`] or [`HeaderError::Mismatch`], the
    /// errors of [`decode_value`], and those of [`Self::values`].
    pub fn check<'h>(
        &self,
        arguments: Option<&str>,
        find: impl Fn(&str) -> Option<&'h [u8]>,
    ) -> Result<(), HeaderError> {
        for param in &self.params {
            let name = || param.header.clone();
            let header = find(&param.header).map(decode_value).transpose()?;
            match (header, param.argument(arguments)?) {
                (None, None) => {}
                (None, Some(_)) => return Err(HeaderError::Missing { name: name() }),
                (Some(_), None) => return Err(HeaderError::Unexpected { name: name() }),
                (Some(header), Some(argument)) if argument.matches(&header) => {}
                (Some(_), Some(_)) => return Err(HeaderError::Mismatch { name: name() }),
            }
        }
        Ok(())
    }
}

impl MirroredParam {
    fn of(HeaderAnnotation { name, path }: HeaderAnnotation) -> Self {
        Self { header: format!("{PARAM_PREFIX}{name}"), path }
    }

    fn name(&self) -> &str {
        self.header.strip_prefix(PARAM_PREFIX).unwrap_or(&self.header)
    }

    /// Returns the value at the path; `None` if it is absent or null.
    fn argument<'a>(&self, arguments: Option<&'a str>) -> Result<Option<HeaderArgument<'a>>, HeaderError> {
        let Some(mut value) = arguments.map(str::trim_ascii).filter(|text| *text != "null") else {
            return Ok(None);
        };
        if !value.starts_with('{') {
            return Err(HeaderError::Arguments);
        }
        for key in &self.path {
            // A value that is not an object has no member; the upstream decides whether it should
            // be one.
            let member = if value.starts_with('{') { member(value, key)? } else { None };
            let Some(member) = member else {
                return Ok(None);
            };
            value = member;
        }
        match value {
            "null" => Ok(None),
            _ => {
                HeaderArgument::read(value).map(Some).ok_or_else(|| HeaderError::Argument { name: self.header.clone() })
            }
        }
    }
}

/// An argument that a header can carry.
enum HeaderArgument<'a> {
    Text(Cow<'a, str>),
    Integer(i64),
    Bool(bool),
}

impl<'a> HeaderArgument<'a> {
    /// Reads a JSON value that a header can carry; `None` for any other.
    fn read(json: &'a str) -> Option<Self> {
        match json {
            "true" => Some(Self::Bool(true)),
            "false" => Some(Self::Bool(false)),
            _ if json.starts_with('"') => unescaped(json.as_bytes()).map(Self::Text),
            _ => integer(json).map(Self::Integer),
        }
    }

    /// Reports whether a decoded header has this value; integers are compared as numbers.
    fn matches(&self, header: &str) -> bool {
        match self {
            Self::Text(text) => text == header,
            Self::Integer(number) => integer(header) == Some(*number),
            Self::Bool(value) => header == if *value { "true" } else { "false" },
        }
    }
}

/// Reads a JSON number that is exactly an integer in the safe range: `42`, `42.0` and `4.2e1` are
/// equal.
///
/// Works digit by digit, because a conversion through `f64` would round `42.00000000000000001`.
fn integer(text: &str) -> Option<i64> {
    let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) =
        rest.split_once(['e', 'E']).map_or((rest, "0"), |(mantissa, exponent)| (mantissa, exponent));
    let (whole, fraction) = mantissa.split_once('.').map_or((mantissa, None), |(whole, digits)| (whole, Some(digits)));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let leading_zero = whole.len() > 1 && whole.starts_with('0');
    if !digits(whole) || leading_zero || !fraction.is_none_or(digits) || !digits(unsigned) {
        return None;
    }
    let fraction = fraction.unwrap_or_default();
    if whole.bytes().chain(fraction.bytes()).all(|byte| byte == b'0') {
        return Some(0);
    }
    let point = i64::try_from(whole.len()).ok()?.checked_add(exponent.parse().ok()?)?;

    let mut value: i64 = 0;
    let mut position: i64 = 0;
    let mut shift = |digit: i64, position: i64| match (position < point, digit) {
        (true, digit) => {
            value = value * 10 + digit;
            value <= MAX_SAFE_INTEGER
        }
        (false, digit) => digit == 0,
    };
    for byte in whole.bytes().chain(fraction.bytes()) {
        if !shift(i64::from(byte - b'0'), position) {
            return None;
        }
        position += 1;
    }
    // Appends the zeros that only the exponent stands for. At most 16 steps, since the value is not
    // zero here.
    while position < point {
        if !shift(0, position) {
            return None;
        }
        position += 1;
    }
    Some(if negative { -value } else { value })
}

/// Returns the member `key` of a JSON object as raw JSON; `None` if there is none. Fails if the key
/// occurs twice.
fn member<'a>(object: &'a str, key: &str) -> Result<Option<&'a str>, HeaderError> {
    let members = raw::members(object).map_err(|_| HeaderError::Arguments)?;
    let mut found = members.into_iter().filter(|(name, _)| name == key).map(|(_, value)| value);
    match (found.next(), found.next()) {
        // Fails, since two readers could disagree on which of the members counts.
        (Some(_), Some(_)) => Err(HeaderError::Arguments),
        (found, _) => Ok(found),
    }
}

#[cfg(test)]
mod tests;
