//! A detached value can't be read or copied, and can't outlive the borrow of its object.

use evermap::{Detached, PString, Scratch};

fn goes_on(object: &mut Scratch<PString>) {
    let text = object.root_mut().detach();
    object.root_mut().clear();
    drop(text);
}

fn outlives<'a>() -> Detached<'a, PString> {
    let mut object = Scratch::<PString>::new("text").unwrap();
    object.root_mut().detach()
}

fn looks(object: &mut Scratch<PString>) -> usize {
    object.root_mut().detach().len()
}

fn copies(object: &mut Scratch<PString>) {
    let text = object.root_mut().detach();
    let _ = (text.clone(), text);
}

fn main() {}
