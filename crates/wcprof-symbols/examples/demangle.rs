//! Linkage names in, one a line, names out: to compare the demangler with `c++filt`.
//!
//! ```sh
//! nm -D libexample.so | awk '{print $NF}' | sed 's/@.*//' > names
//! diff <(c++filt < names) <(cargo run --release -p wcprof-symbols --example demangle < names)
//! ```

use std::io::{BufRead, Write};

use wcprof_symbols::demangle;

fn main() -> std::io::Result<()> {
    // Names nest deeply; the library runs on threads with as much.
    let run = || -> std::io::Result<()> {
        let mut out = std::io::BufWriter::new(std::io::stdout());
        for line in std::io::stdin().lock().lines() {
            writeln!(out, "{}", demangle(line?.as_bytes()))?;
        }
        out.flush()
    };
    let thread = std::thread::Builder::new().stack_size(64 << 20);
    let result = thread.spawn(run)?.join();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
