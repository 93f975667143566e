//! `takt job`: one job in full, in 80 columns.

use super::{jobs, print, source};
use crate::cli::{ListingFormat, Place};
use crate::output::{self, stdout, wrapped};
use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write as _;
use takt_jobs::{JobRun, time_zone};
use takt_model::UnixTime;
use takt_model::words::{UNKNOWN, amount, duration, money, percent, whole};
use takt_questions::listing::{Column, Listing, printable};
use takt_questions::{
    BlockedAnswer, BlockedQuestion, GpuReport, JobAnswer, JobPhase, JobQuestion, JobReport,
    ListedRun, NodeReport, sparkline,
};
use takt_server::Failure;
use takt_store::Store;

#[derive(Debug, Args)]
pub struct Job {
    /// Job id: 123, 123_4, 123+0, or the SLUID
    pub id: String,
    /// Submit time of the run (2026-10-02T08:00:00Z), if the job has several. Default: the newest run
    #[arg(long, value_name = "TIME")]
    pub submit: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// Number of bars of a curve.
const BARS: usize = 20;

/// Events of a job's nodes that are printed.
const EVENTS: usize = 10;

/// Width of the output, in columns.
const WIDTH: usize = 80;

/// Width of the headings on the left.
const LEFT: usize = 12;

const GIB: f64 = (1_u64 << 30) as f64;

/// Runs the command.
pub fn run(place: &Place, asked: &Job) -> Result<(), Failure> {
    let question = JobQuestion {
        job_id: asked.id.clone(),
        submit: asked.submit.clone(),
        steps: BARS,
        ..JobQuestion::default()
    };
    let source = source::<Store>(place)?;
    let answer = source.ask(&question)?;
    let zone = time_zone(&answer.timezone).unwrap_or(TimeZone::UTC);
    // A server of an earlier version does not know the question; a job may start meanwhile.
    let blocked = waiting_id(&answer).and_then(|question| source.ask(&question).ok());
    if asked.format != ListingFormat::Table {
        let listing = jobs::listing(&answer.runs, &zone);
        return print(asked.format, &listing, &JobWithBlock { answer, blocked });
    }
    let text = match &answer.report {
        Some(report) => one_run(&answer, report, blocked.as_ref()),
        None => array(&answer)?,
    };
    Ok(stdout().write_all(text.as_bytes())?)
}

/// A job, and what it waits for.
#[derive(Serialize)]
struct JobWithBlock {
    #[serde(flatten)]
    answer: JobAnswer,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked: Option<BlockedAnswer>,
}

/// The question what a job waits for; `None` if it does not wait.
fn waiting_id(answer: &JobAnswer) -> Option<BlockedQuestion> {
    let report = answer.report.as_ref()?;
    (report.phase == JobPhase::Pending).then(|| BlockedQuestion {
        job_id: report.run.job_id.clone(),
        cluster: Some(report.run.cluster.clone()),
    })
}

/// The text of one run.
fn one_run(answer: &JobAnswer, report: &JobReport, blocked: Option<&BlockedAnswer>) -> String {
    let zone = time_zone(&answer.timezone).unwrap_or(TimeZone::UTC);
    let mut page = Page {
        text: String::new(),
        zone,
    };
    page.title(&report.run);
    page.why(report, blocked);
    page.times(report, answer.at);
    page.held(&report.run);
    page.verdict(report);
    page.pace(report);
    page.usage(report);
    page.gpus(report);
    page.hints(report);
    page.faults(answer, report);
    page.others(answer, report);
    page.text
}

/// The text of an array: the number of tasks by state, and a line for each task.
fn array(answer: &JobAnswer) -> Result<String, Failure> {
    let mut text = String::new();
    if let Some(array) = &answer.array {
        let counts: Vec<String> = array
            .states
            .iter()
            .map(|count| format!("{} {}", count.runs, printable(&count.state)))
            .collect();
        let id = printable(&answer.job_id);
        let _ = writeln!(
            text,
            "Job {id}: {} tasks, {}\n",
            array.tasks,
            counts.join(", ")
        );
    }

    let mut table = Vec::new();
    tasks(&answer.runs).write_table(output::width(), &mut table)?;
    text.push_str(&String::from_utf8_lossy(&table));
    Ok(text)
}

fn tasks(runs: &[ListedRun]) -> Listing {
    use Column::{Number, Text};
    let mut listing = Listing::new(&[
        Text("task"),
        Text("state"),
        Text("exit"),
        Number("ran"),
        Number("gpu util"),
        Number("wasted gpu-h"),
        Text("nodes"),
    ]);

    for one in runs {
        let run = &one.run;
        let used = one.used.filter(|used| used.is_measured);
        let ran = run.start.zip(run.end).map(|(start, end)| end - start);
        listing.push(vec![
            run.job_id.clone(),
            run.state.clone(),
            run.exit_code.clone().unwrap_or_default(),
            ran.map_or_else(String::new, |seconds| duration(seconds as f64)),
            share(used.and_then(|used| used.gpu_utilization)),
            used.and_then(|used| used.wasted_gpu_hours)
                .map_or_else(String::new, amount),
            run.node_list.clone().unwrap_or_default(),
        ]);
    }

    listing
}

/// The text so far, and the time zone of its times.
struct Page {
    text: String,
    zone: TimeZone,
}

impl Page {
    fn title(&mut self, run: &JobRun) {
        let name = run.name.as_deref().unwrap_or_default();
        let left = format!("Job {}  {}", printable(&run.job_id), printable(name));
        let state = printable(&run.state);
        let room = WIDTH.saturating_sub(state.chars().count() + 2);
        let left: String = left.trim_end().chars().take(room).collect();
        let gap = WIDTH.saturating_sub(left.chars().count() + state.chars().count());
        let _ = writeln!(self.text, "{left}{:gap$}{state}", "");

        let mut who = printable(&run.user);
        if !run.account.is_empty() {
            let _ = write!(who, " of account {}", printable(&run.account));
        }
        let _ = write!(who, ", partition {}", printable(&run.partition));
        if let Some(qos) = run.qos.as_ref().filter(|qos| !qos.is_empty()) {
            let _ = write!(who, ", QOS {}", printable(qos));
        }
        if let Some(reservation) = &run.reservation {
            let _ = write!(who, ", reservation {}", printable(reservation));
        }
        if let Some(number) = &run.raw_job_id {
            let _ = write!(who, ", number {} on its nodes", printable(number));
        }

        if let Some(sluid) = &run.sluid {
            let _ = write!(who, ", SLUID {}", printable(sluid));
        }
        if let Some(original) = run.lineage().filter(|of| Some(*of) != run.sluid.as_deref()) {
            let _ = write!(who, ", resized from {}", printable(original));
        }
        self.paragraph("", &who);
        self.text.push('\n');
    }

    /// Why the run waits, or why it failed.
    fn why(&mut self, report: &JobReport, blocked: Option<&BlockedAnswer>) {
        if let Some(waiting) = &report.waiting {
            self.paragraph(
                "It waits",
                &format!("({}) {}", waiting.reason, waiting.words),
            );
            let since = self.time(waiting.since);
            self.paragraph("", &format!("Slurm has given this reason since {since}"));
            let start = match waiting.expected_start {
                Some(at) => format!("Slurm expects to start it at {}", self.time(at)),
                None => "Slurm has not estimated its start".to_owned(),
            };
            self.paragraph("", &start);
        } else if report.phase == JobPhase::Pending {
            self.paragraph("It waits", "the reason is not known yet");
        }
        if let Some(forecast) = &report.start_forecast {
            self.paragraph("Forecast", &forecast.words);
        }
        if let Some(blocked) = blocked {
            self.blocked(blocked);
        }

        if let Some(failure) = &report.failure {
            self.paragraph("It failed", &failure.words);
            self.paragraph("What helps", &failure.advice);
            for (at, one) in failure.evidence.iter().enumerate() {
                let heading = if at == 0 { "Evidence" } else { "" };
                let time = one.at.map_or_else(String::new, |at| self.time(at) + "  ");
                let node = one.node.as_ref().map(|node| format!("{node}: "));
                let words = format!("{time}{}{}", node.unwrap_or_default(), one.words);
                self.paragraph(heading, &words);
            }
        }

        if report.phase == JobPhase::Pending || report.failure.is_some() {
            self.text.push('\n');
        }
    }

    /// What has to happen before the job starts, and what would start it sooner.
    fn blocked(&mut self, blocked: &BlockedAnswer) {
        for (at, words) in blocked.words.iter().enumerate() {
            self.paragraph(if at == 0 { "Waits for" } else { "" }, words);
        }
        for (at, change) in blocked.changes.iter().enumerate() {
            self.paragraph(if at == 0 { "Sooner with" } else { "" }, &change.words);
        }
    }

    fn times(&mut self, report: &JobReport, now: UnixTime) {
        let run = &report.run;
        let waited = duration(report.waited_seconds as f64);
        let submitted = self.time(run.submit);
        self.paragraph("Submitted", &format!("{submitted}, waited {waited}"));

        if let Some(start) = run.start {
            let started = self.time(start);
            self.paragraph("Started", &started);
        }

        let ran = duration(report.ran_seconds.unwrap_or(0) as f64);
        let of_limit = run.timelimit.map_or_else(String::new, |limit| {
            let used = report
                .limit_ratio
                .map_or_else(String::new, |ratio| format!(" ({})", percent(ratio)));
            format!(" of its limit of {}{used}", duration(limit as f64))
        });

        match (run.start, run.end) {
            (Some(_), Some(end)) => {
                let ended = self.time(end);
                self.paragraph("Ended", &format!("{ended}, ran {ran}{of_limit}"));
            }
            (Some(_), None) => {
                let left = report.ends_by.map(|by| by.since(now) as f64);
                let left = left
                    .map(|left| format!(", {} left", duration(left)))
                    .unwrap_or_default();
                self.paragraph("Runs", &format!("for {ran}{of_limit}{left}"));
            }
            (None, Some(end)) => {
                let ended = self.time(end);
                self.paragraph("Ended", &format!("{ended}, without a start"));
            }
            (None, None) => {}
        }

        if let Some(code) = run.exit_code.as_ref().filter(|code| *code != "0:0") {
            self.paragraph("Exit code", &format!("{code} (status:signal)"));
        }
    }

    fn held(&mut self, run: &JobRun) {
        let mut parts = Vec::new();
        if let Some(nodes) = run.nodes {
            let list = run.node_list.as_deref().unwrap_or_default();
            let list = if list.is_empty() {
                String::new()
            } else {
                format!(" ({list})")
            };
            parts.push(count(nodes, "node") + &list);
        }

        parts.extend(run.cpus.map(|cpus| count(cpus, "CPU")));
        if let Some(gpus) = run.gpus.filter(|gpus| *gpus > 0) {
            let model = run.gpu_model.as_ref();
            let model = model.map_or_else(String::new, |model| format!(" ({model})"));
            parts.push(count(gpus, "GPU") + &model);
        }
        let at_most = run.mem_bytes_most.map_or_else(String::new, |most| {
            format!(" (before it shrank: {})", gib(most as f64))
        });
        let memory = run
            .mem_bytes
            .map(|bytes| gib(bytes as f64) + " memory" + &at_most);
        parts.extend(memory);

        if parts.is_empty() {
            if let Some(tres) = run.req_tres.as_ref().filter(|tres| !tres.is_empty()) {
                self.paragraph("Requested", tres);
            }
        } else {
            self.paragraph("Held", &parts.join(", "));
        }
    }

    fn verdict(&mut self, report: &JobReport) {
        if let Some(verdict) = &report.verdict {
            let until = if report.phase == JobPhase::Running {
                " so far"
            } else {
                ""
            };
            self.text.push('\n');
            let words = format!("{}{until}: {}", verdict.grade.word(), verdict.words);
            self.paragraph("Verdict", &words);
        }
    }

    /// Whether one GPU makes the others wait, and what shows it.
    fn pace(&mut self, report: &JobReport) {
        if let Some(pace) = &report.pace {
            self.paragraph("Pace", &pace.words);
            for evidence in &pace.evidence_words {
                self.paragraph("", evidence);
            }
        }
    }

    /// Efficiency by resource, as seff shows it.
    fn usage(&mut self, report: &JobReport) {
        let Some(seen) = &report.efficiency else {
            return;
        };
        let run = &report.run;
        let of = |peak: Option<f64>, all: Option<f64>| {
            let used = peak.zip(all);
            used.map(|(used, all)| format!("{} of {} at the highest", gib(used), gib(all)))
                .or_else(|| peak.map(|peak| format!("{} at the highest", gib(peak))))
        };
        let cpus = seen.cpu_seconds.zip(run.cpus).map(|(used, cpus)| {
            format!("{} of CPU time on {}", duration(used), count(cpus, "CPU"))
        });
        let reasons = [
            ("CPUs", &report.cpu_unmeasured),
            ("Memory", &report.memory_unmeasured),
        ];
        let memory_ratio = seen
            .gpu_memory_peak_bytes
            .zip(seen.gpu_memory_total_bytes)
            .map(|(peak, total)| peak / total);
        let idle = seen
            .gpu_idle_longest_seconds
            .filter(|seconds| *seconds >= 60.0)
            .map(|seconds| format!("idle for {} at the longest", duration(seconds)));

        let has_gpus = run.gpus.unwrap_or(0) > 0;
        let rows = [
            ("GPUs busy", seen.gpu_utilization_mean, idle, has_gpus),
            (
                "GPU memory",
                memory_ratio,
                of(seen.gpu_memory_peak_bytes, seen.gpu_memory_total_bytes),
                has_gpus,
            ),
            ("CPUs", seen.cpu_ratio, cpus, true),
            (
                "Memory",
                seen.memory_ratio,
                of(
                    seen.memory_peak_bytes,
                    run.largest_mem_bytes().map(|bytes| bytes as f64),
                ),
                true,
            ),
        ];

        for (name, ratio, detail, is_shown) in rows {
            let why = reasons.iter().find(|(of, _)| *of == name);
            if let Some((_, Some(why))) = why {
                self.paragraph(name, &format!("not measured: {why}"));
            } else if is_shown {
                let bar = ratio.map_or_else(|| " ".repeat(BARS), bar);
                let detail = detail.unwrap_or_else(|| match ratio {
                    Some(_) => String::new(),
                    None => "not measured".to_owned(),
                });
                let line = format!("{name:LEFT$}{:>6}  {bar}  {detail}", share(ratio));
                let _ = writeln!(self.text, "{}", line.trim_end());
            }
        }

        if let Some(cost) = report.cost.filter(|cost| cost.kwh > 0.0) {
            let watts = seen.gpu_power_mean_watts;
            let watts = watts
                .map(|watts| format!(", {} W on average", whole(watts)))
                .unwrap_or_default();
            self.paragraph(
                "Energy",
                &format!("{} kWh of the GPUs{watts}", amount(cost.kwh)),
            );
        }
        if let (Some(cost), Some(currency)) = (report.cost, &report.currency) {
            self.paragraph("Cost", &money(cost.money, currency));
        }
        if let (Some(wasted), Some(split)) = (report.wasted_gpu_hours, &report.split_gpu_hours)
            && has_gpus
            && wasted > 0.0
        {
            let wasted = format!("{} of {} GPU-hours", amount(wasted), amount(split.held()));
            self.paragraph("Wasted", &wasted);
        }
    }

    /// Use of each GPU over time.
    fn gpus(&mut self, report: &JobReport) {
        let gpus: Vec<(&NodeReport, &GpuReport)> = report
            .by_node
            .iter()
            .flat_map(|node| node.gpus.iter().map(move |gpu| (node, gpu)))
            .collect();
        if gpus.is_empty() {
            return;
        }

        let name = |node: &NodeReport, gpu: &GpuReport| {
            let index = gpu.index.as_deref().or(gpu.uuid.as_deref());
            let name = format!("{} {}", node.node, index.unwrap_or(UNKNOWN));
            printable(&name)
        };

        let width = gpus
            .iter()
            .map(|(node, gpu)| name(node, gpu).chars().count())
            .max()
            .unwrap_or(0)
            .clamp(LEFT - 1, 26)
            + 1;

        let _ = writeln!(
            self.text,
            "\n{:width$}{:>6}{:>7}{:>10}{:>8}  UTILIZATION",
            "GPU", "BUSY", "IDLE", "MEMORY", "POWER"
        );
        for (node, gpu) in gpus {
            let curve = sparkline::bars(gpu.utilization.0.iter().copied(), 0.0, 1.0);
            let name: String = name(node, gpu).chars().take(width - 1).collect();
            let memory = gpu.memory_peak_bytes.map_or(UNKNOWN.to_owned(), gib);
            let power = gpu
                .power_mean_watts
                .map_or(UNKNOWN.to_owned(), |watts| format!("{} W", whole(watts)));

            let line = format!(
                "{name:width$}{:>6}{:>7}{memory:>10}{power:>8}  {curve}",
                share(gpu.utilization_mean),
                share(gpu.idle_ratio),
            );
            let _ = writeln!(self.text, "{}", line.trim_end());
        }
    }

    /// Faults of the GPUs, and what happened on the nodes while the job ran.
    fn faults(&mut self, answer: &JobAnswer, report: &JobReport) {
        let gpus = report
            .by_node
            .iter()
            .flat_map(|node| node.gpus.iter().map(move |gpu| (node, gpu)));
        let faults: Vec<String> = gpus
            .filter_map(|(node, gpu)| {
                let index = gpu.index.as_deref().or(gpu.uuid.as_deref());
                let name = index.unwrap_or(UNKNOWN);
                let fault = gpu.fault.as_ref()?;
                Some(format!("{} GPU {name}: {fault}", node.node))
            })
            .collect();
        if faults.is_empty() && answer.events.is_empty() {
            return;
        }

        self.text.push('\n');
        for fault in &faults {
            self.paragraph("Fault", fault);
        }
        for (at, event) in answer.events.iter().take(EVENTS).enumerate() {
            let heading = if at == 0 { "Happened" } else { "" };
            let gpu = event
                .gpu_index
                .as_ref()
                .map_or_else(String::new, |index| format!(" GPU {index}"));
            let ended = match event.kind.as_str() {
                "resolved" => " ended",
                _ => "",
            };
            let words = format!(
                "{}  {}{gpu}: {}{ended} {}",
                self.time(event.at),
                event.node,
                event.name,
                event.text
            );
            self.paragraph(heading, words.trim_end());
        }
        let more = answer.events.len().saturating_sub(EVENTS);
        if more > 0 {
            self.paragraph("", &format!("and {more} earlier ones"));
        }
    }

    fn hints(&mut self, report: &JobReport) {
        if report.hints.is_empty() {
            return;
        }
        self.text.push_str("\nWhat to change in the script\n");
        for hint in &report.hints {
            let _ = writeln!(self.text, "  {}", hint.line);
            let saves = if hint.gpu_hours >= 0.1 {
                format!("; saves {} GPU-hours", amount(hint.gpu_hours))
            } else {
                String::new()
            };
            for line in wrapped(&format!("{}{saves}", hint.why), WIDTH - 6) {
                let _ = writeln!(self.text, "      {line}");
            }
        }
    }

    /// Earlier runs of the job, and other jobs of the same name.
    fn others(&mut self, answer: &JobAnswer, report: &JobReport) {
        let others = answer.runs.iter().filter(|one| {
            one.run.job_id == report.run.job_id && one.run.submit != report.run.submit
        });
        // A resize begins a new record of the same run, a requeue a new run.
        let lineage = report.run.lineage();
        let is_part = |one: &&ListedRun| lineage.is_some() && one.run.lineage() == lineage;
        let (parts, runs): (Vec<&ListedRun>, Vec<&ListedRun>) = others.partition(is_part);

        if !parts.is_empty() {
            self.text
                .push_str("\nOther parts of this run, with other resources\n");
            parts.into_iter().for_each(|one| self.other(one));
        }
        if !runs.is_empty() {
            self.text
                .push_str("\nOther runs of this job (takt job ID --submit TIME)\n");
            runs.into_iter().for_each(|one| self.other(one));
        }
        if !answer.same_name.is_empty() {
            self.text.push_str("\nOther jobs of this name\n");
            answer
                .same_name
                .iter()
                .take(5)
                .for_each(|one| self.other(one));
        }
    }

    fn other(&mut self, one: &ListedRun) {
        let run = &one.run;
        let used = one.used.filter(|used| used.is_measured);
        let busy = used.and_then(|used| used.gpu_utilization);
        let busy = busy.map(|ratio| format!("GPUs busy {}", percent(ratio)));
        let ran = run
            .start
            .zip(run.end)
            .map(|(start, end)| end - start)
            .map(|seconds| duration(seconds as f64));

        let line = format!(
            "  {:12}  {:16}  {:14}{:>10}  {}",
            printable(&run.job_id),
            self.time(run.submit),
            printable(&run.state),
            ran.unwrap_or_default(),
            busy.unwrap_or_default()
        );
        let _ = writeln!(self.text, "{}", line.trim_end());
    }

    /// Writes a heading and a text, wrapped beside it.
    fn paragraph(&mut self, heading: &str, text: &str) {
        let text = printable(text);
        let left = if heading.is_empty() && self.text.lines().count() < 3 {
            0
        } else {
            LEFT
        };
        for (at, line) in wrapped(&text, WIDTH - left).into_iter().enumerate() {
            let heading = if at == 0 { heading } else { "" };
            let _ = writeln!(self.text, "{heading:left$}{line}");
        }
    }

    /// A time in the cluster's zone, to the minute.
    fn time(&self, at: UnixTime) -> String {
        Timestamp::try_from(at)
            .unwrap_or_default()
            .to_zoned(self.zone.clone())
            .strftime("%Y-%m-%d %H:%M")
            .to_string()
    }
}

/// A bar for a ratio from 0 to 1.
fn bar(ratio: f64) -> String {
    let filled = (ratio.clamp(0.0, 1.0) * BARS as f64).round() as usize;
    "█".repeat(filled) + &"·".repeat(BARS - filled)
}

fn share(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| UNKNOWN.to_owned(), percent)
}

fn gib(bytes: f64) -> String {
    format!("{} GiB", amount(bytes / GIB))
}

fn count(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
