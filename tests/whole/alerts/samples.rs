//! Alerts over samples.

use super::lab::{Lab, SOON};
use crate::support::process::{http_get, wait_for};
use serde_json::json;

#[test]
fn alerts_over_samples_are_in_the_api_and_the_command() {
    let Some(lab) = Lab::start("  webhook_configs: [{url: 'SLACK/hook'}]\n") else {
        return;
    };
    lab.heat(Some(95.0));
    let hook = lab.slack.wait("/hook", 1);
    assert_eq!(
        hook[0]["body"]["alerts"][0]["annotations"]["summary"],
        "g01 is at 95"
    );
    let rules = lab.get("/api/v1/rules");
    let group = &rules["data"]["groups"][0];
    assert_eq!(&group["rules"][0]["type"], &json!("recording"));
    assert_eq!(&group["rules"][1]["state"], &json!("firing"));
    assert_eq!(
        lab.get("/api/v1/alerts")["data"]["alerts"][0]["labels"]["alertname"],
        "Hot"
    );
    for query in [
        "ALERTS%7Balertstate%3D%22firing%22%7D",
        "lab%3Aheat%20%3E%2090",
        "ALERTS_FOR_STATE",
    ] {
        wait_for(query, SOON, || {
            let answer = lab.get(&format!("/api/v1/query?query={query}"));
            (answer["data"]["result"].as_array()?.len() == 1).then_some(())
        });
    }
    assert!(
        lab.takt(&["alerts", "list", "node=g01"])
            .ok()
            .contains("g01 is at 95")
    );
    assert!(
        !lab.takt(&["alerts", "list", "node=g02"])
            .ok()
            .contains("g01 is at 95")
    );
    let page = http_get(&format!("http://{}/alerts", lab.address))
        .unwrap()
        .body;
    let link = lab.get("/api/v2/alerts")[0]["generatorURL"]
        .as_str()
        .unwrap()
        .to_owned();
    let (to, anchor) = link.split_once('#').unwrap();
    assert_eq!(to, format!("http://{}/alerts", lab.address));
    assert!(
        page.contains("g01 is at 95") && page.contains(&format!("id=\"{anchor}\"")),
        "{page}"
    );
    let id = lab
        .takt(&["alerts", "ack", "node=g01", "--comment", "on it"])
        .ok()
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    let alerts = lab.get("/api/v2/alerts");
    assert_eq!(
        alerts[0]["status"],
        json!({"state": "suppressed", "silencedBy": [id], "inhibitedBy": [], "mutedBy": []})
    );
    assert!(lab.takt(&["alerts", "silence"]).ok().contains("on it"));

    // Who was told of the beginning is told of the end at once, also under a silence.
    lab.heat(Some(20.0));
    wait_for("the end", SOON, || {
        lab.get("/api/v2/alerts")
            .as_array()?
            .is_empty()
            .then_some(())
    });

    // The linked page now shows that the alert has ended.
    // A rendered page is kept for some seconds.
    let page = wait_for("the resolved alert on the page", SOON, || {
        let page = http_get(&format!("http://{}/alerts", lab.address)).ok()?;
        page.body.contains("Resolved within").then_some(page.body)
    });
    let (_, ended) = page.split_once("Resolved within").unwrap();
    assert!(
        page.contains("Nothing is wrong.") && ended.contains(&format!("id=\"{anchor}\"")),
        "{page}"
    );
    let hook = lab.slack.wait("/hook", 2);
    assert_eq!(hook[1]["body"]["status"], "resolved");
    lab.takt(&["alerts", "silence", "--expire", &id]).ok();
    let unknown = "0b7a6a3e-8f0e-4b0e-9d57-5d1f8f6f1c11";
    assert!(
        lab.takt(&["alerts", "silence", "--expire", unknown])
            .fails(1)
            .contains("not found")
    );
    assert!(
        lab.takt(&["alerts", "silence", "--expire", "nonsense"])
            .fails(2)
            .contains("must be of type uuid")
    );
    assert!(
        lab.takt(&["alerts", "silence", "node=~\".*\""])
            .fails(2)
            .contains("empty")
    );
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let said = lab.takt(&[&["alerts"], arguments].concat()).fails(code);
        assert!(said.contains(words), "{arguments:?}: {said}");
    };
    refused(&["silence", "node~g01"], 2, "node~g01");
    refused(&["silence", "node=~'g(01'"], 2, "g(01");
    refused(
        &["silence", "node=g01", "--for", "soon"],
        2,
        "30m, 2h or 3d",
    );
    refused(&["silence", "node=g01", "--for", "0s"], 2, "30m, 2h or 3d");
    refused(
        &["silence", "node=g01", "--start", "tomorrow"],
        2,
        "2026-11-22T08:00",
    );
    refused(
        &["silence", "node=g01", "--start", "2020-01-01T00:00Z"],
        2,
        "would have ended",
    );
    refused(&["ack", "node=g07"], 1, "no firing alert matches");
    refused(&["list", "node~g01"], 2, "node~g01");

    // A silence for a future day.
    lab.takt(&[
        "alerts",
        "silence",
        "node=g01",
        "--start",
        "2099-01-01T08:00",
        "--comment",
        "firmware",
    ])
    .ok();
    let listed = lab.takt(&["alerts", "silence"]).ok();
    assert!(
        listed
            .lines()
            .any(|line| line.contains("pending") && line.contains("firmware")),
        "{listed}"
    );
}

#[test]
fn alerts_of_a_down_exporter_are_unknown() {
    let Some(mut lab) = Lab::start("  webhook_configs: [{url: 'SLACK/hook'}]\n") else {
        return;
    };
    lab.heat(Some(95.0));
    lab.slack.wait("/hook", 1);
    lab.exporter.take().unwrap().kill();
    let history = |lab: &Lab| {
        lab.takt(&["alerts", "history", "--alert", "Hot", "--format", "csv"])
            .ok()
    };
    wait_for("nobody to know", SOON, || {
        history(&lab)
            .contains("firing,unknown,exporter_down")
            .then_some(())
    });
    assert_eq!(lab.get("/api/v2/alerts").as_array().unwrap().len(), 1);
    lab.export();
    wait_for("the exporter", SOON, || {
        history(&lab)
            .contains("unknown,firing,exporter_back")
            .then_some(())
    });
    lab.heat(Some(20.0));
    let hook = lab.slack.wait("/hook", 2);
    assert_eq!(hook.len(), 2, "one end, and no second beginning");
    assert_eq!(
        &hook[1]["body"]["status"],
        &json!("resolved"),
        "one end, and no second beginning"
    );
}
