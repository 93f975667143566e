//! `email_configs` and the global `smtp_*` settings, as Alertmanager reads them.

use super::Email;
use crate::notify::Wording;
use crate::notify::channels::ChannelContext;
use crate::notify::looks::check_headers;
use crate::yaml::{Fields, Mistake, Node};
use std::path::PathBuf;
use std::sync::Arc;
use takt_mail::{EmailConfig, Mailer, MinTlsVersion, SmtpLogin, SmtpOptions, TlsMode};
use takt_model::error_chain;

/// Settings that are templates of a mail's parts.
pub(in crate::notify) const WORDING_KEYS: &[&str] = &["html", "text"];

const KEYS: &[&str] = &[
    "send_resolved",
    "to",
    "from",
    "hello",
    "smarthost",
    "auth_username",
    "auth_password",
    "auth_password_file",
    "auth_secret",
    "auth_secret_file",
    "auth_identity",
    "require_tls",
    "force_implicit_tls",
    "tls_config",
    "threading",
    "headers",
    "html",
    "text",
];

const TLS_KEYS: &[&str] = &[
    "ca",
    "ca_file",
    "cert",
    "cert_file",
    "key",
    "key_file",
    "server_name",
    "insecure_skip_verify",
    "min_version",
    "max_version",
];

/// Reads the settings of one address.
///
/// # Errors
/// At the first invalid or unsupported setting.
pub(super) fn read(
    settings: &Node,
    context: &ChannelContext<'_>,
) -> Result<(Email, Arc<Mailer>), Mistake> {
    let fields = settings.fields(KEYS)?;
    let to = fields.require("to")?.text()?.to_owned();
    // An own server, or else the one of `[email]` in takt.toml.
    let mailer = match smarthost(settings, &fields, context)? {
        Some(mailer) => Arc::new(mailer),
        None => context.mailer(settings)?,
    };

    mailer
        .check(&to)
        .map_err(|error| settings.mistake(error_chain(&error)))?;

    let headers = fields.get("headers").cloned().unwrap_or_else(Node::empty);
    check_headers(&headers)?;
    let mut wording = Wording::read(&context.templates, settings, WORDING_KEYS);
    for (name, node) in headers.pairs()? {
        match name.to_ascii_lowercase().as_str() {
            "subject" => wording.add("subject", node),
            // The envelope has sender and recipient.
            "from" | "to" | "reply-to" => {}
            _ => tracing::warn!(
                name,
                line = node.line(),
                "ignoring this mail header; Takt writes its own headers"
            ),
        }
    }

    let email = Email {
        to,
        domain: mailer.domain().to_owned(),
        wording,
        is_threaded: threading(&fields, &headers)?,
    };
    Ok((email, mailer))
}

/// Whether mails form threads: yes, unless `threading` says `enabled: false`.
///
/// # Errors
/// Where Alertmanager refuses `threading`.
fn threading(fields: &Fields<'_>, headers: &Node) -> Result<bool, Mistake> {
    let Some(node) = fields.get("threading") else {
        return Ok(true);
    };
    let threading = node.fields(&["enabled", "thread_by_date"])?;
    let is_enabled = threading.or_default("enabled", Node::boolean)?;
    let by_date = threading.or_default("thread_by_date", Node::text)?;

    if !is_enabled {
        return Ok(false);
    }
    // Takt sets these headers for its own threads.
    let has_header = |wanted: &str| {
        headers
            .pairs()
            .into_iter()
            .flatten()
            .any(|(name, _)| name.eq_ignore_ascii_case(wanted))
    };
    for header in ["References", "In-Reply-To"] {
        if has_header(header) {
            return Err(node.mistake(format!("`threading` conflicts with the header `{header}`")));
        }
    }
    match by_date {
        "none" => Ok(true),
        "daily" => Err(node.mistake(
            "`thread_by_date: daily` is not supported: a thread lasts as long as its alerts; \
             use `none`",
        )),
        _ => Err(node.mistake("`thread_by_date` must be `none` or `daily`")),
    }
}

/// The mailer for the mail server in these settings or in `global`; `None` if neither names one.
fn smarthost(
    settings: &Node,
    fields: &Fields<'_>,
    context: &ChannelContext<'_>,
) -> Result<Option<Mailer>, Mistake> {
    // The receiver's own setting, or else the global one; an empty text is no setting.
    let text = |key: &str| -> Result<Option<String>, Mistake> {
        match fields.or_default(key, Node::text)? {
            "" => {
                let shared = context
                    .global_text(&format!("smtp_{key}"))?
                    .filter(|text| !text.is_empty());
                Ok(shared)
            }
            text => Ok(Some(text.to_owned())),
        }
    };

    refuse_cram_md5(settings, context)?;
    let Some(server) = text("smarthost")? else {
        return without_smarthost(fields).map(|()| None);
    };
    let named_at = fields.get("smarthost").unwrap_or(settings);
    check_port(named_at, &server)?;

    let switch = |key: &str| -> Result<Option<bool>, Mistake> {
        let shared = context.global_node(&format!("smtp_{key}"));
        fields.get(key).or(shared).map(Node::boolean).transpose()
    };

    let requires_tls = switch("require_tls")?.unwrap_or(true);
    // Port 465 is SMTP over TLS from the first byte.
    let is_implicit = switch("force_implicit_tls")?.unwrap_or(server.ends_with(":465"));
    let mode = if is_implicit {
        TlsMode::Tls
    } else if requires_tls {
        TlsMode::StartTls
    } else {
        TlsMode::None
    };

    let tls = fields
        .get("tls_config")
        .or(context.global_node("smtp_tls_config"))
        .map_or(Ok(TlsSettings::default()), |node| {
            tls_settings(node, context)
        })?;

    let password = match context.secret(settings, "auth_password")? {
        Some(password) => Some(password),
        None => context.global_secret("smtp_auth_password")?,
    };
    // An identity equal to the user is the usual login, and is left out.
    let identity = text("auth_identity")?;
    let login = text("auth_username")?
        .zip(password)
        .map(|(user, password)| SmtpLogin {
            identity: identity.filter(|identity| *identity != user),
            user,
            password,
        });

    let config = EmailConfig {
        server,
        tls: Some(mode),
        from: text("from")?.unwrap_or_default(),
        ca_file: tls.ca_file,
        ..EmailConfig::default()
    };

    let options = SmtpOptions {
        login,
        hello: text("hello")?,
        server_name: tls.server_name,
        min_tls_version: tls.min_version,
    };

    Mailer::with_options(&config, options)
        .map(Some)
        .map_err(|error| settings.mistake(error_chain(&error)))
}

/// Mail through `[email]` of takt.toml: settings of another server would have no effect.
fn without_smarthost(fields: &Fields<'_>) -> Result<(), Mistake> {
    let keys = [
        "from",
        "hello",
        "auth_username",
        "auth_password",
        "auth_password_file",
        "auth_identity",
        "require_tls",
        "force_implicit_tls",
        "tls_config",
    ];
    match keys
        .iter()
        .find_map(|key| fields.get(key).map(|at| (key, at)))
    {
        Some((key, node)) => Err(node.mistake(format!(
            "`{key}` needs `smarthost`: without it mail goes through `[email]` of takt.toml"
        ))),
        None => Ok(()),
    }
}

/// lettre has no CRAM-MD5.
fn refuse_cram_md5(settings: &Node, context: &ChannelContext<'_>) -> Result<(), Mistake> {
    let nodes = [
        (settings.get("auth_secret"), "auth_secret"),
        (settings.get("auth_secret_file"), "auth_secret_file"),
        (context.global_node("smtp_auth_secret"), "smtp_auth_secret"),
        (
            context.global_node("smtp_auth_secret_file"),
            "smtp_auth_secret_file",
        ),
    ];
    for (node, key) in nodes {
        if let Some(node) = node.filter(|node| !node.is_null()) {
            return Err(node.mistake(format!(
                "`{key}` (CRAM-MD5) is not supported; use a password (LOGIN or PLAIN)"
            )));
        }
    }
    Ok(())
}

#[derive(Default)]
struct TlsSettings {
    ca_file: Option<PathBuf>,
    server_name: Option<String>,
    min_version: MinTlsVersion,
}

fn tls_settings(node: &Node, context: &ChannelContext<'_>) -> Result<TlsSettings, Mistake> {
    let fields = node.fields(TLS_KEYS)?;
    // lettre cannot be given these, and a setting without effect would mislead.
    for key in ["ca", "cert", "cert_file", "key", "key_file", "max_version"] {
        if let Some(at) = fields.get(key) {
            return Err(at.mistake(format!("`{key}` is not supported for mail servers")));
        }
    }

    if fields.or_default("insecure_skip_verify", Node::boolean)? {
        return Err(
            node.mistake("takt always checks certificates; name the authority in `ca_file`")
        );
    }
    let path = |file: &Node| file.text().map(|file| context.base.join(file));
    Ok(TlsSettings {
        ca_file: fields.optional("ca_file", path)?,
        server_name: fields.optional("server_name", |name| name.text().map(str::to_owned))?,
        min_version: fields.or_default("min_version", min_version)?,
    })
}

/// TLS 1.2 is the oldest version that Takt speaks, so older minimums are met.
fn min_version(node: &Node) -> Result<MinTlsVersion, Mistake> {
    match node.text()? {
        "TLS10" | "TLS11" | "TLS12" => Ok(MinTlsVersion::Tls12),
        "TLS13" => Ok(MinTlsVersion::Tls13),
        other => Err(node.mistake(format!("`{other}` is not a version such as `TLS12`"))),
    }
}

/// Checks `smtp_tls_config`, which must be valid even if no receiver uses it.
///
/// # Errors
/// At the first invalid or unsupported key.
pub(in crate::notify) fn check_tls(
    node: &Node,
    context: &ChannelContext<'_>,
) -> Result<(), Mistake> {
    tls_settings(node, context).map(drop)
}

/// Checks that a mail server is named with its port, as Alertmanager requires.
///
/// # Errors
/// If the port is missing.
pub(in crate::notify) fn check_port(node: &Node, server: &str) -> Result<(), Mistake> {
    match server.rsplit_once(':') {
        _ if server.is_empty() => Ok(()),
        Some((_, port)) if !port.is_empty() && !port.ends_with(']') => Ok(()),
        _ => Err(node.mistake("expected HOST:PORT")),
    }
}
