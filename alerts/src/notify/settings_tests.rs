//! Tests that settings of an Alertmanager configuration take effect.

use super::channels::Channels;
use super::owner::Addresses;
use super::suite::{Verdict, row, runtime, service};
use crate::outbox::Outcome;
use crate::routing::config::Config;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::path::Path;
use std::time::{Duration, Instant};
use takt_mail::EmailConfig;

/// The channels of a configuration with these global settings and one receiver. `tracing` is in
/// Alertmanager's own example and ignored.
fn channels(global: &str, receiver: &str) -> Result<Channels, String> {
    let text = format!(
        "tracing: {{endpoint: 'x:4317'}}\nglobal: {{{global}}}\nroute: {{receiver: a}}\n\
         receivers: [{{name: a, {receiver}}}]"
    );
    let config = Config::read("am.yml", &text).map_err(|mistake| mistake.to_string())?;
    let email = EmailConfig::default();
    let base = Path::new("/nonexistent");
    Channels::build(&config, &email, &Addresses::none(), base)
        .map_err(|mistake| mistake.to_string())
}

/// Sends one message through the only channel. Returns the outcome and what the service received.
fn sent(verdict: Verdict, global: &str, receiver: &str) -> (Outcome, Vec<String>) {
    runtime().block_on(async {
        let (server, mut received) = service(verdict).await;
        let fill = |text: &str| text.replace("{server}", &server);

        let channels = channels(&fill(global), &fill(receiver)).unwrap();
        let name = channels.names().next().unwrap().to_owned();
        let channel = channels.get(&name).unwrap();
        let outcome = channel.send(&row(1, "hot"), None).await;

        let mut all = Vec::new();
        while let Ok(text) = received.try_recv() {
            all.push(text);
        }
        (outcome, all)
    })
}

#[test]
fn timeout_cuts_off_slow_answers() {
    for receiver in [
        "webhook_configs: [{url: 'http://{server}', timeout: 300ms}]",
        "slack_configs: [{api_url: 'http://{server}', timeout: 300ms}]",
    ] {
        let begun = Instant::now();
        let (outcome, _) = sent(Verdict::Slow, "", receiver);
        assert!(matches!(outcome, Outcome::NoAnswer { .. }), "{outcome:?}");
        assert!(begun.elapsed() < Duration::from_millis(950), "{receiver}");
        // Zero is no limit of its own, so the default of 20 s holds.
        let patient = receiver.replace("300ms", "0s");
        let (outcome, _) = sent(Verdict::Slow, "", &patient);
        assert!(matches!(outcome, Outcome::Sent(_)), "{outcome:?}");
    }
}

#[test]
fn redirects_are_followed_only_if_asked_for_and_only_with_the_post() {
    let hook = |http: &str| format!("webhook_configs: [{{url: 'http://{{server}}/x'{http}}}]");
    let follow = hook(", http_config: {follow_redirects: true}");

    for (status, receiver, requests, is_sent) in [
        (302, hook(""), 1, false),
        (307, hook(""), 1, false),
        (302, follow.clone(), 1, false),
        (307, follow.clone(), 2, true),
        (308, follow.clone(), 2, true),
    ] {
        // Without `follow_redirects` the redirect is the answer; after 302 the client would ask with GET.
        let (outcome, received) = sent(Verdict::Redirects(status), "", &receiver);
        assert_eq!(received.len(), requests, "{status} {receiver}");
        assert!(received.iter().all(|request| request.starts_with("POST ")));
        let is_right = if is_sent {
            matches!(outcome, Outcome::Sent(_))
        } else {
            matches!(outcome, Outcome::GiveUp { .. })
        };
        assert!(is_right, "{status}: {outcome:?}");
    }
}

#[test]
fn http_config_decides_on_proxy_and_headers() {
    let proxied = "webhook_configs: [{url: 'http://elsewhere.example/x', \
                   http_config: {proxy_url: 'http://{server}', bearer_token: t0ken, \
                   http_headers: {X-Scope: {values: [lab]}}}}]";
    let (outcome, received) = sent(Verdict::Takes, "", proxied);
    assert!(matches!(outcome, Outcome::Sent(_)), "{outcome:?}");
    let request = received[0].to_ascii_lowercase();
    assert!(
        request.starts_with("post http://elsewhere.example/x"),
        "{request}"
    );
    assert!(request.contains("authorization: bearer t0ken"), "{request}");
    assert!(request.contains("x-scope: lab"), "{request}");

    // The proxy would refuse the connection, so the request has to go around it.
    let unused = "proxy_url: 'http://127.0.0.1:1', no_proxy: '127.0.0.1'";
    let direct = proxied
        .replace("proxy_url: 'http://{server}'", unused)
        .replace("elsewhere.example", "{server}");
    let (outcome, received) = sent(Verdict::Takes, "", &direct);
    assert!(matches!(outcome, Outcome::Sent(_)), "{outcome:?}");
    assert!(received[0].starts_with("POST /x"), "{}", received[0]);

    let global = "http_config: {bearer_token: shared}";
    let plain = "slack_configs: [{api_url: 'http://{server}/x'}]";
    let (_, received) = sent(Verdict::Takes, global, plain);
    let request = received[0].to_ascii_lowercase();
    assert!(
        request.contains("authorization: bearer shared"),
        "{request}"
    );
}

#[test]
fn mail_settings_take_effect() {
    let own = "email_configs: [{to: a@b.c, from: t@b.c, smarthost: '{server}', \
               require_tls: false, hello: own.example, auth_username: u, auth_password: p, \
               auth_identity: boss}]";

    let (outcome, received) = sent(Verdict::Takes, "", own);
    assert!(matches!(outcome, Outcome::Sent(_)), "{outcome:?}");
    let login = format!("AUTH PLAIN {}", BASE64_STANDARD.encode("boss\0u\0p"));
    assert!(received[0].contains("EHLO own.example"), "{}", received[0]);
    assert!(received[0].contains(&login), "{}", received[0]);

    // The same through `global`; an identity equal to the user is the usual login.
    let global = "smtp_from: t@b.c, smtp_smarthost: '{server}', smtp_require_tls: false, \
                  smtp_hello: shared.example, smtp_auth_username: u, smtp_auth_password: p, \
                  smtp_auth_identity: u";
    let (outcome, received) = sent(Verdict::Takes, global, "email_configs: [{to: a@b.c}]");
    assert!(matches!(outcome, Outcome::Sent(_)), "{outcome:?}");
    let login = format!("AUTH PLAIN {}", BASE64_STANDARD.encode("\0u\0p"));
    assert!(
        received[0].contains("EHLO shared.example"),
        "{}",
        received[0]
    );
    assert!(received[0].contains(&login), "{}", received[0]);
}

/// A server without TLS gets no mail where TLS is implicit or required.
#[test]
fn tls_settings_of_mail_take_effect() {
    let receiver = "email_configs: [{to: a@b.c, from: t@b.c, smarthost: '{server}'MORE}]";
    for (global, more) in [
        ("", ""),
        ("", ", require_tls: true"),
        ("", ", require_tls: false, force_implicit_tls: true"),
        ("smtp_force_implicit_tls: true", ", require_tls: false"),
        ("smtp_require_tls: true", ""),
    ] {
        let (outcome, received) = sent(Verdict::Takes, global, &receiver.replace("MORE", more));
        assert!(
            !matches!(outcome, Outcome::Sent(_)),
            "{global}{more}: {outcome:?}"
        );
        let is_sent = received.iter().any(|text| text.contains("GpuHot"));
        assert!(!is_sent, "{global}{more}: {received:?}");
    }
    let own = ", require_tls: false, force_implicit_tls: false";
    let global = "smtp_force_implicit_tls: true";
    let (outcome, _) = sent(Verdict::Takes, global, &receiver.replace("MORE", own));
    assert!(matches!(outcome, Outcome::Sent(_)), "{outcome:?}");
    for (global, more, said) in [
        (
            "smtp_tls_config: {insecure_skip_verify: true}",
            "",
            "always checks",
        ),
        ("smtp_tls_config: {ca_file: gone}", "", "cannot read"),
        ("", ", tls_config: {ca_file: gone}", "cannot read"),
        ("", ", tls_config: {min_version: TLS9}", "not a version"),
        ("smtp_auth_secret: x", "", "`smtp_auth_secret` (CRAM-MD5)"),
    ] {
        let receiver = receiver.replace("MORE", more).replace("{server}", "m:25");
        let mistake = channels(global, &receiver).err().unwrap_or_default();
        assert!(mistake.contains(said), "{global}{more}: {mistake}");
    }
}

/// As bots were configured before Alertmanager had `app_token`.
#[test]
fn a_bot_may_have_its_token_in_http_config() {
    let bot =
        "slack_configs: [{channel: C1, http_config: {authorization: {credentials: xoxb-1}}URL}]";
    let api = "api_url: 'http://{server}/api/chat.postMessage'";
    for (global, receiver) in [
        (
            String::new(),
            bot.replace("URL", &format!(", {api}, update_message: true")),
        ),
        (format!("slack_{api}"), bot.replace("URL", "")),
        (
            format!(
                "slack_{api}, slack_app_token: other, slack_app_url: 'http://{{server}}/api/chat.postMessage'"
            ),
            bot.replace("URL", ""),
        ),
    ] {
        let (_, received) = sent(Verdict::Takes, &global, &receiver);
        let request = received[0].to_ascii_lowercase();
        for part in [
            "post /api/chat.postmessage",
            "authorization: bearer xoxb-1",
            r#""channel":"c1""#,
        ] {
            assert!(request.contains(part), "{global} {receiver}: {request}");
        }
    }
    let both = "slack_app_token: x, slack_api_url: 'http://x'";
    let mistake = channels(both, "webhook_configs: []")
        .err()
        .unwrap_or_default();
    assert!(
        mistake.contains("at most one of `slack_app_token`"),
        "{mistake}"
    );
}

#[test]
fn a_file_needs_a_route() {
    for text in ["receivers: [{name: a}]", "route:\nreceivers: [{name: a}]"] {
        let mistake = Config::read("am.yml", text).unwrap_err().to_string();
        assert!(mistake.contains("`route` is missing"), "{mistake}");
    }
}
