//! Debian's promtool checks the page.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod support;

use std::io::Write;
use std::process::{Command, Stdio};
use support::{Running, fixtures, paths};

#[test]
fn promtool_accepts_the_page() {
    for tree in ["made-up/odd-node", "made-up/much-hardware"] {
        let tree = fixtures().join(tree);
        let flags = paths(&tree);
        let exporter = Running::takt(&flags.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
        let mut promtool = Command::new("promtool");
        promtool
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = match promtool.spawn() {
            Ok(child) => child,
            Err(error) => {
                return eprintln!(
                    "SKIPPED: cannot run promtool ({error}); apt-get install prometheus"
                );
            }
        };
        child
            .stdin
            .take()
            .unwrap()
            .write_all(exporter.page("").as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        // Exit code 3 means naming conventions, which some names of node_exporter break.
        assert!(matches!(output.status.code(), Some(0 | 3)), "{said}");
        let ours: Vec<_> = said
            .lines()
            .filter(|line| line.starts_with("takt_"))
            .collect();
        assert!(ours.is_empty(), "{ours:?}");
    }
}
