//! Forms of pages: tokens, credits, reading the configuration again.

use crate::access::{ALICE, BEARER_ADMIN, Lab, ROOT, SAME, WWW_DATA, needs};
use crate::sign_in::passwords::passwd;
use crate::sign_in::{Signed, password, whoami};
use crate::support::or_skip;
use std::fs;

const RIGHT: &str = "correct horse";

/// A lab in which Alice has signed in with a browser; the header with her cookie.
fn lab() -> (Lab, String) {
    let lab = Lab::start("privacy = \"private\"\npasswords = true");
    passwd(&lab, ALICE, &[], RIGHT).ok();
    let cookie = password(&lab, "alice", RIGHT, &[]).cookie.unwrap();
    (lab, cookie)
}

/// Sends a form, and gives the status, the address to which it leads, and the reply.
fn send(lab: &Lab, path: &str, form: &str, headers: &[&str]) -> (Signed, String) {
    let mut arguments = vec!["--include", "--data", form];
    arguments.extend(headers.iter().flat_map(|header| ["--header", header]));
    let reply = lab.curl(WWW_DATA, path, &arguments);
    (Signed::of(reply.clone()), reply.1)
}

#[test]
fn a_token_is_made_and_revoked_on_a_page() {
    if or_skip(needs()).is_none() {
        return;
    }
    let (lab, cookie) = lab();
    let mine = [cookie.as_str(), SAME];
    let (made, page) = send(&lab, "/me", "do=create&name=plots&days=30", &mine);
    assert_eq!(made.status, 200, "{page}");
    assert!(
        page.to_lowercase().contains("cache-control: no-store"),
        "{page}"
    );
    // The token is on this page once, so nothing may store the page.
    let start = page.find("takt_").unwrap_or_else(|| panic!("{page}"));
    let token: String = page[start..]
        .chars()
        .take_while(|one| one.is_ascii_alphanumeric() || "-_".contains(*one))
        .collect();
    let bearer = format!("Authorization: Bearer {token}");
    let known = whoami(&lab, &bearer);
    assert_eq!(known["user"], "alice");
    assert_eq!(known["role"], "user");

    let (_, page) = lab.curl(WWW_DATA, "/me", &["--header", &cookie]);
    assert!(page.contains("plots") && !page.contains(&token), "{page}");
    let (_, rest) = page.split_once("name=\"id\" value=\"").unwrap();
    let revoke = format!("do=revoke&id={}", rest.split_once('"').unwrap().0);
    // Too long, without a name, another's token, and without the session or the browser's origin.
    for (form, headers, status) in [
        ("do=create&name=plots&days=5000", &mine[..], 400),
        ("do=create&days=30", &mine[..], 400),
        ("do=revoke&id=999", &mine[..], 422),
        (revoke.as_str(), &[cookie.as_str()][..], 401),
        (revoke.as_str(), &[SAME][..], 401),
    ] {
        let (refused, page) = send(&lab, "/me", form, headers);
        assert_eq!(refused.status, status, "{form}: {page}");
    }
    assert_eq!(whoami(&lab, &bearer)["user"], "alice");
    assert_eq!(send(&lab, "/me", &revoke, &mine).0.to, "/me");
    assert_eq!(whoami(&lab, &bearer)["role"], "anonymous");
}

#[test]
fn the_hours_of_a_lost_run_are_given_back_on_its_page() {
    if or_skip(needs()).is_none() {
        return;
    }
    let (lab, cookie) = lab();
    let jobs = "JobID|JobName|User|Account|Submit|Start|End|State|ExitCode|AllocTRES|NCPUS\n\
        9|train|alice|physics|2026-03-02T10:00:00|2026-03-02T10:00:00|2026-03-02T12:00:00|NODE_FAIL|1:0|cpu=4,gres/gpu=2|4\n";
    let file = lab.takt.file("gpus.txt", jobs);
    lab.run(ROOT, &["import", "sacct", file.to_str().unwrap()])
        .ok();
    let read = |header: &str| lab.curl(WWW_DATA, "/jobs/9", &["--header", header]).1;
    let page = read(BEARER_ADMIN);
    let (_, rest) = page
        .split_once("name=\"submit\" value=\"")
        .unwrap_or_else(|| panic!("{page}"));
    let submit = rest.split_once('"').unwrap().0;
    assert!(!read(&cookie).contains("Give its GPU-hours back"));

    let credit = format!("do=credit&submit={submit}&reason=XID+79");
    let admin = [BEARER_ADMIN];
    let (refused, _) = send(&lab, "/jobs/9", &credit, &[&cookie, SAME]);
    assert_eq!(refused.status, 403);
    // No number, more than the run held, and less than nothing.
    for more in ["&gpu_hours=many", "&gpu_hours=5", "&gpu_hours=-1"] {
        let (refused, page) = send(&lab, "/jobs/9", &format!("{credit}{more}"), &admin);
        assert_eq!(refused.status, 400, "{more}: {page}");
    }
    assert_eq!(send(&lab, "/jobs/9", &credit, &admin).0.to, "/jobs/9");

    // Alice sees it; a second credit of the same run is refused.
    let page = read(&cookie);
    assert!(
        page.contains("4.00 GPU-hours were given back") && page.contains("XID 79"),
        "{page}"
    );
    assert_eq!(send(&lab, "/jobs/9", &credit, &admin).0.status, 400);

    let page = read(BEARER_ADMIN);
    let (_, rest) = page.split_once("name=\"credit\" value=\"").unwrap();
    let id = rest.split_once('"').unwrap().0;
    let revoke = format!("do=revoke&credit={id}&reason=a+mistake");
    assert_eq!(send(&lab, "/jobs/9", &revoke, &admin).0.to, "/jobs/9");
    assert!(!read(&cookie).contains("were given back"));
    let log = lab.run(ROOT, &["audit"]).ok();
    assert!(log.contains("POST /jobs/{job}"), "{log}");
}

#[test]
fn the_configuration_is_read_again_from_a_page() {
    if or_skip(needs()).is_none() {
        return;
    }
    let (lab, cookie) = lab();
    let admin = [BEARER_ADMIN];
    let (done, page) = send(&lab, "/health", "do=reload", &admin);
    assert_eq!(done.to, "/health?reloaded=yes", "{page}");
    let (_, page) = lab.curl(
        WWW_DATA,
        "/health?reloaded=yes",
        &["--header", BEARER_ADMIN],
    );
    assert!(page.contains("was read again"), "{page}");
    assert_eq!(
        send(&lab, "/health", "do=reload", &[&cookie, SAME])
            .0
            .status,
        403
    );

    // A section that needs a restart is named, until it is as it was.
    let file = lab.takt.directory().join("takt.toml");
    let config = fs::read_to_string(&file).unwrap();
    let health = || lab.curl(WWW_DATA, "/health", &["--header", BEARER_ADMIN]).1;
    fs::write(&file, format!("{config}[rates]\ncurrency = 'EUR'\n")).unwrap();
    send(&lab, "/health", "do=reload", &admin);
    assert!(health().contains("until a restart: <code>[rates]</code>"));
    fs::write(&file, &config).unwrap();
    send(&lab, "/health", "do=reload", &admin);
    assert!(!health().contains("until a restart: <code>"));

    // A misspelt key: nothing of the file counts.
    fs::write(&file, format!("{config}[scrape]\nintervall_seconds = 5\n")).unwrap();
    let (refused, page) = send(&lab, "/health", "do=reload", &admin);
    assert_eq!(refused.status, 400);
    assert!(
        page.contains("intervall_seconds") && page.contains("stays in use"),
        "{page}"
    );
}
