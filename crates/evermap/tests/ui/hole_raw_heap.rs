//! Raw operations on a typed object need `unsafe`.

use std::ptr::NonNull;

use evermap::{PVec, RawSession, Session};

fn free_what_a_vector_owns(session: &Session<PVec<u64>>) {
    let elements = NonNull::from(&session[0]).cast();
    session.heap().try_free(elements).unwrap();
}

fn give_it_a_root_that_is_none(session: &mut RawSession) {
    let block = session.heap().allocate(24, 8).unwrap();
    let (tag, description) = (evermap::type_id::<PVec<u64>>().0, "a lie");
    session.set_root(Some(block), 24, tag, description).unwrap();
}

fn main() {}
