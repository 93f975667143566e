//! Reports from a file of `sacct`, in every format and as mails.

use crate::support::takt::Takt;
use std::fs;

const SACCT: &str = "\
JobID|User|Account|Partition|Submit|Start|End|State|AllocTRES|NNodes|NCPUS|NodeList|ElapsedRaw|TimelimitRaw|ExitCode
1|alice|physics|gpu|2026-10-24T00:00:00|2026-10-24T00:00:00|2026-10-27T00:00:00|COMPLETED|cpu=8,gres/gpu=2,mem=64G,node=1|1|8|g1|262800|10080|0:0
2|bob|physics|gpu|2026-10-01T00:00:00|2026-10-01T10:00:00|2026-10-01T20:00:00|NODE_FAIL|cpu=8,gres/gpu=1,mem=64G,node=1|1|8|g2|36000|1440|1:0
3|<b>=eve|biology|gpu|2026-09-01T00:00:00|2026-09-01T10:00:00|2026-10-01T06:00:00|COMPLETED|cpu=4,gres/gpu=1,mem=4G,node=1|1|4|desk1|2577600|1440|0:0
";

const CONFIG: &str = r#"
cluster = "lab"
[rates]
currency = "EUR"
[[rates.cards]]
from = "2026-01-01"
gpu_hour = 2.0
[[budgets]]
account = "physics"
gpu_hours = 200
[[policy_windows]]
name = "desktops by night"
nodes = "desk[1-2]"
from = "22:00"
to = "06:00"
[reports]
domain = "lab.example"
account_owners = { physics = ["pi@lab.example"] }
operators = ["root@lab.example"]
opt_out = ["bob"]
"#;

fn takt() -> Takt {
    let takt = Takt::fresh();
    takt.file("takt.toml", CONFIG);
    takt.file("jobs.txt", SACCT);
    takt.run([
        "import",
        "sacct",
        "jobs.txt",
        "--timezone",
        "Europe/Oslo",
        "--cluster",
        "lab",
    ])
    .ok();
    takt
}

fn report(takt: &Takt, kind: &str, more: &[&str]) -> crate::support::takt::Run {
    let arguments = [
        "--config",
        "takt.toml",
        "report",
        kind,
        "--month",
        "2026-10",
    ];
    takt.run(arguments.iter().chain(more))
}

#[test]
fn a_month_of_a_user_an_account_and_the_cluster() {
    let takt = takt();

    // October 24 to 26 in Oslo has 73 hours.
    let text = report(&takt, "user", &["--user", "alice"]).ok();
    assert!(
        text.starts_with("alice on lab, October 2026\n")
            && text.contains("146")
            && text.contains("292.00 EUR"),
        "{text}"
    );
    let account: serde_json::Value = serde_json::from_str(
        &report(
            &takt,
            "account",
            &["--account", "physics", "--format", "json"],
        )
        .ok(),
    )
    .unwrap();
    assert_eq!(account["figures"]["gpu_hours"], 156.0);
    assert_eq!(account["budgets"][0]["warning"], 0.5);
    let cluster: serde_json::Value =
        serde_json::from_str(&report(&takt, "cluster", &["--format", "json"]).ok()).unwrap();
    assert_eq!(cluster["figures"]["gpu_hours"], 162.0);

    // The run that began in September ends on October 1 at 06:00.
    assert_eq!(cluster["breaches"][0]["seconds"], 21_600);
    let days: Vec<f64> = cluster["days"]
        .as_array()
        .unwrap()
        .iter()
        .map(|day| day["gpu_hours"].as_f64().unwrap())
        .collect();
    assert_eq!(days.len(), 31);
    // The first has ten hours of bob's and six of eve's, and the 25th has 25 hours of two GPUs.
    assert_eq!(days[0], 16.0);
    assert_eq!(days[24], 50.0);
    assert_eq!(days.iter().sum::<f64>(), 162.0);

    // A user's name with markup must not become markup.
    let html = report(&takt, "cluster", &["--format", "html"]).ok();
    assert!(
        html.contains("&lt;b&gt;=eve") && !html.contains("<b>=eve"),
        "{html}"
    );
    let csv = report(&takt, "waste", &["--format", "csv"]).ok();
    assert!(
        csv.starts_with("user,gpu_hours,") && csv.contains("\n<b>=eve,6,"),
        "{csv}"
    );
    let efficiency = report(&takt, "efficiency", &["--format", "csv"]).ok();
    assert_eq!(
        efficiency.lines().count(),
        1,
        "no run was assessed: {efficiency}"
    );
    assert!(
        takt.run(["assess", "--month", "2026-10"])
            .ok()
            .starts_with("3 runs assessed, 0 of them measured")
    );
    let efficiency = report(&takt, "efficiency", &["--format", "csv"]).ok();
    assert_eq!(efficiency.lines().count(), 4, "{efficiency}");

    let few = report(&takt, "efficiency", &["--runs", "1"]);
    assert!(
        few.stderr.contains("1 of 3 runs") && few.stderr.contains("--runs"),
        "{}",
        few.stderr
    );
    assert!(report(&takt, "cluster", &[]).ok().contains("node failed"));
}

#[test]
fn letters_of_a_month_and_a_credit() {
    let takt = takt();
    takt.run(["credit", "job", "2", "--reason", "g2 lost its power"])
        .ok();
    assert!(
        takt.run(["credit", "list"])
            .ok()
            .contains("g2 lost its power")
    );
    assert!(
        takt.run(["credit", "job", "2", "--reason", "once more"])
            .fails(2)
            .contains("revoke that first")
    );
    let sent = [
        "--config",
        "takt.toml",
        "report",
        "send",
        "--month",
        "2026-10",
        "--dry-run",
        "--out",
        "mails",
    ];
    let answer = takt.run(sent).ok();

    // Recipients are alice, who has an address, the account's owner and the operator. Bob has opted
    // out, and <b>=eve has no address.
    assert_eq!(answer.lines().count(), 3, "{answer}");
    let mail = fs::read_to_string(
        takt.directory()
            .join("mails/2026-10-user-alice-to-alice_lab_example.eml"),
    )
    .unwrap();
    for line in [
        "To: alice@lab.example",
        "Subject: lab: your October 2026",
        "multipart/alternative",
        "List-Unsubscribe: ",
    ] {
        assert!(mail.contains(line), "{line}\n{mail}");
    }
    assert!(
        fs::read_to_string(
            takt.directory()
                .join("mails/2026-10-cluster--to-root_lab_example.html")
        )
        .unwrap()
        .contains("Where the GPU-hours went")
    );

    // Without --dry-run the configuration needs a mail server.
    let refused = takt
        .run([
            "--config",
            "takt.toml",
            "report",
            "send",
            "--month",
            "2026-10",
        ])
        .fails(2);
    assert!(
        refused.contains("no mail server is configured"),
        "{refused}"
    );
}

#[test]
fn states_are_known_by_name_and_by_slurms_letters() {
    let takt = takt();
    for states in ["NF", "node_fail", "R,NF"] {
        let jobs = takt
            .run(["jobs", "--state", states, "--format", "csv"])
            .ok();
        assert!(
            jobs.lines().count() == 2 && jobs.contains("\n2,bob,"),
            "{states}: {jobs}"
        );
    }
}

/// Issue 29: the help promised instants, and each was refused.
#[test]
fn usage_between_two_times_and_of_an_account() {
    let takt = takt();
    let gpu_seconds = |period: [&str; 2], more: &[&str]| -> Vec<(String, u64)> {
        let [from, to] = period;
        let arguments = [
            "report", "usage", "--from", from, "--to", to, "--format", "json",
        ];
        let answer = takt.run(arguments.iter().chain(more)).ok();
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let rows = answer["rows"].as_array().unwrap().iter();
        rows.map(|row| {
            let user = row["user"].as_str().unwrap().to_owned();
            (user, row["gpu_seconds"].as_u64().unwrap())
        })
        .collect()
    };
    let bob = |seconds| vec![("bob".to_owned(), seconds)];
    // Local times are those of the cluster, in Oslo; bob's job runs from 10 to 20 o'clock there.
    let two_hours = ["2026-10-01T12:00", "2026-10-01T14:00"];
    assert_eq!(gpu_seconds(two_hours, &[]), bob(7200));
    let instants = ["2026-10-01T10:00:00Z", "2026-10-01T13:00:00+02:00"];
    assert_eq!(gpu_seconds(instants, &[]), bob(3600));
    assert_eq!(gpu_seconds(["yesterday", "now"], &[]), []);
    assert_eq!(gpu_seconds(["-2w", "-12h"], &["--user", "bob"]), []);

    let day = ["2026-10-01", "2026-10-02"];
    assert_eq!(gpu_seconds(day, &["--account", "physics"]), bob(36_000));

    let run = takt.run([
        "report",
        "usage",
        "--month",
        "2026-10",
        "--account",
        "Physics",
    ]);
    let error = run.fails(1);
    assert!(
        error.contains("no run of the account Physics is recorded; did you mean physics?"),
        "{error}"
    );
    let error = takt
        .run(["report", "usage", "--from", "last week", "--to", "now"])
        .fails(2);
    for form in ["2026-10-31T13:00:00Z", "yesterday", "-7d"] {
        assert!(error.contains(form), "{error}");
    }
}

#[test]
fn an_empty_month_names_the_period_of_the_records() {
    let takt = takt();
    let text = takt.run(["report", "cluster", "--month", "2020-02"]).ok();
    assert!(
        text.contains("there are records from 2026-09-01 to 2026-10-27"),
        "{text}"
    );

    // A cluster without jobs.
    let empty = Takt::fresh();
    empty.file("none.txt", SACCT.lines().next().unwrap());
    empty.run(["import", "sacct", "none.txt"]).ok();
    let text = empty.run(["report", "cluster"]).ok();
    assert!(text.contains("There are no job records yet"), "{text}");
}

#[test]
fn invalid_questions() {
    let takt = takt();
    for (arguments, code, message) in [
        (
            &["report", "account"][..],
            2,
            "name the account with --account NAME",
        ),
        (
            &["report", "user", "--user", "nobody"],
            1,
            "no run of the user nobody is recorded",
        ),
        (
            &["report", "user", "--user", "alcie"],
            1,
            "before it; did you mean alice?",
        ),
        (
            &["report", "account", "--account", "Physics"],
            1,
            "did you mean physics?",
        ),
        (
            &["report", "usage", "--user", "alcie"],
            1,
            "no run of the user alcie is recorded; did you mean alice?",
        ),
        (
            &["jobs", "--state", "runing"],
            2,
            "jobs have no state 'RUNING'; did you mean RUNNING?",
        ),
        (
            &["fairshare", "--user", "alcie"],
            2,
            "no user alcie has shares; did you mean alice?",
        ),
        (
            &["fairshare", "--user", "alice", "--plan", "cpus=4"],
            2,
            "Slurm does not track 'cpus' (expected cpu=N, gres/gpu=N",
        ),
        (
            &["fairshare", "--user", "alice", "--plan", "cpu=four"],
            2,
            "'cpu=four' is not a job",
        ),
        (
            &["report", "cluster", "--month", "October"],
            2,
            "'October' is not a month",
        ),
        (
            &["report", "cluster", "--month", "2199-01"],
            2,
            "has not begun",
        ),
        (&["report", "waste", "--from", "2026-10-01"], 2, "--to"),
        (
            &["credit", "revoke", "7", "--reason", "x"],
            2,
            "there is no credit 7 in force",
        ),
        (&["assess", "--month", "x"], 2, "'x' is not a month"),
    ] {
        let error = takt.run(arguments).fails(code);
        assert!(error.contains(message), "{arguments:?}: {error}");
    }
}
