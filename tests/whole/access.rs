//! Access control: real Unix users on loopback and on the Unix socket, a real sshd, browsers'
//! sessions. The matrix of routes and roles is in `route_matrix.rs`.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::process::{Daemon, free_port, http_get};
use crate::support::slurm::{Mode, SlurmLab};
use crate::support::takt::{Run, Takt};
use crate::support::{Needed, Skip, need, need_root, or_skip};
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) const ALICE: u32 = 2001;
pub(crate) const BOB: u32 = 2002;
pub(crate) const WWW_DATA: u32 = 33;
pub(crate) const ROOT: u32 = 0;

const ADMIN: &str = "writer-writer-writer";
const READER: &str = "reader-reader-reader";

/// A server on a machine with the users alice and bob, who have jobs with hostile names.
pub(crate) struct Lab {
    pub takt: Takt,
    pub server: Daemon,
    pub port: u16,
    pub etc: PathBuf,
}

pub(crate) fn needs() -> Result<(), Skip> {
    need_root()?;
    need(&[
        Needed {
            program: "unshare",
            package: "util-linux",
        },
        Needed {
            program: "setpriv",
            package: "util-linux",
        },
        Needed {
            program: "curl",
            package: "curl",
        },
    ])
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    let mode = PermissionsExt::from_mode(mode);
    fs::set_permissions(path, mode).unwrap();
}

/// A command on a machine whose `/etc` is the directory `etc`.
pub(crate) fn with_etc(etc: &Path, command: &Command) -> Command {
    with_mount("mount --bind \"$0\" /etc", etc, command)
}

/// A command with mounts of its own: the shell command `mount` gets `folder` as `$0`.
pub(crate) fn with_mount(mount: &str, folder: &Path, command: &Command) -> Command {
    let mut inside = Command::new("unshare");
    inside
        .args(["--mount", "sh", "-c"])
        .arg(format!("{mount} && exec \"$@\""))
        .arg(folder)
        .arg(command.get_program())
        .args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        inside.current_dir(directory);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    inside
}

impl Lab {
    pub fn start(auth: &str) -> Self {
        Self::start_with(auth, |_, command| command)
    }

    /// Starts a server whose configuration `auth` may name the port, as `PORT`, and files beside
    /// the configuration. `change` changes the command that starts the server.
    pub fn start_with(auth: &str, change: impl FnOnce(&Path, Command) -> Command) -> Self {
        let takt = Takt::fresh();
        set_mode(takt.directory(), 0o755);
        let etc = takt.directory().join("etc");
        fs::create_dir(&etc).unwrap();
        let passwd = "root:x:0:0::/root:/bin/sh\nwww-data:x:33:33::/:/bin/sh\n\
                      alice:x:2001:2001::/tmp:/bin/sh\nbob:x:2002:2002::/tmp:/bin/sh\n";
        fs::write(etc.join("passwd"), passwd).unwrap();
        fs::write(etc.join("hosts"), "127.0.0.1 localhost\n").unwrap();
        for name in ["token", "read-token"] {
            let text = if name == "token" { ADMIN } else { READER };
            set_mode(&takt.file(name, format!("{text}\n")), 0o600);
        }
        let port = free_port();
        let auth = auth.replace("PORT", &port.to_string());
        takt.file(
            "takt.toml",
            format!(
                "cluster = \"lab\"\ntimezone = \"UTC\"\n[jobs]\npoll = false\n\
                 [sql]\nlisten_address = \"\"\n[auth]\n{auth}\n\
                 [server]\nlisten_address = \"127.0.0.1:{port}\"\ntoken_file = \"token\"\n\
                 read_token_file = \"read-token\"\nsocket_file = \"takt.sock\"\n"
            ),
        );
        takt.file(
            "jobs.txt",
            "JobID|JobName|User|Account|Submit|Start|End|State|ExitCode|AllocTRES|NCPUS\n\
             7|<script>alert(1)</script>|alice|physics|2026-03-01T10:00:00|2026-03-01T10:00:00|2026-03-01T12:00:00|COMPLETED|0:0|cpu=4|4\n\
             4248817|=cmd()|bob|biology|2026-03-01T10:00:00|2026-03-01T10:00:00|2026-03-01T12:00:00|FAILED|1:0|cpu=4|4\n",
        );
        takt.run(["import", "sacct", "jobs.txt", "--config", "takt.toml"])
            .ok();
        set_mode(&takt.data_directory(), 0o700);
        let serve = with_etc(&etc, &takt.command(["serve", "--config", "takt.toml"]));
        let serve = change(takt.directory(), serve);
        let mut server = Daemon::start("takt", serve, &takt.directory().join("takt.log"));
        let ready = format!("http://127.0.0.1:{port}/-/ready");
        server.wait_until("ready", SOON, || {
            http_get(&ready).ok().filter(|page| page.status == 200)
        });
        Self {
            takt,
            server,
            port,
            etc,
        }
    }

    /// Requests a path as a Unix user, with further arguments of curl. Gives status and body.
    pub fn curl(&self, uid: u32, path: &str, arguments: &[&str]) -> (u16, String) {
        curl(self.port, uid, path, arguments)
    }

    pub fn json(&self, uid: u32, path: &str, arguments: &[&str]) -> Value {
        let (status, body) = self.curl(uid, path, arguments);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Runs a command of takt as a Unix user.
    pub fn run(&self, uid: u32, arguments: &[&str]) -> Run {
        Run::of(&self.command(uid, arguments).output().unwrap())
    }

    /// A command of takt as a Unix user.
    pub fn command(&self, uid: u32, arguments: &[&str]) -> Command {
        let program = self.takt.readable_program();
        let command = self.takt.command(arguments);
        let uid = uid.to_string();
        let mut as_user = Command::new("setpriv");
        as_user
            .args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"])
            .arg(program)
            .args([
                "--config".as_ref(),
                self.takt.directory().join("takt.toml").as_os_str(),
            ])
            .args(command.get_args())
            .current_dir("/");
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => as_user.env(name, value),
                None => as_user.env_remove(name),
            };
        }
        with_etc(&self.etc, &as_user)
    }

    /// Stops the server, changes its configuration, and starts it again.
    pub fn restart(&mut self, change: impl FnOnce(String) -> String) {
        self.restart_with(change, |command| command);
    }

    /// As [`restart`](Self::restart); `wrap` changes the command that starts the server.
    pub fn restart_with(
        &mut self,
        change: impl FnOnce(String) -> String,
        wrap: impl FnOnce(Command) -> Command,
    ) {
        self.server.stop();
        let file = self.takt.directory().join("takt.toml");
        let config = change(fs::read_to_string(&file).unwrap());
        fs::write(&file, config).unwrap();
        let serve = self.takt.command(["serve", "--config", "takt.toml"]);
        let log = self.takt.directory().join("again.log");
        let serve = wrap(with_etc(&self.etc, &serve));
        self.server = Daemon::start("takt", serve, &log);
        let ready = format!("http://127.0.0.1:{}/-/ready", self.port);
        self.server.wait_until("ready", SOON, || {
            http_get(&ready).ok().filter(|page| page.status == 200)
        });
    }
}

/// Requests a path of the server at a port as a Unix user, with further arguments of curl. Gives status and body.
pub(crate) fn curl(port: u16, uid: u32, path: &str, arguments: &[&str]) -> (u16, String) {
    let uid = uid.to_string();
    let url = format!("http://localhost:{port}{path}");
    let output = Command::new("setpriv")
        .args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"])
        .args(["curl", "--silent", "--max-time", "60", "--noproxy", "*"])
        .args(["--write-out", "\n%{http_code}"])
        .args(arguments)
        .arg(url)
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text
        .rsplit_once('\n')
        .unwrap_or_else(|| panic!("{output:?}"));
    (status.parse().unwrap(), body.to_owned())
}

pub(crate) const BEARER_ADMIN: &str = "Authorization: Bearer writer-writer-writer";
pub(crate) const BEARER_READER: &str = "Authorization: Bearer reader-reader-reader";
pub(crate) const SAME: &str = "Sec-Fetch-Site: same-origin";

#[test]
fn the_kernel_names_the_user_of_a_loopback_connection() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("privacy = \"private\"");
    let ids = |uid| {
        lab.json(uid, "/api/takt/v1/jobs", &[])
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["job_id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(ALICE), ["7"]);
    assert_eq!(ids(BOB), ["4248817"]);
    let whoami = |uid| lab.json(uid, "/api/takt/v1/whoami", &[]);
    assert_eq!(whoami(ALICE)["user"], "alice");
    assert_eq!(whoami(ALICE)["way"], "loopback");

    // A proxy of a container connects as root, nginx as www-data.
    for uid in [ROOT, WWW_DATA, 65_534, 3000] {
        assert_eq!(whoami(uid)["role"], "anonymous", "{uid}");
        assert_eq!(lab.curl(uid, "/", &[]).0, 401, "{uid}");
    }

    // A client that forwards for others is anonymous, whatever the header says.
    let forwarded = ["--header", "X-Forwarded-For: 127.0.0.1"];
    assert_eq!(lab.curl(ALICE, "/api/takt/v1/jobs", &forwarded).0, 401);
    let foreign = ["--header", "Host: evil.example"];
    assert_eq!(lab.curl(ALICE, "/api/takt/v1/jobs", &foreign).0, 401);

    // A loopback connection changes nothing.
    assert_eq!(lab.curl(ALICE, "/-/reload", &["--request", "POST"]).0, 401);
}

#[test]
fn a_hidden_user_is_answered_like_an_unknown_one() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("privacy = \"private\"");
    let paths = [
        "/api/takt/v1/report/usage?month=2026-03&user=",
        "/api/takt/v1/report/sheets?month=2026-03&user=",
        "/api/takt/v1/fairshare?user=",
        "/api/takt/v1/jobs?user=",
    ];
    for path in paths {
        let asked = |user: &str| {
            let (status, body) = lab.curl(ALICE, &format!("{path}{user}"), &[]);
            (status, body.replace(user, "USER"))
        };
        assert_eq!(asked("bob"), asked("zzzz"), "{path}");
    }
    let job = |id: &str| lab.curl(ALICE, &format!("/api/takt/v1/jobs?job_id={id}"), &[]);
    assert_eq!(job("4248817"), job("99999"));

    // The sum stays, the name goes.
    let by_user = "/api/takt/v1/report/usage?month=2026-03&by=user,account";
    let usage = lab.json(ALICE, by_user, &[]);
    let names: Vec<_> = usage["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (&row["user"], &row["account"]))
        .collect();
    assert!(
        names.contains(&(&"alice".into(), &"physics".into())),
        "{names:?}"
    );
    assert!(
        names.contains(&(&"another user".into(), &"another account".into())),
        "{names:?}"
    );
    assert_eq!(usage["totals"]["jobs_running"], 2);
}

/// Posts an alert about the job of a user, as a program with the admin's token.
fn post_alert(lab: &Lab, user: &str) {
    let alert = serde_json::json!([{
        "labels": {"alertname": format!("Of{user}"), "severity": "warning", "node": "n1", "user": user},
        "annotations": {"summary": format!("the job of {user} is idle")},
    }]);
    let posted = lab.curl(
        WWW_DATA,
        "/api/v2/alerts",
        &["--header", BEARER_ADMIN, "--json", &alert.to_string()],
    );
    assert_eq!(posted.0, 200, "{}", posted.1);
}

/// Under `privacy = "private"` the documented commands of a user failed: "this needs the role viewer".
#[test]
fn a_user_sees_her_own_at_every_level_of_privacy() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("privacy = \"private\"");
    for user in ["alice", "bob"] {
        post_alert(&lab, user);
    }
    let month = ["--month", "2026-03"];
    for (command, own) in [
        (vec![], "Takt"),
        (vec!["jobs", "--me"], "physics"),
        (vec!["job", "7"], "physics"),
        (vec!["gpus", "--me"], ""),
        (vec!["alerts", "list", "--me"], "Ofalice"),
        (vec!["alerts", "history"], ""),
        (vec!["fairshare", "--me"], ""),
        ([&["report", "usage", "--me"][..], &month].concat(), "alice"),
        ([&["report", "user", "--me"][..], &month].concat(), "alice"),
        ([&["report", "efficiency", "--me"][..], &month].concat(), ""),
        ([&["report", "waste", "--me"][..], &month].concat(), ""),
    ] {
        let run = lab.run(ALICE, &command);
        let said = format!("{}{}", run.stdout, run.stderr);
        assert!(!said.contains("needs the role"), "{command:?}: {said}");
        assert!(said.contains(own), "{command:?}: {said}");

        // The name of the alert is everybody's, its job is not.
        assert!(
            !said.replace("Ofbob", "").contains("bob"),
            "{command:?}: {said}"
        );
    }

    // What she may not see of others is left out, and the question is not refused.
    let all = lab.run(ALICE, &["alerts", "list"]).ok();
    assert!(all.contains("Ofalice") && all.contains("Ofbob"), "{all}");
    assert!(!all.contains("the job of bob"), "{all}");
}

/// The page of a coordinated account's member, in the accounts that the coordinator sees.
#[test]
fn a_coordinator_opens_the_pages_of_members() {
    if or_skip(needs()).is_none() {
        return;
    }
    let coordinates = |account: &str| {
        let auth = format!(
            "privacy = \"private\"\n[reports]\ndomain = \"lab.example\"\n\
             account_owners = {{ {account} = [\"alice@lab.example\"] }}"
        );
        Lab::start(&auth)
    };
    let sheet = "/api/takt/v1/report/sheets?month=2026-03&user=";
    let lab = coordinates("biology");
    let of_bob = lab.json(ALICE, &format!("{sheet}bob"), &[]);
    assert_eq!(of_bob[0]["figures"]["jobs_ended"], 1, "{of_bob}");
    assert_eq!(of_bob[0]["rank"], Value::Null, "a rank is among all users");
    let (status, page) = lab.curl(ALICE, "/people/bob?month=2026-03", &[]);
    assert!(status == 200 && page.contains("bob"), "{status} {page}");
    let report = ["report", "user", "--user", "bob", "--month", "2026-03"];
    lab.run(ALICE, &report).ok();
    let asked = |uid: u32, user: &str| {
        let (status, body) = lab.curl(uid, &format!("{sheet}{user}"), &[]);
        (status, body.replace(user, "USER"))
    };
    assert_eq!(
        asked(BOB, "alice"),
        asked(BOB, "zzzz"),
        "bob coordinates nothing"
    );

    // Of an account without bob, bob is as unknown as anybody.
    let lab = coordinates("chemistry");
    let asked = |user: &str| {
        let (status, body) = lab.curl(ALICE, &format!("{sheet}{user}"), &[]);
        (status, body.replace(user, "USER"))
    };
    assert_eq!(asked("bob"), asked("zzzz"));
}

/// Acts on a page were noted under any name that was typed, and the audit log named the path alone.
#[test]
fn acts_on_alerts_have_the_name_of_their_user_and_are_in_the_audit_log() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("support = [\"alice\"]");
    let socket = lab.takt.directory().join("takt.sock").display().to_string();
    let as_alice = |path: &str, data: &[&str]| {
        let mut arguments = vec!["--unix-socket", &socket, "--header", SAME];
        for one in data {
            arguments.extend(["--data-urlencode", one]);
        }
        lab.curl(ALICE, path, &arguments)
    };
    let fingerprint = || {
        let listed = lab.json(WWW_DATA, "/api/takt/v1/alerts", &["--header", BEARER_ADMIN]);
        let print = listed["alerts"][0]["fingerprint"].as_str().unwrap();
        format!("fingerprint={print}")
    };
    let names = ["by=Santa", "comment=fan replaced", "for=1h"];

    post_alert(&lab, "bob");
    let print = fingerprint();
    let acknowledge = [&["do=acknowledge", &print][..], &names].concat();
    assert_eq!(as_alice("/alerts", &acknowledge).0, 303);
    let close = [&["do=close", &print][..], &names].concat();
    assert_eq!(as_alice("/alerts", &close).0, 303);
    post_alert(&lab, "carol");
    let body = "{\"filter\":[\"alertname=Ofcarol\"],\"createdBy\":\"Santa\",\"comment\":\"done\"}";
    let posted = ["--unix-socket", &socket, "--json", body];
    assert_eq!(lab.curl(ALICE, "/api/v2/alerts/close", &posted).0, 200);

    let (_, page) = lab.curl(WWW_DATA, "/alerts", &["--header", BEARER_ADMIN]);
    assert!(page.contains("alice") && !page.contains("Santa"), "{page}");
    let (_, own) = as_alice("/alerts", &[]);
    assert!(!own.contains("your name"), "the server knows it: {own}");
    let audit = lab
        .takt
        .run(["audit", "--format", "json", "--config", "takt.toml"])
        .ok();
    let entries: Vec<Value> = serde_json::from_str(&audit).unwrap();
    let of_alice: Vec<&str> = entries
        .iter()
        .filter(|entry| entry["user"] == "alice")
        .filter_map(|entry| entry["object"].as_str())
        .collect();
    for (what, which) in [
        ("acknowledge", "Ofbob"),
        ("close", "Ofbob"),
        ("close", "Ofcarol"),
    ] {
        assert!(
            of_alice
                .iter()
                .any(|object| object.starts_with(what) && object.contains(which)),
            "{what} {which}: {of_alice:?}"
        );
    }
}

/// The forms of the alerts were shown to everybody, and answered everybody on loopback with a request for a password.
#[test]
fn who_may_act_on_alerts_acts_in_the_browser_of_this_machine() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("support = [\"alice\"]");
    post_alert(&lab, "carol");
    let listed = lab.json(ALICE, "/api/takt/v1/alerts", &[]);
    let print = listed["alerts"][0]["fingerprint"].as_str().unwrap();
    let form = format!("return=&fingerprint={print}&comment=on+my+way&for=1h&do=acknowledge");
    let page = |uid: u32| lab.curl(uid, "/alerts", &[]).1;
    let submit = |uid: u32, more: &[&str]| {
        let arguments = [&["--data", form.as_str()][..], more].concat();
        lab.curl(uid, "/alerts", &arguments)
    };

    assert!(page(ALICE).contains("value=\"acknowledge\""));
    assert!(!page(BOB).contains("<form method=\"post\""));
    assert_eq!(submit(ALICE, &[]).0, 401, "no page of this server");
    assert_eq!(submit(BOB, &["--header", SAME]).0, 403);
    assert_eq!(submit(ALICE, &["--header", SAME]).0, 303);
    assert!(page(ALICE).contains("on my way"), "the silence is shown");

    // Who is not signed in signs in, and finds the form as it was filled.
    let navigate = "Sec-Fetch-Mode: navigate";
    let browser = ["--header", SAME, "--header", navigate, "--include"];
    let (status, head) = submit(WWW_DATA, &browser);
    let to = format!("location: /login?next=%2Falerts%3Ffingerprint%3D{print}%26comment%3Don%2Bmy");
    assert!(status == 303 && head.contains(&to), "{status} {head}");
}

#[test]
fn a_link_signs_a_browser_in_once() {
    if or_skip(needs()).is_none() {
        return;
    }
    let mut lab = Lab::start("privacy = \"private\"\nadmins = [\"bob\"]");
    let whoami = lab.run(ALICE, &["whoami", "--format", "csv"]).ok();
    assert!(whoami.contains("alice,user,,socket,private"), "{whoami}");
    let root = lab.run(ROOT, &["login"]).fails(1);
    assert!(root.contains("root and system users"), "{root}");

    let url = lab.run(ALICE, &["login"]).ok();
    let (page, code) = url.trim().split_once("/login#").unwrap();
    assert_eq!(page, format!("http://127.0.0.1:{}", lab.port));
    let body = format!("code={code}");
    let post = |path: &str, header: &str| {
        let arguments = ["--data", body.as_str(), "--header", header, "--include"];
        lab.curl(WWW_DATA, path, &arguments)
    };

    // Neither a program nor another site's page, nor another port of this host, uses the code.
    for header in [
        "X-None: 1",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
        "Origin: http://evil.example",
        "Origin: http://localhost:1",
        "Origin: null",
    ] {
        assert_eq!(post("/login/session", header).0, 403, "{header}");
    }
    let (status, said) = post("/login/user", SAME);
    assert!(status == 200 && said.contains("alice"), "{said}");
    let (status, answer) = post("/login/session", SAME);
    assert_eq!(status, 303, "{answer}");
    let (_, again) = post("/login/session", SAME);
    assert!(
        again.contains("location: /login?failed=link"),
        "used up: {again}"
    );
    let cookie = answer
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "))
        .unwrap();
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"),
        "{cookie}"
    );
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    let with_cookie = ["--header", cookie.as_str()];
    let known = lab.json(WWW_DATA, "/api/takt/v1/whoami", &with_cookie);
    assert_eq!(known["user"], "alice");
    assert_eq!(known["way"], "session");
    let (_, page) = lab.curl(WWW_DATA, "/me", &with_cookie);
    assert!(
        page.contains("alice") && page.contains("Sign out"),
        "{page}"
    );

    // A cookie changes something only for a page of this server.
    let order = |site: &[&str], role: &str| {
        let order = format!("{{\"name\":\"notebook\",\"role\":\"{role}\"}}");
        let json = "Content-Type: application/json";
        let arguments = [
            &["--data", &order, "--header", json, "--header", &cookie][..],
            site,
        ]
        .concat();
        lab.curl(WWW_DATA, "/api/takt/v1/tokens", &arguments)
    };
    assert_eq!(order(&[], "user").0, 401);
    assert_eq!(
        order(&["--header", "Sec-Fetch-Site: cross-site"], "user").0,
        403
    );
    assert_eq!(
        order(&["--header", "Origin: http://evil.example"], "user").0,
        403
    );
    assert_eq!(
        order(&["--header", SAME], "admin").0,
        400,
        "more than she has"
    );
    let (status, made) = order(&["--header", SAME], "user");
    assert_eq!(status, 200, "{made}");
    let made: Value = serde_json::from_str(&made).unwrap();
    let bearer = format!("Authorization: Bearer {}", made["token"].as_str().unwrap());
    let known = lab.json(ROOT, "/api/takt/v1/whoami", &["--header", &bearer]);
    assert_eq!(known["user"], "alice");
    assert_eq!(known["role"], "user");
    assert_eq!(known["way"], "token");
    assert_eq!(
        lab.curl(ROOT, "/api/takt/v1/audit", &["--header", &bearer])
            .0,
        403
    );

    // Sessions and tokens outlive the server.
    lab.restart(|config| config);
    let known = lab.json(WWW_DATA, "/api/takt/v1/whoami", &with_cookie);
    assert_eq!(known["user"], "alice");
    lab.run(ALICE, &["token", "revoke", "1"]).ok();
    let known = lab.json(ROOT, "/api/takt/v1/whoami", &["--header", &bearer]);
    assert_eq!(known["role"], "anonymous", "revoked at once");

    let out = [
        "--header",
        &cookie,
        "--header",
        SAME,
        "--data",
        "everywhere=yes",
    ];
    assert_eq!(lab.curl(WWW_DATA, "/logout", &out).0, 303);
    let known = lab.json(WWW_DATA, "/api/takt/v1/whoami", &with_cookie);
    assert_eq!(known["role"], "anonymous");

    // The log has who did what, also what was refused.
    let log = lab.run(BOB, &["audit", "--format", "csv"]).ok();
    for entry in [
        "sign_in,link,session",
        "sign_out,session,done",
        "POST /api/takt/v1/tokens,\"create token 1 (notebook), role user, of alice\",200",
        "alice,user,session,127.0.0.1,POST /api/takt/v1/tokens,/api/takt/v1/tokens,403",
        "alice,user,socket,socket,POST /api/takt/v1/tokens,\"revoke token 1 (notebook), role user, of alice\",200",
    ] {
        assert!(log.contains(entry), "{entry} in\n{log}");
    }
    lab.run(ALICE, &["audit"]).fails(1);
}

/// Guessing codes from one address ends after ten attempts in a minute.
#[test]
fn codes_cannot_be_guessed_quickly() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("");
    let guess = || {
        let arguments = ["--data", "code=guess", "--header", SAME, "--include"];
        let (_, answer) = lab.curl(WWW_DATA, "/login/session", &arguments);
        let mut lines = answer.lines();
        let location = lines.find_map(|line| line.strip_prefix("location: /login?failed="));
        location.unwrap_or_default().trim().to_owned()
    };
    let answers: Vec<String> = (0..12).map(|_| guess()).collect();
    assert_eq!(answers[..10], ["link"; 10]);
    assert_eq!(answers[10..], ["minute"; 2]);
}

/// With an empty `[auth]` and without PrivateData, programs of this machine read as they always
/// did.
#[test]
fn services_of_this_machine_read_without_configuration() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("");
    for uid in [ROOT, WWW_DATA] {
        let jobs = lab.json(uid, "/api/takt/v1/jobs", &[]);
        assert_eq!(jobs.as_array().unwrap().len(), 2);
        lab.json(uid, "/api/v1/query?query=vector(1)", &[]);
    }

    // A person sees others' jobs without their names.
    let jobs = lab.json(ALICE, "/api/takt/v1/jobs", &[]);
    let names: BTreeMap<&str, &Value> = jobs
        .as_array()
        .unwrap()
        .iter()
        .map(|job| (job["user"].as_str().unwrap(), &job["name"]))
        .collect();
    assert_eq!(names["bob"], &Value::Null);
    assert_eq!(names["alice"], "<script>alert(1)</script>");
}

/// Through `ssh -L`, sshd's child connects as the user.
#[test]
fn a_tunnel_is_its_user() {
    let needed = needs().and_then(|()| {
        need(&[
            Needed {
                program: "sshd",
                package: "openssh-server",
            },
            Needed {
                program: "ssh",
                package: "openssh-client",
            },
        ])
    });
    if or_skip(needed).is_none() {
        return;
    }
    let lab = Lab::start("privacy = \"private\"");
    let folder = lab.takt.directory().join("ssh");
    fs::create_dir(&folder).unwrap();
    set_mode(&folder, 0o755);
    let path = |name: &str| folder.join(name).display().to_string();
    for name in ["host", "key"] {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f", &path(name)])
            .status();
        assert!(made.unwrap().success());
    }
    fs::copy(folder.join("key.pub"), folder.join("authorized")).unwrap();
    set_mode(&folder.join("authorized"), 0o644);
    let port = free_port();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\n\
         UsePAM no\nPidFile none\nPasswordAuthentication no\n",
        path("host"),
        path("authorized")
    );
    fs::write(folder.join("config"), config).unwrap();

    // sshd runs as its own user before the login, and looks people up in /etc/passwd.
    let passwd = lab.etc.join("passwd");
    let people = fs::read_to_string(&passwd).unwrap();
    let people = format!("{people}sshd:x:110:65534::/run/sshd:/usr/sbin/nologin\n");
    fs::write(&passwd, people).unwrap();
    fs::write(lab.etc.join("shadow"), "alice:*:20000::::::\n").unwrap();
    fs::create_dir_all("/run/sshd").unwrap();
    let mut sshd = Command::new("/usr/sbin/sshd");
    sshd.args(["-D", "-e", "-f", &path("config")]);
    let mut sshd = Daemon::start("sshd", with_etc(&lab.etc, &sshd), &folder.join("sshd.log"));
    sshd.wait_until("listening", SOON, || {
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    let near = free_port();
    let mut ssh = Command::new("ssh");
    ssh.args([
        "-N",
        "-F",
        "none",
        "-i",
        &path("key"),
        "-p",
        &port.to_string(),
    ])
    .args([
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
    ])
    .args(["-o", "ExitOnForwardFailure=yes"])
    .args([
        "-L",
        &format!("{near}:127.0.0.1:{}", lab.port),
        "alice@127.0.0.1",
    ]);
    let mut ssh = Daemon::start("ssh", ssh, &folder.join("ssh.log"));
    let known = ssh.wait_until("forwarding", SOON, || {
        http_get(&format!("http://localhost:{near}/api/takt/v1/whoami")).ok()
    });
    let known: Value = serde_json::from_str(&known.body).unwrap();
    assert_eq!(known["user"], "alice", "{}", sshd.log());
    assert_eq!(known["way"], "loopback", "{}", sshd.log());
}

/// A real Slurm with PrivateData: what `sacct` hides from a user, Takt hides, too; a coordinator
/// and an operator see more.
#[test]
fn slurms_private_data_decides() {
    let lab = needs()
        .and_then(|()| SlurmLab::start_with(Mode::WithDbd, "UTC", "PrivateData=jobs,usage\n"));
    let Some(lab) = or_skip(lab) else {
        return;
    };
    lab.run(&[
        "sacctmgr",
        "-i",
        "add",
        "coordinator",
        "account=lab-b",
        "names=carol",
    ]);
    lab.submit("alice", &["-J", "hers", "-t", "5"], "sleep 1");
    lab.submit("dave", &["-J", "davids", "-t", "5"], "sleep 1");
    lab.wait_until_idle(SOON);
    let takt = Takt::fresh().with_environment(lab.environment());
    let port = free_port();
    takt.file(
        "takt.toml",
        format!(
            "timezone = \"UTC\"\n[server]\nlisten_address = \"127.0.0.1:{port}\"\n\
             token_file = \"token\"\n[sql]\nlisten_address = \"\"\n\
             [jobs]\ninterval_seconds = 1\nlook_back_seconds = 60\nhistory_days = 1\n"
        ),
    );
    takt.file("token", format!("{ADMIN}\n"));
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let jobs = |user: &str, header: &str| -> Option<Vec<String>> {
        let uid = lab.as_user(user, &["id", "-u"]);
        let url = format!("http://localhost:{port}/api/takt/v1/jobs");
        let output = Command::new("setpriv")
            .args([
                "--reuid",
                uid.trim(),
                "--regid",
                uid.trim(),
                "--clear-groups",
                "--",
            ])
            .args([
                "curl",
                "--silent",
                "--noproxy",
                "*",
                "--header",
                header,
                &url,
            ])
            .current_dir("/")
            .output()
            .unwrap();
        let jobs: Value = serde_json::from_slice(&output.stdout).ok()?;
        let mut users: Vec<String> = jobs
            .as_array()?
            .iter()
            .map(|job| job["user"].as_str().unwrap().to_owned())
            .collect();
        users.sort();
        Some(users)
    };
    server.wait_until("both jobs", SOON, || {
        jobs("alice", BEARER_ADMIN).filter(|users| users.len() == 2)
    });
    let of_sacct = |user: &str| {
        let text = lab.as_user(user, &["sacct", "-anX", "-o", "user%20"]);
        let mut users: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        users.sort();
        users
    };
    for (user, sees) in [
        ("alice", &["alice"][..]),
        ("bob", &[]),
        ("dave", &["dave"]),
        ("carol", &["dave"]),
        ("monitor", &["alice", "dave"]),
    ] {
        assert_eq!(jobs(user, "X-None: 1").unwrap(), sees, "{user}");

        // The lab's slurmdbd hides nothing; slurmctld hides the queue. sacct shows at least what
        // Takt shows.
        let all = of_sacct(user);
        assert!(
            sees.iter()
                .all(|owner| all.iter().any(|known| known == owner)),
            "{user}: {all:?}"
        );
    }
    server.stop();
}
