//! Fair share equals `sshare -l -a`. Without Slurm it is computed from job records alone.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::support::or_skip;
use crate::support::process::{free_port, wait_for};
use crate::support::slurm::{Mode, SlurmLab};
use crate::support::takt::Takt;
use std::thread;

/// A limit that a busy machine does not reach; slurmctld's decay thread runs once a minute.
const SOON: Duration = Duration::from_secs(240);

/// Fair-share factor and level FS of each association.
type Standing = BTreeMap<(String, String), (Option<f64>, Option<f64>)>;

fn ours(takt: &Takt) -> Standing {
    let answer: serde_json::Value =
        serde_json::from_str(&takt.run(["fairshare", "--format", "json"]).ok()).unwrap();
    let number = |value: &serde_json::Value| {
        if value == "inf" {
            Some(f64::INFINITY)
        } else {
            value.as_f64()
        }
    };
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    answer["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (
                (text(&row["account"]), text(&row["user"])),
                (number(&row["fair_share"]), number(&row["level_fs"])),
            )
        })
        .collect()
}

fn sshare(lab: &SlurmLab) -> Standing {
    let text = lab.run(&[
        "sshare",
        "-l",
        "-a",
        "-P",
        "-n",
        "-o",
        "Account,User,FairShare,LevelFS",
    ]);
    let rows = text
        .lines()
        .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let number = |text: &str| text.parse::<f64>().ok();
    rows.map(|row| {
        (
            (row[0].to_owned(), row[1].to_owned()),
            (number(row[2]), number(row[3])),
        )
    })
    .collect()
}

/// Returns the first association whose factor or level FS differs by more than 10⁻⁴.
fn difference(ours: &Standing, theirs: &Standing) -> Option<String> {
    let same = |ours: Option<f64>, theirs: Option<f64>| match (ours, theirs) {
        (Some(ours), Some(theirs)) => {
            ours == theirs || (ours - theirs).abs() <= 1e-4 * theirs.max(1.0)
        }
        (ours, theirs) => ours.is_none() == theirs.is_none(),
    };
    if ours.keys().ne(theirs.keys()) {
        return Some(format!("{:?} and {:?}", ours.keys(), theirs.keys()));
    }
    ours.iter()
        .zip(theirs.values())
        .find_map(|((name, ours), theirs)| {
            let ours: &(Option<f64>, Option<f64>) = ours;
            (!same(ours.0, theirs.0) || !same(ours.1, theirs.1))
                .then(|| format!("{name:?}: {ours:?} and {theirs:?}"))
        })
}

#[test]
fn live_jobs_have_the_fair_share_of_sshare() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithDbd)) else {
        return;
    };
    let takt = Takt::fresh().with_environment(lab.environment());
    takt.file(
        "takt.toml",
        format!(
            "timezone = \"UTC\"\n[server]\nlisten_address = \"127.0.0.1:{}\"\n\
             [jobs]\ninterval_seconds = 1\nlook_back_seconds = 60\n",
            free_port()
        ),
    );
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    lab.submit("alice", &["--gres=gpu:1", "-t", "5"], "sleep 9");
    lab.submit("bob", &["-n", "2", "-t", "5"], "sleep 7");
    lab.submit("carol", &["--gres=gpu:l40s:2", "-t", "5"], "sleep 11");
    lab.submit(
        "dave",
        &["-N2", "-n4", "--gres=gpu:1", "-t", "5"],
        "sleep 5",
    );
    lab.wait_until_idle(SOON);

    // slurmctld computes once a minute, and the server polls its records within seconds.
    let until = Instant::now() + SOON;
    loop {
        let ours = ours(&takt);
        let theirs = sshare(&lab);
        let used = theirs
            .values()
            .filter(|standing| standing.1.is_some_and(f64::is_finite))
            .count();
        let difference = if used < 6 {
            Some("sshare has not computed yet".to_owned())
        } else {
            difference(&ours, &theirs)
        };
        let Some(difference) = difference else {
            println!("ours {ours:#?}\nsshare {theirs:#?}");
            break;
        };
        assert!(
            Instant::now() < until,
            "{difference}\nours {ours:#?}\nsshare {theirs:#?}"
        );
        thread::sleep(Duration::from_secs(2));
    }

    let explained = takt
        .run([
            "fairshare",
            "--user",
            "carol",
            "--explain",
            "--plan",
            "cpu=4,gres/gpu=2",
            "--hours",
            "10",
        ])
        .ok();
    for words in [
        "carol (account lab-b) has place",
        "of the shares",
        "The planned job would be charged",
    ] {
        assert!(explained.contains(words), "{words}: {explained}");
    }
    wait_for("the first note of the history", SOON, || {
        let history = takt
            .run([
                "fairshare",
                "--user",
                "alice",
                "--history",
                "1",
                "--format",
                "csv",
            ])
            .ok();
        (history.lines().count() > 1 && history.contains(",lab-a,alice,")).then_some(())
    });
    server.stop();
}

/// With job records alone every user has one share; takt.toml can name accounts and their shares.
#[test]
fn without_slurm_the_shares_come_from_the_configuration() {
    let takt = Takt::fresh();
    let end = jiff::Timestamp::now().as_second() - 3600;
    let row = |id: u32, user: &str, hours: i64| {
        let start = end - hours * 3600;
        format!("{id}|{user}||{start}|{start}|{end}|COMPLETED|cpu=1,node=1,gres/gpu=1\n")
    };
    let rows = row(1, "alice", 30) + &row(2, "bob", 10);
    takt.file(
        "jobs.txt",
        format!("JobID|User|Account|Submit|Start|End|State|AllocTRES\n{rows}"),
    );
    takt.run(["import", "sacct", "jobs.txt", "--cluster", "lab"])
        .ok();

    let alike = takt.run(["fairshare", "--format", "csv"]).ok();
    let of = |text: &str, user: &str| {
        text.lines()
            .find(|line| line.split(',').nth(1) == Some(user))
            .map(str::to_owned)
            .unwrap_or_else(|| panic!("no {user} in {text}"))
    };

    // Each account has half of the shares; one has about three quarters of the usage, the other one
    // quarter.
    assert!(
        of(&alike, "alice").contains(",0.500000,0.6")
            && of(&alike, "bob").contains(",1.000000,1.9"),
        "{alike}"
    );

    takt.file(
        "takt.toml",
        "[fairshare]\nhalf_life_days = 0\nbilling_weights = \"GRES/gpu=10\"\n[[fairshare.accounts]]\naccount = \"vision\"\nusers = { alice = 3, bob = 1 }\n",
    );
    let configured = takt
        .run(["--config", "takt.toml", "fairshare", "--format", "csv"])
        .ok();
    assert!(
        of(&configured, "alice").ends_with(",1.000000"),
        "three shares of four, and three quarters: {configured}"
    );

    let error = takt.run(["fairshare", "--user", "eve"]).fails(2);
    assert_eq!(error, "takt: no user eve has shares\n");
    let error = takt.run(["fairshare", "--explain"]).fails(2);
    assert!(error.contains("--user"), "{error}");
}
