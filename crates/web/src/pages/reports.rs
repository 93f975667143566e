//! `/reports`: the archive: every month's reports of the cluster, its accounts and its users.
//! `/reports/sheet`: one of them, as it is mailed and printed.

use crate::frame::{Cell, Column, Content, Group, Page, PageError, Table, Visit};
use minijinja::{Value, context};
use takt_accounting::sheet::Sheet;
use takt_server::answers::{SentQuestion, SheetQuestion};
use takt_server::reports::{ReportFormat, View, words, write_sheet};

pub const PAGE: Page = Page::new("/reports", include_str!("reports.html"), show)
    .menu(Group::Use, "Reports")
    .filters(&["month"])
    .rows();

pub const SHEET: Page = Page::new("/reports/sheet", include_str!("reports.html"), show_sheet)
    .filters(&["month", "account", "user"]);

/// Months that the archive offers.
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
    let question = |everybody| SheetQuestion {
        month: Some(month.clone()),
        everybody,
        runs: 0,
        ..SheetQuestion::default()
    };
    // A month without usage is a usual state of the archive.
    let (sheets, error) = match visit.ask(&question(true)) {
        Ok(sheets) => (sheets, None),
        Err(error) => (Vec::new(), Some(error.reason().to_owned())),
    };
    let sent = visit.ask(&SentQuestion {
        month: month.clone(),
        ..SentQuestion::default()
    });
    let sent = sent.unwrap_or_default();
    let row = |sheet: &Sheet| {
        let (kind, name) = (sheet.subject.kind(), sheet.subject.name());
        let mut address = format!("/reports/sheet?month={month}");
        if matches!(kind, "user" | "account") {
            let name: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
            address.push_str(&format!("&{kind}={name}"));
        }
        let figures = &sheet.figures;
        let last = sent
            .iter()
            .filter(|sent| sent.kind == kind && (kind == "cluster" || sent.subject == name));
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
    let months = (0..MONTHS).filter_map(|back| {
        let first = today
            .first_of_month()
            .checked_sub(jiff::Span::new().months(back))
            .ok()?;
        let name = first.strftime("%Y-%m").to_string();
        Some(context! {
            address => visit.address(&[("month", &name)]),
            is_current => name == month,
            name,
        })
    });
    let months: Vec<Value> = months.collect();
    let values = context! { month, months, error, is_open => month == this_month };
    Ok(Content::new("Reports", values).table(table))
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
    let mut out = Vec::new();
    write_sheet(sheet, View::of(sheet), ReportFormat::Html, None, &mut out)
        .map_err(|error| PageError::failed(&error))?;
    let document = String::from_utf8_lossy(&out).into_owned();
    Ok(Content::new("Report", context! {}).document(document))
}
