//! Passwords of `takt passwd`.

use super::{Signed, password, whoami};
use crate::access::{ALICE, BEARER_ADMIN, BEARER_READER, BOB, Lab, ROOT, SAME, WWW_DATA, needs};
use crate::support::or_skip;
use crate::support::process::http_get;
use crate::support::takt::Run;
use std::fs;
use std::io::Write;
use std::process::{self, Stdio};
use std::thread;
use std::time::Duration;

const RIGHT: &str = "correct horse";

/// Runs `takt passwd` with a password as its input.
pub(crate) fn passwd(lab: &Lab, uid: u32, arguments: &[&str], password: &str) -> Run {
    let arguments = [&["passwd"][..], arguments].concat();
    let mut command = lab.command(uid, &arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{password}").unwrap();
    drop(input);
    Run::of(&child.wait_with_output().unwrap())
}

#[test]
fn a_password_signs_a_browser_in() {
    if or_skip(needs()).is_none() {
        return;
    }
    let mut lab = Lab::start("privacy = \"private\"\npasswords = true");
    let said = passwd(&lab, ALICE, &[], RIGHT).ok();
    assert_eq!(said, "set the password of alice\n");
    let short = passwd(&lab, ALICE, &[], "short").fails(2);
    assert!(short.contains("at least 10 characters"), "{short}");
    // Only an administrator sets another's password, and root has none at all.
    passwd(&lab, ALICE, &["bob"], RIGHT).fails(2);
    passwd(&lab, ROOT, &["root"], RIGHT).fails(2);
    assert_eq!(
        passwd(&lab, ROOT, &["bob"], "battery staple").ok(),
        "set the password of bob\n"
    );

    let signed = password(
        &lab,
        "alice",
        RIGHT,
        &["--data-urlencode", "next=/jobs?sort=user"],
    );
    assert_eq!(signed.status, 303);
    assert_eq!(&*signed.to, "/jobs?sort=user");
    let cookie = signed.cookie.unwrap();
    let known = whoami(&lab, &cookie);
    assert_eq!(known["user"], "alice");
    assert_eq!(known["role"], "user");
    assert_eq!(known["way"], "session");

    // Another site cannot send the browser elsewhere, nor sign it in.
    let away = ["--data-urlencode", "next=//evil.example/"];
    assert_eq!(password(&lab, "alice", RIGHT, &away).to, "/");
    for header in [
        "X-None: 1",
        "Sec-Fetch-Site: cross-site",
        "Origin: http://evil.example",
    ] {
        let form = [
            "--data",
            "user=alice&password=correct+horse",
            "--header",
            header,
        ];
        assert_eq!(
            lab.curl(WWW_DATA, "/login/password", &form).0,
            403,
            "{header}"
        );
    }

    // Wrong in different ways, refused in the same way.
    for (user, given) in [
        ("alice", "wrong horse"),
        ("alice", ""),
        ("alice", "battery staple"),
        ("nobody-here", RIGHT),
        ("root", RIGHT),
        ("' OR 1=1 --", RIGHT),
    ] {
        let signed = password(&lab, user, given, &[]);
        assert!(signed.is_refused("password"), "{user}: {signed:?}");
    }
    let (_, page) = lab.curl(WWW_DATA, "/login?failed=password", &[]);
    assert!(
        page.contains("The name or the password is wrong") && page.contains("name=\"password\""),
        "{page}"
    );

    // The reason comes from the address, so it is not shown as it is.
    let (_, page) = lab.curl(WWW_DATA, "/login?failed=%3Cscript%3E", &[]);
    assert!(
        page.contains("did not succeed") && !page.contains("<script>"),
        "{page}"
    );

    // A session and a token are not a password; an own form is not enough for a change.
    let order = [
        "--data",
        "{\"password\":\"another horse\"}",
        "--header",
        "Content-Type: application/json",
    ];
    let stolen = [&order[..], &["--header", &cookie, "--header", SAME]].concat();
    assert_eq!(lab.curl(WWW_DATA, "/api/takt/v1/passwords", &stolen).0, 400);
    let reader = [&order[..], &["--header", BEARER_READER]].concat();
    assert_eq!(lab.curl(WWW_DATA, "/api/takt/v1/passwords", &reader).0, 401);

    // A new password ends the sessions of the old one.
    assert_eq!(
        passwd(&lab, ALICE, &[], "another horse").ok(),
        "changed the password of alice\n"
    );
    assert_eq!(whoami(&lab, &cookie)["role"], "anonymous");
    assert!(password(&lab, "alice", RIGHT, &[]).is_refused("password"));

    let cookie = password(&lab, "alice", "another horse", &[])
        .cookie
        .unwrap();
    lab.run(BOB, &["passwd", "--remove"]).ok();
    assert!(password(&lab, "bob", "battery staple", &[]).is_refused("password"));

    // Without passwords in the configuration, neither the form nor its sessions count.
    lab.restart(|config| config.replace("passwords = true", ""));
    assert_eq!(whoami(&lab, &cookie)["role"], "anonymous");
    assert!(password(&lab, "alice", "another horse", &[]).is_refused("password"));
    let log = lab
        .json(ROOT, "/api/takt/v1/audit", &["--header", BEARER_ADMIN])
        .to_string();
    for part in ["set_password", "remove_password", "\"action\":\"sign_in\""] {
        assert!(log.contains(part), "{part} in {log}");
    }
    // Neither passwords nor names that were typed wrongly: people type a password into the wrong
    // field.
    for secret in ["horse", "staple", "nobody-here", "1=1"] {
        assert!(!log.contains(secret), "{secret} in {log}");
    }
}

/// The form of the page `/me`: the session alone changes nothing.
#[test]
fn a_signed_in_user_changes_the_own_password() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("passwords = true");
    passwd(&lab, ALICE, &[], RIGHT).ok();
    let sign_in = || password(&lab, "alice", RIGHT, &[]).cookie.unwrap();
    let cookie = sign_in();
    // A session in another browser, which the change has to end.
    let elsewhere = sign_in();
    let (_, page) = lab.curl(WWW_DATA, "/me", &["--header", &cookie]);
    assert!(page.contains("action=\"/me/password\""), "{page}");

    let change = |cookie: &str, [old, new, again]: [&str; 3], site: &str| {
        let form = format!("old={old}&new={new}&again={again}");
        let arguments = [
            "--include",
            "--data",
            &form,
            "--header",
            cookie,
            "--header",
            site,
        ];
        Signed::of(lab.curl(WWW_DATA, "/me/password", &arguments))
    };
    const OLD: &str = "correct+horse";
    const NEW: &str = "another+horse";
    for (form, reason) in [
        (["wrong+horse", NEW, NEW], "wrong"),
        ([OLD, NEW, OLD], "again"),
        ([OLD, "short", "short"], "weak"),
        ([OLD, "alice-has-a-horse", "alice-has-a-horse"], "weak"),
    ] {
        let refused = change(&cookie, form, SAME);
        assert_eq!(refused.to, format!("/me?password={reason}"));
        assert_eq!(refused.cookie, None, "{reason}");
    }

    // A session whose cookie another site sends along, a request without an origin, and a token.
    let form = [OLD, NEW, NEW];
    for (site, status) in [("Sec-Fetch-Site: cross-site", 403), ("X-None: 1", 401)] {
        assert_eq!(change(&cookie, form, site).status, status, "{site}");
    }
    assert_eq!(change("X-None: 1", form, SAME).status, 401);
    let token = change(BEARER_READER, form, SAME);
    assert!(
        token.status == 401 || token.to.ends_with("=session"),
        "{token:?}"
    );
    assert!(password(&lab, "alice", "another horse", &[]).is_refused("password"));

    let changed = change(&cookie, form, SAME);
    assert_eq!(changed.to, "/me?password=set");
    let fresh = changed.cookie.unwrap();
    assert_eq!(whoami(&lab, &fresh)["user"], "alice");
    for old in [&cookie, &elsewhere] {
        assert_eq!(whoami(&lab, old)["role"], "anonymous");
    }
    assert!(password(&lab, "alice", RIGHT, &[]).is_refused("password"));
    let (_, page) = lab.curl(WWW_DATA, "/me?password=set", &["--header", &fresh]);
    assert!(page.contains("The password is set"), "{page}");
    let log = lab
        .json(ROOT, "/api/takt/v1/audit", &["--header", BEARER_ADMIN])
        .to_string();
    assert!(
        log.contains("set_password") && !log.contains("horse"),
        "{log}"
    );
}

/// Five wrong passwords of an account from one address, then the right one has to wait, too; others
/// do not.
#[test]
fn passwords_cannot_be_guessed_quickly() {
    if or_skip(needs()).is_none() {
        return;
    }
    let proxy = "[auth.proxy]\ntrusted = [\"127.0.0.1\"]\nunix_user = \"www-data\"";
    let lab = Lab::start(&format!("passwords = true\n{proxy}"));
    for user in ["alice", "bob"] {
        passwd(&lab, ROOT, &[user], RIGHT).ok();
    }
    let from = |address: &str, user: &str, given: &str| -> Signed {
        let header = format!("X-Forwarded-For: {address}");
        password(&lab, user, given, &["--header", &header])
    };

    for _ in 0..5 {
        assert!(from("198.51.100.7", "alice", "wrong horse").is_refused("password"));
    }
    assert!(from("198.51.100.7", "alice", RIGHT).is_refused("wait"));
    assert!(
        from("198.51.100.7", "ALICE", RIGHT).is_refused("wait"),
        "another case"
    );

    // Addresses before the proxy's own do not count.
    assert!(from("192.0.2.1, 198.51.100.7", "alice", RIGHT).is_refused("wait"));
    assert!(
        from("198.51.100.7", "bob", RIGHT).cookie.is_some(),
        "another account"
    );
    // A stranger cannot lock an account for its owner.
    let signed = from("198.51.100.8", "alice", RIGHT);
    assert!(signed.cookie.is_some(), "another address: {signed:?}");
    let log = lab.json(ROOT, "/api/takt/v1/audit", &["--header", BEARER_ADMIN]);
    let addresses: Vec<_> = log
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["address"].to_string())
        .collect();
    assert!(
        addresses.contains(&"\"198.51.100.8\"".to_owned()),
        "{addresses:?}"
    );
}

/// Each hash takes 19 MiB. Two run at once, however many people sign in, and the server answers
/// others meanwhile.
#[test]
fn many_sign_ins_at_once_take_little_memory() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("passwords = true");
    let peak_kib = || -> u64 {
        let status = format!("/proc/{}/status", lab.server.pid());
        fs::read_to_string(status)
            .unwrap()
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap()
    };

    // The first sign-in allocates what all others share.
    password(&lab, "warm-up", RIGHT, &[]);
    let before = peak_kib();
    let url = format!("http://127.0.0.1:{}/login/password", lab.port);
    let healthy = format!("http://127.0.0.1:{}/-/healthy", lab.port);
    let mut children: Vec<_> = (0..150)
        .map(|number| {
            let form = format!("user=user{number}&password=correct+horse");
            process::Command::new("curl")
                .args([
                    "--silent",
                    "--noproxy",
                    "*",
                    "--max-time",
                    "60",
                    "--data",
                    &form,
                ])
                .args([
                    "--header",
                    SAME,
                    "--output",
                    "/dev/null",
                    "--write-out",
                    "%{redirect_url}",
                    &url,
                ])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();

    // While the hashes are computed.
    for _ in 0..5 {
        assert_eq!(http_get(&healthy).unwrap().status, 200);
        thread::sleep(Duration::from_millis(50));
    }
    let answers: Vec<String> = children
        .drain(..)
        .map(|child| String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap())
        .collect();
    let count = |reason: &str| {
        answers
            .iter()
            .filter(|answer| answer.ends_with(reason))
            .count()
    };
    assert_eq!(
        count("failed=password") + count("failed=wait") + count("failed=busy"),
        150,
        "{answers:?}"
    );

    // The fiftieth wrong password of an address is the last one that is checked.
    assert!(count("failed=password") <= 50, "{answers:?}");
    let grown = peak_kib().saturating_sub(before) >> 10;
    assert!(grown < 200, "grown by {grown} MiB");
}
