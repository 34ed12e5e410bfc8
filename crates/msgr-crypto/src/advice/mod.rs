//! Frames of a process and costs of its library to what would lower the cost of encryption.

mod choices;
mod trace_share;

use serde::Serialize;

use crate::calibration::Calibration;
use crate::model::Report;
use crate::observed::{FrameSource, ProcessFrames, Role, shapes_by_protocol};
use crate::shapes::Shape;
use crate::text::verdict_sentence;

pub use choices::{Choice, FrameRate, newer_kernel};
pub use trace_share::{TraceShare, TraceSums};

/// Larger frames are left out where nobody counted them: in a mean of all kinds, one frame of 4 MiB would
/// outweigh all others.
const MAX_UNCOUNTED_BYTES: usize = 128 << 10;

/// Whom the advice is for.
#[derive(Debug)]
pub enum Subject {
    /// A live process.
    Process(ProcessFrames),
    /// A recorded one.
    Trace(TraceShare),
}

impl Subject {
    /// The frames to ask the model about.
    pub fn shapes(&self) -> Vec<Shape> {
        let (mut shapes, is_counted) = match self {
            Self::Process(process) => {
                let is_live = matches!(process.source, FrameSource::Live { .. });
                (process.shapes(), is_live)
            }
            Self::Trace(trace) => (shapes_by_protocol(Role::of_process(&trace.process)), false),
        };
        if !is_counted {
            shapes.retain(|shape| shape.n_bytes() <= MAX_UNCOUNTED_BYTES);
        }
        shapes
    }
}

/// Whose library the costs are of.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CalibrationSource {
    /// That of a file that was given.
    Saved,
    /// The process's own.
    Process,
    /// This system's, because a trace does not hold a library.
    System,
}

/// Costs of the subject's library, and of others.
#[derive(Copy, Clone, Debug)]
pub struct Costs<'a> {
    /// Of its own library.
    pub calibration: &'a Calibration,
    /// Whose that is.
    pub source: CalibrationSource,
    /// Of a library to compare with.
    pub other: Option<&'a Calibration>,
    /// Identifier of the kernel of newer libraries, as [`newer_kernel`] finds it.
    pub newer_kernel: Option<&'static str>,
}

/// What would lower the cost of encryption, and what that rests on.
#[derive(Debug, Serialize)]
pub struct Advice {
    /// In a sentence.
    pub verdict: String,
    /// What could be done, the present state first.
    pub choices: Vec<Choice>,
    /// How many frames a live process had.
    pub load: Option<FrameRate>,
    /// What a trace says of encryption.
    pub mix: Option<TraceShare>,
    /// The frames of a live process.
    pub watched: Option<ProcessFrames>,
    /// Whose library the costs are of.
    pub calibrated: CalibrationSource,
    /// What the model says of the frames.
    pub report: Report,
}

impl Advice {
    /// Asks the model about the subject's frames.
    pub fn new(subject: Subject, costs: Costs<'_>) -> Self {
        let shapes = subject.shapes();
        let report = Report::new(&shapes, costs.calibration, None);
        let other = costs.other.map(|other| Report::new(&shapes, other, None));
        let (watched, mix) = match subject {
            Subject::Process(process) => (Some(process), None),
            Subject::Trace(trace) => (None, Some(trace)),
        };
        let load = watched.as_ref().and_then(FrameRate::new);
        let choices = choices::choices(&report, other.as_ref(), costs.newer_kernel, load);
        Self {
            verdict: verdict_sentence(&report, &choices, mix.as_ref()),
            choices,
            load,
            mix,
            watched,
            calibrated: costs.source,
            report,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::tests::example;
    use crate::observed::{BurstFacts, Observation, Seen, SeenCall};
    use crate::shapes::Side;

    fn live(lens: &[i32]) -> Subject {
        let call = |len: &i32| {
            Seen::Call(SeenCall {
                context: 1,
                side: Side::Tx,
                len: *len,
                is_aad: false,
                tid: 7,
                time_ns: 0,
            })
        };
        let seen: Vec<_> = lens.iter().map(call).collect();
        Subject::Process(ProcessFrames {
            pid: 42,
            process: "fio".into(),
            role: Role::Client,
            source: FrameSource::Live {
                burst: Box::new(BurstFacts {
                    seconds: 0.5,
                    ..BurstFacts::default()
                }),
                observation: Box::new(Observation::new(&seen, Role::Client)),
            },
        })
    }

    fn costs(calibration: &Calibration) -> Costs<'_> {
        Costs {
            calibration,
            source: CalibrationSource::Saved,
            other: None,
            newer_kernel: None,
        }
    }

    fn saved(advice: &Advice, name: &str) -> f64 {
        let choice = advice.choices.iter().find(|choice| choice.name == name);
        choice.unwrap_or_else(|| panic!("no {name}")).saved_share
    }

    /// Check that large frames count for a process whose frames were counted, and for no other.
    #[test]
    fn large_frames() {
        let large = |subject: &Subject| {
            let shapes = subject.shapes().into_iter();
            shapes.filter(|s| s.n_bytes() > MAX_UNCOUNTED_BYTES).count()
        };
        assert_eq!(large(&live(&[32, 48, 288, 4 << 20, 16])), 1);
        let guessed = ProcessFrames::by_protocol(1, "osd.3", Role::Osd, "no privilege");
        assert_eq!(large(&Subject::Process(guessed)), 0);
        let trace = TraceShare::new("ceph-osd", TraceSums::default());
        assert_eq!(large(&Subject::Trace(trace)), 0);
    }

    /// Check the load of a live process, and that a slower library is a choice that costs more.
    #[test]
    fn live_process() {
        let calibration = example();
        let mut other = example();
        other.encrypt.unit_ns *= 10.0;
        let lens = [32, 48, 285, 3, 4096, 4096, 16].repeat(10);
        let mut costs = costs(&calibration);
        let advice = Advice::new(live(&lens), costs);
        let load = advice.load.unwrap();
        assert_eq!((load.frames_a_second, load.n_threads), (20.0, 1));
        let busy = advice.choices[0].thread_percent.unwrap();
        assert!((busy - 20.0 * advice.choices[0].frame_ns / 1e7).abs() < 1e-9);
        assert_eq!(saved(&advice, "OpenSSL 3.1 or later"), 0.0);
        assert!(saved(&advice, "both contiguous from the start") > 0.0);
        costs.other = Some(&other);
        assert!(saved(&Advice::new(live(&lens), costs), "the other library") < 0.0);
        costs.other = None;
        costs.newer_kernel = Some("avx512");
        assert!(saved(&Advice::new(live(&lens), costs), "OpenSSL 3.1 or later") > 0.5);
    }
}
