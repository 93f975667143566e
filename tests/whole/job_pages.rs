//! Why jobs failed, on a real Slurm: the command, the API and the page name the same cause. Pages
//! about jobs with good and bad addresses.

use std::time::Duration;

use serde_json::Value;

use crate::support::or_skip;
use crate::support::process::{free_port, http_get, wait_for};
use crate::support::slurm::{Mode, SlurmLab};
use crate::support::takt::Takt;
use std::thread;

/// A limit that a busy machine does not reach. Slurm looks for jobs over their limit twice a
/// minute, and gives them half a minute to end.
const SOON: Duration = Duration::from_secs(300);

/// A failed job: its number, the cause in the API, and words of the cause.
type Failed = (u32, &'static str, &'static str);

#[test]
fn a_failed_job_has_the_same_cause_everywhere() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithDbd)) else {
        return;
    };
    let takt = Takt::fresh().with_environment(lab.environment());
    let address = format!("127.0.0.1:{}", free_port());
    takt.file(
        "takt.toml",
        format!(
            "cluster = \"lab\"\ntimezone = \"UTC\"\n[server]\nlisten_address = \"{address}\"\n\
             [jobs]\ninterval_seconds = 1\nlook_back_seconds = 60\n"
        ),
    );
    let mut server = takt.start(["serve", "--config", "takt.toml"]);

    let slow = lab.submit("alice", &["-J", "slow", "-t", "1"], "sleep 600");
    let exits = lab.submit("bob", &["-J", "exits", "-t", "5"], "exit 3");
    let missing = lab.submit("bob", &["-J", "missing", "-t", "5"], "no-such-command");
    let crashes = lab.submit("carol", &["-J", "crashes", "-t", "5"], "kill -SEGV $$");
    let unwanted = lab.submit("carol", &["-J", "unwanted", "-t", "5"], "sleep 600");
    let on_node = ["-J", "lost", "-t", "9", "--no-requeue", "-w", "node2"];
    let lost = lab.submit("dave", &on_node, "sleep 600");
    let array = lab.submit(
        "dave",
        &["-J", "sweep", "-a", "0-2", "-t", "5"],
        "exit $SLURM_ARRAY_TASK_ID",
    );
    lab.wait_for_state(unwanted, "RUNNING", SOON);
    lab.wait_for_state(lost, "RUNNING", SOON);
    lab.run(&["scancel", &unwanted.to_string()]);
    lab.run(&[
        "scontrol",
        "update",
        "nodename=node2",
        "state=down",
        "reason=unplugged",
    ]);

    let failed: [Failed; 6] = [
        (exits, "exit_status", "the program ended with exit status 3"),
        (
            missing,
            "exit_status",
            "its script called a command that does not exist",
        ),
        (crashes, "signal", "it used memory that it does not own"),
        (unwanted, "cancelled", "it was cancelled (scancel)"),
        (lost, "node_failure", "a node failed under it"),
        (slow, "time_limit", "it reached its time limit of 1 min"),
    ];
    for (job, cause, words) in failed {
        let ended = || {
            thread::sleep(Duration::from_millis(500));
            let answer = takt.run(["job", &job.to_string(), "--format", "json"]);
            let answer: Value = serde_json::from_str(&answer.stdout).ok()?;
            let failure = answer["report"]["failure"].clone();
            (!failure.is_null()).then_some(failure)
        };
        let failure = wait_for(&format!("the failure of {cause}"), SOON, ended);
        assert_eq!(failure["cause"], cause, "{failure}");
        let evidence = failure["evidence"].as_array().unwrap();
        assert!(!evidence.is_empty(), "{failure}");
        let shown = takt.run(["job", &job.to_string()]).ok();
        let joined = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(joined.contains(words), "{shown}");
        let wide = shown.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None, "{shown}");
        let page = http_get(&format!("http://{address}/jobs/{job}")).unwrap();
        assert_eq!(page.status, 200);
        assert!(page.body.contains(words), "{}", page.body);
    }
    let node = takt.run(["job", &lost.to_string()]).ok();
    assert!(node.contains("node2"), "{node}");

    let page = |path: &str| http_get(&format!("http://{address}{path}")).unwrap();
    let grid = page(&format!("/jobs/{array}"));
    assert!(
        grid.body.contains("array of 3 tasks") && grid.body.contains("2 failed, 1 completed"),
        "{}",
        grid.body
    );
    let list = page("/jobs.json?user=carol&sort=name");
    let rows: Value = serde_json::from_str(&list.body).unwrap();
    let names: Vec<_> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["name"])
        .collect();
    assert_eq!(names, ["crashes", "unwanted"]);
    let compared = page(&format!("/compare?jobs={exits}&jobs={crashes}"));
    assert!(
        compared.body.contains("What differs comes first"),
        "{}",
        compared.body
    );

    for path in [
        "/jobs",
        "/queue",
        "/people",
        "/people/alice",
        "/accounts/lab-a",
        "/waste",
        "/fairshare",
        "/fairshare?user=alice&gpus=1&hours=2&partition=gpu",
        "/capacity",
        "/capacity?resource=cpu",
        "/energy",
        "/compare",
        "/search?q=swee",
    ] {
        let page = page(path);
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        assert!(page.body.contains("</main>"), "{path}");
    }
    let plain = page("/people.csv");
    assert!(
        plain.body.starts_with("user,gpu_hours,cpu_hours"),
        "{}",
        plain.body
    );

    // A wrong address says what is wrong and where to go next.
    for (path, says, leads_to) in [
        (
            "/jobs/999999",
            "no job 999999 is recorded",
            "/search?q=999999",
        ),
        ("/jobs?state=RUNING", "jobs have no state", "/jobs"),
        ("/jobs?colour=red", "no filter", "/jobs"),
        ("/jobs?from=someday", "is not a time", "/jobs"),
        (
            "/compare?jobs=1",
            "name two to 6 different jobs",
            "/compare",
        ),
        ("/people/nobody", "no run of the user nobody", "/people"),
        ("/people?month=2026-13", "is not a month", "/people"),
        ("/fairshare?gpus=2", "needs a user", "/fairshare"),
        ("/waste?by=colour", "cannot be listed by", "/waste"),
        ("/capacity?resource=disk", "gpu or cpu", "/capacity"),
    ] {
        let page = page(path);
        assert!((400..500).contains(&page.status), "{path}: {}", page.status);
        assert!(page.body.contains(says), "{path}: {}", page.body);
        assert!(
            page.body.contains(&format!("href=\"{leads_to}\"")),
            "{path}: {}",
            page.body
        );
    }
    server.stop();
}
