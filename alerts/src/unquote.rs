//! Text in double quotes, as Go reads it.

/// The text between two quotes with its escapes replaced; `None` where an escape is unknown, or where
/// the escaped bytes are no UTF-8.
pub(crate) fn unquote(inside: &str) -> Option<String> {
    let mut out = Vec::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = rest[at + 1..].chars().next()?;

        let behind = &rest[at + 1 + escape.len_utf8()..];

        // The digits of an escape are counted, so that what follows them may be a digit too.
        let (digits, behind) = match escape {
            'x' => behind.split_at_checked(2)?,
            'u' => behind.split_at_checked(4)?,
            'U' => behind.split_at_checked(8)?,
            '0'..='7' => rest[at + 1..].split_at_checked(3)?,
            _ => ("", behind),
        };

        let number = |radix| {
            // The parser would take a sign, as in `\u+123`.
            let is_number = digits.chars().all(|digit| digit.is_digit(radix));
            is_number.then(|| u32::from_str_radix(digits, radix).ok())?
        };

        match escape {
            'a' => out.push(0x07),
            'b' => out.push(0x08),
            'f' => out.push(0x0c),
            'n' => out.push(b'\n'),
            'r' => out.push(b'\r'),
            't' => out.push(b'\t'),
            'v' => out.push(0x0b),
            '\\' => out.push(b'\\'),
            '"' => out.push(b'"'),
            // Bytes: several may be one character.
            'x' => out.push(u8::try_from(number(16)?).ok()?),
            '0'..='7' => out.push(u8::try_from(number(8)?).ok()?),
            'u' | 'U' => {
                let character = char::from_u32(number(16)?)?;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            _ => return None,
        }

        rest = behind;
    }
    out.extend_from_slice(rest.as_bytes());
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_go() {
        for (text, expected) in [
            (r"plain", Some("plain")),
            (r#"a\"b\\c\n"#, Some("a\"b\\c\n")),
            (r"\x41\u00e4\U0001F600", Some("Aä😀")),
            (r"\xf0\x9f\x99\x82 \303\244", Some("🙂 ä")),
            (r"\xe4", None),
            (r"\400", None),
            (r"\18", None),
            (r"\'", None),
            (r"\d", None),
            (r"\x4", None),
            (r"\u+123", None),
            ("\\", None),
        ] {
            assert_eq!(unquote(text).as_deref(), expected, "{text}");
        }
    }
}
