//! Operators on two floats, and on a vector with a scalar.

use crate::annotations::About;
use crate::column::{Column, Element};
use crate::native;
use crate::plan::Operator;

/// Two scalars; comparisons yield 1 or 0 (`scalarBinop`).
pub(crate) fn scalars(op: Operator, lhs: f64, rhs: f64) -> f64 {
    if op.compares() {
        truth(holds(op, lhs, rhs))
    } else {
        compute(op, lhs, rhs)
    }
}

/// Two elements of vectors: the value, unless a comparison filters it out (`vectorElemBinop`).
pub(crate) fn elements(op: Operator, lhs: f64, rhs: f64, return_bool: bool) -> Option<f64> {
    match (op.compares(), return_bool) {
        (false, _) => Some(compute(op, lhs, rhs)),
        (true, true) => Some(truth(holds(op, lhs, rhs))),
        (true, false) => holds(op, lhs, rhs).then_some(lhs),
    }
}

/// Where the scalar stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Left,
    Right,
}

/// A vector with a scalar, which has one value a step (`VectorscalarBinop`). A comparison keeps the vector's value,
/// whichever side that stands on.
pub(crate) fn with_scalar(
    op: Operator,
    columns: Vec<Column>,
    scalar: &[f64],
    place: Place,
    return_bool: bool,
    about: &mut About<'_>,
) -> Vec<Column> {
    let element = |value: f64, scalar: f64| match place {
        Place::Right => elements(op, value, scalar, return_bool),
        Place::Left if op.compares() && !return_bool => holds(op, scalar, value).then_some(value),
        Place::Left => elements(op, scalar, value, return_bool),
    };
    let mut apply = |mut column: Column| {
        // Rare, and slower: each step may be a float or a histogram.
        if column.has_histograms() {
            return with_histograms(op, column, scalar, place, return_bool, about).unless_empty();
        }
        for (value, scalar) in column.values.iter_mut().zip(scalar) {
            *value = value.and_then(|value| element(value, *scalar));
        }
        column.unless_empty()
    };
    columns.into_iter().filter_map(&mut apply).collect()
}

/// As [`with_scalar`], for a column with histograms.
fn with_histograms(
    op: Operator,
    column: Column,
    scalar: &[f64],
    place: Place,
    return_bool: bool,
    about: &mut About<'_>,
) -> Column {
    let mut elements = Vec::with_capacity(scalar.len());
    for (step, scalar) in scalar.iter().enumerate() {
        let scalar = Element::Float(*scalar);
        elements.push(column.element(step).and_then(|element| match place {
            Place::Right => native::combined(op, &element, &scalar, return_bool, about),
            // The operands keep their order: 1 - h is not h - 1.
            Place::Left => {
                let found = native::combined(op, &scalar, &element, return_bool, about)?;
                // A comparison keeps the vector's value.
                let keeps = op.compares() && !return_bool;
                Some(if keeps { element } else { found })
            }
        }));
    }
    column.with_elements(elements.into_iter())
}

fn compute(op: Operator, lhs: f64, rhs: f64) -> f64 {
    match op {
        Operator::Add => lhs + rhs,
        Operator::Sub => lhs - rhs,
        Operator::Mul => lhs * rhs,
        Operator::Div => lhs / rhs,
        Operator::Mod => lhs % rhs,
        Operator::Pow => lhs.powf(rhs),
        Operator::Atan2 => lhs.atan2(rhs),
        // Comparisons and set operators compute nothing; the caller handles them.
        _ => f64::NAN,
    }
}

fn holds(op: Operator, lhs: f64, rhs: f64) -> bool {
    match op {
        Operator::Equal => lhs == rhs,
        Operator::NotEqual => lhs != rhs,
        Operator::Less => lhs < rhs,
        Operator::LessEqual => lhs <= rhs,
        Operator::Greater => lhs > rhs,
        Operator::GreaterEqual => lhs >= rhs,
        _ => false,
    }
}

fn truth(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}
