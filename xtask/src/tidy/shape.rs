//! Limits on the shape of code: length of a function, fields of a struct, parameters of a function.
//!
//! Tests are not counted. Formats keep the fields that their format has: what serde reads or writes, what
//! the kernel lays out (`repr(C)`) and what clap parses may have as many fields as it needs.

use syn::visit::{self, Visit};

const MAX_FUNCTION_LINES: usize = 80;
const MAX_FIELDS: usize = 12;
const MAX_PARAMETERS: usize = 6;

/// Derives and attributes of structs whose fields someone else decides on.
const FORMATS: &[&str] = &[
    "Serialize",
    "Deserialize",
    "Args",
    "Parser",
    "repr",
    "bitflags",
];

/// What passes the limits in this file, one text each.
pub fn check(file: &syn::File) -> Vec<String> {
    let mut found = Shapes::default();
    found.visit_file(file);
    found.findings
}

/// Whether an item exists in tests alone.
pub fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg") && words(attribute).contains("test")
    })
}

#[derive(Default)]
struct Shapes {
    findings: Vec<String>,
    in_trait_impl: bool,
}

impl Shapes {
    fn function(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let line = signature.fn_token.span.start().line;
        let n_lines = body.brace_token.span.close().end().line - line + 1;
        if n_lines > MAX_FUNCTION_LINES {
            self.findings.push(format!(
                "line {line}: `{}` has {n_lines} lines; {MAX_FUNCTION_LINES} is the most",
                signature.ident
            ));
        }
        let n_parameters = signature.inputs.len();
        // The trait decides on the parameters.
        if n_parameters > MAX_PARAMETERS && !self.in_trait_impl {
            self.findings.push(format!(
                "line {line}: `{}` has {n_parameters} parameters; {MAX_PARAMETERS} is the most",
                signature.ident
            ));
        }
    }
}

impl<'ast> Visit<'ast> for Shapes {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_test(&item.attrs) {
            self.in_trait_impl = item.trait_.is_some();
            visit::visit_item_impl(self, item);
            self.in_trait_impl = false;
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig, &item.block);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig, &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let is_format = item
            .attrs
            .iter()
            .any(|a| FORMATS.iter().any(|format| words(a).contains(format)));
        if item.fields.len() > MAX_FIELDS && !is_format && !is_test(&item.attrs) {
            self.findings.push(format!(
                "line {}: `{}` has {} fields; {MAX_FIELDS} is the most",
                item.ident.span().start().line,
                item.ident,
                item.fields.len()
            ));
        }
    }
}

/// An attribute as text.
fn words(attribute: &syn::Attribute) -> String {
    match &attribute.meta {
        syn::Meta::Path(path) => path
            .get_ident()
            .map(ToString::to_string)
            .unwrap_or_default(),
        syn::Meta::List(list) => format!(
            "{} {}",
            list.path
                .get_ident()
                .map(ToString::to_string)
                .unwrap_or_default(),
            list.tokens
        ),
        syn::Meta::NameValue(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(code: &str) -> usize {
        check(&syn::parse_file(code).expect("valid code")).len()
    }

    /// Check that each limit is kept at its value and broken one above it.
    #[test]
    fn limits() {
        let function = |n: usize| format!("fn f() {{\n{}}}\n", "g();\n".repeat(n - 2));
        assert_eq!(findings(&function(MAX_FUNCTION_LINES)), 0);
        assert_eq!(findings(&function(MAX_FUNCTION_LINES + 1)), 1);
        let list = |n: usize| (0..n).map(|i| format!("a{i}: u8,")).collect::<String>();
        assert_eq!(findings(&format!("fn f({}) {{}}", list(MAX_PARAMETERS))), 0);
        let many = format!("fn f({}) {{}}", list(MAX_PARAMETERS + 1));
        assert_eq!(findings(&many), 1);
        assert_eq!(findings(&format!("impl T for S {{ {many} }}")), 0);
        assert_eq!(findings(&format!("struct S {{ {} }}", list(MAX_FIELDS))), 0);
        let many = format!("struct S {{ {} }}", list(MAX_FIELDS + 1));
        assert_eq!(findings(&many), 1);
        assert_eq!(findings(&format!("#[derive(Debug, Serialize)] {many}")), 0);
        assert_eq!(findings(&format!("#[cfg(test)] mod tests {{ {many} }}")), 0);
    }
}
