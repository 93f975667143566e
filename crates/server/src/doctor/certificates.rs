//! Ends of TLS certificates: of services that Takt asks, of targets, and of its own.

use crate::Config;
use reqwest::Url;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme,
};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use takt_mail::TlsMode;

/// Time limit of a connection, and of each wait for bytes.
const LIMIT: Duration = Duration::from_secs(3);

/// Time after which no further service is asked.
const LIMIT_OF_ALL: Duration = Duration::from_secs(10);

/// Number of services that are asked at the same time.
const AT_ONCE: usize = 16;

/// Time for which a result is kept: pages ask often, and certificates change seldom.
const KEPT: Duration = Duration::from_secs(600);

/// Maximum length of the replies of a mail server before TLS begins, in bytes.
const REPLIES_MAX: usize = 16 << 10;

/// The last result.
static LAST: Mutex<Option<KeptEnds>> = Mutex::new(None);

/// A result that is kept.
struct KeptEnds {
    services: Vec<TlsService>,
    read_at: Instant,
    ends: Vec<CertificateEnd>,
}

/// A service with a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsService {
    /// Key of the configuration that names it, or `target`.
    pub name: String,
    /// Node of a target, or empty.
    pub node: String,
    /// Where its certificate is.
    pub at: CertificatePlace,
}

/// Where a certificate is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificatePlace {
    /// The first certificate in this PEM file.
    File(PathBuf),
    /// At a host and port, where TLS begins at once, or after `STARTTLS` of SMTP.
    Server {
        /// Host name or address.
        host: String,
        /// Port.
        port: u16,
        /// Whether TLS begins after `STARTTLS`.
        is_smtp: bool,
    },
}

/// End of a certificate.
#[derive(Debug, Clone, PartialEq)]
pub struct CertificateEnd {
    /// The service that has it.
    pub service: TlsService,
    /// End of its validity, UTC seconds.
    pub ends_at: f64,
}

impl TlsService {
    /// The service of a target with `https`, from the label `instance`: `g01:9855`.
    pub fn target(instance: &str, node: &str) -> Option<Self> {
        let url = Url::parse(&format!("https://{instance}")).ok()?;
        Self::of_url("target", node, &url)
    }

    /// The service of a URL with TLS from the first byte; `None` if it has no TLS.
    fn of_url(name: &str, node: &str, url: &Url) -> Option<Self> {
        let usual = match url.scheme() {
            "https" => 443,
            "ldaps" => 636,
            _ => return None,
        };
        // `Url` keeps the brackets of an IPv6 address, and a connection needs it without.
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        Some(Self {
            name: name.to_owned(),
            node: node.to_owned(),
            at: CertificatePlace::Server {
                host,
                port: url.port().unwrap_or(usual),
                is_smtp: false,
            },
        })
    }

    /// A command that prints the end of the certificate.
    pub fn command(&self) -> String {
        match &self.at {
            CertificatePlace::File(path) => {
                format!("openssl x509 -noout -enddate -in {}", path.display())
            }
            CertificatePlace::Server {
                host,
                port,
                is_smtp,
            } => {
                let smtp = if *is_smtp { " -starttls smtp" } else { "" };
                let address = address(host, *port);
                format!(
                    "openssl s_client -connect {address} -servername {host}{smtp} </dev/null \
                     2>/dev/null | openssl x509 -noout -enddate"
                )
            }
        }
    }

    /// Name and place, for a sentence.
    pub fn title(&self) -> String {
        match &self.at {
            CertificatePlace::File(path) => format!("{} ({})", self.name, path.display()),
            CertificatePlace::Server { host, port, .. } => {
                format!("{} ({})", self.name, address(host, *port))
            }
        }
    }
}

fn address(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Returns the services with certificates that the configuration names.
pub fn services(config: &Config) -> Vec<TlsService> {
    let auth = &config.auth;
    let urls = [
        ("alerts.external_url", config.alerts.external_url.as_deref()),
        ("auth.external_url", auth.external_url.as_deref()),
        (
            "auth.ldap.url",
            auth.ldap.as_ref().map(|ldap| ldap.url.as_str()),
        ),
        (
            "auth.oidc.issuer",
            auth.oidc.as_ref().map(|oidc| oidc.issuer.as_str()),
        ),
        (
            "jobs.slurmrestd.url",
            Some(config.jobs.slurmrestd.url.as_str()),
        ),
    ];

    let of_url =
        |(name, url): (&str, Option<&str>)| TlsService::of_url(name, "", &Url::parse(url?).ok()?);
    let mut services: Vec<TlsService> = Vec::new();
    // Two keys may name the same service.
    for service in urls.into_iter().filter_map(of_url) {
        if services.iter().all(|known| known.at != service.at) {
            services.push(service);
        }
    }

    if let Some(file) = &config.sql.tls_cert_file {
        services.push(TlsService {
            name: "sql.tls_cert_file".to_owned(),
            node: String::new(),
            at: CertificatePlace::File(file.clone()),
        });
    }

    if config.email.is_set()
        && let Ok((host, port, mode)) = config.email.endpoint()
        && mode != TlsMode::None
    {
        services.push(TlsService {
            name: "email.server".to_owned(),
            node: String::new(),
            at: CertificatePlace::Server {
                host,
                port,
                is_smtp: mode == TlsMode::StartTls,
            },
        });
    }
    services
}

/// Returns the ends of the certificates. Leaves out services that do not answer: other checks
/// report them. Reads each certificate at most every ten minutes.
pub fn ends(services: Vec<TlsService>) -> Vec<CertificateEnd> {
    if services.is_empty() {
        return Vec::new();
    }
    // Held while the services are asked: of two callers, the second gets the result of the first.
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kept) = &*last
        && kept.services == services
        && kept.read_at.elapsed() < KEPT
    {
        return kept.ends.clone();
    }

    let began = Instant::now();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        // Threads take the next service each, so a slow one delays only its own thread.
        for _ in 0..AT_ONCE.min(services.len()) {
            scope.spawn(|| {
                while began.elapsed() < LIMIT_OF_ALL
                    && let Some(service) = services.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    if let Some(ends_at) = end(&service.at) {
                        let service = service.clone();
                        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                        found.push(CertificateEnd { service, ends_at });
                    }
                }
            });
        }
    });

    let mut ends = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    // The nearest end comes first.
    ends.sort_by(|a, b| a.ends_at.total_cmp(&b.ends_at));
    *last = Some(KeptEnds {
        services,
        read_at: Instant::now(),
        ends: ends.clone(),
    });
    ends
}

/// Returns the end of the validity of a certificate, UTC seconds; `None` if it cannot be read.
fn end(place: &CertificatePlace) -> Option<f64> {
    let der = match place {
        CertificatePlace::File(path) => of_file(path)?,
        CertificatePlace::Server {
            host,
            port,
            is_smtp,
        } => of_server(host, *port, *is_smtp).ok()??,
    };

    let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
    Some(certificate.validity().not_after.timestamp() as f64)
}

fn of_file(path: &Path) -> Option<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path).ok()?.next()?.ok()
}

/// Connects, and reads the certificate that the server presents. Sends nothing after it.
fn of_server(host: &str, port: u16, is_smtp: bool) -> io::Result<Option<CertificateDer<'static>>> {
    let address = (host, port).to_socket_addrs()?.next();
    let address = address.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;

    if is_smtp {
        begin_tls_of_smtp(&mut stream)?;
    }

    let seen = Arc::new(PresentedCertificate::default());

    // The handshake is only the way to the certificate, and is ended before a byte of content.
    let config = ClientConfig::builder_with_provider(seen.provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&seen) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();

    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    // It fails: the verifier refuses each certificate.
    let _ = connection.complete_io(&mut stream);
    let mut seen = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(seen.take())
}

/// Speaks SMTP until TLS begins.
fn begin_tls_of_smtp(stream: &mut TcpStream) -> io::Result<()> {
    let mut left = REPLIES_MAX;
    // The greeting, and one reply for each command.
    read_reply(stream, &mut left)?;
    for command in ["EHLO localhost\r\n", "STARTTLS\r\n"] {
        stream.write_all(command.as_bytes())?;
        read_reply(stream, &mut left)?;
    }
    Ok(())
}

/// Reads a reply: lines of which the last has no hyphen after its code.
fn read_reply(stream: &mut TcpStream, left: &mut usize) -> io::Result<()> {
    loop {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            // One byte at a time: bytes that TLS sends after the reply must stay in the stream.
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            line.push(byte[0]);
            // A server that sends lines without an end must not fill the memory.
            *left = left
                .checked_sub(1)
                .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        }

        if line.get(3) != Some(&b'-') {
            return match line.first() {
                Some(b'2') => Ok(()),
                _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
            };
        }
    }
}

/// Keeps the certificate of a server and then ends the handshake: it trusts no one.
#[derive(Debug, Default)]
struct PresentedCertificate(Mutex<Option<CertificateDer<'static>>>);

impl PresentedCertificate {
    fn provider(&self) -> Arc<CryptoProvider> {
        Arc::new(ring::default_provider())
    }
}

/// The end of the handshake.
fn refused<T>() -> Result<T, Error> {
    Err(CertificateError::ApplicationVerificationFailure.into())
}

impl ServerCertVerifier for PresentedCertificate {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = Some(certificate.clone().into_owned());
        refused()
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refused()
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refused()
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = self.provider();
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::ring;
    use std::net::TcpListener;
    use std::process::Command;
    use std::thread;
    use tempfile::tempdir;

    /// A certificate and its key, made by openssl, and the end of its validity.
    fn certificate(folder: &Path) -> Option<(PathBuf, PathBuf)> {
        let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| folder.join(name));

        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
            .args(["ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=lab"])
            .args(["-days", "10", "-out"])
            .arg(&certificate)
            .arg("-keyout")
            .arg(&key)
            .output()
            .ok()?;
        made.status.success().then_some((certificate, key))
    }

    /// Answers one client with TLS, after the replies of a mail server if asked.
    fn serve(certificate: &Path, key: &Path, is_smtp: bool) -> u16 {
        use rustls::pki_types::PrivateKeyDer;
        let chain = CertificateDer::pem_file_iter(certificate).unwrap();
        let key = PrivateKeyDer::from_pem_file(key).unwrap();
        let provider = Arc::new(ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.map(Result::unwrap).collect(), key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();

        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Replies of several lines: only the last one has no hyphen.
            if is_smtp {
                let mut command = [0; 64];
                stream.write_all(b"220-mail\r\n220 ready\r\n").unwrap();
                let _ = stream.read(&mut command).unwrap();
                stream.write_all(b"250-mail\r\n250 STARTTLS\r\n").unwrap();
                let _ = stream.read(&mut command).unwrap();
                stream.write_all(b"220 go ahead\r\n").unwrap();
            }
            let mut connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
            let _ = connection.complete_io(&mut stream);
        });
        port
    }

    #[test]
    fn ends_are_read_from_files_services_and_mail_servers() {
        let folder = tempdir().unwrap();
        let Some((certificate, key)) = certificate(folder.path()) else {
            return;
        };

        let days = |place: &CertificatePlace| {
            let now = jiff::Timestamp::now().as_second() as f64;
            Some(((end(place)? - now) / 86_400.0).round())
        };
        let server = |is_smtp| CertificatePlace::Server {
            host: "127.0.0.1".to_owned(),
            port: serve(&certificate, &key, is_smtp),
            is_smtp,
        };

        assert_eq!(
            days(&CertificatePlace::File(certificate.clone())),
            Some(10.0)
        );
        assert_eq!(days(&server(false)), Some(10.0));
        assert_eq!(days(&server(true)), Some(10.0));
        // A file without a certificate.
        assert_eq!(days(&CertificatePlace::File(key.clone())), None);
        // A mail server that refuses, and one that is not a mail server.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"554 no service\r\n").unwrap();
        });

        let refuses = CertificatePlace::Server {
            host: "127.0.0.1".to_owned(),
            port,
            is_smtp: true,
        };
        assert_eq!(days(&refuses), None);
    }

    #[test]
    fn services_come_from_the_configuration() {
        let config = r#"
            [alerts]
            external_url = "https://takt.lab.example"
            [auth]
            external_url = "https://takt.lab.example/"
            [auth.ldap]
            url = "ldaps://ldap.lab.example"
            base = "dc=lab"
            [email]
            server = "mail.lab.example"
            from = "takt@lab.example"
            [jobs.slurmrestd]
            url = "http://head:6820"
            [sql]
            tls_cert_file = "sql.pem"
            tls_key_file = "sql.key"
        "#;

        let config: Config = toml::from_str(config).unwrap();
        let titles: Vec<String> = services(&config).iter().map(TlsService::title).collect();
        assert_eq!(
            titles,
            [
                "alerts.external_url (takt.lab.example:443)",
                "auth.ldap.url (ldap.lab.example:636)",
                "sql.tls_cert_file (sql.pem)",
                "email.server (mail.lab.example:587)",
            ]
        );

        let target = TlsService::target("[fd00::1]:9855", "g01").unwrap();
        assert_eq!(target.title(), "target ([fd00::1]:9855)");
        assert_eq!(TlsService::target("not an address", "g01"), None);
    }
}
