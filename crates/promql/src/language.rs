//! Functions, operators and keywords of the language, and which of them are evaluated.

use crate::eval::Options;
use crate::functions::{Body, FUNCTIONS};
use crate::syntax::tree::{Aggregation, Operator};

/// A part of the language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// The name under which Prometheus lists it.
    pub name: &'static str,
    support: Support,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Support {
    Always,
    Experimental,
    Never,
}

impl Feature {
    const fn new(name: &'static str, support: Support) -> Self {
        Self { name, support }
    }

    /// Whether queries with these options may use it.
    pub fn is_enabled(&self, options: &Options) -> bool {
        match self.support {
            Support::Always => true,
            Support::Experimental => options.experimental,
            Support::Never => false,
        }
    }
}

/// The functions, by name.
pub fn functions() -> Vec<Feature> {
    let support = |body: &Body, experimental: bool| match (body, experimental) {
        (Body::Unsupported, _) => Support::Never,
        (_, true) => Support::Experimental,
        (_, false) => Support::Always,
    };
    FUNCTIONS
        .iter()
        .map(|function| {
            Feature::new(
                function.name,
                support(&function.body, function.experimental),
            )
        })
        .collect()
}

/// Operators of matchers, binary operators and aggregations.
pub fn operators() -> Vec<Feature> {
    let matchers = ["=~", "!~", "@"].map(|name| Feature::new(name, Support::Always));

    let binary = Operator::all().map(|op| {
        // Operators on histograms that the grammar knows and no evaluator answers.
        let trims = matches!(op, Operator::TrimUpper | Operator::TrimLower);
        Feature::new(
            op.name(),
            if trims {
                Support::Never
            } else {
                Support::Always
            },
        )
    });

    let aggregations = Aggregation::all().map(|op| {
        let support = if op.is_experimental() {
            Support::Experimental
        } else {
            Support::Always
        };
        Feature::new(op.name(), support)
    });

    matchers
        .into_iter()
        .chain(binary)
        .chain(aggregations)
        .collect()
}

/// Modifiers and other syntax.
pub fn modifiers() -> Vec<Feature> {
    const ALWAYS: [&str; 14] = [
        "at_modifier",
        "bool",
        "by",
        "duration_expr",
        "group_left",
        "group_right",
        "ignoring",
        "negative_offset",
        "offset",
        "on",
        "per_query_lookback_delta",
        "per_step_stats",
        "subqueries",
        "without",
    ];
    const EXPERIMENTAL: [&str; 5] = ["anchored", "fill", "fill_left", "fill_right", "smoothed"];
    const NEVER: [&str; 2] = ["delayed_name_removal", "type_and_unit_labels"];

    let of = |names: &'static [&'static str], support| {
        names.iter().map(move |name| Feature::new(name, support))
    };
    of(&ALWAYS, Support::Always)
        .chain(of(&EXPERIMENTAL, Support::Experimental))
        .chain(of(&NEVER, Support::Never))
        .collect()
}
