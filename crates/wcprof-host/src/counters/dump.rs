//! The text of Ceph's `perf dump` or `counter dump` to the counters that say how many operations there were, how
//! long they took, and where.
//!
//! Facts: `common/perf_counters.cc` for the forms of values: a whole number, a time in seconds with a decimal
//! point, or `{"avgcount": N, "sum": seconds, "avgtime": seconds}`. `perf dump` is `{LOGGER: {COUNTER: VALUE}}`;
//! in `counter dump` a logger is a list of `{"labels": {}, "counters": {}}`.
//!
//! Loggers of one kind are added up, as of images and of messenger threads. So what is kept names no image, pool,
//! user or bucket.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use thiserror::Error;
use wcprof_types::{CounterName, CounterValue};

/// Counters as they were at one time, by name.
pub type Counters = Vec<(CounterName, CounterValue)>;

/// Counters that are kept of one answer.
const MAX_COUNTERS: usize = 512;
/// Bytes of a counter's own name.
const MAX_NAME: usize = 64;

/// A logger, by how its name begins, what it is called here, and how the names of its counters begin that are
/// kept.
const LOGGERS: [(&str, &str, &[&str]); 6] = [
    ("osd", "osd", &["op", "subop"]),
    (
        "bluestore",
        "bluestore",
        &[
            "kv_",
            "state_",
            "commit_lat",
            "submit_lat",
            "read_",
            "csum_lat",
            "throttle_lat",
        ],
    ),
    (
        "AsyncMessenger::Worker-",
        "messenger",
        &["msgr_recv_", "msgr_send_", "msgr_running_"],
    ),
    ("rgw", "rgw", &["req", "failed_req", "get", "put"]),
    (
        "rgw_op",
        "rgw_op",
        &["put_obj_", "get_obj_", "del_obj_", "list_obj_"],
    ),
    (
        "librbd-",
        "librbd",
        &["rd", "wr", "discard", "flush", "cmp", "ws"],
    ),
];
/// A value of the present, which adds up to nothing.
const GAUGE: &str = "op_wip";

/// Why a text has no counters.
#[derive(Debug, Error)]
pub enum DumpError {
    /// It is no such text.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// It has none of the counters that are wanted.
    #[error("none of its counters is known")]
    NoCounters,
}

/// The counters of a text, by name.
///
/// # Errors
/// When it is no such text, or has no counter that is wanted.
pub fn parse_dump(text: &[u8]) -> Result<Counters, DumpError> {
    let mut sums = Sums::default();
    let mut json = serde_json::Deserializer::from_slice(text);
    All(&mut sums).deserialize(&mut json)?;
    json.end()?;
    match sums.0.is_empty() {
        true => Err(DumpError::NoCounters),
        false => Ok(sums.0.into_iter().collect()),
    }
}

/// The logger of a name in [`LOGGERS`].
fn logger(name: &str) -> Option<(&'static str, &'static [&'static str])> {
    let found = LOGGERS
        .iter()
        .find(|(begin, ..)| match begin.ends_with('-') {
            true => name.starts_with(begin),
            false => name == *begin,
        });
    found.map(|(_, called, kept)| (*called, *kept))
}

#[derive(Default)]
struct Sums(BTreeMap<CounterName, CounterValue>);

impl Sums {
    fn add(&mut self, called: &str, name: &str, value: &Number) {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.len() > MAX_NAME || !name.chars().all(is_name) || name == GAUGE {
            return;
        }
        let Some((timed, value)) = value.value() else {
            return;
        };
        let name = CounterName {
            name: format!("{called}.{name}"),
            timed,
        };
        self.put(name, value);
    }

    fn put(&mut self, name: CounterName, value: CounterValue) {
        if self.0.len() < MAX_COUNTERS || self.0.contains_key(&name) {
            let sum = self.0.entry(name).or_default();
            *sum = sum.plus(value);
        }
    }

    fn put_all(&mut self, other: Self) {
        other
            .0
            .into_iter()
            .for_each(|(name, value)| self.put(name, value));
    }
}

/// A value of any form.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Count(u64),
    Seconds(f64),
    Average {
        avgcount: u64,
        sum: f64,
        avgtime: Option<f64>,
    },
    Other(IgnoredAny),
}

impl Number {
    /// Whether it is a time, and what it is.
    fn value(&self) -> Option<(bool, CounterValue)> {
        // A float beyond the limits becomes the limit.
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        match *self {
            Self::Count(count) => Some((false, CounterValue { count, time_ns: 0 })),
            Self::Seconds(seconds) if seconds >= 0.0 => {
                let time_ns = ns(seconds);
                Some((true, CounterValue { count: 0, time_ns }))
            }
            Self::Average {
                avgcount: count,
                sum,
                avgtime: Some(_),
            } => {
                let time_ns = ns(sum);
                Some((true, CounterValue { count, time_ns }))
            }
            // An average of something else than times, or nonsense.
            Self::Average { .. } | Self::Seconds(_) | Self::Other(_) => None,
        }
    }
}

/// The whole text.
struct All<'a>(&'a mut Sums);

impl<'de> DeserializeSeed<'de> for All<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for All<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("loggers by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            match logger(&name) {
                Some(logger) => map.next_value_seed(Logger(self.0, logger))?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The counters of one logger, with or without labels.
struct Logger<'a>(&'a mut Sums, (&'static str, &'static [&'static str]));

impl<'de> DeserializeSeed<'de> for Logger<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Logger<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("counters by name, or a list of them by labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (called, kept) = self.1;
        while let Some(name) = map.next_key::<String>()? {
            match kept.iter().any(|begin| name.starts_with(begin)) {
                true => self.0.add(called, &name, &map.next_value()?),
                false => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        // Those without labels are the sums of the others, where there are any.
        let mut labeled = Sums::default();
        let mut has_sums = false;
        while let Some((is_sum, sums)) = seq.next_element_seed(Labeled(self.1))? {
            match is_sum {
                true => self.0.put_all(sums),
                false => labeled.put_all(sums),
            }
            has_sums |= is_sum;
        }
        if !has_sums {
            self.0.put_all(labeled);
        }
        Ok(())
    }
}

/// One entry of a list: whether it has no labels, and its counters.
struct Labeled((&'static str, &'static [&'static str]));

impl<'de> DeserializeSeed<'de> for Labeled {
    type Value = (bool, Sums);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Labeled {
    type Value = (bool, Sums);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels and counters")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut sums = Sums::default();
        let mut is_sum = true;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "labels" => {
                    let labels: BTreeMap<String, IgnoredAny> = map.next_value()?;
                    is_sum = labels.is_empty();
                }
                "counters" => map.next_value_seed(Logger(&mut sums, self.0))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok((is_sum, sums))
    }
}
