//! Smallest program that answers a query from a store: `reopener-small STORE NAME SELECTOR`.

use evermap::Store;
use evermap_dom::{Document, Selector};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, name, selector] = &arguments[..] else {
        return Err("usage: reopener-small STORE NAME SELECTOR".into());
    };
    let store = Store::open(store)?;
    let document = store.read::<Document>(name)?;
    let selector: Selector = selector.parse()?;
    println!("found {}", document.dom()?.count(&selector));
    std::process::exit(0)
}
