//! Writes a JSON value as YAML in block style.

use serde_json::Value;
use std::fmt::Write as _;

/// The text of a document.
pub fn write(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, value, 0);
    out
}

/// A value that begins on a line of its own.
fn block(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (i, (key, value)) in map.iter().enumerate() {
                pad(out, if i == 0 { 0 } else { indent });
                let _ = write!(out, "{}:", scalar(&Value::from(key.as_str())));
                after_key(out, value, indent);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (i, value) in list.iter().enumerate() {
                pad(out, if i == 0 { 0 } else { indent });
                out.push_str("- ");
                block(out, value, indent + 2);
            }
        }
        _ => {
            let _ = writeln!(out, "{}", scalar(value));
        }
    }
}

fn after_key(out: &mut String, value: &Value, indent: usize) {
    let is_nested =
        value.as_object().is_some_and(|map| !map.is_empty()) || value.as_array().is_some_and(|l| !l.is_empty());
    if is_nested {
        out.push('\n');
        pad(out, indent + 2);
        block(out, value, indent + 2);
    } else {
        out.push(' ');
        block(out, value, indent + 2);
    }
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// A value on one line. JSON's text of it is YAML too; only what reads as itself goes without quotes.
fn scalar(value: &Value) -> String {
    const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    match value.as_str() {
        Some(text) if is_plain(text) && !WORDS.contains(&text.to_ascii_lowercase().as_str()) => text.to_string(),
        _ => value.to_string(),
    }
}

fn is_plain(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn values_are_written_in_blocks() {
        let value = json!({
            "a": {"b": 1, "c": [{"d": "x", "e": "yes"}, "two words", [1, 2]]},
            "empty": {"list": [], "map": {}},
            "quoted": "$(X): \"1\"",
        });
        expect_test::expect![[r#"
            a:
              b: 1
              c:
                - d: x
                  e: "yes"
                - "two words"
                - - 1
                  - 2
            empty:
              list: []
              map: {}
            quoted: "$(X): \"1\""
        "#]]
        .assert_eq(&super::write(&value));
    }
}
