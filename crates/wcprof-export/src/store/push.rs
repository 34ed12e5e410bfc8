//! Profiles with labels to the requests in which stores take them, by their documented field numbers.
//!
//! | Store | Path | Content type |
//! |---|---|---|
//! | Grafana Pyroscope, Alloy | `/push.v1.PusherService/Push` | `application/proto` (Connect) |
//! | Parca | `/api/profiles/writeraw` | `application/json` or `application/proto` |

use std::iter;

use prost::Message;

use super::profile::StoreProfile;

/// Names and values: what a store finds a profile by, beside the name of the series. Sorted by name, each name once.
pub type Labels = Vec<(String, String)>;

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
#[derive(Clone, PartialEq, Message)]
struct Pair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// `push.v1.RawSample`; Parca's has no id.
#[derive(Clone, PartialEq, Message)]
struct RawSample {
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
    #[prost(string, tag = "2")]
    id: String,
}

/// `parca.profilestore.v1alpha1.WriteRawRequest`.
#[derive(Clone, PartialEq, Message)]
struct ParcaRequest {
    #[prost(message, repeated, tag = "2")]
    series: Vec<ParcaSeries>,
    /// The pprof files have no addresses that the store would have to move.
    #[prost(bool, tag = "3")]
    normalized: bool,
}

/// `parca.profilestore.v1alpha1.RawProfileSeries`.
#[derive(Clone, PartialEq, Message)]
struct ParcaSeries {
    #[prost(message, optional, tag = "1")]
    labels: Option<LabelSet>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<RawSample>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelSet {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Pair>,
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
pub fn parca_request(profiles: &[PushedProfile]) -> Vec<u8> {
    let series = profiles.iter().map(|profile| ParcaSeries {
        labels: Some(LabelSet {
            labels: pairs(profile),
        }),
        samples: vec![RawSample {
            raw_profile: profile.profile.to_pprof(),
            id: String::new(),
        }],
    });
    let request = ParcaRequest {
        series: series.collect(),
        normalized: true,
    };
    request.encode_to_vec()
}

/// The series' name, which is a label to these stores, and the labels.
fn pairs(profile: &PushedProfile) -> Vec<Pair> {
    let pair = |(name, value): (&str, &str)| Pair {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let name = ("__name__", profile.profile.series.name());
    let labels = profile
        .labels
        .iter()
        .map(|(name, value)| (&**name, &**value));
    iter::once(name).chain(labels).map(pair).collect()
}
