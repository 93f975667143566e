//! Text between quotes (`util/strutil/quote.go`, `Unquote`).

/// The text of a quoted literal. In double and single quotes a backslash escapes; `\xHH` and `\377` are bytes, so several of
/// them make up one character. Bytes that are no UTF-8 become U+FFFD, as in Prometheus' JSON.
///
/// The lexer has checked the escapes; an invalid escape stays unchanged.
pub(crate) fn unquote(literal: &str) -> String {
    let inner = &literal[1..literal.len() - 1];
    if literal.starts_with('`') {
        return inner.to_owned();
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
        if matches!(escape, 'u' | 'U') {
            let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        } else {
            bytes.push(code.to_le_bytes()[0]);
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
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
    use takt_model::quoted;

    #[test]
    fn escapes_are_bytes_that_make_up_characters() {
        for (literal, text) in [
            (r#""a\"b\\""#, "a\"b\\"),
            (r"'\'\n'", "'\n"),
            (r"`\d`", r"\d"),
            (r#""\xf0\x9f\x99\x82""#, "🙂"),
            (r#""\303\251\u00e9\U0001f642""#, "éé🙂"),
            (r#""\xff""#, "\u{fffd}"),
            (r#""é\a""#, "é\x07"),
        ] {
            assert_eq!(unquote(literal), text, "{literal}");
        }
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
            assert_eq!(unquote(&quoted(text)), text, "{}", quoted(text));
        }
    }
}
