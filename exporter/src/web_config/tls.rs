//! `tls_server_config`: certificates, clients, versions and ciphers, as a configuration of rustls.

use super::KeyProblem;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `tls_server_config` as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TlsFile {
    cert: String,
    key: String,
    client_ca: String,
    cert_file: String,
    key_file: String,
    client_ca_file: String,
    client_auth_type: String,
    client_allowed_sans: Vec<String>,
    min_version: String,
    max_version: String,
    cipher_suites: Vec<String>,
    curve_preferences: Vec<String>,
    /// Accepted without effect: the server's order always counts.
    #[allow(dead_code, reason = "it is a key of the format")]
    prefer_server_cipher_suites: Option<bool>,
}

fn problem(key: &str, problem: impl Into<String>) -> KeyProblem {
    (format!("tls_server_config.{key}"), problem.into())
}

impl TlsFile {
    /// Whether the section configures TLS: it has a certificate, a key or client certificates.
    pub fn is_enabled(&self) -> bool {
        let Self {
            cert,
            key,
            client_ca,
            cert_file,
            key_file,
            client_ca_file,
            client_auth_type,
            ..
        } = self;
        // As in the exporter-toolkit, versions and ciphers alone do not turn TLS on.
        [
            cert,
            key,
            client_ca,
            cert_file,
            key_file,
            client_ca_file,
            client_auth_type,
        ]
        .iter()
        .any(|text| !text.is_empty())
    }

    /// The files named in the section, relative to the configuration's directory.
    pub fn files(&self, directory: &Path) -> impl Iterator<Item = PathBuf> {
        let named = [&self.cert_file, &self.key_file, &self.client_ca_file];
        let named = named.into_iter().filter(|file| !file.is_empty());
        named.map(|file| directory.join(file))
    }

    /// The configuration for rustls.
    ///
    /// # Errors
    /// When a key is missing or wrong, or a file cannot be used.
    pub fn build(&self, directory: &Path) -> Result<ServerConfig, KeyProblem> {
        // Both keys are checked before a file is read.
        for (key, inline, file) in [
            ("cert", &self.cert, &self.cert_file),
            ("key", &self.key, &self.key_file),
        ] {
            if inline.is_empty() && file.is_empty() {
                return Err(missing(key));
            }
        }

        let chain = pem("cert", &self.cert, &self.cert_file, directory)?;
        let chain = certificates("cert_file", &chain)?;
        let key = pem("key", &self.key, &self.key_file, directory)?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| {
            let reason = format!("expected a private key in PEM: {error}");
            problem("key_file", reason)
        })?;

        let provider = Arc::new(self.provider()?);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&self.versions()?)
            .map_err(|error| problem("cipher_suites", error.to_string()))?;
        let builder = match self.client_verifier(directory, provider)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };

        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| problem("key_file", format!("does not fit cert_file: {error}")))?;

        // The exporter has no HTTP/2 that it could offer.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// The check of client certificates; `None` where none are asked for.
    fn client_verifier(
        &self,
        directory: &Path,
        provider: Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, KeyProblem> {
        let is_optional = match self.client_auth_type.as_str() {
            // The author of a client CA expects that clients are checked.
            "" | "NoClientCert" if self.has_client_ca() => {
                let reason = "missing, though client_ca_file is set";
                return Err(problem("client_auth_type", reason));
            }
            "" | "NoClientCert" => {
                self.refuse_allowed_sans()?;
                return Ok(None);
            }
            "RequireAndVerifyClientCert" => false,
            "VerifyClientCertIfGiven" => true,
            other => {
                let expected =
                    "expected NoClientCert, VerifyClientCertIfGiven or RequireAndVerifyClientCert";
                let reason = format!("{other}: {expected}; others trust unknown certificates");
                return Err(problem("client_auth_type", reason));
            }
        };

        let inline = &self.client_ca;
        let pem = pem("client_ca", inline, &self.client_ca_file, directory)?;

        let wrong = |error: &dyn std::error::Error| problem("client_ca_file", error.to_string());
        let mut roots = RootCertStore::empty();
        for root in certificates("client_ca_file", &pem)? {
            roots.add(root).map_err(|error| wrong(&error))?;
        }

        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = if is_optional {
            verifier.allow_unauthenticated()
        } else {
            verifier
        };
        let verifier = verifier.build().map_err(|error| wrong(&error))?;

        self.refuse_allowed_sans()?;

        Ok(Some(verifier))
    }

    fn refuse_allowed_sans(&self) -> Result<(), KeyProblem> {
        if self.client_allowed_sans.is_empty() {
            return Ok(());
        }
        Err(problem(
            "client_allowed_sans",
            "not supported; give these clients a client_ca_file of their own",
        ))
    }

    fn has_client_ca(&self) -> bool {
        !self.client_ca.is_empty() || !self.client_ca_file.is_empty()
    }

    /// Protocol versions from `min_version` to `max_version`; never one before 1.2.
    fn versions(&self) -> Result<Vec<&'static SupportedProtocolVersion>, KeyProblem> {
        let number = |key: &str, text: &str, default: u8| match text {
            "" => Ok(default),
            // rustls has neither of these, so they only widen the range.
            "TLS10" => Ok(10),
            "TLS11" => Ok(11),
            "TLS12" => Ok(12),
            "TLS13" => Ok(13),
            other => Err(problem(key, format!("{other}: expected TLS12 or TLS13"))),
        };
        let least = number("min_version", &self.min_version, 12)?;
        let most = number("max_version", &self.max_version, 13)?;

        let versions: Vec<_> = [(12, &TLS12), (13, &TLS13)]
            .into_iter()
            .filter(|(version, _)| (least..=most).contains(version))
            .map(|(_, supported)| supported)
            .collect();

        if versions.is_empty() {
            let reason = "expected TLS12 or TLS13, and not before min_version";
            return Err(problem("max_version", reason));
        }
        Ok(versions)
    }

    /// Ciphers and curves. As in Go, the list of ciphers restricts TLS 1.2 only.
    fn provider(&self) -> Result<CryptoProvider, KeyProblem> {
        let mut provider = ring::default_provider();
        // Go's names of the ciphers of TLS 1.3 have another prefix than rustls' names.
        let name = |suite: &rustls::SupportedCipherSuite| {
            format!("{:?}", suite.suite()).replace("TLS13_", "TLS_")
        };
        let known: Vec<_> = provider.cipher_suites.iter().map(name).collect();

        for suite in &self.cipher_suites {
            if !known.contains(suite) {
                return Err(problem(
                    "cipher_suites",
                    format!("{suite}: expected one of {}", known.join(", ")),
                ));
            }
        }
        if !self.cipher_suites.is_empty() {
            provider.cipher_suites.retain(|suite| {
                suite.tls13().is_some() || self.cipher_suites.contains(&name(suite))
            });
        }

        // The names of Go, and those of rustls.
        let groups = [
            ("X25519", "X25519"),
            ("CurveP256", "secp256r1"),
            ("CurveP384", "secp384r1"),
        ];
        for curve in &self.curve_preferences {
            if !groups.iter().any(|(go, _)| go == curve) {
                return Err(problem(
                    "curve_preferences",
                    format!("{curve}: expected X25519, CurveP256 or CurveP384"),
                ));
            }
        }

        if !self.curve_preferences.is_empty() {
            let wanted = |name: &str| {
                groups.iter().any(|(go, own)| {
                    *own == name && self.curve_preferences.iter().any(|curve| curve == go)
                })
            };
            provider
                .kx_groups
                .retain(|group| wanted(&format!("{:?}", group.name())));
        }
        Ok(provider)
    }
}

/// The PEM text of a key of the section: written in place, or in the file of `KEY_file`.
fn pem(key: &str, inline: &str, file: &str, directory: &Path) -> Result<Vec<u8>, KeyProblem> {
    if !inline.is_empty() {
        return Ok(inline.as_bytes().to_vec());
    }
    if file.is_empty() {
        return Err(missing(key));
    }
    let path = directory.join(file);
    std::fs::read(&path).map_err(|error| {
        let reason = format!("cannot read {}: {error}", path.display());
        problem(&format!("{key}_file"), reason)
    })
}

fn missing(key: &str) -> KeyProblem {
    let reason = format!("missing; expected it or {key}");
    problem(&format!("{key}_file"), reason)
}

fn certificates(key: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, KeyProblem> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(problem(key, "expected certificates in PEM, found none")),
        Err(error) => Err(problem(
            key,
            format!("expected certificates in PEM: {error}"),
        )),
    }
}
