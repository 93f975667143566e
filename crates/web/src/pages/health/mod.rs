//! `/health`: does Takt itself work: targets, lag, disk.

mod scheduler;

use crate::frame::{
    self, Cell, Column, Content, Form, FormReply, Group, Page, PageError, Table, Visit, href,
};
use minijinja::{Value, context};
use scheduler::scheduler;
use takt_access::{Need, Role};
use takt_collector::scrape::TargetStatus;
use takt_model::Timestamp;
use takt_model::words;
use takt_questions::{
    DoctorQuestion, Question, Severity, SourceState, SourcesQuestion, StatQuestion,
};
use takt_store::Health;

pub const PAGE: Page = Page::new("/health", include_str!("health.html"), show)
    .menu(Group::System, "Health")
    .filters(&["reloaded"])
    .submit_by(Role::Admin)
    .submit(submit)
    .rows()
    .live();

const COLUMNS: &[Column] = &[
    Column::text("node", "node"),
    Column::text("health", "health"),
    Column::text("job", "job"),
    Column::text("last_scrape", "last scrape"),
    Column::number("duration_seconds", "duration").unit("ms"),
    Column::number("samples", "samples"),
    Column::text("error", "error"),
    Column::text("url", "address").minor(),
];

fn show(visit: &Visit) -> Result<Content, PageError> {
    // Failing targets first: there may be hundreds.
    let mut targets = visit.site.scrape.targets();
    targets.sort_by(|a, b| {
        let node = |target: &TargetStatus| target.labels.get("node").unwrap_or_default().to_owned();
        b.error
            // `true` is greater, so the order is reversed.
            .is_some()
            .cmp(&a.error.is_some())
            .then_with(|| frame::natural(&node(a), &node(b)))
    });
    let failing = targets
        .iter()
        .filter(|target| target.error.is_some())
        .count();

    let rows = targets.iter().map(|target| {
        let node = target.labels.get("node").unwrap_or_default();
        let health = match target.error {
            Some(_) => Cell::text("does not answer").class("bad"),
            None if target.last_scrape.is_some() => Cell::text("answers"),
            None => Cell::text("not scraped yet").class("dim"),
        };
        vec![
            Cell::text(node).link(href("nodes", node)),
            health,
            Cell::text(&target.pool),
            Cell::time(target.last_scrape.map(|at| at.whole_seconds())),
            Cell::number(Some(target.duration_seconds), |seconds| {
                words::amount(seconds * 1000.0)
            }),
            Cell::count(target.samples as u64),
            // An error may name a path or an address, so it is for those who see all.
            Cell::text(target.failure(visit.viewer.sees_all()).unwrap_or_default()).class("wrap"),
            Cell::text(&target.url),
        ]
    });
    let caption = format!(
        "{} of {} exporters answer",
        targets.len() - failing,
        targets.len()
    );
    let table = Table::new(visit, "targets", caption, COLUMNS.to_vec(), rows.collect())?;

    let sources = visit.ask(&SourcesQuestion {})?;
    let mut checks = checks(visit, &sources);
    checks.insert(
        0,
        match targets.len() {
            0 => (false, "no exporter is configured".to_owned()),
            all => (
                failing == 0,
                format!("{} of {all} exporters answer", all - failing),
            ),
        },
    );
    let checks: Vec<Value> = checks
        .into_iter()
        .map(|(is_good, text)| context! { is_good, text })
        .collect();

    let findings = findings(visit)?;
    let sources: Vec<Value> = sources.iter().map(source).collect();

    let stat = visit.ask(&StatQuestion::default())?;
    let bytes: u64 = stat.blocks.iter().map(|block| block.bytes).sum();
    let values = context! {
        findings,
        sources,
        checks,
        may_reload => visit.viewer.check(Need::Change(Role::Admin)).is_ok(),
        waiting => visit.site.reload.waiting().join(", "),
        is_reloaded => visit.get("reloaded").is_some(),
        facts => [
            context! {
                name => "series",
                value => words::count(stat.series),
            },
            context! {
                name => "samples not sealed yet",
                value => words::count(stat.hot_samples),
                note => size(stat.hot_bytes),
            },
            context! {
                name => "sealed blocks",
                value => stat.blocks.len(),
                note => size(bytes),
            },
        ],
    };
    Ok(Content::new("Health", values).table(table))
}

/// A line about a source.
fn source(source: &SourceState) -> Value {
    context! {
        name => source.source.replace('_', " "),
        items => source.items,
        at => source.last_seen,
        problem => source.problem,
    }
}

/// Reads the configuration again.
fn submit(visit: &Visit, form: &Form) -> Result<FormReply, PageError> {
    let action = form.required("do")?;
    let refused = |text: String| PageError::wrong(text).next("/health", "Health of the server");

    if action != "reload" {
        return Err(refused(format!("The page has no action '{action}'.")));
    }
    // Forms run on a blocking thread, so waiting for the reload is allowed.
    let runtime = tokio::runtime::Handle::current();
    runtime.block_on(visit.site.reload.now()).map_err(|error| {
        refused(format!(
            "The previous configuration stays in use: {error:#}."
        ))
    })?;
    Ok(FormReply::Redirect("/health?reloaded=yes".to_owned()))
}

/// Findings of `takt doctor`; `None` if the viewer may not see them.
fn findings(visit: &Visit) -> Result<Option<Vec<Value>>, PageError> {
    let need: Need = DoctorQuestion::NEED;
    // The page has a weaker need than the doctor.
    if visit.viewer.check(need).is_err() {
        return Ok(None);
    }

    let diagnosis = visit.ask(&DoctorQuestion::default())?;
    let shown = diagnosis
        .findings
        .iter()
        .map(|finding| {
            context! {
                id => finding.id,
                is_failure => finding.severity == Severity::Failure,
                node => finding.node,
                evidence => finding.evidence,
                cost => finding.cost,
                fix => finding.fix,
            }
        })
        .collect();
    Ok(Some(shown))
}

/// A number of bytes in MiB, from one GiB on in GiB.
fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 {
        format!("{} MiB", words::amount(mib))
    } else {
        format!("{} GiB", words::amount(mib / 1024.0))
    }
}

/// Lines about the store and the scheduler; `true` marks a good state.
fn checks(visit: &Visit, sources: &[SourceState]) -> Vec<(bool, String)> {
    let store = &visit.site.store;
    let now = Timestamp::from(visit.now);
    let mut checks = vec![match &*store.health().borrow() {
        Health::Writing => {
            // Before the first sample, the watermark is the smallest time.
            let text = match store.watermark() {
                Timestamp::MIN => "no samples are stored yet".to_owned(),
                durable => {
                    let behind = now.whole_seconds().since(durable.whole_seconds());
                    format!("all samples up to {behind} s ago are on disk")
                }
            };
            (true, text)
        }
        Health::Waiting(why) => (false, format!("samples are waiting to be written: {why}")),
        Health::Invalidated(why) => (false, format!("reopening the database: {why}")),
    }];
    // A damaged file was moved, so the server works without it.
    checks.extend(store.database().damaged().iter().map(|damaged| {
        let file = damaged.moved_to.display();
        (
            false,
            format!("a damaged file was set aside as {file}: {}", damaged.reason),
        )
    }));

    let polls = visit.site.polls.as_ref();
    checks.extend(
        polls.and_then(|polls| scheduler(&polls.borrow(), sources, visit.viewer.sees_all())),
    );
    checks
}
