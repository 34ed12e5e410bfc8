// Local functions that exported ones go on in, for `naming.rs`: each caller jumps there, and leaves no frame.
static volatile long sink;

#define LOCAL static __attribute__((noinline, noclone, used))
#define STEP(n) do { for (long i = 0; i < x; i++) sink = sink * n + y[i]; } while (0)

// Of one exported function.
LOCAL long slow(long x, long *y) { STEP(3); return sink; }
long take(long x, long *y) { return x > 5 ? 1 : slow(x, y); }

// Of two.
LOCAL long timed(long x, long *y) { STEP(5); return sink; }
long take_until(long x, long *y) { sink++; return timed(x, y); }
long take_for(long x, long *y) { sink--; return timed(x, y); }

// Called by one more, which leaves a frame.
LOCAL long called(long x, long *y) { STEP(7); return sink; }
long jumps(long x, long *y) { return called(x, y); }
long calls(long x, long *y) { return called(x, y) + 1; }

// Its address is taken.
LOCAL long pointed(long x, long *y) { STEP(9); return sink; }
long jumps_too(long x, long *y) { return pointed(x, y); }
long (*pointer)(long, long *) = pointed;

// A local function jumps there.
LOCAL long deep(long x, long *y) { STEP(11); return sink; }
LOCAL long middle(long x, long *y) { sink = x; return deep(x, y); }
long outer(long x, long *y) { return middle(x, y) + 1; }
long outer_too(long x, long *y) { return deep(x, y); }
