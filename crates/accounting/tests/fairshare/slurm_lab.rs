//! Compares fair share computed from job records with `sshare -l -a` of a real Slurm for the same
//! runs.
//!
//! The output was captured from Slurm 22.05.8 (`tests/fixtures/slurm-22.05_lab/CAPTURED.md`). All
//! printed digits have to be equal; `--nocapture` shows both sides.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use takt_accounting::fairshare::{
    AssociationTree, Decay, DecayTable, Explainer, Explanation, JobSize, PlannedJob, Priority,
    PriorityFactors, PriorityWeights, Prospect, Run, ShareRow, Ticks, Usage, job_size_factor,
    share_rows, standings, usage,
};
use takt_jobs::billing::TresAmounts;
use takt_jobs::{BillingRates, PriorityFlags, PrioritySettings};
use takt_model::UnixTime;
use takt_slurm::share_text::{self, AssocMgrUsage, SacctRun, SshareRow};

struct Lab {
    tree: AssociationTree,
    settings: PrioritySettings,
    rates: BillingRates,
    runs: Vec<SacctRun>,
    sshare: Vec<SshareRow>,
    assoc_mgr: Option<AssocMgrUsage>,
    instant: UnixTime,
    ticks: Ticks,
    resets: Vec<UnixTime>,
}

impl Lab {
    /// Loads a captured moment, with its recorded ticks.
    fn at(moment: &str) -> Self {
        let directory =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/slurm-22.05_lab");
        let read = |name: &str| fs::read_to_string(directory.join(moment).join(name)).unwrap();
        let has = |name: &str| directory.join(moment).join(name).exists();
        let lines = |text: &str| text.lines().map(|line| line.parse().unwrap()).collect();
        let seen = fs::read_to_string(directory.join("ticks.txt")).unwrap();
        let settings = share_text::priority_settings(&read("scontrol-show-config.txt")).unwrap();
        Self {
            tree: AssociationTree::new(
                share_text::associations(&read("sacctmgr-assoc.psv"), "lab").unwrap(),
            )
            .unwrap(),
            rates: BillingRates {
                partitions: share_text::partitions(&read("scontrol-show-partition.txt")).unwrap(),
                qos: share_text::qos(&read("sacctmgr-qos.psv")).unwrap(),
                otherwise: None,
                flags: settings.flags,
            },
            settings,
            runs: share_text::sacct(&read("sacct.psv")).unwrap(),
            sshare: share_text::sshare(&read("sshare.psv")).unwrap(),
            assoc_mgr: has("scontrol-show-assoc_mgr.txt")
                .then(|| share_text::assoc_mgr(&read("scontrol-show-assoc_mgr.txt")).unwrap()),
            resets: if has("resets.txt") {
                lines(&read("resets.txt"))
            } else {
                Vec::new()
            },
            instant: read("instant.txt").trim().parse().unwrap(),
            ticks: Ticks::at(lines(&seen)),
        }
    }

    fn table(&self) -> DecayTable {
        DecayTable::new(
            Decay::new(self.settings.decay_half_life_seconds),
            &self.ticks,
            &self.resets,
            self.instant,
        )
    }

    fn usage(&self) -> Usage {
        usage_of(self, &self.runs.iter().collect::<Vec<_>>())
    }

    fn rows(&self) -> Vec<ShareRow> {
        share_rows(&self.tree, &self.settings, &self.usage())
    }
}

fn usage_of(lab: &Lab, runs: &[&SacctRun]) -> Usage {
    usage(
        &lab.tree,
        &lab.table(),
        &lab.rates,
        lab.instant - 3600,
        runs.iter().map(|run| charged(run)),
    )
}

/// Returns the fields of a run that fair share reads.
fn charged(run: &SacctRun) -> Run<'_> {
    Run {
        account: &run.account,
        user: &run.user,
        partition: &run.partition,
        qos: run.qos.as_deref(),
        start: run.start,
        end: run.end,
        timelimit_seconds: run.timelimit_seconds,
        tres: run.tres.as_deref(),
    }
}

/// Prints both sides, and panics if they differ by more than sshare's rounding.
fn compare(moment: &str, ours: &[ShareRow], theirs: &[SshareRow]) -> String {
    let mut table = format!("{moment}\n{:<28}{:>14}{:>8}", "", "raw_usage", "sshare");
    for column in [
        "norm_shares",
        "norm_usage",
        "effective_usage",
        "fair_share",
        "level_fs",
    ] {
        let _ = write!(table, "{column:>18}{:>10}", "sshare");
    }
    let mut wrong = Vec::new();
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        let name = format!(
            "{}{}",
            "  ".repeat(ours.depth),
            ours.user.as_ref().unwrap_or(&ours.account)
        );
        assert_eq!(&ours.account, &theirs.account);
        assert_eq!(&ours.user, &theirs.user);
        assert_eq!(&ours.partition, &theirs.partition);
        assert_eq!(ours.raw_shares, theirs.raw_shares, "{name}");
        let raw_usage = theirs.raw_usage.unwrap() as f64;
        let _ = write!(table, "\n{name:<28}{:>14.4}{raw_usage:>8}", ours.raw_usage);
        // Slurm truncates the decimals.
        if !(raw_usage..raw_usage + 1.0).contains(&ours.raw_usage) {
            wrong.push(format!("{name}: raw_usage"));
        }
        for (column, ours, theirs) in [
            // Under Fair Tree Slurm shows no normalized shares for the root, and no normalized
            // usage for it in either formula.
            ("norm_shares", Some(ours.norm_shares), theirs.norm_shares),
            ("norm_usage", Some(ours.norm_usage), theirs.norm_usage),
            (
                "effective_usage",
                Some(ours.effective_usage),
                theirs.effective_usage,
            ),
            ("fair_share", ours.fair_share, theirs.fair_share),
            ("level_fs", ours.level_fs, theirs.level_fs),
        ] {
            let text =
                |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.6}"));
            let _ = write!(table, "{:>18}{:>10}", text(ours), text(theirs));
            // Six decimals are printed.
            let same = match (ours, theirs) {
                (Some(ours), Some(theirs)) => ours == theirs || (ours - theirs).abs() <= 0.501e-6,
                (ours, theirs) => ours.is_none() == theirs.is_none() || column == "norm_usage",
            };
            if !same {
                wrong.push(format!("{name}: {column}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{table}\n{wrong:#?}");
    table
}

#[test]
fn fair_tree_after_all_runs_ended() {
    let lab = Lab::at("fair-tree");
    println!("{}", compare("fair-tree", &lab.rows(), &lab.sshare));
}

#[test]
fn fair_tree_while_jobs_run_and_some_ended_since_the_last_tick() {
    let lab = Lab::at("running");
    println!("{}", compare("running", &lab.rows(), &lab.sshare));
}

#[test]
fn fair_tree_with_parent_shares_partitions_qos_ties_and_idle_accounts() {
    let lab = Lab::at("rich");
    println!("{}", compare("rich", &lab.rows(), &lab.sshare));
}

#[test]
fn fair_tree_with_max_tres() {
    let mut lab = Lab::at("max-tres");
    // The first 21 jobs ran before the flag was set, and usage keeps their billing from that time.
    let (before, after): (Vec<_>, Vec<_>) = lab
        .runs
        .iter()
        .partition(|run| run.start < Some(MAX_TRES_FROM));
    let flags = lab.rates.flags;
    let mut usage = Vec::new();
    for (flags, runs) in [(PriorityFlags::default(), before), (flags, after)] {
        lab.rates.flags = flags;
        usage.push(
            lab.tree
                .display_order()
                .into_iter()
                .map(|id| usage_of(&lab, &runs).raw_usage(id))
                .collect::<Vec<_>>(),
        );
    }
    for ((row, before), after) in lab.sshare.iter().zip(&usage[0]).zip(&usage[1]) {
        assert_eq!(row.raw_usage, Some((before + after) as u64), "{row:?}");
    }
}

/// Between the jobs before and after the start of slurmctld with `PriorityFlags=MAX_TRES`.
const MAX_TRES_FROM: UnixTime = UnixTime(1_795_259_300);

#[test]
fn classic() {
    let lab = Lab::at("classic");
    println!("{}", compare("classic", &lab.rows(), &lab.sshare));
}

#[test]
fn depth_oblivious_with_dampening() {
    let lab = Lab::at("depth-oblivious");
    println!("{}", compare("depth-oblivious", &lab.rows(), &lab.sshare));
}

#[test]
fn usage_that_was_reset_while_jobs_ran() {
    let lab = Lab::at("reset-running");
    println!("{}", compare("reset-running", &lab.rows(), &lab.sshare));
    for (ours, theirs) in lab.rows().iter().zip(&lab.sshare) {
        for (name, minutes) in &theirs.tres_run_minutes {
            let ours = ours.tres_run_minutes.get(name).copied().unwrap_or(0.0);
            assert_eq!(
                ours.floor(),
                *minutes,
                "{} {:?} {name}",
                theirs.account,
                theirs.user
            );
        }
    }
}

#[test]
fn tied_accounts_and_raw_usage_with_its_decimals() {
    let lab = Lab::at("reset");
    println!("{}", compare("reset", &lab.rows(), &lab.sshare));
    let usage = lab.usage();
    let theirs = lab.assoc_mgr.as_ref().unwrap();
    for (account, user, partition, raw_usage) in &theirs.associations {
        let id = match user {
            Some(user) => lab
                .tree
                .charged(account, user, partition.as_deref().unwrap_or_default()),
            None => lab.tree.account(account),
        };
        // Two decimals are printed.
        let ours = usage.raw_usage(id.unwrap());
        assert!(
            (ours - raw_usage).abs() <= 0.005 + 1e-9,
            "{account} {user:?}: {ours} and {raw_usage}"
        );
    }
    for (qos, raw_usage) in &theirs.qos {
        let ours = usage.raw_usage_of_qos(qos);
        assert!(
            (ours - raw_usage).abs() <= 1e-6,
            "{qos}: {ours} and {raw_usage}"
        );
    }
}

#[test]
fn tied_accounts_are_ranked_as_the_code_does_and_not_as_the_documentation_says() {
    // Without decay, usage is a whole number of seconds, so two accounts can be tied.
    let lab = Lab::at("tied");
    println!("{}", compare("tied", &lab.rows(), &lab.sshare));
    let rows = lab.rows();
    // The factor is the rank over the number of users.
    let ranks = |account: &str| {
        rows.iter()
            .filter(|row| row.account == account && row.user.is_some())
            .filter_map(|row| row.fair_share.map(|share| (share * 18.0).round()))
            .collect::<Vec<_>>()
    };
    assert_eq!(ranks("tie-a"), vec![3.0, 1.0]);
    assert_eq!(ranks("tie-b"), vec![4.0, 3.0]);
}

#[test]
fn a_requeued_job_is_charged_for_both_runs() {
    // The half-life was set to an hour after the others' jobs, so only this user's usage follows
    // from runs.
    let lab = Lab::at("requeued");
    let bob = lab.tree.charged("lab-a", "bob", "gpu").unwrap();
    let is_bob = |row: &&(String, Option<String>, Option<String>, f64)| {
        row.0 == "lab-a" && row.1.as_deref() == Some("bob")
    };
    let assoc_mgr = lab.assoc_mgr.as_ref().unwrap();
    let (.., theirs) = assoc_mgr.associations.iter().find(is_bob).unwrap();
    let ours = lab.usage().raw_usage(bob);
    println!("raw_usage {ours:.4}, assoc_mgr {theirs}");
    assert!((ours - theirs).abs() <= 0.005 + 1e-9, "{ours} and {theirs}");
}

#[test]
fn ticks_need_not_be_known_for_level_fs_to_a_ten_thousandth() {
    for moment in ["fair-tree", "rich"] {
        for phase in [0, 7, 19, 31, 58] {
            let mut lab = Lab::at(moment);
            let first = lab.runs.iter().filter_map(|run| run.start).min().unwrap();
            let period = lab.settings.calc_period_seconds;
            // All runs had ended before the last of these ticks.
            lab.ticks = Ticks::every(period, UnixTime(phase), first - 60, lab.instant);
            for (ours, theirs) in lab.rows().iter().zip(&lab.sshare) {
                assert_eq!(
                    ours.fair_share.map(|share| format!("{share:.6}")),
                    theirs.fair_share.map(|share| format!("{share:.6}"))
                );
                for (ours, theirs) in [
                    (ours.level_fs, theirs.level_fs),
                    (Some(ours.effective_usage), theirs.effective_usage),
                ] {
                    let ours = ours.unwrap_or(0.0);
                    let theirs = theirs.unwrap_or(0.0);
                    assert!(
                        ours == theirs || (ours - theirs).abs() <= 1e-4 * theirs + 0.501e-6,
                        "{moment} {phase}: {ours} {theirs}"
                    );
                }
            }
        }
    }
}

#[test]
fn priority_of_pending_jobs() {
    let directory =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/slurm-22.05_lab/pending");
    let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
    let rows = |text: &str| {
        text.lines()
            .skip(1)
            .map(|line| {
                line.split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            })
            .collect::<Vec<_>>()
    };
    let weights = PriorityWeights {
        age: 1000,
        fair_share: 100_000,
        job_size: 100,
        partition: 1000,
        qos: 10_000,
        ..PriorityWeights::default()
    };
    // CPUs that the three jobs request. The cluster has 24 on 3 nodes.
    let cpus = [3, 2, 5];
    for ((factors, printed), cpus) in rows(&read("sprio-n.txt"))
        .iter()
        .zip(rows(&read("sprio.txt")))
        .zip(cpus)
    {
        let number = |column: usize| factors[column].parse::<f64>().unwrap();
        let size = JobSize {
            min_nodes: 1,
            cpus,
            cluster_nodes: 3,
            cluster_cpus: 24,
        };
        let job_size = job_size_factor(size, false);
        assert!((job_size - number(7)).abs() < 1e-7, "{factors:?}");
        let factors = PriorityFactors {
            age: number(4),
            fair_share: number(6),
            job_size,
            partition: number(8),
            nice: printed[11].parse().unwrap(),
            ..PriorityFactors::default()
        };
        let priority = Priority::new(&weights, &factors);
        assert_eq!(priority.priority.to_string(), printed[3]);
        let parts = [
            priority.age,
            priority.assoc,
            priority.fair_share,
            priority.job_size,
            priority.partition,
        ];
        assert_eq!(
            parts.map(|part| format!("{part:.0}")).as_slice(),
            &printed[5..10]
        );
    }
}

/// Returns a user's explanation with a planned job.
fn explanation(lab: &Lab, account: &str, user: &str) -> Explanation {
    let table = lab.table();
    let usage = lab.usage();
    let explainer = Explainer {
        tree: &lab.tree,
        settings: &lab.settings,
        table: &table,
        rates: &lab.rates,
        usage: &usage,
    };
    let tres = TresAmounts::parse("cpu=1,gres/gpu=1").unwrap();
    let job = PlannedJob {
        partition: "gpu",
        qos: None,
        tres: &tres,
        hours: 0.1,
    };
    explainer
        .explain(lab.tree.charged(account, user, "gpu").unwrap(), Some(job))
        .unwrap()
}

#[test]
fn explained_in_words() {
    for (moment, account, user) in [
        ("rich", "lab-b", "dave"),
        ("rich", "deep", "alice"),
        ("classic", "lab-b", "carol"),
        ("tied", "tie-a", "alice"),
        ("fair-tree", "root", "monitor"),
    ] {
        let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join(format!("tests/fairshare/explained/{moment}_{user}.txt"));
        let text = explanation(&Lab::at(moment), account, user).to_string();
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        assert!(text == expected, "{}:\n{text}", golden.display());
    }
}

#[test]
fn a_prospect_holds_when_it_comes() {
    let lab = Lab::at("rich");
    let explained = explanation(&lab, "lab-b", "dave");
    let above = explained.above.unwrap();
    let Prospect::At(at) = above.passed_if_others_continue else {
        panic!("{above:?}")
    };
    let table = lab.table();
    let usage = lab.usage();
    let dave = lab.tree.charged("lab-b", "dave", "").unwrap();
    let bob = lab.tree.charged("vision", "bob", "").unwrap();
    assert_eq!(above.account.as_str(), "vision");
    assert_eq!(above.user.as_str(), "bob");
    // The user stops, and all others go on.
    let passed = |seconds| {
        let rate = |id| {
            if id == dave {
                0.0
            } else {
                usage.recent_rate(id)
            }
        };
        let standings = standings(
            &lab.tree,
            &lab.settings,
            &usage.projected(&lab.tree, &table, seconds, rate),
        );
        standings[dave.index()].rank > standings[bob.index()].rank
    };
    // A minute before, it does not hold yet.
    assert!(passed(at - lab.instant) && !passed(at - lab.instant - 60));
}
