//! Coordinators of an account, by each way to sign in: they see the account's members and nobody else, as long as they
//! coordinate it.

use super::ldap::{Slapd, needs_slapd};
use super::munge::{Munged, needs_munge, with_munge};
use super::{password, whoami};
use crate::access::{ALICE, BOB, Lab, SAME, WWW_DATA};
use crate::support::or_skip;
use crate::support::takt::Run;
use serde_json::{Value, json};
use std::process::Command;

/// Alice coordinates bob's account.
const OWNERS: &str =
    "[reports]\ndomain = \"lab.example\"\naccount_owners.biology = [\"alice@lab.example\"]\n";

/// Ids of the jobs that a caller sees, in order.
fn jobs(lab: &Lab, header: &str) -> Vec<String> {
    let jobs = lab.json(WWW_DATA, "/api/takt/v1/jobs", &["--header", header]);
    let id = |job: &Value| job["job_id"].as_str().unwrap().to_owned();
    let mut ids: Vec<String> = jobs.as_array().unwrap().iter().map(id).collect();
    ids.sort();
    ids
}

/// Alice sees both jobs, bob his own; then nobody coordinates, and she sees her own.
fn assert_coordinates(
    lab: &mut Lab,
    alice: &[String],
    bob: &str,
    wrap: impl FnOnce(Command) -> Command,
) {
    for header in alice {
        assert_eq!(whoami(lab, header)["role"], "coordinator", "{header}");
        assert_eq!(jobs(lab, header), ["4248817", "7"]);
        // The name of bob's job, which looks like a formula.
        let named = lab.curl(WWW_DATA, "/jobs/4248817", &["--header", header]).1;
        assert!(named.contains("=cmd()"), "{named}");
    }
    assert_eq!(whoami(lab, bob)["role"], "user");
    assert_eq!(jobs(lab, bob), ["4248817"]);
    let other = lab.curl(WWW_DATA, "/jobs/7", &["--header", bob]).1;
    assert!(
        !other.contains("alice") && !other.contains("physics"),
        "{other}"
    );

    // A coordinator changes nothing of the members.
    for path in [
        "/api/takt/v1/credits",
        "/api/v2/silences",
        "/api/takt/v1/jobs/delete",
    ] {
        let arguments = ["--data", "{}", "--header", &alice[0], "--header", SAME];
        assert_eq!(lab.curl(WWW_DATA, path, &arguments).0, 403, "{path}");
    }

    // The role ends with the configuration, also for sessions and tokens that exist.
    lab.restart_with(
        |config| config.replace("account_owners.biology", "account_owners.art"),
        wrap,
    );
    for header in alice {
        assert_eq!(jobs(lab, header), ["7"], "{header}");
    }
    assert_eq!(whoami(lab, bob)["role"], "user");
}

#[test]
fn coordinators_of_a_directory_see_their_account() {
    if or_skip(needs_slapd()).is_none() {
        return;
    }
    let slapd = Slapd::start();
    let filter = "user_filter = \"(&(objectClass=posixAccount)(uid={user})(!(uid=carol)))\"\n";
    let url = format!("ldap://127.0.0.1:{}", slapd.port);
    let auth = slapd.auth(&url, &format!("{filter}{OWNERS}"));

    // The group is no role here, whatever its name.
    let auth = auth.replace(
        "groups.admin = [\"hpc-admins\"]",
        "groups.admin = [\"nobody\"]",
    );
    let mut lab = Lab::start(&auth);
    let session = |user: &str, given: &str| password(&lab, user, given, &[]).cookie.unwrap();

    // Another spelling of the name is the same coordinator.
    let alice = [
        session("alice", "correct horse"),
        session("ALICE", "correct horse"),
    ];
    let bob = session("bob", "battery staple");
    assert_coordinates(&mut lab, &alice, &bob, |command| command);
}

#[test]
fn coordinators_sign_in_with_munge_and_make_tokens() {
    if or_skip(needs_slapd().and_then(|()| needs_munge())).is_none() {
        return;
    }
    let munged = Munged::start();
    let run = munged.run();
    let auth = format!(
        "munge = true\nprivacy = \"private\"\nexternal_url = \"http://localhost:PORT\"\n{OWNERS}"
    );
    let mut lab = Lab::start_with(&auth, |_, command| with_munge(&run, &command));
    let url = format!("http://localhost:{}", lab.port);
    let session = |uid: u32| {
        let program = lab.command(uid, &["login", "--server", &url]);
        let link = Run::of(&with_munge(&run, &program).output().unwrap()).ok();
        let form = format!("code={}", link.trim().split_once("/login#").unwrap().1);
        let arguments = ["--include", "--data", &form, "--header", SAME];
        let answer = lab.curl(WWW_DATA, "/login/session", &arguments);
        super::Signed::of(answer).cookie.unwrap()
    };
    let alice = session(ALICE);
    let bob = session(BOB);
    let order = json!({"name": "notebook"}).to_string();
    let arguments = [
        "--data",
        &order,
        "--header",
        "Content-Type: application/json",
    ];
    let arguments = [&arguments[..], &["--header", &alice, "--header", SAME]].concat();
    let made = lab.json(WWW_DATA, "/api/takt/v1/tokens", &arguments);
    let token = format!("Authorization: Bearer {}", made["token"].as_str().unwrap());
    assert_coordinates(&mut lab, &[alice, token], &bob, |command| {
        with_munge(&run, &command)
    });
}
