//! Durability: the cost of commits compared with the disk's floor and with other engines, and the
//! cost of stores, opening, bulk building and bytes written.
//!
//! All engines do the same work in the same run: a GiB of pages of 4 KiB (values under numbers in
//! key-value engines), of which 1, 100 or 10,000, chosen at random, are changed and made durable
//! together. Either eight bytes of each are changed, or all of it. Everything is in the page cache,
//! except in rows named "read anew". All processors are kept awake.

mod building;
mod commits;
mod engines;
mod opening;
mod peers;
mod stores;
mod work;
mod written;

use crate::Outcome;
use crate::corpus::Corpus;
use crate::files::Folder;
use crate::goals::Goals;
use crate::parts::Parts;
use crate::quiet::Awake;
use engines::evermap::Evermap;
pub use opening::{child_leave, child_map, child_read};
use work::Scale;

pub fn report(_: &Corpus) -> Outcome {
    let scale = Scale::from_environment();
    if scale.divisor > 1 {
        println!("*A quick run over a smaller object: its figures mean nothing.*\n");
    }
    let folder = Folder::new("durability")?;
    let mut goals = Goals::default();
    let _awake = Awake::new()?;
    let parts = Parts::from_environment();
    if parts.any(&["commits", "peers", "stores", "opening"]) {
        let mut evermap = Evermap::new(&folder.join("store"), scale)?;
        // Parts that need the object's pages in the cache run before the part that drops them.
        if parts.any(&["peers"]) {
            let own = peers::measure(&mut evermap, scale)?;
            peers::report(own, &folder, scale, &mut goals)?;
        }
        if parts.any(&["stores"]) {
            stores::report(&mut evermap, scale, &mut goals)?;
        }
        if parts.any(&["commits"]) {
            commits::report(&mut evermap, &folder, scale, &mut goals)?;
        }
        drop(evermap);
        if parts.any(&["opening"]) {
            opening::report(&folder.join("store"), scale, &mut goals)?;
        }
        std::fs::remove_dir_all(folder.join("store"))?;
    }
    if parts.any(&["building"]) {
        building::report(&folder, scale, &mut goals)?;
    }
    goals.print();
    Ok(())
}
