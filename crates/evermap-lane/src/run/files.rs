//! Places the policy's files on the tier for the program, and reports those that are not there.

use std::path::Path;

use super::NotApplied;
use crate::tier::{self, Plan, Request, SkipReason, Unsuitable, View, Watch};
use crate::{Placement, Policy};

/// Places the policy's files on the tier, for [`super::Options::view`] and
/// [`super::Options::not_applied`]. In mode `switch` it places nothing: [`tier::place`] moves files
/// there once, and this reports those that are not there yet. Cost: copies and hashes files without
/// a current copy.
///
/// # Errors
/// An invalid tier, an invalid pattern, a cancellation by `watch`. Problems with single files are
/// reported in the list.
pub fn view(policy: &Policy, watch: &Watch) -> tier::Result<(View, Vec<NotApplied>)> {
    if policy.tier.files.is_empty() {
        return Ok((View::default(), Vec::new()));
    }
    let plan = Plan::make(&Request::of_policy(&policy.tier))?;
    let mut not_applied: Vec<NotApplied> = Vec::new();
    for skipped in &plan.skipped {
        if skipped.why != SkipReason::Unsuitable(Unsuitable::OnTier) {
            let remedy = "the program reads the original";
            not_applied.push(not_there(&skipped.path, &skipped.why.to_string(), remedy));
        }
    }
    for pattern in &plan.unmatched {
        not_applied.push(not_there(
            Path::new(pattern),
            "no file matches",
            "check `files` in the policy",
        ));
    }
    if plan.mode == Placement::Switch {
        for file in &plan.files {
            let remedy = "move it there with `evermap lane place apply` and this policy";
            not_applied.push(not_there(&file.path, "it has not been moved there", remedy));
        }
        return Ok((View::default(), not_applied));
    }
    let applied = tier::place(&plan, None, watch)?;
    for (path, error) in &applied.failed {
        not_applied.push(not_there(path, &error.to_string(), "the program reads the original"));
    }
    for placed in &applied.placed {
        if let Some(what) = &placed.not_kept {
            not_applied.push(NotApplied {
                what: format!("attributes of {} on the tier: {what}", placed.path.display()),
                why: "the tier does not support them".into(),
                remedy: "the contents are the same; a tier on another file system may support them"
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
