//! Efficiency of finished runs: which runs to assess, and storing the results.
//!
//! The columns of `run_efficiency` are the fields of [`Efficiency`] by name. A new figure needs a
//! field in the struct and a migration.

use super::{JobRun, RUN_COLUMN_COUNT, RUN_COLUMNS, Records, StoreError, job_run, micros};
use duckdb::types::{Value, ValueRef};
use duckdb::{Row, appender_params_from_iter};
use serde::de::value::MapDeserializer;
use serde::de::{Deserialize, Deserializer, IntoDeserializer, Visitor};
use serde_json::{Map, Value as Json};
use std::sync::LazyLock;
use takt_accounting::efficiency::{AssessedRun, Efficiency};
use takt_model::UnixTime;

/// Selects finished runs to assess.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Runs that were not assessed, or whose end has changed since.
    New,
    /// All runs.
    All,
}

impl Records<'_> {
    /// Returns runs of a cluster that held resources and ended in `[from, to)`, the
    /// first ended first, at most `limit`. With `after`, only the runs behind that one in this
    /// order.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn due(
        &self,
        cluster: &str,
        (from, to): (UnixTime, UnixTime),
        due: Due,
        after: Option<&JobRun>,
        limit: usize,
    ) -> Result<Vec<JobRun>, StoreError> {
        let unknown = match due {
            Due::All => "",
            Due::New => {
                "ANTI JOIN records.run_efficiency AS e ON e.cluster = j.cluster AND e.job_id = j.job_id
                 AND e.submit_time = j.submit_time AND e.run_end_time = j.end_time"
            }
        };

        let behind = match after {
            None => "",
            Some(_) => {
                "AND (end_time, job_id, submit_time)
                     > (make_timestamp(?::BIGINT)::TIMESTAMP_S, ?, make_timestamp(?::BIGINT)::TIMESTAMP_S)"
            }
        };

        // The end alone is no order: many runs end in the same second.
        let sql = format!(
            "SELECT {RUN_COLUMNS} FROM records.jobs AS j {unknown}
             WHERE cluster = ? AND start_time IS NOT NULL AND end_time > start_time
               AND end_time >= make_timestamp(?::BIGINT)::TIMESTAMP_S
               AND end_time < make_timestamp(?::BIGINT)::TIMESTAMP_S {behind}
             ORDER BY end_time, job_id, submit_time LIMIT {}",
            limit.min(i64::MAX as usize)
        );

        let mut values: Vec<Value> = vec![
            cluster.to_owned().into(),
            micros(from).into(),
            micros(to).into(),
        ];
        if let Some(run) = after {
            let end = micros(run.end.unwrap_or(from));
            values.extend([
                end.into(),
                run.job_id.clone().into(),
                micros(run.submit).into(),
            ]);
        }

        self.list("list the runs to assess", &sql, values, job_run)
    }

    /// Stores assessments in place of earlier ones of the same runs.
    ///
    /// # Errors
    /// If DuckDB fails; nothing is stored then.
    pub fn keep_efficiencies(
        &self,
        found: &[AssessedRun],
        now: UnixTime,
    ) -> Result<(), StoreError> {
        if found.is_empty() {
            return Ok(());
        }

        let _writing = self.database.writing();
        let db = self.database.connect()?;
        let names = columns().collect::<Vec<_>>().join(", ");
        // The table has no index, so rows are staged and compared as sets, like in an import.
        (|| {
            db.execute_batch(&format!(
                "CREATE TEMP TABLE judged AS
                     SELECT cluster, job_id, 0::BIGINT AS submit, 0::BIGINT AS run_end, {names}
                     FROM records.run_efficiency LIMIT 0"
            ))?;

            let mut staged = db.appender_to_catalog_and_db("judged", "temp", "main")?;
            for AssessedRun { run, efficiency } in found {
                let times = [run.submit, run.end.unwrap_or(now)].map(|at| micros(at).into());
                let identity = [run.cluster.clone().into(), run.job_id.clone().into()];
                staged.append_row(appender_params_from_iter(
                    identity.into_iter().chain(times).chain(values(efficiency)),
                ))?;
            }

            staged.flush()?;
            drop(staged);

            db.execute_batch("BEGIN")?;
            db.execute_batch(&format!(
                "DELETE FROM records.run_efficiency AS e USING judged AS j
                     WHERE e.cluster = j.cluster AND e.job_id = j.job_id
                       AND e.submit_time = make_timestamp(j.submit)::TIMESTAMP_S;
                 INSERT INTO records.run_efficiency (cluster, job_id, submit_time, run_end_time, assessed_at, {names})
                     SELECT cluster, job_id, make_timestamp(submit), make_timestamp(run_end),
                            make_timestamp({}::BIGINT), {names} FROM judged",
                micros(now)
            ))?;
            db.execute_batch("COMMIT")
        })()
        .map_err(|error| {
            // If the rollback fails too, no transaction is open.
            let _ = db.execute_batch("ROLLBACK");
            StoreError::sql("store the efficiency of runs")(error)
        })
    }

    /// Returns the assessed runs of a cluster that held resources in `[from, to)`.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn assessed(
        &self,
        cluster: &str,
        from: UnixTime,
        to: UnixTime,
    ) -> Result<Vec<AssessedRun>, StoreError> {
        let names: Vec<&str> = columns().collect();

        let sql = format!(
            "SELECT {RUN_COLUMNS}, {} FROM records.jobs JOIN records.run_efficiency USING (cluster, job_id, submit_time)
             WHERE cluster = ? AND end_time > make_timestamp(?::BIGINT)::TIMESTAMP_S
               AND start_time < make_timestamp(?::BIGINT)::TIMESTAMP_S",
            names.join(", ")
        );

        let values = vec![
            cluster.to_owned().into(),
            micros(from).into(),
            micros(to).into(),
        ];

        self.list("read the efficiency of runs", &sql, values, |row| {
            Ok(AssessedRun {
                run: job_run(row)?,
                efficiency: efficiency(row, RUN_COLUMN_COUNT)?,
            })
        })
    }
}

/// The fields of [`Efficiency`], in the order in which they are written.
pub(super) fn columns() -> impl Iterator<Item = &'static str> {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        fields(&Efficiency::default())
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    });
    NAMES.iter().map(String::as_str)
}

fn fields(efficiency: &Efficiency) -> Map<String, Json> {
    // The names come from serde, so that the columns cannot differ from the fields.
    match serde_json::to_value(efficiency) {
        Ok(Json::Object(fields)) => fields,
        _ => Map::new(),
    }
}

fn values(efficiency: &Efficiency) -> impl Iterator<Item = Value> + use<> {
    fields(efficiency)
        .into_iter()
        .map(|(_, value)| match value {
            Json::Bool(value) => Value::Boolean(value),
            Json::Number(number) => match number.as_i64() {
                Some(integer) => Value::BigInt(integer),
                None => number.as_f64().map_or(Value::Null, Value::Double),
            },
            Json::String(text) => Value::Text(text),
            _ => Value::Null,
        })
}

/// Reads an assessment from the columns at `first` and after it, which are those of [`columns`].
pub(super) fn efficiency(row: &Row<'_>, first: usize) -> duckdb::Result<Efficiency> {
    let fields: Vec<_> = columns()
        .zip(first..)
        .map(|(name, position)| Ok((name, Cell(row.get_ref(position)?))))
        .collect::<duckdb::Result<_>>()?;
    Efficiency::deserialize(MapDeserializer::new(fields.into_iter())).map_err(|error| {
        duckdb::Error::FromSqlConversionFailure(first, duckdb::types::Type::Any, Box::new(error))
    })
}

/// A value of a row, for serde.
struct Cell<'a>(ValueRef<'a>);

impl<'de> IntoDeserializer<'de> for Cell<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Cell<'de> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V>(self, visitor: V) -> Result<V::Value, Self::Error>
    where
        V: Visitor<'de>,
    {
        match self.0 {
            ValueRef::Boolean(value) => visitor.visit_bool(value),
            ValueRef::BigInt(value) => visitor.visit_i64(value),
            ValueRef::Double(value) => visitor.visit_f64(value),
            ValueRef::Text(text) => visitor.visit_str(&String::from_utf8_lossy(text)),
            _ => visitor.visit_unit(),
        }
    }

    fn deserialize_option<V>(self, visitor: V) -> Result<V::Value, Self::Error>
    where
        V: Visitor<'de>,
    {
        // A figure that could not be found is NULL.
        if self.0 == ValueRef::Null {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
