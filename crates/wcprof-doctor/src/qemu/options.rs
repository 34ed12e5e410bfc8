//! An option's value in QEMU's two notations, `a=b,c.d=e` and JSON, to pairs.

use serde_json::Value;
use wcprof_types::qemu_options;

/// Pairs of one option.
const MAX_PAIRS: usize = 512;
/// Objects in objects.
const MAX_DEPTH: usize = 16;

/// Keys and values in their order; members of objects have names with dots.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Options(Vec<(String, String)>);

impl Options {
    /// `implied` is the key of a first value without one.
    pub(crate) fn parse(text: &str, implied: &str) -> Self {
        let mut options = Self::default();
        if text.starts_with('{') {
            if let Ok(value) = serde_json::from_str(text) {
                options.add("", &value, 0);
            }
            return options;
        }
        for (i, part) in qemu_options(text).into_iter().enumerate() {
            let (key, value) = match part.split_once('=') {
                Some((key, value)) => (key, value),
                None if i == 0 => (implied, part.as_str()),
                // `,readonly` and `,nocow` of old.
                None => match part.strip_prefix("no") {
                    Some(key) => (key, "off"),
                    None => (part.as_str(), "on"),
                },
            };
            options.push(key, value);
        }
        // A file name may itself be JSON: `file=json:{...}`.
        if let Some(json) = options.get("file").and_then(|f| f.strip_prefix("json:"))
            && let Ok(value) = serde_json::from_str(json)
        {
            options.add("file", &value, 0);
        }
        options
    }

    fn push(&mut self, key: &str, value: &str) {
        if self.0.len() < MAX_PAIRS {
            self.0.push((key.to_owned(), value.to_owned()));
        }
    }

    fn add(&mut self, prefix: &str, value: &Value, depth: usize) {
        let join = |key: &str| match prefix {
            "" => key.to_owned(),
            prefix => format!("{prefix}.{key}"),
        };
        match value {
            Value::Object(members) if depth < MAX_DEPTH => {
                for (key, value) in members {
                    self.add(&join(key), value, depth + 1);
                }
            }
            Value::Array(items) if depth < MAX_DEPTH => {
                for (i, value) in items.iter().enumerate() {
                    self.add(&join(&i.to_string()), value, depth + 1);
                }
            }
            Value::Bool(on) => self.push(prefix, if *on { "on" } else { "off" }),
            Value::String(text) => self.push(prefix, text),
            Value::Number(n) => self.push(prefix, &n.to_string()),
            _ => {}
        }
    }

    /// The last value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().rfind(|(k, _)| k == key);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether a switch is on; `None` when it is not given.
    pub(crate) fn is_on(&self, key: &str) -> Option<bool> {
        self.get(key)
            .map(|v| matches!(v, "on" | "yes" | "true" | "y"))
    }

    /// Adds the pairs of a further option of the same name.
    pub(crate) fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}
