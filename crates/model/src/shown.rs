//! Texts of others on their way to people: to terminals, into cells of spreadsheets, and addresses without their secrets.

use crate::ConfigError;
use std::fmt::Write;

/// What stands for a part of an address that is a secret.
const HIDDEN: &str = "<hidden>";

/// Length from which a segment of a path may be a secret.
const TOKEN_LENGTH: usize = 16;

/// Parameters of exporters whose values are shown in addresses. All others may be secrets.
const SHOWN_PARAMETERS: &[&str] = &["collect[]", "exclude[]", "format", "module", "target"];

/// Characters that begin a formula in a spreadsheet, with their wide and small forms.
const FORMULA: &[char] = &[
    '=', '+', '-', '@', '\t', '\r', '\n', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}',
    '\u{fe66}', '\u{fe62}', '\u{fe63}', '\u{fe6b}', '\u{2212}',
];

/// Whether a character has no form of its own but changes what is around it: control characters, those that turn the
/// direction of a text, and those without a width. They could make a text look like another, or command a terminal.
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// The text for one line of a terminal: unseen characters are replaced.
pub fn printable(text: &str) -> String {
    text.replace(is_unseen, "\u{fffd}")
}

/// The text for several lines of a terminal: unseen characters except tab and line feed are replaced.
pub fn printable_lines(text: &str) -> String {
    text.replace(|c| is_unseen(c) && !matches!(c, '\t' | '\n'), "\u{fffd}")
}

/// JSON for a terminal: unseen characters are written as escapes, which are the same text to a program.
pub fn visible_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        // Between texts, JSON has line feeds and no other unseen character.
        if c == '\n' || !is_unseen(c) {
            out.push(c);
            continue;
        }
        // JSON escapes have four digits, so characters beyond U+FFFF become a surrogate pair.
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

/// The text as one word of a command line that a person copies into a shell: quoted, unless it has plain characters only.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=.,:/@%+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    // In single quotes a shell expands nothing; only the quote itself has to leave them.
    format!("'{}'", printable(text).replace('\'', r"'\''"))
}

/// The text for a cell of a CSV file, as [`printable`], with `⏎` for a line feed and a `'` in front of what a spreadsheet would
/// run as a formula. A cell may hold line feeds, but on a terminal its second line would look like a record.
pub fn csv_cell(text: &str) -> String {
    // Spreadsheets skip blanks and unseen characters before they look for a formula.
    let visible = text.trim_start_matches(|c: char| {
        c == ' ' || c == '\u{3000}' || is_unseen(c) && !FORMULA.contains(&c)
    });
    let shown = printable(&text.replace('\n', "⏎").replace('\t', " "));
    // A single dash is an empty value, and no formula.
    if text != "-" && visible.starts_with(FORMULA) {
        format!("'{shown}")
    } else {
        shown
    }
}

/// The text with all addresses in it shown as [`shown_address`] shows them.
pub fn without_secrets(text: &str) -> String {
    let is_end = |c: char| matches!(c, '"' | '\'' | '<' | '>' | '`') || c.is_whitespace();
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(colon) = rest.find(':') {
        // A scheme is the run of its characters directly before the colon.
        let scheme = rest[..colon].rfind(|c: char| !is_in_scheme(c));
        let scheme = scheme.map_or(0, |before| {
            before + rest[before..].chars().next().map_or(1, char::len_utf8)
        });
        let slashes = slashes_after(&rest[scheme..], colon - scheme);
        // `10:20` or `key: value` is no address; the search continues behind the colon.
        if slashes == 0 {
            out.push_str(&rest[..=colon]);
            rest = &rest[colon + 1..];
            continue;
        }

        let begin = colon + 1 + slashes;
        let (address, others) =
            rest[begin..].split_at(rest[begin..].find(is_end).unwrap_or(rest.len() - begin));
        out.push_str(&rest[..begin]);
        out.push_str(&without_secrets_in(address));
        rest = others;
    }
    out.push_str(rest);
    out
}

/// An address such as `host:port` or `http://host/path`, without its secrets: user, password, values of parameters,
/// segments of the path that look like a token, and fragment.
pub fn shown_address(address: &str) -> String {
    let begin = address.find(':').map_or(0, |colon| {
        let slashes = slashes_after(address, colon);
        let scheme = &address[..colon];
        // `http:me:pass@host` is a web address for many parsers; `g01:9855` is a host and its port.
        if slashes > 0 || is_web(scheme) {
            colon + 1 + slashes
        } else {
            0
        }
    });

    format!(
        "{}{}",
        &address[..begin],
        without_secrets_in(&address[begin..])
    )
}

/// Number of slashes after the colon of a scheme; 0 if it is no address. Programs that read web addresses take `http:\\host`
/// and `http:/host` for `http://host`.
fn slashes_after(text: &str, colon: usize) -> usize {
    let after = &text[colon + 1..];
    let slashes = after.len() - after.trim_start_matches(['/', '\\']).len();
    if after.starts_with("//") || is_web(&text[..colon]) {
        slashes
    } else {
        0
    }
}

fn is_web(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

fn is_in_scheme(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')
}

/// The part of an address behind its scheme.
fn without_secrets_in(address: &str) -> String {
    // The fragment first: a `?` behind `#` belongs to it.
    let (address, fragment) = match address.split_once('#') {
        Some((address, fragment)) => (address, Some(fragment)),
        None => (address, None),
    };
    let (front, query) = match address.split_once('?') {
        Some((front, query)) => (front, Some(query)),
        None => (address, None),
    };
    let (authority, path) = front.split_at(front.find(['/', '\\']).unwrap_or(front.len()));

    let mut out = match user_end(authority) {
        Some(end) => format!("{HIDDEN}@{}", &authority[end..]),
        None => authority.to_owned(),
    };

    for (at, segment) in path.split('/').enumerate() {
        let shown = if looks_like_token(segment) {
            HIDDEN
        } else {
            segment
        };
        out.push_str(if at == 0 { "" } else { "/" });
        out.push_str(shown);
    }
    for (at, pair) in query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .enumerate()
    {
        out.push(if at == 0 { '?' } else { '&' });
        let (name, value) = pair.split_once('=').unwrap_or(("", pair));
        // Browsers encode the brackets of `collect[]`.
        let plain = name.replace("%5B%5D", "[]");
        match (name, value.replace("%40", "@")) {
            ("", value) if value.is_empty() => {}
            ("", _) => out.push_str(HIDDEN),
            (name, decoded) if shown_parameter(&plain, &decoded) == HIDDEN => {
                out.push_str(&format!("{name}={HIDDEN}"));
            }
            (name, _) => out.push_str(&format!("{name}={value}")),
        }
    }

    match fragment {
        None => out,
        Some("") => out + "#",
        Some(_) => out + "#" + HIDDEN,
    }
}

/// Returns the end of user and password in front of a host, with the `@` in plain or percent-encoded form.
fn user_end(authority: &str) -> Option<usize> {
    ["@", "%40", "%2540"]
        .iter()
        .filter_map(|at| Some(authority.rfind(at)? + at.len()))
        .max()
}

/// Whether a segment of a path may be a secret: long, with letters and several digits.
fn looks_like_token(segment: &str) -> bool {
    let count = |is: fn(&char) -> bool| segment.chars().filter(is).count();
    // Host names such as `gpu-node-17` and API paths have fewer characters or digits than keys and
    // UUIDs.
    segment.len() >= TOKEN_LENGTH
        && count(char::is_ascii_digit) >= 2
        && count(char::is_ascii_alphabetic) > 0
}

/// Returns the value of a scrape's parameter, unless it may be a secret.
pub fn shown_parameter<'v>(name: &str, value: &'v str) -> &'v str {
    let is_shown = SHOWN_PARAMETERS.contains(&name) && !value.contains('@');
    if is_shown { value } else { HIDDEN }
}

/// Checks that a configured address has no user, no password and no fragment: addresses are shown on pages, in logs and in
/// labels. `instead` says where user and password belong.
///
/// # Errors
/// If it has. The error does not repeat them.
pub fn refuse_user(key: &str, address: &str, instead: &str) -> Result<(), ConfigError> {
    let problem = if has_user(address) {
        format!("expected no user and password; {instead}")
    } else if address.contains('#') {
        "expected no fragment (#…): it is not sent".to_owned()
    } else {
        return Ok(());
    };

    Err(ConfigError::with_problem(key, problem))
}

/// Whether an address names a user or a password.
fn has_user(address: &str) -> bool {
    shown_address(address).contains(&format!("{HIDDEN}@"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_word_is_one_word() {
        assert_eq!(shell_word("ann@lab"), "ann@lab");
        assert_eq!(shell_word(""), "''");
        assert_eq!(shell_word("x;curl evil|sh"), "'x;curl evil|sh'");
        assert_eq!(shell_word("it's\n$(id)"), "'it'\\''s\u{fffd}$(id)'");
    }

    #[test]
    fn unseen_characters_in_json_are_escapes() {
        let json = "[\n  \"é\u{202e}b\u{e0001}\"\n]";
        assert_eq!(visible_json(json), "[\n  \"é\\u202eb\\udb40\\udc01\"\n]");
    }

    #[test]
    fn unseen_characters_do_not_reach_a_terminal() {
        for hidden in [
            '\u{1b}',
            '\u{9b}',
            '\u{7f}',
            '\u{202e}',
            '\u{202a}',
            '\u{2066}',
            '\u{2069}',
            '\u{200b}',
            '\u{200d}',
            '\u{200f}',
            '\u{feff}',
            '\u{ad}',
            '\u{2028}',
            '\u{e0041}',
            '\u{61c}',
            '\u{3164}',
        ] {
            assert_eq!(
                printable(&format!("a{hidden}b")),
                "a\u{fffd}b",
                "{hidden:?}"
            );
            assert_eq!(
                printable_lines(&format!("a{hidden}b\n\tc")),
                "a\u{fffd}b\n\tc"
            );
            assert_eq!(csv_cell(&format!("{hidden}=cmd")), format!("'\u{fffd}=cmd"));
        }
        assert_eq!(printable("a\tb\nc"), "a\u{fffd}b\u{fffd}c");
        let kept = "Jürgen 東京 e\u{301} 🙂 العربية";
        assert_eq!(printable(kept), kept);
    }

    #[test]
    fn no_cell_is_a_formula() {
        for formula in [
            "=1",
            "+1",
            "-1",
            "@x",
            "\u{ff1d}1",
            "\u{ff0b}1",
            "\u{ff0d}1",
            "\u{ff20}x",
            "\u{fe66}1",
            " =1",
            "\u{3000}=1",
        ] {
            assert_eq!(csv_cell(formula), format!("'{formula}"), "{formula:?}");
        }
        // A carriage return and a tab begin a formula in some programs, even after they were
        // replaced.
        assert_eq!(csv_cell("\r=1"), "'\u{fffd}=1");
        assert_eq!(csv_cell("\t=1"), "' =1");
        // On a terminal it would be a line of its own.
        assert_eq!(csv_cell("x\n7,bob"), "x⏎7,bob");
        for plain in ["-", "", "a-b", "a=1", "1", "東京"] {
            assert_eq!(csv_cell(plain), plain);
        }
    }

    #[test]
    fn addresses_are_shown_without_their_secrets() {
        for (address, shown) in [
            ("http://g01:9855/metrics", "http://g01:9855/metrics"),
            ("http://me:p@ss@g01:1/x@y", "http://<hidden>@g01:1/x@y"),
            ("me:pass@g01:1", "<hidden>@g01:1"),
            ("g01:1", "g01:1"),
            ("https://me@g01", "https://<hidden>@g01"),
            (
                "http://g01/p?token=s3cret&a=b",
                "http://g01/p?token=<hidden>&a=<hidden>",
            ),
            ("http://g01/p?s3cret", "http://g01/p?<hidden>"),
            ("http://g01/p?", "http://g01/p?"),
            (
                "http://g01/p?module=icmp&target=gw.lab:1",
                "http://g01/p?module=icmp&target=gw.lab:1",
            ),
            (
                "http://g01/p?target=http%3A%2F%2Fme%3Apass%40host",
                "http://g01/p?target=<hidden>",
            ),
            // Spellings that browsers and HTTP libraries take for http://me:pass@g01.
            ("http:\\\\me:pass@g01", "http:\\\\<hidden>@g01"),
            ("HTTP:/me:pass@g01", "HTTP:/<hidden>@g01"),
            ("http:me:pass@g01", "http:<hidden>@g01"),
            ("https:///me:pass@g01/a", "https:///<hidden>@g01/a"),
            // Encoded once and twice: some proxies decode a second time.
            ("http://me%3Apass%40g01/a", "http://<hidden>@g01/a"),
            ("me%3Apass%2540g01:1", "<hidden>@g01:1"),
            ("http://g01/metrics#s3cret?a", "http://g01/metrics#<hidden>"),
            ("http://g01/metrics#", "http://g01/metrics#"),
            (
                "http://g01/v1/3fa85f64-5717-4562-b3fc/metrics",
                "http://g01/v1/<hidden>/metrics",
            ),
            ("/metrics/0123456789abcdef0", "/metrics/<hidden>"),
            (
                "http://g01/api/v1/nodes/gpu-node-0017/proxy/metrics/cadvisor",
                "http://g01/api/v1/nodes/gpu-node-0017/proxy/metrics/cadvisor",
            ),
        ] {
            assert_eq!(shown_address(address), shown);
        }
        assert_eq!(
            without_secrets("a = \"http://me:p@ss@head:9/x@y?k=v\"\nb = \"https://head\" # c@d"),
            "a = \"http://<hidden>@head:9/x@y?k=<hidden>\"\nb = \"https://head\" # c@d"
        );
        assert_eq!(
            without_secrets(
                "x: 10:20 C:\\a@b http:\\\\me:p@head, ü://me:p@g key:/p@q https:// \u{fffd}http:/me:p@g"
            ),
            "x: 10:20 C:\\a@b http:\\\\<hidden>@head, ü://<hidden>@g key:/p@q https:// \u{fffd}http:/<hidden>@g"
        );
        for refused in [
            "http://g01/m#s3cret",
            "http:\\\\u:p@g01",
            "https://u%3Ap%40g01",
        ] {
            let error = refuse_user("url", refused, "").unwrap_err().to_string();
            assert!(
                !error.contains("s3cret") && !error.contains("p@"),
                "{error}"
            );
        }
        assert!(
            has_user("http://me:pass@g01") && has_user("me@g01:1") && !has_user("http://g01/a@b")
        );
    }
}
