//! `takt login` from another machine, with a real munged.

use crate::access::{ALICE, BOB, Lab, ROOT, SAME, SOON, WWW_DATA, needs, set_mode, with_mount};
use crate::support::process::Daemon;
use crate::support::takt::Run;
use crate::support::{Needed, Skip, need, or_skip};
use serde_json::Value;
use std::fs;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;
use tempfile::{TempDir, tempdir};

pub(super) fn needs_munge() -> Result<(), Skip> {
    needs()?;
    need(&[
        Needed {
            program: "munged",
            package: "munge",
        },
        Needed {
            program: "munge",
            package: "munge",
        },
    ])
}

/// A command for which `/run/munge` is a folder of the test: munge has its socket there.
pub(super) fn with_munge(run: &Path, command: &Command) -> Command {
    let mount = "mkdir -p /run/munge && mount --bind \"$0\" /run/munge";
    with_mount(mount, run, command)
}

pub(super) struct Munged {
    folder: TempDir,
    _daemon: Daemon,
}

impl Munged {
    pub fn start() -> Self {
        let folder = tempdir().unwrap();
        set_mode(folder.path(), 0o755);
        let run = folder.path().join("run");
        fs::create_dir(&run).unwrap();
        // All users must reach the socket in it.
        set_mode(&run, 0o755);
        let key = folder.path().join("key");
        let mut bytes = [0; 1024];
        let mut random = fs::File::open("/dev/urandom").unwrap();
        io::Read::read_exact(&mut random, &mut bytes).unwrap();
        fs::write(&key, bytes).unwrap();
        set_mode(&key, 0o400);
        let path = |name: &str| folder.path().join(name).display().to_string();
        let mut munged = Command::new("munged");
        munged.args([
            "--foreground",
            "--force",
            &format!("--key-file={}", path("key")),
            &format!("--socket={}", path("run/munge.socket.2")),
            &format!("--pid-file={}", path("pid")),
            &format!("--seed-file={}", path("seed")),
        ]);
        let mut daemon = Daemon::start("munged", munged, &folder.path().join("log"));
        let socket = run.join("munge.socket.2");
        daemon.wait_until("ready", SOON, || socket.exists().then_some(()));
        Self {
            folder,
            _daemon: daemon,
        }
    }

    pub fn run(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    /// A credential with this payload, as a Unix user.
    fn credential(&self, uid: u32, arguments: &[&str], payload: &str) -> String {
        let made = Command::new("setpriv")
            .args([
                "--reuid",
                &uid.to_string(),
                "--regid",
                &uid.to_string(),
                "--clear-groups",
                "munge",
            ])
            .arg(format!("--socket={}/munge.socket.2", self.run().display()))
            .arg(format!("--string={payload}"))
            .args(arguments)
            .current_dir("/")
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    }
}

fn start() -> Option<(Munged, Lab)> {
    or_skip(needs_munge())?;
    let munged = Munged::start();
    let run = munged.run();
    let lab = Lab::start_with(
        "munge = true\nprivacy = \"private\"\nexternal_url = \"http://localhost:PORT\"",
        |_, command| with_munge(&run, &command),
    );
    Some((munged, lab))
}

#[test]
fn takt_login_works_from_another_machine() {
    let Some((munged, lab)) = start() else {
        return;
    };
    let url = format!("http://localhost:{}", lab.port);
    let login = |uid: u32, url: &str| {
        let program = lab.command(uid, &["login", "--server", url]);
        Run::of(&with_munge(&munged.run(), &program).output().unwrap())
    };
    let link = login(ALICE, &url).ok();
    let (page, code) = link.trim().split_once("/login#").unwrap();
    assert_eq!(page, url);
    let form = format!("code={code}");
    let arguments = ["--data", &form, "--header", SAME];
    // The page first says whose session it will be.
    let (status, said) = lab.curl(WWW_DATA, "/login/user", &arguments);
    assert!(status == 200 && said.contains("alice"), "{said}");
    assert_eq!(lab.curl(WWW_DATA, "/login/session", &arguments).0, 303);
    for uid in [ROOT, WWW_DATA, 3000] {
        let said = login(uid, &url).fails(1);
        assert!(said.contains("root, system users"), "{uid}: {said}");
    }

    // The same server under another name: a server in the middle would ask in this way.
    let said = login(BOB, &format!("http://127.0.0.1:{}", lab.port)).fails(1);
    assert!(
        said.contains("ask this server at http://localhost"),
        "{said}"
    );
}

/// A relay of root's: the server does not know whose connections these are, as from another machine.
fn relay(to: u16, listener: TcpListener) {
    let pass = |mut from: TcpStream, mut to: TcpStream| {
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    };
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let far = TcpStream::connect(("127.0.0.1", to)).unwrap();
            pass(near.try_clone().unwrap(), far.try_clone().unwrap());
            pass(far, near);
        }
    });
}

/// A user of a login node has no token: the first command says what to do, and one `takt login` is enough.
#[test]
fn takt_login_signs_the_commands_of_another_machine_in() {
    if or_skip(needs_munge()).is_none() {
        return;
    }
    let munged = Munged::start();
    let run = munged.run();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://localhost:{}", listener.local_addr().unwrap().port());
    let lab = Lab::start_with(
        &format!("munge = true\nprivacy = \"private\"\nexternal_url = \"{url}\""),
        |_, command| with_munge(&run, &command),
    );
    relay(lab.port, listener);
    let home = tempdir().unwrap();
    let takt = |uid: u32, arguments: &[&str]| {
        let home = home.path().join(uid.to_string());
        fs::create_dir_all(&home).unwrap();
        // Made by root, for the user.
        set_mode(&home, 0o777);
        let command = lab.command(uid, &[&["--server", &url], arguments].concat());
        let mut command = with_munge(&run, &command);
        command.env("HOME", &home).env_remove("XDG_CONFIG_HOME");
        Run::of(&command.output().unwrap())
    };
    set_mode(home.path(), 0o755);

    let said = takt(ALICE, &["jobs", "--me"]).fails(1);
    let cure = format!("takt login --server {url}");
    assert!(said.contains(&cure), "{said}");
    let signed_in = takt(ALICE, &["login"]);
    assert!(
        signed_in.stderr.contains("signed in as alice until"),
        "{signed_in:?}"
    );
    let jobs = takt(ALICE, &["jobs", "--me", "--format", "csv"]).ok();
    assert!(jobs.contains("7,") && !jobs.contains("4248817"), "{jobs}");
    let known = takt(ALICE, &["whoami"]).ok();
    assert!(known.contains("alice") && known.contains("user"), "{known}");

    // Nobody else can read the token, and nobody else is signed in with it.
    let folder = home.path().join("2001/.config/takt/tokens");
    let files: Vec<_> = fs::read_dir(&folder).unwrap().flatten().collect();
    assert_eq!(files.len(), 1);
    let mode = files[0].metadata().unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    takt(BOB, &["jobs", "--me"]).fails(1);

    // Signing in again ends the token before.
    let before = fs::read_to_string(files[0].path()).unwrap();
    takt(ALICE, &["login"]).ok();
    let header = format!("Authorization: Bearer {}", before.trim());
    let (status, _) = lab.curl(WWW_DATA, "/api/takt/v1/jobs", &["--header", &header]);
    assert_eq!(status, 401);
    takt(ALICE, &["jobs", "--me"]).ok();
}

#[test]
fn credentials_of_others_are_refused() {
    let Some((munged, lab)) = start() else {
        return;
    };
    let path = "/api/takt/v1/login/munge";
    let url = format!("http://localhost:{}", lab.port);
    let challenge = || lab.json(WWW_DATA, path, &[]);
    let payload = |challenge: &Value, url: &str| {
        format!(
            "takt-login-1\n{url}\n{}",
            challenge["nonce"].as_str().unwrap()
        )
    };
    let send = |credential: &str| {
        let form = format!("credential={credential}");
        lab.curl(WWW_DATA, path, &["--data-urlencode", &form])
    };
    let refused = |credential: &str, why: &str| {
        let (status, said) = send(credential);
        assert!(
            status == 403 && said.contains(why),
            "{why}: {status} {said}"
        );
    };
    let good = |uid: u32| {
        let asked = challenge();
        let reader = format!("--restrict-uid={}", asked["uid"]);
        munged.credential(uid, &[&reader, "--ttl=60"], &payload(&asked, &url))
    };
    let (status, said) = send(&good(ALICE));
    assert!(status == 200 && said.contains("alice"), "{said}");

    // A credential counts once, as anyone on the way may have read it.
    let used = good(ALICE);
    assert_eq!(send(&used).0, 200);
    refused(&used, "Replayed credential");
    let mut changed = good(ALICE).into_bytes();
    // One character in the middle is another.
    let middle = changed.len() / 2;
    changed[middle] = if changed[middle] == b'A' { b'B' } else { b'A' };
    refused(&String::from_utf8(changed).unwrap(), "munge refuses");
    let asked = challenge();
    // Any user of a node with munge could decode it, and pass it on.
    let open = munged.credential(ALICE, &["--ttl=60"], &payload(&asked, &url));
    refused(&open, "not restricted");
    let for_bob = munged.credential(
        ALICE,
        &["--restrict-uid=2002"],
        &payload(&challenge(), &url),
    );
    refused(&for_bob, "munge refuses");
    let own = format!("--restrict-uid={}", asked["uid"]);
    // Slurm's own credentials are made all the time, and must not sign anyone in.
    let slurm = munged.credential(ALICE, &[&own], "a payload of Slurm");
    refused(&slurm, "another program");
    let elsewhere = munged.credential(
        ALICE,
        &[&own],
        &payload(&challenge(), "http://evil.example"),
    );
    refused(&elsewhere, "made for http://evil.example");
    refused("MUNGE:guess:", "munge refuses");

    // Ten attempts a minute from one address.
    assert_eq!(send(&good(ALICE)).0, 200, "the tenth");
    refused(&good(ALICE), "too many attempts");
}

#[test]
fn a_stale_credential_is_refused() {
    let Some((munged, lab)) = start() else {
        return;
    };
    let path = "/api/takt/v1/login/munge";
    let asked = lab.json(WWW_DATA, path, &[]);
    let url = format!("http://localhost:{}", lab.port);
    let payload = format!("takt-login-1\n{url}\n{}", asked["nonce"].as_str().unwrap());
    let reader = format!("--restrict-uid={}", asked["uid"]);
    let send = |credential: &str| {
        let form = format!("credential={credential}");
        lab.curl(WWW_DATA, path, &["--data-urlencode", &form])
    };

    let stale = munged.credential(ALICE, &[&reader, "--ttl=1"], &payload);
    thread::sleep(Duration::from_secs(3));
    let (status, said) = send(&stale);
    assert!(
        status == 403 && said.contains("Expired credential"),
        "{said}"
    );

    // The credential says who asks, whatever else the request does.
    let of_bob = munged.credential(BOB, &[&reader, "--ttl=60"], &payload);
    let form = format!("credential={of_bob}");
    let more = ["--data-urlencode", &form, "--data", "user=alice&uid=2001"];
    let (status, said) = lab.curl(WWW_DATA, path, &more);
    assert!(!said.contains("alice"), "{status} {said}");
}

/// Without `munge = true`, the route says so.
#[test]
fn munge_is_off_by_default() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("");
    let (status, said) = lab.curl(WWW_DATA, "/api/takt/v1/login/munge", &[]);
    assert!(
        status == 403 && said.contains("auth.munge = true"),
        "{said}"
    );
    lab.takt.file("wrong.toml", "[auth]\nmunge = true\n");
    let said = lab
        .takt
        .run(["check-config", "--config", "wrong.toml"])
        .fails(2);
    assert!(said.contains("external_url"), "{said}");
}
