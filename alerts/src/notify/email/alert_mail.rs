//! A row of the outbox as a mail.

use crate::message::{Message, Status};
use crate::notify::words::{PARTS_MAX, instant, when};
use crate::notify::{ACKNOWLEDGE, Part, Wording, link, parts, subject, text};
use crate::outbox::Row;
use jiff::tz::TimeZone;
use takt_mail::Mail;

/// Bytes of the address in a Message-ID: a header's line must not have more than 998 bytes.
const ADDRESS_MAX: usize = 128;

/// One address and the templates of its mails.
#[derive(Debug, Clone, PartialEq)]
pub struct Email {
    /// The address.
    pub to: String,
    /// Part of the Message-ID after the `@`: the sender's domain.
    pub domain: String,
    /// The configured templates `subject`, `html` and `text`.
    pub wording: Wording,
    /// Whether mails about one group of alerts form a thread.
    pub is_threaded: bool,
}

impl Email {
    /// The Message-ID of a row's mail. Every attempt has the same one, so that mail programs can
    /// drop a duplicate.
    pub fn message_id(&self, row: &Row) -> String {
        // In hexadecimal, since an address may have characters that a Message-ID may not.
        let address: String = self
            .to
            .bytes()
            .take(ADDRESS_MAX)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!(
            "takt.{}.{}.{address}@{}",
            row.created_at.0, row.id, self.domain
        )
    }

    /// The mail for a row. `thread` is the Message-ID of the group's first mail; `None` for the
    /// first mail itself.
    pub fn mail(&self, row: &Row, thread: Option<&str>) -> Mail {
        let message = &row.message;
        let fingerprints: Vec<_> = message
            .alerts
            .iter()
            // A header has to stay short, however many alerts there are.
            .take(20)
            .map(|alert| alert.fingerprint.to_string())
            .collect();

        let mut headers = vec![
            ("List-Id", format!("Takt alerts <alerts.{}>", self.domain)),
            ("X-GPU-Alert-Fingerprint", fingerprints.join(" ")),
        ];
        if message.status == Status::Firing && is_page(message) {
            headers.push(("Importance", "high".to_owned()));
        }

        let say = |name| self.wording.text(name, row);
        let own_text = say("text");
        let own_html = self.wording.html_text("html", row);
        // A configured text beside the default page would be two different mails in one.
        let html = own_html.or_else(|| own_text.is_none().then(|| html(message)));
        Mail {
            to: self.to.clone(),
            subject: say("subject").map_or_else(|| subject(message), |text| one_line(&text)),
            text: own_text.unwrap_or_else(|| plain(message)),
            html,
            message_id: Some(self.message_id(row)),
            thread: thread.filter(|_| self.is_threaded).map(str::to_owned),
            headers,
            attachments: Vec::new(),
        }
    }
}

/// The message as plain text, with its links.
fn plain(message: &Message) -> String {
    let acknowledge = message
        .acknowledge_url
        .as_ref()
        .map_or_else(String::new, |url| format!("{ACKNOWLEDGE}: {url}\n"));
    format!("{}\n\n{acknowledge}{}\n", text(message), link(message))
}

/// The text as one line, as a header requires.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_page(message: &Message) -> bool {
    message
        .alerts
        .iter()
        .any(|alert| alert.labels.get("severity") == Some("critical"))
}

/// The message as HTML: one box for each part, with the colour of its severity at the left. Mail
/// programs support little CSS, so every element carries its own style.
fn html(message: &Message) -> String {
    let parts = parts(message);

    let zone = message.zone();
    let mut boxes: String = parts
        .iter()
        .take(PARTS_MAX)
        .map(|part| boxed(part, &zone))
        .collect();
    let more: usize = parts.iter().skip(PARTS_MAX).map(|part| part.alerts).sum();
    if more > 0 {
        boxes += &format!("<p style=\"color:#5f6368\">and {more} more</p>\n");
    }

    // A single part needs no title.
    let title = match parts.as_slice() {
        [_] => String::new(),
        _ => format!(
            "<h1 style=\"font-size:17px;margin:0 0 12px\">{}</h1>\n",
            escaped(&subject(message))
        ),
    };

    let link = escaped(&link(message));
    let acknowledge = message
        .acknowledge_url
        .as_ref()
        .map_or_else(String::new, |url| button(&escaped(url)));
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"></head>\n\
         <body style=\"margin:0;padding:16px;background:#ffffff;color:#1a1a1a;\
         font:15px/1.5 -apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif\">\n<div \
         style=\"max-width:640px\">\n\
         {title}{boxes}{acknowledge}\
         <p style=\"margin:14px 0 0;font-size:13px;color:#5f6368\">Takt · <a \
         style=\"color:#5f6368\" href=\"{link}\">{link}</a></p>\n\
         </div></body></html>\n"
    )
}

/// A link that looks like a button. `url` is escaped.
fn button(url: &str) -> String {
    format!(
        "<p style=\"margin:14px 0 0\"><a style=\"display:inline-block;padding:8px 16px;border-radius:6px;\
         background:#1a57ad;color:#ffffff;text-decoration:none;font-weight:600\" href=\"{url}\">{ACKNOWLEDGE}</a></p>\n"
    )
}

fn boxed(part: &Part, zone: &TimeZone) -> String {
    let colour = match (part.status, part.severity.as_str()) {
        (Status::Resolved, _) => "#1b7f3b",
        (Status::Firing, "critical") => "#b3261e",
        (Status::Firing, "warning") => "#b26a00",
        (Status::Firing, _) => "#1a5fb4",
    };

    let row = |(name, text): &(&str, String)| {
        // The bars of "last hour" line up only in a font of fixed width.
        let font = if *name == "last hour" {
            ";font-family:Menlo,Consolas,monospace;font-size:13px"
        } else {
            ""
        };
        let weight = if *name == "what to do" {
            ";font-weight:600"
        } else {
            ""
        };
        format!(
            "<tr><td style=\"padding:2px 12px 2px 0;color:#5f6368;white-space:nowrap;vertical-align:top\">{name}</td>\
             <td style=\"padding:2px 0{font}{weight}\">{}</td></tr>\n",
            escaped(text)
        )
    };

    let rows: String = part.facts.iter().map(row).collect();
    let lines = match part.lines.as_str() {
        "" => String::new(),
        lines => format!(
            "<pre style=\"margin:8px 0 0;padding:8px 10px;background:#f1f3f4;font:12px/1.45 \
             Menlo,Consolas,monospace;\
             white-space:pre-wrap;word-break:break-word\">{}</pre>\n",
            escaped(lines)
        ),
    };
    format!(
        "<div style=\"border-left:4px solid {colour};padding:2px 0 2px 14px;margin:0 0 18px\">\n\
         <div style=\"font-size:13px;color:{colour};font-weight:600\">{} · {}</div>\n\
         <div style=\"font-size:17px;font-weight:600;margin:2px 0 6px\">{}</div>\n\
         <table style=\"border-collapse:collapse;font-size:14px\" \
         role=\"presentation\">\n{rows}</table>\n{lines}</div>\n",
        escaped(&part.name),
        escaped(&when(part, &|at| instant(at, zone))),
        escaped(&part.summary),
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
