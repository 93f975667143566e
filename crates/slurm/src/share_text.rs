//! Parsers of Slurm's tools for fair share: `sacctmgr show assoc|qos`, `sacct`, `scontrol show
//! config|partition`, `sshare`.
//!
//! The output of sacctmgr, sacct and sshare has a header and `|` between the fields (`-P`). Columns
//! may come in any order; unknown columns are ignored.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::str::FromStr;
use std::sync::Arc;
use takt_jobs::billing::{BillingWeights, TresAmounts, TresError};
use takt_jobs::{Association, PriorityFlags, PrioritySettings, Qos, Shares, UsageResetPeriod};
use takt_model::UnixTime;

/// Error in the output of a Slurm tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SlurmTextError {
    /// The header lacks a column.
    #[error("column '{0}' is missing")]
    Column(&'static str),
    /// A row has more or fewer fields than the header.
    #[error("line {line} has {found} fields, but the header has {expected}")]
    Fields {
        /// Line number, from 1.
        line: usize,
        /// Number of fields in this line.
        found: usize,
        /// Number of fields in the header.
        expected: usize,
    },
    /// A field has an invalid value.
    #[error("line {line}, {column}: '{text}' is not {expected}")]
    Value {
        /// Line number, from 1.
        line: usize,
        /// Column or key.
        column: &'static str,
        /// Text of the field.
        text: String,
        /// Expected format.
        expected: &'static str,
    },
    /// An association is listed twice.
    #[error("line {line}: an association of account '{account}' is listed twice")]
    Twice {
        /// Line number, from 1.
        line: usize,
        /// Name of the account.
        account: String,
    },
    /// A TRES string is invalid.
    #[error("line {line}")]
    Tres {
        /// Line number, from 1.
        line: usize,
        /// Cause.
        #[source]
        source: TresError,
    },
}

/// Parses the associations of one cluster: `sacctmgr -P show assoc [tree]
/// format=Account,ParentName,User,Partition,Share`, preferably with `Cluster`, `GrpTRESMins` and
/// `LFT`. With `LFT` the result has the order of Slurm up to 23.02, otherwise the order of the
/// text.
///
/// # Errors
/// A column is missing, shares are neither a number nor `parent`, or an association is listed twice.
pub fn associations(text: &str, cluster: &str) -> Result<Vec<Association>, SlurmTextError> {
    let table = TextTable::read(text)?;
    for column in ["Account", "ParentName", "User", "Share"] {
        table.require(column)?;
    }

    let mut found = Vec::new();
    let mut listed = HashSet::new();
    // sacctmgr lists the associations of every cluster of the slurmdbd.
    for row in table.rows() {
        if row.get("Cluster").is_some_and(|of| of != cluster) {
            continue;
        }

        let filled = |column| {
            row.get(column)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let shares = match row.get("Share").unwrap_or_default() {
            "parent" => Shares::Parent,
            shares => Shares::Raw(row.number("Share", shares, "a number of shares or 'parent'")?),
        };
        // LFT is the left end of Slurm's nested sets: their order is that of the tree.
        let left = match filled("LFT") {
            Some(left) => row.number("LFT", &left, "a number")?,
            None => u64::MAX,
        };

        let association = Association {
            account: filled("Account").unwrap_or_default(),
            parent_account: filled("ParentName"),
            user: filled("User"),
            partition: filled("Partition"),
            shares,
            grp_tres_mins: filled("GrpTRESMins"),
        };

        let key = (
            association.account.clone(),
            association.user.clone(),
            association.partition.clone(),
        );
        // Coordinators name accounts and users, and a name may contain a line feed.
        if !listed.insert(key) {
            return Err(SlurmTextError::Twice {
                line: row.line,
                account: association.account,
            });
        }
        found.push((left, association));
    }

    // The sort is stable, so without `LFT` the order stays that of the text.
    found.sort_by_key(|(left, _)| *left);
    Ok(found
        .into_iter()
        .map(|(_, association)| association)
        .collect())
}

/// Parses the QOS: `sacctmgr -P show qos format=Name,Flags,UsageFactor`.
///
/// # Errors
/// A column is missing, or a factor is not a number.
pub fn qos(text: &str) -> Result<BTreeMap<String, Qos>, SlurmTextError> {
    let table = TextTable::read(text)?;
    for column in ["Name", "Flags", "UsageFactor"] {
        table.require(column)?;
    }

    let mut found = BTreeMap::new();
    for row in table.rows() {
        let usage_factor = row.number(
            "UsageFactor",
            row.get("UsageFactor").unwrap_or_default(),
            "a number",
        )?;

        let no_decay = row
            .get("Flags")
            .unwrap_or_default()
            .split(',')
            .any(|flag| flag.eq_ignore_ascii_case("NoDecay"));

        found.insert(
            row.get("Name").unwrap_or_default().to_owned(),
            Qos {
                usage_factor,
                no_decay,
            },
        );
    }
    Ok(found)
}

/// A run in sacct's output, owned. Runs with equal TRES share one value.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields of `Run`")]
pub struct SacctRun {
    pub job_id: String,
    pub account: String,
    pub user: String,
    pub partition: String,
    pub qos: Option<String>,
    pub submit: UnixTime,
    pub start: Option<UnixTime>,
    pub end: Option<UnixTime>,
    pub timelimit_seconds: Option<u64>,
    pub tres: Option<Arc<TresAmounts>>,
}

/// Parses runs: `SLURM_TIME_FORMAT=%s sacct -a -D -X -P -o
/// JobID,Submit,Start,End,User,Account,Partition,QOS,AllocTRES`, preferably with `TimelimitRaw`. A
/// run that never started has no `AllocTRES`, and no start here: `Start` of a job that was
/// cancelled while pending is its end.
///
/// # Errors
/// A column is missing, or a time is not in seconds.
pub fn sacct(text: &str) -> Result<Vec<SacctRun>, SlurmTextError> {
    let table = TextTable::read(text)?;
    for column in [
        "JobID",
        "Submit",
        "Start",
        "End",
        "User",
        "Account",
        "Partition",
        "QOS",
        "AllocTRES",
    ] {
        table.require(column)?;
    }

    // Many runs have the same TRES; each text is parsed once.
    let mut kept = HashMap::<String, Arc<TresAmounts>>::new();
    let mut found = Vec::new();
    for row in table.rows() {
        let text = |column| row.get(column).unwrap_or_default();
        let time = |column| match text(column) {
            "" | "Unknown" | "None" | "0" => Ok(None),
            seconds => row
                .number(column, seconds, "seconds since 1970 (SLURM_TIME_FORMAT=%s)")
                .map(Some),
        };

        let tres = match text("AllocTRES") {
            "" => None,
            text => Some(match kept.get(text) {
                Some(tres) => tres.clone(),
                None => {
                    let tres = TresAmounts::parse(text).map_err(|source| SlurmTextError::Tres {
                        line: row.line,
                        source,
                    })?;
                    kept.entry(text.to_owned())
                        .or_insert(Arc::new(tres))
                        .clone()
                }
            }),
        };

        found.push(SacctRun {
            job_id: text("JobID").to_owned(),
            account: text("Account").to_owned(),
            user: text("User").to_owned(),
            partition: text("Partition").to_owned(),
            qos: Some(text("QOS"))
                .filter(|qos| !qos.is_empty())
                .map(str::to_owned),
            submit: time("Submit")?.unwrap_or_default(),
            // The start of a job that was cancelled while pending is its end.
            start: time("Start")?.filter(|_| tres.is_some()),
            end: time("End")?,
            // `UNLIMITED` and `Partition_Limit` are not numbers; the limit is then unknown.
            timelimit_seconds: text("TimelimitRaw")
                .parse::<u64>()
                .ok()
                .map(|minutes| minutes.saturating_mul(60)),
            tres,
        });
    }
    Ok(found)
}

/// Parses the priority settings: `scontrol show config`. Missing settings have Slurm's default.
///
/// # Errors
/// A value is invalid.
pub fn priority_settings(text: &str) -> Result<PrioritySettings, SlurmTextError> {
    let mut settings = PrioritySettings::default();
    for (index, text) in text.lines().enumerate() {
        // The text also has blank lines and a heading without `=`.
        let Some((key, value)) = text.split_once('=') else {
            continue;
        };
        let line = index + 1;
        let value = value.trim();

        let seconds = |column| {
            duration(value)
                .and_then(|seconds| u32::try_from(seconds).ok())
                .ok_or_else(|| value_error(line, column, value, "a time as in 7-00:00:00"))
        };

        match key.trim() {
            "PriorityDecayHalfLife" => {
                settings.decay_half_life_seconds = seconds("PriorityDecayHalfLife")?
            }
            "PriorityCalcPeriod" => settings.calc_period_seconds = seconds("PriorityCalcPeriod")?,
            "PriorityFlags" => settings.flags = PriorityFlags::parse(value),
            "PriorityUsageResetPeriod" => {
                settings.usage_reset_period = UsageResetPeriod::parse(value).ok_or_else(|| {
                    value_error(line, "PriorityUsageResetPeriod", value, "a reset period")
                })?;
            }
            "FairShareDampeningFactor" => {
                settings.dampening_factor = value.parse().map_err(|_| {
                    value_error(line, "FairShareDampeningFactor", value, "a whole number")
                })?;
            }
            _ => {}
        }
    }
    Ok(settings)
}

/// Parses `TRESBillingWeights` by partition: `scontrol show partition`.
///
/// # Errors
/// Weights are invalid.
pub fn partitions(text: &str) -> Result<BTreeMap<String, Option<BillingWeights>>, SlurmTextError> {
    let mut found = BTreeMap::new();
    // `scontrol` writes a partition over several lines, its name first; with `--oneliner` over one.
    let mut current = None;
    for (index, line) in text.lines().enumerate() {
        for word in line.split_whitespace() {
            if let Some(name) = word.strip_prefix("PartitionName=") {
                current = Some(name.to_owned());
                found.insert(name.to_owned(), None);
            } else if let (Some(weights), Some(name)) =
                (word.strip_prefix("TRESBillingWeights="), &current)
            {
                let weights =
                    BillingWeights::parse(weights).map_err(|source| SlurmTextError::Tres {
                        line: index + 1,
                        source,
                    })?;
                found.insert(name.clone(), Some(weights));
            }
        }
    }
    Ok(found)
}

/// One line of `sshare -l -a -P`, with sshare's rounding. `None` is an empty field.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the columns of the same names")]
pub struct SshareRow {
    pub account: String,
    pub user: Option<String>,
    pub partition: Option<String>,
    pub raw_shares: Option<Shares>,
    pub norm_shares: Option<f64>,
    pub raw_usage: Option<u64>,
    pub norm_usage: Option<f64>,
    pub effective_usage: Option<f64>,
    pub fair_share: Option<f64>,
    pub level_fs: Option<f64>,
    pub tres_run_minutes: BTreeMap<String, f64>,
}

/// Parses `sshare -l -a -P`, with or without `-m` (partitions). The classic formula has no
/// `LevelFS`.
///
/// # Errors
/// A column is missing, or a field is not a number.
pub fn sshare(text: &str) -> Result<Vec<SshareRow>, SlurmTextError> {
    let table = TextTable::read(text)?;
    for column in [
        "Account",
        "User",
        "RawShares",
        "NormShares",
        "RawUsage",
        "EffectvUsage",
        "FairShare",
    ] {
        table.require(column)?;
    }

    let row_of = |row: TextRow<'_>| {
        // sshare indents accounts by their depth.
        let filled = |column| {
            row.get(column)
                .map(str::trim)
                .filter(|text| !text.is_empty())
        };
        let float = |column| {
            filled(column)
                .map(|text| row.number(column, text, "a number"))
                .transpose()
        };
        Ok(SshareRow {
            account: filled("Account").unwrap_or_default().to_owned(),
            user: filled("User").map(str::to_owned),
            partition: filled("Partition").map(str::to_owned),
            raw_shares: match filled("RawShares") {
                None => None,
                Some("parent") => Some(Shares::Parent),
                Some(shares) => Some(Shares::Raw(row.number(
                    "RawShares",
                    shares,
                    "a number of shares or 'parent'",
                )?)),
            },
            norm_shares: float("NormShares")?,
            raw_usage: filled("RawUsage")
                .map(|text| row.number("RawUsage", text, "a whole number"))
                .transpose()?,
            norm_usage: float("NormUsage")?,
            effective_usage: float("EffectvUsage")?,
            fair_share: float("FairShare")?,
            level_fs: float("LevelFS")?,
            tres_run_minutes: filled("TRESRunMins")
                .map(|text| text.split(',').filter_map(|entry| entry.split_once('=')))
                .into_iter()
                .flatten()
                .filter_map(|(name, minutes)| Some((name.to_owned(), minutes.parse().ok()?)))
                .collect(),
        })
    };
    table.rows().map(row_of).collect()
}

/// Raw usage with the decimals that `sshare` truncates.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AssocMgrUsage {
    /// Usage by association: account, user, partition, usage with two decimals.
    pub associations: Vec<(String, Option<String>, Option<String>, f64)>,
    /// Usage by QOS, with six decimals.
    pub qos: BTreeMap<String, f64>,
}

/// Parses the raw usage in `scontrol show assoc_mgr flags=assoc,qos -o`.
///
/// # Errors
/// A usage is not a number.
pub fn assoc_mgr(text: &str) -> Result<AssocMgrUsage, SlurmTextError> {
    let mut found = AssocMgrUsage::default();
    for (index, text) in text.lines().enumerate() {
        // A line has one association or one QOS; the keys of both differ.
        let words = || {
            text.split_whitespace()
                .filter_map(|word| word.split_once('='))
        };
        let get = |key| {
            words()
                .find(|(name, _)| *name == key)
                .map(|(_, value)| value)
        };
        let number = |text: &str| {
            text.parse::<f64>()
                .map_err(|_| value_error(index + 1, "UsageRaw", text, "a number"))
        };

        if let (Some(account), Some(usage)) = (get("Account"), get("UsageRaw/Norm/Efctv")) {
            // `UserName=alice(61001)`
            let name = |key| {
                get(key)
                    .and_then(|text| text.split('(').next())
                    .filter(|text| !text.is_empty())
            };
            let user = name("UserName").map(str::to_owned);
            let partition = name("Partition").map(str::to_owned);
            // Raw, normalized and effective usage, separated by slashes.
            let usage = number(usage.split('/').next().unwrap_or(usage))?;
            found
                .associations
                .push((account.to_owned(), user, partition, usage));
        } else if let (Some(qos), Some(usage)) = (get("QOS"), get("UsageRaw")) {
            found.qos.insert(
                qos.split('(').next().unwrap_or(qos).to_owned(),
                number(usage)?,
            );
        }
    }
    Ok(found)
}

/// Parses `7-00:00:00`, `1-12`, `01:30:00`, `05:00` or `90` (minutes). Returns seconds.
fn duration(text: &str) -> Option<u64> {
    let (days, clock) = text
        .split_once('-')
        .map_or((None, text), |(days, clock)| (Some(days), clock));

    let parts = clock
        .split(':')
        .map(|part| part.parse::<u64>().ok())
        .collect::<Option<Vec<_>>>()?;
    // With days, the clock begins with hours; without days, a single number is minutes.
    let (hours, minutes, seconds) = match (days.is_some(), parts.as_slice()) {
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        (true, [hours, minutes]) => (*hours, *minutes, 0),
        (true, [hours]) => (*hours, 0, 0),
        (false, [minutes, seconds]) => (0, *minutes, *seconds),
        (false, [minutes]) => (0, *minutes, 0),
        _ => return None,
    };

    let days: u64 = days.map_or(Some(0), |days| days.parse().ok())?;
    // Checked: the days may have any number of digits.
    let hours = days.checked_mul(24)?.checked_add(hours)?;
    hours
        .checked_mul(60)?
        .checked_add(minutes)?
        .checked_mul(60)?
        .checked_add(seconds)
}

fn value_error(
    line: usize,
    column: &'static str,
    text: &str,
    expected: &'static str,
) -> SlurmTextError {
    SlurmTextError::Value {
        line,
        column,
        text: text.to_owned(),
        expected,
    }
}

/// Rows with `|` between their fields, under a header.
struct TextTable<'t> {
    columns: Vec<&'t str>,
    rows: Vec<(usize, Vec<&'t str>)>,
}

impl<'t> TextTable<'t> {
    fn read(text: &'t str) -> Result<Self, SlurmTextError> {
        let mut lines = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty());
        let columns: Vec<_> = lines
            .next()
            .map_or(Vec::new(), |(_, header)| header.split('|').collect());

        let mut rows = Vec::new();
        for (index, line) in lines {
            // A delimiter inside a name would shift all columns behind it, so the whole text is refused.
            let fields: Vec<_> = line.split('|').map(str::trim).collect();
            let line = index + 1;
            let found = fields.len();
            let expected = columns.len();
            if found != expected {
                return Err(SlurmTextError::Fields {
                    line,
                    found,
                    expected,
                });
            }
            rows.push((line, fields));
        }
        Ok(Self { columns, rows })
    }

    fn require(&self, column: &'static str) -> Result<(), SlurmTextError> {
        let has = self
            .columns
            .iter()
            .any(|known| known.eq_ignore_ascii_case(column));
        if has {
            Ok(())
        } else {
            Err(SlurmTextError::Column(column))
        }
    }

    fn rows(&self) -> impl Iterator<Item = TextRow<'_>> {
        self.rows.iter().map(|(line, fields)| TextRow {
            columns: &self.columns,
            line: *line,
            fields,
        })
    }
}

struct TextRow<'t> {
    columns: &'t [&'t str],
    line: usize,
    fields: &'t [&'t str],
}

impl<'t> TextRow<'t> {
    fn get(&self, column: &str) -> Option<&'t str> {
        let index = self
            .columns
            .iter()
            .position(|known| known.eq_ignore_ascii_case(column))?;
        self.fields.get(index).copied()
    }

    fn number<T>(
        &self,
        column: &'static str,
        text: &str,
        expected: &'static str,
    ) -> Result<T, SlurmTextError>
    where
        T: FromStr,
    {
        text.parse()
            .map_err(|_| value_error(self.line, column, text, expected))
    }
}

#[cfg(test)]
mod tests;
