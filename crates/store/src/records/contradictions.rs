//! Runs of a source in which a user's text can look like a record, and that contradict recorded runs.

use super::import::{FIRST_REJECTS, ImportSummary, LIVE_QUEUE};
use duckdb::Connection;
use takt_slurm::Reject;

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

/// Equality of an incoming run `i` and a recorded run `j`.
pub(super) const IDENTITY: &str =
    "i.cluster = j.cluster AND i.job_id = j.job_id AND i.submit_time = j.submit_time";

/// SQL that is true where `j` is the record of an ended run, not a moment of the live queue.
pub(super) fn is_record() -> String {
    format!("(j.source <> '{LIVE_QUEUE}' AND j.end_time IS NOT NULL)")
}

/// SQL that is true where the run `i` contradicts the run `j`. An unknown value contradicts nothing,
/// and a number as user is the uid of a name that was unknown for a moment.
fn contradicts(j_is_record: &str) -> String {
    let differs = |fact: &&str| format!("coalesce(i.\"{fact}\" <> j.\"{fact}\", false)");
    let charged: Vec<String> = CHARGED.iter().map(differs).collect();
    format!(
        "(coalesce(nullif(i.\"user\", '') <> j.\"user\", false)
            AND NOT regexp_full_match(j.\"user\", '[0-9]*')
         OR coalesce(i.start_time <> j.start_time OR i.gpus < j.gpus OR i.cpus < j.cpus, false)
         OR {j_is_record} AND (coalesce(nullif(i.account, '') <> nullif(j.account, ''), false) OR {}))",
        charged.join(" OR ")
    )
}

/// Lists in the temporary table `contradicting` the staged runs that contradict recorded runs, or an
/// earlier row of the source (`is_second`). Returns the job id of the first such row, if any.
pub(super) fn find_contradictions(db: &Connection) -> duckdb::Result<Option<String>> {
    let text = "concat_ws('|', i.job_id, i.\"user\", i.account, i.submit_time, i.start_time, i.end_time, i.state,
                          i.alloc_tres)";
    let recorded = contradicts(&is_record());
    let staged = contradicts("true");
    db.execute_batch(&format!(
        "CREATE TEMP TABLE contradicting AS
             SELECT i.precedence, i.job_id, false AS is_second, {text} AS text
             FROM incoming AS i JOIN records.jobs AS j ON {IDENTITY}
             WHERE (i.end_time IS NOT NULL OR j.end_time IS NULL) AND {recorded}
         UNION
             SELECT i.precedence, i.job_id, true, {text}
             FROM (SELECT min(precedence) AS earliest FROM incoming WHERE end_time IS NOT NULL
                   GROUP BY cluster, job_id, submit_time HAVING count(*) > 1)
             JOIN incoming AS j ON j.precedence = earliest
             JOIN incoming AS i ON {IDENTITY} AND i.precedence > earliest
             WHERE i.end_time IS NOT NULL AND {staged}"
    ))?;
    db.query_row(
        "SELECT min(job_id) FROM contradicting WHERE is_second",
        [],
        |row| row.get(0),
    )
}

/// Reason of a rejected row.
const CONTRADICTS: &str = "the recorded run has another user, account, time or amount; use \
                           --accept-corrections if Slurm corrected it";

/// Moves the contradicting runs from the staged to the refused rows.
pub(super) fn set_aside_contradictions(
    db: &Connection,
    summary: &mut ImportSummary,
) -> duckdb::Result<()> {
    let mut found =
        db.prepare("SELECT DISTINCT precedence, text FROM contradicting ORDER BY precedence")?;
    let texts = found.query_map([], |row| row.get::<_, String>(1))?;
    for text in texts {
        let reject = Reject {
            line: None,
            reason: CONTRADICTS.to_owned(),
            text: text?,
        };
        summary.contradicting += 1;
        if summary.first_rejects.len() < FIRST_REJECTS {
            summary.first_rejects.push(reject);
        }
    }
    if summary.contradicting > 0 {
        summary.rejected += summary.contradicting;
        db.execute(
            "INSERT INTO refused SELECT NULL, ?, text FROM contradicting",
            [CONTRADICTS],
        )?;
        db.execute_batch(
            "DELETE FROM incoming WHERE precedence IN (SELECT precedence FROM contradicting)",
        )?;
    }
    Ok(())
}
