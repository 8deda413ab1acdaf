//! `evermap sandbox list`: lists applications, their objects and their rights.

use std::path::Path;

use evermap_wasm::{AccessTable, ObjectRow};

use crate::failure::Failure;
use crate::output::{self, Output};

/// List applications, their objects and their rights
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap sandbox list --json")]
pub struct List {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl List {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let store = evermap::Store::open(directory)?;
        let access = AccessTable::of_store(store.path()).read()?;
        let mut output = Output::new();
        if self.json {
            output.json(&access)?;
            return output.finish();
        }
        let applications: Vec<[String; 4]> = access
            .applications
            .iter()
            .map(|row| {
                let modules = match &row.modules {
                    None => "any".to_string(),
                    Some(bound) if bound.is_empty() => "none".to_string(),
                    Some(bound) => {
                        bound.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
                    }
                };
                let (used, quota) = (output::bytes(row.used_bytes), output::bytes(row.quota_bytes));
                [row.application.clone(), used, quota, modules]
            })
            .collect();
        output.table(["APPLICATION", "USED", "QUOTA", "MODULES"], &applications, &[0, 3])?;
        if !access.objects.is_empty() {
            output.line("")?;
            let objects: Vec<[String; 3]> = access.objects.iter().map(shown).collect();
            output.table(["OBJECT", "BYTES", "ADDRESSES"], &objects, &[0, 2])?;
        }
        if !access.rights.is_empty() {
            output.line("")?;
            let rights: Vec<[String; 3]> = access
                .rights
                .iter()
                .map(|row| [row.application.clone(), row.object.clone(), row.level.to_string()])
                .collect();
            output.table(["APPLICATION", "MAY USE", "LEVEL"], &rights, &[0, 1, 2])?;
        }
        output.finish()
    }
}

fn shown(row: &ObjectRow) -> [String; 3] {
    let ranges: Vec<String> = row
        .addresses
        .iter()
        .map(|(base, bytes)| format!("{base:#x}..{:#x}", base.saturating_add(*bytes)))
        .collect();
    // Saturating, because the file can be edited by hand.
    let bytes = row.addresses.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
    [row.object.clone(), output::bytes(bytes), ranges.join(" ")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_an_edited_table_are_shown() {
        let addresses = vec![(u64::MAX, 1), (1, u64::MAX)];
        let row = ObjectRow { object: "a:x".to_string(), owner: "a".to_string(), addresses };
        assert!(shown(&row)[2].starts_with("0xffffffffffffffff..0xffffffffffffffff"));
    }
}
