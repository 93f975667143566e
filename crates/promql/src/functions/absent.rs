//! `absent` and `absent_over_time`: one where there is nothing.

use crate::column::Column;
use crate::plan::{Node, Window, Windowed};
use std::collections::HashSet;
use takt_model::MatchOp;
use takt_model::{Labels, METRIC_NAME};

/// One at each step at which no column has a value.
pub(crate) fn absent(columns: &[Column], argument: &Node, steps: usize) -> Option<Column> {
    let missing = |step: usize| columns.iter().all(|column| !column.is_present(step));
    Column::new(
        labels(argument),
        (0..steps)
            .map(|step| missing(step).then_some(1.0))
            .collect(),
    )
}

/// The labels that the missing series would have had (`createLabelsForAbsentFunction`): those matched by equality and
/// by nothing else.
fn labels(argument: &Node) -> Labels {
    let (Node::Selector(selector)
    | Node::Window(Window {
        of: Windowed::Series(selector),
        ..
    })) = argument
    else {
        return Labels::new();
    };

    let mut labels = Labels::new();
    let mut seen = HashSet::new();
    for matcher in selector
        .matchers
        .iter()
        .filter(|matcher| matcher.name() != METRIC_NAME)
    {
        // Two different values for one label contradict each other, so the label is left out.
        if matcher.op() == MatchOp::Equal && seen.insert(matcher.name()) {
            labels.set(matcher.name(), matcher.value());
        } else {
            labels.remove(matcher.name());
        }
    }

    labels
}
