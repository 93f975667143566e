//! Text as PromQL writes it.

use std::fmt::Write;

/// The text in double quotes, as PromQL and Go write it (`strconv.Quote`): what is not printable becomes an escape.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        let escape = match c {
            '"' | '\\' => c,
            '\x07' => 'a',
            '\x08' => 'b',
            '\x0c' => 'f',
            '\n' => 'n',
            '\r' => 'r',
            '\t' => 't',
            '\x0b' => 'v',
            _ if is_printable(c) => {
                out.push(c);
                continue;
            }
            _ => {
                let code = u32::from(c);
                // Writing to a string does not fail.
                let _ = match code {
                    0..0x80 => write!(out, "\\x{code:02x}"),
                    0x80..0x1_0000 => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
                continue;
            }
        };

        out.push('\\');
        out.push(escape);
    }

    out.push('"');
    out
}

/// Whether the text is a label's name that PromQL reads without quotes.
pub fn is_plain_label(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars().all(is_word) && !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether Go prints the character as it is, for what occurs in labels: not control characters, blanks other than the space,
/// invisible ones and the replacement character, which PromQL's lexer refuses.
fn is_printable(c: char) -> bool {
    let is_invisible = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{fffd}' | '\u{e000}'..='\u{f8ff}');
    c == ' ' || !(c.is_control() || c.is_whitespace() || is_invisible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_as_go_does() {
        for (text, expected) in [
            ("", r#""""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("\n\t\0\x7f", r#""\n\t\x00\x7f""#),
            ("é\u{301}🙂", "\"é\u{301}🙂\""),
            ("\u{a0}\u{200b}\u{fffd}", r#""\u00a0\u200b\ufffd""#),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn plain_labels_are_words() {
        assert!(is_plain_label("le") && is_plain_label("_a1"));
        assert!(!is_plain_label("") && !is_plain_label("1a") && !is_plain_label("a.b"));
    }
}
