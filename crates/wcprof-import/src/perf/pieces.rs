//! Time of threads as a recording says it, and what it says twice.

use std::collections::{HashMap, HashSet};

use wcprof_trace::model::{StackId, ThreadId};
use wcprof_types::ThreadState;

use super::offcpu::UNTIMED;

/// Time of a thread, not yet scaled.
pub(super) struct Piece {
    pub(super) thread: ThreadId,
    /// Absolute, ns.
    pub(super) end: u64,
    /// ns, or counts of an event.
    pub(super) weight: u64,
    /// The event that `weight` counts; `None` for ns.
    pub(super) event: Option<usize>,
    pub(super) state: ThreadState,
    pub(super) stack: Option<StackId>,
    pub(super) said_by: SaidBy,
}

/// What says how long a thread did something.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum SaidBy {
    /// A sample of an event.
    Sample,
    /// A switch at its begin and one at its end.
    Switch,
    /// A switch at its begin; the end is that of the next sign of the thread.
    Guess,
    /// A switch at its begin; the end is that of the recording.
    AtEnd,
    /// A sample of `--off-cpu`.
    OffCpu,
}

/// Leaves out waits by switches that are in samples of `--off-cpu`, too; gives how many. Samples have stacks and exact lengths, which
/// switches lack in many recordings, but sums of them no times, so that it is told by lengths which waits they are of: the latest, since
/// perf begins with them when the program runs already. They are of waits alone that ended: one that goes on at the end stays where
/// ends are recorded, if the recording is long enough for it and the samples. (perf itself stops to record switches before it ends.)
pub(super) fn count_once(pieces: &mut Vec<Piece>) -> u64 {
    let (mut sampled, mut has_ends) = (HashMap::<_, u64>::new(), HashSet::new());
    for piece in &*pieces {
        if piece.said_by == SaidBy::OffCpu {
            let ns = sampled.entry(piece.thread).or_default();
            *ns = ns.saturating_add(piece.weight);
        } else if piece.said_by == SaidBy::Switch {
            has_ends.insert(piece.thread);
        }
    }
    if sampled.is_empty() {
        return 0;
    }
    let length = length(pieces);
    let n = pieces.len();
    // Waits of switches were added by their ends.
    let mut kept: Vec<Piece> = Vec::with_capacity(n);
    for piece in pieces.drain(..).rev() {
        let left = match piece.state {
            ThreadState::Blocked => sampled.get_mut(&piece.thread),
            _ => None,
        };
        let is_kept = match (piece.said_by, left) {
            (SaidBy::Sample | SaidBy::OffCpu, _) | (_, None) => true,
            (SaidBy::Guess, _) => false,
            (SaidBy::AtEnd, Some(left)) => {
                let has_room = left.saturating_add(piece.weight) <= length;
                if !has_room {
                    *left = left.saturating_sub(piece.weight);
                }
                has_room && has_ends.contains(&piece.thread)
            }
            (SaidBy::Switch, Some(left)) => {
                let is_sampled = piece.weight / 2 <= *left;
                if is_sampled {
                    *left = left.saturating_sub(piece.weight);
                }
                !is_sampled
            }
        };
        if is_kept {
            kept.push(piece);
        }
    }
    kept.reverse();
    *pieces = kept;
    (n - pieces.len()) as u64
}

/// From the begin of the first wait to the end of the last one that have times.
fn length(pieces: &[Piece]) -> u64 {
    let timed = || {
        let waits = pieces.iter().filter(|piece| piece.event.is_none());
        waits.filter(|piece| piece.end != UNTIMED)
    };
    let first = timed().map(|piece| piece.end.saturating_sub(piece.weight));
    let last = timed().map(|piece| piece.end).max();
    last.unwrap_or(0).saturating_sub(first.min().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that waits of a thread that has samples of `--off-cpu` are these, and what goes on at the end, where ends are recorded; that
    /// its time on run queues stays, and so do a wait before the samples and those of a thread without samples.
    #[test]
    fn once() {
        let piece = |thread, said_by, state| Piece {
            thread: ThreadId(thread),
            end: 100,
            weight: 1,
            event: None,
            state,
            stack: None,
            said_by,
        };
        let (waits, queued) = (ThreadState::Blocked, ThreadState::Runnable);
        let mut pieces = vec![
            piece(0, SaidBy::OffCpu, waits),
            piece(0, SaidBy::Switch, waits),
            piece(0, SaidBy::Switch, queued),
            piece(0, SaidBy::AtEnd, waits),
            piece(1, SaidBy::OffCpu, waits),
            piece(1, SaidBy::Guess, waits),
            piece(1, SaidBy::AtEnd, waits),
            piece(2, SaidBy::Switch, waits),
            piece(2, SaidBy::Guess, waits),
        ];
        // Of two waits as long as the sum of samples the first is none of these.
        pieces[0].weight = 10;
        pieces[1].weight = 10;
        let first = piece(0, SaidBy::Switch, waits);
        let (end, weight) = (50, 9);
        pieces.insert(
            0,
            Piece {
                end,
                weight,
                ..first
            },
        );
        // A thread that waited all the time, of which a sample knows: no end of the wait was recorded.
        pieces.push(piece(3, SaidBy::Switch, queued));
        pieces.push(piece(3, SaidBy::OffCpu, waits));
        pieces.push(piece(3, SaidBy::AtEnd, waits));
        for all in pieces.iter_mut().rev().take(2) {
            all.weight = 58;
        }
        assert_eq!(count_once(&mut pieces), 4);
        let left: Vec<_> = pieces.iter().map(|p| (p.thread.0, p.said_by)).collect();
        let right = [
            (0, SaidBy::Switch),
            (0, SaidBy::OffCpu),
            (0, SaidBy::Switch),
            (0, SaidBy::AtEnd),
            (1, SaidBy::OffCpu),
            (2, SaidBy::Switch),
            (2, SaidBy::Guess),
            (3, SaidBy::Switch),
            (3, SaidBy::OffCpu),
        ];
        assert_eq!(left, right);
    }
}
