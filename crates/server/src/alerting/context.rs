//! Additional annotations of a message: the GPU, its jobs, and the values that the rule compared in
//! the last hour.

use super::outside::at_once;
use std::time::{Duration, Instant};
use takt_alerts::ports::ComparedValues;
use takt_jobs::JobRun;
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_promql::{Limits, Options, Value, quoted};
use takt_questions::sparkline;

/// Maximum time for gathering the annotations: the message waits for them.
const TIMEOUT: Duration = Duration::from_millis(300);

/// Time range of the bars.
const HOUR: Duration = Duration::from_secs(3600);

/// Time per bar.
const STEP: Duration = Duration::from_secs(120);

/// Maximum number of jobs in the annotation.
const JOBS_MAX: usize = 5;

/// Returns the annotations of an alert that began at `since`. `run_of` returns the newest run of a
/// job, by the number that the exporter reports.
pub fn context(
    source: &dyn takt_promql::Source,
    run_of: &dyn Fn(&str) -> Option<JobRun>,
    compared: Option<ComparedValues<'_>>,
    labels: &Labels,
    since: Timestamp,
    at: Timestamp,
) -> Vec<(String, String)> {
    let gpu = gpu(source, labels, at).map(|text| ("gpu".to_owned(), text));
    let jobs = jobs(source, run_of, labels, since).map(|text| ("jobs".to_owned(), text));
    let picture = compared
        .and_then(|compared| last_hour(source, compared, labels, at))
        .map(|text| ("last_hour".to_owned(), text));
    gpu.into_iter().chain(jobs).chain(picture).collect()
}

/// Returns whether the newest record of a job's number can be of the job of this user. Numbers come round again, so it may be
/// of an older one. A node without the user's name shows the uid.
pub fn is_of(run: &JobRun, user: &str) -> bool {
    is_number(user) || run.user == user
}

/// Returns whether a user's name is missing, or a uid in place of a name.
pub fn is_number(user: &str) -> bool {
    user.bytes().all(|byte| byte.is_ascii_digit())
}

/// Formats a job as number, name and user: `42 (train) of ada`.
pub fn job_words(run: &JobRun) -> String {
    let name = run.name.as_ref().filter(|name| !name.is_empty());
    let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
    format!("{}{name} of {}", run.job_id, run.user)
}

/// Index of a GPU.
pub fn gpu_index(
    source: &dyn takt_promql::Source,
    labels: &Labels,
    at: Timestamp,
) -> Option<String> {
    gpu_info(source, labels, at)?
        .get("index")
        .filter(|index| !index.is_empty())
        .map(str::to_owned)
}

/// Labels of the GPU's `takt_gpu_info`; those of a lost GPU are from the last hour.
fn gpu_info(source: &dyn takt_promql::Source, labels: &Labels, at: Timestamp) -> Option<Labels> {
    let node = labels.get("node")?;
    let device = match (labels.get("uuid"), labels.get("pci_bus_id")) {
        (Some(uuid), _) => format!("uuid={}", quoted(uuid)),
        (None, Some(address)) => format!("pci_bus_id={}", quoted(address)),
        (None, None) => return None,
    };
    // A lost GPU has no such series now, but its slot and serial number are what a person needs.
    let expr = format!(
        "last_over_time(takt_gpu_info{{node={},{device}}}[1h])",
        quoted(node)
    );
    at_once(source, &expr, at)
        .ok()?
        .into_iter()
        .next()
        .map(|(info, _)| info)
}

/// Describes the GPU by its known properties: index, slot (PCI address), model and serial number.
fn gpu(source: &dyn takt_promql::Source, labels: &Labels, at: Timestamp) -> Option<String> {
    let info = gpu_info(source, labels, at)?;

    let known = |name: &str| info.get(name).filter(|value| !value.is_empty());
    let parts = [
        known("index").map(|index| format!("GPU {index}")),
        known("pci_bus_id").map(|address| format!("slot {address}")),
        known("model").map(str::to_owned),
        known("serial").map(|serial| format!("serial number {serial}")),
        known("uuid").map(str::to_owned),
    ];
    Some(parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// Returns the jobs on the GPU or node. A node that is down reports none, so its jobs are those of
/// its last report within five minutes. Of an alert about one user, only that user's: it is mailed to the user,
/// who need not know what others run beside it.
fn jobs(
    source: &dyn takt_promql::Source,
    run_of: &dyn Fn(&str) -> Option<JobRun>,
    labels: &Labels,
    since: Timestamp,
) -> Option<String> {
    let label = |name: &str| labels.get(name);
    let expr = match (label("jobid"), label("node"), label("uuid")) {
        (None, Some(node), Some(uuid)) => {
            let node = quoted(node);
            let uuid = quoted(uuid);
            format!("takt_gpu_job_info{{node={node},uuid={uuid}}}")
        }
        (None, Some(node), None) => {
            // The newest time of each series; a job that ended earlier has an older one.
            let node = quoted(node);
            format!("max_over_time(timestamp(takt_job_info{{node={node}}})[5m:5s])")
        }
        _ => return None,
    };

    let mut found = at_once(source, &expr, since).ok()?;

    // A job that ended before the last report has an older newest time than the others.
    let newest = found.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let is_meant = |of: &Labels| label("user").is_none_or(|user| of.get("user") == Some(user));
    found.retain(|(labels, value)| *value >= newest && is_meant(labels));

    let mut ids: Vec<(&str, &str)> = found
        .iter()
        .filter_map(|(labels, _)| Some((labels.get("jobid")?, labels.get("user").unwrap_or(""))))
        .collect();
    // Several GPUs of a job name it several times.
    ids.sort_unstable();
    ids.dedup();

    let named: Vec<String> = ids
        .iter()
        .take(JOBS_MAX)
        .map(|(id, user)| match run_of(id) {
            Some(run) if is_of(&run, user) => job_words(&run),
            Some(_) => format!("{id} of {user}"),
            None if user.is_empty() => format!("{id} of an unknown user"),
            None => format!("{id} of {user}"),
        })
        .collect();

    let more = match ids.len().saturating_sub(JOBS_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!named.is_empty()).then(|| named.join(", ") + &more)
}

/// Returns bars with the minimum and maximum, in the unit of the rule's texts. `None` unless the alert is about exactly one series,
/// or if the series is a flag of 0 and 1.
fn last_hour(
    source: &dyn takt_promql::Source,
    compared: ComparedValues<'_>,
    labels: &Labels,
    at: Timestamp,
) -> Option<String> {
    let measured = takt_promql::measured(compared.expr, labels.get("node"))?;
    // The message waits, so the picture is left out if it takes too long.
    let limits = Limits {
        deadline: Some(Instant::now() + TIMEOUT),
        ..Limits::default()
    };

    let from = at.minus(HOUR);
    let step = i64::try_from(STEP.as_millis()).ok()?;
    let options = Options {
        limits,
        lazy: true,
        ..Options::default()
    };
    let Value::Matrix(series) = takt_promql::range(source, &measured, from, at, step, &options)
        .ok()?
        .value
    else {
        return None;
    };

    // The rule may compare several series. Only those whose labels the alert has are meant.
    let is_meant = |of: &Labels| {
        of.iter()
            .all(|(name, value)| name == METRIC_NAME || labels.get(name) == Some(value))
    };
    let mut meant = series.iter().filter(|series| is_meant(&series.labels));
    let (Some(series), None) = (meant.next(), meant.next()) else {
        return None;
    };

    let points: Vec<_> = series
        .points
        .iter()
        .filter(|point| point.value.is_finite())
        .collect();
    let (least, most) = points.iter().fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, most), point| (least.min(point.value), most.max(point.value)),
    );

    // Fewer than three values are no picture, and a flag of 0 and 1 is said by the alert itself.
    if points.len() < 3
        || points
            .iter()
            .all(|point| point.value == 0.0 || point.value == 1.0)
    {
        return None;
    }

    // A bar for each step, also where a value is missing.
    let steps = (0..)
        .map(|n| from.plus_ms(n * step))
        .take_while(|instant| *instant <= at);
    let values = steps.map(|instant| {
        points
            .iter()
            .find(|point| point.at == instant)
            .map(|point| point.value)
    });

    let bars = sparkline::bars(values, least, most);
    let shown = |value: f64| match compared.are_percentages {
        true => sparkline::number(value * 100.0) + "%",
        false => sparkline::number(value),
    };
    let [least, most, last] = [least, most, points.last()?.value].map(shown);
    Some(format!("{bars} {least} to {most}, now {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_promql::Memory;

    /// Labels of a series and its value at each sample.
    type TestSeries<'a> = (&'a [(&'a str, &'a str)], &'a dyn Fn(i64) -> Option<f64>);

    fn source(series: &[TestSeries<'_>]) -> Memory {
        let mut source = Memory::new();

        for (labels, value) in series {
            source.add(
                labels.iter().copied().collect(),
                // One sample each 15 seconds, for an hour.
                (0..=240).filter_map(|n| Some((Timestamp(n * 15_000), Some(value(n)?)))),
            );
        }
        source
    }

    const AT: Timestamp = Timestamp(3_600_000);

    #[test]
    fn the_last_hour_shows_the_values_that_the_rule_compares() {
        let source = source(&[
            (
                &[("__name__", "heat"), ("node", "g01"), ("gpu", "0")],
                &|n| (n > 120).then_some(n as f64 / 2.0),
            ),
            (
                &[("__name__", "heat"), ("node", "g01"), ("gpu", "1")],
                &|_| Some(3.0),
            ),
            (
                &[("__name__", "heat"), ("node", "g02"), ("gpu", "0")],
                &|_| Some(7.0),
            ),
            (
                &[("__name__", "flag"), ("node", "g01"), ("gpu", "0")],
                &|n| Some(f64::from(u8::from(n > 200))),
            ),
        ]);
        let of = |expr: &str, labels: &[(&str, &str)]| {
            let compared = ComparedValues {
                expr,
                are_percentages: false,
            };
            last_hour(&source, compared, &labels.iter().copied().collect(), AT)
        };

        let hot = [
            ("alertname", "Hot"),
            ("node", "g01"),
            ("gpu", "0"),
            ("severity", "warning"),
        ];

        // The second half of the hour has values: the first bars are empty.
        let said = of("heat > 90 unless nothing", &hot).unwrap();
        assert!(
            said.starts_with("               ") && said.ends_with("█ 64 to 120, now 120"),
            "{said:?}"
        );
        assert_eq!(
            said.chars().take_while(|c| *c != '6').count(),
            32,
            "{said:?}"
        );
        assert_eq!(of("flag == 1", &hot), None, "a switch");
        assert_eq!(of("heat > 90", &[("node", "g01")]), None, "which of two?");
        assert_eq!(of("vector(1)", &hot), None);
        assert_eq!(of("nothing > 1", &hot), None);
    }

    #[test]
    fn the_last_hour_has_the_unit_of_the_rule_s_text() {
        let source = source(&[(&[("__name__", "free"), ("node", "g01")], &|n| {
            Some(if n < 200 { 0.0413 } else { 0.02582 })
        })]);
        let compared = ComparedValues {
            expr: "free < 0.05",
            are_percentages: true,
        };
        let labels = [("node", "g01")].into_iter().collect();
        let said = last_hour(&source, compared, &labels, AT).unwrap();
        assert!(said.ends_with(" 2.582% to 4.13%, now 2.582%"), "{said}");
    }

    #[test]
    fn a_gpu_is_described_as_it_is_found_in_the_machine() {
        let source = source(&[(
            &[
                ("__name__", "takt_gpu_info"),
                ("node", "g01"),
                ("uuid", "GPU-1"),
                ("index", "3"),
                ("pci_bus_id", "0000:41:00.0"),
                ("model", "NVIDIA GeForce RTX 5090"),
                ("serial", "1654620000004"),
            ],
            &|n| (n < 100).then_some(1.0),
        )]);

        let of = |labels: &[(&str, &str)]| gpu(&source, &labels.iter().copied().collect(), AT);
        let words = "GPU 3, slot 0000:41:00.0, NVIDIA GeForce RTX 5090, serial number 1654620000004, \
                     GPU-1";
        assert_eq!(
            of(&[("node", "g01"), ("uuid", "GPU-1")]).as_deref(),
            Some(words),
            "although it is lost since half an hour"
        );
        assert_eq!(
            of(&[("node", "g01"), ("pci_bus_id", "0000:41:00.0")]).as_deref(),
            Some(words)
        );
        assert_eq!(of(&[("node", "g01"), ("uuid", "GPU-2")]), None);
        assert_eq!(of(&[("node", "g01")]), None, "about no GPU");
    }

    #[test]
    fn jobs_on_the_gpu_are_named() {
        // Two jobs more than a message names.
        let held: Vec<_> = (1..=7).map(|n| (format!("{n}"), format!("u{n}"))).collect();
        let mut all = vec![(
            vec![
                ("__name__", "takt_gpu_job_info"),
                ("node", "g01"),
                ("uuid", "GPU-1"),
                ("jobid", "42"),
                ("user", "ada"),
            ],
            1.0,
        )];

        for (job, user) in &held {
            all.push((
                vec![
                    ("__name__", "takt_job_info"),
                    ("node", "g01"),
                    ("jobid", job),
                    ("user", user),
                ],
                1.0,
            ));
        }

        let mut source = Memory::new();
        for (labels, value) in all {
            source.add(
                labels.into_iter().collect(),
                [(Timestamp(3_500_000), Some(value))],
            );
        }

        // Slurm's records have the number of an array's task, and the name.
        let run_of = |id: &str| {
            (id == "3").then(|| JobRun {
                job_id: "2_1".into(),
                user: "u3".into(),
                name: Some("sweep".into()),
                ..JobRun::default()
            })
        };
        let of =
            |labels: &[(&str, &str)]| jobs(&source, &run_of, &labels.iter().copied().collect(), AT);
        assert_eq!(
            of(&[("node", "g01"), ("uuid", "GPU-1")]).as_deref(),
            Some("42 of ada")
        );
        let named = "1 of u1, 2 of u2, 2_1 (sweep) of u3, 4 of u4, 5 of u5 and 2 more";
        assert_eq!(of(&[("node", "g01")]).as_deref(), Some(named));
        // The mail of a user names the user's own jobs.
        let of_user = |user| of(&[("node", "g01"), ("user", user)]);
        assert_eq!(of_user("u3").as_deref(), Some("2_1 (sweep) of u3"));
        assert_eq!(of_user("u9"), None);
        assert_eq!(of(&[("node", "g02")]), None);
        assert_eq!(
            of(&[("node", "g01"), ("jobid", "9")]),
            None,
            "the alert says it itself"
        );
        // The number was another user's before.
        let older = |_: &str| {
            Some(JobRun {
                job_id: "42".into(),
                user: "eve".into(),
                name: Some("secret".into()),
                ..JobRun::default()
            })
        };
        let labels = [("node", "g01"), ("uuid", "GPU-1")].into_iter().collect();
        let named = jobs(&source, &older, &labels, AT);
        assert_eq!(named.as_deref(), Some("42 of ada"));
    }

    /// The message about a node that was unplugged named a job that had ended 80 seconds before.
    #[test]
    fn jobs_of_a_node_that_is_down_were_running_at_its_last_report() {
        let job = |id| {
            [
                ("__name__", "takt_job_info"),
                ("node", "g01"),
                ("jobid", id),
                ("user", "ada"),
            ]
        };
        // The exporter has reported 200 times. The job that had ended is missing in the last five reports.
        let down = 200;
        let source = source(&[
            (&job("1"), &|n| (n < down).then_some(1.0)),
            (&job("2"), &|n| (n < down - 5).then_some(1.0)),
        ]);
        let labels = [("node", "g01")].into_iter().collect();
        let at = Timestamp((down + 8) * 15_000);
        let named = jobs(&source, &|_| None, &labels, at);
        assert_eq!(named.as_deref(), Some("1 of ada"));
    }
}
