//! Slurm's reasons for waiting (`squeue --format=%r`) in words: meaning and remedy.

use crate::JobRun;

/// Slurm's reason and its meaning, as the continuation of "It waits because …". `{want}` stands for
/// the requested resources, `{partition}` for the partition.
const WORDS: &[(&str, &str)] = &[
    (
        "Priority",
        "other jobs in {partition} have a higher priority; takt fairshare --explain says why",
    ),
    (
        "Resources",
        "it is next, but {want} is not free at once in {partition}",
    ),
    ("Dependency", "another job has to end first"),
    (
        "DependencyNeverSatisfied",
        "its dependency can no longer be met, so it will never start: cancel it",
    ),
    (
        "BeginTime",
        "its begin time (--begin), or the pause after it was requeued, is still to come",
    ),
    ("JobHeldUser", "its user holds it: scontrol release"),
    (
        "JobHeldAdmin",
        "an operator holds it, or Slurm after a failed start; only an operator can release it",
    ),
    (
        "JobArrayTaskLimit",
        "its array has reached its % limit of running tasks",
    ),
    (
        "JobLaunchFailure",
        "it could not be started; its node may be at fault",
    ),
    ("Licenses", "its licenses are in use"),
    ("Reservation", "its reservation has not begun"),
    (
        "ReservationDeleted",
        "its reservation was deleted, so it will never start: submit it without one",
    ),
    ("PartitionDown", "{partition} is down and starts no jobs"),
    ("PartitionInactive", "{partition} is inactive"),
    (
        "PartitionNodeLimit",
        "it asks for more nodes than {partition} allows, or than are up: ask for fewer",
    ),
    (
        "PartitionTimeLimit",
        "it asks for more time than {partition} allows: ask for less (--time)",
    ),
    (
        "PartitionConfig",
        "{partition} does not allow what it asks for",
    ),
    ("AccountNotAllowed", "its account may not use {partition}"),
    ("QOSNotAllowed", "its QOS may not use {partition}"),
    (
        "BadConstraints",
        "no node has what it asks for ({want}): it will never start",
    ),
    ("NodeDown", "a node that it asks for is down"),
    (
        "ReqNodeNotAvail",
        "nodes that it asks for are down, drained or reserved",
    ),
    ("FrontEndDown", "no front end is up"),
    ("NonZeroExitCode", "its last run failed"),
    ("InvalidAccount", "its account is not valid"),
    ("InvalidQOS", "its QOS is not valid"),
    (
        "AssociationJobLimit",
        "its user or account has reached its limit of jobs",
    ),
    (
        "AssociationResourceLimit",
        "its user or account has reached its limit of resources",
    ),
    (
        "AssociationTimeLimit",
        "its user or account has used up its time",
    ),
    ("QOSJobLimit", "its QOS has reached its limit of jobs"),
    (
        "QOSResourceLimit",
        "its QOS has reached its limit of resources",
    ),
    ("QOSTimeLimit", "its QOS has used up its time"),
    ("Cleaning", "Slurm is cleaning up after its last run"),
    ("Prolog", "its prolog runs"),
    ("WaitingForScheduling", "Slurm has not considered it yet"),
    ("None", "Slurm has not considered it yet"),
];

/// Begin of Slurm's description of a job that waits for nodes which are not up.
const NODES_ARE_DOWN: &str = "Nodes required for job are DOWN";

/// Scope of a limit, by a part of Slurm's name for it (`QOSMaxGRESPerUser`,
/// `AssocGrpCPUMinutesLimit`).
const LIMITS: &[(&str, &str)] = &[
    ("PerUser", "one user"),
    ("PerAccount", "one account"),
    ("PerJob", "one job"),
    ("PerNode", "one job on one node"),
];

/// Resource of a limit, by a part of Slurm's name for it.
const LIMITED: &[(&str, &str)] = &[
    ("Gres", "GPUs"),
    ("GRES", "GPUs"),
    ("Cpu", "CPUs"),
    ("CPU", "CPUs"),
    ("Mem", "memory"),
    ("Node", "nodes"),
    ("Wall", "time"),
    ("Billing", "billing units"),
    ("Submit", "jobs submitted"),
    ("Jobs", "jobs"),
];

/// Returns the reason why a run waits, as a sentence without its full stop.
pub fn in_words(reason: &str, run: &JobRun) -> String {
    // slurmctld writes underscores for blanks in some answers.
    if reason.replace('_', " ").starts_with(NODES_ARE_DOWN) {
        return "too few of its nodes are up; sinfo -R says why".to_owned();
    }
    // Some reasons have details: `ReqNodeNotAvail, UnavailableNodes:node1`.
    let (word, detail) = reason.split_once([',', ' ', '(']).unwrap_or((reason, ""));
    let Some(words) = WORDS
        .iter()
        .find(|(known, _)| *known == word)
        .map(|(_, words)| (*words).to_owned())
        .or_else(|| limit(word))
    else {
        return format!("Slurm says {reason}");
    };
    let want = match run.req_tres.as_deref().unwrap_or_default() {
        "" => "what it asks for".to_owned(),
        tres => wanted(tres),
    };
    let partition = if run.partition.contains(',') {
        format!("the partitions {}", run.partition)
    } else {
        format!("partition {}", run.partition)
    };
    let detail = detail.trim_matches([' ', '(', ')']);
    let detail = if detail.is_empty() {
        String::new()
    } else {
        format!(" ({detail})")
    };
    words
        .replace("{want}", &want)
        .replace("{partition}", &partition)
        + &detail
}

/// Builds the sentence for a limit from the parts of its name.
fn limit(word: &str) -> Option<String> {
    let of = ["QOS", "Assoc", "MaxGRES", "Association"]
        .iter()
        .find(|prefix| word.starts_with(**prefix))?;
    let whose = LIMITS
        .iter()
        .find(|(part, _)| word.contains(part))
        .map_or("all its jobs together", |(_, whose)| *whose);
    let what = LIMITED
        .iter()
        .find(|(part, _)| word.contains(part))
        .map_or("resources", |(_, what)| *what);
    let by = if *of == "QOS" { "QOS" } else { "account" };
    let spent = if word.contains("Minutes") || word.contains("RunMin") {
        " over time"
    } else {
        ""
    };
    Some(format!(
        "the limit of its {by} on {what}{spent} for {whose} is reached ({word})"
    ))
}

/// Returns a TRES string without the entries that users do not request themselves.
fn wanted(tres: &str) -> String {
    tres.split(',')
        .filter(|one| !one.starts_with("billing=") && !one.starts_with("gres/gpu:"))
        .map(|one| one.strip_prefix("gres/").unwrap_or(one))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_in_words() {
        let run = JobRun {
            partition: "gpu".into(),
            req_tres: Some("cpu=8,mem=64G,node=1,billing=24,gres/gpu=2,gres/gpu:a100=2".into()),
            ..JobRun::default()
        };
        for (reason, words) in [
            (
                "Resources",
                "it is next, but cpu=8 mem=64G node=1 gpu=2 is not free at once in partition gpu",
            ),
            ("JobHeldUser", "its user holds it: scontrol release"),
            (
                "ReqNodeNotAvail, UnavailableNodes:node1",
                "nodes that it asks for are down, drained or reserved (UnavailableNodes:node1)",
            ),
            (
                "QOSMaxGRESPerUser",
                "the limit of its QOS on GPUs for one user is reached (QOSMaxGRESPerUser)",
            ),
            (
                "AssocGrpCPUMinutesLimit",
                "the limit of its account on CPUs over time for all its jobs together is reached \
                 (AssocGrpCPUMinutesLimit)",
            ),
            (
                "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority \
                 partitions",
                "too few of its nodes are up; sinfo -R says why",
            ),
            ("SomethingNew", "Slurm says SomethingNew"),
            ("", "Slurm says "),
        ] {
            assert_eq!(in_words(reason, &run), words);
        }
        let nowhere = JobRun {
            partition: "gpu,short".into(),
            ..JobRun::default()
        };
        assert_eq!(
            in_words("Resources", &nowhere),
            "it is next, but what it asks for is not free at once in the partitions gpu,short"
        );
    }
}
