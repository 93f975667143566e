//! `/compare?jobs=A,B`: up to six jobs side by side.

use super::work::address;
use crate::frame::{Content, Page, PageError, Visit, href};
use minijinja::{Value, context};
use takt_accounting::efficiency::Curve;
use takt_draw::{Picture, area};
use takt_model::words::{UNKNOWN, amount, duration, percent, whole};
use takt_questions::{CompareAnswer, CompareQuestion, CompareValue, JobReport};

pub const PAGE: Page = Page::new("/compare", include_str!("compare.html"), show).filters(&["jobs"]);

const GIB: f64 = (1_u64 << 30) as f64;

fn show(visit: &Visit) -> Result<Content, PageError> {
    // One field with commas, or one field for each job, as a list of checkboxes sends them.
    let jobs: Vec<&str> = visit
        .all("jobs")
        .flat_map(|list| list.split([',', ' ']))
        .filter(|id| !id.is_empty())
        .collect();

    let asked = jobs.join(",");
    if jobs.is_empty() {
        return Ok(Content::new("Compare jobs", context! { asked }));
    }

    let question = CompareQuestion {
        jobs: asked.clone(),
        cluster: Some(visit.site.cluster.to_string()),
        ..CompareQuestion::default()
    };
    let answer = visit.ask(&question).map_err(|error| {
        error
            .next("/compare", "Choose jobs")
            .next("/jobs", "All jobs")
    })?;

    let rows: Vec<Value> = answer
        .rows
        .iter()
        .map(|row| {
            context! {
                name => row.name,
                differs => row.differs,
                values => row.values.iter().map(text).collect::<Vec<_>>(),
            }
        })
        .collect();

    let heads: Vec<Value> = answer
        .jobs
        .iter()
        .map(|job| {
            context! {
                id => job.run.job_id,
                name => job.run.name,
                address => href("jobs", &job.run.job_id),
            }
        })
        .collect();
    let curves: Vec<Value> = answer
        .jobs
        .iter()
        .map(|job| {
            context! {
                id => job.run.job_id,
                name => job.run.name,
                address => href("jobs", &job.run.job_id),
                picture => curve(job, &answer),
            }
        })
        .collect();

    let values = context! {
        asked,
        heads,
        rows,
        curves,
        longest => answer.longest_seconds as f64,
        permanent => address("/compare", &[("jobs", &asked)]),
    };
    Ok(Content::new(format!("Jobs {asked}"), values))
}

fn text(value: &CompareValue) -> String {
    match value {
        CompareValue::Unknown => UNKNOWN.to_owned(),
        CompareValue::Text(text) => text.clone(),
        CompareValue::Count(count) => count.to_string(),
        CompareValue::Ratio(ratio) => percent(*ratio),
        CompareValue::Seconds(seconds) => duration(*seconds),
        CompareValue::Bytes(bytes) => format!("{} GiB", amount(bytes / GIB)),
        CompareValue::GpuHours(hours) => format!("{} GPU-h", amount(*hours)),
        CompareValue::Kwh(kwh) => format!("{} kWh", amount(*kwh)),
        CompareValue::Watts(watts) => format!("{} W", whole(*watts)),
    }
}

/// The mean utilization of a job's GPUs on the common axis; `None` if it was not measured.
fn curve(job: &JobReport, answer: &CompareAnswer) -> Option<String> {
    let curves: Vec<&Curve> = job
        .by_node
        .iter()
        .flat_map(|node| &node.gpus)
        .map(|gpu| &gpu.utilization)
        .collect();

    let mean = Curve::mean(&curves);
    if !mean.is_measured() {
        return None;
    }
    let drawn = area(&mean.0, 1.0);
    // A shorter job takes a part of the width: the jobs are aligned at their starts.
    let ran = job.ran_seconds.unwrap_or(0).max(1) as f64;
    let longest = answer.longest_seconds.max(1) as f64;
    let width = (f64::from(drawn.width) * longest / ran).round();
    let label = format!("mean GPU utilization of job {}", job.run.job_id);
    let picture = Picture {
        width: width as u32,
        height: drawn.height,
        label,
        body: format!("<path class=\"area\" d=\"{}\"/>", drawn.d),
    };
    Some(picture.inline("curve"))
}
