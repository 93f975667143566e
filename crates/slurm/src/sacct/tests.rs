use super::*;
use crate::lines::MAX_LINE_BYTES;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use proptest::prelude::*;
use std::error::Error;
use std::io::{Cursor, Write};
use takt_jobs::time_zone;
use takt_model::UnixTime;

const HEADER: &str = "JobID|User|Submit|Start|End|State|AllocTRES|NCPUS|NNodes|NodeList|ElapsedRaw";

fn options(zone: &str) -> Options {
    Options {
        cluster: Cluster::Named("lab".into()),
        zone: time_zone(zone).unwrap(),
        columns: None,
    }
}

fn open(text: impl AsRef<[u8]>) -> Result<Reader<'static>, SacctError> {
    Reader::open(
        Cursor::new(text.as_ref().to_vec()),
        "jobs.txt",
        options("Europe/Oslo"),
    )
}

fn entries(text: impl AsRef<[u8]>) -> Vec<Entry> {
    open(text).unwrap().map(Result::unwrap).collect()
}

/// Parses one row under `HEADER` and returns its run.
fn run_of(row: &str) -> JobRun {
    let entries = entries(format!("{HEADER}\n{row}\n"));
    let [Entry::Run(run)] = entries.as_slice() else {
        panic!("{row}: {entries:?}")
    };
    run.clone()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn at(instant: &str) -> UnixTime {
    instant.parse::<Timestamp>().unwrap().into()
}

const ROW: &str = "7|ann|2026-09-01T10:00:00|2026-09-01T10:05:00|2026-09-01T11:05:00|COMPLETED|\
     cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=8G,node=1|4|1|g1|3600";

#[test]
fn a_run() {
    let expected = JobRun {
        cluster: "lab".into(),
        job_id: "7".into(),
        submit: at("2026-09-01T08:00:00Z"),
        start: Some(at("2026-09-01T08:05:00Z")),
        end: Some(at("2026-09-01T09:05:00Z")),
        state: "COMPLETED".into(),
        user: "ann".into(),
        nodes: Some(1),
        cpus: Some(4),
        gpus: Some(2),
        gpu_model: Some("a100".into()),
        mem_bytes: Some(8 << 30),
        alloc_tres: Some("cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=8G,node=1".into()),
        node_list: Some("g1".into()),
        elapsed: Some(3600),
        ..JobRun::default()
    };
    assert_eq!(run_of(ROW), expected);
}

#[test]
fn columns_come_in_any_order_and_case_and_unknown_ones_are_passed_over() {
    // The byte order mark, CR LF, and a name with the delimiter in the last column.
    let text = "\u{feff}STATE|end|Start|submit|Comment|user|JobID|QOS|Cluster|TimelimitRaw|Suspended|JobName\r\n\
                COMPLETED|1788250200|1788249600|1788249000|x|ann|7|normal|other|90|1-00:00:05|a|b\r\n";
    let error = open(text.replace("|a|b", "|a")).unwrap();
    let error = error.last().unwrap().unwrap();
    assert!(
        matches!(&error, Entry::Rejected(reject) if reject.reason == "AllocTRES and NCPUS are both empty")
    );
    // `AllocTRES` is missing, so the number of GPUs is unknown even though the CPUs are known.
    let entries = entries(text.replace("Comment", "NCPUS").replace("|x|", "|12|"));
    let [Entry::Run(run)] = entries.as_slice() else {
        panic!("{entries:?}")
    };
    assert_eq!(run.submit, UnixTime(1_788_249_000));
    assert_eq!(run.start, Some(UnixTime(1_788_249_600)));
    assert_eq!(run.end, Some(UnixTime(1_788_250_200)));

    assert_eq!(run.cpus, Some(12), "GPUs that nobody counted are unknown");
    assert_eq!(run.nodes, None, "GPUs that nobody counted are unknown");
    assert_eq!(run.gpus, None, "GPUs that nobody counted are unknown");
    assert_eq!(run.timelimit, Some(5400));
    assert_eq!(run.suspended, Some(86_405));
    // `Cluster::Named` comes before the column.
    assert_eq!(run.cluster.as_str(), "lab");
    assert_eq!(run.name.as_deref(), Some("a|b"));
}

#[test]
fn a_text_without_header_needs_column_names() {
    let columns = "JobID|User|Submit|Start|End|State|NCPUS"
        .split('|')
        .map(str::to_owned)
        .collect();
    let options = Options {
        columns: Some(columns),
        cluster: Cluster::Column("here".into()),
        ..options("UTC")
    };
    // UTC, an offset, and fractions of a second.
    let row =
        "7|ann|2026-09-01T10:00:00Z|2026-09-01T12:00:00+02:00|2026-09-01T11:00:00.5Z|FAILED|1\n";
    let mut reader = Reader::open(row.as_bytes(), "-", options).unwrap();
    let Some(Ok(Entry::Run(run))) = reader.next() else {
        panic!()
    };
    assert_eq!(run.end.unwrap() - run.submit, 3600);
    assert_eq!(run.start, Some(run.submit));
    assert_eq!(run.cluster, "here");
    assert!(reader.next().is_none());
}

#[test]
fn steps_blank_lines_and_repeated_headers_are_no_runs() {
    let text = format!(
        "{HEADER}\n{ROW}\n7.batch||||||||||\n7.0||||||||||\n7_3.extern||||||||||\n\n{HEADER}\n{ROW}\n"
    );
    let entries = entries(text);
    assert_eq!(entries.len(), 5);
    assert_eq!(
        entries
            .iter()
            .filter(|entry| **entry == Entry::Step)
            .count(),
        3
    );
}

#[test]
fn runs_that_never_got_a_node_hold_nothing() {
    // Pending, cancelled in the queue with and without a start, and cancelled with an allocation that had no nodes.
    for row in [
        "8|ann|2026-09-01T10:00:00|Unknown|Unknown|PENDING||4|1|None assigned|0",
        "8|ann|2026-09-01T10:00:00|None|2026-09-01T10:30:00|CANCELLED by 61003||4|1|None assigned|0",
        "8|ann|2026-09-01T10:00:00|2026-09-01T10:30:00|2026-09-01T10:30:00|CANCELLED by 61003||4|1||0",
        "8|ann|2026-09-01T10:00:00|2026-09-01T10:30:00|2026-09-01T10:30:00|CANCELLED|cpu=4|4|1|None assigned|0",
    ] {
        let run = run_of(row);
        assert_eq!(run.start, None, "{row}");
        assert_eq!(run.cpus, None, "{row}");
        assert_eq!(run.gpus, None, "{row}");
        assert_eq!(run.nodes, None, "{row}");
        assert_eq!(run.node_list, None, "{row}");
        assert!(["PENDING", "CANCELLED"].contains(&run.state.as_str()));
    }

    // A job that was cancelled in its first second did start.
    let row = "8|ann|2026-09-01T10:00:00|2026-09-01T10:30:00|2026-09-01T10:30:00|CANCELLED|cpu=4,node=1|4|1|g1|0";
    assert_eq!(run_of(row).start, Some(at("2026-09-01T08:30:00Z")));
    assert_eq!(run_of(row).cpus, Some(4));
}

#[test]
fn plain_columns_stand_in_for_alloctres() {
    let row = "8|ann|2026-09-01T10:00:00|2026-09-01T10:05:00|Unknown|RUNNING||16|2|g[1-2]|99";
    let run = run_of(row);
    assert_eq!(run.cpus, Some(16));
    assert_eq!(run.nodes, Some(2));
    assert_eq!(run.gpus, None);
    assert_eq!(run.mem_bytes, None);
    assert_eq!(
        run.end, None,
        "how long it has run is not known until it ends"
    );
    assert_eq!(
        run.elapsed, None,
        "how long it has run is not known until it ends"
    );

    // An AllocTRES without GPUs means 0 GPUs.
    assert_eq!(
        run_of(&row.replace("RUNNING||", "RUNNING|cpu=16,node=2|")).gpus,
        Some(0)
    );
}

#[test]
fn an_arrays_tasks_are_runs() {
    let row = "17_[5-6,9%2]|ann|2026-09-01T10:00:00|Unknown|Unknown|PENDING||1|1|None assigned|0";
    let entries = entries(format!("{HEADER}\n{row}\n"));
    let [Entry::Tasks { run, job_ids }] = entries.as_slice() else {
        panic!("{entries:?}")
    };
    assert_eq!(job_ids.join(" ").as_str(), "17_5 17_6 17_9");
    assert_eq!(run.start, None);
    assert_eq!(run.user.as_str(), "ann");

    assert_eq!(run_of(&ROW.replacen('7', "17_4", 1)).job_id, "17_4");
    assert_eq!(run_of(&ROW.replacen('7', "123+1", 1)).job_id, "123+1");
}

/// 2026-10-25, 03:00 CEST → 02:00 CET: the local hour from 02:00 to 03:00 occurs twice, from 00:00Z
/// and from 01:00Z.
#[test]
fn an_hour_that_comes_twice_is_settled_by_how_long_the_run_was() {
    for (submit, start, end, elapsed, expected) in [
        // The end lies in the repeated hour, before or after the change.
        (
            "00:30:00",
            "01:00:00",
            "02:30:00",
            "5400",
            ("2026-10-24T23:00:00Z", "2026-10-25T00:30:00Z"),
        ),
        (
            "00:30:00",
            "01:00:00",
            "02:30:00",
            "9000",
            ("2026-10-24T23:00:00Z", "2026-10-25T01:30:00Z"),
        ),
        // The start lies in the repeated hour.
        (
            "00:30:00",
            "02:30:00",
            "04:00:00",
            "9000",
            ("2026-10-25T00:30:00Z", "2026-10-25T03:00:00Z"),
        ),
        (
            "00:30:00",
            "02:30:00",
            "04:00:00",
            "5400",
            ("2026-10-25T01:30:00Z", "2026-10-25T03:00:00Z"),
        ),
        // Both lie in the repeated hour; local time seems to run backwards.
        (
            "00:30:00",
            "02:50:00",
            "02:10:00",
            "1200",
            ("2026-10-25T00:50:00Z", "2026-10-25T01:10:00Z"),
        ),
        // Both lie in the repeated hour and either reading fits: take the first.
        (
            "00:30:00",
            "02:10:00",
            "02:50:00",
            "2400",
            ("2026-10-25T00:10:00Z", "2026-10-25T00:50:00Z"),
        ),
        // The run time is unknown: take the first reading that keeps the order.
        (
            "00:30:00",
            "02:50:00",
            "02:10:00",
            "",
            ("2026-10-25T00:50:00Z", "2026-10-25T01:10:00Z"),
        ),
        (
            "02:40:00",
            "02:20:00",
            "02:30:00",
            "",
            ("2026-10-25T01:20:00Z", "2026-10-25T01:30:00Z"),
        ),
    ] {
        let row = format!(
            "7|ann|2026-10-25T{submit}|2026-10-25T{start}|2026-10-25T{end}|COMPLETED|cpu=1,node=1|1|1|g1|{elapsed}"
        );
        let run = run_of(&row);
        assert_eq!(run.start, Some(at(expected.0)), "{row}");
        assert_eq!(run.end, Some(at(expected.1)), "{row}");
    }
}

/// Slurm 22.05: the record after a resize has the resize as its submission and the old start.
#[test]
fn what_was_held_before_a_resize_is_not_held_twice() {
    // Seconds since 1970: submitted, started a second later, resized after three seconds.
    let text = "JobID|User|Submit|Start|End|State|NCPUS|NNodes|ElapsedRaw\n\
                14|bob|1795280453|1795280454|1795280457|RESIZING|2|2|3\n\
                14|bob|1795280457|1795280454|1795280474|COMPLETED|1|1|20\n";
    let held: Vec<_> = entries(text)
        .into_iter()
        .map(|entry| match entry {
            Entry::Run(run) => (run.submit, run.start, run.end, run.elapsed, run.cpus),
            other => panic!("{other:?}"),
        })
        .collect();

    let at = UnixTime(1_795_280_454);
    assert_eq!(
        held,
        [
            (at - 1, Some(at), Some(at + 3), Some(3), Some(2)),
            (at + 3, Some(at + 3), Some(at + 20), Some(17), Some(1))
        ]
    );
}

#[test]
fn suspension_counts_when_an_hour_is_settled() {
    // The run of 90 minutes was suspended for an hour, so it held its nodes for two and a half.
    let text = "JobID|User|Submit|Start|End|State|NCPUS|ElapsedRaw|Suspended\n\
                7|ann|2026-10-25T00:30:00|2026-10-25T01:00:00|2026-10-25T02:30:00|COMPLETED|1|5400|01:00:00\n";
    let entries = entries(text);
    let [Entry::Run(run)] = entries.as_slice() else {
        panic!("{entries:?}")
    };
    assert_eq!(run.end, Some(at("2026-10-25T01:30:00Z")));
}

#[test]
fn bad_rows_are_set_aside_with_their_line_and_reason() {
    // Each row has one mistake; the rows around it have to be read all the same.
    for (row, reason) in [
        (
            "7|ann|2026-09-01T10:00:00|COMPLETED",
            "expected 11 fields, found 4",
        ),
        (&format!("{ROW}|more"), "expected 11 fields, found 12"),
        (&ROW.replacen('7', "job", 1), "JobID 'job' is not a number"),
        (&ROW.replacen('7', "", 1), "JobID '' is not a number"),
        (
            &ROW.replacen('7', "17_[1,3,...]", 1),
            "JobID '17_[1,3,...]' lists only some of its tasks; set SLURM_BITSTR_LEN=0 where sacct or slurmrestd runs",
        ),
        (
            &ROW.replacen('7', "17_[1,3,8...", 1),
            "JobID '17_[1,3,8...' lists only some of its tasks; set SLURM_BITSTR_LEN=0 where sacct or slurmrestd runs",
        ),
        (
            &ROW.replacen('7', "17_[1,x]", 1),
            "JobID '17_[1,x]' does not list its tasks",
        ),
        (
            &ROW.replacen("COMPLETED", "completed", 1),
            "State 'completed' is not a state of Slurm",
        ),
        (
            &ROW.replacen("2026-09-01T10:00:00", "2026-09-01t10:00:00", 1),
            "Submit '2026-09-01t10:00:00' is not a time",
        ),
        (
            &ROW.replacen("2026-09-01T10:00:00", "2026-09-01", 1),
            "Submit '2026-09-01' is not a time",
        ),
        (
            &ROW.replacen("2026-09-01T10:00:00", "2026-09-01T10:00", 1),
            "Submit '2026-09-01T10:00' is not a time",
        ),
        (
            &ROW.replacen("2026-09-01T10:00:00", "yesterday", 1),
            "Submit 'yesterday' is not a time",
        ),
        (
            &ROW.replacen("2026-09-01T10:00:00", "Unknown", 1),
            "Submit is missing",
        ),
        (
            &ROW.replacen("2026-09-01T10:05:00", "2026-09-01T11:06:00", 1),
            "End is before Start",
        ),
        (
            &ROW.replacen("2026-09-01T10:05:00", "2026-03-29T02:30:00", 1),
            "Start '2026-03-29T02:30:00' does not exist in Europe/Oslo; is the time zone right?",
        ),
        (
            &ROW.replacen("2026-09-01T11:05:00", "Unknown", 1),
            "State is COMPLETED, but End is 'Unknown'",
        ),
        (&ROW.replacen("COMPLETED", "", 1), "State is empty"),
        (
            &ROW.replacen("cpu=4", "cpu", 1),
            "AllocTRES 'cpu' is not NAME=AMOUNT",
        ),
        (
            &ROW.replacen("3600", "an hour", 1),
            "ElapsedRaw 'an hour' is not a number",
        ),
        (
            "7|ann|2026-09-01T10:00:00|2026-09-01T10:05:00|2026-09-01T11:05:00|FAILED||||g1|3600",
            "AllocTRES and NCPUS are both empty",
        ),
    ] {
        let entries = entries(format!("{HEADER}\n{ROW}\n{row}\n{ROW}\n"));
        let expected = Reject {
            line: Some(3),
            reason: reason.into(),
            text: row.into(),
        };
        assert_eq!(entries[1], Entry::Rejected(expected), "{row}");
        assert!(
            matches!((&entries[0], &entries[2]), (Entry::Run(_), Entry::Run(_))),
            "{row}"
        );
    }

    // Invalid UTF-8 is replaced and never stops the reader.
    let mut text = format!("{HEADER}\n").into_bytes();
    text.extend(
        ROW.replace("ann", "an\u{1}")
            .bytes()
            .map(|byte| if byte == 1 { 0xe9 } else { byte }),
    );
    let entries = entries(text);
    assert!(
        matches!(&entries[0], Entry::Run(run) if run.user == "an\u{fffd}"),
        "{entries:?}"
    );
}

#[test]
fn other_text_is_refused_in_one_line() {
    // The begin of an ELF executable.
    let binary = [0x7f, b'E', b'L', b'F', 2, 1, 0, 0, b'\n', 0];
    for (text, message) in [
        (
            &b""[..],
            "expected a header with JobID, User, Submit, Start, End, State, found an empty line or nothing",
        ),
        (
            b"<!DOCTYPE html>\n<html>",
            "JobID, User, Submit, Start, End, State, found '<!DOCTYPE html>'",
        ),
        (&binary, r"found '\u{7f}ELF\u{2}\u{1}\0\0'"),
        (
            b"JobIDRaw|User|Submit|Start|End|State\n7|a|b|c|d|e",
            "a header with JobID, found 'JobIDRaw|User|Submit",
        ),
        (
            b"JobID|User|Start|End|State\n",
            "a header with Submit, found 'JobID|User|Start|End|State'",
        ),
        (
            b"JobID    User   Submit\n",
            "State, found 'JobID    User   Submit'",
        ),
    ] {
        let message_of = open(text).err().expect("refused").to_string();
        assert!(
            message_of
                .starts_with("jobs.txt is not what 'sacct -P' prints: expected a header with "),
            "{message_of}"
        );
        assert!(message_of.contains(message), "{message_of}");
    }
}

#[test]
fn gzip_is_known_by_its_magic() {
    // Two members, as `cat a.gz b.gz` makes them. Only the first has the header.
    let mut two_members = gzip(&format!("{HEADER}\n{ROW}\n"));
    two_members.extend(gzip(&format!("{ROW}\n")));
    assert_eq!(entries(two_members).len(), 2);
}

#[test]
fn a_truncated_gzip_ends_in_an_error_that_names_the_file() {
    let whole = gzip(&format!("{HEADER}\n{}", format!("{ROW}\n").repeat(2000)));
    // Without the checksum at the end. The rows before it are read.
    let cut = &whole[..whole.len() - 20];
    let last = open(cut).unwrap().last().unwrap().unwrap_err();
    assert!(
        last.to_string()
            .starts_with("cannot read jobs.txt after line "),
        "{last}"
    );
    assert_eq!(
        last.source().unwrap().to_string(),
        "the gzip data are truncated"
    );

    // The same error before the header.
    let Err(error) = open(&whole[..12]) else {
        panic!("opened")
    };
    assert_eq!(error.to_string(), "cannot read jobs.txt after line 0");

    // A changed byte in the middle fails at the checksum, or before.
    let mut broken = whole.clone();
    broken[whole.len() / 2] ^= 0xff;
    assert!(open(broken).unwrap().last().unwrap().is_err());
}

/// Issue 28: a name of a megabyte ended the import.
#[test]
fn a_row_that_is_too_long_is_set_aside() {
    // With and without texts of users, since a row of several lines is read another way.
    let long = "x".repeat(usize::try_from(MAX_LINE_BYTES).unwrap() + 1);
    for header in [HEADER.to_owned(), format!("JobName|{HEADER}|Comment")] {
        let row = if header == HEADER {
            ROW.to_owned()
        } else {
            format!("a|{ROW}|b")
        };
        let entries = entries(format!("{header}\n{long}\n{row}\n"));
        let [Entry::Rejected(reject), Entry::Run(_)] = &entries[..] else {
            panic!("{}", entries.len())
        };
        assert!(
            reject.reason.starts_with("longer than"),
            "{}",
            reject.reason
        );
        assert!(reject.text.len() <= 4096);
    }
}

const SECRET: &str = "|170141183460469231731687303715884105727|";

/// Writes rows as `sacct --parsable` does.
fn printed(delimiter: &str, rows: &[Vec<&str>]) -> String {
    rows.iter()
        .map(|row| {
            let fields: String = row.iter().flat_map(|field| [*field, delimiter]).collect();
            fields + "\n"
        })
        .collect()
}

/// The columns of the poller, shortened: the user's text is not last.
const POLLED: [&str; 8] = [
    "JobID", "User", "Submit", "Start", "End", "State", "NCPUS", "JobName",
];

fn polled<'a>(id: &'a str, name: &'a str) -> Vec<&'a str> {
    vec![
        id,
        "ann",
        "1788249000",
        "1788249600",
        "1788250200",
        "COMPLETED",
        "12",
        name,
    ]
}

/// Issue 28: a line feed in a job's name began the record of another job.
#[test]
fn a_name_of_several_lines_makes_no_record() {
    // The forged row has the columns and the order of the true one, with the usual delimiter.
    let forged = "harmless\n5|mallory|1788249000|1788249600|1788250200|COMPLETED|0|big";
    let rows = [POLLED.to_vec(), polled("6", forged), polled("7", "next")];
    let text = printed(SECRET, &rows);
    let names = |entries: Vec<Entry>| -> Vec<String> {
        let name = |entry| match entry {
            Entry::Run(run) => format!("{} {}", run.job_id, run.name.unwrap_or_default()),
            Entry::Rejected(reject) => reject.reason,
            other => panic!("{other:?}"),
        };
        entries.into_iter().map(name).collect()
    };
    let expected = [format!("6 {forged}"), "7 next".to_owned()];

    assert_eq!(
        names(entries(&text)),
        expected,
        "the header shows the delimiter"
    );
    assert!(!open(&text).unwrap().may_be_forged());

    let with = |delimiter| {
        Reader::with_delimiter(text.as_bytes(), "sacct", options("UTC"), delimiter)
            .map(|reader| names(reader.map(Result::unwrap).collect()))
    };
    assert_eq!(with(SECRET).unwrap(), expected);
    assert!(with("|170|").is_err(), "another delimiter");

    // A file whose delimiter everybody knows: the row is read as far as it is unambiguous.
    let known = printed("|", &rows);
    assert!(open(&known).unwrap().may_be_forged());
    assert_eq!(
        names(entries(&known)),
        ["no delimiter at the end", "5 big", "7 next"]
    );
    // The rest of a name that completes its row takes no other row with it.
    let after = |rest: &str| {
        let name = format!("x|\n{rest}");
        let rows = [POLLED.to_vec(), polled("6", &name), polled("7", "next")];
        names(entries(printed("|", &rows)))
    };
    assert_eq!(after("a"), ["6 x|\na", "7 next"]);
    assert_eq!(
        after("8|a"),
        ["6 x", "expected 8 fields, found 2", "7 next"]
    );
    let harmless = printed("|", &[POLLED.to_vec(), polled("6", "two\nlines")]);
    assert_eq!(names(entries(&harmless)), ["6 two\nlines"]);

    // Without columns of users, a row cannot be forged: `Layout` and `TRESUsageInMax` are Slurm's own.
    let case = include_str!("../../fixtures/made-up/sacct_newline_in_name.txt");
    assert!(open(case).unwrap().may_be_forged());
    let own = case.replace("|JobName", "|Layout");
    assert!(
        open(&own).unwrap().may_be_forged(),
        "users write accounts, too"
    );
    let own = own.replace("|Account", "|TRESUsageInMax");
    assert!(!open(&own).unwrap().may_be_forged());
    let later = own.replace("|Layout", "|ColumnOfLaterVersions");
    assert!(open(later).unwrap().may_be_forged());
}

/// A delimiter in a user's own text dropped the record.
#[test]
fn surplus_delimiters_belong_to_the_only_text_that_they_fit() {
    // Two texts of users: the account and the name, with columns of Slurm on both sides.
    let header = "JobID|User|Account|Submit|Start|End|State|NCPUS|JobName|NNodes";
    let row = |account: &str, name: &str| {
        format!("6|ann|{account}|1788249000|1788249600|1788250200|COMPLETED|12|{name}|1")
    };
    let read = |row: &str| {
        let text = format!("{header}\n{row}\n{}\n", row_of_seven());
        let found = entries(text);
        assert!(matches!(found.last(), Some(Entry::Run(run)) if run.job_id == "7"));
        found
    };
    fn row_of_seven() -> &'static str {
        "7|bob|a|1788249000|1788249600|1788250200|COMPLETED|1|n|1"
    }
    // Delimiters in either text, a name of several lines, and an account and a name that both have one.
    for (account, name) in [
        ("phys", "a|b"),
        ("phys", "a|b\n|c|\nd|1"),
        ("ph|ys", "a"),
        ("p|h", "a|b|c"),
        ("phys", "4|a\nx"),
    ] {
        let found = read(&row(account, name));
        let [Entry::Run(run), _] = &found[..] else {
            panic!("{account} {name}: {found:?}")
        };
        assert_eq!(
            (run.account.as_str(), run.name.as_deref(), run.cpus),
            (account, Some(name), Some(12))
        );
    }

    // Two readings that differ in what the job held.
    let account = "a|1788249000|1788249600|1788250200|COMPLETED|1|b";
    for ambiguous in [row(account, "name"), row("phys", "a|3\nrest")] {
        let found = read(&ambiguous);
        let [Entry::Rejected(reject), _] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(
            reject.reason,
            "job 6 of user ann can be read in several ways, because a user's text has a delimiter or a line feed"
        );
    }

    // Lines that are no part of a row do not take it with them.
    let found = read(&format!("{}\nsacct: error\nmore", row("phys", "a")));
    let [Entry::Run(_), Entry::Rejected(reject), _] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        (reject.line, reject.text.as_str()),
        (Some(3), "sacct: error\nmore")
    );
}

/// Job ids of runs, and whose rows are set aside.
fn counted(text: &str) -> (Vec<String>, Vec<String>) {
    let mut runs = Vec::new();
    let mut set_aside = Vec::new();
    for entry in entries(text) {
        match entry {
            Entry::Run(run) => runs.push(format!("{} {}", run.job_id, run.gpus.unwrap_or(0))),
            Entry::Rejected(reject) => set_aside.push(reject.reason),
            Entry::Tasks { .. } | Entry::Step => {}
        }
    }
    (runs, set_aside)
}

/// A name that ends its own row with smaller numbers hid the true ones in a row that does not count.
#[test]
fn a_name_does_not_make_its_own_run_smaller() {
    // The true row held eight GPUs for hours; the forged one held a CPU for a second.
    let big = "1788249000|1788249600|1788270000|COMPLETED|billing=8,cpu=8,gres/gpu=8,node=1";
    let small = "1788249000|1788249600|1788249601|COMPLETED|billing=1,cpu=1,node=1";
    let other = format!("8|bob|n|phys|{big}");
    let header = "JobID|User|JobName|Account|Submit|Start|End|State|AllocTRES";
    // The true end looks like a malformed row, a step of this or another job, a second row, or several of these.
    for last in [
        "8a|bob|x",
        "9",
        "7.batch|ann|x",
        "7.batch||x",
        "7.0|ann|a|b",
        "7|ann|x",
        "4.0|x|y\nz",
        "|||\n8a|bob|x",
        "7.batch||x|phys|1788249000|1788249600|1788249601|COMPLETED|cpu=1,node=1\n7.0||y",
        "8|x|\n|\n7.extern||x",
    ] {
        let name = format!("x|phys|{small}\n{last}");
        let text = format!("{header}\n7|ann|{name}|phys|{big}\n{other}\n");
        let (runs, set_aside) = counted(&text);
        // The smaller run never counts, and the run of the other user always does.
        assert!(!runs.contains(&"7 0".to_owned()), "{last:?}: {runs:?}");
        assert!(runs.contains(&"8 8".to_owned()), "{last:?}: {runs:?}");
        assert!(!set_aside.is_empty(), "{last:?}");
    }

    // The user behind the name: a step has none.
    let header = "JobID|JobName|User|Account|Submit|Start|End|State|AllocTRES";
    let other = format!("8|n|bob|phys|{big}");
    for last in ["8a|x", "9", "7.batch|x", "7|x", "4.extern|"] {
        let name = format!("x|ann|phys|{small}\n{last}");
        let text = format!("{header}\n7|{name}|ann|phys|{big}\n{other}\n");
        let (runs, set_aside) = counted(&text);
        assert_eq!(
            (runs, set_aside.len()),
            (vec!["8 8".to_owned()], 1),
            "{last:?}"
        );
        assert!(
            set_aside[0].contains("can be read in several ways"),
            "{set_aside:?}"
        );
    }
    // Another run in the same place counts by itself, whoever's it is.
    let name = format!("x|ann|phys|{small}\n9|y");
    let (runs, _) = counted(&format!("{header}\n7|{name}|ann|phys|{big}\n{other}\n"));
    assert_eq!(runs, ["7 0", "9 8", "8 8"]);
}

#[test]
fn steps_and_second_rows_of_slurm_take_no_run_with_them() {
    // Steps hold less, as much, or a little longer than their job, and a row may come twice: none is a forgery.
    let tres = "billing=8,cpu=8,gres/gpu=8,mem=64G,node=1";
    for header in [
        "JobID|User|JobName|Account|Submit|Start|End|State|AllocTRES",
        "JobID|JobName|User|Account|Submit|Start|End|State|AllocTRES",
        "JobID|User|Account|Submit|Start|End|State|AllocTRES|JobName",
    ] {
        let row = |id: &str, user: &str, name: &str, tres: &str, end: &str| {
            let value = |column: &str| match column {
                "JobID" => id.to_owned(),
                "User" => user.to_owned(),
                "JobName" => name.to_owned(),
                "Account" => "phys".to_owned(),
                "Submit" => "1788249000".to_owned(),
                "Start" => "1788249600".to_owned(),
                "End" => end.to_owned(),
                "State" => "COMPLETED".to_owned(),
                _ => tres.to_owned(),
            };
            let fields: Vec<String> = header.split('|').map(value).collect();
            fields.join("|")
        };
        let end = "1788270000";
        let rows = [
            row("7", "ann", "train", tres, end),
            // The batch step outlasts its job by two seconds, while its processes are killed.
            row(
                "7.batch",
                "",
                "batch",
                "cpu=8,gres/gpu=8,mem=64G,node=1",
                "1788270002",
            ),
            row("7.extern", "", "extern", tres, end),
            row("7.0", "", "python", "cpu=4,gres/gpu=4,mem=64G,node=1", end),
            row("8", "bob", "n", tres, end),
            row("8", "bob", "n", tres, end),
        ];
        let (runs, set_aside) = counted(&format!("{header}\n{}\n", rows.join("\n")));
        assert_eq!(runs, ["7 8", "8 8", "8 8"], "{header}: {set_aside:?}");
        assert_eq!(set_aside, [""; 0], "{header}");
    }
}

#[test]
fn a_delimiter_is_secret_if_it_is_long_and_varied() {
    // Long and varied enough, or too short, or a few characters repeated.
    for (delimiter, secret) in [
        ("|", false),
        ("||||||||", false),
        (";;;;;;;;", false),
        ("|1234|", false),
        ("|12121212|", false),
        ("|4711081542|", true),
        (SECRET, true),
    ] {
        assert_eq!(is_secret(delimiter), secret, "{delimiter}");
        let rows = [POLLED.to_vec(), polled("6", "a")];
        let reader = open(printed(delimiter, &rows)).unwrap();
        assert_eq!(reader.may_be_forged(), !secret, "{delimiter}");
    }
}

/// slurmctld's clock was set back while the job ran.
#[test]
fn a_negative_run_time_keeps_the_times() {
    let run = run_of(&ROW.replace("|3600", "|-5"));
    assert_eq!((run.elapsed, run.start), (None, run_of(ROW).start));
    assert_eq!(run.end, run_of(ROW).end);
}

#[test]
fn numbers_that_are_not_set_are_no_times() {
    for not_set in ["4294967294", "4294967295", "18446744073709551614"] {
        let row = ROW
            .replacen("2026-09-01T10:05:00", not_set, 1)
            .replace("COMPLETED", "CANCELLED by 1000");
        let run = run_of(&row);
        assert_eq!((run.start, run.end), (None, run_of(ROW).end), "{not_set}");
    }
}

/// Issue 29: cut lists, and an array of which no task began.
#[test]
fn arrays_as_sacct_prints_them() {
    // Full lists, lists that Slurm cut, and an array of which no task began.
    let text = include_str!("../../fixtures/made-up/sacct_arrays.txt");
    let found: Vec<String> = entries(text)
        .into_iter()
        .map(|entry| match entry {
            Entry::Run(run) => run.job_id,
            Entry::Tasks { job_ids, .. } => format!("{} and {}", job_ids[0], job_ids.len() - 1),
            Entry::Step => "step".to_owned(),
            Entry::Rejected(reject) => {
                assert!(reject.reason.contains("SLURM_BITSTR_LEN=0"), "{reject:?}");
                "cut".to_owned()
            }
        })
        .collect();
    let expected = [
        "100_1 and 3",
        "101_0 and 10",
        "cut",
        "cut",
        "103_5 and 5",
        "104",
        "105_7",
        "step",
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_header_shows_the_delimiter() {
    // With and without the delimiter at the end; padded columns, a single column and an empty text show none.
    for (header, delimiter) in [
        ("JobID|User|State", Some("|")),
        ("JobID|User|", Some("|")),
        ("JobID,User", Some(",")),
        ("JobID|42|User|42|State", Some("|42|")),
        ("JobID|42|User|42|State|42|", Some("|42|")),
        ("JobID\u{1f}7\u{1f}User", Some("\u{1f}7\u{1f}")),
        ("JobID    User   Submit", None),
        ("JobID", None),
        ("", None),
    ] {
        assert_eq!(delimiter_of(header), delimiter, "{header}");
    }
}

proptest! {
    /// Whatever users write into their texts, the records are those that Slurm has.
    #[test]
    fn no_text_of_a_user_makes_or_changes_a_record(
        names in prop::collection::vec(
            "([ -~]|\n|\r|\0|\\||é|5\\|bob\\||1788249000\\||COMPLETED\\|12\\|){0,60}",
            1..8,
        ),
    ) {
        let ids: Vec<String> = (1..=names.len()).map(|id| id.to_string()).collect();

        // The columns of each row, with the name that a user chose in the last one.
        let mut rows = vec![POLLED.to_vec()];
        rows.extend(ids.iter().zip(&names).map(|(id, name)| polled(id, name)));
        let found: Vec<_> = entries(printed(SECRET, &rows))
            .into_iter()
            .map(|entry| match entry {
                Entry::Run(run) => (run.job_id, run.user, run.cpus, run.submit),
                other => panic!("{other:?}"),
            })
            .collect();
        let written: Vec<_> = ids
            .into_iter()
            .map(|id| (id, "ann".to_owned(), Some(12), UnixTime(1_788_249_000)))
            .collect();
        prop_assert_eq!(found, written);
    }
}

#[test]
fn durations_and_limits() {
    for (text, seconds) in [
        ("00:01:26", 86),
        ("1-00:00:05", 86_405),
        ("12:30", 750),
        ("00:02.004", 2),
        ("100:00:00", 360_000),
    ] {
        assert_eq!(duration(text, "Elapsed"), Ok(Some(seconds)), "{text}");
    }
    assert_eq!(duration("INVALID", "Elapsed"), Ok(None), "negative");
    // Too few or too many parts, a negative day, and parts that are empty.
    for text in ["5", "1:2:3:4", "1--2:00:00", ":", "1-"] {
        assert_eq!(
            duration(text, "Elapsed"),
            Err(format!("Elapsed '{text}' is not a duration"))
        );
    }

    let limit = |raw, formatted| {
        let mut fields = Fields([""; FIELDS]);
        fields.0[Field::TimelimitRaw as usize] = raw;
        fields.0[Field::Timelimit as usize] = formatted;
        timelimit(&fields).unwrap()
    };
    assert_eq!(limit("90", ""), Some(5400));
    assert_eq!(limit("", "01:30:00"), Some(5400));
    assert_eq!(limit("UNLIMITED", "UNLIMITED"), None);
    assert_eq!(limit("Partition_Limit", ""), None);
    assert_eq!(limit("", ""), None);
}

#[test]
fn sluids_are_read_and_join_the_parts_of_a_resized_run() {
    // The second part of a resized run keeps the first SLUID as its original.
    let header = "JobID|User|Submit|Start|End|State|NCPUS|SLUID|OriginalSLUID";
    let rows = [
        "14|bob|1795280453|1795280454|1795280457|RESIZING|2|s88DKSW5HH2P00|s88DKSW5HH2P00",
        "14|bob|1795280457|1795280454|1795280474|COMPLETED|1|s88DKSW5HH2P01|s88DKSW5HH2P00",
        // Records of earlier releases, and what cannot be an SLUID.
        "15|bob|1795280457|1795280454|1795280474|COMPLETED|1||",
        "16|bob|1795280457|1795280454|1795280474|COMPLETED|1|s00000000000000|S88DKSW5HH2P00",
    ];
    let text = format!("{header}\n{}\n", rows.join("\n"));
    let runs: Vec<JobRun> = entries(text)
        .into_iter()
        .map(|entry| match entry {
            Entry::Run(run) => run,
            other => panic!("{other:?}"),
        })
        .collect();
    let sluids: Vec<_> = runs
        .iter()
        .map(|run| (run.sluid.as_deref(), run.lineage()))
        .collect();

    let first = Some("s88DKSW5HH2P00");
    assert_eq!(
        sluids,
        [
            (first, first),
            (Some("s88DKSW5HH2P01"), first),
            (None, None),
            (None, None),
        ]
    );
}
