//! Texts that users of Slurm write make no records and change none of others (issue 28).

use crate::support::or_skip;
use crate::support::process::{Daemon, free_port, http_get, wait_for};
use crate::support::slurm::{Mode, SlurmLab};
use crate::support::takt::{Run, Takt};
use std::time::Duration;

/// A limit that a busy machine does not reach.
const SOON: Duration = Duration::from_secs(120);

const SACCT: &str = include_str!("../../crates/slurm/fixtures/made-up/sacct_newline_in_name.txt");
const JOBCOMP: &str =
    include_str!("../../crates/slurm/fixtures/made-up/jobcomp_newline_in_name.txt");

/// Ten hours of mallory on eight GPUs.
const TRUE_ROW: &str = "5|mallory|phys|gpu|2026-10-03T08:00:00|2026-10-03T08:00:00|\
                        2026-10-03T18:00:00|COMPLETED|billing=8,cpu=8,gres/gpu=8,mem=1G,node=1|1|8|big";

fn run_import(takt: &Takt, format: &str, file: &str, more: &[&str]) -> Run {
    let arguments = [
        "import",
        format,
        file,
        "--timezone",
        "UTC",
        "--format",
        "json",
    ];
    takt.run(arguments.iter().chain(more))
}

fn import(takt: &Takt, format: &str, file: &str, more: &[&str]) -> serde_json::Value {
    serde_json::from_str(&run_import(takt, format, file, more).ok()).unwrap()
}

/// Imports a file with rows that are set aside. Returns the summary; the error names these lines.
#[track_caller]
fn import_in_part(
    takt: &Takt,
    format: &str,
    file: &str,
    more: &[&str],
    set_aside: &str,
) -> serde_json::Value {
    let run = run_import(takt, format, file, more);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let error = format!("{file}: rows that were set aside: {set_aside}; the others are imported");
    assert!(run.stderr.contains(&error), "{}", run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

fn asked(takt: &Takt, statement: &str) -> String {
    let answer = takt.run(["sql", "--format", "csv", statement]).ok();
    answer.split_once('\n').unwrap().1.trim_end().to_owned()
}

const JOB_5: &str =
    "SELECT \"user\", gpus, epoch(end_time - start_time)::INT FROM jobs WHERE job_id = '5'";

#[test]
fn a_name_in_a_file_changes_no_finished_job() {
    let takt = Takt::fresh();
    let header = SACCT.lines().next().unwrap();
    takt.file("before.txt", format!("{header}\n{TRUE_ROW}\n"));
    takt.file("names.txt", SACCT);
    takt.file("jobcomp.txt", JOBCOMP);
    import(&takt, "sacct", "before.txt", &["--cluster", "lab"]);

    let found = import_in_part(
        &takt,
        "sacct",
        "names.txt",
        &["--cluster", "lab"],
        "1 (lines 3)",
    );
    assert_eq!(found["runs_inserted"], 1, "{found}");
    assert_eq!(found["runs_updated"], 0, "{found}");
    assert_eq!(found["contradicting"], 1, "{found}");
    assert_eq!(asked(&takt, JOB_5), "mallory,8,36000");
    let rejects = asked(
        &takt,
        "SELECT count(*), any_value(text LIKE '5|mallory|%') FROM rejects",
    );
    assert_eq!(rejects, "1,true");

    // Both records of job 5 in one file: the second is set aside, and the others are imported.
    let rows = SACCT.split_once('\n').unwrap().1;
    let both = Takt::fresh();
    both.file("both.txt", format!("{header}\n{TRUE_ROW}\n{rows}"));
    let found = import_in_part(&both, "sacct", "both.txt", &[], "1 (lines 4)");
    assert_eq!(found["runs_inserted"], 2, "{found}");
    assert_eq!(asked(&both, JOB_5), "mallory,8,36000");
    let reason = asked(
        &both,
        "SELECT line, reason LIKE 'an earlier row%' FROM rejects",
    );
    assert_eq!(reason, "4,true");

    // The administrator knows better.
    let accepted = import(&takt, "sacct", "names.txt", &["--accept-corrections"]);
    assert_eq!(accepted["runs_updated"], 1, "{accepted}");
    assert_eq!(asked(&takt, JOB_5), "mallory,0,36000");

    let found = import_in_part(
        &takt,
        "jobcomp",
        "jobcomp.txt",
        &["--cluster", "alpha"],
        "1 (lines 2)",
    );
    assert_eq!(found["rejected"], 1, "{found}");
    let named =
        "SELECT reason LIKE '%job 411 of user mallory%' FROM rejects WHERE source = 'jobcomp.txt'";
    assert_eq!(asked(&takt, named), "true");
    let ids = "SELECT string_agg(job_id, ' ' ORDER BY job_id) FROM jobs WHERE cluster = 'alpha'";
    assert_eq!(asked(&takt, ids), "410 412");
}

fn serve(takt: &Takt, config: &str) -> (Daemon, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let server = format!("[server]\nlisten_address = \"{address}\"\n");
    takt.file("takt.toml", format!("{config}\n{server}[jobs]\ninterval_seconds = 1\nlook_back_seconds = 600\nhistory_days = 1\n"));
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let health = format!("http://{address}/-/healthy");
    server.wait_until("healthy", Duration::from_secs(30), || {
        http_get(&health).ok().filter(|page| page.status == 200)
    });
    (server, address)
}

/// An import without `--cluster` went to `local`, and then each page answered 400.
#[test]
fn an_import_goes_to_the_servers_cluster_and_pages_live_with_others() {
    let takt = Takt::fresh();
    let header = SACCT.lines().next().unwrap();
    takt.file("jobs.txt", format!("{header}\n{TRUE_ROW}\n"));
    let other = |cluster: &str| format!("{header}|Cluster\n{TRUE_ROW}|{cluster}\n");
    takt.file("other.txt", other("moon"));
    takt.file("local.txt", other("local"));
    let (mut server, address) = serve(&takt, "cluster = \"lab\"\ntimezone = \"UTC\"");
    let clusters = "SELECT string_agg(DISTINCT cluster, ' ' ORDER BY cluster) FROM jobs";

    // Before the server's cluster has records, another has.
    import(&takt, "sacct", "local.txt", &["--cluster", "local"]);
    let pages_answer = || {
        for page in [
            "/",
            "/jobs",
            "/nodes",
            "/queue",
            "/people",
            "/waste",
            "/capacity",
            "/events",
        ] {
            let answer = http_get(&format!("http://{address}{page}")).unwrap();
            assert_eq!(answer.status, 200, "{page}: {}", answer.body);
        }
    };
    pages_answer();
    import(&takt, "sacct", "jobs.txt", &[]);
    assert_eq!(asked(&takt, clusters), "lab local");
    pages_answer();

    // A row of an unknown cluster takes no other with it.
    let known = TRUE_ROW.replacen('5', "6", 1);
    takt.file("mixed.txt", other("moon") + &format!("{known}|lab\n"));
    let found = import_in_part(&takt, "sacct", "mixed.txt", &[], "1 (lines 2)");
    assert_eq!(found["runs_inserted"], 1, "{found}");
    let reason = asked(
        &takt,
        "SELECT reason FROM rejects WHERE source = 'mixed.txt'",
    );
    assert!(
        reason.contains("cluster 'moon' is unknown; known: lab, local"),
        "{reason}"
    );
    assert_eq!(asked(&takt, clusters), "lab local");
    import(&takt, "sacct", "other.txt", &["--cluster", "moon"]);
    assert_eq!(asked(&takt, clusters), "lab local moon");
    pages_answer();
    server.stop();
}

/// Fails unless the records of other users are as before, and none was made.
#[track_caller]
fn assert_untouched(takt: &Takt, before: &str) {
    assert_eq!(asked(takt, OTHERS), before);
    assert_eq!(
        asked(takt, "SELECT count(*) FROM jobs WHERE job_id = '999999'"),
        "0"
    );
}

const OTHERS: &str = "SELECT job_id, \"user\", state, cpus, submit_time, start_time, end_time FROM jobs \
                      WHERE \"user\" <> 'alice' ORDER BY job_id";

/// Waits until the store has the finished job, and returns the rows of the others.
fn wait_for_end(takt: &Takt, job: u32) -> String {
    let ended = format!("SELECT count(*) FROM jobs WHERE job_id = '{job}' AND state = 'COMPLETED'");
    wait_for(&format!("end of job {job}"), SOON, || {
        (asked(takt, &ended) == "1").then_some(())
    });
    asked(takt, OTHERS)
}

#[test]
fn a_name_in_a_real_slurm_makes_and_changes_no_record() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithDbd)) else {
        return;
    };
    let takt = Takt::fresh().with_environment(lab.environment());
    let (mut server, _) = serve(&takt, "timezone = \"UTC\"");
    let victim = lab.submit("carol", &["-J", "victim", "-n4", "-t", "5"], "sleep 3");
    let before = wait_for_end(&takt, victim);
    let submit = asked(
        &takt,
        &format!("SELECT epoch(submit_time)::BIGINT FROM jobs WHERE job_id = '{victim}'"),
    );

    // The columns of the poller, and of an export of files.
    let polled = |id: &str| {
        format!(
            "{id}|{id}|{submit}|{submit}|{submit}|{submit}|COMPLETED|carol|lab-b|gpu|normal|cpu=1,node=1|cpu=1|1|1|node0|0|00:00:00|5|0:0||x"
        )
    };
    let exported =
        |id: &str| format!("{id}|carol|lab-b|{submit}|{submit}|{submit}|COMPLETED|cpu=1,node=1|x");
    let victim = victim.to_string();
    for forged in [polled(&victim), polled("999999"), exported(&victim)] {
        // slurmdbd keeps 255 bytes of a name.
        let name = format!("harmless\n{forged}");
        assert!(name.len() < 255, "{name}");
        let forger = lab.submit("alice", &["-J", &name, "-t", "5"], "sleep 1");
        wait_for_end(&takt, forger);
        assert_untouched(&takt, &before);
        let whole =
            format!("SELECT job_name = '{name}' AS whole FROM jobs WHERE job_id = '{forger}'");
        assert_eq!(asked(&takt, &whole), "true", "{name}");
    }
    assert_eq!(asked(&takt, "SELECT count(*) FROM rejects"), "0");

    // A file with the usual delimiter contradicts; one with a random delimiter is exact.
    let export = |options: &[&str]| {
        let columns = "JobID,User,Account,Submit,Start,End,State,AllocTRES,JobName";
        let command = [
            &["env", "SLURM_TIME_FORMAT=%s", "sacct", "-a", "-X", "-D"],
            options,
            &["-o", columns],
        ]
        .concat();
        lab.run(&command)
    };
    takt.file("plain.txt", export(&["-P"]));
    let run = run_import(&takt, "sacct", "plain.txt", &[]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(
        run.stderr.contains("rows that were set aside: "),
        "{}",
        run.stderr
    );
    assert_untouched(&takt, &before);
    takt.file(
        "exact.txt",
        export(&["--parsable", "--delimiter=|4711081542|"]),
    );
    let found = import(&takt, "sacct", "exact.txt", &[]);
    assert_eq!(found["runs_inserted"], 0, "{found}");
    assert_eq!(found["runs_updated"], 0, "{found}");
    assert_eq!(found["rejected"], 0, "{found}");
    assert_untouched(&takt, &before);
    server.stop();
}

#[test]
fn a_name_in_a_completion_file_makes_no_record() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithoutDbd)) else {
        return;
    };
    let takt = Takt::fresh().with_environment(lab.environment());
    let (mut server, _) = serve(&takt, "timezone = \"UTC\"");
    let victim = lab.submit("carol", &["-J", "victim", "-n4", "-t", "5"], "sleep 3");
    let before = wait_for_end(&takt, victim);
    let forged = JOBCOMP.lines().nth(2).unwrap();
    let name = format!("harmless\n{forged}\nx");
    let forger = lab.submit("alice", &["-J", &name, "-t", "5"], "sleep 1");
    wait_for_end(&takt, forger);
    let harmless = lab.submit("alice", &["-J", "two\nlines", "-t", "5"], "sleep 1");
    wait_for_end(&takt, harmless);
    wait_for("the line of the last job", SOON, || {
        let source = format!("SELECT source FROM jobs WHERE job_id = '{harmless}'");
        (asked(&takt, &source) == "jobcomp").then_some(())
    });
    assert_untouched(&takt, &before);
    assert_eq!(asked(&takt, "SELECT count(*) > 0 FROM rejects"), "true");
    server.stop();
}
