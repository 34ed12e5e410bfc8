//! wcprof on the network: HTTP clients and a server whose every wait and size is bounded, and requests on their way to a
//! profile store.
//!
//! [`client`] makes the clients of all that asks a server. A [`Pusher`] sends the requests of a [`Spool`] to a
//! [`Store`], the oldest first, for as long as it takes: what the store does not take stays in the spool, which has a
//! limit. [`serve`] answers those who ask wcprof.
#![forbid(unsafe_code)]

mod backoff;
mod client;
mod pusher;
mod said;
mod server;
mod spool;
mod store;
#[cfg(test)]
mod tests;

pub use client::{ClientLimits, client};
pub use pusher::{PushFigures, Pusher, PusherOptions};
pub use server::serve;
pub use spool::{Spool, SpoolFigures, SpoolOptions};
pub use store::{Answer, Credentials, Secret, Store, StoreError, StoreKind, StoreOptions};
