//! `/reports`: the archive: every month's reports of the cluster, its accounts and its users.
//! `/reports/sheet`: one of them, as it is mailed and printed.

use crate::frame::{Cell, Column, Content, Group, Page, PageError, Table, Visit};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use minijinja::{Value, context};
use takt_accounting::sheet::Sheet;
use takt_model::UnixTime;
use takt_model::words;
use takt_questions::{AboutQuestion, SentQuestion, SheetQuestion};
use takt_reports::{ReportFormat, View, write_sheet};

pub const PAGE: Page = Page::new("/reports", include_str!("reports.html"), show)
    .menu(Group::Use, "Reports")
    .filters(&["month"])
    .rows();

pub const SHEET: Page = Page::new("/reports/sheet", include_str!("reports.html"), show_sheet)
    .filters(&["month", "account", "user"]);

/// Most months that the archive links to; a form leads to earlier ones.
const MONTHS: i64 = 13;

const COLUMNS: &[Column] = &[
    Column::text("kind", "report"),
    Column::text("name", "of"),
    Column::number("gpu_hours", "GPU-hours"),
    Column::number("wasted_gpu_hours", "wasted").unit("GPU-hours"),
    Column::number("gpu_utilization_ratio", "GPU utilization"),
    Column::number("cpu_hours", "CPU-hours").minor(),
    Column::text("sent_at", "sent"),
];

fn show(visit: &Visit) -> Result<Content, PageError> {
    let today = visit.now.to_zoned(visit.zone().clone()).date();
    let this_month = today.strftime("%Y-%m").to_string();
    let month = visit.get("month").unwrap_or(&this_month).to_owned();
    let first = visit.ask(&AboutQuestion {})?.records_from;
    let first_month = first
        .and_then(|first| month_of(first, visit.zone()))
        .unwrap_or_else(|| this_month.clone());

    let question = |everybody| SheetQuestion {
        month: Some(month.clone()),
        everybody,
        runs: 0,
        ..SheetQuestion::default()
    };

    // A month without usage is a usual state of the archive.
    let (sheets, error) = match visit.ask(&question(true)) {
        // Before the records, the cluster's report would be a row of nothing.
        Ok(_) if month < first_month => (Vec::new(), None),
        Ok(sheets) => (sheets, None),
        Err(error) => (Vec::new(), Some(error.reason().to_owned())),
    };

    let sent = visit
        .ask(&SentQuestion {
            month: month.clone(),
            ..SentQuestion::default()
        })
        .unwrap_or_default();

    let row = |sheet: &Sheet| {
        let kind = sheet.subject.kind();
        let name = sheet.subject.name();
        let mut address = format!("/reports/sheet?month={month}");
        if matches!(kind, "user" | "account") {
            let name: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
            address.push_str(&format!("&{kind}={name}"));
        }
        let figures = &sheet.figures;
        // A report may be sent several times; the last one counts.
        let last = sent
            .iter()
            .filter(|sent| sent.kind == kind && (kind == "cluster" || sent.subject == name));
        // Without a measured job, no hours were wasted as far as is known.
        let judged = figures.gpu_utilization.is_some();
        vec![
            Cell::text(kind).link(&address),
            Cell::text(if name.is_empty() {
                &sheet.cluster
            } else {
                name
            })
            .link(address),
            Cell::number(sheet.has_gpus.then_some(figures.gpu_hours), words::amount),
            Cell::number(
                judged.then(|| figures.split_gpu_hours.wasted()),
                words::amount,
            ),
            Cell::number(figures.gpu_utilization, words::percent),
            Cell::number(Some(figures.cpu_hours), words::amount),
            match last.map(|sent| sent.sent_at).max() {
                Some(at) => Cell::time(Some(at)),
                None => Cell::text("not sent").class("dim"),
            },
        ]
    };

    // The order of the columns of the archive: the cluster, its accounts, its users.
    let kinds = ["cluster", "account", "user"];
    let mut sheets = sheets;
    sheets.sort_by_key(|sheet| kinds.iter().position(|kind| *kind == sheet.subject.kind()));
    let caption = format!("Reports of {}", words::month(&month));
    let table = Table::new(
        visit,
        "list",
        caption,
        COLUMNS.to_vec(),
        sheets.iter().map(row).collect(),
    )?;

    let shown = months(today, &first_month, &month);
    let has_more = shown.last().is_some_and(|last| first_month < *last);
    let months: Vec<Value> = shown
        .iter()
        .map(|name| {
            context! {
                address => visit.address(&[("month", name)]),
                is_current => *name == month,
                name,
            }
        })
        .collect();

    let values = context! {
        first_month,
        has_more,
        is_open => month == this_month,
        error,
        month,
        months,
        this_month,
    };
    Ok(Content::new("Reports", values).table(table))
}

/// Months that the page links to, the newest first: those with records, at most [`MONTHS`], and the
/// chosen one.
fn months(today: Date, first: &str, chosen: &str) -> Vec<String> {
    // From this month backwards, to the first one with records.
    let mut shown: Vec<String> = (0..MONTHS)
        .map_while(|back| {
            let day = today
                .first_of_month()
                .checked_sub(jiff::Span::new().months(back))
                .ok()?
                .strftime("%Y-%m")
                .to_string();
            Some(day)
        })
        .take_while(|name| first <= name.as_str())
        .collect();
    // A month outside of the list is shown if it is chosen.
    let is_month = format!("{chosen}-01").parse::<Date>().is_ok();
    if is_month && shown.iter().all(|name| name != chosen) {
        shown.push(chosen.to_owned());
        shown.sort_unstable_by(|a, b| b.cmp(a));
    }
    shown
}

/// The month of a time, `2026-10`.
fn month_of(at: UnixTime, zone: &TimeZone) -> Option<String> {
    let at = jiff::Timestamp::try_from(at).ok()?;
    Some(at.to_zoned(zone.clone()).strftime("%Y-%m").to_string())
}

fn show_sheet(visit: &Visit) -> Result<Content, PageError> {
    let text = |name: &str| visit.get(name).map(str::to_owned);
    let question = SheetQuestion {
        month: text("month"),
        user: text("user"),
        account: text("account"),
        ..SheetQuestion::default()
    };

    let sheets = visit
        .ask(&question)
        .map_err(|error| error.next("/reports", "All reports"))?;
    let sheet = sheets.first().ok_or_else(|| {
        PageError::empty_range("Nothing was used in this month.").next("/reports", "All reports")
    })?;
    // The same writer as that of `takt report` and of mails.
    let mut out = Vec::new();
    write_sheet(sheet, View::of(sheet), ReportFormat::Html, None, &mut out)
        .map_err(|error| PageError::failed(&error))?;
    let document = String::from_utf8_lossy(&out).into_owned();
    Ok(Content::new("Report", context! {}).document(document))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil;

    #[test]
    fn only_months_with_records_and_the_chosen_one_are_linked() {
        // The last day of a month: months back from it must not skip February.
        let today = civil::date(2026, 3, 31);
        let of = |first, chosen| months(today, first, chosen);
        assert_eq!(of("2026-02", "2026-03"), ["2026-03", "2026-02"]);
        assert_eq!(of("2026-03", "2026-01"), ["2026-03", "2026-01"]);
        // Thirteen months, and the chosen one far before them.
        let long = of("2010-05", "2010-06");
        assert_eq!(long.len(), 14);
        assert_eq!(long[12..], ["2025-03", "2010-06"]);

        assert_eq!(of("2026-03", "soon"), ["2026-03"]);
    }
}
