//! The traits that others rely on are `unsafe`.

use evermap::{Persist, Plain};

struct Mine;

impl Persist for Mine {}

impl Plain for Mine {}

fn main() {}
