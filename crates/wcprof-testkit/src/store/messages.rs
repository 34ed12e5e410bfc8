//! The requests of profile stores, by their documented field numbers and names.

use base64::prelude::{BASE64_STANDARD, Engine};
use prost::Message;
use serde::Deserialize;

/// `push.v1.PushRequest` of Pyroscope.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) series: Vec<PushSeries>,
}

/// `push.v1.RawProfileSeries`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PushSeries {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<PushLabel>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<PushSample>,
}

/// `types.v1.LabelPair`, and a label of Parca.
#[derive(Clone, PartialEq, Message, Deserialize)]
pub(super) struct PushLabel {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// `push.v1.RawSample`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PushSample {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) raw_profile: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(super) id: String,
}

/// `parca.profilestore.v1alpha1.WriteRawRequest` in JSON.
#[derive(Deserialize)]
pub(super) struct WriteRawRequest {
    pub(super) series: Vec<WriteRawSeries>,
}

/// `RawProfileSeries`.
#[derive(Deserialize)]
pub(super) struct WriteRawSeries {
    pub(super) labels: WriteRawLabels,
    pub(super) samples: Vec<WriteRawSample>,
}

/// `LabelSet`.
#[derive(Deserialize)]
pub(super) struct WriteRawLabels {
    pub(super) labels: Vec<PushLabel>,
}

/// `RawSample`.
#[derive(Deserialize)]
pub(super) struct WriteRawSample {
    #[serde(alias = "rawProfile")]
    raw_profile: String,
}

impl WriteRawSample {
    /// The bytes of a text in base64; empty if the text is none.
    pub(super) fn profile(&self) -> Vec<u8> {
        BASE64_STANDARD
            .decode(&self.raw_profile)
            .unwrap_or_default()
    }
}
