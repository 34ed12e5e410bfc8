//! A file's lines, as rustfmt writes them, to functions that are too long, and to the paths that the
//! file names. Tests are not looked at.

const MAX_FUNCTION_LINES: usize = 80;

/// What may be between visibility and `fn`.
const BEFORE_FN: &[&str] = &["", "const", "async", "unsafe", "extern", "\"C\""];

/// What was found in a file.
#[derive(Debug, Default)]
pub struct Code {
    /// Functions that are too long, one text each.
    pub findings: Vec<String>,
    /// Paths of at least two names, as written.
    pub paths: Vec<String>,
    /// What is imported by which name, and whether that is a re-export.
    pub imports: Vec<(String, String, bool)>,
    /// Names of the types that are defined.
    pub types: Vec<String>,
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
            if let Some((before, _)) = item.split_once("fn ")
                && before.split(' ').all(|word| BEFORE_FN.contains(&word))
            {
                code.function(&lines, at, end);
            }
            let is_nested = lines[at].starts_with(' ');
            code.types
                .extend(type_name(item).filter(|_| !(is_nested && item.starts_with("type "))));
            code.name_paths(line);
            at += 1;
        }
        code
    }

    fn function(&mut self, lines: &[&str], at: usize, end: usize) {
        let n = end - at + 1;
        if n > MAX_FUNCTION_LINES {
            let item = lines[at].trim();
            let line = at + 1;
            self.findings.push(format!(
                "line {line}: {n} lines; {MAX_FUNCTION_LINES} is the most: {item}"
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

/// The name of the type that an item defines. Associated types are not told from others.
fn type_name(item: &str) -> Option<String> {
    let (kind, rest) = item.split_once(' ')?;
    let is_type = ["struct", "enum", "trait", "union", "type"].contains(&kind);
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    let name = &rest[..end.unwrap_or(rest.len())];
    (is_type && name.starts_with(char::is_uppercase)).then(|| name.to_owned())
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

    /// Check that the limit is kept at its value and broken one above it, but in tests.
    #[test]
    fn long_functions() {
        let function = |n: usize| format!("fn f() {{\n{}}}\n", "    g();\n".repeat(n - 2));
        assert_eq!(findings(&function(MAX_FUNCTION_LINES)), 0);
        let long = function(MAX_FUNCTION_LINES + 1);
        assert_eq!(findings(&long), 1);
        assert_eq!(
            findings(&format!("#[cfg(test)]\nmod tests {{\n{long}}}\n{long}")),
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

    /// Check that types are found whatever they are visible to, but not associated ones and those of tests.
    #[test]
    fn types() {
        let code = "pub(crate) struct A<T>(T);\nenum B {\n    C,\n}\ntype D = u8;\nimpl E for A {\n    type F = u8;\n}\n\
                    fn f() {\n    struct G;\n}\n#[cfg(test)]\nmod tests {\n    struct H;\n}";
        assert_eq!(Code::parse(code).types, ["A", "B", "D", "G"]);
    }
}
