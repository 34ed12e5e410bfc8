//! What profile stores get of random traces, and the requests around it.

use proptest::prelude::*;
use wcprof_export::{
    PushedProfile, Series, StoreLimits, parca_request, pyroscope_request, store_profile,
};
use wcprof_profile::model::State;

use crate::exports::Exports;
use crate::formats::trace;
use crate::read::Pprof;

const WIDE: StoreLimits = StoreLimits::PYROSCOPE;

/// The values of the samples that pass.
fn sum(pprof: &Pprof, passes: impl Fn(&Pprof, &crate::proto::Sample) -> bool) -> u64 {
    let samples = pprof.0.sample.iter().filter(|one| passes(pprof, one));
    samples.map(|sample| sample.value[0] as u64).sum()
}

proptest! {
    /// Check that each state of a pool has its whole time, however few stacks and bytes are allowed, and
    /// that idle time and threads are not told apart.
    #[test]
    fn sums(maker in trace(), n_samples in 1..20_usize, n_bytes in prop::sample::select(vec![100, 1000, WIDE.n_bytes])) {
        let exports = Exports::of(&maker, None);
        let profile = &exports.profile;
        for series in [Series::Wall { idle: false }, Series::Wall { idle: true }, Series::Cpu] {
            let limits = StoreLimits { n_samples, n_bytes };
            let weight = |state: State| -> u64 {
                let rows = profile.rows.iter().filter(|row| row.state == state);
                rows.map(|row| row.weight).sum()
            };
            let shown = |state: &State| match series {
                Series::Wall { idle } => idle || !state.is_idle(),
                Series::Cpu => matches!(state, State::OnCpu | State::Guest),
            };
            let expected: u64 = State::ALL.into_iter().filter(shown).map(weight).sum();
            let Some(found) = store_profile(profile, 0, series, limits).unwrap() else {
                prop_assert_eq!(expected, 0);
                continue;
            };
            let pprof = Pprof::read(&found.pprof);
            prop_assert_eq!(sum(&pprof, |_, _| true), expected);
            for state in State::ALL.into_iter().filter(shown) {
                let of_state = sum(&pprof, |pprof, one| pprof.label(one, "state") == state.name());
                prop_assert_eq!(of_state, weight(state));
            }
            let is = |name: &'static str| move |pprof: &Pprof, one: &crate::proto::Sample| {
                let locations = pprof.locations(one);
                locations.len() == 1 && pprof.lines(locations[0]) == [format!("{name} :0")]
            };
            prop_assert_eq!(sum(&pprof, is("[other]")), found.folded_ns);
            prop_assert_eq!(found.folded_ns > 0, found.n_folded > 0);
            let idle = pprof.0.sample.iter().filter(|one| pprof.label(one, "state") == State::Idle.name());
            prop_assert!(idle.count() <= 1);
            // One pool: each state may have one for what is folded.
            prop_assert!(pprof.0.sample.len() <= n_samples + State::ALL.len());
            let labels = pprof.0.sample.iter().flat_map(|one| &one.label);
            for label in labels {
                prop_assert!(["state", "pool"].contains(&pprof.text(label.key)));
            }
            let whole = store_profile(profile, 0, series, WIDE).unwrap().unwrap();
            prop_assert_eq!(whole.n_folded, 0);
        }
        prop_assert!(store_profile(profile, 1, Series::Cpu, WIDE).unwrap().is_none());
    }
}

/// The fields of a message whose fields all have a length, or are small numbers: number and content.
fn fields(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut all = Vec::new();
    while let [tag, len, rest @ ..] = bytes {
        let len = match tag & 7 {
            0 => 0,
            2 => usize::from(*len),
            other => panic!("wire type {other}"),
        };
        all.push((tag >> 3, &rest[..len]));
        bytes = &rest[len..];
    }
    all
}

/// Check the numbers of the fields, as the stores' APIs document them.
#[test]
fn requests() {
    let profile = PushedProfile {
        labels: vec![("service_name".into(), "ceph-osd".into())],
        pprof: b"gzip".to_vec(),
        id: "1".into(),
    };
    let request = pyroscope_request(vec![profile.clone(), profile.clone()]);
    let series = fields(&request);
    assert_eq!(series.len(), 2);
    let (1, series) = series[0] else { panic!() };
    let [(1, label), (2, sample)] = fields(series)[..] else {
        panic!()
    };
    assert_eq!(fields(label), [(1, &b"service_name"[..]), (2, b"ceph-osd")]);
    assert_eq!(fields(sample), [(1, &b"gzip"[..]), (2, b"1")]);

    let request = parca_request(vec![profile]);
    let [(2, series), (3, _)] = fields(&request)[..] else {
        panic!()
    };
    let [(1, set), (2, sample)] = fields(series)[..] else {
        panic!()
    };
    let [(1, label)] = fields(set)[..] else {
        panic!()
    };
    assert_eq!(fields(label), [(1, &b"service_name"[..]), (2, b"ceph-osd")]);
    assert_eq!(fields(sample), [(1, &b"gzip"[..])]);
}
