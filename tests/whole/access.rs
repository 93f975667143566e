//! Access control: real Unix users on loopback and on the Unix socket, a real sshd, browsers'
//! sessions, and the matrix of all routes and roles.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::process::{Daemon, free_port, http_get};
use crate::support::slurm::{Mode, SlurmLab};
use crate::support::takt::{Run, Takt};
use crate::support::{Needed, Skip, need, need_root, or_skip};

pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) const ALICE: u32 = 2001;
pub(crate) const BOB: u32 = 2002;
pub(crate) const WWW_DATA: u32 = 33;
pub(crate) const ROOT: u32 = 0;

/// What of bob's jobs no answer to alice may contain.
const OF_BOB: [&str; 4] = ["bob", "biology", "=cmd(", "4248817"];

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
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, mode).unwrap();
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
        std::fs::create_dir(&etc).unwrap();
        let passwd = "root:x:0:0::/root:/bin/sh\nwww-data:x:33:33::/:/bin/sh\n\
                      alice:x:2001:2001::/tmp:/bin/sh\nbob:x:2002:2002::/tmp:/bin/sh\n";
        std::fs::write(etc.join("passwd"), passwd).unwrap();
        std::fs::write(etc.join("hosts"), "127.0.0.1 localhost\n").unwrap();
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
        let uid = uid.to_string();
        let url = format!("http://localhost:{}{path}", self.port);
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
        let program = self.readable_program();
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
        self.server.stop();
        let file = self.takt.directory().join("takt.toml");
        let config = change(std::fs::read_to_string(&file).unwrap());
        std::fs::write(&file, config).unwrap();
        let serve = self.takt.command(["serve", "--config", "takt.toml"]);
        let log = self.takt.directory().join("again.log");
        self.server = Daemon::start("takt", with_etc(&self.etc, &serve), &log);
        let ready = format!("http://127.0.0.1:{}/-/ready", self.port);
        self.server.wait_until("ready", SOON, || {
            http_get(&ready).ok().filter(|page| page.status == 200)
        });
    }

    /// A copy of the program that every user can run: the build may be in a folder of root.
    fn readable_program(&self) -> PathBuf {
        let folder = self.takt.directory().join("bin");
        let program = folder.join("takt");
        if !program.exists() {
            let built = Path::new(env!("CARGO_BIN_EXE_takt"));
            std::fs::create_dir(&folder).unwrap();
            std::fs::copy(built, &program).unwrap();
            let library = built.with_file_name("libduckdb.so");
            if library.exists() {
                std::fs::copy(library, folder.join("libduckdb.so")).unwrap();
            }
            set_mode(&folder, 0o755);
        }
        program
    }
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
        let jobs = lab.json(uid, "/api/takt/v1/jobs", &[]);
        let ids = jobs.as_array().unwrap().iter();
        ids.map(|job| job["job_id"].as_str().unwrap().to_owned())
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
    // Whoever forwards is nobody, whatever the header says.
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
    let rows = usage["rows"].as_array().unwrap();
    let names: Vec<_> = rows
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
    assert_eq!(post("/login/session", SAME).0, 422, "used up");
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
    assert_eq!(
        (&known["user"], &known["way"]),
        (&"alice".into(), &"session".into())
    );
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
    assert_eq!(
        (&known["user"], &known["role"], &known["way"]),
        (&"alice".into(), &"user".into(), &"token".into())
    );
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
        "alice,user,session,127.0.0.1,POST /api/takt/v1/tokens,/api/takt/v1/tokens,200",
        "alice,user,session,127.0.0.1,POST /api/takt/v1/tokens,/api/takt/v1/tokens,403",
        "alice,user,socket,socket,POST /api/takt/v1/tokens,/api/takt/v1/tokens,200",
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
        let arguments = ["--data", "code=guess", "--header", SAME];
        lab.curl(WWW_DATA, "/login/session", &arguments).0
    };
    let answers: Vec<u16> = (0..12).map(|_| guess()).collect();
    assert_eq!(answers[..10], [422; 10]);
    assert_eq!(answers[10..], [429; 2]);
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
    std::fs::create_dir(&folder).unwrap();
    set_mode(&folder, 0o755);
    let path = |name: &str| folder.join(name).display().to_string();
    for name in ["host", "key"] {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f", &path(name)])
            .status();
        assert!(made.unwrap().success());
    }
    std::fs::copy(folder.join("key.pub"), folder.join("authorized")).unwrap();
    set_mode(&folder.join("authorized"), 0o644);
    let port = free_port();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\n\
         UsePAM no\nPidFile none\nPasswordAuthentication no\n",
        path("host"),
        path("authorized")
    );
    std::fs::write(folder.join("config"), config).unwrap();
    // sshd runs as its own user before the login, and looks people up in /etc/passwd.
    let passwd = lab.etc.join("passwd");
    let people = std::fs::read_to_string(&passwd).unwrap();
    let people = format!("{people}sshd:x:110:65534::/run/sshd:/usr/sbin/nologin\n");
    std::fs::write(&passwd, people).unwrap();
    std::fs::write(lab.etc.join("shadow"), "alice:*:20000::::::\n").unwrap();
    std::fs::create_dir_all("/run/sshd").unwrap();
    let mut sshd = Command::new("/usr/sbin/sshd");
    sshd.args(["-D", "-e", "-f", &path("config")]);
    let mut sshd = Daemon::start("sshd", with_etc(&lab.etc, &sshd), &folder.join("sshd.log"));
    sshd.wait_until("listening", SOON, || {
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()
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
    assert_eq!(
        (&known["user"], &known["way"]),
        (&"alice".into(), &"loopback".into()),
        "{}",
        sshd.log()
    );
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

/// A path of a route, with values in place of its parameters.
fn concrete(path: &str) -> String {
    let values = [
        ("{name}", "user"),
        ("{id}", "none"),
        ("{job}", "4248817"),
        ("{user}", "bob"),
        ("{account}", "biology"),
        ("{node}", "n1"),
        ("{uuid}", "GPU-1"),
    ];
    let parts = values.iter();
    parts.fold(path.to_owned(), |path, (name, value)| {
        path.replace(name, value)
    })
}

/// Least role of each route, for GET and for other methods. A route that is missing here fails the
/// test below.
const MATRIX: &[(&str, &str, &str)] = &[
    ("/", "user", "admin"),
    ("/-/healthy", "", "admin"),
    ("/-/ready", "", "admin"),
    ("/-/reload", "admin", "admin"),
    ("/accounts/{account}", "user", "admin"),
    ("/alerts", "user", "support"),
    ("/alerts/history", "user", "admin"),
    ("/alerts/history.csv", "user", "admin"),
    ("/alerts/history.json", "user", "admin"),
    ("/alerts/rules", "user", "admin"),
    ("/alerts/rules.csv", "user", "admin"),
    ("/alerts/rules.json", "user", "admin"),
    ("/api/takt/v1/about", "user", "user"),
    ("/api/takt/v1/assess", "admin", "admin"),
    ("/api/takt/v1/audit", "admin", "admin"),
    ("/api/takt/v1/capacity", "user", "user"),
    ("/api/takt/v1/cluster", "status", "status"),
    ("/api/takt/v1/compare", "user", "user"),
    ("/api/takt/v1/credits", "user", "admin"),
    ("/api/takt/v1/doctor", "viewer", "viewer"),
    ("/api/takt/v1/energy", "user", "user"),
    ("/api/takt/v1/events", "user", "user"),
    ("/api/takt/v1/fairshare", "user", "user"),
    ("/api/takt/v1/gpu", "user", "user"),
    ("/api/takt/v1/history", "user", "user"),
    ("/api/takt/v1/import", "admin", "admin"),
    ("/api/takt/v1/imports", "viewer", "viewer"),
    ("/api/takt/v1/imports/undo", "admin", "admin"),
    ("/api/takt/v1/job", "user", "user"),
    ("/api/takt/v1/jobs", "user", "user"),
    ("/api/takt/v1/jobs/delete", "admin", "admin"),
    ("/api/takt/v1/jobs/strips", "user", "user"),
    ("/api/takt/v1/login", "user", "user"),
    ("/api/takt/v1/login/munge", "", ""),
    ("/api/takt/v1/passwords", "user", "user"),
    ("/api/takt/v1/queue", "user", "user"),
    ("/api/takt/v1/report/sent", "user", "admin"),
    ("/api/takt/v1/report/sheets", "user", "user"),
    ("/api/takt/v1/report/usage", "user", "user"),
    ("/api/takt/v1/routes", "admin", "admin"),
    ("/api/takt/v1/search", "user", "user"),
    ("/api/takt/v1/sql", "viewer", "viewer"),
    ("/api/takt/v1/store", "user", "user"),
    ("/api/takt/v1/store/delete", "admin", "admin"),
    ("/api/takt/v1/store/seal", "admin", "admin"),
    ("/api/takt/v1/store/snapshot", "admin", "admin"),
    ("/api/takt/v1/store/verify", "viewer", "viewer"),
    ("/api/takt/v1/strips", "user", "user"),
    ("/api/takt/v1/tokens", "user", "user"),
    ("/api/takt/v1/waste", "user", "user"),
    ("/api/takt/v1/whoami", "", ""),
    ("/api/v1/alertmanagers", "user", "user"),
    ("/api/v1/alerts", "viewer", "viewer"),
    ("/api/v1/features", "user", "user"),
    ("/api/v1/format_query", "user", "user"),
    ("/api/v1/label/{name}/values", "viewer", "viewer"),
    ("/api/v1/labels", "viewer", "viewer"),
    ("/api/v1/metadata", "viewer", "viewer"),
    ("/api/v1/notifications", "user", "user"),
    ("/api/v1/openapi.yaml", "user", "user"),
    // A sender's token alone; "admin" is the highest role, and not enough.
    ("/api/v1/otlp/v1/metrics", "admin", "admin"),
    ("/api/v1/parse_query", "user", "user"),
    ("/api/v1/query", "viewer", "viewer"),
    ("/api/v1/query_exemplars", "viewer", "viewer"),
    ("/api/v1/query_range", "viewer", "viewer"),
    ("/api/v1/rules", "viewer", "viewer"),
    ("/api/v1/scrape_pools", "viewer", "viewer"),
    ("/api/v1/series", "viewer", "viewer"),
    ("/api/v1/status/buildinfo", "user", "user"),
    ("/api/v1/status/config", "viewer", "viewer"),
    ("/api/v1/status/flags", "viewer", "viewer"),
    ("/api/v1/status/runtimeinfo", "viewer", "viewer"),
    ("/api/v1/status/self_metrics", "user", "user"),
    ("/api/v1/status/tsdb", "viewer", "viewer"),
    ("/api/v1/status/tsdb/blocks", "viewer", "viewer"),
    ("/api/v1/status/walreplay", "user", "user"),
    ("/api/v1/targets", "viewer", "viewer"),
    ("/api/v1/targets/metadata", "viewer", "viewer"),
    ("/api/v1/targets/relabel_steps", "viewer", "viewer"),
    ("/api/v1/write", "admin", "admin"),
    ("/api/v2/alerts", "viewer", "support"),
    ("/api/v2/alerts/close", "support", "support"),
    ("/api/v2/alerts/groups", "viewer", "viewer"),
    ("/api/v2/receivers", "viewer", "viewer"),
    ("/api/v2/silence/{id}", "viewer", "support"),
    ("/api/v2/silences", "viewer", "support"),
    ("/api/v2/status", "viewer", "viewer"),
    ("/capacity", "user", "admin"),
    ("/capacity.csv", "user", "admin"),
    ("/capacity.json", "user", "admin"),
    ("/compare", "user", "admin"),
    ("/energy", "user", "admin"),
    ("/energy.csv", "user", "admin"),
    ("/energy.json", "user", "admin"),
    ("/events", "user", "admin"),
    ("/events.csv", "user", "admin"),
    ("/events.json", "user", "admin"),
    ("/fairshare", "user", "admin"),
    ("/fairshare.csv", "user", "admin"),
    ("/fairshare.json", "user", "admin"),
    ("/federate", "viewer", "viewer"),
    ("/gpus/{uuid}", "user", "admin"),
    ("/health", "user", "admin"),
    ("/health.csv", "user", "admin"),
    ("/health.json", "user", "admin"),
    ("/jobs", "user", "admin"),
    ("/jobs.csv", "user", "admin"),
    ("/jobs.json", "user", "admin"),
    ("/jobs/{job}", "user", "admin"),
    ("/live/", "user", "admin"),
    ("/live/alerts", "user", "admin"),
    ("/live/gpus/{uuid}", "user", "admin"),
    ("/live/health", "user", "admin"),
    ("/live/jobs/{job}", "user", "admin"),
    ("/live/nodes", "user", "admin"),
    ("/live/nodes/{node}", "user", "admin"),
    ("/live/queue", "user", "admin"),
    ("/live/status", "status", "admin"),
    ("/login", "", "admin"),
    ("/login/oidc", "", "admin"),
    ("/login/oidc/back", "", "admin"),
    ("/login/password", "", ""),
    ("/login/session", "", ""),
    ("/login/user", "", ""),
    ("/logout", "", ""),
    ("/me", "user", "user"),
    ("/me/password", "user", "user"),
    ("/metrics", "user", "user"),
    ("/nodes", "user", "admin"),
    ("/nodes.csv", "user", "admin"),
    ("/nodes.json", "user", "admin"),
    ("/nodes/{node}", "user", "admin"),
    ("/people", "user", "admin"),
    ("/people.csv", "user", "admin"),
    ("/people.json", "user", "admin"),
    ("/people/{user}", "user", "admin"),
    ("/queue", "user", "admin"),
    ("/queue.csv", "user", "admin"),
    ("/queue.json", "user", "admin"),
    ("/reports", "user", "admin"),
    ("/reports.csv", "user", "admin"),
    ("/reports.json", "user", "admin"),
    ("/reports/sheet", "user", "admin"),
    ("/search", "user", "admin"),
    ("/sql", "viewer", "admin"),
    ("/sql.csv", "viewer", "admin"),
    ("/sql.json", "viewer", "admin"),
    ("/status", "status", "admin"),
    ("/waste", "user", "admin"),
    ("/waste.csv", "user", "admin"),
    ("/waste.json", "user", "admin"),
];

const ROLES: [&str; 6] = ["", "status", "user", "viewer", "support", "admin"];

/// The rank of a role; `""` is everybody.
fn rank(role: &str) -> usize {
    ROLES.iter().position(|known| *known == role).unwrap()
}

/// Every route of the running server, with every role, by GET and by POST: exactly those roles get
/// in that the matrix names.
#[test]
fn each_route_answers_exactly_its_roles() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("privacy = \"private\"\nsupport = [\"bob\"]");
    let listed = lab.json(ROOT, "/api/takt/v1/routes", &["--header", BEARER_ADMIN]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let listed: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|route| {
            (
                text(&route["path"]),
                text(&route["read"]),
                text(&route["other"]),
            )
        })
        .filter(|(path, ..)| !path.starts_with("/static/"))
        .collect();
    let missing: Vec<_> = listed
        .iter()
        .filter(|(path, ..)| MATRIX.iter().all(|(known, ..)| known != path))
        .collect();
    assert!(
        missing.is_empty(),
        "routes without a line in MATRIX: {missing:?}"
    );
    for (path, read, other) in MATRIX {
        let expected = ((*path).to_owned(), (*read).to_owned(), (*other).to_owned());
        assert!(listed.contains(&expected), "{expected:?} is not as listed");
    }

    // Ways in, with the role that they have at the level `private`. Bob comes through the socket:
    // loopback changes nothing.
    let socket = lab.takt.directory().join("takt.sock").display().to_string();
    let screen = "{\"name\":\"screen\",\"role\":\"status\"}";
    let json = "Content-Type: application/json";
    let order = ["--data", screen, "--header", json, "--header", BEARER_ADMIN];
    let screen = lab.json(ROOT, "/api/takt/v1/tokens", &order);
    let screen = format!(
        "Authorization: Bearer {}",
        screen["token"].as_str().unwrap()
    );
    let callers: [(&str, u32, Vec<&str>); 5] = [
        ("", ROOT, vec![]),
        ("status", ROOT, vec!["--header", &screen]),
        ("user", ALICE, vec!["--unix-socket", &socket]),
        ("viewer", ROOT, vec!["--header", BEARER_READER]),
        ("support", BOB, vec!["--unix-socket", &socket]),
    ];
    for (path, read, other) in MATRIX {
        // Streams do not end.
        let stream = ["--max-time", "1"];
        let is_stream = path.starts_with("/live");
        let address = concrete(path);
        for (role, uid, way) in &callers {
            for (method, least) in [("GET", read), ("POST", other)] {
                let mut arguments = way.clone();
                arguments.extend(["--request", method]);
                if is_stream {
                    arguments.extend(stream);
                }
                let (status, body) = lab.curl(*uid, &address, &arguments);
                let is_refused =
                    status == 401 || (status == 403 && body.contains("needs the role"));
                // A program has no tokens and no password of its own.
                let own = [
                    "/api/takt/v1/tokens",
                    "/api/takt/v1/passwords",
                    "/me",
                    "/me/password",
                ];
                let is_change =
                    method == "POST" || path.ends_with("/password") || path.ends_with("/passwords");
                let is_own = own.contains(path) && is_change && *role == "viewer";
                let may = rank(role) >= rank(least) && !is_own;
                assert_eq!(
                    !is_refused, may,
                    "{method} {path} as {role:?}: {status} {body}"
                );
            }
        }
    }
}

/// Every route, asked by alice at the level `private`: no answer contains anything of bob's.
#[test]
fn no_route_shows_another_users_job() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("privacy = \"private\"");
    let month = "month=2026-03";
    let questions = [
        format!("/api/takt/v1/report/usage?{month}&by=user,account,state,node,day"),
        format!("/api/takt/v1/report/sheets?{month}&everybody=true"),
        format!("/api/takt/v1/report/sheets?{month}"),
        format!("/api/takt/v1/report/sheets?{month}&account=biology"),
        format!("/api/takt/v1/capacity?{month}"),
        format!("/api/takt/v1/report/sent?{month}"),
        "/api/takt/v1/fairshare?history_days=30".to_owned(),
        "/api/takt/v1/fairshare?user=alice&explain=true".to_owned(),
        "/api/takt/v1/jobs?state=FAILED".to_owned(),
        "/api/takt/v1/jobs?job_id=4248817".to_owned(),
        "/search?q=4248817".to_owned(),
        "/search?q=bob".to_owned(),
        "/jobs".to_owned(),
        "/jobs/4248817".to_owned(),
    ];
    let routes = MATRIX
        .iter()
        .filter(|(path, ..)| !path.starts_with("/live"))
        .map(|(path, ..)| concrete(path));
    for path in routes.chain(questions) {
        let (status, body) = lab.curl(ALICE, &path, &[]);
        // What the question itself contains may come back in an error.
        let shown = OF_BOB
            .iter()
            .find(|secret| body.contains(**secret) && !path.contains(**secret));
        assert_eq!(shown, None, "{path}: {status} {body}");
        // A browser reads JSON and CSV as text.
        let is_page = body
            .trim_start()
            .to_lowercase()
            .starts_with("<!doctype html");
        assert!(
            !is_page || !body.contains("<script>alert(1)"),
            "{path} shows a job's name as markup: {body}"
        );
    }
    // An administrator gets all of it, so the paths above have something to hide.
    let jobs = lab
        .curl(ROOT, "/api/takt/v1/jobs", &["--header", BEARER_ADMIN])
        .1;
    assert!(
        OF_BOB
            .iter()
            .filter(|secret| jobs.contains(**secret))
            .count()
            >= 3,
        "{jobs}"
    );
}
