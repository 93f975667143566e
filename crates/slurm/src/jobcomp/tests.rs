use super::*;
use proptest::prelude::*;
use takt_jobs::time_zone;

fn options() -> Options {
    Options {
        cluster: Cluster::Column("lab".into()),
        zone: time_zone("UTC").unwrap(),
        accounts: [("carol".to_owned(), "vision".to_owned())].into(),
        resized: Resized::default(),
    }
}

fn read(text: &str) -> Vec<Result<Entry, JobcompError>> {
    Reader::open(text.as_bytes(), "jobcomp.log", options())
        .unwrap()
        .collect()
}

/// Written by Slurm 22.05.8 for a job that gave back one of two nodes: `Tres` has the amounts of
/// before.
#[test]
fn amounts_from_before_a_resize_are_unknown() {
    let line = "JobId=1 UserId=bob(61002) GroupId=labusers(61000) Name=shrink JobState=COMPLETED Partition=gpu \
         TimeLimit=5 StartTime=2026-11-21T17:01:40 EndTime=2026-11-21T17:02:00 NodeList=node0 NodeCnt=1 ProcCnt=1 \
         WorkDir=/home/bob ReservationName= Tres=cpu=2,mem=2000M,node=1,billing=2 Account= QOS= WcKey= \
         Cluster=unknown SubmitTime=2026-11-21T17:01:00 EligibleTime=2026-11-21T17:01:00 DerivedExitCode=0:0 \
         ExitCode=0:0 \n";
    let Some(Ok(Entry::Run(run))) = Reader::open(line.as_bytes(), "jobcomp.log", options())
        .unwrap()
        .next()
    else {
        panic!("one run");
    };
    assert_eq!(run.nodes, Some(1));
    assert_eq!(run.cpus, Some(1));
    assert_eq!(run.mem_bytes, None);
    assert_eq!(run.billing, None);
    assert_eq!(run.alloc_tres, None);
}

/// Written by Slurm 22.05.8: two nodes, then three for ten seconds, then one for twenty.
#[test]
fn what_a_job_held_before_and_after_a_resize_has_its_own_record() {
    let line = |state: &str, start: &str, end: &str, nodes: u32| {
        format!(
            "JobId=1 UserId=bob(61002) GroupId=labusers(61000) Name=shrink JobState={state} Partition=gpu TimeLimit=5 \
             StartTime=2026-11-21T17:{start} EndTime=2026-11-21T17:{end} NodeList=node0 NodeCnt={nodes} ProcCnt=2 \
             WorkDir=/home/bob ReservationName= Tres=cpu=2,node={nodes} Account= QOS= WcKey= Cluster=unknown \
             SubmitTime=2026-11-21T17:01:00 EligibleTime=2026-11-21T17:01:00 DerivedExitCode=0:0 ExitCode=0:0 \n"
        )
    };
    let text = line("RESIZING", "01:30", "01:30", 2)
        + &line("RESIZING", "01:40", "01:40", 3)
        + &line("COMPLETED", "01:40", "02:00", 1);
    // Read at once, and line by line as a growing file is read.
    let options = options();
    let piece = |text: &str| -> Vec<JobRun> {
        Reader::open(text.as_bytes(), "jobcomp.log", options.clone())
            .unwrap()
            .map(|entry| match entry.unwrap() {
                Entry::Run(run) => run,
                other => panic!("{other:?}"),
            })
            .collect()
    };

    let whole = piece(&text);
    let parts: Vec<JobRun> = text.split_inclusive('\n').flat_map(piece).collect();
    assert_eq!(whole, parts);
    let seen: Vec<_> = whole
        .iter()
        .map(|run| {
            let start = run.start.map(|start| start - whole[0].submit);
            (run.submit - whole[0].submit, start, run.elapsed, run.nodes)
        })
        .collect();
    assert_eq!(
        seen,
        [
            (0, None, None, Some(2)),
            (30, Some(30), Some(10), Some(3)),
            (40, Some(40), Some(20), Some(1))
        ],
        "{whole:?}"
    );
}

/// Written by Slurm 22.05.8.
const LINE: &str = "JobId=5 UserId=dave(61004) GroupId=labusers(61000) Name=multi JobState=COMPLETED Partition=gpu \
    TimeLimit=5 StartTime=2026-11-20T18:53:01 EndTime=2026-11-20T18:53:21 NodeList=node[0-1] NodeCnt=2 ProcCnt=4 \
    WorkDir=/home/dave ReservationName= Tres=cpu=4,mem=4000M,node=2,billing=4 Account= QOS= WcKey= Cluster=unknown \
    SubmitTime=2026-11-20T18:52:59 EligibleTime=2026-11-20T18:52:59 DerivedExitCode=0:0 ExitCode=0:0 ";

fn run_of(line: &str) -> JobRun {
    match read(line).remove(0).unwrap() {
        Entry::Run(run) => run,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run() {
    let run = run_of(LINE);
    let expected = JobRun {
        cluster: "lab".into(),
        job_id: "5".into(),
        submit: UnixTime(1_795_200_779),
        eligible: Some(UnixTime(1_795_200_779)),
        start: Some(UnixTime(1_795_200_781)),
        end: Some(UnixTime(1_795_200_801)),
        state: "COMPLETED".into(),
        user: "dave".into(),
        partition: "gpu".into(),
        name: Some("multi".into()),
        nodes: Some(2),
        cpus: Some(4),
        mem_bytes: Some(4000 << 20),
        billing: Some(4),
        alloc_tres: Some("cpu=4,mem=4000M,node=2,billing=4".into()),
        node_list: Some("node[0-1]".into()),
        elapsed: Some(20),
        timelimit: Some(300),
        exit_code: Some("0:0".into()),
        ..JobRun::default()
    };

    assert_eq!(run, expected, "GPUs that nobody wrote down are unknown");
    assert_eq!(
        run_of(&LINE.replace("node=2,b", "node=2,gres/gpu=2,b")).gpus,
        Some(2)
    );
    // The default account is the configured one, and a recorded account comes before it.
    assert_eq!(run_of(&LINE.replace("dave(", "carol(")).account, "vision");
    assert_eq!(
        run_of(&LINE.replace("Account=", "Account=physics")).account,
        "physics"
    );
    assert_eq!(run_of(&LINE.replace("=unknown", "=other")).cluster, "other");
    assert_eq!(
        run_of(&LINE.replace("TimeLimit=5", "TimeLimit=UNLIMITED")).timelimit,
        None
    );
    // Keys of later versions may be anywhere, also behind the last one that is known.
    let later = LINE
        .replace("QOS=", "New=1 QOS=high Newer=2")
        .trim_end()
        .to_owned()
        + " Newest=3";
    let run = run_of(&later);
    assert_eq!(run.qos.as_deref(), Some("high"), "keys of later versions");
    assert_eq!(
        run.exit_code.as_deref(),
        Some("0:0"),
        "keys of later versions"
    );
}

#[test]
fn ids_of_arrays_and_heterogeneous_jobs() {
    let with = |more: &str| {
        run_of(&LINE.replace(" DerivedExitCode", &format!(" {more} DerivedExitCode"))).job_id
    };
    assert_eq!(with("ArrayJobId=6 ArrayTaskId=3"), "6_3");
    assert_eq!(with("HetJobId=20 HetJobOffset=1"), "20+1");
    assert_eq!(with("PackJobId=20 PackJobOffset=0"), "20+0");
    // A task number of NO_VAL is the array itself, not one of its tasks.
    assert_eq!(with("ArrayJobId=6 ArrayTaskId=4294967294"), "5");
}

#[test]
fn a_requeued_run_is_over_and_one_that_never_started_holds_nothing() {
    assert_eq!(
        run_of(&LINE.replace("COMPLETED", "PENDING")).state,
        "REQUEUED"
    );
    // A job that was cancelled in the queue: no nodes, and an eligible time that never came.
    let cancelled = LINE
        .replace("COMPLETED", "CANCELLED")
        .replace("node[0-1]", "(null)")
        .replace("Cnt=2", "Cnt=0")
        .replace("EligibleTime=2026-11-20T18:52:59", "EligibleTime=unknown");
    let run = run_of(&cancelled);
    assert_eq!(run.start, None);
    assert_eq!(run.cpus, None);
    assert_eq!(run.eligible, None);
    assert_eq!(run.end, Some(UnixTime(1_795_200_801)));
}

#[test]
fn names_and_directories_hold_anything() {
    let run = run_of(
        &LINE
            .replace("Name=multi", "Name=a b = c")
            .replace("/home/dave", "/home/dave/my work"),
    );
    assert_eq!(run.name.as_deref(), Some("a b = c"));
    assert_eq!(run.name.as_deref(), Some("a b = c"));
}

/// A name with ` ExitCode=` dropped the record of its own job.
#[test]
fn keys_in_texts_of_users_are_texts() {
    let expected = run_of(LINE);

    // Without slurmdbd, accounts and WCKeys are free texts, too.
    for (key, text) in [
        ("Name=multi", "Name=x ExitCode=0:0"),
        ("Name=multi", "Name=x ExitCode=0:0 \nmore"),
        ("Name=multi", "Name=x JobState=FAILED Partition=gpu"),
        ("Name=multi", "Name=x\nWorkDir=/tmp ReservationName="),
        ("Name=multi", "Name=JobId=7\n\nJobState="),
        ("/home/dave", "/home/dave JobState=FAILED\nExitCode=1:0 "),
        (
            "Account=",
            "Account= Cluster=other SubmitTime=2020-01-01T00:00:00",
        ),
        (
            "WcKey=",
            "WcKey=x SubmitTime=2020-01-01T00:00:00 ArrayJobId=7 ArrayTaskId=1",
        ),
        ("WcKey=", "WcKey=x ArrayJobId=7 ArrayTaskId=1"),
        (
            "WcKey=",
            "WcKey=x Cluster=other SubmitTime=2020-01-01T00:00:00 EligibleTime=Unknown",
        ),
    ] {
        // Each text is followed by a complete record, which must survive it.
        let text = format!("{}\n{LINE}\n", LINE.replace(key, text));
        let entries = read(&text);
        let [Ok(Entry::Run(run)), Ok(Entry::Run(after))] = &entries[..] else {
            panic!("{text}: {entries:?}")
        };
        let name = expected.name.clone();
        assert_eq!(
            JobRun {
                name,
                ..run.clone()
            },
            expected,
            "{text}"
        );
        assert_eq!(*after, expected, "{text}");
    }
}

/// What could be two records of different amounts is set aside, and names its user.
#[test]
fn a_record_that_can_be_read_in_two_ways_is_set_aside() {
    let (_, middle) = LINE.split_once("Name=multi").unwrap();
    // A middle part with all keys between name and directory, and one processor instead of four.
    let middle = middle.replace("ProcCnt=4", "ProcCnt=1");
    let (block, _) = middle.split_once(" ReservationName").unwrap();
    for (key, text) in [
        ("Name=multi", format!("Name=x{block}")),
        ("Name=multi", format!("Name=x{middle}\nmore")),
        ("Name=multi", format!("Name={}", " JobState=".repeat(90))),
        ("Account=", "Account=x QOS=high WcKey=y".to_owned()),
    ] {
        let record = LINE.replace(key, &text);

        let entries = read(&format!("{LINE}\n{record}\n{LINE}\n"));
        let [Ok(Entry::Run(_)), second, Ok(Entry::Run(_))] = &entries[..] else {
            panic!("{record}: {entries:?}")
        };
        // Behind none of these keys comes the next one of the block, so the name is only long.
        if text.contains("JobState= ") {
            assert!(matches!(second, Ok(Entry::Run(_))), "{second:?}");
            continue;
        }
        let Ok(Entry::Rejected(reject)) = second else {
            panic!("{record}: {second:?}")
        };
        assert_eq!(
            reject.reason,
            "job 5 of user dave(61004) can be read in several ways, because a user's text has keys of Slurm"
        );
        assert_eq!(reject.line, Some(2));
    }
    // Lines that are no part of a record do not take it with them.
    let entries = read(&format!("{LINE}\nslurmctld: error\nmore\n{LINE}\n"));
    let [
        Ok(Entry::Run(_)),
        Ok(Entry::Rejected(reject)),
        Ok(Entry::Run(_)),
    ] = &entries[..]
    else {
        panic!("{entries:?}")
    };
    assert_eq!(
        (reject.line, &*reject.text),
        (Some(2), "slurmctld: error\nmore")
    );
}

/// Issue 28: a line feed in a job's name began the record of another job.
#[test]
fn a_name_of_several_lines_makes_no_record() {
    let text = include_str!("../../fixtures/made-up/jobcomp_newline_in_name.txt");
    let entries: Vec<Entry> = read(text).into_iter().map(Result::unwrap).collect();
    let found: Vec<_> = entries
        .iter()
        .map(|entry| match entry {
            Entry::Run(run) => Ok((run.job_id.as_str(), run.user.as_str(), run.name.as_deref())),
            Entry::Rejected(reject) => Err((reject.line, reject.reason.as_str())),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        found,
        [
            Ok(("410", "carl", Some("before"))),
            Err((
                Some(2),
                "job 411 of user mallory(1001) has a line that begins another record"
            )),
            Ok(("412", "carl", Some("two\nlines"))),
        ]
    );
}

/// Without `ExitCode=`, all records were read as one.
#[test]

fn records_of_slurm_without_exit_codes() {
    let older = LINE.split_once(" DerivedExitCode").unwrap().0;
    let second = older.replace("JobId=5", "JobId=6");
    let second = second.replace("Name=multi", "Name=two\nlines");
    // Two records without exit codes, the second with a name of two lines, and one with them.
    let text = [older, &second, LINE].join("\n");
    let ids: Vec<String> = read(&text)
        .into_iter()
        .map(|entry| match entry {
            Ok(Entry::Run(run)) => run.job_id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, ["5", "6", "5"]);
}

#[test]
fn bad_lines_are_set_aside_and_other_files_refused() {
    for (line, reason) in [
        (
            LINE.replace("JobId=5", "JobId=x"),
            "JobId 'x' is not a number",
        ),
        (
            LINE.replace("EndTime=2026-11-20T18:53:21", "EndTime=Unknown"),
            "JobState is COMPLETED, but EndTime is 'Unknown'",
        ),
        (
            LINE.replace("SubmitTime=2026-11-20T18:52:59", "SubmitTime=never"),
            "Submit 'never' is not a time",
        ),
        (
            LINE.replace("JobId=5 UserId", "JobId=5 Surprise UserId")
                .replace("JobState=COMPLETED", ""),
            "is missing",
        ),
    ] {
        // The bad line stands between two good ones, with a blank line, and must take neither with it.
        let entries = read(&format!("{LINE}\n{line}\n\n{LINE}\n"));
        let Ok(Entry::Rejected(reject)) = &entries[1] else {
            panic!("{line}: {:?}", entries[1])
        };
        assert!(
            reject.reason.contains(reason) && reject.line == Some(2),
            "{}",
            reject.reason
        );
        assert!(matches!(entries[2], Ok(Entry::Run(_))));
    }

    let error = read("JobID|User|State\n1|a|b\n").remove(0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "jobcomp.log is not what jobcomp/filetxt writes: expected JobId=…, found 'JobID|User|State'"
    );
    assert!(read("").is_empty());
}

proptest! {
    /// Names and directories without keys, of any number of lines, are read as they were written.
    #[test]
    fn a_text_without_keys_is_read_as_written(
        texts in prop::collection::vec("([a-z|, =\"'\\\\]|\n|JobIds|é){0,20}", 1..6),
    ) {
        let records: String = texts
            .iter()
            .enumerate()
            .map(|(id, text)| {
                let line = LINE.replace("JobId=5 ", &format!("JobId={} ", id + 1));
                line.replace("Name=multi", &format!("Name=a{text}z")) + "\n"
            })
            .collect();
        let names: Vec<Option<String>> = read(&records)
            .into_iter()
            .map(|entry| match entry {
                Ok(Entry::Run(run)) => run.name,
                other => panic!("{other:?}"),
            })
            .collect();
        let written: Vec<_> = texts.iter().map(|text| Some(format!("a{text}z"))).collect();
        prop_assert_eq!(names, written);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "(JobId=|EndTime=| Name=|[ -~]|é|\n){0,80}") {
        read(&format!("JobId={text}"));
        read(&LINE.replace("multi", &text));
    }
}
