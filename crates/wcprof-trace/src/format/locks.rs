//! What was seen of locks: addresses of waits, looks at the memory there, and threads by their
//! numbers in their own pid namespace.

use wcprof_types::lock::N_WORDS;
use wcprof_types::{Avma, Tid, TimeNs};

use super::codec::{Codec, Entries, Sizes, Table, write_entry};
use super::wire::{Input, check_interval, unknown, within};
use crate::error::Malformed;
use crate::limits::{MAX_LOOKS, MAX_OWNERS};
use crate::model::{LockLook, LockOwner, OwnerState, StackId, Tables, ThreadId, WaitId};

/// An entry of a section.
#[derive(Clone, Debug)]
pub(crate) enum Fact {
    Address(WaitId, Avma),
    Look(LockLook),
    OwnTid(ThreadId, Tid),
    Moved(ThreadId, TimeNs),
    Skipped(u64),
}

/// What entries of a section refer to: the look before.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Before {
    address: u64,
    time: u64,
}

impl Fact {
    /// An empty one, by the code of its kind.
    fn new(code: u8) -> Result<Self, Malformed> {
        Ok(match code {
            0 => Self::Address(WaitId(0), Avma(0)),
            1 => Self::Look(LockLook::default()),
            2 => Self::OwnTid(ThreadId(0), Tid(0)),
            3 => Self::Moved(ThreadId(0), TimeNs(0)),
            4 => Self::Skipped(0),
            code => return Err(unknown("fact about locks", code)),
        })
    }

    /// What follows the code.
    fn fields(&mut self, c: &mut Codec<'_, '_>, before: &mut Before) -> Result<(), Malformed> {
        match self {
            Self::Address(wait, address) => {
                c.id(Table::Waits, &mut wait.0)?;
                c.number(&mut address.0)
            }
            Self::Look(seen) => look(c, seen, before),
            Self::OwnTid(thread, own) => {
                c.id(Table::Threads, &mut thread.0)?;
                c.signed(&mut own.0)
            }
            Self::Moved(thread, tick) => {
                c.id(Table::Threads, &mut thread.0)?;
                c.time(tick)
            }
            Self::Skipped(n) => c.number(n),
        }
    }
}

pub(crate) fn put(
    out: &mut Vec<u8>,
    sizes: &Sizes,
    mut fact: Fact,
    before: &mut Before,
) -> Result<(), Malformed> {
    let mut code = match fact {
        Fact::Address(..) => 0,
        Fact::Look(_) => 1,
        Fact::OwnTid(..) => 2,
        Fact::Moved(..) => 3,
        Fact::Skipped(_) => 4,
    };
    write_entry(out, sizes, |c| {
        c.byte(&mut code)?;
        fact.fields(c, before)
    })
}

/// Reads a whole section.
pub(crate) fn read(
    input: &mut Input<'_>,
    entries: &mut Entries,
    t: &mut Tables,
) -> Result<(), Malformed> {
    let (sizes, locks) = (Sizes::from_tables(t), &mut t.locks);
    let mut before = Before::default();
    while !input.is_empty() {
        let known = entries.read(input, |input| {
            let mut fact = Fact::new(input.byte()?)?;
            fact.fields(&mut Codec::reader(input, sizes), &mut before)?;
            Ok(fact)
        })?;
        let Some(fact) = known else {
            continue;
        };
        match fact {
            Fact::Address(wait, address) => t.waits[wait.0 as usize].futex = Some(address),
            Fact::Look(look) => {
                within("looks at locks", locks.looks.len() as u64 + 1, MAX_LOOKS)?;
                locks.looks.push(look);
            }
            Fact::OwnTid(thread, own) => {
                locks.own_tids.insert(thread, own);
            }
            Fact::Moved(thread, tick) => {
                within("moved threads", locks.moved.len() as u64 + 1, MAX_LOOKS)?;
                locks.moved.push((thread, tick));
            }
            Fact::Skipped(n) => locks.n_skipped = locks.n_skipped.saturating_add(n),
        }
    }
    Ok(())
}

fn look(c: &mut Codec<'_, '_>, look: &mut LockLook, before: &mut Before) -> Result<(), Malformed> {
    c.id(Table::Processes, &mut look.process.0)?;
    c.delta(&mut look.address.0, before.address)?;
    c.delta(&mut look.since.0, before.time)?;
    c.delta(&mut look.until.0, look.since.0)?;
    check_interval(look.since.0, look.until.0)?;
    c.number32(&mut look.n_looks)?;
    for word in &mut look.words.0 {
        c.number32(word)?;
    }
    c.items("owners of a lock", &mut look.owners, MAX_OWNERS, owner)?;
    *before = Before {
        address: look.address.0,
        time: look.until.0,
    };
    Ok(())
}

fn owner(c: &mut Codec<'_, '_>, owner: &mut LockOwner) -> Result<(), Malformed> {
    c.byte(&mut owner.word)?;
    let mut code = owner.state as u8 | u8::from(owner.moved) << 2;
    c.byte(&mut code)?;
    owner.state = match code & 3 {
        0 => OwnerState::Running,
        1 => OwnerState::Queued,
        2 => OwnerState::Blocked,
        _ => return Err(unknown("state of an owner", code)),
    };
    owner.moved = code & 4 != 0;
    if code > 7 || usize::from(owner.word) >= N_WORDS {
        return Err(unknown("owner", code.max(owner.word)));
    }
    c.id(Table::Threads, &mut owner.thread.0)?;
    let (mut stack, mut wait) = (owner.stack.map(|id| id.0), owner.wait.map(|id| id.0));
    c.optional(Some(Table::Stacks), &mut stack)?;
    c.optional(Some(Table::Waits), &mut wait)?;
    (owner.stack, owner.wait) = (stack.map(StackId), wait.map(WaitId));
    Ok(())
}
