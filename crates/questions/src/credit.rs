//! A credit: hours of a lost run that are given back, or the revocation of a credit.

use super::period::{rfc3339, the_cluster};
use super::{AnswerConfig, AnswerError, Question, RequestForm, credits};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use takt_access::{Need, Role, Viewer};
use takt_accounting::{Credit, in_force};
use takt_jobs::JobRun;
use takt_model::UnixTime;
use takt_store::{Database, JobFilter, Records};

/// Enters a credit for a run, or revokes a credit. Answers with the new entry of the ledger.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CreditOrder {
    /// Id of the job that is credited.
    pub job_id: Option<String>,
    /// Submit time of the credited run. Default: the only finished run, or the only one lost to a fault.
    #[serde(deserialize_with = "crate::period::read_instant_if_set")]
    pub submit: Option<UnixTime>,
    /// Number of the credit to revoke.
    pub revokes: Option<i64>,
    /// GPU-hours to give back. Default: all that the run held.
    pub gpu_hours: Option<f64>,
    /// Reason, for the ledger.
    pub reason: String,
    /// Name of the operator, for the ledger.
    pub granted_by: String,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
}

impl Question for CreditOrder {
    const PATH: &'static str = credits::PATH;
    const REQUEST: RequestForm = RequestForm::PostJson;
    const NEED: Need = Need::Change(Role::Admin);
    type Answer = Credit;
    type Data = Database;

    fn answer(
        &self,
        _viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<Credit, AnswerError> {
        // The ledger is read by people who were not there.
        if self.reason.trim().is_empty() {
            return Err(refused("a credit needs a reason"));
        }

        let records = Records::of(database);
        let cluster = the_cluster(
            &records,
            self.cluster.as_deref(),
            config.accounting.home.as_deref(),
        )?
        .cluster;
        let credit = match (&self.job_id, self.revokes) {
            (Some(job), None) => self.of_run(&records, &cluster, job)?,
            (None, Some(id)) => revocation(&records.credits(&cluster)?, id)?,
            _ => return Err(refused("a credit is of a job, or revokes another credit")),
        };
        let credit = Credit {
            reason: self.reason.trim().to_owned(),
            granted_by: self.granted_by.clone(),
            granted_at: Timestamp::now().into(),
            ..credit
        };
        // The check runs inside of the transaction, so that two operators cannot credit the same run.
        let entered = credit.clone();
        records.enter_credit(credit, |ledger| check(ledger, &entered))
    }
}

/// Checks, while the ledger is locked, that the run has no credit yet, or that the revoked credit still stands.
fn check(ledger: &[Credit], entered: &Credit) -> Result<(), AnswerError> {
    // Credits of a run are those with its submission: ids come round again.
    let known = in_force(ledger)
        .find(|known| known.job_id == entered.job_id && known.submit == entered.submit);
    match known {
        Some(known) if entered.revokes.is_none() => Err(refused(format!(
            "job {} was credited by {} already (credit {}): revoke that first",
            entered.job_id.as_deref().unwrap_or_default(),
            known.granted_by,
            known.id
        ))),
        None if entered.revokes.is_some() => Err(refused("it was revoked meanwhile")),
        _ => Ok(()),
    }
}

fn refused(reason: impl Into<String>) -> AnswerError {
    AnswerError::Usage(reason.into())
}

fn revocation(ledger: &[Credit], id: i64) -> Result<Credit, AnswerError> {
    // A revoked credit cannot be revoked again.
    let credit = in_force(ledger).find(|credit| credit.id == id);
    let credit = credit.ok_or_else(|| refused(format!("there is no credit {id} in force")))?;
    Ok(Credit {
        revokes: Some(id),
        ..credit.clone()
    })
}

impl CreditOrder {
    /// The credit for a finished run of `job`.
    fn of_run(
        &self,
        records: &Records<'_>,
        cluster: &str,
        job: &str,
    ) -> Result<Credit, AnswerError> {
        let filter = JobFilter {
            cluster: Some(cluster.to_owned()),
            job_id: Some(job.to_owned()),
            ..JobFilter::default()
        };
        // A credit is of a run of exactly this id that has ended.
        let mut runs = records.jobs(&filter)?;
        runs.retain(|run| run.job_id == job && run.start.is_some() && run.end.is_some());
        let run = self.choose(job, &runs)?;

        let elapsed = run
            .end
            .zip(run.start)
            .map(|(end, start)| end - start)
            .unwrap_or_default()
            .max(0);

        let seconds = elapsed as f64;
        let held = run.gpus.unwrap_or(0) as f64 * seconds;
        // No more than the run held, or the ledger would create hours.
        let gpu_seconds = match self.gpu_hours.map(|hours| hours * 3600.0) {
            None => held,
            Some(given) if given > 0.0 && given <= held => given,
            Some(given) => {
                return Err(refused(format!(
                    "expected more than 0 and at most the {:.2} GPU-hours of job {job}, found {}",
                    held / 3600.0,
                    given / 3600.0
                )));
            }
        };
        // A part in GPU-hours says nothing of CPU-hours.
        let cpu_seconds = if self.gpu_hours.is_none() {
            run.cpus.unwrap_or(0) as f64 * seconds
        } else {
            0.0
        };
        if gpu_seconds <= 0.0 && cpu_seconds <= 0.0 {
            return Err(refused(format!(
                "job {job} held no GPU and no CPU for any time: there is nothing to give back"
            )));
        }
        Ok(Credit {
            cluster: cluster.to_owned(),
            user: run.user.clone(),
            account: run.account.clone(),
            job_id: Some(run.job_id.clone()),
            submit: Some(run.submit),
            gpu_seconds,
            cpu_seconds,
            credited_to: run.end.unwrap_or_default(),
            ..Credit::default()
        })
    }

    /// The credited run among the finished runs of `job`. A requeued job has several: the run lost to a fault is meant,
    /// not the later one that completed.
    fn choose<'r>(&self, job: &str, runs: &'r [JobRun]) -> Result<&'r JobRun, AnswerError> {
        // A submission names the run; without it, only one choice is safe.
        if let Some(submit) = self.submit {
            let run = runs.iter().find(|run| run.submit == submit);
            return run.ok_or_else(|| {
                let submit = rfc3339(submit);
                let known = listed(runs);
                refused(format!(
                    "no finished run of job {job} was submitted at {submit}{known}"
                ))
            });
        }

        let lost: Vec<&JobRun> = runs.iter().filter(|run| is_lost(run)).collect();
        match (runs, lost.as_slice()) {
            ([], _) => Err(refused(format!(
                "no run of job {job} that has ended is recorded"
            ))),
            // A single run is meant, whatever its state.
            ([only], _) => Ok(only),
            (_, [only]) => Ok(only),
            _ => Err(refused(format!(
                "job {job} has {} finished runs; choose one with --submit{}",
                runs.len(),
                listed(runs)
            ))),
        }
    }
}

/// States of runs that a fault or the scheduler ended.
const LOST: &[&str] = &["NODE_FAIL", "BOOT_FAIL", "REQUEUED", "PREEMPTED"];

fn is_lost(run: &JobRun) -> bool {
    LOST.contains(&run.state.as_str())
}

/// `: 2026-10-02T00:00:00Z (NODE_FAIL), …`
fn listed(runs: &[JobRun]) -> String {
    let all: Vec<String> = runs
        .iter()
        .map(|run| format!("{} ({})", rfc3339(run.submit), run.state))
        .collect();
    if all.is_empty() {
        String::new()
    } else {
        format!(": {}", all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::import;
    use crate::{AccountingConfig, CreditsQuestion, SheetQuestion, sheets};
    use takt_accounting::{BudgetConfig, RateCard, RatesConfig};
    use takt_store::{DataDir, Settings};
    use tempfile::tempdir;

    fn database(root: &std::path::Path) -> Database {
        let dir = DataDir::claim(root).unwrap();
        let database = Database::open(&dir, &Settings::default()).unwrap();

        let run = |job_id: &str, end: Option<UnixTime>| JobRun {
            cluster: "lab".into(),
            job_id: job_id.into(),
            submit: UnixTime(1_790_900_000),
            start: Some(UnixTime(1_790_900_000)),
            end,
            state: "NODE_FAIL".into(),
            user: "ann".into(),
            account: "physics".into(),
            gpus: Some(2),
            cpus: Some(8),
            ..JobRun::default()
        };
        let runs = [
            run("7", Some(UnixTime(1_790_903_600))),
            run("8", None),
            run("9", Some(UnixTime(1_790_900_000))),
        ];
        import(&database, Some("UTC"), runs);
        database
    }

    fn credit(database: &Database, order: &CreditOrder) -> Result<Credit, AnswerError> {
        order.answer(&Viewer::server(), database, &AnswerConfig::default())
    }

    fn order(job: &str) -> CreditOrder {
        CreditOrder {
            job_id: Some(job.into()),
            reason: "g1 lost its power".into(),
            granted_by: "root".into(),
            ..CreditOrder::default()
        }
    }

    #[test]
    fn hours_are_given_back_once_and_the_ledger_keeps_everything() {
        let root = tempdir().unwrap();
        let database = database(root.path());
        // Two GPUs and eight CPUs for an hour.
        let given = credit(&database, &order("7")).unwrap();
        assert_eq!(given.id, 1);
        assert_eq!(given.gpu_seconds, 7200.0);
        assert_eq!(given.cpu_seconds, 28_800.0);
        assert_eq!(given.user.as_str(), "ann");

        let refused = |order: &CreditOrder| credit(&database, order).unwrap_err().to_string();
        assert_eq!(
            refused(&order("9")),
            "job 9 held no GPU and no CPU for any time: there is nothing to give back"
        );
        assert_eq!(
            refused(&order("7")),
            "job 7 was credited by root already (credit 1): revoke that first"
        );

        let revoke = |id| CreditOrder {
            job_id: None,
            revokes: Some(id),
            ..order("")
        };
        assert_eq!(credit(&database, &revoke(1)).unwrap().revokes, Some(1));
        assert_eq!(refused(&revoke(1)), "there is no credit 1 in force");

        let part = CreditOrder {
            gpu_hours: Some(0.5),
            ..order("7")
        };
        assert_eq!(credit(&database, &part).unwrap().gpu_seconds, 1800.0);

        let ledger = CreditsQuestion::default()
            .answer(&Viewer::server(), &database, &AnswerConfig::default())
            .unwrap();
        assert_eq!(
            ledger.iter().map(|credit| credit.id).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        assert!(
            ledger
                .iter()
                .all(|credit| credit.granted_by == "root" && credit.granted_at > UnixTime(0))
        );
        assert_eq!(
            in_force(&ledger)
                .map(|credit| credit.id)
                .collect::<Vec<_>>(),
            [3]
        );

        // The report of the month has the credit in force only.
        let question = SheetQuestion {
            month: Some("2026-10".into()),
            user: Some("ann".into()),
            ..SheetQuestion::default()
        };
        let sheet = &sheets(&database, &question, &AccountingConfig::default()).unwrap()[0];
        assert_eq!(sheet.figures.credited_gpu_hours, 0.5);

        // Credits are deducted from budgets: half a GPU-hour, which costs 3 EUR.
        let card = RateCard {
            from: "2026-01-01".into(),
            gpu_hour: 3.0,
            cpu_hour: 0.1,
            ..RateCard::default()
        };
        let budget = BudgetConfig {
            user: Some("ann".into()),
            money: Some(10.0),
            gpu_hours: Some(2.0),
            ..BudgetConfig::default()
        };
        let config = AccountingConfig {
            rates: RatesConfig {
                currency: Some("EUR".into()),
                cards: vec![card],
            },
            budgets: vec![budget],
            ..AccountingConfig::default()
        };

        let used = || {
            let budgets = &sheets(&database, &question, &config).unwrap()[0].budgets;
            [budgets[0].used, budgets[1].used]
        };
        let with_credit = used();
        credit(&database, &revoke(3)).unwrap();
        let without = used();
        let back = [without[0] - with_credit[0], without[1] - with_credit[1]];
        assert!(
            (back[0] - 0.5).abs() < 1e-6 && (back[1] - 1.5).abs() < 1e-6,
            "{with_credit:?} {without:?}"
        );
    }

    #[test]
    fn orders_and_questions_that_make_no_sense() {
        let root = tempdir().unwrap();
        let database = database(root.path());

        let refused = |order: CreditOrder| credit(&database, &order).unwrap_err().to_string();
        assert_eq!(
            refused(order("8")),
            "no run of job 8 that has ended is recorded"
        );
        assert_eq!(
            refused(order("nine")),
            "no run of job nine that has ended is recorded"
        );
        assert_eq!(
            refused(CreditOrder {
                reason: " ".into(),
                ..order("7")
            }),
            "a credit needs a reason"
        );
        assert_eq!(
            refused(CreditOrder {
                gpu_hours: Some(3.0),
                ..order("7")
            }),
            "expected more than 0 and at most the 2.00 GPU-hours of job 7, found 3"
        );
        assert_eq!(
            refused(CreditOrder {
                job_id: None,
                ..order("")
            }),
            "a credit is of a job, or revokes another credit"
        );

        // A name without records, one that is nearly right, and one that is right in another month.
        let question = SheetQuestion {
            month: Some("2026-10".into()),
            user: Some("eve".into()),
            ..SheetQuestion::default()
        };
        let refused = |question: &SheetQuestion| {
            sheets(&database, question, &AccountingConfig::default())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refused(&question),
            "no run of the user eve is recorded in 2026-10 or the three periods before it"
        );

        let nearly = SheetQuestion {
            user: Some("anna".into()),
            ..question.clone()
        };
        assert!(
            refused(&nearly).ends_with("before it; did you mean ann?"),
            "{}",
            refused(&nearly)
        );

        let nearly = SheetQuestion {
            user: None,
            account: Some("Phsyics".into()),
            ..question.clone()
        };
        assert!(
            refused(&nearly).ends_with("; did you mean physics?"),
            "{}",
            refused(&nearly)
        );

        let long_ago = SheetQuestion {
            month: Some("2020-01".into()),
            user: Some("ann".into()),
            ..question
        };
        assert!(
            refused(&long_ago).ends_with("before it"),
            "known, but not then: {}",
            refused(&long_ago)
        );

        let whole = SheetQuestion {
            month: Some("2020-01".into()),
            ..SheetQuestion::default()
        };
        let sheet = &sheets(&database, &whole, &AccountingConfig::default()).unwrap()[0];
        assert!(
            sheet
                .notes
                .iter()
                .any(|note| note.ends_with("there are records from 2026-10-02 to 2026-10-02.")),
            "{:?}",
            sheet.notes
        );
    }

    /// Issue 13: the credit went to the run that completed after the requeue.
    #[test]
    fn the_lost_run_of_a_requeued_job_is_credited() {
        let root = tempdir().unwrap();
        let dir = DataDir::claim(root.path()).unwrap();
        let database = Database::open(&dir, &Settings::default()).unwrap();
        let run = |job_id: &str, submit: UnixTime, state: &str| JobRun {
            cluster: "lab".into(),
            job_id: job_id.into(),
            submit,
            start: Some(submit + 60),
            end: Some(submit + 3660),
            state: state.into(),
            user: "ann".into(),
            gpus: Some(1),
            ..JobRun::default()
        };
        let first = UnixTime(1_790_900_000);
        // The requeue is the second submission; job 8 lost both runs.
        let second = first + 10_000;
        let runs = [
            run("7", first, "NODE_FAIL"),
            run("7", second, "COMPLETED"),
            run("8", first, "NODE_FAIL"),
            run("8", second, "NODE_FAIL"),
        ];
        import(&database, Some("UTC"), runs);
        // One of the two runs was lost; the other has completed.
        assert_eq!(credit(&database, &order("7")).unwrap().submit, Some(first));
        let at = |submit| CreditOrder {
            submit: Some(submit),
            ..order("8")
        };

        let refused = |order: &CreditOrder| credit(&database, order).unwrap_err().to_string();
        assert_eq!(
            refused(&order("8")),
            "job 8 has 2 finished runs; choose one with --submit: \
             2026-10-02T03:00:00Z (NODE_FAIL), 2026-10-02T00:13:20Z (NODE_FAIL)"
        );
        assert_eq!(
            refused(&at(UnixTime(5))),
            "no finished run of job 8 was submitted at 1970-01-01T00:00:05Z: \
             2026-10-02T03:00:00Z (NODE_FAIL), 2026-10-02T00:13:20Z (NODE_FAIL)"
        );
        // Each run of one job has a credit of its own.
        for submit in [second, first] {
            assert_eq!(credit(&database, &at(submit)).unwrap().submit, Some(submit));
        }
    }
}
