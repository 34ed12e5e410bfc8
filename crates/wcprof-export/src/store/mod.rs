//! A profile to what profile stores take: Grafana Pyroscope, Parca, anything behind an OpenTelemetry collector.

mod otlp;
mod profile;
mod push;

pub use self::otlp::otlp_request;
pub use self::profile::{Series, StoreLimits, StoreProfile, store_profile};
pub use self::push::{Labels, PushedProfile, parca_request, pyroscope_request};
