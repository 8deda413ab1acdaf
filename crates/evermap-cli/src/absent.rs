//! Verbs of features that a build lacks: the error says how to build them.
//!
//! They are not hidden verbs, because completion scripts would contain those. This module is only
//! used after the command line has named an unknown verb.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::failure::Failure;

/// A feature and its verbs. `parent` is the verb that they are subcommands of, if any.
struct Feature {
    name: &'static str,
    is_built: bool,
    parent: Option<&'static str>,
    verbs: &'static [&'static str],
}

const FEATURES: [Feature; 2] = [
    Feature {
        name: "view",
        is_built: cfg!(feature = "view"),
        parent: None,
        verbs: &["view", "render", "prefetch"],
    },
    Feature {
        name: "sandbox",
        is_built: cfg!(feature = "sandbox"),
        parent: Some("sandbox"),
        verbs: &["run", "grant", "revoke", "list"],
    },
];

/// Returns the failure to report if `error` means that this build lacks the verb.
pub fn missing_feature(
    error: &clap::Error,
    words: impl Iterator<Item = String>,
) -> Option<Failure> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(asked)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let before: Vec<String> = words.take_while(|word| word != asked).collect();
    FEATURES.iter().filter(|feature| !feature.is_built).find_map(|feature| {
        let follows = |verb: &str| before.iter().any(|word| word == verb);
        let applies = feature.parent.map_or(!follows("sandbox"), follows);
        let verb = feature.verbs.iter().find(|verb| applies && *verb == asked)?;
        let verb = feature.parent.into_iter().chain([*verb]).collect::<Vec<_>>().join(" ");
        Some(Failure::NotBuilt { verb, feature: feature.name })
    })
}
