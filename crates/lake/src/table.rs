//! The tables of the lake and their columns.

use crate::log::{Action, FileFormat, MetaData, Protocol};
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
        let columns = self.columns.iter().map(|column| {
            let name = column.name;
            format!("CAST(\"{name}\" AS {}) AS \"{name}\"", column.kind.sql())
        });
        columns.collect::<Vec<_>>().join(", ")
    }

    /// SQL for the sum of the rows' hashes. It does not depend on the order of the rows.
    pub(crate) fn digest(&self) -> String {
        let columns = self.columns.iter().map(|column| {
            let name = column.name;
            format!("CAST(\"{name}\" AS {})", column.kind.sql())
        });
        let columns = columns.collect::<Vec<_>>().join(", ");
        format!("CAST(sum(hash({columns})) AS VARCHAR)")
    }

    /// The type of a column.
    pub(crate) fn kind_of(&self, name: &str) -> ColumnType {
        let found = self.columns.iter().find(|column| column.name == name);
        found.map_or(ColumnType::Text, |column| column.kind)
    }

    /// The lines of the first commit.
    pub(crate) fn first_actions(&self, id: String, now_ms: i64) -> Vec<Action> {
        let features = vec!["timestampNtz".to_owned()];
        let protocol = Protocol {
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
        let columns = self.columns.iter().chain([&self.partition]);
        let fields: Vec<_> = columns
            .map(|column| {
                json!({
                    "name": column.name, "type": column.kind.delta(), "nullable": true,
                    "metadata": {},
                })
            })
            .collect();
        json!({"type": "struct", "fields": fields}).to_string()
    }
}

const fn text(name: &'static str) -> Column {
    let kind = ColumnType::Text;
    Column { name, kind }
}

const fn long(name: &'static str) -> Column {
    let kind = ColumnType::Long;
    Column { name, kind }
}

const fn double(name: &'static str) -> Column {
    let kind = ColumnType::Double;
    Column { name, kind }
}

const fn flag(name: &'static str) -> Column {
    let kind = ColumnType::Boolean;
    Column { name, kind }
}

const fn time(name: &'static str) -> Column {
    let kind = ColumnType::Time;
    Column { name, kind }
}

const fn date(name: &'static str) -> Column {
    let kind = ColumnType::Date;
    Column { name, kind }
}

/// All samples.
pub const SAMPLES: Table = Table {
    name: "samples",
    about: "Samples of finished days (UTC). value is NULL where a series ended.",
    columns: &[
        time("ts"),
        text("metric"),
        text("labels"),
        text("cluster"),
        text("node"),
        text("uuid"),
        text("jobid"),
        text("user"),
        double("value"),
    ],
    partition: date("day"),
    measured: &["ts", "metric", "node"],
    order: "",
};

const ROLLUP: &[Column] = &[
    time("ts"),
    text("metric"),
    text("labels"),
    text("cluster"),
    text("node"),
    text("uuid"),
    text("jobid"),
    text("user"),
    long("samples"),
    double("min"),
    double("max"),
    double("avg"),
    double("last"),
    double("increase"),
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
        text("cluster"),
        text("job_id"),
        time("submit_time"),
        time("eligible_time"),
        time("start_time"),
        time("end_time"),
        text("state"),
        text("user"),
        text("account"),
        text("partition"),
        text("qos"),
        text("job_name"),
        long("nodes"),
        long("cpus"),
        long("gpus"),
        text("gpu_model"),
        long("mem_bytes"),
        long("billing"),
        text("alloc_tres"),
        text("req_tres"),
        text("node_list"),
        long("elapsed_seconds"),
        long("suspended_seconds"),
        long("timelimit_seconds"),
        text("exit_code"),
        text("reservation"),
        text("raw_job_id"),
        long("wait_seconds"),
        long("run_seconds"),
    ],
    partition: text("month"),
    measured: &["end_time", "user"],
    order: "end_time, cluster, job_id, submit_time",
};

/// Usage of each run on each day.
pub const USAGE: Table = Table {
    name: "usage",
    about: "Resources that each run held on each finished day of its cluster, as in reports.",
    columns: &[
        date("day"),
        text("cluster"),
        text("job_id"),
        time("submit_time"),
        text("user"),
        text("account"),
        text("partition"),
        text("qos"),
        text("state"),
        text("gpu_model"),
        long("seconds"),
        long("node_seconds"),
        long("cpu_seconds"),
        long("gpu_seconds"),
        double("memory_byte_seconds"),
        long("billing_seconds"),
    ],
    partition: text("month"),
    measured: &["day", "user"],
    order: "day, cluster, job_id, submit_time",
};

/// Efficiency of ended runs.
pub const EFFICIENCY: Table = Table {
    name: "efficiency",
    about: "How well ended runs used what they held, by the month in which they ended.",
    columns: &[
        text("cluster"),
        text("job_id"),
        time("submit_time"),
        time("run_end_time"),
        text("user"),
        text("account"),
        text("partition"),
        text("gpu_model"),
        long("gpus"),
        long("held_seconds"),
        double("held_gpu_seconds"),
        double("coverage_ratio"),
        long("gpus_measured"),
        long("gpus_idle"),
        double("gpu_utilization_mean"),
        double("gpu_utilization_p95"),
        double("gpu_idle_ratio"),
        double("gpu_idle_longest_seconds"),
        double("gpu_memory_peak_bytes"),
        double("gpu_memory_total_bytes"),
        double("gpu_power_mean_watts"),
        double("gpu_energy_joules"),
        double("gpu_sm_mean"),
        double("gpu_tensor_mean"),
        double("cpu_seconds"),
        double("cpu_ratio"),
        double("memory_peak_bytes"),
        double("memory_ratio"),
        double("network_bytes"),
        double("nfs_bytes"),
        double("link_bound_ratio"),
        flag("is_network_bound"),
        double("used_gpu_seconds"),
        double("waste_idle_gpu_seconds"),
        double("waste_streak_gpu_seconds"),
        double("waste_low_gpu_seconds"),
        double("lost_gpu_seconds"),
        double("lost_cpu_seconds"),
        double("unmeasured_gpu_seconds"),
        double("limit_excess_gpu_seconds"),
        text("fault"),
        text("verdict"),
    ],
    partition: text("month"),
    measured: &["run_end_time", "user"],
    order: "run_end_time, cluster, job_id, submit_time",
};

/// History of fair share.
pub const FAIRSHARE: Table = Table {
    name: "fairshare",
    about: "Fair share of accounts and users, once an hour.",
    columns: &[
        text("cluster"),
        time("noted_at"),
        text("account"),
        text("user"),
        text("partition"),
        long("raw_shares"),
        double("norm_shares"),
        double("raw_usage"),
        double("norm_usage"),
        double("effective_usage"),
        double("level_fs"),
        double("fair_share"),
    ],
    partition: text("month"),
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
