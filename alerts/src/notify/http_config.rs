//! `http_config` of an Alertmanager configuration, and the secrets and URLs in it.
//!
//! Every key works or is refused by name. Keys that exclude each other are mistakes, as in
//! Alertmanager.

use super::http::{HttpOptions, ProxyPolicy};
use crate::yaml::{Fields, Mistake, Node};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::{Url, tls};
use std::fs;
use std::path::Path;
use std::time::Duration;

const KEYS: &[&str] = &[
    "authorization",
    "basic_auth",
    "bearer_token",
    "bearer_token_file",
    "enable_http2",
    "follow_redirects",
    "http_headers",
    "no_proxy",
    "oauth2",
    "proxy_connect_header",
    "proxy_from_environment",
    "proxy_url",
    "tls_config",
];

const TLS_KEYS: &[&str] = &[
    "ca",
    "ca_file",
    "cert",
    "cert_file",
    "insecure_skip_verify",
    "key",
    "key_file",
    "max_version",
    "min_version",
    "server_name",
];

/// The value of `key`, or the content of the file that `key_file` names, relative to `base`.
///
/// # Errors
/// If both are given, or the file cannot be read or is empty.
pub(super) fn given(node: &Node, key: &str, base: &Path) -> Result<Option<String>, Mistake> {
    match one_of(node, key)? {
        (Some(value), _) => value.text().map(|text| Some(text.to_owned())),
        // Files end with a line feed, which is no part of a token.
        (None, Some(file)) => file_text(file, file.text()?, base)
            .map(Some)
            .map_err(|mistake| mistake.within(format!("`{key}_file`"))),
        (None, None) => Ok(None),
    }
}

/// The content of the file that `node` names, without the white space around it.
fn file_text(node: &Node, file: &str, base: &Path) -> Result<String, Mistake> {
    let path = base.join(file);
    let shown = path.display();
    let text = fs::read_to_string(&path)
        .map_err(|error| node.mistake(format!("cannot read {shown}: {error}")))?;

    // Without a secret every message would be refused, which shows only when one is sent.
    match text.trim() {
        "" => Err(node.mistake(format!("{shown} is empty; expected the value in it"))),
        text => Ok(text.to_owned()),
    }
}

/// The settings `key` and `key_file`; at most one of them can be given.
///
/// # Errors
/// If both are given.
pub(super) fn one_of<'n>(
    node: &'n Node,
    key: &str,
) -> Result<(Option<&'n Node>, Option<&'n Node>), Mistake> {
    let file_key = format!("{key}_file");

    let named = |name: &str| node.get(name).filter(|value| !value.is_null());
    match (named(key), named(&file_key)) {
        (Some(value), Some(_)) => Err(value.mistake(format!(
            "at most one of `{key}` and `{file_key}` can be given"
        ))),
        either => Ok(either),
    }
}

/// The client settings that an `http_config` asks for.
///
/// # Errors
/// At the first invalid or unsupported key.
pub(super) fn http_options(http: &Node, base: &Path) -> Result<HttpOptions, Mistake> {
    let fields: Fields<'_> = http.fields(KEYS)?;
    // HTTP/1.1 is all that Takt speaks; the switch permits HTTP/2, it does not demand it.
    fields.optional("enable_http2", Node::boolean)?;
    if let Some(node) = fields.get("oauth2") {
        return Err(node.mistake(
            "`oauth2` is not supported; use `authorization` with a token from a file, or a proxy \
             that adds the token",
        ));
    }

    let mut options = HttpOptions {
        authorization: authorization(http, &fields, base)?,
        headers: fields
            .optional("http_headers", |node| http_headers(node, base))?
            .unwrap_or_default(),
        proxy: proxy(&fields)?,
        follows_redirects: fields.or_default("follow_redirects", Node::boolean)?,
        ..HttpOptions::default()
    };

    fields.optional("tls_config", |node| tls_config(node, base, &mut options))?;
    Ok(options)
}

/// Headers that the HTTP client or other settings decide on, as in Alertmanager.
const RESERVED_HEADERS: &[&str] = &[
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "user-agent",
    "www-authenticate",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-security-token",
    "x-prometheus-remote-read-version",
    "x-prometheus-remote-write-version",
    "x-prometheus-scrape-timeout-seconds",
];

/// A time limit: a duration of Prometheus (`1d`), or of Go (`1.5s`), which Alertmanager reads here.
///
/// # Errors
/// If the text is neither.
pub(super) fn time_limit(node: &Node) -> Result<Duration, Mistake> {
    // Prometheus reads `1d`, Go does not; Go reads `1.5s`, Prometheus does not.
    let go = node.text().ok().and_then(go_duration);
    node.duration().or_else(|mistake| go.ok_or(mistake))
}

/// Reads `1m30s` or `0.5h`.
fn go_duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 8] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("μs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
    ];

    let mut seconds = 0.0;

    let mut rest = text.strip_prefix('+').unwrap_or(text);
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let count: f64 = rest[..end].parse().ok()?;
        let (unit, length) = UNITS
            .iter()
            .find(|(unit, _)| rest[end..].starts_with(unit))?;
        seconds += count * length;
        rest = &rest[end + unit.len()..];
        if rest.is_empty() {
            return Duration::try_from_secs_f64(seconds).ok();
        }
    }
}

/// `http_headers`: names with `values`, `secrets` and `files`.
fn http_headers(node: &Node, base: &Path) -> Result<Vec<(String, String)>, Mistake> {
    let mut headers = Vec::new();
    for (name, node) in node.pairs()? {
        // Another value would break the request, or would replace what Takt sets itself.
        if RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(node.mistake(format!("the header `{name}` cannot be set")));
        }

        let fields = node.fields(&["values", "secrets", "files"])?;
        for key in ["values", "secrets"] {
            for value in fields.or_default(key, Node::texts)? {
                headers.push((name.to_owned(), value));
            }
        }

        for file in fields.or_default("files", Node::texts)? {
            let text = file_text(node, &file, base)
                .map_err(|mistake| mistake.within(format!("`files` of the header `{name}`")))?;
            headers.push((name.to_owned(), text));
        }
    }
    Ok(headers)
}

fn proxy(fields: &Fields<'_>) -> Result<ProxyPolicy, Mistake> {
    // An empty text is as good as no setting.
    let text = |node: &Node| node.text().map(str::to_owned);
    let url = fields.get("proxy_url").filter(|node| node.text() != Ok(""));
    let except = fields.get("no_proxy").filter(|node| node.text() != Ok(""));
    let headers = fields.get("proxy_connect_header");
    let from_environment = fields.optional("proxy_from_environment", Node::boolean)?;

    match (url, from_environment) {
        (Some(node), Some(true)) => {
            Err(node.mistake("`proxy_url` and `proxy_from_environment` exclude each other"))
        }
        (Some(node), _) => {
            let headers = headers.map(http_connect_headers).transpose()?;
            Ok(ProxyPolicy::Url {
                url: proxy_address(node)?,
                except: except.map(text).transpose()?.unwrap_or_default(),
                headers: headers.unwrap_or_default(),
            })
        }
        (None, environment) => {
            // Without a proxy they would be ignored in silence.
            let needs_proxy = [("no_proxy", except), ("proxy_connect_header", headers)];
            if let Some((key, node)) = needs_proxy
                .into_iter()
                .find_map(|(key, node)| node.map(|node| (key, node)))
            {
                return Err(node.mistake(format!("`{key}` needs `proxy_url`")));
            }
            // Alertmanager's default is false; Takt's is the environment, for every channel alike.
            Ok(match environment {
                Some(false) => ProxyPolicy::Direct,
                Some(true) | None => ProxyPolicy::Environment,
            })
        }
    }
}

/// `proxy_connect_header`: names with a list of values each.
fn http_connect_headers(node: &Node) -> Result<Vec<(String, String)>, Mistake> {
    let mut headers = Vec::new();
    for (name, values) in node.pairs()? {
        let values = values.texts()?;
        headers.extend(values.into_iter().map(|value| (name.to_owned(), value)));
    }
    Ok(headers)
}

fn proxy_address(node: &Node) -> Result<String, Mistake> {
    let text = node.text()?;
    let is_http = Url::parse(text)
        .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if is_http {
        Ok(text.to_owned())
    } else {
        // The URL may contain a password.
        Err(node.mistake("expected a proxy such as http://proxy.example:3128"))
    }
}

fn tls_config(node: &Node, base: &Path, options: &mut HttpOptions) -> Result<(), Mistake> {
    let fields = node.fields(TLS_KEYS)?;
    if fields.or_default("insecure_skip_verify", Node::boolean)? {
        return Err(
            node.mistake("takt always checks certificates; name the authority in `ca_file`")
        );
    }
    if let Some(name) = fields.get("server_name") {
        return Err(name.mistake(
            "`server_name` is not supported; use the name in the certificate in the URL",
        ));
    }

    options.authorities = given(node, "ca", base)?.map(String::into_bytes);
    // The client takes both in one text.
    options.identity = match (given(node, "cert", base)?, given(node, "key", base)?) {
        (Some(certificate), Some(key)) => Some(format!("{certificate}\n{key}\n").into_bytes()),
        (None, None) => None,
        _ => return Err(node.mistake("a client certificate needs both `cert` and `key`")),
    };

    options.min_tls_version = fields.optional("min_version", tls_version)?.flatten();
    // A newest version before 1.2 leaves no version in common.
    options.max_tls_version = fields.optional("max_version", |node| {
        tls_version(node)?.map_or_else(|| Err(node.mistake("takt speaks TLS 1.2 and 1.3 only")), Ok)
    })?;
    Ok(())
}

/// A TLS version; `None` for those before 1.2, which Takt never speaks.
fn tls_version(node: &Node) -> Result<Option<tls::Version>, Mistake> {
    match node.text()? {
        "TLS10" | "TLS11" => Ok(None),
        "TLS12" => Ok(Some(tls::Version::TLS_1_2)),
        "TLS13" => Ok(Some(tls::Version::TLS_1_3)),
        other => Err(node.mistake(format!("`{other}` is not a version such as `TLS12`"))),
    }
}

/// The value of the header `Authorization`, if the settings ask for one.
///
/// # Errors
/// If a setting is invalid, or two settings exclude each other.
fn authorization(http: &Node, fields: &Fields<'_>, base: &Path) -> Result<Option<String>, Mistake> {
    let bearer = given(http, "bearer_token", base)?.filter(|token| !token.is_empty());
    let others = [fields.get("basic_auth"), fields.get("authorization")];

    if others.into_iter().flatten().count() + usize::from(bearer.is_some()) > 1 {
        return Err(http.mistake(
            "at most one of `authorization`, `basic_auth` and `bearer_token` can be given",
        ));
    }

    if let Some(basic) = fields.get("basic_auth") {
        basic.fields(&["username", "username_file", "password", "password_file"])?;
        let user = given(basic, "username", base)?.unwrap_or_default();
        let password = given(basic, "password", base)?.unwrap_or_default();
        return Ok(Some(format!(
            "Basic {}",
            BASE64_STANDARD.encode(format!("{user}:{password}"))
        )));
    }

    let Some(node) = fields.get("authorization") else {
        return Ok(bearer.map(|token| format!("Bearer {token}")));
    };
    node.fields(&["type", "credentials", "credentials_file"])?;
    let kind = given(node, "type", base)?.unwrap_or_default();
    // Basic needs a name and a password, not one secret.
    match kind.trim() {
        basic if basic.eq_ignore_ascii_case("basic") => {
            Err(node.mistake("`type` cannot be `Basic`; `basic_auth` has a user and a password"))
        }
        kind => {
            let kind = if kind.is_empty() { "Bearer" } else { kind };
            Ok(given(node, "credentials", base)?.map(|secret| format!("{kind} {secret}")))
        }
    }
}

/// Checks that a URL can be posted to.
///
/// # Errors
/// If it is not an absolute HTTP URL. The value may be a secret and is not repeated.
pub(super) fn address(settings: &Node, url: String) -> Result<String, Mistake> {
    let is_http = Url::parse(&url).is_ok_and(|parsed| {
        matches!(parsed.scheme(), "http" | "https")
            && url[parsed.scheme().len()..].starts_with("://")
    });

    // The crate `url` reads more than Go does, such as `http:x` and `http://x\y`.
    let host = url.split_once("://").map_or("", |(_, rest)| rest);
    let has_stray = url.contains(|c: char| c.is_whitespace() || c == '\\');
    let is_escape = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    let has_escapes = host.split('%').skip(1).all(is_escape);

    if is_http && !host.starts_with(['/', '?', '#']) && !has_stray && has_escapes {
        Ok(url)
    } else {
        Err(settings.mistake("expected an address that begins with http:// or https://"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::tempdir;

    #[test]
    fn at_most_one_authorization() {
        for (text, expected) in [
            ("{}", Ok(None)),
            ("{authorization: {}}", Ok(None)),
            (
                "{basic_auth: {username: a, password: b}}",
                Ok(Some("Basic YTpi")),
            ),
            ("{bearer_token: x, basic_auth: }", Ok(Some("Bearer x"))),
            (
                "{authorization: {type: '', credentials: x}}",
                Ok(Some("Bearer x")),
            ),
            (
                "{authorization: {type: Token, credentials: x}, bearer_token: ''}",
                Ok(Some("Token x")),
            ),
            (
                "{basic_auth: {username: a, password: b, password_file: c}}",
                Err("at most one of `password`"),
            ),
            (
                "{bearer_token: x, basic_auth: {username: a}}",
                Err("at most one of `authorization`"),
            ),
            (
                "{bearer_token: x, bearer_token_file: y}",
                Err("at most one of `bearer_token`"),
            ),
            (
                "{authorization: {type: ' BASIC '}}",
                Err("`basic_auth` has a user"),
            ),
            ("{follow_redirects: x}", Err("neither true nor false")),
            ("{proxy_ur: 'http://x'}", Err("unknown key `proxy_ur`")),
            ("{authorization: []}", Err("expected a mapping")),
            ("x", Err("expected a mapping")),
        ] {
            // No file exists here, so only the settings are judged.
            let found = http_options(&Node::read(text).unwrap(), Path::new("/nonexistent"))
                .map(|options| options.authorization);
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.as_deref(), expected, "{text}"),
                (Err(found), Err(said)) => {
                    assert!(found.to_string().contains(said), "{text}: {found}")
                }
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn every_key_works_or_is_refused_by_name() {
        let folder = tempdir().unwrap();

        fs::write(folder.path().join("ca.pem"), "PEM\n").unwrap();
        fs::write(folder.path().join("token"), "s3cret\n").unwrap();
        let options = |text: &str| {
            http_options(&Node::read(text).unwrap(), folder.path())
                .map_err(|mistake| mistake.to_string())
        };

        let headers =
            options("{http_headers: {X-Scope: {values: [a, b], secrets: [c], files: [token]}}}");
        let expected = ["a", "b", "c", "s3cret"];
        let expected = expected.map(|value| ("X-Scope".to_owned(), value.to_owned()));
        assert_eq!(headers.unwrap().headers, expected);

        let proxy = |text: &str| options(text).map(|options| options.proxy);
        assert_eq!(proxy("{}"), Ok(ProxyPolicy::Environment));
        assert_eq!(
            proxy("{proxy_from_environment: true}"),
            Ok(ProxyPolicy::Environment)
        );
        assert_eq!(
            proxy("{proxy_from_environment: false}"),
            Ok(ProxyPolicy::Direct)
        );

        let named = "{proxy_url: 'http://p:1', no_proxy: 'a,b', proxy_connect_header: {X: [y]}}";
        let expected = ProxyPolicy::Url {
            url: "http://p:1".to_owned(),
            except: "a,b".to_owned(),
            headers: vec![("X".to_owned(), "y".to_owned())],
        };
        assert_eq!(proxy(named), Ok(expected));

        let tls = options("{tls_config: {ca_file: ca.pem, min_version: TLS13}}").unwrap();
        assert_eq!(tls.authorities.as_deref(), Some(b"PEM".as_slice()));
        assert_eq!(tls.min_tls_version, Some(tls::Version::TLS_1_3));
        let tls = options("{tls_config: {cert: C, key: K}}").unwrap();
        assert_eq!(tls.identity.as_deref(), Some(b"C\nK\n".as_slice()));

        assert!(
            options("{follow_redirects: true}")
                .unwrap()
                .follows_redirects
        );
        assert!(!options("{}").unwrap().follows_redirects);

        for (text, said) in [
            ("{oauth2: {client_id: x}}", "`oauth2` is not supported"),
            ("{no_proxy: a}", "`no_proxy` needs `proxy_url`"),
            ("{proxy_connect_header: {a: [b]}}", "needs `proxy_url`"),
            (
                "{proxy_url: 'http://p', proxy_from_environment: true}",
                "exclude each other",
            ),
            ("{proxy_url: 'socks5://p:1'}", "expected a proxy"),
            (
                "{tls_config: {insecure_skip_verify: true}}",
                "always checks",
            ),
            (
                "{tls_config: {server_name: x}}",
                "`server_name` is not supported",
            ),
            ("{tls_config: {cert: x}}", "needs both"),
            ("{tls_config: {ca: x, ca_file: y}}", "at most one of `ca`"),
            ("{tls_config: {ca_file: gone}}", "cannot read"),
            ("{tls_config: {min_version: TLS9}}", "not a version"),
            ("{tls_config: {max_version: TLS11}}", "TLS 1.2 and 1.3 only"),
            ("{http_headers: {X: {value: [a]}}}", "unknown key `value`"),
            (
                "{http_headers: {host: {values: [a]}}}",
                "`host` cannot be set",
            ),
        ] {
            let found = options(text).err().unwrap_or_default();
            assert!(found.contains(said), "{text}: {found:?}");
        }
    }

    #[test]
    fn time_limits_are_those_of_go() {
        let read = |text: &str| time_limit(&Node::read(text).unwrap()).ok();
        for (text, milliseconds) in [
            ("1.5s", 1_500),
            ("1m30s", 90_000),
            ("+.5h", 1_800_000),
            ("1s500ms", 1_500),
            ("2000us", 2),
            ("1d", 86_400_000),
            ("0s", 0),
        ] {
            assert_eq!(
                read(text),
                Some(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for text in ["soon", "1.5", "1.5.s", "s", "-1s", "1.5s2"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn addresses() {
        for url in [
            "http://x",
            "HTTPS://user:pw@x:80/y?z=1#f",
            "http://[::1]:80/",
            "http://bücher.example/",
        ] {
            assert!(address(&Node::empty(), url.to_owned()).is_ok(), "{url}");
        }
        for url in [
            "",
            "x",
            "//x",
            "ftp://x",
            "http://",
            "http:///x",
            "http:x",
            "http://x y",
            "http://x:port",
            "http://[::1",
            "http://x\\y",
            "http://?x",
        ] {
            assert!(address(&Node::empty(), url.to_owned()).is_err(), "{url}");
        }
    }

    #[test]
    fn an_empty_secret_file_is_named_with_its_key() {
        let folder = tempdir().unwrap();
        fs::write(folder.path().join("empty"), " \n").unwrap();
        let empty = folder.path().join("empty").display().to_string();

        let mistake = |text: &str| {
            let node = Node::read(text).unwrap();
            let found = given(&node, "api_url", folder.path()).map(drop);
            let found = found.and_then(|()| http_options(&node, folder.path()).map(drop));
            found.unwrap_err().to_string()
        };
        for (text, says) in [
            (
                "{api_url_file: empty}",
                format!("`api_url_file`: {empty} is empty; expected the value in it"),
            ),
            (
                "{api_url_file: gone}",
                "`api_url_file`: cannot read".to_owned(),
            ),
            (
                "{authorization: {credentials_file: empty}}",
                format!("`credentials_file`: {empty} is empty"),
            ),
            (
                "{http_headers: {X-Key: {files: [empty]}}}",
                format!("`files` of the header `X-Key`: {empty} is empty"),
            ),
        ] {
            let message = mistake(text);
            assert!(message.contains(&says), "{text} gave {message}");
        }
    }
}
