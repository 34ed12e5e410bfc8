//! Maps keyed by thread id.

use std::collections::HashMap;

use wcprof_types::Tid;

/// A map by thread id.
pub(crate) type TidMap<V> = HashMap<Tid, V>;
