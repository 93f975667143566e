//! With the same scrape configuration, Debian's Prometheus and Takt find the same targets and store
//! the same series.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::support::or_skip;
use crate::support::process::{free_port, http_get, http_get_with, wait_for};
use crate::support::prometheus::Prometheus;
use crate::support::takt::Takt;
use crate::support::target::{Page, scrape_target};
use rustix::process::{self, Pid};
use std::thread;

const SOON: Duration = Duration::from_secs(60);

/// Labels that Takt adds to every series.
const OURS: [&str; 2] = ["cluster", "node"];

/// A page with a label of the requested path and labels that the rules below relabel.
fn page(path: &str) -> Page {
    let path = path.replace('"', "");
    let page = format!(
        "asked{{path=\"{path}\"}} 1\n\
             load{{cpu=\"0\",Mode=\"User \
             Time\",job=\"mine\",instance=\"\",exported_job=\"older\"}} 0.5\n\
             load{{cpu=\"1\",Mode=\"User \
             Time\",job=\"mine\",instance=\"\",exported_job=\"older\"}} 0.5\n\
             go_gc{{quantile=\"0.5\"}} 1\n\
             eq{{a=\"x\",b=\"x\"}} 1\neq{{a=\"x\",b=\"y\"}} 1\n\
             long{{le=\"+Inf\",text=\"two\\nlines, a \\\\ and a \\\"\"}} 1\n"
    );
    ("text/plain; version=0.0.4", page)
}

/// A configuration with every relabel action, defaults, the labels that control a scrape, and names
/// that collide.
fn configuration(address: SocketAddr) -> String {
    let port = address.port();
    let header = "global:\n  scrape_interval: 1s\n  scrape_timeout: 900ms\nscrape_configs:\n";
    let jobs = [
        "job_name: plain",
        "job_name: honoured\n  honor_labels: true",
        "job_name: asked\n  metrics_path: /probe\n  params: {module: [icmp, tcp], 'a b': \
         ['ä&=']}\n  relabel_configs:\n\
         \x20 - {source_labels: [__address__], target_label: __param_target}\n\
         \x20 - {source_labels: [__param_target], target_label: instance, replacement: 'probe of \
         ${1}'}\n\
         \x20 - {target_label: __metrics_path__, replacement: /probe/x y}\n\
         \x20 - {source_labels: [__scrape_interval__, __scrape_timeout__, __scheme__, job], \
         separator: '|', target_label: how}",
        "job_name: targets\n  relabel_configs:\n\
         \x20 - {source_labels: [rack, row], target_label: place}\n\
         \x20 - {source_labels: [rack, row], separator: '', regex: '(.)(.).*', target_label: \
         'x_${2}', replacement: '$1-${2}$$'}\n\
         \x20 - {source_labels: [__address__], target_label: shard, modulus: 7, action: hashmod}\n\
         \x20 - {source_labels: [row], target_label: low, action: lowercase}\n\
         \x20 - {source_labels: [row], target_label: up, action: uppercase}\n\
         \x20 - {regex: 'r(.*)', replacement: 'mapped_$1', action: labelmap}\n\
         \x20 - {source_labels: [none], target_label: rack, action: dropequal}\n\
         \x20 - {source_labels: [low], target_label: __tmp_low}\n\
         \x20 - {source_labels: [low], target_label: __tmp_low, action: keepequal}\n\
         \x20 - {source_labels: [__tmp_low], target_label: from_tmp}\n\
         \x20 - {regex: 'row', action: labeldrop}\n\
         \x20 - {source_labels: [rack], target_label: rack, replacement: ''}\n\
         \x20 - {source_labels: [rack], regex: 'nothing', target_label: never}\n\
         \x20 - {target_label: always, replacement: here}",
        "job_name: dropped\n  relabel_configs:\n  - {source_labels: [job], regex: 'dropped', \
         action: drop}",
        "job_name: kept out\n  relabel_configs:\n  - {source_labels: [job], regex: 'kept', action: \
         keep}",
        "job_name: series\n  metric_relabel_configs:\n\
         \x20 - {source_labels: [__name__], regex: 'go_.*', action: drop}\n\
         \x20 - {source_labels: [a], target_label: b, action: dropequal}\n\
         \x20 - {source_labels: [Mode], target_label: Mode, action: lowercase}\n\
         \x20 - {source_labels: [__name__, cpu], regex: 'load;(.+)', target_label: __name__, \
         replacement: 'load_$1'}\n\
         \x20 - {regex: 'exported_.*|cpu', action: labeldrop}\n\
         \x20 - {source_labels: [text], regex: 'two.lines.*', target_label: matched, replacement: \
         'dot takes it'}",
        "job_name: narrow\n  metric_relabel_configs:\n\
         \x20 - {regex: '__name__|job|instance|path', action: labelkeep}\n\
         \x20 - {source_labels: [__name__], regex: 'asked|up', action: keep}",
    ];
    // Two addresses of one server: all jobs have two targets.
    let targets = format!(
        "\n  static_configs:\n  - targets: ['127.0.0.1:{port}', 'localhost:{port}']\n    labels: \
         {{rack: a, row: 'Bc', rest: ß}}\n"
    );
    jobs.iter()
        .fold(header.to_owned(), |text, job| text + "- " + job + &targets)
}

type LabelSet = BTreeMap<String, String>;

fn label_set(labels: &Value) -> LabelSet {
    labels
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
        .collect()
}

fn without_ours(mut labels: LabelSet) -> LabelSet {
    labels.retain(|name, _| !OURS.contains(&name.as_str()));
    labels
}

/// Returns the series of targets, without those of alert rules and of the server itself.
fn series(url: &str) -> BTreeSet<LabelSet> {
    let of_targets = [("match[]", "{job!~\"|takt-server\",__name__!~\"ALERTS.*\"}")];
    let page = http_get_with(&format!("{url}/api/v1/series"), &of_targets, &[]);
    let answer: Value = serde_json::from_str(&page.unwrap().body).unwrap();
    answer["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(label_set)
        .map(without_ours)
        .collect()
}

/// Returns address, labels, interval and health of each target.
fn targets(url: &str) -> BTreeSet<(String, LabelSet, String, String)> {
    let answer: Value =
        serde_json::from_str(&http_get(&format!("{url}/api/v1/targets")).unwrap().body).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    answer["data"]["activeTargets"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|target| {
            let labels = without_ours(label_set(&target["labels"]));
            (
                // Takt hides values of parameters that may be secrets.
                text(&target["scrapeUrl"]).replace("a+b=%C3%A4%26%3D", "a+b=<hidden>"),
                labels,
                text(&target["scrapeInterval"]),
                text(&target["health"]),
            )
        })
        .collect()
}

#[test]
fn the_same_configuration_gives_the_same_targets_and_series() {
    let config = configuration(scrape_target(page));
    let Some(theirs) = or_skip(Prometheus::configured(&config)) else {
        return;
    };
    let takt = Takt::fresh();
    takt.file("prometheus.yml", &config);
    let address = format!("127.0.0.1:{}", free_port());
    takt.file(
        "takt.toml",
        format!("[server]\nlisten_address = \"{address}\"\n[jobs]\npoll = false\n[scrape]\nprometheus_config = \"prometheus.yml\"\n"),
    );
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let ours = format!("http://{address}");
    server.wait_until("serving", SOON, || {
        http_get(&format!("{ours}/-/healthy"))
            .ok()
            .filter(|page| page.status == 200)
    });
    for url in [theirs.url(), &ours] {
        // Six jobs keep their two targets, two jobs drop theirs.
        wait_for("twelve targets that are up", SOON, || {
            let targets = targets(url);
            (targets.len() == 12 && targets.iter().all(|(.., health)| health == "up")).then_some(())
        });
    }
    wait_for("the same targets", SOON, || {
        (targets(&ours) == targets(theirs.url())).then_some(())
    });

    // The first page of the last target may not be stored yet, on either side.
    let until = Instant::now() + SOON;
    loop {
        let expected = series(theirs.url());
        let found = series(&ours);
        if expected.len() >= 12 * 6 && found == expected {
            break;
        }
        let missing: Vec<_> = expected.difference(&found).collect();
        let added: Vec<_> = found.difference(&expected).collect();
        assert!(
            Instant::now() < until,
            "missing {missing:#?}\nadded {added:#?}"
        );
        thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn a_reload_takes_a_token_or_a_signal() {
    let address = scrape_target(page);
    let takt = Takt::fresh();
    let listen = format!("127.0.0.1:{}", free_port());
    let token = "a token of sixteen or more";
    takt.file("token", token);
    let configure = |job: &str| {
        let scrape = format!(
            "[[scrape.configs]]\njob_name = \"{job}\"\nstatic_configs = [{{ targets = \
             [\"{address}\"] }}]\n"
        );
        takt.file(
            "takt.toml",
            format!(
                "[server]\nlisten_address = \"{listen}\"\ntoken_file = \"token\"\n[jobs]\npoll \
                 = false\n{scrape}"
            ),
        );
    };
    configure("first");
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let url = format!("http://{listen}");
    server.wait_until("serving", SOON, || {
        http_get(&format!("{url}/-/healthy"))
            .ok()
            .filter(|page| page.status == 200)
    });
    let job = || {
        targets(&url)
            .into_iter()
            .map(|(_, labels, ..)| labels["job"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(job(), ["first"]);

    let post = |authorization: &str| {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .into();
        let mut answer = agent
            .post(format!("{url}/-/reload"))
            .header("authorization", authorization)
            .send_empty()
            .unwrap();
        (
            answer.status().as_u16(),
            answer.body_mut().read_to_string().unwrap(),
        )
    };
    configure("second");
    assert_eq!(post("").0, 401);
    assert_eq!(job(), ["first"]);
    let (status, said) = post(&format!("Bearer {token}"));
    assert!(status == 200 && said.starts_with("reloaded: "), "{said}");
    wait_for("the second configuration", SOON, || {
        (job() == ["second"]).then_some(())
    });

    // A configuration with a mistake: the server keeps the previous one and says so.
    configure("");
    let (status, answer) = post(&format!("Bearer {token}"));
    assert_eq!(status, 500);
    assert!(
        answer.contains(
            "configs[0].job_name: expected a name, found nothing; keeping the previous configuration"
        ),
        "{answer}"
    );
    assert_eq!(job(), ["second"]);

    configure("third");
    let pid = Pid::from_raw(server.pid().cast_signed()).unwrap();
    process::kill_process(pid, process::Signal::HUP).unwrap();
    wait_for("the third configuration", SOON, || {
        (job() == ["third"]).then_some(())
    });
}
