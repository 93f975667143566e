//! `tls_server_config`: certificates, clients, versions and ciphers, as a configuration of rustls.

use super::Problem;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `tls_server_config`, as it is written.
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
    /// The server's order counts in any case.
    #[allow(dead_code, reason = "it is a key of the format")]
    prefer_server_cipher_suites: Option<bool>,
}

fn problem(key: &str, problem: impl Into<String>) -> Problem {
    (format!("tls_server_config.{key}"), problem.into())
}

impl TlsFile {
    /// A section without certificate, key and clients is none.
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

    /// The files that it names, relative to the configuration's directory.
    pub fn files(&self, directory: &Path) -> impl Iterator<Item = PathBuf> {
        let named = [&self.cert_file, &self.key_file, &self.client_ca_file];
        named
            .into_iter()
            .filter(|file| !file.is_empty())
            .map(|file| directory.join(file))
    }

    pub fn build(&self, directory: &Path) -> Result<ServerConfig, Problem> {
        let pem = |key: &'static str, inline: &str, file: &str| match (inline, file) {
            ("", "") => Err(problem(
                &format!("{key}_file"),
                format!("missing; expected it or {key}"),
            )),
            ("", file) => {
                let path = directory.join(file);
                let read = std::fs::read(&path);
                read.map_err(|error| {
                    problem(
                        &format!("{key}_file"),
                        format!("cannot read {}: {error}", path.display()),
                    )
                })
            }
            (inline, _) => Ok(inline.as_bytes().to_vec()),
        };
        // Both keys are looked for before either is read.
        for (key, inline, file) in [
            ("cert", &self.cert, &self.cert_file),
            ("key", &self.key, &self.key_file),
        ] {
            if inline.is_empty() && file.is_empty() {
                pem(key, "", "")?;
            }
        }
        let chain = certificates("cert_file", &pem("cert", &self.cert, &self.cert_file)?)?;
        let key = PrivateKeyDer::from_pem_slice(&pem("key", &self.key, &self.key_file)?).map_err(
            |error| {
                problem(
                    "key_file",
                    format!("expected a private key in PEM: {error}"),
                )
            },
        )?;

        let provider = Arc::new(self.provider()?);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&self.versions()?)
            .map_err(|error| problem("cipher_suites", error.to_string()))?;
        let builder = match (self.client_auth_type.as_str(), self.has_client_ca()) {
            ("" | "NoClientCert", false) => builder.with_no_client_auth(),
            ("" | "NoClientCert", true) => {
                return Err(problem(
                    "client_auth_type",
                    "missing, though there is a client_ca_file",
                ));
            }
            (kind @ ("RequireAndVerifyClientCert" | "VerifyClientCertIfGiven"), _) => {
                let mut roots = RootCertStore::empty();
                for root in certificates(
                    "client_ca_file",
                    &pem("client_ca", &self.client_ca, &self.client_ca_file)?,
                )? {
                    roots
                        .add(root)
                        .map_err(|error| problem("client_ca_file", error.to_string()))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if kind.starts_with("Verify") {
                    verifier.allow_unauthenticated()
                } else {
                    verifier
                };
                let verifier = verifier
                    .build()
                    .map_err(|error| problem("client_ca_file", error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
            (other, _) => {
                let expected =
                    "expected NoClientCert, VerifyClientCertIfGiven or RequireAndVerifyClientCert";
                return Err(problem(
                    "client_auth_type",
                    format!("{other}: {expected}; others trust unknown certificates"),
                ));
            }
        };
        if !self.client_allowed_sans.is_empty() {
            return Err(problem(
                "client_allowed_sans",
                "not supported; give these clients a client_ca_file of their own",
            ));
        }
        let config = builder.with_single_cert(chain, key);
        let mut config = config
            .map_err(|error| problem("key_file", format!("does not fit cert_file: {error}")))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    fn has_client_ca(&self) -> bool {
        !self.client_ca.is_empty() || !self.client_ca_file.is_empty()
    }

    /// Versions before 1.2 are not spoken, whatever the least is that the file allows.
    fn versions(&self) -> Result<Vec<&'static SupportedProtocolVersion>, Problem> {
        let number = |key: &str, text: &str, default: u8| match text {
            "" => Ok(default),
            "TLS10" => Ok(10),
            "TLS11" => Ok(11),
            "TLS12" => Ok(12),
            "TLS13" => Ok(13),
            other => Err(problem(key, format!("{other}: expected TLS12 or TLS13"))),
        };
        let (least, most) = (
            number("min_version", &self.min_version, 12)?,
            number("max_version", &self.max_version, 13)?,
        );
        let versions: Vec<_> = [(12, &TLS12), (13, &TLS13)]
            .into_iter()
            .filter_map(|(version, supported)| {
                (least..=most).contains(&version).then_some(supported)
            })
            .collect();
        match versions.is_empty() {
            true => Err(problem(
                "max_version",
                "expected TLS12 or TLS13, and not before min_version",
            )),
            false => Ok(versions),
        }
    }

    /// As in Go, the list is about TLS 1.2; those of 1.3 are all good.
    fn provider(&self) -> Result<CryptoProvider, Problem> {
        let mut provider = ring::default_provider();
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

fn certificates(key: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Problem> {
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
