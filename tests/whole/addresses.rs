//! Secrets in configured addresses are refused, or shown nowhere: not on pages and in the API, in metrics, logs, the checked
//! configuration and the support bundle.

use crate::support::process::{free_port, http_get};
use crate::support::takt::Takt;
use crate::support::target::scrape_target;
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// Every word that stands for a secret begins with it.
const SECRET: &str = "s3cret4you";

fn page(_path: &str) -> (&'static str, String) {
    ("text/plain; version=0.0.4", "planted 1\n".to_owned())
}

#[test]
fn addresses_with_users_and_fragments_are_refused_without_repeating_them() {
    let takt = Takt::fresh();
    for address in [
        "http://u:s3cret4you@g01:1/metrics",
        "http:\\\\\\\\u:s3cret4you@g01:1/metrics",
        "http:/u:s3cret4you@g01:1/metrics",
        "http:u:s3cret4you@g01:1/metrics",
        "HTTPS:\\\\/u:s3cret4you@g01:1/metrics",
        "http://u%3As3cret4you%40g01:1/metrics",
        "http://g01:1/metrics#s3cret4you",
    ] {
        for key in [
            "[[scrape.targets]]\nurl",
            "[[scrape.configs]]\njob_name = \"x\"\n[[scrape.configs.http_sd_configs]]\nurl",
        ] {
            takt.file(
                "takt.toml",
                format!("cluster = \"lab\"\n{key} = \"{address}\"\n"),
            );
            let said = takt.run(["check-config", "--config", "takt.toml"]).fails(2);
            assert!(said.contains("expected no"), "{address}: {said}");
            assert!(!said.contains(SECRET), "{address}: {said}");
        }
    }
    for address in ["u:s3cret4you@g01:1", "u%3As3cret4you%40g01:1"] {
        let target = format!("cluster = \"lab\"\n[[scrape.targets]]\naddress = \"{address}\"\n");
        takt.file("takt.toml", target);
        let said = takt.run(["check-config", "--config", "takt.toml"]).fails(2);
        assert!(!said.contains(SECRET), "{address}: {said}");
    }
}

#[test]
fn secrets_in_paths_parameters_and_topics_are_shown_nowhere() {
    let takt = Takt::fresh();
    let target = scrape_target(page);
    let address = format!("127.0.0.1:{}", free_port());

    // One target answers, and one does not: its error is shown, too.
    let closed = free_port();
    takt.file(
        "takt.toml",
        format!(
            "cluster = \"lab\"\njobs.poll = false\nserver.listen_address = \"{address}\"\n\
             [alerts]\nntfy_topic = \"s3cret4you-topic\"\nntfy_url = \"http://127.0.0.1:{closed}\"\n\
             [scrape]\ninterval_seconds = 0.5\ntimeout_seconds = 0.5\n\
             [[scrape.targets]]\nurl = \"http://{target}/v1/s3cret4you-0123456789/metrics?token=s3cret4you\"\n\
             [[scrape.configs]]\njob_name = \"path\"\nmetrics_path = \"/s3cret4you-9876543210\"\n\
             [[scrape.configs.static_configs]]\ntargets = [\"{target}\", \"127.0.0.1:{closed}\"]\n"
        ),
    );
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let ask = |path: &str| http_get(&format!("http://{address}{path}")).map(|page| page.body);
    server.wait_until("scraping", SOON, || {
        let found = ask("/api/v1/query?query=count(planted)").ok()?;
        let failed = ask("/api/v1/query?query=min(up)").ok()?;
        (found.contains("\"2\"") && failed.contains("\"0\"")).then_some(())
    });

    let mut shown = Vec::new();
    for path in [
        "/health",
        "/health.json",
        "/targets",
        "/metrics",
        "/api/v1/targets",
        "/api/v1/status/config",
        "/api/v1/scrape_pools",
        "/api/v1/series?match[]={__name__=~\".%2B\"}",
        "/api/v2/status",
        "/api/v2/receivers",
        "/api/takt/v1/doctor",
    ] {
        shown.push((path.to_owned(), ask(path).unwrap_or_default()));
    }
    assert!(
        shown
            .iter()
            .any(|(path, body)| path == "/api/v1/targets" && body.contains("<hidden>")),
        "{shown:?}"
    );
    shown.push(("log".to_owned(), server.log()));
    let checked = takt.run(["check-config", "--config", "takt.toml"]).ok();
    assert!(checked.contains("<hidden>"), "{checked}");
    shown.push(("check-config".to_owned(), checked));

    let run = takt.run([
        "--config",
        "takt.toml",
        "doctor",
        "--bundle",
        "bundle.tar.gz",
    ]);
    shown.push(("doctor".to_owned(), run.stdout + &run.stderr));
    let read = Command::new("tar")
        .args(["-xzOf", "bundle.tar.gz"])
        .current_dir(takt.directory())
        .output()
        .unwrap();
    let bundle = String::from_utf8_lossy(&read.stdout).into_owned();
    assert!(bundle.contains("<hidden>"), "{bundle}");
    shown.push(("bundle".to_owned(), bundle));

    for (place, text) in shown {
        let line = text.lines().find(|line| line.contains(SECRET));
        assert!(line.is_none(), "{place}: {line:?}");
    }
}
