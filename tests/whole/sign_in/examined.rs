//! `takt doctor` examines the services for signing in.

use super::ldap::{Slapd, needs_slapd};
use super::munge::{Munged, needs_munge, with_munge};
use crate::access::{BEARER_ADMIN, Lab, ROOT, needs};
use crate::support::or_skip;
use crate::support::process::free_port;
use crate::support::target::scrape_target;
use serde_json::Value;
use tempfile::tempdir;

/// The findings of the topic `auth`: id and evidence of each, with its first line to paste.
fn findings(lab: &Lab) -> Vec<[String; 3]> {
    let header = ["--header", BEARER_ADMIN];
    let diagnosis = lab.json(ROOT, "/api/takt/v1/doctor?only=auth", &header);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    diagnosis["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| {
            let [id, evidence] = ["id", "evidence"].map(|key| text(&finding[key]));
            [id, evidence, text(&finding["fix"][0])]
        })
        .collect()
}

/// Checks that one check finds something, with these words.
#[track_caller]
fn assert_finds(lab: &Lab, id: &str, words: &str) {
    let found = findings(lab);
    assert!(
        matches!(&found[..], [one] if one[0] == id && one[1].contains(words)),
        "expected {id} with {words:?}, found {found:?}"
    );
}

#[test]
fn the_doctor_names_what_is_wrong_with_the_directory() {
    if or_skip(needs_slapd()).is_none() {
        return;
    }
    let mut slapd = Slapd::start();
    let url = format!("ldap://127.0.0.1:{}", slapd.port);
    let mut lab = Lab::start(&slapd.auth(&url, ""));
    assert_eq!(findings(&lab), [[""; 3]; 0]);

    let right = "base = \"dc=uni\"";
    let wrong = "base = \"ou=nowhere,dc=uni\"";
    lab.restart(|config| config.replacen(right, wrong, 1));
    assert_finds(
        &lab,
        "auth.ldap",
        "base: the directory has no ou=nowhere,dc=uni",
    );

    lab.restart(|config| {
        config
            .replacen(wrong, right, 1)
            .replace("cn=takt,dc=uni", "cn=other,dc=uni")
    });
    assert_finds(&lab, "auth.ldap", "refuses bind_dn");

    // A line to paste, with the values of this configuration.
    let line = format!("ldapsearch -x -H {url} -D 'cn=other,dc=uni' -W -b 'dc=uni' -s base");
    assert_eq!(findings(&lab)[0][2], line);

    lab.restart(|config| config.replace("cn=other,dc=uni", "cn=takt,dc=uni"));
    slapd.daemon.stop();
    assert_finds(&lab, "auth.ldap", &format!("cannot connect to {url}"));
}

#[test]
fn the_doctor_compares_the_issuer_and_looks_at_the_proxies() {
    if or_skip(needs()).is_none() {
        return;
    }
    let provider = scrape_target(|_| {
        let description = serde_json::json!({
            "issuer": "https://idp.uni.example",
            "authorization_endpoint": "https://idp.uni.example/auth",
            "token_endpoint": "https://idp.uni.example/token",
            "jwks_uri": "https://idp.uni.example/keys",
        });
        ("application/json", description.to_string())
    });
    let auth = format!(
        "external_url = \"http://localhost:PORT\"\n[auth.oidc]\nissuer = \"http://{provider}\"\n\
         client_id = \"takt\"\n"
    );
    let mut lab = Lab::start(&auth);
    assert_finds(
        &lab,
        "auth.oidc",
        "describes the issuer \"https://idp.uni.example\"",
    );
    let gone = format!("127.0.0.1:{}", free_port());
    lab.restart(|config| config.replace(&provider.to_string(), &gone));
    assert_finds(&lab, "auth.oidc", "the provider does not answer");

    lab.restart(|config| {
        let (before, rest) = config.split_once("[auth.oidc]").unwrap();
        let (_, after) = rest.split_once("[server]").unwrap();
        format!("{before}[auth.proxy]\ntrusted = [\"127.0.0.1\"]\n[server]{after}")
    });
    assert_finds(&lab, "auth.proxy", "every program on this machine");
}

#[test]
fn the_doctor_makes_and_decodes_a_credential() {
    if or_skip(needs_munge()).is_none() {
        return;
    }
    let auth = "munge = true\nexternal_url = \"http://localhost:PORT\"";
    let munged = Munged::start();
    let lab = Lab::start_with(auth, |_, command| with_munge(&munged.run(), &command));
    assert_eq!(findings(&lab), [[""; 3]; 0]);

    let empty = tempdir().unwrap();
    let lab = Lab::start_with(auth, |_, command| with_munge(empty.path(), &command));
    assert_finds(&lab, "auth.munge", "munge does not work");
}
