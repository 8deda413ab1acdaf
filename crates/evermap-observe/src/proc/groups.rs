//! `/proc/PID/cgroup`: the control groups of a process.

/// Control group of a process, in one hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership<'t> {
    /// Controllers of the hierarchy, separated by commas. `None` for version 2.
    pub controllers: Option<&'t str>,
    /// Path of the group in its hierarchy. In a container it can be the host's.
    pub path: &'t str,
}

impl<'t> Membership<'t> {
    /// Parses `NUMBER:CONTROLLERS:PATH`.
    fn parse(line: &'t str) -> Option<Self> {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_version_2 = number == "0" && controllers.is_empty();
        Some(Membership { controllers: (!is_version_2).then_some(controllers), path })
    }

    /// Returns the controllers of version 1.
    pub fn controllers(&self) -> impl Iterator<Item = &'t str> + use<'t> {
        let names = self.controllers.unwrap_or_default().split(',');
        names.filter(|controller| !controller.is_empty())
    }
}

/// Parses `/proc/PID/cgroup`.
///
/// ```
/// use evermap_observe::proc::memberships;
/// let all: Vec<_> = memberships("4:cpu,cpuacct:/a\n0::/b\n").collect();
/// assert!(all[0].controllers().any(|controller| controller == "cpu"));
/// assert_eq!((all[1].controllers, all[1].path), (None, "/b"));
/// ```
pub fn memberships(text: &str) -> impl Iterator<Item = Membership<'_>> {
    text.lines().filter_map(Membership::parse)
}
