//! A profile to what profile stores take: Grafana Pyroscope, Parca, anything behind an OpenTelemetry collector.

mod labels;
mod otlp;
mod profile;
mod push;

pub use self::labels::{Labels, is_label_name, label_value, labels};
pub use self::otlp::otlp_request;
pub use self::profile::{StoreLimits, StoreProfile, StoreProfiles};
pub use self::push::{PushedProfile, parca_request, pyroscope_request};
