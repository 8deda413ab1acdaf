//! Verbs that stand behind features: a build that lacks one says how to get it.
//!
//! They are no hidden verbs of such a build, for those would be in the completions of every shell. It
//! is asked here when the command line names a verb that there is none of.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::failure::Failure;

/// The verbs of a feature, and the verb that they are verbs of.
struct Feature {
    name: &'static str,
    is_built: bool,
    below: Option<&'static str>,
    verbs: &'static [&'static str],
}

const FEATURES: [Feature; 2] = [
    Feature {
        name: "view",
        is_built: cfg!(feature = "view"),
        below: None,
        verbs: &["view", "render", "prefetch"],
    },
    Feature {
        name: "sandbox",
        is_built: cfg!(feature = "sandbox"),
        below: Some("sandbox"),
        verbs: &["run", "grant", "revoke", "list"],
    },
];

/// What to say when a command line could not be read because this build lacks its verb.
pub fn explain(error: &clap::Error, words: impl Iterator<Item = String>) -> Option<Failure> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(asked)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let before: Vec<String> = words.take_while(|word| word != asked).collect();
    FEATURES.iter().filter(|feature| !feature.is_built).find_map(|feature| {
        let is_below = |verb: &str| before.iter().any(|word| word == verb);
        let here = feature.below.map_or(!is_below("sandbox"), is_below);
        let verb = feature.verbs.iter().find(|verb| here && *verb == asked)?;
        let verb = feature.below.into_iter().chain([*verb]).collect::<Vec<_>>().join(" ");
        Some(Failure::NotBuilt { verb, feature: feature.name })
    })
}
