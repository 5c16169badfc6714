//! The errors of header values and of the annotations behind them.

/// The reason why a header, an annotation or an argument is refused. Messages hold names, never
/// values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("header value has a character that is not visible ASCII")]
    Character,
    #[error("header value is not valid Base64 between its markers")]
    Base64,
    #[error("header value is not valid UTF-8 after decoding")]
    Utf8,

    #[error("input schema is not valid JSON")]
    Schema,
    #[error("input schema names a key twice")]
    SchemaKey,
    #[error("input schema is nested deeper than {limit} levels")]
    Depth { limit: usize },
    #[error("`x-mcp-header` is not a header token")]
    Name,
    #[error("`x-mcp-header` uses the name `{name}` twice")]
    NameTaken { name: String },
    #[error("`x-mcp-header` is on a property that is not an integer, string or boolean")]
    Type,
    #[error("`x-mcp-header` is not reachable through `properties` alone")]
    Unreachable,
    #[error("more than {limit} properties have an `x-mcp-header`")]
    TooMany { limit: usize },

    #[error("arguments are not one JSON object with unique keys")]
    Arguments,
    #[error("argument for header `{name}` is not a string, a boolean or an exact integer")]
    Argument { name: String },
    #[error("header `{name}` is missing")]
    Missing { name: String },
    #[error("header `{name}` is present without its argument")]
    Unexpected { name: String },
    #[error("header `{name}` does not match its argument")]
    Mismatch { name: String },
}
