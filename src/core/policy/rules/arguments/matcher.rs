//! Matchers: tests of one argument's value, as the operator writes them and compiled.

use core::net::IpAddr;

use ipnet::IpNet;
use regex::{Regex, RegexBuilder};

use super::json::{LosslessJson, exact_number, is_integer};
use super::text;
use crate::policy::rules::pattern::TextGlob;
use crate::policy::rules::truth::Truth;

/// Longest regular expression, in bytes.
const MAX_REGEX_LENGTH: usize = 10 * 1024;
/// Most memory for one compiled expression, and for its cache while it runs, in bytes.
const MAX_REGEX_SIZE: usize = 1024 * 1024;
/// Most entries in the list of a matcher.
const MAX_LIST: usize = 1024;
/// Largest integer that every JSON reader reads alike: 2^53.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// A condition on an argument, as the operator wrote it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ArgumentSpec {
    /// A JSON pointer into the arguments.
    pub pointer: String,
    #[serde(flatten)]
    pub matcher: MatcherSpec,
}

/// A matcher as the operator wrote it. The variants are the keys of the configuration.
#[derive(Clone, Debug, PartialEq, strum::IntoStaticStr, strum::VariantNames, serde::Serialize)]
#[strum(const_into_str, serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum MatcherSpec {
    Eq(ScalarSpec),
    Ne(ScalarSpec),
    In(Vec<ScalarSpec>),
    Prefix(String),
    Suffix(String),
    /// A glob, as over names: `*` matches any text, `/` included.
    Glob(String),
    /// A regular expression that matches anywhere in the text unless it is anchored.
    Regex(String),
    /// An absolute path, which matches itself and everything below it.
    PathUnder(String),
    /// Hosts, or `*.` and a domain for all hosts below it.
    UrlHostIn(Vec<String>),
    /// Domains, or `*.` and a domain for all domains below it.
    EmailDomainIn(Vec<String>),
    /// Networks and addresses.
    CidrIn(Vec<String>),
    /// An inclusive range of numbers.
    Range {
        min: Option<f64>,
        max: Option<f64>,
    },
    /// Most characters of a text.
    MaxLen(usize),
    /// Most elements of an array.
    MaxItems(usize),
    Type(JsonType),
    #[serde(serialize_with = "serialize_true")]
    Absent,
    #[serde(serialize_with = "serialize_true")]
    Present,
}

/// Serializes a matcher that has no value of its own as `true`.
fn serialize_true<S: serde::Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(true)
}

/// A value that a matcher compares with.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub enum ScalarSpec {
    Text(String),
    Number(f64),
    Boolean(bool),
}

/// The JSON types for the matcher `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, serde::Serialize)]
#[strum(const_into_str, serialize_all = "lowercase")]
#[serde(into = "&'static str")]
pub enum JsonType {
    String,
    Number,
    Integer,
    Boolean,
    Null,
    Array,
    Object,
}

/// A compiled matcher.
#[derive(Debug)]
pub(super) enum ArgumentMatcher {
    OneOf(Box<[ScalarSpec]>),
    NoneOf(Box<[ScalarSpec]>),
    Prefix(Box<str>),
    Suffix(Box<str>),
    Glob(TextGlob),
    Regex(Regex),
    PathUnder(Box<str>),
    UrlHost(Box<[text::DomainPattern]>),
    EmailDomain(Box<[text::DomainPattern]>),
    Cidr(Box<[IpNet]>),
    Range { min: f64, max: f64 },
    MaxLen(usize),
    MaxItems(usize),
    Type(JsonType),
    Absent,
    Present,
}

impl ArgumentMatcher {
    /// Compiles a matcher; the error says what is wrong with it.
    pub(super) fn compile(spec: &MatcherSpec) -> Result<Self, String> {
        Ok(match spec {
            MatcherSpec::Eq(value) => Self::OneOf(scalars(std::slice::from_ref(value))?),
            MatcherSpec::Ne(value) => Self::NoneOf(scalars(std::slice::from_ref(value))?),
            MatcherSpec::In(values) => Self::OneOf(scalars(values)?),
            MatcherSpec::Prefix(text) => Self::Prefix(some_text(text)?),
            MatcherSpec::Suffix(text) => Self::Suffix(some_text(text)?),
            MatcherSpec::Glob(text) => Self::Glob(TextGlob::compile(text)?),
            MatcherSpec::Regex(text) => Self::Regex(regex(text)?),
            MatcherSpec::PathUnder(path) => Self::PathUnder(text::plain_folder(path)?),
            MatcherSpec::UrlHostIn(hosts) => Self::UrlHost(list(hosts, text::DomainPattern::host)?),
            MatcherSpec::EmailDomainIn(domains) => Self::EmailDomain(list(domains, text::DomainPattern::name)?),
            MatcherSpec::CidrIn(nets) => Self::Cidr(list(nets, net)?),
            MatcherSpec::Range { min, max } => range(*min, *max)?,
            MatcherSpec::MaxLen(most) => Self::MaxLen(*most),
            MatcherSpec::MaxItems(most) => Self::MaxItems(*most),
            MatcherSpec::Type(kind) => Self::Type(*kind),
            MatcherSpec::Absent => Self::Absent,
            MatcherSpec::Present => Self::Present,
        })
    }

    /// Tests a value that is present.
    pub(super) fn matches(&self, value: &LosslessJson<'_>) -> Truth {
        match self {
            Self::OneOf(wanted) => is_one_of(wanted, value),
            Self::NoneOf(wanted) => is_one_of(wanted, value).not(),
            Self::MaxItems(most) => value.as_list().map_or(Truth::Unknown, |items| Truth::from(items.len() <= *most)),
            Self::Range { min, max } => {
                let number = value.as_number().and_then(exact_number);
                number.map_or(Truth::Unknown, |number| Truth::from((*min..=*max).contains(&number)))
            }
            Self::Type(kind) => is_type(*kind, value),
            // Some servers read `null` as absent, others as present.
            Self::Absent | Self::Present if *value == LosslessJson::Null => Truth::Unknown,
            Self::Absent => Truth::No,
            Self::Present => Truth::Yes,
            Self::Prefix(_)
            | Self::Suffix(_)
            | Self::Glob(_)
            | Self::Regex(_)
            | Self::PathUnder(_)
            | Self::UrlHost(_)
            | Self::EmailDomain(_)
            | Self::Cidr(_)
            | Self::MaxLen(_) => {
                // Some readers stop at a NUL.
                let text = value.as_text().filter(|text| !text.contains('\0'));
                text.map_or(Truth::Unknown, |text| self.matches_text(text))
            }
        }
    }

    /// Tests a text; unknown for matchers of other types.
    fn matches_text(&self, value: &str) -> Truth {
        match self {
            Self::Prefix(prefix) => Truth::from(value.starts_with(&**prefix)),
            Self::Suffix(suffix) => Truth::from(value.ends_with(&**suffix)),
            Self::Glob(glob) => glob.truth(value),
            Self::Regex(regex) => Truth::from(regex.is_match(value)),
            Self::PathUnder(base) => text::is_under(value, base),
            Self::UrlHost(hosts) => text::url_host(value, hosts),
            Self::EmailDomain(domains) => text::email_domain(value, domains),
            Self::Cidr(nets) => cidr(value, nets),
            Self::MaxLen(most) => Truth::from(value.chars().count() <= *most),
            Self::OneOf(_)
            | Self::NoneOf(_)
            | Self::Range { .. }
            | Self::MaxItems(_)
            | Self::Type(_)
            | Self::Absent
            | Self::Present => Truth::Unknown,
        }
    }

    /// Tests an absent value. `otherwise` is the answer of matchers that need a value.
    pub(super) fn absent(&self, otherwise: Truth) -> Truth {
        match self {
            Self::Absent => Truth::Yes,
            Self::Present => Truth::No,
            Self::NoneOf(_) => Truth::Unknown,
            Self::OneOf(_)
            | Self::Prefix(_)
            | Self::Suffix(_)
            | Self::Glob(_)
            | Self::Regex(_)
            | Self::PathUnder(_)
            | Self::UrlHost(_)
            | Self::EmailDomain(_)
            | Self::Cidr(_)
            | Self::Range { .. }
            | Self::MaxLen(_)
            | Self::MaxItems(_)
            | Self::Type(_) => otherwise,
        }
    }
}

/// Whether the value equals one of the wanted ones; unknown if none of them has the value's type.
fn is_one_of(wanted: &[ScalarSpec], value: &LosslessJson<'_>) -> Truth {
    let equal = |scalar: &ScalarSpec| match (scalar, value) {
        (ScalarSpec::Text(wanted), LosslessJson::Text(text)) if !text.contains('\0') => Some(**text == **wanted),
        (ScalarSpec::Boolean(wanted), LosslessJson::Boolean(value)) => Some(wanted == value),
        // Both numbers are exact, so they can be compared.
        (ScalarSpec::Number(wanted), LosslessJson::Number(text)) => {
            exact_number(text).map(|number| number.total_cmp(wanted).is_eq())
        }
        _ => None,
    };
    let mut known = false;
    for scalar in wanted {
        match equal(scalar) {
            Some(true) => return Truth::Yes,
            Some(false) => known = true,
            None => {}
        }
    }
    if known { Truth::No } else { Truth::Unknown }
}

/// Whether a value has a JSON type; unknown for numbers such as `1.0` if the type is integer.
fn is_type(kind: JsonType, value: &LosslessJson<'_>) -> Truth {
    Truth::from(match (kind, value) {
        (JsonType::Integer, LosslessJson::Number(text)) => {
            // Some validators take `1.0` for an integer, others do not.
            let whole = exact_number(text).map(|number| number.fract() == 0.0);
            return if is_integer(text) {
                Truth::Yes
            } else if whole == Some(false) {
                Truth::No
            } else {
                Truth::Unknown
            };
        }
        (JsonType::String, LosslessJson::Text(_))
        | (JsonType::Number, LosslessJson::Number(_))
        | (JsonType::Boolean, LosslessJson::Boolean(_))
        | (JsonType::Null, LosslessJson::Null)
        | (JsonType::Array, LosslessJson::List(_))
        | (JsonType::Object, LosslessJson::Object(_)) => true,
        _ => false,
    })
}

/// Whether an address is in one of the networks; unknown for a text that is no plain address.
fn cidr(value: &str, nets: &[IpNet]) -> Truth {
    match value.parse::<IpAddr>() {
        // Some readers take a mapped address for the IPv4 address inside, others do not.
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => Truth::Unknown,
        Ok(address) => Truth::from(nets.iter().any(|net| net.contains(&address))),
        Err(_) => Truth::Unknown,
    }
}

/// Checks and copies the values of a matcher.
fn scalars(values: &[ScalarSpec]) -> Result<Box<[ScalarSpec]>, String> {
    check_length(values.len())?;
    for value in values {
        if let ScalarSpec::Number(number) = value {
            check_number(*number)?;
        }
    }
    // Adding zero gives zero one sign.
    let plain = |value: &ScalarSpec| match value {
        ScalarSpec::Number(number) => ScalarSpec::Number(number + 0.0),
        ScalarSpec::Text(_) | ScalarSpec::Boolean(_) => value.clone(),
    };
    Ok(values.iter().map(plain).collect())
}

fn check_number(number: f64) -> Result<(), String> {
    if number.abs() <= MAX_EXACT {
        return Ok(());
    }
    Err("must not be beyond 2^53, where numbers are not the same to every reader of JSON".to_owned())
}

fn check_length(length: usize) -> Result<(), String> {
    match length {
        0 => Err("must not be empty; such a condition never holds".to_owned()),
        1..=MAX_LIST => Ok(()),
        _ => Err(format!("must not have more than {MAX_LIST} entries")),
    }
}

fn some_text(text: &str) -> Result<Box<str>, String> {
    if text.is_empty() {
        return Err("must not be empty; write type = \"string\" for any text".to_owned());
    }
    Ok(Box::from(text))
}

/// Compiles the entries of a list matcher.
fn list<T>(texts: &[String], compile: impl Fn(&str) -> Result<T, String>) -> Result<Box<[T]>, String> {
    check_length(texts.len())?;
    texts.iter().map(|text| compile(text)).collect()
}

fn net(text: &str) -> Result<IpNet, String> {
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let net = net.map_err(|_| format!("`{text}` is no network, such as \"10.0.0.0/8\" or \"fd00::/8\""))?;
    if net.trunc() != net {
        return Err(format!("`{text}` has bits beyond its length; write \"{}\"", net.trunc()));
    }
    Ok(net)
}

fn range(min: Option<f64>, max: Option<f64>) -> Result<ArgumentMatcher, String> {
    if min.is_none() && max.is_none() {
        return Err("needs `min` or `max`, such as { min = 1, max = 100 }".to_owned());
    }
    for number in min.iter().chain(&max) {
        check_number(*number)?;
    }
    let (min, max) = (min.unwrap_or(f64::NEG_INFINITY), max.unwrap_or(f64::INFINITY));
    if min > max {
        return Err("never holds: `min` is above `max`".to_owned());
    }
    Ok(ArgumentMatcher::Range { min, max })
}

fn regex(text: &str) -> Result<Regex, String> {
    if text.is_empty() || text.len() > MAX_REGEX_LENGTH {
        return Err(format!("must be a regular expression of up to {MAX_REGEX_LENGTH} bytes, and not empty"));
    }
    let mut builder = RegexBuilder::new(text);
    let built = builder.size_limit(MAX_REGEX_SIZE).dfa_size_limit(MAX_REGEX_SIZE).nest_limit(64).build();
    built.map_err(|error| {
        if matches!(error, regex::Error::CompiledTooBig(_)) {
            return "is too large once it is compiled; write a simpler expression".to_owned();
        }
        // The message is a drawing of several lines; the last line names the mistake.
        let message = error.to_string();
        let last = message.lines().last().unwrap_or_default();
        format!("is no regular expression: {}", last.trim_start_matches("error: "))
    })
}
