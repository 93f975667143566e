//! Links in messages that acknowledge alerts, opened as people and as programs that scan messages open them.

use super::lab::{Lab, SOON};
use crate::support::process::{Page, http_get, http_post, wait_for};
use serde_json::Value;

/// The channels of the test: one of each kind that has links, a webhook, which has none.
const CHANNELS: &str = "  slack_configs: [{BOT}]\n  email_configs: [{to: ann@lab.example}]\n  \
    ntfy_configs: [{url: 'SLACK/ntfy', topic: lab}]\n  webhook_configs: [{url: 'SLACK/hook'}]\n";

/// The address of the page that acknowledges, in the text of a message.
fn address(text: &str) -> Option<String> {
    let ends = ['|', '"', '>', ' ', '\n', '\r', '\\'];
    let addresses = text.match_indices("http://");
    addresses
        .map(|(at, _)| text[at..].split(ends).next().unwrap_or_default())
        .find(|address| address.contains("/acknowledge?link="))
        .map(str::to_owned)
}

fn submit(lab: &Lab, link: &str, more: &str) -> Page {
    let (base, secret) = link.split_once("?link=").expect("the link has a secret");
    assert!(base.ends_with("/acknowledge"), "{link}");
    let form = format!("link={secret}&for=4h{more}");
    let form_type = ("Content-Type", "application/x-www-form-urlencoded");
    http_post(
        &format!("http://{}/acknowledge", lab.address),
        &[form_type],
        form.as_bytes(),
    )
    .unwrap()
}

fn silences(lab: &Lab) -> Vec<Value> {
    let all = lab.get("/api/v2/silences");
    all.as_array().cloned().unwrap_or_default()
}

#[test]
fn a_link_in_a_message_acknowledges_once_and_only_by_its_button() {
    let Some(lab) = Lab::start(CHANNELS) else {
        return;
    };
    lab.heat(Some(95.0));

    // Every channel for people has a link of its own; the webhook, for programs, has none.
    let slack = lab.slack.wait("/api/chat.postMessage", 1)[0]["body"].to_string();
    let ntfy = lab.slack.wait("/ntfy", 1)[0]["body"].clone();
    let hook = lab.slack.wait("/hook", 1)[0]["body"].to_string();
    let mail = lab.smtp.mails("ann@lab.example", 1)[0].clone();
    let mail = mail
        .replace("=\r\n", "")
        .replace("=\n", "")
        .replace("=3D", "=");
    let of_slack = address(&slack).unwrap_or_else(|| panic!("{slack}"));
    let of_mail = address(&mail).unwrap_or_else(|| panic!("{mail}"));
    let of_ntfy = ntfy["actions"][0]["url"]
        .as_str()
        .unwrap_or_else(|| panic!("{ntfy}"));
    assert_eq!(ntfy["actions"][0]["action"], "view", "{ntfy}");
    assert!(!hook.contains("acknowledge"), "{hook}");
    assert!(of_slack != of_mail && of_mail != of_ntfy);

    // Stored messages, which people with SQL read, have no links.
    let stored = lab
        .takt(&["sql", "SELECT body FROM notifications", "--format", "json"])
        .ok();
    assert!(
        stored.contains("Hot") && !stored.contains("acknowledge?link"),
        "{stored}"
    );

    // Programs that scan messages open links, several times, also with HEAD.
    for _ in 0..3 {
        let page = http_get(&of_slack).unwrap();
        assert_eq!(page.status, 200, "{}", page.body);
        assert!(page.body.contains("g01 is at 95"), "{}", page.body);
        assert!(
            page.body.contains("Nothing has happened yet"),
            "{}",
            page.body
        );
    }
    let head = ureq::head(&of_slack)
        .call()
        .map(|answer| answer.status().as_u16());
    assert_eq!(head.ok(), Some(200));
    assert_eq!(silences(&lab), [] as [Value; 0]);

    // A changed link does nothing, and no link silences for long.
    let other = if of_slack.ends_with('A') { 'B' } else { 'A' };
    let forged = format!("{}{other}", &of_slack[..of_slack.len() - 1]);
    let forged = submit(&lab, &forged, "");
    assert!(forged.status >= 400, "{}", forged.body);
    let (base, secret) = of_slack.split_once("?link=").unwrap();
    let long = http_post(
        base,
        &[("Content-Type", "application/x-www-form-urlencoded")],
        format!("link={secret}&for=30d").as_bytes(),
    )
    .unwrap();
    assert!(
        long.status >= 400 && long.body.contains("at most a day"),
        "{}",
        long.body
    );

    // Neither does a page of another site, which would act under the name of the user who opens it.
    let elsewhere = [
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Origin", "https://evil.example"),
    ];
    let form = format!("link={secret}&for=4h");
    let of_other_site = http_post(base, &elsewhere, form.as_bytes()).unwrap();
    assert_eq!(of_other_site.status, 403, "{}", of_other_site.body);
    assert_eq!(silences(&lab), [] as [Value; 0]);

    // The button acts, and the record says how.
    let done = submit(&lab, &of_slack, "&by=Santa&comment=looking");
    assert_eq!(done.status, 200, "{}", done.body);
    assert!(
        done.body.contains("No messages about 1 alert for 4h"),
        "{}",
        done.body
    );
    let made = silences(&lab);
    assert_eq!(made.len(), 1, "{made:?}");
    assert_eq!(
        made[0]["createdBy"],
        "Slack link sent to #gpu, who gave the name \"Santa\""
    );
    assert_eq!(made[0]["comment"], "looking");
    wait_for("the silence", SOON, || {
        let alerts = lab.get("/api/v2/alerts");
        (alerts[0]["status"]["state"] == "suppressed").then_some(())
    });

    // It works once.
    let again = submit(&lab, &of_slack, "");
    assert!(
        again.status >= 400 && again.body.contains("used already"),
        "{}",
        again.body
    );
    assert!(http_get(&of_slack).unwrap().body.contains("used already"));
    assert_eq!(silences(&lab).len(), 1);

    // A link whose alert has ended does nothing.
    lab.heat(Some(5.0));
    wait_for("the end of the alert", SOON, || {
        let page = http_get(&of_mail).ok()?;
        page.body.contains("not active any more").then_some(())
    });
    let over = submit(&lab, &of_mail, "");
    assert!(over.status >= 400, "{}", over.body);
    assert_eq!(silences(&lab).len(), 1);
}

#[test]
fn messages_have_no_links_where_these_are_off() {
    let change =
        |config: String| config.replace("[alerts]\n", "[alerts]\nacknowledge_links = false\n");
    let takt = crate::support::takt::Takt::fresh();
    let Some(lab) = Lab::start_with(takt, CHANNELS, change) else {
        return;
    };
    lab.heat(Some(95.0));
    let slack = lab.slack.wait("/api/chat.postMessage", 1)[0]["body"].to_string();
    assert!(!slack.contains("acknowledge?"), "{slack}");
    let page = format!("http://{}/acknowledge?link=AAAA", lab.address);
    assert!(http_get(&page).unwrap().body.contains("switched off"));
}
