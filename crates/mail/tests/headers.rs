//! Whatever stands in names of jobs, labels and addresses, a mail has exactly the headers and texts
//! that were set: read by Python's `email`, as by a mail program.

#![allow(clippy::unwrap_used, reason = "a test without its surroundings ends")]

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};
use takt_mail::{Attachment, EmailConfig, Mail, Mailer, TlsMode};

const MAILS: usize = 300;

/// Reads a mail of each line, and prints its headers and parts.
const READER: &str = r#"
import email, email.policy, json, sys
for line in sys.stdin:
    raw = bytes.fromhex(line.strip())
    mail = email.message_from_bytes(raw, policy=email.policy.SMTP)
    parts = [part for part in mail.walk() if not part.is_multipart()]
    print(json.dumps({
        "names": [name.lower() for name in mail.keys()],
        "subject": str(mail["Subject"]),
        "list": str(mail["List-Id"]),
        "to": [[a.display_name, a.addr_spec] for a in mail["To"].addresses],
        "defects": [repr(defect) for defect in mail.defects],
        "parts": [part.get_payload(decode=True).decode() for part in parts],
        "files": [part.get_filename() for part in parts],
    }))
"#;

/// Pieces of hostile texts.
fn text() -> impl Strategy<Value = String> {
    let pieces = select(vec![
        "\r\n",
        "\n",
        "\r",
        "\0",
        "\u{1b}[31m",
        "\r\nBcc: eve@evil.example\r\n\r\n",
        "\n.\n",
        "\r\n.\r",
        "\r\n.\r\nMAIL FROM:<eve@evil.example>\r\n",
        ".",
        "..",
        " ",
        "\t",
        "\u{2028}",
        "\u{85}",
        "\u{202e}",
        "=?utf-8?b?RVZJTA0KQmNjOiBl?=",
        "=?utf-8?q?=0D=0ABcc:_e?=",
        "=?",
        "?=",
        "\"",
        "\\",
        "<",
        ">",
        ",",
        ";",
        "@",
        "(",
        ")",
        ":",
        "größe",
        "名前",
        "🌍",
        "e\u{301}",
        "job_42",
        "train",
        "{{",
        "%0d%0a",
        "'",
    ]);
    // Lengths above a word, above a line of 998 bytes, and above the limit of a header.
    let long = (0usize..3, select(vec!['a', 'é', '名', ' ', '=']))
        .prop_map(|(size, letter)| letter.to_string().repeat([80, 1_100, 10_000][size]));

    let any = prop_oneof![6 => pieces.prop_map(str::to_owned), 1 => long, 2 => "\\PC{0,12}", 1 => any::<String>()];
    prop::collection::vec(any, 0..8).prop_map(|all| all.concat())
}

/// The text as a header shows it: one line without control characters.
fn line(text: &str) -> String {
    let words = text.split(|c: char| c.is_control() || c.is_whitespace());
    words
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn mails_have_exactly_the_headers_that_were_set() {
    let config = EmailConfig {
        server: "localhost:25".to_owned(),
        tls: Some(TlsMode::None),
        from: "Takt <takt@lab.example>".to_owned(),
        reply_to: Some("ops@lab.example".to_owned()),
        ..EmailConfig::default()
    };
    let mailer = Mailer::new(&config).unwrap();
    // The same seed in each run: a failure can be repeated.
    let mut runner = TestRunner::deterministic();
    let mut hostile = || text().new_tree(&mut runner).unwrap().current();

    let mut sent = Vec::new();
    let mut eml = String::new();
    while sent.len() < MAILS {
        let mail = Mail {
            to: format!("{} <ann@lab.example>", hostile()),
            subject: hostile(),
            text: hostile(),
            html: (sent.len() % 2 == 0).then(&mut hostile),
            message_id: Some(format!("takt.{}@lab.example", sent.len())),
            thread: Some("takt.0@lab.example".to_owned()),
            headers: vec![("List-Id", hostile())],
            attachments: vec![Attachment {
                name: hostile(),
                content_type: "text/csv; charset=utf-8".to_owned(),
                content: hostile().into_bytes(),
            }],
        };
        // A name that is no name of an address is refused as a whole.
        let to = match mailer.check(&mail.to) {
            Ok(()) => mail.to.clone(),
            Err(_) => "ann@lab.example".to_owned(),
        };

        let mail = Mail { to, ..mail };

        let bytes = mailer.eml(&mail).unwrap();
        assert!(bytes.is_ascii());
        let text = String::from_utf8(bytes.clone()).unwrap();
        // Servers refuse longer lines (RFC 5322), and some end a line at CR or LF alone.
        for line in text.split("\r\n") {
            assert!(line.len() <= 998, "{} bytes: {mail:?}", line.len());
            assert!(!line.contains(['\r', '\n', '\0']), "{line:?}");
        }
        // In hexadecimal, since a mail contains line breaks and the reader takes one mail a line.
        eml.extend(bytes.iter().map(|byte| format!("{byte:02x}")));
        eml.push('\n');
        sent.push(mail);
    }

    let mut python = Command::new("/usr/bin/python3")
        .args(["-c", READER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();

    let mut input = python.stdin.take().unwrap();
    // Written by a thread: Python prints while it reads, and two full pipes would wait for each other.
    let writer = std::thread::spawn(move || input.write_all(eml.as_bytes()).unwrap());
    let read = python.wait_with_output().unwrap();
    writer.join().unwrap();

    let read = String::from_utf8(read.stdout).unwrap();
    assert_eq!(read.lines().count(), MAILS);

    for (mail, found) in sent.iter().zip(read.lines()) {
        let found: Value = serde_json::from_str(found).unwrap();
        // A header more would be one that a hostile text has begun.
        let names = [
            "from",
            "to",
            "date",
            "message-id",
            "reply-to",
            "in-reply-to",
            "references",
            "subject",
            "auto-submitted",
            "list-id",
            "mime-version",
            "content-type",
        ];
        let mut expected: Vec<_> = names.map(Value::from).to_vec();

        let mut names = found["names"].as_array().unwrap().clone();
        expected.sort_by_key(Value::to_string);
        names.sort_by_key(Value::to_string);
        assert_eq!(names, expected, "{mail:?}");

        // Python decodes the encoded words. The text must be the one that was set.
        for (header, text) in [("subject", &mail.subject), ("list", &mail.headers[0].1)] {
            let shown = found[header].as_str().unwrap();
            let text = line(text);
            let expected = match text.len() {
                0..=2_000 => text,
                _ => format!("{}…", &text[..text.floor_char_boundary(2_000)]),
            };
            assert_eq!(shown, expected, "{header}");
        }

        assert_eq!(found["to"].as_array().unwrap().len(), 1, "{mail:?}");
        assert_eq!(found["to"][0][1], json!("ann@lab.example"), "{mail:?}");
        assert_eq!(found["defects"], json!([]), "{mail:?}");

        // The text, the HTML and the attachment: no text begins a part of its own.
        let parts = found["parts"].as_array().unwrap();
        assert_eq!(
            parts.len(),
            2 + usize::from(mail.html.is_some()),
            "{mail:?}"
        );
    }
}
