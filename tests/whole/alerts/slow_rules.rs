//! A rule that takes long delays no other rule, no event, no page and no message.

use super::lab::{Lab, SOON};
use crate::support::process::{http_get, wait_for};
use crate::support::takt::Takt;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Series and alerts of the slow rule. Each alert's text has a query of its own.
const MANY: usize = 7_000;

const SLOW_RULES: &str = "
groups:
- name: slow
  interval: 1s
  rules:
  - alert: Many
    expr: many > 0
    annotations: {summary: '{{ $labels.n }} of {{ printf \"count(many + %s) by (node)\" $labels.n | query | first | value }}'}
";

/// Delivers the alerts of the slow rule nowhere, and all others to the webhook.
const ROUTES: &str = "
route:
  receiver: ops
  group_by: [alertname]
  group_wait: 0s
  group_interval: 1s
  repeat_interval: 1h
  routes: [{receiver: nobody, matchers: ['alertname=~\"Many|Watchdog|TaktRuleFailing\"']}]
receivers:
- name: nobody
- name: ops
  webhook_configs: [{url: 'SLACK/hook'}]
";

/// A critical alert within two intervals and an exporter's event within a second, while 7,000 alerts
/// of another group ask 7,000 queries.
#[test]
fn a_slow_rule_delays_no_other_alert_and_no_event() {
    let takt = Takt::fresh();
    let Some(lab) = Lab::start_with(takt, "", |config| config) else {
        return;
    };
    lab.wait_for_listener();
    let routes = ROUTES.replace("SLACK", &lab.slack.url());
    lab.takt.file("alertmanager.yml", routes);
    lab.takt.file("rules/slow.rules.yml", SLOW_RULES);
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards/rules/takt.rules.yml");
    let shipped = fs::read_to_string(shipped).unwrap();
    lab.takt.file(
        "rules/takt.rules.yml",
        shipped.replace("for: 1m", "for: 1s"),
    );
    let many: String = (0..MANY)
        .map(|n| format!("many{{n=\"{n}\"}} 1\n"))
        .collect();
    fs::write(lab.textfiles.join("many.prom"), many).unwrap();
    lab.wait_for_series("count(many)", &format!("\"{MANY}\""));
    assert_eq!(lab.reload().0, 200);
    let delivered = |name: &str| {
        let hooks = lab.slack.on("/hook");
        hooks
            .iter()
            .any(|one| one["body"].to_string().contains(name))
    };
    let delay = |name: &str| {
        let begun = Instant::now();
        wait_for(name, SOON, || delivered(name).then_some(()));
        begun.elapsed()
    };

    // The slow group is in its first evaluation.
    thread::sleep(Duration::from_secs(2));

    lab.fault(79);
    let event = delay("XID 79");
    lab.heat(Some(95.0));
    let critical = delay("\"Hot\"");
    let asked = Instant::now();
    let page = http_get(&format!("http://{}/alerts", lab.address)).unwrap();
    let page = (page.status, asked.elapsed());
    let asked = Instant::now();
    lab.get("/api/v2/alerts");
    lab.get("/api/v1/rules");
    let apis = asked.elapsed();
    println!("event {event:?}, critical alert {critical:?}, page {page:?}, APIs {apis:?}");

    assert!(event < Duration::from_secs(3), "{event:?}");

    // Two intervals of the rule, and the exporter's and the server's of reading the value.
    assert!(critical < Duration::from_secs(4), "{critical:?}");
    assert_eq!(page.0, 200);

    // Far less than what ends a request; thousands of alerts are written twice.
    assert!(page.1 < Duration::from_secs(5) && apis < Duration::from_secs(5));

    // The overrun is an alert, and so are the missing texts; `takt doctor` names the rule.
    delay("RulesOverrun");
    let found = lab.takt(&["doctor", "--only", "rules"]);
    let found = format!("{}{}", found.stdout, found.stderr);
    assert!(found.contains("slow.rules.yml:slow/Many"), "{found}");

    // On a busy machine, an evaluation that was left out has the last word at times.
    wait_for("the reason of the missing texts", SOON, || {
        let rules = lab.get("/api/v1/rules?rule_name[]=Many");
        let error = rules["data"]["groups"][0]["rules"][0]["lastError"].as_str()?;
        error
            .contains("rule's templates take too long")
            .then_some(())
    });
    let log = fs::read_to_string(lab.takt.directory().join("takt.log")).unwrap();
    let lines = log.matches("a group of rules takes longer than its interval");
    assert!((1..=3).contains(&lines.count()), "{log}");
}
