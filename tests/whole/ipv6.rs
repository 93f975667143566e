//! A machine without IPv4: everything listens on and connects to `::1`.

use crate::support::channels::Channel;
use crate::support::or_skip;
use crate::support::process::{Daemon, free_port, http_get, http_get_with, wait_for};
use crate::support::takt::Takt;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// First message of PostgreSQL's protocol: may the connection be encrypted?
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

const RULES: &str = "
groups:
- name: test
  interval: 1s
  rules:
  - alert: OverSix
    expr: up{node='g01'} == 1
    annotations: {summary: '{{ $labels.instance }} answers'}
";

#[test]
fn everything_works_on_ipv6_alone() {
    let Some(smtp) = or_skip(Channel::smtp_with(&["--host", "::1"])) else {
        return;
    };
    let (hook, posted) = webhook();
    let takt = Takt::fresh();
    let node = format!("[::1]:{}", free_port());
    let address = format!("[::1]:{}", free_port());
    let sql = format!("[::1]:{}", free_port());
    fs::create_dir(takt.directory().join("rules")).unwrap();
    takt.file("rules/test.rules.yml", RULES);
    takt.file(
        "alertmanager.yml",
        format!(
            "route: {{receiver: ops, group_wait: 0s, group_interval: 1s}}\n\
             receivers:\n- name: ops\n  webhook_configs: [{{url: 'http://[::1]:{hook}/hook'}}]\n  \
             email_configs: [{{to: ann@lab.example}}]\n"
        ),
    );
    takt.file(
        "takt.toml",
        format!(
            "cluster = 'lab'\nserver.listen_address = '{address}'\njobs.poll = false\n\
             [sql]\nlisten_address = '{sql}'\n\
             [email]\nserver = '[::1]:{}'\ntls = 'none'\nfrom = 'takt@lab.example'\n\
             [alerts]\nalertmanager_file = 'alertmanager.yml'\nshipped_rules = false\n\
             rule_dirs = ['rules']\n\
             [scrape]\ninterval_seconds = 1\ntimeout_seconds = 1\n\
             [[scrape.targets]]\naddress = '{node}'\nnode = 'g01'\n",
            smtp.port
        ),
    );
    let log = takt.directory().join("exporter.log");
    let exporter = takt.command(["exporter", "--web.listen-address", &node]);
    let mut exporter = Daemon::start("exporter", exporter, &log);
    let page = format!("http://{node}/metrics");
    exporter.wait_until("answering", SOON, || http_get(&page).ok());
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let page = format!("http://{address}/-/healthy");
    server.wait_until("serving", SOON, || {
        http_get(&page).ok().filter(|page| page.status == 200)
    });

    let url = format!("http://{address}/api/v1/query");
    wait_for("a scrape", SOON, || {
        let found = http_get_with(&url, &[("query", "up{node=\"g01\"}")], &[]).ok()?;
        found.body.contains(",\"1\"]").then_some(())
    });
    let body = posted.recv_timeout(SOON).unwrap();
    assert!(body.contains("OverSix") && body.contains(&node), "{body}");
    let mail = smtp.mails("ann@lab.example", 1).remove(0);
    assert!(mail.contains("OverSix"), "{mail}");

    // The address of the pages is a link that browsers open.
    let page = format!("http://{address}/");
    assert!(mail.replace("=\r\n", "").contains(&page), "{mail}");
    assert!(body.contains(&page), "{body}");
    let listed = takt.run(["--config", "takt.toml", "alerts", "list"]).ok();
    assert!(listed.contains("OverSix"), "{listed}");
    let mut client = TcpStream::connect(&sql).unwrap();
    client.write_all(&SSL_REQUEST).unwrap();
    let mut answer = [0];
    client.read_exact(&mut answer).unwrap();
    assert!(b"NS".contains(&answer[0]), "{answer:?}");
}

/// Takes one request after the other. Returns the port and the bodies.
fn webhook() -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, bodies) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut length = 0;
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap_or_default() > 2 {
                if let Some((name, value)) = line.split_once(':')
                    && name.eq_ignore_ascii_case("content-length")
                {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            reader.get_mut().write_all(answer).unwrap();
            if sender.send(String::from_utf8(body).unwrap()).is_err() {
                return;
            }
        }
    });
    (port, bodies)
}
