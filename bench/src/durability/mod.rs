//! Durability: what commits cost beside the disk's floor and beside other engines, and what comes
//! with them: stores, opening, bulk building, bytes written.
//!
//! All engines do the same work in the same run: a GiB of pages of 4 KiB (values under numbers, for
//! those that keep values), of which 1, 100 or 10,000, chosen at random, are changed and made
//! durable together. Eight bytes are changed on each, or all of it. Everything is in the kernel's page
//! cache, except where it says "read anew". All processors are kept from sleeping.

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
        // What wants the object's pages in the cache comes before what drops them from it.
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
