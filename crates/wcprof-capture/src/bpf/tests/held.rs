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
    out: Changes,
}

impl Held {
    fn new(in_mapping: bool) -> Option<Self> {
        let cat = Cat::spawn();
        let mut looker = engine(BpfEngine::new, &[cat.pid()])?;
        let mut engine = engine(BpfEngine::new, &[cat.pid()])?;
        if let Some(why) = &engine.features().no_own_passes {
            println!("SKIPPED {why}");
            return None;
        }
        let tid = Tid(cat.pid().0);
        let task = wait_for("blocked child", || {
            find(&mut looker, tid).filter(is_blocked_in_read)
        });
        let sp = task.regs?.sp;
        let maps = fs::read_to_string(format!("/proc/{}/maps", cat.pid())).unwrap();
        let maps = parse_maps(&maps).unwrap();
        let mapping = maps.iter().find(|m| m.contains(sp)).unwrap();
        let end = if in_mapping { mapping.end } else { sp };
        let want = WantedStack {
            host_tid: task.host_tid,
            mapping: mapping.start..end,
            bytes: 4096,
        };
        engine.want_stack(&want).unwrap();
        let mut out = Changes::default();
        wait_for("an unchanged child", || {
            engine
                .snapshot_changes(false, &mut out, &mut Vec::new())
                .unwrap();
            (out.n_unmentioned == 1).then_some(())
        });
        Some(Self {
            engine,
            looker,
            cat,
            sp,
            out,
        })
    }

    /// Has the child run once more, and gives the pass at which it is blocked again.
    fn change(&mut self) -> Option<HeldPass> {
        let before = find(&mut self.looker, Tid(self.cat.pid().0)).unwrap();
        self.cat.0.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        wait_for("one more run", || {
            let now = find(&mut self.looker, before.tid).unwrap();
            let ran = now.counters.nvcsw > before.counters.nvcsw;
            (ran && is_blocked_in_read(&now)).then_some(())
        });
        self.engine.hold_changes().unwrap()
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
    assert!(first.time_ns < second.time_ns);
    assert_eq!((first.n_threads, second.n_threads), (1, 1));
    let mut runs = 0;
    for _ in 0..2 {
        let mut bytes = vec![7; 3];
        let info = held.engine.take_held(&mut held.out, &mut bytes).unwrap();
        let info = info.unwrap();
        assert!(info.n_threads == 1 && !info.incomplete && held.out.n_unmentioned == 0);
        let (task, stack) = changed(&held.out, Tid(held.cat.pid().0)).unwrap();
        assert!(task.counters.nvcsw > runs && task.time_ns < info.time_ns);
        runs = task.counters.nvcsw;
        let mut memory = vec![0; stack.len()];
        assert!(stack.start >= 3 && stack.len() >= 256, "{stack:?}");
        wcprof_host::read_memory(held.cat.pid(), held.sp, &mut memory).unwrap();
        // What lies above the frame of `read` does not change from one call to the next.
        assert_eq!(bytes[stack.clone()], memory);
    }
    let mut bytes = Vec::new();
    let none = held.engine.take_held(&mut held.out, &mut bytes).unwrap();
    assert_eq!((none, bytes.len()), (None, 0));
    let engine = &mut held.engine;
    engine
        .snapshot_changes(false, &mut held.out, &mut bytes)
        .unwrap();
    assert_eq!((held.out.changed.len(), held.out.n_unmentioned), (0, 1));
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
        if let Way::Own(passes) = &mut held.engine.way {
            passes.set_quiet(|call| call != i64::from(SYS_READ) || is_quiet);
        }
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
    let mut bytes = Vec::new();
    for _ in 0..n_held {
        let taken = held.engine.take_held(&mut held.out, &mut bytes).unwrap();
        assert_eq!((taken.is_some(), held.out.changed.len()), (true, 1));
    }
    assert_eq!(
        held.engine.take_held(&mut held.out, &mut bytes).unwrap(),
        None
    );
    held.engine
        .snapshot_changes(false, &mut held.out, &mut bytes)
        .unwrap();
    assert_eq!(held.out.changed.len(), 1);
}

/// Check that an exit shows in the count of threads.
#[test]
fn exit() {
    let Some(mut held) = Held::new(true) else {
        return;
    };
    let pass = held.engine.hold_changes().unwrap().unwrap();
    assert_eq!((pass.n_threads, pass.n_urgent), (1, 0));
    let mut engine = held.engine;
    drop(held.cat);
    let pass = engine.hold_changes().unwrap().unwrap();
    assert_eq!(pass.n_threads, 0);
}
