//! TLS and passwords, with curl as the scraper and openssl's certificates.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod support;

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use support::Running;
use tempfile::{TempDir, tempdir};

/// bcrypt of `secret`, cost 4.
const SECRET: &str = "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";

/// A directory with certificates and a configuration.
struct Place(TempDir);

impl Place {
    fn new(config: &str) -> Self {
        let place = Self(tempdir().unwrap());
        place.write(config);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, config: &str) {
        // Replaces the file, as editors and configuration management do.
        fs::write(self.path("new"), config).unwrap();
        fs::rename(self.path("new"), self.path("web.yml")).unwrap();
    }

    /// Creates `NAME.crt` and `NAME.key`, self-signed or signed by `signer`. Returns false without
    /// openssl.
    fn certificate(&self, name: &str, signer: Option<&str>) -> bool {
        let key = self.path(&format!("{name}.key"));
        let certificate = self.path(&format!("{name}.crt"));
        let mut openssl = Command::new("openssl");
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ]);
        openssl.args([
            "-subj",
            &format!("/CN={name}"),
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ]);
        openssl.arg("-keyout").arg(key).arg("-out").arg(certificate);
        if let Some(signer) = signer {
            openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
            openssl.arg("-CA").arg(self.path(&format!("{signer}.crt")));
            openssl
                .arg("-CAkey")
                .arg(self.path(&format!("{signer}.key")));
        }
        match openssl.output() {
            Ok(output) if output.status.success() => true,
            Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => {
                eprintln!("SKIPPED: cannot run openssl ({error}); apt-get install openssl");
                false
            }
        }
    }

    fn start(&self) -> Running {
        let config = format!("--web.config.file={}", self.path("web.yml").display());
        Running::takt(
            &[
                "--collector.disable-defaults",
                "--collector.loadavg",
                &config,
            ],
            &[],
        )
    }
}

/// Returns curl's status for `/metrics`, 0 without an answer, and the body.
fn curl(exporter: &Running, scheme: &str, arguments: &[&str]) -> (u32, String) {
    let url = format!("{scheme}://{}/metrics", exporter.address);
    let output = Command::new("curl")
        .args(["-s", "-i", "-m", "20", "-w", "\n%{http_code}"])
        .args(arguments)
        .arg(url)
        .output();
    let text = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
    let (answer, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), answer.to_owned())
}

fn has_curl() -> bool {
    let found = Command::new("curl").arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: cannot run curl; apt-get install curl");
    }
    found
}

/// A changed file is noticed at once, unless the change is within the same clock tick.
fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "not {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn passwords_are_asked_for_and_changed_without_a_restart() {
    if !has_curl() {
        return;
    }
    let place = Place::new(&format!(
        "basic_auth_users:\n  alice: {SECRET}\nhttp_server_config:\n  headers:\n    \
         X-Frame-Options: deny\n"
    ));
    let exporter = place.start();
    let (status, answer) = curl(&exporter, "http", &[]);
    assert_eq!(status, 401, "{answer}");
    assert!(
        answer
            .to_ascii_lowercase()
            .contains("www-authenticate: basic"),
        "{answer}"
    );
    for wrong in ["alice:wrong", "bob:secret", "alice:", ":"] {
        assert_eq!(curl(&exporter, "http", &["-u", wrong]).0, 401, "{wrong}");
    }

    // More than once, because the result of the first check is remembered.
    for _ in 0..3 {
        let (status, answer) = curl(&exporter, "http", &["-u", "alice:secret"]);
        assert!(status == 200 && answer.contains("node_load1 "), "{answer}");
        assert!(
            answer
                .to_ascii_lowercase()
                .contains("x-frame-options: deny"),
            "{answer}"
        );
    }

    // `secret` is no bcrypt hash.
    place.write("basic_auth_users:\n  bob: secret\n");
    wait_for("shut while the file is wrong", || {
        curl(&exporter, "http", &["-u", "alice:secret"]).0 == 500
    });
    place.write(&format!("basic_auth_users:\n  bob: {SECRET}\n"));
    wait_for("open for bob", || {
        curl(&exporter, "http", &["-u", "bob:secret"]).0 == 200
    });
    assert_eq!(curl(&exporter, "http", &["-u", "alice:secret"]).0, 401);
}

#[test]
fn tls_with_a_certificate_that_is_renewed() {
    let place = Place::new("tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n");
    if !has_curl() || !place.certificate("server", None) {
        return;
    }
    let exporter = place.start();
    let pinned = |name: &str| place.path(&format!("{name}.crt")).display().to_string();
    let (status, answer) = curl(&exporter, "https", &["--cacert", &pinned("server")]);
    assert!(status == 200 && answer.contains("node_load1 "), "{answer}");
    assert_ne!(curl(&exporter, "http", &[]).0, 200, "not in the clear");
    // A silent client delays no other client.
    let _silent = TcpStream::connect(exporter.address).unwrap();
    assert_eq!(
        curl(&exporter, "https", &["--cacert", &pinned("server")]).0,
        200
    );

    // The old certificate shows that it is no longer in use.
    fs::copy(pinned("server"), place.path("old.crt")).unwrap();
    assert!(place.certificate("renewed", None));

    // Between the two renames the key does not fit the certificate, and all requests are refused.
    for kind in ["key", "crt"] {
        fs::rename(
            place.path(&format!("renewed.{kind}")),
            place.path(&format!("server.{kind}")),
        )
        .unwrap();
    }
    wait_for("renewed", || {
        curl(&exporter, "https", &["--cacert", &pinned("server")]).0 == 200
    });
    assert_eq!(curl(&exporter, "https", &["--cacert", &pinned("old")]).0, 0);
}

#[test]
fn clients_show_their_certificates() {
    let place = Place::new(
        "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n  min_version: \
         TLS13\n  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n",
    );
    if !has_curl() || !place.certificate("server", None) {
        return;
    }
    assert!(place.certificate("ca", None) && place.certificate("stranger", None));
    if !has_signing_openssl() {
        eprintln!("SKIPPED: this openssl's `req -x509` does not sign (before 3.0)");
        return;
    }
    assert!(place.certificate("client", Some("ca")));
    let exporter = place.start();
    let with = |name: &str| {
        let file = |kind: &str| place.path(&format!("{name}.{kind}")).display().to_string();
        curl(
            &exporter,
            "https",
            &["-k", "--cert", &file("crt"), "--key", &file("key")],
        )
        .0
    };
    assert_eq!(with("client"), 200);
    assert_eq!(with("stranger"), 0);
    assert_eq!(curl(&exporter, "https", &["-k"]).0, 0, "no certificate");
    assert_eq!(curl(&exporter, "https", &["-k", "--tls-max", "1.2"]).0, 0);
}

fn has_signing_openssl() -> bool {
    let version = Command::new("openssl").arg("version").output().unwrap();
    !String::from_utf8_lossy(&version.stdout).starts_with("OpenSSL 1.")
}

#[test]
fn a_wrong_file_is_refused_at_the_start() {
    let place = Place::new("tls_server_config:\n  cert_file: server.crt\n");
    let config = format!("--web.config.file={}", place.path("web.yml").display());
    let output = Command::new(env!("CARGO_BIN_EXE_takt-exporter"))
        .args(["--web.listen-address=127.0.0.1:0", &config])
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        log.contains("web.yml: tls_server_config.key_file: missing"),
        "{log}"
    );
}
