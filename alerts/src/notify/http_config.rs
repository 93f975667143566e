//! `http_config` of an Alertmanager configuration, and the secrets and addresses in it.
//!
//! What stands beside each other and cannot both hold is a mistake, as in Alertmanager; what we do not do (proxies,
//! OAuth, own certificates) is an unknown key.

use crate::yaml::{Fields, Mistake, Node};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::Url;
use std::path::Path;

const KEYS: &[&str] = &[
    "authorization",
    "basic_auth",
    "bearer_token",
    "bearer_token_file",
    "follow_redirects",
    "enable_http2",
];

/// The value of `key`, or what is in the file that `key_file` names; `base` is the folder that files are relative to.
///
/// # Errors
/// Where both are given, or the file cannot be read.
pub(super) fn given(node: &Node, key: &str, base: &Path) -> Result<Option<String>, Mistake> {
    match one_of(node, key)? {
        (Some(value), _) => value.text().map(|text| Some(text.to_owned())),
        (None, Some(file)) => {
            let path = base.join(file.text()?);
            let text = std::fs::read_to_string(&path);
            let text = text.map_err(|error| {
                file.mistake(format!("cannot read {}: {error}", path.display()))
            })?;
            Ok(Some(text.trim().to_owned()))
        }
        (None, None) => Ok(None),
    }
}

/// The settings `key` and `key_file`, of which one can be given.
///
/// # Errors
/// Where both are.
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

/// The header `Authorization` that is asked for, if one is.
///
/// # Errors
/// At what cannot be, or cannot be together.
pub(super) fn authorization(http: &Node, base: &Path) -> Result<Option<String>, Mistake> {
    let fields: Fields<'_> = http.fields(KEYS)?;
    for switch in ["follow_redirects", "enable_http2"] {
        fields.optional(switch, Node::boolean)?;
    }
    let bearer = given(http, "bearer_token", base)?.filter(|token| !token.is_empty());
    let ways = [fields.get("basic_auth"), fields.get("authorization")]
        .into_iter()
        .flatten();
    if ways.count() + usize::from(bearer.is_some()) > 1 {
        return Err(http.mistake(
            "at most one of `authorization`, `basic_auth` and `bearer_token` can be given",
        ));
    }
    if let Some(basic) = fields.get("basic_auth") {
        basic.fields(&["username", "password", "password_file"])?;
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

/// An address that can be posted to.
///
/// # Errors
/// Where it is none. The value may be a secret, so it is not repeated.
pub(super) fn address(settings: &Node, url: String) -> Result<String, Mistake> {
    let is_good = Url::parse(&url).is_ok_and(|parsed| {
        matches!(parsed.scheme(), "http" | "https")
            && url[parsed.scheme().len()..].starts_with("://")
    });
    let host = url.split_once("://").map_or("", |(_, rest)| rest);
    match is_good
        && !host.starts_with(['/', '?', '#'])
        && !url.contains(|c: char| c.is_whitespace() || c == '\\')
    {
        true => Ok(url),
        false => Err(settings.mistake("expected an address that begins with http:// or https://")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_way_to_say_who_asks() {
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
            ("{proxy_url: 'http://x'}", Err("unknown key `proxy_url`")),
            ("{authorization: []}", Err("expected a mapping")),
            ("x", Err("expected a mapping")),
        ] {
            let found = authorization(&Node::read(text).unwrap(), Path::new("/nonexistent"));
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
}
