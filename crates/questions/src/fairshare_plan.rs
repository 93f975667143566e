//! A planned job, for which fair share is predicted.

use super::near::did_you_mean;
use super::{AnswerError, FairshareQuestion};
use std::collections::BTreeSet;
use takt_accounting::capacity::NodeCapacity;
use takt_accounting::fairshare::PlannedJob;
use takt_jobs::ShareSettings;
use takt_jobs::billing::{TresAmounts, is_tres};
use takt_model::words;
use takt_store::ChargedRun;

/// Longest job that can be planned, in hours: ten years.
const MAX_HOURS: f64 = 87_600.0;

/// A planned job.
#[derive(Debug)]
pub(super) struct Plan<'q> {
    tres: TresAmounts,
    hours: f64,
    partition: String,
    qos: Option<&'q str>,
    /// The assumption about the partition, if the question names none and the choice matters.
    pub assumption: Option<String>,
}

impl<'q> Plan<'q> {
    /// The planned job of the question, if it has one. Fails if its TRES, length, partition or QOS is invalid, or if its
    /// partition has to be named.
    pub fn of(
        question: &'q FairshareQuestion,
        settings: &ShareSettings,
        runs: &[ChargedRun],
    ) -> Result<Option<Self>, AnswerError> {
        let Some(text) = &question.plan else {
            return Ok(None);
        };
        let tres = tres(text)?;

        let hours = question.plan_hours.unwrap_or(1.0);
        // A negative length or one without an end would give back usage, or take all of it.
        if !(0.0..=MAX_HOURS).contains(&hours) {
            return Err(AnswerError::Usage(format!(
                "a job of {hours} hours cannot be planned"
            )));
        }

        let qos = question.plan_qos.as_deref();
        if let Some(qos) = qos {
            let known = runs
                .iter()
                .filter_map(|run| run.qos.as_deref())
                .chain(settings.qos.keys().map(String::as_str))
                .collect();
            check("QOS", qos, known)?;
        }

        let (partition, assumption) = partition(question, settings, runs)?;
        Ok(Some(Self {
            tres,
            hours,
            partition,
            qos,
            assumption,
        }))
    }

    /// The job, for the prediction.
    pub fn job(&self) -> PlannedJob<'_> {
        PlannedJob {
            partition: &self.partition,
            qos: self.qos,
            tres: &self.tres,
            hours: self.hours,
        }
    }
}

impl Plan<'_> {
    /// Returns a line for a job that is larger than all nodes together; `None` if it is not, or no node is known.
    pub fn too_large(&self, nodes: &[NodeCapacity]) -> Option<String> {
        if nodes.is_empty() {
            return None;
        }
        let all = |of: fn(&NodeCapacity) -> u64| nodes.iter().map(of).sum::<u64>() as f64;
        let sums = [
            ("gres/gpu", "GPUs", all(|node| node.amounts.gpus)),
            ("cpu", "CPUs", all(|node| node.amounts.cpus)),
            ("node", "nodes", nodes.len() as f64),
        ];
        let larger = sums
            .into_iter()
            .find(|(tres, _, sum)| self.tres.get(tres) > *sum)?;
        let (tres, name, sum) = larger;
        Some(format!(
            "No partition can run the planned job: it needs {} {name}, and the cluster has {}.\n",
            words::count(self.tres.get(tres) as u64),
            words::count(sum as u64)
        ))
    }
}

fn tres(text: &str) -> Result<TresAmounts, AnswerError> {
    let tres = TresAmounts::parse(text).map_err(AnswerError::usage)?;
    // `TresAmounts` takes any name; a misspelt one would cost nothing.
    if let Some((name, _)) = tres.iter().find(|(name, _)| !is_tres(name)) {
        let near = did_you_mean(name, ["cpu", "gres/gpu", "mem", "node"]);
        let expected = "expected cpu=N, gres/gpu=N, mem=NG and the like";
        return Err(AnswerError::Usage(format!(
            "Slurm does not track '{name}' ({expected}){near}"
        )));
    }
    // The parser leaves out a TRES with an invalid or zero amount.
    if tres.iter().count() < text.split(',').count() {
        return Err(AnswerError::Usage(format!(
            "'{text}' is not a job: each amount is a number above 0"
        )));
    }
    Ok(tres)
}

/// The partition of the planned job, and the assumption behind it. The price of a job depends on its partition: without a
/// name, it is the partition of the user's last run, unless all partitions have the same weights.
fn partition(
    question: &FairshareQuestion,
    settings: &ShareSettings,
    runs: &[ChargedRun],
) -> Result<(String, Option<String>), AnswerError> {
    // A partition that is named needs no guess.
    if let Some(asked) = &question.plan_partition {
        let known = runs
            .iter()
            .map(|run| run.partition.as_str())
            .chain(settings.partitions.keys().map(String::as_str))
            .collect();
        check("partition", asked, known)?;
        return Ok((asked.clone(), None));
    }
    // Without configured partitions, the partition has no price of its own.
    let Some((first, weights)) = settings.partitions.first_key_value() else {
        return Ok((String::new(), None));
    };
    if settings.partitions.values().all(|other| other == weights) {
        return Ok((first.clone(), None));
    }

    let user = question.user.as_deref().unwrap_or_default();
    let last = runs
        .iter()
        .filter(|run| run.user == user)
        .filter(|run| settings.partitions.contains_key(&run.partition))
        .max_by_key(|run| run.start);
    // A guess could be wrong by the price of a GPU, so the user has to choose.
    let Some(last) = last else {
        let names: Vec<&str> = settings.partitions.keys().map(String::as_str).collect();
        return Err(AnswerError::Usage(format!(
            "name the partition of the planned job with --partition: {}",
            names.join(", ")
        )));
    };

    let assumption = format!(
        "The planned job is assumed to run in partition {}, like {user}'s last job; --partition chooses another.\n",
        last.partition
    );
    Ok((last.partition.clone(), Some(assumption)))
}

/// Fails if `asked` is not among `known`. Where nothing is known, every name is accepted.
fn check(kind: &str, asked: &str, mut known: BTreeSet<&str>) -> Result<(), AnswerError> {
    // Records may lack a partition.
    known.remove("");
    if known.is_empty() || known.contains(asked) {
        return Ok(());
    }
    let names: Vec<&str> = known.iter().copied().collect();
    Err(AnswerError::Usage(format!(
        "there is no {kind} {asked}; known: {}{}",
        names.join(", "),
        did_you_mean(asked, names.iter().copied())
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_jobs::BillingWeights;
    use takt_model::UnixTime;

    fn question(partition: Option<&str>) -> FairshareQuestion {
        FairshareQuestion {
            user: Some("ann".into()),
            plan: Some("cpu=4,gres/gpu=1".into()),
            plan_partition: partition.map(str::to_owned),
            ..FairshareQuestion::default()
        }
    }

    fn settings() -> ShareSettings {
        let weights = |text| Some(BillingWeights::parse(text).unwrap());
        ShareSettings {
            partitions: [
                ("cpu".to_owned(), None),
                ("gpu".to_owned(), weights("CPU=1,GRES/gpu=16")),
            ]
            .into(),
            ..ShareSettings::default()
        }
    }

    fn price(
        question: &FairshareQuestion,
        settings: &ShareSettings,
        runs: &[ChargedRun],
    ) -> Result<f64, String> {
        let plan = Plan::of(question, settings, runs)
            .map_err(|error| error.to_string())?
            .unwrap();
        let job = plan.job();
        Ok(settings
            .rates()
            .per_second(job.partition, job.qos, job.tres))
    }

    fn run(user: &str, partition: &str, start: i64) -> ChargedRun {
        ChargedRun {
            user: user.into(),
            partition: partition.into(),
            start: Some(UnixTime(start)),
            ..ChargedRun::default()
        }
    }

    /// Issue 13: without a partition, the weights were ignored.
    #[test]
    fn a_planned_job_is_charged_by_the_weights_of_its_partition() {
        let settings = settings();
        assert_eq!(price(&question(Some("gpu")), &settings, &[]), Ok(20.0));
        assert_eq!(price(&question(Some("cpu")), &settings, &[]), Ok(4.0));
        // A single partition leaves no choice.
        let mut one = settings.clone();
        one.partitions.remove("cpu");
        assert_eq!(price(&question(None), &one, &[]), Ok(20.0));
        // Ann's last run counts, not the last run of all.
        let runs = [
            run("ann", "cpu", 1),
            run("ann", "gpu", 2),
            run("bob", "cpu", 3),
        ];
        assert_eq!(price(&question(None), &settings, &runs), Ok(20.0));
        let asked = question(None);
        let plan = Plan::of(&asked, &settings, &runs).unwrap().unwrap();
        assert_eq!(
            plan.assumption.unwrap(),
            "The planned job is assumed to run in partition gpu, like ann's last job; --partition chooses another.\n"
        );
        // Bob's run says nothing about Ann.
        assert_eq!(
            price(&question(None), &settings, &runs[2..]).unwrap_err(),
            "name the partition of the planned job with --partition: cpu, gpu"
        );
    }

    #[test]
    fn unknown_partitions_and_qos_are_refused() {
        assert_eq!(
            price(
                &question(Some("gpuu")),
                &settings(),
                &[run("bob", "old", 1)]
            )
            .unwrap_err(),
            "there is no partition gpuu; known: cpu, gpu, old; did you mean gpu?"
        );

        let qos = FairshareQuestion {
            plan_qos: Some("hihg".into()),
            ..question(Some("gpu"))
        };
        assert_eq!(price(&qos, &settings(), &[]), Ok(20.0), "no QOS is known");

        let mut with_qos = run("bob", "gpu", 1);
        with_qos.qos = Some("high".into());
        assert_eq!(
            price(&qos, &settings(), &[with_qos]).unwrap_err(),
            "there is no QOS hihg; known: high; did you mean high?"
        );
    }

    /// A job of 4,000 GPUs got a forecast on six.
    #[test]
    fn a_job_that_is_larger_than_the_cluster_is_named() {
        let nodes = ["g01", "g02"].map(|node| NodeCapacity {
            node: node.to_owned(),
            amounts: takt_jobs::Amounts {
                cpus: 64,
                gpus: 3,
                mem_bytes: 0,
            },
        });
        let said = |plan: &str, nodes: &[NodeCapacity]| {
            let asked = FairshareQuestion {
                plan: Some(plan.to_owned()),
                ..question(Some("gpu"))
            };
            let plan = Plan::of(&asked, &settings(), &[]).unwrap().unwrap();
            plan.too_large(nodes)
        };
        assert_eq!(
            said("gres/gpu=4000", &nodes).unwrap(),
            "No partition can run the planned job: it needs 4,000 GPUs, and the cluster has 6.\n"
        );
        assert_eq!(said("cpu=128,gres/gpu=6,node=2", &nodes), None);
        assert_eq!(said("gres/gpu=4000", &[]), None);
    }
}
