//! Operators between two vectors: which elements belong together (`VectorBinop`, `VectorAnd`, … in `promql/engine.go`).

use crate::binary::elements;
use crate::budget::Budget;
use crate::column::{Column, drop_name, merge, merge_or};
use crate::error::Error;
use crate::group::Groups;
use crate::plan::{Grouping, Matching, Operator, Side};
use takt_model::Labels;

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
        _ => Pairing {
            op,
            matching,
            return_bool,
            steps,
            budget,
        }
        .run(lhs, rhs),
    }
}

/// The elements that have a counterpart of the same group at that step (`present`), or those that have none.
fn filtered(
    columns: Vec<Column>,
    others: &[Column],
    grouping: &Grouping,
    steps: usize,
    present: bool,
) -> Vec<Column> {
    let mut groups = Groups::new(grouping);
    let mut presence: Vec<Vec<bool>> = Vec::new();
    for other in others {
        let group = groups.place(&other.labels);
        presence.resize_with(groups.len(), || vec![false; steps]);
        presence[group]
            .iter_mut()
            .zip(&other.values)
            .for_each(|(seen, value)| *seen |= value.is_some());
    }
    let keep = |mut column: Column| {
        let seen = groups.find(&column.labels).map(|group| &presence[group]);
        for (step, value) in column.values.iter_mut().enumerate() {
            if seen.is_some_and(|seen| seen[step]) != present {
                *value = None;
            }
        }
        column.unless_empty()
    };
    columns.into_iter().filter_map(keep).collect()
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
        let (many, one) = if self.matching.side == Side::Right {
            (rhs, lhs)
        } else {
            (lhs, rhs)
        };
        // A step at which either side is empty is not looked at at all, so not for duplicates either.
        let both: Vec<bool> = (0..self.steps)
            .map(|step| has_any(&many, step) && has_any(&one, step))
            .collect();
        let groups = self.groups(many, one);
        for group in groups.iter().filter(|group| group.one.len() > 1) {
            self.refuse_duplicates(&group.one, &both)?;
        }
        let mut result = Vec::new();
        for group in groups {
            self.budget
                .hold(group.many.len().saturating_mul(self.steps))?;
            result.extend(self.pair(group)?);
        }
        merge(result)
    }

    /// In the order in which the many side names them, so that results keep that order.
    fn groups(&self, many: Vec<Column>, one: Vec<Column>) -> Vec<Group> {
        let mut places = Groups::new(&self.matching.grouping);
        let mut groups: Vec<Group> = Vec::new();
        for column in many {
            let at = places.place(&column.labels);
            groups.resize_with(places.len(), Group::default);
            groups[at].many.push(column);
        }
        for column in one {
            let at = places.place(&column.labels);
            groups.resize_with(places.len(), Group::default);
            groups[at].one.push(column);
        }
        groups
    }

    fn refuse_duplicates(&self, one: &[Column], both: &[bool]) -> Result<(), Error> {
        for step in (0..self.steps).filter(|step| both[*step]) {
            let mut present = one.iter().filter(|column| column.values[step].is_some());
            if let (Some(first), Some(second)) = (present.next(), present.next()) {
                let side = if self.matching.side == Side::Right {
                    "left"
                } else {
                    "right"
                };
                let group = self.matching.grouping.labels(&first.labels);
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
                    let (lhs, rhs) = if self.matching.side == Side::Right {
                        (one, many)
                    } else {
                        (many, one)
                    };
                    elements(self.op, (*lhs)?, (*rhs)?, self.return_bool)
                });
                let (labels, values) = (
                    self.result_labels(&many.labels, &one.labels),
                    values.collect(),
                );
                let nameless = self.op.compares() && (many.nameless || self.return_bool);
                pairs.extend(
                    Column {
                        labels,
                        values,
                        nameless,
                    }
                    .unless_empty(),
                );
            }
        }
        if self.matching.side != Side::None {
            return merge_or(pairs, || {
                let text =
                    "multiple matches for labels: grouping labels must ensure unique matches";
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

    /// `resultMetric`: a comparison keeps the name, unless `on` leaves it out. (That `bool` makes a new value of it is
    /// said by [`Column::nameless`].)
    fn result_labels(&self, many: &Labels, one: &Labels) -> Labels {
        let mut labels = many.clone();
        if !self.op.compares() {
            drop_name(&mut labels);
        }
        if self.matching.side == Side::None {
            match &self.matching.grouping {
                by @ Grouping::By(_) => labels = by.labels(&labels),
                Grouping::Without(names) => names.iter().for_each(|name| drop(labels.remove(name))),
            }
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
