//! What was seen of locks: addresses of waits, looks at the memory there, and threads by their
//! numbers in their own pid namespace.

use wcprof_types::lock::{FutexWords, N_WORDS};
use wcprof_types::{Avma, Tid, TimeNs};

use super::entries::{Sizes, Table};
use super::wire::{
    Input, check_interval, known, put, put_delta, put_optional, put_signed, unknown, within,
};
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
    put_signed(out, own.0);
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

/// Refuses a look that refers to entries that are not there.
pub(crate) fn check(look: &LockLook, sizes: &Sizes) -> Result<(), Malformed> {
    sizes.check(Table::Processes, "process", Some(look.process.0))?;
    for owner in &look.owners {
        sizes.check(Table::Threads, "thread", Some(owner.thread.0))?;
        sizes.check(Table::Stacks, "stack", owner.stack.map(|id| id.0))?;
        sizes.check(Table::Waits, "wait", owner.wait.map(|id| id.0))?;
    }
    Ok(())
}

pub(crate) fn put_look(out: &mut Vec<u8>, look: &LockLook, before: &mut Before) {
    out.push(LOOK);
    put(out, look.process.0.into());
    put_delta(out, look.address.0, before.address);
    put_delta(out, look.since.0, before.time);
    put_delta(out, look.until.0, look.since.0);
    put(out, look.n_looks.into());
    for word in look.words.0 {
        put(out, word.into());
    }
    let owners = &look.owners[..look.owners.len().min(MAX_OWNERS)];
    put(out, owners.len() as u64);
    for owner in owners {
        out.push(owner.word);
        out.push(owner.state as u8 | u8::from(owner.moved) << 2);
        put(out, owner.thread.0.into());
        put_optional(out, owner.stack.map(|id| id.0));
        put_optional(out, owner.wait.map(|id| id.0));
    }
    *before = Before {
        address: look.address.0,
        time: look.until.0,
    };
}

/// Reads a whole section.
pub(crate) fn read(input: &mut Input<'_>, t: &mut Tables) -> Result<(), Malformed> {
    let mut before = Before::default();
    while !input.is_empty() {
        match input.byte()? {
            ADDRESS => {
                let id = input.id("wait", t.waits.len())?;
                t.waits[id as usize].futex = Some(Avma(input.number()?));
            }
            LOOK => {
                within("looks at locks", t.locks.looks.len() as u64 + 1, MAX_LOOKS)?;
                let look = look(input, &mut before, t)?;
                t.locks.looks.push(look);
            }
            OWN_TID => {
                let thread = thread(input, t)?;
                t.locks.own_tids.insert(thread, Tid(input.signed()?));
            }
            MOVED => {
                within("moved threads", t.locks.moved.len() as u64 + 1, MAX_LOOKS)?;
                let thread = thread(input, t)?;
                t.locks.moved.push((thread, input.time()?));
            }
            SKIPPED => {
                let n = input.number()?;
                t.locks.n_skipped = t.locks.n_skipped.saturating_add(n);
            }
            code => return Err(unknown("fact about locks", code)),
        }
    }
    Ok(())
}

fn look(input: &mut Input<'_>, before: &mut Before, t: &Tables) -> Result<LockLook, Malformed> {
    let process = input.id("process", t.processes.len())?;
    let address = input.delta(before.address)?;
    let since = input.delta(before.time)?;
    let until = input.delta(since)?;
    check_interval(since, until)?;
    let n_looks = input.number32()?;
    let mut words = [0; N_WORDS];
    for word in &mut words {
        *word = input.number32()?;
    }
    let n = input.count()?;
    within("owners of a lock", n as u64, MAX_OWNERS)?;
    let owners = (0..n).map(|_| owner(input, t));
    let owners = owners.collect::<Result<_, _>>()?;
    *before = Before {
        address,
        time: until,
    };
    Ok(LockLook {
        process: ProcessId(process),
        address: Avma(address),
        since: TimeNs(since),
        until: TimeNs(until),
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
        _ => return Err(unknown("state of an owner", code)),
    };
    if code > 7 || usize::from(word) >= N_WORDS {
        return Err(unknown("owner", code.max(word)));
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
    input.id("thread", t.threads.len()).map(ThreadId)
}

/// An id of a table of so many entries, if there is one.
fn optional(
    input: &mut Input<'_>,
    what: &'static str,
    len: usize,
) -> Result<Option<u32>, Malformed> {
    let id = input.optional()?;
    id.map_or(Ok(()), |id| known(what, id, len))?;
    Ok(id)
}
