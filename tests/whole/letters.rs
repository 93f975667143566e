//! Monthly report mails and budget warnings, received by a real mail server and by a Slack
//! stand-in.

use std::time::Duration;

use crate::support::channels::Channel;
use crate::support::process::{Daemon, free_port, wait_for};
use crate::support::takt::{Takt, count_stored};
use crate::support::{need_file, or_skip};
use jiff::civil;
use jiff::tz::TimeZone;
use std::fs;
use std::thread;

const SOON: Duration = Duration::from_secs(60);

const HEADER: &str = "JobID|User|Account|Partition|Submit|Start|End|State|AllocTRES|NNodes|NCPUS|NodeList|ElapsedRaw";

/// A row of `sacct` in UTC: a run that started one second after `from` and held `gpus` GPUs for
/// `seconds`.
fn row(id: u32, user: &str, account: &str, from: civil::Date, gpus: u32, seconds: i64) -> String {
    let start = from.at(0, 0, 1, 0);
    let end = start
        .checked_add(jiff::Span::new().seconds(seconds))
        .unwrap();
    format!(
        "{id}|{user}|{account}|gpu|{start}|{start}|{end}|COMPLETED|cpu=8,gres/gpu={gpus},mem=64G,node=1|1|8|g1|{seconds}"
    )
}

fn import(takt: &Takt, rows: &[String]) {
    takt.import_sacct(format!("{HEADER}\n{}\n", rows.join("\n")));
}

/// Starts a server, which sends all due reports at its start.
fn serve(takt: &Takt) -> Daemon {
    takt.start(["serve", "--config", "takt.toml"])
}

fn subjects(mails: &[String]) -> Vec<&str> {
    mails
        .iter()
        .filter_map(|mail| mail.lines().find_map(|line| line.strip_prefix("Subject: ")))
        .collect()
}

#[test]
fn letters_corrections_and_warnings_reach_their_readers_once() {
    let (Some(smtp), Some(slack)) = (or_skip(Channel::smtp()), or_skip(Channel::slack())) else {
        return;
    };
    let takt = Takt::fresh();
    let hook = takt.file("hook", format!("{}/services/T0/B0/secret\n", slack.url()));
    takt.file(
        "takt.toml",
        format!(
            "cluster = \"lab\"\ntimezone = \"UTC\"\n[server]\nlisten_address = \
             \"127.0.0.1:{}\"\n[jobs]\npoll = false\n\
             [email]\nserver = \"127.0.0.1:{}\"\ntls = \"none\"\nfrom = \"Takt \
             <takt@lab.example>\"\n\
             [[budgets]]\naccount = \"physics\"\ngpu_hours = 10\n\
             [reports]\nsend = true\ndelay_days = 0\ncorrect_days = 31\ncorrection_hours = \
             0\ndomain = \"lab.example\"\n\
             account_owners = {{ physics = [\"pi@lab.example\"] }}\noperators = \
             [\"root@lab.example\"]\n\
             opt_out = [\"bob\"]\nslack_webhook_file = {hook:?}\n",
            free_port(),
            smtp.port,
        ),
    );
    let this_month = jiff::Zoned::now()
        .with_time_zone(TimeZone::UTC)
        .date()
        .first_of_month();
    let last_month = this_month.yesterday().unwrap().first_of_month();
    let name = last_month.strftime("%B %Y").to_string();
    import(
        &takt,
        &[
            row(1, "alice", "physics", last_month, 2, 36_000),
            row(2, "bob", "physics", last_month, 1, 36_000),
            // Six of ten GPU-hours are used.
            row(3, "alice", "physics", this_month, 60, 360),
        ],
    );
    let mut server = serve(&takt);
    let month = format!("lab: your {name}");
    assert_eq!(
        subjects(&smtp.mails("alice@lab.example", 1)),
        [month.as_str()]
    );
    let pi = smtp.mails("pi@lab.example", 2);
    let mut of_pi = subjects(&pi);
    of_pi.sort_unstable();
    assert_eq!(
        of_pi,
        [
            "lab: 50 % of the budget of physics reached",
            format!("lab: account physics, {name}").as_str()
        ]
    );
    assert!(
        pi.iter()
            .any(|mail| mail.contains("4.00 GPU-hours are left")),
        "{pi:?}"
    );
    assert_eq!(
        subjects(&smtp.mails("root@lab.example", 1)),
        [format!("lab: the cluster's {name}").as_str()]
    );
    let posted = slack.wait("/services", 2);
    let texts: Vec<&str> = posted
        .iter()
        .map(|one| one["body"]["text"].as_str().unwrap())
        .collect();
    assert!(
        texts
            .iter()
            .any(|text| text.contains("account physics has used 60 % of its 10.0 GPU-hours")),
        "{texts:?}"
    );
    assert!(
        texts
            .iter()
            .any(|text| text.contains("30.0 GPU-hours and 160 CPU-hours in 2 runs")),
        "{texts:?}"
    );
    server.stop();

    // Late records of last month arrive, and this month's budget is used up.
    import(
        &takt,
        &[
            row(4, "alice", "physics", last_month, 1, 3600),
            row(5, "bob", "physics", this_month, 60, 360),
        ],
    );
    let mut server = serve(&takt);
    let alice = smtp.mails("alice@lab.example", 2);
    assert_eq!(subjects(&alice)[1], format!("Correction: {month}"));
    let header = |mail: &str, name: &str| {
        mail.lines()
            .find_map(|line| line.strip_prefix(name).map(|rest| rest.trim().to_owned()))
            .unwrap_or_default()
    };
    assert_eq!(
        header(&alice[1], "In-Reply-To:"),
        header(&alice[0], "Message-ID:")
    );
    smtp.mails("pi@lab.example", 4);
    wait_for("the message to the operators", SOON, || {
        (smtp.mails("root@lab.example", 3).len() == 3).then_some(())
    });
    slack.wait("/services", 3);
    server.stop();

    // No message is sent twice.
    let mails = smtp.taken().len();
    let mut server = serve(&takt);
    thread::sleep(Duration::from_secs(3));
    server.stop();
    assert_eq!(smtp.taken().len(), mails);
    assert_eq!(slack.on("/services").len(), 3);
    assert_eq!(mails, 2 + 4 + 3, "{:?}", smtp.taken());
    assert!(
        smtp.taken()
            .iter()
            .all(|mail| mail["to"][0] != "bob@lab.example"),
        "bob wants no report"
    );
}

/// The server's clock is set to a Wednesday, then to the day after.
#[test]
fn users_with_wasted_gpu_hours_get_one_mail_a_week() {
    let library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
    let (Some(()), Some(smtp)) = (
        or_skip(need_file(library, "libfaketime")),
        or_skip(Channel::smtp()),
    ) else {
        return;
    };
    let takt = Takt::fresh();
    takt.file(
        "takt.toml",
        format!(
            "cluster = \"lab\"\ntimezone = \"UTC\"\n[server]\nlisten_address = \
             \"127.0.0.1:{}\"\n[jobs]\npoll = false\n\
             [email]\nserver = \"127.0.0.1:{}\"\ntls = \"none\"\nfrom = \"Takt \
             <takt@lab.example>\"\n\
             [reports]\nweekly = true\ndomain = \"lab.example\"\n",
            free_port(),
            smtp.port,
        ),
    );

    // Each ran an hour on a hundred GPUs; alice had requested twenty hours.
    let day = civil::date(2026, 11, 17);
    let rows = [("alice", 20 * 60), ("bob", 61)].map(|(user, limit)| {
        let id = if user == "alice" { 1 } else { 2 };
        format!("{}|{limit}", row(id, user, "physics", day, 100, 3600))
    });
    takt.import_sacct(format!("{HEADER}|TimelimitRaw\n{}\n", rows.join("\n")));

    // The server may look for due reports before it has computed efficiencies, and then again only
    // in an hour.
    takt.run(["assess"]).ok();

    // The commands ran at the machine's time.
    fs::remove_file(takt.data_directory().join("clock.json")).unwrap();
    let serve_on = |day: u8| {
        let mut command = takt.command(["serve", "--config", "takt.toml"]);
        command
            .env("LD_PRELOAD", library)
            .env("FAKETIME", format!("@2026-11-{day} 12:00:00"));
        command
            .env("TZ", "UTC")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Daemon::start("serve", command, &takt.directory().join("serve.log"))
    };
    let mut server = serve_on(18);
    let mails = smtp.mails("alice@lab.example", 1);
    assert_eq!(subjects(&mails), ["lab: your GPUs in the last seven days"]);
    assert!(
        mails[0].contains("you held 100 GPU-hours")
            && mails[0].contains("1,900 GPU-hours reserved"),
        "{}",
        mails[0]
    );
    server.stop();
    let sent = "SELECT count(*) FROM records.report_log";
    let count = || count_stored(&takt.data_directory(), sent);

    // The server may have ended between the mail and its note.
    assert!(count() <= 1);

    // The clock was set: a report of a time that has not come cannot be taken back.
    let mut server = serve_on(26);
    server.wait_until("waiting for a trusted clock", SOON, || {
        let log = fs::read_to_string(takt.directory().join("serve.log")).ok()?;
        log.contains("reports and warnings wait").then_some(())
    });
    server.stop();

    // A day has passed.
    let file = takt.data_directory().join("clock.json");
    let text = fs::read_to_string(&file).unwrap();
    let mut saved: serde_json::Value = serde_json::from_str(&text).unwrap();
    let noon: jiff::Timestamp = "2026-11-19T12:00:00Z".parse().unwrap();
    saved["time"]["trusted"] = noon.as_millisecond().into();
    for lead in ["ahead_ms", "jump_ms"] {
        saved["time"][lead] = 0.into();
    }
    fs::write(&file, saved.to_string()).unwrap();
    let mut server = serve_on(19);
    thread::sleep(Duration::from_secs(3));
    server.stop();
    assert_eq!(count(), 1, "no other within seven days, and none for bob");
    assert_eq!(
        smtp.taken().len(),
        1,
        "no other within seven days, and none for bob"
    );
}
