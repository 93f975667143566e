//! Tables of users, accounts, days and GPU models, and the rank among others.

use super::super::books::{Entry, Tally};
use super::super::{Day, Member, Part, Rank, RankRow, Share, Subject};
use super::figures::{figures, last, wait_mean};
use super::{FIRST_PLACES, Facts, HOUR, SeenRun};
use crate::Period;
use std::collections::HashMap;
use takt_jobs::JobRun;

/// Returns the members with usage in the last period, largest usage first.
pub(super) fn table<'e>(
    facts: &Facts<'_>,
    seen: &[SeenRun<'_>],
    entries: impl Iterator<Item = (&'e str, &'e Entry)>,
    key: fn(&JobRun) -> &String,
) -> Vec<Member> {
    let at = facts.books.periods().len() - 1;
    let mut by_name: HashMap<&str, Vec<&SeenRun<'_>>> = HashMap::new();

    for seen in seen.iter().filter(|seen| seen.is_in_last()) {
        by_name
            .entry(key(&seen.assessed.run))
            .or_default()
            .push(seen);
    }

    let member = |(name, entry): (&str, &Entry)| Member {
        name: name.to_owned(),
        figures: figures(
            facts,
            entry,
            by_name.get(name).map(Vec::as_slice).unwrap_or_default(),
            at,
        ),
        wait_mean_hours: wait_mean(&entry.waits).map(|seconds| seconds / HOUR),
    };

    let mut members: Vec<Member> = entries
        .filter(|(_, entry)| is_used(last(entry)))
        .map(member)
        .collect();
    members.sort_by(|a, b| {
        let order = |member: &Member| (member.figures.gpu_hours, member.figures.cpu_hours);
        let a_used = order(a);
        let b_used = order(b);
        b_used
            .0
            .total_cmp(&a_used.0)
            .then(b_used.1.total_cmp(&a_used.1))
            .then_with(|| a.name.cmp(&b.name))
    });

    members
}

fn is_used(tally: &Tally) -> bool {
    tally.cpu_seconds > 0.0 || tally.gpu_seconds > 0.0 || tally.jobs_started > 0
}

pub(super) fn days(period: &Period, entry: &Entry) -> Vec<Day> {
    let mut date = period.first_day();
    let mut days = Vec::new();
    // The last midnight is the end of the period.
    for at in 1..period.midnights().len() {
        let (gpu_seconds, cpu_seconds) = entry.days.get(&(at - 1)).copied().unwrap_or_default();
        days.push(Day {
            date: date.to_string(),
            gpu_hours: gpu_seconds / HOUR,
            cpu_hours: cpu_seconds / HOUR,
        });
        date = date.tomorrow().unwrap_or(date);
    }
    days
}

pub(super) fn models(entry: &Entry) -> Vec<Part> {
    let name = |name: &String| {
        if name.is_empty() {
            "unknown model".to_owned()
        } else {
            name.clone()
        }
    };

    let mut parts: Vec<Part> = entry
        .models
        .iter()
        .map(|(model, seconds)| Part {
            name: name(model),
            gpu_hours: seconds / HOUR,
        })
        .collect();

    parts.sort_by(|a, b| {
        b.gpu_hours
            .total_cmp(&a.gpu_hours)
            .then_with(|| a.name.cmp(&b.name))
    });

    parts
}

pub(super) fn share(of: &Tally, all: &Tally) -> Share {
    let ratio = |of: f64, all: f64| (all > 0.0).then(|| of / all);
    Share {
        gpu: ratio(of.gpu_seconds, all.gpu_seconds),
        cpu: ratio(of.cpu_seconds, all.cpu_seconds),
    }
}

pub(super) fn rank(facts: &Facts<'_>, subject: &Subject) -> Option<Rank> {
    let Subject::User(own) = subject else {
        return None;
    };

    // A cluster without GPU usage is ranked by CPU-hours.
    let by_gpu = last(facts.books.all()).gpu_seconds > 0.0;
    let used = |entry: &Entry| if by_gpu { last(entry).gpu_seconds } else { last(entry).cpu_seconds } / HOUR;

    let mut users: Vec<(&str, &Entry)> = facts
        .books
        .users()
        .filter(|(_, entry)| used(entry) > 0.0)
        .collect();
    users.sort_by(|(a_name, a), (b_name, b)| {
        used(b).total_cmp(&used(a)).then_with(|| a_name.cmp(b_name))
    });

    let place = users.iter().position(|(name, _)| name == own)? + 1;

    let row = |(at, (name, entry)): (usize, &(&str, &Entry))| RankRow {
        place: at + 1,
        name: (!facts.pseudonyms || name == own).then(|| (*name).to_owned()),
        is_self: name == own,
        hours: used(entry),
    };

    let rows = users
        .iter()
        .enumerate()
        .map(row)
        // Everybody sees the first places, and their own.
        .filter(|row| row.place <= FIRST_PLACES || row.is_self)
        .collect();

    let unit = if by_gpu { "GPU-hours" } else { "CPU-hours" }.to_owned();
    Some(Rank {
        place,
        of: users.len(),
        unit,
        rows,
    })
}
