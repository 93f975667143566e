//! Search in the records: jobs, users, accounts, nodes and GPUs by a part of their names.

use super::{Records, StoreError, VisibleRuns};
use duckdb::types::Value;

/// Records whose names contain the searched text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordHits {
    /// Job ids that equal the text: array jobs without their tasks.
    pub jobs: Vec<String>,
    /// Job names with the id and the user of the newest job of each.
    pub job_names: Vec<(String, String, String)>,
    /// User names.
    pub users: Vec<String>,
    /// Account names.
    pub accounts: Vec<String>,
    /// Node names.
    pub nodes: Vec<String>,
    /// GPUs: node and UUID.
    pub gpus: Vec<(String, String)>,
    /// Names of alerts that have fired.
    pub alerts: Vec<String>,
}

impl Records<'_> {
    /// Returns the records that contain `text`, upper and lower case alike; at most `most` of each
    /// kind. `visible` restricts the jobs that are found by id, `named` those found by name.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn search(
        &self,
        text: &str,
        most: usize,
        visible: Option<&VisibleRuns>,
        named: Option<&VisibleRuns>,
    ) -> Result<RecordHits, StoreError> {
        let parameter = || vec![Value::from(text.to_owned())];

        // The shortest names come first, because they are the closest to the text.
        let names = |select: &str, from: &str| {
            let sql = format!(
                "SELECT DISTINCT {select} AS name FROM {from}
                 WHERE contains(lower({select}), lower(?))
                 ORDER BY length(name), name LIMIT {most}"
            );
            self.list("search the records", &sql, parameter(), |row| {
                row.get::<_, String>(0)
            })
        };

        // The id of an array stands for its tasks, which would fill the list.
        let (is_visible, of_visible) = condition(visible);
        let jobs = self.list(
            "search the records",
            &format!(
                "WITH asked AS (SELECT ? AS id),
                 runs AS (SELECT *, regexp_extract(job_id, '^[^_+]*') AS array_id FROM records.jobs)
                 SELECT DISTINCT CASE WHEN array_id = asked.id THEN asked.id ELSE job_id END
                 FROM runs, asked
                 WHERE list_contains([job_id, array_id, raw_job_id, sluid, original_sluid], asked.id) AND {is_visible}
                 LIMIT 5"
            ),
            parameter().into_iter().chain(of_visible).collect(),
            |row| row.get(0),
        )?;

        let (is_visible, of_visible) = condition(named);
        let job_names = self.list(
            "search the records",
            &format!(
                "SELECT job_name, max_by(job_id, submit_time), max_by(\"user\", submit_time)
                 FROM records.jobs WHERE contains(lower(job_name), lower(?)) AND {is_visible}
                 GROUP BY job_name ORDER BY max(submit_time) DESC LIMIT {most}"
            ),
            parameter().into_iter().chain(of_visible).collect(),
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )?;

        let gpus = self.list(
            "search the records",
            &format!(
                "SELECT node, uuid FROM records.job_gpus WHERE contains(lower(uuid), lower(?))
                 GROUP BY node, uuid ORDER BY max(last_seen) DESC LIMIT {most}"
            ),
            parameter(),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;

        Ok(RecordHits {
            jobs,
            job_names,
            users: names("\"user\"", "records.jobs")?,
            accounts: names("account", "records.jobs")?,
            nodes: names("node", "records.nodes")?,
            gpus,
            alerts: names("alertname", "records.alert_transitions")?,
        })
    }
}

/// The condition that runs are visible, and its parameters.
fn condition(visible: Option<&VisibleRuns>) -> (String, Vec<Value>) {
    visible.map_or_else(|| ("true".to_owned(), Vec::new()), VisibleRuns::condition)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Corrections, DataDir, Database, GivenGpu, Origin, Settings, Shifted};
    use std::convert::Infallible;
    use takt_jobs::{Entry, JobRun};
    use takt_model::UnixTime;
    use tempfile::tempdir;

    #[test]
    fn names_are_found_by_their_parts_and_jobs_by_their_ids() {
        let root = tempdir().unwrap();
        let database =
            Database::open(&DataDir::claim(root.path()).unwrap(), &Settings::default()).unwrap();
        let records = Records::of(&database);
        let run = |job_id: &str, raw: Option<&str>| JobRun {
            cluster: "lab".into(),
            job_id: job_id.into(),
            raw_job_id: raw.map(str::to_owned),
            user: "Annabel".into(),
            account: "vision".into(),
            name: Some("train-ViT".into()),
            submit: UnixTime(10),
            start: Some(UnixTime(10)),
            state: "RUNNING".into(),
            ..JobRun::default()
        };
        let origin = Origin {
            source: "sacct",
            name: "test",
            timezone: None,
            complete_until: None,
            shifted: Shifted::Refuse,
            corrections: Corrections::Accept,
        };

        // Two tasks of the array 7, whose own numbers are 8 and 9, and a job whose id begins alike.
        let entries = [
            run("7_1", Some("8")),
            run("7_2", Some("9")),
            run("70", None),
        ];
        records
            .import(
                &origin,
                entries.map(|run| Ok::<_, Infallible>(Entry::Run(run))),
            )
            .unwrap();
        let gpu = GivenGpu {
            number: "70".into(),
            node: "g1".into(),
            uuid: "GPU-abcd".into(),
        };
        records
            .note_given_gpus("lab", &[gpu], UnixTime(60))
            .unwrap();
        let found = |text| records.search(text, 10, None, None).unwrap();

        // Job 70 is not found by a part of its id.
        assert_eq!(found("7").jobs, ["7"]);
        assert_eq!(found("7_2").jobs, ["7_2"]);
        assert_eq!(found("9").jobs, ["7_2"], "Slurm's own number of a task");
        assert_eq!(found("anna").users, ["Annabel"]);
        assert_eq!(found("VIS").accounts, ["vision"]);
        assert_eq!(found("vit").job_names[0].0, "train-ViT");
        assert_eq!(
            found("ABCD").gpus,
            [("g1".to_owned(), "GPU-abcd".to_owned())]
        );
        assert_eq!(found("nothing"), RecordHits::default());
        let of = |user: &str| VisibleRuns {
            user: Some(user.into()),
            accounts: Vec::new(),
        };
        let by = |who: VisibleRuns| records.search("7", 10, Some(&who), None).unwrap().jobs;
        assert_eq!(by(of("Annabel")), ["7"]);
        assert_eq!(by(of("bob")), Vec::<String>::new(), "another user's job");
    }
}
