//! Text in double quotes, as Go reads it.

/// The text between two quotes with its escapes replaced; `None` where an escape is unknown.
pub(crate) fn unquote(inside: &str) -> Option<String> {
    let mut out = String::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = rest[at + 1..].chars().next()?;
        let behind = &rest[at + 1 + escape.len_utf8()..];
        let digits = match escape {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        let (code, behind) = behind.split_at_checked(digits)?;
        out.push(match escape {
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '\\' | '"' => escape,
            'x' | 'u' | 'U' if code.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                char::from_u32(u32::from_str_radix(code, 16).ok()?)?
            }
            _ => return None,
        });
        rest = behind;
    }
    out.push_str(rest);
    Some(out)
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
