use evermap::Persist;

#[derive(Persist)]
#[repr(C)]
#[persist(nme = "Notes")]
struct Misspelt {
    count: u64,
}

#[derive(Persist)]
#[repr(C)]
#[persist(name = "a name; with {everything}")]
struct BadName {
    count: u64,
}

fn main() {}
