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
    (
        "QOSUsageThreshold",
        "its fair share is below what its QOS requires; takt fairshare --explain says why",
    ),
    ("Cleaning", "Slurm is cleaning up after its last run"),
    (
        "AccountingPolicy",
        "a limit of its account or QOS is reached",
    ),
    (
        "MaxMemPerLimit",
        "it asks for more memory for each CPU or node than {partition} allows: ask for less (--mem)",
    ),
    (
        "MaxPoweredUpNodes",
        "as many nodes are powered up as the cluster allows",
    ),
    ("PowerNotAvail", "there is not enough power for it"),
    ("PowerReserved", "the power is reserved for another job"),
    ("MpiPortsBusy", "the ports that MPI reserves are in use"),
    (
        "NvidiaImexChannels",
        "the IMEX channels between GPUs of different nodes are in use",
    ),
    (
        "BurstBufferResources",
        "its burst buffer has too little free space",
    ),
    ("BurstBufferStageIn", "its burst buffer is being filled"),
    (
        "BurstBufferOperation",
        "an operation on its burst buffer failed; an operator has to look",
    ),
    (
        "SchedDefer",
        "it asks for an immediate start, and Slurm defers all jobs (SchedulerParameters=defer): submit it without --immediate",
    ),
    (
        "Constraints",
        "no node with the features it asks for is free",
    ),
    (
        "ReservationInvalid",
        "its reservation is not valid, so it will never start: submit it with another",
    ),
    (
        "FedJobLock",
        "the clusters of the federation agree on who starts it",
    ),
    (
        "JobHoldMaxRequeue",
        "Slurm holds it after too many requeues: look for the cause, then scontrol release",
    ),
    (
        "DeadLine",
        "it can no longer end by its deadline (--deadline)",
    ),
    ("TimeLimit", "its last run reached its time limit"),
    (
        "InactiveLimit",
        "its last run was inactive for too long (InactiveLimit)",
    ),
    (
        "OutOfMemory",
        "its last run ran out of memory: ask for more (--mem)",
    ),
    ("RaisedSignal", "a signal ended its last run"),
    (
        "SystemFailure",
        "Slurm, a file system or the network failed when it was to start",
    ),
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
    ("License", "licenses"),
    ("Energy", "energy"),
    ("BB", "burst buffers"),
];

/// Descriptions of jobs that wait for a place in the network, the longest first. Slurm gives them instead of
/// `Resources` since 26.05 (`ESLURM_TOPO_SEGMENT_NO_FIT`, `ESLURM_TOPO_NO_FIT`).
const TOPOLOGY: &[(&str, &str)] = &[
    (
        "No suitable topology unit found for segment",
        "too few nodes that are close to each other in the network are free in {partition} for one of its segments (--segment)",
    ),
    (
        "No suitable topology unit found",
        "too few nodes that are close to each other in the network are free in {partition}",
    ),
];

/// Parts of other descriptions that name the network's topology.
const TOPOLOGY_WORDS: &[&str] = &["topo", "segment", "torus"];

/// Returns the reason why a run waits, as a sentence without its full stop.
pub fn in_words(reason: &str, run: &JobRun) -> String {
    // slurmctld writes underscores for blanks in some answers.
    let sentence = reason.replace('_', " ");
    if sentence.starts_with(NODES_ARE_DOWN) {
        return "too few of its nodes are up; sinfo -R says why".to_owned();
    }

    let place = TOPOLOGY
        .iter()
        .find(|(known, _)| sentence.starts_with(known));
    if let Some((_, words)) = place {
        return words.replace("{partition}", &partitions(run));
    }

    // Some reasons have details: `ReqNodeNotAvail, UnavailableNodes:node1`.
    let (word, detail) = reason.split_once([',', ' ', '(']).unwrap_or((reason, ""));
    let Some(words) = WORDS
        .iter()
        .find(|(known, _)| *known == word)
        .map(|(_, words)| (*words).to_owned())
        .or_else(|| limit(word))
        .or_else(|| other_topology(word))
    else {
        return format!("Slurm says {reason}");
    };

    let want = match run.req_tres.as_deref().unwrap_or_default() {
        "" => "what it asks for".to_owned(),
        tres => wanted(tres),
    };

    let detail = detail.trim_matches([' ', '(', ')']);
    let detail = if detail.is_empty() {
        String::new()
    } else {
        format!(" ({detail})")
    };
    words
        .replace("{want}", &want)
        .replace("{partition}", &partitions(run))
        + &detail
}

fn partitions(run: &JobRun) -> String {
    if run.partition.contains(',') {
        format!("the partitions {}", run.partition)
    } else {
        format!("partition {}", run.partition)
    }
}

/// Builds the sentence for a limit from the parts of its name.
fn limit(word: &str) -> Option<String> {
    // `MaxGRESPerAccount` and the like.
    // The limits for one user and one account without a prefix are those of the QOS.
    let of = ["QOS", "Assoc", "Max"]
        .iter()
        .find(|prefix| word.starts_with(**prefix))
        .filter(|prefix| **prefix != "Max" || word.contains("Per"))?;

    let whose = LIMITS
        .iter()
        .find(|(part, _)| word.contains(part))
        .map_or("all its jobs together", |(_, whose)| *whose);
    let what = LIMITED
        .iter()
        .find(|(part, _)| word.contains(part))
        .map_or("resources", |(_, what)| *what);

    let by = if *of == "Assoc" { "account" } else { "QOS" };
    // A minimum is not reached by waiting: the job has to ask for more.
    if word.starts_with("QOSMin") {
        return Some(format!(
            "it asks for less than its QOS requires of {what} ({word})"
        ));
    }

    let spent = if word.contains("Minutes") || word.contains("RunMin") {
        " over time"
    } else {
        ""
    };
    Some(format!(
        "the limit of its {by} on {what}{spent} for {whose} is reached ({word})"
    ))
}

/// Returns the sentence for a place in the network that is not free, by a part of Slurm's word for it.
fn other_topology(word: &str) -> Option<String> {
    let lower = word.to_lowercase();
    TOPOLOGY_WORDS
        .iter()
        .any(|part| lower.contains(part))
        .then(|| format!("its nodes have to be close to each other in the network, and too few of such are free in {{partition}} ({word})"))
}

/// Returns a TRES string without the entries that users do not request themselves.
fn wanted(tres: &str) -> String {
    tres.split(',')
        // `gres/gpu:a100` repeats the count of `gres/gpu`, and `billing` is computed by Slurm.
        .filter(|one| !one.starts_with("billing=") && !one.starts_with("gres/gpu:"))
        .map(|one| one.strip_prefix("gres/").unwrap_or(one))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reasons of Slurm 26.05 (`job_state_reason.c`). `*` stands for each of the resources.
    const REASONS: &str = "None Prolog Priority Dependency Resources PartitionNodeLimit PartitionTimeLimit PartitionDown \
        PartitionInactive JobHeldAdmin JobHeldUser BeginTime Licenses AssociationJobLimit AssociationResourceLimit \
        AssociationTimeLimit Reservation ReqNodeNotAvail FrontEndDown NvidiaImexChannels SchedDefer NodeDown BadConstraints \
        SystemFailure JobLaunchFailure NonZeroExitCode RaisedSignal TimeLimit InactiveLimit InvalidAccount InvalidQOS \
        QOSUsageThreshold QOSJobLimit QOSResourceLimit QOSTimeLimit Cleaning QOSNotAllowed AccountNotAllowed \
        DependencyNeverSatisfied QOSGrpCpuLimit QOSGrpCPUMinutesLimit QOSGrpCPURunMinutesLimit QOSGrpJobsLimit QOSGrpMemLimit \
        QOSGrpNodeLimit QOSGrpSubmitJobsLimit QOSGrpWallLimit QOSMaxCpuPerJobLimit QOSMaxCpuMinutesPerJobLimit \
        QOSMaxNodePerJobLimit QOSMaxWallDurationPerJobLimit QOSMaxCpuPerUserLimit QOSMaxJobsPerUserLimit \
        QOSMaxNodePerUserLimit QOSMaxSubmitJobPerUserLimit QOSMinCpuNotSatisfied AssocGrpCpuLimit AssocGrpCPUMinutesLimit \
        AssocGrpCPURunMinutesLimit AssocGrpJobsLimit AssocGrpMemLimit AssocGrpNodeLimit AssocGrpSubmitJobsLimit \
        AssocGrpWallLimit AssocMaxJobsLimit AssocMaxCpuPerJobLimit AssocMaxCpuMinutesPerJobLimit AssocMaxNodePerJobLimit \
        AssocMaxWallDurationPerJobLimit AssocMaxSubmitJobLimit JobHoldMaxRequeue JobArrayTaskLimit BurstBufferResources \
        BurstBufferStageIn BurstBufferOperation PowerNotAvail PowerReserved DeadLine PartitionConfig AccountingPolicy FedJobLock \
        OutOfMemory MaxMemPerLimit ReservationDeleted ReservationInvalid Constraints MaxPoweredUpNodes MpiPortsBusy \
        AssocGrp* AssocGrp*Minutes AssocGrp*RunMinutes AssocMax*PerJob AssocMax*PerNode AssocMax*MinutesPerJob QOSGrp* \
        QOSGrp*Minutes QOSGrp*RunMinutes QOSMax*PerJob QOSMax*PerNode QOSMax*PerUser QOSMax*MinutesPerJob QOSMin* \
        Max*PerAccount Max*RunMinsPerAccount Max*RunMinsPerUser";

    #[test]
    fn every_reason_of_slurm_26_05_has_words() {
        let run = JobRun::default();
        let resources = [
            "BB",
            "Billing",
            "Cpu",
            "Energy",
            "GRES",
            "License",
            "Mem",
            "Memory",
            "Node",
            "Unknown",
            "Jobs",
            "SubmitJobs",
        ];
        // Each family of limits is tried with each resource, since Slurm builds these names from both.
        for reason in REASONS.split_whitespace() {
            for resource in resources {
                let reason = reason.replace('*', resource);
                let words = in_words(&reason, &run);
                assert!(!words.contains("Slurm says"), "{words}");
                assert!(!words.contains('{'), "{words}");
            }
        }
        // A name that a test invents for those that 26.05 adds for each topology.
        let block = in_words("TopologyBlockUnavailable", &run);
        assert!(block.contains("close to each other"), "{block}");
    }

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
            (
                "MaxGRESPerAccount",
                "the limit of its QOS on GPUs for one account is reached (MaxGRESPerAccount)",
            ),
            (
                "QOSMinGRES",
                "it asks for less than its QOS requires of GPUs (QOSMinGRES)",
            ),
            // As squeue and as slurmrestd write them.
            (
                "No_suitable_topology_unit_found",
                "too few nodes that are close to each other in the network are free in partition gpu",
            ),
            (
                "No suitable topology unit found for segment",
                "too few nodes that are close to each other in the network are free in partition gpu for one of its segments \
                 (--segment)",
            ),
            (
                "ReqNodeNotAvail, UnavailableNodes:segment[1-3]",
                "nodes that it asks for are down, drained or reserved (UnavailableNodes:segment[1-3])",
            ),
            ("SomethingNew", "Slurm says SomethingNew"),
            ("", "Slurm says "),
        ] {
            assert_eq!(in_words(reason, &run), words);
        }

        // Without a recorded request, and in several partitions, which a pending job may list.
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
