//! `scripts/check-advisories.sh` compares with the database where that can be had, and says by name
//! why it does not. A stand-in takes the place of cargo-deny.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::tempdir;

/// Stands in for `cargo deny`: `fetch` and `check` end with these exit codes.
fn deny(fetch: u8, check: u8) -> String {
    format!(
        "#!/bin/sh\n[ \"$1\" = deny ] && shift\ncase \"$1\" in\n\
         fetch) echo 'cannot reach the database' >&2; exit {fetch};;\n\
         check) [ \"$2\" = --disable-fetch ] || exit 9; echo 'RUSTSEC-2026-0001'; exit {check};;\n\
         esac\n"
    )
}

struct Answer {
    code: Option<i32>,
    said: String,
}

/// Runs the script with these programs, and with or without a database.
fn run(programs: &[(&str, String)], has_database: bool, no_skip: bool) -> Answer {
    let folder = tempdir().unwrap();
    for (name, text) in programs {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    if has_database {
        fs::create_dir_all(folder.path().join("advisory-dbs/github.com-1")).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/check-advisories.sh");
    let mut command = Command::new("/bin/sh");
    command
        .arg(script)
        .env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()))
        .env("CARGO_HOME", folder.path())
        .env_remove("TAKT_TEST_NO_SKIP");
    if no_skip {
        command.env("TAKT_TEST_NO_SKIP", "1");
    }
    let run = command.output().unwrap();
    let said = [run.stdout, run.stderr].concat();
    Answer {
        code: run.status.code(),
        said: String::from_utf8(said).unwrap(),
    }
}

#[test]
fn advisories_are_checked_or_the_reason_is_named() {
    let programs = |fetch, check| ["cargo", "cargo-deny"].map(|name| (name, deny(fetch, check)));

    // Programs, whether a database lies there, and the expected code and words.
    for (programs, has_database, code, words) in [
        (vec![], true, 0, "skipped: cargo-deny is missing"),
        (
            programs(1, 0).into(),
            false,
            0,
            "skipped: the database of advisories cannot be downloaded: cannot reach",
        ),
        (programs(1, 0).into(), true, 0, "using the copy of 2"),
        (programs(1, 1).into(), true, 1, "RUSTSEC-2026-0001"),
        (programs(0, 0).into(), true, 0, "RUSTSEC-2026-0001"),
        (programs(0, 1).into(), true, 1, "RUSTSEC-2026-0001"),
    ] {
        let answer = run(&programs, has_database, false);
        assert_eq!(answer.code, Some(code), "{words}: {}", answer.said);
        assert!(answer.said.contains(words), "{words}: {}", answer.said);
        let is_skipped = answer.said.contains("skipped");
        let strict = run(&programs, has_database, true);
        let expected = if is_skipped { 1 } else { code };
        assert_eq!(strict.code, Some(expected), "{words}: {}", strict.said);
    }
}
