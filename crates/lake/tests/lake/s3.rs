//! A lake on a real S3 server, also while the server fails.

use crate::engines;
use crate::lab::{DAY, HOUR, Lab, MONTH};
use crate::s3_server::{Fate, KEYS, Request, S3};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use takt_lake::{LakeConfig, LakeError, S3Config};

/// Starts a server. `None` if it is not installed.
fn start(test: &str) -> Option<S3> {
    let _ = ring::default_provider().install_default();
    let python = crate::environment(test, "lake-s3", "scripts/lake-engines.sh exam")?;
    Some(S3::moto(&python))
}

/// Starts each server that is installed.
pub fn start_all(test: &str) -> Vec<S3> {
    let versity = crate::environment(test, "lake-versity", "scripts/lake-engines.sh exam");
    let versity = versity.map(|python| S3::versity(&python.with_file_name("versitygw")));
    start(test).into_iter().chain(versity).collect()
}

impl Lab {
    /// A store whose lake is on S3.
    fn on_s3(s3: &S3) -> Self {
        let mut lab = Self::new();
        lab.use_s3(s3.endpoint());
        lab
    }

    /// Configures a lake on the S3 of this URL.
    pub fn use_s3(&mut self, endpoint: String) {
        let keys = self.folder().join("keys");
        let [id, secret] = KEYS;
        let text = format!("[default]\naws_access_key_id = {id}\naws_secret_access_key={secret}\n");
        fs::write(&keys, text).unwrap();
        self.config.path = Some("s3://lake/of/lab".into());
        self.config.s3 = S3Config {
            endpoint: Some(endpoint),
            credentials_file: Some(keys),
            // The servers of the tests have no TLS.
            allow_http: true,
            ..S3Config::default()
        };
        self.config.validate().unwrap();
    }

    fn correct(&self, hour: i64) {
        self.import(
            "1",
            MONTH + DAY + 9 * HOUR,
            Some(MONTH + 2 * DAY + hour * HOUR),
        );
    }
}

#[test]
fn a_lake_on_s3_is_written_corrected_and_verified() {
    for s3 in start_all("a_lake_on_s3_is_written_corrected_and_verified") {
        written_corrected_and_verified(&s3);
    }
}

fn written_corrected_and_verified(s3: &S3) {
    let mut lab = Lab::on_s3(s3);
    lab.config.checkpoint_commits = 2;
    lab.round();
    let files = s3.files();
    assert!(
        files.contains(&"of/lab/takt-lake.json".to_owned()),
        "{files:?}"
    );
    let checkpoint = "of/lab/usage/_delta_log/00000000000000000001.checkpoint.parquet";
    assert!(files.contains(&checkpoint.to_owned()), "{files:?}");
    assert_eq!(lab.verify(), [""; 0]);
    assert_eq!(lab.status().tables[0].rows, lab.samples());
    assert_eq!(lab.status().path, PathBuf::from("s3://lake/of/lab"));
    let before = lab.round();
    assert!(
        before
            .tables
            .iter()
            .all(|table| table.files == 0 && table.removed == 0)
    );

    lab.correct(11);
    lab.round();
    assert_eq!(lab.version("usage"), 2);
    assert_eq!(lab.verify(), [""; 0]);
    // The replaced file goes after the grace, the lake's own retention works.
    let parquet = |table: &str| {
        let of_table = format!("of/lab/{table}/");
        s3.files()
            .into_iter()
            .filter(|name| name.starts_with(&of_table) && !name.contains("_delta_log"))
            .count()
    };
    assert_eq!(parquet("job_runs"), 2);

    lab.later(25 * HOUR);
    lab.config.retention_days = 1;
    lab.round();
    assert_eq!(parquet("job_runs"), 1);
    assert_eq!(lab.status().tables[0].rows, 0);
    lab.later(25 * HOUR);
    lab.round();
    assert_eq!(parquet("samples"), 0);
    assert_eq!(lab.verify(), [""; 0]);

    let left: Vec<_> = fs::read_dir(lab.data())
        .unwrap()
        .flatten()
        .map(|file| file.file_name().into_string().unwrap())
        .collect();
    assert!(
        !left.iter().any(|name| name.starts_with("lake-reading")),
        "{left:?}"
    );
}

/// Other engines read the lake on S3. They have the numbers of the report and of the server's SQL.
#[test]
fn engines_read_the_lake_on_s3() {
    let test = "engines_read_the_lake_on_s3";
    let Some(python) = crate::environment(test, "lake-venv", "scripts/lake-engines.sh") else {
        return;
    };
    for s3 in start_all(test) {
        read_by_engines(test, &s3, &python);
    }
}

fn read_by_engines(test: &str, s3: &S3, python: &Path) {
    let mut lab = Lab::on_s3(s3);
    lab.end_all();
    lab.config.checkpoint_commits = 2;
    lab.round();
    lab.correct(12);
    lab.round();
    // Past the failing connection, which is for Takt's requests only.
    let endpoint = s3.own_endpoint();
    let keys = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", KEYS[0]),
        ("AWS_SECRET_ACCESS_KEY", KEYS[1]),
    ];
    let in_process = ["delta-rs", "polars", "clickhouse"];
    let address = "s3://lake/of/lab";
    let answers = engines::ask(python, &lab, address, &in_process, &keys);
    let page = &answers["delta-rs"]["page"];
    engines::check_page(&lab, page, "s3");
    engines::check(&lab, &answers, &in_process, page, "s3");
    for (engine, name) in engines::OWN_PROCESS {
        let python = crate::environment(test, name, "scripts/lake-engines.sh exam");
        if let Some(python) = python {
            let answers = engines::ask(&python, &lab, address, &[engine], &keys);
            engines::check(&lab, &answers, &[engine], page, "s3");
        }
    }
}

/// Rounds at the server's times of repetition while S3 answers 503 for an hour.
#[test]
fn an_hour_of_503_harms_nothing() {
    let Some(s3) = start("an_hour_of_503_harms_nothing") else {
        return;
    };
    let lab = Lab::on_s3(&s3);
    lab.round();
    let before = s3.files();
    let rows = lab.status();
    let samples = lab.samples();
    lab.correct(11);
    s3.judge(|_| Fate::Refuse);
    // Every five minutes, as the server repeats a failed round.
    for round in 0..12 {
        let error = lab.try_round(&lab.config, false).unwrap_err();
        let text = takt_model::error_chain(&error);
        assert!(
            text.contains("cannot read s3://lake/of/lab/takt-lake.json"),
            "{text}"
        );
        assert!(text.contains("503"), "round {round}: {text}");
        lab.later(300);
    }
    let state = takt_lake::LakeState::read(&lab.data());
    assert!(state.error.contains("503"), "{state:?}");
    assert!(state.succeeded_at < state.tried_at, "{state:?}");
    assert_eq!(s3.files(), before);
    assert_eq!(lab.samples(), samples);

    s3.judge(|_| Fate::Pass);
    assert_eq!(lab.status().tables, rows.tables);
    lab.round();
    assert_eq!(lab.verify(), [""; 0]);
    assert_eq!(lab.version("job_runs"), 2);
}

/// A server that is busy now and then does not end a round.
#[test]
fn a_busy_server_is_asked_again() {
    let Some(s3) = start("a_busy_server_is_asked_again") else {
        return;
    };
    let lab = Lab::on_s3(&s3);
    s3.judge(|request| match request.number % 3 {
        0 => Fate::Refuse,
        _ => Fate::Pass,
    });
    lab.round();
    assert_eq!(lab.verify(), [""; 0]);
}

/// Puts whose connection ends in the middle of the body, once each, and again and again.
#[test]
fn a_put_that_is_cut_off_leaves_no_part_of_a_file() {
    for s3 in start_all("a_put_that_is_cut_off_leaves_no_part_of_a_file") {
        cut_off(&s3);
    }
}

fn cut_off(s3: &S3) {
    let lab = Lab::on_s3(s3);
    let cut = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&cut);
    // Each file once.
    let mut seen = BTreeSet::new();
    s3.judge(move |request| {
        if request.method == "PUT" && seen.insert(request.target.clone()) {
            count.fetch_add(1, Ordering::Relaxed);
            Fate::Cut
        } else {
            Fate::Pass
        }
    });

    lab.round();
    assert!(cut.load(Ordering::Relaxed) > 20);
    assert_eq!(lab.verify(), [""; 0]);
    // A link that fails whenever a file of a table is sent.
    lab.correct(11);
    let old = (lab.version("job_runs"), s3.files());
    s3.judge(
        |request| match request.target.contains(".parquet") && request.method == "PUT" {
            true => Fate::Cut,
            false => Fate::Pass,
        },
    );
    let done = lab.try_round(&lab.config, false).unwrap();
    assert!(
        done.error()
            .contains("cannot write s3://lake/of/lab/job_runs/month="),
        "{done:?}"
    );
    assert_eq!((lab.version("job_runs"), s3.files()), old);
    s3.judge(|_| Fate::Pass);
    lab.round();
    assert_eq!(lab.verify(), [""; 0]);
}

/// The server takes a commit, and its reply is lost: always, or together with the repetition's.
#[test]
fn a_lost_reply_of_a_commit_makes_no_second_one() {
    for s3 in start_all("a_lost_reply_of_a_commit_makes_no_second_one") {
        lost_reply(&s3);
    }
}

fn lost_reply(s3: &S3) {
    let lab = Lab::on_s3(s3);
    let lost = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lost);
    s3.judge(move |request| {
        if request.is_conditional && request.target.contains("_delta_log") {
            count.fetch_add(1, Ordering::Relaxed);
            Fate::Lose
        } else {
            Fate::Pass
        }
    });
    lab.round();
    // Seven tables with two commits each.
    assert!(lost.load(Ordering::Relaxed) >= 14, "{lost:?}");
    for table in lab.status().tables {
        assert_eq!(table.version, Some(1), "{table:?}");
    }
    // Nothing answers after the commit: the round cannot know, and the next one finds it.
    lab.correct(11);
    let is_gone = AtomicBool::new(false);
    s3.judge(move |request| {
        if is_gone.load(Ordering::Relaxed) {
            return Fate::Refuse;
        }
        if request.is_conditional && request.target.contains("job_runs/_delta_log") {
            is_gone.store(true, Ordering::Relaxed);
            return Fate::Lose;
        }
        Fate::Pass
    });
    let done = lab.try_round(&lab.config, false).unwrap();
    assert!(
        done.error().contains("00000000000000000002.json"),
        "{done:?}"
    );
    s3.judge(|_| Fate::Pass);
    assert_eq!(lab.version("job_runs"), 2, "the server had taken it");
    let done = lab.round();
    let job_runs = &done.tables[3];
    assert_eq!((job_runs.files, job_runs.removed), (0, 0));
    assert_eq!(lab.version("job_runs"), 2);
    assert_eq!(lab.verify(), [""; 0]);
}

/// The first reply to each request is lost, also to reads and deletions.
#[test]
fn each_reply_may_be_lost_once() {
    for s3 in start_all("each_reply_may_be_lost_once") {
        let mut lab = Lab::on_s3(&s3);
        lab.config.checkpoint_commits = 2;
        lab.round();
        lab.correct(11);
        lab.round();
        // Files that were replaced are deleted.
        lab.later(25 * HOUR);
        lab.correct(12);
        let lost = Arc::new(Mutex::new(std::collections::BTreeMap::new()));
        let log = Arc::clone(&lost);
        s3.judge(move |request| {
            let mut lost = log.lock().unwrap();
            let times: &mut u32 = lost
                .entry((request.method.clone(), request.target.clone()))
                .or_default();
            *times += 1;
            if *times == 1 { Fate::Lose } else { Fate::Pass }
        });
        lab.round();
        s3.judge(|_| Fate::Pass);
        for method in ["GET", "PUT", "DELETE"] {
            let lost = lost.lock().unwrap();
            assert!(
                lost.keys().any(|(of, _)| of == method),
                "{method}: {lost:?}"
            );
        }
        assert_eq!(lab.verify(), [""; 0]);
        assert_eq!(lab.version("job_runs"), 3);
    }
}

/// The round ends at each request in turn, as if its machine had been switched off. Readers see the old
/// version of a table or the new one, and the next round completes the lake.
#[test]
fn a_round_may_end_at_any_request() {
    let Some(s3) = start("a_round_may_end_at_any_request") else {
        return;
    };
    let mut lab = Lab::on_s3(&s3);
    lab.config.checkpoint_commits = 2;
    lab.config.replaced_hours = 1;
    lab.round();
    // A request that cannot succeed is repeated for some seconds, so not each is tried;
    // `a_round_on_s3_may_be_killed_at_any_request` does.
    for last in (2..400_i64).step_by(11) {
        // Another hour of the run each time, and old files to delete.
        lab.later(2 * HOUR);
        lab.correct(11 + last % 48);
        let start = lab.status().tables;
        let mut left = last;
        s3.judge(move |_| {
            left -= 1;
            match left {
                ..0 => Fate::Refuse,
                0 => Fate::Lose,
                _ => Fate::Pass,
            }
        });
        let done = lab.try_round(&lab.config, false);
        s3.judge(|_| Fate::Pass);
        let is_complete = done.as_ref().is_ok_and(|done| done.error().is_empty());
        for (old, new) in start.iter().zip(lab.status().tables) {
            let commits = new.version.unwrap() - old.version.unwrap();
            assert!(commits <= 2, "{old:?} {new:?}");
        }
        let findings = lab.verify();
        let is_old = |finding: &String| finding.contains("the next round writes");
        assert!(findings.iter().all(is_old), "request {last}: {findings:?}");
        lab.round();
        assert_eq!(lab.verify(), [""; 0], "request {last}");
        if is_complete {
            assert!(last > 30, "only {last} requests");
            return;
        }
    }
    panic!("a round makes more than 400 requests");
}

#[test]
fn two_writers_lose_no_commit() {
    let Some(s3) = start("two_writers_lose_no_commit") else {
        return;
    };
    let lab = Lab::on_s3(&s3);
    let mut other = Lab::on_s3(&s3);
    lab.round();
    let error = other.try_round(&other.config, false).unwrap_err();
    assert!(matches!(error, LakeError::Foreign { .. }), "{error}");
    // The other one takes the lake over after this one has looked, and before it commits.
    lab.correct(11);
    other.correct(12);
    let config = LakeConfig {
        s3: S3Config {
            endpoint: Some(s3.own_endpoint()),
            ..other.config.s3.clone()
        },
        ..other.config.clone()
    };
    other.config = config;
    let other = Arc::new(other);
    let taken = Arc::clone(&other);
    let mut is_taken = false;
    s3.judge(move |request| {
        let is_commit = request.is_conditional && request.target.contains("job_runs/_delta_log");
        if is_commit && !is_taken {
            is_taken = true;
            taken.try_round(&taken.config, true).unwrap();
        }
        Fate::Pass
    });
    let done = lab.try_round(&lab.config, false).unwrap();
    let error = done.error();
    assert!(error.contains("another program has written"), "{error}");
    assert!(
        error.contains("another data directory writes the data lake"),
        "{error}"
    );
    assert_eq!(other.version("job_runs"), 2);
    assert_eq!(other.verify(), [""; 0]);
    let error = lab.try_round(&lab.config, false).unwrap_err();
    assert!(matches!(error, LakeError::Foreign { .. }), "{error}");
}

/// A server that ignores `If-None-Match` would let two writers lose commits. VersityGW checks the signature of
/// the header, which is removed here, so only moto can stand in.
#[test]
fn a_server_without_conditional_puts_is_refused() {
    let Some(s3) = start("a_server_without_conditional_puts_is_refused") else {
        return;
    };
    let ignore = |request: &Request| match request.is_conditional {
        true => Fate::Unconditional,
        false => Fate::Pass,
    };
    let lab = Lab::on_s3(&s3);
    let refused = || {
        let error = lab.try_round(&lab.config, false).unwrap_err();
        assert!(matches!(error, LakeError::Unconditional { .. }), "{error}");
    };
    // From the first round on: only the name of the writer is there.
    s3.judge(ignore);
    for _ in 0..2 {
        refused();
        assert_eq!(s3.files(), ["of/lab/takt-lake.json"]);
    }
    s3.judge(|_| Fate::Pass);
    lab.round();
    assert_eq!(lab.verify(), [""; 0]);
    // From a later round on: nothing changes.
    let (tables, files) = (lab.status().tables, s3.files());
    lab.correct(11);
    s3.judge(ignore);
    refused();
    s3.judge(|_| Fate::Pass);
    assert_eq!((lab.status().tables, s3.files()), (tables, files));
    lab.round();
    assert_eq!(lab.version("job_runs"), 2);
    assert_eq!(lab.verify(), [""; 0]);
}

#[test]
fn keys_are_needed() {
    let Some(s3) = start("keys_are_needed") else {
        return;
    };
    let mut lab = Lab::on_s3(&s3);
    fs::write(
        lab.folder().join("keys"),
        "[default]\naws_access_key_id = me\n",
    )
    .unwrap();
    let error = lab.try_round(&lab.config, false).unwrap_err().to_string();
    assert!(
        error.contains("keys has no aws_secret_access_key"),
        "{error}"
    );
    lab.config.s3.credentials_file = Some(lab.folder().join("none"));
    let error = lab.try_round(&lab.config, false).unwrap_err().to_string();
    assert!(error.contains("none: No such file"), "{error}");
    assert!(
        error.contains("set credentials_file in [lake.s3]"),
        "{error}"
    );
}
