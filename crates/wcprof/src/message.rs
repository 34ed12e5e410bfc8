//! Lines to standard error, in place of `eprintln!`, which panics when it cannot write: its reader has
//! gone, or the disk is full. A recording must not end with the terminal that it was started from.

/// Writes a line to standard error, if that can be written to.
#[macro_export]
macro_rules! message {
    ($($argument:tt)*) => {{
        use ::std::io::Write as _;
        // There is nobody to report this to.
        let _ = ::std::writeln!(::std::io::stderr().lock(), $($argument)*);
    }};
}
