//! Text between quotes (`util/strutil/quote.go`, `Unquote`).

use takt_model::quoted;

/// The text of a quoted literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextLiteral {
    /// The text. Each byte that is no UTF-8 is U+FFFD, as in Prometheus' JSON.
    pub text: String,
    /// The bytes, of a text that is no UTF-8: neither a label's name nor a regular expression.
    invalid: Option<Box<[u8]>>,
}

impl TextLiteral {
    pub fn is_utf8(&self) -> bool {
        self.invalid.is_none()
    }

    /// Whether it may name a label: since Prometheus 3 any text but the empty one.
    pub fn is_label_name(&self) -> bool {
        self.is_utf8() && !self.text.is_empty()
    }

    /// The text in quotes as Go writes it: a byte that is no UTF-8 is an escape.
    pub fn quoted(&self) -> String {
        let Some(bytes) = &self.invalid else {
            return quoted(&self.text);
        };
        let mut shown = String::from('"');
        for chunk in bytes.utf8_chunks() {
            let valid = quoted(chunk.valid());
            shown.push_str(&valid[1..valid.len() - 1]);
            for byte in chunk.invalid() {
                shown.push_str(&format!("\\x{byte:02x}"));
            }
        }
        shown.push('"');
        shown
    }
}

impl From<&str> for TextLiteral {
    fn from(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            invalid: None,
        }
    }
}

impl From<Vec<u8>> for TextLiteral {
    fn from(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self {
                text,
                invalid: None,
            },
            Err(error) => {
                let bytes = error.into_bytes();
                let mut text = String::with_capacity(bytes.len());
                // One U+FFFD a byte, as Go does; `from_utf8_lossy` writes one a sequence.
                for chunk in bytes.utf8_chunks() {
                    text.push_str(chunk.valid());
                    text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
                }
                Self {
                    text,
                    invalid: Some(bytes.into()),
                }
            }
        }
    }
}

/// The text of a quoted literal. In double and single quotes a backslash escapes; `\xHH` and `\377` are bytes, so several of
/// them make up one character.
///
/// The lexer has checked the escapes; an invalid escape stays unchanged.
pub(crate) fn unquote(literal: &str) -> TextLiteral {
    let inner = &literal[1..literal.len() - 1];
    // Raw text knows no escapes, so regular expressions need no doubled backslashes.
    if literal.starts_with('`') {
        return inner.into();
    }
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        rest = after;
        let Some(escape) = rest.chars().next() else {
            break;
        };
        let radix_digits = match escape {
            'x' => Some((1, 2, 16)),
            'u' => Some((1, 4, 16)),
            'U' => Some((1, 8, 16)),
            '0'..='7' => Some((0, 3, 8)),
            _ => None,
        };
        let Some((skip, count, radix)) = radix_digits else {
            rest = &rest[escape.len_utf8()..];
            let mut buffer = [0; 4];
            bytes.extend_from_slice(simple_escape(escape).encode_utf8(&mut buffer).as_bytes());
            continue;
        };
        let digits = rest.get(skip..skip + count).unwrap_or_default();
        let code = u32::from_str_radix(digits, radix).unwrap_or_default();
        rest = rest.get(skip + count..).unwrap_or_default();
        // Characters, whereas the other codes are single bytes.
        if matches!(escape, 'u' | 'U') {
            let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        } else {
            bytes.push(code.to_le_bytes()[0]);
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes.into()
}

fn simple_escape(escape: char) -> char {
    match escape {
        'a' => '\x07',
        'b' => '\x08',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_bytes_that_make_up_characters() {
        for (literal, text) in [
            (r#""a\"b\\""#, "a\"b\\"),
            (r"'\'\n'", "'\n"),
            (r"`\d`", r"\d"),
            (r#""\xf0\x9f\x99\x82""#, "🙂"),
            (r#""\303\251\u00e9\U0001f642""#, "éé🙂"),
            (r#""\xf0\x9f|""#, "\u{fffd}\u{fffd}|"),
            (r#""é\a""#, "é\x07"),
        ] {
            assert_eq!(unquote(literal).text, text, "{literal}");
        }
    }

    #[test]
    fn bytes_that_are_no_utf8_name_no_label() {
        let literal = unquote(r#""a\"\xff\x41\xf0\x9f""#);
        assert!(!literal.is_label_name());
        assert_eq!(literal.quoted(), r#""a\"\xffA\xf0\x9f""#);
        assert!(unquote(r#""\xf0\x9f\x99\x82""#).is_label_name());
        // The character itself is valid; it only stands for invalid bytes elsewhere.
        assert!(unquote("'\u{fffd}'").is_label_name());
        assert!(!unquote("''").is_label_name());
    }

    #[test]
    fn what_was_quoted_is_read_back() {
        for text in [
            "",
            "a\"b\\c",
            "tab\tline\n",
            "é🙂\u{301}",
            "\0\x1b\u{200b}`'",
        ] {
            assert_eq!(unquote(&quoted(text)).text, text, "{}", quoted(text));
        }
    }
}
