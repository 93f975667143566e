//! Pages with the received mails.

use crate::mail::MailFolder;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use std::fmt::Write;

const STYLE: &str = "\
    body{font:15px/1.5 system-ui,sans-serif;max-width:52rem;margin:1.5rem auto;padding:0 1rem;\
    color:#1d1c1d;background:#fff}h1{font-size:1.1rem}td{padding:.2rem .8rem .2rem 0}\
    small{color:#616061}\
    @media(prefers-color-scheme:dark){body{color:#d1d2d3;background:#1a1d21}a{color:#8ab4f8}}";

/// Content of mails comes from rules and users: it loads nothing and runs no script.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// Lists the mails with their subjects, newest first.
pub async fn list(State(mails): State<MailFolder>) -> Html<String> {
    let folder = escaped(&mails.path().display().to_string());
    let mut out = format!(
        "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=10>\
         <title>Mails of the demo</title><style>{STYLE}</style>\
         <h1>Mails of the demo <small>{folder}</small></h1><table>"
    );

    // Files are numbered as the mails arrive, so the list needs no index.
    for number in (1..=mails.received()).rev() {
        let mail = read(&mails, number).await.unwrap_or_default();
        let header = |name: &str| {
            let line = mail
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_default()
                .trim();
            escaped(line)
        };
        let _ = write!(
            out,
            "<tr><td><a href=\"/mail/{number}\">{}</a><td>{}<td><small>{}</small>",
            header("Subject:"),
            header("To:"),
            header("Date:")
        );
    }
    if mails.received() == 0 {
        out.push_str("<tr><td>No mail yet.");
    }
    out.push_str("</table>");
    Html(out)
}

/// Shows a mail as a mail program does: its HTML part, else its text.
pub async fn show(State(mails): State<MailFolder>, Path(number): Path<u32>) -> Response {
    let Some(mail) = read(&mails, number).await else {
        return StatusCode::NOT_FOUND.into_response();
    };
    // HTML is shown unchanged: the policy lets it load nothing.
    let body = part(&mail, "text/html").unwrap_or_else(|| {
        let text = part(&mail, "text/plain").unwrap_or(mail);
        format!(
            "<!doctype html><meta charset=utf-8><pre>{}</pre>",
            escaped(&text)
        )
    });
    ([(header::CONTENT_SECURITY_POLICY, POLICY)], Html(body)).into_response()
}

async fn read(mails: &MailFolder, number: u32) -> Option<String> {
    let path = mails.path().join(format!("{number:04}.eml"));
    let mail = tokio::fs::read(path).await.ok()?;
    Some(String::from_utf8_lossy(&mail).replace("\r\n", "\n"))
}

/// Returns the decoded part of a type. Takt's mails are quoted-printable or plain.
fn part(mail: &str, kind: &str) -> Option<String> {
    // The first part of the type, since a report may have others attached.
    let (_, part) = mail.split_once(&format!("\nContent-Type: {kind}"))?;
    let (head, body) = part.split_once("\n\n")?;
    // A part ends where the next boundary begins.
    let body = body.split("\n--").next().unwrap_or(body);
    if head.contains("quoted-printable") {
        Some(unquoted(body))
    } else if head.contains("base64") {
        None
    } else {
        Some(body.to_owned())
    }
}

/// Decodes quoted-printable text (RFC 2045, 6.7).
fn unquoted(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();

    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'=' {
            bytes.push(*first);
            continue;
        }
        // An equals sign at the end of a line joins it with the next one.
        if let [b'\n', after @ ..] = rest {
            rest = after;
            continue;
        }
        match rest
            .get(..2)
            .and_then(|two| std::str::from_utf8(two).ok())
            .and_then(|two| u8::from_str_radix(two, 16).ok())
        {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[2..];
            }
            // A text that is not encoded correctly is shown undecoded.
            None => bytes.push(b'='),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn escaped(text: &str) -> String {
    // `&` first, or the entity of `<` would be escaped again.
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::tempdir;

    const MAIL: &str = "Subject: x\nContent-Type: multipart/alternative; boundary=b\n\n--b\n\
        Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\n\
        GPU lost =\nuntil =C2=B7 later, a=3D1\n\n--b\n\
        Content-Type: text/html; charset=utf-8\n\n<b>GPU</b>\n--b--\n";

    #[test]
    fn a_part_is_decoded_and_ends_at_its_boundary() {
        assert_eq!(
            part(MAIL, "text/plain").as_deref(),
            Some("GPU lost until · later, a=1\n")
        );
        assert_eq!(part(MAIL, "text/html").as_deref(), Some("<b>GPU</b>"));
        assert_eq!(part(MAIL, "text/calendar"), None);
        // An equals sign without digits, and a byte that begins a character and ends the text.
        assert_eq!(unquoted("100=% =C3"), "100=% \u{fffd}");
    }

    #[tokio::test]
    async fn the_list_links_to_mails_and_an_unknown_mail_is_not_found() {
        let folder = tempdir().unwrap();
        fs::write(folder.path().join("0001.eml"), MAIL).unwrap();
        let mails = MailFolder::new(folder.path());

        let shown = show(State(mails.clone()), Path(1)).await;
        assert_eq!(shown.status(), StatusCode::OK);
        assert!(
            shown
                .headers()
                .contains_key(header::CONTENT_SECURITY_POLICY)
        );

        let unknown = show(State(mails), Path(2)).await;
        assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
    }
}
