//! Metric families: how each kind is created from its row of the table, and how it drops the series
//! of an upstream.

use std::collections::HashMap;

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::proto::MetricFamily;
use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

/// The label by which families have a series for each upstream.
const UPSTREAM: &str = "upstream";

/// A row of the table of metrics.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetricRow {
    pub(super) name: &'static str,
    #[cfg(test)]
    pub(super) kind: &'static str,
    /// The help text on the metrics page.
    pub(super) help: &'static str,
    /// The sentence in the documentation, if it says more than `help`.
    #[cfg(test)]
    pub(super) doc: Option<&'static str>,
    pub(super) labels: &'static [&'static str],
    /// Upper bounds of a histogram's buckets, in seconds.
    pub(super) buckets: &'static [f64],
}

/// A kind of metric family.
pub(super) trait Family: Collector + Clone + 'static {
    /// The word for the kind in the documentation.
    #[cfg(test)]
    const KIND: &'static str;

    /// Creates the family.
    ///
    /// # Errors
    /// The name in the row is not valid.
    fn build(row: &MetricRow) -> prometheus::Result<Self>;

    /// Creates the family and adds it to the registry.
    ///
    /// # Errors
    /// The name in the row is not valid, or is taken already.
    fn register(row: &MetricRow, registry: &Registry) -> prometheus::Result<Self> {
        let family = Self::build(row)?;
        registry.register(Box::new(family.clone()))?;
        Ok(family)
    }

    /// Drops the series of an upstream.
    fn forget(&self, _upstream: &str) {}
}

macro_rules! families_without_labels {
    ($($family:ident is $kind:literal,)*) => {$(
        impl Family for $family {
            #[cfg(test)]
            const KIND: &'static str = $kind;

            fn build(row: &MetricRow) -> prometheus::Result<Self> {
                Self::new(row.name, row.help)
            }
        }
    )*};
}

macro_rules! families_with_labels {
    ($($family:ident is $kind:literal,)*) => {$(
        impl Family for $family {
            #[cfg(test)]
            const KIND: &'static str = $kind;

            fn build(row: &MetricRow) -> prometheus::Result<Self> {
                Self::new(Opts::new(row.name, row.help), row.labels)
            }

            fn forget(&self, upstream: &str) {
                remove_series(self, upstream);
            }
        }
    )*};
}

families_without_labels! { Counter is "counter", IntCounter is "counter", Gauge is "gauge", IntGauge is "gauge", }
families_with_labels! {
    CounterVec is "counter", IntCounterVec is "counter", GaugeVec is "gauge", IntGaugeVec is "gauge",
}

impl Family for HistogramVec {
    #[cfg(test)]
    const KIND: &'static str = "histogram";

    fn build(row: &MetricRow) -> prometheus::Result<Self> {
        Self::new(HistogramOpts::new(row.name, row.help).buckets(row.buckets.to_vec()), row.labels)
    }

    fn forget(&self, upstream: &str) {
        remove_series(self, upstream);
    }
}

/// Removes the series of an upstream with any values of their other labels.
fn remove_series<B: MetricVecBuilder>(family: &MetricVec<B>, upstream: &str) {
    for metric in family.collect().iter().flat_map(MetricFamily::get_metric) {
        let labels: HashMap<&str, &str> =
            metric.get_label().iter().map(|label| (label.name(), label.value())).collect();
        if labels.get(UPSTREAM) == Some(&upstream) {
            // Removing fails if the series is gone by now, and nothing is left to do then.
            drop(family.remove(&labels));
        }
    }
}

/// The families of a table of rows.
pub(super) trait FamilyTable: Sized {
    /// All rows, in the order of the table.
    const ROWS: &[MetricRow];

    /// Creates all families and adds them to the registry.
    ///
    /// # Errors
    /// The registry refuses a row, which is a mistake in the table.
    fn register(registry: &Registry) -> prometheus::Result<Self>;

    /// Drops the series of an upstream.
    fn forget(&self, upstream: &str);
}

/// Converts a count to the value of a gauge.
pub(super) fn signed<T: TryInto<i64>>(count: T) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// Declares the struct that holds the families of a table.
macro_rules! families {
    (
        $(#[$about:meta])* $visibility:vis struct $table:ident;
        $($field:ident: $family:ident [$($label:literal),*] $name:literal
            $help:literal $(documented as $doc:literal)? $(in $buckets:ident)?;)*
    ) => {
        $(#[$about])*
        #[derive(Debug)]
        $visibility struct $table {
            $(pub(super) $field: $family,)*
        }

        impl FamilyTable for $table {
            fn register(registry: &Registry) -> prometheus::Result<Self> {
                let mut rows = Self::ROWS.iter();
                let mut next = || rows.next().ok_or_else(|| prometheus::Error::Msg("a row is missing".to_owned()));
                Ok(Self { $($field: <$family as Family>::register(next()?, registry)?,)* })
            }

            fn forget(&self, upstream: &str) {
                $(self.$field.forget(upstream);)*
            }

            const ROWS: &[MetricRow] = &[$(MetricRow {
                name: $name,
                #[cfg(test)]
                kind: <$family as Family>::KIND,
                help: $help,
                #[cfg(test)]
                doc: [$(Some($doc),)? None][0],
                labels: &[$($label),*],
                buckets: [$($buckets,)? &[]][0],
            },)*];
        }
    };
}

pub(super) use families;
