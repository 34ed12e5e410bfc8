//! Lines of `/proc/PID/cgroup` to control groups.

/// Controllers (none in version 2) and path of each line `hierarchy:controllers:path` of `/proc/PID/cgroup` (cgroups(7)).
pub(crate) fn cgroups(text: &str) -> impl DoubleEndedIterator<Item = (&str, &str)> {
    let lines = text.lines();
    lines.filter_map(|line| line.split_once(':')?.1.split_once(':'))
}
