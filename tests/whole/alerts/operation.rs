//! Commands of people who operate alerts, and the jobs and reservations that alerts know.

use super::lab::{Lab, SAMPLE_RULES, SOON};
use crate::support::or_skip;
use crate::support::process::{http_get, wait_for};
use crate::support::slurm::{Mode, SlurmLab};
use crate::support::takt::Takt;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::process::Command;

#[test]
fn routes_and_channels_can_be_tested() {
    let Some(lab) =
        Lab::start("  slack_configs: [{BOT}]\n  email_configs: [{to: ann@lab.example}]\n")
    else {
        return;
    };
    let route = lab
        .takt(&["alerts", "route-test", "alertname=Hot", "severity=critical"])
        .ok();
    assert_eq!(route, "ops: ops/slack/0 ops/email/0  (route {})\n");
    assert!(
        lab.takt(&["alerts", "route-test", "Hot"])
            .fails(2)
            .contains("LABEL=VALUE")
    );
    assert_eq!(
        lab.takt(&["alerts", "test-send"]).ok(),
        "ops/email/0 (ann@lab.example): sent\nops/slack/0 (#gpu): sent\n"
    );
    assert!(lab.smtp.mails("ann@lab.example", 1)[0].contains("This is a test"));
    lab.slack
        .script("/api", json!([{"error": "not_in_channel"}]));
    let failed = lab.takt(&["alerts", "test-send", "--channel", "ops/slack/0"]);
    assert_eq!(failed.code, Some(1));
    assert_eq!(
        failed.stdout.as_str(),
        "ops/slack/0 (#gpu): refused: not_in_channel\n"
    );
    assert!(
        lab.takt(&["alerts", "test-send", "--channel", "x"])
            .fails(2)
            .contains("ops/slack/0")
    );
}

#[test]
fn reload_applies_changes_and_keeps_the_old_state_on_a_mistake() {
    let Some(lab) = Lab::start("  webhook_configs: [{url: 'SLACK/hook'}]\n") else {
        return;
    };
    lab.heat(Some(95.0));
    lab.slack.wait("/hook", 1);
    let shown = || {
        lab.get("/api/v2/status")["config"]["original"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(
        shown().contains("receiver: ops") && !shown().contains("/hook"),
        "an address may be a secret: {}",
        shown()
    );

    let rule = || {
        lab.get("/api/v1/rules?type=alert&rule_name[]=Hot")["data"]["groups"][0]["rules"][0].clone()
    };
    lab.takt.file(
        "rules/test.rules.yml",
        SAMPLE_RULES.replace("> 90", "> 9 9"),
    );
    let (status, said) = lab.reload();
    assert!(
        status >= 400 && said.contains("test.rules.yml, line") && said.contains("rule `Hot`"),
        "{status} {said}"
    );
    assert_eq!(rule()["query"], "lab:heat > 90");
    assert_eq!(&rule()["health"], &json!("ok"));
    assert_eq!(&rule()["state"], &json!("firing"));

    // With a higher limit the alert ends, and its channel gets "resolved".
    lab.takt
        .file("rules/test.rules.yml", SAMPLE_RULES.replace("> 90", "> 99"));
    let (status, said) = lab.reload();
    assert!(status == 200 && said.starts_with("reloaded: "), "{said}");
    assert_eq!(rule()["query"], "lab:heat > 99");
    assert_eq!(lab.slack.wait("/hook", 2)[1]["body"]["status"], "resolved");

    // SIGHUP reloads too. The channel is another one now.
    let routes = fs::read_to_string(lab.takt.directory().join("alertmanager.yml")).unwrap();
    lab.takt.file(
        "alertmanager.yml",
        routes
            .replace("/hook", "/elsewhere")
            .replace("receiver: ops", "receiver: ops # new"),
    );

    // Until then, the doctor says so, and a test asks the channel in use unless it is told to read the file.
    let unread = lab.takt(&["doctor", "--only", "config.read"]).stdout;
    assert!(
        unread.contains("alertmanager.yml changed after the server read"),
        "{unread}"
    );
    assert_eq!(
        lab.takt(&["alerts", "test-send"]).ok(),
        "ops/webhook/0: sent\n"
    );
    assert_eq!(lab.slack.on("/hook").len(), 3);
    lab.takt(&["alerts", "test-send", "--file"]).ok();
    assert_eq!(lab.slack.on("/elsewhere").len(), 1);

    let pid = lab.server.as_ref().unwrap().pid().to_string();
    assert!(
        Command::new("kill")
            .args(["-HUP", &pid])
            .status()
            .unwrap()
            .success()
    );
    wait_for("the other routes", SOON, || {
        shown().contains("receiver: ops # new").then_some(())
    });
    lab.heat(Some(120.0));
    assert_eq!(
        lab.slack.wait("/elsewhere", 2)[1]["body"]["status"],
        "firing"
    );
    assert_eq!(lab.slack.on("/hook").len(), 3);
    let unread = lab.takt(&["doctor", "--only", "config.read"]);
    assert!(
        !unread.stdout.contains("changed after"),
        "{}",
        unread.stdout
    );

    // A rule whose query fails reports its error.
    let failing = SAMPLE_RULES.replace(
        "lab:heat > 90",
        "lab:heat * on (node) {__name__=~\"heat|up\"}",
    );
    lab.takt.file("rules/test.rules.yml", failing);
    assert_eq!(lab.reload().0, 200);
    let failed = wait_for("a failing rule", SOON, || {
        Some(rule()).filter(|rule| rule["health"] == "err")
    });
    let error = failed["lastError"].as_str().unwrap();
    assert!(error.contains("found duplicate series"), "{error}");

    // The log has the same reason, not only that the rule failed.
    let of_rule = wait_for("a line in the log", SOON, || {
        let log = lab.server.as_ref().unwrap().log();
        let line = log
            .lines()
            .find(|line| line.contains("rule evaluation failed"))?;
        Some(line.to_owned())
    });
    for part in ["test.rules.yml:test/Hot", "found duplicate series"] {
        assert!(of_rule.contains(part), "{of_rule}");
    }
    assert!(
        failed["evaluationTime"].as_f64().unwrap() > 0.0
            && failed["lastEvaluation"] != "0001-01-01T00:00:00Z"
    );
}

/// 13.1: an alert that does not end by itself can be closed. Its history keeps the person and the
/// comment.
#[test]
fn an_alert_is_closed_by_hand_with_person_and_comment() {
    let Some(lab) = Lab::start("  webhook_configs: [{url: 'SLACK/hook'}]\n") else {
        return;
    };
    lab.heat(Some(95.0));
    lab.slack.wait("/hook", 1);
    let close = |matcher: &str| {
        let comment = ["--comment", "fan replaced", "--by", "ada"];
        lab.takt(&[&["alerts", "close", matcher][..], &comment].concat())
    };
    assert_eq!(close("alertname=Hot").ok(), "Hot g01\n");
    let hook = lab.slack.wait("/hook", 2);
    let end = &hook[1]["body"];
    assert_eq!(end["status"], "resolved", "{end}");
    assert_eq!(
        end["alerts"][0]["annotations"]["closed"],
        "by ada: fan replaced"
    );
    let history = lab
        .takt(&["alerts", "history", "--alert", "Hot", "--format", "csv"])
        .ok();
    assert!(
        history.contains("firing,inactive,closed by ada: fan replaced"),
        "{history}"
    );
    assert!(!lab.takt(&["alerts", "list"]).ok().contains("Hot"));
    let refused = close("alertname=Hot").fails(1);
    assert!(refused.contains("no active alert matches"), "{refused}");
}

/// With the shipped rules and routes, a fault of a job is mailed to its owner and pages no
/// operator. Each owner gets a mail if jobs share a GPU.
#[test]
fn faults_of_a_job_go_to_its_owner() {
    let takt = Takt::fresh();
    let gpus = takt.file("gpus", "profile rtx5090\ngpu 0 serial 1654620000042\n");
    let script = (
        "NVML_STAND_IN_SCRIPT".to_owned(),
        gpus.display().to_string(),
    );
    let takt = takt.with_environment([script]);
    let unused = "  webhook_configs: [{url: 'SLACK/unused'}]\n";
    let Some(mut lab) = Lab::start_with(takt, unused, |config| config) else {
        return;
    };
    let config = fs::read_to_string(lab.takt.directory().join("takt.toml")).unwrap();
    let hook = format!("webhook_url = '{}/pager'", lab.slack.url());
    let config = config.replace(
        "alertmanager_file = 'alertmanager.yml'\nshipped_rules = false",
        &hook,
    );
    lab.stop();
    lab.takt.file(
        "takt.toml",
        config
            + "[reports]\ndomain = 'lab.example'\naddresses = { ada = 'a.lovelace@uni.example' }\n",
    );
    let gpu = http_get(&format!("http://{}/metrics", lab.node))
        .unwrap()
        .body
        .lines()
        .find(|line| line.starts_with("takt_gpu_info{"))
        .unwrap()
        .to_owned();
    let label = |name: &str| {
        gpu.split(&format!("{name}=\""))
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .to_owned()
    };
    let uuid = label("uuid");
    let bus = label("pci_bus_id");

    // The series of the exporter that map the GPU to its job and the job to its user.
    let held = |metric: &str, labels: &str| {
        format!(
            "  - {{record: {metric}, expr: 'group by (node) (up{{node=\"g01\"}})', labels: \
             {{{labels}}}}}\n"
        )
    };
    let rules = held(
        "takt_gpu_job_info",
        &format!("uuid: {uuid}, jobid: '42', user: ada"),
    ) + &held(
        "takt_gpu_job_info",
        &format!("uuid: {uuid}, jobid: '43', user: carol"),
    ) + &held("takt_job_info", "jobid: '7', user: bob");
    fs::remove_file(lab.takt.directory().join("rules/test.events.yml")).unwrap();
    lab.takt.file(
        "rules/test.rules.yml",
        format!("groups:\n- name: jobs\n  interval: 1s\n  rules:\n{rules}"),
    );
    lab.serve();
    lab.wait_for_listener();
    lab.wait_for_series("takt_gpu_job_info{user=\"ada\"}", "\"42\"");
    lab.wait_for_series("takt_gpu_job_info{user=\"carol\"}", "\"43\"");
    lab.wait_for_series("takt_job_info{jobid=\"7\"}", "\"bob\"");

    let kernel = |line: &str| {
        let mut file = fs::OpenOptions::new().append(true).open(&lab.kmsg).unwrap();
        writeln!(file, "{line}").unwrap();
    };
    let bus = bus.trim_end_matches(".0");
    for xid in [13, 31, 43] {
        kernel(&format!(
            "NVRM: Xid (PCI:{bus}): {xid}, pid=1, name=python, its own fault"
        ));
    }
    kernel(
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/system.slice/slurmstepd.scope/job_7,task_memcg=/system.slice/slurmstepd.scope/job_7/step_0/user/task_0,task=python,pid=1234,uid=1000",
    );
    kernel("Memory cgroup out of memory: Killed process 1234 (python) total-vm:100kB");
    let mail = lab.smtp.mails("a.lovelace@uni.example", 1).remove(0);
    assert!(
        mail.contains("job 42") && mail.contains("GpuXidUserApp"),
        "{mail}"
    );
    let mail = lab.smtp.mails("carol@lab.example", 1).remove(0);
    assert!(
        mail.contains("job 43") && !mail.contains("job 42") && mail.contains("GpuXidUserApp"),
        "{mail}"
    );
    let mail = lab.smtp.mails("bob@lab.example", 1).remove(0);
    assert!(mail.contains("Job 7 of bob used more memory"), "{mail}");

    // A fault of the machine pages the operators and is not mailed to the owner.
    kernel(&format!(
        "NVRM: Xid (PCI:{bus}): 79, pid=1, GPU has fallen off the bus"
    ));
    let paged = lab.slack.wait("/pager", 1);
    let names = |one: &Value| one["body"]["alerts"].to_string();
    assert!(
        paged
            .iter()
            .all(|one| !names(one).contains("UserApp") && !names(one).contains("JobOomKill")),
        "{paged:?}"
    );
    assert!(
        paged.iter().any(|one| names(one).contains("GpuFellOffBus")),
        "{paged:?}"
    );
    assert!(
        paged
            .iter()
            .any(|one| names(one).contains("serial number 1654620000042")),
        "{paged:?}"
    );
    let messages = lab
        .takt(&["alerts", "history", "--messages", "--format", "csv"])
        .ok();
    assert!(
        messages.contains("owners/owner/0,first_firing"),
        "{messages}"
    );

    // A fault of the machine that may have damaged results pages, and is mailed to the owners.
    kernel(&format!(
        "NVRM: Xid (PCI:{bus}): 48, An uncorrectable double bit error"
    ));
    for address in ["a.lovelace@uni.example", "carol@lab.example"] {
        let mails = lab.smtp.mails(address, 2);
        assert!(
            mails.iter().any(|mail| mail.contains("GpuXidDoubleBitEcc")),
            "{address}: {mails:?}"
        );
    }
    wait_for("a page about the memory error", SOON, || {
        lab.slack
            .on("/pager")
            .iter()
            .any(|one| names(one).contains("GpuXidDoubleBitEcc"))
            .then_some(())
    });

    // A test message has no job, so that no owner can get it: that is not a failure.
    let tested = lab.takt(&["alerts", "test-send"]).ok();
    assert!(tested.contains("owners/owner/0: not tested"), "{tested}");
    let only = ["alerts", "test-send", "--channel", "owners/owner/0"];
    let run = lab.takt(&only);
    assert_eq!(run.code, Some(1), "{}", run.stdout);
    assert!(
        run.stderr.contains("no channel was tested"),
        "{}",
        run.stderr
    );
}

/// No message is sent about a node in a maintenance reservation of Slurm.
#[test]
fn nodes_in_a_maintenance_reservation_send_no_messages() {
    for mode in [Mode::WithDbd, Mode::WithoutDbd] {
        let Some(slurm) = or_skip(SlurmLab::start(mode)) else {
            return;
        };
        let takt = Takt::fresh().with_environment(slurm.environment());
        let polls = |config: String| {
            config
                .replace("cluster = 'lab'\n", "")
                .replace("node = 'g01'", "node = 'node0'")
                .replace(
                    "jobs.poll = false",
                    "jobs = {interval_seconds = 1, history_days = 1}",
                )
        };
        let Some(lab) = Lab::start_with(takt, "  webhook_configs: [{url: 'SLACK/hook'}]\n", polls)
        else {
            return;
        };
        lab.wait_for_listener();
        lab.heat(Some(95.0));
        assert_eq!(lab.slack.wait("/hook", 1)[0]["body"]["status"], "firing");
        let kept = [
            "reservationname=firmware",
            "flags=maint,ignore_jobs",
            "nodes=node0",
            "users=root",
        ];
        slurm.run(
            &[
                &[
                    "scontrol",
                    "create",
                    "reservation",
                    "starttime=now",
                    "duration=60",
                ][..],
                &kept,
            ]
            .concat(),
        );
        let why = || lab.get("/api/v2/alerts")[0]["status"]["mutedBy"].clone();
        wait_for("the reservation", SOON, || {
            (why() == json!(["reservation firmware"])).then_some(())
        });
        assert!(
            lab.takt(&["alerts", "list"])
                .ok()
                .contains("reservation firmware")
        );
        lab.wait_for_series(
            "takt_slurm_node_maintenance{reservation=\"firmware\"}",
            "\"node0\"",
        );

        // A new fault during maintenance, and the end of an alert that was sent before.
        lab.fault(79);
        wait_for("the fault", SOON, || {
            lab.get("/api/v2/alerts")
                .to_string()
                .contains("XID 79 on node0")
                .then_some(())
        });
        lab.heat(Some(20.0));
        wait_for("both ends", SOON, || {
            lab.get("/api/v2/alerts")
                .as_array()?
                .is_empty()
                .then_some(())
        });

        // The end is sent at once, the fault that nobody was told of is not.
        let hook = lab.slack.wait("/hook", 2);
        assert_eq!(&hook[1]["body"]["status"], &json!("resolved"));
        slurm.run(&["scontrol", "delete", "reservation=firmware"]);
        lab.wait_for_series("takt_slurm_node_maintenance", "\"result\":[]");
        assert_eq!(hook.len(), 2);
        assert!(!hook[1]["body"].to_string().contains("XID 79"), "{hook:?}");

        // After the reservation alerts are sent again.
        lab.fault(48);
        assert!(
            lab.slack.wait("/hook", 3)[2]["body"]
                .to_string()
                .contains("XID 48 on node0")
        );
    }
}

#[test]
fn a_silence_of_what_nobody_knows_says_so() {
    let Some(lab) = Lab::start("  webhook_configs: [{url: 'SLACK/hook'}]\n") else {
        return;
    };
    lab.heat(Some(50.0));
    wait_for("samples", SOON, || {
        let labels = ["query", "heat", "--format", "json"];
        lab.takt(&labels).stdout.contains("node").then_some(())
    });
    let said = |matcher: &str, more: &[&str]| {
        let silence = [&["alerts", "silence", matcher, "--for", "1m"], more].concat();
        let run = lab.takt(&silence);
        let said = run.stderr.clone();
        run.ok();
        said
    };

    for (matcher, warning) in [
        (
            "nod=g01",
            "no series and no rule has a label nod; did you mean node",
        ),
        ("alertname=Hott", "no rule is named Hott; did you mean Hot?"),
        ("node=no-such-node", "no series has node=\"no-such-node\""),
    ] {
        let said = said(matcher, &[]);
        assert!(said.contains(&format!("warning: {warning}")), "{said}");
    }
    for known in ["alertname=Hot", "severity=unheard-of", "node=~\"x.*\""] {
        let said = said(known, &[]);
        assert!(!said.contains("warning"), "{said}");
    }

    // One of the future begins then.
    let said = said("alertname=Hot", &["--start", "2099-01-02T03:04Z"]);
    assert!(
        said.contains("silenced from 2099-01-02 03:04 for 1m"),
        "{said}"
    );
    let list = lab.takt(&["alerts", "silence"]).ok();
    assert!(
        list.contains("STARTS") && list.contains("2099-01-02 03:04"),
        "{list}"
    );
}

#[test]
fn a_check_of_files_gives_the_hints_of_check_config() {
    let takt = Takt::fresh();
    fs::create_dir(takt.directory().join("rules")).unwrap();
    takt.file(
        "rules/own.yml",
        "groups: [{name: own, rules: [{alert: A, expr: up == 0, labels: {severity: critcal}}]}]",
    );
    takt.file("takt.toml", "[alerts]\nrule_dirs = ['rules']\n");

    let hint = "own.yml, line 1: severity \"critcal\"; did you mean critical?";
    let checked = takt.run(["alerts", "check", "rules/own.yml"]).ok();
    assert!(
        checked.contains("warning: ") && checked.contains(hint),
        "{checked}"
    );
    let config = takt.run(["check-config", "--config", "takt.toml"]);
    assert!(config.stderr.contains(hint), "{config:?}");
}

#[test]
fn a_history_of_a_name_that_nothing_has_says_so() {
    let takt = Takt::fresh();
    takt.import_sacct(
        "JobID|User|Account|Partition|Submit|Start|End|State|AllocTRES|NNodes|NCPUS|NodeList|ElapsedRaw\n\
         1|ann|a|gpu|2024-10-01T10:00:00|2024-10-01T10:00:00|2024-10-01T12:00:00|COMPLETED|cpu=8,node=1|1|8|n1|7200\n",
    );

    let said = takt
        .run(["alerts", "history", "--alert", "NodeDwn"])
        .fails(2);
    assert!(
        said.contains("no rule and no alert in the history has the name \"NodeDwn\""),
        "{said}"
    );
    assert_eq!(takt.run(["alerts", "history"]).code, Some(0));
}
