//! Operators between two vectors: which elements belong together (`VectorBinop`, `VectorAnd`, … in `promql/engine.go`).

use crate::query::promql::binary::elements;
use crate::query::promql::budget::Budget;
use crate::query::promql::column::{Column, drop_name, merge, merge_or};
use crate::query::promql::error::Error;
use crate::query::promql::plan::{Grouping, Matching, Operator, Side};
use std::collections::HashMap;
use takt_model::{Labels, METRIC_NAME};

/// Two vectors under any binary operator.
pub(crate) fn vectors(
    op: Operator,
    lhs: Vec<Column>,
    rhs: Vec<Column>,
    matching: &Matching,
    return_bool: bool,
    steps: usize,
    budget: &Budget,
) -> Result<Vec<Column>, Error> {
    match op {
        Operator::And => merge(filtered(lhs, &rhs, &matching.grouping, steps, true)),
        Operator::Unless => merge(filtered(lhs, &rhs, &matching.grouping, steps, false)),
        Operator::Or => {
            let rest = filtered(rhs, &lhs, &matching.grouping, steps, false);
            merge(lhs.into_iter().chain(rest).collect())
        }
        _ => Pairing { op, matching, return_bool, steps, budget }.run(lhs, rhs),
    }
}

/// The elements that have a counterpart of the same group at that step (`present`), or those that have none.
fn filtered(columns: Vec<Column>, others: &[Column], grouping: &Grouping, steps: usize, present: bool) -> Vec<Column> {
    let mut groups: HashMap<Vec<u8>, Vec<bool>> = HashMap::new();
    for other in others {
        let seen = groups.entry(signature(&other.labels, grouping)).or_insert_with(|| vec![false; steps]);
        seen.iter_mut().zip(&other.values).for_each(|(seen, value)| *seen |= value.is_some());
    }
    let keep = |mut column: Column| {
        let seen = groups.get(&signature(&column.labels, grouping));
        for (step, value) in column.values.iter_mut().enumerate() {
            if seen.is_some_and(|seen| seen[step]) != present {
                *value = None;
            }
        }
        Column::new(column.labels, column.values)
    };
    columns.into_iter().filter_map(keep).collect()
}

/// What tells groups apart: the values of the labels that count, each with its name and length.
pub(crate) fn signature(labels: &Labels, grouping: &Grouping) -> Vec<u8> {
    let counts = |name: &str| match grouping {
        Grouping::By(names) => names.iter().any(|known| known == name),
        Grouping::Without(names) => name != METRIC_NAME && !names.iter().any(|known| known == name),
    };
    let mut signature = Vec::new();
    for (name, value) in labels.iter().filter(|(name, _)| counts(name)) {
        for text in [name, value] {
            signature.extend_from_slice(&(text.len() as u32).to_le_bytes());
            signature.extend_from_slice(text.as_bytes());
        }
    }
    signature
}

/// Arithmetic and comparison. "Many" is the side that may have several elements a group, the left one unless
/// `group_right` says otherwise; the other is "one".
struct Pairing<'a> {
    op: Operator,
    matching: &'a Matching,
    return_bool: bool,
    steps: usize,
    budget: &'a Budget,
}

#[derive(Default)]
struct Group {
    many: Vec<Column>,
    one: Vec<Column>,
}

impl Pairing<'_> {
    fn run(&self, lhs: Vec<Column>, rhs: Vec<Column>) -> Result<Vec<Column>, Error> {
        let (many, one) = if self.matching.side == Side::Right { (rhs, lhs) } else { (lhs, rhs) };
        // A step at which either side is empty is not looked at at all, so not for duplicates either.
        let both: Vec<bool> = (0..self.steps).map(|step| has_any(&many, step) && has_any(&one, step)).collect();
        let groups = self.groups(many, one);
        for group in groups.iter().filter(|group| group.one.len() > 1) {
            self.refuse_duplicates(&group.one, &both)?;
        }
        let mut result = Vec::new();
        for group in groups {
            self.budget.hold(group.many.len().saturating_mul(self.steps))?;
            result.extend(self.pair(group)?);
        }
        merge(result)
    }

    /// In the order in which the many side names them, so that results keep that order.
    fn groups(&self, many: Vec<Column>, one: Vec<Column>) -> Vec<Group> {
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut groups: Vec<Group> = Vec::new();
        let mut place = |column: &Column, groups: &mut Vec<Group>| {
            *places.entry(signature(&column.labels, &self.matching.grouping)).or_insert_with(|| {
                groups.push(Group::default());
                groups.len() - 1
            })
        };
        for column in many {
            let at = place(&column, &mut groups);
            groups[at].many.push(column);
        }
        for column in one {
            let at = place(&column, &mut groups);
            groups[at].one.push(column);
        }
        groups
    }

    fn refuse_duplicates(&self, one: &[Column], both: &[bool]) -> Result<(), Error> {
        for step in (0..self.steps).filter(|step| both[*step]) {
            let mut present = one.iter().filter(|column| column.values[step].is_some());
            if let (Some(first), Some(second)) = (present.next(), present.next()) {
                let side = if self.matching.side == Side::Right { "left" } else { "right" };
                let group = match_labels(&first.labels, &self.matching.grouping);
                return Err(Error::Execution(format!(
                    "found duplicate series for the match group {group} on the {side} hand-side of the operation: \
                     [{}, {}];many-to-many matching not allowed: matching labels must be unique on one side",
                    second.labels, first.labels
                )));
            }
        }
        Ok(())
    }

    fn pair(&self, group: Group) -> Result<Vec<Column>, Error> {
        let mut pairs = Vec::new();
        for many in &group.many {
            for one in &group.one {
                let values = many.values.iter().zip(&one.values).map(|(many, one)| {
                    let (lhs, rhs) = if self.matching.side == Side::Right { (one, many) } else { (many, one) };
                    elements(self.op, (*lhs)?, (*rhs)?, self.return_bool)
                });
                let values = values.collect();
                pairs.extend(Column::new(self.result_labels(&many.labels, &one.labels), values));
            }
        }
        if self.matching.side != Side::None {
            return merge_or(pairs, || {
                let text = "multiple matches for labels: grouping labels must ensure unique matches";
                Error::Execution(text.to_owned())
            });
        }
        match (0..self.steps).any(|step| pairs.iter().filter(|pair| pair.values[step].is_some()).nth(1).is_some()) {
            true => Err(Error::Execution(
                "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
                    .to_owned(),
            )),
            false => Ok(pairs),
        }
    }

    /// `resultMetric`: a comparison keeps the name, unless `on` leaves it out or `bool` makes a new value of it.
    fn result_labels(&self, many: &Labels, one: &Labels) -> Labels {
        let mut labels = many.clone();
        if !self.op.compares() || self.return_bool {
            drop_name(&mut labels);
        }
        if self.matching.side == Side::None {
            labels = match &self.matching.grouping {
                Grouping::By(names) => labels.iter().filter(|(name, _)| names.iter().any(|n| n == name)).collect(),
                Grouping::Without(names) => {
                    names.iter().for_each(|name| drop(labels.remove(name)));
                    labels
                }
            };
        }
        for name in &self.matching.include {
            labels.set(name, one.get(name).unwrap_or_default());
        }
        labels
    }
}

fn has_any(columns: &[Column], step: usize) -> bool {
    columns.iter().any(|column| column.values[step].is_some())
}

fn match_labels(labels: &Labels, grouping: &Grouping) -> Labels {
    let counts = |name: &str| match grouping {
        Grouping::By(names) => names.iter().any(|known| known == name),
        Grouping::Without(names) => name != METRIC_NAME && !names.iter().any(|known| known == name),
    };
    labels.iter().filter(|(name, _)| counts(name)).collect()
}
