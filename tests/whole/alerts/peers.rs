//! Prometheus, amtool and promtool beside Takt: the current releases and Debian's.

use super::lab::{Lab, SAMPLE_RULES};
use crate::support::process::{Daemon, free_port};
use crate::support::takt::Takt;
use crate::support::{Needed, Skip, need, need_current, or_skip, releases};
use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::process::Command;

const AMTOOL: Needed = Needed {
    program: "amtool",
    package: "prometheus-alertmanager",
};
const PROMETHEUS: Needed = Needed {
    program: "prometheus",
    package: "prometheus",
};

#[test]
fn debians_prometheus_and_amtool_work_with_takt() {
    if or_skip(need(&[AMTOOL, PROMETHEUS])).is_some() {
        prometheus_and_amtool_work_with_takt(Path::new("prometheus"), Path::new("amtool"));
    }
}

#[test]
fn the_current_prometheus_and_amtool_work_with_takt() {
    let both = || Ok::<_, Skip>((need_current("prometheus")?, need_current("amtool")?));
    if let Some((prometheus, amtool)) = or_skip(both()) {
        let said = prometheus_and_amtool_work_with_takt(&prometheus, &amtool);

        // amtool warns of a server of another version.
        assert!(!said.contains("Warning"), "{said}");
    }
}

/// Returns what amtool wrote to stderr.
fn prometheus_and_amtool_work_with_takt(prometheus: &Path, amtool_program: &Path) -> String {
    let Some(lab) = Lab::start("  webhook_configs: [{url: 'SLACK/hook'}]\n") else {
        return String::new();
    };
    let dir = lab.takt.directory();
    lab.takt.file(
        "push.rules.yml",
        "groups: [{name: p, interval: 1s, rules: [{alert: FromPrometheus, expr: vector(1), labels: \
         {node: g07}}]}]",
    );
    let config = format!(
        "global: {{evaluation_interval: 1s}}\nrule_files: [push.rules.yml]\nalerting:\n  \
         alertmanagers:\n  - static_configs: \
         [{{targets: ['{}']}}]\n    authorization: {{credentials_file: token}}\n",
        lab.address
    );
    lab.takt.file("prometheus.yml", config);
    let mut command = Command::new(prometheus);
    let listen = format!("--web.listen-address=127.0.0.1:{}", free_port());
    command
        .args([
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=prometheus-data",
            // Four times this after Prometheus has sent it, an alert ends.
            "--rules.alert.resend-delay=15s",
            "--log.level=warn",
            &listen,
        ])
        .current_dir(dir);
    let mut prometheus = Daemon::start("prometheus", command, &dir.join("prometheus.log"));
    let hook = lab.slack.wait("/hook", 1);
    assert_eq!(
        hook[0]["body"]["alerts"][0]["labels"]["alertname"],
        "FromPrometheus"
    );

    lab.takt
        .file("http.yml", "authorization: {credentials_file: token}\n");
    let url = format!("--alertmanager.url=http://{}", lab.address);
    let said = RefCell::new(String::new());
    let amtool = |arguments: &[&str]| {
        let mut command = Command::new(amtool_program);
        command
            .args(arguments)
            .args([&url, "--http.config.file=http.yml"])
            .current_dir(dir);
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "amtool {arguments:?}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        said.borrow_mut().push_str(&text(&output.stderr));
        text(&output.stdout)
    };
    assert!(amtool(&["alert", "query"]).contains("FromPrometheus"));
    assert!(amtool(&["alert", "query", "node=g07", "-o", "json"]).contains("\"g07\""));
    assert!(!amtool(&["alert", "query", "node=g08"]).contains("FromPrometheus"));
    amtool(&[
        "alert",
        "add",
        "alertname=ByHand",
        "node=g09",
        "--annotation=summary=hello",
    ]);
    assert!(amtool(&["alert", "query", "-o", "extended"]).contains("hello"));
    let id = amtool(&[
        "silence",
        "add",
        "alertname=ByHand",
        "--comment=testing",
        "--duration=1h",
    ]);
    assert!(amtool(&["silence", "query"]).contains("testing"));
    assert!(!amtool(&["alert", "query"]).contains("ByHand"));
    assert!(amtool(&["alert", "query", "--silenced"]).contains("ByHand"));
    amtool(&["silence", "expire", id.trim()]);
    assert!(amtool(&["silence", "query", "--expired"]).contains("testing"));

    // A silence is changed, exported to a file, expired, and imported from the file.
    let id = amtool(&[
        "silence",
        "add",
        "alertname=ByHand",
        "node=~g.*",
        "--comment=first",
        "--duration=1h",
    ]);
    amtool(&[
        "silence",
        "update",
        id.trim(),
        "--comment=second",
        "--duration=3h",
    ]);
    let exported = amtool(&["silence", "query", "-o", "json"]);
    assert!(
        exported.contains("second") && !exported.contains("first"),
        "{exported}"
    );
    lab.takt.file("silences.json", &exported);
    let all = amtool(&["silence", "query", "-q"]);
    amtool(
        &[
            &["silence", "expire"],
            all.split_whitespace().collect::<Vec<_>>().as_slice(),
        ]
        .concat(),
    );
    assert!(!amtool(&["silence", "query"]).contains("second"));
    amtool(&["silence", "import", "silences.json"]);
    assert!(amtool(&["silence", "query"]).contains("second"));
    assert!(amtool(&["alert", "query", "--silenced"]).contains("ByHand"));
    assert!(amtool(&["cluster", "show"]).contains("disabled"));
    assert!(amtool(&["config", "routes", "show"]).contains("ops"));
    assert!(amtool(&["config", "show"]).contains("receiver: ops"));
    assert!(amtool(&["config", "routes", "test", "alertname=X"]).contains("ops"));

    // amtool renders templates over our webhook's body and accepts our routes.
    lab.takt.file("body.json", hook[0]["body"].to_string());
    lab.takt.file(
        "words.tmpl",
        "{{ define \"w\" }}{{ .Status }} {{ .CommonLabels.node }} {{ len .Alerts.Firing }}{{ end }}",
    );
    let words = [
        "template",
        "render",
        "--template.glob=words.tmpl",
        "--template.text={{ template \"w\" . }}",
    ];
    assert_eq!(
        amtool(&[&words[..], &["--template.data=body.json"]].concat()).trim(),
        "firing g07 1"
    );
    amtool(&["check-config", "alertmanager.yml"]);

    // An alert does not end at once when Prometheus stops pushing; it ends at its `endsAt`.
    prometheus.stop();
    assert!(amtool(&["alert", "query"]).contains("FromPrometheus"));
    said.into_inner()
}

/// Each configuration has one oddity in which amtool and Takt once differed.
#[test]
fn takt_and_amtool_agree_on_configurations() {
    let Some(amtools) = or_skip(releases(AMTOOL)) else {
        return;
    };
    let takt = Takt::fresh();
    let child = |child: &str| {
        (
            format!("{{receiver: a, routes: [{child}]}}"),
            "[{name: a}]".to_owned(),
            String::new(),
        )
    };
    let hook = |more: &str| {
        (
            "{receiver: a}".to_owned(),
            format!("[{{name: a, webhook_configs: [{{url: 'http://x', {more}}}]}}]"),
            String::new(),
        )
    };
    let beside = |more: &str| {
        (
            "{receiver: a}".to_owned(),
            "[{name: a}]".to_owned(),
            more.to_owned(),
        )
    };
    let interval = |range: &str| {
        beside(&format!(
            "time_intervals: [{{name: n, time_intervals: [{{{range}}}]}}]"
        ))
    };
    for (number, (is_good, (route, receivers, more))) in [
        (
            true,
            child("{matchers: ['{a=b', 'a=b\\\"', 'a=b=c', 'a=~\"[a-z{]\\Q.\\E\"']}"),
        ),
        (false, child("{matchers: ['a=\"b\\\"']}")),
        (false, child("{matchers: ['a=b\"c']}")),
        (false, child("{matchers: ['a=~x**']}")),
        (false, child("{matchers: ['a=~\"x{1001}\"']}")),
        (false, child("{match: {a-b: c}}")),
        (false, child("{match_re: {a: }}")),
        (
            true,
            child("{receiver: '', group_by: ['...', '...'], continue: yes}"),
        ),
        (false, child("{group_by: ['']}")),
        (false, child("{group_wait: 293y}")),
        (
            true,
            hook(
                "send_resolved: , max_alerts: 3, http_config: {basic_auth: {username: a}, \
             bearer_token: ''}",
            ),
        ),
        (false, hook("send_resolved: 'true'")),
        (
            false,
            hook("http_config: {authorization: {type: ' BASIC '}}"),
        ),
        (
            false,
            hook("http_config: {bearer_token: x, basic_auth: {username: a}}"),
        ),
        (
            true,
            beside("global: {resolve_timeout: , opsgenie_api_key: x}"),
        ),
        (false, beside("global: {smtp_smarthost: mail}")),
        (false, beside("global: {smtp_fro: x}")),
        (false, beside("global: {slack_api_url: x}")),
        (
            true,
            interval("days_of_month: ['1:-1'], location: Europe/Berlin"),
        ),
        (false, interval("days_of_month: ['28:-2']")),
        (
            false,
            interval("times: [{start_time: '9:00', end_time: '10:00'}]"),
        ),
        (false, interval("location: utc")),
    ]
    .into_iter()
    .enumerate()
    {
        let file = format!("{number}.yml");
        let text = format!("route: {route}\nreceivers: {receivers}\n{more}\n");
        takt.file(&file, &text);
        for amtool in &amtools {
            let theirs = Command::new(amtool)
                .args(["check-config", &file])
                .current_dir(takt.directory())
                .output()
                .unwrap();
            assert_eq!(
                theirs.status.success(),
                is_good,
                "{amtool:?}: {text}{theirs:?}"
            );
        }
        let ours = takt.run(["alerts", "check", &file]);
        assert_eq!(ours.code == Some(0), is_good, "{text}{ours:?}");
    }
}

#[test]
fn takt_and_promtool_agree_on_files() {
    let promtool = Needed {
        program: "promtool",
        package: "prometheus",
    };
    let Some(promtools) = or_skip(releases(promtool)) else {
        return;
    };
    let takt = Takt::fresh();
    takt.file("good.rules.yml", SAMPLE_RULES);
    takt.file(
        "bad.rules.yml",
        SAMPLE_RULES.replace("lab:heat > 90", "lab:heat >"),
    );
    takt.file(
        "typo.rules.yml",
        SAMPLE_RULES.replace("expr: sum", "exp: sum"),
    );
    let test = |name: &str, value: u32, alerts: &str| {
        let text = format!(
            "rule_files: [good.rules.yml]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  \
             input_series:\n  \
             - {{series: 'heat{{node=\"g01\"}}', values: '20 {value}x5'}}\n  alert_rule_test:\n  - \
             eval_time: 3m\n    alertname: Hot\n    \
             exp_alerts: {alerts}\n  promql_expr_test:\n  - expr: lab:heat\n    eval_time: 3m\n    \
             exp_samples: [{{labels: 'lab:heat{{node=\"g01\"}}', value: {value}}}]\n"
        );
        takt.file(name, text);
    };
    let fires =
        "[{exp_labels: {node: g01, severity: critical}, exp_annotations: {summary: g01 is at 95}}]";
    test("passes.yml", 95, fires);
    test("quiet.yml", 50, "[]");
    test("fails.yml", 50, fires);
    test(
        "words.yml",
        95,
        "[{exp_labels: {node: g02, severity: critical}, exp_annotations: {summary: g01 is at 95}}]",
    );
    let assert_promtool = |arguments: [&str; 3], is_good: bool| {
        for program in &promtools {
            let output = Command::new(program)
                .args(arguments)
                .current_dir(takt.directory())
                .output()
                .unwrap();
            assert_eq!(
                output.status.success(),
                is_good,
                "{program:?} {arguments:?}: {output:?}"
            );
        }
    };
    for (file, expected) in [
        ("good.rules.yml", true),
        ("bad.rules.yml", false),
        ("typo.rules.yml", false),
    ] {
        let ours = takt.run(["alerts", "check", file]);
        assert_eq!(ours.code == Some(0), expected, "{file}: {ours:?}");
        assert_promtool(["check", "rules", file], expected);
    }
    for (file, expected) in [
        ("passes.yml", true),
        ("quiet.yml", true),
        ("fails.yml", false),
        ("words.yml", false),
    ] {
        let ours = takt.run(["alerts", "test", file]);
        assert_eq!(ours.code == Some(0), expected, "{file}: {ours:?}");
        assert_promtool(["test", "rules", file], expected);
    }

    // The shipped rules.
    let pack = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards/rules");
    for entry in fs::read_dir(&pack).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with(".rules.yml") {
            let file = path.to_string_lossy().into_owned();
            assert_promtool(["check", "rules", &file], true);
            takt.run(["alerts", "check", &file]).ok();
        }
    }
}
