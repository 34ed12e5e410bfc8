//! CPU time by kind of work: malloc, AES, checksums, sockets. The kinds are rules.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use wcprof_trace::FastState;
use wcprof_types::StackEnd;

use crate::model::{CODE_IN, Function, FunctionId, KERNEL, Profile, Row, State};
use crate::own::OwnFunctions;
use crate::rules::Categories;

/// The CPU time of one kind of work.
#[derive(Clone, PartialEq, Debug)]
pub struct CategoryTime {
    /// As the rule names it, or one of its own for what no rule is asked about; `None` for what no rule covers.
    pub name: Option<String>,
    /// Nanoseconds on a CPU.
    pub weight: u64,
    /// Observations it stands on.
    pub n_samples: u64,
    /// The program's functions that ask for it and say what for, with their share of `weight`, the largest first. For
    /// what no rule covers, and for kernel workers: the functions themselves.
    pub callers: Vec<(FunctionId, u64)>,
}

/// CPU time of which no stack is known: nobody can say what it was for.
pub const NOT_SAMPLED: &str = "not sampled";
/// CPU time in guests.
const GUEST: &str = "guest";
/// CPU time in the kernel for guests.
const VM_EXITS: &str = "VM exits";
/// CPU time in code that no file holds and nothing named: what a runtime compiled, or QEMU made of a guest's code.
const MADE_CODE: &str = "code made at run time";
/// CPU time of threads that the kernel made and that no rule names.
const KERNEL_WORKER: &str = "kernel worker";
/// The kernel's first function of a thread that it was asked for: by a system call, and by a fault or an interrupt.
const ENTRIES: [&str; 4] = ["entry_", "do_syscall_", "asm_", "irqentry_"];

/// The CPU time of a profile, guests' too, by category, the largest first. Of a stack the innermost
/// function that a category names decides, of a kernel worker's the outermost.
pub fn cpu_by_category(profile: &Profile, categories: &Categories) -> Vec<CategoryTime> {
    cpu_of_rows(profile, categories, profile.rows.iter())
}

/// The same of some rows.
pub(crate) fn cpu_of_rows<'p>(
    profile: &'p Profile,
    categories: &Categories,
    rows: impl Iterator<Item = &'p Row>,
) -> Vec<CategoryTime> {
    let work = Work::new(profile, categories);
    let own = OwnFunctions::new(profile);
    let mut above: Vec<FunctionId> = Vec::new();
    let mut sums: HashMap<Option<&str>, Sum> = HashMap::new();
    for row in rows.filter(|row| row.state.is_running()) {
        let stack = row.stack.and_then(|id| profile.stacks.get(id.0 as usize));
        let frames = stack.map_or(&[][..], |stack| &stack.frames);
        let (category, leaf) = work.of_stack(row.state, stack.map(|stack| stack.end), frames);
        let is_worker = stack.is_some_and(|stack| stack.end == StackEnd::NoUserStack);
        let others = |f: &&FunctionId| is_worker || category.is_none() || work.of(**f) != category;
        let callers = frames[..leaf.unwrap_or(frames.len())].iter().rev();
        above.clear();
        above.extend(callers.filter(others));
        let asks = match is_worker {
            true => above.first().copied(),
            false => {
                let own_of = |of: &[FunctionId]| own.from_own(of).first().copied();
                let says = |f: &FunctionId| own.says_what(*f);
                let all = || frames.iter().rev().copied().collect::<Vec<_>>();
                // Else one that does the same kind of work says more than what only passes a call on.
                let found = own_of(&above).filter(says);
                let found = found.or_else(|| own_of(&all()).filter(says));
                let found = found.or_else(|| own_of(&above));
                found.filter(|f| own.is_of_program(*f))
            }
        };
        let sum = sums.entry(category).or_default();
        sum.weight = sum.weight.saturating_add(row.weight);
        sum.n_samples = sum.n_samples.saturating_add(row.n_samples);
        if let Some(caller) = asks {
            let of_caller = sum.callers.entry(caller).or_default();
            *of_caller = of_caller.saturating_add(row.weight);
        }
    }
    let times = sums.into_iter().map(|(category, sum)| {
        let mut callers: Vec<(FunctionId, u64)> = sum.callers.into_iter().collect();
        callers.sort_unstable_by_key(|&(function, weight)| (Reverse(weight), function));
        CategoryTime {
            name: category.map(str::to_owned),
            weight: sum.weight,
            n_samples: sum.n_samples,
            callers,
        }
    });
    let mut times: Vec<CategoryTime> = times.collect();
    times.sort_by(|a, b| (b.weight, &a.name).cmp(&(a.weight, &b.name)));
    times
}

/// The kinds of work of a profile's functions.
#[derive(Debug)]
pub(crate) struct Work<'c> {
    of: Vec<Option<&'c str>>,
    /// Stand-ins for code that no file holds.
    made_code: HashSet<FunctionId>,
    /// Functions that a thread of the program comes into the kernel by; without a user stack it ends, and has none left.
    entries: HashSet<FunctionId>,
}

impl<'c> Work<'c> {
    pub(crate) fn new(profile: &Profile, categories: &'c Categories) -> Self {
        let functions = profile.functions.iter();
        let of = functions.map(|function| categories.of(&function.name, &function.module));
        let is_entry = |function: &Function| {
            let name = &function.name;
            function.module == KERNEL && ENTRIES.iter().any(|entry| name.starts_with(entry))
        };
        let is_made =
            |function: &Function| function.module.is_empty() && function.name.starts_with(CODE_IN);
        let those = |is: &dyn Fn(&Function) -> bool| {
            let all = profile.functions.iter().enumerate();
            let those = all.filter(|(_, function)| is(function));
            those.map(|(at, _)| FunctionId(at as u32)).collect()
        };
        Self {
            of: of.collect(),
            made_code: those(&is_made),
            entries: those(&is_entry),
        }
    }

    fn of(&self, function: FunctionId) -> Option<&'c str> {
        self.of.get(function.0 as usize).copied().flatten()
    }

    /// The kind of CPU time with a stack of these frames, root first, and the place of the function that says so where
    /// others ask for what it does. `end` is `None` without a stack.
    pub(crate) fn of_stack(
        &self,
        state: State,
        end: Option<StackEnd>,
        frames: &[FunctionId],
    ) -> (Option<&'c str>, Option<usize>) {
        match end {
            _ if state == State::Guest => (Some(GUEST), None),
            _ if state == State::VmExit => (Some(VM_EXITS), None),
            None => (Some(NOT_SAMPLED), None),
            Some(StackEnd::NoUserStack) => {
                let named = frames.iter().find_map(|&f| self.of(f));
                let is_own = frames.first().is_some_and(|f| self.entries.contains(f));
                let unnamed = Some(KERNEL_WORKER).filter(|_| !is_own);
                (named.or(unnamed), None)
            }
            Some(_) => {
                let at = frames.iter().rposition(|&f| self.of(f).is_some());
                let is_made = || frames.last().is_some_and(|f| self.made_code.contains(f));
                let named = at.and_then(|at| self.of(frames[at]));
                (named.or_else(|| is_made().then_some(MADE_CODE)), at)
            }
        }
    }
}

/// The time of a category.
#[derive(Default)]
struct Sum {
    weight: u64,
    n_samples: u64,
    callers: HashMap<FunctionId, u64, FastState>,
}
