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
        "Waste of Account =cmd|'<b>x</b>'\u{fffd}[31m on lab, October 2026",
        "did nothing 25.0 25 % 25.00 EUR",
        "1 of its 2 GPUs did nothing; would spare 25.0 GPU-hours (25.00 EUR)",
        "#SBATCH --gpus=1",
        "node failed g1 3.00 6.00 yes",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let text = words(View::Account);
    assert!(
        text.contains("+20 % on the 1 before") && text.contains("9 of 10 runs measured"),
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
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
    }
    assert!(written(View::Account, ReportFormat::Html).contains("class=\"idle\""));
}

#[test]
fn a_page_lists_the_largest_losses_and_says_how_many_there_are_besides() {
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
