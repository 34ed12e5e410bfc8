//! What was seen of locks: addresses of waits, looks at the memory there, and threads by their
//! numbers in their own pid namespace.

use wcprof_types::lock::{FutexWords, N_WORDS};
use wcprof_types::{Avma, Tid, TimeNs};

use super::entries::time;
use super::wire::{Input, known, put, put_delta, within};
use crate::error::Malformed;
use crate::limits::{MAX_LOOKS, MAX_OWNERS};
use crate::model::{LockLook, LockOwner, OwnerState, ProcessId, StackId, Tables, ThreadId, WaitId};

const ADDRESS: u8 = 0;
const LOOK: u8 = 1;
const OWN_TID: u8 = 2;
const MOVED: u8 = 3;
const SKIPPED: u8 = 4;

/// What entries of a section refer to: the entry before.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Before {
    address: u64,
    time: u64,
}

pub(crate) fn put_address(out: &mut Vec<u8>, wait: WaitId, address: Avma) {
    out.push(ADDRESS);
    put(out, wait.0.into());
    put(out, address.0);
}

pub(crate) fn put_own_tid(out: &mut Vec<u8>, thread: ThreadId, own: Tid) {
    out.push(OWN_TID);
    put(out, thread.0.into());
    put_delta(out, own.0 as u64, 0);
}

pub(crate) fn put_moved(out: &mut Vec<u8>, thread: ThreadId, tick: TimeNs) {
    out.push(MOVED);
    put(out, thread.0.into());
    put(out, tick.0);
}

pub(crate) fn put_skipped(out: &mut Vec<u8>, n: u64) {
    out.push(SKIPPED);
    put(out, n);
}

pub(crate) fn put_look(out: &mut Vec<u8>, look: &LockLook, before: &mut Before) {
    let LockLook {
        process,
        address,
        since,
        until,
        n_looks,
        words,
        owners,
    } = look;
    out.push(LOOK);
    put(out, process.0.into());
    put_delta(out, address.0, before.address);
    put_delta(out, since.0, before.time);
    put_delta(out, until.0, since.0);
    put(out, (*n_looks).into());
    for &word in &words.0 {
        put(out, word.into());
    }
    let owners = &owners[..owners.len().min(MAX_OWNERS)];
    put(out, owners.len() as u64);
    for owner in owners {
        out.push(owner.word);
        out.push(state_code(owner.state) | u8::from(owner.moved) << 2);
        put(out, owner.thread.0.into());
        put(out, owner.stack.map_or(0, |id| u64::from(id.0) + 1));
        put(out, owner.wait.map_or(0, |id| u64::from(id.0) + 1));
    }
    *before = Before {
        address: address.0,
        time: until.0,
    };
}

/// Reads a whole section.
pub(crate) fn read(input: &mut Input<'_>, t: &mut Tables) -> Result<(), Malformed> {
    let mut before = Before::default();
    while !input.is_empty() {
        match input.byte()? {
            ADDRESS => {
                let id = input.number32()?;
                let address = Avma(input.number()?);
                known("wait", id, t.waits.len())?;
                if let Some(wait) = t.waits.get_mut(id as usize) {
                    wait.futex = Some(address);
                }
            }
            LOOK => {
                within("looks at locks", t.locks.looks.len() as u64 + 1, MAX_LOOKS)?;
                let look = look(input, &mut before, t)?;
                t.locks.looks.push(look);
            }
            OWN_TID => {
                let thread = thread(input, t)?;
                let own = i32::try_from(input.delta(0)?.cast_signed())
                    .map_err(|_| Malformed::NumberTooLarge)?;
                t.locks.own_tids.insert(thread, Tid(own));
            }
            MOVED => {
                within("moved threads", t.locks.moved.len() as u64 + 1, MAX_LOOKS)?;
                let thread = thread(input, t)?;
                t.locks.moved.push((thread, time(input.number()?)?));
            }
            SKIPPED => {
                let n = input.number()?;
                t.locks.n_skipped = t.locks.n_skipped.saturating_add(n);
            }
            code => {
                return Err(Malformed::UnknownCode {
                    what: "fact about locks",
                    code: code.into(),
                });
            }
        }
    }
    Ok(())
}

fn look(input: &mut Input<'_>, before: &mut Before, t: &Tables) -> Result<LockLook, Malformed> {
    let process = input.number32()?;
    known("process", process, t.processes.len())?;
    let address = input.delta(before.address)?;
    let since = time(input.delta(before.time)?)?;
    let until = time(input.delta(since.0)?)?;
    if since > until {
        return Err(Malformed::Interval {
            start: since.0,
            end: until.0,
        });
    }
    let n_looks = input.number32()?;
    let mut words = [0; N_WORDS];
    for word in &mut words {
        *word = input.number32()?;
    }
    let n = input.count()?;
    within("owners of a lock", n as u64, MAX_OWNERS)?;
    let mut owners = Vec::with_capacity(n);
    for _ in 0..n {
        owners.push(owner(input, t)?);
    }
    *before = Before {
        address,
        time: until.0,
    };
    Ok(LockLook {
        process: ProcessId(process),
        address: Avma(address),
        since,
        until,
        n_looks,
        words: FutexWords(words),
        owners,
    })
}

fn owner(input: &mut Input<'_>, t: &Tables) -> Result<LockOwner, Malformed> {
    let word = input.byte()?;
    let code = input.byte()?;
    let state = match code & 3 {
        0 => OwnerState::Running,
        1 => OwnerState::Queued,
        2 => OwnerState::Blocked,
        _ => {
            return Err(Malformed::UnknownCode {
                what: "state of an owner",
                code: code.into(),
            });
        }
    };
    if code > 7 || usize::from(word) >= N_WORDS {
        return Err(Malformed::UnknownCode {
            what: "owner",
            code: code.max(word).into(),
        });
    }
    Ok(LockOwner {
        word,
        state,
        moved: code & 4 != 0,
        thread: thread(input, t)?,
        stack: optional(input, "stack", t.stacks.len())?.map(StackId),
        wait: optional(input, "wait", t.waits.len())?.map(WaitId),
    })
}

fn thread(input: &mut Input<'_>, t: &Tables) -> Result<ThreadId, Malformed> {
    let id = input.number32()?;
    known("thread", id, t.threads.len())?;
    Ok(ThreadId(id))
}

/// An id + 1, or 0 for none.
fn optional(
    input: &mut Input<'_>,
    what: &'static str,
    len: usize,
) -> Result<Option<u32>, Malformed> {
    let Some(id) = input.number32()?.checked_sub(1) else {
        return Ok(None);
    };
    known(what, id, len)?;
    Ok(Some(id))
}

fn state_code(state: OwnerState) -> u8 {
    match state {
        OwnerState::Running => 0,
        OwnerState::Queued => 1,
        OwnerState::Blocked => 2,
    }
}
