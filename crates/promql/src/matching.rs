//! Operators between two vectors: which elements belong together (`VectorBinop`, `VectorAnd`, … in `promql/engine.go`).

use crate::annotations::About;
use crate::binary::elements;
use crate::budget::Budget;
use crate::column::{Column, drop_name, merge};
use crate::error::Error;
use crate::group::Groups;
use crate::native;
use crate::plan::{Grouping, Matching, Operator, Side};
use hashbrown::HashMap;
use takt_model::{Labels, quoted};

const MANY_TO_ONE: &str =
    "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)";
const NOT_UNIQUE: &str = "multiple matches for labels: grouping labels must ensure unique matches";

/// The elements that have a counterpart of the same group at that step (`present`), or those that have none.
fn filtered(
    columns: Vec<Column>,
    others: &[Column],
    grouping: &Grouping,
    steps: usize,
    present: bool,
) -> Vec<Column> {
    let mut groups = Groups::new(grouping);

    // One flag a step: set operators look at each step alone, as an element may come and go.
    let mut presence: Vec<Vec<bool>> = Vec::new();
    for other in others {
        let group = groups.place(&other.labels);
        presence.resize_with(groups.len(), || vec![false; steps]);
        presence[group]
            .iter_mut()
            .enumerate()
            .for_each(|(step, seen)| *seen |= other.is_present(step));
    }

    columns
        .into_iter()
        .filter_map(|mut column| {
            let seen = groups.find(&column.labels).map(|group| &presence[group]);
            for step in 0..steps {
                if seen.is_some_and(|seen| seen[step]) != present {
                    column.clear(step);
                }
            }
            column.unless_empty()
        })
        .collect()
}

/// An operator between two vectors. In arithmetic and comparison, "many" is the side that may have several elements a group,
/// the left one unless `group_right` says otherwise; the other is "one". As in Prometheus, which swaps the sides under
/// `group_right` but not their values, `fill_left` fills in elements of "many", and `fill_right` elements of "one".
pub(crate) struct Pairing<'a> {
    pub op: Operator,
    pub matching: &'a Matching,
    pub return_bool: bool,
    pub steps: usize,
    pub budget: &'a Budget,
}

#[derive(Default)]
struct Group {
    many: Vec<Column>,
    one: Vec<Column>,
}

impl Pairing<'_> {
    /// Two vectors under any binary operator.
    pub fn vectors(
        &self,
        lhs: Vec<Column>,
        rhs: Vec<Column>,
        about: &mut About<'_>,
    ) -> Result<Vec<Column>, Error> {
        let grouping = &self.matching.grouping;
        match self.op {
            Operator::And => merge(filtered(lhs, &rhs, grouping, self.steps, true)),
            Operator::Unless => merge(filtered(lhs, &rhs, grouping, self.steps, false)),

            // The right side's elements come after all of the left side's, as in Prometheus.
            Operator::Or => {
                let rest = filtered(rhs, &lhs, grouping, self.steps, false);
                merge(lhs.into_iter().chain(rest).collect())
            }
            _ => self.run(lhs, rhs, about),
        }
    }

    fn run(
        &self,
        lhs: Vec<Column>,
        rhs: Vec<Column>,
        about: &mut About<'_>,
    ) -> Result<Vec<Column>, Error> {
        // The sides are swapped, so that the rest knows only one direction; `sides` swaps the
        // values back.
        let (many, one) = if self.matching.side == Side::Right {
            (rhs, lhs)
        } else {
            (lhs, rhs)
        };
        // A step at which either side is empty is not looked at, so not for duplicates either, unless a value is filled in.
        let fills = self.matching.fill_left.is_some() || self.matching.fill_right.is_some();
        let both: Vec<bool> = (0..self.steps)
            .map(|step| fills || has_any(&many, step) && has_any(&one, step))
            .collect();

        let groups = self.groups(many, one);
        for group in groups.iter().filter(|group| group.one.len() > 1) {
            self.refuse_duplicates(&group.one, &both)?;
        }

        let mut result = Vec::new();
        for group in groups {
            // Before the pairs are made: each has a value a step, and there can be far more of them
            // than operands.
            self.budget
                .hold(group.many.len().saturating_mul(self.steps))?;
            result.extend(self.pair(group, about)?);
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
            let mut present = one.iter().filter(|column| column.is_present(step));
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
                    shown(&second.labels),
                    shown(&first.labels)
                )));
            }
        }
        Ok(())
    }

    fn pair(
        &self,
        Group { many, mut one }: Group,
        about: &mut About<'_>,
    ) -> Result<Vec<Column>, Error> {
        // Filled elements are added behind the real ones, so that they can be cut off again below.
        let lacks_one = |step| !has_any(&one, step);
        let filled_one = self.filled(&many, lacks_one, self.matching.fill_right);
        let real = one.len();
        one.extend(filled_one);

        let mut pairs = Vec::new();
        let matched = self.pair_each(&many, &one, &mut pairs, about)?;

        // An element whose only counterparts are of a kind that the operator does not take is filled in, too.
        one.truncate(real);
        let lacks_many = |step: usize| !matched[step];
        let filled_many = self.filled(&one, lacks_many, self.matching.fill_left);
        self.pair_each(filled_many.as_slice(), &one, &mut pairs, about)?;
        Ok(pairs)
    }

    /// The operator on each pair. Returns at which steps elements matched.
    fn pair_each(
        &self,
        many: &[Column],
        one: &[Column],
        pairs: &mut Vec<Column>,
        about: &mut About<'_>,
    ) -> Result<Vec<bool>, Error> {
        let is_one_to_one = self.matching.side == Side::None;

        // Lists of matches cost a flag a step and pair, so they are made only where something may
        // clash.
        let may_clash = many.len() * one.len() > 1;
        let must_know = may_clash || self.matching.fill_left.is_some();

        // Comparisons that filter an element out do not make the match any more unique.
        let mut seen = vec![false; self.steps];
        let mut found: HashMap<Labels, Vec<bool>> = HashMap::new();
        for many in many {
            for one in one {
                let labels = self.result_labels(&many.labels, &one.labels);

                if must_know {
                    let matched: Vec<bool> = (0..self.steps)
                        .map(|step| self.is_match(many, one, step))
                        .collect();
                    // One to one, any second match of the group is wrong. With `group_left`, only a
                    // second one that gives the same labels.
                    if is_one_to_one {
                        refuse_second(&seen, &matched, MANY_TO_ONE)?;
                    } else {
                        let seen = found
                            .entry(labels.clone())
                            .or_insert_with(|| vec![false; self.steps]);
                        refuse_second(seen, &matched, NOT_UNIQUE)?;
                        add_matches(seen, &matched);
                    }
                    add_matches(&mut seen, &matched);
                }

                let nameless = self.op.compares() && (many.nameless || self.return_bool);
                let column = Column {
                    labels,
                    nameless,
                    ..self.combined(many, one, about)
                };
                pairs.extend(column.unless_empty());
            }
        }
        Ok(seen)
    }

    /// Left and right of a pair.
    fn sides<'a>(&self, many: &'a Column, one: &'a Column) -> (&'a Column, &'a Column) {
        if self.matching.side == Side::Right {
            (one, many)
        } else {
            (many, one)
        }
    }

    /// Whether both have an element at the step, of kinds that the operator takes.
    fn is_match(&self, many: &Column, one: &Column, step: usize) -> bool {
        if !many.is_present(step) || !one.is_present(step) {
            return false;
        }
        let (lhs, rhs) = self.sides(many, one);
        native::takes(
            self.op,
            lhs.histogram(step).is_some(),
            rhs.histogram(step).is_some(),
        )
    }

    /// The results of the operator, one a step.
    fn combined(&self, many: &Column, one: &Column, about: &mut About<'_>) -> Column {
        let (lhs, rhs) = self.sides(many, one);

        // The slow way only for series that have histograms: nearly all have floats alone.
        if lhs.has_histograms() || rhs.has_histograms() {
            let elements = (0..self.steps).map(|step| {
                let lhs = lhs.element(step)?;
                let rhs = rhs.element(step)?;
                native::combined(self.op, &lhs, &rhs, self.return_bool, about)
            });
            return Column::default().with_elements(elements);
        }

        let values = lhs
            .values
            .iter()
            .zip(&rhs.values)
            .map(|(lhs, rhs)| elements(self.op, (*lhs)?, (*rhs)?, self.return_bool))
            .collect();

        Column {
            values,
            ..Column::default()
        }
    }

    /// The counterpart that `fill` gives to the elements of one side, at the steps that lack one.
    fn filled(
        &self,
        others: &[Column],
        lacks: impl Fn(usize) -> bool,
        value: Option<f64>,
    ) -> Option<Column> {
        let value = value?;
        let labels = self.matching.grouping.labels(&others.first()?.labels);
        let values = (0..self.steps)
            .map(|step| (lacks(step) && has_any(others, step)).then_some(value))
            .collect();
        Column::new(labels, values)
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

        // An empty value removes the label, so a stale one of the many side does not stay.
        for name in &self.matching.include {
            labels.set(name, one.get(name).unwrap_or_default());
        }
        labels
    }
}

/// All labels in braces, the name among them, as Prometheus shows a metric in this message.
pub(crate) fn shown(labels: &Labels) -> String {
    let pairs: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}={}", quoted(value)))
        .collect();
    format!("{{{}}}", pairs.join(", "))
}

/// Fails at a step that has a match already.
fn refuse_second(seen: &[bool], matched: &[bool], text: &str) -> Result<(), Error> {
    if seen.iter().zip(matched).any(|(seen, new)| *seen && *new) {
        return Err(Error::Execution(text.to_owned()));
    }
    Ok(())
}

fn add_matches(seen: &mut [bool], matched: &[bool]) {
    for (seen, new) in seen.iter_mut().zip(matched) {
        *seen |= new;
    }
}

fn has_any(columns: &[Column], step: usize) -> bool {
    columns.iter().any(|column| column.is_present(step))
}
