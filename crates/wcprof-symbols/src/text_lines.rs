//! Lines of text files that others wrote, however long they are.

use std::io::{self, BufRead, Read};

/// Bytes of one line; longer ones are passed over.
const MAX_LINE: usize = 4096;

/// Reads a line without its end, at most [`MAX_LINE`] bytes of it; false at the end.
pub(crate) fn read_line(list: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let n = list
        .by_ref()
        .take(MAX_LINE as u64)
        .read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if n == MAX_LINE {
        skip_line(list)?;
        line.clear();
    }
    Ok(n > 0)
}

/// Passes over the rest of a line, however long it is.
fn skip_line(list: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = list.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        let end = buffer.iter().position(|&b| b == b'\n');
        let n = end.map_or(buffer.len(), |end| end + 1);
        list.consume(n);
        if end.is_some() {
            return Ok(());
        }
    }
}
