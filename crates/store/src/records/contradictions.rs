//! Runs of a source in which a user's text can look like a record, and that contradict recorded runs.

use super::import::{FIRST_REJECTS, ImportSummary, LIVE_QUEUE};
use super::{OpenRun, Records, TimeColumns, micros};
use crate::StoreError;
use crate::database::microseconds_now;
use duckdb::types::Value;
use duckdb::{Connection, params_from_iter};
use takt_jobs::Reject;
use takt_model::UnixTime;

/// Times and amounts of an ended run, which decide what is charged.
const CHARGED: [&str; 7] = [
    "start_time",
    "end_time",
    "nodes",
    "cpus",
    "gpus",
    "mem_bytes",
    "billing",
];

/// Seconds by which slurmctld's end of a run can differ from that of its record.
const LATE_END_SECONDS: i64 = 5;

/// Equality of an incoming run `i` and a recorded run `j`.
pub(super) const IDENTITY: &str =
    "i.cluster = j.cluster AND i.job_id = j.job_id AND i.submit_time = j.submit_time";

/// SQL that is true where `j` is the record of an ended run, not a moment of the live queue.
pub(super) fn is_record() -> String {
    format!("(j.source <> '{LIVE_QUEUE}' AND j.end_time IS NOT NULL)")
}

/// SQL that is true where two facts of the runs `i` and `j` differ. An unknown value differs from
/// nothing.
fn differ(fact: &str) -> String {
    format!("coalesce(i.\"{fact}\" <> j.\"{fact}\", false)")
}

/// SQL that is true where two names of the runs `i` and `j` differ; an empty one is unknown.
fn names_differ(name: &str) -> String {
    format!("coalesce(nullif(i.\"{name}\", '') <> nullif(j.\"{name}\", ''), false)")
}

fn charges_differ() -> String {
    let mut facts = vec![names_differ("account")];
    facts.extend(CHARGED.iter().map(|fact| differ(fact)));
    facts.join(" OR ")
}

/// SQL of the facts in which the runs `i` and `j` differ, each with its value in `j`:
/// `end_time 2026-11-28 06:04:20, cpus 8`.
fn differing_facts() -> String {
    let named = |fact: &str, is_other: String| {
        format!("CASE WHEN {is_other} THEN concat('{fact} ', j.\"{fact}\") END")
    };
    let names = ["user", "account"].map(|name| named(name, names_differ(name)));
    let charged = CHARGED.map(|fact| named(fact, differ(fact)));
    format!(
        "concat_ws(', ', {}, {})",
        names.join(", "),
        charged.join(", ")
    )
}

/// SQL that is true where the user of a run is the uid of a name that was unknown for a moment.
pub(super) fn user_is_number(run: char) -> String {
    format!("regexp_full_match({run}.\"user\", '[0-9]+')")
}

/// SQL that is true where the run `i`, which may be forged, contradicts the recorded run `j`: another
/// user, or other facts of an ended run. A number and a name can be the same user.
fn contradicts_recorded() -> String {
    format!(
        "({} AND {} = {} OR {} AND ({}))",
        names_differ("user"),
        user_is_number('i'),
        user_is_number('j'),
        is_record(),
        charges_differ()
    )
}

/// SQL that is true where the run `i`, which may be forged, only fills gaps of the recorded run `j`: an
/// ended one, or one that the live queue saw with other facts. The end of the latter is a gap. Of an
/// ended run the live queue can see less than the run had, so there only less is suspect; and it can see the
/// end a little late.
pub(super) fn keeps_recorded() -> String {
    format!(
        "({} OR j.start_time IS NOT NULL AND CASE WHEN j.end_time IS NULL THEN {} ELSE
            {} OR {} OR coalesce(abs(epoch(i.end_time) - epoch(j.end_time)) > {LATE_END_SECONDS}, false)
            OR coalesce(i.gpus < j.gpus OR i.cpus < j.cpus, false) END)",
        is_record(),
        charges_differ(),
        names_differ("account"),
        differ("start_time"),
    )
}

/// SQL of a run as the text of a rejected row.
pub(super) fn text_of(run: char) -> String {
    let columns = [
        "job_id",
        "\"user\"",
        "account",
        "submit_time",
        "start_time",
        "end_time",
        "state",
        "alloc_tres",
    ];
    format!(
        "concat_ws('|', {})",
        columns.map(|column| format!("{run}.{column}")).join(", ")
    )
}

/// Lists in the temporary table `contradicting` the staged runs that contradict recorded runs, an
/// earlier row of the source, or a poll that listed them as unfinished later, with the reason.
pub(super) fn find_contradictions(db: &Connection) -> duckdb::Result<()> {
    let text = text_of('i');
    let recorded = contradicts_recorded();
    let staged = format!("({} OR {})", names_differ("user"), charges_differ());
    let facts = differing_facts();

    // Three comparisons: with the recorded runs, with an earlier row of the source, and with the polls.
    db.execute_batch(&format!(
        "CREATE TEMP TABLE contradicting AS
             SELECT i.precedence, i.line, concat('{CONTRADICTS}', {facts}, '{CORRECT_IT}') AS reason,
                 {text} AS text
             FROM incoming AS i JOIN records.jobs AS j ON {IDENTITY}
             WHERE (i.end_time IS NOT NULL OR j.end_time IS NULL) AND {recorded};
         INSERT INTO contradicting
             SELECT i.precedence, i.line, concat('{IS_SECOND}', {facts}, '{ONE_IS_FALSE}'), {text}
             FROM (SELECT min(precedence) AS earliest FROM incoming WHERE end_time IS NOT NULL
                   GROUP BY cluster, job_id, submit_time HAVING count(*) > 1)
             JOIN incoming AS j ON j.precedence = earliest
             JOIN incoming AS i ON {IDENTITY} AND i.precedence > earliest
             WHERE i.end_time IS NOT NULL AND {staged}
                 AND i.precedence NOT IN (SELECT precedence FROM contradicting);
         INSERT INTO contradicting
             SELECT i.precedence, i.line, concat('{WAS_UNFINISHED}', p.told_until, '{CORRECT_IT}'), {text}
             FROM incoming AS i JOIN records.jobs AS j ON {IDENTITY}
             JOIN (SELECT cluster, max(told_until) AS told_until FROM records.polls GROUP BY cluster) AS p
                 ON p.cluster = i.cluster
             WHERE j.start_time IS NOT NULL AND j.end_time IS NULL
                 AND (i.end_time < p.told_until - INTERVAL {SLOW_RECORD_SECONDS} SECOND
                     OR i.end_time > make_timestamp({}) + INTERVAL {SLOW_RECORD_SECONDS} SECOND)
                 AND i.precedence NOT IN (SELECT precedence FROM contradicting)",
        microseconds_now()
    ))
}

/// Reason of a rejected row that ends a run before the scheduler listed it as unfinished, or in the future, before the
/// time of that.
const WAS_UNFINISHED: &str = "the scheduler still listed the run as unfinished at ";

/// Seconds in which the end of a run reaches the scheduler's records, and by which clocks differ.
const SLOW_RECORD_SECONDS: i64 = 120;

/// Reason of a rejected row, before the facts of the record that differ.
const CONTRADICTS: &str = "the recorded run has another ";

/// What follows these facts.
const CORRECT_IT: &str = "; use --accept-corrections if Slurm corrected it";

/// Reason of a rejected row whose run has an earlier one, before the facts of the earlier that differ.
const IS_SECOND: &str = "an earlier row of this run has another ";

/// What follows these facts.
const ONE_IS_FALSE: &str = ", and one of the two may be a text of a user that looks like a row; export the \
                            jobs with a random delimiter, or use --accept-corrections if both are of Slurm";

/// Reason of a rejected row whose run is recorded at other times of the day.
pub(super) const SHIFTED: &str =
    "the run is recorded with all times shifted by the difference of two time zones";

/// Moves the contradicting runs from the staged to the refused rows.
pub(super) fn set_aside_contradictions(
    db: &Connection,
    summary: &mut ImportSummary,
) -> duckdb::Result<()> {
    let mut found =
        db.prepare("SELECT line, reason, text FROM contradicting ORDER BY precedence")?;

    let rejects = found.query_map([], |row| {
        Ok(Reject {
            line: row.get(0)?,
            reason: row.get(1)?,
            text: row.get(2)?,
        })
    })?;

    for reject in rejects {
        let reject = reject?;
        summary.contradicting += 1;
        // The summary has a few examples; all rejected rows are stored.
        if summary.first_rejects.len() < FIRST_REJECTS {
            summary.first_rejects.push(reject);
        }
    }

    if summary.contradicting > 0 {
        summary.rejected += summary.contradicting;
        db.execute_batch(
            "INSERT INTO refused SELECT line, reason, text FROM contradicting;
             DELETE FROM incoming WHERE precedence IN (SELECT precedence FROM contradicting)",
        )?;
    }
    Ok(())
}

/// Reason of a record that the scheduler disproved.
const STILL_UNFINISHED: &str =
    "the scheduler lists the run as unfinished after this record of its end";

/// Seconds by which a record is older than a question that can disprove it: times of records are whole
/// seconds.
const RECORDED_BEFORE_SECONDS: i64 = 2;

impl Records<'_> {
    /// Sets aside the records of ended runs that a scheduler lists as unfinished, and that were stored
    /// before `asked_at`, this machine's time when the scheduler was asked: they are false. Returns these runs.
    /// The next import of the listed runs stores them anew.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn set_aside_false_ends(
        &self,
        cluster: &str,
        unfinished: &[OpenRun],
        asked_at: UnixTime,
    ) -> Result<Vec<OpenRun>, StoreError> {
        let listed: Vec<String> = unfinished
            .iter()
            .map(|run| format!("{} {}", run.job_id, run.submit.0))
            .collect();
        let is_false = "cluster = ? AND end_time IS NOT NULL AND recorded_at < make_timestamp(?::BIGINT)::TIMESTAMP_S
             AND concat(job_id, ' ', epoch_ms(submit_time) // 1000) IN (SELECT unnest(string_split(?, ',')))";
        let values: Vec<Value> = vec![
            cluster.to_owned().into(),
            micros(asked_at - RECORDED_BEFORE_SECONDS).into(),
            listed.join(",").into(),
        ];
        if unfinished.is_empty() {
            return Ok(Vec::new());
        }

        let found = self.list(
            "find false ends of runs",
            &format!(
                "SELECT job_id, epoch_ms(submit_time) // 1000 FROM records.jobs WHERE {is_false}"
            ),
            values.clone(),
            |row| {
                Ok(OpenRun {
                    job_id: row.get(0)?,
                    submit: row.time(1)?,
                })
            },
        )?;
        if found.is_empty() {
            return Ok(found);
        }

        self.writing("set aside false ends of runs", |db| {
            // The record stays among the rejects, where its text can be examined.
            let rejected = format!(
                "INSERT INTO records.rejects (source, line, reason, text, recorded_at)
                 SELECT source || ' of ' || cluster, NULL, '{STILL_UNFINISHED}', {}, make_timestamp({})
                 FROM records.jobs AS j WHERE {is_false}",
                text_of('j'),
                microseconds_now()
            );
            db.execute(&rejected, params_from_iter(values.clone()))?;
            db.execute(
                &format!("DELETE FROM records.jobs WHERE {is_false}"),
                params_from_iter(values),
            )
            .map(drop)
        })?;
        Ok(found)
    }
}
