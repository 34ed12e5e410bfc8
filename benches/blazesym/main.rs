//! Addresses of a module on standard input, a line each, to their functions, inline ones and lines
//! included, as blazesym finds them: to measure what it takes.

use std::io::BufRead;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolizer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let module = std::env::args().nth(1).ok_or("say which module")?;
    let mut addresses = Vec::new();
    for line in std::io::stdin().lock().lines() {
        addresses.push(u64::from_str_radix(line?.trim_start_matches("0x"), 16)?);
    }
    let symbolizer = Symbolizer::builder()
        .enable_code_info(true)
        .enable_inlined_fns(true)
        .build();
    let source = Source::Elf(Elf::new(module));
    let symbolized = symbolizer.symbolize(&source, Input::VirtOffset(&addresses))?;
    for (address, symbol) in addresses.iter().zip(symbolized) {
        match symbol.as_sym() {
            Some(sym) => println!("{address:#x} {} {}", sym.name, sym.inlined.len()),
            None => println!("{address:#x} ?"),
        }
    }
    Ok(())
}
