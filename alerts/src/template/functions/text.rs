//! Functions over text: titles, hosts, links, escaping.

/// The text with the first letter of each word in upper case; digits, `_` and `'` belong to words.
pub(super) fn title(text: &str) -> String {
    let mut inside = false;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if inside {
            out.push(c)
        } else {
            out.extend(c.to_uppercase())
        }
        inside = c.is_alphanumeric() || matches!(c, '_' | '\'');
    }
    out
}

/// The text with the first letter of each word in upper case and the other letters in lower case, as
/// Go's `cases.Title`. Digits and `_` belong to words; `'`, `.` and `:` between letters do not end
/// one.
pub(super) fn title_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_inside = false;
    let mut has_letter = false;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        has_letter &= is_inside;
        if !c.is_alphabetic() {
            out.push(c);
        } else if has_letter {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
            has_letter = true;
        }
        let is_middle = matches!(c, '\'' | '’' | '.' | ':' | '·');
        let goes_on = rest.peek().is_some_and(|next| next.is_alphabetic());
        is_inside = c.is_alphanumeric() || c == '_' || is_inside && is_middle && goes_on;
    }
    out
}

/// Splits `host:port` or `[v6]:port`; the port keeps its colon.
pub(super) fn split_port(host: &str) -> (&str, &str) {
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && (!name.contains(':') || name.ends_with(']')) => (
            name.trim_matches(['[', ']']),
            &host[host.len() - port.len() - 1..],
        ),
        _ => (host, ""),
    }
}

pub(super) fn strip_domain(host: &str) -> String {
    let (name, port) = split_port(host);
    if name.parse::<std::net::IpAddr>().is_ok() {
        return host.to_owned();
    }
    format!("{}{port}", name.split('.').next().unwrap_or(name))
}

pub(super) fn path_of(url: &str) -> String {
    let behind = url.split_once("://").map_or(url, |(_, behind)| behind);
    let path = behind.find('/').map_or("", |at| &behind[at..]);
    path.split(['?', '#'])
        .next()
        .unwrap_or_default()
        .trim_end_matches('/')
        .to_owned()
}

pub(super) fn link(expression: &str, tab: u8) -> String {
    format!("/graph?g0.expr={}&g0.tab={tab}", escape_query(expression))
}

/// The text with HTML's special characters replaced, as Go does.
pub(crate) fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

pub(super) fn unescape_query(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        let hex = behind
            .get(..2)
            .and_then(|hex| std::str::from_utf8(hex).ok());
        rest = behind;
        match (byte, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'+', _) => out.push(b' '),
            (b'%', Some(byte)) => {
                out.push(byte);
                rest = &behind[2..];
            }
            (byte, _) => out.push(*byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

pub(super) fn escape_query(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            b if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~') => {
                out.push(char::from(b))
            }
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Alertmanager 0.34 prints them.
    #[test]
    fn titles_of_messages() {
        let text = "hELLO wORLD don't foo-bar a.b x_y 3abc éa_B 1st (q) a:b a1b";
        let expected = "Hello World Don't Foo-Bar A.b X_y 3Abc Éa_b 1St (Q) A:b A1b";
        assert_eq!(title_words(text), expected);
    }
}
