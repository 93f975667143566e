//! Time zone, prices and budgets of each cluster. Queries of users join them with job records.

use super::{Records, TimeColumns, micros};
use crate::StoreError;
use duckdb::types::ToSql;
use duckdb::{Connection, params};
use takt_accounting::{BudgetUse, RateCard};
use takt_model::UnixTime;

/// A time in which the clocks of a cluster keep one offset from UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeOffset {
    /// Start.
    pub from: UnixTime,
    /// End.
    pub until: UnixTime,
    /// Offset in seconds, positive east of Greenwich.
    pub offset_seconds: i32,
}

/// A rate card and the time in which it is valid.
#[derive(Debug, Clone, PartialEq)]
pub struct PricedTime {
    /// Start.
    pub from: UnixTime,
    /// End; `None` for the last card.
    pub until: Option<UnixTime>,
    /// The prices.
    pub card: RateCard,
}

/// Use of a budget in its current period.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetNow {
    /// Start of the period.
    pub from: UnixTime,
    /// End of the period.
    pub until: UnixTime,
    /// Limit and use.
    pub budget: BudgetUse,
}

impl Records<'_> {
    /// Replaces the time zone of a cluster, if it has changed.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_time_offsets(
        &self,
        cluster: &str,
        timezone: &str,
        offsets: &[TimeOffset],
    ) -> Result<(), StoreError> {
        let known = self.list(
            "look up the time zone",
            "SELECT timezone, epoch_ms(from_time) // 1000, epoch_ms(until_time) // 1000, offset_seconds
             FROM records.time_offsets WHERE cluster = ? ORDER BY from_time",
            vec![cluster.to_owned().into()],
            |row| {
                let offset = TimeOffset {
                    from: row.time(1)?,
                    until: row.time(2)?,
                    offset_seconds: row.get(3)?,
                };
                Ok((row.get::<_, String>(0)?, offset))
            },
        )?;

        // Each write makes the query process copy the database again, so an unchanged zone writes nothing.
        if known
            .iter()
            .map(|(name, offset)| (name.as_str(), offset))
            .eq(offsets.iter().map(|offset| (timezone, offset)))
        {
            return Ok(());
        }

        let insert =
            "INSERT INTO records.time_offsets VALUES (?, ?, make_timestamp(?::BIGINT)::TIMESTAMP_S,
             make_timestamp(?::BIGINT)::TIMESTAMP_S, ?)";
        self.replace("time_offsets", cluster, |db| {
            let mut insert = db.prepare(insert)?;
            for offset in offsets {
                insert.execute(params![
                    cluster,
                    timezone,
                    micros(offset.from),
                    micros(offset.until),
                    offset.offset_seconds
                ])?;
            }
            Ok(())
        })
    }

    /// Replaces the prices of a cluster.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_rate_cards(
        &self,
        cluster: &str,
        currency: Option<&str>,
        prices: &[PricedTime],
    ) -> Result<(), StoreError> {
        let insert =
            "INSERT INTO records.rate_cards VALUES (?, make_timestamp(?::BIGINT)::TIMESTAMP_S,
             make_timestamp(?::BIGINT)::TIMESTAMP_S, ?, ?, ?, ?, ?, ?, ?)";
        self.replace("rate_cards", cluster, |db| {
            let mut insert = db.prepare(insert)?;

            for PricedTime { from, until, card } in prices {
                let models = serde_json::to_string(&card.gpu_models).unwrap_or_default();
                insert.execute(params![
                    cluster,
                    micros(*from),
                    until.map(micros),
                    currency,
                    card.gpu_hour,
                    models,
                    card.cpu_hour,
                    card.mem_gib_hour,
                    card.kwh,
                    card.co2_g_per_kwh
                ])?;
            }
            Ok(())
        })
    }

    /// Replaces the budgets of a cluster, with their use at `now`.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_budgets(
        &self,
        cluster: &str,
        budgets: &[BudgetNow],
        now: UnixTime,
    ) -> Result<(), StoreError> {
        let insert = "INSERT INTO records.budgets VALUES (?, ?, ?, ?, make_timestamp(?::BIGINT)::TIMESTAMP_S,
             make_timestamp(?::BIGINT)::TIMESTAMP_S, ?, ?, ?, make_timestamp(?::BIGINT)::TIMESTAMP_S)";

        self.replace("budgets", cluster, |db| {
            let mut insert = db.prepare(insert)?;
            for BudgetNow {
                from,
                until,
                budget,
            } in budgets
            {
                let name = Some(budget.name.as_str());
                let period = budget.period.name();

                let values: [&dyn ToSql; 10] = [
                    &cluster,
                    &name.filter(|_| !budget.is_account),
                    &name.filter(|_| budget.is_account),
                    &period,
                    &micros(*from),
                    &micros(*until),
                    &budget.unit,
                    &budget.limit,
                    &budget.used,
                    &micros(now),
                ];
                insert.execute(values)?;
            }
            Ok(())
        })
    }

    /// Deletes the rows of a cluster in `table` and inserts others, in one transaction.
    fn replace(
        &self,
        table: &str,
        cluster: &str,
        insert: impl FnOnce(&Connection) -> duckdb::Result<()>,
    ) -> Result<(), StoreError> {
        let _writing = self.database.writing();
        let db = self.database.connect()?;
        // After an error the connection is dropped, which rolls the transaction back.
        (|| {
            db.execute_batch("BEGIN")?;
            let delete = format!("DELETE FROM records.{table} WHERE cluster = ?");
            db.execute(&delete, params![cluster])?;
            insert(&db)?;
            db.execute_batch("COMMIT")
        })()
        .map_err(StoreError::sql("store time zone, prices and budgets"))
    }
}
