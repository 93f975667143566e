//! Rules, routes, matchers and templates with random edits: each is read or refused, and none
//! panics or takes long.
//!
//! `make test` tries a few hundred texts of each kind. `make fuzz` tries many more
//! (`PROPTEST_CASES`).

use proptest::prelude::*;
use takt_alerts::events::EventFile;
use takt_alerts::events::xid::XidTable;
use takt_alerts::promtest::TestFile;
use takt_alerts::routing::config::Config;
use takt_alerts::routing::matcher::{parse_matcher, parse_matchers};
use takt_alerts::rules::RuleFile;
use takt_alerts::template::{Context, MessageTemplate, Template};
use takt_model::{Labels, Timestamp};

const SEEDS: [&str; 8] = [
    "groups:\n- name: g\n  interval: 15s\n  rules:\n  - alert: Hot\n    expr: heat > 90\n    for: 1m\n    \
     labels: {severity: critical}\n    annotations: {summary: '{{ $labels.node }} is at {{ $value }}'}\n",
    "groups:\n- name: test\n  rules:\n  - alert: GpuXid\n    when: [{kind: xid, xid: 79}]\n    by: [node]\n    \
     hold: 3s\n    labels: {severity: critical}\n",
    "route: {receiver: ops, group_by: [alertname], routes: [{matchers: ['a=~\"b|c\"'], receiver: ops}]}\n\
     receivers: [{name: ops, webhook_configs: [{url: 'http://127.0.0.1/x'}]}]\n\
     inhibit_rules: [{source_matchers: [a=b], target_matchers: ['c!=d'], equal: [node]}]\n\
     time_intervals: [{name: night, time_intervals: [{times: [{start_time: '22:00', end_time: '24:00'}], \
     weekdays: ['monday:friday'], days_of_month: ['-1'], months: [january], location: Europe/Oslo}]}]\n",
    "rule_files: [a.yml]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n  \
     - {series: 'up{job=\"x\"}', values: '0+1x10 _ stale 1e9'}\n  alert_rule_test:\n  \
     - {eval_time: 10m, alertname: Down, exp_alerts: [{exp_labels: {a: b}}]}\n",
    "{{ range $i, $l := $labels.SortedPairs }}{{ if eq $i 0 }}{{ $l.Name | toUpper }}{{ else }}\
     {{ printf \"%5.2f|%-4s\" 1.5 $l.Value }}{{ end }}{{ end }}",
    "{{ define \"a\" }}{{ template \"a\" . }}{{ end }}{{ template \"a\" . }}{{ with $value }}\
     {{ humanizeDuration . }}{{ reReplaceAll \"(a*)*b\" \"$1\" \"aaaaaaaaaaaaaaaaaaaaaaaaaaaa\" }}{{ end }}",
    "{a=\"b\", c!~\"d.*|[e-f]\", \"utf-8\"=~'x'}",
    "0+1x10 1x1000000000 -5-1x3 _x4 stale NaN Inf 1e300x9",
];

const PIECES: [&str; 28] = [
    "",
    "{",
    "}",
    "{{",
    "}}",
    "[",
    "]",
    ":",
    "\n",
    "  ",
    "- ",
    "\"",
    "'",
    "`",
    "|",
    "\\",
    "$",
    ".",
    "(",
    ")",
    "0",
    "-1",
    "99999999999999999999",
    "1e999",
    "\0",
    "ä",
    "&a *a",
    "%1000000000d",
];

fn edited() -> impl Strategy<Value = String> {
    let edit = (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        0..PIECES.len(),
        0..4_u8,
    );
    (0..SEEDS.len(), prop::collection::vec(edit, 0..8)).prop_map(|(seed, edits)| {
        let mut text: Vec<char> = SEEDS[seed].chars().collect();
        for (from, to, piece, kind) in edits {
            let ends = [from.index(text.len() + 1), to.index(text.len() + 1)];
            let low = ends[0].min(ends[1]);
            let high = ends[0].max(ends[1]);

            match kind {
                0 => drop(text.splice(low..low, PIECES[piece].chars())),
                1 => drop(text.splice(low..high.min(low + 4), PIECES[piece].chars())),
                2 => {
                    let part = text[low..high].to_vec();
                    drop(text.splice(high..high, part));
                }
                _ => text.truncate(high),
            }
            // Copies of copies would grow to megabytes, which say nothing more.
            text.truncate(4000);
        }
        text.into_iter().collect()
    })
}

fn expand(template: &Template) {
    let labels: Labels = [("node", "g01"), ("alertname", "{{ $value }}")]
        .into_iter()
        .collect();
    let context = Context {
        labels: &labels,
        external_labels: &labels,
        external_url: "http://takt",
        value: 1e9,
        query: None,
        at: Timestamp(0),
    };

    drop(template.expand(&context));
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in edited()) {
        drop(RuleFile::read("fuzz", &text));
        drop(EventFile::read("fuzz", &text, XidTable::shipped()));
        drop(Config::read("fuzz", &text));
        drop(TestFile::read("fuzz", &text));
        drop(parse_matcher(&text));
        drop(parse_matchers(&text));
        drop(takt_model::notation::values(&text));
        drop(MessageTemplate::read(&text));
        if let Ok(template) = Template::read(&text) {
            expand(&template);
        }
    }
}

/// Labels and annotations come from metrics, which any node can choose.
#[test]
fn a_label_is_text_and_no_template() {
    let labels: Labels = [("node", "{{ range query \"up\" }}x{{ end }}")]
        .into_iter()
        .collect();

    let context = Context {
        labels: &labels,
        external_labels: &labels,
        external_url: "",
        value: 1.0,
        query: None,
        at: Timestamp(0),
    };

    let template = Template::read("{{ $labels.node }} and {{ index $labels \"node\" }}").unwrap();
    let text = template.expand(&context).unwrap();
    assert_eq!(
        text.matches("{{ range query \"up\" }}x{{ end }}").count(),
        2,
        "{text}"
    );
}
