//! What identifies a type and its values: descriptions and type ids, differences between two
//! descriptions, hashes, and the ordinary values that stand for a key.

mod describe;
mod difference;
mod hash;
mod key;

pub(super) use describe::type_name;
pub use describe::{Definition, Description, TypeId128, type_description, type_id};
pub use difference::{FieldChange, FieldShape, SchemaDifference};
pub use hash::PersistHash;
pub use key::KeySource;
