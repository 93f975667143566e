//! Lists of runs with their efficiency and their reason for waiting, in any order, page by page.

use super::efficiency::{columns, efficiency};
use super::reservations::{REASON_COLUMNS, known_reason};
use super::{
    JOB_ORDER, JobFilter, KnownReason, RUN_COLUMN_COUNT, RUN_COLUMNS, Records, StoreError,
    TimeColumns, asked_nodes, job_run, micros, names,
};
use duckdb::Row;
use duckdb::types::Value;
use std::collections::HashMap;
use takt_accounting::efficiency::Efficiency;
use takt_jobs::JobRun;
use takt_model::UnixTime;

/// A run in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedJob {
    /// The run.
    pub run: JobRun,
    /// Efficiency; `None` if the run was not assessed.
    pub efficiency: Option<Efficiency>,
    /// Last reported reason; `None` unless the run is pending.
    pub reason: Option<KnownReason>,
    /// Position in the list.
    pub cursor: JobCursor,
}

/// Column by which a list is sorted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum JobSort {
    /// Time of submission.
    #[default]
    Submit,
    /// Start time.
    Start,
    /// End time.
    End,
    /// Run time.
    Length,
    /// Number of GPUs.
    Gpus,
    /// Wasted GPU-seconds.
    Waste,
    /// Mean GPU utilization.
    Utilization,
    /// User name.
    User,
    /// Job name.
    Name,
    /// State.
    State,
}

impl JobSort {
    /// All columns with their names in questions.
    pub const ALL: &[(&str, Self)] = &[
        ("submit", Self::Submit),
        ("start", Self::Start),
        ("end", Self::End),
        ("length", Self::Length),
        ("gpus", Self::Gpus),
        ("waste", Self::Waste),
        ("utilization", Self::Utilization),
        ("user", Self::User),
        ("name", Self::Name),
        ("state", Self::State),
    ];

    /// The SQL expression. Unknown values come last in descending order.
    fn expression(self) -> &'static str {
        match self {
            Self::Submit => "epoch(submit_time)",
            Self::Start => "coalesce(epoch(start_time), -1)",
            Self::End => "coalesce(epoch(end_time), -1)",
            Self::Length => {
                "coalesce(epoch(coalesce(end_time, make_timestamp(?::BIGINT)::TIMESTAMP_S) - start_time), -1)::DOUBLE"
            }
            Self::Gpus => "coalesce(gpus, -1)::DOUBLE",
            Self::Waste => {
                "coalesce(waste_idle_gpu_seconds + waste_streak_gpu_seconds + waste_low_gpu_seconds, -1)::DOUBLE"
            }
            Self::Utilization => "coalesce(gpu_utilization_mean, -1)::DOUBLE",
            Self::User => "\"user\"",
            Self::Name => "coalesce(job_name, '')",
            Self::State => "state",
        }
    }
}

/// Order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobOrder {
    /// Column.
    pub by: JobSort,
    /// Whether the highest value comes first.
    pub is_descending: bool,
    /// Current time, for the length of running jobs.
    pub now: UnixTime,
}

/// Value by which a list is sorted.
#[derive(Debug, Clone, PartialEq)]
pub enum SortValue {
    /// A number or a time.
    Number(f64),
    /// A name.
    Text(String),
}

/// Position of a run in a list: the value by which the list is sorted, and the run's identity.
#[derive(Debug, Clone, PartialEq)]
pub struct JobCursor {
    /// Value of the sorted column.
    pub value: SortValue,
    /// Time of submission.
    pub submit: UnixTime,
    /// Job id.
    pub job_id: String,
}

/// Number of rows in one reading, if the filter has a node and SQL cannot decide.
const BATCH: usize = 2000;

impl Records<'_> {
    /// Returns the selected runs in an order, behind a position. `filter.limit` is the maximum
    /// number.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn listed(
        &self,
        filter: &JobFilter,
        order: JobOrder,
        after: Option<&JobCursor>,
    ) -> Result<Vec<ListedJob>, StoreError> {
        let limit = filter.limit.unwrap_or(usize::MAX);
        let nodes = filter.node.as_deref().map(asked_nodes);
        let mut after = after.cloned();
        let mut found: Vec<ListedJob> = Vec::new();
        loop {
            let batch = match nodes {
                Some(_) => BATCH,
                None => limit,
            };
            let page = self.page(filter, order, after.as_ref(), batch)?;

            let is_last = page.len() < batch;
            after = page.last().map(|row| row.cursor.clone());

            let on_node = page
                .into_iter()
                .filter(|row| match (&nodes, &row.run.node_list) {
                    (None, _) => true,
                    (Some(nodes), list) => list.as_ref().is_some_and(|list| names(list, nodes)),
                });

            found.extend(on_node);
            if is_last || found.len() >= limit {
                found.truncate(limit);
                break;
            }
        }

        self.add_reasons(&mut found)?;
        Ok(found)
    }

    fn page(
        &self,
        filter: &JobFilter,
        order: JobOrder,
        after: Option<&JobCursor>,
        limit: usize,
    ) -> Result<Vec<ListedJob>, StoreError> {
        let (condition, of_filter) = filter.condition();
        let names: Vec<&str> = columns().collect();

        let mut values: Vec<Value> = Vec::new();
        if order.by == JobSort::Length {
            values.push(micros(order.now).into());
        }
        values.extend(of_filter);

        let (comparison, direction) = if order.is_descending {
            ("<", "DESC")
        } else {
            (">", "ASC")
        };

        let behind = match after {
            None => String::new(),
            Some(cursor) => {
                values.push(match &cursor.value {
                    SortValue::Number(value) => Value::Double(*value),
                    SortValue::Text(text) => Value::Text(text.clone()),
                });
                values.push(micros(cursor.submit).into());
                let job = cursor.job_id.split('_').next().unwrap_or_default();
                values.push(format!("{job:0>16}{:0>32}", cursor.job_id).into());
                format!(
                    "WHERE (sorted, submit_time, {JOB_ORDER}) {comparison} (?, make_timestamp(?::BIGINT)::TIMESTAMP_S, ?)"
                )
            }
        };

        let sql = format!(
            "SELECT {RUN_COLUMNS}, {}, sorted FROM (
                 SELECT *, {} AS sorted
                 FROM records.jobs LEFT JOIN records.run_efficiency USING (cluster, job_id, submit_time)
                 WHERE {condition}) AS found
             {behind}
             ORDER BY sorted {direction}, submit_time {direction}, {JOB_ORDER} {direction}
             LIMIT {}",
            names.join(", "),
            order.by.expression(),
            limit.min(i64::MAX as usize)
        );

        self.list("list the jobs", &sql, values, |row| {
            let run = job_run(row)?;
            let is_assessed = row.get::<_, Option<f64>>("coverage_ratio")?.is_some();
            let efficiency = is_assessed
                .then(|| efficiency(row, RUN_COLUMN_COUNT))
                .transpose()?;

            Ok(ListedJob {
                cursor: JobCursor {
                    value: sort_value(row)?,
                    submit: run.submit,
                    job_id: run.job_id.clone(),
                },
                run,
                efficiency,
                reason: None,
            })
        })
    }

    fn add_reasons(&self, found: &mut [ListedJob]) -> Result<(), StoreError> {
        let is_waiting = |row: &&mut ListedJob| row.run.start.is_none() && row.run.end.is_none();
        let mut reasons: HashMap<String, HashMap<(String, UnixTime), KnownReason>> = HashMap::new();
        for row in found.iter_mut().filter(is_waiting) {
            if !reasons.contains_key(&row.run.cluster) {
                let known = self.reasons(&row.run.cluster)?;
                reasons.insert(row.run.cluster.clone(), known);
            }
            let of_cluster = reasons.get_mut(&row.run.cluster);
            let identity = (row.run.job_id.clone(), row.run.submit);
            row.reason = of_cluster.and_then(|known| known.remove(&identity));
        }
        Ok(())
    }

    /// Returns the last reported reason of every pending run of a cluster, by job id and time of
    /// submission.
    ///
    /// # Errors
    /// If DuckDB fails.
    fn reasons(
        &self,
        cluster: &str,
    ) -> Result<HashMap<(String, UnixTime), KnownReason>, StoreError> {
        let rows = self.list(
            "look up why runs wait",
            &format!(
                "SELECT r.job_id, epoch_ms(r.submit_time) // 1000, {REASON_COLUMNS}
                 FROM records.job_reasons AS r
                 SEMI JOIN records.jobs AS j ON j.cluster = r.cluster AND j.job_id = r.job_id
                     AND j.submit_time = r.submit_time AND j.start_time IS NULL AND j.end_time IS NULL
                 WHERE r.cluster = ?
                 QUALIFY row_number() OVER (PARTITION BY r.job_id, r.submit_time
                     ORDER BY r.last_seen DESC, r.first_seen DESC) = 1"
            ),
            vec![cluster.to_owned().into()],
            |row| Ok(((row.get(0)?, row.time(1)?), known_reason(row, 2)?)),
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Returns the assessment of one run; `None` if it was not assessed.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn efficiency_of(&self, run: &JobRun) -> Result<Option<Efficiency>, StoreError> {
        let names: Vec<&str> = columns().collect();

        let found = self.list(
            "read the efficiency of a run",
            &format!(
                "SELECT {} FROM records.run_efficiency
                 WHERE cluster = ? AND job_id = ? AND submit_time = make_timestamp(?::BIGINT)::TIMESTAMP_S
                   AND run_end_time = make_timestamp(?::BIGINT)::TIMESTAMP_S",
                names.join(", ")
            ),
            vec![
                run.cluster.clone().into(),
                run.job_id.clone().into(),
                micros(run.submit).into(),
                micros(run.end.unwrap_or_default()).into(),
            ],
            |row| efficiency(row, 0),
        )?;
        Ok(found.into_iter().next())
    }
}

fn sort_value(row: &Row<'_>) -> duckdb::Result<SortValue> {
    Ok(match row.get::<_, Value>("sorted")? {
        Value::Text(text) => SortValue::Text(text),
        Value::Double(number) => SortValue::Number(number),
        Value::BigInt(number) => SortValue::Number(number as f64),
        _ => SortValue::Number(-1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Corrections, DataDir, Database, OpenRun, Origin, Settings, Shifted, WaitingRun};
    use std::convert::Infallible;
    use takt_accounting::efficiency::AssessedRun;
    use takt_jobs::Entry;
    use tempfile::tempdir;

    fn run(job_id: &str, submit: i64, gpus: u64, name: &str) -> JobRun {
        let submit = UnixTime(submit);
        JobRun {
            cluster: "lab".into(),
            job_id: job_id.into(),
            submit,
            start: Some(submit),
            end: Some(submit + 3600),
            state: "COMPLETED".into(),
            user: "ann".into(),
            name: Some(name.into()),
            gpus: Some(gpus),
            gpu_model: Some("a100+l40s".into()),
            node_list: Some("gpu[01-03]".into()),
            ..JobRun::default()
        }
    }

    #[test]
    fn lists_are_filtered_sorted_and_paged() {
        let root = tempdir().unwrap();
        let database =
            Database::open(&DataDir::claim(root.path()).unwrap(), &Settings::default()).unwrap();
        let records = Records::of(&database);
        let pending = JobRun {
            start: None,
            end: None,
            state: "PENDING".into(),
            node_list: None,
            gpus: None,
            req_tres: Some("cpu=1,gres/gpu=4,gres/gpu:a100=4".into()),
            ..run("5", 500, 0, "Later")
        };
        let elsewhere = JobRun {
            node_list: Some("gpu07".into()),
            ..run("4", 400, 1, "train")
        };
        let runs = [
            run("1", 100, 1, "train"),
            run("2", 200, 8, "Train-2"),
            run("3", 300, 2, "sweep"),
            elsewhere,
            pending,
        ];
        let origin = Origin {
            source: "sacct",
            name: "test",
            timezone: None,
            complete_until: None,
            shifted: Shifted::Refuse,
            corrections: Corrections::Accept,
        };
        let entries = runs
            .iter()
            .cloned()
            .map(|run| Ok::<_, Infallible>(Entry::Run(run)));
        records.import(&origin, entries).unwrap();
        let waiting = WaitingRun {
            run: OpenRun {
                job_id: "5".into(),
                submit: UnixTime(500),
            },
            reason: "Priority".into(),
            expected_start: Some(UnixTime(900)),
            priority: Some(70),
            demands: Vec::new(),
        };
        records
            .note_waiting("lab", &[waiting], UnixTime(600))
            .unwrap();
        let assessed = AssessedRun {
            run: runs[1].clone(),
            efficiency: Efficiency {
                waste_idle_gpu_seconds: 7200.0,
                ..Efficiency::default()
            },
        };
        records
            .keep_efficiencies(&[assessed], UnixTime(9000))
            .unwrap();

        let order = |by, is_descending| JobOrder {
            by,
            is_descending,
            now: UnixTime(10_000),
        };
        let ids = |filter: JobFilter, order| -> Vec<String> {
            records
                .listed(&filter, order, None)
                .unwrap()
                .into_iter()
                .map(|row| row.run.job_id)
                .collect()
        };
        let newest = order(JobSort::Submit, true);
        let all = JobFilter::default;
        assert_eq!(ids(all(), newest), ["5", "4", "3", "2", "1"]);
        let named = JobFilter {
            name: Some("TRAIN".into()),
            ..all()
        };
        assert_eq!(ids(named, newest), ["4", "2", "1"]);
        let model = JobFilter {
            gpu_model: Some("l40s".into()),
            min_gpus: Some(2),
            ..all()
        };
        assert_eq!(ids(model, newest), ["5", "3", "2"]);
        let wasteful = JobFilter {
            min_wasted_gpu_seconds: Some(3600),
            ..all()
        };
        assert_eq!(ids(wasteful, newest), ["2"]);
        let on_node = JobFilter {
            node: Some("gpu02".into()),
            limit: Some(2),
            ..all()
        };
        assert_eq!(ids(on_node, newest), ["3", "2"]);
        assert_eq!(
            ids(all(), order(JobSort::Gpus, true)),
            ["2", "3", "4", "1", "5"]
        );
        assert_eq!(
            ids(all(), order(JobSort::Name, false)),
            ["5", "2", "3", "1", "4"]
        );

        let first = records.listed(&all(), newest, None).unwrap();
        assert_eq!(first[0].reason.as_ref().unwrap().reason, "Priority");
        assert!(first[3].efficiency.is_some() && first[4].efficiency.is_none());
        for (name, by) in JobSort::ALL {
            for is_descending in [true, false] {
                let order = order(*by, is_descending);
                let whole = ids(all(), order);
                let two = JobFilter {
                    limit: Some(2),
                    ..all()
                };
                let mut paged = Vec::new();
                let mut after = None;
                loop {
                    let page = records.listed(&two, order, after.as_ref()).unwrap();
                    after = page.last().map(|row| row.cursor.clone());
                    if page.is_empty() {
                        break;
                    }
                    paged.extend(page.into_iter().map(|row| row.run.job_id));
                }
                assert_eq!(paged, whole, "{name}");
            }
        }
    }

    #[test]
    fn tasks_of_an_array_are_in_the_order_of_their_numbers() {
        let root = tempdir().unwrap();
        let database =
            Database::open(&DataDir::claim(root.path()).unwrap(), &Settings::default()).unwrap();
        let records = Records::of(&database);
        let origin = Origin {
            source: "sacct",
            name: "test",
            timezone: None,
            complete_until: None,
            shifted: Shifted::Refuse,
            corrections: Corrections::Accept,
        };
        let entries = ["7_9", "7_10", "7_2"]
            .map(|id| run(id, 100, 1, "sweep"))
            .map(|run| Ok::<_, Infallible>(Entry::Run(run)));
        records.import(&origin, entries).unwrap();
        let order = JobOrder {
            by: JobSort::Submit,
            is_descending: true,
            now: UnixTime(10_000),
        };
        let one = JobFilter {
            limit: Some(1),
            ..JobFilter::default()
        };
        let mut paged = Vec::new();
        let mut after = None;
        while let Some(row) = records.listed(&one, order, after.as_ref()).unwrap().pop() {
            after = Some(row.cursor);
            paged.push(row.run.job_id);
        }
        assert_eq!(paged, ["7_10", "7_9", "7_2"]);
        let runs = records.jobs(&JobFilter::default()).unwrap();
        let ids: Vec<&str> = runs.iter().map(|run| run.job_id.as_str()).collect();
        assert_eq!(ids, ["7_10", "7_9", "7_2"]);
    }

    /// Ids of pods are longer than those of Slurm. Cut to one length, two of them were one place in a list, and pages left one out.
    #[test]
    fn long_ids_that_begin_alike_are_all_on_some_page() {
        let root = tempdir().unwrap();
        let database =
            Database::open(&DataDir::claim(root.path()).unwrap(), &Settings::default()).unwrap();
        let records = Records::of(&database);
        let origin = Origin {
            source: "kubernetes",
            name: "test",
            timezone: None,
            complete_until: None,
            shifted: Shifted::Keep,
            corrections: Corrections::Accept,
        };
        let ids: Vec<String> = (0..4)
            .map(|number| format!("computer-vision/pretraining-of-a-large-model-{number}"))
            .collect();
        let entries = ids.iter().map(|id| run(id, 100, 1, "train"));
        let entries = entries.map(|run| Ok::<_, Infallible>(Entry::Run(run)));
        records.import(&origin, entries).unwrap();

        let order = JobOrder {
            by: JobSort::Submit,
            is_descending: false,
            now: UnixTime(10_000),
        };
        let one = JobFilter {
            limit: Some(1),
            ..JobFilter::default()
        };
        let mut paged = Vec::new();
        let mut after = None;
        while let Some(row) = records.listed(&one, order, after.as_ref()).unwrap().pop() {
            after = Some(row.cursor);
            paged.push(row.run.job_id);
            assert!(paged.len() <= ids.len(), "{paged:?}");
        }
        assert_eq!(paged, ids);
    }
}
