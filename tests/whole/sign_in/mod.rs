//! Signing in: passwords, trusted proxies, a real provider of OpenID Connect, a real directory, a
//! real munge; and the attacks on each of them.

mod anonymous;
mod coordinators;
mod examined;
mod ldap;
mod munge;
mod openid;
pub(crate) mod passwords;
mod proxies;

use crate::access::{Lab, SAME, WWW_DATA};
use serde_json::Value;

/// Reply to a form of a browser: the status, the address to which it goes, and the cookie of a
/// session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signed {
    pub status: u16,
    pub to: String,
    /// `Cookie: takt=…`; `None` without a session.
    pub cookie: Option<String>,
}

impl Signed {
    pub fn of((status, text): (u16, String)) -> Self {
        let value = |name: &str| {
            text.lines()
                .filter_map(|line| line.split_once(": "))
                .find_map(|(key, value)| {
                    key.eq_ignore_ascii_case(name)
                        .then(|| value.trim().to_owned())
                })
        };
        let cookie = value("set-cookie");
        let cookie = cookie
            .as_deref()
            .and_then(|cookie| cookie.split(';').next());
        Self {
            status,
            to: value("location").unwrap_or_default(),
            cookie: cookie.map(|cookie| format!("Cookie: {cookie}")),
        }
    }

    fn is_refused(&self, reason: &str) -> bool {
        self.status == 303
            && self.cookie.is_none()
            && self.to.starts_with(&format!("/login?failed={reason}"))
    }
}

/// Sends the form with a name and a password, as a page of the server does.
pub(crate) fn password(lab: &Lab, user: &str, password: &str, more: &[&str]) -> Signed {
    let user = format!("user={user}");
    let password = format!("password={password}");
    let mut arguments = vec![
        "--include",
        "--data-urlencode",
        &user,
        "--data-urlencode",
        &password,
    ];
    arguments.extend(["--header", SAME]);
    arguments.extend(more);
    Signed::of(lab.curl(WWW_DATA, "/login/password", &arguments))
}

/// The viewer of a cookie, as the server knows it.
pub(crate) fn whoami(lab: &Lab, header: &str) -> Value {
    lab.json(WWW_DATA, "/api/takt/v1/whoami", &["--header", header])
}
