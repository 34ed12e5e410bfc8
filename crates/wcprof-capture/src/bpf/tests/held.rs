//! Passes whose records are read later, of a child that blocks in `read` for each byte.

use super::*;

/// The engine for a blocked child with a stack that is wanted from `mapping`'s start to its end, as of
/// now: nothing has changed since. `None` where passes cannot be held.
struct Held {
    engine: BpfEngine,
    /// Another one, to look at the child: a full snapshot empties the memory.
    looker: BpfEngine,
    cat: Cat,
    sp: Avma,
}

/// Looks until the child is in its `read`, and `is_it`. It gets a byte now and then, as in [`Reader::wait_blocked`].
fn wait_blocked(
    cat: &mut Cat,
    looker: &mut BpfEngine,
    is_it: impl Fn(&TaskRecord) -> bool,
) -> TaskRecord {
    let mut n_looks = 0;
    wait_for("blocked child", || {
        n_looks += 1;
        if n_looks % 1000 == 0 {
            cat.0.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        }
        let task = find(looker, Tid(cat.pid().0))?;
        (is_blocked_in_read(&task) && is_it(&task)).then_some(task)
    })
}

impl Held {
    fn new(in_mapping: bool) -> Option<Self> {
        let mut cat = Cat::spawn();
        let mut looker = engine(BpfEngine::new, &[cat.pid()])?;
        let mut engine = engine(BpfEngine::new, &[cat.pid()])?;
        if let Some(why) = &engine.features().no_own_passes {
            skip(why);
            return None;
        }
        let task = wait_blocked(&mut cat, &mut looker, |_| true);
        let sp = task.user_regs()?.sp;
        let maps = fs::read_to_string(format!("/proc/{}/maps", cat.pid())).unwrap();
        let maps = parse_maps(&maps).unwrap();
        let mapping = maps.iter().find(|m| m.contains(sp)).unwrap();
        let end = if in_mapping { mapping.end } else { sp };
        let want = want(&task, mapping.start..end, 4096);
        engine.want_stack(&want).unwrap();
        wait_for("an unchanged child", || {
            let (pass, ..) = changes(&mut engine, false);
            (pass.n_unlisted == 1).then_some(())
        });
        Some(Self {
            engine,
            looker,
            cat,
            sp,
        })
    }

    /// Has the child run once more, and gives the pass at which it is blocked again.
    fn change(&mut self) -> Option<Pass> {
        let before = find(&mut self.looker, Tid(self.cat.pid().0)).unwrap();
        self.cat.0.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        wait_blocked(&mut self.cat, &mut self.looker, |now| {
            now.nvcsw > before.nvcsw
        });
        self.engine.hold().unwrap()
    }
}

/// Check that passes that were held give, oldest first, what they saw, stacks too, and then none; and
/// that the next ordinary pass knows what they said.
#[test]
fn in_order() {
    let Some(mut held) = Held::new(true) else {
        return;
    };
    let first = held.change().unwrap();
    let second = held.change().unwrap();
    assert!(first.begin < second.begin);
    assert_eq!((first.n_seen(), second.n_seen()), (1, 1));
    let mut runs = 0;
    for _ in 0..2 {
        let mut bytes = vec![7; 3];
        let pass = held.engine.take_held(&mut bytes).unwrap();
        assert!(pass.n_seen() == 1 && pass.n_missed == 0 && pass.n_unlisted == 0);
        let (task, stack) = records(&bytes, 3).next().unwrap().unwrap();
        assert!(task.nvcsw > runs && task.time < pass.end);
        runs = task.nvcsw;
        let mut memory = vec![0; stack.len()];
        assert!(stack.len() >= 256, "{stack:?}");
        wcprof_host::read_memory(held.cat.pid(), held.sp, &mut memory).unwrap();
        // What lies above the frame of `read` does not change from one call to the next.
        let below = task.stack_below as usize;
        assert_eq!(bytes[stack][below..], memory[..memory.len() - below]);
    }
    let mut bytes = Vec::new();
    let none = held.engine.take_held(&mut bytes);
    assert_eq!((none, bytes.len()), (None, 0));
    let (pass, tasks, _) = changes(&mut held.engine, false);
    assert_eq!((tasks.len(), pass.n_unlisted), (0, 1));
}

/// Check what makes a pass urgent: a call whose file is to be read, and a stack that is not copied; not a
/// quiet call with its stack.
#[test]
fn urgent() {
    for (in_mapping, is_quiet, urgent) in [
        (true, false, 1),
        (true, true, 0),
        (false, true, 1),
        (false, false, 1),
    ] {
        let Some(mut held) = Held::new(in_mapping) else {
            return;
        };
        held.engine
            .set_quiet_calls(|call| call != i64::from(SYS_READ) || is_quiet);
        let pass = held.change().unwrap();
        assert_eq!(pass.n_urgent, urgent, "{in_mapping} {is_quiet}");
    }
}

/// Check that nothing is held beyond the memory for it, and that what was lost then comes in full.
#[test]
fn full_memory() {
    let Some(mut held) = Held::new(true) else {
        return;
    };
    let mut n_held = 0;
    while held.change().is_some() {
        n_held += 1;
        assert!(n_held < 10_000);
    }
    assert!(n_held > 10);
    for _ in 0..n_held {
        let mut bytes = Vec::new();
        assert!(held.engine.take_held(&mut bytes).is_some());
        assert_eq!(records(&bytes, 0).count(), 1);
    }
    assert_eq!(held.engine.take_held(&mut Vec::new()), None);
    assert_eq!(changes(&mut held.engine, false).1.len(), 1);
}

/// Check that an exit shows in the count of threads.
#[test]
fn exit() {
    let Some(mut held) = Held::new(true) else {
        return;
    };
    let pass = held.engine.hold().unwrap().unwrap();
    assert_eq!((pass.n_seen(), pass.n_urgent), (1, 0));
    let mut engine = held.engine;
    drop(held.cat);
    let pass = engine.hold().unwrap().unwrap();
    assert_eq!(pass.n_seen(), 0);
}
