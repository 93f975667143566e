//! The tables of the lake and their columns.

use crate::log::{Action, FileFormat, MetaData, Protocol};
use ColumnType::{Boolean, Date, Double, Long, Text, Time};
use serde_json::json;
use std::collections::BTreeMap;

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// Text.
    Text,
    /// Whole number of 64 bits.
    Long,
    /// Floating-point number of 64 bits.
    Double,
    /// True or false.
    Boolean,
    /// Time in UTC, in a column without a time zone.
    Time,
    /// Day.
    Date,
}

impl ColumnType {
    /// Name in SQL.
    pub fn sql(self) -> &'static str {
        match self {
            Self::Text => "VARCHAR",
            Self::Long => "BIGINT",
            Self::Double => "DOUBLE",
            Self::Boolean => "BOOLEAN",
            Self::Time => "TIMESTAMP",
            Self::Date => "DATE",
        }
    }

    /// Name in the Delta protocol.
    fn delta(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Long => "long",
            Self::Double => "double",
            Self::Boolean => "boolean",
            Self::Time => "timestamp_ntz",
            Self::Date => "date",
        }
    }
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Name.
    pub name: &'static str,
    /// Type.
    pub kind: ColumnType,
}

/// A table.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// Name, and folder in the lake.
    pub name: &'static str,
    /// Description, stored in the table.
    pub about: &'static str,
    /// Columns of the files.
    pub columns: &'static [Column],
    /// Column that is the name of the files' folder, and not in the files.
    pub partition: Column,
    /// Columns whose smallest and largest value the log has for each file: engines skip files by
    /// them.
    pub measured: &'static [&'static str],
    /// Order of the rows in a file.
    pub order: &'static str,
}

impl Table {
    /// The columns as a SQL list, with the types that files have.
    pub fn select_list(&self) -> String {
        self.columns
            .iter()
            .map(|column| {
                let name = column.name;
                format!("CAST(\"{name}\" AS {}) AS \"{name}\"", column.kind.sql())
            })
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// SQL for the sum of the rows' hashes. It does not depend on the order of the rows.
    pub(crate) fn digest(&self) -> String {
        let columns = self
            .columns
            .iter()
            .map(|column| {
                let name = column.name;
                format!("CAST(\"{name}\" AS {})", column.kind.sql())
            })
            .collect::<Vec<_>>()
            .join(", ");
        // As text, because the sum of 64-bit hashes needs 128 bits, which the driver reads best so.
        format!("CAST(sum(hash({columns})) AS VARCHAR)")
    }

    /// The type of a column.
    pub(crate) fn kind_of(&self, name: &str) -> ColumnType {
        self.columns
            .iter()
            .find(|column| column.name == name)
            .map_or(Text, |column| column.kind)
    }

    /// The lines of the first commit.
    pub(crate) fn first_actions(&self, id: String, now_ms: i64) -> Vec<Action> {
        let features = vec!["timestampNtz".to_owned()];
        let protocol = Protocol {
            // Times without a zone need a named feature, which exists from these versions on.
            min_reader_version: 3,
            min_writer_version: 7,
            reader_features: features.clone(),
            writer_features: features,
        };
        let protocol = Action {
            protocol: Some(protocol),
            ..Action::default()
        };
        vec![protocol, self.described(id, now_ms)]
    }

    /// The line that names the columns. `created_ms` is the time of the first commit.
    pub(crate) fn described(&self, id: String, created_ms: i64) -> Action {
        let meta_data = MetaData {
            id,
            name: Some(self.name.to_owned()),
            description: Some(self.about.to_owned()),
            format: FileFormat {
                provider: "parquet".to_owned(),
                options: BTreeMap::new(),
            },
            schema_string: self.schema(),
            partition_columns: vec![self.partition.name.to_owned()],
            configuration: BTreeMap::new(),
            created_time: created_ms,
        };

        Action {
            meta_data: Some(meta_data),
            ..Action::default()
        }
    }

    /// The columns in the form of the log.
    pub(crate) fn schema(&self) -> String {
        let fields: Vec<_> = self
            .columns
            .iter()
            .chain([&self.partition])
            .map(|column| {
                json!({
                    "name": column.name,
                    "type": column.kind.delta(),
                    // Old files lack columns that were added later, and have NULL there.
                    "nullable": true,
                    "metadata": {},
                })
            })
            .collect();

        json!({"type": "struct", "fields": fields}).to_string()
    }
}

const fn column(name: &'static str, kind: ColumnType) -> Column {
    Column { name, kind }
}

/// All samples.
pub const SAMPLES: Table = Table {
    name: "samples",
    about: "Samples of finished days (UTC). value is NULL where a series ended.",
    columns: &[
        column("ts", Time),
        column("metric", Text),
        column("labels", Text),
        column("cluster", Text),
        column("node", Text),
        column("uuid", Text),
        column("jobid", Text),
        column("user", Text),
        column("value", Double),
    ],
    partition: column("day", Date),
    measured: &["ts", "metric", "node"],
    order: "",
};

const ROLLUP: &[Column] = &[
    column("ts", Time),
    column("metric", Text),
    column("labels", Text),
    column("cluster", Text),
    column("node", Text),
    column("uuid", Text),
    column("jobid", Text),
    column("user", Text),
    column("samples", Long),
    column("min", Double),
    column("max", Double),
    column("avg", Double),
    column("last", Double),
    column("increase", Double),
];

/// Rows of five minutes.
pub const SAMPLES_5M: Table = Table {
    name: "samples_5m",
    about: "Samples in intervals of five minutes that end at ts.",
    columns: ROLLUP,
    ..SAMPLES
};

/// Rows of an hour.
pub const SAMPLES_1H: Table = Table {
    name: "samples_1h",
    about: "Samples in intervals of an hour that end at ts.",
    ..SAMPLES_5M
};

/// Ended runs.
pub const JOB_RUNS: Table = Table {
    name: "job_runs",
    about: "Ended runs of jobs, by the month in which they ended.",
    columns: &[
        column("cluster", Text),
        column("job_id", Text),
        column("submit_time", Time),
        column("eligible_time", Time),
        column("start_time", Time),
        column("end_time", Time),
        column("state", Text),
        column("user", Text),
        column("account", Text),
        column("partition", Text),
        column("qos", Text),
        column("job_name", Text),
        column("nodes", Long),
        column("cpus", Long),
        column("gpus", Long),
        column("gpu_model", Text),
        column("mem_bytes", Long),
        column("billing", Long),
        column("alloc_tres", Text),
        column("req_tres", Text),
        column("node_list", Text),
        column("elapsed_seconds", Long),
        column("suspended_seconds", Long),
        column("timelimit_seconds", Long),
        column("exit_code", Text),
        column("reservation", Text),
        column("raw_job_id", Text),
        column("sluid", Text),
        column("original_sluid", Text),
        column("mem_bytes_most", Long),
        column("wait_seconds", Long),
        column("run_seconds", Long),
    ],
    partition: column("month", Text),
    measured: &["end_time", "user"],
    order: "end_time, cluster, job_id, submit_time",
};

/// Usage of each run on each day.
pub const USAGE: Table = Table {
    name: "usage",
    about: "Resources that each run held on each finished day of its cluster, as in reports.",
    columns: &[
        column("day", Date),
        column("cluster", Text),
        column("job_id", Text),
        column("submit_time", Time),
        column("user", Text),
        column("account", Text),
        column("partition", Text),
        column("qos", Text),
        column("state", Text),
        column("gpu_model", Text),
        column("seconds", Long),
        column("node_seconds", Long),
        column("cpu_seconds", Long),
        column("gpu_seconds", Long),
        column("memory_byte_seconds", Double),
        column("billing_seconds", Long),
    ],
    partition: column("month", Text),
    measured: &["day", "user"],
    order: "day, cluster, job_id, submit_time",
};

/// Efficiency of ended runs.
pub const EFFICIENCY: Table = Table {
    name: "efficiency",
    about: "How well ended runs used what they held, by the month in which they ended.",
    columns: &[
        column("cluster", Text),
        column("job_id", Text),
        column("submit_time", Time),
        column("run_end_time", Time),
        column("user", Text),
        column("account", Text),
        column("partition", Text),
        column("gpu_model", Text),
        column("gpus", Long),
        column("held_seconds", Long),
        column("held_gpu_seconds", Double),
        column("coverage_ratio", Double),
        column("gpus_measured", Long),
        column("gpus_idle", Long),
        column("gpu_utilization_mean", Double),
        column("gpu_utilization_p95", Double),
        column("gpu_idle_ratio", Double),
        column("gpu_idle_longest_seconds", Double),
        column("gpu_memory_peak_bytes", Double),
        column("gpu_memory_total_bytes", Double),
        column("gpu_power_mean_watts", Double),
        column("gpu_energy_joules", Double),
        column("gpu_sm_mean", Double),
        column("gpu_tensor_mean", Double),
        column("cpu_seconds", Double),
        column("cpu_ratio", Double),
        column("memory_peak_bytes", Double),
        column("memory_ratio", Double),
        column("network_bytes", Double),
        column("nfs_bytes", Double),
        column("link_bound_ratio", Double),
        column("is_network_bound", Boolean),
        column("used_gpu_seconds", Double),
        column("waste_idle_gpu_seconds", Double),
        column("waste_streak_gpu_seconds", Double),
        column("waste_low_gpu_seconds", Double),
        column("lost_gpu_seconds", Double),
        column("lost_cpu_seconds", Double),
        column("unmeasured_gpu_seconds", Double),
        column("limit_excess_gpu_seconds", Double),
        column("fault", Text),
        column("verdict", Text),
    ],
    partition: column("month", Text),
    measured: &["run_end_time", "user"],
    order: "run_end_time, cluster, job_id, submit_time",
};

/// History of fair share.
pub const FAIRSHARE: Table = Table {
    name: "fairshare",
    about: "Fair share of accounts and users, once an hour.",
    columns: &[
        column("cluster", Text),
        column("noted_at", Time),
        column("account", Text),
        column("user", Text),
        column("partition", Text),
        column("raw_shares", Long),
        column("norm_shares", Double),
        column("raw_usage", Double),
        column("norm_usage", Double),
        column("effective_usage", Double),
        column("level_fs", Double),
        column("fair_share", Double),
    ],
    partition: column("month", Text),
    measured: &["noted_at", "user"],
    order: "noted_at, cluster, account, \"user\"",
};

/// All tables.
pub const TABLES: [&Table; 7] = [
    &SAMPLES,
    &SAMPLES_5M,
    &SAMPLES_1H,
    &JOB_RUNS,
    &USAGE,
    &EFFICIENCY,
    &FAIRSHARE,
];
