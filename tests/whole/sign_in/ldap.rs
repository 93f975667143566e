//! Passwords of a real directory: OpenLDAP's slapd, without and with TLS.

use super::{password, whoami};
use crate::access::{Lab, SOON, WWW_DATA, needs};
use crate::support::process::{Daemon, free_port};
use crate::support::{Needed, Skip, need, or_skip};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::{TempDir, tempdir};

const ENTRIES: &str = include_str!("uni.ldif");

pub(super) fn needs_slapd() -> Result<(), Skip> {
    needs()?;
    need(&[
        Needed {
            program: "slapd",
            package: "slapd",
        },
        Needed {
            program: "slapadd",
            package: "slapd",
        },
        Needed {
            program: "openssl",
            package: "openssl",
        },
    ])
}

pub(super) struct Slapd {
    folder: TempDir,
    pub port: u16,
    tls_port: u16,
    pub daemon: Daemon,
}

impl Slapd {
    pub fn start() -> Self {
        let folder = tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("db")).unwrap();
        certificate(folder.path());
        // The search account sees no passwords, and an anonymous client may only bind.
        let config = format!(
            "include /etc/ldap/schema/core.schema\ninclude /etc/ldap/schema/cosine.schema\n\
             include /etc/ldap/schema/nis.schema\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\n\
             pidfile {0}/pid\nTLSCACertificateFile {0}/ca.pem\nTLSCertificateFile {0}/server.pem\n\
             TLSCertificateKeyFile {0}/server.key\ndatabase mdb\nmaxsize 10485760\nsuffix dc=uni\n\
             rootdn cn=root,dc=uni\nrootpw root-root-root\ndirectory {0}/db\n\
             access to attrs=userPassword by anonymous auth by * none\n\
             access to * by dn.exact=cn=takt,dc=uni read by * none\n",
            folder.path().display()
        );
        fs::write(path("slapd.conf"), config).unwrap();
        // Before slapd starts, as slapadd writes the database itself.
        let mut add = Command::new("slapadd");
        add.arg("-f").arg(path("slapd.conf")).stdin(Stdio::piped());
        let mut add = add.spawn().unwrap();
        add.stdin
            .take()
            .unwrap()
            .write_all(ENTRIES.as_bytes())
            .unwrap();
        assert!(add.wait().unwrap().success());
        let port = free_port();
        let tls_port = free_port();
        let mut slapd = Command::new("slapd");
        slapd
            .args([
                "-d",
                "0",
                "-h",
                &format!("ldap://127.0.0.1:{port} ldaps://127.0.0.1:{tls_port}"),
                "-f",
            ])
            .arg(path("slapd.conf"));
        let mut daemon = Daemon::start("slapd", slapd, &path("log"));
        for port in [port, tls_port] {
            daemon.wait_until("listening", SOON, || {
                TcpStream::connect(("127.0.0.1", port)).ok()
            });
        }
        Self {
            folder,
            port,
            tls_port,
            daemon,
        }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// The configuration for this directory, at a URL.
    pub fn auth(&self, url: &str, more: &str) -> String {
        let password = self.file("password", "search only\n");
        format!(
            "privacy = \"private\"\n[auth.ldap]\nurl = \"{url}\"\nbase = \"dc=uni\"\n\
             bind_dn = \"cn=takt,dc=uni\"\n\
             bind_password_file = \"{}\"\ngroup_base = \"ou=groups,dc=uni\"\n\
             groups.admin = [\"hpc-admins\"]\n{more}\n",
            password.display()
        )
    }
}

/// A certificate for `localhost`, but not for `127.0.0.1`, of an authority of its own.
fn certificate(folder: &Path) {
    let run = |arguments: &str| {
        let run = Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(run.status.success(), "{run:?}");
    };
    run("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=ca -days 2");
    run("req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost");
    fs::write(
        folder.join("ext"),
        "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n",
    )
    .unwrap();
    run(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem \
         -days 2 -extfile ext",
    );
}

#[test]
fn a_directory_signs_users_in() {
    if or_skip(needs_slapd()).is_none() {
        return;
    }
    let mut slapd = Slapd::start();
    let lab = Lab::start(&slapd.auth(&format!("ldap://127.0.0.1:{}", slapd.port), ""));
    let role = |user: &str, given: &str| {
        let cookie = password(&lab, user, given, &[]).cookie?;
        let known = whoami(&lab, &cookie);
        Some(format!(
            "{} {}",
            known["user"].as_str()?,
            known["role"].as_str()?
        ))
    };
    assert_eq!(
        role("bob", "battery staple").as_deref(),
        Some("bob admin"),
        "{}",
        lab.server.log()
    );

    // The entry of carol has alice's name, too: the name is ambiguous, and no one signs in with it.
    assert_eq!(role("alice", "correct horse"), None);
    assert_eq!(role("alice", "carols secret"), None);
    assert_eq!(role("carol", "carols secret"), None);
    // No password, which LDAP takes for an anonymous bind, and parts of filters and of names.
    for (user, given) in [
        ("bob", ""),
        ("bob", "wrong"),
        ("bob", "correct horse"),
        ("", ""),
        ("nobody", "battery staple"),
        ("*", "battery staple"),
        ("b*", "battery staple"),
        ("*)(uid=*", "battery staple"),
        ("bob)(|(uid=*", "battery staple"),
        ("bob\\00", "battery staple"),
        ("bob,ou=people,dc=uni", "battery staple"),
        ("root", "correct horse"),
        ("www-data", "correct horse"),
    ] {
        assert_eq!(role(user, given), None, "{user:?} {given:?}");
    }

    // The directory's spelling of a name counts, so that one person is one user.
    assert_eq!(role("BOB", "battery staple").as_deref(), Some("bob admin"));
    slapd.daemon.stop();
    assert!(password(&lab, "bob", "battery staple", &[]).is_refused("service"));
}

#[test]
fn groups_of_the_directory_decide_who_signs_in() {
    if or_skip(needs_slapd()).is_none() {
        return;
    }
    let slapd = Slapd::start();
    let auth = slapd.auth(
        &format!("ldap://127.0.0.1:{}", slapd.port),
        "user_filter = \"(&(objectClass=posixAccount)(uid={user})(!(uid=carol)))\"\n\
         groups.user = [\"cn=hpc,ou=groups,dc=uni\"]",
    );
    let mut lab = Lab::start(&auth);
    let alice = password(&lab, "alice", "correct horse", &[])
        .cookie
        .unwrap();
    assert_eq!(whoami(&lab, &alice)["role"], "user");
    let bob = password(&lab, "bob", "battery staple", &[]).cookie.unwrap();

    // The groups of a session count by the configuration of today.
    lab.restart(|config| {
        config
            .replace("cn=hpc,ou=groups,dc=uni", "cn=others,ou=groups,dc=uni")
            .replace("hpc-admins", "other-admins")
    });
    assert_eq!(whoami(&lab, &alice)["role"], "anonymous");
    assert_eq!(whoami(&lab, &bob)["role"], "anonymous");
    assert!(password(&lab, "alice", "correct horse", &[]).is_refused("group"));

    // Sessions of a way that is not configured any more do not count.
    lab.restart(|config| {
        let (before, rest) = config.split_once("[auth.ldap]").unwrap();
        let (_, after) = rest.split_once("[server]").unwrap();
        format!("{before}[server]{after}")
    });
    assert_eq!(whoami(&lab, &alice)["role"], "anonymous");
    assert!(password(&lab, "alice", "correct horse", &[]).is_refused("password"));
}

#[test]
fn the_certificate_of_the_directory_is_checked() {
    if or_skip(needs_slapd()).is_none() {
        return;
    }
    let slapd = Slapd::start();
    let ca = format!("ca_file = \"{}/ca.pem\"", slapd.folder.path().display());
    let start_tls = format!("{ca}\nstart_tls = true");
    let signs_in = |url: String, more: &str| {
        let lab = Lab::start(&slapd.auth(&url, more));
        let signed = password(&lab, "bob", "battery staple", &[]);
        assert!(
            signed.cookie.is_some() || signed.is_refused("service"),
            "{signed:?}"
        );
        signed.cookie.is_some()
    };
    assert!(signs_in(
        format!("ldaps://localhost:{}", slapd.tls_port),
        &ca
    ));
    assert!(signs_in(
        format!("ldap://localhost:{}", slapd.port),
        &start_tls
    ));
    assert!(
        !signs_in(format!("ldaps://127.0.0.1:{}", slapd.tls_port), &ca),
        "another name"
    );
    assert!(
        !signs_in(format!("ldaps://localhost:{}", slapd.tls_port), ""),
        "an unknown authority"
    );
    assert!(!signs_in(
        format!("ldap://localhost:{}", slapd.port),
        "start_tls = true"
    ));
}

/// Accepts connections. Answers each request with `answer`, which gets the number of the request; `None` hangs.
fn false_directory(answer: fn(u8) -> Option<Vec<u8>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut request = [0; 4096];

                // A message is a sequence with a number and the request.
                while stream.read(&mut request).is_ok_and(|length| length > 5) {
                    match answer(request[4]) {
                        Some(answer) => stream.write_all(&answer).unwrap_or_default(),
                        None => thread::sleep(SOON),
                    }
                }
            });
        }
    });
    port
}

/// The answer to a bind: a referral to another server, which a client might bind to with the same password.
fn referral(number: u8) -> Option<Vec<u8>> {
    let url = b"ldap://127.0.0.1:1/dc=uni";
    let urls = [&[4, url.len() as u8][..], url].concat();
    let result = [
        &[10, 1, 10, 4, 0, 4, 0][..],
        &[0xa3, urls.len() as u8],
        &urls,
    ]
    .concat();
    let operation = [&[2, 1, number, 0x61, result.len() as u8][..], &result].concat();
    Some([&[0x30, operation.len() as u8][..], &operation].concat())
}

/// Success for every bind and every search, and no entry.
fn yes_to_all(number: u8) -> Option<Vec<u8>> {
    // Binds and searches take turns.
    let tag = if number.is_multiple_of(2) { 0x65 } else { 0x61 };
    Some(vec![0x30, 12, 2, 1, number, tag, 7, 10, 1, 0, 4, 0, 4, 0])
}

/// What a directory answers to the message with this number.
type DirectoryReply = fn(u8) -> Option<Vec<u8>>;

#[test]
fn a_directory_that_hangs_refers_or_says_yes_signs_nobody_in() {
    if or_skip(needs_slapd()).is_none() {
        return;
    }
    // The last answer claims to have 4 GiB.
    let directories: [(&str, DirectoryReply); 4] = [
        ("hangs", |_| None),
        ("refers", referral),
        ("says yes", yes_to_all),
        ("talks nonsense", |_| {
            Some(vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0])
        }),
    ];
    for (name, answer) in directories {
        let folder = tempdir().unwrap();
        let secret = folder.path().join("password");
        fs::write(&secret, "search only\n").unwrap();
        let lab = Lab::start(&format!(
            "privacy = \"private\"\n[auth.ldap]\nurl = \"ldap://127.0.0.1:{}\"\nbase = \"dc=uni\"\n\
             bind_dn = \"cn=takt,dc=uni\"\nbind_password_file = \"{}\"\n",
            false_directory(answer),
            secret.display()
        ));
        let begun = Instant::now();
        thread::scope(|scope| {
            let tries: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| password(&lab, "bob", "battery staple", &[])))
                .collect();
            // Others are answered meanwhile.
            assert_eq!(lab.curl(WWW_DATA, "/login", &[]).0, 200, "{name}");
            assert!(begun.elapsed() < Duration::from_secs(5), "{name}");
            for signed in tries.into_iter().map(|one| one.join().unwrap()) {
                assert!(signed.cookie.is_none(), "{name}: {signed:?}");
            }
        });
        assert!(
            begun.elapsed() < Duration::from_secs(40),
            "{name}: {:?}",
            begun.elapsed()
        );
    }
}
