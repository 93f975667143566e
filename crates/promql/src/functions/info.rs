//! `info`: adds the labels of info series, such as `target_info`, to series of the same target (`promql/info.go`).

use crate::column::{Column, Element};
use crate::error::{Error, same_labelset};
use crate::matching::shown;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use takt_model::{Labels, METRIC_NAME, MatchOp, Matcher};

/// The labels that an info series shares with the series of its target.
const IDENTIFYING: [&str; 2] = ["instance", "job"];
/// The info series of a call without conditions on the name.
const TARGET_INFO: &str = "target_info";

/// Conditions of a call.
pub(crate) struct InfoConditions {
    /// Conditions on the names of info series.
    pub names: Vec<Matcher>,
    /// Conditions on other labels. Unless empty, only these labels are added.
    data: Vec<Matcher>,
}

impl InfoConditions {
    /// The conditions in the second argument, if there is one.
    pub fn of(given: &[Matcher]) -> Self {
        let (mut names, data): (Vec<Matcher>, Vec<Matcher>) = given
            .iter()
            .cloned()
            .partition(|one| one.name() == METRIC_NAME);
        let is_positive = |one: &Matcher| matches!(one.op(), MatchOp::Equal | MatchOp::Regex);
        if names.is_empty() {
            names.push(Matcher::metric(TARGET_INFO));
        } else if !names.iter().any(is_positive) {
            // Only negative conditions on the name would select every series of the store.
            names.extend(Matcher::new(METRIC_NAME, MatchOp::Regex, ".+_info"));
        }
        Self { names, data }
    }

    /// All conditions that an info series fulfils.
    pub fn all(&self) -> Vec<Matcher> {
        self.names.iter().chain(&self.data).cloned().collect()
    }

    fn is_info(&self, labels: &Labels) -> bool {
        self.names.iter().all(|one| one.accepts(labels.metric()))
    }

    /// Labels that an info series adds to a series. Fails where it contradicts another info series.
    fn add(&self, info: &Labels, base: &Labels, added: &mut Labels) -> Result<(), Error> {
        for (name, value) in info.iter().filter(|(name, _)| *name != METRIC_NAME) {
            if !self.data.is_empty() && !self.data.iter().any(|one| one.name() == name) {
                continue;
            }
            if added.get(name).is_some_and(|known| known != value) {
                return Err(Error::Execution(format!("conflicting label: {name}")));
            }
            // Labels of the series itself win.
            if base.get(name).is_none() {
                added.set(name, value);
            }
        }
        Ok(())
    }
}

/// Name and identifying labels.
type Signature<'a> = [&'a str; 3];

fn signature<'a>(metric: &'a str, labels: &'a Labels) -> Signature<'a> {
    let [instance, job] = IDENTIFYING.map(|name| labels.get(name).unwrap_or_default());
    [metric, instance, job]
}

/// The columns with the labels of info series. The values of `infos` are the times of their samples.
pub(crate) fn info(
    base: &[Column],
    infos: &[Column],
    conditions: &InfoConditions,
    steps: usize,
) -> Result<Vec<Column>, Error> {
    let infos = of_these_targets(base, infos, conditions);
    let mut names: Vec<&str> = infos.iter().map(|one| one.labels.metric()).collect();
    names.sort_unstable();
    names.dedup();

    // A condition that an absent label does not fulfil removes series without an info series.
    let needs_info = conditions.data.iter().any(|one| !one.accepts(""));
    let mut places: HashMap<Labels, usize> = HashMap::new();
    let mut found: Vec<(Labels, Vec<Option<Element>>)> = Vec::new();

    for step in 0..steps {
        let newest = newest(&infos, step)?;
        for column in base {
            let Some(element) = column.element(step) else {
                continue;
            };

            let mut labels = column.labels.clone();
            // An info series in the first argument stays as it is.
            if !conditions.is_info(&labels) {
                let mut added = Labels::new();
                let mut is_known = false;
                for name in &names {
                    if let Some(info) = newest.get(&signature(name, &column.labels)) {
                        conditions.add(&info.labels, &column.labels, &mut added)?;
                        is_known = true;
                    }
                }
                if !is_known && needs_info {
                    continue;
                }
                added
                    .iter()
                    .for_each(|(name, value)| labels.set(name, value));
            }

            let place = *places.entry(labels.clone()).or_insert(found.len());
            if place == found.len() {
                found.push((labels, vec![None; steps]));
            }
            let slot = &mut found[place].1[step];
            // Two series became equal by the added labels.
            if slot.replace(element).is_some() {
                return Err(same_labelset());
            }
        }
    }

    Ok(found
        .into_iter()
        .map(|(labels, elements)| Column {
            labels,
            ..Column::default().with_elements(elements.into_iter())
        })
        .collect())
}

/// The info series with identifying labels that the series have.
fn of_these_targets<'a>(
    base: &[Column],
    infos: &'a [Column],
    conditions: &InfoConditions,
) -> Vec<&'a Column> {
    let targets = base.iter().filter(|one| !conditions.is_info(&one.labels));

    let values = IDENTIFYING.map(|name| {
        targets
            .clone()
            .filter_map(|one| one.labels.get(name))
            .collect::<hashbrown::HashSet<&str>>()
    });

    if values.iter().all(hashbrown::HashSet::is_empty) {
        return Vec::new();
    }

    infos
        .iter()
        .filter(|info| {
            IDENTIFYING.iter().zip(&values).all(|(name, values)| {
                values.is_empty()
                    || info
                        .labels
                        .get(name)
                        .is_some_and(|own| values.contains(own))
            })
        })
        .collect()
}

/// The newest info series of each signature at a step.
fn newest<'a>(
    infos: &[&'a Column],
    step: usize,
) -> Result<HashMap<Signature<'a>, &'a Column>, Error> {
    let mut newest: HashMap<Signature<'a>, &'a Column> = HashMap::new();

    for info in infos {
        let Some(at) = info.values[step] else {
            continue;
        };
        match newest.entry(signature(info.labels.metric(), &info.labels)) {
            Entry::Vacant(place) => {
                place.insert(info);
            }
            Entry::Occupied(mut place) => {
                let known = *place.get();
                let known_at = known.values[step].unwrap_or_default();
                // Neither is newer, so the labels would depend on the order of series.
                if known_at == at {
                    return Err(Error::Execution(format!(
                        "found duplicate series for info metric: existing {} @ {}, new {} @ {}",
                        shown(&known.labels),
                        known_at * 1e3,
                        shown(&info.labels),
                        at * 1e3
                    )));
                }
                if known_at < at {
                    place.insert(info);
                }
            }
        }
    }
    Ok(newest)
}
