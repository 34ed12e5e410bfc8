//! Encryption of Ceph's messenger in secure mode: frames, their cost, and what would lower it.
#![forbid(unsafe_code)]
