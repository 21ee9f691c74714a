//! Bytes between quotes: how the text notation writes strings, whatever is in them.
//!
//! Text stays readable; a quote, a backslash, a control character and what is not UTF-8 are escaped.

use std::fmt::{self, Write as _};

/// Prints bytes between double quotes, on one line. [`unquote`] reads them again.
pub struct Quoted<'a>(pub &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                write_char(f, c)?;
            }
            write_bytes(f, chunk.invalid())?;
        }
        f.write_char('"')
    }
}

fn write_char(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    match c {
        '"' | '\\' => write!(f, "\\{c}"),
        '\n' => f.write_str("\\n"),
        '\r' => f.write_str("\\r"),
        '\t' => f.write_str("\\t"),
        _ if c.is_control() => write_bytes(f, c.encode_utf8(&mut [0; 4]).as_bytes()),
        _ => f.write_char(c),
    }
}

fn write_bytes(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|b| write!(f, "\\x{b:02x}"))
}

/// Reads a string between quotes, single or double, at the start of a text: its bytes, and what follows it.
pub fn unquote(text: &str) -> Option<(Vec<u8>, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut bytes = Vec::new();
    let mut chars = text[1..].chars();
    loop {
        match chars.next()? {
            c if c == quote => return Some((bytes, chars.as_str())),
            '\\' => bytes.push(match chars.next()? {
                'n' => b'\n',
                'r' => b'\r',
                't' => b'\t',
                'x' => (hex_digit(chars.next()?)? << 4) | hex_digit(chars.next()?)?,
                c if matches!(c, '"' | '\'' | '\\') => c as u8,
                _ => return None,
            }),
            c => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

fn hex_digit(c: char) -> Option<u8> {
    c.to_digit(16).map(|d| d as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_stay_readable_and_on_one_line() {
        let cases: [(&[u8], &str); 6] = [
            (b"", r#""""#),
            (b"two words", r#""two words""#),
            (b"a \"quote\" it's \\", r#""a \"quote\" it's \\""#),
            (b"line\nline\r\t\0\x7f", r#""line\nline\r\t\x00\x7f""#),
            ("größe \u{85}".as_bytes(), r#""größe \xc2\x85""#),
            (b"\xff\xc3(", r#""\xff\xc3(""#),
        ];
        for (bytes, text) in cases {
            assert_eq!(Quoted(bytes).to_string(), text);
            assert_eq!(unquote(text), Some((bytes.to_vec(), "")));
        }
    }

    #[test]
    fn what_follows_is_left_and_what_is_not_closed_is_refused() {
        assert_eq!(unquote("'a\"' \"b\""), Some((b"a\"".to_vec(), " \"b\"")));
        for text in ["", "a", "\"a", "\"a\\", "\"a\\\"", "\"\\q\"", "\"\\xg0\"", "\"\\x0"] {
            assert_eq!(unquote(text), None, "{text}");
        }
    }

    #[test]
    fn any_byte_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in all.windows(3).chain(all.chunks(256)) {
            assert_eq!(unquote(&Quoted(bytes).to_string()), Some((bytes.to_vec(), "")));
        }
    }
}
