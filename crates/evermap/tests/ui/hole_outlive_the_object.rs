//! Keeping a cursor, or a reference, beyond the object it leads into.

use evermap::{Error, Mut, PString, PVec, Scratch};

fn cursor() -> Result<(), Error> {
    let mut object = Scratch::<PVec<PString>>::new(["a"])?;
    let mut lines = object.root_mut();
    drop(object);
    lines.push("b")?;
    Ok(())
}

fn reference() -> Result<(), Error> {
    let object = Scratch::<PVec<PString>>::new(["a"])?;
    let text: &str = &object.root()[0];
    drop(object);
    println!("{text}");
    Ok(())
}

fn reference_from_a_cursor() -> Result<&'static PString, Error> {
    let mut object = Scratch::<PVec<PString>>::new(["a"])?;
    Ok(object.root_mut().into_get_mut(0).unwrap().into_ref())
}

fn longer<'a>(mut lines: Mut<'_, PVec<PString>>) -> Option<Mut<'a, PString>> {
    lines.get_mut(0)
}

fn main() {}
