//! A report of the model and the choices to one sentence.

use crate::advice::{Choice, TraceShare};
use crate::model::{Report, WORTHWHILE};

/// Whether larger pieces at once would help, and what else would.
pub fn verdict_sentence(report: &Report, choices: &[Choice], trace: Option<&TraceShare>) -> String {
    let best = report.verdict.saved_share;
    let lever = choices
        .iter()
        .filter(|choice| choice.is_lever && choice.saved_share > best.max(WORTHWHILE))
        .max_by(|a, b| a.saved_share.total_cmp(&b.saved_share));
    let lever = match lever {
        Some(choice) => format!(
            "; {} would save {:.0} % of it",
            choice.name,
            100.0 * choice.saved_share
        ),
        None => {
            "; what is left are more messenger threads, or crc mode in a trusted network".into()
        }
    };
    let whole = trace.map_or(String::new(), |trace| {
        format!(
            " (encryption is {:.1} % of the messenger threads' CPU time)",
            100.0 * trace.crypto_share
        )
    });
    let start = match best < WORTHWHILE {
        true => "Batching cannot help: it would save",
        false => "Batching would save",
    };
    format!(
        "{start} {:.1} % of the time of encryption{whole}{lever}.",
        100.0 * best
    )
}
