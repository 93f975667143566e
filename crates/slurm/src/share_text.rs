//! What Slurm's tools print, read into the values of this module: `sacctmgr show assoc|qos`, `sacct`, `scontrol show
//! config|partition`, `sshare`.
//!
//! Rows of the first three have a header and `|` between fields (`-P`); columns come in any order and unknown ones are
//! passed over.

use crate::UsageResetPeriod;
use crate::billing::{BillingWeights, Tres, TresError};
use crate::share_settings::{PriorityFlags, PrioritySettings, Qos};
use crate::{Association, Shares};
use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;
use std::sync::Arc;

/// A text that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SlurmTextError {
    /// The header lacks a column.
    #[error("there is no column '{0}'")]
    Column(&'static str),
    /// A row with more or fewer fields than the header.
    #[error("line {line} has {found} fields, the header {expected}")]
    Fields {
        /// From 1.
        line: usize,
        /// In this line.
        found: usize,
        /// In the header.
        expected: usize,
    },
    /// A field that cannot be read.
    #[error("line {line}, {column}: '{text}' is not {expected}")]
    Value {
        /// From 1.
        line: usize,
        /// The column or the key.
        column: &'static str,
        /// What is there.
        text: String,
        /// What should be.
        expected: &'static str,
    },
    /// A TRES string that cannot be read.
    #[error("line {line}")]
    Tres {
        /// From 1.
        line: usize,
        /// Why.
        #[source]
        source: TresError,
    },
}

/// Associations of one cluster: `sacctmgr -P show assoc [tree] format=Account,ParentName,User,Partition,Share`, best
/// with `Cluster`, `GrpTRESMins` and `LFT`. With `LFT` they come in the order in which Slurm up to 23.02 keeps them,
/// without it in that of the text.
///
/// # Errors
/// A missing column, shares that are neither a number nor `parent`.
pub fn associations(text: &str, cluster: &str) -> Result<Vec<Association>, SlurmTextError> {
    let table = Table::read(text)?;
    for column in ["Account", "ParentName", "User", "Share"] {
        table.require(column)?;
    }
    let mut found = Vec::new();
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
        found.push((left, association));
    }
    found.sort_by_key(|(left, _)| *left);
    Ok(found
        .into_iter()
        .map(|(_, association)| association)
        .collect())
}

/// QOS: `sacctmgr -P show qos format=Name,Flags,UsageFactor`.
///
/// # Errors
/// A missing column, a factor that is no number.
pub fn qos(text: &str) -> Result<BTreeMap<String, Qos>, SlurmTextError> {
    let table = Table::read(text)?;
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
        let flags = row.get("Flags").unwrap_or_default();
        let no_decay = flags
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

/// A run as `sacct` tells of it, owned. What many of them hold is the same, and kept once.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields of `Run`")]
pub struct SacctRun {
    pub job_id: String,
    pub account: String,
    pub user: String,
    pub partition: String,
    pub qos: Option<String>,
    pub submit: i64,
    pub start: Option<i64>,
    pub end: Option<i64>,
    pub timelimit_seconds: Option<u64>,
    pub tres: Option<Arc<Tres>>,
}

/// Runs: `SLURM_TIME_FORMAT=%s sacct -a -D -X -P -o JobID,Submit,Start,End,User,Account,Partition,QOS,AllocTRES`, best
/// with `TimelimitRaw`. A run that never got its nodes has no `AllocTRES` and no start here, whatever `Start` says: a
/// job that is cancelled while it waits has its end there.
///
/// # Errors
/// A missing column, a time that is not in seconds.
pub fn sacct(text: &str) -> Result<Vec<SacctRun>, SlurmTextError> {
    let table = Table::read(text)?;
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
    let mut kept = HashMap::<String, Arc<Tres>>::new();
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
                    let tres = Tres::parse(text).map_err(|source| SlurmTextError::Tres {
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
            start: time("Start")?.filter(|_| tres.is_some()),
            end: time("End")?,
            // `UNLIMITED` and `Partition_Limit` are no number, and no limit that is known.
            timelimit_seconds: text("TimelimitRaw")
                .parse::<u64>()
                .ok()
                .map(|minutes| minutes.saturating_mul(60)),
            tres,
        });
    }
    Ok(found)
}

/// Priority settings: `scontrol show config`. What is not there has Slurm's default.
///
/// # Errors
/// A value that cannot be read.
pub fn priority_settings(text: &str) -> Result<PrioritySettings, SlurmTextError> {
    let mut settings = PrioritySettings::default();
    for (index, text) in text.lines().enumerate() {
        let Some((key, value)) = text.split_once('=') else {
            continue;
        };
        let (line, value) = (index + 1, value.trim());
        let seconds = |column| {
            let error = || value_error(line, column, value, "a time as in 7-00:00:00");
            duration(value)
                .and_then(|seconds| u32::try_from(seconds).ok())
                .ok_or_else(error)
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
                let error =
                    |_| value_error(line, "FairShareDampeningFactor", value, "a whole number");
                settings.dampening_factor = value.parse().map_err(error)?;
            }
            _ => {}
        }
    }
    Ok(settings)
}

/// `TRESBillingWeights` by partition: `scontrol show partition`.
///
/// # Errors
/// Weights that cannot be read.
pub fn partitions(text: &str) -> Result<BTreeMap<String, Option<BillingWeights>>, SlurmTextError> {
    let mut found = BTreeMap::new();
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

/// One line of `sshare -l -a -P`, as rounded as it is printed. `None` is an empty field.
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

/// What `sshare -l -a -P` prints, with `-m` for partitions or without. The classic formula has no `LevelFS`.
///
/// # Errors
/// A missing column, a field that is no number.
pub fn sshare(text: &str) -> Result<Vec<SshareRow>, SlurmTextError> {
    let table = Table::read(text)?;
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
    let row_of = |row: Row<'_>| {
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

/// Raw usage with its decimals, which `sshare` cuts off.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AssocMgrUsage {
    /// Of associations: account, user, partition, two decimals.
    pub associations: Vec<(String, Option<String>, Option<String>, f64)>,
    /// Of QOS, six decimals.
    pub qos: BTreeMap<String, f64>,
}

/// What `scontrol show assoc_mgr flags=assoc,qos -o` prints of raw usage.
///
/// # Errors
/// A usage that is no number.
pub fn assoc_mgr(text: &str) -> Result<AssocMgrUsage, SlurmTextError> {
    let mut found = AssocMgrUsage::default();
    for (index, text) in text.lines().enumerate() {
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
            let (user, partition) = (
                name("UserName").map(str::to_owned),
                name("Partition").map(str::to_owned),
            );
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

/// Reads `7-00:00:00`, `1-12`, `01:30:00`, `05:00`, `90` (minutes) as seconds.
fn duration(text: &str) -> Option<u64> {
    let (days, clock) = text
        .split_once('-')
        .map_or((None, text), |(days, clock)| (Some(days), clock));
    let parts = clock
        .split(':')
        .map(|part| part.parse::<u64>().ok())
        .collect::<Option<Vec<_>>>()?;
    let (hours, minutes, seconds) = match (days.is_some(), parts.as_slice()) {
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        (true, [hours, minutes]) => (*hours, *minutes, 0),
        (true, [hours]) => (*hours, 0, 0),
        (false, [minutes, seconds]) => (0, *minutes, *seconds),
        (false, [minutes]) => (0, *minutes, 0),
        _ => return None,
    };
    let days: u64 = days.map_or(Some(0), |days| days.parse().ok())?;
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
struct Table<'t> {
    columns: Vec<&'t str>,
    rows: Vec<(usize, Vec<&'t str>)>,
}

impl<'t> Table<'t> {
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
            let fields: Vec<_> = line.split('|').map(str::trim).collect();
            let (line, found, expected) = (index + 1, fields.len(), columns.len());
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

    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|(line, fields)| Row {
            columns: &self.columns,
            line: *line,
            fields,
        })
    }
}

struct Row<'t> {
    columns: &'t [&'t str],
    line: usize,
    fields: &'t [&'t str],
}

impl<'t> Row<'t> {
    fn get(&self, column: &str) -> Option<&'t str> {
        let index = self
            .columns
            .iter()
            .position(|known| known.eq_ignore_ascii_case(column))?;
        self.fields.get(index).copied()
    }

    fn number<T: FromStr>(
        &self,
        column: &'static str,
        text: &str,
        expected: &'static str,
    ) -> Result<T, SlurmTextError> {
        text.parse()
            .map_err(|_| value_error(self.line, column, text, expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations() {
        for (text, seconds) in [
            ("7-00:00:00", Some(604_800)),
            ("00:05:00", Some(300)),
            ("1-12", Some(129_600)),
            ("1-12:30", Some(131_400)),
            ("05:30", Some(330)),
            ("90", Some(5400)),
            ("", None),
            ("x-1", None),
            ("1:2:3:4", None),
            ("99999999999999999-0", None),
        ] {
            assert_eq!(duration(text), seconds, "{text}");
        }
    }

    #[test]
    fn associations_in_slurms_own_order_and_of_one_cluster() {
        let text = "Cluster|Account|ParentName|User|Partition|Share|LFT\n\
                    lab|root||||1|1\nlab| old|root|||5|9\nlab|  old||ann||1|10\nlab| new|root|||parent|3\nx|y|root|||2|2\n";
        let found = associations(text, "lab").unwrap();
        let names: Vec<_> = found.iter().map(Association::name).collect();
        assert_eq!(names, ["root", "new", "old", "ann"]);
        assert_eq!(
            (found[1].shares, found[2].shares),
            (Shares::Parent, Shares::Raw(5))
        );
    }

    #[test]
    fn what_cannot_be_read_says_where() {
        let error = |text: &str| associations(text, "lab").unwrap_err().to_string();
        assert_eq!(
            error("Account|User|Share\n"),
            "there is no column 'ParentName'"
        );
        const HEADER: &str = "Account|ParentName|User|Share\n";
        assert_eq!(
            error(&format!("{HEADER}root|||1\na|root||many")),
            "line 3, Share: 'many' is not a number of shares or 'parent'"
        );
        assert_eq!(
            error(&format!("{HEADER}root||1")),
            "line 2 has 3 fields, the header 4"
        );
        let error = priority_settings("PriorityCalcPeriod = soon")
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "line 1, PriorityCalcPeriod: 'soon' is not a time as in 7-00:00:00"
        );
    }

    #[test]
    fn runs_that_never_started_hold_nothing() {
        const HEADER: &str =
            "JobID|Submit|Start|End|User|Account|Partition|QOS|AllocTRES|TimelimitRaw\n";
        let rows = "1|10|20|30|ann|a|gpu|normal|cpu=1|5\n2|10|25|25|ann|a|gpu|normal||UNLIMITED\n3|10|Unknown|Unknown|ann|a|gpu|||\n";
        let runs = sacct(&format!("{HEADER}{rows}")).unwrap();
        let seen: Vec<_> = runs
            .iter()
            .map(|run| (run.start, run.end, run.timelimit_seconds))
            .collect();
        assert_eq!(
            seen,
            [
                (Some(20), Some(30), Some(300)),
                (None, Some(25), None),
                (None, None, None)
            ]
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(
            header in prop_oneof![
                Just("Account|ParentName|User|Share|LFT|Cluster"),
                Just("Name|Flags|UsageFactor"),
                Just("JobID|Submit|Start|End|User|Account|Partition|QOS|AllocTRES|TimelimitRaw"),
                Just("Account|User|RawShares|NormShares|RawUsage|EffectvUsage|FairShare|TRESRunMins"),
                Just("PriorityDecayHalfLife = 99999999999-9:9:9"),
                Just("PartitionName=a TRESBillingWeights=cpu=1"),
            ],
            rows in "([0-9a-z=,:. -]{0,9}[|\n]){0,40}",
        ) {
            let text = format!("{header}\n{rows}");
            let (_, _, _) = (associations(&text, ""), qos(&text), sacct(&text));
            let (_, _) = (priority_settings(&text), partitions(&text));
            let (_, _) = (sshare(&text), assoc_mgr(&text.replace('|', " ")));
        }
    }
}
