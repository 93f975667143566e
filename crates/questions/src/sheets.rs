//! Reports of users, accounts and the cluster.

use super::budgets::{Ledgers, books, budgets};
use super::capacity::report;
use super::near::did_you_mean;
use super::period::{at_most_days, the_cluster, the_period, the_zone};
use super::visible::{
    ShownSums, known_accounts, known_users, no_run_of, reduce_member_sheet, reduce_sheet,
    sees_subject,
};
use super::{AccountingConfig, AnswerConfig, AnswerError, Question};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::array;
use std::collections::BTreeSet;
use takt_access::{Need, Privacy, Viewer, Way};
use takt_accounting::capacity::CapacityRow;
use takt_accounting::sheet::{Books, Entry, Facts, Sheet, Subject, sheet};
use takt_accounting::{Accounts, Breach, Period, Rates};
use takt_jobs::time_zone;
use takt_model::UnixTime;
use takt_store::{Database, JobFilter, Records};

/// Asks for the reports of a user, an account, the cluster, or all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SheetQuestion {
    /// Month, `2026-10`. Default without a period: the current month.
    pub month: Option<String>,
    /// First day of the period.
    pub from: Option<String>,
    /// End of the period (exclusive).
    pub to: Option<String>,
    /// User of the report.
    pub user: Option<String>,
    /// Account of the report.
    pub account: Option<String>,
    /// Whether the answer has a report for every user and account with usage, and the cluster's. Without this, a user
    /// and an account, the answer is the cluster's report.
    pub everybody: bool,
    /// Maximum number of runs listed in a report.
    pub runs: usize,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
    /// Time zone (IANA name) of the days. Default: the cluster's, else this machine's.
    pub timezone: Option<String>,
}

impl Default for SheetQuestion {
    fn default() -> Self {
        Self {
            month: None,
            from: None,
            to: None,
            user: None,
            account: None,
            everybody: false,
            runs: 10,
            cluster: None,
            timezone: None,
        }
    }
}

impl Question for SheetQuestion {
    const PATH: &'static str = "/api/takt/v1/report/sheets";
    const NEED: Need = Need::SignedIn;
    type Answer = Vec<Sheet>;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<Vec<Sheet>, AnswerError> {
        config.kept.answer(self, viewer, database, || {
            visible_sheets(database, viewer, self, &config.accounting)
        })
    }
}

/// Longest period of everybody's reports, in days.
const MOST_DAYS: i64 = 366;

/// Number of periods before the reported one in the trend.
const BEFORE: usize = 3;

/// All reports that the question asks for, as of now.
///
/// # Errors
/// When the question is wrong, the subject has no usage, or the store fails.
pub fn sheets(
    database: &Database,
    question: &SheetQuestion,
    config: &AccountingConfig,
) -> Result<Vec<Sheet>, AnswerError> {
    visible_sheets(database, &Viewer::server(), question, config)
}

/// The reports that the viewer may see, without what the viewer may not see in them.
fn visible_sheets(
    database: &Database,
    viewer: &Viewer,
    question: &SheetQuestion,
    config: &AccountingConfig,
) -> Result<Vec<Sheet>, AnswerError> {
    let records = Records::of(database);
    let known = the_cluster(
        &records,
        question.cluster.as_deref(),
        config.home.as_deref(),
    )?;
    let cluster = known.cluster.as_str();

    let zone = match &question.timezone {
        Some(name) => time_zone(name).map_err(AnswerError::usage)?,
        None => the_zone(&known, config)?,
    };
    let now = Timestamp::now();
    let period = the_period(&question.month, &question.from, &question.to, &zone, now)?;
    if question.everybody {
        // Each of these reports lists the days of the period.
        at_most_days(&period, MOST_DAYS)?;
    }
    let periods = with_before(period);

    let rates = Rates::new(&config.rates, &zone);
    let only = coordinated(viewer, question);
    let books = books(&records, cluster, &periods, &rates, only, now)?;

    let last = periods.last().expect("the list has the period asked for");
    // The trend needs the runs of the periods before, too.
    let from = periods.first().map_or(last.from(), Period::from);
    let mut assessed = records.assessed(cluster, from, last.to())?;
    let mut credits = records.credits(cluster)?;
    let mut breaches = breaches(&records, cluster, last, &zone, config, now)?;

    // A coordinator's report of a member has nothing of the member's other accounts.
    if let Some(accounts) = only {
        assessed.retain(|one| accounts.contains(&one.run.account));
        credits.retain(|one| accounts.contains(&one.account));
        breaches.retain(|one| accounts.contains(&one.account));
    }

    let accounts = records.accounts(cluster)?;
    let ledgers = Ledgers {
        month: &books,
        accounts: &accounts,
        rates: &rates,
    };

    let facts = Facts {
        cluster,
        books: &books,
        records_from: records.extent(cluster)?.map(|(from, _)| from),
        accounts: &accounts,
        assessed: &assessed,
        credits: &credits,
        budgets: &budgets(&records, cluster, &ledgers, config, now)?,
        breaches: &breaches,
        rules: &config.efficiency,
        currency: config.rates.currency.as_deref(),
        pseudonyms: hides_names(viewer, &records, cluster, config)?,
        most_runs: question.runs,
        now: now.into(),
    };

    let subjects = subjects(question, &books, &accounts);
    let shown = ShownSums::read(viewer, &records, cluster, &books, &accounts)?;
    let mut made: Vec<Sheet> = subjects
        .iter()
        // A subject that is hidden gives no sheet, and so the same error as an unknown one.
        .filter(|subject| only.is_some() || sees_subject(viewer, subject) || shown.has(subject))
        .filter_map(|subject| sheet(&facts, subject))
        .collect();

    for sheet in &mut made {
        match only {
            Some(_) => reduce_member_sheet(sheet),
            None => reduce_sheet(viewer, &shown, sheet),
        }
    }

    if let Some(sheet) = made
        .iter_mut()
        .find(|sheet| sheet.subject == Subject::Cluster)
    {
        let note = nothing_recorded(&records, sheet, &zone)?;
        sheet.notes.extend(note);
        [sheet.cpu_capacity, sheet.gpu_capacity] =
            capacities(&records, cluster, last, facts.records_from, now)?;
        sheet.has_gpus |= sheet.gpu_capacity.is_some();
    }

    match subjects.first() {
        // Only a named subject can be missing: the cluster always has a report.
        Some(subject) if made.is_empty() => {
            Err(no_usage(viewer, &records, cluster, subject, last)?)
        }
        _ => Ok(made),
    }
}

/// Returns the accounts of which a coordinator sees the report of a user: the report of a member has what the member did
/// there, and a user without runs there is as unknown as one who does not exist. `None` if the viewer sees whole reports.
fn coordinated<'v>(viewer: &'v Viewer, question: &SheetQuestion) -> Option<&'v BTreeSet<String>> {
    let subject = Subject::User(question.user.clone()?);
    let is_hidden = !sees_subject(viewer, &subject);
    (is_hidden && !viewer.accounts().is_empty()).then(|| viewer.accounts())
}

/// Returns whether a user's ranking hides the names of other users: by the configuration, else by the privacy in
/// force, as on pages. A command that has opened the files goes by Slurm's `PrivateData` as a server last read it;
/// names are hidden until one has.
fn hides_names(
    viewer: &Viewer,
    records: &Records<'_>,
    cluster: &str,
    config: &AccountingConfig,
) -> Result<bool, AnswerError> {
    // The configuration comes before Slurm's setting.
    if let Some(pseudonyms) = config.pseudonyms {
        return Ok(pseudonyms);
    }
    if viewer.way() != Way::Files {
        return Ok(viewer.privacy() > Privacy::Open);
    }
    let of_slurm = records.private_data(cluster)?;
    Ok(of_slurm.is_none_or(|text| Privacy::of_private_data(&text) > Privacy::Open))
}

/// The error for a subject without usage; proposes similar names if the subject is unknown.
fn no_usage(
    viewer: &Viewer,
    records: &Records<'_>,
    cluster: &str,
    subject: &Subject,
    period: &Period,
) -> Result<AnswerError, AnswerError> {
    let names = records.names(cluster)?;
    let known = if matches!(subject, Subject::User(_)) {
        known_users(viewer, names.users)
    } else {
        known_accounts(viewer, names.accounts)
    };
    // A name that is known is right, and only has no usage in this time.
    let is_known = known.iter().any(|name| name == subject.name());
    let near = if is_known {
        String::new()
    } else {
        did_you_mean(subject.name(), known.iter().map(String::as_str))
    };
    let period = format!(" in {} or the three periods before it", period.label());
    let none = no_run_of(viewer, subject, &period);
    Ok(AnswerError::Input(format!("{none}{near}")))
}

/// A note for the report of a cluster without jobs in the period: the period of its records.
fn nothing_recorded(
    records: &Records<'_>,
    sheet: &Sheet,
    zone: &TimeZone,
) -> Result<Option<String>, AnswerError> {
    if sheet.figures.jobs_started + sheet.figures.jobs_ended > 0 || sheet.figures.cpu_hours > 0.0 {
        return Ok(None);
    }

    let day = |at: UnixTime| {
        Timestamp::try_from(at)
            .unwrap_or_default()
            .to_zoned(zone.clone())
            .strftime("%Y-%m-%d")
    };
    Ok(Some(match records.extent(&sheet.cluster)? {
        Some((from, to)) => format!(
            "No run is recorded in this period; there are records from {} to {}.",
            day(from),
            day(to)
        ),
        None => "There are no job records yet: a server that polls Slurm makes them, \
                 and takt import brings in older ones."
            .to_owned(),
    }))
}

/// Use of the cluster's CPUs and GPUs; `None` if their number is unknown. Waiting jobs are not counted.
fn capacities(
    records: &Records<'_>,
    cluster: &str,
    period: &Period,
    records_from: Option<UnixTime>,
    now: Timestamp,
) -> Result<[Option<CapacityRow>; 2], AnswerError> {
    let nodes = records.node_capacities(cluster)?;
    // Without the capacities of nodes the use has no whole.
    if nodes.is_empty() {
        return Ok([None, None]);
    }

    let reservations = records.reservations(cluster, period.from())?;
    let runs = records.capacity_runs(cluster, period.from(), period.to())?;
    let held = (&*nodes, &*reservations, &*runs);
    let records_from = records_from.filter(|begin| period.begins_unrecorded(*begin));
    let report = report(records, cluster, period, held, records_from, now.into())?;
    // A resource of which nothing was reported, such as GPUs of a CPU cluster, has no row.
    let mut rows = report
        .rows
        .into_iter()
        .map(|row| Some(row).filter(|row| row.reported > 0));
    Ok(array::from_fn(|_| rows.next().flatten()))
}

/// Users, accounts and cluster that the question asks for.
fn subjects(question: &SheetQuestion, books: &Books<'_>, tree: &Accounts) -> Vec<Subject> {
    match (&question.user, &question.account) {
        // A user comes before an account.
        (Some(user), _) => vec![Subject::User(user.clone())],
        (None, Some(account)) => vec![Subject::Account(account.clone())],
        (None, None) if question.everybody => {
            let is_used = |(_, entry): &(&str, &Entry)| {
                entry
                    .periods
                    .last()
                    .is_some_and(|tally| tally.cpu_seconds > 0.0 || tally.gpu_seconds > 0.0)
            };
            // The report of an account includes the accounts below it.
            let accounts: BTreeSet<&str> = books
                .accounts()
                .filter(is_used)
                .flat_map(|(name, _)| tree.up(name))
                .collect();
            books
                .users()
                .filter(is_used)
                .map(|(name, _)| Subject::User(name.to_owned()))
                .chain(
                    accounts
                        .into_iter()
                        .map(|name| Subject::Account(name.to_owned())),
                )
                .chain([Subject::Cluster])
                .collect()
        }
        (None, None) => vec![Subject::Cluster],
    }
}

/// The period and those before it, the oldest first.
fn with_before(period: Period) -> Vec<Period> {
    let mut periods = vec![period];
    while periods.len() <= BEFORE
        && let Some(before) = periods[0].before()
    {
        periods.insert(0, before);
    }
    periods
}

/// Runs of the period in hours in which policy forbids them.
fn breaches(
    records: &Records<'_>,
    cluster: &str,
    period: &Period,
    zone: &TimeZone,
    config: &AccountingConfig,
    now: Timestamp,
) -> Result<Vec<Breach>, AnswerError> {
    // Reading all runs of a period is slow, and most sites have no such hours.
    if config.policy_windows.is_empty() {
        return Ok(Vec::new());
    }
    let filter = JobFilter {
        cluster: Some(cluster.to_owned()),
        from: Some(period.from()),
        to: Some(period.to()),
        ..JobFilter::default()
    };
    let runs = records.jobs(&filter)?;
    Ok(config
        .policy_windows
        .iter()
        .flat_map(|window| window.breaches(&runs, period, zone, now))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{import, store_in};
    use takt_access::Role;
    use takt_accounting::sheet::Member;
    use takt_jobs::JobRun;
    use tempfile::tempdir;

    /// `takt report send` knew only the privacy of the configuration.
    #[test]
    fn rankings_hide_names_as_slurm_does() {
        let root = tempdir().unwrap();
        let store = store_in(root.path());
        let records = Records::of(store.database());
        let start = 1_790_850_000; // 2026-10-01T10:20:00Z
        let run = |job_id: &str, user: &str| JobRun {
            cluster: "lab".into(),
            job_id: job_id.into(),
            submit: UnixTime(start),
            start: Some(UnixTime(start)),
            end: Some(UnixTime(start + 3600)),
            state: "COMPLETED".into(),
            user: user.into(),
            account: "physics".into(),
            cpus: Some(4),
            nodes: Some(1),
            ..JobRun::default()
        };

        let runs = [run("1", "ada"), run("2", "bob")];
        import(store.database(), None, runs);
        let question = SheetQuestion {
            month: Some("2026-10".into()),
            user: Some("ada".into()),
            ..SheetQuestion::default()
        };

        let names = |pseudonyms: Option<bool>| -> Vec<Option<String>> {
            let config = AccountingConfig {
                pseudonyms,
                timezone: Some("UTC".into()),
                ..AccountingConfig::default()
            };
            let made = sheets(store.database(), &question, &config).unwrap();
            made.first()
                .unwrap()
                .rank
                .as_ref()
                .unwrap()
                .rows
                .iter()
                .map(|place| place.name.clone())
                .collect()
        };

        let both = vec![Some("ada".to_owned()), Some("bob".to_owned())];
        let own = vec![Some("ada".to_owned()), None];
        assert_eq!(names(None), own, "Slurm's setting is unknown");

        records
            .note_private_data("lab", "none", UnixTime(start))
            .unwrap();
        assert_eq!(names(None), both);
        // Slurm read again: the newest setting counts.
        records
            .note_private_data("lab", "jobs,usage", UnixTime(start + 1))
            .unwrap();
        assert_eq!(names(None), own);
        assert_eq!(names(Some(false)), both, "the configuration decides");

        // Whoever asks the server sees what its pages show.
        let by = |privacy: Privacy| {
            let viewer = Viewer::new(Role::Support, Way::Socket, privacy);
            let config = AccountingConfig {
                timezone: Some("UTC".into()),
                ..AccountingConfig::default()
            };
            let made = visible_sheets(store.database(), &viewer, &question, &config).unwrap();
            let rank = made.first().unwrap().rank.as_ref().unwrap();
            rank.rows
                .iter()
                .filter(|place| place.name.is_some())
                .count()
        };
        assert_eq!((by(Privacy::Open), by(Privacy::Usage)), (2, 1));
    }

    /// The table of docs/access.md: with `usage`, everybody sees the usage by account, and only coordinators who used it.
    #[test]
    fn accounts_are_shown_as_sums_where_usage_of_users_is_private() {
        let root = tempdir().unwrap();
        let store = store_in(root.path());
        let start = 1_790_850_000; // 2026-10-01T10:20:00Z
        let run = |(at, (user, account)): (usize, (&str, &str))| JobRun {
            cluster: "lab".into(),
            job_id: at.to_string(),
            submit: UnixTime(start),
            start: Some(UnixTime(start)),
            end: Some(UnixTime(start + 3600)),
            state: "COMPLETED".into(),
            user: user.into(),
            account: account.into(),
            cpus: Some(4),
            nodes: Some(1),
            ..JobRun::default()
        };
        let runs = [
            ("ada", "physics"),
            ("bob", "physics"),
            ("carol", "physics"),
            ("dan", "biology"),
            ("eve", "biology"),
            ("frank", "biology"),
            ("grace", "art"),
        ];

        import(
            store.database(),
            None,
            runs.into_iter().enumerate().map(run),
        );

        let config = AccountingConfig {
            timezone: Some("UTC".into()),
            ..AccountingConfig::default()
        };

        let ask = |privacy, account: Option<&str>| {
            let ada = Viewer::new(Role::User, Way::Socket, privacy).with_user("ada");
            let question = SheetQuestion {
                month: Some("2026-10".into()),
                account: account.map(str::to_owned),
                ..SheetQuestion::default()
            };
            let mut made = visible_sheets(store.database(), &ada, &question, &config)?;
            Ok::<_, AnswerError>(made.remove(0))
        };

        let names = |members: &[Member]| -> Vec<String> {
            members.iter().map(|member| member.name.clone()).collect()
        };

        let biology = ask(Privacy::Usage, Some("biology")).unwrap();
        // Three users of biology, whose sum is shown, without the days and runs that are single users'.
        assert_eq!(biology.figures.cpu_hours, 12.0);
        assert!(biology.members.is_empty() && biology.days.is_empty() && biology.runs.is_empty());

        let physics = ask(Privacy::Usage, Some("physics")).unwrap();
        assert_eq!(names(&physics.members), ["ada"]);
        // Art has one user, whose usage the sum would be.
        let listed = ask(Privacy::Usage, None).unwrap();
        assert_eq!(names(&listed.accounts), ["biology", "physics"]);

        // One user's account is as unknown as one that does not exist.
        let said = |privacy, account| ask(privacy, Some(account)).unwrap_err().to_string();
        let unknown = said(Privacy::Usage, "music").replace("music", "art");
        assert_eq!(said(Privacy::Usage, "art"), unknown);
        let unknown = said(Privacy::Private, "music").replace("music", "biology");
        assert_eq!(said(Privacy::Private, "biology"), unknown);
        // Ada's own account, also where accounts are private.
        let own = ask(Privacy::Private, Some("physics")).unwrap();
        assert_eq!(own.figures.cpu_hours, 12.0);
        let whole = ask(Privacy::Open, Some("biology")).unwrap();
        assert_eq!(whole.members.len(), 3);
    }

    #[test]
    fn reports_of_everybody_for_too_many_days_are_refused() {
        let root = tempdir().unwrap();
        let store = store_in(root.path());

        let refused = |from: &str, to: &str, everybody| {
            let question = SheetQuestion {
                from: Some(from.to_owned()),
                to: Some(to.to_owned()),
                timezone: Some("UTC".to_owned()),
                everybody,
                ..SheetQuestion::default()
            };
            let made = sheets(store.database(), &question, &AccountingConfig::default());
            made.err().map(|error| error.to_string())
        };
        // A century, of the cluster only; a leap year of everybody, and two days more.
        assert_eq!(refused("1950-01-01", "2049-01-01", false), None);
        assert_eq!(refused("2024-01-01", "2025-01-01", true), None);
        let said = refused("2024-01-01", "2025-01-03", true).unwrap();
        assert!(said.contains("expected at most 366 days"), "{said}");
    }
}
