//! Checks of signing in and of privacy.

use super::facts::Facts;
use super::{Finding, Severity, finding};
use takt_access::Privacy;
use takt_identity::{LdapConfig, SignInService};

pub(super) fn ldap(facts: &Facts) -> Vec<Finding> {
    let Some((error, ldap)) =
        error_of(facts, SignInService::Ldap).zip(facts.config.auth.ldap.as_ref())
    else {
        return Vec::new();
    };
    vec![finding(
        Severity::Failure,
        "",
        format!("signing in with LDAP fails: {error}"),
        "People cannot sign in with passwords of the directory.",
        [
            search_line(ldap),
            "bind_dn = \"…\"        # below [auth.ldap] in takt.toml; also url, base, ca_file"
                .to_owned(),
        ],
    )]
}

/// A command that does what Takt does first: connects, binds, and reads the base.
fn search_line(ldap: &LdapConfig) -> String {
    let tls = if ldap.start_tls { " -ZZ" } else { "" };
    let bind = ldap
        .bind_dn
        .as_ref()
        .map_or_else(String::new, |dn| format!(" -D '{dn}' -W"));
    format!(
        "ldapsearch -x -H {}{tls}{bind} -b '{}' -s base",
        ldap.url, ldap.base
    )
}

pub(super) fn oidc(facts: &Facts) -> Vec<Finding> {
    let Some((error, oidc)) =
        error_of(facts, SignInService::Oidc).zip(facts.config.auth.oidc.as_ref())
    else {
        return Vec::new();
    };
    let issuer = oidc.issuer.trim_end_matches('/');
    vec![finding(
        Severity::Failure,
        "",
        format!("signing in with OpenID Connect fails: {error}"),
        "People cannot sign in at the provider.",
        [
            format!("curl -sS {issuer}/.well-known/openid-configuration"),
            "issuer = \"…\"        # below [auth.oidc] in takt.toml, as the provider writes it"
                .to_owned(),
        ],
    )]
}

pub(super) fn munge(facts: &Facts) -> Vec<Finding> {
    let Some(error) = error_of(facts, SignInService::Munge) else {
        return Vec::new();
    };
    vec![finding(
        Severity::Failure,
        "",
        format!("munge does not work: {error}"),
        "`takt login --server` fails on other machines.",
        [
            "sudo systemctl enable --now munge".to_owned(),
            "sudo -u takt munge -n | sudo -u takt unmunge".to_owned(),
        ],
    )]
}

pub(super) fn proxy(facts: &Facts) -> Vec<Finding> {
    let Some(error) = error_of(facts, SignInService::Proxy) else {
        return Vec::new();
    };
    vec![finding(
        Severity::Warning,
        "",
        error.to_owned(),
        "The audit log and the limits of failed sign-ins can name a wrong address.",
        [
            "unix_user = \"www-data\"        # below [auth.proxy]: a proxy on this machine"
                .to_owned(),
            "trusted = [\"10.0.0.5\"]        # below [auth.proxy]: only the proxies".to_owned(),
        ],
    )]
}

pub(super) fn privacy(facts: &Facts) -> Vec<Finding> {
    let decides = facts.config.auth.privacy.level().is_none();
    if let Some(reason) = facts.unknown_privacy.as_ref().filter(|_| decides) {
        return vec![finding(
            Severity::Warning,
            "",
            format!("Slurm's PrivateData is not known: {reason}"),
            "Until it is, the privacy is private: users see their own jobs only, and programs of this machine need a token.",
            [
                "sudo -u takt scontrol show config | grep PrivateData        # until it answers".to_owned(),
                "privacy = \"open\"        # or usage, private: below [auth] in takt.toml, if Slurm cannot say it"
                    .to_owned(),
            ],
        )];
    }
    let (Some(level), Some(of_slurm)) = (facts.config.auth.privacy.level(), &facts.private_data)
    else {
        return Vec::new();
    };
    if level >= Privacy::of_private_data(of_slurm) {
        return Vec::new();
    }
    vec![finding(
        Severity::Warning,
        "",
        format!(
            "auth.privacy is {}, and Slurm has PrivateData={of_slurm}",
            level.name()
        ),
        "Users see in Takt what Slurm hides from them.",
        ["privacy = \"slurm\"        # below [auth] in takt.toml".to_owned()],
    )]
}

/// Returns the error of a service.
fn error_of(facts: &Facts, service: SignInService) -> Option<&str> {
    facts
        .sign_in
        .iter()
        .find(|defect| defect.service == service)
        .map(|defect| defect.error.as_str())
}
