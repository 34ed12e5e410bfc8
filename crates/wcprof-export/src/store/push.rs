//! Profiles with labels to the requests in which stores take them, by their documented field numbers.
//!
//! | Store | Path | Content type |
//! |---|---|---|
//! | Grafana Pyroscope, Alloy | `/push.v1.PusherService/Push` | `application/proto` (Connect) |
//! | Parca | `/api/profiles/writeraw` | `application/json`: its gateway reads nothing else |

use std::io::Write;
use std::iter;

use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use serde::Serialize;

use super::labels::Labels;
use super::profile::{SERIES, StoreProfile};

/// A profile on its way to a store.
#[derive(Clone, PartialEq, Debug)]
pub struct PushedProfile {
    /// What it is found by.
    pub labels: Labels,
    /// Its samples.
    pub profile: StoreProfile,
    /// A name for this profile alone: a store that gets it twice keeps it once.
    pub id: String,
}

/// `push.v1.PushRequest`.
#[derive(Clone, PartialEq, Message)]
struct PyroscopeRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<PyroscopeSeries>,
}

/// `push.v1.RawProfileSeries`.
#[derive(Clone, PartialEq, Message)]
struct PyroscopeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Pair>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<RawSample>,
}

/// `types.v1.LabelPair`, and Parca's `Label`.
#[derive(Clone, PartialEq, Message, Serialize)]
struct Pair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// `push.v1.RawSample`.
#[derive(Clone, PartialEq, Message)]
struct RawSample {
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
    #[prost(string, tag = "2")]
    id: String,
}

/// `parca.profilestore.v1alpha1.WriteRawRequest` in the JSON form of protocol buffers.
#[derive(Serialize)]
struct ParcaRequest {
    series: Vec<ParcaSeries>,
    /// The pprof files have no addresses that the store would have to move.
    normalized: bool,
}

/// `parca.profilestore.v1alpha1.RawProfileSeries`.
#[derive(Serialize)]
struct ParcaSeries {
    labels: ParcaLabels,
    samples: Vec<ParcaSample>,
}

/// `LabelSet`.
#[derive(Serialize)]
struct ParcaLabels {
    labels: Vec<Pair>,
}

/// `RawSample`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ParcaSample {
    /// A gzip file in base64.
    raw_profile: String,
}

/// The body of a request to Pyroscope.
pub fn pyroscope_request(profiles: &[PushedProfile]) -> Vec<u8> {
    let series = profiles.iter().map(|profile| PyroscopeSeries {
        labels: pairs(profile),
        samples: vec![RawSample {
            raw_profile: profile.profile.to_pprof(),
            id: profile.id.clone(),
        }],
    });
    let series = series.collect();
    PyroscopeRequest { series }.encode_to_vec()
}

/// The body of a request to Parca.
///
/// # Panics
/// Never: it is made in memory.
pub fn parca_request(profiles: &[PushedProfile]) -> Vec<u8> {
    let series = profiles.iter().map(|profile| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        let packed = gzip.write_all(&profile.profile.to_pprof());
        let packed = packed.and_then(|()| gzip.finish());
        let packed = packed.expect("memory takes all that is written to it");
        ParcaSeries {
            labels: ParcaLabels {
                labels: pairs(profile),
            },
            samples: vec![ParcaSample {
                raw_profile: BASE64_STANDARD.encode(packed),
            }],
        }
    });
    let request = ParcaRequest {
        series: series.collect(),
        normalized: true,
    };
    serde_json::to_vec(&request).expect("texts and lists are JSON")
}

/// The series' name, which is a label to these stores, and the labels.
fn pairs(profile: &PushedProfile) -> Vec<Pair> {
    let pair = |(name, value): (&str, &str)| Pair {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let name = ("__name__", SERIES);
    let labels = profile
        .labels
        .iter()
        .map(|(name, value)| (&**name, &**value));
    iter::once(name).chain(labels).map(pair).collect()
}
