//! Tables of configuration keys: each row states the meaning of a key, its kind, its default and
//! its range. The macro `keys!` generates from the rows a type with a field for each key, its
//! default, and the functions that read and show it.

use crate::policy::Rate;
use crate::source::file::{ConfigNode, ConfigTable};

/// Reads a whole table and reports its unknown keys; an absent table has its defaults.
pub(crate) fn read_whole<T: Default>(
    table: Option<ConfigTable<'_>>,
    read: impl FnOnce(&mut ConfigTable<'_>) -> T,
) -> T {
    let Some(mut table) = table else { return T::default() };
    let value = read(&mut table);
    table.finish();
    value
}

/// Reads a rate above zero.
pub(crate) fn rate(node: &ConfigNode<'_>) -> Option<Rate> {
    let rate = match Rate::parse(&node.string()?) {
        Ok(rate) if rate.count == 0 => Err("must not be zero".to_owned()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    };
    rate.map_err(|message| node.problem(message)).ok()
}

/// Reads a value of a kind, which is the name of a reader of `ConfigNode`, or `rate`.
macro_rules! read_value {
    (rate, $node:ident) => {
        $crate::keys::rate(&$node)
    };
    ($kind:ident, $node:ident $(, $range:expr)?) => {
        $node.$kind($(&$range)?)
    };
}

/// Writes a value of a kind as TOML.
macro_rules! shown_value {
    (count, $value:expr) => {
        toml::Value::Integer(i64::try_from($value).unwrap_or(i64::MAX))
    };
    (boolean, $value:expr) => {
        toml::Value::Boolean($value)
    };
    (choice, $value:expr) => {
        toml::Value::String($value.into_str().to_owned())
    };
    (rate, $value:expr) => {
        toml::Value::String($value.to_string())
    };
    ($kind:ident, $value:expr) => {
        toml::Value::String($crate::source::units::$kind($value))
    };
}

/// Generates a type for a table; see the head of this module. Fields under `besides` are read by
/// hand.
macro_rules! keys {
    (
        $(#[$about:meta])*
        struct $name:ident {
            $($(#[$doc:meta])* $field:ident: $value:ty as $kind:ident = $key:literal, $default:expr $(, $range:expr)?;)*
        }
        $(besides { $($(#[$other_doc:meta])* $other:ident: $other_value:ty = $other_default:expr;)* })?
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $value,)*
            $($($(#[$other_doc])* pub $other: $other_value,)*)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* $($($other: $other_default,)*)? }
            }
        }

        impl $name {
            /// Reads the keys of the rows. An absent or invalid key gets its default.
            pub(crate) fn read_keys(table: &mut $crate::source::file::ConfigTable<'_>) -> Self {
                let mut this = Self::default();
                $(
                    let value = table.take($key).and_then(|node| read_value!($kind, node $(, $range)?));
                    this.$field = value.unwrap_or(this.$field);
                )*
                this
            }

            /// Returns the keys of the rows with their values.
            pub(crate) fn shown(&self) -> toml::Table {
                [$(($key.to_owned(), shown_value!($kind, self.$field)),)*].into_iter().collect()
            }
        }
    };
}

pub(super) use {keys, read_value, shown_value};
