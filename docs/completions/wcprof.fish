# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_wcprof_global_optspecs
    string join \n h/help V/version
end

function __fish_wcprof_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_wcprof_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_wcprof_using_subcommand
    set -l cmd (__fish_wcprof_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c wcprof -n "__fish_wcprof_needs_command" -s h -l help -d 'Print help'
complete -c wcprof -n "__fish_wcprof_needs_command" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_needs_command" -f -a "attach" -d 'Record a live process, save the trace and print where its time went'
complete -c wcprof -n "__fish_wcprof_needs_command" -f -a "top" -d 'Show live where the threads of a process spend their time'
complete -c wcprof -n "__fish_wcprof_needs_command" -f -a "report" -d 'Print a saved trace as a tree or flame graph, or export it to other viewers'
complete -c wcprof -n "__fish_wcprof_needs_command" -f -a "diff" -d 'Compare two saved traces: what changed, by how much, and whether that is significant'
complete -c wcprof -n "__fish_wcprof_needs_command" -f -a "import" -d 'Convert a file of another profiler to a trace: perf.data, folded stacks, text of uwpmp or gdbpmp'
complete -c wcprof -n "__fish_wcprof_needs_command" -f -a "merge" -d 'Merge traces into one: of the hosts of a cluster, of successive runs, or of one process over time'
complete -c wcprof -n "__fish_wcprof_needs_command" -f -a "hotspots" -d 'Print the hotspots of a saved trace, with evidence and advice'
complete -c wcprof -n "__fish_wcprof_needs_command" -f -a "locks" -d 'Show where threads of a saved trace waited for locks, and what the holders did meanwhile'
complete -c wcprof -n "__fish_wcprof_needs_command" -f -a "symbols" -d 'Show for each module where its names come from, what is missing, and what would supply it'
complete -c wcprof -n "__fish_wcprof_needs_command" -f -a "check" -d 'Show what works on this machine and for a process, and what to do about the rest'
complete -c wcprof -n "__fish_wcprof_needs_command" -f -a "doctor" -d 'Check the settings of a process and its host: findings with evidence and advice, read-only'
complete -c wcprof -n "__fish_wcprof_needs_command" -f -a "crypto" -d 'Show what encryption of Ceph\'s messenger costs here, and what would reduce it'
complete -c wcprof -n "__fish_wcprof_needs_command" -f -a "demo" -d 'Profile a built-in workload shaped like a Ceph OSD'
complete -c wcprof -n "__fish_wcprof_needs_command" -f -a "demo-workload" -d 'The workload that `demo` profiles'
complete -c wcprof -n "__fish_wcprof_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l name -d 'Processes whose name or program file name matches' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l cgroup -d 'Processes in this control group and below it' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l vm -d 'The QEMU process of this virtual machine (`-name NAME` or `-name guest=NAME,...`)' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l osd -d 'The ceph-osd process with this id (`--id` or `-i`)' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -s d -l duration -d 'Length of the recording in seconds; 0 records until Ctrl-C (the default with --keep)' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -s o -l output -d 'Trace file; default: wcprof-PID-DATE.wct in the current folder, with the first pid' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l flamegraph -d 'Also write a flame graph' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l keep -d 'Keep only the most recent TIME, in memory (60s, 5m, 1h). It is written to a numbered trace file at SIGUSR1, when a --trigger holds, and at the end' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l keep-memory -d 'Memory limit for what is kept; above it a shorter time is kept, and that is reported' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l trigger -d 'Write when this holds: `lock of tp_osd_tp > 30% over 5s`, `p99 runnable of msgr-* > 50% over 10s`, `func:ObjectCacher::* of all > 10% over 10s`; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l trigger-limit -d 'Files that triggers write at most' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -s r -l rate -d 'Samples of each thread a second, 1 to 1000' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l threads -d 'Record only threads whose name matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l exclude-threads -d 'Leave out threads whose name matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l engine -d 'How to observe the target' -r -f -a "auto\t'The best one that works here'
bpf\t'BPF task iterator and perf events'
procfs\t'/proc and perf events'
procfs-only\t'Only /proc: running threads have no stack'"
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l max-cpu -d 'CPU limit for wcprof itself, in percent of one core, 1 to 100; above it the rate is lowered' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l rules -d 'Your own rules (TOML): a file for states and pools or with a hotspot rule, or a folder of hotspot rules' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l hotspot-rules -d 'Your own hotspot rules (TOML file or folder), in addition to the built-in ones' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l max-memory -d 'Memory limit for finding names; above it, inline frames are dropped, and that is reported' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l debug-dir -d 'Folder of debug files, searched before /usr/lib/debug; can be given several times' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l sysroot -d 'Copy of the recorded machine\'s root: its programs, libraries and debug files' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l children -d 'Also record the child processes of these, and those that start during the recording'
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l kernel -d 'Also record kernel stacks, and show them below the user stacks'
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l no-inline -d 'Only function names, no inline frames and source lines: faster'
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l no-cache -d 'Do not read or write the cache of names (in $XDG_CACHE_HOME/wcprof)'
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l no-debuginfod -d 'Do not ask the debuginfod servers in $DEBUGINFOD_URLS for what is missing here'
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l tree -d 'Also print the call trees of each pool'
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -l raw -d 'Do not save function names in the trace; read no debug file and ask no debuginfod server'
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c wcprof -n "__fish_wcprof_using_subcommand attach" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l name -d 'Processes whose name or program file name matches' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l cgroup -d 'Processes in this control group and below it' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l vm -d 'The QEMU process of this virtual machine (`-name NAME` or `-name guest=NAME,...`)' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l osd -d 'The ceph-osd process with this id (`--id` or `-i`)' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -s w -l window -d 'The time that is shown, in seconds, 1 to 60' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l keep -d 'The time that is kept in memory; the key s saves it' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l keep-memory -d 'Memory limit for what is kept' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -s o -l output -d 'Saved traces are numbered: FILE-1.wct, FILE-2.wct; default: wcprof-PID-DATE' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -s r -l rate -d 'Samples of each thread a second, 1 to 1000' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l threads -d 'Record only threads whose name matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l exclude-threads -d 'Leave out threads whose name matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l engine -d 'How to observe the target' -r -f -a "auto\t'The best one that works here'
bpf\t'BPF task iterator and perf events'
procfs\t'/proc and perf events'
procfs-only\t'Only /proc: running threads have no stack'"
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l max-cpu -d 'CPU limit for wcprof itself, in percent of one core, 1 to 100; above it the rate is lowered' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l rules -d 'Your own rules (TOML): a file for states and pools or with a hotspot rule, or a folder of hotspot rules' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l hotspot-rules -d 'Your own hotspot rules (TOML file or folder), in addition to the built-in ones' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l max-memory -d 'Memory limit for finding names; above it, inline frames are dropped, and that is reported' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l debug-dir -d 'Folder of debug files, searched before /usr/lib/debug; can be given several times' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l sysroot -d 'Copy of the recorded machine\'s root: its programs, libraries and debug files' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l children -d 'Also show the child processes of these, and those that start later'
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l no-inline -d 'Only function names, no inline frames and source lines: faster'
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l no-cache -d 'Do not read or write the cache of names (in $XDG_CACHE_HOME/wcprof)'
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -l no-debuginfod -d 'Do not ask the debuginfod servers in $DEBUGINFOD_URLS for what is missing here'
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c wcprof -n "__fish_wcprof_using_subcommand top" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l by -d 'One tree for each of these [default: pool; all with --callers-of and --callees-of, and for pprof, firefox and csv]' -r -f -a "thread\t'Each thread'
pool\t'Threads whose names differ only in a number'
process\t'Each process'
cgroup\t'Each control group: a container, a service'
host\t'Each host of a merged trace'
all\t'One tree over all'"
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l ops -d 'Operations done during the recording: adds CPU time per operation, in total and by class of process' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l from -d 'Start of the window, relative to the start of the recording: 3s, 500ms, 1.5m (a bare number is in seconds)' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l to -d 'End of the window' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l threads -d 'Only threads whose name or pool matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l pools -d 'Only pools whose name matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l processes -d 'Only processes whose name or pid matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l cgroups -d 'Only processes whose control group path matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l state -d 'Only these states, separated by commas: on-cpu, guest, runnable, lock, disk, net, sleep, idle, blocked, steal/irq, unknown, throttle, place-unknown' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l focus -d 'Only stacks with a function whose name matches' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l hide -d 'Leave out the frames of functions whose name matches; their time stays with their callers' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l callers-of -d 'Only who calls this function (its name, arguments and scope may be left out)' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l callees-of -d 'Only what this function calls' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l idle -d 'Idle time; its share is always printed [default: hide; show for uwpmp, which has no states]' -r -f -a "hide\t'Leave it out; its share is printed'
show\t'Show it like any other state'"
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l min-percent -d 'Prune branches below this share of their group\'s shown time; 0 prunes nothing [default: 0.5 for text and functions, 0.1 for uwpmp, svg and icicle, 0.02 for html, else 0]' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l names -d 'How function names are printed [default: short for what people read, full for programs]' -r -f -a "full\t'In full'
short\t'Without template arguments, versioned inline namespaces and suffixes of clones; functions with equal short names are merged'"
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l format -d 'Output format [default: overview; text with --tree and with flags that choose what trees show]' -r -f -a "overview\t'The first screen: pools, what to do, where CPU time goes, where threads wait'
text\t'Call trees'
functions\t'Self and total time of each function'
waits\t'Where threads wait, and what decided that a wait is idle, a lock ...'
uwpmp\t'Exactly what uwpmp prints'
folded\t'One line per stack, for flame graph tools'
json\t'Versioned schema, see docs/json-schema.md'
svg\t'Flame graph; roots at the top with --invert'
icicle\t'Flame graph with its roots at the top'
html\t'One HTML file with everything, for a ticket: findings, graphs, trees, threads over time'
pprof\t'Protocol buffer for `go tool pprof`, Pyroscope and Parca'
speedscope\t'JSON for speedscope.app, with a time line'
firefox\t'JSON for profiler.firefox.com, with a time line'
csv\t'A line a sample, for spreadsheets and DuckDB'"
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -s o -d 'Write to a file instead of standard output' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l rules -d 'Your own rules (TOML): a file for states and pools or with a hotspot rule, or a folder of hotspot rules' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l hotspot-rules -d 'Your own hotspot rules (TOML file or folder), in addition to the built-in ones' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l max-memory -d 'Memory limit for finding names; above it, inline frames are dropped, and that is reported' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l debug-dir -d 'Folder of debug files, searched before /usr/lib/debug; can be given several times' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l sysroot -d 'Copy of the recorded machine\'s root: its programs, libraries and debug files' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l invert -d 'Leaf functions first, their callers below them'
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l kernel -d 'Show the kernel stacks that `attach --kernel` recorded'
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l states -d 'Show the state of the thread as a frame'
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l files -d 'Show the file or socket that a thread waits for as a frame: [fdatasync: /var/...]'
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l full-names -d 'The same as --names full'
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l lines -d 'Show source lines (`function (file.cc:12)`); each line of a function is then a frame of its own'
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l tree -d 'Call trees: `--format text`'
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l no-inline -d 'Only function names, no inline frames and source lines: faster'
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l no-cache -d 'Do not read or write the cache of names (in $XDG_CACHE_HOME/wcprof)'
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -l no-debuginfod -d 'Do not ask the debuginfod servers in $DEBUGINFOD_URLS for what is missing here'
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c wcprof -n "__fish_wcprof_using_subcommand report" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l per-op -d 'Operations done in each recording: compare time per operation, not per second' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l by -d 'Only these tables, separated by commas [default: all]' -r -f -a "class\t'CPU time by class of daemon (osd, mon, rgw, qemu ...)'
category\t'CPU time by kind of work (malloc, encryption, checksums ...)'
pool\t'Pools, as a whole and by state'
function\t'Functions, self and total'
stack\t'Stacks'"
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l limit -d 'Lines per table at most; significant ones come first' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l min-percent -d 'Do not show or test lines below this share of the shown time, averaged over both traces' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l flamegraph -d 'Also write a differential flame graph' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l html -d 'Also write a page with all tables and the flame graph' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l idle -d 'Idle time' -r -f -a "hide\t'Leave it out; its share is printed'
show\t'Show it like any other state'"
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l names -d 'How function names are compared and printed' -r -f -a "full\t'In full'
short\t'Without template arguments, versioned inline namespaces and suffixes of clones; functions with equal short names are merged'"
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l from -d 'Start of the window, relative to the start of the recording: 3s, 500ms, 1.5m (a bare number is in seconds)' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l to -d 'End of the window' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l threads -d 'Only threads whose name or pool matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l pools -d 'Only pools whose name matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l processes -d 'Only processes whose name or pid matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l cgroups -d 'Only processes whose control group path matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l state -d 'Only these states, separated by commas: on-cpu, guest, runnable, lock, disk, net, sleep, idle, blocked, steal/irq, unknown, throttle, place-unknown' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l focus -d 'Only stacks with a function whose name matches' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l hide -d 'Leave out the frames of functions whose name matches; their time stays with their callers' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l rules -d 'Your own rules (TOML): a file for states and pools or with a hotspot rule, or a folder of hotspot rules' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l hotspot-rules -d 'Your own hotspot rules (TOML file or folder), in addition to the built-in ones' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l max-memory -d 'Memory limit for finding names; above it, inline frames are dropped, and that is reported' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l debug-dir -d 'Folder of debug files, searched before /usr/lib/debug; can be given several times' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l sysroot -d 'Copy of the recorded machine\'s root: its programs, libraries and debug files' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l json -d 'Machine-readable output'
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l no-inline -d 'Only function names, no inline frames and source lines: faster'
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l no-cache -d 'Do not read or write the cache of names (in $XDG_CACHE_HOME/wcprof)'
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -l no-debuginfod -d 'Do not ask the debuginfod servers in $DEBUGINFOD_URLS for what is missing here'
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c wcprof -n "__fish_wcprof_using_subcommand diff" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand import" -s o -l output -d 'Trace file to write' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand import" -l format -d 'Format of the file; by default it is recognized by its content' -r -f -a "perf\t'The file of `perf record`'
folded\t'`root;...;leaf WEIGHT`, a stack a line'
uwpmp\t'The text of uwpmp'
gdbpmp\t'The text of gdbpmp'"
complete -c wcprof -n "__fish_wcprof_using_subcommand import" -l unit -d 'Time of one unit of a folded weight, or of one sample of uwpmp or gdbpmp, in microseconds [default: 1 for folded stacks, 10000 for uwpmp and gdbpmp]' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand import" -l inverted -d 'Whether the tree of uwpmp or gdbpmp starts with leaf functions; by default this is recognized' -r -f -a "true\t''
false\t''"
complete -c wcprof -n "__fish_wcprof_using_subcommand import" -l max-memory -d 'Memory limit for finding names; above it, inline frames are dropped, and that is reported' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand import" -l debug-dir -d 'Folder of debug files, searched before /usr/lib/debug; can be given several times' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand import" -l sysroot -d 'Copy of the recorded machine\'s root: its programs, libraries and debug files' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand import" -l raw -d 'Do not find function names for perf.data; read no debug file'
complete -c wcprof -n "__fish_wcprof_using_subcommand import" -l no-inline -d 'Only function names, no inline frames and source lines: faster'
complete -c wcprof -n "__fish_wcprof_using_subcommand import" -l no-cache -d 'Do not read or write the cache of names (in $XDG_CACHE_HOME/wcprof)'
complete -c wcprof -n "__fish_wcprof_using_subcommand import" -l no-debuginfod -d 'Do not ask the debuginfod servers in $DEBUGINFOD_URLS for what is missing here'
complete -c wcprof -n "__fish_wcprof_using_subcommand import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c wcprof -n "__fish_wcprof_using_subcommand import" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand merge" -s o -l output -d 'Merged trace' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand merge" -l align -d 'How the times of the recordings are aligned' -r -f -a "auto\t'By the hosts\' clocks if all recordings overlap, or if a process was recorded several times; else as `start`'
clock\t'By the hosts\' clocks'
start\t'All start at the same moment; several recordings of a process are several processes'"
complete -c wcprof -n "__fish_wcprof_using_subcommand merge" -l anonymous -d 'Call hosts host1, host2, ... and cut kernel releases to their version, for a trace that others will see; paths, arguments and functions keep their names. Works on a single trace, too'
complete -c wcprof -n "__fish_wcprof_using_subcommand merge" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c wcprof -n "__fish_wcprof_using_subcommand merge" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -l from -d 'Start of the window, relative to the start of the recording: 3s, 500ms, 1.5m (a bare number is in seconds)' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -l to -d 'End of the window' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -l threads -d 'Only threads whose name or pool matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -l pools -d 'Only pools whose name matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -l processes -d 'Only processes whose name or pid matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -l cgroups -d 'Only processes whose control group path matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -l ops -d 'Operations done during the recording: adds CPU time per operation, in total and by class of process' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -l rules -d 'Your own rules (TOML): a file for states and pools or with a hotspot rule, or a folder of hotspot rules' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -l hotspot-rules -d 'Your own hotspot rules (TOML file or folder), in addition to the built-in ones' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -l max-memory -d 'Memory limit for finding names; above it, inline frames are dropped, and that is reported' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -l debug-dir -d 'Folder of debug files, searched before /usr/lib/debug; can be given several times' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -l sysroot -d 'Copy of the recorded machine\'s root: its programs, libraries and debug files' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -l list -d 'List all rules, also your own, with thresholds and sources'
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -l json -d 'Machine-readable output'
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -l no-inline -d 'Only function names, no inline frames and source lines: faster'
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -l no-cache -d 'Do not read or write the cache of names (in $XDG_CACHE_HOME/wcprof)'
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -l no-debuginfod -d 'Do not ask the debuginfod servers in $DEBUGINFOD_URLS for what is missing here'
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -s h -l help -d 'Print help'
complete -c wcprof -n "__fish_wcprof_using_subcommand hotspots" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -l from -d 'Start of the window, relative to the start of the recording: 3s, 500ms, 1.5m (a bare number is in seconds)' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -l to -d 'End of the window' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -l threads -d 'Only threads whose name or pool matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -l pools -d 'Only pools whose name matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -l processes -d 'Only processes whose name or pid matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -l cgroups -d 'Only processes whose control group path matches; can be given several times' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -l html -d 'Also write a page with all of them' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -l top -d 'Lock sites to print as text' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -l rules -d 'Your own rules (TOML): a file for states and pools or with a hotspot rule, or a folder of hotspot rules' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -l hotspot-rules -d 'Your own hotspot rules (TOML file or folder), in addition to the built-in ones' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -l max-memory -d 'Memory limit for finding names; above it, inline frames are dropped, and that is reported' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -l debug-dir -d 'Folder of debug files, searched before /usr/lib/debug; can be given several times' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -l sysroot -d 'Copy of the recorded machine\'s root: its programs, libraries and debug files' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -l json -d 'Machine-readable output, with all lock sites'
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -l no-inline -d 'Only function names, no inline frames and source lines: faster'
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -l no-cache -d 'Do not read or write the cache of names (in $XDG_CACHE_HOME/wcprof)'
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -l no-debuginfod -d 'Do not ask the debuginfod servers in $DEBUGINFOD_URLS for what is missing here'
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -s h -l help -d 'Print help'
complete -c wcprof -n "__fish_wcprof_using_subcommand locks" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand symbols" -l max-memory -d 'Memory limit for finding names; above it, inline frames are dropped, and that is reported' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand symbols" -l debug-dir -d 'Folder of debug files, searched before /usr/lib/debug; can be given several times' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand symbols" -l sysroot -d 'Copy of the recorded machine\'s root: its programs, libraries and debug files' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand symbols" -l json -d 'Machine-readable output'
complete -c wcprof -n "__fish_wcprof_using_subcommand symbols" -l no-inline -d 'Only function names, no inline frames and source lines: faster'
complete -c wcprof -n "__fish_wcprof_using_subcommand symbols" -l no-cache -d 'Do not read or write the cache of names (in $XDG_CACHE_HOME/wcprof)'
complete -c wcprof -n "__fish_wcprof_using_subcommand symbols" -l no-debuginfod -d 'Do not ask the debuginfod servers in $DEBUGINFOD_URLS for what is missing here'
complete -c wcprof -n "__fish_wcprof_using_subcommand symbols" -s h -l help -d 'Print help'
complete -c wcprof -n "__fish_wcprof_using_subcommand symbols" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand check" -l json -d 'Machine-readable output'
complete -c wcprof -n "__fish_wcprof_using_subcommand check" -s h -l help -d 'Print help'
complete -c wcprof -n "__fish_wcprof_using_subcommand check" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand doctor" -l snapshot -d 'Look at a saved snapshot or a trace instead of a process' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand doctor" -l save-snapshot -d 'Save what was read as JSON' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand doctor" -l root -d 'Folder with copies of another host\'s /proc and /sys' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand doctor" -l json -d 'Machine-readable output, with what passed'
complete -c wcprof -n "__fish_wcprof_using_subcommand doctor" -l all -d 'Also print the checks that passed'
complete -c wcprof -n "__fish_wcprof_using_subcommand doctor" -l list -d 'List all checks, with what they test and their sources'
complete -c wcprof -n "__fish_wcprof_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c wcprof -n "__fish_wcprof_using_subcommand doctor" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and not __fish_seen_subcommand_from calibrate model observe advise confined-calibrate help" -s h -l help -d 'Print help'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and not __fish_seen_subcommand_from calibrate model observe advise confined-calibrate help" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and not __fish_seen_subcommand_from calibrate model observe advise confined-calibrate help" -f -a "calibrate" -d 'Measure what AES-128-GCM calls of a libcrypto cost on this machine: a second, up to ten beside other work'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and not __fish_seen_subcommand_from calibrate model observe advise confined-calibrate help" -f -a "model" -d 'Predict what messages cost, and what larger pieces at once would save'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and not __fish_seen_subcommand_from calibrate model observe advise confined-calibrate help" -f -a "observe" -d 'Watch the calls of a live process for a moment: which frames it sends and receives'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and not __fish_seen_subcommand_from calibrate model observe advise confined-calibrate help" -f -a "advise" -d 'Say in a sentence whether larger pieces at once would help a process, and what else would'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and not __fish_seen_subcommand_from calibrate model observe advise confined-calibrate help" -f -a "confined-calibrate" -d 'The process that `calibrate --pid` loads a foreign library in'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and not __fish_seen_subcommand_from calibrate model observe advise confined-calibrate help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from calibrate" -l lib -d 'Library to measure; its code runs with your rights [default: the system\'s libcrypto]' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from calibrate" -l pid -d 'Measure the libcrypto that this process maps; unless it is the system\'s, in a confined process' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from calibrate" -s o -l output -d 'Save the calibration (JSON) for `wcprof crypto model`' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from calibrate" -l shapes -d 'Frames for --verify (TOML, see docs/crypto.md) [default: those of real clusters]' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from calibrate" -l json -d 'Print the calibration as JSON'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from calibrate" -l verify -d 'Also run every frame by every strategy and print the error of the model (a minute)'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from calibrate" -l no-cache -d 'Do not read or write kept calibrations (in $XDG_CACHE_HOME/wcprof)'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from calibrate" -s h -l help -d 'Print help'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from calibrate" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from model" -l calibration -d 'Calibration to use, from `wcprof crypto calibrate -o` [default: the kept one of the system\'s libcrypto, else measured now]' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from model" -l speed -d 'Use the output of `openssl speed -evp aes-128-gcm -decrypt` instead (up to 3.0.15 and 3.4.0)' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from model" -l shapes -d 'Frames of your own (TOML, see docs/crypto.md) [default: those of real clusters]' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from model" -l threads -d 'Messenger threads that are busy all the time' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from model" -l iops -d 'I/Os a second that they do together' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from model" -l svg -d 'Also draw throughput against the size of a call' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from model" -l side -d 'The direction that is drawn' -r -f -a "rx\t'Received: decrypted'
tx\t'Sent: encrypted'"
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from model" -l json -d 'Machine-readable output'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from model" -l no-cache -d 'Do not read or write kept calibrations (in $XDG_CACHE_HOME/wcprof)'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from model" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from model" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from observe" -s d -l duration -d 'Length of the burst in seconds, 0.01 to 10; calls of the target are slower meanwhile' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from observe" -l threads -d 'Observe only threads whose name matches; may be given several times [default: msgr-worker-*, or all threads of a process that has none of that name]' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from observe" -s o -l output -d 'Write to a file instead of standard output' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from observe" -l json -d 'Machine-readable output'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from observe" -s h -l help -d 'Print help'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from observe" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from advise" -s d -l duration -d 'Length of the burst in seconds, 0.01 to 10; calls of the target are slower meanwhile' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from advise" -l threads -d 'Observe only threads whose name matches; may be given several times [default: msgr-worker-*, or all threads of a process that has none of that name]' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from advise" -l calibration -d 'Calibration of the process\'s library, from `wcprof crypto calibrate -o` [default: the kept one, else measured now]' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from advise" -l other -d 'Calibration of another library to compare with, from `wcprof crypto calibrate --lib PATH -o`' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from advise" -l json -d 'Machine-readable output'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from advise" -l no-cache -d 'Do not read or write kept calibrations (in $XDG_CACHE_HOME/wcprof)'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from advise" -s h -l help -d 'Print help'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from advise" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from confined-calibrate" -s h -l help -d 'Print help'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from confined-calibrate" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from help" -f -a "calibrate" -d 'Measure what AES-128-GCM calls of a libcrypto cost on this machine: a second, up to ten beside other work'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from help" -f -a "model" -d 'Predict what messages cost, and what larger pieces at once would save'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from help" -f -a "observe" -d 'Watch the calls of a live process for a moment: which frames it sends and receives'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from help" -f -a "advise" -d 'Say in a sentence whether larger pieces at once would help a process, and what else would'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from help" -f -a "confined-calibrate" -d 'The process that `calibrate --pid` loads a foreign library in'
complete -c wcprof -n "__fish_wcprof_using_subcommand crypto; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c wcprof -n "__fish_wcprof_using_subcommand demo" -s d -l duration -d 'Length of the recording in seconds' -r
complete -c wcprof -n "__fish_wcprof_using_subcommand demo" -l engine -d 'How to observe the workload' -r -f -a "auto\t'The best one that works here'
bpf\t'BPF task iterator and perf events'
procfs\t'/proc and perf events'
procfs-only\t'Only /proc: running threads have no stack'"
complete -c wcprof -n "__fish_wcprof_using_subcommand demo" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c wcprof -n "__fish_wcprof_using_subcommand demo" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand demo-workload" -l disk -d 'Folder of the slow disk; real files without it' -r -F
complete -c wcprof -n "__fish_wcprof_using_subcommand demo-workload" -s h -l help -d 'Print help'
complete -c wcprof -n "__fish_wcprof_using_subcommand demo-workload" -s V -l version -d 'Print version'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and not __fish_seen_subcommand_from attach top report diff import merge hotspots locks symbols check doctor crypto demo demo-workload help" -f -a "attach" -d 'Record a live process, save the trace and print where its time went'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and not __fish_seen_subcommand_from attach top report diff import merge hotspots locks symbols check doctor crypto demo demo-workload help" -f -a "top" -d 'Show live where the threads of a process spend their time'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and not __fish_seen_subcommand_from attach top report diff import merge hotspots locks symbols check doctor crypto demo demo-workload help" -f -a "report" -d 'Print a saved trace as a tree or flame graph, or export it to other viewers'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and not __fish_seen_subcommand_from attach top report diff import merge hotspots locks symbols check doctor crypto demo demo-workload help" -f -a "diff" -d 'Compare two saved traces: what changed, by how much, and whether that is significant'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and not __fish_seen_subcommand_from attach top report diff import merge hotspots locks symbols check doctor crypto demo demo-workload help" -f -a "import" -d 'Convert a file of another profiler to a trace: perf.data, folded stacks, text of uwpmp or gdbpmp'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and not __fish_seen_subcommand_from attach top report diff import merge hotspots locks symbols check doctor crypto demo demo-workload help" -f -a "merge" -d 'Merge traces into one: of the hosts of a cluster, of successive runs, or of one process over time'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and not __fish_seen_subcommand_from attach top report diff import merge hotspots locks symbols check doctor crypto demo demo-workload help" -f -a "hotspots" -d 'Print the hotspots of a saved trace, with evidence and advice'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and not __fish_seen_subcommand_from attach top report diff import merge hotspots locks symbols check doctor crypto demo demo-workload help" -f -a "locks" -d 'Show where threads of a saved trace waited for locks, and what the holders did meanwhile'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and not __fish_seen_subcommand_from attach top report diff import merge hotspots locks symbols check doctor crypto demo demo-workload help" -f -a "symbols" -d 'Show for each module where its names come from, what is missing, and what would supply it'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and not __fish_seen_subcommand_from attach top report diff import merge hotspots locks symbols check doctor crypto demo demo-workload help" -f -a "check" -d 'Show what works on this machine and for a process, and what to do about the rest'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and not __fish_seen_subcommand_from attach top report diff import merge hotspots locks symbols check doctor crypto demo demo-workload help" -f -a "doctor" -d 'Check the settings of a process and its host: findings with evidence and advice, read-only'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and not __fish_seen_subcommand_from attach top report diff import merge hotspots locks symbols check doctor crypto demo demo-workload help" -f -a "crypto" -d 'Show what encryption of Ceph\'s messenger costs here, and what would reduce it'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and not __fish_seen_subcommand_from attach top report diff import merge hotspots locks symbols check doctor crypto demo demo-workload help" -f -a "demo" -d 'Profile a built-in workload shaped like a Ceph OSD'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and not __fish_seen_subcommand_from attach top report diff import merge hotspots locks symbols check doctor crypto demo demo-workload help" -f -a "demo-workload" -d 'The workload that `demo` profiles'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and not __fish_seen_subcommand_from attach top report diff import merge hotspots locks symbols check doctor crypto demo demo-workload help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and __fish_seen_subcommand_from crypto" -f -a "calibrate" -d 'Measure what AES-128-GCM calls of a libcrypto cost on this machine: a second, up to ten beside other work'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and __fish_seen_subcommand_from crypto" -f -a "model" -d 'Predict what messages cost, and what larger pieces at once would save'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and __fish_seen_subcommand_from crypto" -f -a "observe" -d 'Watch the calls of a live process for a moment: which frames it sends and receives'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and __fish_seen_subcommand_from crypto" -f -a "advise" -d 'Say in a sentence whether larger pieces at once would help a process, and what else would'
complete -c wcprof -n "__fish_wcprof_using_subcommand help; and __fish_seen_subcommand_from crypto" -f -a "confined-calibrate" -d 'The process that `calibrate --pid` loads a foreign library in'
