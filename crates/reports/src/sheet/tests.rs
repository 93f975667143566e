use super::*;
use takt_accounting::efficiency::{FixKind, Split};
use takt_accounting::sheet::{Day, Figures, FixRow, LostRow, Member, RunRow, Subject};

/// A user name that every format has to escape.
const NAME: &str = "=cmd|'<b>x</b>'\u{1b}[31m";

fn sheet() -> Sheet {
    let split = Split {
        used: 60.0,
        idle: 25.0,
        low: 10.0,
        unmeasured: 5.0,
        ..Split::default()
    };
    let figures = Figures {
        period: "2026-10".into(),
        jobs_started: 12,
        jobs_ended: 12,
        gpu_hours: 120.0,
        cpu_hours: 960.0,
        money: 150.0,
        runs_assessed: 10,
        runs_measured: 9,
        gpu_utilization: Some(0.61),
        split_gpu_hours: split,
        split_money: split,
        ..Figures::default()
    };
    let before = Figures {
        period: "2026-09".into(),
        gpu_hours: 100.0,
        cpu_hours: 800.0,
        ..Figures::default()
    };
    Sheet {
        subject: Subject::Account(NAME.into()),
        cluster: "lab".into(),
        period: "2026-10".into(),
        from: "2026-10-01T00:00:00+02:00".into(),
        to: "2026-11-01T00:00:00+01:00".into(),
        timezone: "Europe/Oslo".into(),
        is_open: false,
        currency: Some("EUR".into()),
        has_co2: false,
        has_gpus: true,
        before: vec![before],
        days: vec![Day {
            date: "2026-10-25".into(),
            gpu_hours: 25.0,
            cpu_hours: 25.0,
        }],
        gpu_models: Vec::new(),
        share: None,
        rank: None,
        members: vec![Member {
            name: NAME.into(),
            figures: figures.clone(),
            wait_mean_hours: Some(0.5),
        }],
        accounts: Vec::new(),
        gpu_capacity: None,
        cpu_capacity: None,
        waiting: None,
        fixes: vec![FixRow {
            job: NAME.into(),
            user: NAME.into(),
            fix: FixKind::FewerGpus,
            line: "#SBATCH --gpus=1".into(),
            why: "1 of its 2 GPUs did nothing".into(),
            runs: 3,
            gpu_hours: 25.0,
            money: 25.0,
        }],
        runs: vec![RunRow {
            job_id: "7".into(),
            name: Some(NAME.into()),
            user: NAME.into(),
            account: "a".into(),
            state: "COMPLETED".into(),
            end: "2026-10-25T12:00:00+01:00".into(),
            hours: 50.0,
            gpus: Some(2),
            gpu_model: None,
            coverage: 1.0,
            gpu_utilization: Some(0.4),
            gpu_utilization_p95: Some(0.9),
            idle_longest_hours: Some(25.0),
            gpu_memory_peak_ratio: None,
            gpu_sm: None,
            cpu_ratio: None,
            memory_ratio: None,
            kwh: None,
            split_gpu_hours: split,
            cause: "did nothing".into(),
        }],
        network_bound: Vec::new(),
        lost: vec![LostRow {
            job_id: "8".into(),
            name: Some("train".into()),
            user: NAME.into(),
            nodes: "g1".into(),
            fault: "node failed".into(),
            gpu_hours: 3.0,
            cpu_hours: 6.0,
            is_credited: true,
        }],
        budgets: Vec::new(),
        breaches: Vec::new(),
        notes: vec!["Too little was measured of 1 run.".into()],
        figures,
    }
}

fn written(view: View, format: ReportFormat) -> String {
    let mut out = Vec::new();
    write_sheet(&sheet(), view, format, None, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

const VIEWS: [View; 5] = [
    View::Efficiency,
    View::Waste,
    View::Cluster,
    View::Account,
    View::User,
];

#[test]
fn names_are_defused_in_every_format() {
    for view in VIEWS {
        let table = written(view, ReportFormat::Table);
        assert!(
            !table.contains('\u{1b}') && table.contains("=cmd"),
            "{table}"
        );

        let html = written(view, ReportFormat::Html);
        assert!(
            !html.contains("<b>x</b>") && html.contains("&lt;b&gt;x&lt;&#x2f;b&gt;"),
            "{html}"
        );

        let markdown = written(view, ReportFormat::Md);
        assert!(
            !markdown.contains("<b>x</b>") && !markdown.contains('\u{1b}'),
            "{markdown}"
        );
        // A spreadsheet runs a cell that begins with `=`, so it gets an apostrophe before.
        let csv = written(view, ReportFormat::Csv);
        assert!(
            csv.contains("'=cmd|") && !csv.contains("\n=cmd") && !csv.contains(",=cmd"),
            "{csv}"
        );
    }
}

#[test]
fn terminal_output() {
    let words = |view| {
        written(view, ReportFormat::Table)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };

    let text = words(View::Waste);
    for line in [
        // The escape character is replaced, and the rest of its sequence stays as text.
        "Waste of Account =cmd|'<b>x</b>'\u{fffd}[31m on lab, October 2026",
        "did nothing 25.0 25 % 25.00 EUR",
        "1 of its 2 GPUs did nothing; would spare 25.0 GPU-hours (25.00 EUR)",
        "#SBATCH --gpus=1",
        "8 train =cmd|'<b>x</b>'\u{fffd}[31m node failed g1 3.00 6.00 yes",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }

    let text = words(View::Account);
    assert!(
        text.contains("+20 % on the period before") && text.contains("9 of 10 runs measured"),
        "{text}"
    );
}

/// On a cluster without GPUs, texts for people omit them, and formats for programs keep their
/// columns.
#[test]
fn gpus_are_omitted_on_a_cluster_without_them() {
    let split = Split::default();
    let figures = Figures {
        gpu_hours: 0.0,
        gpu_utilization: None,
        split_gpu_hours: split,
        ..sheet().figures
    };
    let member = Member {
        name: "ann".into(),
        figures: figures.clone(),
        wait_mean_hours: None,
    };
    let run = RunRow {
        gpus: Some(0),
        gpu_utilization: None,
        gpu_utilization_p95: None,
        idle_longest_hours: None,
        split_gpu_hours: split,
        cause: String::new(),
        cpu_ratio: Some(0.4),
        ..sheet().runs.remove(0)
    };

    let before = Figures {
        gpu_hours: 0.0,
        ..sheet().before.remove(0)
    };
    let fixes = Vec::new();
    let lost = sheet().lost;
    let plain = Sheet {
        has_gpus: false,
        figures,
        before: vec![before],
        members: vec![member.clone()],
        accounts: vec![member],
        runs: vec![run],
        fixes,
        lost,
        days: vec![Day {
            gpu_hours: 0.0,
            ..sheet().days.remove(0)
        }],
        ..sheet()
    };

    for view in VIEWS {
        for format in [ReportFormat::Table, ReportFormat::Md, ReportFormat::Html] {
            let mut out = Vec::new();
            write_sheet(&plain, view, format, None, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            let body = text
                .split_once("<h1>")
                .map_or(text.as_str(), |(_, body)| body)
                .to_lowercase();
            assert!(
                !body.contains("gpu") && !body.contains("wasted"),
                "{view:?} {format:?}\n{text}"
            );
            assert!(
                view == View::Waste || body.contains("cpu"),
                "{view:?} {format:?}\n{text}"
            );
        }
    }
    // A program may expect the columns on every cluster.
    let mut out = Vec::new();
    write_sheet(&plain, View::Cluster, ReportFormat::Csv, None, &mut out).unwrap();
    assert!(
        String::from_utf8(out)
            .unwrap()
            .starts_with("user,gpu_hours,cpu_hours,")
    );
}

#[test]
fn every_page_is_one_file_that_asks_for_nothing() {
    for view in VIEWS {
        let html = written(view, ReportFormat::Html);
        // A mailed or archived page must not call anywhere.
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!html.contains(outside), "{outside}");
        }
        // Shares of nothing, and bars of no length.
        assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
    }

    assert!(written(View::Account, ReportFormat::Html).contains("class=\"idle\""));
}

#[test]
fn a_page_lists_the_largest_losses_and_says_how_many_there_are_besides() {
    // Three more than a page lists.
    let lost = (0..23)
        .map(|at| LostRow {
            job_id: format!("lost-{at}"),
            ..sheet().lost.remove(0)
        })
        .collect();
    let many = Sheet { lost, ..sheet() };
    for format in [ReportFormat::Table, ReportFormat::Html, ReportFormat::Json] {
        let mut out = Vec::new();
        write_sheet(&many, View::Cluster, format, None, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();

        let all = format == ReportFormat::Json;
        assert!(
            text.contains("lost-19") && text.contains("lost-20") == all,
            "{text}"
        );
        assert!(
            text.contains("3 smaller ones are not listed") != all,
            "{text}"
        );
    }
}

#[test]
fn json_is_the_sheet_itself() {
    let json = written(View::Cluster, ReportFormat::Json);
    assert_eq!(serde_json::from_str::<Sheet>(&json).unwrap(), sheet());
}

/// Properties that both Gmail and Outlook document as supported on table cells and texts, and
/// `max-width`, without which Outlook uses the `width` attribute beside it.
const MAIL_PROPERTIES: [&str; 20] = [
    "background-color",
    "border-bottom",
    "border-top",
    "color",
    "font-family",
    "font-size",
    "font-weight",
    "height",
    "line-height",
    "margin",
    "max-width",
    "padding",
    "text-align",
    "vertical-align",
    "width",
    "border-left",
    "border-right",
    "border",
    "white-space",
    "text-decoration",
];

/// Fails if a mail program of Gmail or Outlook would not show the page as it is meant.
#[track_caller]
fn assert_for_mail(html: &str) {
    for refused in [
        "<style",
        "<svg",
        "<script",
        "<link",
        "<img",
        "<div",
        "class=",
        "var(",
        "url(",
        "@media",
        "@import",
        "javascript:",
    ] {
        assert!(!html.contains(refused), "{refused}\n{html}");
    }

    for style in html.split("style=\"").skip(1) {
        let style = style.split('"').next().unwrap();

        for declaration in style.split(';').filter(|one| !one.trim().is_empty()) {
            let (property, value) = declaration.split_once(':').unwrap();
            assert!(
                MAIL_PROPERTIES.contains(&property.trim()),
                "{property}: {value}"
            );
        }
    }
    // Gmail's own limit, not the one that leaves room below it.
    assert!(html.len() <= 102_000, "Gmail cuts {} bytes", html.len());
    assert!(!html.contains("NaN") && !html.contains("inf%"), "{html}");
    // Outlook shows nothing of a table that is not closed.
    for (open, close) in [("<table", "</table>"), ("<tr", "</tr>"), ("<td", "</td>")] {
        let count = |part: &str| html.matches(part).count();
        assert_eq!(count(open), count(close), "{open}");
    }
}

#[test]

fn a_mail_keeps_to_what_gmail_and_outlook_show() {
    for view in VIEWS {
        let html = mail_page(&sheet(), view).unwrap();
        assert_for_mail(&html);
        assert!(!html.contains("<b>x</b>"), "{html}");
        assert!(html.contains("Where the GPU-hours went"), "{html}");
    }
}

#[test]
fn a_large_cluster_fits_into_a_mail() {
    let long = "n".repeat(200);
    let many = |count: usize, name: &str| -> Vec<Member> {
        (0..count)
            .map(|at| Member {
                name: format!("{name}{at}{long}"),
                ..sheet().members.remove(0)
            })
            .collect()
    };

    let runs = (0..500).map(|at| RunRow {
        job_id: format!("{at}"),
        ..sheet().runs.remove(0)
    });
    let lost = (0..500).map(|at| LostRow {
        job_id: format!("{at}"),
        nodes: format!("g[{}]", long),
        ..sheet().lost.remove(0)
    });

    let day = |at: u8| Day {
        date: format!("2026-10-{at:02}"),
        gpu_hours: f64::from(at),
        cpu_hours: 1.0,
    };

    let large = Sheet {
        subject: Subject::Cluster,
        members: many(300, "user"),
        accounts: many(100, "account"),
        runs: runs.collect(),
        lost: lost.collect(),
        days: (1..=31).map(day).collect(),
        ..sheet()
    };

    let html = mail_page(&large, View::Cluster).unwrap();
    assert_for_mail(&html);
    assert!(
        html.contains("user0n") && html.contains("more rows of these tables"),
        "{html}"
    );
}

#[test]
fn hours_that_were_not_measured_are_unknown_and_not_zero() {
    let split = Split {
        unmeasured: 80.0,
        ..Split::default()
    };
    let figures = Figures {
        gpu_utilization: None,
        runs_measured: 0,
        split_gpu_hours: split,
        split_money: split,
        ..sheet().figures
    };

    let unmeasured = Sheet {
        figures: figures.clone(),
        members: vec![Member {
            figures,
            ..sheet().members.remove(0)
        }],
        ..sheet()
    };

    for view in [View::Waste, View::Cluster] {
        let mut out = Vec::new();
        write_sheet(&unmeasured, view, ReportFormat::Table, None, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("None of the 120 GPU-hours were judged"),
            "{text}"
        );
        // A zero would be a claim that nothing was wasted.
        for zero in [" 0 0 %", "-0 %", " 0.00 EUR"] {
            assert!(!words.contains(zero), "{zero}\n{text}");
        }
    }

    for page in [
        page(&unmeasured, View::Cluster),
        mail_page(&unmeasured, View::Cluster),
    ] {
        let html = page.unwrap();
        assert!(
            html.contains("None of the 120 GPU-hours were judged"),
            "{html}"
        );
        assert!(
            !html.contains(">0 %<") && !html.contains(">0.00 EUR"),
            "{html}"
        );
    }

    let mut out = Vec::new();
    write_sheet(&unmeasured, View::Waste, ReportFormat::Csv, None, &mut out).unwrap();
    let csv = String::from_utf8(out).unwrap();

    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let cell = |name: &str| rows[1][rows[0].iter().position(|head| *head == name).unwrap()];
    assert_eq!(
        ["used_gpu_hours", "idle_gpu_hours", "wasted_money"].map(cell),
        [""; 3]
    );
    assert_eq!(cell("unmeasured_gpu_hours"), "80");
}

#[test]
fn the_coverage_of_the_categories_is_beside_them() {
    let text = written(View::Cluster, ReportFormat::Table);
    let coverage = "95.0 of 120 GPU-hours (79 %) were judged.";
    // The coverage comes directly before the table whose shares it limits.
    let at = text.find(coverage).expect(&text);
    let table = text.find("GPU-hours of finished runs by category").unwrap();
    assert!(at < table && table - at < 200, "{text}");
    assert!(written(View::Cluster, ReportFormat::Html).contains(coverage));
}

#[test]
fn tables_of_reports_fit_eighty_columns() {
    for view in VIEWS {
        let mut out = Vec::new();
        write_sheet(&sheet(), view, ReportFormat::Table, Some(80), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        // Lines of code are to be copied, and may be longer.
        let in_tables = text
            .lines()
            .filter(|line| line.starts_with(' ') && !line.starts_with("    #"));
        for line in in_tables {
            assert!(line.chars().count() <= 80, "{view:?}: {line}");
        }
    }
}
