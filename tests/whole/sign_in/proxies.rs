//! Trusted proxies: a real nginx over TCP and over the Unix socket, a real Caddy with a secret, and
//! requests that only look like theirs.

use crate::access::{ALICE, BEARER_ADMIN, BOB, Lab, ROOT, SAME, SOON, WWW_DATA, needs, set_mode};
use crate::support::process::{Daemon, free_port};
use crate::support::takt::Takt;
use crate::support::{Needed, need, or_skip};
use serde_json::Value;
use std::env;
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{self, Command};

const NAMED: &str = "X-Remote-User: alice";

/// Address of a client that is not a proxy.
const CLIENT: [&str; 2] = ["--interface", "127.0.0.2"];

/// nginx, whose workers run as www-data and which signs users in with basic authentication.
fn nginx(lab: &Lab, upstream: &str) -> (Daemon, u16) {
    let folder = lab.takt.directory().join("nginx");
    fs::create_dir(&folder).unwrap();
    set_mode(&folder, 0o755);
    let port = free_port();
    // nginx makes these folders at its start, and the usual ones belong to the system's nginx.
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {kind};\n"))
        .concat();
    fs::write(folder.join("users"), "alice:{PLAIN}hers\nroot:{PLAIN}his\n").unwrap();
    let config = format!(
        "user www-data; daemon off; pid nginx.pid; error_log stderr; events {{}}\n\
         http {{ access_log off;\n{temporary}\
         server {{ listen 127.0.0.1:{port};\nlocation / {{\n\
         auth_basic lab; auth_basic_user_file {users};\n\
         proxy_pass {upstream}; proxy_http_version 1.1; proxy_set_header Host $host;\n\
         proxy_set_header Authorization \"\";\n\
         proxy_set_header X-Remote-User $remote_user;\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n}} }} }}\n",
        users = folder.join("users").display(),
    );
    fs::write(folder.join("nginx.conf"), config).unwrap();
    let mut command = Command::new("nginx");
    command
        .arg("-p")
        .arg(&folder)
        .arg("-c")
        .arg(folder.join("nginx.conf"));
    let mut daemon = Daemon::start("nginx", command, &folder.join("nginx.log"));
    daemon.wait_until("listening", SOON, || {
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    (daemon, port)
}

/// Requests a path at another port than the server's.
fn at(port: u16, path: &str, arguments: &[&str]) -> (u16, String) {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--max-time",
            "60",
            "--noproxy",
            "*",
            "--write-out",
            "\n%{http_code}",
        ])
        .args(arguments)
        .arg(format!("http://127.0.0.1:{port}{path}"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

fn whoami(port: u16, arguments: &[&str]) -> Value {
    let (status, body) = at(port, "/api/takt/v1/whoami", arguments);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn needs_nginx() -> bool {
    let needed = needs().and_then(|()| {
        need(&[Needed {
            program: "nginx",
            package: "nginx-light",
        }])
    });
    or_skip(needed).is_some()
}

#[test]
fn nginx_signs_users_in_and_nobody_else_can() {
    if !needs_nginx() {
        return;
    }
    let lab = Lab::start(
        "privacy = \"private\"\n[auth.proxy]\ntrusted = [\"127.0.0.1\"]\nunix_user = \"www-data\"\n\
         user_header = \"X-Remote-User\"",
    );
    let (_nginx, port) = nginx(&lab, &format!("http://127.0.0.1:{}", lab.port));
    let alice = [&CLIENT[..], &["--user", "alice:hers"]].concat();
    let known = whoami(port, &alice);
    assert_eq!(known["user"], "alice");
    assert_eq!(known["role"], "user");
    assert_eq!(known["way"], "proxy");

    // The proxy replaces what its client sends; root names no user.
    for header in [
        "X-Remote-User: bob",
        "X-Forwarded-For: 10.0.0.1",
        "X-Takt-Proxy-Secret: x",
        "Forwarded: for=10.0.0.1",
    ] {
        let arguments = [&alice[..], &["--header", header]].concat();
        assert_eq!(whoami(port, &arguments)["user"], "alice", "{header}");
    }
    assert_eq!(whoami(port, &["--user", "root:his"])["role"], "anonymous");
    assert_eq!(at(port, "/", &["--user", "alice:wrong"]).0, 401);

    // Directly at the server: the kernel knows that the connection is not the proxy's.
    for uid in [ROOT, BOB, ALICE, 65_534] {
        let (_, body) = lab.curl(uid, "/api/takt/v1/whoami", &["--header", NAMED]);
        let known: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(known["role"], "anonymous", "{uid}: {known}");
    }
    // Which of two names counts would depend on the reader.
    let twice = ["--header", NAMED, "--header", "X-Remote-User: bob"];
    let known = lab.json(WWW_DATA, "/api/takt/v1/whoami", &twice);
    assert_eq!(known["role"], "anonymous", "two names");
    // Some servers take `_` for `-`, so such a header may pass a filter.
    let other = ["--header", "x_remote_user: alice"];
    assert_eq!(
        lab.json(WWW_DATA, "/api/takt/v1/whoami", &other)["role"],
        "anonymous"
    );

    // A page of another site cannot use that the browser is signed in at the proxy.
    let order = |site: &[&str]| {
        let json = "Content-Type: application/json";
        let order = ["--data", "{\"name\":\"notebook\"}", "--header", json];
        at(
            port,
            "/api/takt/v1/tokens",
            &[&alice[..], &order, site].concat(),
        )
        .0
    };

    // An order without the browser's word about its origin counts as one without a sign-in.
    assert_eq!(order(&[]), 401);
    assert_eq!(order(&["--header", "Sec-Fetch-Site: cross-site"]), 403);
    assert_eq!(order(&["--header", SAME]), 200);
    let log = lab.json(ROOT, "/api/takt/v1/audit", &["--header", BEARER_ADMIN]);
    let made = log
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["outcome"] == "200")
        .unwrap_or_else(|| panic!("{log}"));
    assert_eq!(made["user"], "alice");
    assert_eq!(made["way"], "proxy");
    assert_eq!(made["address"], "127.0.0.2");
}

#[test]
fn nginx_signs_users_in_through_the_socket() {
    if !needs_nginx() {
        return;
    }
    let lab = Lab::start(
        "privacy = \"private\"\n[auth.proxy]\ntrusted = [\"socket\"]\nunix_user = \"www-data\"\n\
         user_header = \"X-Remote-User\"",
    );
    let socket = lab.takt.directory().join("takt.sock").display().to_string();
    let (_nginx, port) = nginx(&lab, &format!("http://unix:{socket}"));
    let alice = [&CLIENT[..], &["--user", "alice:hers"]].concat();
    assert_eq!(whoami(port, &alice)["user"], "alice");

    // The same header from others at the socket.
    for uid in [BOB, ROOT] {
        let arguments = ["--unix-socket", &socket, "--header", NAMED];
        let known = lab.json(uid, "/api/takt/v1/whoami", &arguments);
        assert_eq!(known["role"], "anonymous", "{uid}");
    }
    assert_eq!(
        lab.json(BOB, "/api/takt/v1/whoami", &["--unix-socket", &socket])["user"],
        "bob"
    );
}

/// A proxy that runs as root and that Takt does not know is not root: its clients are.
#[test]
fn a_proxy_of_root_at_the_socket_is_not_root() {
    if or_skip(needs()).is_none() {
        return;
    }
    let lab = Lab::start("privacy = \"private\"");
    let socket = lab.takt.directory().join("takt.sock").display().to_string();
    let known = |more: &[&str]| {
        let arguments = [&["--unix-socket", &socket][..], more].concat();
        lab.json(ROOT, "/api/takt/v1/whoami", &arguments)["role"].clone()
    };
    assert_eq!(known(&[]), "admin");
    for header in [
        "X-Forwarded-For: 198.51.100.7",
        "Forwarded: for=198.51.100.7",
        "Via: 1.1 proxy",
    ] {
        assert_eq!(known(&["--header", header]), "anonymous", "{header}");
    }
    assert_eq!(
        known(&["--http1.0"]),
        "anonymous",
        "nginx without configuration"
    );
}

#[test]
fn caddy_signs_users_in_with_a_secret() {
    let needed = needs().and_then(|()| {
        need(&[Needed {
            program: "caddy",
            package: "caddy",
        }])
    });
    if or_skip(needed).is_none() {
        return;
    }
    let secret = env::temp_dir().join(format!("takt-proxy-secret-{}", process::id()));
    fs::write(&secret, "0123456789abcdef\n").unwrap();
    let lab = Lab::start(&format!(
        "privacy = \"private\"\n[auth.proxy]\ntrusted = [\"127.0.0.1\"]\nsecret_file = \"{}\"\n\
         user_header = \"Remote-User\"\ngroups_header = \"Remote-Groups\"\n\
         groups.support = [\"helpdesk\"]\ngroups.user = [\"hpc\"]",
        secret.display()
    ));
    // The server has read it at its start.
    fs::remove_file(&secret).unwrap();
    let hash = Command::new("caddy")
        .args(["hash-password", "--plaintext", "hers"])
        .output()
        .unwrap();
    let hash = String::from_utf8(hash.stdout).unwrap();
    let caddy = |name: &str, headers: &str| {
        let port = free_port();
        let text = format!(
            "{{\n admin off\n auto_https off\n}}\nhttp://127.0.0.1:{port} {{\n\
             basicauth {{\n  alice {hash}\n }}\n\
             reverse_proxy 127.0.0.1:{} {{\n  header_up -Authorization\n{headers}\n }}\n}}\n",
            lab.port
        );
        let file = lab.takt.file(name, text);
        (start_caddy(&file, lab.takt.directory(), port), port)
    };
    let user = "header_up Remote-User {http.auth.user.id}\nheader_up Remote-Groups helpdesk,hpc\n";
    let trusted = format!("{user}header_up X-Takt-Proxy-Secret 0123456789abcdef\n");
    let alice = [&CLIENT[..], &["--user", "alice:hers"]].concat();
    let (_caddy, port) = caddy("Caddyfile", &trusted);
    let known = whoami(port, &alice);
    assert_eq!(known["user"], "alice");
    assert_eq!(known["role"], "support");
    let spoofed = [&alice[..], &["--header", "X-Forwarded-For: 10.0.0.1"]].concat();
    assert_eq!(whoami(port, &spoofed)["user"], "alice");
    let (_other, port) = caddy("Otherfile", user);
    assert_eq!(
        whoami(port, &alice)["role"],
        "anonymous",
        "without the secret"
    );
    let groups = trusted.replace("helpdesk,hpc", "students");
    let (_third, port) = caddy("Thirdfile", &groups);
    assert_eq!(
        whoami(port, &alice)["role"],
        "anonymous",
        "no group may sign in"
    );

    // Directly at the server, as a proxy that knows all but the secret.
    for header in [
        "X-Takt-Proxy-Secret: 0123456789abcdeX",
        "X-Takt-Proxy-Secret: ",
        "X-None: 1",
    ] {
        let arguments = ["--header", "Remote-User: alice", "--header", header];
        let known = lab.json(ALICE, "/api/takt/v1/whoami", &arguments);
        assert_eq!(known["role"], "anonymous", "{header}");
    }
}

fn start_caddy(file: &Path, home: &Path, port: u16) -> Daemon {
    let mut command = Command::new("caddy");
    command
        .args(["run", "--adapter", "caddyfile", "--config"])
        .arg(file)
        .env("HOME", home)
        .env("XDG_DATA_HOME", home)
        .env("XDG_CONFIG_HOME", home);
    let mut daemon = Daemon::start("caddy", command, &file.with_extension("log"));
    daemon.wait_until("listening", SOON, || {
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    daemon
}

/// `takt check-config` refuses a configuration that the server would refuse at its start.
#[test]
fn check_config_looks_at_secrets_and_users() {
    let takt = Takt::fresh();
    let said = |auth: &str| {
        takt.file("takt.toml", format!("[jobs]\npoll = false\n{auth}\n"));
        takt.run(["check-config", "--config", "takt.toml"])
    };
    let proxy = "[auth.proxy]\ntrusted = [\"127.0.0.1\"]\n";
    let with_secret = format!("{proxy}secret_file = \"secret\"");
    let missing = said(&with_secret).fails(2);
    assert!(
        missing.contains("line 5: auth.proxy.secret_file: expected a file with the secret"),
        "{missing}"
    );
    set_mode(&takt.file("secret", "short\n"), 0o644);
    let short = said(&with_secret).fails(2);
    assert!(short.contains("shorter than 16 characters"), "{short}");
    set_mode(&takt.file("secret", "0123456789abcdef\n"), 0o644);
    let open = said(&with_secret);
    assert_eq!(open.code, Some(0), "{}", open.stderr);
    assert!(
        open.stderr.contains("every user can read the secret in"),
        "{}",
        open.stderr
    );
    assert!(!open.stdout.contains("0123456789abcdef"));
    let unknown = said(&format!("{proxy}unix_user = \"no-such-user\"")).fails(2);
    assert!(
        unknown.contains("no user has the name no-such-user"),
        "{unknown}"
    );

    let ldap = "[auth.ldap]\nurl = \"ldaps://localhost\"\nbase = \"dc=uni\"\n";
    let missing = said(&format!("{ldap}ca_file = \"ca.pem\"")).fails(2);
    assert!(missing.contains("auth: ldap: ca_file"), "{missing}");
    let nearest = said(&format!("{ldap}start_tsl = true")).fails(2);
    assert!(nearest.contains("did you mean start_tls?"), "{nearest}");
}
