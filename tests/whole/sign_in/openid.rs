//! OpenID Connect against a real provider: `oidc-provider`, which is certified.

use super::{Signed, whoami};
use crate::access::{BEARER_ADMIN, Lab, ROOT, SOON, WWW_DATA, needs};
use crate::pages;
use crate::support::npm::with_packages;
use crate::support::process::{Daemon, free_port, http_get};
use crate::support::{Skip, or_skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;
use tempfile::{TempDir, tempdir};

/// The folder of the provider with its packages installed.
fn folder() -> Result<PathBuf, Skip> {
    needs()?;
    with_packages("oidc")
}

struct Idp {
    folder: PathBuf,
    port: u16,
    state: PathBuf,
    daemon: Daemon,
}

impl Idp {
    fn start(folder: PathBuf, lab: &Lab, port: u16) -> Self {
        let state = lab.takt.file(&format!("idp-{port}.json"), "");
        let daemon = Self::run(&folder, lab, port, &state);
        let idp = Self {
            folder,
            port,
            state,
            daemon,
        };
        idp.signs_in("alice", &[]);
        idp
    }

    fn run(folder: &Path, lab: &Lab, port: u16, state: &Path) -> Daemon {
        let mut command = Command::new("node");
        command
            .arg(folder.join("provider.mjs"))
            .arg(port.to_string())
            .arg(format!("http://localhost:{}/login/oidc/back", lab.port))
            .arg(state);
        let mut daemon = Daemon::start("provider", command, &lab.takt.directory().join("idp.log"));
        let url = format!("http://127.0.0.1:{port}/.well-known/openid-configuration");
        daemon.wait_until("ready", SOON, || http_get(&url).ok());
        daemon
    }

    /// Sets the user that the provider signs in from now on.
    fn signs_in(&self, user: &str, groups: &[&str]) {
        let state = serde_json::json!({ "user": user, "groups": groups });
        fs::write(&self.state, state.to_string()).unwrap();
    }

    /// Starts again, with other keys.
    fn restart(&mut self, lab: &Lab) {
        self.daemon.stop();
        self.daemon = Self::run(&self.folder, lab, self.port, &self.state);
    }
}

const AUTH: &str = "external_url = \"http://localhost:PORT\"\nprivacy = \"private\"\npasswords = true\n[auth.oidc]\n\
    issuer = \"http://127.0.0.1:IDP\"\nname = \"the university\"\nclient_id = \"takt\"\n\
    client_secret_file = \"SECRET\"\ngroups.admin = [\"hpc-admins\"]\ngroups.user = [\"hpc\"]";

/// The server and its provider, with the folder of their secret.
fn start() -> Option<(Lab, Idp, TempDir)> {
    let folder = or_skip(folder())?;
    let port = free_port();
    let secret = tempdir().unwrap();
    let file = secret.path().join("secret");
    // Characters that HTTP's basic authentication and forms encode in different ways.
    fs::write(&file, "a secret: with + and %\n").unwrap();
    let auth = AUTH.replace("IDP", &port.to_string());
    let lab = Lab::start(&auth.replace("SECRET", &file.display().to_string()));
    let idp = Idp::start(folder, &lab, port);
    Some((lab, idp, secret))
}

/// A browser with a jar of cookies.
struct Browser<'l> {
    lab: &'l Lab,
    jar: String,
}

impl<'l> Browser<'l> {
    fn new(lab: &'l Lab, name: &str) -> Self {
        let jar = lab.takt.directory().join(format!("jar-{name}"));
        let jar = jar.display().to_string();
        Self { lab, jar }
    }

    /// Opens a page of the server, or another address.
    fn open(&self, address: &str) -> Signed {
        let url = match address.strip_prefix('/') {
            Some(path) => format!("http://localhost:{}/{path}", self.lab.port),
            None => address.to_owned(),
        };
        let output = Command::new("curl")
            .args([
                "--silent",
                "--noproxy",
                "*",
                "--max-time",
                "60",
                "--include",
            ])
            .args(["--cookie", &self.jar, "--cookie-jar", &self.jar])
            .args(["--write-out", "\n%{http_code}", &url])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, status) = text.rsplit_once('\n').unwrap();
        Signed::of((status.parse().unwrap(), body.to_owned()))
    }

    /// Signs in at the provider. Returns the address with which the provider sends the browser
    /// back.
    fn answer(&self) -> String {
        let to = self.open("/login/oidc?next=/jobs").to;
        self.follow(to)
    }

    /// Follows a provider's addresses to the one with which it sends the browser back.
    fn follow(&self, mut to: String) -> String {
        for _ in 0..6 {
            if to.contains("/login/oidc/back") {
                return to;
            }
            let base = "http://127.0.0.1:";
            assert!(to.starts_with(base), "{to}");
            let next = self.open(&to).to;
            to = if next.starts_with('/') {
                let origin = to.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
                format!("{origin}{next}")
            } else {
                next
            };
        }
        panic!("the provider sends no answer: {to}");
    }

    /// Signs in. Returns the last answer of the server.
    fn sign_in(&self) -> Signed {
        self.open(&self.answer())
    }
}

#[test]
fn a_provider_signs_users_in() {
    let Some((lab, mut idp, _secret)) = start() else {
        return;
    };
    let (_, page) = lab.curl(WWW_DATA, "/login?next=/jobs", &[]);
    assert!(page.contains("Sign in with the university"), "{page}");
    idp.signs_in("alice", &["hpc"]);
    let signed = Browser::new(&lab, "alice").sign_in();
    assert_eq!(signed.status, 303, "{}", lab.server.log());
    assert_eq!(&*signed.to, "/jobs", "{}", lab.server.log());
    let alice = signed.cookie.unwrap();
    let known = whoami(&lab, &alice);
    assert_eq!(known["user"], "alice");
    assert_eq!(known["role"], "user");

    // Groups give a role, and the missing group none.
    idp.signs_in("bob", &["hpc", "hpc-admins"]);
    let bob = Browser::new(&lab, "bob").sign_in().cookie.unwrap();
    assert_eq!(whoami(&lab, &bob)["role"], "admin");
    idp.signs_in("bob", &["students"]);
    assert!(Browser::new(&lab, "student").sign_in().is_refused("group"));
    idp.signs_in("bob", &["hpc"]);
    let bob_again = Browser::new(&lab, "again").sign_in().cookie.unwrap();
    assert_eq!(
        whoami(&lab, &bob_again)["role"],
        "user",
        "no admin any more"
    );

    // Root, system users, strangers and names that are no Unix names.
    let strangers = [
        "root",
        "www-data",
        "mallory",
        "alice\u{0}",
        "Alice",
        " alice",
        "alice@uni.example",
        "",
    ];
    for (number, user) in strangers.into_iter().enumerate() {
        idp.signs_in(user, &["hpc", "hpc-admins"]);
        let name = format!("stranger-{number}");
        let signed = Browser::new(&lab, &name).sign_in();
        assert!(signed.is_refused("unknown"), "{user:?}: {signed:?}");
    }

    // The provider has new keys. They are read once a minute at most: until then the answer is
    // refused.
    idp.signs_in("alice", &["hpc"]);
    idp.restart(&lab);
    let is_signed_in = (0..20).any(|attempt| {
        let signed = Browser::new(&lab, &format!("rotated-{attempt}")).sign_in();
        assert!(
            signed.cookie.is_some() || signed.is_refused("provider"),
            "{signed:?}"
        );
        if signed.cookie.is_none() {
            thread::sleep(Duration::from_secs(5));
        }
        signed.cookie.is_some()
    });
    assert!(is_signed_in, "{}", lab.server.log());

    let down = Browser::new(&lab, "down");
    let answer = down.answer();
    drop(idp);
    assert!(
        down.open(&answer).is_refused("provider"),
        "the provider is down"
    );

    // The groups of a session count only as long as the configuration names them.
    let mut lab = lab;
    lab.restart(|config| config.replace("hpc-admins", "others"));
    assert_eq!(whoami(&lab, &bob)["role"], "user");
    let log = lab
        .json(ROOT, "/api/takt/v1/audit", &["--header", BEARER_ADMIN])
        .to_string();
    assert!(
        log.contains("\"oidc\"") && !log.contains("mallory"),
        "{log}"
    );
}

#[test]
fn an_answer_counts_once_for_the_browser_that_asked() {
    let Some((lab, idp, _secret)) = start() else {
        return;
    };
    idp.signs_in("alice", &["hpc"]);

    let changed = |answer: &str, key: &str, value: &str| {
        let (start, rest) = answer.split_once(&format!("{key}=")).unwrap();
        let end = rest.find('&').map_or("", |at| &rest[at..]);
        format!("{start}{key}={value}{end}")
    };

    // The attacker's own answer, in the browser of another person (login CSRF).
    let mallory = Browser::new(&lab, "mallory");
    let answer = mallory.answer();
    let victim = Browser::new(&lab, "victim");
    assert!(
        victim.open(&answer).is_refused("provider"),
        "no sign-in begun"
    );
    victim.open("/login/oidc");
    assert!(
        victim.open(&answer).is_refused("provider"),
        "another sign-in begun"
    );

    // It still counts where it belongs, once.
    assert!(mallory.open(&answer).cookie.is_some());
    assert!(mallory.open(&answer).is_refused("provider"), "twice");

    for (name, change) in [
        ("state", ("state", "guess")),
        ("no-state", ("state", "")),
        ("issuer", ("iss", "http%3A%2F%2Fevil.example")),
        ("no-issuer", ("iss", "")),
        ("code", ("code", "guess")),
    ] {
        let browser = Browser::new(&lab, name);
        let answer = browser.answer();
        let forged = changed(&answer, change.0, change.1);
        assert!(browser.open(&forged).is_refused("provider"), "{name}");
        assert!(
            browser.open(&answer).is_refused("provider"),
            "{name}: ended"
        );
    }

    // A code that the provider gave to another sign-in: PKCE and the nonce tie it to its own.
    let one = Browser::new(&lab, "one");
    let two = Browser::new(&lab, "two");
    let code = |answer: &str| {
        let (_, rest) = answer.split_once("code=").unwrap();
        rest.split('&').next().unwrap().to_owned()
    };
    let stolen = code(&one.answer());
    let injected = changed(&two.answer(), "code", &stolen);
    assert!(
        two.open(&injected).is_refused("provider"),
        "an injected code"
    );

    // The provider's refusal, with markup, is not shown.
    let refused = Browser::new(&lab, "refused");
    let answer = refused.answer();
    let error = changed(&answer, "code", "x").replace("code=x", "error=%3Cscript%3E");
    assert!(refused.open(&error).is_refused("provider"));

    let away = Browser::new(&lab, "away");
    away.open("/login/oidc?next=https://evil.example/");
    assert_eq!(
        lab.curl(WWW_DATA, "/login/oidc/back?state=a&state=b", &[])
            .0,
        400
    );
}

/// Mix-up: the browser comes back with an answer of a provider that Takt did not ask, or that the right provider gave to
/// another of its programs. State, nonce and PKCE's challenge are those of a sign-in that Takt began.
#[test]
fn answers_of_other_providers_and_for_other_programs_sign_nobody_in() {
    let Some((lab, idp, _secret)) = start() else {
        return;
    };
    idp.signs_in("alice", &["hpc"]);
    let other = Idp::start(idp.folder.clone(), &lab, free_port());

    // Each program has a file of its own for whom it signs in.
    other.signs_in("bob", &["hpc", "hpc-admins"]);
    let issuer = |idp: &Idp| format!("http://127.0.0.1:{}", idp.port);
    let encoded = |idp: &Idp| format!("http%3A%2F%2F127.0.0.1%3A{}", idp.port);

    let asked = |name: &str, change: &dyn Fn(&str) -> String| {
        let browser = Browser::new(&lab, name);
        let began = browser.open("/login/oidc?next=/jobs").to;
        let answer = browser.follow(change(&began));
        (browser, answer)
    };
    let to_other = |address: &str| address.replace(&issuer(&idp), &issuer(&other));

    // With the other's name, with the name of the right one, and without a name.
    for (name, change) in [
        ("honest", None),
        ("renamed", Some(encoded(&idp))),
        ("unnamed", Some(String::new())),
    ] {
        let (browser, mut answer) = asked(name, &to_other);
        assert!(answer.contains(&encoded(&other)), "{answer}");
        if let Some(change) = change {
            answer = answer.replace(&encoded(&other), &change);
        }
        assert!(browser.open(&answer).is_refused("provider"), "{name}");
    }
    let nothing = |address: &str| address.to_owned();
    let (browser, answer) = asked("without", &nothing);
    let without = answer.split('&').filter(|part| !part.starts_with("iss="));
    let without = without.collect::<Vec<_>>().join("&");
    assert!(browser.open(&without).is_refused("provider"), "no iss");

    let of_other_program = |address: &str| address.replace("client_id=takt", "client_id=wiki");
    let (browser, answer) = asked("wiki", &of_other_program);
    assert!(answer.contains("code="), "{answer}");
    assert!(browser.open(&answer).is_refused("provider"), "wiki's code");

    // The address names a sign-in of Takt's own: it works unchanged.
    let (browser, answer) = asked("right", &nothing);
    assert!(
        browser.open(&answer).cookie.is_some(),
        "{}",
        lab.server.log()
    );
}

/// Chromium, with its cookies, its `Sec-Fetch-Site` and its content security policy: with a
/// password, and with the provider.
#[test]
fn a_real_browser_signs_in_and_out() {
    let Some(scripts) = or_skip(pages::browser()) else {
        return;
    };
    let Some((lab, idp, _secret)) = start() else {
        return;
    };
    idp.signs_in("alice", &["hpc"]);
    let order = "{\"user\":\"alice\",\"password\":\"correct horse\"}";
    let json = "Content-Type: application/json";
    let arguments = ["--data", order, "--header", json, "--header", BEARER_ADMIN];
    lab.json(ROOT, "/api/takt/v1/passwords", &arguments);
    let run = Command::new("node")
        .arg(scripts.join("sign_in.mjs"))
        .arg(format!("http://localhost:{}", lab.port))
        .args(["alice", "correct horse"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}\n{}", lab.server.log());
}
