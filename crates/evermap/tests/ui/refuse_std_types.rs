//! Each field of another kind that can't be kept.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use evermap::{PBox, PVec, Persist};

#[derive(Persist)]
#[repr(C)]
struct Everything {
    vec: Vec<u8>,
    string: String,
    qualified: std::string::String,
    boxed: Box<u8>,
    counted: Rc<u8>,
    shared: Arc<u8>,
    hashed: HashMap<u8, u8>,
    sorted: BTreeMap<u8, u8>,
    cell: Cell<u8>,
    ref_cell: RefCell<u8>,
    mutex: Mutex<u8>,
    reference: &'static str,
    raw: *mut u8,
    function: fn(u8) -> u8,
    object: Box<dyn Fn()>,
    boxed_object: PBox<dyn Fn()>,
    size: usize,
    difference: isize,
    pair: (u8, u16),
    option: Option<u32>,
    nested: PVec<PVec<String>>,
    array: [Vec<u8>; 2],
}

fn main() {}
