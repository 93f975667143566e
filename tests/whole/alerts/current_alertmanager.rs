//! The current Alertmanager beside Takt: the same configuration and the same alerts give the same webhook bodies and the same
//! answers of API v2.

use super::lab::{Lab, SOON};
use crate::support::channels::Channel;
use crate::support::process::{Daemon, free_port, http_get, http_get_with, http_post};
use crate::support::{need_current, or_skip};
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};

/// `SLACK` is replaced by the address of each server's receiver.
const CONFIG: &str = r#"
route:
  receiver: plain
  group_by: [alertname]
  group_wait: 1s
  group_interval: 1s
  repeat_interval: 1h
  labels: {desk: d1, who: '{{ .GroupLabels.alertname }} {{ len .Alerts }}'}
  routes:
  - matchers: [kind="all"]
    receiver: team.a+b
    group_by: []
    labels: {who: '{{ .Status }} at {{ routeLabels "desk" }}', lost: '{{ .NoField }}', loop: '{{ routeLabels "loop" }}'}
  - matchers: [kind="each"]
    receiver: own
    group_by: ['...']
receivers:
- name: plain
  webhook_configs: [{url: 'SLACK/plain'}]
- name: team.a+b
  labels: {owner: gpu}
  webhook_configs: [{url: 'SLACK/team', max_alerts: 1}]
- name: own
  labels: {owner: hpc, name: own}
  webhook_configs:
  - url: 'SLACK/own/{{ .CommonLabels.node }}'
    payload: PAYLOAD
"#;

/// Templates whose texts both have to send alike, as the payload of a webhook.
const TEMPLATES: &[&str] = &[
    "{{ .CommonLabels.words | title }}",
    "{{ .CommonLabels.words | toUpper }}{{ .CommonLabels.words | toLower }}",
    "{{ .Receiver }} {{ .Status }} {{ .NotificationReason }}",
    "{{ .GroupLabels.SortedPairs.Values | join \",\" }}",
    "{{ .GroupLabels.Remove (stringSlice \"words\" \"kind\") }}",
    "{{ range .Alerts }}{{ .Labels.node }}{{ .Fingerprint }}{{ end }}",
    "{{ (index .Alerts 0).StartsAt | tz \"Europe/Berlin\" | date \"2006-01-02 15:04 MST\" }}",
    "{{ (toDate \"2006-01-02 15:04\" \"2026-03-05 09:07\").Unix }}",
    "{{ (toDate \"Jan _2 2006 3:04PM -0700\" \"Mar  5 2026 9:07PM +0100\").Unix }}",
    "{{ (toDate \"15:04:05.000\" \"09:07:03.250\").Format \"15:04:05.999 2006\" }}",
    "{{ (toDate \"2006\" \"odd\").IsZero }} {{ toDate \"2006\" \"odd\" }}",
    "{{ (mustToDate \"02/01/06\" \"05/03/26\").Weekday }}",
    "{{ base64encode \"a?>ä\" }} {{ base64decode \"YT8-w6Q=\" }}",
    "{{ if (now.Sub (index .Alerts 0).StartsAt).Hours }}later{{ end }}",
    "{{ routeLabels \"who\" }}|{{ routeLabels \"nothing\" }}|{{ .RouteLabels.desk }}",
    "{{ dict \"a\" (list 1 \"b\") | toJson }}",
    "{{ list 1 2 | toJson }}",
    "{{ append (list 1) 2 \"x\" | toJson }}",
    "{{ reReplaceAll \"(.)-(.)\" \"$2-${1}\" .CommonLabels.words }}",
    "{{ match \"^foo\" \"foobar\" }}",
    "{{ urlUnescape \"a%20b+c\" }} {{ \"a b&c\" | urlquery }}",
    "{{ .CommonLabels.nothing }}",
    "{{ len .Alerts.Firing }}",
    "{{ .ExternalURL }}",
    "{{ .CommonAnnotations.summary }}",
    "{{ .CommonLabels | toJson }}",
    "{{ printf \"%5.2f|%-4s|%q|%v|%d|%x\" 3.14159 \"ab\" \"q\" true 7 255 }}",
    "{{ humanizeDuration 3725.5 }} {{ humanizeDuration \"90\" }}",
    "{{ trimSpace \"  a b \" }}.",
    "{{ with .CommonLabels }}{{ .node }}{{ else }}none{{ end }}",
    "{{ $n := 3 }}{{ range $i, $a := .Alerts }}{{ $i }}{{ $n }}{{ $a.Labels.node }}{{ end }}",
    "{{- \"a\" -}}  b",
    "5",
    "'5'",
    "-0x10",
    "010",
    "08",
    "1_000",
    "1e3",
    ".5",
    "+1",
    "1.2.3",
    "inf",
    ".inf.",
    "Off",
    "y",
    "~",
    "null",
    "",
    "[a, 1, {b: c}]",
    "a: b",
    "a: b: c",
    "a: {b: 'c: d'}",
    "node g01 is down",
    "# comment",
    "\"quoted\"",
    "2026-11-23T10:00:00Z",
    "2026-11-23",
    "- a\n- b",
    "a\nb",
    "*a",
    "&a b",
    "!x y",
    "%",
    "@",
    "1:30",
    "0o17",
    "0b11",
    "99999999999999999999",
    "0.1",
    "1e400",
    "{{ .GroupLabels.node }}: {{ .Status }}",
];

struct Both {
    lab: Lab,
    theirs: Channel,
    url: String,
    _alertmanager: Daemon,
}

impl Both {
    fn start() -> Option<Self> {
        let program = or_skip(need_current("alertmanager"))?;
        let lab = Lab::start("  webhook_configs: [{url: 'SLACK/hook'}]\n")?;
        let theirs = or_skip(Channel::slack())?;

        // A string of JSON is one of YAML.
        let payload = TEMPLATES.iter().map(|text| json!(text).to_string());
        let payload = format!(
            "{{'{{{{ .Status }}}}': [{}], number: 1, 'off': off, none: ~}}",
            payload.collect::<Vec<_>>().join(", ")
        );
        let config = CONFIG.replace("PAYLOAD", &payload);
        let of = |channel: &Channel| config.replace("SLACK", &channel.url());
        lab.takt.file("alertmanager.yml", of(&lab.slack));
        let (status, said) = lab.reload();
        assert_eq!(status, 200, "{said}");
        lab.takt.file("theirs.yml", of(&theirs));
        let address = format!("127.0.0.1:{}", free_port());
        let dir = lab.takt.directory();
        let mut command = Command::new(program);
        command
            .args([
                "--config.file=theirs.yml",
                "--storage.path=theirs",
                "--cluster.listen-address=",
            ])
            .arg(format!("--web.listen-address={address}"))
            .arg(format!("--web.external-url=http://{}", lab.address))
            .current_dir(dir);
        let log = dir.join("alertmanager.log");
        let mut alertmanager = Daemon::start("alertmanager", command, &log);
        let url = format!("http://{address}");
        alertmanager.wait_until("ready", SOON, || {
            http_get(&format!("{url}/-/ready"))
                .ok()
                .filter(|page| page.status == 200)
        });
        Some(Self {
            lab,
            theirs,
            url,
            _alertmanager: alertmanager,
        })
    }

    fn urls(&self) -> [String; 2] {
        [format!("http://{}", self.lab.address), self.url.clone()]
    }

    /// Sends the same body to both and returns status and answer of each.
    fn post(&self, path: &str, body: &Value) -> [(u16, Value); 2] {
        self.urls().map(|url| {
            let headers = [
                ("Content-Type", "application/json"),
                ("Authorization", "Bearer 0123456789abcdef-test"),
            ];
            let body = body.to_string();
            let page = http_post(&format!("{url}{path}"), &headers, body.as_bytes()).unwrap();
            (page.status, json_of(&page.body))
        })
    }

    fn get(&self, path: &str, query: &[(&str, &str)]) -> [(u16, Value); 2] {
        self.urls().map(|url| {
            let page = http_get_with(&format!("{url}{path}"), query, &[]).unwrap();
            (page.status, json_of(&page.body))
        })
    }

    /// The last request to each path of both receivers, once all of them have this status and are
    /// alike. A busy machine may repeat a message, or send one before all alerts have arrived.
    fn last_sent(&self, status: &str) -> [Vec<String>; 2] {
        let last = |channel: &Channel| {
            ["/plain", "/team", "/own"].map(|path| {
                let last = channel.on(path).pop().unwrap_or_default();
                format!("{} {}", last["path"], last["body"])
            })
        };
        let begun = Instant::now();
        loop {
            let [ours, theirs] = [&self.lab.slack, &self.theirs].map(last);
            let is_done = ours == theirs && ours.iter().all(|one| one.contains(status));
            if is_done || begun.elapsed() > SOON {
                return [ours.into(), theirs.into()];
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// Alerts of all three routes; they end at `ends_at`.
fn alerts(ends_at: Option<&str>) -> Value {
    let alert = |name: &str, node: &str, kind: &str| {
        let mut alert = json!({
            "labels": {
                "alertname": name,
                "node": node,
                "kind": kind,
                "words": "hELLO wORLD don't foo-bar a.b x_y 3abc éa_B 1st (q) a:b",
            },
            "annotations": {"summary": "one <two> & \"three\"", "empty": ""},
            "startsAt": "2026-11-23T10:00:00.250Z",
            "generatorURL": "http://g/x?y=1",
        });
        if let Some(end) = ends_at {
            alert["endsAt"] = end.into();
        }
        alert
    };
    json!([
        alert("Hot", "g01", "none"),
        alert("Hot", "g01", "all"),
        alert("Cold", "g02", "all"),
        alert("Fan", "g03", "each"),
    ])
}

#[test]
fn messages_and_answers_are_those_of_the_current_alertmanager() {
    let Some(both) = Both::start() else { return };
    for (status, said) in both.post("/api/v2/alerts", &alerts(None)) {
        assert_eq!(status, 200, "{said}");
    }
    let [ours, theirs] = both.last_sent("firing");
    assert_eq!(ours, theirs);

    for query in [
        &[][..],
        &[("receiver_matchers", "owner=\"gpu\"")],
        &[("receiver_matchers", "name=~\"p.*\"")],
        &[
            ("receiver_matchers", "owner=hpc"),
            ("receiver_matchers", "name!=own"),
        ],
    ] {
        let [ours, theirs] = both.get("/api/v2/receivers", query);
        assert_eq!(ours, theirs, "{query:?}");
        let of_alerts = both.get("/api/v2/alerts", query).map(|(status, answer)| {
            let all = answer.as_array().unwrap().iter();
            (
                status,
                all.map(|alert| {
                    (
                        alert["fingerprint"].to_string(),
                        alert["receivers"].to_string(),
                    )
                })
                .collect::<Vec<_>>(),
            )
        });
        assert_eq!(of_alerts[0], of_alerts[1], "{query:?}");
        let of_groups = both
            .get("/api/v2/alerts/groups", query)
            .map(|(status, mut answer)| {
                for group in answer.as_array_mut().unwrap() {
                    let alerts = group["alerts"].as_array_mut().unwrap();
                    for alert in &mut *alerts {
                        *alert = alert["fingerprint"].take();
                    }

                    // Alertmanager takes the alerts of a group from a map.
                    alerts.sort_by_cached_key(Value::to_string);
                }
                (status, answer)
            });
        assert_eq!(of_groups[0], of_groups[1], "{query:?}");
    }
    for path in ["receivers", "alerts", "alerts/groups"] {
        let wrong = [("receiver_matchers", "owner")];
        let [ours, theirs] = both.get(&format!("/api/v2/{path}"), &wrong);
        assert_eq!(ours.0, 400, "{path}");
        assert_eq!(theirs.0, 400, "{path}");
    }

    for (_, said) in both.post("/api/v2/alerts", &alerts(Some("2026-11-23T10:00:01Z"))) {
        assert_eq!(said, "");
    }
    let [ours, theirs] = both.last_sent("resolved");
    assert_eq!(ours, theirs);
    assert!(ours.iter().any(|one| one.contains("all alerts resolved")));
}

#[test]
fn silences_are_listed_by_state_as_in_the_current_alertmanager() {
    let Some(both) = Both::start() else { return };
    for (comment, starts, ends) in [
        ("active", "2026-01-01T00:00:00Z", "2199-01-01T00:00:00Z"),
        ("pending", "2198-01-01T00:00:00Z", "2199-01-01T00:00:00Z"),
        ("ended", "2026-01-01T00:00:00Z", "2199-01-01T00:00:00Z"),
    ] {
        let silence = json!({
            "matchers": [{"name": "a", "value": comment, "isRegex": false}],
            "startsAt": starts,
            "endsAt": ends,
            "createdBy": "me",
            "comment": comment,
            "annotations": {"ticket": "7"},
        });
        let answers = both.post("/api/v2/silences", &silence);
        for (url, (status, answer)) in both.urls().iter().zip(answers) {
            assert_eq!(status, 200, "{answer}");
            if comment == "ended" {
                let id = answer["silenceID"].as_str().unwrap();
                ureq::delete(format!("{url}/api/v2/silence/{id}"))
                    .header("Authorization", "Bearer 0123456789abcdef-test")
                    .call()
                    .unwrap();
            }
        }
    }
    for query in [
        &[][..],
        &[("active", "false")],
        &[("expired", "false")],
        &[("pending", "false")],
        &[("active", "false"), ("pending", "no")],
        &[
            ("active", "false"),
            ("pending", "false"),
            ("expired", "false"),
        ],
        &[("active", "true"), ("filter", "a=\"active\"")],
    ] {
        let [ours, theirs] = both
            .get("/api/v2/silences", query)
            .map(|(status, mut answer)| {
                for silence in answer.as_array_mut().unwrap() {
                    for time in ["id", "updatedAt", "startsAt", "endsAt"] {
                        silence[time] = Value::Null;
                    }
                }
                (status, answer)
            });
        assert_eq!(ours, theirs, "{query:?}");
    }
}
