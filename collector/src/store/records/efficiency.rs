//! How well runs used what they held: which runs are due, what was found, and reading it back.
//!
//! The columns of `run_efficiency` are the fields of [`Efficiency`] by name, so a figure is added in the struct and in a
//! migration and nowhere else.

use super::{JobRun, RUN_COLUMNS, Records, StoreError, job_run, micros};
use crate::accounting::efficiency::{AssessedRun, Efficiency};
use duckdb::types::Value;
use duckdb::{Row, params_from_iter};
use serde_json::{Map, Number, Value as Json};
use std::sync::PoisonError;

/// Which of the runs that have ended are to be assessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Those that were not, or whose end is another by now.
    New,
    /// All of them, once more.
    All,
}

impl Records<'_> {
    /// Runs of a cluster that held something and ended in `[from, to)` (UTC seconds), the first ended first.
    ///
    /// # Errors
    /// When DuckDB cannot answer.
    pub fn due(&self, cluster: &str, from: i64, to: i64, due: Due, limit: usize) -> Result<Vec<JobRun>, StoreError> {
        let unknown = match due {
            Due::All => "",
            Due::New => {
                "ANTI JOIN records.run_efficiency AS e ON e.cluster = j.cluster AND e.job_id = j.job_id
                 AND e.submit_time = j.submit_time AND e.run_end_time = j.end_time"
            }
        };
        let sql = format!(
            "SELECT {RUN_COLUMNS} FROM records.jobs AS j {unknown}
             WHERE cluster = ? AND start_time IS NOT NULL AND end_time > start_time
               AND end_time >= make_timestamp(?::BIGINT)::TIMESTAMP_S
               AND end_time < make_timestamp(?::BIGINT)::TIMESTAMP_S
             ORDER BY end_time LIMIT {}",
            limit.min(i64::MAX as usize)
        );
        let values = vec![cluster.to_owned().into(), micros(from).into(), micros(to).into()];
        self.list("list the runs to assess", &sql, values, job_run)
    }

    /// Keeps what was found, in place of what was found before. `now` is UTC seconds.
    ///
    /// # Errors
    /// When DuckDB refuses; nothing is kept then.
    pub fn keep_efficiencies(&self, found: &[AssessedRun], now: i64) -> Result<(), StoreError> {
        if found.is_empty() {
            return Ok(());
        }
        let _writing = self.database.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let db = self.database.connect()?;
        let names = columns().collect::<Vec<_>>().join(", ");
        let marks = ", ?".repeat(columns().count());
        (|| {
            db.execute_batch("BEGIN")?;
            let identity = "cluster = ? AND job_id = ? AND submit_time = make_timestamp(?::BIGINT)::TIMESTAMP_S";
            let mut forget = db.prepare(&format!("DELETE FROM records.run_efficiency WHERE {identity}"))?;
            let mut keep = db.prepare(&format!(
                "INSERT INTO records.run_efficiency (cluster, job_id, submit_time, run_end_time, assessed_at, {names})
                 VALUES (?, ?, make_timestamp(?::BIGINT), make_timestamp(?::BIGINT), make_timestamp(?::BIGINT){marks})"
            ))?;
            for AssessedRun { run, efficiency } in found {
                let identity: [Value; 3] =
                    [run.cluster.clone().into(), run.job_id.clone().into(), micros(run.submit).into()];
                forget.execute(params_from_iter(&identity))?;
                let times = [micros(run.end.unwrap_or(now)).into(), micros(now).into()];
                keep.execute(params_from_iter(identity.into_iter().chain(times).chain(values(efficiency))))?;
            }
            db.execute_batch("COMMIT")
        })()
        .map_err(|error| {
            // Where even this fails there is no transaction left to end.
            let _ = db.execute_batch("ROLLBACK");
            StoreError::sql("store the efficiency of runs")(error)
        })
    }

    /// The runs of a cluster that were assessed and held something in `[from, to)` (UTC seconds).
    ///
    /// # Errors
    /// When DuckDB cannot answer.
    pub fn assessed(&self, cluster: &str, from: i64, to: i64) -> Result<Vec<AssessedRun>, StoreError> {
        let names: Vec<&str> = columns().collect();
        let sql = format!(
            "SELECT {RUN_COLUMNS}, {} FROM records.jobs JOIN records.run_efficiency USING (cluster, job_id, submit_time)
             WHERE cluster = ? AND end_time > make_timestamp(?::BIGINT)::TIMESTAMP_S
               AND start_time < make_timestamp(?::BIGINT)::TIMESTAMP_S",
            names.join(", ")
        );
        let values = vec![cluster.to_owned().into(), micros(from).into(), micros(to).into()];
        self.list("read the efficiency of runs", &sql, values, |row| {
            Ok(AssessedRun { run: job_run(row)?, efficiency: efficiency(row, &names)? })
        })
    }
}

/// The fields of [`Efficiency`], in the order in which they are written.
fn columns() -> impl Iterator<Item = &'static str> {
    static NAMES: std::sync::LazyLock<Vec<String>> =
        std::sync::LazyLock::new(|| fields(&Efficiency::default()).into_iter().map(|(name, _)| name).collect());
    NAMES.iter().map(String::as_str)
}

fn fields(efficiency: &Efficiency) -> Map<String, Json> {
    match serde_json::to_value(efficiency) {
        Ok(Json::Object(fields)) => fields,
        _ => Map::new(),
    }
}

fn values(efficiency: &Efficiency) -> impl Iterator<Item = Value> + use<> {
    fields(efficiency).into_iter().map(|(_, value)| match value {
        Json::Bool(value) => Value::Boolean(value),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Value::BigInt(integer),
            None => number.as_f64().map_or(Value::Null, Value::Double),
        },
        Json::String(text) => Value::Text(text),
        _ => Value::Null,
    })
}

fn efficiency(row: &Row<'_>, names: &[&str]) -> duckdb::Result<Efficiency> {
    let field = |name: &&str| -> duckdb::Result<(String, Json)> {
        let value = match row.get::<_, Value>(*name)? {
            Value::Boolean(value) => Json::Bool(value),
            Value::BigInt(value) => Json::Number(value.into()),
            Value::Double(value) => Number::from_f64(value).map_or(Json::Null, Json::Number),
            Value::Text(text) => Json::String(text),
            _ => Json::Null,
        };
        Ok(((*name).to_owned(), value))
    };
    let fields: Map<String, Json> = names.iter().map(field).collect::<duckdb::Result<_>>()?;
    serde_json::from_value(Json::Object(fields))
        .map_err(|error| duckdb::Error::FromSqlConversionFailure(0, duckdb::types::Type::Any, Box::new(error)))
}
