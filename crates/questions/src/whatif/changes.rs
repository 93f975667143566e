//! The changes of a what-if question, as people write them.

use super::WhatIfQuestion;
use super::past::{PastRecords, node_names};
use crate::{AnswerError, did_you_mean};
use takt_model::words::{amount, count};
use takt_simulate::{ChangeEffect, PastPeriod, PeriodChange};

/// Most nodes that a question may add.
const MOST_ADDED: usize = 10_000;

/// Largest factor of requests.
const MOST_REQUESTS: f64 = 5.0;

/// Reads the changes of a question, in the order in which they apply.
///
/// # Errors
/// If one of them is about something that the cluster does not have, or changes nothing by its nature.
pub(super) fn period_changes(
    asked: &WhatIfQuestion,
    past: &PastRecords,
) -> Result<Vec<PeriodChange>, AnswerError> {
    let mut changes = Vec::new();
    if let Some(list) = &asked.add {
        changes.push(added(list, asked.like.as_deref(), past)?);
    } else if asked.like.is_some() {
        return Err(AnswerError::Usage(
            "like names the example of nodes to add: expected add, too".to_owned(),
        ));
    }
    if let Some(list) = &asked.remove {
        changes.push(removed(list, asked.add.is_some(), past)?);
    }
    for one in asked.limit.iter().flat_map(|text| text.split(',')) {
        changes.push(limit(one, past)?);
    }
    match asked.runtime.as_deref() {
        None => {}
        Some("used") => changes.push(PeriodChange::RunTimeUsed),
        Some(other) => {
            return Err(AnswerError::Usage(format!(
                "runtime is '{other}': expected used, as if every job had asked for the time that it ran"
            )));
        }
    }
    if let Some(list) = &asked.node_ok {
        changes.extend(past.nodes(list)?.into_iter().map(PeriodChange::NodeOk));
    }
    if let Some(factor) = asked.requests {
        if !(factor > 0.0 && factor <= MOST_REQUESTS) {
            return Err(AnswerError::Usage(format!(
                "requests is {factor}: expected a factor above 0 and up to {MOST_REQUESTS}, such as 1.2 for 20 % more jobs"
            )));
        }
        changes.push(PeriodChange::Requests(factor));
    }
    Ok(changes)
}

fn added(list: &str, like: Option<&str>, past: &PastRecords) -> Result<PeriodChange, AnswerError> {
    let nodes = &past.period.cluster.nodes;
    let names = node_names(list)?;
    if names.len() > MOST_ADDED {
        return Err(AnswerError::Usage(format!(
            "{} nodes are too many to add: expected at most {MOST_ADDED}",
            names.len()
        )));
    }
    if let Some(name) = names
        .iter()
        .find(|name| nodes.iter().any(|node| node.name == **name))
    {
        return Err(AnswerError::Usage(format!(
            "the cluster has a node {name} already: name new ones"
        )));
    }

    let like = match like {
        Some(like) => match past.nodes(like)?.as_slice() {
            [one] => *one,
            _ => {
                return Err(AnswerError::Usage(format!(
                    "like is '{like}': expected one node"
                )));
            }
        },
        None => {
            let first = &nodes[0];
            let is_alike = |node: &takt_simulate::SimulatedNode| {
                node.has == first.has
                    && node.gpu_model == first.gpu_model
                    && node.partitions == first.partitions
            };
            if let Some(other) = nodes.iter().find(|node| !is_alike(node)) {
                return Err(AnswerError::Usage(format!(
                    "the nodes of the cluster differ ({} and {}): say with like which the new ones resemble",
                    first.name, other.name
                )));
            }
            0
        }
    };
    Ok(PeriodChange::AddNodes(names, like))
}

fn removed(list: &str, adds: bool, past: &PastRecords) -> Result<PeriodChange, AnswerError> {
    let nodes = past.nodes(list)?;
    if nodes.len() == past.period.cluster.nodes.len() && !adds {
        return Err(AnswerError::Usage(
            "without these nodes the cluster has none: remove fewer".to_owned(),
        ));
    }
    Ok(PeriodChange::RemoveNodes(nodes))
}

fn limit(text: &str, past: &PastRecords) -> Result<PeriodChange, AnswerError> {
    let parsed = text.split_once('=').and_then(|(name, hours)| {
        let hours: f64 = hours.trim().trim_end_matches('h').parse().ok()?;
        let is_time = hours > 0.0 && hours <= 87_600.0;
        is_time.then(|| (name.trim(), (hours * 3600.0).ceil() as i64))
    });
    let Some((name, seconds)) = parsed else {
        return Err(AnswerError::Usage(format!(
            "limit is '{text}': expected a partition and hours, such as gpu=24"
        )));
    };
    let known = past.partitions();
    if known.contains(name) {
        return Ok(PeriodChange::LimitTime(name.to_owned(), seconds));
    }
    let near = did_you_mean(name, known.iter().copied());
    Err(AnswerError::Usage(format!(
        "there is no partition {name}; known: {}{near}",
        known.into_iter().collect::<Vec<_>>().join(", ")
    )))
}

/// Applies a change, and says in a sentence what it has changed.
///
/// # Errors
/// If nothing was there to be changed.
pub(super) fn applied(
    change: &PeriodChange,
    period: &mut PastPeriod,
) -> Result<String, AnswerError> {
    let effect = change.apply(period);
    let changed = count(effect.changed as u64);
    Ok(match change {
        PeriodChange::AddNodes(_, like) => {
            let like = &period.cluster.nodes[*like];
            let has = format!("{} CPUs, {} GPUs", like.has.cpus, like.has.gpus);
            format!("{changed} more nodes like {} ({has})", like.name)
        }
        PeriodChange::RemoveNodes(_) => format!("{changed} nodes less"),
        PeriodChange::LimitTime(partition, seconds) => limit_words(partition, *seconds, effect),
        PeriodChange::RunTimeUsed => {
            format!("{changed} jobs ask for the time that they run, instead of their limits")
        }
        PeriodChange::NodeOk(node) => {
            let name = &period.cluster.nodes[*node].name;
            if effect.changed == 0 {
                return Err(AnswerError::Usage(format!(
                    "no failure of node {name} is recorded in this period: it was up all the time, as far as known"
                )));
            }
            format!("node {name} without its {changed} recorded failures")
        }
        PeriodChange::Requests(factor) if *factor < 1.0 => {
            format!("{changed} jobs, drawn at random, are left out")
        }
        PeriodChange::Requests(_) => {
            format!("{changed} more jobs, copies of others within a day of them")
        }
    })
}

fn limit_words(partition: &str, seconds: i64, effect: ChangeEffect) -> String {
    let hours = amount(seconds as f64 / 3600.0);
    if effect.changed == 0 {
        return format!(
            "no job of the period asked for more than {hours} h in partition {partition}: its limit changes nothing"
        );
    }
    let changed = count(effect.changed as u64);
    let mut words =
        format!("{changed} jobs of partition {partition} ask for {hours} h instead of more");
    if effect.cut_jobs > 0 {
        words += &format!(
            "; {} of them ran longer and end there, which leaves out {} GPU-hours of work",
            count(effect.cut_jobs as u64),
            amount(effect.cut_gpu_seconds / 3600.0)
        );
    }
    words
}
