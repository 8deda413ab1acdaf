//! The files that a policy wants on the tier: copied there for the program to see; what is not there is said.

use std::path::Path;

use super::NotApplied;
use crate::tier::{self, Plan, Request, SkipReason, Unsuitable, View, Watch};
use crate::{Placement, Policy};

/// Puts the policy's files on the tier, for [`super::Options::view`] and [`super::Options::not_applied`]. In mode `switch` nothing is put anywhere: files move
/// there by [`tier::place`], once; those that have not are said. Cost: copies what is not there yet, and hashes it.
///
/// # Errors
/// A tier that is none, a pattern that is none, an end by `watch`. What is wrong with single files is in what could not be had.
pub fn view(policy: &Policy, watch: &Watch) -> tier::Result<(View, Vec<NotApplied>)> {
    if policy.tier.files.is_empty() {
        return Ok((View::default(), Vec::new()));
    }
    let plan = Plan::make(&Request::of_policy(&policy.tier))?;
    let mut not_applied: Vec<NotApplied> = Vec::new();
    for skipped in &plan.skipped {
        if skipped.why != SkipReason::Unsuitable(Unsuitable::OnTier) {
            let remedy = "it comes from where it is";
            not_applied.push(not_there(&skipped.path, &skipped.why.to_string(), remedy));
        }
    }
    for pattern in &plan.unmatched {
        not_applied.push(not_there(
            Path::new(pattern),
            "no file has this name",
            "see the policy's `files`",
        ));
    }
    if plan.mode == Placement::Switch {
        for file in &plan.files {
            let remedy = "`evermap lane place apply` with this policy moves it there";
            not_applied.push(not_there(&file.path, "it has not been moved there", remedy));
        }
        return Ok((View::default(), not_applied));
    }
    let applied = tier::place(&plan, None, watch)?;
    for (path, error) in &applied.failed {
        not_applied.push(not_there(path, &error.to_string(), "it comes from where it is"));
    }
    for placed in &applied.placed {
        if let Some(what) = &placed.not_kept {
            not_applied.push(NotApplied {
                what: format!("attributes of {} on the tier: {what}", placed.path.display()),
                why: "the tier does not keep them".into(),
                remedy: "its contents are the same; a tier of another file system may keep them"
                    .into(),
            });
        }
    }
    Ok((applied.view(), not_applied))
}

fn not_there(path: &Path, why: &str, remedy: &str) -> NotApplied {
    NotApplied {
        what: format!("{} on the tier", path.display()),
        why: why.into(),
        remedy: remedy.into(),
    }
}
