//! `sacct --parsable`: records of jobs.

use super::{node_list, parsed_time, state, tres};
use crate::page::Demo;
use crate::schedule::{Job, Outcome};
use std::fmt::Write;
use takt_model::UnixTime;

pub(super) fn records(demo: &Demo, now: UnixTime, args: &[&str]) -> Result<String, String> {
    let option = |names: &[&str]| {
        let at = args.iter().position(|arg| names.contains(arg))?;
        args.get(at + 1).copied()
    };

    let columns = option(&["--format", "-o"]).ok_or("sacct: --format is missing")?;
    let columns: Vec<&str> = columns.split(',').map(str::trim).collect();
    let ids: Option<Vec<&str>> = option(&["-j"]).map(|ids| ids.split(',').collect());
    let from = option(&["-S"]).and_then(parsed_time);
    let to = option(&["-E"]).and_then(parsed_time);

    let is_asked = |job: &&Job| {
        let is_named = ids
            .as_ref()
            .is_none_or(|ids| ids.contains(&job.id.as_str()) || ids.contains(&job.raw_id.as_str()));
        // sacct lists jobs that were eligible in the period and had not ended before it.
        let has_begun = to.is_none_or(|to| job.submit < to);
        let is_recent = from.is_none_or(|from| !job.is_over(now) || from <= job.end);
        job.submit <= now && is_named && (ids.is_some() || (has_begun && is_recent))
    };

    let delimiter = args
        .iter()
        .find_map(|arg| arg.strip_prefix("--delimiter="))
        .unwrap_or("|");

    let mut out = String::new();
    for column in &columns {
        let _ = write!(out, "{column}{delimiter}");
    }
    out.push('\n');

    for job in demo.schedule.jobs.iter().filter(is_asked) {
        for column in &columns {
            write_column(&mut out, demo, job, now, column);
            out.push_str(delimiter);
        }
        out.push('\n');
    }
    Ok(out)
}

fn write_column(out: &mut String, demo: &Demo, job: &Job, now: UnixTime, column: &str) {
    let has_started = job.start.is_some_and(|start| start <= now);
    let user = &demo.cluster.users[job.user];
    // sacct prints a time that has not come as `Unknown`.
    let time = |at: Option<UnixTime>| at.map_or_else(|| "Unknown".to_owned(), |at| at.to_string());
    let started = || time(job.start.filter(|_| has_started));
    let text = match column {
        "JobID" => job.id.clone(),
        "JobIDRaw" => job.raw_id.clone(),
        "Submit" => job.submit.to_string(),
        "Eligible" if !job.held.is_empty() => "Unknown".to_owned(),
        "Eligible" => job.submit.to_string(),
        "Start" => started(),
        "End" => time(job.is_over(now).then_some(job.end)),
        "State" => state(demo, job, now),
        "User" => user.name.to_owned(),
        "Account" => demo.cluster.accounts[user.account].name.to_owned(),
        "Partition" => job.partition.to_owned(),
        "QOS" => job.qos.to_owned(),
        "AllocTRES" if has_started => tres(demo, job),
        "ReqTRES" => tres(demo, job),
        "NNodes" => job.request.nodes.to_string(),
        "NCPUS" => (job.request.nodes as u32 * job.request.cpus).to_string(),
        "NodeList" if has_started => node_list(demo, job),
        "NodeList" => "None assigned".to_owned(),
        "ElapsedRaw" => {
            let until = if job.is_over(now) { job.end } else { now };
            job.start
                .map_or(0, |start| (until - start).max(0))
                .to_string()
        }
        "Suspended" => "00:00:00".to_owned(),
        "TimelimitRaw" => job.limit_minutes.to_string(),
        // A job that runs has no exit code yet. The second number is a signal: 15 is SIGTERM.
        "ExitCode" => match job.outcome {
            _ if !job.is_over(now) => "0:0".to_owned(),
            Outcome::Failed => "1:0".to_owned(),
            Outcome::OutOfMemory => "0:125".to_owned(),
            Outcome::NodeFail => "1:0".to_owned(),
            Outcome::Cancelled | Outcome::Timeout => "0:15".to_owned(),
            Outcome::Completed => "0:0".to_owned(),
        },
        "JobName" => job.name.to_owned(),
        // A column that the demo does not fill is empty.
        _ => String::new(),
    };
    let _ = write!(out, "{text}");
}
