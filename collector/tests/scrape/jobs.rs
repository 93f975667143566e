//! Scrape configurations: requests, discovery and reloads.

use crate::support::{
    Answer, OPENMETRICS, Scraping, TEXT, Target, config, instant, jobs, now, target, tls_file,
    values,
};
use flate2::write::GzEncoder;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use takt_collector::scrape::{FailureReason, ScrapeConfig, TargetHealth};
use takt_model::Matcher;
use takt_store::{SeriesData, is_stale};
use tempfile::tempdir;

fn page(text: &str) -> Answer {
    Answer::Page(TEXT, text.to_owned())
}

fn status(code: &str) -> Answer {
    Answer::Raw(format!("HTTP/1.1 {code}\r\nContent-Length: 0\r\n\r\n").into_bytes())
}

/// Returns the value of a header in a request's head.
fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

#[test]
fn credentials_are_sent_and_read_for_every_request() {
    let folder = tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };

    // The password is wrong at first. The final line break, which editors add, is no part of it.
    let password = file("password", "wrong\n");
    let token = file("token", "t0ken\n");
    let guarded = |expected: &'static str| {
        Target::start(move |head, _| {
            if header(head, "authorization") == Some(expected) {
                page("a 1\n")
            } else {
                status("401 Unauthorized")
            }
        })
    };
    // Base64 of `takt:s3cret`.
    let basic = guarded("Basic dGFrdDpzM2NyZXQ=");
    let bearer = guarded("Bearer t0ken");
    let config = jobs(
        200,
        json!([
            {
                "job_name": "basic",
                "static_configs": [{"targets": [basic.address]}],
                "basic_auth": {"username": "takt", "password_file": password},
            },
            {
                "job_name": "bearer",
                "static_configs": [{"targets": [bearer.address]}],
                "authorization": {"credentials_file": token},
            },
            // `bearer_token_file` is Prometheus' older key for the same header.
            {
                "job_name": "short",
                "static_configs": [{"targets": [bearer.address]}],
                "bearer_token_file": token,
            },
            // A missing file must fail the scrape before a request is sent without credentials.
            {
                "job_name": "none",
                "static_configs": [{"targets": [bearer.address]}],
                "bearer_token_file": folder.path().join("missing"),
            },
        ]),
    );
    let root = tempdir().unwrap();
    let scraping = Scraping::start(root.path(), config);
    // Targets come in the order of the jobs.
    scraping.wait_until("all but the last two jobs answer", |all| {
        let health: Vec<_> = all
            .manager
            .targets()
            .iter()
            .map(|target| target.health)
            .collect();
        health
            == [
                TargetHealth::Down,
                TargetHealth::Up,
                TargetHealth::Up,
                TargetHealth::Down,
            ]
    });
    let targets = scraping.manager.targets();
    assert_eq!(
        targets[0].error.as_deref(),
        Some("the target answered 401 Unauthorized")
    );
    assert_eq!(targets[3].reason, Some(FailureReason::Credentials));
    let error = targets[3].error.as_deref().unwrap();
    assert!(
        error.starts_with("cannot read the credentials: cannot read ") && error.contains("missing"),
        "{error}"
    );

    // Neither a reload nor a restart is needed, because the file is read for every request.
    file("password", "s3cret\n");
    scraping.wait_until("the right password", |all| {
        all.manager.targets()[0].health == TargetHealth::Up
    });
    drop(scraping.stop());
}

#[test]
fn certificates_are_shown_and_checked() {
    let secure = Target::start_tls(|_, _| page("a 1\n"));

    // Records the `Host` header: `server_name` changes the host of the request's URL, but not this header.
    let host = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&host);
    let named = Target::start_tls(move |head, _| {
        *heard.lock().unwrap() = header(head, "host").unwrap_or_default().to_owned();
        page("a 1\n")
    });
    let job = |name: &str, address: SocketAddr, tls: serde_json::Value| {
        json!({
            "job_name": name,
            "scheme": "https",
            "tls_config": tls,
            "static_configs": [{"targets": [address]}],
        })
    };
    let ca = tls_file("ca.pem");
    let cert = tls_file("client.pem");
    let key = tls_file("client.key");
    let config = jobs(
        200,
        json!([
            // The target's name is takt.test, at 127.0.0.1.
            job(
                "good",
                named.address,
                json!({"ca_file": ca, "cert_file": cert, "key_file": key, "server_name": "takt.test"})
            ),
            job(
                "careless",
                secure.address,
                json!({"insecure_skip_verify": true, "cert_file": cert, "key_file": key})
            ),
            job(
                "other name",
                secure.address,
                json!({"ca_file": ca, "cert_file": cert, "key_file": key})
            ),
            job(
                "other authority",
                secure.address,
                json!({"cert_file": cert, "key_file": key, "server_name": "takt.test"})
            ),
            job(
                "no certificate",
                secure.address,
                json!({"ca_file": ca, "server_name": "takt.test"})
            ),
        ]),
    );
    let root = tempdir().unwrap();
    let scraping = Scraping::start(root.path(), config);
    use TargetHealth::{Down, Up};
    scraping.wait_until("each has its answer", |all| {
        let health: Vec<_> = all
            .manager
            .targets()
            .iter()
            .map(|target| target.health)
            .collect();
        health == [Up, Up, Down, Down, Down]
    });

    // The first two jobs are up and have no error to compare.
    let errors: Vec<String> = scraping
        .manager
        .targets()
        .into_iter()
        .skip(2)
        .inspect(|target| assert_eq!(target.reason, Some(FailureReason::Tls)))
        .map(|target| target.error.unwrap().to_lowercase())
        .collect();
    for (error, part) in errors
        .iter()
        .zip(["not valid for name", "unknownissuer", "certificate"])
    {
        assert!(error.contains(part), "{part:?} in {error:?}");
    }
    assert_eq!(
        *host.lock().unwrap(),
        named.address.to_string(),
        "the host is the target's, whatever its name in TLS"
    );
    drop(scraping.stop());
}

#[test]
fn a_missing_certificate_is_named_at_the_start() {
    let root = tempdir().unwrap();
    let empty = root.path().join("empty.pem");
    fs::write(&empty, "").unwrap();

    let scraping = Scraping::start(&root.path().join("data"), config(1000, Vec::new()));
    for (tls, message) in [
        (
            json!({"ca_file": "/none.pem"}),
            "cannot read /none.pem".to_owned(),
        ),
        (
            // An empty file is read without an error, so only the missing PEM block can be reported.
            json!({"ca_file": empty}),
            format!("{} has no certificate in PEM", empty.display()),
        ),
        (
            json!({
                "cert_file": tls_file("client.pem"),
                "key_file": empty,
            }),
            format!(
                "{} has no certificate that goes with its key_file in PEM",
                tls_file("client.pem").display()
            ),
        ),
    ] {
        let config = jobs(1000, json!([{"job_name": "a", "tls_config": tls}]));
        let error = scraping.manager.reload(&config).unwrap_err();
        assert_eq!(error.to_string(), "scrape: job \"a\"");
        assert_eq!(
            std::error::Error::source(&error).unwrap().to_string(),
            message
        );
    }
    drop(scraping.stop());
}

#[test]
fn gzip_is_accepted_if_requested_and_limited_by_decompressed_size() {
    let zipped = |text: &[u8]| {
        let mut zip = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        zip.write_all(text).unwrap();
        zip.finish().unwrap()
    };
    let answering = |body: Vec<u8>| {
        Target::start(move |head, _| {
            assert_eq!(header(head, "accept-encoding"), Some("gzip"));
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {TEXT}\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            Answer::Raw([head.as_bytes(), &body].concat())
        })
    };

    // The bomb is 3 MB of `#` that gzip to a few kilobytes, so a limit on the compressed size would let it pass.
    let good = answering(zipped(b"a 7\n"));
    let bomb = answering(zipped(&vec![b'#'; 3_000_000]));

    // Twelve bytes are the ten of gzip's header and two of the data.
    let cut = answering(zipped(b"a 7\n")[..12].to_vec());
    let job = |name: &str, target: &Target| {
        json!({
            "job_name": name,
            "enable_compression": true,
            "body_size_limit": "1MB",
            "static_configs": [{"targets": [target.address]}],
        })
    };
    let root = tempdir().unwrap();
    let config = jobs(
        200,
        json!([job("good", &good), job("bomb", &bomb), job("cut", &cut)]),
    );
    let scraping = Scraping::start(root.path(), config);
    scraping.wait_until("each has its answer", |all| {
        let reasons: Vec<_> = all
            .manager
            .targets()
            .iter()
            .map(|target| (target.health, target.reason))
            .collect();
        reasons
            == [
                (TargetHealth::Up, None),
                (TargetHealth::Down, Some(FailureReason::TooLarge)),
                (TargetHealth::Down, Some(FailureReason::ContentEncoding)),
            ]
    });

    assert_eq!(instant(&scraping.store, "a")[0].samples[0].value, 7.0);
    drop(scraping.stop());
}

#[test]
fn labels_and_timestamps_are_honoured_where_that_is_asked_for() {
    let target =
        // The sample has the label `job` of its own, an empty `instance`, and a time in 1970 that must be ignored.
        Target::start(|_, _| page("a{job=\"own\",node=\"far\",instance=\"\"} 1 1000\nb 2\n"));
    let job = |name: &str, honor: bool| {
        json!({
            "job_name": name,
            "honor_labels": honor,
            "honor_timestamps": false,
            "static_configs": [{
                "targets": [target.address],
                "labels": {"zone": "z"},
            }],
        })
    };
    let root = tempdir().unwrap();
    let scraping = Scraping::start(
        root.path(),
        jobs(200, json!([job("proud", false), job("humble", true)])),
    );

    scraping.wait_for_health(TargetHealth::Up);
    let address = target.address;

    // An instant query looks back five minutes, so it finds a sample only at the time of the scrape.
    let labels: BTreeSet<String> = instant(&scraping.store, "a")
        .iter()
        .map(|series| series.labels.to_string())
        .collect();
    let expected = [
        r#"a{cluster="lab", job="own", node="far", zone="z"}"#.to_owned(),
        format!(
            r#"a{{cluster="lab", exported_job="own", exported_node="far", instance="{address}", job="proud", node="127.0.0.1", zone="z"}}"#
        ),
    ];
    assert_eq!(labels, expected.into());
    drop(scraping.stop());
}

#[test]
fn series_are_relabelled_and_dropped_ones_cost_nothing() {
    // The counter tells the scrapes apart; `tmp` stands for a label that is used by rules only.
    let target = Target::start(|_, count| {
        page(&format!(
            "keep_me{{x=\"1\",tmp=\"t\"}} {count}\ndrop_me{{x=\"2\"}} 1\ndrop_me{{x=\"3\"}} 1\n"
        ))
    });
    let config = jobs(
        200,
        json!([{
            "job_name": "j",
            // One sample, although the page has three: the limit applies after the rules.
            "sample_limit": 1,
            "static_configs": [{"targets": [target.address]}],
            "metric_relabel_configs": [
                {
                    "source_labels": ["__name__"],
                    "regex": "drop_.*",
                    "action": "drop",
                },
                {"regex": "tmp", "action": "labeldrop"},
                {
                    "source_labels": ["__name__"],
                    "regex": "(.*)_me",
                    "target_label": "__name__",
                },
            ],
        }]),
    );

    let root = tempdir().unwrap();
    let scraping = Scraping::start(root.path(), config);
    scraping.wait_until("two scrapes", |all| {
        values(&all.store, "keep")
            .iter()
            .any(|(_, values)| values.len() > 1)
    });

    assert!(instant(&scraping.store, "drop_me").is_empty());
    let labels = &instant(&scraping.store, "keep")[0].labels;
    assert_eq!(labels.get("x"), Some("1"));
    assert_eq!(labels.get("tmp"), None);

    // Samples on the page, and samples that the rules leave, as Prometheus counts them.
    let report = |name: &str| instant(&scraping.store, name)[0].samples[0].value;
    assert_eq!(report("scrape_samples_scraped"), 3.0);
    assert_eq!(report("scrape_samples_post_metric_relabeling"), 1.0);
    drop(scraping.stop());
}

#[test]
fn a_target_that_renames_its_series_reaches_the_limit() {
    // Ten new series at every scrape, as with a request id in a label.
    let churning = Target::start(|_, count| {
        page(
            &(0..10)
                .map(|number| format!("a{{x=\"{count}-{number}\"}} 1\n"))
                .collect::<String>(),
        )
    });

    let limits = ScrapeConfig {
        series_limit: 36,
        ..config(100, vec![target(churning.address, "g01")])
    };
    let root = tempdir().unwrap();
    let scraping = Scraping::start(root.path(), limits);
    scraping.wait_for_health(TargetHealth::Down);
    // Five series of the scrape itself, and three pages.
    assert_eq!(
        scraping.manager.targets()[0].error.as_deref(),
        Some(
            "line 2: the target has more series than series_limit = 36, recently ended series included"
        )
    );
    assert!(
        instant(&scraping.store, "a").is_empty(),
        "what the failed scrape's page lacks has ended"
    );
    drop(scraping.stop());
}

#[test]
fn a_label_without_a_name_is_no_label() {
    let target = Target::start(|_, count| page(&format!("a{{x=\"1\"}} {count}\n")));

    // The expression has one group, so `$2` is empty and `labelmap` copies `x` to a label without a name.
    let rules = json!([{
        "regex": "(x)",
        "replacement": "$2",
        "action": "labelmap",
    }]);
    let config = jobs(
        200,
        json!([{
            "job_name": "j",
            "static_configs": [{
                // A target's own `job` is not the name of the configuration, which `pool` shows.
                "targets": [target.address],
                "labels": {"job": "other"},
            }],
            "metric_relabel_configs": rules,
        }]),
    );

    let root = tempdir().unwrap();
    let scraping = Scraping::start(root.path(), config);
    scraping.wait_for_health(TargetHealth::Down);
    let target = scraping.manager.targets().remove(0);
    assert_eq!(
        target.error.as_deref(),
        Some("line 1: relabelling left a label without a name")
    );
    assert_eq!(target.reason, Some(FailureReason::Relabelling));
    assert_eq!(target.pool.as_str(), "j");
    drop(scraping.stop());
}

#[test]

fn too_many_targets_are_no_targets() {
    let root = tempdir().unwrap();
    let config = jobs(
        200,
        json!([{
            "job_name": "j",
            "target_limit": 1,
            "static_configs": [{"targets": ["127.0.0.1:1", "127.0.0.1:2"]}],
        }]),
    );

    let scraping = Scraping::start(root.path(), config);
    let targets = scraping.manager.targets();
    assert_eq!(targets.len(), 2);

    let both = |what: &str, is_so: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(
                Instant::now() < deadline,
                "{what}: {:?}",
                scraping.manager.targets()
            );
            thread::sleep(Duration::from_millis(20));
        }
    };
    let error = "the job has more targets than target_limit = 1";
    both("refused", &|| {
        scraping
            .manager
            .targets()
            .iter()
            .all(|target| target.error.as_deref() == Some(error))
    });
    // As in Prometheus: the failure is visible to alerts.
    both("down", &|| {
        instant(&scraping.store, "up")
            .iter()
            .filter(|one| one.samples.last().is_some_and(|last| last.value == 0.0))
            .count()
            == 2
    });

    // A job below its limit is scraped again after the reload, without a restart.
    let fewer = json!([{
        "job_name": "j",
        "target_limit": 1,
        "static_configs": [{"targets": ["127.0.0.1:1"]}],
    }]);
    let fewer = jobs(200, fewer);
    scraping.reload(&fewer);
    both("one that is scraped", &|| {
        // Port 1 has no listener. The attempt itself shows that the limit no longer applies.
        let targets = scraping.manager.targets();
        targets.len() == 1
            && targets[0]
                .error
                .as_deref()
                .is_some_and(|said| said.contains("cannot reach"))
    });
    drop(scraping.stop());
}

fn replace(path: &Path, content: &str) {
    let new = path.with_extension("new");
    fs::write(&new, content).unwrap();
    fs::rename(&new, path).unwrap();
}

fn ends(series: &SeriesData) -> bool {
    series
        .samples
        .last()
        .is_some_and(|sample| is_stale(sample.value))
}

#[test]
fn files_and_servers_provide_targets() {
    let node = Target::start(|_, _| page("a 1\n"));
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let address = node.address;

    // The server gives its list once, fails twice in different ways, and then gives its list again.
    let directory = Target::start(move |head, _| {
        assert!(head.starts_with("GET /targets?of=lab "), "{head}");
        assert_eq!(
            header(head, "x-prometheus-refresh-interval-seconds"),
            Some("0.2")
        );
        match count.fetch_add(1, Ordering::SeqCst) {
            0 | 3.. => Answer::Page(
                "application/json",
                json!([{"targets": [address], "labels": {"from": "http"}}]).to_string(),
            ),
            1 => status("500 Internal Server Error"),
            _ => page("nonsense"),
        }
    });
    let folder = tempdir().unwrap();

    let list = folder.path().join("list.json");
    replace(
        &list,
        &json!([{
            "targets": [address],
            "labels": {"from": "file", "rack": "a"},
        }])
        .to_string(),
    );
    let config = jobs(
        200,
        json!([
            {
                "job_name": "files",
                "file_sd_configs": [{
                    "files": [
                        folder.path().join("*.json"),
                        folder.path().join("more.yml"),
                    ],
                    "refresh_interval": "100ms",
                }],
            },
            {
                "job_name": "server",
                "http_sd_configs": [{
                    "url": format!("http://{}/targets?of=lab", directory.address),
                    "refresh_interval": "200ms",
                }],
            },
        ]),
    );
    let root = tempdir().unwrap();
    let scraping = Scraping::start(root.path(), config);
    let problems = |all: &Scraping| -> Vec<String> {
        let problems = all.manager.discovery_problems().into_iter();
        problems
            // `more.yml` is missing at first, which is a problem of its own that no step here is about.
            .map(|found| format!("{}: {}", found.job, found.problem))
            .filter(|problem| !problem.contains("more.yml"))
            .collect()
    };
    let from = |all: &Scraping| -> Vec<String> {
        let up = all
            .manager
            .targets()
            .into_iter()
            .filter(|target| target.health == TargetHealth::Up);
        up.map(|target| {
            format!(
                "{}{}",
                target.labels.get("from").unwrap_or("?"),
                target.labels.get("rack").unwrap_or_default()
            )
        })
        .collect()
    };
    scraping.wait_until("both are up", |all| from(all) == ["filea", "http"]);
    // After a failed read, the previous list stays in use.
    replace(&list, "[{]");
    scraping.wait_until("the server was asked again", |_| {
        asked.load(Ordering::SeqCst) > 4
    });
    assert_eq!(from(&scraping), ["filea", "http"]);
    scraping.wait_until("the broken file is reported", |all| {
        let of_file = problems(all)
            .into_iter()
            .find(|problem| problem.starts_with("files: "));
        of_file.is_some_and(|problem| problem.contains("list.json: expected a list of targets"))
    });

    // A target without a usable address is reported, and the others of its list are scraped.
    replace(
        &list,
        &json!([{
            "targets": [address, "g02:70000"],
            "labels": {"from": "file", "rack": "b"},
        }])
        .to_string(),
    );
    fs::write(
        folder.path().join("more.yml"),
        format!("- targets: [\"{address}\"]\n  labels: {{from: yaml}}\n"),
    )
    .unwrap();
    scraping.wait_until("the files' new lists", |all| {
        from(all) == ["fileb", "yaml", "http"]
    });
    scraping.wait_until("only the wrong target is reported", |all| {
        let found = problems(all);
        found.len() == 1
            && found[0].starts_with("files: __address__: expected host:port with a port from")
    });
    // The next commit shows it.
    scraping.wait_until("the end of a series whose target is gone", |all| {
        let old = [Matcher::metric("a"), Matcher::equal("rack", "a")];
        ends(
            &all.store
                .range(&old, takt_model::Timestamp(0), now())
                .unwrap()[0],
        )
    });
    fs::remove_file(&list).unwrap();
    scraping.wait_until("the file's targets are gone", |all| {
        from(all) == ["yaml", "http"]
    });

    // The failures counted are the status 500 and the page without JSON.
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &scraping.registry).unwrap();
    assert!(
        text.contains("takt_collector_discovery_failures_total{mechanism=\"http_sd_configs\"} 2"),
        "{text}"
    );
    assert!(text.contains("takt_collector_targets 2"), "{text}");
    drop(scraping.stop());
}

#[test]
fn slurm_provides_targets() {
    let node = Target::start(|_, _| page("a 1\n"));
    let bin = tempdir().unwrap();

    // The stand-in fails for other arguments, so a changed command line fails the test.
    let scontrol = bin.path().join("scontrol");
    // A FUTURE node is only planned: it is listed, but does not exist.
    fs::write(
        &scontrol,
        "#!/bin/sh\n[ \"$*\" = '--oneliner show nodes' ] || exit 1\n\
         echo 'NodeName=g01 NodeAddr=127.0.0.1 State=IDLE Partitions=gpu'\n\
         echo 'NodeName=g02 NodeAddr=127.0.0.1 State=FUTURE Partitions=gpu'\n",
    )
    .unwrap();
    fs::set_permissions(&scontrol, PermissionsExt::from_mode(0o755)).unwrap();
    let config = jobs(
        200,
        json!([{
            "job_name": "nodes",
            "slurm_sd_configs": [{
                "port": node.address.port(),
                "slurm_bin": bin.path(),
            }],
            "relabel_configs": [{
                "source_labels": ["__meta_slurm_node_state"],
                "regex": "FUTURE.*",
                "action": "drop",
            }],
        }]),
    );

    let root = tempdir().unwrap();
    let scraping = Scraping::start(root.path(), config);
    scraping.wait_for_health(TargetHealth::Up);
    let targets = scraping.manager.targets();
    assert_eq!(
        targets
            .iter()
            .map(|target| target.labels.get("node"))
            .collect::<Vec<_>>(),
        [Some("g01")]
    );
    assert_eq!(scraping.manager.dropped().len(), 1);
    drop(scraping.stop());
}

#[test]
fn a_reload_disturbs_only_what_it_changes() {
    let counting = || {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let target = Target::start(move |head, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            assert!(header(head, "accept").is_some_and(|accept| accept.contains("openmetrics")));
            Answer::Page(OPENMETRICS, "a 1\n# EOF\n".to_owned())
        });
        (target, count)
    };
    let stays = counting();
    let changes = counting();
    let goes = counting();
    let comes = counting();
    let job = |name: &str, target: &Target, interval: &str| {
        json!({
            "job_name": name,
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "static_configs": [{"targets": [target.address]}],
        })
    };

    // An hour would outlast the test, so `changes` is up only if its new interval counts at once.
    let before = jobs(
        100,
        json!([
            job("stays", &stays.0, "100ms"),
            job("changes", &changes.0, "1h"),
            job("goes", &goes.0, "100ms"),
        ]),
    );
    let before = ScrapeConfig {
        targets: vec![
            target(stays.0.address, "listed"),
            target(goes.0.address, "listed too"),
        ],
        ..before
    };

    // The order differs, too: a job is recognised by its name, not by its position.
    let after = jobs(
        100,
        json!([
            job("comes", &comes.0, "100ms"),
            job("changes", &changes.0, "100ms"),
            job("stays", &stays.0, "100ms"),
        ]),
    );
    let after = ScrapeConfig {
        targets: vec![target(stays.0.address, "listed")],
        ..after
    };

    let root = tempdir().unwrap();
    let scraping = Scraping::start(root.path(), before);
    let up = |all: &Scraping| {
        all.manager
            .targets()
            .into_iter()
            .filter(|target| target.health == TargetHealth::Up)
            .map(|target| target.labels.get("job").unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    scraping.wait_until("all but the slow one are up", |all| {
        up(all) == ["node", "node", "stays", "goes"]
    });
    scraping.reload(&after);
    scraping.wait_until("those of the new configuration are up", |all| {
        up(all) == ["node", "comes", "changes", "stays"]
    });
    let whole = |name: &str, value: &str| {
        let matchers = [Matcher::metric("up"), Matcher::equal(name, value)];
        // The next commit contains the last samples of a removed target.
        scraping.store.flush();
        scraping
            .store
            .range(&matchers, takt_model::Timestamp(0), now())
            .unwrap()
            .remove(0)
    };

    // A stale marker in a target that stays would be a gap in each graph at each reload.
    for (name, value, ended) in [
        ("job", "stays", false),
        ("node", "listed", false),
        ("job", "goes", true),
        ("node", "listed too", true),
    ] {
        scraping.wait_until("the markers are written", |_| {
            ends(&whole(name, value)) == ended
        });
        let breaks = whole(name, value)
            .samples
            .iter()
            .filter(|sample| is_stale(sample.value))
            .count();
        assert_eq!(breaks, usize::from(ended), "{value}");
    }

    let asked = goes.1.load(Ordering::SeqCst);
    let stayed = stays.1.load(Ordering::SeqCst);
    scraping.wait_until("more scrapes", |_| {
        stays.1.load(Ordering::SeqCst) > stayed + 6
    });
    assert_eq!(
        goes.1.load(Ordering::SeqCst),
        asked,
        "what is gone is not asked any more"
    );
    drop(scraping.stop());
}

/// It stayed, and counted as up, until a list of the same job was read.
#[test]
fn a_target_that_left_the_configuration_ends_while_another_list_is_missing() {
    let serve = || Target::start(|_, _| page("a 1\n"));
    let (stays, goes) = (serve(), serve());
    let with = |targets: &[&Target]| {
        let addresses: Vec<_> = targets.iter().map(|target| target.address).collect();
        jobs(
            100,
            json!([{
                "job_name": "node",
                "static_configs": [{"targets": addresses}],
                "slurm_sd_configs": [{"slurm_bin": "/nowhere"}],
            }]),
        )
    };
    let up = |all: &Scraping| {
        let targets = all.manager.targets().into_iter();
        targets
            .filter(|target| target.health == TargetHealth::Up)
            .count()
    };

    let root = tempdir().unwrap();
    let scraping = Scraping::start(root.path(), with(&[&stays, &goes]));
    scraping.wait_until("both are up", |all| up(all) == 2);
    scraping.reload(&with(&[&stays]));
    scraping.wait_until("one is left", |all| all.manager.targets().len() == 1);
    scraping.wait_until("it is up", |all| up(all) == 1);
    drop(scraping.stop());
}
