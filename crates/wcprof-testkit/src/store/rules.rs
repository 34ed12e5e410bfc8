//! What real profile stores do with a request, by its path: Grafana Pyroscope (main of 2026-08-21, after v2.2.1), its endpoint
//! for OTLP, and the HTTP gateway of Parca (2026-07-27, after v0.28.0).
//!
//! Pyroscope takes or refuses each series of a request alone, and answers for the whole request with the first refusal:
//! what came before and after it is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development::{Profile, ProfilesDictionary};
use prost::Message;

use super::messages::{PushRequest, WriteRawRequest};
use super::request::{StoreRequest, StoredProfile};
use crate::pprof;

/// Limits of a store. The default is Pyroscope's as it is delivered, with the storage that counts no series.
#[derive(Clone, Debug)]
pub struct StoreRules {
    /// Bytes a second of a tenant's profiles, not compressed (`ingestion_rate_mb`).
    pub rate: f64,
    /// Bytes of these at once (`ingestion_burst_size_mb`).
    pub burst: f64,
    /// Series of a tenant (`max_global_series_per_tenant`, 5000, of the old storage); `None` for any number.
    pub max_series: Option<usize>,
    /// Bytes of a profile (`max_profile_size_bytes`).
    pub max_profile_bytes: usize,
    /// Samples of a profile (`max_profile_stacktrace_samples`).
    pub max_samples: usize,
    /// Labels of a profile (`max_label_names_per_series`).
    pub max_labels: usize,
    /// Age of a profile (`reject_older_than`).
    pub max_age: Duration,
    /// How far a profile may lie ahead (`reject_newer_than`).
    pub max_ahead: Duration,
    /// The clock of the store less that of the agent, s.
    pub clock_ahead: i64,
    /// A request must name a tenant (`multitenancy_enabled`).
    pub has_tenants: bool,
    /// Until then after its start it says that it is not ready, and answers 500.
    pub ready_after: Duration,
    /// Bytes of a request as it is sent that a proxy in front of the store lets through (nginx: 1 MB).
    pub max_body: Option<usize>,
}

impl Default for StoreRules {
    fn default() -> Self {
        Self {
            rate: 4e6,
            burst: 2e6,
            max_series: None,
            max_profile_bytes: 4 << 20,
            max_samples: 16_000,
            max_labels: 30,
            max_age: Duration::from_secs(60 * 60),
            max_ahead: Duration::from_secs(10 * 60),
            clock_ahead: 0,
            has_tenants: false,
            ready_after: Duration::ZERO,
            max_body: None,
        }
    }
}

/// A store's state.
#[derive(Debug)]
pub(super) struct Judge {
    rules: StoreRules,
    /// Bytes that are left of the burst, and when.
    left: f64,
    at: Instant,
    series: BTreeSet<String>,
    started: Instant,
}

/// A status and a message.
type Refusal = (u16, String);

impl Judge {
    pub(super) fn new(rules: StoreRules) -> Self {
        Self {
            left: rules.burst,
            at: Instant::now(),
            series: BTreeSet::new(),
            started: Instant::now(),
            rules,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.started.elapsed() >= self.rules.ready_after
    }

    /// Stores what the real store would, and gives its answer.
    pub(super) fn judge(&mut self, request: &StoreRequest) -> (Vec<StoredProfile>, u16, String) {
        let too_large = self.rules.max_body.filter(|max| request.n_sent > *max);
        if too_large.is_some() {
            let page = "<html>\r\n<head><title>413 Request Entity Too Large</title></head>";
            return (Vec::new(), 413, page.to_owned());
        }
        if !self.is_ready() {
            let said = "rpc error: code = Unavailable desc = service is unavailable";
            return (Vec::new(), 500, connect("unknown", said));
        }
        let content_type = request.headers.get("content-type").map(String::as_str);
        let (stored, refusal) = match &*request.path {
            "/push.v1.PusherService/Push" => self.pyroscope(request, content_type),
            "/v1development/profiles" => self.otlp(request, content_type),
            "/api/profiles/writeraw" => parca(request),
            _ => (Vec::new(), Some((404, "404 page not found\n".to_owned()))),
        };
        let (status, said) = refusal.unwrap_or((200, String::new()));
        (stored, status, said)
    }

    fn no_tenant(&self, request: &StoreRequest) -> Option<Refusal> {
        let is_missing = self.rules.has_tenants && !request.headers.contains_key("x-scope-orgid");
        is_missing.then(|| (401, connect("unauthenticated", "no org id")))
    }

    fn pyroscope(
        &mut self,
        request: &StoreRequest,
        content_type: Option<&str>,
    ) -> (Vec<StoredProfile>, Option<Refusal>) {
        if content_type != Some("application/proto") {
            return (Vec::new(), Some((415, String::new())));
        }
        if let Some(refusal) = self.no_tenant(request) {
            return (Vec::new(), Some(refusal));
        }
        let Ok(message) = PushRequest::decode(&*request.body) else {
            return (
                Vec::new(),
                Some((400, connect("invalid_argument", "unmarshal"))),
            );
        };
        let (mut stored, mut first) = (Vec::new(), None);
        for series in message.series {
            for sample in series.samples {
                let labels = series.labels.iter();
                let labels = labels.map(|pair| (pair.name.clone(), pair.value.clone()));
                let (kept, refusal) = self.series(labels.collect(), &sample.raw_profile);
                stored.extend(kept.map(|kept| StoredProfile {
                    id: sample.id,
                    ..kept
                }));
                let code = |status| match status {
                    429 => "resource_exhausted",
                    _ => "invalid_argument",
                };
                let refusal = refusal.map(|(status, said)| (status, connect(code(status), &said)));
                first = first.or(refusal);
            }
        }
        (stored, first)
    }

    /// One series, which is taken or refused alone; of the old storage it may be stored in part.
    fn series(
        &mut self,
        labels: Vec<(String, String)>,
        raw: &[u8],
    ) -> (Option<StoredProfile>, Option<Refusal>) {
        let bad = |said: String| (None, Some((400, said)));
        let unpacked = match raw {
            [0x1f, 0x8b, ..] => unpack(raw),
            plain => Some(plain.to_vec()),
        };
        let Some(plain) = unpacked else {
            return bad("gzip: invalid header".to_owned());
        };
        if plain.len() > self.rules.max_profile_bytes {
            return bad("uncompressed profile payload size exceeds limit of 4.2 MB".to_owned());
        }
        let Ok(mut profile) = pprof::Profile::decode(&*plain) else {
            return bad("proto: cannot parse invalid wire-format data".to_owned());
        };
        let n_values = profile.sample_type.len();
        if profile
            .sample
            .iter()
            .any(|sample| sample.value.len() != n_values)
        {
            return bad("sample value length mismatch".to_owned());
        }
        if let Err(refusal) = self.admit(&labels, plain.len(), &profile) {
            return (None, Some(refusal));
        }
        // What has no value is not kept.
        profile
            .sample
            .retain(|sample| sample.value.iter().any(|value| *value != 0));
        let refusal = self.keep_series(&labels, &mut profile).err();
        let stored = stored(labels.into_iter().collect(), profile, plain.len());
        (Some(stored), refusal)
    }

    /// What Pyroscope checks of each series before it keeps anything of it, in its order.
    fn admit(
        &mut self,
        labels: &[(String, String)],
        n_bytes: usize,
        profile: &pprof::Profile,
    ) -> Result<(), Refusal> {
        let of_labels: usize = labels
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        if !self.takes((n_bytes + of_labels) as f64) {
            let rate = format!("push rate limit (4.0 MiB) exceeded while adding {n_bytes} B");
            return Err((429, rate));
        }
        let bad = |said: String| Err((400, said));
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs() as i64 + self.rules.clock_ahead;
        let age = now - profile.time_nanos / 1_000_000_000;
        let [max_age, max_ahead] =
            [self.rules.max_age, self.rules.max_ahead].map(|time| time.as_secs() as i64);
        if age > max_age || -age > max_ahead {
            return bad(format!(
                "profile with labels '{labels:?}' is outside of ingestion window"
            ));
        }
        if profile.sample.len() > self.rules.max_samples {
            return bad(
                "exceeds the samples count limit (max_profile_stacktrace_samples)".to_owned(),
            );
        }
        if labels.len() > self.rules.max_labels {
            return bad(format!(
                "profile series has {} label names; limit 30",
                labels.len()
            ));
        }
        if !labels
            .iter()
            .any(|(name, value)| name == "service_name" && !value.is_empty())
        {
            return bad("invalid labels: service name is not provided".to_owned());
        }
        let mut names = BTreeSet::new();
        let twice = labels.iter().find(|(name, _)| !names.insert(name));
        match twice {
            Some((name, _)) => bad(format!("profile has duplicate label name: '{name}'")),
            None => Ok(()),
        }
    }

    /// Takes bytes from the bucket; none where there are not enough.
    fn takes(&mut self, n_bytes: f64) -> bool {
        let now = Instant::now();
        let since = now.duration_since(std::mem::replace(&mut self.at, now));
        self.left = (self.left + since.as_secs_f64() * self.rules.rate).min(self.rules.burst);
        let takes = self.left >= n_bytes;
        if takes {
            self.left -= n_bytes;
        }
        takes
    }

    /// Counts the series that a profile's sample labels and types make. Samples of the first one that is too many, and of those
    /// after it, are not kept.
    fn keep_series(
        &mut self,
        labels: &[(String, String)],
        profile: &mut pprof::Profile,
    ) -> Result<(), Refusal> {
        let Some(max) = self.rules.max_series else {
            return Ok(());
        };
        let mut n_kept = profile.sample.len();
        'samples: for (at, sample) in profile.sample.iter().enumerate() {
            let labels_of_sample = sample.label.iter().map(|label| (label.key, label.str));
            let texts =
                labels_of_sample.map(|(key, value)| [profile.text(key), profile.text(value)]);
            let texts: Vec<_> = texts.collect();
            for (kind, value) in sample.value.iter().enumerate() {
                let name = format!("{labels:?} {texts:?} {kind}");
                if *value == 0 || self.series.contains(&name) {
                    continue;
                }
                if self.series.len() >= max {
                    n_kept = at;
                    break 'samples;
                }
                self.series.insert(name);
            }
        }
        if n_kept == profile.sample.len() {
            return Ok(());
        }
        profile.sample.truncate(n_kept);
        let said = format!(
            "Maximum active series limit exceeded ({}/{max}), reduce the number of active streams (reduce labels or reduce \
             label values), or contact your administrator to see if the limit can be increased",
            max + 1
        );
        Err((429, said))
    }

    /// Pyroscope's endpoint for OTLP: each profile of a request is a series.
    fn otlp(
        &mut self,
        request: &StoreRequest,
        content_type: Option<&str>,
    ) -> (Vec<StoredProfile>, Option<Refusal>) {
        if content_type != Some("application/x-protobuf") {
            return (
                Vec::new(),
                Some((415, "Unsupported Content-Type".to_owned())),
            );
        }
        if let Some((status, _)) = self.no_tenant(request) {
            return (Vec::new(), Some((status, "no org id\n".to_owned())));
        }
        let decoded = ExportProfilesServiceRequest::decode(&*request.body);
        let Ok(ExportProfilesServiceRequest {
            resource_profiles,
            dictionary: Some(dictionary),
        }) = decoded
        else {
            let said = "Failed to parse protobuf request\n".to_owned();
            return (Vec::new(), Some((400, said)));
        };
        let shared = dictionary.encoded_len();
        let (mut stored_all, mut first) = (Vec::new(), None);
        for resource in resource_profiles {
            let attributes = resource.resource.map(|resource| resource.attributes);
            let mut labels = labels_of(&attributes.unwrap_or_default());
            let service = labels.iter().find(|(name, _)| name == "service.name");
            let service = service
                .map_or("unknown_service", |(_, value)| value)
                .to_owned();
            labels.push(("service_name".to_owned(), service));
            for profile in resource
                .scope_profiles
                .iter()
                .flat_map(|scope| &scope.profiles)
            {
                let made = of_otlp(profile, &dictionary);
                let n_bytes = profile.encoded_len() + shared;
                match self.admit(&labels, n_bytes, &made) {
                    Ok(()) => {
                        stored_all.push(stored(labels.iter().cloned().collect(), made, n_bytes))
                    }
                    Err((status, said)) => {
                        let said = format!(
                            "failed to make a GRPC request: push series with index {} failed: {said}\n",
                            stored_all.len()
                        );
                        first = first.or(Some((status, said)));
                    }
                }
            }
        }
        (stored_all, first)
    }
}

/// Attributes of a resource as labels, the first of each name.
fn labels_of(attributes: &[KeyValue]) -> Vec<(String, String)> {
    let mut names = BTreeSet::new();
    let pairs = attributes.iter().filter_map(|pair| {
        let value = match pair.value.as_ref()?.value.as_ref()? {
            Value::StringValue(text) => text.clone(),
            Value::IntValue(number) => number.to_string(),
            _ => return None,
        };
        (!value.is_empty() && names.insert(&pair.key)).then(|| (pair.key.clone(), value))
    });
    pairs.collect()
}

/// The samples of a profile, with their values and nothing else.
fn of_otlp(profile: &Profile, dictionary: &ProfilesDictionary) -> pprof::Profile {
    let text = |at: i32| {
        let text = dictionary.string_table.get(at as usize);
        text.cloned().unwrap_or_default()
    };
    let kind = profile.sample_type.unwrap_or_default();
    pprof::Profile {
        string_table: vec![text(kind.type_strindex), text(kind.unit_strindex)],
        sample_type: vec![pprof::ValueType { r#type: 0, unit: 1 }],
        sample: profile
            .samples
            .iter()
            .map(|sample| pprof::Sample {
                value: vec![sample.values.iter().sum()],
                ..pprof::Sample::default()
            })
            .collect(),
        time_nanos: profile.time_unix_nano as i64,
        duration_nanos: profile.duration_nano as i64,
        ..pprof::Profile::default()
    }
}

/// Parca's gateway reads JSON whatever the content type says, and its store shows no labels of samples.
fn parca(request: &StoreRequest) -> (Vec<StoredProfile>, Option<Refusal>) {
    let said = |said: &str| format!(r#"{{"code":3, "message":"{said}", "details":[]}}"#);
    let Ok(message) = serde_json::from_slice::<WriteRawRequest>(&request.body) else {
        let first = request.body.first().copied().unwrap_or_default();
        let said = said(&format!(
            "invalid character {first:?} looking for beginning of value"
        ));
        return (Vec::new(), Some((400, said)));
    };
    let mut all = Vec::new();
    for series in message.series {
        let labels = series.labels.labels.into_iter();
        let labels: BTreeMap<_, _> = labels.map(|pair| (pair.name, pair.value)).collect();
        for sample in series.samples {
            let profile = unpack(&sample.profile()).and_then(|plain| {
                let profile = pprof::Profile::decode(&*plain).ok()?;
                Some((profile, plain.len()))
            });
            let Some((mut profile, n_bytes)) = profile else {
                return (all, Some((400, said("failed to parse profile"))));
            };
            profile
                .sample
                .iter_mut()
                .for_each(|sample| sample.label.clear());
            all.push(stored(labels.clone(), profile, n_bytes));
        }
    }
    (all, None)
}

fn stored(
    labels: BTreeMap<String, String>,
    profile: pprof::Profile,
    n_bytes: usize,
) -> StoredProfile {
    let kinds = profile.sample_type.iter().enumerate();
    let sums = kinds.map(|(at, kind)| {
        let sum = profile.sample.iter().map(|sample| sample.value[at]).sum();
        (profile.text(kind.r#type).to_owned(), sum)
    });
    StoredProfile {
        labels,
        sums: sums.collect(),
        n_samples: profile.sample.len(),
        n_bytes,
        id: String::new(),
        pprof: profile,
    }
}

/// An error as Connect says it.
fn connect(code: &str, message: &str) -> String {
    format!(
        r#"{{"code":"{code}","message":{}}}"#,
        serde_json::Value::from(message)
    )
}

/// The plain bytes; `None` if these are not gzipped. At most what a test would send.
pub(super) fn unpack(gzip: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    GzDecoder::new(gzip).read_to_end(&mut plain).ok()?;
    Some(plain)
}
