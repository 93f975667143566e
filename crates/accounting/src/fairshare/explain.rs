//! Explains a user's fair share: the current place, when it changes, and the effect of a planned
//! job, as values and as text.
//!
//! Users often misread level FS, so the text explains it each time.

use super::decay::DecayTable;
use super::factor::{Standing, standings};
use super::tree::{AssociationId, AssociationTree};
use super::usage::Usage;
use serde::Serialize;
use std::fmt;
use std::iter;
use takt_jobs::billing::TresAmounts;
use takt_jobs::{BillingRates, PrioritySettings, Shares};
use takt_model::UnixTime;

/// Input of an explanation of one cluster's fair share.
#[derive(Debug, Clone, Copy)]
pub struct Explainer<'a> {
    /// Associations.
    pub tree: &'a AssociationTree,
    /// Formula and flags.
    pub settings: &'a PrioritySettings,
    /// Decay.
    pub table: &'a DecayTable,
    /// Costs of jobs.
    pub rates: &'a BillingRates,
    /// Usage.
    pub usage: &'a Usage,
}

/// A job that a user considers submitting.
#[derive(Debug, Clone, Copy)]
pub struct PlannedJob<'a> {
    /// Partition.
    pub partition: &'a str,
    /// Quality of service.
    pub qos: Option<&'a str>,
    /// Requested TRES.
    pub tres: &'a TresAmounts,
    /// Duration in hours.
    pub hours: f64,
}

/// Explanation of a user's fair share.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// Account of the user.
    pub account: String,
    /// Unix user.
    pub user: String,
    /// Partition, if the association is valid in one partition only.
    pub partition: Option<String>,
    /// Time of the usage.
    pub as_of: UnixTime,
    /// Start of the recent period that predictions are based on.
    pub recent_from: UnixTime,
    /// Current place.
    pub place: Place,
    /// Number of user associations.
    pub users: usize,
    /// Path from the root account to the user.
    pub path: Vec<Step>,
    /// The user one place above. `None` for the best place.
    pub above: Option<Above>,
    /// Effect of the planned job.
    pub planned: Option<Planned>,
}

/// Place of a user.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Place {
    /// Level FS: shares over usage among the siblings. Above 1 the user has used less than the
    /// share. `None` in the classic formula and with `fairshare=parent`. Infinity is written as
    /// `"inf"`.
    #[serde(serialize_with = "super::row::infinite")]
    pub level_fs: Option<f64>,
    /// Fair-share factor of the priority, 0 to 1.
    pub fair_share: f64,
    /// Place from 1, the best. Tied users have the same place.
    pub place: usize,
}

/// One level of the path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// Name of the account or user.
    pub name: String,
    /// Whether this is a user.
    pub is_user: bool,
    /// Configured shares. `None` for the root.
    pub raw_shares: Option<Shares>,
    /// S: fraction of the shares (of the siblings' under Fair Tree, of the cluster's in the classic
    /// formula).
    pub norm_shares: f64,
    /// U: fraction of the usage (of the account's under Fair Tree; effective usage in the classic
    /// formula).
    pub effective_usage: f64,
    /// S / U. `None` if the level is not compared.
    #[serde(serialize_with = "super::row::infinite")]
    pub level_fs: Option<f64>,
}

/// The user one place above, and the level that decides between the two.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Above {
    /// Account of that user.
    pub account: String,
    /// That user.
    pub user: String,
    /// Fair-share factor of that user.
    pub fair_share: f64,
    /// Last common account of the two users.
    pub part_at: String,
    /// The user's own side below the common account: a user or an account.
    pub hers: Step,
    /// The other user's side.
    pub theirs: Step,
    /// Criterion that decides.
    pub decided_by: DecidedBy,
    /// When the user overtakes the other one without running anything, while all others continue at
    /// their recent rate.
    pub passed_if_others_continue: Prospect,
    /// The same while all users are idle: all usage decays equally, so the order never changes.
    pub passed_if_others_idle: Prospect,
}

/// Criterion between two siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// Shares and usage.
    Shares,
    /// `fairshare=parent`: the user ranks before all siblings, whatever the usage.
    ParentShares,
    /// Both are equal, and users rank before accounts.
    UserBeforeAccount,
    /// Both are equal, and the order in Slurm's list decides.
    Order,
}

/// Time of a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Prospect {
    /// About this time.
    At(UnixTime),
    /// Not before this time, the end of the prediction.
    NotBefore(UnixTime),
    /// Never.
    Never,
}

/// Effect of a job that starts now, at its end, if the user runs nothing else and all others
/// continue at their recent rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Planned {
    /// Charge in billing units × seconds.
    pub charge: f64,
    /// End of the job.
    pub at: UnixTime,
    /// Place at that time without the job.
    pub without: Place,
    /// Place at that time with the job.
    pub with: Place,
}

impl Explainer<'_> {
    /// Explains a user's association. Returns `None` for an account.
    pub fn explain(
        &self,
        id: AssociationId,
        planned: Option<PlannedJob<'_>>,
    ) -> Option<Explanation> {
        let association = self.tree.get(id);
        // Slurm's factors are those of the last tick.
        let standings = standings(self.tree, self.settings, &self.usage.all_at_last_tick());

        Some(Explanation {
            account: association.account.clone(),
            user: association.user.clone()?,
            partition: association.partition.clone(),
            as_of: self.usage.as_of(),
            recent_from: self.usage.recent_from(),
            place: self.place(&standings, id),
            users: self.tree.user_count(),
            path: self
                .tree
                .path(id)
                .into_iter()
                .map(|id| self.step(&standings, id))
                .collect(),
            above: self.above(&standings, id),
            planned: planned.map(|job| self.plan(id, job)),
        })
    }

    fn place(&self, standings: &[Standing], id: AssociationId) -> Place {
        let own = fair_share(standings, id);
        let better = |id: &&AssociationId| {
            self.tree.get(**id).user.is_some() && fair_share(standings, **id) > own
        };
        let place = self.tree.top_down().iter().filter(better).count() + 1;
        Place {
            level_fs: standings[id.index()].level_fs,
            fair_share: own,
            place,
        }
    }

    fn step(&self, standings: &[Standing], id: AssociationId) -> Step {
        let association = self.tree.get(id);
        let standing = &standings[id.index()];
        Step {
            name: association.name().to_owned(),
            is_user: association.user.is_some(),
            raw_shares: self.tree.parent(id).map(|_| association.shares),
            norm_shares: standing.norm_shares,
            effective_usage: standing.effective_usage,
            level_fs: standing.level_fs,
        }
    }

    fn above(&self, standings: &[Standing], id: AssociationId) -> Option<Above> {
        let own = fair_share(standings, id);
        let above = self
            .tree
            .display_order()
            .into_iter()
            .filter(|other| {
                self.tree.get(*other).user.is_some() && fair_share(standings, *other) > own
            })
            // The nearest one above; among ties, the first in the order of display.
            .min_by(|left, right| {
                fair_share(standings, *left).total_cmp(&fair_share(standings, *right))
            })?;

        let (part_at, hers, theirs) = self.parting(id, above)?;
        let hers_step = self.step(standings, hers);
        let theirs_step = self.step(standings, theirs);

        // A user with `fairshare=parent` is first whatever the usage, but only under Fair Tree.
        let uses_parents = theirs_step.is_user && theirs_step.raw_shares == Some(Shares::Parent);
        let decided_by = if uses_parents && !self.settings.flags.no_fair_tree {
            DecidedBy::ParentShares
        } else if self.settings.flags.no_fair_tree || hers_step.compared() != theirs_step.compared()
        {
            DecidedBy::Shares
        } else if hers_step.is_user != theirs_step.is_user {
            DecidedBy::UserBeforeAccount
        } else {
            DecidedBy::Order
        };

        Some(Above {
            account: self.tree.get(above).account.clone(),
            user: self.tree.get(above).name().to_owned(),
            fair_share: fair_share(standings, above),
            part_at: self.tree.get(part_at).account.clone(),
            hers: hers_step,
            theirs: theirs_step,
            decided_by,
            passed_if_others_continue: match decided_by {
                DecidedBy::ParentShares => Prospect::Never,
                _ => self.passes(id, above),
            },
            passed_if_others_idle: Prospect::Never,
        })
    }

    /// Returns the last common account of two users, and both sides below it.
    fn parting(
        &self,
        hers: AssociationId,
        theirs: AssociationId,
    ) -> Option<(AssociationId, AssociationId, AssociationId)> {
        let way = |id| {
            let mut way: Vec<_> =
                iter::successors(Some(id), |id| self.tree.fs_parent(*id)).collect();
            way.reverse();
            way
        };

        let hers = way(hers);
        let theirs = way(theirs);

        // The paths share a beginning; the level behind it decides.
        let common = hers
            .iter()
            .zip(&theirs)
            .take_while(|(left, right)| left == right)
            .count();

        Some((
            *hers.get(common.checked_sub(1)?)?,
            *hers.get(common)?,
            *theirs.get(common)?,
        ))
    }

    /// Predicts when a user overtakes another one by running nothing while all others continue.
    fn passes(&self, id: AssociationId, above: AssociationId) -> Prospect {
        const STEPS: i64 = 400;

        // Without decay, a month is the scale of the prediction.
        let half_life = match i64::from(self.settings.decay_half_life_seconds) {
            0 => 30 * 86_400,
            half_life => half_life,
        };

        // After eight half-lives, less than half a percent of the present usage is left.
        let horizon = 8 * half_life;
        let passed = |seconds: i64| {
            let standings = standings(self.tree, self.settings, &self.without(id, seconds));
            fair_share(&standings, id) > fair_share(&standings, above)
        };

        let Some(step) = (1..=STEPS).find(|step| passed(horizon * step / STEPS)) else {
            return Prospect::NotBefore(self.usage.as_of() + horizon);
        };

        // Bisect between the last step before and the first step after overtaking.
        let mut not_yet = horizon * (step - 1) / STEPS;
        let mut by_then = horizon * step / STEPS;
        // To one tick: Slurm computes factors no more often.
        while by_then - not_yet > i64::from(self.settings.calc_period_seconds.max(1)) {
            let middle = not_yet + (by_then - not_yet) / 2;
            *(if passed(middle) {
                &mut by_then
            } else {
                &mut not_yet
            }) = middle;
        }
        Prospect::At(self.usage.as_of() + by_then)
    }

    /// Returns the usage after this many seconds in which this user runs nothing and all others
    /// continue.
    fn without(&self, id: AssociationId, seconds: i64) -> Vec<f64> {
        let rate = |other| {
            if other == id {
                0.0
            } else {
                self.usage.recent_rate(other)
            }
        };
        self.usage.projected(self.tree, self.table, seconds, rate)
    }

    fn plan(&self, id: AssociationId, job: PlannedJob<'_>) -> Planned {
        // A negative length would give back usage.
        let seconds = (job.hours.max(0.0) * 3600.0).round() as i64;
        let per_second = self.rates.per_second(job.partition, job.qos, job.tres);

        let without = self.without(id, seconds);
        let mut with = without.clone();
        // The charge counts for the user and for each account above.
        for id in self.tree.path(id) {
            with[id.index()] += per_second * self.table.decay().sum_over(seconds);
        }

        let place =
            |raw_usage: &[f64]| self.place(&standings(self.tree, self.settings, raw_usage), id);

        Planned {
            charge: per_second * seconds as f64,
            at: self.usage.as_of() + seconds,
            without: place(&without),
            with: place(&with),
        }
    }
}

fn fair_share(standings: &[Standing], id: AssociationId) -> f64 {
    standings[id.index()].fair_share.unwrap_or(0.0)
}

impl Step {
    /// Returns the value for the comparison. A user with `fairshare=parent` ranks before all
    /// others.
    fn compared(&self) -> f64 {
        self.level_fs.unwrap_or(f64::INFINITY)
    }
}

/// Writes the explanation as text for the user.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = &self.user;
        write!(f, "{user} (account {}", self.account)?;
        if let Some(partition) = &self.partition {
            write!(f, ", partition {partition}")?;
        }

        let place = self.place.place;
        let users = self.users;
        writeln!(
            f,
            ") has place {place} of {users}: fair share {:.4}, where 1 is the best.",
            self.place.fair_share
        )?;

        // The classic formula has no level FS.
        if self.path.iter().any(|step| step.level_fs.is_some()) {
            writeln!(
                f,
                "Level FS: >1 means you have used less than your share (good for your priority), <1 means more."
            )?;
        }

        // The root has all shares, so it says nothing.
        for (depth, step) in self.path.iter().enumerate().skip(1) {
            writeln!(f, "{:indent$}{step}", "", indent = 2 * depth)?;
        }

        match &self.above {
            None => writeln!(f, "Nobody has a better place.")?,
            Some(above) => {
                above.write(f, user)?;
                above.write_prospects(f, user, self.as_of, self.recent_from)?;
            }
        }

        self.planned
            .as_ref()
            .map_or(Ok(()), |planned| planned.write(f, user, self.as_of))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = percent(self.norm_shares);
        let usage = percent(self.effective_usage);

        match (self.raw_shares, self.level_fs) {
            (Some(Shares::Parent), _) if self.is_user => {
                write!(
                    f,
                    "{}: uses the account's share and goes before its other users, {usage} of the usage",
                    self.name
                )
            }
            (Some(Shares::Parent), _) => {
                write!(f, "{}: not compared itself, its users are", self.name)
            }
            (_, Some(level_fs)) => {
                write!(
                    f,
                    "{}: {shares} of the shares, {usage} of the usage, {}",
                    self.name,
                    in_words(level_fs)
                )
            }
            (_, None) => write!(
                f,
                "{}: {shares} of the shares, {usage} effective usage",
                self.name
            ),
        }
    }
}

impl Above {
    fn write(&self, f: &mut fmt::Formatter<'_>, user: &str) -> fmt::Result {
        writeln!(
            f,
            "Next above is {} (account {}) with {:.4}.",
            self.user, self.account, self.fair_share
        )?;

        let hers = &self.hers;
        let theirs = &self.theirs;
        write!(
            f,
            "Their branches of the tree separate below {}: ",
            self.part_at
        )?;

        match (self.decided_by, hers.level_fs, theirs.level_fs) {
            (DecidedBy::ParentShares, ..) => {
                writeln!(
                    f,
                    "{} uses the account's own share (fairshare=parent) and always goes first.",
                    theirs.name
                )
            }
            (DecidedBy::UserBeforeAccount, ..) => {
                writeln!(
                    f,
                    "{} and {} are equal there, and users go before accounts.",
                    theirs.name, hers.name
                )
            }
            (DecidedBy::Order, ..) => {
                writeln!(
                    f,
                    "{} and {} are equal there, and {} is first in Slurm's list.",
                    theirs.name, hers.name, theirs.name
                )
            }
            (DecidedBy::Shares, Some(own), Some(other)) => {
                write!(
                    f,
                    "{} has {}, {} {}. ",
                    hers.name,
                    in_words(own),
                    theirs.name,
                    in_words(other)
                )?;
                if hers.is_user {
                    writeln!(f, "What {user} used decides.")
                } else {
                    writeln!(
                        f,
                        "What all of {} used decides, not {user} alone.",
                        hers.name
                    )
                }
            }
            (DecidedBy::Shares, ..) => {
                let of = |step: &Step| {
                    format!(
                        "{} of usage on {} of shares",
                        percent(step.effective_usage),
                        percent(step.norm_shares)
                    )
                };
                writeln!(
                    f,
                    "{} has {}, {} {}.",
                    hers.name,
                    of(hers),
                    theirs.name,
                    of(theirs)
                )
            }
        }
    }

    fn write_prospects(
        &self,
        f: &mut fmt::Formatter<'_>,
        user: &str,
        as_of: UnixTime,
        recent_from: UnixTime,
    ) -> fmt::Result {
        let other = &self.user;
        let recent = span(as_of - recent_from);
        write!(
            f,
            "If {user} runs nothing and all others continue as in the last {recent}, {user} "
        )?;

        match self.passed_if_others_continue {
            Prospect::At(at) => write!(f, "passes {other} in about {}", span(at - as_of))?,
            Prospect::NotBefore(at) => {
                write!(f, "does not pass {other} within {}", span(at - as_of))?
            }
            Prospect::Never => write!(f, "never passes {other}")?,
        }

        writeln!(
            f,
            "; if no user ran jobs, the order would stay the same, because all usage decays alike."
        )
    }
}

impl Planned {
    fn write(&self, f: &mut fmt::Formatter<'_>, user: &str, as_of: UnixTime) -> fmt::Result {
        let with = &self.with;
        let without = &self.without;
        write!(
            f,
            "The planned job would be charged {:.0} billing units x seconds. At its end, in {}, {user} would have ",
            self.charge,
            span(self.at - as_of)
        )?;

        if let (Some(with), Some(without)) = (with.level_fs, without.level_fs) {
            write!(f, "level FS {with:.2} instead of {without:.2}, ")?;
        }

        writeln!(
            f,
            "fair share {:.4} instead of {:.4} and place {} instead of {}.",
            with.fair_share, without.fair_share, with.place, without.place
        )
    }
}

fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

/// Formats level FS with its meaning.
fn in_words(level_fs: f64) -> String {
    match level_fs {
        level_fs if level_fs.is_infinite() => "level FS inf (nothing used)".to_owned(),
        0.0 => "level FS 0 (no shares)".to_owned(),
        // Near the share a percentage reads best, far above it a multiple.
        level_fs if level_fs > 0.5 => format!(
            "level FS {level_fs:.2} (used {:.0} % of its share)",
            100.0 / level_fs
        ),
        level_fs => format!(
            "level FS {level_fs:.2} (used {:.1} times its share)",
            1.0 / level_fs
        ),
    }
}

/// Formats a duration in its two largest units.
fn span(seconds: i64) -> String {
    let of =
        |count: i64, unit: &str| format!("{count} {unit}{}", if count == 1 { "" } else { "s" });
    let both = |count: i64, unit: &str, rest: i64, smaller: &str| match rest {
        0 => of(count, unit),
        rest => format!("{} {}", of(count, unit), of(rest, smaller)),
    };
    match seconds {
        // Clocks may differ, so the time may be before now.
        ..60 => of(seconds.max(0), "second"),
        60..3600 => of(seconds / 60, "minute"),
        3600..86_400 => both(seconds / 3600, "hour", seconds % 3600 / 60, "minute"),
        _ => both(seconds / 86_400, "day", seconds % 86_400 / 3600, "hour"),
    }
}

#[cfg(test)]
mod tests;
