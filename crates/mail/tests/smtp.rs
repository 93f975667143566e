//! The mailer against a real SMTP server (Debian's python3-aiosmtpd), with each way it can fail.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test without its surroundings ends, or says what it skips"
)]

use rustls::ServerConfig;
use rustls::ServerConnection;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use takt_mail::{Attachment, EmailConfig, Mail, MailError, Mailer, TlsMode};
use takt_model::KeyStep;
use tempfile::{TempDir, tempdir};

/// Debian's, which has Debian's packages; another may be first in the path.
const PYTHON: &str = "/usr/bin/python3";

const SERVER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/whole/support/smtp.py"
);

/// A server with a folder of its own for certificates and the mail it took.
struct Server {
    child: Child,
    port: u16,
    folder: TempDir,
}

impl Server {
    /// Nothing, after saying so, where the machine lacks the server.
    fn start(options: &[&str]) -> Option<Self> {
        let has_it = Command::new(PYTHON)
            .args(["-c", "import aiosmtpd"])
            .stderr(Stdio::null())
            .status();
        if !has_it.is_ok_and(|status| status.success()) {
            assert!(
                env::var_os("TAKT_TEST_NO_SKIP").is_none(),
                "needs python3-aiosmtpd"
            );
            eprintln!("skipped: needs python3-aiosmtpd");
            return None;
        }

        let folder = tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let mut command = Command::new(PYTHON);
        command
            .arg(SERVER)
            .arg(file("mails"))
            .args(options)
            .stdout(Stdio::piped());

        if options.contains(&"starttls") || options.contains(&"tls") {
            certify(&folder.path().to_path_buf());
            command.args(["--cert", &file("server.pem"), "--key", &file("server.key")]);
        }

        let mut child = command.spawn().unwrap();
        // The first line is the port, printed once the server listens. Connections before that would be refused.
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        Some(Self {
            port: line.trim().parse().unwrap(),
            child,
            folder,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// How to reach it: by the name in its certificate.
    fn config(&self, tls: TlsMode) -> EmailConfig {
        EmailConfig {
            server: format!("localhost:{}", self.port),
            tls: Some(tls),
            from: "Takt <takt@lab.example>".to_owned(),
            ca_file: (tls != TlsMode::None).then(|| self.path("ca.pem")),
            timeout_seconds: 30,
            ..EmailConfig::default()
        }
    }

    fn login(&self, config: EmailConfig, user: &str, password: &str) -> EmailConfig {
        let file = self.path("password");
        fs::write(&file, format!("{password}\n")).unwrap();
        EmailConfig {
            username: Some(user.to_owned()),
            password_file: Some(file),
            ..config
        }
    }

    /// The mails it took.
    fn taken(&self) -> Vec<Value> {
        fs::read_to_string(self.path("mails"))
            .unwrap_or_default()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An authority, and a server's certificate for `localhost` from it.
fn certify(folder: &PathBuf) {
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl")
            .args(arguments)
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    // The certificate names `localhost`, so 127.0.0.1 is another name to the client.
    let key = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ];
    let name = [
        "-subj",
        "/CN=lab authority",
        "-days",
        "2",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
    ];

    openssl(&[&["req", "-x509"][..], &key, &name].concat());
    let name = [
        "-subj",
        "/CN=localhost",
        "-keyout",
        "server.key",
        "-out",
        "server.csr",
    ];
    // The authority's key signs the server's request, as in a lab with an authority of its own.
    openssl(&[&["req"][..], &key, &name].concat());
    fs::write(
        folder.join("names"),
        "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n",
    )
    .unwrap();

    let sign = [
        "x509",
        "-req",
        "-in",
        "server.csr",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
    ];
    openssl(
        &[
            &sign[..],
            &["-days", "2", "-extfile", "names", "-out", "server.pem"],
        ]
        .concat(),
    );
}

fn to(address: &str) -> Mail {
    Mail {
        to: address.to_owned(),
        subject: "GPU lost".to_owned(),
        text: "on g01".to_owned(),
        ..Mail::default()
    }
}

#[track_caller]
fn send(config: &EmailConfig, mail: &Mail) -> Result<(), MailError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { Mailer::new(config)?.send(mail).await })
}

#[track_caller]
fn refused(config: &EmailConfig, address: &str, is_permanent: bool, word: &str) {
    let error = send(config, &to(address)).unwrap_err();

    let mut chain = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        chain = format!("{chain}: {cause}");
        source = cause.source();
    }
    assert!(chain.contains(word), "{word:?} is not in {chain:?}");
    assert_eq!(error.is_permanent(), is_permanent, "{chain}");
}

#[test]
fn a_mail_arrives_whole_and_belongs_to_its_thread() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    // A line with only a dot would end the mail in SMTP, so the client must double it on the way.
    let mail = Mail {
        to: "Ann <ann@lab.example>".to_owned(),
        subject: "GPU weg\r\nBcc: all@lab.example".to_owned(),
        text: "Größe\n.\nend".to_owned(),
        html: Some("<p>Größe</p>".to_owned()),
        message_id: Some("takt.2@lab.example".to_owned()),
        thread: Some("takt.1@lab.example".to_owned()),
        headers: vec![("X-GPU-Alert-Fingerprint", "00ff".to_owned())],
        attachments: vec![Attachment {
            name: "usage.csv".to_owned(),
            content_type: "text/csv; charset=utf-8".to_owned(),
            content: b"user,hours\nann,7\n".to_vec(),
        }],
    };

    send(&server.config(TlsMode::None), &mail).unwrap();

    let taken = server.taken();
    let [mail] = taken.as_slice() else {
        panic!("{taken:?}")
    };
    assert_eq!(mail["from"].as_str(), Some("takt@lab.example"));
    assert_eq!(mail["to"][0].as_str(), Some("ann@lab.example"));

    let content = mail["content"].as_str().unwrap();
    for part in [
        "From: Takt <takt@lab.example>",
        "Subject: GPU weg Bcc: all@lab.example",
        "Message-ID: <takt.2@lab.example>",
        "In-Reply-To: <takt.1@lab.example>",
        "References: <takt.1@lab.example>",
        "Auto-Submitted: auto-generated",
        "X-GPU-Alert-Fingerprint: 00ff",
        "multipart/alternative",
        "usage.csv",
        "Gr=C3=B6=C3=9Fe",
    ] {
        assert!(content.contains(part), "{part:?} is not in\n{content}");
    }

    assert!(
        content.find("text/plain").unwrap() < content.find("text/html").unwrap(),
        "text comes first"
    );
    assert!(
        !content.contains("\r\nBcc:"),
        "a line break in a subject begins no header"
    );
}

#[test]
fn encrypted_and_logged_in() {
    for (options, mode) in [("starttls", TlsMode::StartTls), ("tls", TlsMode::Tls)] {
        let Some(server) = Server::start(&["--tls", options, "--login", "takt:s3cret"]) else {
            return;
        };

        let config = server.config(mode);
        send(
            &server.login(config.clone(), "takt", "s3cret"),
            &to("ann@lab.example"),
        )
        .unwrap();

        let taken = server.taken();
        assert_eq!(taken.len(), 1);
        assert_eq!(taken[0]["user"].as_str(), Some("takt"));
        assert_eq!(taken[0]["tls"].as_bool(), Some(true));
        // A wrong password, then no login: both stay wrong until the configuration changes.
        refused(
            &server.login(config.clone(), "takt", "wrong"),
            "ann@lab.example",
            true,
            "535",
        );
        refused(&config, "ann@lab.example", true, "530");

        // An attacker in between: another name, or an unknown authority.
        let other_name = EmailConfig {
            server: format!("127.0.0.1:{}", server.port),
            ..config.clone()
        };
        refused(&other_name, "ann@lab.example", true, "not trusted");
        refused(
            &EmailConfig {
                ca_file: None,
                ..config
            },
            "ann@lab.example",
            true,
            "not trusted",
        );
        assert_eq!(server.taken().len(), 1);
    }
}

#[test]
fn what_is_to_be_encrypted_is_never_sent_in_clear() {
    // The server listens without TLS, as one to which an attacker has removed STARTTLS.
    let Some(server) = Server::start(&["--login", "takt:s3cret"]) else {
        return;
    };
    let config = server.login(
        EmailConfig {
            ca_file: None,
            ..server.config(TlsMode::StartTls)
        },
        "takt",
        "s3cret",
    );

    refused(&config, "ann@lab.example", true, "STARTTLS");
    // The message names the setting for a relay without encryption.
    refused(
        &config,
        "ann@lab.example",
        true,
        "tls = \"none\" in [email]",
    );
    assert!(server.taken().is_empty());
}

#[test]
fn refused_for_good_or_for_now() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let config = server.config(TlsMode::None);
    // 4xx is for now, 5xx is for good (RFC 5321).
    for (address, is_permanent, word) in [
        ("unknown@lab.example", true, "550"),
        ("later@lab.example", false, "450"),
        ("spam@lab.example", true, "554"),
        ("full@lab.example", false, "452"),
        ("gone@lab.example", false, "421"),
        ("nobody at all", true, "not an e-mail address"),
    ] {
        refused(&config, address, is_permanent, word);
    }
    assert!(server.taken().is_empty());
    // Port 1 refuses connections: the server may come back.
    let nobody = EmailConfig {
        server: "127.0.0.1:1".to_owned(),
        ..config
    };
    refused(&nobody, "ann@lab.example", false, "connecting");
}

/// With lettre's pool and a timeout around its `send`, the refusal of the second mail was read as success: the
/// connection came back from the pool with the first mail's reply still on its way.
#[test]
fn a_server_that_falls_silent_is_left_and_does_not_spoil_the_next_mail() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let config = EmailConfig {
        timeout_seconds: 5,
        ..server.config(TlsMode::None)
    };

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();

    let mailer = Mailer::new(&config).unwrap();
    runtime.block_on(async {
        // The server takes no notice of this mail until the deadline.
        let begun = Instant::now();
        let silent = mailer.send(&to("stall@lab.example")).await.unwrap_err();
        assert!(
            matches!(silent, MailError::Timeout { .. }) && !silent.is_permanent(),
            "{silent}"
        );
        assert!(begun.elapsed() >= Duration::from_secs(5));

        let refused = mailer.send(&to("spam@lab.example")).await.unwrap_err();
        assert!(refused.is_permanent(), "{refused}");
        mailer.send(&to("ann@lab.example")).await.unwrap();
    });
    assert_eq!(server.taken().len(), 1);
}

/// An attacker adds replies to the answer to STARTTLS and then leaves the connection alone. lettre
/// reads ahead, so the mail would count as sent.
#[test]
fn nothing_sent_before_encryption_counts_afterwards() {
    let folder = tempdir().unwrap();
    let tls = tls_of(&folder);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();

        let mut say = |text: &str| stream.write_all(text.as_bytes()).unwrap();
        say("220 mail ESMTP\r\n");
        drop(lines.next());
        say("250-mail\r\n250 STARTTLS\r\n");
        drop(lines.next());
        // All replies of a whole mail, in the packet that accepts TLS.
        say("220 go on\r\n250 mail\r\n250 sender\r\n250 recipient\r\n354 go on\r\n250 taken\r\n");

        let mut connection = ServerConnection::new(tls).unwrap();
        let mut stream = rustls::Stream::new(&mut connection, &mut stream);
        let _ = stream.read_to_end(&mut Vec::new());
    });

    let config = EmailConfig {
        server: format!("localhost:{port}"),
        tls: Some(TlsMode::StartTls),
        from: "takt@lab.example".to_owned(),
        ca_file: Some(folder.path().join("ca.pem")),
        timeout_seconds: 10,
        ..EmailConfig::default()
    };

    let error = send(&config, &to("ann@lab.example")).unwrap_err();
    assert!(error.to_string().contains("STARTTLS"), "{error}");
}

/// TLS settings of a server for `localhost`, with certificates in `folder`.
fn tls_of(folder: &TempDir) -> Arc<ServerConfig> {
    certify(&folder.path().to_path_buf());
    let read = |name| fs::read(folder.path().join(name)).unwrap();
    let key = PrivateKeyDer::from_pem_slice(&read("server.key")).unwrap();
    let certificate = CertificateDer::from_pem_slice(&read("server.pem")).unwrap();

    let provider = Arc::new(ring::default_provider());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key);
    Arc::new(tls.unwrap())
}

/// The limit of bytes holds on port 465, too, where TLS begins at once: a server with a valid
/// certificate may be broken.
#[test]
fn an_endless_reply_in_tls_fills_no_memory() {
    /// Bytes that a client may take, and those that both kernels may hold for it.
    const TAKEN_MAX: usize = 24 << 20;
    const LINE: &str = "250-a line of usual length, and after it another one of them\r\n";
    for (mode, part) in [
        (TlsMode::Tls, "a"),
        (TlsMode::Tls, LINE),
        (TlsMode::StartTls, LINE),
    ] {
        let folder = tempdir().unwrap();
        let tls = tls_of(&folder);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();

            if mode == TlsMode::StartTls {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                for reply in ["220 mail\r\n", "250-mail\r\n250 STARTTLS\r\n"] {
                    stream.write_all(reply.as_bytes()).unwrap();
                    drop(lines.next());
                }
                stream.write_all(b"220 go on\r\n").unwrap();
            }

            let mut connection = ServerConnection::new(tls).unwrap();
            let mut stream = rustls::Stream::new(&mut connection, &mut stream);
            let part = part.repeat((16 << 10) / part.len());
            let mut sent = 0;
            while sent < 4 * TAKEN_MAX && stream.write_all(part.as_bytes()).is_ok() {
                sent += part.len();
            }
            sent
        });

        let config = EmailConfig {
            server: format!("localhost:{port}"),
            tls: Some(mode),
            from: "takt@lab.example".to_owned(),
            ca_file: Some(folder.path().join("ca.pem")),
            timeout_seconds: 10,
            ..EmailConfig::default()
        };

        let error = send(&config, &to("ann@lab.example")).unwrap_err();
        assert!(!error.is_permanent(), "{error}");
        let sent = server.join().unwrap();
        assert!(sent < TAKEN_MAX, "{mode:?}: {sent} bytes, {error}");
    }
}

#[test]
fn each_mistake_in_the_configuration_is_named() {
    let good = EmailConfig {
        server: "mail".to_owned(),
        from: "takt@lab.example".to_owned(),
        ..EmailConfig::default()
    };
    good.validate().unwrap();
    // An unset table is valid, since mail is optional.
    EmailConfig::default().validate().unwrap();

    let some = |text: &str| Some(text.to_owned());
    for (config, expected) in [
        (
            EmailConfig {
                server: "smtp://mail".to_owned(),
                ..good.clone()
            },
            "server: expected HOST or HOST:PORT",
        ),
        (
            EmailConfig {
                server: String::new(),
                ..good.clone()
            },
            "server: expected the mail server",
        ),
        (
            EmailConfig {
                from: "takt".to_owned(),
                ..good.clone()
            },
            "from: expected an address",
        ),
        (
            EmailConfig {
                reply_to: some("ops"),
                ..good.clone()
            },
            "reply_to: expected an address",
        ),
        (
            EmailConfig {
                username: some("takt"),
                ..good.clone()
            },
            "password_file: expected the file",
        ),
        (
            EmailConfig {
                password_file: Some("x".into()),
                ..good.clone()
            },
            "username: expected the user",
        ),
        (
            EmailConfig {
                timeout_seconds: 1,
                ..good.clone()
            },
            "timeout_seconds: expected 5 to 600, found 1",
        ),
    ] {
        let said = config.validate().unwrap_err().to_string();
        assert!(said.starts_with(expected), "{said}");
    }
    // `validate` opens no file, so a missing one shows when the mailer is made.
    let missing = EmailConfig {
        username: some("takt"),
        password_file: Some("/nonexistent".into()),
        ..good.clone()
    };
    assert!(matches!(
        Mailer::new(&missing).unwrap_err(),
        MailError::File {
            key: "password_file",
            ..
        }
    ));
    let empty = EmailConfig {
        password_file: Some("/dev/null".into()),
        ..missing
    };
    assert_eq!(
        Mailer::new(&empty).unwrap_err().to_string(),
        "password_file: expected the password in it, found the empty file /dev/null"
    );
    // A file that exists, without a certificate in it: lettre alone would accept it.
    let no_pem = EmailConfig {
        ca_file: Some("/etc/hostname".into()),
        ..good
    };
    let said = Mailer::new(&no_pem).unwrap_err();
    let MailError::Config(error) = &said else {
        panic!("{said}");
    };
    assert_eq!(error.path(), [KeyStep::Key("ca_file".to_owned())]);
}
