//! Two ways to one value, one of them for writing.

use evermap::{Error, PString, PVec, Scratch};

fn two_cursors(object: &mut Scratch<PVec<PString>>) -> Result<(), Error> {
    let mut one = object.root_mut();
    let mut other = object.root_mut();
    one.push("a")?;
    other.push("b")?;
    Ok(())
}

fn read_across_a_push(object: &mut Scratch<PVec<PString>>) -> Result<(), Error> {
    let mut lines = object.root_mut();
    let first = &lines[0];
    lines.push("b")?;
    println!("{first}");
    Ok(())
}

fn element_across_a_push(object: &mut Scratch<PVec<PString>>) -> Result<(), Error> {
    let mut lines = object.root_mut();
    let mut first = lines.get_mut(0).unwrap();
    lines.push("b")?;
    first.push_str("a")?;
    Ok(())
}

fn main() {}
