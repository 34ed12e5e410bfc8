//! The corpus of the fuzz targets.
#![forbid(unsafe_code)]

mod corpus;
