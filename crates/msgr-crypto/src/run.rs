//! A plan to calls that are really made, again and again, over the same memory.

use msgr_crypto_ffi::{CallError, Context, Direction, Library};

use crate::strategy::{Area, Op, Plan};

const PAGE: usize = 4096;
const KEY: [u8; 16] = [0x5a; 16];
const NONCE: [u8; 12] = [0xa5; 12];

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

    fn get_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        &mut self.bytes[self.begin + at..][..len]
    }
}

/// A plan with its memory, ready to run.
#[derive(Debug)]
pub struct Runner<'lib> {
    context: Context<'lib>,
    units: Vec<RunUnit>,
    /// By [`Area`].
    memory: [Arena; 3],
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
        let mut units = Vec::with_capacity(plan.units.len());
        for ops in &plan.units {
            let n_bytes = ops.iter().map(Op::update_len).sum();
            units.push(RunUnit {
                ops: ops.clone(),
                tags: tags_of_zeros(library, n_bytes)?,
                changes_input: ops.iter().any(|op| op.to.area == Area::Source),
            });
        }
        Ok(Self {
            context: library.context(plan.side.direction(), &KEY)?,
            units,
            memory: plan.lengths.map(Arena::new),
            is_odd: false,
        })
    }

    /// Encrypts, or decrypts and verifies, `n` frames.
    ///
    /// # Errors
    /// When libcrypto fails or a tag does not match.
    pub fn run(&mut self, n: u64) -> Result<(), CallError> {
        let context = &mut self.context;
        for _ in 0..n {
            for unit in &self.units {
                context.restart(&NONCE)?;
                for op in &unit.ops {
                    step(context, op, &mut self.memory)?;
                }
                match context.direction() {
                    Direction::Decrypt => {
                        let is_changed = self.is_odd && unit.changes_input;
                        context.set_tag(&unit.tags[usize::from(is_changed)])?;
                        context.finish()?;
                    }
                    Direction::Encrypt => {
                        context.finish()?;
                        std::hint::black_box(context.tag()?);
                    }
                }
            }
            self.is_odd = !self.is_odd;
        }
        Ok(())
    }
}

#[inline(always)]
fn step(context: &mut Context<'_>, op: &Op, memory: &mut [Arena; 3]) -> Result<(), CallError> {
    let (from, to) = (op.from.area as usize, op.to.area as usize);
    if from == to {
        return context.update_in_place(memory[from].get_mut(op.from.offset, op.from.len));
    }
    // Never fails: the areas differ.
    if let Ok([input, output]) = memory.get_disjoint_mut([from, to]) {
        let input = input.get_mut(op.from.offset, op.from.len);
        let output = output.get_mut(op.to.offset, op.to.len);
        match op.is_copy {
            true => output.copy_from_slice(input),
            false => context.update(input, output)?,
        }
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
        runner.memory[Area::Source as usize].get_mut(7, 1)[0] ^= 1;
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
                let result = &mut runner.memory[Area::Destination as usize];
                results.push(result.get_mut(0, shape.n_bytes()).to_vec());
            }
        }
        assert!(results.iter().all(|result| result == &results[0]));
        assert!(results[0].iter().any(|byte| *byte != 0));
    }
}
