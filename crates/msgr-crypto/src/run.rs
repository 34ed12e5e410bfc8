//! A plan to calls that are really made, again and again, over the same memory.

use msgr_crypto_ffi::{CallError, Context, Direction, Library};

use crate::strategy::{Area, Op, Plan, Span};

const PAGE: usize = 4096;
const KEY: [u8; 16] = [0x5a; 16];
const NONCE: [u8; 12] = [0xa5; 12];

/// Memory of a plan: source, destination and scratch buffer.
#[derive(Debug)]
struct Memory {
    source: Arena,
    destination: Arena,
    scratch: Arena,
}

/// Zeroed bytes that begin at a page.
#[derive(Debug)]
struct Arena {
    bytes: Vec<u8>,
    begin: usize,
}

impl Arena {
    fn new(len: usize) -> Self {
        let mut bytes = vec![0; len + PAGE];
        // Zeroed memory is one shared page until it is written.
        for page in bytes.chunks_mut(PAGE) {
            std::hint::black_box(&mut page[0..1]).fill(0);
        }
        let begin = bytes.as_ptr().align_offset(PAGE).min(PAGE);
        Self { bytes, begin }
    }

    fn get(&self, at: usize, len: usize) -> &[u8] {
        &self.bytes[self.begin + at..][..len]
    }

    fn get_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        &mut self.bytes[self.begin + at..][..len]
    }
}

/// A plan with its memory, ready to run.
#[derive(Debug)]
pub struct Runner<'lib> {
    context: Context<'lib>,
    direction: Direction,
    units: Vec<RunUnit>,
    memory: Memory,
    /// Whether an odd number of frames was done.
    is_odd: bool,
}

#[derive(Debug)]
struct RunUnit {
    ops: Vec<Op>,
    /// Of the data as it is at first, and of the data after it was decrypted in place: the next run
    /// decrypts that.
    tags: [[u8; 16]; 2],
    /// Whether a run changes the input.
    changes_input: bool,
}

impl<'lib> Runner<'lib> {
    /// Makes `plan` ready, over zeroed memory.
    ///
    /// # Errors
    /// When libcrypto fails.
    pub fn new(library: &'lib Library, plan: &Plan) -> Result<Self, CallError> {
        let direction = plan.side.direction();
        let mut units = Vec::with_capacity(plan.units.len());
        for ops in &plan.units {
            let n_bytes = ops.iter().map(Op::update_len).sum();
            let tags = match direction {
                Direction::Decrypt => tags_of_zeros(library, n_bytes)?,
                Direction::Encrypt => [[0; 16]; 2],
            };
            let is_changed = |op: &Op| matches!(op, Op::InPlace(span) if span.area == Area::Source);
            units.push(RunUnit {
                ops: ops.clone(),
                tags,
                changes_input: ops.iter().any(is_changed),
            });
        }
        Ok(Self {
            context: library.context(direction, &KEY)?,
            direction,
            units,
            memory: Memory {
                source: Arena::new(plan.source_len),
                destination: Arena::new(plan.destination_len),
                scratch: Arena::new(plan.scratch_len),
            },
            is_odd: false,
        })
    }

    /// Encrypts, or decrypts and verifies, `n` frames.
    ///
    /// # Errors
    /// When libcrypto fails or a tag does not match.
    pub fn run(&mut self, n: u64) -> Result<(), CallError> {
        let Self {
            context,
            direction,
            units,
            memory,
            is_odd,
        } = self;
        for _ in 0..n {
            for unit in units.iter() {
                context.restart(&NONCE)?;
                for op in &unit.ops {
                    step(context, op, memory)?;
                }
                match direction {
                    Direction::Decrypt => {
                        context.set_tag(&unit.tags[usize::from(*is_odd && unit.changes_input)])?;
                        context.finish()?;
                    }
                    Direction::Encrypt => {
                        context.finish()?;
                        std::hint::black_box(context.tag()?);
                    }
                }
            }
            *is_odd = !*is_odd;
        }
        Ok(())
    }
}

#[inline(always)]
fn step(context: &mut Context<'_>, op: &Op, memory: &mut Memory) -> Result<(), CallError> {
    let Memory {
        source,
        destination,
        scratch,
    } = memory;
    let (from, to) = match op {
        Op::InPlace(Span { area, offset, len }) => {
            let arena = match area {
                Area::Source => source,
                Area::Destination => destination,
                Area::Scratch => scratch,
            };
            return context.update_in_place(arena.get_mut(*offset, *len));
        }
        Op::Copy { from, to } | Op::Update { from, to } => (from, to),
    };
    // Both spans are in different areas, and the result does not go back to the source.
    let (input, output) = match (from.area, to.area) {
        (Area::Source, Area::Scratch) => (source, scratch),
        (Area::Scratch, _) => (scratch, destination),
        _ => (source, destination),
    };
    let input = input.get(from.offset, from.len);
    let output = output.get_mut(to.offset, to.len);
    match op {
        Op::Copy { .. } => output.copy_from_slice(input),
        _ => context.update(input, output)?,
    }
    Ok(())
}

/// Tags of `len` zeros taken as ciphertext, and of what they decrypt to taken as ciphertext.
fn tags_of_zeros(library: &Library, len: usize) -> Result<[[u8; 16]; 2], CallError> {
    let mut context = library.context(Direction::Encrypt, &KEY)?;
    let mut data = vec![0; len];
    let mut seal = |data: &mut [u8]| {
        context.restart(&NONCE)?;
        context.update_in_place(data)?;
        context.finish()?;
        context.tag()
    };
    // Zeros encrypt to the key stream, and the key stream to zeros.
    let of_key_stream = seal(&mut data)?;
    let of_zeros = seal(&mut data)?;
    Ok([of_zeros, of_key_stream])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::{Shape, Side};
    use crate::strategy::{Arrangement, Placement, Strategy};

    const ARRANGEMENTS: [Arrangement; 4] = [
        Arrangement::PerBuffer,
        Arrangement::Coalesced,
        Arrangement::Gathered,
        Arrangement::Contiguous,
    ];

    /// Check that every strategy, batch and side decrypts with a right tag, an odd and an even number of
    /// times.
    #[test]
    fn every_strategy_verifies() {
        let library = Library::system().unwrap();
        for side in [Side::Rx, Side::Tx] {
            let shape = Shape::new("x", side, "80,0 | 192,5000,1,7,16,0").unwrap();
            for arrangement in ARRANGEMENTS {
                for placement in [Placement::InPlace, Placement::OutOfPlace] {
                    for batch in [
                        None,
                        Some(1),
                        Some(16),
                        Some(100),
                        Some(4096),
                        Some(1 << 20),
                    ] {
                        let mut strategy = Strategy::new(arrangement, placement);
                        strategy.batch = batch;
                        let plan = Plan::new(&shape, strategy);
                        let mut runner = Runner::new(&library, &plan).unwrap();
                        for n in [1, 2, 3] {
                            assert_eq!(runner.run(n), Ok(()), "{strategy} {side}");
                        }
                    }
                }
            }
        }
    }

    /// Check that a tag that is not that of the data is refused.
    #[test]
    fn wrong_tag() {
        let library = Library::system().unwrap();
        let shape = Shape::new("x", Side::Rx, "100").unwrap();
        let plan = Plan::new(&shape, Strategy::ceph(Side::Rx));
        let mut runner = Runner::new(&library, &plan).unwrap();
        runner.memory.source.get_mut(7, 1)[0] ^= 1;
        assert_eq!(runner.run(1), Err(CallError::TagMismatch));
    }

    /// Check that all strategies encrypt to the same bytes.
    #[test]
    fn every_strategy_agrees() {
        let library = Library::system().unwrap();
        let shape = Shape::new("x", Side::Tx, "100,28,4096,300,16").unwrap();
        let mut results = Vec::new();
        for arrangement in ARRANGEMENTS {
            for batch in [None, Some(64)] {
                let mut strategy = Strategy::new(arrangement, Placement::OutOfPlace);
                strategy.batch = batch;
                let plan = Plan::new(&shape, strategy);
                let mut runner = Runner::new(&library, &plan).unwrap();
                runner.run(1).unwrap();
                results.push(runner.memory.destination.get(0, shape.n_bytes()).to_vec());
            }
        }
        assert!(results.iter().all(|result| result == &results[0]));
        assert!(results[0].iter().any(|byte| *byte != 0));
    }
}
