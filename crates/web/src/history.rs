//! Charts of a node or a GPU over time, and lanes of the jobs that held its GPUs.

use crate::frame::{PageError, Range, Visit, href};
use minijinja::{Value, context};
use takt_draw::{Chart, Span, lanes};
use takt_model::words::{amount, duration};
use takt_model::{Timestamp, UnixTime};
use takt_questions::{GpuHeld, HistoryAnswer, HistoryCurve, HistoryQuestion};

/// A unit of a reading: factor to the number that people read, and its unit.
type Shown = (f64, &'static str);

/// Units of readings.
const UNITS: [(&str, Shown); 6] = [
    ("ratio", (100.0, " %")),
    ("bytes", (1.0 / (1 << 30) as f64, " GiB")),
    ("bytes/s", (1e-6, " MB/s")),
    ("watts", (1.0, " W")),
    ("celsius", (1.0, " °C")),
    ("seconds", (1e3, " ms")),
];

/// Colours of jobs, which differ from those of busy and idle GPUs.
const JOB_CLASSES: [&str; 3] = ["job-1", "job-2", "job-3"];

fn shown(unit: &str) -> Shown {
    UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .map_or((1.0, ""), |(_, shown)| *shown)
}

/// The history of a node or a GPU in a range.
///
/// # Errors
/// If the store fails.
pub fn of(
    visit: &Visit,
    range: &Range,
    node: Option<&str>,
    uuid: Option<&str>,
) -> Result<HistoryAnswer, PageError> {
    visit.ask(&HistoryQuestion {
        node: node.map(str::to_owned),
        uuid: uuid.map(str::to_owned),
        from: range.from,
        to: range.to,
        ..HistoryQuestion::default()
    })
}

/// The curves as charts for a template.
pub fn charts(history: &HistoryAnswer) -> Vec<Value> {
    let [from, to] = [history.axis.from, history.axis.to()].map(Timestamp::whole_seconds);
    let chart = |curve: &HistoryCurve| {
        let (factor, unit) = shown(&curve.unit);
        let figure = |value: f64| format!("{}{unit}", amount(value * factor));
        let highest = figure(curve.highest);
        let label = format!("{}: at most {highest}", curve.name);
        let chart = Chart {
            values: &curve.values.0,
            // The highest value may be above a limit that was lowered meanwhile.
            most: curve.most.unwrap_or(0.0).max(curve.highest),
            time: (from.0, to.0),
            marked: &[],
            label,
            shown: (factor, unit),
        };
        context! {
            name => curve.name,
            last => figure(curve.last),
            highest,
            // "of 100 %" says nothing.
            of => curve.most.filter(|_| unit.trim() != "%").map(figure),
            picture => chart.inline(),
        }
    };
    history.curves.iter().map(chart).collect()
}

/// The colour of a job, the same on each of its GPUs and on each page. Numbers in a row differ, so that the
/// change of jobs is visible; it says nothing else.
fn job_class(job_id: &str) -> &'static str {
    // Job ids have letters such as `_`, which count as digits here.
    let number = job_id.bytes().fold(0_usize, |sum, byte| {
        sum.wrapping_mul(10).wrapping_add(byte.into())
    });
    JOB_CLASSES[number % JOB_CLASSES.len()]
}

/// The jobs that held one GPU as a lane; `None` if no job did.
pub fn lane(history: &HistoryAnswer, uuid: &str, name: &str) -> Option<String> {
    let [from, to] = [history.axis.from, history.axis.to()].map(Timestamp::whole_seconds);
    let length = (to - from).max(1) as f64;
    // A job may have begun before the range, or still run behind it.
    let place = |at: UnixTime| ((at - from) as f64 / length).clamp(0.0, 1.0);
    let mut oldest_first: Vec<&GpuHeld> = history
        .holds
        .iter()
        .filter(|hold| hold.uuid == uuid)
        .collect();
    oldest_first.sort_by_key(|hold| hold.from);
    let spans: Vec<Span> = oldest_first
        .iter()
        .map(|hold| {
            let held = duration(hold.to.since(hold.from) as f64);
            let job = if hold.job_id.is_empty() {
                // A job that the viewer may not see has no id.
                format!("a job of {}", hold.user)
            } else {
                format!("job {} of {}", hold.job_id, hold.user)
            };
            Span {
                from: place(hold.from),
                to: place(hold.to),
                class: job_class(&hold.job_id),
                title: format!("{job}, {held}"),
                href: (!hold.job_id.is_empty()).then(|| href("jobs", &hold.job_id)),
            }
        })
        .collect();
    let label = format!("Jobs on {name}");
    (!spans.is_empty()).then(|| lanes(&[spans], 16, label).inline("lane"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_accounting::efficiency::Axis;

    #[test]
    fn a_job_has_one_colour_on_all_its_gpus() {
        // The second GPU had another job before, which shifted the colours of the next ones.
        let hold = |uuid: &str, job_id: &str, from: i64| GpuHeld {
            uuid: uuid.to_owned(),
            job_id: job_id.to_owned(),
            user: "ann".to_owned(),
            account: String::new(),
            node: "g01".to_owned(),
            from: UnixTime(from),
            to: UnixTime(from + 100),
        };

        let history = HistoryAnswer {
            axis: Axis::new(Timestamp(0), Timestamp(300_000), 10, 1000),
            curves: Vec::new(),
            holds: vec![
                hold("a", "18763", 200),
                hold("b", "18700", 0),
                hold("b", "18763", 200),
            ],
        };

        let drawn = |uuid: &str| {
            let picture = lane(&history, uuid, "GPU").unwrap();
            let (before, _) = picture.split_once("18763").unwrap();
            let from = before.rfind("<a").unwrap_or_default();
            picture[from..].to_owned()
        };
        let class = |text: &str| {
            let (_, rest) = text.split_once("class=\"job-").unwrap();
            rest.chars().next()
        };
        assert_eq!(class(&drawn("a")), class(&drawn("b")));
        // Two numbers in a row have different colours.
        assert_ne!(job_class("18763"), job_class("18764"));
    }
}
