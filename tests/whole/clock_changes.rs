//! Months with a change to or from daylight saving time: Takt's figures beside figures computed by
//! hand.

use crate::support::takt::Takt;

/// In Oslo the clock went from 03:00 back to 02:00 on 25 October 2026 (745 hours), and from 02:00
/// on to 03:00 on 29 March (743 hours).
const SACCT: &str = "\
JobID|User|Account|Partition|Submit|Start|End|State|AllocTRES|NNodes|NCPUS|NodeList|ElapsedRaw
1|alice|lab|gpu|2026-10-24T21:00:00|2026-10-24T22:00:00|2026-10-25T06:00:00|COMPLETED|cpu=8,gres/gpu=2,mem=64G,node=1|1|8|g1|32400
2|bob|lab|gpu|2026-09-30T12:00:00|2026-09-30T12:00:00|2026-10-02T00:00:00|COMPLETED|cpu=4,gres/gpu=1,mem=8G,node=1|1|4|g1|129600
3|carol|lab|gpu|2026-10-25T02:30:00|2026-10-25T02:30:00|2026-10-25T02:30:00|COMPLETED|cpu=1,gres/gpu=1,mem=8G,node=1|1|1|g2|3600
4|dave|lab|gpu|2026-10-31T20:00:00|2026-10-31T20:00:00|2026-11-01T02:00:00|COMPLETED|cpu=4,gres/gpu=4,mem=8G,node=1|1|4|g2|21600
5|erin|lab|cpu|2026-10-24T00:00:00|2026-10-25T00:00:00|2026-10-26T00:00:00|COMPLETED|cpu=100,mem=8G,node=1|1|100|c1|90000
6|alice|lab|gpu|2026-03-28T21:00:00|2026-03-28T22:00:00|2026-03-29T06:00:00|COMPLETED|cpu=8,gres/gpu=2,mem=64G,node=1|1|8|g1|25200
";

/// Returns the given columns of a report, one line for each row.
fn report(takt: &Takt, month: &str, by: &str, columns: &[&str]) -> Vec<String> {
    let csv = takt
        .run([
            "report", "usage", "--month", month, "--by", by, "--format", "csv",
        ])
        .ok();
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let at: Vec<usize> = columns
        .iter()
        .map(|name| header.iter().position(|column| column == name).unwrap())
        .collect();
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            at.iter()
                .map(|at| fields[*at])
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

#[test]
fn months_with_a_change_of_clocks_equal_figures_by_hand() {
    let takt = Takt::fresh();
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

    // October by hand, in hours:
    //
    //     user   time                              GPU          CPU              memory (GiB)
    //     alice  22:00 to 06:00, 9 hours           2 × 9 = 18   8 × 9 = 72       64 × 9 = 576
    //     bob    October 1 from 00:00 to 24:00     1 × 24 = 24  4 × 24 = 96      8 × 24 = 192
    //     carol  02:30 to 02:30, 1 hour            1 × 1 = 1    1 × 1 = 1        8 × 1 = 8
    //     dave   20:00 to 24:00                    4 × 4 = 16   4 × 4 = 16       8 × 4 = 32
    //     erin   all of the 25th, 25 hours         –            100 × 25 = 2500  8 × 25 = 200
    //
    // bob's run began in September, and dave's ends in November.
    let columns = ["user", "gpu_hours", "cpu_hours", "mem_gib_hours"];
    assert_eq!(
        report(&takt, "2026-10", "user", &columns),
        [
            "bob 24 96 192",
            "alice 18 72 576",
            "dave 16 16 32",
            "carol 1 1 8",
            "erin 0 2500 200"
        ]
    );

    // By day: alice has 2 hours of the 24th and 7 of the 25th, in which 02:00 to 03:00 comes twice.
    // A run that ends at midnight used nothing of the day that begins then.
    assert_eq!(
        report(&takt, "2026-10", "day", &["day", "gpu_hours", "cpu_hours"]),
        [
            "2026-10-01 24 96",
            "2026-10-02 0 0",
            "2026-10-24 4 16",
            "2026-10-25 15 2557",
            "2026-10-26 0 0",
            "2026-10-31 16 16"
        ]
    );

    // The night by the hour: alice's two GPUs, and carol's one for half of each of two hours.
    let hours = report(&takt, "2026-10", "hour", &["hour", "gpu_hours"]);
    let night: Vec<&String> = hours
        .iter()
        .filter(|hour| hour.starts_with("2026-10-25T0"))
        .take(4)
        .collect();
    assert_eq!(
        night,
        [
            "2026-10-25T00:00+02:00 2",
            "2026-10-25T01:00+02:00 2",
            "2026-10-25T02:00+02:00 2.5",
            "2026-10-25T02:00+01:00 2.5"
        ]
    );

    // By hand, March: 22:00 to 06:00 over the change are 7 hours, 2 on the 28th and 5 on the 29th.
    assert_eq!(
        report(
            &takt,
            "2026-03",
            "user",
            &["user", "gpu_hours", "cpu_hours"]
        ),
        ["alice 14 56"]
    );
    assert_eq!(
        report(&takt, "2026-03", "day", &["day", "gpu_hours"]),
        ["2026-03-28 4", "2026-03-29 10"]
    );

    // November has the other two hours of dave's run.
    let dave: serde_json::Value = serde_json::from_str(
        &takt
            .run([
                "report",
                "usage",
                "--from",
                "2026-11-01",
                "--to",
                "2026-11-02",
                "--format",
                "json",
            ])
            .ok(),
    )
    .unwrap();
    assert_eq!(dave["totals"]["gpu_hours"], 8.0);
}
