//! Markup in every name and text that others choose: labels, job names, users, accounts, nodes,
//! comments. In Chromium, no script runs and no element appears on any page, in any report or mail.

use crate::pages::browser;
use crate::support::channels::Channel;
use crate::support::or_skip;
use crate::support::process::{free_port, http_get_with, http_post};
use crate::support::takt::Takt;
use crate::support::target::scrape_target;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
const TOKEN: &str = "0123456789abcdef-test";

/// See `markup.mjs`. Names of Slurm and labels may contain all of this.
const MARKUP: &str = "<xss-marker onload=__pwned()>'\" data-xss='1' x=\"<img src=x \
                      onerror=__pwned()><script>__pwned()</script>";

/// Without spaces, brackets and commas, which have a meaning in lists of nodes.
const SHORT: &str = "<xss-marker/onload=__pwned()>\"'";

fn page(_path: &str) -> (&'static str, String) {
    let label = MARKUP.replace('"', "\\\"");
    let uuid = "GPU-00000001-0000-4000-8000-000000000001";
    let text = format!(
        "takt_gpu_up{{uuid=\"{uuid}\"}} 1\n\
         takt_gpu_info{{uuid=\"{uuid}\",index=\"0\",minor=\"0\",pci_bus_id=\"0000:01:00.0\",\
         model=\"{label}\",driver=\"{label}\"}} 1\n\
         takt_gpu_job_info{{uuid=\"{uuid}\",jobid=\"1\",user=\"{label}\"}} 1\n\
         takt_gpu_utilization_ratio{{uuid=\"{uuid}\"}} 0.5\n\
         node_filesystem_size_bytes{{mountpoint=\"{label}\",device=\"{label}\",fstype=\"ext4\"}} 1\n\
         heat{{rack=\"{label}\"}} 95\n"
    );
    ("text/plain; version=0.0.4", text)
}

/// Jobs that are finished, running and waiting.
fn jobs() -> String {
    let now = jiff::Timestamp::now().as_second();
    let at = |seconds: i64| {
        jiff::Timestamp::from_second(now - seconds)
            .unwrap()
            .strftime("%Y-%m-%dT%H:%M:%S")
            .to_string()
    };
    let header = "JobID|JobName|User|Account|Partition|QOS|Submit|Start|End|State|AllocTRES|\
                  NNodes|NCPUS|NodeList|ElapsedRaw|TimelimitRaw|ExitCode|Reason";
    let row = |id: u32, state: &str, start: &str, end: &str, seconds: u32| {
        let tres = "cpu=8,gres/gpu=1,mem=64G,node=1";
        format!(
            "{id}|{MARKUP}|u{MARKUP}|a{SHORT}|p{SHORT}|q{SHORT}|{}|{start}|{end}|{state}|{tres}|1|8|\
             n{SHORT}|{seconds}|600|1:0|{SHORT}\n",
            at(90_000)
        )
    };
    [
        format!("{header}\n"),
        row(1, "FAILED", &at(86_000), &at(82_400), 3600),
        row(2, "RUNNING", &at(3600), "Unknown", 3600),
        row(3, "PENDING", "Unknown", "Unknown", 0),
    ]
    .concat()
}

fn config(takt: &Takt, smtp: &Channel, address: &str) {
    let node = scrape_target(page);
    let text = format!(
        "cluster = 'lab'\ntimezone = 'UTC'\n\
         server = {{listen_address = '{address}', token_file = 'token'}}\n\
         jobs.poll = false\nsql.listen_address = ''\n\
         [email]\nserver = '127.0.0.1:{}'\ntls = 'none'\nfrom = 'takt@lab.example'\n\
         [alerts]\nalertmanager_file = 'alertmanager.yml'\nshipped_rules = false\n\
         rule_dirs = ['rules']\n\
         [reports]\noperators = ['root@lab.example']\n\
         [scrape]\ninterval_seconds = 1\ntimeout_seconds = 1\n\
         [[scrape.targets]]\naddress = '{node}'\nnode = 'n1'\n",
        smtp.port
    );
    takt.file("takt.toml", text);
    takt.file("token", TOKEN);
    takt.file(
        "alertmanager.yml",
        "route: {receiver: ops, group_wait: 0s, group_interval: 1s}\n\
         receivers: [{name: ops, email_configs: [{to: ann@lab.example}]}]\n",
    );
    fs::create_dir(takt.directory().join("rules")).unwrap();
    takt.file(
        "rules/test.rules.yml",
        "groups:\n- name: test\n  interval: 1s\n  rules:\n  - alert: Hot\n    expr: heat > 90\n    \
         labels: {severity: critical}\n    annotations: {summary: '{{ $labels.rack }} is hot', \
         action: '{{ $labels.rack }}', description: '{{ $labels.rack }}'}\n",
    );
}

/// The HTML of a mail, as a mail program decodes it.
fn html_of(takt: &Takt, mail: &str) -> PathBuf {
    let script = "import email, email.policy, sys\n\
                  mail = email.message_from_string(sys.stdin.read(), policy=email.policy.default)\n\
                  sys.stdout.write(mail.get_body(preferencelist=('html',)).get_content())";
    let file = takt.file("mail.txt", mail);
    let run = Command::new("/usr/bin/python3")
        .args(["-c", script])
        .stdin(fs::File::open(file).unwrap())
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}\n{mail}");
    takt.file("mail.html", run.stdout)
}

#[test]
fn markup_in_names_and_texts_stays_text_on_every_page_and_in_mails() {
    let (Some(folder), Some(smtp)) = (or_skip(browser()), or_skip(Channel::smtp())) else {
        return;
    };
    let takt = Takt::fresh();
    let address = format!("127.0.0.1:{}", free_port());
    config(&takt, &smtp, &address);
    takt.import_sacct(jobs());
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let url = format!("http://{address}");
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("Authorization", bearer.as_str())];
    let ask = |path: &str| http_get_with(&format!("{url}{path}"), &[], &headers).ok();
    server.wait_until("firing", SOON, || {
        ask("/api/v2/alerts")?
            .body
            .contains("xss-marker")
            .then_some(())
    });

    // An alert from elsewhere whose link is a script, a silence with a comment, and a closed alert.
    let post = |path: &str, body: serde_json::Value| {
        let headers = [headers[0], ("Content-Type", "application/json")];
        let page = http_post(
            &format!("{url}{path}"),
            &headers,
            body.to_string().as_bytes(),
        )
        .unwrap();
        assert_eq!(page.status, 200, "{path}: {}", page.body);
    };
    let alert = |name: &str| {
        serde_json::json!([{
            "labels": {
                "alertname": format!("{name}{MARKUP}"),
                "node": SHORT,
                "user": MARKUP,
            },
            "annotations": {
                "summary": MARKUP,
                "runbook_url": "javascript:__pwned()",
            },
            "generatorURL": "javascript:__pwned()",
        }])
    };
    post("/api/v2/alerts", alert("Pushed"));
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    let silence = serde_json::json!({
        "matchers": [{
            "name": "user",
            "value": MARKUP,
            "isRegex": false,
            "isEqual": true,
        }],
        "startsAt": jiff::Timestamp::now().to_string(),
        "endsAt": end.to_string(),
        "createdBy": MARKUP,
        "comment": MARKUP,
    });
    post("/api/v2/silences", silence);
    takt.run(["credit", "job", "1", "--reason", MARKUP]).ok();

    let mut mails = smtp.mails("ann@lab.example", 1);
    let mut files = vec![html_of(&takt, &mails.remove(0))];
    let report = ["--config", "takt.toml", "report"];
    for kind in ["cluster", "usage", "efficiency", "waste"] {
        let asked = [
            kind,
            "--from",
            "2026-01-01",
            "--to",
            "2100-01-01",
            "--format",
            "html",
        ];
        let run = takt.run([&report[..], &asked].concat()).ok();
        files.push(takt.file(&format!("{kind}.html"), run));
    }
    let run = Command::new("node")
        .arg(folder.join("markup.mjs"))
        .args([&url, TOKEN])
        .args(&files)
        .output()
        .unwrap();
    let said = [run.stdout, run.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(run.status.success(), "{said}");
    assert!(said.contains("pages and 5 files"), "{said}");
    assert!(server.is_running());
}
