//! A file's lines, as rustfmt writes them, to what passes the limits on the shape of code, and to the paths that the
//! file names.
//!
//! Formats keep the fields that their format has: what serde reads or writes, what the kernel lays out
//! (`repr(C)`) and what clap parses may have as many fields as it needs. Tests are not looked at.

const MAX_FUNCTION_LINES: usize = 80;
const MAX_FIELDS: usize = 12;
const MAX_PARAMETERS: usize = 6;

/// Derives and attributes of structs whose fields someone else decides on.
const FORMATS: &[&str] = &["Serialize", "Deserialize", "Args", "Parser", "repr"];

/// What may be between visibility and `fn`.
const BEFORE_FN: &[&str] = &["", "const", "async", "unsafe", "extern", "\"C\""];

/// What was found in a file.
#[derive(Debug, Default)]
pub struct Code {
    /// What passes a limit, one text each.
    pub findings: Vec<String>,
    /// Paths of at least two names, as written.
    pub paths: Vec<String>,
    /// What is imported by which name, and whether that is a re-export.
    pub imports: Vec<(String, String, bool)>,
}

impl Code {
    /// Reads a file.
    pub fn parse(text: &str) -> Self {
        let mut code = Self::default();
        // A `//` in a string hides the rest of its line, which hardly matters here.
        let lines: Vec<&str> = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default().trim_end())
            .collect();
        let mut at = 0;
        while at < lines.len() {
            let line = lines[at].trim_start();
            let end = end_of_item(&lines, at);
            if line == "#[test]" || line.starts_with("#[cfg(") && line.contains("test") {
                let is_item = |line: &&str| !line.trim_start().starts_with("#[");
                let item = lines[at..].iter().position(is_item).unwrap_or(0);
                at = end_of_item(&lines, at + item) + 1;
                continue;
            }
            let (visibility, item) = match line.split_once(' ') {
                Some((first, rest)) if first.starts_with("pub") => (first, rest),
                _ => ("", line),
            };
            if item.starts_with("use ") {
                let tree = lines[at..=end].concat();
                let (_, tree) = tree.split_once("use ").unwrap_or_default();
                code.import("", tree.trim_end_matches(';'), !visibility.is_empty());
                at = end + 1;
                continue;
            }
            if item.starts_with("struct ") {
                code.structure(&lines, at, end);
            } else if let Some((before, _)) = item.split_once("fn ")
                && before.split(' ').all(|word| BEFORE_FN.contains(&word))
            {
                code.function(&lines, at, end);
            }
            code.name_paths(line);
            at += 1;
        }
        code
    }

    fn structure(&mut self, lines: &[&str], at: usize, end: usize) {
        let is_field = |line: &&&str| {
            indent(line) == indent(lines[at]) + 4 && line.contains(": ") && !line.contains("#[")
        };
        let n = lines[at..end].iter().filter(is_field).count();
        let above = lines[..at].iter().rev();
        let mut attributes = above.take_while(|line| !line.contains(['{', '}', ';']));
        if !attributes.any(|line| FORMATS.iter().any(|format| line.contains(format))) {
            self.limit(lines, at, n, MAX_FIELDS, "fields");
        }
    }

    fn function(&mut self, lines: &[&str], at: usize, end: usize) {
        self.limit(lines, at, end - at + 1, MAX_FUNCTION_LINES, "lines");
        let outside = lines[..at].iter().rev();
        let mut outside =
            outside.filter(|line| !line.is_empty() && indent(line) < indent(lines[at]));
        // A trait decides on the parameters.
        let is_trait =
            |line: &&str| line.trim_start().starts_with("impl") && line.contains(" for ");
        if outside.next().is_some_and(is_trait) {
            return;
        }
        let n_lines = lines[at..]
            .iter()
            .position(|line| line.ends_with(['{', ';', '}']));
        let header = lines[at..=at + n_lines.unwrap_or(0)].join(" ");
        let (header, _) = header.split_once(" where").unwrap_or((&header, ""));
        let (name, parameters) = header.split_once('(').unwrap_or_default();
        let parameters = match header.split_once(">(") {
            Some((_, parameters)) if name.contains('<') => parameters,
            _ => parameters,
        };
        let n_self = usize::from(parameters.contains("self,") || parameters.contains("self)"));
        self.limit(
            lines,
            at,
            parameters.matches(": ").count() + n_self,
            MAX_PARAMETERS,
            "parameters",
        );
    }

    fn limit(&mut self, lines: &[&str], at: usize, n: usize, most: usize, what: &str) {
        if n > most {
            let item = lines[at].trim();
            self.findings.push(format!(
                "line {}: {n} {what}; {most} is the most: {item}",
                at + 1
            ));
        }
    }

    fn name_paths(&mut self, line: &str) {
        let words = line.split(|c: char| !(c.is_alphanumeric() || "_:$".contains(c)));
        let paths = words
            .map(|word| word.trim_matches(':'))
            .filter(|word| word.contains("::"));
        self.paths.extend(paths.map(str::to_owned));
    }

    /// Adds a tree of imports below `before`.
    fn import(&mut self, before: &str, tree: &str, is_public: bool) {
        if let Some((path, list)) = tree.split_once('{') {
            let before = format!("{before}{}", path.trim());
            let mut depth = 0;
            let is_comma = |c: char| {
                depth += i32::from(c == '{') - i32::from(c == '}');
                c == ',' && depth == 0
            };
            let list = list.rsplit_once('}').map_or(list, |(list, _)| list);
            for tree in list.split(is_comma).filter(|tree| !tree.trim().is_empty()) {
                self.import(&before, tree.trim(), is_public);
            }
            return;
        }
        let path = format!("{before}{tree}");
        let (path, name) = path.split_once(" as ").unwrap_or((&path, ""));
        let path = path.trim_end_matches("::self").to_owned();
        let last = path.rsplit("::").next().unwrap_or_default().to_owned();
        match name {
            _ if last == "*" => self.paths.push(path),
            "" => self.imports.push((path, last, is_public)),
            name => self.imports.push((path, name.to_owned(), is_public)),
        }
    }
}

/// The line with the end of the item, or part of one, that begins in a line.
fn end_of_item(lines: &[&str], at: usize) -> usize {
    let is_end = |line: &&str| {
        let line = line.trim_start();
        line.starts_with('}') || line.ends_with(';')
    };
    if lines[at].ends_with([';', '}']) {
        return at;
    }
    let same = |line: &&str| indent(line) == indent(lines[at]) && is_end(line);
    let length = lines[at + 1..].iter().position(same);
    at + length.map_or(0, |length| length + 1)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(code: &str) -> usize {
        Code::parse(code).findings.len()
    }

    /// Check that each limit is kept at its value and broken one above it.
    #[test]
    fn limits() {
        let function = |n: usize| format!("fn f() {{\n{}}}\n", "    g();\n".repeat(n - 2));
        assert_eq!(findings(&function(MAX_FUNCTION_LINES)), 0);
        assert_eq!(findings(&function(MAX_FUNCTION_LINES + 1)), 1);
        let list = |n: usize| {
            (0..n)
                .map(|i| format!("    a{i}: b::C,\n"))
                .collect::<String>()
        };
        let function = |n| format!("pub(crate) fn f(\n{}) {{}}\n", list(n));
        assert_eq!(findings(&function(MAX_PARAMETERS)), 0);
        assert_eq!(findings(&function(MAX_PARAMETERS + 1)), 1);
        let method = "    fn f<F: Fn(u8) -> u8>(&self, a: A, b: A, c: A, d: A, e: A, f: F) {}";
        assert_eq!(findings(&format!("impl S {{\n{method}\n}}\n")), 1);
        assert_eq!(findings(&format!("impl T for S {{\n{method}\n}}\n")), 0);
        let structure = |n| format!("pub struct S {{\n{}}}\n", list(n));
        assert_eq!(findings(&structure(MAX_FIELDS)), 0);
        let many = structure(MAX_FIELDS + 1);
        assert_eq!(findings(&many), 1);
        assert_eq!(
            findings(&format!("#[derive(Debug, Serialize)]\n/// A.\n{many}")),
            0
        );
        assert_eq!(
            findings(&format!("#[cfg(test)]\nmod tests {{\n{many}}}\n{many}")),
            1
        );
    }

    /// Check that paths and imports are found, also in trees and under other names.
    #[test]
    fn paths() {
        let code = "pub use a::{self,\n    b::C, d as E, f::*,\n};\nfn g() {\n    h::<u8>(i::j) // k::l\n}";
        let code = Code::parse(code);
        assert_eq!(code.paths, ["a::f::*", "i::j"]);
        let imports = code
            .imports
            .iter()
            .map(|(path, name, _)| format!("{path}={name}"));
        assert_eq!(imports.collect::<Vec<_>>(), ["a=a", "a::b::C=C", "a::d=E"]);
        assert!(code.imports.iter().all(|(.., is_public)| *is_public));
    }
}
