use super::*;
use crate::efficiency::{self, AssessedRun, Efficiency, EfficiencyConfig};
use crate::{Accounts, BudgetConfig, Credit, Period, RateCard, Rates, RatesConfig};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use proptest::collection;
use proptest::prelude::*;
use takt_jobs::JobRun;
use takt_model::UnixTime;

/// 2026-10-01 and 2026-11-01 in Oslo: 31 days, one day with 25 hours.
const OCTOBER: UnixTime = UnixTime(1_790_805_600);
const NOVEMBER: UnixTime = UnixTime(1_793_487_600);
const HOUR: i64 = 3600;

fn periods() -> Vec<Period> {
    let zone = TimeZone::get("Europe/Oslo").unwrap();
    let now: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
    ["2026-07", "2026-08", "2026-09", "2026-10"]
        .map(|month| Period::month(month, &zone, now).unwrap())
        .into()
}

fn rates() -> Rates {
    let card = RateCard {
        gpu_hour: 2.0,
        co2_g_per_kwh: 100.0,
        ..RateCard::default()
    };
    Rates::new(
        &RatesConfig {
            currency: Some("EUR".into()),
            cards: vec![card],
        },
        &TimeZone::UTC,
    )
}

fn run(id: &str, user: &str, account: &str, start: UnixTime, end: UnixTime) -> JobRun {
    JobRun {
        cluster: "lab".into(),
        job_id: id.into(),
        submit: start - 600,
        start: Some(start),
        end: Some(end),
        state: "COMPLETED".into(),
        user: user.into(),
        account: account.into(),
        name: Some("train".into()),
        nodes: Some(1),
        cpus: Some(8),
        gpus: Some(2),
        gpu_model: Some("a100".into()),
        mem_bytes: Some(64 << 30),
        ..JobRun::default()
    }
}

/// A run with one working and one idle GPU.
fn half_idle(run: JobRun) -> AssessedRun {
    let seconds = (run.end.unwrap() - run.start.unwrap()) as f64;
    let efficiency = Efficiency {
        held_seconds: seconds as u64,
        held_gpu_seconds: Some(2.0 * seconds),
        coverage_ratio: 1.0,
        gpus_measured: 2,
        gpus_idle: 1,
        gpu_utilization_mean: Some(0.4),
        gpu_energy_joules: Some(500.0 * seconds),
        used_gpu_seconds: seconds,
        waste_idle_gpu_seconds: seconds,
        ..Efficiency::default()
    };
    AssessedRun { run, efficiency }
}

struct World {
    runs: Vec<JobRun>,
    assessed: Vec<AssessedRun>,
    credits: Vec<Credit>,
    accounts: Accounts,
    pseudonyms: bool,
    records_from: Option<UnixTime>,
    rates: Rates,
}

impl World {
    fn of(runs: Vec<JobRun>) -> Self {
        let assessed = runs.iter().cloned().map(half_idle).collect();
        Self {
            assessed,
            runs,
            credits: Vec::new(),
            accounts: Accounts::default(),
            pseudonyms: false,
            records_from: None,
            rates: rates(),
        }
    }

    fn sheet(&self, subject: Subject) -> Option<Sheet> {
        let periods = periods();
        let mut journal = Journal::new(&periods, &self.rates, NOVEMBER + 1000);
        self.runs.iter().for_each(|run| journal.add(&run.held()));
        let books = journal.close();
        let budget = BudgetConfig {
            user: Some("ann".into()),
            gpu_hours: Some(40.0),
            ..BudgetConfig::default()
        };
        let facts = Facts {
            cluster: "lab",
            books: &books,
            records_from: self.records_from,
            accounts: &self.accounts,
            assessed: &self.assessed,
            credits: &self.credits,
            budgets: &budget.used(30.0, 0.0, "EUR"),
            breaches: &[],
            rules: &EfficiencyConfig::default(),
            currency: Some("EUR"),
            pseudonyms: self.pseudonyms,
            most_runs: 10,
            now: NOVEMBER + 1000,
        };
        sheet(&facts, &subject)
    }
}

fn user(name: &str) -> Subject {
    Subject::User(name.into())
}

#[test]
fn a_month_with_a_day_of_25_hours_computed_by_hand() {
    // All of October 24 to 26 in Oslo: 24 + 25 + 24 hours, two GPUs.
    let from = OCTOBER + 23 * 24 * HOUR;
    let long = run("1", "ann", "physics", from, from + 73 * HOUR);
    // Two hours, one before the month's end and one after.
    let across = run("2", "ann", "physics", NOVEMBER - HOUR, NOVEMBER + HOUR);
    let sheet = World::of(vec![long, across]).sheet(user("ann")).unwrap();
    let figures = &sheet.figures;
    assert_eq!(figures.gpu_hours, 2.0 * 74.0);
    assert_eq!(figures.cpu_hours, 8.0 * 74.0);
    assert_eq!(figures.jobs_started, 2);
    assert_eq!(figures.jobs_ended, 1);
    assert_eq!(sheet.days.len(), 31);
    let day = |day: usize| {
        (
            sheet.days[day - 1].date.as_str(),
            sheet.days[day - 1].gpu_hours,
        )
    };
    assert_eq!(
        [day(23), day(24), day(25), day(26), day(27), day(31)],
        [
            ("2026-10-23", 0.0),
            ("2026-10-24", 48.0),
            ("2026-10-25", 50.0),
            ("2026-10-26", 48.0),
            ("2026-10-27", 0.0),
            ("2026-10-31", 2.0)
        ]
    );
    // Half of the second run's waste lies in the month; GPUs at 2 EUR, 500 W a run.
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
    close(figures.split_gpu_hours.idle, 74.0);
    close(figures.split_money.idle, 148.0);
    close(figures.money, 296.0);
    close(figures.kwh, 37.0);
    close(figures.co2_kg, 3.7);
    assert_eq!(figures.gpu_utilization, Some(0.4));
    let waiting = sheet.waiting.unwrap();
    assert_eq!(waiting.runs, 2);
    assert_eq!(waiting.median_seconds, 600);
    assert_eq!(waiting.longest_seconds, 600);
    assert_eq!(sheet.fixes[0].line, "#SBATCH --gpus=1");
    assert_eq!(sheet.fixes[0].runs, 2);
    assert_eq!(sheet.fixes[0].gpu_hours, 74.0);
    assert_eq!(sheet.budgets[0].warning, Some(0.5));
    assert_eq!(sheet.notes, Vec::<String>::new());
}

#[test]
fn trend_share_and_rank() {
    let at = |month: i64, hours: i64| {
        (
            OCTOBER + month * 30 * 24 * HOUR,
            OCTOBER + month * 30 * 24 * HOUR + hours * HOUR,
        )
    };
    let of = |id: &str, user: &str, account: &str, (from, to): (UnixTime, UnixTime)| {
        run(id, user, account, from, to)
    };
    let mut world = World::of(vec![
        of("1", "ann", "physics", at(0, 30)),
        of("2", "ann", "biology", at(1, -1).max(at(0, 10))),
        of("3", "bob", "physics", at(0, 50)),
        of("4", "cid", "physics", at(0, 5)),
        of("5", "ann", "physics", at(-1, 20)),
        of("6", "ann", "physics", at(-2, 10)),
    ]);
    // Run 2 ends before it begins, so the books do not have it.
    world.runs.retain(|run| run.end > run.start);
    let sheet = world.sheet(user("ann")).unwrap();
    let hours: Vec<f64> = sheet
        .before
        .iter()
        .map(|figures| figures.gpu_hours)
        .collect();
    assert_eq!(hours, [0.0, 20.0, 40.0]);
    let rank = sheet.rank.unwrap();
    let places: Vec<_> = rank
        .rows
        .iter()
        .map(|row| (row.place, row.name.as_deref(), row.is_self))
        .collect();
    assert_eq!(rank.place, 2);
    assert_eq!(rank.of, 3);
    assert_eq!(
        places,
        [
            (1, Some("bob"), false),
            (2, Some("ann"), true),
            (3, Some("cid"), false)
        ]
    );

    // With pseudonyms, one's own name is the only one.
    world.pseudonyms = true;
    let hidden = world.sheet(user("ann")).unwrap().rank.unwrap();
    assert_eq!(
        hidden
            .rows
            .iter()
            .map(|row| row.name.as_deref())
            .collect::<Vec<_>>(),
        [None, Some("ann"), None]
    );
    let account = world.sheet(Subject::Account("physics".into())).unwrap();
    assert_eq!(
        account
            .members
            .iter()
            .map(|member| member.name.as_str())
            .collect::<Vec<_>>(),
        ["bob", "ann", "cid"]
    );
    assert!(account.rank.is_none());
    let cluster = world.sheet(Subject::Cluster).unwrap();
    assert_eq!(cluster.accounts[0].name, "physics");
    let members: f64 = cluster
        .members
        .iter()
        .map(|member| member.figures.gpu_hours)
        .sum();
    assert!((members - cluster.figures.gpu_hours).abs() < 1e-9);
    assert_eq!(world.sheet(user("dan")), None);
}

/// Issue 13.8: "+51 % on the 3 before" counted the months before the records began as 0.
#[test]
fn months_before_the_records_began_are_unknown() {
    const DAY: i64 = 24 * HOUR;
    let month = |id: &str, start: UnixTime| run(id, "ann", "physics", start, start + 30 * HOUR);
    let september = OCTOBER - 30 * DAY;
    let mut world = World::of(vec![
        month("1", september + DAY / 2),
        month("2", OCTOBER + HOUR),
    ]);
    let change = |world: &World| {
        let sheet = world.sheet(user("ann")).unwrap();
        let names: Vec<String> = sheet
            .before
            .iter()
            .map(|month| month.period.clone())
            .collect();
        (names.join(" "), sheet.change(|figures| figures.gpu_hours))
    };
    // Records since July: two months without usage count.
    assert_eq!(
        change(&world),
        ("2026-07 2026-08 2026-09".into(), Some((2.0, 3)))
    );
    world.records_from = Some(september + DAY / 2);
    assert_eq!(change(&world), ("2026-09".into(), Some((0.0, 1))));
    // Records since the middle of September: the month is shown, but not compared with.
    world.records_from = Some(september + 15 * DAY);
    assert_eq!(change(&world), ("2026-09".into(), None));
    let sheet = world.sheet(user("ann")).unwrap();
    assert!(sheet.before[0].is_partial);
    assert!(!sheet.figures.is_partial);
    // A partial month is not compared with anything.
    world.records_from = Some(OCTOBER + 2 * DAY);
    assert_eq!(change(&world), (String::new(), None));
    let sheet = world.sheet(user("ann")).unwrap();
    assert!(sheet.figures.is_partial);
    let note =
        "The job records begin on 2026-10-03: what ran before in this period is unknown, not zero.";
    assert!(
        sheet.notes.iter().any(|one| one == note),
        "{:?}",
        sheet.notes
    );
}

/// Issue 13.8: "GPU-hours wasted 0" and "measured -0 %" where nothing was measured.
#[test]
fn waste_of_unmeasured_runs_is_unknown() {
    let lone = run("1", "ann", "physics", OCTOBER, OCTOBER + 10 * HOUR);
    let rules = EfficiencyConfig::default();
    let efficiency = efficiency::assess(&lone, &[], &rules).unwrap();
    let mut world = World::of(vec![lone]);
    world.assessed[0].efficiency = efficiency;
    let sheet = world.sheet(user("ann")).unwrap();
    let split = sheet.figures.split_gpu_hours;
    assert_eq!(split.held(), 20.0);
    assert_eq!(split.unmeasured, 20.0);
    assert_eq!(split.known_waste(), None);
    assert_eq!(sheet.figures.gpu_utilization, None);
    assert!(sheet.runs[0].coverage.is_sign_positive());
    assert!(sheet.figures.credited_gpu_hours.is_sign_positive());
    // Values that an older version stored.
    world.assessed[0].efficiency.coverage_ratio = -0.0;
    let sheet = world.sheet(user("ann")).unwrap();
    assert!(sheet.runs[0].coverage.is_sign_positive());
    // A run that was measured and wasted nothing has 0, not unknown.
    world.assessed[0].efficiency.used_gpu_seconds = 3600.0;
    let sheet = world.sheet(user("ann")).unwrap();
    assert_eq!(sheet.figures.split_gpu_hours.known_waste(), Some(0.0));
}

#[test]
fn runs_that_were_not_measured_are_not_among_the_most_wasted() {
    let mut world = World::of(vec![
        run("1", "ann", "physics", OCTOBER, OCTOBER + 10 * HOUR),
        run("2", "ann", "physics", OCTOBER, OCTOBER + 20 * HOUR),
    ]);
    let unmeasured = &mut world.assessed[0];
    unmeasured.efficiency =
        efficiency::assess(&unmeasured.run, &[], &EfficiencyConfig::default()).unwrap();
    let measured = &mut world.assessed[1].efficiency;
    measured.used_gpu_seconds = 3600.0;
    let listed = |world: &World| -> Vec<String> {
        let runs = world.sheet(user("ann")).unwrap().runs;
        runs.into_iter().map(|run| run.job_id).collect()
    };
    assert_eq!(listed(&world), ["2"]);

    // Without any measurement the runs are listed all the same.
    world.assessed.truncate(1);
    assert_eq!(listed(&world), ["1"]);
}

#[test]
fn credits_count_for_the_month_of_the_loss_until_they_are_revoked() {
    let mut world = World::of(vec![run(
        "1",
        "ann",
        "physics",
        OCTOBER,
        OCTOBER + 10 * HOUR,
    )]);
    world.assessed[0].efficiency.fault = Some("node failed".into());
    let credit = Credit {
        id: 1,
        user: "ann".into(),
        account: "physics".into(),
        job_id: Some("1".into()),
        submit: Some(OCTOBER - 600),
        gpu_seconds: 72_000.0,
        credited_to: OCTOBER + 10 * HOUR,
        ..Credit::default()
    };
    world.credits.push(credit.clone());
    let sheet = world.sheet(user("ann")).unwrap();

    // 72,000 GPU-seconds are 20 GPU-hours.
    assert_eq!(sheet.figures.credited_gpu_hours, 20.0);
    assert!(sheet.lost[0].is_credited);

    // The second credit revokes the first.
    world.credits.push(Credit {
        id: 2,
        revokes: Some(1),
        ..credit
    });
    let sheet = world.sheet(user("ann")).unwrap();
    assert_eq!(sheet.figures.credited_gpu_hours, 0.0);
    assert!(!sheet.lost[0].is_credited);
}

#[test]
fn a_running_job_is_listed_and_not_judged() {
    let world = World {
        runs: vec![JobRun {
            end: None,
            state: "RUNNING".into(),
            ..run("1", "ann", "physics", NOVEMBER - 5 * HOUR, UnixTime(0))
        }],
        assessed: Vec::new(),
        credits: Vec::new(),
        accounts: Accounts::default(),
        pseudonyms: false,
        records_from: None,
        rates: rates(),
    };
    let sheet = world.sheet(user("ann")).unwrap();
    // Five hours with two GPUs.
    assert_eq!(sheet.figures.gpu_hours, 10.0);
    assert_eq!(sheet.figures.split_gpu_hours.held(), 0.0);
    assert_eq!(
        sheet.notes,
        ["10.0 GPU-hours belong to runs that have not ended or have no efficiency."]
    );
}

#[test]
fn an_accounts_sheet_is_of_those_below_it_too() {
    let hours = |id: &str, user: &str, account: &str, hours: i64| {
        run(id, user, account, OCTOBER, OCTOBER + hours * HOUR)
    };
    let runs = vec![
        hours("1", "ann", "physics", 1),
        hours("2", "bob", "laser", 2),
        hours("3", "ann", "laser", 4),
        hours("4", "cid", "bio", 8),
    ];
    let mut world = World::of(runs);
    let parents = [
        ("laser", "optics"),
        ("optics", "physics"),
        ("physics", "root"),
        ("bio", "root"),
    ];
    world.accounts = Accounts::new(
        parents
            .map(|(of, above)| (of.to_owned(), above.to_owned()))
            .into(),
    );
    let names = |members: &[Member]| {
        members
            .iter()
            .map(|one| (one.name.clone(), one.figures.gpu_hours))
            .collect::<Vec<_>>()
    };
    let named = |pairs: &[(&str, f64)]| {
        pairs
            .iter()
            .map(|(name, hours)| ((*name).to_owned(), *hours))
            .collect::<Vec<_>>()
    };
    let of = |account: &str| world.sheet(Subject::Account(account.into())).unwrap();
    let physics = of("physics");
    assert_eq!(physics.figures.gpu_hours, 14.0);
    assert_eq!(physics.figures.runs_assessed, 3);
    assert_eq!(
        names(&physics.members),
        named(&[("ann", 10.0), ("bob", 4.0)])
    );
    assert_eq!(
        names(&physics.accounts),
        named(&[("laser", 12.0), ("physics", 2.0)])
    );
    // No run is charged to this account itself.
    assert_eq!(of("optics").figures.gpu_hours, 12.0);
    assert_eq!(of("laser").accounts, Vec::new());
    assert_eq!(of("bio").figures.gpu_hours, 16.0);
    assert_eq!(world.sheet(Subject::Account("root".into())), None);
    assert_eq!(
        world.sheet(Subject::Cluster).unwrap().figures.gpu_hours,
        30.0
    );
}

proptest! {
    /// For all inputs: days add up to the month, users and accounts to the cluster, and months to
    /// whole runs.
    #[test]
    fn sums_agree(
        runs in collection::vec((0_usize..4, 0_usize..3, -70_i64 * 24..31 * 24, 1_i64..2000), 1..40),
    ) {
        let runs: Vec<JobRun> = runs
            .into_iter()
            .enumerate()
            .map(|(id, (user, account, start, hours))| {
                let start = OCTOBER + start * HOUR;
                let end = (start + hours * 600).min(NOVEMBER);
                run(
                    &id.to_string(),
                    ["ann", "bob", "cid", "dan"][user],
                    ["p", "q", "r"][account],
                    start,
                    end,
                )
            })
            .collect();
        let whole: f64 = runs
            .iter()
            .map(|run| 2.0 * (run.end.unwrap() - run.start.unwrap()) as f64 / 3600.0)
            .sum();
        let world = World::of(runs);
        let sheet = world.sheet(Subject::Cluster).unwrap();
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(1.0);
        let sum = |parts: Vec<f64>| parts.into_iter().sum::<f64>();
        prop_assert!(close(
            sum(sheet.days.iter().map(|day| day.gpu_hours).collect()),
            sheet.figures.gpu_hours
        ));
        for members in [&sheet.members, &sheet.accounts] {
            prop_assert!(close(
                sum(members.iter().map(|m| m.figures.gpu_hours).collect()),
                sheet.figures.gpu_hours
            ));
            prop_assert!(close(
                sum(members
                    .iter()
                    .map(|m| m.figures.split_gpu_hours.idle)
                    .collect()),
                sheet.figures.split_gpu_hours.idle
            ));
            prop_assert!(close(
                sum(members.iter().map(|m| m.figures.money).collect()),
                sheet.figures.money
            ));
        }
        let months = sum(sheet
            .before
            .iter()
            .chain([&sheet.figures])
            .map(|figures| figures.gpu_hours)
            .collect());
        prop_assert!(close(months, whole), "{months} {whole}");
        prop_assert!(close(
            sheet.figures.split_gpu_hours.held(),
            sheet.figures.gpu_hours
        ));
    }
}

/// A card that priced A100 made the a100 free, and no report said so.
#[test]
fn usage_without_a_price_is_named() {
    let at = |hours| OCTOBER + hours * HOUR;
    let mut world = World::of(vec![
        run("1", "ann", "physics", at(0), at(3)),
        run("2", "ann", "physics", at(4), at(5)),
    ]);
    world.runs[1].gpu_model = Some("l40s".into());
    let notes = |world: &mut World, priced: &[&str], gpu_hour| {
        let card = RateCard {
            gpu_hour,
            gpu_models: priced
                .iter()
                .map(|name| ((*name).to_owned(), 0.0))
                .collect(),
            ..RateCard::default()
        };
        let config = RatesConfig {
            currency: Some("EUR".into()),
            cards: vec![card],
        };
        world.rates = Rates::new(&config, &TimeZone::UTC);
        world.sheet(user("ann")).unwrap().notes
    };
    assert_eq!(
        notes(&mut world, &["A100"], 0.0),
        ["No price for a100, l40s: 8.00 GPU-hours cost nothing here."]
    );
    // A price of 0 is meant, and so is a card that prices no GPUs.
    let none = Vec::<String>::new();
    assert_eq!(notes(&mut world, &["a100", "l40s"], 0.0), none);
    assert_eq!(notes(&mut world, &["A100"], 1.0), none);
    assert_eq!(notes(&mut world, &[], 0.0), none);
}

#[test]
fn usage_before_the_first_price_is_named() {
    let mut world = World::of(vec![run("1", "ann", "physics", OCTOBER, OCTOBER + HOUR)]);
    let config = RatesConfig {
        currency: Some("EUR".into()),
        cards: vec![RateCard {
            // A mistyped year.
            from: "2036-01-01".into(),
            gpu_hour: 1.5,
            ..RateCard::default()
        }],
    };
    world.rates = Rates::new(&config, &TimeZone::UTC);
    assert_eq!(
        world.sheet(user("ann")).unwrap().notes,
        ["Prices begin on 2036-01-01: what was used before costs nothing here."]
    );
}
