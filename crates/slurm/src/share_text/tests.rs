use super::*;
use proptest::prelude::*;

#[test]
fn durations() {
    // All forms of slurm.conf, and numbers that overflow.
    for (text, seconds) in [
        ("7-00:00:00", Some(604_800)),
        ("00:05:00", Some(300)),
        ("1-12", Some(129_600)),
        ("1-12:30", Some(131_400)),
        ("05:30", Some(330)),
        ("90", Some(5400)),
        ("", None),
        ("x-1", None),
        ("1:2:3:4", None),
        ("99999999999999999-0", None),
    ] {
        assert_eq!(duration(text), seconds, "{text}");
    }
}

#[test]
fn associations_in_slurms_own_order_and_of_one_cluster() {
    // LFT is not in the order of the lines, the account `old` has a user, and `x` is another cluster.
    let text = "Cluster|Account|ParentName|User|Partition|Share|LFT\n\
                lab|root||||1|1\nlab| old|root|||5|9\nlab|  old||ann||1|10\nlab| new|root|||parent|3\nx|y|root|||2|2\n";
    let found = associations(text, "lab").unwrap();
    let names: Vec<_> = found.iter().map(Association::name).collect();
    assert_eq!(names, ["root", "new", "old", "ann"]);
    assert_eq!(found[1].shares, Shares::Parent);
    assert_eq!(found[2].shares, Shares::Raw(5));
}

#[test]
fn mistakes_name_their_place() {
    // Columns may be missing, too many or unreadable; the message has to find the line.
    let error = |text: &str| associations(text, "lab").unwrap_err().to_string();
    assert_eq!(
        error("Account|User|Share\n"),
        "column 'ParentName' is missing"
    );
    const HEADER: &str = "Account|ParentName|User|Share\n";
    assert_eq!(
        error(&format!("{HEADER}root|||1\na|root||many")),
        "line 3, Share: 'many' is not a number of shares or 'parent'"
    );
    assert_eq!(
        error(&format!("{HEADER}root||1")),
        "line 2 has 3 fields, but the header has 4"
    );
    let error = priority_settings("PriorityCalcPeriod = soon")
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "line 1, PriorityCalcPeriod: 'soon' is not a time as in 7-00:00:00"
    );
}

#[test]
fn runs_that_never_started_hold_nothing() {
    const HEADER: &str =
        "JobID|Submit|Start|End|User|Account|Partition|QOS|AllocTRES|TimelimitRaw\n";
    // The second run was cancelled while it was pending, the third is pending.
    let rows = "1|10|20|30|ann|a|gpu|normal|cpu=1|5\n2|10|25|25|ann|a|gpu|normal||UNLIMITED\n3|10|Unknown|Unknown|ann|a|gpu|||\n";
    let runs = sacct(&format!("{HEADER}{rows}")).unwrap();

    let seen: Vec<_> = runs
        .iter()
        .map(|run| {
            let seconds = |at: Option<UnixTime>| at.map(|at| at.0);
            (seconds(run.start), seconds(run.end), run.timelimit_seconds)
        })
        .collect();
    assert_eq!(
        seen,
        [
            (Some(20), Some(30), Some(300)),
            (None, Some(25), None),
            (None, None, None)
        ]
    );
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(
        header in prop_oneof![
            Just("Account|ParentName|User|Share|LFT|Cluster"),
            Just("Name|Flags|UsageFactor"),
            Just("JobID|Submit|Start|End|User|Account|Partition|QOS|AllocTRES|TimelimitRaw"),
            Just("Account|User|RawShares|NormShares|RawUsage|EffectvUsage|FairShare|TRESRunMins"),
            Just("PriorityDecayHalfLife = 99999999999-9:9:9"),
            Just("PartitionName=a TRESBillingWeights=cpu=1"),
        ],
        rows in "([0-9a-z=,:. -]{0,9}[|\n]){0,40}",
    ) {
        // Each parser gets each text, as a file may be given to the wrong one.
        let text = format!("{header}\n{rows}");
        let _ = associations(&text, "");
        let _ = qos(&text);
        let _ = sacct(&text);
        let _ = priority_settings(&text);
        let _ = partitions(&text);
        let _ = sshare(&text);
        let _ = assoc_mgr(&text.replace('|', " "));
    }
}
