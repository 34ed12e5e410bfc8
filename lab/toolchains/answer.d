// The stack of answer.c, in D.
import core.stdc.stdio : fflush, puts, stdout;
import core.sys.posix.unistd : usleep;
import core.volatile : volatileLoad, volatileStore;

__gshared uint sink;

void count()
{
    pragma(inline, true);
    volatileStore(&sink, volatileLoad(&sink) + 1);
}

pragma(inline, false) void leaf_spin()
{
    foreach (i; 0 .. 5_000_000)
        count();
}

pragma(inline, false) void leaf_wait()
{
    usleep(20_000);
    count();
}

pragma(inline, true) void middle_step(ulong n)
{
    if (n % 2 == 0)
        leaf_spin();
    else
        leaf_wait();
    count();
}

pragma(inline, false) void outer_step(ulong n)
{
    middle_step(n);
    count();
}

void main()
{
    puts("ready");
    fflush(stdout);
    for (ulong n = 0;; n++)
        outer_step(n);
}
